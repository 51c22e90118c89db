/* Every space's plans against what the space is said to be, written down here once more from its
 * definition; the free search against every space that it holds; Megatron inside nodes against
 * AutoDDL, section 5. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "base/json/json.h"
#include "oracle_plan.h"
#include "planner/outer/branch_and_bound.h"
#include "planner/space/space_table.h"
#include "small_instance.h"
#include "tests/support/solve_plan.h"
#include "tests/support/compile_plan.h"
#include "tests/support/unit.h"

/* A plan, its request, and where it came from. */
struct trial {
    char what[9000];
    struct sbp_request request;
    struct sbp_plan plan;
    struct sbp_outcome outcome;
    bool found;
};

#define COMPLAIN(trial, ...)                                                                       \
    do {                                                                                           \
        char why_[1200];                                                                           \
        snprintf(why_, sizeof why_, __VA_ARGS__);                                                  \
        fail_msg("space %s: %s\n%s", sbp_request_space_name((trial)->request.space), why_,         \
                 (trial)->what);                                                                   \
    } while (0)

static unsigned given_key(const char *key)
{
    for (int i = 0; sbp_parallel_keys()[i] != NULL; i++)
        if (strcmp(sbp_parallel_keys()[i], key) == 0)
            return 1u << i;
    fail_msg("no key %s", key);
    return 0;
}

typedef enum sbp_status optimiser(struct sbp_plan *plan, const struct sbp_request *request,
                                  struct sbp_outcome *outcome, struct sbp_diag *diag);

/* Begins, searches; a refusal is no plan. Takes over model and cluster. */
static void run(struct trial *trial, struct cJSON *model, struct cJSON *cluster,
                enum sbp_space_kind space, int64_t zero, optimiser *search)
{
    struct sbp_diag diag = {{0}};
    trial->request = (struct sbp_request){.space = space,
                                          .quick = true,
                                          .solver = sbp_solver_find("exact"),
                                          .memory_limit_bytes = INT64_C(1) << 55};
    trial->found = false;
    assert_int_equal(sbp_space_change_model(space, model, &diag), SBP_OK);
    begin_plan(model, cluster, &trial->plan);
    if (zero > 0) {
        struct sbp_parallel parallel = trial->plan.cut.parallel;
        parallel.zero = zero;
        trial->request.given = given_key("zero");
        assert_int_equal(sbp_plan_cut(&trial->plan, &parallel, &diag), SBP_OK);
    }
    enum sbp_status status = sbp_space_begin(&trial->request, &trial->plan, &diag);
    if (status == SBP_OK)
        status = search(&trial->plan, &trial->request, &trial->outcome, &diag);
    if (status != SBP_OK && status != SBP_E_INPUT && status != SBP_E_UNSUPPORTED)
        COMPLAIN(trial, "%s", diag.text);
    trial->found = status == SBP_OK && isfinite(trial->outcome.objective_s);
}

static void run_small(struct trial *trial, const struct small_instance *instance,
                      enum sbp_space_kind space, int64_t zero, optimiser *search)
{
    const char *const model = instance->model.text.text, *const cluster = instance->cluster.text;
    snprintf(trial->what, sizeof trial->what, "seed %" PRIu64 "\n%s\n%s", instance->seed, model,
             cluster);
    run(trial, parsed(model), parsed(cluster), space, zero, search);
}

static void run_shipped(struct trial *trial, const char *model, const char *cluster,
                        enum sbp_space_kind space, int64_t zero)
{
    snprintf(trial->what, sizeof trial->what, "%s on %s", model, cluster);
    run(trial, shipped("models", model), shipped("clusters", cluster), space, zero, solve_plan);
}

/* ---- what each space is --------------------------------------------------------------------- */

static const char *role_name(const struct trial *trial, int op, int axis)
{
    const int role = sbp_strategy_role(&trial->plan.cut.graph, &trial->plan.strategy, op, axis);
    return role < 0 ? "none" : trial->plan.cut.graph.op[op].entry->role[role].name;
}

static bool plays(const struct trial *trial, int op, int axis, const char *name)
{
    return strcmp(role_name(trial, op, axis), name) == 0;
}

