#include "planner/solvers/elimination_order_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/portable.h"
#include "planner/limits.h"

enum criterion { LEAST_FILL, SMALLEST_TABLE, CRITERION_COUNT };

struct neighbours {
    int count, room, *member; /* ascending */
};

/* A heap entry. A new score adds an entry; the stamp tells older ones, which are skipped. */
struct candidate {
    double score, tie;
    int variable, stamp;
};

struct greedy {
    const struct sbp_problem *problem;
    enum criterion criterion;
    struct sbp_arena arena; /* this attempt's */
    double *bits;           /* (variable_count) log2 of the domains */
    struct neighbours *adjacent;
    int *stamp;
    bool *gone;
    struct candidate *heap;
    size_t heap_count, heap_room;
};

static bool precedes(const struct candidate *a, const struct candidate *b)
{
    if (a->score != b->score)
        return a->score < b->score;
    if (a->tie != b->tie)
        return a->tie < b->tie;
    return a->variable < b->variable;
}

static bool heap_push(struct greedy *greedy, struct candidate candidate)
{
    if (greedy->heap_count == greedy->heap_room) {
        const size_t room = greedy->heap_room == 0 ? 256 : 2 * greedy->heap_room;
        struct candidate *heap = realloc(greedy->heap, room * sizeof *heap);
        if (heap == NULL)
            return false;
        greedy->heap = heap;
        greedy->heap_room = room;
    }
    size_t at = greedy->heap_count++;
    while (at > 0 && precedes(&candidate, &greedy->heap[(at - 1) / 2])) {
        greedy->heap[at] = greedy->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    greedy->heap[at] = candidate;
    return true;
}

static struct candidate heap_pop(struct greedy *greedy)
{
    const struct candidate first = greedy->heap[0];
    const struct candidate last = greedy->heap[--greedy->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= greedy->heap_count)
            break;
        if (child + 1 < greedy->heap_count &&
            precedes(&greedy->heap[child + 1], &greedy->heap[child]))
            child++;
        if (!precedes(&greedy->heap[child], &last))
            break;
        greedy->heap[at] = greedy->heap[child];
        at = child;
    }
    greedy->heap[at] = last;
    return first;
}

