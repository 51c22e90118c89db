#include "planner/solvers/minimax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/solvers/minimax_bounds_priv.h"

enum { FIRST_SLOTS = 64 };

/* A part of a choice that was followed to its end. */
struct kept {
    uint64_t key; /* choices of the variables that the rest depends on */
    int next;     /* of the same slot; -1 */
    double *length;
};

/* Where one more variable is chosen. */
struct depth {
    const struct sbp_bucket *bucket; /* of the first problem */
    int near_count, *near;           /* variables chosen before that the rest depends on */
    bool has_key;                    /* their choices make a key */
    double *length;                  /* (problems, domain) at least, with each choice */
    double *largest;                 /* (domain) of these */
    int *order;                      /* (domain) choices that may do, the least largest first */
    int slot_count, *slot;           /* heads of lists of what is kept; -1 */
    int kept_count;
};

struct walker {
    const struct sbp_minimax *in;
    struct sbp_diag *diag;
    struct sbp_arena arena;
    int problems;                       /* paths, then mixtures of them */
    const struct sbp_problem **problem; /* (problems) */
    struct sbp_problem *mixed;          /* (mixtures.count) */
    struct sbp_minimax_mixtures mixtures;
    struct sbp_elimination_tree *tree; /* (problems) */
    struct sbp_solver_run search;
    struct sbp_solution solution;
    int depths;
    struct depth *depth; /* (depths) */
    int *place;          /* (depths) of each bucket: where its variable is chosen */
    double *least;       /* (depths + 1, problems) of what is chosen so far and the best rest */
    int *choice;         /* (variables) */
    struct kept *kept;   /* (SBP_PROBLEM_MINIMAX_KEPT) */
    int kept_count;
    int64_t work; /* beside what is evaluated */
    double below;
    bool more;
};

/* ---- preparation ---------------------------------------------------------------------------- */

static enum sbp_status build_tree(struct walker *w, int problem)
{
    double least;
    struct sbp_elimination_tree *tree = &w->tree[problem];
    SBP_TRY(sbp_elimination_build(
        w->problem[problem],
        fmin(SBP_PROBLEM_MINIMAX_BYTES, SBP_PROBLEM_MINIMAX_ALL_BYTES / w->problems), tree,
        w->diag));
    double *rows = SBP_TAKE(&w->arena, double,
                            (SBP_ELIMINATION_MOST_WIDTH + 1) * (size_t)(tree->largest_domain + 1));
    if (rows == NULL)
        return SBP_E_MEMORY;
    sbp_elimination_price(tree, NULL, NULL);
    w->more = w->more && sbp_elimination_up(tree, &w->search, rows, &least);
    w->least[problem] = w->more ? least : INFINITY;
    return SBP_OK;
}

/* Whether both trees take the same variables in the same order, with the same scopes. */
static bool are_alike(const struct sbp_elimination_tree *a, const struct sbp_elimination_tree *b)
{
    bool alike = a->count == b->count;
    for (int i = 0; i < a->count && alike; i++)
        alike = a->bucket[i].variable == b->bucket[i].variable &&
                a->bucket[i].domain == b->bucket[i].domain &&
                a->bucket[i].width == b->bucket[i].width &&
                memcmp(a->bucket[i].scope, b->bucket[i].scope,
                       (size_t)a->bucket[i].width * sizeof *a->bucket[i].scope) == 0;
    return alike;
}

static enum sbp_status build_trees(struct walker *w)
{
    const int problems = w->problems;
    w->tree = SBP_NEW(&w->arena, struct sbp_elimination_tree, problems);
    if (w->tree == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < problems && w->more; i++) {
        SBP_TRY(build_tree(w, i));
        if (!are_alike(&w->tree[0], &w->tree[i]))
            return SBP_E_UNSUPPORTED;
    }
    return SBP_OK;
}

/* Variables in the scopes of what is not chosen yet: the rest depends on nothing else. */
static enum sbp_status find_near(struct walker *w, int at)
{
    const struct sbp_elimination_tree *tree = &w->tree[0];
    struct depth *depth = &w->depth[at];
    bool *seen = SBP_NEW(&w->arena, bool, tree->problem->variable_count);
    double keys = 1;
    depth->near = SBP_NEW(&w->arena, int, tree->count + 1);
    if (seen == NULL || depth->near == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < tree->count; i++)
        for (int j = 0; j < tree->bucket[i].width && w->place[i] >= at; j++) {
            const int variable = tree->bucket[i].scope[j];
            if (w->place[tree->bucket_of[variable]] >= at || seen[variable])
                continue;
            seen[variable] = true;
            depth->near[depth->near_count++] = variable;
            keys *= tree->problem->variable[variable].domain;
        }
    depth->has_key = keys < 1e18;
    return SBP_OK;
}