static sbp_axes axes_playing(const struct trial *trial, int op, const char *name)
{
    sbp_axes axes = 0;
    for (int axis = 0; axis < trial->plan.cut.mesh.axis_count; axis++)
        if (plays(trial, op, axis, name))
            axes |= (sbp_axes)1 << axis;
    return axes;
}

static sbp_axes all_axes(const struct trial *trial)
{
    return ((sbp_axes)1 << trial->plan.cut.mesh.axis_count) - 1;
}

static void must_split_batch_alone(const struct trial *trial)
{
    for (int op = 0; op < trial->plan.cut.graph.op_count; op++)
        for (int axis = 0; axis < trial->plan.cut.mesh.axis_count; axis++)
            if (!plays(trial, op, axis, "batch"))
                COMPLAIN(trial, "%s plays %s", trial->plan.cut.graph.op[op].name,
                         role_name(trial, op, axis));
}

static struct sbp_stage_memory memory_at(const struct trial *trial, int64_t zero)
{
    struct sbp_plan plan = trial->plan; /* borrows all */
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    plan.cut.parallel.zero = zero;
    if (sbp_cut_step(&plan.cut, &plan.strategy, false, &step, &diag) != SBP_OK)
        COMPLAIN(trial, "%s", diag.text);
    const struct sbp_stage_memory memory = step.memory[0];
    sbp_step_free(&step);
    return memory;
}

static void must_be_shared(const struct trial *trial, const char *what, int64_t shared,
                           int64_t whole, bool is_shared)
{
    const int64_t devices = trial->plan.cut.mesh.devices;
    /* Every weight's share is rounded up, to elements and to 64 bytes. */
    const int64_t slack = 256 * (trial->plan.cut.graph.tensor_count + 1);
    const int64_t expected = is_shared ? whole / devices : whole;
    if (shared < expected || shared > expected + slack)
        COMPLAIN(trial, "%s: %" PRId64 " bytes of %" PRId64 " on %" PRId64 " devices", what, shared,
                 whole, devices);
}

/* Rajbhandari et al., 2020, section 5: states, then gradients, then parameters are shared out. */
static void must_have_zero(const struct trial *trial, int64_t level)
{
    assert_int_equal(trial->plan.cut.parallel.zero, level);
    for (int op = 0; op < trial->plan.cut.graph.op_count; op++)
        if (trial->plan.strategy.zero[op] != SBP_ZERO_DEFAULT &&
            trial->plan.strategy.zero[op] != level)
            COMPLAIN(trial, "%s has level %d", trial->plan.cut.graph.op[op].name,
                     trial->plan.strategy.zero[op]);
    const struct sbp_stage_memory plain = memory_at(trial, 0), memory = memory_at(trial, level);
    must_be_shared(trial, "moments", memory.moment_bytes, plain.moment_bytes, level >= 1);
    must_be_shared(trial, "gradients", memory.gradient_bytes, plain.gradient_bytes, level >= 2);
    must_be_shared(trial, "parameters", memory.weight_bytes, plain.weight_bytes, level >= 3);
}

static bool is_of_images(enum sbp_op_kind kind)
{
    return kind == SBP_OP_CONV2D || kind == SBP_OP_MAXPOOL || kind == SBP_OP_AVGPOOL ||
           kind == SBP_OP_FLATTEN;
}

/* The axes of data parallelism: the same in every layer, but for those that have nothing else. */
static sbp_axes must_have_one_mesh(const struct trial *trial)
{
    const struct sbp_graph *graph = &trial->plan.cut.graph;
    sbp_axes data = all_axes(trial);
    for (int op = 0; op < graph->op_count; op++)
        if (!graph->op[op].entry->follows && !is_of_images(graph->op[op].kind))
            data &= axes_playing(trial, op, "batch");
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op];
        const sbp_axes batch = axes_playing(trial, op, "batch");
        const bool may_be_data = node->kind == SBP_OP_LINEAR || is_of_images(node->kind);
        if (node->entry->follows || batch == data || (may_be_data && batch == all_axes(trial)))
            continue;
        COMPLAIN(trial, "%s has another mesh than the others", node->name);
    }
    return data;
}

