/* Improves a known choice where memory binds, by moves around what the messages say.
 *
 * At good prices of memory many choices have almost the least priced cost but leave room, every
 * byte of which has its price, or exceed the capacity. A move forces one variable to one choice
 * and lets those around it follow, as the messages say, until they stay as they were: on a chain
 * the cheapest way to do so. Moves that do not touch each other add up; a knapsack of them fills
 * the room.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/bounds/message_passing_priv.h"

/* A forced choice, and the least by which it raises the priced cost. */
struct forced {
    double reduced_s;
    int variable, choice;
};

struct move {
    int count, *variable, *choice; /* (count) what changes */
    double cost_s;                 /* more than before */
    double *bytes;                 /* (memory stages) more than before */
    bool gone;                     /* taken, or touched by one that was */
};

struct polish {
    struct sbp_messages *r;
    int points, forced_count, move_count;
    struct forced *forced; /* (SBP_BOUNDS_POLISH_MOVES) those that cost least */
    struct move *move;     /* (move_count) */
    double *room;          /* (memory stages) bytes left of the capacity; negative: over it */
    int *trial;            /* (variable_count) */
    int *stamp, now;       /* (variable_count) of the walk that looked at it last */
    bool *touched;         /* (variable_count) by moves that were taken, or beside one */
};

/* ---- forced choices ------------------------------------------------------------------------- */

static double share_s(const struct sbp_messages *r, int variable, int choice)
{
    const int tuple = r->space->variable[variable].tuple[choice];
    return sbp_message_priced_s(r, variable, choice) + r->priced.beside[variable][tuple];
}

/* Inserts into a sorted list of the least, ties in order. */
static void insert(struct forced *list, int *count, int most, struct forced forced)
{
    int at = *count;
    if (*count == most && forced.reduced_s >= list[most - 1].reduced_s)
        return;
    if (*count < most)
        ++*count;
    else
        at--;
    for (; at > 0 && forced.reduced_s < list[at - 1].reduced_s; at--)
        list[at] = list[at - 1];
    list[at] = forced;
}

static int compare_forced(const void *a, const void *b)
{
    const struct forced *one = a, *two = b;
    if (one->reduced_s != two->reduced_s)
        return one->reduced_s < two->reduced_s ? -1 : 1;
    if (one->variable != two->variable)
        return one->variable < two->variable ? -1 : 1;
    return (one->choice > two->choice) - (one->choice < two->choice);
}

/* The choices of each variable that cost least over the one that it has. */
static enum sbp_status find_forced(struct polish *p, double gap_s)
{
    struct sbp_messages *r = p->r;
    const int variables = r->space->variable_count;
    struct forced *all =
        SBP_TAKE(&r->scratch, struct forced, (size_t)variables * SBP_BOUNDS_POLISH_EACH);
    int total = 0;
    if (all == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++) {
        int count = 0;
        const double own_s = share_s(r, v, r->choice[v]);
        for (int i = 0; i < r->priced.count[v]; i++) {
            const int c = r->priced.choice[v][i];
            const double reduced_s = share_s(r, v, c) - own_s;
            if (c != r->choice[v] && reduced_s < gap_s)
                insert(all + total, &count, SBP_BOUNDS_POLISH_EACH,
                       (struct forced){.reduced_s = reduced_s, .variable = v, .choice = c});
        }
        total += count;
    }
    qsort(all, (size_t)total, sizeof *all, compare_forced);
    p->forced = all;
    p->forced_count = total < SBP_BOUNDS_POLISH_MOVES ? total : SBP_BOUNDS_POLISH_MOVES;
    return SBP_OK;
}

/* ---- followers of a forced choice ----------------------------------------------------------- */

/* A tuple's cost beside the variables that the walk has visited, and by the messages of the
 * others. */
