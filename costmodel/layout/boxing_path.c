#include "costmodel/layout/boxing_path.h"

#include <math.h>
#include <string.h>

/* A path must be cheaper by more than roundoff to replace another. */
#define BETTER (1 - 1e-12)

/* Axes by what becomes of them. */
struct ways {
    sbp_axes sum, rest, leave, move, gather, partial, whole; /* as in struct sbp_boxing_cut_task */
    sbp_axes slice;          /* B at first, split on the way: sliced before anything else */
    struct sbp_dist between; /* the split that an axis can have on the way, else its first state */
};

/* --- what has to change --- */

/* Finds a split that the layout has digits for; false: there is none. */
static bool find_split(const struct sbp_layout *layout, const struct sbp_shape *shape, int axis,
                       struct sbp_state *split)
{
    for (uint8_t dim = 0; dim < SBP_MAX_DIMS; dim++) {
        const int dim_class = shape->dim_class[dim];
        if (dim_class != SBP_NO_CLASS && layout->split[dim_class] >> axis & 1) {
            *split = SBP_STATE_S(dim);
            return true;
        }
    }
    return false;
}

static void note_partial(sbp_axes bit, struct sbp_state to, bool splits, struct ways *ways)
{
    if (to.kind == SBP_SPLIT)
        ways->leave |= bit;
    else if (to.kind == SBP_BROADCAST)
        *(splits ? &ways->rest : &ways->sum) |= bit;
    else if (splits)
        ways->partial |= bit;
}

static void note_whole(sbp_axes bit, struct sbp_state to, bool splits, struct ways *ways)
{
    if (splits)
        *(to.kind == SBP_BROADCAST ? &ways->whole : &ways->slice) |= bit;
}

static struct ways find_ways(const struct sbp_layout *layout, const struct sbp_shape *shape,
                             const struct sbp_dist *from, const struct sbp_dist *to)
{
    struct ways ways = {.between = *from};
    for (int i = 0; i < layout->mesh->axis_count; i++) {
        const struct sbp_state a = from->axis[i], b = to->axis[i];
        const sbp_axes bit = (sbp_axes)1 << i;
        struct sbp_state split = a;
        bool splits = true;
        if (b.kind == SBP_SPLIT)
            split = b;
        else if (a.kind != SBP_SPLIT)
            splits = find_split(layout, shape, i, &split);
        ways.between.axis[i] = split;
        if (a.kind == SBP_PARTIAL)
            note_partial(bit, b, splits, &ways);
        else if (a.kind == SBP_BROADCAST)
            note_whole(bit, b, splits, &ways);
        else if (b.kind == SBP_BROADCAST)
            ways.gather |= bit;
        else if (b.kind == SBP_SPLIT && b.dim != a.dim)
            ways.move |= bit;
    }
    return ways;
}

static int set_of(const struct sbp_paths *paths, sbp_axes axes)
{
    int set = 0;
    for (int i = 0; i < paths->mesh.axis_count; i++)
        if (axes >> i & 1)
            set += paths->prices.stride[paths->mesh.axis[i].family];
    return set;
}

static struct sbp_boxing_cut_task task_of(const struct sbp_paths *paths,
                                          const struct sbp_shape *shape, const struct ways *ways,
                                          double element_bytes)
{
    return (struct sbp_boxing_cut_task){
        .sum = set_of(paths, ways->sum),
        .rest = set_of(paths, ways->rest),
        .leave = set_of(paths, ways->leave),
        .move = set_of(paths, ways->move),
        .gather = set_of(paths, ways->gather),
        .partial = set_of(paths, ways->partial),
        .whole = set_of(paths, ways->whole),
        .bytes =
            (double)sbp_dist_local_elements(&paths->mesh, shape, &ways->between) * element_bytes,
    };
}

/* --- from counts of axes to axes --- */

