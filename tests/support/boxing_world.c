#include "tests/support/boxing_world.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#define SEED UINT64_C(4204)

/* The block of one logical tensor that every rank holds. */
struct world {
    const struct oracle_tensor *tensor;
    const int64_t *logical;
    int64_t ranks, count; /* elements a rank */
    int64_t *block[BOX_MOST_RANKS];
};

static int64_t *numbers(int64_t count)
{
    int64_t *array = calloc((size_t)count + 1, sizeof *array);
    assert_non_null(array);
    return array;
}

static void world_drop(struct world *world)
{
    for (int64_t r = 0; r < world->ranks; r++)
        free(world->block[r]);
}

void box_describe(const struct box_problem *p, const struct sbp_boxing *boxing)
{
    char from[128], to[128];
    print_message("mesh of %lld ranks, sizes %lld %lld %lld, splits %#x %#x %#x\n",
                  (long long)p->mesh.devices, (long long)p->tensor.shape.size[0],
                  (long long)p->tensor.shape.size[1], (long long)p->tensor.shape.size[2],
                  p->tensor.split[0], p->tensor.split[1], p->tensor.split[2]);
    for (int i = 0; i < p->mesh.axis_count; i++)
        print_message("  axis %d of %lld: %d(%d) -> %d(%d)\n", i, (long long)p->mesh.axis[i].size,
                      p->from.axis[i].kind, p->from.axis[i].dim, p->to.axis[i].kind,
                      p->to.axis[i].dim);
    for (int i = 0; boxing != NULL && i < boxing->count; i++)
        print_message("  %s over %#x: %s -> %s, %lld elements\n",
                      sbp_collective_name(boxing->step[i].kind), boxing->step[i].axes,
                      sbp_dist_text(&p->mesh, &boxing->step[i].from, from, sizeof from),
                      sbp_dist_text(&p->mesh, &boxing->step[i].to, to, sizeof to),
                      (long long)boxing->step[i].elements);
}

/* --- distributions in the flesh --- */

/* A rank's place among those that hold addends of the same elements. */
static int64_t place_among(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank)
{
    int64_t place = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (axes >> i & 1)
            place = place * mesh->axis[i].size + oracle_coordinate(mesh, rank, i);
    return place;
}

static sbp_axes axes_of_kind(const struct sbp_mesh *mesh, const struct sbp_dist *dist, int kind)
{
    sbp_axes axes = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (dist->axis[i].kind == kind)
            axes |= (sbp_axes)1 << i;
    return axes;
}

/* Random addends; the last holder has what is missing to the sum. */
static int64_t addend(int64_t logical, int64_t element, int64_t place, int64_t holders)
{
    int64_t rest = logical;
    for (int64_t i = 0; i < holders; i++) {
        const int64_t draw =
            (int64_t)(sbp_random_bits_at(SEED, (uint64_t)i, (uint64_t)element) % 2001) - 1000;
        if (i == place && i < holders - 1)
            return draw;
        if (i < holders - 1)
            rest -= draw;
    }
    return rest;
}

static void world_build(struct world *world, const struct oracle_tensor *tensor,
                        const struct sbp_dist *dist, const int64_t *logical)
{
    const struct sbp_mesh *mesh = tensor->layout.mesh;
    const sbp_axes partial = axes_of_kind(mesh, dist, SBP_PARTIAL);
    const int64_t holders = oracle_product(mesh, partial);
    *world = (struct world){.tensor = tensor, .logical = logical, .ranks = mesh->devices};
    for (int64_t r = 0; r < world->ranks; r++) {
        world->block[r] = numbers(oracle_size(&tensor->shape));
        world->count = oracle_block(&tensor->layout, &tensor->shape, dist, r, world->block[r]);
        for (int64_t i = 0; i < world->count; i++) {
            const int64_t at = world->block[r][i];
            world->block[r][i] = addend(logical[at], at, place_among(mesh, partial, r), holders);
        }
    }
}

