/* Prices of memory that raise the bound most, messages following every change.
 *
 * The bound is concave in the prices; where it is highest, what attains it goes from more than the
 * capacity to less. With one point of memory two choices, one on either side, say where their costs
 * meet (Handler and Zang, Networks 10, 1980): on a chain that ends at the best price. With several,
 * all prices are halved in at once. The work is a fixed number of passes at most.
 */
#include <math.h>
#include <string.h>

#include "planner/bounds/message_passing_priv.h"

enum { MOST_STEPS = 24 };
/* Prices as close as this, and bounds that rise by less, are the same. */
#define CLOSE 1e-7

/* One point's price, and what a choice at it cost and used. */
struct side {
    double price, cost_s, used;
};

struct raise {
    struct sbp_messages *r;
    int points;
    struct side *over, *within; /* (points) price < 0: none yet */
    double *used;               /* (points) by the choice at hand */
    double *best, best_s;       /* (points) prices of the best bound */
    double scale;               /* a price to begin with */
};

/* The bound at the prices, and the choice that attains it, or nearly. */
static enum sbp_status evaluate(struct raise *raise, double *cost_s)
{
    struct sbp_messages *r = raise->r;
    const struct sbp_space *space = r->space;
    double bound_s = -INFINITY;
    SBP_TRY(sbp_message_follow(r, &bound_s));
    if (bound_s > raise->best_s) {
        raise->best_s = bound_s;
        memcpy(raise->best, r->priced.price, (size_t)raise->points * sizeof *raise->best);
    }
    sbp_primal_read(r);
    for (int p = 0; p < raise->points; p++) {
        raise->used[p] = sbp_pricing_constant_bytes(space, p);
        for (int v = 0; v < space->variable_count; v++)
            raise->used[p] += sbp_space_unary_bytes(space, v, r->choice[v], p);
    }
    *cost_s = sbp_primal_cost_s(r);
    sbp_primal_offer(r);
    return SBP_OK;
}

/* Where the priced costs of both sides' choices are the same; of several points the middle. */
static double between(const struct raise *raise, int point)
{
    const struct side *over = &raise->over[point], *within = &raise->within[point];
    const double middle = (over->price + within->price) / 2;
    const double meets = (within->cost_s - over->cost_s) / (over->used - within->used);
    const bool is_inside = meets > over->price && meets < within->price;
    return raise->points == 1 && is_inside ? meets : middle;
}

/* The next price of a point; the same where it has settled. */
static double next_price(const struct raise *raise, int point)
{
    const struct side *over = &raise->over[point], *within = &raise->within[point];
    if (over->price < 0)
        return within->price > raise->scale * 1e-9 ? within->price / 4 : 0;
    if (within->price < 0)
        return over->price > 0 ? 4 * over->price : raise->scale;
    return within->price - over->price <= CLOSE * within->price ? within->price
                                                                : between(raise, point);
}

/* Whether the choice at hand says that both sides cost the same: nothing is between them. */
static bool is_met(const struct raise *raise, double cost_s)
{
    const struct side *over = &raise->over[0], *within = &raise->within[0];
    const double price = raise->r->priced.price[0];
    if (raise->points > 1 || over->price < 0 || within->price < 0)
        return false;
    const double here = cost_s + price * raise->used[0];
    return here >= (over->cost_s + price * over->used) * (1 - 1e-12);
}

static bool step(struct raise *raise, double cost_s)
{
    const struct sbp_messages *r = raise->r;
    bool moves = false;
    for (int p = 0; p < raise->points; p++) {
        const struct side side = {r->priced.price[p], cost_s, raise->used[p]};
        const bool is_over = raise->used[p] > r->priced.capacity_bytes;
        *(is_over ? &raise->over[p] : &raise->within[p]) = side;
        /* Other points' prices may have moved the sides past each other. */
        if (is_over && raise->within[p].price >= 0 && raise->within[p].price <= side.price)
            raise->within[p].price = -1;
        if (!is_over && raise->over[p].price >= side.price)
            raise->over[p].price = -1;
    }
    for (int p = 0; p < raise->points; p++) {
        const double price = next_price(raise, p);
        moves |= fabs(price - r->priced.price[p]) > CLOSE * price;
        r->priced.price[p] = price;
    }
    return moves;
}

enum sbp_status sbp_multipliers_raise(struct sbp_messages *r)
{
    const int points = r->space->weights->memory_stages;
    const struct sbp_arena_mark mark = sbp_arena_mark(&r->scratch);
    struct raise raise = {.r = r,
                          .points = points,
                          .over = SBP_TAKE(&r->scratch, struct side, points),
                          .within = SBP_TAKE(&r->scratch, struct side, points),
                          .used = SBP_NEW(&r->scratch, double, points),
                          .best = SBP_NEW(&r->scratch, double, points),
                          .best_s = -INFINITY};
    if (raise.over == NULL || raise.within == NULL || raise.used == NULL || raise.best == NULL)
        return SBP_E_MEMORY;
    for (int p = 0; p < points; p++)
        raise.over[p].price = raise.within[p].price = -1;
    enum sbp_status status = SBP_OK;
    bool moves = true;
    for (int i = 0; i < MOST_STEPS && moves && status == SBP_OK; i++) {
        double cost_s = INFINITY;
        status = evaluate(&raise, &cost_s);
        if (status != SBP_OK || sbp_message_is_over(r))
            break;
        /* A price at which all of the capacity is worth a thousandth of the step. */
        raise.scale = 1e-3 * fabs(raise.best_s) / r->priced.capacity_bytes;
        moves = !is_met(&raise, cost_s) && step(&raise, cost_s);
    }
    if (isfinite(raise.best_s))
        memcpy(r->priced.price, raise.best, (size_t)points * sizeof *raise.best);
    sbp_arena_release(&r->scratch, mark);
    return status;
}
