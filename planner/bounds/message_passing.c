#include "planner/bounds/message_passing_priv.h"

#include <math.h>
#include <string.h>

enum { MOST_PASSES = 40, MOST_STALLED = 3 };
/* Cells of tables over pairs that solvers take at once; under a capacity, where labels multiply. */
#define FEW_CELLS          2e5
#define FEW_LABELLED_CELLS 1e3
/* Bounds that are this share apart are as good as met where memory binds. */
#define SMALL_GAP 1e-5
/* What is a share of a cost less than this below it is as much. */
#define SLACK 5e-10

static double cutoff_s(const struct sbp_messages *r)
{
    return fmin(r->goal_s, r->out->upper_s) * (1 - SLACK);
}

static bool is_settled(const struct sbp_messages *r)
{
    return r->out->lower_s >= cutoff_s(r);
}

/* ---- preparation ---------------------------------------------------------------------------- */

double sbp_message_cells(const struct sbp_space *space)
{
    double cells = 0;
    for (int i = 0; i < space->transfer_count; i++)
        cells += (double)space->variable[space->transfer[i].from].choice_count *
                 space->variable[space->transfer[i].to].choice_count;
    for (int k = 0; k < space->keep_count; k++)
        cells += (double)space->variable[space->keep[k].op_variable].choice_count *
                 space->variable[space->keep[k].rest_variable].choice_count;
    return cells;
}

static double cells_left(const struct sbp_messages *r)
{
    double cells = 0;
    for (int e = 0; e < r->edges.count; e++)
        cells += (double)r->priced.count[r->edges.edge[e].pair.from.variable] *
                 r->priced.count[r->edges.edge[e].pair.to.variable];
    return cells;
}

static void add_incident(struct sbp_messages *r, int *next, int variable,
                         struct sbp_incident incident)
{
    for (int i = r->first[variable]; i < next[variable]; i++)
        incident.again |= r->incident[i].other == incident.other;
    r->incident[next[variable]++] = incident;
}

static enum sbp_status link_edges(struct sbp_messages *r)
{
    const int variables = r->space->variable_count;
    int *next = SBP_NEW(&r->scratch, int, variables);
    r->first = SBP_NEW(&r->scratch, int, variables + 1);
    r->incident = SBP_NEW(&r->scratch, struct sbp_incident, 2 * r->edges.count);
    if (next == NULL || r->first == NULL || r->incident == NULL)
        return SBP_E_MEMORY;
    for (int e = 0; e < r->edges.count; e++) {
        const struct sbp_edge_ends *pair = &r->edges.edge[e].pair;
        r->first[pair->from.variable + 1] += !sbp_edge_is_loop(&r->edges.edge[e]);
        r->first[pair->to.variable + 1] += !sbp_edge_is_loop(&r->edges.edge[e]);
    }
    for (int v = 0; v < variables; v++) {
        r->first[v + 1] += r->first[v];
        next[v] = r->first[v];
    }
    for (int e = 0; e < r->edges.count; e++) {
        const int a = r->edges.edge[e].pair.from.variable, b = r->edges.edge[e].pair.to.variable;
        if (sbp_edge_is_loop(&r->edges.edge[e]))
            continue;
        add_incident(r, next, a, (struct sbp_incident){.edge = e, .other = b, .forward = true});
        add_incident(r, next, b, (struct sbp_incident){.edge = e, .other = a});
    }
    return SBP_OK;
}

static enum sbp_status begin_variable(struct sbp_messages *r, int variable)
{
    const struct sbp_space_variable *v = &r->space->variable[variable];
    struct sbp_tuples *tuples = &r->tuples[variable];
    r->priced.count[variable] = v->choice_count;
    r->priced.choice[variable] = SBP_TAKE(&r->scratch, int, v->choice_count);
    r->priced.beside[variable] = SBP_NEW(&r->scratch, double, v->tuple_count);
    r->least[variable] = SBP_TAKE(&r->scratch, double, v->tuple_count);
    tuples->count = v->tuple_count;
    tuples->tuple = SBP_TAKE(&r->scratch, int, v->tuple_count);
    if (r->priced.choice[variable] == NULL || r->priced.beside[variable] == NULL ||
        r->least[variable] == NULL || tuples->tuple == NULL)
        return SBP_E_MEMORY;
    for (int c = 0; c < v->choice_count; c++)
        r->priced.choice[variable][c] = c;
    for (int t = 0; t < v->tuple_count; t++)
        tuples->tuple[t] = t;
    return SBP_OK;
}

