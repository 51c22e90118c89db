/* Boxing on ranks: every transition on meshes of one, two and three axes, of random tensors, run
 * with real exchanges over threads, must give every rank its block of the same logical tensor,
 * exactly (small integers); by the normal form and by the cheapest path.
 *
 * usage: test_boxing_run [SEED] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/rank/boxing_run_priv.h"
#include "base/math/random.h"
#include "costmodel/layout/boxing_path.h"
#include "tests/support/fewer.h"
#include "tests/support/unit.h"

enum { CLASSES = 3, STATES = CLASSES + 2 };

static uint64_t seed = 7031;

struct problem {
    struct sbp_cluster cluster; /* for the price of paths */
    struct sbp_mesh mesh;
    struct sbp_shape shape;
    sbp_axes split[CLASSES];
    struct sbp_layout layout;
    struct sbp_dist from, to;
    struct sbp_boxing boxing;
    struct sbp_graph graph;     /* without tensors */
    struct sbp_program program; /* the steps as BOX instructions, for the channel */
    struct sbp_step step;       /* of one stage that runs it */
    struct sbp_stage_end end;
    int program_of;
    struct sbp_instr instr[SBP_MAX_BOXING_STEPS];
};

static int below(struct sbp_random *random, int bound)
{
    return (int)sbp_random_below(random, (uint64_t)bound);
}

/* A level an axis, in any order of speed. size: ends with 0. */
static void make_mesh(struct sbp_random *random, const int *size, struct problem *p)
{
    struct sbp_diag diag = {0};
    for (int i = 0; size[i] > 0; i++)
        p->cluster.level[p->cluster.level_count++] =
            (struct sbp_level){.size = size[i],
                               .alpha_s = 1e-6 * below(random, 10),
                               .beta_s_per_byte = 1e-8 * (1 + below(random, 10))};
    if (sbp_mesh_make(&p->cluster, &p->mesh, &diag) != SBP_OK)
        fail_msg("mesh: %s", diag.text);
}

static struct sbp_state state_of(int state)
{
    return state == CLASSES       ? SBP_STATE_B
           : state == CLASSES + 1 ? SBP_STATE_P
                                  : SBP_STATE_S((uint8_t)state);
}

/* A transition by its number: two digits an axis. Classes have a digit for every axis that splits
 * them in either state, and some more. */
static void make_problem(struct sbp_random *random, const int *size, int number, struct problem *p)
{
    *p = (struct problem){0};
    make_mesh(random, size, p);
    for (int i = 0; i < p->mesh.axis_count; i++, number /= STATES * STATES) {
        p->from.axis[i] = state_of(number % STATES);
        p->to.axis[i] = state_of(number / STATES % STATES);
        if (p->from.axis[i].kind == SBP_SPLIT)
            p->split[p->from.axis[i].dim] |= (sbp_axes)1 << i;
        if (p->to.axis[i].kind == SBP_SPLIT)
            p->split[p->to.axis[i].dim] |= (sbp_axes)1 << i;
        p->split[below(random, CLASSES)] |= (sbp_axes)1 << i;
    }
    p->layout = (struct sbp_layout){&p->mesh, CLASSES, p->split};
    for (int d = 0; d < CLASSES; d++) {
        p->shape.dim_class[d] = d;
        p->shape.size[d] = (1 + below(random, 3)) * sbp_mesh_group_size(&p->mesh, p->split[d]);
    }
    p->shape.dim_class[3] = SBP_NO_CLASS;
    p->shape.size[3] = 1 + below(random, 3);
}