/* Takes so many axes of each family out of a pool, or as many as there are. */
static sbp_axes take(const struct sbp_paths *paths, int *set, sbp_axes *pool)
{
    const struct sbp_boxing_cut_prices *prices = &paths->prices;
    sbp_axes taken = 0;
    for (int i = 0; i < paths->mesh.axis_count; i++) {
        const int family = paths->mesh.axis[i].family;
        const sbp_axes bit = (sbp_axes)1 << i;
        const size_t at = (size_t)*set * (size_t)paths->mesh.family_count + (size_t)family;
        if ((*pool & bit) == 0 || prices->count[at] == 0)
            continue;
        *set -= prices->stride[family];
        *pool &= ~bit;
        taken |= bit;
    }
    return taken;
}

static sbp_axes take_some(const struct sbp_paths *paths, int set, sbp_axes pool)
{
    return take(paths, &set, &pool);
}

/* The axes that take part in collectives of each kind. */
struct pools {
    sbp_axes sum, scatter, gather, move;
    sbp_axes slice; /* before everything else */
};

static struct pools find_pools(const struct sbp_paths *paths, const struct sbp_boxing_cut *cut,
                               const struct ways *ways)
{
    const sbp_axes summed = take_some(paths, cut->summed, ways->rest);
    const sbp_axes partial = take_some(paths, cut->partial, ways->partial);
    const sbp_axes whole = take_some(paths, cut->whole, ways->whole);
    return (struct pools){
        .sum = ways->sum | summed,
        .scatter = (ways->rest & ~summed) | ways->leave | partial,
        .gather = (ways->rest & ~summed) | ways->gather | whole,
        .move = ways->move,
        .slice = ways->slice | whole,
    };
}

/* A list in the making. */
struct writer {
    const struct sbp_layout *layout;
    const struct sbp_shape *shape;
    struct sbp_dist at;
    struct sbp_boxing *boxing;
};

/* One step over axes that go to the states of `to`; those that are there already stay out of it. */
static void add_step(struct writer *w, enum sbp_collective kind, sbp_axes axes,
                     const struct sbp_dist *to)
{
    struct sbp_dist next = w->at;
    sbp_axes changed = 0;
    for (int i = 0; i < w->layout->mesh->axis_count; i++)
        if (axes >> i & 1 && !sbp_state_equal(next.axis[i], to->axis[i])) {
            next.axis[i] = to->axis[i];
            changed |= (sbp_axes)1 << i;
        }
    sbp_boxing_append(w->layout, w->shape, kind, changed, &w->at, &next, w->boxing);
    w->at = next;
}

static void add_collective(const struct sbp_paths *paths, const struct sbp_boxing_cut_step *step,
                           const struct ways *ways, const struct sbp_dist *to, struct pools *pools,
                           struct writer *w)
{
    const struct sbp_dist whole = sbp_dist_all(SBP_STATE_B);
    int set = step->set;
    if (step->kind == SBP_REDUCE_SCATTER)
        add_step(w, step->kind, take(paths, &set, &pools->scatter), &ways->between);
    else if (step->kind == SBP_ALL_REDUCE)
        add_step(w, step->kind, take(paths, &set, &pools->sum), &whole);
    else if (step->kind == SBP_ALL_GATHER)
        add_step(w, step->kind, take(paths, &set, &pools->gather), &whole);
    else
        add_step(w, step->kind, take(paths, &set, &pools->move), to);
}

static void write_list(const struct sbp_paths *paths, const struct sbp_layout *layout,
                       const struct sbp_shape *shape, const struct sbp_boxing_cut *cut,
                       const struct ways *ways, const struct sbp_dist *from,
                       const struct sbp_dist *to, struct sbp_boxing *boxing)
{
    const sbp_axes all = (sbp_axes)(((uint64_t)1 << layout->mesh->axis_count) - 1);
    struct pools pools = find_pools(paths, cut, ways);
    struct writer w = {layout, shape, *from, boxing};
    boxing->count = 0;
    if (cut->count > 0)
        add_step(&w, SBP_LOCAL, pools.slice, &ways->between);
    for (int i = 0; i < cut->count; i++)
        add_collective(paths, &cut->step[i], ways, to, &pools, &w);
    add_step(&w, SBP_LOCAL, all, to);
}