static enum sbp_status begin_loop(struct sbp_messages *r, const struct sbp_space_edge *edge)
{
    const int v = edge->pair.from.variable, tuples = r->space->variable[v].tuple_count;
    if (r->loop[v] == NULL)
        r->loop[v] = SBP_NEW(&r->scratch, double, tuples);
    if (r->loop[v] == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < tuples; t++) {
        const double seconds = sbp_edge_price_s(edge, t, t);
        r->loop[v][t] += seconds;
        r->priced.beside[v][t] += seconds;
    }
    return SBP_OK;
}

static enum sbp_status begin_edges(struct sbp_messages *r)
{
    for (int e = 0; e < r->edges.count; e++) {
        const struct sbp_space_edge *edge = &r->edges.edge[e];
        const int a = edge->pair.from.variable, b = edge->pair.to.variable;
        r->message[0][e] = SBP_NEW(&r->scratch, double, r->space->variable[a].tuple_count);
        r->message[1][e] = SBP_NEW(&r->scratch, double, r->space->variable[b].tuple_count);
        if (r->message[0][e] == NULL || r->message[1][e] == NULL)
            return SBP_E_MEMORY;
        if (sbp_edge_is_loop(edge))
            SBP_TRY(begin_loop(r, edge));
    }
    return link_edges(r);
}

static enum sbp_status begin(struct sbp_messages *r)
{
    const int variables = r->space->variable_count, points = r->space->weights->memory_stages;
    int most = 0;
    SBP_TRY(sbp_pricing_make_edges(r->space, &r->scratch, &r->edges));
    for (int v = 0; v < variables; v++)
        if (r->space->variable[v].tuple_count > most)
            most = r->space->variable[v].tuple_count;
    r->priced.count = SBP_NEW(&r->scratch, int, variables);
    r->priced.choice = SBP_NEW(&r->scratch, int *, variables);
    r->priced.beside = SBP_NEW(&r->scratch, double *, variables);
    r->priced.price = SBP_NEW(&r->scratch, double, points);
    r->priced.used = SBP_NEW(&r->scratch, double, points);
    r->tuples = SBP_NEW(&r->scratch, struct sbp_tuples, variables);
    r->least = SBP_NEW(&r->scratch, double *, variables);
    r->loop = SBP_NEW(&r->scratch, double *, variables);
    r->message[0] = SBP_NEW(&r->scratch, double *, r->edges.count);
    r->message[1] = SBP_NEW(&r->scratch, double *, r->edges.count);
    r->trial = SBP_NEW(&r->scratch, double, most);
    r->row = SBP_NEW(&r->scratch, double, most);
    r->choice = SBP_NEW(&r->scratch, int, variables);
    r->out->choice = SBP_NEW(r->arena, int, variables);
    if (r->priced.count == NULL || r->priced.choice == NULL || r->priced.beside == NULL ||
        r->priced.price == NULL || r->priced.used == NULL || r->tuples == NULL ||
        r->least == NULL || r->loop == NULL || r->message[0] == NULL || r->message[1] == NULL ||
        r->trial == NULL || r->row == NULL || r->choice == NULL || r->out->choice == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++)
        SBP_TRY(begin_variable(r, v));
    return begin_edges(r);
}

/* ---- choices that are left ------------------------------------------------------------------- */

static void set_least(struct sbp_messages *r, int variable)
{
    const struct sbp_tuples *tuples = &r->tuples[variable];
    double *least = r->least[variable];
    for (int i = 0; i < tuples->count; i++)
        least[tuples->tuple[i]] = INFINITY;
    for (int i = 0; i < r->priced.count[variable]; i++) {
        const int choice = r->priced.choice[variable][i];
        const int tuple = r->space->variable[variable].tuple[choice];
        least[tuple] = fmin(least[tuple], sbp_message_priced_s(r, variable, choice));
    }
}

static double share(const struct sbp_messages *r, int variable, int tuple)
{
    return r->least[variable][tuple] + r->priced.beside[variable][tuple];
}

/* Drops choices whose share, and a bound less the least share, reach the cutoff; the known choice
 * stays. */
