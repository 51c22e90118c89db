/* The least cost to each tuple of one end of an edge over all tuples of the other: the min-plus
 * product of a vector with the edge's matrix, without the matrix. For each target pattern the
 * sources' patterns of a family are minimised out, kind by kind, then those of the next family. */
#include <math.h>
#include <stdlib.h>

#include "planner/limits.h"
#include "planner/pricing/edge_tables.h"

/* A family in one call of sbp_edge_spread. */
struct column {
    int sources, targets;  /* patterns at either end */
    bool *source, *target; /* (patterns) whether a tuple that is looked at has it */
    /* local: (targets, sources) number of the kind among those of the target's pattern; kind:
     * (targets, widest) these kinds, as in the table of prices. */
    uint16_t *local, *kind;
    int *width; /* (targets) number of kinds */
    int widest;
    int64_t stride;
    int after; /* product of the sources' patterns in later families */
};

struct spread {
    const struct sbp_space_edge *edge;
    bool forward;
    int families;
    struct column column[SBP_MAX_AXES + 1];
    const struct sbp_patterns *source, *target;
    int64_t entries; /* of partial tables since the last look at the clock */
    bool is_stopped; /* by the user or the deadline */
    int *target_at;  /* (places at the targets' end) the tuple there; -1: none */
    double *to;
    struct sbp_arena *arena;
};

/* ---- pair by pair --------------------------------------------------------------------------- */

/* The kinds of one target's patterns with all sources' patterns. */
struct column_of {
    const uint16_t *kind[SBP_MAX_AXES + 1];
    int step[SBP_MAX_AXES + 1]; /* from a source's pattern to the next */
};

static void find_column(const struct sbp_space_edge *edge, bool forward, int target,
                        struct column_of *column)
{
    const struct sbp_patterns *patterns = forward ? edge->to : edge->from;
    const uint16_t *at = patterns->of + (size_t)target * (size_t)edge->families;
    for (int f = 0; f < edge->families; f++) {
        const int width = edge->to->count[f];
        column->kind[f] = edge->kind[f] + (forward ? at[f] : at[f] * width);
        column->step[f] = forward ? width : 1;
    }
}

/* The place of the price between a source and the column's target; -1: no way leads there. */
static int64_t place_of(const struct sbp_space_edge *edge, const struct column_of *column,
                        const uint16_t *pattern)
{
    int64_t place = 0;
    for (int f = 0; f < edge->families; f++) {
        const uint16_t kind = column->kind[f][pattern[f] * column->step[f]];
        if (kind == SBP_EDGE_NO_KIND)
            return -1;
        place += kind * edge->stride[f];
    }
    return place;
}

/* A tuple of the end that messages come from. */
struct source {
    double from;
    const uint16_t *pattern; /* (families) */
};

static int compare_sources(const void *a, const void *b)
{
    const double x = ((const struct source *)a)->from, y = ((const struct source *)b)->from;
    return (x > y) - (x < y);
}

static double least_to(const struct sbp_space_edge *edge, const struct column_of *column,
                       const struct source *source, int sources)
{
    double least = INFINITY;
    for (int i = 0; i < sources && source[i].from < least; i++) {
        const int64_t place = place_of(edge, column, source[i].pattern);
        if (place < 0)
            continue;
        const double price = sbp_edge_price_at(edge, place);
        if (price < SBP_FORBIDDEN && source[i].from + price < least)
            least = source[i].from + price;
    }
    return least;
}

/* Takes the cheapest sources first. No price is negative, so that few sources are looked at and
 * few prices are asked for. */
