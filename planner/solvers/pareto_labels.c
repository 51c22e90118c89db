#include "planner/solvers/pareto_labels_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/limits.h"

/* A point of time at which a variable of the bucket's subtree is live. */
struct point {
    int index;      /* of the point among all points */
    int live;       /* spans of the subtree that cover it */
    double least;   /* least sum of usages of these spans */
    double limit;   /* capacity less the least usage of the rest: bound of the subtree */
    bool open;      /* spans outside the subtree cover it too */
    int open_place; /* place among the open points */
};

/* Labels as arrays: cost, usages, and the values and labels that they were made from. */
struct labels {
    size_t count, room, usage_count, origin_count;
    double *cost;    /* (room) */
    double *usage;   /* (room, usage_count) */
    int32_t *origin; /* (room, origin_count): the variable's value, then a label per child */
};

struct table {
    int point_count, open_count;
    struct point *point; /* (point_count), ascending index */
    int child_count, *child;
    const struct sbp_bucket_factor **child_factor;
    int **child_place;   /* (child_count)(open points of the child): place in `point` */
    double closed_worth; /* sum of price * capacity over points closed in the subtree */
    size_t *first;       /* (bucket's size + 1) first label of each tuple in kept */
    struct labels kept;
};

struct pareto {
    const struct sbp_elimination_tree *tree;
    const struct sbp_live *live;
    const double *price;
    double upper_bound, all_worth, tolerance;
    double *limit; /* (points) capacity less the usage of folded variables */
    double *least; /* (points) least usage of all buckets */
    int *cover;    /* (points) spans that cover it */
    struct sbp_arena arena;
    struct table *table; /* (buckets) */
    struct labels work[2], merged;
    size_t *order[2], order_room; /* of labels; one is scratch of the sort */
    size_t *undominated;          /* one of the two orders */
    double bytes;                 /* of all labels together */
    struct sbp_solver_run *search;
    enum sbp_status status;
    int bucket; /* at hand */
};

static void labels_free(struct labels *labels)
{
    free(labels->cost);
    free(labels->usage);
    free(labels->origin);
    *labels = (struct labels){0};
}

static double label_bytes(const struct labels *labels)
{
    return (double)((1 + labels->usage_count) * sizeof(double) +
                    labels->origin_count * sizeof(int32_t));
}

static void give_back(struct pareto *pareto, double bytes)
{
    pareto->bytes -= bytes;
    sbp_arena_budget_return(pareto->arena.budget, (size_t)bytes);
}

/* Takes bytes for labels; false above the limits. */
static bool take_bytes(struct pareto *pareto, double bytes)
{
    if (pareto->bytes + bytes > SBP_PROBLEM_EXACT_BYTES ||
        !sbp_arena_budget_take(pareto->arena.budget, (size_t)bytes))
        return false;
    pareto->bytes += bytes;
    return true;
}

/* Empties the labels and sets their shape; keeps the allocation when the shape is the same. */
static void labels_reset(struct pareto *pareto, struct labels *labels, size_t usages,
                         size_t origins)
{
    if (labels->usage_count != usages || labels->origin_count != origins) {
        give_back(pareto, label_bytes(labels) * (double)labels->room);
        labels_free(labels);
    }
    labels->usage_count = usages;
    labels->origin_count = origins;
    labels->count = 0;
}

/* False when memory is out; labels then own both old and grown arrays. */
static bool labels_grow(struct labels *labels, size_t room)
{
    double *cost = realloc(labels->cost, room * sizeof *cost);
    if (cost == NULL)
        return false;
    labels->cost = cost;
    double *usage = realloc(labels->usage, (room * labels->usage_count + 1) * sizeof *usage);
    if (usage == NULL)
        return false;
    labels->usage = usage;
    int32_t *origin = realloc(labels->origin, room * labels->origin_count * sizeof *origin);
    if (origin == NULL)
        return false;
    labels->origin = origin;
    labels->room = room;
    return true;
}

/* Makes room for one more label; false above the limit of memory. */
static bool labels_reserve(struct pareto *pareto, struct labels *labels)
{
    if (labels->count < labels->room)
        return true;
    const size_t room = labels->room == 0 ? 64 : 2 * labels->room;
    const double grown = label_bytes(labels) * (double)(room - labels->room);
    if (room > INT32_MAX || !take_bytes(pareto, grown)) {
        pareto->status = SBP_E_UNSUPPORTED;
        return false;
    }
    if (!labels_grow(labels, room)) {
        give_back(pareto, grown);
        pareto->status = SBP_E_MEMORY;
        return false;
    }
    return true;
}