static void must_play_one_role(const struct trial *trial, sbp_axes data)
{
    for (int op = 0; op < trial->plan.cut.graph.op_count; op++) {
        const char *first = NULL;
        for (int axis = 0; axis < trial->plan.cut.mesh.axis_count; axis++) {
            if (trial->plan.cut.graph.op[op].entry->follows || (data >> axis & 1) != 0)
                continue;
            if (first != NULL && !plays(trial, op, axis, first))
                COMPLAIN(trial, "%s plays %s and %s", trial->plan.cut.graph.op[op].name, first,
                         role_name(trial, op, axis));
            first = role_name(trial, op, axis);
        }
    }
}

static void must_lie_in_nodes(const struct trial *trial, sbp_axes data)
{
    for (int axis = 0; axis < trial->plan.cut.mesh.axis_count; axis++)
        if ((data >> axis & 1) != (trial->plan.cut.mesh.axis[axis].level == 0))
            COMPLAIN(trial, "axis %d of level %d is %s axis", axis,
                     trial->plan.cut.mesh.axis[axis].level,
                     (data >> axis & 1) ? "a data" : "a tensor");
}

/* Korthikanti et al., 2022, section 4.2.2: tokens are split where tensor axes split nothing else;
 * features where the tokens do not divide. */
static void must_split_tokens(const struct trial *trial, sbp_axes data)
{
    const struct sbp_graph *graph = &trial->plan.cut.graph;
    const int64_t tensor = sbp_mesh_group_size(&trial->plan.cut.mesh, all_axes(trial) & ~data);
    for (int op = 0; op < graph->op_count && tensor > 1; op++) {
        if (graph->op[op].kind != SBP_OP_ADD)
            continue;
        const int64_t rows = graph->tensor[graph->op[op].output].shape.size[SBP_DIM_SEQUENCE];
        const sbp_axes tokens = axes_playing(trial, op, "sequence");
        if (tokens != (rows % tensor == 0 ? all_axes(trial) & ~data : 0))
            COMPLAIN(trial, "%s splits its %" PRId64 " rows by axes %x", graph->op[op].name, rows,
                     tokens);
    }
}

static void must_be_whole(const struct trial *trial, int op, const char *what,
                          const struct sbp_dist *dist)
{
    for (int axis = 0; axis < trial->plan.cut.mesh.axis_count; axis++)
        if (dist->axis[axis].kind == SBP_PARTIAL)
            COMPLAIN(trial, "%s: %s is a partial sum", trial->plan.cut.graph.op[op].name, what);
}

/* Lepikhin et al., 2020, section 3.2: replicated or split, nothing else. */
static void must_have_no_sums(const struct trial *trial)
{
    const struct sbp_plan *plan = &trial->plan;
    for (int op = 0; op < plan->cut.graph.op_count; op++) {
        const struct sbp_op_node *node = &plan->cut.graph.op[op];
        for (int i = 0; i < node->input_count; i++) {
            const struct sbp_dist dist =
                sbp_strategy_input(&plan->cut.graph, &plan->cut.mesh, &plan->strategy, op, i);
            must_be_whole(trial, op, "an input", &dist);
        }
        if (node->output < 0)
            continue;
        const struct sbp_dist dist =
            sbp_strategy_output(&plan->cut.graph, &plan->cut.mesh, &plan->strategy, op);
        must_be_whole(trial, op, "the output", &dist);
        must_be_whole(trial, op, "the rest", &plan->strategy.rest[node->output]);
    }
}

/* Whether some grid of all devices divides a layer: rows divide tokens, columns what it makes, and
 * both together what it sums over (each panel is of one row and one column). */
static bool grid_divides(const struct trial *trial, int op)
{
    const struct sbp_graph *graph = &trial->plan.cut.graph;
    const struct sbp_mesh *mesh = &trial->plan.cut.mesh;
    const int64_t *in = graph->tensor[graph->op[op].input[0]].shape.size;
    const int64_t *out = graph->tensor[graph->op[op].output].shape.size;
    const sbp_axes all = all_axes(trial);
    for (sbp_axes rows = 0; rows <= all; rows++) {
        const int64_t r = sbp_mesh_group_size(mesh, rows),
                      c = sbp_mesh_group_size(mesh, all & ~rows);
        if (in[SBP_DIM_BATCH] % r == 0 && in[SBP_DIM_FEATURE] % (r * c) == 0 &&
            out[SBP_DIM_FEATURE] % c == 0)
            return true;
    }
    return false;
}

