#include "planner/labels/label_walk.h"

#include <string.h>

#include "planner/labels/label.h"
#include "planner/pricing/pricing.h"

/* Of a hundred steps, so many begin at what the walk is focused on, and so many are of a kind; the
 * others change one role. */
enum { FOCUSED = 70, STRETCHES = 35, IMITATIONS = 4, EXCHANGES = 7, LEVELS = 7 };

static uint8_t *roles(const struct sbp_label_set *labels, int variable)
{
    return labels->role + (size_t)variable * SBP_MAX_AXES;
}

static int below(struct sbp_label_walk *w, int bound)
{
    return (int)sbp_random_below(&w->random, (uint64_t)bound);
}

/* ---- labels and choices --------------------------------------------------------------------- */

/* A choice of so many axes in each role as the labels have, at a ZeRO level; -1: the space has
 * none. */
static int find_choice(const struct sbp_label_walk *w, int variable, const uint8_t *role, int zero)
{
    const struct sbp_mesh *mesh = w->space->mesh;
    const struct sbp_space_variable *v = &w->space->variable[variable];
    uint8_t count[SBP_MAX_AXES][SBP_MAX_ROLES] = {{0}};
    for (int axis = 0; axis < mesh->axis_count; axis++)
        count[mesh->axis[axis].family][role[axis]]++;
    const size_t row = (size_t)mesh->family_count * SBP_MAX_ROLES;
    for (int c = 0; c < v->choice_count; c++)
        if (v->zero[c] == zero &&
            memcmp(sbp_space_count(w->space, variable, c, 0), count, row) == 0)
            return c;
    return -1;
}

/* The variable's role that a strategy plays on an axis; -1: none of the space. */
static int role_of(const struct sbp_label_walk *w, const struct sbp_strategy *strategy,
                   int variable, int axis)
{
    const struct sbp_space_variable *v = &w->space->variable[variable];
    for (int r = 0; r < v->role_count; r++)
        if (v->op >= 0 ? w->space->op_role[v->op][r] == strategy->op[v->op].role[axis]
                       : sbp_state_equal(v->state[r], strategy->rest[v->tensor].axis[axis]))
            return r;
    return -1;
}

/* Whether a variable's choice of a ZeRO level is what a strategy has of the weights that it decides
 * on: of its operators, and of those that follow a tensor which it lets rest. */
static bool has_level(const struct sbp_label_walk *w, const struct sbp_strategy *strategy,
                      int variable, int chosen)
{
    const struct sbp_space *space = w->space;
    for (int op = 0; op < space->graph->op_count; op++) {
        const struct sbp_op_node *node = &space->graph->op[op];
        const int level = strategy->zero[op] == SBP_ZERO_DEFAULT ? (int)space->parallel->zero
                                                                 : (int)strategy->zero[op];
        if (sbp_space_decider(space, op) == variable && node->weight_count > 0 &&
            sbp_space_zero(space, op, chosen) != level)
            return false;
    }
    return true;
}

static void copy(const struct sbp_label_walk *w, const struct sbp_label_set *from,
                 struct sbp_label_set *to)
{
    const size_t variables = (size_t)w->space->variable_count;
    memcpy(to->choice, from->choice, variables * sizeof *to->choice);
    memcpy(to->role, from->role, variables * SBP_MAX_AXES);
}

/* ---- where a walk stands --------------------------------------------------------------------- */

enum sbp_status sbp_label_walk_init(struct sbp_label_walk *w, const struct sbp_space *space,
                                    uint64_t seed, struct sbp_arena *arena)
{
    struct sbp_label_set *const both[] = {&w->now, &w->next};
    *w = (struct sbp_label_walk){.space = space};
    sbp_random_seed(&w->random, seed);
    for (int i = 0; i < 2; i++) {
        both[i]->choice = SBP_NEW(arena, int, space->variable_count + 1);
        both[i]->role = SBP_NEW(arena, uint8_t, (space->variable_count + 1) * SBP_MAX_AXES);
        if (both[i]->choice == NULL || both[i]->role == NULL)
            return SBP_E_MEMORY;
    }
    return SBP_OK;
}