static double follow_s(const struct polish *p, int variable, int tuple)
{
    const struct sbp_messages *r = p->r;
    const struct sbp_space *space = r->space;
    double seconds = r->loop[variable] == NULL ? 0 : r->loop[variable][tuple];
    for (int i = r->first[variable]; i < r->first[variable + 1]; i++) {
        const struct sbp_incident *incident = &r->incident[i];
        if (p->stamp[incident->other] != p->now) {
            seconds += sbp_message_into(r, incident, false)[tuple];
            continue;
        }
        const int other = space->variable[incident->other].tuple[p->trial[incident->other]];
        seconds += sbp_message_pair_s(r, incident, tuple, other);
    }
    return seconds;
}

/* The variable's best choice beside the walk's changes; its present choice wins ties. */
static int follow(const struct polish *p, int variable)
{
    const struct sbp_messages *r = p->r;
    const struct sbp_space_variable *v = &r->space->variable[variable];
    const struct sbp_tuples *tuples = &r->tuples[variable];
    const int own = r->choice[variable], own_tuple = v->tuple[own];
    double least_s = sbp_message_priced_s(r, variable, own) + follow_s(p, variable, own_tuple);
    int best_tuple = -1, best = own;
    least_s -= SBP_PRICING_ROUND_OFF * fabs(least_s);
    for (int i = 0; i < tuples->count; i++) {
        const int t = tuples->tuple[i];
        if (r->least[variable][t] >= least_s)
            continue;
        const double seconds = r->least[variable][t] + follow_s(p, variable, t);
        if (seconds < least_s) {
            least_s = seconds;
            best_tuple = t;
        }
    }
    if (best_tuple < 0)
        return own;
    double least_own_s = INFINITY;
    for (int i = 0; i < r->priced.count[variable]; i++) {
        const int c = r->priced.choice[variable][i];
        const double seconds =
            v->tuple[c] == best_tuple ? sbp_message_priced_s(r, variable, c) : INFINITY;
        if (seconds < least_own_s) {
            least_own_s = seconds;
            best = c;
        }
    }
    return best;
}

/* The cost of a move's edges after it less before; an edge between two changed variables counts
 * once. */
static double edges_s(const struct polish *p, const struct move *move)
{
    const struct sbp_messages *r = p->r;
    double seconds = 0;
    for (int k = 0; k < move->count; k++) {
        const int v = move->variable[k];
        const int *tuple = r->space->variable[v].tuple;
        const int before = tuple[r->choice[v]], after = tuple[p->trial[v]];
        if (r->loop[v] != NULL)
            seconds += r->loop[v][after] - r->loop[v][before];
        for (int i = r->first[v]; i < r->first[v + 1]; i++) {
            const struct sbp_incident *incident = &r->incident[i];
            const int u = incident->other, *other = r->space->variable[u].tuple;
            const int u_before = other[r->choice[u]], u_after = other[p->trial[u]];
            if (p->trial[u] != r->choice[u] && u < v)
                continue;
            const double price = sbp_message_pair_s(r, incident, after, u_after);
            if (price >= SBP_FORBIDDEN)
                return INFINITY;
            seconds += price - sbp_message_pair_s(r, incident, before, u_before);
        }
    }
    return seconds;
}

/* Prices the changes on trial and takes them back. */
static void price_move(struct polish *p, struct move *move)
{
    const struct sbp_messages *r = p->r;
    move->cost_s = edges_s(p, move);
    for (int k = 0; k < move->count; k++) {
        const int v = move->variable[k], before = r->choice[v], after = p->trial[v];
        const double *cost_s = r->space->variable[v].cost_s;
        move->cost_s += cost_s[after] - cost_s[before];
        for (int point = 0; point < p->points; point++)
            move->bytes[point] += sbp_space_unary_bytes(r->space, v, after, point) -
                                  sbp_space_unary_bytes(r->space, v, before, point);
    }
    for (int k = 0; k < move->count; k++) {
        move->choice[k] = p->trial[move->variable[k]];
        p->trial[move->variable[k]] = r->choice[move->variable[k]];
    }
}