static void must_be_on_grids(const struct trial *trial)
{
    int grids = 0;
    for (int op = 0; op < trial->plan.cut.graph.op_count; op++) {
        const struct sbp_op_node *node = &trial->plan.cut.graph.op[op];
        if (node->kind == SBP_OP_LINEAR && !node->transposed_weight)
            COMPLAIN(trial, "%s is no SUMMA", node->name);
        if (node->kind != SBP_OP_SUMMA_LINEAR)
            continue;
        const sbp_axes grid =
            axes_playing(trial, op, "grid_row") | axes_playing(trial, op, "grid_column");
        if (grid != all_axes(trial) && grid_divides(trial, op))
            COMPLAIN(trial, "%s has replicas, but a grid divides it", node->name);
        grids++;
    }
    assert_true(grids > 0);
}

static void must_be_of_the_paper(const struct trial *trial)
{
    static const char *const NOT[] = {"sequence", "context", "height",
                                      "query",    "partial", "replicate"};
    for (int op = 0; op < trial->plan.cut.graph.op_count; op++)
        for (int axis = 0; axis < trial->plan.cut.mesh.axis_count; axis++)
            for (size_t i = 0; i < sizeof NOT / sizeof *NOT; i++)
                if (!trial->plan.cut.graph.op[op].entry->follows && plays(trial, op, axis, NOT[i]))
                    COMPLAIN(trial, "%s plays %s", trial->plan.cut.graph.op[op].name, NOT[i]);
}

static void check_rule(const struct trial *trial)
{
    const struct sbp_parallel *parallel = &trial->plan.cut.parallel;
    sbp_axes data = 0;
    switch (trial->request.space) {
    case SBP_SPACE_ZERO_1:
    case SBP_SPACE_ZERO_2:
    case SBP_SPACE_ZERO_3:
        must_split_batch_alone(trial);
        must_have_zero(trial, (int64_t)(trial->request.space - SBP_SPACE_ZERO_1) + 1);
        break;
    case SBP_SPACE_ZERO:
        must_split_batch_alone(trial);
        assert_in_range(parallel->zero, 1, 3);
        break;
    case SBP_SPACE_DATA_PARALLEL:
        must_split_batch_alone(trial);
        must_have_zero(trial, 0);
        break;
    case SBP_SPACE_MYELIN:
        must_split_batch_alone(trial);
        assert_int_equal(parallel->schedule, SBP_MESSAGE_DRIVEN);
        break;
    case SBP_SPACE_CDP:
        must_split_batch_alone(trial);
        assert_true(sbp_timeline_delays_gradients(parallel->schedule));
        assert_true(parallel->allow_delayed_gradients && parallel->pipeline >= 2);
        break;
    case SBP_SPACE_MEGATRON_NODE:
        data = must_have_one_mesh(trial);
        must_play_one_role(trial, data);
        must_lie_in_nodes(trial, data);
        break;
    case SBP_SPACE_MEGATRON_3D:
        data = must_have_one_mesh(trial);
        must_split_tokens(trial, data);
        break;
    case SBP_SPACE_MEGATRON:
        must_play_one_role(trial, must_have_one_mesh(trial));
        break;
    case SBP_SPACE_GSHARD:
        must_have_no_sums(trial);
        break;
    case SBP_SPACE_SUMMA:
        must_be_on_grids(trial);
        break;
    case SBP_SPACE_AUTODDL:
        must_be_of_the_paper(trial);
        break;
    case SBP_SPACE_FULL:
    case SBP_SPACES:
        break;
    }
}

/* Whether full holds every plan of a space, at one ZeRO level. */
static bool is_held_by_full(enum sbp_space_kind space)
{
    return space != SBP_SPACE_SUMMA && space != SBP_SPACE_CDP && space != SBP_SPACE_MYELIN &&
           space != SBP_SPACE_ZERO;
}

static int64_t zero_of(enum sbp_space_kind space)
{
    return space == SBP_SPACE_ZERO_1   ? 1
           : space == SBP_SPACE_ZERO_2 ? 2
           : space == SBP_SPACE_ZERO_3 ? 3
                                       : 0;
}