static bool stand_at(struct sbp_label_walk *w, const struct sbp_strategy *strategy, int variable)
{
    int *const choice = &w->now.choice[variable];
    *choice = -1;
    for (int axis = 0; axis < w->space->mesh->axis_count; axis++) {
        const int r = role_of(w, strategy, variable, axis);
        if (r < 0)
            return false;
        roles(&w->now, variable)[axis] = (uint8_t)r;
    }
    for (int zero = 0; zero < SBP_ZERO_LEVELS && *choice < 0; zero++)
        if (has_level(w, strategy, variable, zero))
            *choice = find_choice(w, variable, roles(&w->now, variable), zero);
    return *choice >= 0;
}

bool sbp_label_walk_at(struct sbp_label_walk *w, const struct sbp_strategy *strategy)
{
    for (int v = 0; v < w->space->variable_count; v++)
        if (!stand_at(w, strategy, v))
            return false;
    copy(w, &w->now, &w->next);
    return true;
}

void sbp_label_walk_in_order(struct sbp_label_walk *w, const int *choice)
{
    memcpy(w->now.choice, choice, (size_t)w->space->variable_count * sizeof *choice);
    sbp_label_in_order(w->space, choice, w->now.role);
    copy(w, &w->now, &w->next);
}

void sbp_label_walk_end(struct sbp_label_walk *w, bool is_taken)
{
    copy(w, is_taken ? &w->next : &w->now, is_taken ? &w->now : &w->next);
}

/* ---- steps: of `next`, from `now` on; false: there is none ----------------------------------- */

/* The choice of the variable's roles at a ZeRO level; false: no choice has them, it stays. */
static bool choose(struct sbp_label_walk *w, int variable, int zero)
{
    const int choice = find_choice(w, variable, roles(&w->next, variable), zero);
    if (choice >= 0)
        w->next.choice[variable] = choice;
    return choice >= 0;
}

static int level(const struct sbp_label_walk *w, int variable)
{
    return w->space->variable[variable].zero[w->next.choice[variable]];
}

/* At the ZeRO level as before, or at another one where the space has left that out of the roles. */
static bool choose_any_level(struct sbp_label_walk *w, int variable)
{
    bool done = choose(w, variable, level(w, variable));
    for (int zero = 0; zero < SBP_ZERO_LEVELS && !done; zero++)
        done = choose(w, variable, zero);
    return done;
}

static bool play(struct sbp_label_walk *w, int variable, int axis, int role)
{
    roles(&w->next, variable)[axis] = (uint8_t)role;
    return choose_any_level(w, variable);
}

/* Another role on an axis; every other time what the operator leaves rests otherwise there, too. */
static bool change_role(struct sbp_label_walk *w, int variable, int axis)
{
    const struct sbp_space *space = w->space;
    bool done = play(w, variable, axis, below(w, space->variable[variable].role_count));
    const bool with_rest = below(w, 2) == 0;
    for (int k = 0; k < space->keep_count && with_rest && done; k++) {
        const int rest = space->keep[k].rest_variable;
        if (space->keep[k].op_variable == variable)
            done = play(w, rest, axis, below(w, space->variable[rest].role_count));
    }
    return done;
}

static bool exchange_axes(struct sbp_label_walk *w, int variable, int a, int b)
{
    uint8_t *role = roles(&w->next, variable);
    const uint8_t kept = role[a];
    role[a] = role[b];
    role[b] = kept;
    return choose_any_level(w, variable);
}

static bool change_level(struct sbp_label_walk *w, int variable)
{
    return choose(w, variable, below(w, SBP_ZERO_LEVELS));
}

