#include <math.h>
#include <string.h>

#include "tests/support/op_bench.h"
#include "tests/support/unit.h"

void bench_open(struct bench *bench, enum sbp_op_kind kind)
{
    memset(bench, 0, sizeof *bench);
    bench->graph = (struct sbp_graph){.global_batch = 1,
                                      .micro_batch = 1,
                                      .op = &bench->node,
                                      .tensor = bench->tensor,
                                      .op_count = 1,
                                      .input = -1,
                                      .loss = -1};
    bench->node = (struct sbp_op_node){.kind = kind, .entry = sbp_op(kind), .repeats = 1};
}

static int bench_tensor(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d)
{
    struct sbp_tensor *tensor = &bench->tensor[bench->graph.tensor_count];
    const int64_t size[SBP_MAX_DIMS] = {a, b, c, d};
    assert_true(bench->graph.tensor_count < (int)(sizeof bench->tensor / sizeof *bench->tensor));
    *tensor = (struct sbp_tensor){.producer = -1, .valid_dim = -1};
    memcpy(tensor->shape.size, size, sizeof size);
    return bench->graph.tensor_count++;
}

void bench_input(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d)
{
    bench->node.input[bench->node.input_count++] = bench_tensor(bench, a, b, c, d);
}

void bench_weight(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d)
{
    bench->node.weight[bench->node.weight_count++] = bench_tensor(bench, a, b, c, d);
}

void bench_output(struct bench *bench, int64_t a, int64_t b, int64_t c, int64_t d)
{
    bench->node.output = bench_tensor(bench, a, b, c, d);
}

struct sbp_factor factor_of(const struct bench *bench, const struct ways *ways)
{
    struct sbp_factor factor = sbp_op_factor_one();
    for (; ways != NULL && ways->role != NULL; ways++) {
        const int role = sbp_op_role(bench->node.entry, ways->role);
        assert_true(role >= 0);
        factor.of[role] = ways->ways;
    }
    return factor;
}

struct sbp_work work_of(const struct bench *bench, enum sbp_pass pass, const struct ways *ways)
{
    const struct sbp_factor factor = factor_of(bench, ways);
    return sbp_op_work(&bench->graph, 0, &factor, pass);
}

struct sbp_op_kept kept_of(const struct bench *bench, const struct ways *ways)
{
    const struct sbp_factor factor = factor_of(bench, ways);
    return sbp_op_kept(&bench->graph, 0, &factor);
}

double products_flops(const struct sbp_work *work)
{
    double flops = 0;
    for (int i = 0; i < work->product_count; i++)
        flops += 2 * work->product[i].count * work->product[i].m * work->product[i].n *
                 work->product[i].k;
    return flops;
}

void must_equal(const char *what, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%s: %.17g, expected %.17g", what, value, expected);
}

void must_be_product(const char *what, const struct sbp_work *work, int index, double count,
                     double m, double n, double k)
{
    const struct sbp_product *p = &work->product[index];
    if (index >= work->product_count || p->count != count || p->m != m || p->n != n || p->k != k)
        fail_msg("%s, product %d of %d: %g x (%g, %g, %g), expected %g x (%g, %g, %g)", what, index,
                 work->product_count, p->count, p->m, p->n, p->k, count, m, n, k);
}

void must_share(const struct bench *bench, const struct share *share)
{
    double devices = 1;
    for (const struct ways *w = share->ways; w->role != NULL; w++)
        devices *= w->ways;
    for (int pass = 0; pass < SBP_PASSES; pass++) {
        const struct sbp_work whole = work_of(bench, (enum sbp_pass)pass, WHOLE);
        const struct sbp_work part = work_of(bench, (enum sbp_pass)pass, share->ways);
        must_equal(share->what, products_flops(&part) * devices,
                   products_flops(&whole) * share->repeated);
        must_equal(share->what, part.flops * devices, whole.flops * share->repeated);
        must_equal(share->what, part.model_flops * devices, whole.model_flops * share->repeated);
    }
}

struct moved moved_by(const struct bench *bench, const struct ways *ways, const char *role,
                      enum sbp_pass pass, enum sbp_collective kind)
{
    const struct sbp_factor factor = factor_of(bench, ways);
    struct sbp_op_inner inner[SBP_MAX_INNER];
    struct moved moved = {0, 0};
    const int count = sbp_op_inner(&bench->graph, 0, &factor, inner);
    assert_in_range(count, 0, SBP_MAX_INNER);
    for (int i = 0; i < count; i++)
        if (inner[i].pass == pass && inner[i].kind == kind &&
            inner[i].roles == 1u << sbp_op_role(bench->node.entry, role)) {
            moved.elements += inner[i].count * inner[i].elements;
            moved.calls += inner[i].count;
        }
    return moved;
}

void must_move(const char *what, struct moved moved, double elements, int calls)
{
    must_equal(what, moved.elements, elements);
    assert_int_equal(moved.calls, calls);
}