static enum sbp_status spread_pairs(const struct spread *s, const struct sbp_tuples *sources,
                                    const double *from, const struct sbp_tuples *targets)
{
    const struct sbp_space_edge *edge = s->edge;
    struct source *source = SBP_TAKE(s->arena, struct source, sources->count);
    struct column_of column;
    if (source == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < sources->count; i++) {
        const int tuple = sources->tuple[i];
        source[i] =
            (struct source){from[tuple], s->source->of + (size_t)tuple * (size_t)edge->families};
    }
    qsort(source, (size_t)sources->count, sizeof *source, compare_sources);
    for (int j = 0; j < targets->count; j++) {
        if (j % SBP_PRICING_CLOCK_PERIOD == 0 && sbp_space_interrupted(edge->ends.space))
            return SBP_STOPPED;
        find_column(edge, s->forward, targets->tuple[j], &column);
        s->to[targets->tuple[j]] = least_to(edge, &column, source, sources->count);
    }
    return SBP_OK;
}

/* ---- family by family ----------------------------------------------------------------------- */

static uint16_t kind_of(const struct spread *s, int family, int source, int target)
{
    const uint16_t *kinds = s->edge->kind[family];
    const int columns = s->edge->to->count[family];
    return s->forward ? kinds[source * columns + target] : kinds[target * columns + source];
}

/* Numbers the kinds of each target's pattern; number: (kinds) scratch, of -1. */
static void number_locally(const struct spread *s, int family, struct column *column, int *number)
{
    for (int t = 0; t < column->targets; t++) {
        uint16_t *kind = column->kind + (size_t)t * (size_t)column->widest;
        column->width[t] = 0;
        for (int p = 0; p < column->sources && column->target[t]; p++) {
            const uint16_t k = kind_of(s, family, p, t);
            uint16_t *local = &column->local[(size_t)t * (size_t)column->sources + (size_t)p];
            *local = SBP_EDGE_NO_KIND;
            if (k == SBP_EDGE_NO_KIND || !column->source[p])
                continue;
            if (number[k] < 0) {
                number[k] = column->width[t];
                kind[column->width[t]++] = k;
            }
            *local = (uint16_t)number[k];
        }
        for (int i = 0; i < column->width[t]; i++)
            number[kind[i]] = -1;
    }
}

static void mark(const struct sbp_tuples *tuples, const struct sbp_patterns *patterns, int families,
                 int family, bool *marked)
{
    for (int i = 0; i < tuples->count; i++)
        marked[patterns->of[(size_t)tuples->tuple[i] * (size_t)families + (size_t)family]] = true;
}

static enum sbp_status make_column(struct spread *s, int family, const struct sbp_tuples *sources,
                                   const struct sbp_tuples *targets)
{
    const int kinds = s->edge->kinds[family], families = s->edge->families;
    struct column *c = &s->column[family];
    *c = (struct column){.sources = s->source->count[family],
                         .targets = s->target->count[family],
                         .stride = s->edge->stride[family]};
    c->widest = kinds < c->sources ? kinds : c->sources;
    c->source = SBP_NEW(s->arena, bool, c->sources);
    c->target = SBP_NEW(s->arena, bool, c->targets);
    c->local = SBP_TAKE(s->arena, uint16_t, (size_t)c->targets * (size_t)c->sources);
    c->kind = SBP_TAKE(s->arena, uint16_t, (size_t)c->targets * (size_t)c->widest);
    c->width = SBP_TAKE(s->arena, int, c->targets);
    int *number = SBP_TAKE(s->arena, int, kinds);
    if (c->source == NULL || c->target == NULL || c->local == NULL || c->kind == NULL ||
        c->width == NULL || number == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < kinds; i++)
        number[i] = -1;
    mark(sources, s->source, families, family, c->source);
    mark(targets, s->target, families, family, c->target);
    number_locally(s, family, c, number);
    return SBP_OK;
}

/* The least costs after some families: for each combination of kinds in these (their place in the
 * table of prices) and of patterns in the later families. */
struct partial {
    int count;
    int64_t *place;
    double *least; /* (count, places left) */
};

