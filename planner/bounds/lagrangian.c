#include "planner/bounds/lagrangian.h"

#include <math.h>

#include "planner/limits.h"

/* ---- sums of least costs -------------------------------------------------------------------- */

static double priced_s(const struct sbp_priced *priced, int variable, int choice)
{
    const struct sbp_space_variable *v = &priced->space->variable[variable];
    double seconds = v->cost_s[choice] + priced->beside[variable][v->tuple[choice]];
    for (int p = 0; p < priced->space->weights->memory_stages; p++)
        if (priced->price[p] > 0)
            seconds += priced->price[p] * sbp_space_unary_bytes(priced->space, variable, choice, p);
    return seconds;
}

/* The sum of least priced costs, less price times capacity; used: bytes of the choices that attain
 * it. */
static double value(const struct sbp_priced *priced)
{
    const struct sbp_space *space = priced->space;
    const int stages = isfinite(priced->capacity_bytes) ? space->weights->memory_stages : 0;
    double sum = sbp_pricing_constant_s(space);
    for (int p = 0; p < stages; p++) {
        priced->used[p] = sbp_pricing_constant_bytes(space, p);
        sum += priced->price[p] * (priced->used[p] - priced->capacity_bytes);
    }
    for (int v = 0; v < space->variable_count; v++) {
        double least = INFINITY;
        int best = 0;
        for (int i = 0; i < priced->count[v]; i++) {
            const double seconds = priced_s(priced, v, priced->choice[v][i]);
            if (seconds < least) {
                least = seconds;
                best = priced->choice[v][i];
            }
        }
        sum += least;
        for (int p = 0; p < stages; p++)
            priced->used[p] += sbp_space_unary_bytes(space, v, best, p);
    }
    return sum;
}

/* ---- prices --------------------------------------------------------------------------------- */

/* One stage's price under trial; best_s is the best sum so far, which `kept` attains. */
struct trial {
    const struct sbp_priced *priced;
    int stage;
    double best_s, kept;
};

/* Whether the choices that the price selects use more than the capacity, so that it must rise. */
static bool try_price(struct trial *trial, double price)
{
    trial->priced->price[trial->stage] = price;
    const double sum = value(trial->priced);
    if (sum > trial->best_s) {
        trial->best_s = sum;
        trial->kept = price;
    }
    return trial->priced->used[trial->stage] > trial->priced->capacity_bytes;
}

/* Finds a stage's price. The sum is concave in the price, and at its maximum the selected choices
 * go from more than the capacity to less. */
static double set_price(const struct sbp_priced *priced, int stage, double scale, double best_s)
{
    double price = priced->price[stage] > 0 ? priced->price[stage] : scale;
    struct trial trial = {priced, stage, best_s, priced->price[stage]};
    if (!try_price(&trial, 0)) {
        priced->price[stage] = trial.kept;
        return trial.best_s;
    }
    const bool rises = try_price(&trial, price);
    double low = rises ? price : 0, high = rises ? INFINITY : price;
    for (int i = 0; i < SBP_BOUNDS_BRACKET_STEPS && (rises ? isinf(high) : low == 0); i++) {
        price *= rises ? 2 : 0.5;
        *(try_price(&trial, price) ? &low : &high) = price;
    }
    for (int i = 0; i < SBP_BOUNDS_BISECTIONS && isfinite(high); i++) {
        price = (low + high) / 2;
        *(try_price(&trial, price) ? &low : &high) = price;
    }
    priced->price[stage] = trial.kept;
    return trial.best_s;
}

double sbp_lagrangian_set_prices(const struct sbp_priced *priced)
{
    const int stages = isfinite(priced->capacity_bytes) ? priced->space->weights->memory_stages : 0;
    double best_s = value(priced);
    /* At this price the whole capacity is worth a share of the step. */
    const double scale = SBP_BOUNDS_FIRST_PRICE * fabs(best_s) / priced->capacity_bytes;
    for (int round = 0; round < (stages > 1 ? SBP_BOUNDS_PRICE_ROUNDS : 1); round++)
        for (int p = 0; p < stages; p++) {
            (void)value(priced);
            if (priced->price[p] > 0 || priced->used[p] > priced->capacity_bytes)
                best_s = set_price(priced, p, scale, best_s);
        }
    return best_s;
}

/* ---- a whole space -------------------------------------------------------------------------- */