/* A bucket's scope comes before it, and one branch of the tree before the next one, so that what is
 * done in a branch is forgotten. */
static int place_branch(struct walker *w, int bucket, int at)
{
    w->place[bucket] = at++;
    for (int i = bucket - 1; i >= 0; i--)
        if (w->tree[0].bucket[i].parent == bucket)
            at = place_branch(w, i, at);
    return at;
}

static enum sbp_status make_depth(struct walker *w, int at)
{
    struct depth *depth = &w->depth[at];
    for (int i = 0; i < w->depths; i++)
        if (w->place[i] == at)
            depth->bucket = &w->tree[0].bucket[i];
    const int domain = depth->bucket->domain;
    depth->length = SBP_TAKE(&w->arena, double, ((size_t)w->problems * (size_t)domain));
    depth->largest = SBP_TAKE(&w->arena, double, domain);
    depth->order = SBP_TAKE(&w->arena, int, domain);
    if (depth->length == NULL || depth->largest == NULL || depth->order == NULL)
        return SBP_E_MEMORY;
    return find_near(w, at);
}

static enum sbp_status make_depths(struct walker *w)
{
    w->depths = w->tree[0].count;
    w->depth = SBP_NEW(&w->arena, struct depth, w->depths + 1);
    w->place = SBP_NEW(&w->arena, int, w->depths + 1);
    if (w->depth == NULL || w->place == NULL)
        return SBP_E_MEMORY;
    if (w->depths > 0)
        (void)place_branch(w, w->depths - 1, 0);
    for (int i = 0; i < w->depths; i++)
        SBP_TRY(make_depth(w, i));
    return SBP_OK;
}

/* ---- what was followed before --------------------------------------------------------------- */

static uint64_t key_of(const struct walker *w, const struct depth *depth)
{
    uint64_t key = 0;
    for (int i = 0; i < depth->near_count; i++)
        key = key * (uint64_t)w->tree[0].problem->variable[depth->near[i]].domain +
              (uint64_t)w->choice[depth->near[i]];
    return key;
}

static int *slot_of(const struct depth *depth, uint64_t key)
{
    const uint64_t mixed = (key ^ (key >> 29)) * UINT64_C(0x9E3779B97F4A7C15);
    return &depth->slot[(mixed >> 32) & (uint64_t)(depth->slot_count - 1)];
}

/* Twice as many lists as there are parts. */
static enum sbp_status grow(struct walker *w, struct depth *depth)
{
    const int before = depth->slot_count, *old = depth->slot;
    if (2 * depth->kept_count < before)
        return SBP_OK;
    depth->slot_count = before == 0 ? FIRST_SLOTS : 4 * before;
    depth->slot = SBP_TAKE(&w->arena, int, depth->slot_count);
    if (depth->slot == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < depth->slot_count; i++)
        depth->slot[i] = -1;
    for (int i = 0; i < before; i++)
        for (int k = old[i], next; k >= 0; k = next) {
            int *slot = slot_of(depth, w->kept[k].key);
            next = w->kept[k].next;
            w->kept[k].next = *slot;
            *slot = k;
        }
    return SBP_OK;
}

static bool is_no_longer(const double *a, const double *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i] > b[i])
            return false;
    return true;
}

/* *known: a part that was followed before is no longer along any path; such parts are asked first
 * from then on. Else this one is kept. */
static enum sbp_status look_up(struct walker *w, struct depth *depth, const double *length,
                               bool *known)
{
    const int paths = w->in->paths;
    *known = false;
    if (!depth->has_key)
        return SBP_OK;
    SBP_TRY(grow(w, depth));
    const uint64_t key = key_of(w, depth);
    int *slot = slot_of(depth, key), *at = slot, scans = 0;
    for (; *at >= 0 && scans < SBP_PROBLEM_MINIMAX_SCANS; at = &w->kept[*at].next, scans++) {
        const int k = *at;
        *known = w->kept[k].key == key && is_no_longer(w->kept[k].length, length, paths);
        if (*known) {
            *at = w->kept[k].next;
            w->kept[k].next = *slot;
            *slot = k;
            break;
        }
    }
    w->work += scans;
    if (*known || w->kept_count == SBP_PROBLEM_MINIMAX_KEPT)
        return SBP_OK;
    struct kept *kept = &w->kept[w->kept_count];
    *kept = (struct kept){.key = key, .next = *slot, .length = SBP_TAKE(&w->arena, double, paths)};
    if (kept->length == NULL)
        return SBP_E_MEMORY;
    memcpy(kept->length, length, (size_t)paths * sizeof *length);
    *slot = w->kept_count++;
    depth->kept_count++;
    return SBP_OK;
}

