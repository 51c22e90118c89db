#include <math.h>
#include <stdlib.h>

#include "planner/limits.h"
#include "planner/dual/dual_priv.h"

/* --- blocks of points --- */

/* Calls for every block that a variable is live in, once: counts it or enters it. */
static void note_blocks(const struct sbp_dual *dual, int variable, int *count, int *entry)
{
    int last = -1;
    for (int s = dual->live.begin[variable]; s < dual->live.begin[variable + 1]; s++) {
        const struct sbp_span *span = &dual->live.span[s];
        for (int b = span->first / SBP_DUAL_BLOCK_POINTS;
             b <= (span->last - 1) / SBP_DUAL_BLOCK_POINTS; b++) {
            if (b <= last)
                continue;
            last = b;
            if (entry != NULL)
                entry[count[b]] = variable;
            count[b]++;
        }
    }
}

enum sbp_status sbp_dual_blocks_make(struct sbp_dual *dual, struct sbp_dual_blocks *blocks)
{
    const int count = dual->point_count / SBP_DUAL_BLOCK_POINTS + 1;
    int *next = SBP_NEW(&dual->arena, int, (size_t)count + 1);
    blocks->first = SBP_NEW(&dual->arena, int, (size_t)count + 1);
    if (next == NULL || blocks->first == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < dual->open_count; i++)
        note_blocks(dual, dual->open[i], next, NULL);
    for (int b = 0; b < count; b++) {
        blocks->first[b + 1] = blocks->first[b] + next[b];
        next[b] = blocks->first[b];
    }
    blocks->variable = SBP_NEW(&dual->arena, int, blocks->first[count]);
    if (blocks->variable == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < dual->open_count; i++)
        note_blocks(dual, dual->open[i], next, blocks->variable);
    return SBP_OK;
}

/* --- repair --- */

/* The usages of a variable's values at a point; NULL: it is not live then. */
static const double *usage_at(const struct sbp_dual *dual, int variable, int point)
{
    int low = dual->live.begin[variable], high = dual->live.begin[variable + 1];
    while (low < high) {
        const int middle = (low + high) / 2;
        const struct sbp_span *span = &dual->live.span[middle];
        if (point < span->first)
            high = middle;
        else if (point >= span->last)
            low = middle + 1;
        else
            return span->usage;
    }
    return NULL;
}

/* The variable's best change that relieves the point. False: it has none. */
static bool find_relief(struct sbp_dual_state *state, int variable, int point,
                        struct sbp_dual_relief *relief)
{
    struct sbp_dual *dual = state->dual;
    const double *usage = usage_at(dual, variable, point);
    const int old = state->choice[variable];
    const double excess = state->most[1] - dual->limit;
    *relief = (struct sbp_dual_relief){INFINITY, variable, -1};
    if (usage == NULL || !(usage[old] > 0))
        return false;
    sbp_dual_row(dual, state->choice, variable, dual->cost[variable], dual->row);
    dual->run->solution->evaluations += dual->domain[variable];
    for (int k = 0; k < dual->domain[variable]; k++) {
        const double less = usage[old] - usage[k], rise = dual->row[k] - dual->row[old];
        if (!(less > 0))
            continue;
        const double score = rise / (rise > 0 && less > excess ? excess : less);
        if (score < relief->score && sbp_dual_state_admits(state, variable, k)) {
            relief->score = score;
            relief->value = k;
        }
    }
    return relief->value >= 0;
}

static int compare_reliefs(const void *left, const void *right)
{
    const struct sbp_dual_relief *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    return (a->variable > b->variable) - (a->variable < b->variable);
}

static int list_reliefs(struct sbp_dual_repair *repair, int point)
{
    struct sbp_dual *dual = repair->state->dual;
    const int block = point / SBP_DUAL_BLOCK_POINTS;
    const int *live = repair->blocks->variable + repair->blocks->first[block];
    const int count = repair->blocks->first[block + 1] - repair->blocks->first[block];
    const bool draws = repair->tries > 0 && repair->tries < count;
    int found = 0;
    for (int i = 0; i < (draws ? repair->tries : count); i++) {
        const int at = draws ? (int)sbp_random_below(&dual->random, (uint64_t)count) : i;
        found += find_relief(repair->state, live[at], point, &repair->relief[found]);
    }
    for (int i = 0; draws && i < repair->also_count; i++)
        found += find_relief(repair->state, repair->also[i], point, &repair->relief[found]);
    qsort(repair->relief, (size_t)found, sizeof *repair->relief, compare_reliefs);
    return found;
}

/* Relieves the fullest point. */
static bool relieve(struct sbp_dual_repair *repair)
{
    struct sbp_dual_state *state = repair->state;
    struct sbp_dual *dual = state->dual;
    const int point = sbp_dual_state_fullest(state), found = list_reliefs(repair, point);
    bool moved = false;
    for (int i = 0; i < found; i++) {
        struct sbp_dual_relief now;
        if (sbp_dual_state_most(state, point, point + 1) <= dual->limit)
            break;
        if (!find_relief(state, repair->relief[i].variable, point, &now))
            continue;
        sbp_dual_state_move(state, now.variable, now.value,
                            dual->row[now.value] - dual->row[state->choice[now.variable]]);
        moved = true;
    }
    return moved;
}

bool sbp_dual_repair_run(struct sbp_dual_repair *repair)
{
    for (int step = 0; !sbp_dual_state_fits(repair->state); step++)
        if ((repair->steps > 0 && step == repair->steps) ||
            sbp_dual_spend(repair->state->dual, 1) || !relieve(repair))
            return false;
    return true;
}

/* --- descent --- */

static bool is_less(double now, double old)
{
    return old - now > SBP_PROBLEM_LEAST_GAIN * (fabs(old) + fabs(now));
}

bool sbp_dual_improve(struct sbp_dual_state *state, int variable)
{
    struct sbp_dual *dual = state->dual;
    double *row = dual->row;
    const int domain = dual->domain[variable], old = state->choice[variable];
    sbp_dual_row(dual, state->choice, variable, dual->cost[variable], row);
    dual->run->solution->evaluations += domain;
    const double before = row[old];
    for (;;) {
        int best = old;
        for (int k = 0; k < domain; k++)
            if (row[k] < row[best])
                best = k;
        if (best == old || !is_less(row[best], before))
            return false;
        if (sbp_dual_state_admits(state, variable, best)) {
            sbp_dual_state_move(state, variable, best, row[best] - before);
            return true;
        }
        row[best] = INFINITY;
    }
}

static void shuffle_open(struct sbp_dual *dual)
{
    for (int i = dual->open_count - 1; i > 0; i--) {
        const int j = (int)sbp_random_below(&dual->random, (uint64_t)i + 1);
        const int moved = dual->open[i];
        dual->open[i] = dual->open[j];
        dual->open[j] = moved;
    }
}

bool sbp_dual_descend(struct sbp_dual_state *state)
{
    struct sbp_dual *dual = state->dual;
    bool gained = true;
    while (gained) {
        gained = false;
        shuffle_open(dual);
        for (int i = 0; i < dual->open_count; i++) {
            if (sbp_dual_spend(dual, 0))
                return false;
            gained |= sbp_dual_improve(state, dual->open[i]);
        }
    }
    return true;
}
