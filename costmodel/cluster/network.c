#include "costmodel/cluster/network.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "base/math/portable.h"

#define TEXT(name, text) text,

const char *sbp_network_basis_text(enum sbp_basis basis)
{
    static const char *const texts[] = {SBP_BASIS_MAP(TEXT)};
    return texts[basis];
}

bool sbp_network_is_given(const struct sbp_network *network)
{
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++)
        if (sbp_network_has(network, (enum sbp_collective)kind))
            return true;
    return false;
}

bool sbp_network_has(const struct sbp_network *network, enum sbp_collective kind)
{
    return network->formula[kind].is_given;
}

bool sbp_network_covers(const struct sbp_network *network, enum sbp_collective kind, double nodes)
{
    bool is_free = network->formula[kind].is_given; /* counts while there is no curve */
    for (int i = 0; i < network->curve_count; i++) {
        if (network->curve[i].kind != kind)
            continue;
        if ((network->curve[i].nodes > 1) == (nodes > 1))
            return network->formula[kind].is_given;
        is_free = false;
    }
    return is_free;
}

/* --- formula --- */

void sbp_network_terms(enum sbp_collective kind, double nodes, double ranks_per_node, int ports,
                       double bytes, double term[SBP_NETWORK_TERMS])
{
    const double r = ranks_per_node, p = nodes * r;
    const double used = ports == 0 ? r : fmin(r, ports);
    const double all = sbp_collective_share(kind, p) * bytes;
    const bool inside = r > 1, between = nodes > 1;
    term[SBP_LAUNCH] = 1;
    term[SBP_INTRA_STEP] = nodes * (r - 1);
    term[SBP_INTER_STEP] = nodes - 1;
    term[SBP_INTRA_BYTE] = inside ? all : 0;
    term[SBP_INTER_BYTE] = between ? all / used : 0;
    if (kind == SBP_ALL_REDUCE) {
        term[SBP_INTRA_STEP] = 2 * (r - 1);
        term[SBP_INTER_STEP] = 2 * sbp_log2(nodes);
        if (nodes == 2)
            term[SBP_INTER_BYTE] = bytes / used;
    } else if (kind == SBP_ALL_TO_ALL) {
        term[SBP_INTRA_STEP] = r - 1;
        term[SBP_INTER_STEP] = p - r;
        term[SBP_INTRA_BYTE] = (r - 1) / p * bytes;
        term[SBP_INTER_BYTE] = (p - r) / p * bytes * (r / used);
    } else if (kind == SBP_SEND_RECV) {
        term[SBP_INTRA_STEP] = between ? 0 : 1;
        term[SBP_INTER_STEP] = between ? 1 : 0;
        term[SBP_INTRA_BYTE] = between ? 0 : bytes;
        term[SBP_INTER_BYTE] = between ? bytes : 0;
    }
}

double sbp_network_formula_s(const struct sbp_formula *formula, enum sbp_collective kind,
                             double nodes, double ranks_per_node, int ports, double bytes)
{
    double term[SBP_NETWORK_TERMS], seconds = 0;
    sbp_network_terms(kind, nodes, ranks_per_node, ports, bytes, term);
    for (int i = 0; i < SBP_INTRA_BYTE; i++)
        seconds += term[i] * formula->coefficient[i];
    return seconds + fmax(term[SBP_INTRA_BYTE] * formula->coefficient[SBP_INTRA_BYTE],
                          term[SBP_INTER_BYTE] * formula->coefficient[SBP_INTER_BYTE]);
}

/* --- curves --- */

static double segment_s(const struct sbp_segment *segment, double bytes)
{
    return segment->alpha_s + segment->beta_s_per_byte * bytes;
}

/* Numbers in files are rounded: a segment may start a little below the end of the one before. */
double sbp_network_curve_s(const struct sbp_shape_curve *curve, double bytes)
{
    const struct sbp_segment *at = curve->segment;
    const struct sbp_segment *last = &curve->segment[curve->segment_count - 1];
    while (at < last && bytes > at->last_bytes)
        at++;
    if (at == curve->segment)
        return segment_s(at, bytes);
    const double before_s = segment_s(at - 1, at[-1].last_bytes);
    if (bytes >= at->first_bytes)
        return fmax(before_s, segment_s(at, bytes));
    const double after_s = fmax(before_s, segment_s(at, at->first_bytes));
    const double way = (bytes - at[-1].last_bytes) / (at->first_bytes - at[-1].last_bytes);
    return before_s + way * (after_s - before_s);
}