/* ---- the walk ------------------------------------------------------------------------------- */

/* Bounds, for each value of a bucket's variable, the cost of a problem given the earlier choices.
 */
static void add_lengths(struct walker *w, int problem, const struct depth *depth, double least)
{
    const struct sbp_bucket *bucket = &w->tree[problem].bucket[depth->bucket - w->tree[0].bucket];
    double *row = depth->length + (size_t)problem * (size_t)bucket->domain;
    int tuple[SBP_ELIMINATION_MOST_WIDTH] = {0};
    size_t index = 0;
    for (int j = 0; j < bucket->width; j++) {
        tuple[j] = w->choice[bucket->scope[j]];
        index = index * (size_t)bucket->scope_domain[j] + (size_t)tuple[j];
    }
    const double rest = least - bucket->message[index];
    for (int k = 0; k < bucket->domain; k++)
        row[k] = rest + bucket->priced[k];
    for (int f = 0; f < bucket->factor_count; f++) {
        const struct sbp_bucket_factor *factor = &bucket->factor[f];
        const double *table = factor->table + sbp_bucket_factor_offset(factor, tuple);
        for (int k = 0; k < bucket->domain; k++)
            row[k] += table[factor->has_rows ? k : 0];
    }
    for (int k = 0; k < bucket->domain; k++)
        depth->largest[k] = fmax(depth->largest[k], row[k]);
    w->work += bucket->domain;
}

/* Choices that may do, the least largest length first. Returns how many. */
static int order_choices(const struct walker *w, struct depth *depth)
{
    int count = 0;
    for (int k = 0; k < depth->bucket->domain; k++) {
        int at = count;
        if (!(depth->largest[k] < w->below))
            continue;
        for (; at > 0 && depth->largest[depth->order[at - 1]] > depth->largest[k]; at--)
            depth->order[at] = depth->order[at - 1];
        depth->order[at] = k;
        count++;
    }
    return count;
}

static enum sbp_status show(struct walker *w)
{
    double largest = -INFINITY;
    const double *length = w->least + (size_t)w->depths * (size_t)w->problems;
    for (int i = 0; i < w->in->paths; i++)
        largest = fmax(largest, length[i]);
    return w->in->show(w->in->context, w->choice, largest, &w->below, &w->more);
}

static int64_t work_of(const struct walker *w)
{
    return w->solution.evaluations + w->work;
}

static bool is_over(struct walker *w)
{
    if (w->more && (sbp_solver_run_over(&w->search) || work_of(w) > w->in->most_work))
        w->more = false;
    return !w->more;
}

static enum sbp_status walk(struct walker *w, int at)
{
    const int problems = w->problems;
    const double *least = w->least + (size_t)at * (size_t)problems;
    bool known;
    if (at == w->depths)
        return show(w);
    struct depth *depth = &w->depth[at];
    SBP_TRY(look_up(w, depth, least, &known));
    if (known)
        return SBP_OK;
    for (int k = 0; k < depth->bucket->domain; k++)
        depth->largest[k] = -INFINITY;
    for (int i = 0; i < problems; i++)
        add_lengths(w, i, depth, least[i]);
    w->solution.evaluations += depth->bucket->domain;
    const int count = order_choices(w, depth);
    for (int i = 0; i < count && !is_over(w); i++) {
        const int k = depth->order[i];
        if (!(depth->largest[k] < w->below))
            break;
        w->choice[depth->bucket->variable] = k;
        for (int p = 0; p < problems; p++)
            w->least[(size_t)(at + 1) * (size_t)problems + (size_t)p] =
                depth->length[(size_t)p * (size_t)depth->bucket->domain + (size_t)k];
        SBP_TRY(walk(w, at + 1));
    }
    return SBP_OK;
}