static double *usage_at(const struct labels *labels, size_t label)
{
    return labels->usage + label * labels->usage_count;
}

static int32_t *origin_at(const struct labels *labels, size_t label)
{
    return labels->origin + label * labels->origin_count;
}

/* --- points of time of each bucket --- */

static double least_usage(const struct sbp_bucket *bucket, const double *usage)
{
    double least = INFINITY;
    for (int k = 0; k < bucket->domain; k++)
        if (bucket->own[k] < INFINITY && usage[k] < least)
            least = usage[k];
    return least < INFINITY ? least : 0;
}

static bool sum_points(struct pareto *pareto)
{
    const struct sbp_elimination_tree *tree = pareto->tree;
    const struct sbp_live *live = pareto->live;
    const size_t count = (size_t)live->point_count;
    pareto->limit = SBP_NEW(&pareto->arena, double, count);
    pareto->least = SBP_NEW(&pareto->arena, double, count);
    pareto->cover = SBP_NEW(&pareto->arena, int, count);
    if (pareto->limit == NULL || pareto->least == NULL || pareto->cover == NULL)
        return false;
    const double capacity = tree->problem->capacity;
    for (size_t p = 0; p < count; p++)
        pareto->limit[p] = capacity + SBP_CAPACITY_ROUND_OFF * fabs(capacity);
    for (int v = 0; v < tree->problem->variable_count; v++) {
        if (tree->bucket_of[v] < 0)
            sbp_live_add(live, v, 0, -1, pareto->limit);
        else
            for (int s = live->begin[v]; s < live->begin[v + 1]; s++)
                for (int p = live->span[s].first; p < live->span[s].last; p++) {
                    pareto->cover[p]++;
                    pareto->least[p] +=
                        least_usage(&tree->bucket[tree->bucket_of[v]], live->span[s].usage);
                }
    }
    for (size_t p = 0; p < count; p++)
        pareto->all_worth += pareto->price[p] * pareto->limit[p];
    return true;
}

static int find_point(const struct table *table, int index)
{
    int place = 0;
    while (place < table->point_count && table->point[place].index != index)
        place++;
    return place;
}

/* Marks the points of the children's open points and of the bucket's own spans; returns how many.
 * marks: (points), zeroed. */
static int mark_points(struct pareto *pareto, int b, struct point *marks)
{
    const struct sbp_live *live = pareto->live;
    const struct table *table = &pareto->table[b];
    int count = 0;
    for (int c = 0; c < table->child_count; c++) {
        const struct table *child = &pareto->table[table->child[c]];
        for (int i = 0; i < child->point_count; i++) {
            const struct point *point = &child->point[i];
            if (!point->open)
                continue;
            count += marks[point->index].live == 0;
            marks[point->index].live += point->live;
            marks[point->index].least += point->least;
        }
    }
    const struct sbp_bucket *bucket = &pareto->tree->bucket[b];
    for (int s = live->begin[bucket->variable]; s < live->begin[bucket->variable + 1]; s++)
        for (int p = live->span[s].first; p < live->span[s].last; p++) {
            count += marks[p].live == 0;
            marks[p].live++;
            marks[p].least += least_usage(bucket, live->span[s].usage);
        }
    return count;
}

/* Lists the marked points, finds which stay open, and clears the marks. */
static bool list_points(struct pareto *pareto, int b, struct point *marks, int count)
{
    struct table *table = &pareto->table[b];
    table->point = SBP_NEW(&pareto->arena, struct point, count);
    if (table->point == NULL)
        return false;
    for (int p = 0; p < pareto->live->point_count; p++) {
        if (marks[p].live == 0)
            continue;
        struct point *point = &table->point[table->point_count++];
        *point = marks[p];
        point->index = p;
        point->limit = pareto->limit[p] - (pareto->least[p] - point->least);
        point->open = point->live < pareto->cover[p];
        point->open_place = table->open_count;
        table->open_count += point->open;
        if (!point->open)
            table->closed_worth += pareto->price[p] * pareto->limit[p];
        marks[p] = (struct point){0};
    }
    return true;
}

