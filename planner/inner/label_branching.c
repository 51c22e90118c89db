#include "planner/inner/label_branching_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "planner/bounds/message_passing.h"
#include "planner/labels/label.h"
#include "planner/limits.h"
#include "planner/pricing/edge_kinds.h"
#include "planner/pricing/working_set.h"
#include "planner/space/domain_build.h"
#include "planner/space/space_table.h"

/* A part of the space: the choices that it bans, and the cheapest choice that is left. */
struct part {
    double bound_s;
    uint8_t *banned; /* (all choices of all variables) */
    int *choice;     /* (variable) */
};

struct branching {
    struct sbp_label_branching *out;
    struct sbp_diag *diag;
    struct sbp_cut labelled;       /* the cut on a mesh whose axes are families of their own */
    struct sbp_space whole, space; /* space: the choices of which a better plan can be made */
    struct sbp_arena arena;
    struct sbp_problem problem;
    struct sbp_working working;
    int *left;       /* (all choices) scratch: of each variable, those of a part */
    int *left_count; /* (variable) */
    int *first;      /* (variable) where its choices begin */
    sbp_axes *split; /* (all choices, classes) axes that a choice splits a class by */
    int choices;
    struct part *heap; /* least bound first */
    int part_count;
    int64_t solved, work;
    bool exhausted; /* the budget is spent: parts were dropped */
};

/* ---- the labelled space --------------------------------------------------------------------- */

static void single_families(struct sbp_mesh *mesh)
{
    mesh->family_count = mesh->axis_count;
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        mesh->family[axis] = (struct sbp_family){.level = mesh->axis[axis].level,
                                                 .first = axis,
                                                 .count = 1,
                                                 .prime = mesh->axis[axis].size};
        mesh->axis[axis].family = axis;
    }
}

/* Whether the labelled space bounds the unlabelled one. Repeats share labels here, which the space
 * does not ask for: where axes trade places, no bound follows. */
static bool bounds_space(const struct sbp_cut *cut)
{
    bool repeats = false, interchangeable = false;
    for (int op = 0; op < cut->graph.op_count; op++)
        repeats |= cut->graph.op[op].repeats > 1;
    for (int f = 0; f < cut->mesh.family_count; f++)
        interchangeable |= cut->mesh.family[f].count > 1;
    return !repeats || !interchangeable;
}

static int role_on(const struct branching *b, int variable, int choice, int axis)
{
    const uint8_t *count = sbp_space_count(&b->space, variable, choice, axis);
    int role = 0;
    while (role < b->space.variable[variable].role_count - 1 && count[role] == 0)
        role++;
    return role;
}

static void note(struct branching *b, sbp_axes *split, int tensor, struct sbp_state state, int axis)
{
    if (state.kind != SBP_SPLIT)
        return;
    const int dim_class = b->space.graph->tensor[tensor].shape.dim_class[state.dim];
    if (dim_class != SBP_NO_CLASS)
        split[dim_class] |= (sbp_axes)1 << axis;
}

/* Notes the axes by which a choice splits each class, through the operators and tensors that it
 * decides. */
static void note_splits(struct branching *b, int variable, int choice, sbp_axes *split)
{
    const struct sbp_space *space = &b->space;
    const struct sbp_graph *graph = space->graph;
    for (int axis = 0; axis < space->mesh->axis_count; axis++) {
        const int own = role_on(b, variable, choice, axis);
        for (int op = 0; op < graph->op_count; op++) {
            const struct sbp_op_node *node = &graph->op[op];
            if (space->op_variable[op] != variable)
                continue;
            const struct sbp_role *role = &node->entry->role[space->op_role[op][own]];
            for (int i = 0; i < node->input_count; i++)
                note(b, split, node->input[i], role->input[i], axis);
            for (int w = 0; w < node->weight_count && !node->transposed_weight; w++)
                note(b, split, node->weight[w], role->weight[w], axis);
            note(b, split, node->output, role->output, axis);
        }
        for (int t = 0; t < graph->tensor_count; t++)
            if (space->slot[t] == variable)
                note(b, split, t, space->variable[variable].state[own], axis);
    }
}

