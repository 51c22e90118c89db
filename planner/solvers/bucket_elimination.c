#include "planner/solvers/bucket_elimination_priv.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

static bool is_folded(const struct sbp_problem *problem, int variable)
{
    return problem->variable[variable].domain == 1;
}

/* Place of a variable in the bucket's scope. */
static int place_of(const struct sbp_bucket *bucket, int variable)
{
    int place = 0;
    while (bucket->scope[place] != variable)
        place++;
    return place;
}

static bool init_bucket(struct sbp_elimination_tree *tree,
                        const struct sbp_elimination_order *order, int position)
{
    struct sbp_bucket *bucket = &tree->bucket[position];
    const int variable = order->variable[position];
    const struct sbp_variable *source = &tree->problem->variable[variable];
    *bucket = (struct sbp_bucket){
        .variable = variable,
        .domain = source->domain,
        .width = order->width[position],
        .scope = order->scope[position],
        .scope_domain = SBP_NEW(&tree->arena, int, order->width[position]),
        .size = 1,
        .parent = -1,
        .own = SBP_NEW(&tree->arena, double, source->domain),
        .priced = SBP_NEW(&tree->arena, double, source->domain),
    };
    if (bucket->scope_domain == NULL || bucket->own == NULL || bucket->priced == NULL)
        return false;
    for (int i = 0; i < bucket->width; i++) {
        bucket->scope_domain[i] = tree->problem->variable[bucket->scope[i]].domain;
        bucket->size *= (size_t)bucket->scope_domain[i];
    }
    for (int k = 0; k < source->domain; k++)
        bucket->own[k] = sbp_problem_usable(source->cost[k]);
    bucket->message = SBP_NEW(&tree->arena, double, bucket->size);
    if ((size_t)source->domain > tree->largest_domain)
        tree->largest_domain = (size_t)source->domain;
    return bucket->message != NULL;
}

/* The parent of a bucket is that of its scope's next variable; buckets without a scope form a
 * chain. */
static void find_parents(struct sbp_elimination_tree *tree)
{
    int last_root = -1;
    for (int i = 0; i < tree->count; i++) {
        struct sbp_bucket *bucket = &tree->bucket[i];
        if (bucket->width > 0) {
            bucket->parent = tree->bucket_of[bucket->scope[bucket->width - 1]];
        } else {
            if (last_root >= 0)
                tree->bucket[last_root].parent = i;
            last_root = i;
        }
    }
    for (int i = 0; i < tree->count; i++)
        if (tree->bucket[i].parent >= 0)
            tree->bucket[tree->bucket[i].parent].child_count++;
}

/* The bucket that reads an edge is that of the end eliminated first; -1 when an end is folded away.
 */
static int edge_reader(const struct sbp_elimination_tree *tree, const struct sbp_edge *edge)
{
    const int a = tree->bucket_of[edge->a], b = tree->bucket_of[edge->b];
    if (a < 0 || b < 0)
        return -1;
    return a < b ? a : b;
}

static bool allocate_factors(struct sbp_elimination_tree *tree)
{
    const struct sbp_problem *problem = tree->problem;
    for (int i = 0; i < tree->count; i++)
        tree->bucket[i].factor_count = tree->bucket[i].child_count;
    for (int e = 0; e < problem->edge_count; e++) {
        const int reader = edge_reader(tree, &problem->edge[e]);
        if (reader >= 0)
            tree->bucket[reader].factor_count++;
    }
    for (int i = 0; i < tree->count; i++) {
        struct sbp_bucket *bucket = &tree->bucket[i];
        bucket->factor = SBP_NEW(&tree->arena, struct sbp_bucket_factor, bucket->factor_count);
        if (bucket->factor == NULL)
            return false;
        bucket->factor_count = 0;
    }
    return true;
}

static bool shape_factor(struct sbp_elimination_tree *tree, struct sbp_bucket_factor *factor)
{
    factor->place = SBP_NEW(&tree->arena, int, factor->arity);
    factor->stride = SBP_NEW(&tree->arena, size_t, factor->arity);
    return factor->place != NULL && factor->stride != NULL;
}

