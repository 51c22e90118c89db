#include "costmodel/layout/boxing_steps.h"

#include <assert.h>
#include <math.h>

#include "base/arena.h"

enum { MOST_OPTIONS = SBP_MAX_DIMS + 2, MOST_FREE = 8, MOST_GROUPS = 1 << MOST_FREE };

/* What an axis that the path may change can be in. A distribution is numbered by the options of its
 * axes, stride[0] = 1. */
struct free_axis {
    int axis; /* of the mesh */
    int option_count, stride;
    struct sbp_state option[MOST_OPTIONS];
};

struct graph {
    const struct sbp_cluster *cluster;
    const struct sbp_layout *layout;
    const struct sbp_shape *shape;
    double element_bytes;
    struct sbp_dist base; /* axes that stay as they are */
    int free_count, node_count;
    struct free_axis free[MOST_FREE];
    struct sbp_group group[MOST_GROUPS]; /* by the set of free axes */
};

/* Best known way to a distribution: seconds, then steps, decide. */
struct node {
    double seconds;
    int steps;
    int previous;
    int heap_at; /* -1: not in the heap */
    enum sbp_collective kind;
};

struct search {
    const struct graph *graph;
    struct node *node; /* (node_count) */
    int *heap;         /* nodes, the nearest first */
    int heap_count, target;
};

/* --- the graph --- */

static bool has_digit(const struct graph *g, int axis, int dim)
{
    const int dim_class = g->shape->dim_class[dim];
    return dim_class != SBP_NO_CLASS && g->layout->split[dim_class] >> axis & 1;
}

/* Costs do not tell one dimension from another. So where an all-to-all over fewer axes never costs
 * more, an axis needs only the dimensions that it splits before and after, or any one if none: on
 * a path through others, put each of them in that place, and what is left to do costs no more. */
static void add_free_axis(struct graph *g, int axis, struct sbp_state from, struct sbp_state to)
{
    struct free_axis *free = &g->free[g->free_count++];
    const bool ends_split = from.kind == SBP_SPLIT || to.kind == SBP_SPLIT;
    int splits = 0;
    *free = (struct free_axis){.axis = axis, .stride = g->node_count};
    free->option[free->option_count++] = SBP_STATE_B;
    free->option[free->option_count++] = SBP_STATE_P;
    for (uint8_t dim = 0; dim < SBP_MAX_DIMS; dim++) {
        const struct sbp_state split = SBP_STATE_S(dim);
        const bool needed =
            ends_split ? sbp_state_equal(split, from) || sbp_state_equal(split, to) : splits == 0;
        if (has_digit(g, axis, dim) &&
            (needed || !sbp_collective_grows(g->cluster, SBP_ALL_TO_ALL))) {
            free->option[free->option_count++] = split;
            splits++;
        }
    }
    g->node_count *= free->option_count;
}

/* False: too many distributions. */
static bool make_graph(struct graph *g, const struct sbp_dist *from, const struct sbp_dist *to)
{
    const struct sbp_mesh *mesh = g->layout->mesh;
    g->base = *from;
    g->node_count = 1;
    if (mesh->axis_count > MOST_FREE)
        return false;
    for (int i = 0; i < mesh->axis_count && g->node_count <= SBP_MOST_STEP_NODES; i++)
        add_free_axis(g, i, from->axis[i], to->axis[i]);
    for (unsigned set = 0; set < 1u << g->free_count; set++) {
        sbp_axes axes = 0;
        for (int f = 0; f < g->free_count; f++)
            if (set >> f & 1)
                axes |= (sbp_axes)1 << g->free[f].axis;
        g->group[set] = sbp_collective_group_of(mesh, axes);
    }
    return g->node_count <= SBP_MOST_STEP_NODES;
}

static struct sbp_state state_of(const struct graph *g, int node, int f)
{
    const struct free_axis *free = &g->free[f];
    return free->option[node / free->stride % free->option_count];
}

static struct sbp_dist dist_of(const struct graph *g, int node)
{
    struct sbp_dist dist = g->base;
    for (int f = 0; f < g->free_count; f++)
        dist.axis[g->free[f].axis] = state_of(g, node, f);
    return dist;
}

static int node_of(const struct graph *g, const struct sbp_dist *dist)
{
    int node = 0;
    for (int f = 0; f < g->free_count; f++) {
        const struct free_axis *free = &g->free[f];
        int option = 0;
        while (!sbp_state_equal(free->option[option], dist->axis[free->axis]))
            option++;
        node += option * free->stride;
    }
    return node;
}