/* Lists the problems that bound: the paths, and mixtures of them. */
static enum sbp_status list_problems(struct walker *w)
{
    const struct sbp_minimax *in = w->in;
    w->mixtures.most = SBP_PROBLEM_MINIMAX_MIXTURES;
    SBP_TRY(sbp_minimax_find_mixtures(in->problem, in->paths, w->below, SBP_PROBLEM_MINIMAX_BYTES,
                                      &w->search, &w->arena, &w->mixtures, &w->more, w->diag));
    w->problem = SBP_NEW(&w->arena, const struct sbp_problem *, in->paths + w->mixtures.count);
    w->mixed = SBP_NEW(&w->arena, struct sbp_problem, w->mixtures.count);
    if (w->problem == NULL || w->mixed == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < in->paths; i++)
        w->problem[w->problems++] = &in->problem[i];
    for (int i = 0; i < w->mixtures.count; i++) {
        SBP_TRY(sbp_minimax_mix(in->problem, in->paths,
                                w->mixtures.share + (size_t)i * (size_t)in->paths, &w->mixed[i]));
        w->problem[w->problems++] = &w->mixed[i];
    }
    return SBP_OK;
}

static enum sbp_status allocate(struct walker *w)
{
    const size_t variables = (size_t)w->in->problem[0].variable_count;
    w->least = SBP_NEW(&w->arena, double, (variables + 1) * (size_t)w->problems);
    w->choice = SBP_NEW(&w->arena, int, variables + 1);
    w->kept = SBP_TAKE(&w->arena, struct kept, SBP_PROBLEM_MINIMAX_KEPT);
    return w->least == NULL || w->choice == NULL || w->kept == NULL ? SBP_E_MEMORY : SBP_OK;
}

/* Whether two problems differ in costs alone. */
static bool are_parallel(const struct sbp_problem *a, const struct sbp_problem *b)
{
    bool parallel = a->variable_count == b->variable_count && a->edge_count == b->edge_count;
    for (int v = 0; v < a->variable_count && parallel; v++)
        parallel = a->variable[v].domain == b->variable[v].domain;
    for (int e = 0; e < a->edge_count && parallel; e++)
        parallel = a->edge[e].a == b->edge[e].a && a->edge[e].b == b->edge[e].b;
    return parallel;
}

static bool is_supported(const struct sbp_minimax *minimax)
{
    bool supported = minimax->problem[0].variable_count <= SBP_PROBLEM_MINIMAX_VARIABLES;
    for (int i = 1; i < minimax->paths && supported; i++)
        supported = are_parallel(&minimax->problem[0], &minimax->problem[i]);
    return supported;
}

static enum sbp_status search_all(struct walker *w)
{
    double largest = -INFINITY;
    if (!is_supported(w->in))
        return SBP_E_UNSUPPORTED;
    SBP_TRY(list_problems(w));
    if (!w->more || w->mixtures.least >= w->below)
        return SBP_OK;
    SBP_TRY(allocate(w));
    SBP_TRY(build_trees(w));
    if (!w->more)
        return SBP_OK;
    SBP_TRY(make_depths(w));
    for (int i = 0; i < w->problems; i++)
        largest = fmax(largest, w->least[i]);
    return largest < w->below ? walk(w, 0) : SBP_OK;
}

enum sbp_status sbp_minimax_solve(const struct sbp_minimax *minimax,
                                  struct sbp_minimax_result *result, struct sbp_diag *diag)
{
    struct walker w = {.in = minimax,
                       .diag = diag,
                       .arena.budget = minimax->problem->arena.budget,
                       .below = minimax->below,
                       .more = true};
    enum sbp_status status =
        sbp_solver_run_begin(&w.search, minimax->problem, &minimax->options, &w.solution);
    w.search.most_evaluations = minimax->most_work + 1; /* tables are work, too */
    if (status == SBP_OK)
        status = search_all(&w);
    *result = (struct sbp_minimax_result){.done = status == SBP_OK && w.more,
                                          .evaluations = w.solution.evaluations,
                                          .work = work_of(&w),
                                          .stopped = w.solution.stopped &&
                                                     work_of(&w) <= minimax->most_work};
    for (int i = 0; w.tree != NULL && i < w.problems; i++)
        sbp_elimination_free(&w.tree[i]);
    for (int i = 0; w.mixed != NULL && i < w.mixtures.count; i++)
        sbp_problem_free(&w.mixed[i]);
    sbp_solver_solution_free(&w.solution);
    sbp_arena_free(&w.arena);
    return status;
}