/* An axis leaves a tensor in a state, by any role that does; false: none may. */
static bool leave_in(struct sbp_label_walk *w, int variable, int axis, struct sbp_state state)
{
    const struct sbp_space_variable *v = &w->space->variable[variable];
    const uint8_t was = roles(&w->next, variable)[axis];
    const int first = below(w, v->role_count);
    for (int i = 0; i < v->role_count; i++) {
        const int role = (first + i) % v->role_count;
        if (sbp_state_equal(v->state[role], state) && play(w, variable, axis, role))
            return true;
    }
    roles(&w->next, variable)[axis] = was;
    return false;
}

/* An axis leaves the tensors of a stretch of the model in one state, a variable's among them, where
 * it may: one alone would be boxed on either side of it, and what that needs hides the gain. */
static bool change_stretch(struct sbp_label_walk *w, int variable, int axis)
{
    const struct sbp_space_variable *v = &w->space->variable[variable];
    const struct sbp_state state = v->state[below(w, v->role_count)];
    int length = 1;
    while (length < w->space->variable_count && below(w, 3) != 0)
        length++;
    const int first = variable - below(w, length);
    bool done = false;
    for (int u = first > 0 ? first : 0; u < first + length && u < w->space->variable_count; u++)
        done |= leave_in(w, u, axis, state);
    return done;
}

/* An axis does everywhere what another one does, so that classes are split by it or not at once. */
static bool imitate(struct sbp_label_walk *w, int axis, int model)
{
    bool done = true;
    for (int v = 0; v < w->space->variable_count && done; v++)
        done = play(w, v, axis, roles(&w->next, v)[model]);
    return done;
}

static bool is_changed(const struct sbp_label_walk *w, int variable)
{
    return w->next.choice[variable] != w->now.choice[variable] ||
           memcmp(roles(&w->next, variable), roles(&w->now, variable), SBP_MAX_AXES) != 0;
}

bool sbp_label_walk_goes_together(const struct sbp_label_walk *w)
{
    const struct sbp_space *space = w->space;
    const int *choice = w->next.choice;
    for (int i = 0; i < space->keep_count; i++) {
        const struct sbp_keep *keep = &space->keep[i];
        if ((is_changed(w, keep->op_variable) || is_changed(w, keep->rest_variable)) &&
            !sbp_space_can_rest(space, keep, choice[keep->op_variable],
                                choice[keep->rest_variable]))
            return false;
    }
    for (int i = 0; i < space->transfer_count; i++) {
        const struct sbp_transfer *transfer = &space->transfer[i];
        if ((is_changed(w, transfer->from) || is_changed(w, transfer->to)) &&
            sbp_space_transfer_s(space, transfer, choice[transfer->from], choice[transfer->to]) >=
                SBP_FORBIDDEN)
            return false;
    }
    return true;
}

static bool stays(const struct sbp_label_walk *w)
{
    bool changed = false;
    for (int v = 0; v < w->space->variable_count && !changed; v++)
        changed = is_changed(w, v);
    return !changed;
}

static int draw_variable(struct sbp_label_walk *w)
{
    if (w->focus_count > 0 && below(w, 100) < FOCUSED)
        return w->focus[below(w, w->focus_count)];
    return below(w, w->space->variable_count);
}

static bool draw(struct sbp_label_walk *w)
{
    const int variable = draw_variable(w);
    const int axis = below(w, w->space->mesh->axis_count);
    const int other = below(w, w->space->mesh->axis_count);
    const int kind = below(w, 100);
    if (kind < STRETCHES)
        return change_stretch(w, variable, axis);
    if (kind < STRETCHES + IMITATIONS)
        return imitate(w, axis, other);
    if (kind < STRETCHES + IMITATIONS + EXCHANGES)
        return exchange_axes(w, variable, axis, other);
    if (kind < STRETCHES + IMITATIONS + EXCHANGES + LEVELS)
        return change_level(w, variable);
    return change_role(w, variable, axis);
}

bool sbp_label_walk_draw(struct sbp_label_walk *w)
{
    return draw(w) && !stays(w);
}