/* --- a heap of nodes that knows where each one stands --- */

static bool is_nearer(const struct node *a, const struct node *b)
{
    return a->seconds != b->seconds ? a->seconds < b->seconds : a->steps < b->steps;
}

static void put(struct search *s, int at, int node)
{
    s->heap[at] = node;
    s->node[node].heap_at = at;
}

static void sift_up(struct search *s, int at)
{
    const int node = s->heap[at];
    for (; at > 0 && is_nearer(&s->node[node], &s->node[s->heap[(at - 1) / 2]]); at = (at - 1) / 2)
        put(s, at, s->heap[(at - 1) / 2]);
    put(s, at, node);
}

static void sift_down(struct search *s, int node)
{
    int at = 0;
    for (int child = 1; child < s->heap_count; child = 2 * at + 1) {
        if (child + 1 < s->heap_count &&
            is_nearer(&s->node[s->heap[child + 1]], &s->node[s->heap[child]]))
            child++;
        if (!is_nearer(&s->node[s->heap[child]], &s->node[node]))
            break;
        put(s, at, s->heap[child]);
        at = child;
    }
    put(s, at, node);
}

static int pop(struct search *s)
{
    const int nearest = s->heap[0];
    const int last = s->heap[--s->heap_count];
    s->node[nearest].heap_at = -1;
    if (s->heap_count > 0)
        sift_down(s, last);
    return nearest;
}

/* --- the search --- */

/* A way to `to` that is known to be better, unless the target is nearer than all of it. */
static void reach(struct search *s, int from, int to, enum sbp_collective kind, double seconds)
{
    struct node *node = &s->node[to];
    const struct node way = {.seconds = s->node[from].seconds + seconds,
                             .steps = s->node[from].steps + 1,
                             .previous = from,
                             .heap_at = node->heap_at,
                             .kind = kind};
    if (!is_nearer(&way, node) || way.seconds > s->node[s->target].seconds ||
        way.steps > SBP_MAX_BOXING_STEPS)
        return;
    *node = way;
    if (node->heap_at < 0)
        put(s, s->heap_count++, to);
    sift_up(s, s->node[to].heap_at);
}

/* Whether an axis takes part in a collective of a kind, from a state and to another. */
static bool can_leave(enum sbp_collective kind, struct sbp_state state)
{
    const bool sums = kind == SBP_REDUCE_SCATTER || kind == SBP_ALL_REDUCE;
    return state.kind == (sums ? SBP_PARTIAL : SBP_SPLIT);
}

static bool can_enter(enum sbp_collective kind, struct sbp_state state)
{
    const bool splits = kind == SBP_REDUCE_SCATTER || kind == SBP_ALL_TO_ALL;
    return state.kind == (splits ? SBP_SPLIT : SBP_BROADCAST);
}

/* All distributions that the axes of a set can go to together, from the f-th axis on. */
static void reach_all(struct search *s, int from, int to, unsigned set, int f,
                      enum sbp_collective kind, double seconds)
{
    const struct graph *g = s->graph;
    while (f < g->free_count && !(set >> f & 1))
        f++;
    if (f == g->free_count) {
        reach(s, from, to, kind, seconds);
        return;
    }
    const struct free_axis *free = &g->free[f];
    const int own = from / free->stride % free->option_count;
    for (int option = 0; option < free->option_count; option++)
        if (option != own && can_enter(kind, free->option[option]))
            reach_all(s, from, to + (option - own) * free->stride, set, f + 1, kind, seconds);
}

static void reach_by(struct search *s, int from, enum sbp_collective kind, double local_bytes)
{
    const struct graph *g = s->graph;
    unsigned able = 0;
    for (int f = 0; f < g->free_count; f++)
        if (can_leave(kind, state_of(g, from, f)))
            able |= 1u << f;
    for (unsigned set = able; set != 0; set = (set - 1) & able) {
        const double n = kind == SBP_ALL_GATHER
                             ? local_bytes * sbp_collective_group_size(&g->group[set])
                             : local_bytes;
        reach_all(s, from, from, set, 0, kind,
                  sbp_collective_group_s(g->cluster, kind, &g->group[set], n));
    }
}

