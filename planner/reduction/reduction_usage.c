#include <stdlib.h>
#include <string.h>

#include "planner/reduction/reduction_priv.h"

/* A span of a variable of the source, as one of the variable that it was merged into. */
struct piece {
    int root;
    const struct sbp_span *span;
    const int *map; /* from the root's values in the source to the member's; NULL: the same */
};

/* The begin or the end of a piece. */
struct turn {
    int point, sign, piece;
};

struct join {
    struct sbp_reducer *reducer;
    int *root; /* (variables) what each was merged into */
    int **map; /* (variables) as in a piece */
    int piece_count, turn_count;
    struct piece *piece; /* sorted by root */
    struct turn *turn;   /* of one root, sorted */
    double *sum;         /* (largest domain) */
};

/* --- who belongs to whom --- */

/* Follows the ties from the last to the first, so that a parent's root is known before its own. */
static enum sbp_status find_roots(struct join *join)
{
    struct sbp_reducer *reducer = join->reducer;
    const struct sbp_reduction *reduction = reducer->reduction;
    for (int v = 0; v < reducer->variable_count; v++)
        join->root[v] = v;
    for (int i = reduction->step_count - 1; i >= 0; i--) {
        const struct sbp_reduction_step *step = &reduction->step[i];
        if (!step->is_tie)
            continue;
        const int root = join->root[step->parent[0]], *parents = join->map[step->parent[0]];
        const int domain = reducer->source->variable[root].domain;
        int *map = SBP_TAKE(&reducer->scratch, int, domain);
        if (map == NULL)
            return SBP_E_MEMORY;
        for (int k = 0; k < domain; k++)
            map[k] = step->map[parents == NULL ? k : parents[k]];
        join->root[step->variable] = root;
        join->map[step->variable] = map;
    }
    return SBP_OK;
}

static int compare_pieces(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    if (a->root != b->root)
        return a->root < b->root ? -1 : 1;
    return (a->span > b->span) - (a->span < b->span);
}

static void list_pieces(struct join *join)
{
    const struct sbp_live *live = &join->reducer->live;
    for (int v = 0; v < join->reducer->variable_count; v++)
        for (int s = live->begin[v]; s < live->begin[v + 1]; s++)
            if (live->span[s].first < live->span[s].last)
                join->piece[join->piece_count++] =
                    (struct piece){join->root[v], &live->span[s], join->map[v]};
    qsort(join->piece, (size_t)join->piece_count, sizeof *join->piece, compare_pieces);
}

/* --- sums over time --- */

static int compare_turns(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    if (a->sign != b->sign)
        return a->sign < b->sign ? -1 : 1;
    return (a->piece > b->piece) - (a->piece < b->piece);
}

static void add_piece(const struct join *join, const struct turn *turn)
{
    const struct piece *piece = &join->piece[turn->piece];
    const struct sbp_reducer_variable *v = &join->reducer->variable[piece->root];
    for (int k = 0; k < v->domain; k++) {
        const int value = piece->map == NULL ? v->value[k] : piece->map[v->value[k]];
        join->sum[k] += turn->sign * piece->span->usage[value];
    }
}

/* Adds what the sums say of points first <= p < last to the base and to the root's spans. */
static enum sbp_status add_span(struct join *join, int root, int first, int last)
{
    struct sbp_reducer *reducer = join->reducer;
    struct sbp_reducer_variable *v = &reducer->variable[root];
    double least = join->sum[0], most = least;
    for (int k = 1; k < v->domain; k++) {
        least = fmin(least, join->sum[k]);
        most = fmax(most, join->sum[k]);
    }
    reducer->base[first] += least;
    reducer->base[last] -= least;
    if (!(most > least))
        return SBP_OK;
    double *usage = SBP_TAKE(&reducer->scratch, double, v->domain);
    if (usage == NULL)
        return SBP_E_MEMORY;
    for (int k = 0; k < v->domain; k++)
        usage[k] = join->sum[k] - least;
    struct sbp_reducer_span *before = v->span_count > 0 ? &v->span[v->span_count - 1] : NULL;
    if (before != NULL && before->last == first &&
        memcmp(before->usage, usage, (size_t)v->domain * sizeof *usage) == 0)
        before->last = last;
    else
        v->span[v->span_count++] = (struct sbp_reducer_span){first, last, usage};
    return SBP_OK;
}

/* Joins pieces from <= i < to, which are all of one root. */
static enum sbp_status join_root(struct join *join, int from, int to)
{
    const int root = join->piece[from].root;
    struct sbp_reducer_variable *v = &join->reducer->variable[root];
    join->turn_count = 0;
    for (int i = from; i < to; i++) {
        const struct sbp_span *span = join->piece[i].span;
        join->turn[join->turn_count++] = (struct turn){span->first, 1, i};
        join->turn[join->turn_count++] = (struct turn){span->last, -1, i};
    }
    qsort(join->turn, (size_t)join->turn_count, sizeof *join->turn, compare_turns);
    v->span = SBP_NEW(&join->reducer->scratch, struct sbp_reducer_span, join->turn_count);
    if (v->span == NULL)
        return SBP_E_MEMORY;
    int open = 0;
    for (int i = 0; i < join->turn_count; i++) {
        const struct turn *turn = &join->turn[i];
        if (open > 0 && turn->point > join->turn[i - 1].point)
            SBP_TRY(add_span(join, root, join->turn[i - 1].point, turn->point));
        add_piece(join, turn);
        open += turn->sign;
        if (open == 0) /* what round-off leaves of nothing */
            memset(join->sum, 0, (size_t)v->domain * sizeof *join->sum);
    }
    return SBP_OK;
}

enum sbp_status sbp_reduction_join_usages(struct sbp_reducer *reducer)
{
    const size_t variables = (size_t)reducer->variable_count;
    const size_t spans = (size_t)reducer->live.begin[reducer->variable_count];
    const size_t points = (size_t)reducer->live.point_count;
    size_t largest = 1;
    for (size_t v = 0; v < variables; v++) {
        reducer->variable[v].span_count = 0;
        if ((size_t)reducer->variable[v].domain > largest)
            largest = (size_t)reducer->variable[v].domain;
    }
    struct join join = {.reducer = reducer,
                        .root = SBP_NEW(&reducer->scratch, int, variables),
                        .map = SBP_NEW(&reducer->scratch, int *, variables),
                        .piece = SBP_NEW(&reducer->scratch, struct piece, spans),
                        .turn = SBP_NEW(&reducer->scratch, struct turn, 2 * spans),
                        .sum = SBP_NEW(&reducer->scratch, double, largest)};
    reducer->base = SBP_NEW(&reducer->scratch, double, points + 1);
    if (join.root == NULL || join.map == NULL || join.piece == NULL || join.turn == NULL ||
        join.sum == NULL || reducer->base == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(find_roots(&join));
    list_pieces(&join);
    for (int from = 0, to; from < join.piece_count; from = to) {
        for (to = from + 1; to < join.piece_count && join.piece[to].root == join.piece[from].root;)
            to++;
        SBP_TRY(join_root(&join, from, to));
    }
    for (size_t p = 0; p < points; p++)
        reducer->base[p + 1] += reducer->base[p];
    return SBP_OK;
}