static bool map_child(struct pareto *pareto, struct table *table, int c)
{
    const struct table *child = &pareto->table[table->child[c]];
    table->closed_worth += child->closed_worth;
    table->child_place[c] = SBP_NEW(&pareto->arena, int, child->open_count);
    if (table->child_place[c] == NULL)
        return false;
    for (int i = 0; i < child->point_count; i++)
        if (child->point[i].open)
            table->child_place[c][child->point[i].open_place] =
                find_point(table, child->point[i].index);
    return true;
}

static bool init_table(struct pareto *pareto, int b, struct point *marks)
{
    const struct sbp_bucket *bucket = &pareto->tree->bucket[b];
    struct table *table = &pareto->table[b];
    table->child = SBP_NEW(&pareto->arena, int, bucket->child_count);
    table->child_factor =
        SBP_NEW(&pareto->arena, const struct sbp_bucket_factor *, bucket->child_count);
    table->child_place = SBP_NEW(&pareto->arena, int *, bucket->child_count);
    table->first = SBP_NEW(&pareto->arena, size_t, bucket->size + 1);
    if (table->child == NULL || table->child_factor == NULL || table->child_place == NULL ||
        table->first == NULL)
        return false;
    for (int f = 0; f < bucket->factor_count; f++)
        if (bucket->factor[f].child >= 0) {
            table->child_factor[table->child_count] = &bucket->factor[f];
            table->child[table->child_count++] = bucket->factor[f].child;
        }
    if (!list_points(pareto, b, marks, mark_points(pareto, b, marks)))
        return false;
    for (int c = 0; c < table->child_count; c++)
        if (!map_child(pareto, table, c))
            return false;
    return true;
}

static bool init_tables(struct pareto *pareto)
{
    pareto->table = SBP_NEW(&pareto->arena, struct table, pareto->tree->count);
    struct point *marks = SBP_NEW(&pareto->arena, struct point, pareto->live->point_count);
    if (pareto->table == NULL || marks == NULL || !sum_points(pareto))
        return false;
    for (int b = 0; b < pareto->tree->count; b++)
        if (!init_table(pareto, b, marks))
            return false;
    pareto->tolerance =
        SBP_PROBLEM_ROUND_OFF * (fabs(pareto->all_worth) +
                                 (pareto->upper_bound < INFINITY ? fabs(pareto->upper_bound) : 0));
    return true;
}

/* --- dominance --- */

static bool dominates(const double *a, const double *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (a[i] > b[i])
            return false;
    return true;
}

static bool is_before(const struct labels *labels, size_t a, size_t b)
{
    if (labels->cost[a] != labels->cost[b])
        return labels->cost[a] < labels->cost[b];
    const double *left = usage_at(labels, a), *right = usage_at(labels, b);
    for (size_t i = 0; i < labels->usage_count; i++)
        if (left[i] != right[i])
            return left[i] < right[i];
    return a < b;
}

/* The end of the ascending run that begins at `from`. */
static size_t end_of_run(const struct labels *labels, const size_t *order, size_t from,
                         size_t count)
{
    size_t end = from + 1;
    while (end < count && !is_before(labels, order[end], order[end - 1]))
        end++;
    return end;
}

static void merge_runs(const struct labels *labels, const size_t *left, const size_t *middle,
                       const size_t *end, size_t *to)
{
    const size_t *right = middle;
    while (left < middle && right < end)
        *to++ = is_before(labels, *right, *left) ? *right++ : *left++;
    memcpy(to, left, (size_t)(middle - left) * sizeof *to);
    memcpy(to + (middle - left), right, (size_t)(end - right) * sizeof *to);
}

/* Natural merge sort by cost, then usages, because labels mostly come in one run per value. Returns
 * the array of the two that is sorted. */
static size_t *sort_order(const struct labels *labels, size_t *order, size_t *other, size_t count)
{
    while (count > 0 && end_of_run(labels, order, 0, count) < count) {
        for (size_t at = 0, end; at < count; at = end) {
            const size_t middle = end_of_run(labels, order, at, count);
            end = middle < count ? end_of_run(labels, order, middle, count) : count;
            merge_runs(labels, order + at, order + middle, order + end, other + at);
        }
        size_t *const kept = order;
        order = other;
        other = kept;
    }
    return order;
}

