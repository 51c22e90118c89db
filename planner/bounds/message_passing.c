#include "planner/bounds/message_passing_priv.h"

#include <math.h>
#include <string.h>

#include "planner/limits.h"

static double cutoff_s(const struct sbp_messages *m)
{
    return fmin(m->goal_s, m->out->upper_s) * (1 - SBP_BOUNDS_EQUAL_COST);
}

static bool is_settled(const struct sbp_messages *m)
{
    return m->out->lower_s >= cutoff_s(m);
}

/* ---- preparation ---------------------------------------------------------------------------- */

double sbp_message_cells(const struct sbp_space *space)
{
    double cells = 0;
    for (int i = 0; i < space->input_edge_count; i++)
        cells += (double)space->variable[space->input_edge[i].from].choice_count *
                 space->variable[space->input_edge[i].to].choice_count;
    for (int k = 0; k < space->output_edge_count; k++)
        cells += (double)space->variable[space->output_edge[k].op_variable].choice_count *
                 space->variable[space->output_edge[k].rest_variable].choice_count;
    return cells;
}

static double cells_left(const struct sbp_messages *m)
{
    double cells = 0;
    for (int e = 0; e < m->edges.count; e++)
        cells += (double)m->priced.count[m->edges.edge[e].ends.from.variable] *
                 m->priced.count[m->edges.edge[e].ends.to.variable];
    return cells;
}

static void add_incident(struct sbp_messages *m, int *next, int variable,
                         struct sbp_incident incident)
{
    m->incident[next[variable]++] = incident;
}

static enum sbp_status link_edges(struct sbp_messages *m)
{
    const int variables = m->space->variable_count;
    int *next = SBP_NEW(&m->scratch, int, variables);
    m->first = SBP_NEW(&m->scratch, int, variables + 1);
    m->incident = SBP_NEW(&m->scratch, struct sbp_incident, 2 * m->edges.count);
    if (next == NULL || m->first == NULL || m->incident == NULL)
        return SBP_E_MEMORY;
    for (int e = 0; e < m->edges.count; e++) {
        const struct sbp_edge_ends *pair = &m->edges.edge[e].ends;
        m->first[pair->from.variable + 1] += !sbp_edge_is_loop(&m->edges.edge[e]);
        m->first[pair->to.variable + 1] += !sbp_edge_is_loop(&m->edges.edge[e]);
    }
    for (int v = 0; v < variables; v++) {
        m->first[v + 1] += m->first[v];
        next[v] = m->first[v];
    }
    for (int e = 0; e < m->edges.count; e++) {
        const int a = m->edges.edge[e].ends.from.variable, b = m->edges.edge[e].ends.to.variable;
        if (sbp_edge_is_loop(&m->edges.edge[e]))
            continue;
        add_incident(m, next, a, (struct sbp_incident){.edge = e, .other = b, .forward = true});
        add_incident(m, next, b, (struct sbp_incident){.edge = e, .other = a});
    }
    return SBP_OK;
}

static enum sbp_status begin_variable(struct sbp_messages *m, int variable)
{
    const struct sbp_space_variable *v = &m->space->variable[variable];
    struct sbp_tuples *tuples = &m->tuples[variable];
    m->priced.count[variable] = v->choice_count;
    m->priced.choice[variable] = SBP_TAKE(&m->scratch, int, v->choice_count);
    m->priced.beside[variable] = SBP_NEW(&m->scratch, double, v->tuple_count);
    m->least[variable] = SBP_TAKE(&m->scratch, double, v->tuple_count);
    tuples->count = v->tuple_count;
    tuples->tuple = SBP_TAKE(&m->scratch, int, v->tuple_count);
    if (m->priced.choice[variable] == NULL || m->priced.beside[variable] == NULL ||
        m->least[variable] == NULL || tuples->tuple == NULL)
        return SBP_E_MEMORY;
    for (int c = 0; c < v->choice_count; c++)
        m->priced.choice[variable][c] = c;
    for (int t = 0; t < v->tuple_count; t++)
        tuples->tuple[t] = t;
    return SBP_OK;
}

static enum sbp_status begin_loop(struct sbp_messages *m, const struct sbp_space_edge *edge)
{
    const int v = edge->ends.from.variable, tuples = m->space->variable[v].tuple_count;
    if (m->loop[v] == NULL)
        m->loop[v] = SBP_NEW(&m->scratch, double, tuples);
    if (m->loop[v] == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < tuples; t++) {
        const double seconds = sbp_edge_price_s(edge, t, t);
        m->loop[v][t] += seconds;
        m->priced.beside[v][t] += seconds;
    }
    return SBP_OK;
}

