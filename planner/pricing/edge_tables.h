/* Finds, for every choice at one end of an edge, the cheapest choice at the other, without pricing
 * all pairs. Input: the edges of a space. Output: seconds for a pair of tuples (sbp_edge_price_s),
 * or the least seconds for every tuple of one end (sbp_edge_spread).
 *
 * In each family of axes a tuple shows a pattern, which is its counts by role. There are few
 * patterns. Two patterns make a kind (edge_kinds.h), and the kinds of all families name a place in
 * one table of prices, which is small whatever the number of tuples. sbp_edge_spread minimises over
 * one family after the other.
 */
#ifndef SBP_PLANNER_PRICING_EDGE_TABLES_H
#define SBP_PLANNER_PRICING_EDGE_TABLES_H

#include "planner/pricing/edge_kinds.h"

/* The patterns of a variable's tuples, seen from an edge: roles with the same state of its tensor
 * count as one. The tag of a rest counts as a family of its own, the last. */
struct sbp_patterns {
    int count[SBP_MAX_AXES + 1];
    uint16_t *of;  /* (tuple, families + 1) */
    uint8_t **row; /* (families) of count[f] rows of SBP_MAX_ROLES */
    int *place;    /* (tuple) in a dense array over all patterns; NULL: too large */
    int size;      /* of that array */
    int *same;     /* (tuple) the first tuple with the same patterns; itself where place is NULL */
};

/* A remembered price by its place in the full table; place -1: none. */
struct sbp_edge_price {
    int64_t place;
    double seconds;
};

/* Two patterns between which there is no way. */
#define SBP_EDGE_NO_KIND UINT16_MAX

struct sbp_space_edge {
    struct sbp_edge_ends ends;
    int families;                         /* with the tag's */
    const struct sbp_patterns *from, *to; /* edges of one variable may share them */
    uint16_t *kind[SBP_MAX_AXES + 1];     /* (patterns from, patterns to) */
    struct sbp_edge_kind *meaning[SBP_MAX_AXES];
    int kinds[SBP_MAX_AXES + 1];
    int64_t stride[SBP_MAX_AXES + 1];
    int slots; /* a power of two; fewer than the product of kinds if that is large */
    struct sbp_edge_price *price; /* (slots) the latest price of the places that share a slot */
};

struct sbp_space_edges {
    int count;
    struct sbp_space_edge *edge; /* output edges, then input edges, loops among them */
};

/* Whether a variable feeds itself (a repeated block's last operator feeds the next one's first). */
static inline bool sbp_edge_is_loop(const struct sbp_space_edge *edge)
{
    return edge->ends.from.variable == edge->ends.to.variable;
}

/* Makes all edges, out of the arena; the space must outlive them. E_MEMORY; E_UNSUPPORTED: a table
 * of prices would be too large. */
enum sbp_status sbp_pricing_make_edges(const struct sbp_space *space, struct sbp_arena *arena,
                                       struct sbp_space_edges *edges) SBP_MUST_USE;

/* The price at a place; the first function works it out anew and remembers it. */
double sbp_edge_work_out_price(const struct sbp_space_edge *edge, int64_t place);
static inline double sbp_edge_price_at(const struct sbp_space_edge *edge, int64_t place)
{
    const struct sbp_edge_price *known = &edge->price[place & (edge->slots - 1)];
    return known->place == place ? known->seconds : sbp_edge_work_out_price(edge, place);
}
double sbp_edge_price_s(const struct sbp_space_edge *edge, int from_tuple, int to_tuple);

/* Tuples of a variable that are still looked at. */
struct sbp_tuples {
    int count, *tuple; /* rising */
};

/* Sets to[t], for the tuples t of one end, to the least over tuples s of the other end of from[s] +
 * the price between them; INFINITY where there is no way. forward: from the edge's first end to its
 * second, else back. Arrays are by tuple. All scratch is given back. E_MEMORY, SBP_STOPPED. */
enum sbp_status sbp_edge_spread(const struct sbp_space_edge *edge, bool forward,
                                const struct sbp_tuples *sources, const double *from,
                                const struct sbp_tuples *targets, double *to,
                                struct sbp_arena *scratch) SBP_MUST_USE;

#endif