static void must_not_be_worse(const struct trial *full, const struct trial *trial, int *compared)
{
    if (!trial->found || trial->outcome.status != SBP_PLAN_OPTIMAL)
        return;
    if (!full->found || full->outcome.lower_bound_s > trial->outcome.objective_s * (1 + CLOSE))
        COMPLAIN(trial, "takes %.17g s, full's bound is %.17g s", trial->outcome.objective_s,
                 full->outcome.lower_bound_s);
    if (full->outcome.status != SBP_PLAN_OPTIMAL)
        return;
    if (full->outcome.objective_s > trial->outcome.objective_s * (1 + CLOSE))
        COMPLAIN(trial, "takes %.17g s, full's best %.17g s", trial->outcome.objective_s,
                 full->outcome.objective_s);
    ++*compared;
}

/* ---- small models --------------------------------------------------------------------------- */

struct tally {
    int found[SBP_SPACES], compared[SBP_SPACES];
};

static void try_small(const struct small_instance *instance, struct tally *tally)
{
    struct trial trial, full;
    for (enum sbp_space_kind space = 0; space < SBP_SPACES; space++) {
        run_small(&trial, instance, space, 0, solve_plan);
        tally->found[space] += trial.found;
        if (trial.found)
            check_rule(&trial);
        if (is_held_by_full(space)) {
            run_small(&full, instance, SBP_SPACE_FULL, zero_of(space), solve_plan);
            must_not_be_worse(&full, &trial, &tally->compared[space]);
            sbp_plan_free(&full.plan);
        }
        sbp_plan_free(&trial.plan);
    }
}

struct shape {
    int outer, inner;
};

/* Some of every kind of model on each mesh. */
static void try_kinds(const struct shape *meshes, uint64_t count, uint64_t draws, uint64_t seed,
                      void (*try)(const struct small_instance *instance, struct tally *tally),
                      struct tally *tally)
{
    for (uint64_t m = 0; m < count; m++)
        for (enum small_kind kind = 0; kind < SMALL_KINDS; kind++)
            for (uint64_t draw = 0; draw < draws; draw++) {
                struct small_instance instance = {.seed = seed + 10007 * m + 1009 * (uint64_t)kind +
                                                          draw};
                small_instance_draw(&instance, kind, 3, meshes[m].outer, meshes[m].inner);
                try(&instance, tally);
            }
    for (enum sbp_space_kind space = 0; space < SBP_SPACES; space++)
        print_message("%-14s %3d plans are of the space, %3d held against full\n",
                      sbp_request_space_name(space), tally->found[space], tally->compared[space]);
}

static void test_small(void **state)
{
    (void)state;
    static const struct shape meshes[] = {{2, 1}, {4, 1}, {2, 2}, {2, 3}, {2, 4}};
    struct tally tally = {{0}, {0}};
    try_kinds(meshes, 5, 6, 700001, try_small, &tally);
    for (enum sbp_space_kind space = 0; space < SBP_SPACES; space++) {
        assert_true(tally.found[space] > 10);
        assert_true(!is_held_by_full(space) || tally.compared[space] > 10);
    }
}

/* ---- the whole search, steps included ------------------------------------------------------- */

/* Full chooses ZeRO levels by layer; operators that follow have the step's, so that it leaves
 * states of norms whole where a space at one level shares them out, too. */
static bool shares_out_norms(const struct trial *trial)
{
    bool weights = false;
    for (int op = 0; op < trial->plan.cut.graph.op_count; op++)
        weights |= trial->plan.cut.graph.op[op].entry->follows &&
                   trial->plan.cut.graph.op[op].weight_count > 0;
    return weights && trial->plan.cut.parallel.zero > 0;
}

/* Full may cut steps, shard, and choose schedules as any other space may. */
static void explore_small(const struct small_instance *instance, struct tally *tally)
{
    struct trial trial, full;
    run_small(&full, instance, SBP_SPACE_FULL, 0, explore_plan);
    for (enum sbp_space_kind space = 0; space < SBP_SPACES; space++) {
        run_small(&trial, instance, space, 0, explore_plan);
        tally->found[space] += trial.found;
        if (trial.found)
            check_rule(&trial);
        if (sbp_space_is_part_of_full(space) && !shares_out_norms(&trial))
            must_not_be_worse(&full, &trial, &tally->compared[space]);
        sbp_plan_free(&trial.plan);
    }
    sbp_plan_free(&full.plan);
}