/* An edge with one end folded away adds to the other end's own costs. */
static void fold_edge(struct sbp_elimination_tree *tree, const struct sbp_edge *edge)
{
    const struct sbp_problem *problem = tree->problem;
    const int kept = is_folded(problem, edge->a) ? edge->b : edge->a;
    if (is_folded(problem, kept)) {
        tree->constant += sbp_problem_usable(edge->cost[0]);
        return;
    }
    double *own = tree->bucket[tree->bucket_of[kept]].own;
    for (int k = 0; k < problem->variable[kept].domain; k++)
        own[k] += sbp_problem_usable(edge->cost[k]);
}

static bool add_edge(struct sbp_elimination_tree *tree, const struct sbp_edge *edge)
{
    const int reader = edge_reader(tree, edge);
    if (reader < 0) {
        fold_edge(tree, edge);
        return true;
    }
    struct sbp_bucket *bucket = &tree->bucket[reader];
    const bool rows_are_a = bucket->variable == edge->b;
    const size_t rows = (size_t)tree->problem->variable[edge->a].domain;
    const size_t columns = (size_t)tree->problem->variable[edge->b].domain;
    double *table = SBP_NEW(&tree->arena, double, (rows * columns));
    struct sbp_bucket_factor *factor = &bucket->factor[bucket->factor_count++];
    *factor = (struct sbp_bucket_factor){.table = table, .arity = 1, .child = -1, .has_rows = true};
    if (table == NULL || !shape_factor(tree, factor))
        return false;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            table[rows_are_a ? i * columns + j : j * rows + i] =
                sbp_problem_usable(edge->cost[i * columns + j]);
    factor->place[0] = place_of(bucket, rows_are_a ? edge->a : edge->b);
    factor->stride[0] = (size_t)bucket->domain;
    factor->level = factor->place[0] + 1;
    return true;
}

static bool add_message(struct sbp_elimination_tree *tree, int child)
{
    const struct sbp_bucket *source = &tree->bucket[child];
    struct sbp_bucket *bucket = &tree->bucket[source->parent];
    struct sbp_bucket_factor *factor = &bucket->factor[bucket->factor_count++];
    *factor = (struct sbp_bucket_factor){.table = source->message,
                                         .arity = source->width > 0 ? source->width - 1 : 0,
                                         .child = child,
                                         .has_rows = source->width > 0};
    if (!shape_factor(tree, factor))
        return false;
    size_t stride = (size_t)bucket->domain;
    for (int j = factor->arity - 1; j >= 0; j--) {
        factor->place[j] = place_of(bucket, source->scope[j]);
        factor->stride[j] = stride;
        stride *= (size_t)source->scope_domain[j];
        if (factor->place[j] + 1 > factor->level)
            factor->level = factor->place[j] + 1;
    }
    return true;
}

static bool build_tree(struct sbp_elimination_tree *tree, const struct sbp_elimination_order *order)
{
    const struct sbp_problem *problem = tree->problem;
    tree->count = order->count;
    tree->bucket = SBP_NEW(&tree->arena, struct sbp_bucket, order->count);
    tree->bucket_of = SBP_NEW(&tree->arena, int, problem->variable_count);
    if (tree->bucket == NULL || tree->bucket_of == NULL)
        return false;
    for (int v = 0; v < problem->variable_count; v++) {
        tree->bucket_of[v] = -1;
        if (is_folded(problem, v))
            tree->constant += sbp_problem_usable(problem->variable[v].cost[0]);
    }
    tree->largest_domain = 1;
    for (int i = 0; i < order->count; i++) {
        tree->bucket_of[order->variable[i]] = i;
        if (!init_bucket(tree, order, i))
            return false;
    }
    find_parents(tree);
    if (!allocate_factors(tree))
        return false;
    for (int e = 0; e < problem->edge_count; e++)
        if (!add_edge(tree, &problem->edge[e]))
            return false;
    for (int i = 0; i < tree->count; i++)
        if (tree->bucket[i].parent >= 0 && !add_message(tree, i))
            return false;
    return true;
}