static void drop_choices(struct sbp_messages *r, int variable, double bound_s)
{
    const struct sbp_space_variable *v = &r->space->variable[variable];
    const double cutoff = cutoff_s(r);
    const int kept = isfinite(r->out->upper_s) ? r->out->choice[variable] : -1;
    struct sbp_tuples *tuples = &r->tuples[variable];
    int *choice = r->priced.choice[variable];
    int left = 0, tuples_left = 0;
    r->out->evaluations += r->priced.count[variable];
    for (int i = 0; i < r->priced.count[variable]; i++) {
        const int c = choice[i];
        const double seconds =
            sbp_message_priced_s(r, variable, c) + r->priced.beside[variable][v->tuple[c]];
        if (c == kept || bound_s + seconds < cutoff)
            choice[left++] = c;
    }
    r->priced.count[variable] = left;
    for (int i = 0; i < tuples->count; i++) {
        const int t = tuples->tuple[i];
        if (bound_s + share(r, variable, t) < cutoff || (kept >= 0 && t == v->tuple[kept]))
            tuples->tuple[tuples_left++] = t;
    }
    tuples->count = tuples_left;
    set_least(r, variable);
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Tuples that no way leads to go. */
static void drop_unreached(struct sbp_messages *r, int variable, const double *to)
{
    const struct sbp_space_variable *v = &r->space->variable[variable];
    struct sbp_tuples *tuples = &r->tuples[variable];
    int *choice = r->priced.choice[variable], left = 0, tuples_left = 0;
    for (int i = 0; i < r->priced.count[variable]; i++)
        if (isfinite(to[v->tuple[choice[i]]]))
            choice[left++] = choice[i];
    for (int i = 0; i < tuples->count; i++)
        if (isfinite(to[tuples->tuple[i]]))
            tuples->tuple[tuples_left++] = tuples->tuple[i];
    r->priced.count[variable] = left;
    tuples->count = tuples_left;
}

/* A new message to the other end: beside follows it. Its least goes into the sum. */
static void send(struct sbp_messages *r, const struct sbp_incident *incident, const double *to,
                 double *sum)
{
    const struct sbp_tuples *tuples = &r->tuples[incident->other];
    double *message = sbp_message_into(r, incident, true);
    double *beside = r->priced.beside[incident->other];
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < tuples->count; i++) {
        least = fmin(least, to[tuples->tuple[i]]);
        most = fmax(most, to[tuples->tuple[i]]);
    }
    if (!isfinite(least)) {
        r->out->lower_s = INFINITY;
        return;
    }
    if (!isfinite(most))
        drop_unreached(r, incident->other, to);
    *sum += least;
    for (int i = 0; i < tuples->count; i++) {
        const int t = tuples->tuple[i];
        beside[t] += to[t] - least - message[t];
        message[t] = to[t] - least;
    }
}

static enum sbp_status send_from(struct sbp_messages *r, int variable,
                                 const struct sbp_incident *incident, double weight, double *sum)
{
    const double *own = sbp_message_into(r, incident, false);
    const double low = r->low;
    for (int i = 0; i < r->tuples[variable].count; i++) {
        const int t = r->tuples[variable].tuple[i];
        r->trial[t] = weight * (share(r, variable, t) - low) - own[t];
    }
    SBP_TRY(sbp_edge_spread(&r->edges.edge[incident->edge], incident->forward, &r->tuples[variable],
                            r->trial, &r->tuples[incident->other], r->row, &r->scratch));
    send(r, incident, r->row, sum);
    return SBP_OK;
}

static double constant_s(const struct sbp_messages *r)
{
    const struct sbp_space *space = r->space;
    double seconds = sbp_pricing_constant_s(space);
    for (int p = 0; p < space->weights->memory_stages; p++)
        if (r->priced.price[p] > 0)
            seconds += r->priced.price[p] *
                       (sbp_pricing_constant_bytes(space, p) - r->priced.capacity_bytes);
    return seconds;
}

/* The least share of a variable, and, with a bound that holds for the messages and prices that
 * there are, what cannot be in a better choice goes: a share above the least is added to it
 * (Kolmogorov, section 3: shares are min-marginals of the chains through the variable). */
static double settle_variable(struct sbp_messages *r, int variable, double bound_s)
{
    const struct sbp_tuples *tuples = &r->tuples[variable];
    double low = INFINITY;
    for (int i = 0; i < tuples->count; i++)
        low = fmin(low, share(r, variable, tuples->tuple[i]));
    if (isfinite(bound_s))
        drop_choices(r, variable, bound_s - low);
    return low;
}