static void test_explored(void **state)
{
    (void)state;
    static const struct shape meshes[] = {{2, 1}, {4, 1}, {2, 2}};
    struct tally tally = {{0}, {0}};
    try_kinds(meshes, 3, 3, 900001, explore_small, &tally);
    for (enum sbp_space_kind space = 0; space < SBP_SPACES; space++)
        assert_true(tally.found[space] > 3 &&
                    (!sbp_space_is_part_of_full(space) || tally.compared[space] > 3));
}

/* ---- shipped models ------------------------------------------------------------------------- */

static void test_shipped(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"tiny-gpt", "laptop-4"},
                                           {"autoddl-mlp", "flat-64"},
                                           {"autoddl-attention", "flat-64"},
                                           {"autoddl-attention", "dgx-a100-8x8"},
                                           {"vgg-13", "gcp-a100-2x16"},
                                           {"gpt2-small", "v100-roce-4x8"},
                                           {"autoddl-gcp-small", "gcp-a100-2x16"}};
    int compared = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct trial trial, full[4];
        for (int64_t zero = 0; zero <= 3; zero++)
            run_shipped(&full[zero], pairs[i][0], pairs[i][1], SBP_SPACE_FULL, zero);
        for (enum sbp_space_kind space = 0; space < SBP_SPACES; space++) {
            run_shipped(&trial, pairs[i][0], pairs[i][1], space, 0);
            if (trial.found)
                check_rule(&trial);
            if (is_held_by_full(space))
                must_not_be_worse(&full[zero_of(space)], &trial, &compared);
            sbp_plan_free(&trial.plan);
        }
        for (int64_t zero = 0; zero <= 3; zero++)
            sbp_plan_free(&full[zero].plan);
    }
    print_message("%d plans of shipped models held against full\n", compared);
    assert_true(compared > 30);
}

/* ---- AutoDDL, section 5 --------------------------------------------------------------------- */

static bool crosses_nodes(const struct sbp_mesh *mesh, sbp_axes axes)
{
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if ((axes >> axis & 1) != 0 && mesh->axis[axis].level == 0)
            return true;
    return false;
}

static bool is_within_nodes(const struct sbp_mesh *mesh, sbp_axes axes)
{
    return !crosses_nodes(mesh, axes);
}

static bool is_across_nodes(const struct sbp_mesh *mesh, sbp_axes axes)
{
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if ((axes >> axis & 1) != 0 && mesh->axis[axis].level > 0)
            return false;
    return true;
}

/* "We put communication for intermediate results on NVLink, the communication for model weights is
 * placed on the network across nodes." */
static void must_communicate_by_level(const struct trial *trial)
{
    struct sbp_program program;
    struct sbp_arena scratch;
    struct sbp_call *calls = NULL;
    struct sbp_diag diag = {{0}};
    int count = 0, activations = 0, weights = 0;
    sbp_arena_init(&scratch);
    if (compile_plan(&trial->plan, &program, &diag) != SBP_OK)
        COMPLAIN(trial, "%s", diag.text);
    assert_int_equal(sbp_program_calls(&program, &scratch, &calls, &count), SBP_OK);
    for (int i = 0; i < count; i++) {
        const enum sbp_cause cause = program.instr[calls[i].instr].cause;
        const bool activation =
            cause == SBP_CAUSE_ACTIVATION || cause == SBP_CAUSE_ACTIVATION_GRADIENT;
        activations += activation;
        weights += cause == SBP_CAUSE_WEIGHT_GRADIENT;
        if (activation && !is_within_nodes(&program.mesh, calls[i].axes))
            COMPLAIN(trial, "call %d: an activation leaves its node", i);
        if (cause == SBP_CAUSE_WEIGHT_GRADIENT && !is_across_nodes(&program.mesh, calls[i].axes))
            COMPLAIN(trial, "call %d: a weight's gradient is summed inside a node", i);
    }
    assert_true(activations > 0 && weights > 0);
    sbp_arena_free(&scratch);
    sbp_program_free(&program);
}