static enum sbp_status begin_edges(struct sbp_messages *m)
{
    for (int e = 0; e < m->edges.count; e++) {
        const struct sbp_space_edge *edge = &m->edges.edge[e];
        const int a = edge->ends.from.variable, b = edge->ends.to.variable;
        m->message[0][e] = SBP_NEW(&m->scratch, double, m->space->variable[a].tuple_count);
        m->message[1][e] = SBP_NEW(&m->scratch, double, m->space->variable[b].tuple_count);
        if (m->message[0][e] == NULL || m->message[1][e] == NULL)
            return SBP_E_MEMORY;
        if (sbp_edge_is_loop(edge))
            SBP_TRY(begin_loop(m, edge));
    }
    return link_edges(m);
}

static enum sbp_status begin(struct sbp_messages *m)
{
    const int variables = m->space->variable_count, stages = m->space->weights->memory_stages;
    int most = 0;
    SBP_TRY(sbp_pricing_make_edges(m->space, &m->scratch, &m->edges));
    for (int v = 0; v < variables; v++)
        if (m->space->variable[v].tuple_count > most)
            most = m->space->variable[v].tuple_count;
    m->priced.count = SBP_NEW(&m->scratch, int, variables);
    m->priced.choice = SBP_NEW(&m->scratch, int *, variables);
    m->priced.beside = SBP_NEW(&m->scratch, double *, variables);
    m->priced.price = SBP_NEW(&m->scratch, double, stages);
    m->priced.used = SBP_NEW(&m->scratch, double, stages);
    m->tuples = SBP_NEW(&m->scratch, struct sbp_tuples, variables);
    m->least = SBP_NEW(&m->scratch, double *, variables);
    m->loop = SBP_NEW(&m->scratch, double *, variables);
    m->message[0] = SBP_NEW(&m->scratch, double *, m->edges.count);
    m->message[1] = SBP_NEW(&m->scratch, double *, m->edges.count);
    m->trial = SBP_NEW(&m->scratch, double, most);
    m->row = SBP_NEW(&m->scratch, double, most);
    m->choice = SBP_NEW(&m->scratch, int, variables);
    m->out->choice = SBP_NEW(m->arena, int, variables);
    if (m->priced.count == NULL || m->priced.choice == NULL || m->priced.beside == NULL ||
        m->priced.price == NULL || m->priced.used == NULL || m->tuples == NULL ||
        m->least == NULL || m->loop == NULL || m->message[0] == NULL || m->message[1] == NULL ||
        m->trial == NULL || m->row == NULL || m->choice == NULL || m->out->choice == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++)
        SBP_TRY(begin_variable(m, v));
    return begin_edges(m);
}

/* ---- choices that are left ------------------------------------------------------------------ */

static void set_least(struct sbp_messages *m, int variable)
{
    const struct sbp_tuples *tuples = &m->tuples[variable];
    double *least = m->least[variable];
    for (int i = 0; i < tuples->count; i++)
        least[tuples->tuple[i]] = INFINITY;
    for (int i = 0; i < m->priced.count[variable]; i++) {
        const int choice = m->priced.choice[variable][i];
        const int tuple = m->space->variable[variable].tuple[choice];
        least[tuple] = fmin(least[tuple], sbp_message_priced_s(m, variable, choice));
    }
}

static double share(const struct sbp_messages *m, int variable, int tuple)
{
    return m->least[variable][tuple] + m->priced.beside[variable][tuple];
}

/* Drops choices whose share and bound_s, the lower bound less the least share, together reach the
 * cutoff. The known choice stays. */