static enum sbp_status tabulate(struct branching *b)
{
    struct sbp_arena *arena = &b->arena;
    const int variables = b->space.variable_count;
    const size_t classes = (size_t)b->space.graph->class_count;
    b->first = SBP_NEW(arena, int, variables + 1);
    if (b->first == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++)
        b->first[v + 1] = b->first[v] + b->space.variable[v].choice_count;
    b->choices = b->first[variables];
    b->left = SBP_NEW(arena, int, b->choices);
    b->left_count = SBP_NEW(arena, int, variables);
    b->split = SBP_NEW(arena, sbp_axes, (size_t)b->choices * classes);
    b->heap = SBP_NEW(arena, struct part, SBP_INNER_BRANCH_PARTS);
    if (b->left == NULL || b->left_count == NULL || b->split == NULL || b->heap == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < variables; v++)
        for (int c = 0; c < b->space.variable[v].choice_count; c++)
            note_splits(b, v, c, b->split + (size_t)(b->first[v] + c) * classes);
    return SBP_OK;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void swap_parts(struct part *a, struct part *b)
{
    const struct part kept = *a;
    *a = *b;
    *b = kept;
}

static void push(struct branching *b, const struct part *part)
{
    int at = b->part_count++;
    b->heap[at] = *part;
    for (; at > 0 && b->heap[at].bound_s < b->heap[(at - 1) / 2].bound_s; at = (at - 1) / 2)
        swap_parts(&b->heap[at], &b->heap[(at - 1) / 2]);
}

static struct part pop(struct branching *b)
{
    const struct part least = b->heap[0];
    b->heap[0] = b->heap[--b->part_count];
    for (int at = 0;;) {
        int child = 2 * at + 1;
        if (child + 1 < b->part_count && b->heap[child + 1].bound_s < b->heap[child].bound_s)
            child++;
        if (child >= b->part_count || b->heap[child].bound_s >= b->heap[at].bound_s)
            return least;
        swap_parts(&b->heap[child], &b->heap[at]);
        at = child;
    }
}

static void free_part(struct part *part)
{
    free(part->banned);
    free(part->choice);
}

/* Whether every variable has a choice left. */
static bool has_choices(const struct branching *b, const uint8_t *banned)
{
    for (int v = 0; v < b->space.variable_count; v++) {
        bool left = false;
        for (int i = b->first[v]; i < b->first[v + 1] && !left; i++)
            left = banned[i] == 0;
        if (!left)
            return false;
    }
    return true;
}

static void tell_progress(const struct branching *b)
{
    const struct sbp_solver_options *options = &b->out->request->asked.solver_options;
    if (options->progress != NULL)
        options->progress(options->progress_context, b->out->evaluations, b->out->best_s,
                          sbp_clock_s() - b->out->start_s);
}

/* Copies the costs and usages of the values of a variable that are left. */
static enum sbp_status copy_left(const struct branching *b, int variable, struct sbp_problem *copy)
{
    const struct sbp_variable *from = &b->problem.variable[variable];
    const int *left = &b->left[b->first[variable]], count = b->left_count[variable];
    if (sbp_problem_add_variable(copy, from->name, count, from->interval_count, from->interval) < 0)
        return SBP_E_MEMORY;
    const struct sbp_variable *to = &copy->variable[variable];
    for (int k = 0; k < count; k++) {
        to->cost[k] = from->cost[left[k]];
        for (int i = 0; i < from->interval_count; i++)
            to->usage[i * count + k] = from->usage[i * from->domain + left[k]];
    }
    return SBP_OK;
}

static enum sbp_status copy_edge(const struct branching *b, const struct sbp_edge *from,
                                 struct sbp_problem *copy)
{
    const int *rows = &b->left[b->first[from->a]], *columns = &b->left[b->first[from->b]];
    const int domain = b->problem.variable[from->b].domain;
    bool transposed; /* never: each pair has one edge */
    double *table = sbp_problem_edge_table(copy, from->a, from->b, &transposed);
    if (table == NULL)
        return SBP_E_MEMORY;
    for (int r = 0; r < b->left_count[from->a]; r++)
        for (int c = 0; c < b->left_count[from->b]; c++)
            *table++ = from->cost[(size_t)rows[r] * (size_t)domain + (size_t)columns[c]];
    return SBP_OK;
}

/* Makes the problem of the choices that are not banned, whose tables are smaller. */
static enum sbp_status make_part(struct branching *b, const uint8_t *banned,
                                 struct sbp_problem *part)
{
    SBP_TRY(sbp_problem_init_within(part, b->problem.variable_count, b->problem.edge_count,
                                    b->problem.arena.budget));
    part->capacity = b->problem.capacity;
    for (int v = 0; v < b->problem.variable_count; v++) {
        b->left_count[v] = 0;
        for (int i = b->first[v]; i < b->first[v + 1]; i++)
            if (banned[i] == 0)
                b->left[b->first[v] + b->left_count[v]++] = i - b->first[v];
        SBP_TRY(copy_left(b, v, part));
    }
    for (int e = 0; e < b->problem.edge_count; e++)
        SBP_TRY(copy_edge(b, &b->problem.edge[e], part));
    return SBP_OK;
}

static enum sbp_status solve(struct branching *b, const uint8_t *banned,
                             struct sbp_solution *solution)
{
    struct sbp_solver_options options = b->out->request->asked.solver_options;
    struct sbp_problem part = {0};
    if (options.time_limit_s > 0)
        options.time_limit_s = fmax(1e-9, options.time_limit_s - (sbp_clock_s() - b->out->start_s));
    options.max_evaluations = b->work < SBP_INNER_BRANCH_WORK ? SBP_INNER_BRANCH_WORK - b->work : 1;
    options.progress = NULL; /* solves are short: add_part reports them together */
    b->solved++;
    enum sbp_status status = make_part(b, banned, &part);
    if (status == SBP_OK)
        status = sbp_solver_find("exact")->solve(&part, &options, solution, b->diag);
    for (int v = 0; status == SBP_OK && solution->choice != NULL && v < part.variable_count; v++)
        solution->choice[v] = b->left[b->first[v] + solution->choice[v]];
    sbp_problem_free(&part);
    return status;
}

/* Bans what cannot fit while operators work; false where the space is empty then. The capacity of
 * the tables knows less of memory, and with misfits gone the cheapest choice mostly fits at once.
 * Parts keep the bans of the space. Where many choices of many operators are left, looking at them
 * would take the work of branching itself. */
static bool keep_fitting(struct branching *b, uint8_t *banned)
{
    const int64_t work =
        (int64_t)b->choices * b->space.graph->op_count * b->space.weights->memory_stages;
    if (isinf(b->out->capacity_bytes) || work > SBP_INNER_BAN_WORK)
        return true;
    b->work += work;
    return sbp_working_ban(&b->working, b->out->capacity_bytes * (1 + SBP_INNER_ROUND_OFF),
                           b->first, banned);
}

/* Solves a part and puts it on the heap, unless it is empty or its bound reaches the best plan.
 * least_s: bound of the part that it was divided from, which holds where the budget cuts the solve
 * short. */
static enum sbp_status add_part(struct branching *b, const uint8_t *banned, double least_s)
{
    if (!has_choices(b, banned))
        return SBP_OK;
    if (b->part_count == SBP_INNER_BRANCH_PARTS || b->work >= SBP_INNER_BRANCH_WORK ||
        b->out->stopped) {
        b->exhausted = true;
        return SBP_OK;
    }
    struct sbp_solution solution = {0};
    enum sbp_status status = solve(b, banned, &solution);
    if (status == SBP_OK) {
        b->out->evaluations += solution.evaluations;
        b->work += solution.evaluations + SBP_INNER_WORK_PER_SOLVE;
        b->out->stopped |= solution.stopped && b->work < SBP_INNER_BRANCH_WORK;
        b->exhausted |= solution.stopped;
        tell_progress(b);
    }
    if (status == SBP_OK && solution.choice != NULL && solution.cost < SBP_FORBIDDEN &&
        solution.cost < b->out->best_s * (1 - SBP_INNER_ROUND_OFF)) {
        const struct part part = {
            .bound_s = fmax(least_s, solution.stopped ? solution.lower_bound : solution.cost),
            .banned = malloc((size_t)b->choices),
            .choice = malloc((size_t)b->space.variable_count * sizeof(int))};
        if (part.banned == NULL || part.choice == NULL) {
            free(part.banned);
            free(part.choice);
            status = SBP_E_MEMORY;
        } else {
            memcpy(part.banned, banned, (size_t)b->choices);
            memcpy(part.choice, solution.choice,
                   (size_t)b->space.variable_count * sizeof *part.choice);
            push(b, &part);
        }
    }
    sbp_solver_solution_free(&solution);
    return status;
}

/* ---- the unlabelled space -------------------------------------------------------------------- */

/* Number of axes of a family, of the unlabelled mesh, on which an edge's tensor is partial, less
 * those on which its reader takes partial sums. */
static int unread_sums(const struct branching *b, const struct sbp_input_edge *edge,
                       const int *choice, const struct sbp_family *family)
{
    const struct sbp_edge_ends pair = sbp_edge_of_input(&b->space, edge);
    int unread = 0;
    for (int axis = family->first; axis < family->first + family->count; axis++) {
        const int left = role_on(b, edge->from, choice[edge->from], axis);
        const int read = role_on(b, edge->to, choice[edge->to], axis);
        unread += pair.from.state[left].kind == SBP_PARTIAL;
        unread -= pair.to.state[read].kind == SBP_PARTIAL;
    }
    return unread;
}

/* Whether the unlabelled space holds a choice: unless it is open, a tensor at rest in partial sums
 * must be read so (planner/pricing/edge_kinds.c), on that axis or, where axes trade places, on
 * another of its family. */
static bool reads_sums(const struct branching *b, const int *choice)
{
    const struct sbp_mesh *mesh = &b->out->cut->mesh;
    for (int i = 0; i < b->space.input_edge_count && !b->space.is_open; i++)
        for (int f = 0; f < mesh->family_count; f++) {
            const struct sbp_input_edge *edge = &b->space.input_edge[i];
            if (sbp_space_rest_fix(&b->space, edge->from) == NULL &&
                unread_sums(b, edge, choice, &mesh->family[f]) > 0)
                return false;
        }
    return true;
}

/* ---- dividing a part ------------------------------------------------------------------------ */

static bool class_divides(const struct branching *b, int dim_class, sbp_axes axes)
{
    return b->space.graph->dim_class[dim_class].size % sbp_mesh_group_size(b->space.mesh, axes) ==
           0;
}

/* Whether a set of axes divides a class and no larger set does: every legal strategy lies within
 * such a set. */
static bool is_largest(const struct branching *b, int dim_class, sbp_axes axes)
{
    bool largest = class_divides(b, dim_class, axes);
    for (int axis = 0; axis < b->space.mesh->axis_count; axis++) {
        const sbp_axes more = axes | (sbp_axes)1 << axis;
        largest &= more == axes || !class_divides(b, dim_class, more);
    }
    return largest;
}

static enum sbp_status divide_by_class(struct branching *b, const struct part *part, int dim_class,
                                       uint8_t *banned)
{
    const size_t classes = (size_t)b->space.graph->class_count;
    for (sbp_axes axes = 0; axes >> b->space.mesh->axis_count == 0; axes++) {
        if (!is_largest(b, dim_class, axes))
            continue;
        for (int i = 0; i < b->choices; i++)
            banned[i] = part->banned[i] != 0 ||
                        (b->split[(size_t)i * classes + (size_t)dim_class] & ~axes) != 0;
        SBP_TRY(add_part(b, banned, part->bound_s));
    }
    return SBP_OK;
}

/* Divides a part by its choice (Lawler, 1972): in the i-th new part the first i variables keep
 * their choices and variable i takes another. */
static enum sbp_status divide_by_choice(struct branching *b, const struct part *part,
                                        uint8_t *banned)
{
    memcpy(banned, part->banned, (size_t)b->choices);
    for (int v = 0; v < b->space.variable_count; v++) {
        const int chosen = b->first[v] + part->choice[v];
        banned[chosen] = 1;
        SBP_TRY(add_part(b, banned, part->bound_s));
        for (int i = b->first[v]; i < b->first[v + 1]; i++)
            banned[i] = i != chosen;
    }
    return SBP_OK;
}

/* Labels, compiles and prices a part's choice; divides the part unless that plan reaches its bound.
 */
static enum sbp_status look_at(struct branching *b, const struct part *part, uint8_t *banned)
{
    struct sbp_labelling labelling;
    b->work += SBP_INNER_WORK_PER_OPERATOR * b->space.graph->op_count;
    if (!reads_sums(b, part->choice))
        return divide_by_choice(b, part, banned);
    SBP_TRY(sbp_label(&b->space, part->choice, 0, b->out->trial, &labelling));
    if (labelling.broken_class >= 0)
        return divide_by_class(b, part, labelling.broken_class, banned);
    bool fits = false;
    if (labelling.broken_rests == 0) {
        const enum sbp_status status = b->out->price(b->out->context, &b->out->best_s, &fits);
        if (status != SBP_OK && status != SBP_E_INPUT)
            return status;
    }
    if (fits && b->out->best_s <= part->bound_s * (1 + SBP_INNER_ROUND_OFF))
        return SBP_OK;
    return divide_by_choice(b, part, banned);
}

static enum sbp_status search_parts(struct branching *b)
{
    uint8_t *banned = SBP_NEW(&b->arena, uint8_t, b->choices);
    if (banned == NULL)
        return SBP_E_MEMORY;
    if (keep_fitting(b, banned))
        SBP_TRY(add_part(b, banned, -INFINITY));
    double open_s = INFINITY; /* least bound of the parts that were dropped */
    while (b->part_count > 0) {
        b->out->stopped |= sbp_space_interrupted(&b->space);
        if (b->out->stopped || b->exhausted)
            break;
        struct part part = pop(b);
        enum sbp_status status = SBP_OK;
        if (part.bound_s < b->out->best_s * (1 - SBP_INNER_ROUND_OFF))
            status = look_at(b, &part, banned);
        if (b->exhausted)
            open_s = part.bound_s;
        free_part(&part);
        SBP_TRY(status);
    }
    if (b->part_count > 0)
        open_s = fmin(open_s, b->heap[0].bound_s);
    if (b->exhausted && b->solved <= 1)
        open_s = -INFINITY;
    b->out->bound_s = fmin(open_s, b->out->best_s);
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Prices the choice of a labelled space that messages lead to. */
static enum sbp_status try_messages(struct branching *b)
{
    struct sbp_message_reduction reduction;
    struct sbp_labelling labelling;
    bool fits;
    SBP_TRY(sbp_message_reduce(&b->whole, b->out->capacity_bytes, b->out->best_s, &b->arena,
                               &reduction));
    b->out->evaluations += reduction.evaluations;
    b->out->stopped |= reduction.stopped;
    if (!(reduction.upper_s < b->out->best_s) || !reads_sums(b, reduction.choice))
        return SBP_OK;
    SBP_TRY(sbp_label(&b->whole, reduction.choice, 0, b->out->trial, &labelling));
    if (labelling.broken_class >= 0 || labelling.broken_rests > 0)
        return SBP_OK;
    const enum sbp_status status = b->out->price(b->out->context, &b->out->best_s, &fits);
    return status == SBP_E_INPUT ? SBP_OK : status;
}

/* Leaves the choices out of which no cheaper plan is made; *settled: none is left. */
static enum sbp_status narrow(struct branching *b, bool *settled)
{
    struct sbp_message_reduction reduction;
    b->space = b->whole;
    *settled = false;
    if (sbp_message_cells(&b->whole) <= SBP_INNER_FEW_CELLS || isinf(b->out->best_s))
        return SBP_OK;
    SBP_TRY(try_messages(b));
    SBP_TRY(sbp_message_narrow(&b->whole, b->out->best_s, &b->arena, &reduction));
    b->out->evaluations += reduction.evaluations;
    b->out->stopped |= reduction.stopped;
    b->space = reduction.space;
    *settled = reduction.is_settled;
    if (*settled)
        b->out->bound_s = b->out->best_s;
    return SBP_OK;
}

static enum sbp_status branch_labels(struct branching *b)
{
    bool settled = false;
    SBP_TRY(narrow(b, &settled));
    if (settled || b->out->stopped || sbp_message_cells(&b->space) > SBP_INNER_BRANCH_CELLS)
        return SBP_OK;
    SBP_TRY(sbp_pricing_problem(&b->space, b->out->capacity_bytes, &b->problem, b->diag));
    enum sbp_status status = tabulate(b);
    if (status == SBP_OK && isfinite(b->out->capacity_bytes))
        status = sbp_working_init(&b->working, &b->space, &b->arena);
    if (status == SBP_OK)
        status = search_parts(b);
    while (b->part_count > 0)
        free_part(&b->heap[--b->part_count]);
    sbp_problem_free(&b->problem);
    return status;
}

enum sbp_status sbp_label_branch(struct sbp_label_branching *branching, struct sbp_diag *diag)
{
    branching->bound_s = -INFINITY;
    struct sbp_diag refusal = {{0}};
    struct branching b = {.out = branching, .diag = &refusal, .labelled = *branching->cut};
    b.arena.budget = branching->request->asked.search_memory;
    if (b.labelled.mesh.axis_count > SBP_INNER_BRANCH_AXES)
        return SBP_OK;
    struct sbp_solve_request request = *branching->request;
    request.store = NULL;
    request.is_first_pass = !sbp_space_opens(branching->request, branching->cut);
    request.labelled = true;
    request.every_level = true; /* a costly level on one path may make the step shorter */
    single_families(&b.labelled.mesh);
    enum sbp_status status = sbp_space_make(&b.labelled, &request, NULL, NULL, &b.whole, &refusal);
    if (status == SBP_OK) {
        status = b.whole.is_plain ? SBP_E_UNSUPPORTED : branch_labels(&b);
        sbp_space_free(&b.whole);
        sbp_arena_free(&b.arena);
    }
    if (!bounds_space(branching->cut))
        branching->bound_s = -INFINITY;
    /* A width that the exact solver refuses leaves the bound unknown. */
    if (status == SBP_E_UNSUPPORTED)
        return SBP_OK;
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", refusal.text);
}
