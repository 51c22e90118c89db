/* Changes of many variables at once: a ball around a variable takes the best values under the
 * prices of usage, along a forest in it; then it is repaired and improved without prices.
 */
#include <math.h>

#include "planner/limits.h"
#include "planner/dual/dual_priv.h"

enum { ROOT = -1, STAYS = -2 };

enum sbp_status sbp_dual_search_init(struct sbp_dual_search *search, struct sbp_dual_state *state,
                                     const struct sbp_dual_blocks *blocks)
{
    struct sbp_dual *dual = state->dual;
    const size_t variables = (size_t)dual->variable_count, most = SBP_PROBLEM_BALL_MOST;
    *search = (struct sbp_dual_search){.state = state, .blocks = blocks};
    search->ball = SBP_NEW(&dual->arena, int, most);
    search->stamp = SBP_NEW(&dual->arena, int, variables);
    search->place = SBP_NEW(&dual->arena, int, variables);
    search->parent = SBP_NEW(&dual->arena, int, most);
    search->parent_link = SBP_NEW(&dual->arena, int, most);
    search->order = SBP_NEW(&dual->arena, int, most);
    search->local = SBP_NEW(&dual->arena, double *, most);
    search->best = SBP_NEW(&dual->arena, int *, most);
    search->repair = (struct sbp_dual_repair){
        .state = state,
        .blocks = blocks,
        .tries = SBP_PROBLEM_BALL_RELIEFS,
        .steps = SBP_PROBLEM_BALL_REPAIRS,
        .relief = SBP_NEW(&dual->arena, struct sbp_dual_relief,
                          SBP_PROBLEM_BALL_RELIEFS + SBP_PROBLEM_BALL_MOST),
        .also = search->ball};
    if (search->ball == NULL || search->stamp == NULL || search->place == NULL ||
        search->parent == NULL || search->parent_link == NULL || search->order == NULL ||
        search->local == NULL || search->best == NULL || search->repair.relief == NULL)
        return SBP_E_MEMORY;
    for (size_t i = 0; i < most; i++) {
        search->local[i] = SBP_NEW(&dual->arena, double, dual->largest_domain);
        search->best[i] = SBP_NEW(&dual->arena, int, dual->largest_domain);
        if (search->local[i] == NULL || search->best[i] == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

static bool is_inside(const struct sbp_dual_search *search, int variable)
{
    return search->stamp[variable] == search->now;
}

static void enter(struct sbp_dual_search *search, int variable)
{
    search->stamp[variable] = search->now;
    search->place[variable] = search->ball_count;
    search->parent[search->ball_count] = STAYS;
    search->ball[search->ball_count++] = variable;
}

/* --- the ball --- */

static int draw_open(struct sbp_dual *dual)
{
    return dual->open[sbp_random_below(&dual->random, (uint64_t)dual->open_count)];
}

/* Another variable that is live while one is; the same where there is none. */
static int draw_beside(struct sbp_dual_search *search, int variable)
{
    struct sbp_dual *dual = search->state->dual;
    const int begin = dual->live.begin[variable], spans = dual->live.begin[variable + 1] - begin;
    if (spans == 0)
        return variable;
    const struct sbp_span *span =
        &dual->live.span[begin + (int)sbp_random_below(&dual->random, (uint64_t)spans)];
    const int point =
        span->first + (int)sbp_random_below(&dual->random, (uint64_t)(span->last - span->first));
    const int block = point / SBP_DUAL_BLOCK_POINTS, first = search->blocks->first[block];
    const int count = search->blocks->first[block + 1] - first;
    return search->blocks->variable[first + (int)sbp_random_below(&dual->random, (uint64_t)count)];
}

/* Fills the ball with neighbours of what is in it. */
static void grow(struct sbp_dual_search *search, int size)
{
    struct sbp_dual *dual = search->state->dual;
    for (int i = 0; i < search->ball_count && search->ball_count < size; i++) {
        const int v = search->ball[i], degree = dual->first[v + 1] - dual->first[v];
        if (degree == 0)
            continue;
        const int turn = (int)sbp_random_below(&dual->random, (uint64_t)degree);
        for (int j = 0; j < degree && search->ball_count < size; j++) {
            const int other = dual->link[dual->first[v] + (turn + j) % degree].other;
            if (!is_inside(search, other) && dual->domain[other] > 1)
                enter(search, other);
        }
    }
}

static void draw_ball(struct sbp_dual_search *search)
{
    struct sbp_dual *dual = search->state->dual;
    const int size = 2 + (int)sbp_random_below(&dual->random, SBP_PROBLEM_BALL_MOST - 1);
    const int centre = draw_open(dual);
    search->now++;
    search->ball_count = 0;
    enter(search, centre);
    if (sbp_random_below(&dual->random, 2) == 0) {
        grow(search, size / 2);
        const int beside = draw_beside(search, centre);
        if (!is_inside(search, beside))
            enter(search, beside);
    }
    grow(search, size);
}

/* --- the best values along a forest --- */

/* Takes what has one neighbour in the forest at most; the rest of the ball stays as it is. */
static void plant(struct sbp_dual_search *search)
{
    const struct sbp_dual *dual = search->state->dual;
    search->order_count = 0;
    for (int z = 0; z < search->ball_count; z++) {
        const int v = search->ball[z];
        int beside = 0, at = -1;
        for (int i = dual->first[v]; i < dual->first[v + 1] && beside < 2; i++) {
            const int other = dual->link[i].other;
            if (is_inside(search, other) && search->parent[search->place[other]] != STAYS) {
                beside++;
                at = i;
            }
        }
        if (beside > 1)
            continue;
        search->parent[z] = beside == 0 ? ROOT : search->place[dual->link[at].other];
        search->parent_link[z] = at;
        search->order[search->order_count++] = z;
    }
}

/* local: priced costs beside what stays. */
static void price_locally(struct sbp_dual_search *search, int z)
{
    struct sbp_dual *dual = search->state->dual;
    const int v = search->ball[z], domain = dual->domain[v];
    double *local = search->local[z];
    for (int k = 0; k < domain; k++)
        local[k] = dual->priced[v][k];
    for (int i = dual->first[v]; i < dual->first[v + 1]; i++) {
        const struct sbp_dual_link *link = &dual->link[i];
        if (is_inside(search, link->other) && search->parent[search->place[link->other]] != STAYS)
            continue;
        const double *row =
            link->from + (size_t)search->state->choice[link->other] * (size_t)domain;
        for (int k = 0; k < domain; k++)
            local[k] += row[k];
    }
    dual->run->solution->evaluations += domain;
    dual->work += (double)domain * (1 + dual->first[v + 1] - dual->first[v]);
}

/* Adds to the parent's costs the least that the tree below costs. */
static void send_up(struct sbp_dual_search *search, int z)
{
    struct sbp_dual *dual = search->state->dual;
    const struct sbp_dual_link *link = &dual->link[search->parent_link[z]];
    const int domain = dual->domain[search->ball[z]], parents = dual->domain[link->other];
    double *above = search->local[search->parent[z]];
    const double *local = search->local[z];
    dual->work += (double)domain * parents;
    for (int l = 0; l < parents; l++) {
        const double *row = link->from + (size_t)l * (size_t)domain;
        double least = local[0] + row[0];
        int best = 0;
        for (int k = 1; k < domain; k++)
            if (local[k] + row[k] < least) {
                least = local[k] + row[k];
                best = k;
            }
        above[l] += least;
        search->best[z][l] = best;
    }
}

static void set(struct sbp_dual_search *search, int variable, int value)
{
    struct sbp_dual_state *state = search->state;
    struct sbp_dual *dual = state->dual;
    if (value == state->choice[variable])
        return;
    sbp_dual_row(dual, state->choice, variable, dual->cost[variable], dual->row);
    sbp_dual_state_move(state, variable, value,
                        dual->row[value] - dual->row[state->choice[variable]]);
}

static void optimise(struct sbp_dual_search *search)
{
    const struct sbp_dual *dual = search->state->dual;
    plant(search);
    for (int i = 0; i < search->order_count; i++)
        price_locally(search, search->order[i]);
    for (int i = search->order_count - 1; i >= 0; i--)
        if (search->parent[search->order[i]] != ROOT)
            send_up(search, search->order[i]);
    for (int i = 0; i < search->order_count; i++) {
        const int z = search->order[i], v = search->ball[z];
        int value = 0;
        if (search->parent[z] != ROOT)
            value = search->best[z][search->state->choice[search->ball[search->parent[z]]]];
        else
            for (int k = 1; k < dual->domain[v]; k++)
                if (search->local[z][k] < search->local[z][value])
                    value = k;
        set(search, v, value);
    }
}

/* --- a try --- */

static void kick(struct sbp_dual_search *search)
{
    struct sbp_dual *dual = search->state->dual;
    const int kicks = 1 + (int)sbp_random_below(&dual->random, SBP_PROBLEM_BALL_KICKS);
    for (int i = 0; i < kicks; i++) {
        const int v = search->ball[sbp_random_below(&dual->random, (uint64_t)search->ball_count)];
        set(search, v, (int)sbp_random_below(&dual->random, (uint64_t)dual->domain[v]));
    }
}

static void descend_in_ball(struct sbp_dual_search *search)
{
    bool gained = true;
    for (int sweep = 0; gained && sweep < SBP_PROBLEM_DUAL_SWEEPS; sweep++) {
        gained = false;
        for (int z = 0; z < search->ball_count; z++)
            gained |= sbp_dual_improve(search->state, search->ball[z]);
    }
}

/* Changes one ball; goes back where it costs more than before. */
static void try_ball(struct sbp_dual_search *search)
{
    struct sbp_dual_state *state = search->state;
    const double before = state->cost;
    sbp_dual_state_keep(state);
    draw_ball(search);
    kick(search);
    optimise(search);
    search->repair.also_count = search->ball_count;
    const bool fits = sbp_dual_repair_run(&search->repair);
    if (fits)
        descend_in_ball(search);
    if (!fits || state->cost > before)
        sbp_dual_state_undo(state, before);
}

bool sbp_dual_search_run(struct sbp_dual_search *search, double work)
{
    struct sbp_dual *dual = search->state->dual;
    const double end = dual->work + work;
    while (dual->open_count > 0 && dual->work < end && !dual->run->solution->stopped) {
        try_ball(search);
        (void)sbp_dual_spend(dual, 1);
    }
    sbp_dual_state_load(search->state, search->state->choice);
    sbp_dual_state_offer(search->state);
    return !dual->run->solution->stopped;
}