static void make_program(struct problem *p, bool path)
{
    struct sbp_diag diag = {0};
    const enum sbp_status status =
        path ? sbp_boxing_path(&p->cluster, &p->layout, &p->shape, sizeof(double), &p->from, &p->to,
                               &p->boxing, &diag)
             : sbp_boxing_make(&p->layout, &p->shape, &p->from, &p->to, &p->boxing, &diag);
    if (status != SBP_OK)
        fail_msg("boxing: %s", diag.text);
    for (int i = 0; i < p->boxing.count; i++)
        p->instr[i] =
            (struct sbp_instr){.kind = SBP_INSTR_BOX, .times = 1, .box = p->boxing.step[i]};
    p->program.graph = &p->graph;
    p->program.mesh = p->mesh;
    p->program.scope.micro_batches = 1;
    p->program.bytes = sbp_program_run_bytes(SBP_F64);
    p->program.instr = p->instr;
    p->program.instr_count = p->boxing.count;
    p->step = (struct sbp_step){.parallel = {.chunks = 1, .schedule = SBP_ONE_F_ONE_B},
                                .mesh = p->mesh,
                                .micro_batches = 1,
                                .stages = 1,
                                .pieces = 1,
                                .program_of = &p->program_of,
                                .end = &p->end,
                                .program_count = 1,
                                .program = &p->program};
}

/* A rank's block: where the tensor is partial, addends that depend on the member and sum up to it.
 */
static void fill_block(const struct problem *p, const struct sbp_dist *dist, int64_t rank,
                       bool target, double *block)
{
    struct sbp_region region;
    const sbp_axes partial = sbp_dist_of_kind(&p->mesh, dist, SBP_PARTIAL);
    const int64_t members = sbp_mesh_group_size(&p->mesh, partial);
    const int64_t place = sbp_mesh_group_place(&p->mesh, partial, rank);
    sbp_dist_region(&p->layout, &p->shape, dist, rank, &region);
    for (int64_t i = 0; i < sbp_region_elements(&region); i++) {
        const int64_t global = sbp_region_global(&region, i);
        const double value = (double)(17 * global % 101 + global);
        double addend = (double)((place + 1) * (global % 7));
        if (place == members - 1) {
            addend = value;
            for (int64_t other = 0; other < members - 1; other++)
                addend -= (double)((other + 1) * (global % 7));
        }
        block[i] = target ? value : addend;
    }
}

static double *new_block(const struct problem *p, const struct sbp_dist *dist)
{
    double *block =
        calloc((size_t)sbp_dist_local_elements(&p->mesh, &p->shape, dist), sizeof *block);
    assert_non_null(block);
    return block;
}

static enum sbp_status run_step(const struct problem *p, const struct sbp_boxing_step *step,
                                int64_t rank, double **block, struct sbp_channel *channel,
                                struct sbp_diag *diag)
{
    double *out = new_block(p, &step->to), *pack = new_block(p, &step->from);
    double *unpack = new_block(p, &step->to);
    const struct sbp_boxing_run run = {&p->layout, &p->shape, step, rank,
                                       *block,     out,       pack, unpack};
    const enum sbp_status status = sbp_boxing_execute(&run, channel, diag);
    free(pack);
    free(unpack);
    free(*block);
    *block = out;
    return status;
}

/* The members of the target's partial axes hold values whose sum is the tensor's block. */
static bool is_target(struct problem *p, int64_t rank, const double *block,
                      const struct sbp_channel *channel)
{
    const sbp_axes partial = sbp_dist_of_kind(&p->mesh, &p->to, SBP_PARTIAL);
    const int64_t elements = sbp_dist_local_elements(&p->mesh, &p->shape, &p->to);
    double *sum = new_block(p, &p->to), *want = new_block(p, &p->to);
    bool same = true;
    memcpy(sum, block, (size_t)elements * sizeof *sum);
    int ranks[64], group = 0;
    for (int64_t m = 0; m < sbp_mesh_group_size(&p->mesh, partial); m++)
        ranks[m] = (int)sbp_mesh_group_rank(&p->mesh, partial, rank, m);
    if (partial != 0)
        same =
            channel->ops->group(channel->comm, ranks, (int)sbp_mesh_group_size(&p->mesh, partial),
                                100, &group) == SBP_OK &&
            channel->ops->all_reduce(channel->comm, group, sum, elements, SBP_F64, SBP_SUM) ==
                SBP_OK;
    fill_block(p, &p->to, rank, true, want);
    for (int64_t i = 0; i < elements; i++)
        same = same && sum[i] == want[i];
    free(sum);
    free(want);
    return same;
}

