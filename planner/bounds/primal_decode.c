#include <math.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/bounds/message_passing_priv.h"

/* The cost of a tuple with the variables around it: with earlier ones as they are chosen, with
 * those from `undecided` on as the messages say. */
static double around_s(const struct sbp_messages *m, int variable, int tuple, int undecided)
{
    const struct sbp_space *space = m->space;
    double seconds = m->loop[variable] == NULL ? 0 : m->loop[variable][tuple];
    for (int i = m->first[variable]; i < m->first[variable + 1]; i++) {
        const struct sbp_incident *incident = &m->incident[i];
        if (incident->other >= undecided) {
            seconds += sbp_message_into(m, incident, false)[tuple];
            continue;
        }
        const int other = space->variable[incident->other].tuple[m->choice[incident->other]];
        seconds += sbp_message_pair_s(m, incident, tuple, other);
    }
    return seconds;
}

/* The choice of a variable that costs least beside the others, with memory at `factor` times its
 * price; m->row: the costs of its tuples with those around them. */
static int cheapest(struct sbp_messages *m, int variable, int undecided, double factor)
{
    const struct sbp_space_variable *v = &m->space->variable[variable];
    double least = INFINITY;
    int best = m->priced.choice[variable][0];
    for (int i = 0; i < m->tuples[variable].count; i++) {
        const int t = m->tuples[variable].tuple[i];
        m->row[t] = around_s(m, variable, t, undecided);
    }
    for (int i = 0; i < m->priced.count[variable]; i++) {
        const int c = m->priced.choice[variable][i];
        const double own = v->cost_s[c], priced = sbp_message_priced_s(m, variable, c) - own;
        const double seconds = own + factor * priced + m->row[v->tuple[c]];
        if (seconds < least) {
            least = seconds;
            best = c;
        }
    }
    return best;
}

double sbp_primal_cost_s(const struct sbp_messages *m)
{
    const struct sbp_space *space = m->space;
    double seconds = sbp_pricing_constant_s(space);
    for (int v = 0; v < space->variable_count; v++)
        seconds += space->variable[v].cost_s[m->choice[v]];
    for (int e = 0; e < m->edges.count; e++) {
        const struct sbp_space_edge *edge = &m->edges.edge[e];
        const int a = edge->ends.from.variable, b = edge->ends.to.variable;
        const double price = sbp_edge_price_s(edge, space->variable[a].tuple[m->choice[a]],
                                              space->variable[b].tuple[m->choice[b]]);
        seconds = price >= SBP_FORBIDDEN ? INFINITY : seconds + price;
    }
    return seconds;
}

static bool fits(const struct sbp_messages *m)
{
    return !isfinite(m->priced.capacity_bytes) ||
           sbp_pricing_bytes(m->space, m->choice) <= m->priced.capacity_bytes;
}

/* Single changes until none helps. */
static void improve(struct sbp_messages *m, double factor)
{
    const int variables = m->space->variable_count;
    bool changed = true;
    for (int sweep = 0; sweep < SBP_BOUNDS_DECODE_SWEEPS && changed; sweep++) {
        changed = false;
        for (int v = 0; v < variables; v++) {
            const int choice = cheapest(m, v, variables, factor);
            changed |= choice != m->choice[v];
            m->choice[v] = choice;
        }
    }
}

void sbp_primal_offer(struct sbp_messages *m)
{
    const double cost_s = fits(m) ? sbp_primal_cost_s(m) : INFINITY;
    if (cost_s >= m->out->upper_s)
        return;
    m->out->upper_s = cost_s;
    memcpy(m->out->choice, m->choice, (size_t)m->space->variable_count * sizeof *m->choice);
}

void sbp_primal_read(struct sbp_messages *m)
{
    for (int v = 0; v < m->space->variable_count; v++) {
        m->choice[v] = cheapest(m, v, v, 1);
        m->out->evaluations += m->priced.count[v];
    }
}

enum sbp_status sbp_primal_decode(struct sbp_messages *m)
{
    double factor = 1;
    sbp_primal_read(m);
    improve(m, factor);
    const bool fitted = fits(m);
    sbp_primal_offer(m);
    if (isfinite(m->priced.capacity_bytes))
        SBP_TRY(sbp_primal_polish(m));
    for (int i = 0; i < SBP_BOUNDS_DECODE_REPAIRS && !fitted && !fits(m); i++) {
        factor *= SBP_BOUNDS_DECODE_REPAIR_FACTOR;
        improve(m, factor);
    }
    sbp_primal_offer(m);
    return SBP_OK;
}
