#include "planner/pricing/edge_tables.h"

#include <string.h>

#include "planner/limits.h"

/* ---- patterns ------------------------------------------------------------------------------- */

static bool is_same_end(const struct sbp_edge_end *a, const struct sbp_edge_end *b)
{
    bool same = a->role_count == b->role_count;
    for (int r = 0; same && r < a->role_count; r++)
        same = sbp_state_equal(a->state[r], b->state[r]);
    return same;
}

/* The number of a pattern; a new pattern gets the next one. */
static int number_of(struct sbp_patterns *patterns, int family, const uint8_t *row)
{
    int i = patterns->count[family] - 1;
    while (i >= 0 &&
           memcmp(patterns->row[family] + (size_t)i * SBP_MAX_ROLES, row, SBP_MAX_ROLES) != 0)
        i--;
    if (i >= 0)
        return i;
    memcpy(patterns->row[family] + (size_t)patterns->count[family] * SBP_MAX_ROLES, row,
           SBP_MAX_ROLES);
    return patterns->count[family]++;
}

/* A tuple's counts in a family; those of roles with the same state are one. */
static void see_row(const uint8_t *count, const struct sbp_edge_end *end,
                    uint8_t row[SBP_MAX_ROLES])
{
    memset(row, 0, SBP_MAX_ROLES);
    for (int r = 0; r < end->role_count; r++) {
        int first = 0;
        while (!sbp_state_equal(end->state[first], end->state[r]))
            first++;
        row[first] = (uint8_t)(row[first] + count[r]);
    }
}

/* Numbers the patterns of all tuples. Tuples stand in order, so that a family's row is mostly that
 * of the tuple before. */
static void number_rows(const struct sbp_space *space, const struct sbp_edge_end *end,
                        struct sbp_patterns *patterns)
{
    const int families = space->mesh->family_count, v = end->variable;
    const int tuples = space->variable[v].tuple_count;
    for (int f = 0; f < families; f++)
        for (int t = 0; t < tuples; t++) {
            const uint8_t *count = sbp_tuple_count(space, v, t, f);
            uint16_t *const of = &patterns->of[(size_t)t * (size_t)(families + 1) + (size_t)f];
            uint8_t row[SBP_MAX_ROLES];
            if (t > 0 && memcmp(count, sbp_tuple_count(space, v, t - 1, f), SBP_MAX_ROLES) == 0) {
                *of = of[-(families + 1)];
                continue;
            }
            see_row(count, end, row);
            *of = (uint16_t)number_of(patterns, f, row);
        }
    patterns->count[families] = 1;
    for (int t = 0; t < tuples; t++) {
        const uint8_t tag = space->variable[v].tag[t];
        patterns->of[(size_t)t * (size_t)(families + 1) + (size_t)families] = tag;
        if (tag >= patterns->count[families])
            patterns->count[families] = tag + 1;
    }
}

/* Finds the first of the tuples that have the same places. */
static enum sbp_status join_tuples(int tuples, struct sbp_arena *arena,
                                   struct sbp_patterns *patterns)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(arena);
    int *first = SBP_TAKE(arena, int, patterns->size);
    if (first == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < patterns->size; i++)
        first[i] = -1;
    for (int t = 0; t < tuples; t++) {
        if (first[patterns->place[t]] < 0)
            first[patterns->place[t]] = t;
        patterns->same[t] = first[patterns->place[t]];
    }
    sbp_arena_release(arena, mark);
    return SBP_OK;
}

/* Sets the tuples' places in a dense array, the last family fastest. */
static enum sbp_status place_tuples(int families, int tuples, struct sbp_arena *arena,
                                    struct sbp_patterns *patterns)
{
    int64_t size = 1;
    for (int f = 0; f < families; f++)
        size = size > SBP_PRICING_MOST_PLACES ? size : size * patterns->count[f];
    patterns->size = size > SBP_PRICING_MOST_PLACES ? 0 : (int)size;
    patterns->same = SBP_TAKE(arena, int, tuples);
    if (patterns->same == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < tuples; t++)
        patterns->same[t] = t;
    if (patterns->size == 0)
        return SBP_OK;
    patterns->place = SBP_TAKE(arena, int, tuples);
    if (patterns->place == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < tuples; t++) {
        int place = 0;
        for (int f = 0; f < families; f++)
            place =
                place * patterns->count[f] + patterns->of[(size_t)t * (size_t)families + (size_t)f];
        patterns->place[t] = place;
    }
    return join_tuples(tuples, arena, patterns);
}