static void drop_choices(struct sbp_messages *m, int variable, double bound_s)
{
    const struct sbp_space_variable *v = &m->space->variable[variable];
    const double cutoff = cutoff_s(m);
    const int kept = isfinite(m->out->upper_s) ? m->out->choice[variable] : -1;
    struct sbp_tuples *tuples = &m->tuples[variable];
    int *choice = m->priced.choice[variable];
    int left = 0, tuples_left = 0;
    m->out->evaluations += m->priced.count[variable];
    for (int i = 0; i < m->priced.count[variable]; i++) {
        const int c = choice[i];
        const double seconds =
            sbp_message_priced_s(m, variable, c) + m->priced.beside[variable][v->tuple[c]];
        if (c == kept || bound_s + seconds < cutoff)
            choice[left++] = c;
    }
    m->priced.count[variable] = left;
    for (int i = 0; i < tuples->count; i++) {
        const int t = tuples->tuple[i];
        if (bound_s + share(m, variable, t) < cutoff || (kept >= 0 && t == v->tuple[kept]))
            tuples->tuple[tuples_left++] = t;
    }
    tuples->count = tuples_left;
    set_least(m, variable);
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Drops tuples to which no way leads. */
static void drop_unreached(struct sbp_messages *m, int variable, const double *to)
{
    const struct sbp_space_variable *v = &m->space->variable[variable];
    struct sbp_tuples *tuples = &m->tuples[variable];
    int *choice = m->priced.choice[variable], left = 0, tuples_left = 0;
    for (int i = 0; i < m->priced.count[variable]; i++)
        if (isfinite(to[v->tuple[choice[i]]]))
            choice[left++] = choice[i];
    for (int i = 0; i < tuples->count; i++)
        if (isfinite(to[tuples->tuple[i]]))
            tuples->tuple[tuples_left++] = tuples->tuple[i];
    m->priced.count[variable] = left;
    tuples->count = tuples_left;
}

/* Replaces the message to the other end and updates the sum of its messages; the message's least
 * goes into the bound. */
static void send(struct sbp_messages *m, const struct sbp_incident *incident, const double *to,
                 double *sum)
{
    const struct sbp_tuples *tuples = &m->tuples[incident->other];
    double *message = sbp_message_into(m, incident, true);
    double *beside = m->priced.beside[incident->other];
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < tuples->count; i++) {
        least = fmin(least, to[tuples->tuple[i]]);
        most = fmax(most, to[tuples->tuple[i]]);
    }
    if (!isfinite(least)) {
        m->out->lower_s = INFINITY;
        return;
    }
    if (!isfinite(most))
        drop_unreached(m, incident->other, to);
    *sum += least;
    for (int i = 0; i < tuples->count; i++) {
        const int t = tuples->tuple[i];
        beside[t] += to[t] - least - message[t];
        message[t] = to[t] - least;
    }
}

static enum sbp_status send_from(struct sbp_messages *m, int variable,
                                 const struct sbp_incident *incident, double weight, double *sum)
{
    const double *own = sbp_message_into(m, incident, false);
    const double low = m->low;
    for (int i = 0; i < m->tuples[variable].count; i++) {
        const int t = m->tuples[variable].tuple[i];
        m->trial[t] = weight * (share(m, variable, t) - low) - own[t];
    }
    SBP_TRY(sbp_edge_spread(&m->edges.edge[incident->edge], incident->forward, &m->tuples[variable],
                            m->trial, &m->tuples[incident->other], m->row, &m->scratch));
    send(m, incident, m->row, sum);
    return SBP_OK;
}

static double constant_s(const struct sbp_messages *m)
{
    const struct sbp_space *space = m->space;
    double seconds = sbp_pricing_constant_s(space);
    for (int p = 0; p < space->weights->memory_stages; p++)
        if (m->priced.price[p] > 0)
            seconds += m->priced.price[p] *
                       (sbp_pricing_constant_bytes(space, p) - m->priced.capacity_bytes);
    return seconds;
}

/* Returns the least share of a variable. Given a bound that holds for the current messages and
 * prices, drops choices that cannot be in a better plan: the bound rises by as much as a choice's
 * share exceeds the least (Kolmogorov, section 3: shares are min-marginals of the chains through
 * the variable). */
static double finish_variable(struct sbp_messages *m, int variable, double bound_s)
{
    const struct sbp_tuples *tuples = &m->tuples[variable];
    double low = INFINITY;
    for (int i = 0; i < tuples->count; i++)
        low = fmin(low, share(m, variable, tuples->tuple[i]));
    if (isfinite(bound_s))
        drop_choices(m, variable, bound_s - low);
    return low;
}

/* Drops choices that cost too much by themselves, with the least of all other variables: edges take
 * no less than nothing. */
static void drop_dear(struct sbp_messages *m)
{
    double sum_s = constant_s(m);
    for (int v = 0; v < m->space->variable_count; v++)
        sum_s += finish_variable(m, v, NAN);
    m->out->lower_s = fmax(m->out->lower_s, fmin(sum_s, cutoff_s(m)));
    for (int v = 0; v < m->space->variable_count && !is_settled(m); v++)
        (void)finish_variable(m, v, sum_s);
}

/* One pass: in order or against it, each variable sends its share to the variables ahead. *sum_s:
 * the bound. */
