#include <math.h>

#include "base/math/simd.h"
#include "planner/limits.h"
#include "planner/dual/dual_priv.h"

void sbp_dual_set_prices(struct sbp_dual *dual, const double *price)
{
    double sum = 0;
    dual->work += dual->span_entries;
    for (int p = 0; p < dual->point_count; p++) {
        sum += price[p];
        dual->prefix[p + 1] = sum;
    }
    for (int v = 0; v < dual->variable_count; v++) {
        const int domain = dual->domain[v];
        double *priced = dual->priced[v];
        for (int k = 0; k < domain; k++)
            priced[k] = dual->barred[v][k] ? INFINITY : dual->cost[v][k];
        if (domain == 1)
            continue; /* its usage is taken off the room */
        for (int s = dual->live.begin[v]; s < dual->live.begin[v + 1]; s++) {
            const struct sbp_span *span = &dual->live.span[s];
            const double unit = dual->prefix[span->last] - dual->prefix[span->first];
            for (int k = 0; unit > 0 && k < domain; k++)
                priced[k] += unit * span->usage[k];
        }
    }
}

/* --- passes --- */

SBP_SIMD static double take_least(double *values, int count)
{
    double least = INFINITY;
    for (int k = 0; k < count; k++)
        least = values[k] < least ? values[k] : least;
    for (int k = 0; k < count; k++)
        values[k] -= least;
    return least;
}

/* out (columns): the least over rows of row + table. */
SBP_SIMD static void min_plus(const double *row, int rows, const double *table, int columns,
                              double *restrict out)
{
    for (int l = 0; l < columns; l++)
        out[l] = row[0] + table[l];
    for (int k = 1; k < rows; k++) {
        const double *line = table + (size_t)k * (size_t)columns;
        const double own = row[k];
        for (int l = 0; l < columns; l++) {
            const double sum = own + line[l];
            out[l] = sum < out[l] ? sum : out[l];
        }
    }
}

SBP_SIMD static void add_to(double *restrict sum, const double *restrict part, int count)
{
    for (int k = 0; k < count; k++)
        sum[k] += part[k];
}

/* share (domain): the variable's priced cost with all messages into it. */
static void collect_share(const struct sbp_dual *dual, int variable, double *share)
{
    const int domain = dual->domain[variable];
    for (int k = 0; k < domain; k++)
        share[k] = dual->priced[variable][k];
    for (int i = dual->first[variable]; i < dual->first[variable + 1]; i++)
        add_to(share, dual->link[i].in, domain);
}

/* A sum, and the sum of the sizes of what was summed, of which round-off is a share. */
struct bound_sum {
    double sum, size;
};

static void add_part(struct bound_sum *bound, double part)
{
    bound->sum += part;
    bound->size += fabs(part);
}

/* Adds what an edge, whose message out of `row` has just been sent, costs at least with each value
 * beyond its least cost. */
static void add_edge_slack(struct sbp_dual *dual, const struct sbp_dual_link *link, int domain,
                           double least, double *slack)
{
    const int others = dual->domain[link->other];
    double *back = dual->other_row, *negative = dual->third_row;
    for (int l = 0; l < others; l++)
        negative[l] = -link->out[l];
    min_plus(negative, others, link->from, domain, back);
    for (int k = 0; k < domain; k++)
        slack[k] += fmax(0, dual->row[k] + back[k] - least);
}

/* Sends messages from the variable to its earlier, or later, neighbours. What the variable and its
 * edges to these cost at least then adds up to the bound: with shares that went to the edges, no
 * more than all of a share is given away, and the rest is not negative. */
static void send(struct sbp_dual *dual, int variable, bool back, struct bound_sum *bound,
                 double *slack)
{
    double left = 1; /* of the variable's share */
    const int domain = dual->domain[variable];
    double *share = dual->share, *row = dual->row;
    collect_share(dual, variable, share);
    add_part(bound, take_least(share, domain));
    for (int i = dual->first[variable]; i < dual->first[variable + 1]; i++) {
        const struct sbp_dual_link *link = &dual->link[i];
        if ((link->other < variable) != back)
            continue;
        for (int k = 0; k < domain; k++)
            row[k] = dual->weight[variable] * share[k] - link->in[k];
        min_plus(row, domain, link->to, dual->domain[link->other], link->out);
        const double least = take_least(link->out, dual->domain[link->other]);
        add_part(bound, least);
        left -= dual->weight[variable];
        if (slack != NULL)
            add_edge_slack(dual, link, domain, least, slack);
    }
    for (int k = 0; slack != NULL && k < domain; k++)
        slack[k] += fmax(0, left) * share[k];
}