/* Slices, and paddings to P: one axis at a time, neighbours are joined later. */
static void reach_locally(struct search *s, int from)
{
    const struct graph *g = s->graph;
    for (int f = 0; f < g->free_count; f++) {
        const struct free_axis *free = &g->free[f];
        const int own = from / free->stride % free->option_count;
        for (int option = 0; option < free->option_count; option++) {
            const int kind = free->option[option].kind, own_kind = free->option[own].kind;
            const bool slice = own_kind == SBP_BROADCAST && kind == SBP_SPLIT;
            const bool pad = own_kind != SBP_PARTIAL && kind == SBP_PARTIAL;
            if (slice || pad)
                reach(s, from, from + (option - own) * free->stride, SBP_LOCAL, 0);
        }
    }
}

/* Dijkstra's algorithm up to the target, or up to what it is known to cost at most. */
static void find_way(struct search *s, int start)
{
    static const enum sbp_collective KINDS[] = {SBP_ALL_REDUCE, SBP_REDUCE_SCATTER, SBP_ALL_GATHER,
                                                SBP_ALL_TO_ALL};
    const struct graph *g = s->graph;
    s->node[start] = (struct node){.previous = -1, .heap_at = 0};
    put(s, s->heap_count++, start);
    while (s->heap_count > 0 && s->heap[0] != s->target) {
        const int from = pop(s);
        const struct sbp_dist dist = dist_of(g, from);
        const double local_bytes =
            (double)sbp_dist_local_elements(g->layout->mesh, g->shape, &dist) * g->element_bytes;
        reach_locally(s, from);
        for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
            reach_by(s, from, KINDS[k], local_bytes);
    }
}

/* --- the list --- */

static sbp_axes changed_axes(const struct sbp_mesh *mesh, const struct sbp_dist *from,
                             const struct sbp_dist *to)
{
    sbp_axes axes = 0;
    for (int i = 0; i < mesh->axis_count; i++)
        if (!sbp_state_equal(from->axis[i], to->axis[i]))
            axes |= (sbp_axes)1 << i;
    return axes;
}

static void write_list(const struct search *s, struct sbp_boxing *boxing)
{
    const struct graph *g = s->graph;
    int way[SBP_MAX_BOXING_STEPS + 1], count = 0;
    for (int node = s->target; node >= 0; node = s->node[node].previous) {
        assert(count <= SBP_MAX_BOXING_STEPS);
        way[count++] = node;
    }
    boxing->count = 0;
    for (int i = count - 1; i > 0;) {
        const enum sbp_collective kind = s->node[way[i - 1]].kind;
        int end = i - 1;
        while (kind == SBP_LOCAL && end > 0 && s->node[way[end - 1]].kind == SBP_LOCAL)
            end--;
        const struct sbp_dist from = dist_of(g, way[i]), to = dist_of(g, way[end]);
        sbp_boxing_append(g->layout, g->shape, kind, changed_axes(g->layout->mesh, &from, &to),
                          &from, &to, boxing);
        i = end;
    }
}

enum sbp_status sbp_boxing_steps(const struct sbp_cluster *cluster, const struct sbp_layout *layout,
                                 const struct sbp_shape *shape, double element_bytes,
                                 const struct sbp_dist *from, const struct sbp_dist *to,
                                 double most_s, struct sbp_boxing *boxing, bool *found)
{
    struct sbp_arena arena = {0};
    struct graph g = {
        .cluster = cluster, .layout = layout, .shape = shape, .element_bytes = element_bytes};
    *found = false;
    if (!make_graph(&g, from, to))
        return SBP_OK;
    struct search s = {.graph = &g,
                       .node = SBP_NEW(&arena, struct node, g.node_count),
                       .heap = SBP_NEW(&arena, int, g.node_count),
                       .target = node_of(&g, to)};
    const bool fits = s.node != NULL && s.heap != NULL;
    for (int i = 0; fits && i < g.node_count; i++)
        s.node[i] = (struct node){.seconds = INFINITY, .previous = -1, .heap_at = -1};
    if (fits) {
        s.node[s.target].seconds = most_s;
        find_way(&s, node_of(&g, from));
        *found = s.node[s.target].previous >= 0 && s.node[s.target].seconds < most_s;
    }
    if (*found)
        write_list(&s, boxing);
    sbp_arena_free(&arena);
    return fits ? SBP_OK : SBP_E_MEMORY;
}