static void test_node_mesh(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"autoddl-attention", "dgx-a100-8x8"},
                                           {"autoddl-gcp-small", "gcp-a100-2x16"},
                                           {"autoddl-gcp-large", "gcp-a100-2x16"},
                                           {"vgg-13", "v100-roce-4x8"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct trial node, best, autoddl;
        run_shipped(&node, pairs[i][0], pairs[i][1], SBP_SPACE_MEGATRON_NODE, 0);
        run_shipped(&best, pairs[i][0], pairs[i][1], SBP_SPACE_MEGATRON, 0);
        run_shipped(&autoddl, pairs[i][0], pairs[i][1], SBP_SPACE_AUTODDL, 0);
        assert_true(node.found && best.found && autoddl.found);
        print_message("%s on %s: megatron-node %.6g ms, megatron %.6g ms, autoddl %.6g ms\n",
                      pairs[i][0], pairs[i][1], 1e3 * node.outcome.objective_s,
                      1e3 * best.outcome.objective_s, 1e3 * autoddl.outcome.objective_s);
        assert_true(best.outcome.objective_s <= node.outcome.objective_s * (1 + CLOSE));
        assert_true(autoddl.outcome.objective_s <= best.outcome.objective_s * (1 + CLOSE));
        if (must_have_one_mesh(&best) == must_have_one_mesh(&node))
            assert_true(fabs(best.outcome.objective_s / node.outcome.objective_s - 1) <= CLOSE);
        if (strcmp(pairs[i][0], "vgg-13") != 0) /* convolutions are data-parallel on all devices */
            must_communicate_by_level(&node);
        sbp_plan_free(&node.plan);
        sbp_plan_free(&best.plan);
        sbp_plan_free(&autoddl.plan);
    }
}

/* ---- what is given ----------------------------------------------------------------------------
 */

static enum sbp_status begin_with(enum sbp_space_kind space, const char *key, int64_t zero,
                                  enum sbp_schedule schedule, struct sbp_parallel *begun)
{
    struct sbp_plan plan;
    struct sbp_diag diag = {{0}};
    const struct sbp_request request = {.space = space, .given = given_key(key)};
    begin_plan(shipped("models", "tiny-gpt"), shipped("clusters", "laptop-4"), &plan);
    plan.cut.parallel.zero = zero;
    plan.cut.parallel.schedule = schedule;
    const enum sbp_status status = sbp_space_begin(&request, &plan, &diag);
    *begun = plan.cut.parallel;
    if (status != SBP_OK && strstr(diag.text, "parallel: ") != diag.text)
        fail_msg("%s", diag.text);
    sbp_plan_free(&plan);
    return status;
}

static void test_given(void **state)
{
    (void)state;
    struct sbp_parallel begun;
    assert_int_equal(begin_with(SBP_SPACE_ZERO_2, "zero", 3, SBP_ONE_F_ONE_B, &begun), SBP_E_INPUT);
    assert_int_equal(begin_with(SBP_SPACE_ZERO, "zero", 3, SBP_ONE_F_ONE_B, &begun), SBP_OK);
    assert_int_equal(begun.zero, 3);
    assert_int_equal(begin_with(SBP_SPACE_AUTODDL, "zero", 1, SBP_ONE_F_ONE_B, &begun), SBP_OK);
    assert_int_equal(begun.zero, 1);
    assert_int_equal(begin_with(SBP_SPACE_ZERO_2, "pipeline", 0, SBP_ONE_F_ONE_B, &begun), SBP_OK);
    assert_int_equal(begun.zero, 2);
    assert_int_equal(begin_with(SBP_SPACE_MYELIN, "schedule", 0, SBP_ONE_F_ONE_B, &begun),
                     SBP_E_INPUT);
    assert_int_equal(begin_with(SBP_SPACE_MEGATRON_3D, "schedule", 0, SBP_GPIPE, &begun),
                     SBP_E_INPUT);
    assert_int_equal(begin_with(SBP_SPACE_CDP, "pipeline", 0, SBP_ONE_F_ONE_B, &begun),
                     SBP_E_INPUT);
    assert_int_equal(begin_with(SBP_SPACE_CDP, "zero", 0, SBP_ONE_F_ONE_B, &begun), SBP_OK);
    assert_int_equal(begun.pipeline, 2);
    assert_int_equal(begun.micro_batch, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),   cmocka_unit_test(test_explored),
        cmocka_unit_test(test_shipped), cmocka_unit_test(test_node_mesh),
        cmocka_unit_test(test_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
