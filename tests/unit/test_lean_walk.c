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

#include "costmodel/program_layout.h"
#include "planner/check.h"
#include "planner/label_walk.h"
#include "planner/lean_peak.h"
#include "planner/lean_walk.h"
#include "space_bench.h"

enum { PROGRAMS = 400 };

#define LEVELS LEVEL("a", 2) ", " LEVEL("b", 4)

/* Layers of different sizes. */
static const char chain[] =
    "{\"name\": \"c\", \"global_batch\": 36, \"input\": \"free\", \"layers\": ["
    "{\"op\": \"linear\", \"in\": 72, \"out\": 144}, {\"op\": \"relu\"},"
    "{\"op\": \"linear\", \"in\": 144, \"out\": 288}, {\"op\": \"relu\"},"
    "{\"op\": \"linear\", \"in\": 288, \"out\": 576}, {\"op\": \"relu\"},"
    "{\"op\": \"linear\", \"in\": 576, \"out\": 48}, {\"op\": \"relu\"},"
    "{\"op\": \"linear\", \"in\": 48, \"out\": 96}, {\"op\": \"relu\"},"
    "{\"op\": \"linear\", \"in\": 96, \"out\": 48}]}";

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

static int64_t walk(const struct sbp_plan *plan, const struct sbp_request *request, uint64_t seed,
                    int64_t programs, struct sbp_ranked *leanest)
{
    struct sbp_diag diag = {{0}};
    int64_t evaluations = 0;
    if (sbp_walk_leaner(plan, request, seed, programs, leanest, &evaluations, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return evaluations;
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

/* Steps lead from labels of the space to others, and those that go together are told from those
 * that do not. */
static void test_steps(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_label_walk labels;
    struct sbp_ranked found;
    int together = 0, apart = 0;
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    open_plan(GPT(1, ""), LEVELS, &plan);
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
        sbp_label_walk_end(&labels, goes);
    }
    print_message("%d steps go together, %d do not\n", together, apart);
    assert_true(together > 300 && apart > 100);
    sbp_space_free(&space);
    sbp_plan_free(&plan);
}

static bool changes(const struct sbp_label_walk *w, int variable)
{
    const size_t at = (size_t)variable * SBP_MAX_AXES;
    return w->now.choice[variable] != w->next.choice[variable] ||
           memcmp(w->now.role + at, w->next.role + at, SBP_MAX_AXES) != 0;
}

/* Most steps change what the walk is focused on; those that change several variables at once, or
 * most of them, are not rare. */
static void test_focus(void **state)
{
    (void)state;
    struct sbp_plan plan;
    struct sbp_space space;
    struct sbp_label_walk labels;
    struct sbp_ranked found;
    struct sbp_request request = free_request(SBP_SPACE_FULL);
    int drawn[2] = {0}, focused[2] = {0}, several = 0, many = 0;
    open_plan(GPT(1, ""), LEVELS, &plan);
    start(&plan, &request, &found);
    request.every_level = true;
    make_space(&plan, &request, &space);
    assert_int_equal(sbp_label_walk_init(&labels, &space, 5, &space.arena), SBP_OK);
    assert_true(sbp_label_walk_at(&labels, &found.strategy));
    const int variable = space.variable_count / 2;
    labels.focus = &variable;
    for (int i = 0; i < 4000; i++) {
        labels.focus_count = i % 2;
        if (sbp_label_walk_draw(&labels)) {
            int changed = 0;
            for (int v = 0; v < space.variable_count; v++)
                changed += changes(&labels, v);
            assert_true(changed > 0);
            drawn[i % 2]++;
            focused[i % 2] += changes(&labels, variable);
            several += changed > 2 && changed <= space.variable_count / 2;
            many += changed > space.variable_count / 2;
        }
        sbp_label_walk_end(&labels, false);
    }
    print_message("of %d and %d steps %d and %d change one of %d variables\n", drawn[0], drawn[1],
                  focused[0], focused[1], space.variable_count);
    assert_true(focused[1] > 2 * focused[0] && 2 * focused[1] > drawn[1]);
    print_message("%d change several, %d most\n", several, many);
    assert_true(several > 100 && many > 40);
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
    bool decides = false;
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

/* The program of the stage that needs most; there is one chunk. */
static const struct sbp_program *fullest(const struct sbp_step *step)
{
    int stage = 0;
    for (int s = 1; s < step->stages; s++)
        if (step->memory[s].device_bytes > step->memory[stage].device_bytes)
            stage = s;
    return &step->program[step->program_of[stage]];
}

/* How many variables decide; they are held to those that looking at all instructions and tensors
 * finds. */
static int check_peak(const struct sbp_space *space, const struct sbp_step *step)
{
    const struct sbp_program *program = fullest(step);
    struct sbp_lean_peak peak;
    struct sbp_arena arena;
    int at = 0, count = 0;
    for (int i = 1; i < program->instr_count; i++)
        if (filled_bytes(program, i) > filled_bytes(program, at))
            at = i;
    sbp_arena_init(&arena);
    assert_int_equal(sbp_lean_peak_init(&peak, space, &arena), SBP_OK);
    sbp_lean_peak_find(&peak, step);
    for (int v = 0; v < space->variable_count; v++)
        if (decides_at(space, v, program, at)) {
            assert_true(count < peak.count);
            assert_int_equal(peak.variable[count++], v);
        }
    assert_int_equal(peak.count, count);
    print_message("%d of %d variables decide at instruction %d of %d\n", count,
                  space->variable_count, at, program->instr_count);
    sbp_arena_free(&arena);
    return count;
}

/* The peak's variables are those of what lives where the arena is filled highest: some, and
 * not all; gathered weights count (ZeRO 3), and of two stages the fuller one. */
static void test_peak(void **state)
{
    (void)state;
    static const struct {
        enum sbp_recompute recompute;
        int zero, stages;
    } cases[] = {{SBP_RECOMPUTE_NONE, 0, 1},
                 {SBP_RECOMPUTE_FULL, 0, 1},
                 {SBP_RECOMPUTE_FULL, 3, 1},
                 {SBP_RECOMPUTE_FULL, 3, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sbp_plan plan;
        struct sbp_space space;
        struct sbp_ranked found;
        struct sbp_step step;
        struct sbp_diag diag = {{0}};
        struct sbp_request request = {.space = SBP_SPACE_FULL};
        open_plan(chain, LEVELS, &plan);
        struct sbp_parallel parallel = plan.parallel;
        parallel.recompute = cases[i].recompute;
        parallel.zero = cases[i].zero;
        parallel.pipeline = cases[i].stages;
        parallel.micro_batch = 36 / cases[i].stages;
        if (sbp_plan_set_parallel(&plan, &parallel, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        start(&plan, &request, &found);
        request.every_level = true;
        make_space(&plan, &request, &space);
        assert_int_equal(sbp_plan_step(&plan, &plan.strategy, &step, &diag), SBP_OK);
        assert_in_range(check_peak(&space, &step), 1, space.variable_count - 1);
        sbp_step_free(&step);
        sbp_space_free(&space);
        sbp_plan_free(&plan);
    }
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

static volatile sig_atomic_t alarmed;

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
    volatile sig_atomic_t stop = 1;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),    cmocka_unit_test(test_focus), cmocka_unit_test(test_peak),
        cmocka_unit_test(test_leaner),   cmocka_unit_test(test_space), cmocka_unit_test(test_fixes),
        cmocka_unit_test(test_requests), cmocka_unit_test(test_stop),  cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