bool sbp_network_sets_aside(const struct sbp_network *network, const struct sbp_shape_curve *curve)
{
    if (curve->kind != SBP_ALL_REDUCE || curve->nodes != 2)
        return false;
    for (int i = 0; i < network->curve_count; i++)
        if (network->curve[i].kind == SBP_ALL_REDUCE && network->curve[i].nodes > 2)
            return true;
    return false;
}

/* --- other shapes --- */

/* The group whose price is asked for. */
struct asked {
    const struct sbp_network *network;
    enum sbp_collective kind;
    double nodes, ranks_per_node, bytes;
};

/* The formula's answer for a shape, as latency and inverse bandwidth. */
struct line {
    double alpha_s, beta_s_per_byte;
};

static struct line line_of(const struct sbp_network *network, enum sbp_collective kind,
                           double nodes, double ranks_per_node)
{
    const struct sbp_formula *formula = &network->formula[kind];
    const double alpha_s =
        sbp_network_formula_s(formula, kind, nodes, ranks_per_node, network->ports, 0);
    const double one_s =
        sbp_network_formula_s(formula, kind, nodes, ranks_per_node, network->ports, 1e15);
    return (struct line){alpha_s, (one_s - alpha_s) / 1e15};
}

static double times_of(double to, double from)
{
    return to > 0 && from > 0 ? to / from : 1;
}

/* Converts a curve to the group asked for: scales its alphas by the ratio of the latencies and its
 * betas by that of the bandwidths. Protocols switch by what a step sends. In rings that is a
 * member's share, so sizes scale with the steps; in trees, as of all-reduces, it is all of n, so
 * sizes stay. There a segment might begin below the end of the one before where betas grow more
 * than alphas, and is lifted. Curves that follow the formula still do, and none falls. */
static void scale(const struct asked *asked, struct sbp_shape_curve *curve)
{
    const struct line to =
        line_of(asked->network, asked->kind, asked->nodes, asked->ranks_per_node);
    const struct line from =
        line_of(asked->network, asked->kind, (double)curve->nodes, (double)curve->ranks_per_node);
    const double latencies = times_of(to.alpha_s, from.alpha_s);
    const double bandwidths = times_of(to.beta_s_per_byte, from.beta_s_per_byte);
    const double sizes = asked->kind == SBP_ALL_REDUCE ? 1 : latencies / bandwidths;
    for (int k = 0; k < curve->segment_count; k++) {
        struct sbp_segment *segment = &curve->segment[k];
        segment->first_bytes *= sizes;
        segment->last_bytes *= sizes;
        segment->alpha_s *= latencies;
        segment->beta_s_per_byte *= bandwidths;
        if (k > 0)
            segment->alpha_s += fmax(0, segment_s(segment - 1, segment[-1].last_bytes) -
                                            segment_s(segment, segment->first_bytes));
    }
}

static double scaled_log_s(const struct asked *asked, const struct sbp_shape_curve *curve)
{
    struct sbp_shape_curve scaled = *curve;
    scale(asked, &scaled);
    return sbp_log(sbp_network_curve_s(&scaled, asked->bytes));
}

/* Whether a curve says something of the group. */
static bool is_near(const struct asked *asked, const struct sbp_shape_curve *curve)
{
    return curve->kind == asked->kind && (curve->nodes > 1) == (asked->nodes > 1) &&
           !sbp_network_sets_aside(asked->network, curve);
}

static double between(double from, double to, double at)
{
    return from == to ? 0 : sbp_log(at / from) / sbp_log(to / from);
}

/* Interpolates along the number of nodes, among the curves of one number of ranks per node. */
static double row_log_s(const struct asked *asked, int64_t ranks_per_node)
{
    const struct sbp_shape_curve *below = NULL, *above = NULL;
    for (int i = 0; i < asked->network->curve_count; i++) {
        const struct sbp_shape_curve *curve = &asked->network->curve[i];
        if (curve->ranks_per_node != ranks_per_node || !is_near(asked, curve))
            continue;
        if ((double)curve->nodes <= asked->nodes && (below == NULL || curve->nodes > below->nodes))
            below = curve;
        if ((double)curve->nodes >= asked->nodes && (above == NULL || curve->nodes < above->nodes))
            above = curve;
    }
    if (below == NULL || above == NULL || below == above)
        return scaled_log_s(asked, below != NULL ? below : above);
    const double way = between((double)below->nodes, (double)above->nodes, asked->nodes);
    return (1 - way) * scaled_log_s(asked, below) + way * scaled_log_s(asked, above);
}