/* Walks from a forced choice as far as others follow; move->count is 0 where that is too far. */
static enum sbp_status walk(struct polish *p, const struct forced *forced, struct move *move)
{
    struct sbp_messages *r = p->r;
    int changed[SBP_BOUNDS_POLISH_CHANGES] = {forced->variable};
    bool is_too_far = false;
    *move = (struct move){.count = 1};
    p->stamp[forced->variable] = ++p->now;
    p->trial[forced->variable] = forced->choice;
    for (int k = 0; k < move->count && !is_too_far; k++)
        for (int i = r->first[changed[k]]; i < r->first[changed[k] + 1]; i++) {
            const int u = r->incident[i].other;
            if (p->stamp[u] == p->now)
                continue;
            const int choice = follow(p, u);
            p->stamp[u] = p->now;
            is_too_far |= choice != r->choice[u] && move->count == SBP_BOUNDS_POLISH_CHANGES;
            if (choice == r->choice[u] || is_too_far)
                continue;
            p->trial[u] = choice;
            changed[move->count++] = u;
        }
    move->variable = SBP_TAKE(&r->scratch, int, move->count);
    move->choice = SBP_TAKE(&r->scratch, int, move->count);
    move->bytes = SBP_NEW(&r->scratch, double, p->points);
    if (move->variable == NULL || move->choice == NULL || move->bytes == NULL)
        return SBP_E_MEMORY;
    memcpy(move->variable, changed, (size_t)move->count * sizeof *changed);
    price_move(p, move);
    if (is_too_far)
        move->count = 0;
    return SBP_OK;
}

static enum sbp_status find_moves(struct polish *p)
{
    p->move = SBP_TAKE(&p->r->scratch, struct move, p->forced_count);
    p->move_count = 0;
    if (p->move == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < p->forced_count; i++) {
        struct move *move = &p->move[p->move_count];
        SBP_TRY(walk(p, &p->forced[i], move));
        p->r->out->evaluations++;
        p->move_count += move->count > 0 && isfinite(move->cost_s);
    }
    return SBP_OK;
}

/* ---- the knapsack --------------------------------------------------------------------------- */

static bool fits(const struct polish *p, const struct move *a, const struct move *b)
{
    for (int point = 0; point < p->points; point++)
        if (a->bytes[point] + (b == NULL ? 0 : b->bytes[point]) > p->room[point])
            return false;
    return true;
}

/* Bytes over the room, in all memory stages together. */
static double over_bytes(const struct polish *p, const struct move *move)
{
    double over = 0;
    for (int point = 0; point < p->points; point++)
        over += fmax(0, (move == NULL ? 0 : move->bytes[point]) - p->room[point]);
    return over;
}

static bool is_free(const struct polish *p, const struct move *move)
{
    for (int k = 0; k < move->count; k++)
        if (p->touched[move->variable[k]])
            return false;
    return true;
}

/* Marks the variables that a move changes and their neighbours. */
static void touch(const struct polish *p, const struct move *move, bool mark)
{
    const struct sbp_messages *r = p->r;
    for (int k = 0; k < move->count; k++) {
        p->touched[move->variable[k]] = mark;
        for (int i = r->first[move->variable[k]]; i < r->first[move->variable[k] + 1]; i++)
            p->touched[r->incident[i].other] = mark;
    }
}

static bool stand_apart(const struct polish *p, const struct move *a, const struct move *b)
{
    touch(p, a, true);
    const bool apart = is_free(p, b);
    touch(p, a, false);
    return apart;
}

static void take(struct polish *p, struct move *move)
{
    for (int k = 0; k < move->count; k++)
        p->r->choice[move->variable[k]] = p->trial[move->variable[k]] = move->choice[k];
    for (int point = 0; point < p->points; point++)
        p->room[point] -= move->bytes[point];
    touch(p, move, true);
    for (int i = 0; i < p->move_count; i++)
        p->move[i].gone |= !is_free(p, &p->move[i]);
    touch(p, move, false);
}