/* The bound of all shares, less the capacity at its prices and the round-off. */
static double close_bound(const struct sbp_dual *dual, struct bound_sum bound)
{
    for (int p = 0; p < dual->point_count; p++)
        add_part(&bound, -(dual->prefix[p + 1] - dual->prefix[p]) * dual->room[p]);
    return bound.sum - SBP_PROBLEM_ROUND_OFF * bound.size;
}

double sbp_dual_pass(struct sbp_dual *dual, int passes)
{
    struct bound_sum bound = {0};
    for (int pass = 0; pass < 2 * passes; pass++) {
        const bool back = pass % 2 == 1;
        bound = (struct bound_sum){0};
        for (int i = 0; i < dual->variable_count; i++)
            send(dual, back ? dual->variable_count - 1 - i : i, back, &bound, NULL);
        dual->work += dual->entries + (double)dual->values + 1;
        if (sbp_dual_spend(dual, dual->values))
            return -INFINITY;
    }
    return close_bound(dual, bound);
}

double sbp_dual_slacks(struct sbp_dual *dual, double **slack)
{
    struct bound_sum bound = {0};
    for (int v = 0; v < dual->variable_count; v++)
        send(dual, v, false, &bound, NULL);
    bound = (struct bound_sum){0};
    for (int v = dual->variable_count - 1; v >= 0; v--) {
        for (int k = 0; k < dual->domain[v]; k++)
            slack[v][k] = 0;
        send(dual, v, true, &bound, slack[v]);
    }
    dual->work += 3 * dual->entries;
    dual->run->solution->evaluations += 2 * dual->values;
    return close_bound(dual, bound);
}

bool sbp_dual_is_met(const struct sbp_dual *dual, double bound)
{
    const double best = fmin(dual->run->solution->cost, dual->run->upper_bound);
    return bound >= best - SBP_PROBLEM_DUAL_OPEN * fabs(best) ||
           (dual->is_whole && bound > dual->run->solution->cost - 1);
}

/* --- choices --- */

static int least_of(const double *row, int count)
{
    int best = 0;
    for (int k = 1; k < count; k++)
        if (row[k] < row[best])
            best = k;
    return best;
}

void sbp_dual_read(struct sbp_dual *dual, int *choice)
{
    for (int v = 0; v < dual->variable_count; v++) {
        const int domain = dual->domain[v];
        double *row = dual->row;
        for (int k = 0; k < domain; k++)
            row[k] = dual->priced[v][k];
        for (int i = dual->first[v]; i < dual->first[v + 1]; i++) {
            const struct sbp_dual_link *link = &dual->link[i];
            add_to(row,
                   link->other < v ? link->from + (size_t)choice[link->other] * (size_t)domain
                                   : link->in,
                   domain);
        }
        choice[v] = least_of(row, domain);
    }
}

void sbp_dual_row(struct sbp_dual *dual, const int *choice, int variable, const double *own,
                  double *row)
{
    const int domain = dual->domain[variable];
    dual->work += (double)domain * (1 + dual->first[variable + 1] - dual->first[variable]);
    for (int k = 0; k < domain; k++)
        row[k] = own[k];
    for (int i = dual->first[variable]; i < dual->first[variable + 1]; i++) {
        const struct sbp_dual_link *link = &dual->link[i];
        add_to(row, link->from + (size_t)choice[link->other] * (size_t)domain, domain);
    }
}

void sbp_dual_relax(struct sbp_dual *dual, int *choice)
{
    bool gained = true;
    for (int sweep = 0; gained && sweep < SBP_PROBLEM_DUAL_SWEEPS; sweep++) {
        gained = false;
        dual->run->solution->evaluations += dual->values;
        for (int i = 0; i < dual->open_count; i++) {
            const int v = dual->open[i];
            sbp_dual_row(dual, choice, v, dual->priced[v], dual->row);
            const int best = least_of(dual->row, dual->domain[v]);
            const double old = dual->row[choice[v]], now = dual->row[best];
            if (old - now > SBP_PROBLEM_LEAST_GAIN * (fabs(old) + fabs(now))) {
                choice[v] = best;
                gained = true;
            }
        }
    }
}