/* --- one path --- */

static enum sbp_status find(const struct sbp_paths *paths, const struct sbp_layout *layout,
                            const struct sbp_shape *shape, double element_bytes,
                            const struct sbp_dist *from, const struct sbp_dist *to,
                            struct sbp_boxing *best, struct sbp_diag *diag)
{
    struct sbp_diag refusal = {{0}};
    struct sbp_boxing path;
    struct sbp_boxing_cut cut;
    SBP_TRY(sbp_dist_check(layout, shape, from, diag));
    SBP_TRY(sbp_dist_check(layout, shape, to, diag));
    const enum sbp_status status = sbp_boxing_make(layout, shape, from, to, best, &refusal);
    const double best_s = status == SBP_OK
                              ? sbp_boxing_s(paths->cluster, layout->mesh, best, element_bytes)
                              : INFINITY;
    if (!paths->has_prices)
        return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", refusal.text);
    if (best_s == 0)
        return SBP_OK;
    const struct ways ways = find_ways(layout, shape, from, to);
    const struct sbp_boxing_cut_task task = task_of(paths, shape, &ways, element_bytes);
    sbp_boxing_cut_make(&paths->prices, &task, &cut);
    write_list(paths, layout, shape, &cut, &ways, from, to, &path);
    if (sbp_boxing_s(paths->cluster, layout->mesh, &path, element_bytes) < best_s * BETTER) {
        best->count = path.count;
        memcpy(best->step, path.step, (size_t)path.count * sizeof *path.step);
    }
    return SBP_OK;
}

enum sbp_status sbp_boxing_path(const struct sbp_cluster *cluster, const struct sbp_layout *layout,
                                const struct sbp_shape *shape, double element_bytes,
                                const struct sbp_dist *from, const struct sbp_dist *to,
                                struct sbp_boxing *boxing, struct sbp_diag *diag)
{
    struct sbp_paths paths;
    SBP_TRY(sbp_paths_init(&paths, cluster, layout->mesh, diag));
    const enum sbp_status status =
        find(&paths, layout, shape, element_bytes, from, to, boxing, diag);
    sbp_paths_free(&paths);
    return status;
}

/* --- paths that are known --- */

/* Key of a path on one cluster and mesh; it has no padding, and unused parts are zero. */
struct question {
    double element_bytes;
    int64_t size[SBP_MAX_DIMS];
    sbp_axes split[SBP_MAX_DIMS]; /* digits of each dimension */
    struct sbp_dist from, to;
};

struct sbp_known_path {
    struct question question;
    uint64_t hash;
    struct sbp_known_path *next;
    int count;
    struct sbp_boxing_step *step; /* (count) */
};

static struct question question_of(const struct sbp_layout *layout, const struct sbp_shape *shape,
                                   double element_bytes, const struct sbp_dist *from,
                                   const struct sbp_dist *to)
{
    struct question question;
    memset(&question, 0, sizeof question);
    question.element_bytes = element_bytes;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        const int dim_class = shape->dim_class[dim];
        question.size[dim] = shape->size[dim];
        question.split[dim] = dim_class == SBP_NO_CLASS ? 0 : layout->split[dim_class];
    }
    for (int i = 0; i < layout->mesh->axis_count; i++) {
        question.from.axis[i] = from->axis[i];
        question.to.axis[i] = to->axis[i];
    }
    return question;
}