static bool reserve_order(struct pareto *pareto, size_t count)
{
    if (count <= pareto->order_room)
        return true;
    for (int i = 0; i < 2; i++) {
        size_t *order = realloc(pareto->order[i], 2 * count * sizeof *order);
        if (order == NULL) {
            pareto->status = SBP_E_MEMORY;
            return false;
        }
        pareto->order[i] = order;
    }
    pareto->order_room = 2 * count;
    return true;
}

/* Orders the labels by cost and leaves in pareto->undominated those that no other one dominates.
 * Costs ascend, so that with one usage a comparison with the last label that was left is enough. */
static bool undominated(struct pareto *pareto, const struct labels *labels, size_t *count)
{
    if (!reserve_order(pareto, labels->count))
        return false;
    for (size_t i = 0; i < labels->count; i++)
        pareto->order[0][i] = i;
    size_t *const order = sort_order(labels, pareto->order[0], pareto->order[1], labels->count);
    pareto->undominated = order;
    size_t kept = 0;
    for (size_t i = 0; i < labels->count; i++) {
        if (i % SBP_PROBLEM_LABEL_CHECK == SBP_PROBLEM_LABEL_CHECK - 1 &&
            sbp_solver_run_check(pareto->search))
            return false;
        const double *usage = usage_at(labels, order[i]);
        bool needed = true;
        size_t j = labels->usage_count == 1 && kept > 0 ? kept - 1 : 0;
        for (; j < kept && needed; j++)
            needed = !dominates(usage_at(labels, order[j]), usage, labels->usage_count);
        if (needed)
            order[kept++] = order[i];
    }
    *count = kept;
    return true;
}

static bool labels_append(struct pareto *pareto, struct labels *to, const struct labels *from,
                          size_t label)
{
    if (!labels_reserve(pareto, to))
        return false;
    to->cost[to->count] = from->cost[label];
    memcpy(usage_at(to, to->count), usage_at(from, label), to->usage_count * sizeof(double));
    memcpy(origin_at(to, to->count), origin_at(from, label), to->origin_count * sizeof(int32_t));
    to->count++;
    return true;
}

/* --- one bucket --- */

static bool fits(const struct table *table, const double *usage)
{
    for (int i = 0; i < table->point_count; i++)
        if (usage[i] > table->point[i].limit)
            return false;
    return true;
}

static double worth_of(const struct pareto *pareto, const struct table *table, const double *usage)
{
    double worth = 0;
    for (int i = 0; i < table->point_count; i++)
        worth += pareto->price[table->point[i].index] * usage[i];
    return worth;
}

/* The labels of one tuple and value while children are joined one after the other. */
struct growth {
    struct table *table;
    const struct sbp_bucket *bucket;
    const int *tuple;
    int value;
    double rest; /* priced cost of what is not in the labels yet, less price * capacity */
};

static size_t child_entry(const struct growth *growth, int c)
{
    const struct sbp_bucket_factor *factor = growth->table->child_factor[c];
    return sbp_bucket_factor_offset(factor, growth->tuple) +
           (factor->has_rows ? (size_t)growth->value : 0);
}

/* Whether a label may lead to a choice that fits and is better than the known one. */
static bool is_promising(const struct pareto *pareto, const struct growth *growth, double cost,
                         const double *usage)
{
    if (!fits(growth->table, usage))
        return false;
    if (!(pareto->upper_bound < INFINITY))
        return true;
    const double bound = cost + worth_of(pareto, growth->table, usage) + growth->rest;
    return bound < pareto->upper_bound - pareto->tolerance;
}

/* Makes the label of the variable's own value. */
static bool seed_label(struct pareto *pareto, struct growth *growth, double cost)
{
    struct labels *labels = &pareto->work[0];
    const struct table *table = growth->table;
    labels_reset(pareto, labels, (size_t)table->point_count, (size_t)table->child_count + 1);
    if (!labels_reserve(pareto, labels))
        return false;
    double *usage = usage_at(labels, 0);
    for (int i = 0; i < table->point_count; i++)
        usage[i] = 0;
    const struct sbp_live *live = pareto->live;
    const int variable = growth->bucket->variable;
    for (int s = live->begin[variable]; s < live->begin[variable + 1]; s++)
        for (int i = 0; i < table->point_count; i++)
            if (table->point[i].index >= live->span[s].first &&
                table->point[i].index < live->span[s].last)
                usage[i] += live->span[s].usage[growth->value];
    labels->cost[0] = cost;
    memset(origin_at(labels, 0), 0, labels->origin_count * sizeof(int32_t));
    origin_at(labels, 0)[0] = growth->value;
    labels->count = is_promising(pareto, growth, cost, usage);
    return true;
}