static void take_family(const struct column *c, int target, const struct partial *in,
                        struct partial *out)
{
    const int width = c->width[target], after = c->after;
    const uint16_t *local = c->local + (size_t)target * (size_t)c->sources;
    const uint16_t *kind = c->kind + (size_t)target * (size_t)c->widest;
    out->count = in->count * width;
    for (int i = 0; i < out->count * after; i++)
        out->least[i] = INFINITY;
    for (int i = 0; i < in->count; i++) {
        for (int k = 0; k < width; k++)
            out->place[i * width + k] = in->place[i] + kind[k] * c->stride;
        for (int p = 0; p < c->sources; p++) {
            if (local[p] == SBP_EDGE_NO_KIND)
                continue;
            const double *restrict row = in->least + (size_t)(i * c->sources + p) * (size_t)after;
            double *restrict least = out->least + (size_t)(i * width + local[p]) * (size_t)after;
            for (int r = 0; r < after; r++)
                least[r] = row[r] < least[r] ? row[r] : least[r];
        }
    }
}

static void look_at_clock(struct spread *s, int64_t entries)
{
    s->entries += entries;
    if (s->entries < SBP_PRICING_CLOCK_ENTRIES)
        return;
    s->entries = 0;
    s->is_stopped = sbp_space_interrupted(s->edge->ends.space);
}

/* Any entry may ask for a price that was never worked out. */
static double least_of(struct spread *s, const struct partial *partial)
{
    double least = INFINITY;
    for (int i = 0; i < partial->count && !s->is_stopped; i++) {
        look_at_clock(s, 1);
        if (partial->least[i] >= least)
            continue;
        const double sum = partial->least[i] + sbp_edge_price_at(s->edge, partial->place[i]);
        least = sum < least ? sum : least;
    }
    return least >= SBP_FORBIDDEN ? INFINITY : least;
}

/* partial: (families + 1); the first holds the sources' costs. */
static void descend(struct spread *s, int family, int place, struct partial *partial)
{
    const struct column *c = &s->column[family];
    for (int t = 0; t < c->targets && !s->is_stopped; t++) {
        const int there = place * c->targets + t;
        if (!c->target[t])
            continue;
        take_family(c, t, &partial[family], &partial[family + 1]);
        look_at_clock(s, (int64_t)partial[family + 1].count * c->after);
        if (family + 1 < s->families)
            descend(s, family + 1, there, partial);
        else if (s->target_at[there] >= 0)
            s->to[s->target_at[there]] = least_of(s, &partial[family + 1]);
    }
}

static enum sbp_status make_partials(struct spread *s, struct partial *partial)
{
    int64_t count = 1;
    for (int f = 0; f <= s->families; f++) {
        const int64_t left = f == 0 ? s->source->size : s->column[f - 1].after;
        partial[f].place = SBP_NEW(s->arena, int64_t, count);
        partial[f].least = SBP_TAKE(s->arena, double, count *left);
        if (partial[f].place == NULL || partial[f].least == NULL)
            return SBP_E_MEMORY;
        count *= f < s->families ? s->column[f].widest : 1;
    }
    partial[0].count = 1;
    return SBP_OK;
}

static enum sbp_status spread_families(struct spread *s, const struct sbp_tuples *sources,
                                       const double *from, const struct sbp_tuples *targets)
{
    struct partial partial[SBP_MAX_AXES + 2];
    int after = s->source->size;
    for (int f = 0; f < s->families; f++) {
        SBP_TRY(make_column(s, f, sources, targets));
        after /= s->column[f].sources;
        s->column[f].after = after;
    }
    SBP_TRY(make_partials(s, partial));
    s->target_at = SBP_TAKE(s->arena, int, s->target->size);
    if (s->target_at == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < s->target->size; i++)
        s->target_at[i] = -1;
    for (int i = 0; i < targets->count; i++)
        s->target_at[s->target->place[targets->tuple[i]]] = targets->tuple[i];
    for (int i = 0; i < s->source->size; i++)
        partial[0].least[i] = INFINITY;
    for (int i = 0; i < sources->count; i++)
        partial[0].least[s->source->place[sources->tuple[i]]] = from[sources->tuple[i]];
    descend(s, 0, 0, partial);
    return s->is_stopped ? SBP_STOPPED : SBP_OK;
}