static enum sbp_status pass(struct sbp_messages *m, bool rising, double bound_s, double *sum_s)
{
    const int variables = m->space->variable_count;
    double sum = constant_s(m);
    for (int k = 0; k < variables; k++) {
        const int v = rising ? k : variables - 1 - k;
        m->out->stopped |= sbp_space_interrupted(m->space);
        if (m->out->stopped)
            return SBP_OK;
        int ahead = 0, behind = 0;
        m->low = finish_variable(m, v, bound_s);
        sum += m->low;
        for (int i = m->first[v]; i < m->first[v + 1]; i++)
            *(((m->incident[i].other > v) == rising) ? &ahead : &behind) += 1;
        const double weight = 1.0 / fmax(1, fmax(ahead, behind));
        for (int i = m->first[v]; i < m->first[v + 1]; i++)
            if ((m->incident[i].other > v) == rising) {
                const enum sbp_status status = send_from(m, v, &m->incident[i], weight, &sum);
                m->out->stopped |= status == SBP_STOPPED;
                if (status != SBP_OK)
                    return status == SBP_STOPPED ? SBP_OK : status;
            }
        if (is_settled(m))
            return SBP_OK;
    }
    *sum_s = sum;
    m->out->lower_s = fmax(m->out->lower_s, fmin(sum, cutoff_s(m)));
    return SBP_OK;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void set_leasts(struct sbp_messages *m)
{
    for (int v = 0; v < m->space->variable_count; v++)
        set_least(m, v);
}

static void set_prices(struct sbp_messages *m)
{
    if (isfinite(m->priced.capacity_bytes))
        (void)sbp_lagrangian_set_prices(&m->priced);
    set_leasts(m);
}

bool sbp_message_is_over(const struct sbp_messages *m)
{
    return is_settled(m) || sbp_space_interrupted(m->space);
}

enum sbp_status sbp_message_follow(struct sbp_messages *m, double *bound_s)
{
    double up_s = -INFINITY, down_s = -INFINITY;
    set_leasts(m);
    SBP_TRY(pass(m, true, NAN, &up_s));
    if (!is_settled(m))
        SBP_TRY(pass(m, false, NAN, &down_s));
    *bound_s = fmax(up_s, down_s);
    return SBP_OK;
}

/* Passes messages in both directions. A choice is read off messages that come from behind, which
 * suffice on a chain: where memory is free, it is read before the second pass. */
static enum sbp_status exchange(struct sbp_messages *m)
{
    const bool binds = isfinite(m->priced.capacity_bytes);
    double bound_s = -INFINITY, unused_s;
    SBP_TRY(pass(m, binds, NAN, &bound_s));
    if (!binds && !m->keeps_all && !is_settled(m) && !m->out->stopped)
        SBP_TRY(sbp_primal_decode(m));
    if (!is_settled(m))
        SBP_TRY(pass(m, !binds, bound_s, &unused_s));
    if (binds && !is_settled(m) && !(m->out->stopped && isfinite(m->out->upper_s)))
        SBP_TRY(sbp_primal_decode(m));
    return SBP_OK;
}

/* One round of messages, decoding, dropping and prices; *moved: the bound rose or choices went. */
static enum sbp_status tighten(struct sbp_messages *m, bool *moved)
{
    const double before_s = m->out->lower_s, cells = cells_left(m);
    SBP_TRY(exchange(m));
    if (is_settled(m) || (m->out->stopped && isfinite(m->out->upper_s)))
        return SBP_OK;
    if (!m->are_prices_set)
        set_prices(m);
    const double gap_s = fmin(cutoff_s(m), m->out->upper_s) - before_s;
    *moved = !isfinite(gap_s) || m->out->lower_s - before_s > SBP_BOUNDS_PROGRESS_GAP * gap_s ||
             cells_left(m) < SBP_BOUNDS_PROGRESS_CELLS * cells;
    return SBP_OK;
}

/* Repeats rounds until few cells are left, the bounds meet, or they move no more. */
static enum sbp_status tighten_on(struct sbp_messages *m, double few_cells, int most_stalled)
{
    int stalled = 0;
    for (int i = 0; i < SBP_BOUNDS_MOST_PASSES && stalled < most_stalled && !m->out->stopped; i++) {
        bool moved = false;
        SBP_TRY(tighten(m, &moved));
        stalled = moved ? 0 : stalled + 1;
        if (is_settled(m) || cells_left(m) <= few_cells)
            break;
        m->out->stopped = sbp_space_interrupted(m->space);
    }
    return SBP_OK;
}

/* Prices that follow the messages are mostly the best after a few rounds. Where they oscillate
 * instead, multipliers.c looks for the best ones. */
static enum sbp_status reduce(struct sbp_messages *m)
{
    const bool binds = isfinite(m->priced.capacity_bytes);
    SBP_TRY(begin(m));
    set_prices(m);
    if (isfinite(m->goal_s))
        drop_dear(m);
    SBP_TRY(binds ? tighten_on(m, SBP_BOUNDS_FEW_CAPACITY_CELLS, 1)
                  : tighten_on(m, SBP_BOUNDS_FEW_CELLS, SBP_BOUNDS_MOST_STALLED));
    const double gap_s = fmin(m->goal_s, m->out->upper_s) - m->out->lower_s;
    if (!binds || is_settled(m) || m->out->stopped ||
        cells_left(m) <= SBP_BOUNDS_FEW_CAPACITY_CELLS ||
        gap_s <= SBP_BOUNDS_SMALL_GAP * fabs(m->out->lower_s))
        return SBP_OK;
    SBP_TRY(sbp_multipliers_raise(m));
    m->are_prices_set = true;
    set_leasts(m);
    return tighten_on(m, SBP_BOUNDS_FEW_CAPACITY_CELLS, SBP_BOUNDS_MOST_STALLED);
}

/* Lists the choices that are left; where the bounds met, the known choice alone. */
static enum sbp_status list_left(const struct sbp_messages *m)
{
    struct sbp_message_reduction *out = m->out;
    const int variables = m->space->variable_count;
    out->is_settled = is_settled(m);
    out->count = SBP_NEW(m->arena, int, variables);
    out->original = SBP_NEW(m->arena, int *, variables);
    if (out->count == NULL || out->original == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++) {
        out->count[v] = out->is_settled ? 1 : m->priced.count[v];
        out->original[v] = SBP_TAKE(m->arena, int, out->count[v]);
        if (out->original[v] == NULL)
            return SBP_E_MEMORY;
        for (int i = 0; i < out->count[v]; i++)
            out->original[v][i] = out->is_settled ? out->choice[v] : m->priced.choice[v][i];
    }
    return SBP_OK;
}

static enum sbp_status restrict_variable(const struct sbp_space *space, int variable,
                                         const int *original, int count, struct sbp_arena *arena,
                                         struct sbp_space_variable *to)
{
    const struct sbp_space_variable *from = &space->variable[variable];
    const int stages = space->weights->memory_stages;
    *to = *from;
    to->choice_count = count;
    to->tuple = SBP_TAKE(arena, int, count);
    to->zero = SBP_TAKE(arena, uint8_t, count);
    to->cost_s = SBP_TAKE(arena, double, count);
    to->bytes = SBP_TAKE(arena, double, (size_t)count *(size_t)stages);
    if (to->tuple == NULL || to->zero == NULL || to->cost_s == NULL || to->bytes == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < count; i++) {
        to->tuple[i] = from->tuple[original[i]];
        to->zero[i] = from->zero[original[i]];
        to->cost_s[i] = from->cost_s[original[i]];
        for (int p = 0; p < stages; p++)
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

static enum sbp_status reduce_space(struct sbp_messages *m)
{
    *m->out = (struct sbp_message_reduction){.lower_s = -INFINITY, .upper_s = INFINITY};
    enum sbp_status status = reduce(m);
    /* Choices were dropped for the goal's sake, so that the bound holds below it alone. */
    m->out->lower_s = fmin(m->out->lower_s, m->goal_s);
    if (status == SBP_OK)
        status = list_left(m);
    if (status == SBP_OK)
        status = sbp_message_restrict(m->space, m->out, m->arena, &m->out->space);
    sbp_arena_free(&m->scratch);
    return status;
}

enum sbp_status sbp_message_reduce(const struct sbp_space *space, double capacity_bytes,
                                   double goal_s, struct sbp_arena *arena,
                                   struct sbp_message_reduction *reduction)
{
    struct sbp_messages m = {.space = space,
                             .arena = arena,
                             .scratch.budget = space->arena.budget,
                             .priced = {.space = space, .capacity_bytes = capacity_bytes},
                             .goal_s = goal_s,
                             .out = reduction};
    return reduce_space(&m);
}

enum sbp_status sbp_message_narrow(const struct sbp_space *space, double goal_s,
                                   struct sbp_arena *arena, struct sbp_message_reduction *reduction)
{
    struct sbp_messages m = {.space = space,
                             .arena = arena,
                             .scratch.budget = space->arena.budget,
                             .priced = {.space = space, .capacity_bytes = INFINITY},
                             .goal_s = goal_s,
                             .keeps_all = true,
                             .out = reduction};
    return reduce_space(&m);
}