/* Joins every label of `from` with every label of child c at this tuple and value. */
static bool join_child(struct pareto *pareto, const struct growth *growth, int c,
                       const struct labels *from, struct labels *to)
{
    const struct table *table = growth->table, *child = &pareto->table[table->child[c]];
    const size_t entry = child_entry(growth, c);
    labels_reset(pareto, to, from->usage_count, from->origin_count);
    for (size_t i = 0; i < from->count; i++) {
        if (sbp_solver_run_over(pareto->search))
            return false;
        for (size_t j = child->first[entry]; j < child->first[entry + 1]; j++) {
            if (!labels_reserve(pareto, to))
                return false;
            const double cost = from->cost[i] + child->kept.cost[j];
            double *usage = usage_at(to, to->count);
            memcpy(usage, usage_at(from, i), from->usage_count * sizeof *usage);
            for (int p = 0; p < child->open_count; p++)
                usage[table->child_place[c][p]] += usage_at(&child->kept, j)[p];
            pareto->search->solution->evaluations++;
            if (!is_promising(pareto, growth, cost, usage))
                continue;
            to->cost[to->count] = cost;
            memcpy(origin_at(to, to->count), origin_at(from, i),
                   from->origin_count * sizeof(int32_t));
            origin_at(to, to->count)[1 + c] = (int32_t)j;
            to->count++;
        }
    }
    return true;
}

/* Appends the labels to `merged` without their usages at closed points. */
static bool merge_value(struct pareto *pareto, const struct table *table, const struct labels *from)
{
    struct labels *merged = &pareto->merged;
    for (size_t i = 0; i < from->count; i++) {
        if (!labels_reserve(pareto, merged))
            return false;
        double *usage = usage_at(merged, merged->count);
        for (int p = 0; p < table->point_count; p++)
            if (table->point[p].open)
                usage[table->point[p].open_place] = usage_at(from, i)[p];
        merged->cost[merged->count] = from->cost[i];
        memcpy(origin_at(merged, merged->count), origin_at(from, i),
               from->origin_count * sizeof(int32_t));
        merged->count++;
    }
    return true;
}

/* Copies the undominated labels to other. */
static bool thin(struct pareto *pareto, const struct labels *labels, struct labels *other)
{
    size_t kept;
    if (!undominated(pareto, labels, &kept))
        return false;
    labels_reset(pareto, other, labels->usage_count, labels->origin_count);
    for (size_t i = 0; i < kept; i++)
        if (!labels_append(pareto, other, labels, pareto->undominated[i]))
            return false;
    return true;
}

/* Appends all labels of one tuple and value to `merged`. */
static bool grow_value(struct pareto *pareto, struct growth *growth, double cost, double outside)
{
    struct table *table = growth->table;
    growth->rest = outside - pareto->all_worth;
    for (int c = 0; c < table->child_count; c++)
        growth->rest += pareto->tree->bucket[table->child[c]].message[child_entry(growth, c)];
    if (!(growth->rest < INFINITY))
        return true;
    if (!seed_label(pareto, growth, cost))
        return false;
    for (int c = 0; c < table->child_count; c++) {
        growth->rest += pareto->table[table->child[c]].closed_worth -
                        pareto->tree->bucket[table->child[c]].message[child_entry(growth, c)];
        if (!join_child(pareto, growth, c, &pareto->work[0], &pareto->work[1]) ||
            !thin(pareto, &pareto->work[1], &pareto->work[0]))
            return false;
    }
    return merge_value(pareto, table, &pareto->work[0]);
}