/* FNV-1a, by eight bytes. */
static uint64_t hash_of(const struct question *question)
{
    uint64_t words[sizeof *question / sizeof(uint64_t)];
    uint64_t hash = UINT64_C(14695981039346656037);
    memcpy(words, question, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * UINT64_C(1099511628211);
    return hash ^ hash >> 32;
}

enum sbp_status sbp_paths_init(struct sbp_paths *paths, const struct sbp_cluster *cluster,
                               const struct sbp_mesh *mesh, struct sbp_diag *diag)
{
    enum { FIRST_SLOTS = 64 };
    *paths = (struct sbp_paths){.cluster = cluster, .mesh = *mesh, .slot_count = FIRST_SLOTS};
    const enum sbp_status status =
        sbp_boxing_cut_prices_make(cluster, &paths->mesh, &paths->arena, &paths->prices);
    paths->has_prices = status == SBP_OK;
    paths->slot = SBP_NEW(&paths->arena, struct sbp_known_path *, paths->slot_count);
    if (status != SBP_E_MEMORY && paths->slot != NULL)
        return SBP_OK;
    sbp_paths_free(paths);
    return sbp_fail(diag, SBP_E_MEMORY, "boxing: out of memory for paths");
}

void sbp_paths_free(struct sbp_paths *paths)
{
    if (paths == NULL)
        return;
    sbp_arena_free(&paths->arena);
    *paths = (struct sbp_paths){0};
}

/* Twice the slots when there are as many paths. */
static bool grow(struct sbp_paths *paths)
{
    const int old_count = paths->slot_count;
    struct sbp_known_path **old = paths->slot;
    if (paths->known_count < old_count)
        return true;
    paths->slot = SBP_NEW(&paths->arena, struct sbp_known_path *, 2 * old_count);
    if (paths->slot == NULL) {
        paths->slot = old;
        return false;
    }
    paths->slot_count = 2 * old_count;
    for (int i = 0; i < old_count; i++)
        for (struct sbp_known_path *known = old[i], *next; known != NULL; known = next) {
            struct sbp_known_path **slot =
                &paths->slot[known->hash & (uint64_t)(paths->slot_count - 1)];
            next = known->next;
            known->next = *slot;
            *slot = known;
        }
    return true;
}

static bool remember(struct sbp_paths *paths, const struct question *question, uint64_t hash,
                     const struct sbp_boxing *boxing)
{
    if (!grow(paths))
        return false;
    struct sbp_known_path *known = SBP_NEW(&paths->arena, struct sbp_known_path, 1);
    struct sbp_boxing_step *step = SBP_NEW(&paths->arena, struct sbp_boxing_step, boxing->count);
    if (known == NULL || step == NULL)
        return false;
    struct sbp_known_path **slot = &paths->slot[hash & (uint64_t)(paths->slot_count - 1)];
    memcpy(step, boxing->step, (size_t)boxing->count * sizeof *step);
    *known = (struct sbp_known_path){*question, hash, *slot, boxing->count, step};
    *slot = known;
    paths->known_count++;
    return true;
}

enum sbp_status sbp_paths_find(struct sbp_paths *paths, const struct sbp_layout *layout,
                               const struct sbp_shape *shape, double element_bytes,
                               const struct sbp_dist *from, const struct sbp_dist *to,
                               struct sbp_boxing *boxing, struct sbp_diag *diag)
{
    const struct question question = question_of(layout, shape, element_bytes, from, to);
    const uint64_t hash = hash_of(&question);
    const struct sbp_known_path *known = paths->slot[hash & (uint64_t)(paths->slot_count - 1)];
    while (known != NULL && memcmp(&known->question, &question, sizeof question) != 0)
        known = known->next;
    if (known != NULL) {
        boxing->count = known->count;
        memcpy(boxing->step, known->step, (size_t)known->count * sizeof *known->step);
        return SBP_OK;
    }
    SBP_TRY(find(paths, layout, shape, element_bytes, from, to, boxing, diag));
    return remember(paths, &question, hash, boxing)
               ? SBP_OK
               : sbp_fail(diag, SBP_E_MEMORY, "boxing: out of memory for paths");
}
