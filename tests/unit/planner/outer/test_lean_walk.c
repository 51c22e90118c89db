/* Walks to leaner plans: what they end at is a plan of the space, as lean as they say, never less
 * lean than where they began, and fixed by the seed. How lean the leanest is, tests/oracle says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "planner/verify/verify.h"
#include "planner/labels/label_walk.h"
#include "planner/lean_peak.h"
#include "planner/lean_walk.h"
#include "tests/support/space_bench.h"

enum { PROGRAMS = 400 };

#define LEVELS LEVEL("a", 2) ", " LEVEL("b", 4)

/* The cheapest plan of a request, which is rarely lean. */
static void start(struct sbp_plan *plan, const struct sbp_request *request,
                  struct sbp_ranked *leanest)
{
    struct sbp_outcome outcome;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    if (sbp_optimise(plan, request, &outcome, &diag) != SBP_OK ||
        sbp_plan_step(plan, &plan->strategy, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    *leanest = (struct sbp_ranked){.parallel = plan->parallel,
                                   .objective_s = outcome.objective_s,
                                   .device_bytes = step.totals.device_bytes};
    sbp_step_free(&step);
    assert_int_equal(sbp_strategy_alloc(&plan->graph, &plan->arena, &leanest->strategy), SBP_OK);
    sbp_strategy_copy(&plan->graph, &plan->strategy, &leanest->strategy);
}

static int64_t walk_or(const struct sbp_plan *plan, const struct sbp_request *request,
                       uint64_t seed, int64_t programs, const struct sbp_strategy *other,
                       struct sbp_ranked *leanest)
{
    struct sbp_diag diag = {{0}};
    int64_t evaluations = 0;
    if (sbp_walk_leaner(plan, request, seed, SBP_HOT, programs, other, leanest, &evaluations,
                        &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return evaluations;
}

static int64_t walk(const struct sbp_plan *plan, const struct sbp_request *request, uint64_t seed,
                    int64_t programs, struct sbp_ranked *leanest)
{
    return walk_or(plan, request, seed, programs, NULL, leanest);
}

/* Whether the space has ways between all that goes together in a choice. */
static bool has_ways(const struct sbp_space *space, const int *choice)
{
    bool all = true;
    for (int i = 0; i < space->transfer_count; i++)
        all &= sbp_space_transfer_s(space, &space->transfer[i], choice[space->transfer[i].from],
                                    choice[space->transfer[i].to]) < SBP_FORBIDDEN;
    for (int i = 0; i < space->keep_count; i++)
        all &= sbp_space_can_rest(space, &space->keep[i], choice[space->keep[i].op_variable],
                                  choice[space->keep[i].rest_variable]);
    return all;
}

/* The plan is one of the request's space. */
static void check_membership(const struct sbp_plan *plan, const struct sbp_request *request,
                             const struct sbp_ranked *found)
{
    struct sbp_request every = *request;
    struct sbp_label_walk walk;
    struct sbp_space space;
    every.every_level = true;
    make_space(plan, &every, &space);
    assert_int_equal(sbp_label_walk_init(&walk, &space, 0, &space.arena), SBP_OK);
    assert_true(sbp_label_walk_at(&walk, &found->strategy));
    assert_true(has_ways(&space, walk.now.choice));
    sbp_space_free(&space);
}

/* Closed and compiled anew the plan is legal, as dear and as lean as it is said to be, and keeps
 * the request's fixes: an independent pass says so. */
static void check_found(struct sbp_plan *plan, const struct sbp_request *request,
                        const struct sbp_ranked *found)
{
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    plan->strategy = found->strategy;
    if (sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag) != SBP_OK ||
        sbp_plan_step(plan, &plan->strategy, &step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(step.totals.device_bytes, found->device_bytes);
    assert_true(found->objective_s == (request->objective == SBP_COMMUNICATION
                                           ? step.totals.communication_s
                                           : step.totals.step_s));
    const struct sbp_claim claim = {.plan = plan, .step = &step, .request = request};
    if (sbp_check_plan(&claim, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_step_free(&step);
    check_membership(plan, request, found);
}

static struct sbp_request free_request(enum sbp_space_kind space)
{
    return (struct sbp_request){.space = space, .zero_is_free = true};
}

/* Whether the labels of a variable are as many of each role as its choice says. */
static bool matches(const struct sbp_space *space, const struct sbp_label_set *labels, int variable)
{
    const struct sbp_mesh *mesh = space->mesh;
    uint8_t count[SBP_MAX_AXES][SBP_MAX_ROLES] = {{0}};
    bool same = true;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        count[mesh->axis[axis].family][labels->role[variable * SBP_MAX_AXES + axis]]++;
    for (int f = 0; f < mesh->family_count; f++)
        same &= memcmp(sbp_space_count(space, variable, labels->choice[variable], f), count[f],
                       SBP_MAX_ROLES) == 0;
    return same;
}

/* Partial sums of two branches may go on beyond where they meet. */
#define BRANCHES                                                                                   \
    "{\"name\": \"b\", \"global_batch\": 36, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "  \
    "\"in\": 144, \"out\": 144}, {\"op\": \"linear\", \"name\": \"l\", \"out\": 144}, {\"op\": "   \
    "\"linear\", \"name\": \"r\", \"inputs\": [\"a\"], \"out\": 144}, {\"op\": \"add\", "          \
    "\"name\": "                                                                                   \
    "\"s\", \"inputs\": [\"l\", \"r\"]}, {\"op\": \"add\", \"inputs\": [\"s\", \"a\"]}]}"

/* Steps lead from labels of the space to others, and those that go together are told from those
 * that do not. */
static void check_steps(const char *model)
{
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_label_walk labels;
    struct sbp_ranked found;
    int together = 0, apart = 0;
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    open_plan(model, LEVELS, &plan);
    start(&plan, &request, &found);
    request.every_level = true;
    make_space(&plan, &request, &space);
    memset(&labels, 0x7f, sizeof labels); /* whatever was there: init leaves no focus */
    assert_int_equal(sbp_label_walk_init(&labels, &space, 3, &space.arena), SBP_OK);
    assert_true(sbp_label_walk_at(&labels, &found.strategy));
    for (int i = 0; i < 3000; i++) {
        bool goes = false;
        if (sbp_label_walk_draw(&labels)) {
            for (int v = 0; v < space.variable_count; v++)
                assert_true(matches(&space, &labels.next, v));
            goes = sbp_label_walk_goes_together(&labels);
            assert_int_equal(goes, has_ways(&space, labels.next.choice));
            together += goes;
            apart += !goes;
        }
        for (int v = 0; v < space.variable_count; v++)
            assert_in_range(labels.next.choice[v], 0, space.variable[v].choice_count - 1);
        sbp_label_walk_end(&labels, goes);
    }
    print_message("%d steps go together, %d do not\n", together, apart);
    assert_true(together > 300 && apart > 100);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

static void test_steps(void **state)
{
    (void)state;
    check_steps(GPT(1, ""));
    check_steps(BRANCHES);
}

static bool changes(const struct sbp_label_walk *w, int variable)
{
    const size_t at = (size_t)variable * SBP_MAX_AXES;
    return w->now.choice[variable] != w->next.choice[variable] ||
           memcmp(w->now.role + at, w->next.role + at, SBP_MAX_AXES) != 0;
}

/* The axis on which alone the next labels differ from those before; -1: there is none. */
static int changed_axis(const struct sbp_label_walk *w)
{
    int changed = -1;
    for (int axis = 0; axis < w->space->mesh->axis_count; axis++)
        for (int v = 0; v < w->space->variable_count; v++)
            if (w->now.role[v * SBP_MAX_AXES + axis] != w->next.role[v * SBP_MAX_AXES + axis]) {
                if (changed >= 0 && changed != axis)
                    return -1;
                changed = axis;
            }
    return changed;
}

/* Whether all variables that the step changes are left in one state on an axis. */
static bool is_one_state(const struct sbp_label_walk *w, int axis)
{
    const struct sbp_state *first = NULL;
    bool same = true;
    for (int v = 0; v < w->space->variable_count; v++)
        if (changes(w, v)) {
            const struct sbp_state *own =
                &w->space->variable[v].state[w->next.role[v * SBP_MAX_AXES + axis]];
            first = first == NULL ? own : first;
            same &= sbp_state_equal(*own, *first);
        }
    return same;
}

/* Whether two axes of a variable have changed places. */
static bool are_exchanged(const struct sbp_label_walk *w, int variable)
{
    const uint8_t *now = w->now.role + (size_t)variable * SBP_MAX_AXES;
    const uint8_t *next = w->next.role + (size_t)variable * SBP_MAX_AXES;
    bool exchanged = false;
    for (int i = 0; i < w->space->mesh->axis_count; i++)
        for (int j = 0; j < i; j++)
            exchanged |= now[i] != now[j] && now[i] == next[j] && now[j] == next[i];
    return exchanged;
}

static bool are_alike(const struct sbp_label_walk *w, const uint8_t *role, int i, int j)
{
    bool alike = true;
    for (int v = 0; v < w->space->variable_count; v++)
        alike &= role[v * SBP_MAX_AXES + i] == role[v * SBP_MAX_AXES + j];
    return alike;
}

/* Whether two axes do the same everywhere that did not before. */
static bool is_imitation(const struct sbp_label_walk *w)
{
    bool any = false;
    for (int i = 0; i < w->space->mesh->axis_count; i++)
        for (int j = 0; j < i; j++)
            any |= are_alike(w, w->next.role, i, j) && !are_alike(w, w->now.role, i, j);
    return any;
}

struct steps {
    int drawn, focused[2];             /* steps; those that change a variable of the focus */
    int stretches, before, after, one; /* that change several on one axis: the focus and what is
                                          before it, or after it; that leave one state */
    int exchanges, imitations, levels;
};

static void count_step(const struct sbp_label_walk *w, const int focus[2], struct steps *steps)
{
    int changed = 0, first = -1, last = -1;
    for (int v = 0; v < w->space->variable_count; v++)
        if (changes(w, v)) {
            first = first < 0 ? v : first;
            last = v;
            changed++;
        }
    const int axis = changed_axis(w);
    const bool is_stretch = changed > 2 && axis >= 0 && !is_imitation(w);
    assert_true(changed > 0);
    steps->drawn++;
    for (int i = 0; i < 2; i++)
        steps->focused[i] += changes(w, focus[i]);
    steps->stretches += is_stretch;
    steps->before += is_stretch && changes(w, focus[0]) && first < focus[0];
    steps->after += is_stretch && changes(w, focus[0]) && last > focus[0];
    steps->one += is_stretch && is_one_state(w, axis);
    steps->exchanges += changed == 1 && are_exchanged(w, first);
    steps->imitations += is_imitation(w);
    steps->levels += changed == 1 && memcmp(w->now.role, w->next.role,
                                            (size_t)w->space->variable_count * SBP_MAX_AXES) == 0;
}

/* There are steps of every kind; most begin at what the walk is focused on, and stretches lie
 * around that. */
static void test_focus(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_label_walk labels;
    struct sbp_ranked found;
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    struct steps anywhere = {0}, focused = {0};
    open_plan(GPT(1, ""), LEVELS, &plan);
    start(&plan, &request, &found);
    request.every_level = true;
    make_space(&plan, &request, &space);
    assert_int_equal(sbp_label_walk_init(&labels, &space, 5, &space.arena), SBP_OK);
    assert_true(sbp_label_walk_at(&labels, &found.strategy));
    const int focus[2] = {space.variable_count / 2, 1};
    labels.focus = focus;
    for (int i = 0; i < 10000; i++) {
        labels.focus_count = i % 2 == 0 ? 0 : 2;
        if (sbp_label_walk_draw(&labels))
            count_step(&labels, focus, i % 2 == 0 ? &anywhere : &focused);
        sbp_label_walk_end(&labels, false);
    }
    print_message("of %d and %d steps %d and %d, %d and %d change one of %d variables\n",
                  anywhere.drawn, focused.drawn, anywhere.focused[0], focused.focused[0],
                  anywhere.focused[1], focused.focused[1], space.variable_count);
    print_message(
        "of %d stretches %d go before it, %d after, %d are of one state; %d exchanges, %d "
        "imitations, %d levels\n",
        focused.stretches, focused.before, focused.after, focused.one, anywhere.exchanges,
        anywhere.imitations, anywhere.levels);
    for (int i = 0; i < 2; i++)
        assert_true(focused.focused[i] > 2 * anywhere.focused[i]);
    assert_true(2 * (focused.focused[0] + focused.focused[1]) > focused.drawn);
    assert_true(focused.stretches > 100 && 4 * focused.one > 3 * focused.stretches);
    assert_true(3 * focused.before > 2 * focused.after && 3 * focused.after > 2 * focused.before);
    assert_true(anywhere.exchanges > 50 && anywhere.imitations > 10 && anywhere.levels > 50);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

/* How high a program's arena is filled at an instruction. */
static int64_t filled_bytes(const struct sbp_program *program, int instr)
{
    int64_t top = 0;
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *b = &program->buffer[i];
        const int64_t end = b->offset_bytes + sbp_program_slot_bytes(program, i);
        if (!sbp_buffer_persists(b) && b->first >= 0 && b->first <= instr && instr <= b->last &&
            end > top)
            top = end;
    }
    return top;
}

/* Whether a tensor has a buffer at an instruction that it has not always. */
static bool lives_at(const struct sbp_program *program, int tensor, int instr)
{
    bool lives = false;
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *b = &program->buffer[i];
        lives |= !sbp_buffer_persists(b) && b->tensor == tensor && b->first >= 0 &&
                 b->first <= instr && instr <= b->last;
    }
    return lives;
}

static bool decides_at(const struct sbp_space *space, int variable,
                       const struct sbp_program *program, int instr)
{
    bool decides = program->instr[instr].op >= 0 &&
                   sbp_space_decider(space, program->instr[instr].op) == variable;
    for (int t = 0; t < space->graph->tensor_count; t++) {
        bool is_its = space->slot[t] == variable;
        for (int op = 0; op < space->graph->op_count; op++) {
            const struct sbp_op_node *node = &space->graph->op[op];
            bool touches = node->output == t;
            for (int i = 0; i < node->input_count; i++)
                touches |= node->input[i] == t;
            for (int i = 0; i < node->weight_count; i++)
                touches |= node->weight[i] == t;
            is_its |= touches && sbp_space_decider(space, op) == variable;
        }
        decides |= is_its && lives_at(program, t, instr);
    }
    return decides;
}

/* How many variables the peak of a step has: those of what lives at an instruction of a program,
 * found by looking at all tensors. */
static int check_peak(struct sbp_lean_peak *peak, const struct sbp_step *step,
                      const struct sbp_program *program, int instr)
{
    int count = 0;
    sbp_lean_peak_find(peak, step);
    for (int v = 0; v < peak->space->variable_count; v++)
        if (decides_at(peak->space, v, program, instr)) {
            assert_true(count < peak->count);
            assert_int_equal(peak->variable[count++], v);
        }
    assert_int_equal(peak->count, count);
    return count;
}

/* The peak's variables are those of what lives where the arena is filled highest, found here by
 * looking at all instructions; they are some, and not all. */
static void test_peak(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_lean_peak peak;
    struct sbp_ranked found;
    struct sbp_step step;
    struct sbp_diag diag = {{0}};
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    open_plan(GPT(3, ""), LEVELS, &plan);
    struct sbp_parallel parallel = plan.parallel;
    parallel.recompute = SBP_RECOMPUTE_FULL;
    if (sbp_plan_set_parallel(&plan, &parallel, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    start(&plan, &request, &found);
    request.every_level = true;
    make_space(&plan, &request, &space);
    assert_int_equal(sbp_plan_step(&plan, &plan.strategy, &step, &diag), SBP_OK);
    assert_int_equal(step.program_count, 1);
    const struct sbp_program *program = &step.program[0];
    int at = 0;
    for (int i = 1; i < program->instr_count; i++)
        if (filled_bytes(program, i) > filled_bytes(program, at))
            at = i;
    assert_int_equal(sbp_lean_peak_init(&peak, &space, &space.arena), SBP_OK);
    const int count = check_peak(&peak, &step, program, at);
    print_message("%d of %d variables decide on instruction %d of %d\n", count,
                  space.variable_count, at, program->instr_count);
    assert_in_range(count, 1, space.variable_count - 1);
    sbp_step_free(&step);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

struct made {
    struct sbp_program program;
    struct sbp_instr instr[3];
    struct sbp_buffer buffer[4];
};

/* A program that is fullest while its second instruction serves an operator, by a copy of a tensor
 * that lives then: beside a buffer that is never used, one that persists, and an empty one. */
static void make_program(const struct sbp_graph *graph, int op, int tensor, struct made *made)
{
    *made = (struct made){
        .program = {.graph = graph,
                    .bytes = {.weight = 4, .activation = 4},
                    .instr_count = 3,
                    .buffer_count = 4,
                    .instr = made->instr,
                    .buffer = made->buffer,
                    .arena_bytes = 128},
        .instr = {{.op = -1}, {.op = op}, {.op = -1}},
        .buffer = {{.use = SBP_USE_WORK, .tensor = -1, .elements = 32, .first = -1, .last = -1},
                   {.use = SBP_USE_WEIGHT, .tensor = -1, .elements = 16, .last = 2},
                   {.use = SBP_USE_WORK, .tensor = -1, .first = 2, .last = 2, .offset_bytes = 128},
                   {.use = SBP_USE_GATHERED,
                    .tensor = tensor,
                    .elements = 16,
                    .first = 1,
                    .last = 1,
                    .offset_bytes = 64}}};
}

/* Of several stages and chunks the fullest counts; the operator that runs does, and so do weights.
 * What always lives alone has no peak. */
static void test_pieces(void **state)
{
    (void)state;
    enum { STAGES = 2, CHUNKS = 2, PIECES = STAGES * CHUNKS };
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_lean_peak peak;
    struct made made[PIECES];
    struct sbp_program program[PIECES];
    int program_of[PIECES];
    const struct sbp_request request = free_request(SBP_SPACE_FULL);
    open_plan(GPT(1, ""), LEVELS, &plan);
    make_space(&plan, &request, &space);
    assert_int_equal(sbp_lean_peak_init(&peak, &space, &space.arena), SBP_OK);
    for (int i = 0; i < PIECES * plan.graph.tensor_count; i++) {
        const int tensor = i / PIECES, full = i % PIECES;
        const int stage = full % STAGES, chunk = full / STAGES;
        struct sbp_stage_memory memory[STAGES] = {{0}};
        struct sbp_stage_cost cost[PIECES] = {{0}};
        memory[stage].device_bytes = 1;
        cost[stage * CHUNKS + chunk].transient_bytes = 1;
        for (int p = 0; p < PIECES; p++) {
            make_program(&plan.graph, p == full ? tensor % plan.graph.op_count : -1,
                         p == full ? tensor : -1, &made[p]);
            program[p] = made[p].program;
            program_of[p] = p;
        }
        const struct sbp_step step = {.stages = STAGES,
                                      .pieces = PIECES,
                                      .program_of = program_of,
                                      .program = program,
                                      .cost = cost,
                                      .memory = memory};
        check_peak(&peak, &step, &program[full], 1);
        program[full].buffer_count = 2;
        program[full].arena_bytes = 64;
        sbp_lean_peak_find(&peak, &step);
        assert_int_equal(peak.count, 0);
    }
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

static void test_leaner(void **state)
{
    (void)state;
    struct sbp_plan plan;
    const struct sbp_request request = free_request(SBP_SPACE_FULL);
    struct sbp_ranked first, again, other;
    open_plan(GPT(2, ""), LEVELS, &plan);
    start(&plan, &request, &first);
    start(&plan, &request, &again);
    start(&plan, &request, &other);
    const int64_t before = first.device_bytes;
    assert_in_range(walk(&plan, &request, 1, PROGRAMS, &first), 1, PROGRAMS);
    print_message("from %" PRId64 " to %" PRId64 " bytes\n", before, first.device_bytes);
    assert_true(first.device_bytes < before - before / 10);
    check_found(&plan, &request, &first);
    walk(&plan, &request, 1, PROGRAMS, &again);
    assert_int_equal(again.device_bytes, first.device_bytes);
    assert_memory_equal(again.strategy.op, first.strategy.op,
                        (size_t)plan.graph.op_count * sizeof *first.strategy.op);
    walk(&plan, &request, 2, PROGRAMS, &other);
    assert_memory_not_equal(other.strategy.op, first.strategy.op,
                            (size_t)plan.graph.op_count * sizeof *first.strategy.op);
    /* On from there: never to more. */
    walk(&plan, &request, 3, PROGRAMS, &first);
    assert_true(first.device_bytes <= again.device_bytes);
    check_found(&plan, &request, &first);
    sbp_plan_free(&plan);
}

/* Programs are worth their time: walks that compile what has no ways, or that forget where they
 * stand, get less far by as many. */
static void test_worth(void **state)
{
    (void)state;
    enum { SEEDS = 8 };
    struct sbp_plan plan;
    struct sbp_ranked found;
    const struct sbp_request request = free_request(SBP_SPACE_GSHARD);
    int64_t before = 0, after = 0;
    open_plan(GPT(2, ""), LEVELS, &plan);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        start(&plan, &request, &found);
        before += found.device_bytes;
        walk(&plan, &request, seed, PROGRAMS, &found);
        after += found.device_bytes;
    }
    print_message("from %" PRId64 " to %" PRId64 " bytes, the mean of %d seeds\n", before / SEEDS,
                  after / SEEDS, SEEDS);
    assert_true(after < before - before / 4);
    sbp_plan_free(&plan);
}

/* Whether an operator plays a role that leaves partial sums. */
static bool leaves_sums(const struct sbp_plan *plan, const struct sbp_strategy *strategy)
{
    bool any = false;
    for (int op = 0; op < plan->graph.op_count; op++) {
        const struct sbp_dist output = sbp_strategy_output(&plan->graph, &plan->mesh, strategy, op);
        any |= plan->graph.op[op].output >= 0 &&
               sbp_dist_of_kind(&plan->mesh, &output, SBP_PARTIAL) != 0;
    }
    return any;
}

/* A walk stays in its space: gshard's has no partial sums, those of full have. */
static void test_space(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked found;
    bool any = false;
    open_plan(GPT(1, ""), LEVELS, &plan);
    for (uint64_t seed = 0; seed < 5; seed++) {
        const struct sbp_request gshard = free_request(SBP_SPACE_GSHARD);
        const struct sbp_request full = free_request(SBP_SPACE_FULL);
        start(&plan, &gshard, &found);
        walk(&plan, &gshard, seed, PROGRAMS, &found);
        assert_false(leaves_sums(&plan, &found.strategy));
        check_found(&plan, &gshard, &found);
        walk(&plan, &full, seed, PROGRAMS, &found);
        any |= leaves_sums(&plan, &found.strategy);
    }
    assert_true(any);
    sbp_plan_free(&plan);
}

/* What is fixed stays, whatever that needs. */
static void test_fixes(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked found;
    struct sbp_fix fix = {.layer = "block0.up", .zero = 0};
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    request.fix = &fix;
    request.fix_count = 1;
    for (int role = 0; role < SBP_MAX_ROLES; role++) {
        fix.factor[role][0] = SBP_ANY;
        fix.factor[role][1] = role == 0 ? 4 : 1;
    }
    open_plan(GPT(2, ""), LEVELS, &plan);
    start(&plan, &request, &found);
    const int64_t before = found.device_bytes;
    walk(&plan, &request, 7, PROGRAMS, &found);
    assert_true(found.device_bytes < before);
    check_found(&plan, &request, &found);
    sbp_plan_free(&plan);
}

/* By other boxing, for another objective and on several stages a walk ends at such plans as well.
 */
static void test_requests(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct sbp_plan plan;
        struct sbp_ranked found;
        struct sbp_diag diag = {{0}};
        struct sbp_request request = free_request(i == 3 ? SBP_SPACE_AUTODDL : SBP_SPACE_FULL);
        request.objective = i == 0 ? SBP_COMMUNICATION : SBP_STEP_TIME;
        request.boxing = i == 1 ? SBP_BOXING_PATH : SBP_BOXING_FULL;
        open_plan(GPT(2, ""), LEVELS, &plan);
        struct sbp_parallel parallel = plan.parallel;
        parallel.pipeline = i == 2 ? 2 : 1;
        parallel.micro_batch = i == 2 ? 12 : 36;
        if (sbp_plan_set_parallel(&plan, &parallel, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        start(&plan, &request, &found);
        const int64_t before = found.device_bytes;
        walk(&plan, &request, 11, PROGRAMS, &found);
        assert_true(found.device_bytes < before);
        check_found(&plan, &request, &found);
        sbp_plan_free(&plan);
    }
}

static atomic_int alarmed;

static void note_alarm(int number)
{
    (void)number;
    alarmed = 1;
}

/* A flag that goes up on the way ends the walk, and what was found so far is what counts. Where a
 * machine is so slow that no program is compiled before, there is nothing to see. */
static void test_stop(void **state)
{
    (void)state;
    enum { MANY = 1000000 };
    struct sbp_plan plan;
    struct sbp_ranked found;
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    open_plan(GPT(2, ""), LEVELS, &plan);
    start(&plan, &request, &found);
    request.solver_options.stop = &alarmed;
    assert_true(signal(SIGALRM, note_alarm) != SIG_ERR);
    alarm(1);
    const int64_t evaluations = walk(&plan, &request, 0, MANY, &found);
    print_message("%" PRId64 " of %d programs in a second\n", evaluations, MANY);
    assert_true(evaluations < MANY);
    request.solver_options.stop = NULL;
    check_found(&plan, &request, &found);
    request.deadline_s = sbp_clock_s() - 1; /* is past */
    assert_int_equal(walk(&plan, &request, 0, PROGRAMS, &found), 0);
    sbp_plan_free(&plan);
}

/* Flag, budget, a mesh that all layers share, and rests of two kinds end a walk before its first
 * program. */
static void test_ends(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked found;
    atomic_int stop = 1;
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    open_plan(GPT(1, ""), LEVELS, &plan);
    start(&plan, &request, &found);
    const int64_t before = found.device_bytes;
    assert_int_equal(walk(&plan, &request, 0, 0, &found), 0);
    request.solver_options.stop = &stop;
    assert_int_equal(walk(&plan, &request, 0, PROGRAMS, &found), 0);
    assert_int_equal(found.device_bytes, before);
    request = free_request(SBP_SPACE_MEGATRON);
    start(&plan, &request, &found);
    assert_int_equal(walk(&plan, &request, 0, PROGRAMS, &found), 0);
    request = free_request(SBP_SPACE_AUTODDL);
    request.boxing = SBP_BOXING_PAPER;
    start(&plan, &request, &found);
    assert_int_equal(walk(&plan, &request, 0, PROGRAMS, &found), 0);
    sbp_plan_free(&plan);
}

/* Another strategy that needs less is the leanest from then on, one that needs more is not; one
 * that is not of the space is left alone. */
static void test_other(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_ranked first, lean;
    const struct sbp_request request = free_request(SBP_SPACE_FULL);
    open_plan(GPT(1, ""), LEVELS, &plan);
    start(&plan, &request, &first);
    start(&plan, &request, &lean);
    walk(&plan, &request, 1, PROGRAMS, &lean);
    assert_true(lean.device_bytes < first.device_bytes);
    const int64_t first_bytes = first.device_bytes;
    const struct sbp_ranked kept = lean;
    assert_int_equal(walk_or(&plan, &request, 1, 1, &first.strategy, &lean), 1);
    assert_int_equal(lean.device_bytes, kept.device_bytes);
    assert_int_equal(walk_or(&plan, &request, 1, 1, &lean.strategy, &first), 1);
    assert_int_equal(first.device_bytes, lean.device_bytes);
    assert_true(first.objective_s == lean.objective_s);
    check_found(&plan, &request, &first);
    assert_true(first.device_bytes < first_bytes);
    const struct sbp_request narrow = free_request(SBP_SPACE_GSHARD);
    start(&plan, &narrow, &first);
    const int64_t narrow_bytes = first.device_bytes;
    walk_or(&plan, &narrow, 1, 1, &lean.strategy, &first);
    assert_true(first.device_bytes > lean.device_bytes);
    assert_true(first.device_bytes <= narrow_bytes);
    check_found(&plan, &narrow, &first);
    sbp_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),    cmocka_unit_test(test_focus),
        cmocka_unit_test(test_peak),     cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_leaner),   cmocka_unit_test(test_worth),
        cmocka_unit_test(test_space),    cmocka_unit_test(test_fixes),
        cmocka_unit_test(test_requests), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_ends),     cmocka_unit_test(test_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