enum sbp_status sbp_elimination_build(const struct sbp_problem *problem, double most_bytes,
                                      struct sbp_elimination_tree *tree, struct sbp_diag *diag)
{
    *tree =
        (struct sbp_elimination_tree){.problem = problem, .arena.budget = problem->arena.budget};
    struct sbp_elimination_order order;
    enum sbp_status status = sbp_elimination_order_find(problem, most_bytes, &tree->arena, &order);
    if (status == SBP_OK && order.bytes > most_bytes) {
        char needed[64], limit[64];
        status =
            sbp_fail(diag, SBP_E_UNSUPPORTED,
                     "exact: the problem is too densely connected: its elimination tables "
                     "need %s or more, above the limit of %s; use coordinate-descent or "
                     "metropolis-hastings",
                     sbp_format_bytes(order.bytes, needed), sbp_format_bytes(most_bytes, limit));
    } else if (status == SBP_OK && !build_tree(tree, &order)) {
        status = SBP_E_MEMORY;
    }
    if (status == SBP_E_MEMORY)
        status = sbp_fail(diag, SBP_E_MEMORY, "exact: out of memory");
    if (status != SBP_OK)
        sbp_elimination_free(tree);
    return status;
}

void sbp_elimination_free(struct sbp_elimination_tree *tree)
{
    sbp_arena_free(&tree->arena);
    *tree = (struct sbp_elimination_tree){0};
}

void sbp_elimination_price(struct sbp_elimination_tree *tree, const struct sbp_live *live,
                           const double *price)
{
    for (int i = 0; i < tree->count; i++) {
        struct sbp_bucket *bucket = &tree->bucket[i];
        memcpy(bucket->priced, bucket->own, (size_t)bucket->domain * sizeof *bucket->own);
        if (price == NULL)
            continue;
        for (int s = live->begin[bucket->variable]; s < live->begin[bucket->variable + 1]; s++) {
            double sum = 0;
            for (int p = live->span[s].first; p < live->span[s].last; p++)
                sum += price[p];
            for (int k = 0; k < bucket->domain; k++)
                bucket->priced[k] += sum * live->span[s].usage[k];
        }
    }
}

static void add_row(double *restrict sum, const double *restrict row, size_t count)
{
    for (size_t k = 0; k < count; k++)
        sum[k] += row[k];
}

static void add_constant(double *sum, double constant, size_t count)
{
    for (size_t k = 0; k < count; k++)
        sum[k] += constant;
}

/* Adds to the row every factor that the tuple's first `level` places decide, and no fewer do. */
static void add_level(const struct sbp_visit *visit, int level, const int *tuple, double *row)
{
    const struct sbp_bucket *bucket = visit->bucket;
    const size_t count = (size_t)bucket->domain;
    for (int f = 0; f < bucket->factor_count; f++) {
        const struct sbp_bucket_factor *factor = &bucket->factor[f];
        if (factor->level != level || (factor->child >= 0 && !visit->with_messages))
            continue;
        const double *entry = factor->table + sbp_bucket_factor_offset(factor, tuple);
        if (factor->has_rows)
            add_row(row, entry, count);
        else
            add_constant(row, *entry, count);
    }
}

/* Enumerates the scope depth first. Row `level` of the scratch holds the sums down to that level,
 * so that an inner place changes without summing the outer ones again. */
static bool descend(const struct sbp_visit *visit, int level, size_t index, int *tuple)
{
    const struct sbp_bucket *bucket = visit->bucket;
    const size_t count = (size_t)bucket->domain;
    const double *above = visit->rows + (size_t)level * count;
    if (level == bucket->width)
        return visit->visit(visit->context, index, tuple, above);
    double *row = visit->rows + (size_t)(level + 1) * count;
    for (tuple[level] = 0; tuple[level] < bucket->scope_domain[level]; tuple[level]++) {
        memcpy(row, above, count * sizeof *row);
        add_level(visit, level + 1, tuple, row);
        const size_t at = index * (size_t)bucket->scope_domain[level] + (size_t)tuple[level];
        if (!descend(visit, level + 1, at, tuple))
            return false;
    }
    return true;
}

bool sbp_elimination_visit(const struct sbp_visit *visit)
{
    int tuple[SBP_ELIMINATION_MOST_WIDTH] = {0};
    memcpy(visit->rows, visit->base, (size_t)visit->bucket->domain * sizeof *visit->rows);
    add_level(visit, 0, tuple, visit->rows);
    return descend(visit, 0, 0, tuple);
}

struct up_pass {
    struct sbp_bucket *bucket;
    struct sbp_solver_run *search;
};

static bool minimise(void *context, size_t index, const int *tuple, const double *row)
{
    (void)tuple;
    const struct up_pass *pass = context;
    double least = INFINITY;
    for (int k = 0; k < pass->bucket->domain; k++)
        least = row[k] < least ? row[k] : least;
    pass->bucket->message[index] = least;
    pass->search->solution->evaluations += pass->bucket->domain;
    return !sbp_solver_run_over(pass->search);
}