static enum sbp_status open_channel(const struct problem *p, const struct sbp_comm_ops *ops,
                                    struct sbp_comm *comm, struct sbp_arena *arena,
                                    struct sbp_channel *channel, struct sbp_diag *diag)
{
    struct sbp_tasks *const tasks = SBP_NEW(arena, struct sbp_tasks, 1);
    if (tasks == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_tasks_make(&p->step, 0, arena, tasks, diag));
    return sbp_channel_open(channel, ops, comm, &p->step, tasks, sbp_kernels_cpu(SBP_F64), arena,
                            diag);
}

static enum sbp_status rank_main(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    struct problem *p = argument;
    struct sbp_arena arena = {0};
    struct sbp_channel channel;
    const int64_t rank = ops->rank(comm);
    enum sbp_status status = open_channel(p, ops, comm, &arena, &channel, diag);
    double *block = new_block(p, &p->from);
    fill_block(p, &p->from, rank, false, block);
    for (int i = 0; i < p->boxing.count && status == SBP_OK; i++)
        status = run_step(p, &p->boxing.step[i], rank, &block, &channel, diag);
    if (status == SBP_OK)
        status = sbp_channel_check(&channel, diag);
    if (status == SBP_OK && !is_target(p, rank, block, &channel))
        status = sbp_fail(diag, SBP_E_INTERNAL, "rank %lld has a wrong block", (long long)rank);
    free(block);
    sbp_arena_free(&arena);
    return status;
}

static void describe(const struct problem *p)
{
    char from[128], to[128];
    print_message("seed %llu, %lld ranks, %lld x %lld x %lld x %lld, split %#x %#x %#x: %s -> %s\n",
                  (unsigned long long)seed, (long long)p->mesh.devices, (long long)p->shape.size[0],
                  (long long)p->shape.size[1], (long long)p->shape.size[2],
                  (long long)p->shape.size[3], p->split[0], p->split[1], p->split[2],
                  sbp_dist_text(&p->mesh, &p->from, from, sizeof from),
                  sbp_dist_text(&p->mesh, &p->to, to, sizeof to));
}

static void check(struct problem *p, int steps_of[SBP_LOCAL + 1])
{
    struct sbp_diag diag = {0};
    for (int i = 0; i < p->boxing.count; i++)
        steps_of[p->boxing.step[i].kind]++;
    if (sbp_threads_run((int)p->mesh.devices, rank_main, p, &diag) == SBP_OK)
        return;
    describe(p);
    fail_msg("%s", diag.text);
}

/* Transitions of three axes are 15,625, of which a run that asks for fewer leaves out more. */
static void keep_the_tensor(bool path)
{
    static const int sizes[][4] = {{2, 0}, {3, 0}, {2, 2, 0}, {2, 3, 0}, {3, 2, 0}, {2, 2, 2, 0}};
    static const int transitions[] = {25, 25, 625, 625, 625, 15625};
    const int step = one_in() > 1 ? 7 * one_in() : 1;
    struct sbp_random random;
    int steps_of[SBP_LOCAL + 1] = {0}, count = 0;
    sbp_random_seed(&random, seed);
    for (int mesh = 0; mesh < 6; mesh++)
        for (int i = 0; i < transitions[mesh]; i += mesh == 5 ? step : 1, count++) {
            struct problem p;
            make_problem(&random, sizes[mesh], i, &p);
            make_program(&p, path);
            check(&p, steps_of);
        }
    print_message("seed %llu: %d transitions\n", (unsigned long long)seed, count);
    for (int kind = 0; kind <= SBP_LOCAL; kind++)
        if (kind != SBP_SEND_RECV)
            assert_true(steps_of[kind] > 10);
}

static void transitions_keep_the_tensor(void **state)
{
    (void)state;
    keep_the_tensor(false);
}

static void paths_keep_the_tensor(void **state)
{
    (void)state;
    keep_the_tensor(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(transitions_keep_the_tensor),
                                       cmocka_unit_test(paths_keep_the_tensor)};
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