static double least_bytes(const struct sbp_space *space)
{
    double most = 0;
    for (int p = 0; p < space->weights->memory_stages; p++) {
        double bytes = sbp_pricing_constant_bytes(space, p);
        for (int v = 0; v < space->variable_count; v++) {
            double least = INFINITY;
            for (int c = 0; c < space->variable[v].choice_count; c++) {
                const double own = sbp_space_unary_bytes(space, v, c, p);
                least = own < least ? own : least;
            }
            bytes += least;
        }
        most = fmax(most, bytes);
    }
    return most;
}

/* Whether choice a is as good as b in cost and bytes. */
static bool is_as_good(const struct sbp_space *space, int variable, int a, int b)
{
    const double *cost_s = space->variable[variable].cost_s;
    if (cost_s[a] > cost_s[b])
        return false;
    for (int p = 0; p < space->weights->memory_stages; p++)
        if (sbp_space_unary_bytes(space, variable, a, p) >
            sbp_space_unary_bytes(space, variable, b, p))
            return false;
    return true;
}

/* Lists the choices of a variable that no other choice is as good as, edges aside: a few of
 * thousands. Returns their number. */
static int keep_best(const struct sbp_space *space, int variable, int *choice)
{
    int count = 0;
    for (int c = 0; c < space->variable[variable].choice_count; c++) {
        int left = 0;
        bool is_beaten = false;
        for (int i = 0; i < count && !is_beaten; i++)
            is_beaten = is_as_good(space, variable, choice[i], c);
        if (is_beaten)
            continue;
        for (int i = 0; i < count; i++)
            if (!is_as_good(space, variable, c, choice[i]))
                choice[left++] = choice[i];
        choice[left++] = c;
        count = left;
    }
    return count;
}

static enum sbp_status look_at_best(const struct sbp_space *space, struct sbp_arena *arena,
                                    struct sbp_priced *priced)
{
    const int variables = space->variable_count;
    priced->count = SBP_NEW(arena, int, variables);
    priced->choice = SBP_NEW(arena, int *, variables);
    priced->beside = SBP_NEW(arena, double *, variables);
    if (priced->count == NULL || priced->choice == NULL || priced->beside == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++) {
        priced->choice[v] = SBP_TAKE(arena, int, space->variable[v].choice_count);
        priced->beside[v] = SBP_NEW(arena, double, space->variable[v].tuple_count);
        if (priced->choice[v] == NULL || priced->beside[v] == NULL)
            return SBP_E_MEMORY;
        priced->count[v] = keep_best(space, v, priced->choice[v]);
    }
    return SBP_OK;
}

/* The sum of all variables' least costs; *fits: the choices that attain it fit into the capacity.
 */
static double least_s(const struct sbp_space *space, double capacity_bytes, double *used,
                      bool *fits)
{
    double sum = sbp_pricing_constant_s(space);
    *fits = true;
    for (int p = 0; p < space->weights->memory_stages; p++)
        used[p] = sbp_pricing_constant_bytes(space, p);
    for (int v = 0; v < space->variable_count; v++) {
        const double *cost_s = space->variable[v].cost_s;
        int best = 0;
        for (int c = 1; c < space->variable[v].choice_count; c++)
            best = cost_s[c] < cost_s[best] ? c : best;
        sum += cost_s[best];
        for (int p = 0; p < space->weights->memory_stages; p++)
            used[p] += sbp_space_unary_bytes(space, v, best, p);
    }
    for (int p = 0; p < space->weights->memory_stages; p++)
        *fits = *fits && used[p] <= capacity_bytes;
    return sum;
}

enum sbp_status sbp_lagrangian_bound(const struct sbp_space *space, double capacity_bytes,
                                     struct sbp_arena *arena, struct sbp_lagrangian_bound *bound)
{
    struct sbp_priced priced = {.space = space, .capacity_bytes = capacity_bytes};
    bool fits = false;
    priced.price = SBP_NEW(arena, double, space->weights->memory_stages);
    priced.used = SBP_NEW(arena, double, space->weights->memory_stages);
    if (priced.price == NULL || priced.used == NULL)
        return SBP_E_MEMORY;
    *bound =
        (struct sbp_lagrangian_bound){.least_bytes = least_bytes(space), .price = priced.price};
    bound->time_s = least_s(space, capacity_bytes, priced.used, &fits);
    bound->bound_s = bound->least_bytes > capacity_bytes * (1 + SBP_CAPACITY_ROUND_OFF)
                         ? INFINITY
                         : bound->time_s;
    if (fits || isinf(bound->bound_s))
        return SBP_OK;
    SBP_TRY(look_at_best(space, arena, &priced));
    bound->bound_s = fmax(bound->bound_s, sbp_lagrangian_set_prices(&priced));
    return SBP_OK;
}