bool sbp_elimination_up(struct sbp_elimination_tree *tree, struct sbp_solver_run *search,
                        double *rows, double *least)
{
    *least = tree->constant;
    for (int i = 0; i < tree->count; i++) {
        struct up_pass pass = {.bucket = &tree->bucket[i], .search = search};
        const struct sbp_visit visit = {.bucket = &tree->bucket[i],
                                        .base = tree->bucket[i].priced,
                                        .with_messages = true,
                                        .visit = minimise,
                                        .context = &pass,
                                        .rows = rows};
        if (!sbp_elimination_visit(&visit))
            return false;
    }
    if (tree->count > 0)
        *least += tree->bucket[tree->count - 1].message[0];
    return true;
}

struct down_pass {
    struct sbp_elimination_tree *tree;
    const struct sbp_bucket *bucket;
    struct sbp_solver_run *search;
};

/* A child's rest of the problem is the whole cost at this tuple less the child's own message. */
static void lower_outside(struct sbp_bucket *child, const struct sbp_bucket_factor *factor,
                          const int *tuple, const double *row, double outside, int domain)
{
    const size_t offset = sbp_bucket_factor_offset(factor, tuple);
    for (int k = 0; k < domain; k++) {
        const size_t at = offset + (factor->has_rows ? (size_t)k : 0);
        const double total = row[k] + outside;
        if (total < INFINITY && total - child->message[at] < child->outside[at])
            child->outside[at] = total - child->message[at];
    }
}

static bool distribute(void *context, size_t index, const int *tuple, const double *row)
{
    const struct down_pass *pass = context;
    const struct sbp_bucket *bucket = pass->bucket;
    for (int f = 0; f < bucket->factor_count; f++)
        if (bucket->factor[f].child >= 0)
            lower_outside(&pass->tree->bucket[bucket->factor[f].child], &bucket->factor[f], tuple,
                          row, bucket->outside[index], bucket->domain);
    return !sbp_solver_run_over(pass->search);
}

enum sbp_status sbp_elimination_down(struct sbp_elimination_tree *tree,
                                     struct sbp_solver_run *search, double *rows, bool *done)
{
    *done = false;
    for (int i = 0; i < tree->count; i++) {
        struct sbp_bucket *bucket = &tree->bucket[i];
        if (bucket->outside == NULL)
            bucket->outside = SBP_NEW(&tree->arena, double, bucket->size);
        if (bucket->outside == NULL)
            return SBP_E_MEMORY;
        for (size_t j = 0; j < bucket->size; j++)
            bucket->outside[j] = i + 1 == tree->count ? tree->constant : INFINITY;
    }
    for (int i = tree->count - 1; i >= 0; i--) {
        struct down_pass pass = {.tree = tree, .bucket = &tree->bucket[i], .search = search};
        const struct sbp_visit visit = {.bucket = &tree->bucket[i],
                                        .base = tree->bucket[i].priced,
                                        .with_messages = true,
                                        .visit = distribute,
                                        .context = &pass,
                                        .rows = rows};
        if (!sbp_elimination_visit(&visit))
            return SBP_OK;
    }
    *done = true;
    return SBP_OK;
}

void sbp_elimination_recover(const struct sbp_elimination_tree *tree, double *rows, int *choice)
{
    for (int v = 0; v < tree->problem->variable_count; v++)
        choice[v] = 0;
    for (int i = tree->count - 1; i >= 0; i--) {
        const struct sbp_bucket *bucket = &tree->bucket[i];
        const struct sbp_visit visit = {.bucket = bucket, .with_messages = true};
        int tuple[SBP_ELIMINATION_MOST_WIDTH] = {0};
        for (int j = 0; j < bucket->width; j++)
            tuple[j] = choice[bucket->scope[j]];
        memcpy(rows, bucket->priced, (size_t)bucket->domain * sizeof *rows);
        for (int level = 0; level <= bucket->width; level++)
            add_level(&visit, level, tuple, rows);
        int best = 0;
        for (int k = 1; k < bucket->domain; k++)
            if (rows[k] < rows[best])
                best = k;
        choice[bucket->variable] = best;
    }
}