/* The world is the distribution of the logical tensor: replicas equal, addends sum up. */
static bool world_is(const struct world *world, const struct sbp_dist *dist)
{
    const struct oracle_tensor *t = world->tensor;
    const struct sbp_mesh *mesh = t->layout.mesh;
    const sbp_axes partial = axes_of_kind(mesh, dist, SBP_PARTIAL);
    const sbp_axes same = axes_of_kind(mesh, dist, SBP_BROADCAST);
    int64_t *at = numbers(oracle_size(&t->shape)), *sum = numbers(world->count);
    bool is = true;
    for (int64_t r = 0; r < world->ranks && is; r++) {
        is = oracle_block(&t->layout, &t->shape, dist, r, at) == world->count;
        memset(sum, 0, (size_t)world->count * sizeof *sum);
        for (int64_t o = 0; o < world->ranks && is; o++) {
            if (oracle_same_group(mesh, same, r, o))
                is = memcmp(world->block[o], world->block[r], (size_t)world->count * sizeof *sum) ==
                     0;
            if (oracle_same_group(mesh, partial, r, o))
                for (int64_t i = 0; i < world->count; i++)
                    sum[i] += world->block[o][i];
        }
        for (int64_t i = 0; i < world->count && is; i++)
            is = sum[i] == world->logical[at[i]];
    }
    free(at);
    free(sum);
    return is;
}

/* --- steps in the flesh --- */

static void permute(const struct sbp_permutation *p, int64_t count, const int64_t *src,
                    int64_t *dst)
{
    if (!p->needed) {
        memcpy(dst, src, (size_t)count * sizeof *dst);
        return;
    }
    int64_t product = 1;
    bool seen[4 * SBP_MAX_AXES] = {false};
    for (int i = 0; i < p->dims; i++) {
        product *= p->shape[i];
        assert_in_range(p->order[i], 0, p->dims - 1);
        assert_false(seen[p->order[i]]);
        seen[p->order[i]] = true;
    }
    assert_int_equal(product, count);
    for (int i = 0; i < p->dims; i++) { /* what stays together is merged: no idle dimension */
        assert_true(p->shape[i] > 1);
        assert_true(i == 0 || p->order[i] != p->order[i - 1] + 1);
    }
    assert_true(p->dims > 1);
    for (int64_t to = 0; to < count; to++) {
        int64_t index[4 * SBP_MAX_AXES], left = to, from = 0;
        for (int i = p->dims - 1; i >= 0; i--) {
            index[p->order[i]] = left % p->shape[p->order[i]];
            left /= p->shape[p->order[i]];
        }
        for (int i = 0; i < p->dims; i++)
            from = from * p->shape[i] + index[i];
        dst[to] = src[from];
    }
}

static int64_t members_of(const struct sbp_mesh *mesh, sbp_axes axes, int64_t rank, int64_t *member)
{
    int64_t count = 0;
    for (int64_t o = 0; o < mesh->devices; o++)
        if (oracle_same_group(mesh, axes, rank, o))
            member[count++] = o;
    return count;
}

/* Does a collective as a backend promises it: `sent` blocks go in, the received block comes out.
 * count: elements sent. */
static int64_t exchange(const struct sbp_mesh *mesh, const struct sbp_boxing_step *step,
                        int64_t rank, int64_t count, int64_t *const *sent, int64_t *got)
{
    int64_t member[BOX_MOST_RANKS], me = 0;
    const int64_t g = members_of(mesh, step->axes, rank, member);
    while (member[me] != rank)
        me++;
    const int64_t part = count / g;
    switch (step->kind) {
    case SBP_ALL_REDUCE:
        for (int64_t i = 0; i < count * g; i++)
            got[i % count] += sent[member[i / count]][i % count];
        return count;
    case SBP_REDUCE_SCATTER:
        assert_int_equal(count % g, 0);
        for (int64_t i = 0; i < count; i++)
            got[i % part] += sent[member[i / part]][me * part + i % part];
        return part;
    case SBP_ALL_TO_ALL:
        assert_int_equal(count % g, 0);
        for (int64_t i = 0; i < count; i++)
            got[i] = sent[member[i / part]][me * part + i % part];
        return count;
    case SBP_ALL_GATHER:
        for (int64_t i = 0; i < count * g; i++)
            got[i] = sent[member[i / count]][i % count];
        return count * g;
    default:
        fail_msg("no exchange: %s", sbp_collective_name(step->kind));
        return 0;
    }
}