/* The first place whose member is at least `member`. */
static int lower_place(const struct neighbours *set, int member)
{
    int low = 0, high = set->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (set->member[middle] < member)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool contains(const struct neighbours *set, int member)
{
    const int place = lower_place(set, member);
    return place < set->count && set->member[place] == member;
}

static bool insert(struct greedy *greedy, struct neighbours *set, int member)
{
    const int place = lower_place(set, member);
    if (place < set->count && set->member[place] == member)
        return true;
    if (set->count == set->room) {
        const int room = set->room == 0 ? 4 : 2 * set->room;
        int *grown = SBP_NEW(&greedy->arena, int, room);
        if (grown == NULL)
            return false;
        if (set->count > 0)
            memcpy(grown, set->member, (size_t)set->count * sizeof *grown);
        set->member = grown;
        set->room = room;
    }
    memmove(set->member + place + 1, set->member + place,
            (size_t)(set->count - place) * sizeof *set->member);
    set->member[place] = member;
    set->count++;
    return true;
}

static void drop(struct neighbours *set, int member)
{
    const int place = lower_place(set, member);
    memmove(set->member + place, set->member + place + 1,
            (size_t)(set->count - place - 1) * sizeof *set->member);
    set->count--;
}

/* Edges that eliminating the variable would add: pairs of its neighbours that are not joined. */
static double fill_in(const struct greedy *greedy, int variable)
{
    const struct neighbours *set = &greedy->adjacent[variable];
    if (set->count > SBP_PROBLEM_COUNTED_DEGREE)
        return (double)set->count * (double)set->count;
    int missing = 0;
    for (int i = 0; i < set->count; i++)
        for (int j = i + 1; j < set->count; j++)
            missing += !contains(&greedy->adjacent[set->member[i]], set->member[j]);
    return missing;
}

/* log2 of the bucket's table. */
static double table_bits(const struct greedy *greedy, int variable)
{
    const struct neighbours *set = &greedy->adjacent[variable];
    double bits = greedy->bits[variable];
    for (int i = 0; i < set->count; i++)
        bits += greedy->bits[set->member[i]];
    return bits;
}

static bool push_scored(struct greedy *greedy, int variable)
{
    const double bits = table_bits(greedy, variable), fill = fill_in(greedy, variable);
    const bool by_fill = greedy->criterion == LEAST_FILL;
    return heap_push(greedy, (struct candidate){.score = by_fill ? fill : bits,
                                                .tie = by_fill ? bits : fill,
                                                .variable = variable,
                                                .stamp = ++greedy->stamp[variable]});
}

static bool rescore_around(struct greedy *greedy, const int *scope, int width)
{
    const bool wide = greedy->problem->variable_count <= SBP_PROBLEM_WIDE_UPDATE;
    for (int i = 0; i < width; i++) {
        const struct neighbours *set = &greedy->adjacent[scope[i]];
        if (!push_scored(greedy, scope[i]))
            return false;
        for (int j = 0; wide && j < set->count; j++)
            if (!push_scored(greedy, set->member[j]))
                return false;
    }
    return true;
}

/* Takes the variable out and joins its neighbours (scope) pair by pair. */
static bool take_out(struct greedy *greedy, int variable, const int *scope, int width)
{
    greedy->gone[variable] = true;
    for (int i = 0; i < width; i++)
        drop(&greedy->adjacent[scope[i]], variable);
    for (int i = 0; i < width; i++)
        for (int j = i + 1; j < width; j++)
            if (!insert(greedy, &greedy->adjacent[scope[i]], scope[j]) ||
                !insert(greedy, &greedy->adjacent[scope[j]], scope[i]))
                return false;
    return rescore_around(greedy, scope, width);
}

static bool start_greedy(struct greedy *greedy)
{
    const struct sbp_problem *problem = greedy->problem;
    const size_t count = (size_t)problem->variable_count;
    greedy->adjacent = SBP_NEW(&greedy->arena, struct neighbours, count);
    greedy->stamp = SBP_NEW(&greedy->arena, int, count);
    greedy->gone = SBP_NEW(&greedy->arena, bool, count);
    greedy->bits = SBP_NEW(&greedy->arena, double, count);
    if (greedy->adjacent == NULL || greedy->stamp == NULL || greedy->gone == NULL ||
        greedy->bits == NULL)
        return false;
    for (size_t v = 0; v < count; v++)
        greedy->bits[v] = sbp_log2(problem->variable[v].domain);
    for (int e = 0; e < problem->edge_count; e++) {
        const int a = problem->edge[e].a, b = problem->edge[e].b;
        if (problem->variable[a].domain == 1 || problem->variable[b].domain == 1)
            continue;
        if (!insert(greedy, &greedy->adjacent[a], b) || !insert(greedy, &greedy->adjacent[b], a))
            return false;
    }
    for (int v = 0; v < problem->variable_count; v++)
        if (problem->variable[v].domain > 1 && !push_scored(greedy, v))
            return false;
    return true;
}

static bool pop_fresh(struct greedy *greedy, int *variable)
{
    while (greedy->heap_count > 0) {
        const struct candidate best = heap_pop(greedy);
        *variable = best.variable;
        if (!greedy->gone[best.variable] && best.stamp == greedy->stamp[best.variable])
            return true;
    }
    return false;
}

/* Adds the bucket's table to the order's bytes and sums. */
static void count_bucket(const struct sbp_problem *problem, struct sbp_elimination_order *order,
                         int variable, int width, const int *scope)
{
    double size = 1;
    for (int i = 0; i < width; i++)
        size *= problem->variable[scope[i]].domain;
    order->bytes += size * (double)sizeof(double);
    order->sums += size * problem->variable[variable].domain;
    if (width > SBP_ELIMINATION_MOST_WIDTH)
        order->bytes = fmax(order->bytes, 0x1p60);
}

/* Orders each scope so that the variable eliminated last comes first. */
static void sort_scopes(struct sbp_elimination_order *order, int *position)
{
    for (int i = 0; i < order->count; i++)
        position[order->variable[i]] = i;
    for (int i = 0; i < order->count; i++)
        for (int j = 1; j < order->width[i]; j++) {
            const int moving = order->scope[i][j];
            int at = j;
            for (; at > 0 && position[order->scope[i][at - 1]] < position[moving]; at--)
                order->scope[i][at] = order->scope[i][at - 1];
            order->scope[i][at] = moving;
        }
}

static enum sbp_status run_greedy(struct greedy *greedy, double most_bytes, struct sbp_arena *arena,
                                  struct sbp_elimination_order *order)
{
    const size_t room = (size_t)greedy->problem->variable_count;
    *order = (struct sbp_elimination_order){
        .variable = SBP_NEW(arena, int, room),
        .width = SBP_NEW(arena, int, room),
        .scope = SBP_NEW(arena, int *, room),
    };
    int *position = SBP_NEW(&greedy->arena, int, room);
    if (order->variable == NULL || order->width == NULL || order->scope == NULL ||
        position == NULL || !start_greedy(greedy))
        return SBP_E_MEMORY;
    int variable;
    while (order->bytes <= most_bytes && pop_fresh(greedy, &variable)) {
        const struct neighbours *set = &greedy->adjacent[variable];
        int *scope = SBP_NEW(arena, int, set->count);
        if (scope == NULL)
            return SBP_E_MEMORY;
        if (set->count > 0)
            memcpy(scope, set->member, (size_t)set->count * sizeof *scope);
        order->variable[order->count] = variable;
        order->width[order->count] = set->count;
        order->scope[order->count++] = scope;
        count_bucket(greedy->problem, order, variable, set->count, scope);
        if (order->bytes <= most_bytes && !take_out(greedy, variable, scope, set->count))
            return SBP_E_MEMORY;
    }
    sort_scopes(order, position);
    return SBP_OK;
}

enum sbp_status sbp_elimination_order_find(const struct sbp_problem *problem, double most_bytes,
                                           struct sbp_arena *arena,
                                           struct sbp_elimination_order *order)
{
    struct sbp_elimination_order best = {0};
    for (int c = 0; c < CRITERION_COUNT; c++) {
        struct greedy greedy = {.problem = problem,
                                .criterion = (enum criterion)c,
                                .arena.budget = problem->arena.budget};
        struct sbp_elimination_order attempt;
        const enum sbp_status status = run_greedy(&greedy, most_bytes, arena, &attempt);
        free(greedy.heap);
        sbp_arena_free(&greedy.arena);
        if (status != SBP_OK)
            return status;
        const bool fits = attempt.bytes <= most_bytes;
        if (c == 0 || (fits && (best.bytes > most_bytes || attempt.sums < best.sums)) ||
            (!fits && best.bytes > most_bytes && attempt.bytes < best.bytes))
            best = attempt;
    }
    *order = best;
    return SBP_OK;
}