static enum sbp_status make_patterns(const struct sbp_space *space, const struct sbp_edge_end *end,
                                     struct sbp_arena *arena, struct sbp_patterns *patterns)
{
    const int families = space->mesh->family_count;
    const int tuples = space->variable[end->variable].tuple_count;
    patterns->of = SBP_TAKE(arena, uint16_t, (size_t)tuples * (size_t)(families + 1));
    patterns->row = SBP_NEW(arena, uint8_t *, families + 1);
    if (patterns->of == NULL || patterns->row == NULL)
        return SBP_E_MEMORY;
    for (int f = 0; f < families; f++) {
        patterns->row[f] = SBP_TAKE(arena, uint8_t, (size_t)tuples * SBP_MAX_ROLES);
        if (patterns->row[f] == NULL)
            return SBP_E_MEMORY;
    }
    number_rows(space, end, patterns);
    return place_tuples(families + 1, tuples, arena, patterns);
}

/* ---- kinds ---------------------------------------------------------------------------------- */

static bool has_no_way(struct sbp_edge_kind kind)
{
    return kind.tags == 0;
}

static int number_of_kind(struct sbp_space_edge *edge, int family, struct sbp_edge_kind kind)
{
    int i = edge->kinds[family] - 1;
    while (i >= 0 && memcmp(&edge->meaning[family][i], &kind, sizeof kind) != 0)
        i--;
    if (i >= 0)
        return i;
    edge->meaning[family][edge->kinds[family]] = kind;
    return edge->kinds[family]++;
}

/* Numbers the kinds of all pairs of a family's patterns. */
static enum sbp_status number_kinds(struct sbp_space_edge *edge, int family,
                                    struct sbp_arena *arena)
{
    const int rows = edge->from->count[family], columns = edge->to->count[family];
    const int64_t cells = (int64_t)rows * columns;
    edge->kind[family] = SBP_TAKE(arena, uint16_t, cells);
    edge->meaning[family] =
        SBP_TAKE(arena, struct sbp_edge_kind,
                 cells < SBP_PRICING_MOST_KINDS ? cells : SBP_PRICING_MOST_KINDS);
    if (edge->kind[family] == NULL || edge->meaning[family] == NULL)
        return SBP_E_MEMORY;
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++) {
            const struct sbp_edge_kind kind =
                sbp_edge_kind(&edge->ends, edge->from->row[family] + (size_t)a * SBP_MAX_ROLES,
                              edge->to->row[family] + (size_t)b * SBP_MAX_ROLES);
            if (edge->kinds[family] == SBP_PRICING_MOST_KINDS)
                return SBP_E_UNSUPPORTED;
            edge->kind[family][(size_t)a * (size_t)columns + (size_t)b] =
                has_no_way(kind) ? SBP_EDGE_NO_KIND : (uint16_t)number_of_kind(edge, family, kind);
        }
    return SBP_OK;
}

static bool is_same_family(const struct sbp_patterns *a, const struct sbp_patterns *b, int family)
{
    return a->count[family] == b->count[family] &&
           memcmp(a->row[family], b->row[family], (size_t)a->count[family] * SBP_MAX_ROLES) == 0;
}

/* Whether two edges have the same kinds in a family: the same patterns and states at both ends. */
static bool is_same_kinds(const struct sbp_space_edge *a, const struct sbp_space_edge *b,
                          int family)
{
    return a->ends.is_output == b->ends.is_output && a->ends.is_whole == b->ends.is_whole &&
           a->ends.goes_on == b->ends.goes_on && is_same_end(&a->ends.from, &b->ends.from) &&
           is_same_end(&a->ends.to, &b->ends.to) && is_same_family(a->from, b->from, family) &&
           is_same_family(a->to, b->to, family);
}

/* Layers of one sort have the same kinds, whatever their sizes: they are taken from one of the
 * edges just before, if it has them. */
static enum sbp_status set_kinds(struct sbp_space_edge *edge, int before, int family,
                                 struct sbp_arena *arena)
{
    for (int k = 1; k <= before && k <= SBP_PRICING_NEAR_EDGES; k++)
        if (is_same_kinds(edge, edge - k, family)) {
            edge->kind[family] = edge[-k].kind[family];
            edge->meaning[family] = edge[-k].meaning[family];
            edge->kinds[family] = edge[-k].kinds[family];
            return SBP_OK;
        }
    return number_kinds(edge, family, arena);
}

/* Numbers the kinds of the last family, the rest's tags. */
static enum sbp_status number_tags(struct sbp_space_edge *edge, struct sbp_arena *arena)
{
    const int last = edge->families - 1;
    const int rows = edge->from->count[last], columns = edge->to->count[last];
    edge->kind[last] = SBP_TAKE(arena, uint16_t, (size_t)rows * (size_t)columns);
    if (edge->kind[last] == NULL)
        return SBP_E_MEMORY;
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++)
            edge->kind[last][a * columns + b] = (uint16_t)(edge->ends.is_output ? b : a);
    edge->kinds[last] = edge->ends.is_output ? columns : rows;
    return SBP_OK;
}