/* Takes moves that cost least for each byte over the capacity until nothing is over. */
static bool repair(struct polish *p)
{
    for (double over = over_bytes(p, NULL); over > 0; over = over_bytes(p, NULL)) {
        struct move *best = NULL;
        double least = INFINITY;
        for (int i = 0; i < p->move_count; i++) {
            const double gain = over - over_bytes(p, &p->move[i]);
            if (p->move[i].gone || gain <= 0 || p->move[i].cost_s / gain >= least)
                continue;
            least = p->move[i].cost_s / gain;
            best = &p->move[i];
        }
        if (best == NULL)
            return false;
        take(p, best);
    }
    return true;
}

/* Takes the move or pair of moves that fits and saves most. */
static bool improve(struct polish *p)
{
    struct move *best[2] = {NULL, NULL};
    double least = 0;
    for (int i = 0; i < p->move_count; i++) {
        struct move *one = &p->move[i];
        if (one->gone)
            continue;
        if (one->cost_s < least && fits(p, one, NULL)) {
            least = one->cost_s;
            best[0] = one;
            best[1] = NULL;
        }
        for (int k = i + 1; k < p->move_count; k++) {
            struct move *two = &p->move[k];
            if (two->gone || one->cost_s + two->cost_s >= least || !fits(p, one, two) ||
                !stand_apart(p, one, two))
                continue;
            least = one->cost_s + two->cost_s;
            best[0] = one;
            best[1] = two;
        }
    }
    if (best[0] == NULL || least > -SBP_PRICING_ROUND_OFF * fabs(p->r->out->lower_s))
        return false;
    take(p, best[0]);
    if (best[1] != NULL)
        take(p, best[1]);
    return true;
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void find_room(struct polish *p)
{
    const struct sbp_messages *r = p->r;
    for (int point = 0; point < p->points; point++) {
        p->room[point] = r->priced.capacity_bytes - sbp_pricing_constant_bytes(r->space, point);
        for (int v = 0; v < r->space->variable_count; v++)
            p->room[point] -= sbp_space_unary_bytes(r->space, v, r->choice[v], point);
    }
}

/* Moves r->choice into the capacity and improves it; *moved: it has changed. */
static enum sbp_status polish_once(struct polish *p, double gap_s, bool *moved)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(&p->r->scratch);
    memcpy(p->trial, p->r->choice, (size_t)p->r->space->variable_count * sizeof *p->trial);
    find_room(p);
    enum sbp_status status = find_forced(p, gap_s);
    if (status == SBP_OK)
        status = find_moves(p);
    *moved = false;
    if (status == SBP_OK && over_bytes(p, NULL) > 0)
        *moved = repair(p);
    while (status == SBP_OK && !(over_bytes(p, NULL) > 0) && improve(p))
        *moved = true;
    sbp_arena_release(&p->r->scratch, mark);
    return status;
}

enum sbp_status sbp_primal_polish(struct sbp_messages *r)
{
    const int variables = r->space->variable_count;
    const struct sbp_arena_mark mark = sbp_arena_mark(&r->scratch);
    struct polish p = {.r = r,
                       .points = r->space->weights->memory_stages,
                       .room = SBP_NEW(&r->scratch, double, r->space->weights->memory_stages),
                       .trial = SBP_NEW(&r->scratch, int, variables),
                       .stamp = SBP_NEW(&r->scratch, int, variables),
                       .touched = SBP_NEW(&r->scratch, bool, variables)};
    if (p.room == NULL || p.trial == NULL || p.stamp == NULL || p.touched == NULL)
        return SBP_E_MEMORY;
    enum sbp_status status = SBP_OK;
    bool moved = true;
    for (int round = 0; round < SBP_BOUNDS_POLISH_ROUNDS && moved && status == SBP_OK; round++) {
        const double gap_s = r->out->upper_s - r->out->lower_s;
        status = polish_once(&p, isfinite(gap_s) ? gap_s : fabs(r->out->lower_s), &moved);
        if (status == SBP_OK && moved)
            sbp_primal_offer(r);
    }
    sbp_arena_release(&r->scratch, mark);
    return status;
}