/* Slices, zero padding, and keeping on one member: element by element, by ownership. */
static int64_t local_step(const struct oracle_tensor *t, const struct sbp_boxing_step *step,
                          int64_t rank, const int64_t *src, int64_t *dst)
{
    const struct sbp_mesh *mesh = t->layout.mesh;
    int64_t *have = numbers(oracle_size(&t->shape)), *want = numbers(oracle_size(&t->shape));
    const int64_t haves = oracle_block(&t->layout, &t->shape, &step->from, rank, have);
    const int64_t wants = oracle_block(&t->layout, &t->shape, &step->to, rank, want);
    bool keeps = true;
    for (int i = 0; i < mesh->axis_count; i++)
        if (step->from.axis[i].kind == SBP_BROADCAST && step->to.axis[i].kind == SBP_PARTIAL)
            keeps &= oracle_coordinate(mesh, rank, i) == 0;
    for (int64_t i = 0, j = 0; i < wants; i++) {
        while (j < haves && have[j] < want[i])
            j++;
        dst[i] = keeps && j < haves && have[j] == want[i] ? src[j] : 0;
    }
    free(have);
    free(want);
    return wants;
}

static void run_step(struct world *world, const struct sbp_boxing_step *step)
{
    const struct oracle_tensor *t = world->tensor;
    const struct sbp_mesh *mesh = t->layout.mesh;
    const int64_t size = oracle_size(&t->shape);
    int64_t *sent[BOX_MOST_RANKS], *got = numbers(size), *next[BOX_MOST_RANKS];
    struct sbp_permutation pack, unpack;
    int64_t count = 0;
    if (step->kind != SBP_LOCAL) {
        sbp_boxing_pack(&t->layout, &t->shape, step, &pack);
        sbp_boxing_unpack(&t->layout, &t->shape, step, &unpack);
    }
    for (int64_t r = 0; r < world->ranks; r++) {
        sent[r] = numbers(size);
        next[r] = numbers(size);
        if (step->kind != SBP_LOCAL)
            permute(&pack, world->count, world->block[r], sent[r]);
    }
    for (int64_t r = 0; r < world->ranks; r++) {
        if (step->kind == SBP_LOCAL) {
            count = local_step(t, step, r, world->block[r], next[r]);
            continue;
        }
        memset(got, 0, (size_t)size * sizeof *got);
        count = exchange(mesh, step, r, world->count, sent, got);
        permute(&unpack, count, got, next[r]);
    }
    for (int64_t r = 0; r < world->ranks; r++) {
        free(sent[r]);
        free(world->block[r]);
        world->block[r] = next[r];
    }
    free(got);
    world->count = count;
}

void box_simulate(const struct box_problem *p, const struct sbp_boxing *boxing)
{
    int64_t *logical = numbers(oracle_size(&p->tensor.shape));
    for (int64_t i = 0; i < oracle_size(&p->tensor.shape); i++)
        logical[i] = 100 + 7 * i;
    struct world world;
    world_build(&world, &p->tensor, &p->from, logical);
    if (!world_is(&world, &p->from))
        fail_msg("the simulation is wrong");
    for (int i = 0; i < boxing->count; i++) {
        run_step(&world, &boxing->step[i]);
        if (!world_is(&world, &boxing->step[i].to)) {
            box_describe(p, boxing);
            fail_msg("step %d does not lead to what it says", i);
        }
    }
    if (!world_is(&world, &p->to)) {
        box_describe(p, boxing);
        fail_msg("the steps do not lead to the target");
    }
    world_drop(&world);
    free(logical);
}