/* places: of all prices. Where there are many, few are ever asked for. */
static enum sbp_status make_slots(struct sbp_space_edge *edge, int64_t places, int most_slots,
                                  struct sbp_arena *arena)
{
    edge->slots = 1;
    while (edge->slots < places && edge->slots <= most_slots / 2)
        edge->slots *= 2;
    edge->price = SBP_TAKE(arena, struct sbp_edge_price, edge->slots);
    for (int i = 0; edge->price != NULL && i < edge->slots; i++)
        edge->price[i].place = -1;
    return edge->price == NULL ? SBP_E_MEMORY : SBP_OK;
}

/* Patterns of an edge's end, or those of an edge before it that are the same; NULL: no memory. */
static const struct sbp_patterns *find_patterns(const struct sbp_space_edge *first,
                                                const struct sbp_space_edge *edge,
                                                const struct sbp_edge_end *end,
                                                struct sbp_arena *arena)
{
    for (const struct sbp_space_edge *known = first; known < edge; known++) {
        if (known->ends.from.variable == end->variable && is_same_end(&known->ends.from, end))
            return known->from;
        if (known->ends.to.variable == end->variable && is_same_end(&known->ends.to, end))
            return known->to;
    }
    struct sbp_patterns *patterns = SBP_NEW(arena, struct sbp_patterns, 1);
    return patterns != NULL && make_patterns(edge->ends.space, end, arena, patterns) == SBP_OK
               ? patterns
               : NULL;
}

/* before: number of edges right in front of this one that are made. */
static enum sbp_status make_edge(struct sbp_space_edge *edge, int before, int most_slots,
                                 struct sbp_arena *arena)
{
    int64_t size = 1;
    edge->families = edge->ends.space->mesh->family_count + 1;
    edge->from = find_patterns(edge - before, edge, &edge->ends.from, arena);
    edge->to = find_patterns(edge - before, edge, &edge->ends.to, arena);
    if (edge->from == NULL || edge->to == NULL)
        return SBP_E_MEMORY;
    for (int f = 0; f + 1 < edge->families; f++)
        SBP_TRY(set_kinds(edge, before, f, arena));
    SBP_TRY(number_tags(edge, arena));
    for (int f = edge->families - 1; f >= 0; f--) {
        edge->stride[f] = size;
        if (__builtin_mul_overflow(size, edge->kinds[f] > 0 ? edge->kinds[f] : 1, &size))
            return SBP_E_UNSUPPORTED;
    }
    return make_slots(edge, size, most_slots, arena);
}

double sbp_edge_work_out_price(const struct sbp_space_edge *edge, int64_t place)
{
    struct sbp_edge_price *const slot = &edge->price[place & (edge->slots - 1)];
    struct sbp_edge_kind kind[SBP_MAX_AXES];
    for (int f = 0; f + 1 < edge->families; f++)
        kind[f] = edge->meaning[f][place / edge->stride[f] % edge->kinds[f]];
    const int tag = (int)(place % edge->kinds[edge->families - 1]);
    *slot = (struct sbp_edge_price){place, sbp_edge_kind_price_s(&edge->ends, kind, tag)};
    return slot->seconds;
}

double sbp_edge_price_s(const struct sbp_space_edge *edge, int from_tuple, int to_tuple)
{
    const uint16_t *a = edge->from->of + (size_t)from_tuple * (size_t)edge->families;
    const uint16_t *b = edge->to->of + (size_t)to_tuple * (size_t)edge->families;
    int64_t place = 0;
    for (int f = 0; f < edge->families; f++) {
        const uint16_t kind = edge->kind[f][a[f] * edge->to->count[f] + b[f]];
        if (kind == SBP_EDGE_NO_KIND)
            return SBP_FORBIDDEN;
        place += kind * edge->stride[f];
    }
    return sbp_edge_price_at(edge, place);
}

/* ---- all edges ------------------------------------------------------------------------------ */

enum sbp_status sbp_pricing_make_edges(const struct sbp_space *space, struct sbp_arena *arena,
                                       struct sbp_space_edges *edges)
{
    *edges = (struct sbp_space_edges){
        .edge = SBP_NEW(arena, struct sbp_space_edge,
                        space->output_edge_count + space->input_edge_count)};
    if (edges->edge == NULL)
        return SBP_E_MEMORY;
    for (int k = 0; k < space->output_edge_count; k++)
        edges->edge[edges->count++].ends = sbp_edge_of_output(space, &space->output_edge[k]);
    for (int i = 0; i < space->input_edge_count; i++)
        edges->edge[edges->count++].ends = sbp_edge_of_input(space, &space->input_edge[i]);
    for (int e = 0; e < edges->count; e++)
        SBP_TRY(make_edge(&edges->edge[e], e, SBP_PRICING_MOST_SLOTS / edges->count, arena));
    return SBP_OK;
}