static bool visit_tuple(void *context, size_t index, const int *tuple, const double *row)
{
    struct pareto *pareto = context;
    struct table *table = &pareto->table[pareto->bucket];
    const struct sbp_bucket *bucket = &pareto->tree->bucket[pareto->bucket];
    labels_reset(pareto, &pareto->merged, (size_t)table->open_count,
                 (size_t)table->child_count + 1);
    table->first[index] = table->kept.count;
    struct growth growth = {.table = table, .bucket = bucket, .tuple = tuple};
    for (int k = 0; k < bucket->domain; k++) {
        growth.value = k;
        if (row[k] < INFINITY && bucket->outside[index] < INFINITY &&
            !grow_value(pareto, &growth, row[k], bucket->outside[index]))
            return false;
    }
    size_t kept;
    if (!undominated(pareto, &pareto->merged, &kept))
        return false;
    for (size_t i = 0; i < kept; i++)
        if (!labels_append(pareto, &table->kept, &pareto->merged, pareto->undominated[i]))
            return false;
    table->first[index + 1] = table->kept.count;
    pareto->search->solution->evaluations += bucket->domain;
    return !sbp_solver_run_over(pareto->search);
}

/* Follows the origins back from the cheapest label of the last bucket. */
static void recover(const struct pareto *pareto, int *choice, int32_t *label)
{
    const struct sbp_elimination_tree *tree = pareto->tree;
    for (int v = 0; v < tree->problem->variable_count; v++)
        choice[v] = 0;
    for (int b = tree->count - 1; b >= 0; b--) {
        const struct table *table = &pareto->table[b];
        const int32_t *origin = origin_at(&table->kept, (size_t)label[b]);
        choice[tree->bucket[b].variable] = origin[0];
        for (int c = 0; c < table->child_count; c++)
            label[table->child[c]] = origin[1 + c];
    }
}

static bool solve_buckets(struct pareto *pareto, double *rows)
{
    for (int b = 0; b < pareto->tree->count; b++) {
        struct table *table = &pareto->table[b];
        pareto->bucket = b;
        labels_reset(pareto, &table->kept, (size_t)table->open_count,
                     (size_t)table->child_count + 1);
        const struct sbp_visit visit = {.bucket = &pareto->tree->bucket[b],
                                        .base = pareto->tree->bucket[b].own,
                                        .visit = visit_tuple,
                                        .context = pareto,
                                        .rows = rows};
        if (!sbp_elimination_visit(&visit))
            return false;
    }
    return true;
}

static void pareto_free(struct pareto *pareto)
{
    for (int b = 0; pareto->table != NULL && b < pareto->tree->count; b++)
        labels_free(&pareto->table[b].kept);
    labels_free(&pareto->work[0]);
    labels_free(&pareto->work[1]);
    labels_free(&pareto->merged);
    free(pareto->order[0]);
    free(pareto->order[1]);
    give_back(pareto, pareto->bytes);
    sbp_arena_free(&pareto->arena);
}

static enum sbp_status run(struct pareto *pareto, int *choice, struct sbp_pareto_result *result)
{
    const struct sbp_elimination_tree *tree = pareto->tree;
    double *rows = sbp_arena_alloc(&pareto->arena, SBP_ELIMINATION_MOST_WIDTH + 1,
                                   tree->largest_domain * sizeof *rows);
    int32_t *label = SBP_NEW(&pareto->arena, int32_t, tree->count);
    if (rows == NULL || label == NULL || !init_tables(pareto))
        return SBP_E_MEMORY;
    result->done = solve_buckets(pareto, rows);
    if (!result->done) /* stopped, or an error */
        return pareto->status;
    const struct labels *last = &pareto->table[tree->count - 1].kept;
    result->found = last->count > 0;
    if (result->found) {
        result->cost = last->cost[0] + tree->constant;
        recover(pareto, choice, label);
    }
    return SBP_OK;
}

enum sbp_status sbp_pareto_solve(const struct sbp_elimination_tree *tree,
                                 const struct sbp_live *live, const double *price,
                                 double upper_bound, struct sbp_solver_run *search, int *choice,
                                 struct sbp_pareto_result *result, struct sbp_diag *diag)
{
    struct pareto pareto = {.tree = tree,
                            .live = live,
                            .price = price,
                            .upper_bound = upper_bound,
                            .search = search,
                            .arena.budget = tree->arena.budget,
                            .status = SBP_OK};
    *result = (struct sbp_pareto_result){.cost = INFINITY};
    const enum sbp_status status = run(&pareto, choice, result);
    pareto_free(&pareto);
    if (status == SBP_E_UNSUPPORTED)
        return sbp_fail(diag, status,
                        "exact: under this capacity labels need more than the limit of memory; use "
                        "coordinate-descent or metropolis-hastings");
    if (status == SBP_E_MEMORY)
        return sbp_fail(diag, status, "exact: out of memory");
    return status;
}