/* ---- the cheaper way ------------------------------------------------------------------------ */

/* Operations of spread_families, at the most. */
static double family_work(const struct spread *s)
{
    double work = 0, targets = 1, combinations = 1;
    double left = s->source->size;
    for (int f = 0; f < s->families; f++) {
        const int sources = s->source->count[f], kinds = s->edge->kinds[f];
        targets *= s->target->count[f];
        work += targets * combinations * left;
        left /= sources;
        combinations *= kinds < sources ? kinds : sources;
    }
    return work + 2 * targets * combinations;
}

/* Tuples with different patterns, in the place of those that have the same. */
struct distinct {
    struct sbp_tuples tuples;
    double *seconds; /* (tuple) */
};

static enum sbp_status find_distinct(const struct sbp_tuples *all, const struct sbp_patterns *of,
                                     struct sbp_arena *arena, struct distinct *found)
{
    const int most = all->count > 0 ? all->tuple[all->count - 1] + 1 : 1;
    bool *seen = SBP_NEW(arena, bool, most);
    found->tuples = (struct sbp_tuples){.tuple = SBP_TAKE(arena, int, all->count + 1)};
    found->seconds = SBP_TAKE(arena, double, most);
    if (seen == NULL || found->tuples.tuple == NULL || found->seconds == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < all->count; i++) {
        const int first = of->same[all->tuple[i]];
        if (!seen[first])
            found->tuples.tuple[found->tuples.count++] = first;
        seen[first] = true;
        found->seconds[first] = INFINITY;
    }
    return SBP_OK;
}

/* Spreads between tuples that all differ in their patterns. */
static enum sbp_status spread_distinct(struct spread *s, const struct distinct *sources,
                                       const struct distinct *targets)
{
    const double pairs =
        (double)sources->tuples.count * (double)targets->tuples.count * (double)s->families;
    s->to = targets->seconds;
    if (s->source->place == NULL || s->target->place == NULL || pairs < family_work(s))
        return spread_pairs(s, &sources->tuples, sources->seconds, &targets->tuples);
    return spread_families(s, &sources->tuples, sources->seconds, &targets->tuples);
}

static enum sbp_status spread(struct spread *s, const struct sbp_tuples *sources,
                              const double *from, const struct sbp_tuples *targets, double *to)
{
    struct distinct source, target;
    SBP_TRY(find_distinct(sources, s->source, s->arena, &source));
    SBP_TRY(find_distinct(targets, s->target, s->arena, &target));
    for (int i = 0; i < sources->count; i++) {
        const int t = sources->tuple[i], first = s->source->same[t];
        source.seconds[first] = from[t] < source.seconds[first] ? from[t] : source.seconds[first];
    }
    SBP_TRY(spread_distinct(s, &source, &target));
    for (int i = 0; i < targets->count; i++)
        to[targets->tuple[i]] = target.seconds[s->target->same[targets->tuple[i]]];
    return SBP_OK;
}

enum sbp_status sbp_edge_spread(const struct sbp_space_edge *edge, bool forward,
                                const struct sbp_tuples *sources, const double *from,
                                const struct sbp_tuples *targets, double *to,
                                struct sbp_arena *scratch)
{
    const struct sbp_arena_mark mark_ = sbp_arena_mark(scratch);
    struct spread s = {.edge = edge,
                       .forward = forward,
                       .families = edge->families,
                       .source = forward ? edge->from : edge->to,
                       .target = forward ? edge->to : edge->from,
                       .arena = scratch};
    /* A tag that all tuples share needs no family. */
    while (s.families > 1 && s.source->count[s.families - 1] == 1 &&
           s.target->count[s.families - 1] == 1)
        s.families--;
    const enum sbp_status status = spread(&s, sources, from, targets, to);
    sbp_arena_release(scratch, mark_);
    return status;
}