/* Variables hand on what they know to those ahead, in order or against it. *sum_s: the bound. */
static enum sbp_status pass(struct sbp_messages *r, bool rising, double bound_s, double *sum_s)
{
    const int variables = r->space->variable_count;
    double sum = constant_s(r);
    for (int k = 0; k < variables; k++) {
        const int v = rising ? k : variables - 1 - k;
        r->out->stopped |= sbp_space_interrupted(r->space);
        if (r->out->stopped)
            return SBP_OK;
        int ahead = 0, behind = 0;
        r->low = settle_variable(r, v, bound_s);
        sum += r->low;
        for (int i = r->first[v]; i < r->first[v + 1]; i++)
            *(((r->incident[i].other > v) == rising) ? &ahead : &behind) += 1;
        const double weight = 1.0 / fmax(1, fmax(ahead, behind));
        for (int i = r->first[v]; i < r->first[v + 1]; i++)
            if ((r->incident[i].other > v) == rising)
                SBP_TRY(send_from(r, v, &r->incident[i], weight, &sum));
        if (is_settled(r))
            return SBP_OK;
    }
    *sum_s = sum;
    r->out->lower_s = fmax(r->out->lower_s, fmin(sum, cutoff_s(r)));
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void set_leasts(struct sbp_messages *r)
{
    for (int v = 0; v < r->space->variable_count; v++)
        set_least(r, v);
}

static void set_prices(struct sbp_messages *r)
{
    if (isfinite(r->priced.capacity_bytes))
        (void)sbp_lagrangian_set_prices(&r->priced);
    set_leasts(r);
}

bool sbp_message_is_over(const struct sbp_messages *r)
{
    return is_settled(r) || sbp_space_interrupted(r->space);
}

enum sbp_status sbp_message_follow(struct sbp_messages *r, double *bound_s)
{
    double up_s = -INFINITY, down_s = -INFINITY;
    set_leasts(r);
    SBP_TRY(pass(r, true, NAN, &up_s));
    if (!is_settled(r))
        SBP_TRY(pass(r, false, NAN, &down_s));
    *bound_s = fmax(up_s, down_s);
    return SBP_OK;
}

/* Messages to and fro. Choices are read off those that come from behind, which on a chain are all
 * that it takes: where memory is free they are asked before the others are sent. */
static enum sbp_status exchange(struct sbp_messages *r)
{
    const bool binds = isfinite(r->priced.capacity_bytes);
    double bound_s = -INFINITY, unused_s;
    SBP_TRY(pass(r, binds, NAN, &bound_s));
    if (!binds && !r->keeps_all && !is_settled(r) && !r->out->stopped)
        SBP_TRY(sbp_primal_decode(r));
    if (!is_settled(r))
        SBP_TRY(pass(r, !binds, bound_s, &unused_s));
    if (binds && !is_settled(r) && !(r->out->stopped && isfinite(r->out->upper_s)))
        SBP_TRY(sbp_primal_decode(r));
    return SBP_OK;
}

/* Messages to and fro, prices, and what bounds rule out. */
static enum sbp_status tighten(struct sbp_messages *r, bool *moved)
{
    const double before_s = r->out->lower_s, cells = cells_left(r);
    SBP_TRY(exchange(r));
    if (is_settled(r) || (r->out->stopped && isfinite(r->out->upper_s)))
        return SBP_OK;
    if (!r->are_prices_set)
        set_prices(r);
    const double gap_s = fmin(cutoff_s(r), r->out->upper_s) - before_s;
    *moved = !isfinite(gap_s) || r->out->lower_s - before_s > 1e-2 * gap_s ||
             cells_left(r) < 0.9 * cells;
    return SBP_OK;
}

/* Until little is left, the bounds meet or they move no more. */
static enum sbp_status tighten_on(struct sbp_messages *r, double few_cells, int most_stalled)
{
    int stalled = 0;
    for (int i = 0; i < MOST_PASSES && stalled < most_stalled && !r->out->stopped; i++) {
        bool moved = false;
        SBP_TRY(tighten(r, &moved));
        stalled = moved ? 0 : stalled + 1;
        if (is_settled(r) || cells_left(r) <= few_cells)
            break;
        r->out->stopped = sbp_space_interrupted(r->space);
    }
    return SBP_OK;
}

/* Prices that follow the messages are mostly the best, after few rounds; where they are not, and go
 * to and fro, they are looked for.
 */
static enum sbp_status reduce(struct sbp_messages *r)
{
    const bool binds = isfinite(r->priced.capacity_bytes);
    SBP_TRY(begin(r));
    set_prices(r);
    SBP_TRY(binds ? tighten_on(r, FEW_LABELLED_CELLS, 1) : tighten_on(r, FEW_CELLS, MOST_STALLED));
    const double gap_s = fmin(r->goal_s, r->out->upper_s) - r->out->lower_s;
    if (!binds || is_settled(r) || r->out->stopped || cells_left(r) <= FEW_LABELLED_CELLS ||
        gap_s <= SMALL_GAP * fabs(r->out->lower_s))
        return SBP_OK;
    SBP_TRY(sbp_multipliers_raise(r));
    r->are_prices_set = true;
    set_leasts(r);
    return tighten_on(r, FEW_LABELLED_CELLS, MOST_STALLED);
}

/* What is left of the domains; where the bounds met, the known choice. */
static enum sbp_status list_left(const struct sbp_messages *r)
{
    struct sbp_message_reduction *out = r->out;
    const int variables = r->space->variable_count;
    out->is_settled = is_settled(r);
    out->count = SBP_NEW(r->arena, int, variables);
    out->original = SBP_NEW(r->arena, int *, variables);
    if (out->count == NULL || out->original == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++) {
        out->count[v] = out->is_settled ? 1 : r->priced.count[v];
        out->original[v] = SBP_TAKE(r->arena, int, out->count[v]);
        if (out->original[v] == NULL)
            return SBP_E_MEMORY;
        for (int i = 0; i < out->count[v]; i++)
            out->original[v][i] = out->is_settled ? out->choice[v] : r->priced.choice[v][i];
    }
    return SBP_OK;
}

static enum sbp_status restrict_variable(const struct sbp_space *space, int variable,
                                         const int *original, int count, struct sbp_arena *arena,
                                         struct sbp_space_variable *to)
{
    const struct sbp_space_variable *from = &space->variable[variable];
    const int points = space->weights->memory_stages;
    *to = *from;
    to->choice_count = count;
    to->tuple = SBP_TAKE(arena, int, count);
    to->zero = SBP_TAKE(arena, uint8_t, count);
    to->cost_s = SBP_TAKE(arena, double, count);
    to->bytes = SBP_TAKE(arena, double, (size_t)count *(size_t)points);
    if (to->tuple == NULL || to->zero == NULL || to->cost_s == NULL || to->bytes == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < count; i++) {
        to->tuple[i] = from->tuple[original[i]];
        to->zero[i] = from->zero[original[i]];
        to->cost_s[i] = from->cost_s[original[i]];
        for (int p = 0; p < points; p++)
            to->bytes[(size_t)p * (size_t)count + (size_t)i] =
                sbp_space_unary_bytes(space, variable, original[i], p);
    }
    return SBP_OK;
}

enum sbp_status sbp_message_restrict(const struct sbp_space *space,
                                     const struct sbp_message_reduction *reduction,
                                     struct sbp_arena *arena, struct sbp_space *restricted)
{
    *restricted = *space;
    restricted->variable = SBP_NEW(arena, struct sbp_space_variable, space->variable_count);
    if (restricted->variable == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < space->variable_count; v++)
        SBP_TRY(restrict_variable(space, v, reduction->original[v], reduction->count[v], arena,
                                  &restricted->variable[v]));
    return SBP_OK;
}

static enum sbp_status reduce_space(struct sbp_messages *r)
{
    *r->out = (struct sbp_message_reduction){.lower_s = -INFINITY, .upper_s = INFINITY};
    enum sbp_status status = reduce(r);
    /* What was dropped for the goal's sake may be what no way is left without. */
    r->out->lower_s = fmin(r->out->lower_s, r->goal_s);
    if (status == SBP_OK)
        status = list_left(r);
    if (status == SBP_OK)
        status = sbp_message_restrict(r->space, r->out, r->arena, &r->out->space);
    sbp_arena_free(&r->scratch);
    return status;
}

enum sbp_status sbp_message_reduce(const struct sbp_space *space, double capacity_bytes,
                                   double goal_s, struct sbp_arena *arena,
                                   struct sbp_message_reduction *reduction)
{
    struct sbp_messages r = {.space = space,
                             .arena = arena,
                             .priced = {.space = space, .capacity_bytes = capacity_bytes},
                             .goal_s = goal_s,
                             .out = reduction};
    return reduce_space(&r);
}

enum sbp_status sbp_message_narrow(const struct sbp_space *space, double goal_s,
                                   struct sbp_arena *arena, struct sbp_message_reduction *reduction)
{
    struct sbp_messages r = {.space = space,
                             .arena = arena,
                             .priced = {.space = space, .capacity_bytes = INFINITY},
                             .goal_s = goal_s,
                             .keeps_all = true,
                             .out = reduction};
    return reduce_space(&r);
}