/* Interpolates among all curves around the group; takes the formula where there is none. */
static double other_shape_s(const struct asked *asked)
{
    int64_t below = 0, above = 0; /* ranks per node of the rows below and above */
    for (int i = 0; i < asked->network->curve_count; i++) {
        const struct sbp_shape_curve *curve = &asked->network->curve[i];
        const int64_t row = curve->ranks_per_node;
        if (!is_near(asked, curve))
            continue;
        if ((double)row <= asked->ranks_per_node && row > below)
            below = row;
        if ((double)row >= asked->ranks_per_node && (above == 0 || row < above))
            above = row;
    }
    if (below == 0 && above == 0)
        return sbp_network_formula_s(&asked->network->formula[asked->kind], asked->kind,
                                     asked->nodes, asked->ranks_per_node, asked->network->ports,
                                     asked->bytes);
    if (below == 0 || above == 0 || below == above)
        return sbp_exp(row_log_s(asked, below != 0 ? below : above));
    const double way = between((double)below, (double)above, asked->ranks_per_node);
    return sbp_exp((1 - way) * row_log_s(asked, below) + way * row_log_s(asked, above));
}

/* --- prices --- */

/* The error beyond measured sizes or shapes: it is added once more for each doubling from the
 * second on. */
static double widened(double error, double times)
{
    return times > 2 ? error * sbp_log2(times) : error;
}

static struct sbp_network_price price_curve(const struct sbp_shape_curve *curve, double bytes)
{
    const double first = curve->segment[0].first_bytes;
    const double last = curve->segment[curve->segment_count - 1].last_bytes;
    const double times = bytes > last ? bytes / last : bytes > 0 ? first / bytes : first;
    return (struct sbp_network_price){
        .seconds = sbp_network_curve_s(curve, bytes),
        .error = widened(curve->error, times),
        .basis = times > 2 ? SBP_BASIS_OTHER_SIZE : SBP_BASIS_MEASURED,
    };
}

/* How far measured groups of the kind reach around the group asked for. */
struct reach {
    double most_nodes;
    bool fewer, more, inner, outer; /* some have not more nodes, not fewer, ...; members a node */
};

static struct reach reach_of(const struct asked *asked)
{
    struct reach reach = {.most_nodes = 1};
    for (int i = 0; i < asked->network->curve_count; i++) {
        const struct sbp_shape_curve *curve = &asked->network->curve[i];
        if (curve->kind == asked->kind)
            reach.most_nodes = fmax(reach.most_nodes, (double)curve->nodes);
        if (!is_near(asked, curve))
            continue;
        reach.fewer |= (double)curve->nodes <= asked->nodes;
        reach.more |= (double)curve->nodes >= asked->nodes;
        reach.inner |= (double)curve->ranks_per_node <= asked->ranks_per_node;
        reach.outer |= (double)curve->ranks_per_node >= asked->ranks_per_node;
    }
    return reach;
}

static struct sbp_network_price price_formula(const struct asked *asked)
{
    const struct sbp_network *network = asked->network;
    const struct sbp_formula *formula = &network->formula[asked->kind];
    const struct reach reach = reach_of(asked);
    const bool is_inside = reach.fewer && reach.more && reach.inner && reach.outer;
    const double times = asked->nodes / reach.most_nodes;
    struct sbp_network_price price = {
        .seconds = other_shape_s(asked),
        .error = is_inside ? formula->error : widened(formula->beyond_error, times),
        .basis = is_inside   ? SBP_BASIS_BETWEEN
                 : times > 2 ? SBP_BASIS_FAR_SHAPE
                             : SBP_BASIS_BEYOND,
    };
    if (asked->kind == SBP_ALL_REDUCE && reach.most_nodes == 2 && asked->nodes > 2)
        price.basis = SBP_BASIS_TWO_NODES;
    return price;
}

struct sbp_network_price sbp_network_price(const struct sbp_network *network,
                                           enum sbp_collective kind, double nodes,
                                           double ranks_per_node, double bytes)
{
    assert(sbp_network_covers(network, kind, nodes));
    for (int i = 0; i < network->curve_count; i++) {
        const struct sbp_shape_curve *curve = &network->curve[i];
        if (curve->kind == kind && (double)curve->nodes == nodes &&
            (double)curve->ranks_per_node == ranks_per_node)
            return price_curve(curve, bytes);
    }
    const struct asked asked = {network, kind, nodes, ranks_per_node, bytes};
    return price_formula(&asked);
}

double sbp_network_bound_s(enum sbp_bound bound, double seconds, double error)
{
    return bound == SBP_EXPECTED  ? seconds
           : bound == SBP_HIGHEST ? seconds * (1 + error)
                                  : seconds / (1 + error);
}
