#include <math.h>
#include <string.h>

#include "planner/bounds/message_passing_priv.h"

enum { MOST_SWEEPS = 20, MOST_REPAIRS = 16 };

/* What a tuple costs with the variables around it: those before it as they are chosen, of those
 * after it (from `undecided` on) what the messages say. */
static double around_s(const struct sbp_messages *r, int variable, int tuple, int undecided)
{
    const struct sbp_space *space = r->space;
    double seconds = r->loop[variable] == NULL ? 0 : r->loop[variable][tuple];
    for (int i = r->first[variable]; i < r->first[variable + 1]; i++) {
        const struct sbp_incident *incident = &r->incident[i];
        if (incident->other >= undecided) {
            seconds += sbp_message_into(r, incident, false)[tuple];
            continue;
        }
        const int other = space->variable[incident->other].tuple[r->choice[incident->other]];
        seconds += sbp_message_pair_s(r, incident, tuple, other);
    }
    return seconds;
}

/* The choice of a variable that costs least beside the others, memory at its prices times dear;
 * r->row: what its tuples cost with those around them. */
static int cheapest(struct sbp_messages *r, int variable, int undecided, double dear)
{
    const struct sbp_space_variable *v = &r->space->variable[variable];
    double least = INFINITY;
    int best = r->priced.choice[variable][0];
    for (int i = 0; i < r->tuples[variable].count; i++) {
        const int t = r->tuples[variable].tuple[i];
        r->row[t] = around_s(r, variable, t, undecided);
    }
    for (int i = 0; i < r->priced.count[variable]; i++) {
        const int c = r->priced.choice[variable][i];
        const double own = v->cost_s[c], priced = sbp_message_priced_s(r, variable, c) - own;
        const double seconds = own + dear * priced + r->row[v->tuple[c]];
        if (seconds < least) {
            least = seconds;
            best = c;
        }
    }
    return best;
}

double sbp_primal_cost_s(const struct sbp_messages *r)
{
    const struct sbp_space *space = r->space;
    double seconds = sbp_pricing_constant_s(space);
    for (int v = 0; v < space->variable_count; v++)
        seconds += space->variable[v].cost_s[r->choice[v]];
    for (int e = 0; e < r->edges.count; e++) {
        const struct sbp_space_edge *edge = &r->edges.edge[e];
        const int a = edge->pair.from.variable, b = edge->pair.to.variable;
        const double price = sbp_edge_price_s(edge, space->variable[a].tuple[r->choice[a]],
                                              space->variable[b].tuple[r->choice[b]]);
        seconds = price >= SBP_FORBIDDEN ? INFINITY : seconds + price;
    }
    return seconds;
}

static bool fits(const struct sbp_messages *r)
{
    return !isfinite(r->priced.capacity_bytes) ||
           sbp_pricing_bytes(r->space, r->choice) <= r->priced.capacity_bytes;
}

/* Single changes until none helps. */
static void improve(struct sbp_messages *r, double dear)
{
    const int variables = r->space->variable_count;
    bool changed = true;
    for (int sweep = 0; sweep < MOST_SWEEPS && changed; sweep++) {
        changed = false;
        for (int v = 0; v < variables; v++) {
            const int choice = cheapest(r, v, variables, dear);
            changed |= choice != r->choice[v];
            r->choice[v] = choice;
        }
    }
}

void sbp_primal_offer(struct sbp_messages *r)
{
    const double cost_s = fits(r) ? sbp_primal_cost_s(r) : INFINITY;
    if (cost_s >= r->out->upper_s)
        return;
    r->out->upper_s = cost_s;
    memcpy(r->out->choice, r->choice, (size_t)r->space->variable_count * sizeof *r->choice);
}

void sbp_primal_read(struct sbp_messages *r)
{
    for (int v = 0; v < r->space->variable_count; v++) {
        r->choice[v] = cheapest(r, v, v, 1);
        r->out->evaluations += r->priced.count[v];
    }
}

enum sbp_status sbp_primal_decode(struct sbp_messages *r)
{
    double dear = 1;
    sbp_primal_read(r);
    improve(r, dear);
    const bool fitted = fits(r);
    sbp_primal_offer(r);
    if (isfinite(r->priced.capacity_bytes))
        SBP_TRY(sbp_primal_polish(r));
    for (int i = 0; i < MOST_REPAIRS && !fitted && !fits(r); i++) {
        dear *= 1.3;
        improve(r, dear);
    }
    sbp_primal_offer(r);
    return SBP_OK;
}
