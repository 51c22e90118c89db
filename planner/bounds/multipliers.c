/* The prices of memory (Lagrange multipliers) that raise the bound of message passing most.
 *
 * The bound is concave in the prices; at its maximum the choice that attains it goes from more
 * than the capacity to less. With one memory stage, the next price is where the costs of two
 * choices meet, one on either side (Handler and Zang, Networks 10, 1980), which on a chain ends at
 * the best price. With several stages all prices are bisected at once. Messages follow every
 * change, and the number of changes is limited.
 */
#include <math.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/bounds/message_passing_priv.h"

/* A stage's price, and cost and bytes of the choice that was read at it. */
struct side {
    double price, cost_s, used;
};

struct raise {
    struct sbp_messages *m;
    int stages;
    struct side *over, *within; /* (memory stages) price < 0: none yet */
    double *used;               /* (memory stages) bytes of the latest choice */
    double *best, best_s;       /* (memory stages) prices of the best bound */
    double scale;               /* a price to begin with */
};

/* Evaluates the bound at the prices and reads the choice that attains it, or nearly. */
static enum sbp_status evaluate(struct raise *raise, double *cost_s)
{
    struct sbp_messages *m = raise->m;
    const struct sbp_space *space = m->space;
    double bound_s = -INFINITY;
    SBP_TRY(sbp_message_follow(m, &bound_s));
    if (bound_s > raise->best_s) {
        raise->best_s = bound_s;
        memcpy(raise->best, m->priced.price, (size_t)raise->stages * sizeof *raise->best);
    }
    sbp_primal_read(m);
    for (int p = 0; p < raise->stages; p++) {
        raise->used[p] = sbp_pricing_constant_bytes(space, p);
        for (int v = 0; v < space->variable_count; v++)
            raise->used[p] += sbp_space_unary_bytes(space, v, m->choice[v], p);
    }
    *cost_s = sbp_primal_cost_s(m);
    sbp_primal_offer(m);
    return SBP_OK;
}

/* The price at which both sides' choices cost the same; of several stages the middle. */
static double between(const struct raise *raise, int stage)
{
    const struct side *over = &raise->over[stage], *within = &raise->within[stage];
    const double middle = (over->price + within->price) / 2;
    const double meets = (within->cost_s - over->cost_s) / (over->used - within->used);
    const bool is_inside = meets > over->price && meets < within->price;
    return raise->stages == 1 && is_inside ? meets : middle;
}

/* The next price of a stage; the same where both sides are close. */
static double next_price(const struct raise *raise, int stage)
{
    const struct side *over = &raise->over[stage], *within = &raise->within[stage];
    if (over->price < 0)
        return within->price > raise->scale * SBP_BOUNDS_MULTIPLIER_ZERO
                   ? within->price / SBP_BOUNDS_MULTIPLIER_FACTOR
                   : 0;
    if (within->price < 0)
        return over->price > 0 ? SBP_BOUNDS_MULTIPLIER_FACTOR * over->price : raise->scale;
    return within->price - over->price <= SBP_BOUNDS_MULTIPLIER_EQUAL * within->price
               ? within->price
               : between(raise, stage);
}

/* Whether the latest choice costs as much as both sides at its price: no better price lies
 * between. */
static bool is_met(const struct raise *raise, double cost_s)
{
    const struct side *over = &raise->over[0], *within = &raise->within[0];
    const double price = raise->m->priced.price[0];
    if (raise->stages > 1 || over->price < 0 || within->price < 0)
        return false;
    const double here = cost_s + price * raise->used[0];
    return here >= (over->cost_s + price * over->used) * (1 - SBP_PRICING_ROUND_OFF);
}

static bool step(struct raise *raise, double cost_s)
{
    const struct sbp_messages *m = raise->m;
    bool moves = false;
    for (int p = 0; p < raise->stages; p++) {
        const struct side side = {m->priced.price[p], cost_s, raise->used[p]};
        const bool is_over = raise->used[p] > m->priced.capacity_bytes;
        *(is_over ? &raise->over[p] : &raise->within[p]) = side;
        /* Other stages' prices may have moved the sides past each other. */
        if (is_over && raise->within[p].price >= 0 && raise->within[p].price <= side.price)
            raise->within[p].price = -1;
        if (!is_over && raise->over[p].price >= side.price)
            raise->over[p].price = -1;
    }
    for (int p = 0; p < raise->stages; p++) {
        const double price = next_price(raise, p);
        moves |= fabs(price - m->priced.price[p]) > SBP_BOUNDS_MULTIPLIER_EQUAL * price;
        m->priced.price[p] = price;
    }
    return moves;
}

enum sbp_status sbp_multipliers_raise(struct sbp_messages *m)
{
    const int stages = m->space->weights->memory_stages;
    const struct sbp_arena_mark mark = sbp_arena_mark(&m->scratch);
    struct raise raise = {.m = m,
                          .stages = stages,
                          .over = SBP_TAKE(&m->scratch, struct side, stages),
                          .within = SBP_TAKE(&m->scratch, struct side, stages),
                          .used = SBP_NEW(&m->scratch, double, stages),
                          .best = SBP_NEW(&m->scratch, double, stages),
                          .best_s = -INFINITY};
    if (raise.over == NULL || raise.within == NULL || raise.used == NULL || raise.best == NULL)
        return SBP_E_MEMORY;
    for (int p = 0; p < stages; p++)
        raise.over[p].price = raise.within[p].price = -1;
    enum sbp_status status = SBP_OK;
    bool moves = true;
    for (int i = 0; i < SBP_BOUNDS_MULTIPLIER_STEPS && moves && status == SBP_OK; i++) {
        double cost_s = INFINITY;
        status = evaluate(&raise, &cost_s);
        if (status != SBP_OK || sbp_message_is_over(m))
            break;
        /* At this price the whole capacity is worth a share of the step. */
        raise.scale = SBP_BOUNDS_FIRST_PRICE * fabs(raise.best_s) / m->priced.capacity_bytes;
        moves = !is_met(&raise, cost_s) && step(&raise, cost_s);
    }
    if (isfinite(raise.best_s))
        memcpy(m->priced.price, raise.best, (size_t)stages * sizeof *raise.best);
    sbp_arena_release(&m->scratch, mark);
    return status;
}
