/* The messages of random pipelines as actors: as many as the tasks have, with two slots a side;
 * orders that need more slots, or that wait for each other with any, are refused. */
#include <math.h>

#include "executor/run/message_lane.h"
#include "executor/run/run_memory.h"
#include "run_checks.h"

enum { MOST_STAGES = 16 };

/* The tasks of a plan's stages, with their messages. */
struct bench {
    struct plan plan;
    struct sbp_arena arena;
    struct sbp_tasks tasks[MOST_STAGES];
    struct sbp_message_plan messages;
};

static bool open_bench(struct bench *b, struct sbp_random *random, int kind,
                       bool (*cut)(struct plan *plan, struct sbp_random *random))
{
    char model[MODEL_BYTES];
    struct sbp_diag diag = {0};
    *b = (struct bench){.arena = {0}};
    random_model(random, kind, model, MODEL_BYTES);
    plan_open(&b->plan, model, random_levels(random));
    b->plan.cluster.runtime.has_slots = b->plan.graph.global_batch == 24;
    if (!cut(&b->plan, random)) {
        plan_close(&b->plan);
        return false;
    }
    plan_randomise(&b->plan, random, false, SBP_BOXING_FULL, SBP_F32);
    assert_in_range(b->plan.step.stages, 1, MOST_STAGES);
    for (int stage = 0; stage < b->plan.step.stages; stage++)
        expect_ok(sbp_tasks_make(&b->plan.step, stage, &b->arena, &b->tasks[stage], &diag), &diag);
    return true;
}

static void close_bench(struct bench *b)
{
    sbp_arena_free(&b->arena);
    plan_close(&b->plan);
}

static enum sbp_status make(struct bench *b, struct sbp_diag *diag)
{
    return sbp_message_plan_make(&b->plan.step, b->tasks, &b->arena, &b->messages, diag);
}

/* Tasks of a stage that send, or receive, activations or gradients. */
static int64_t count_tasks(const struct bench *b, int stage, enum sbp_instr_kind kind, int back)
{
    int64_t count = 0;
    for (int64_t i = 0; i < b->tasks[stage].count; i++) {
        const struct sbp_instr *instr =
            sbp_task_instr(&b->plan.step, stage, &b->tasks[stage].task[i]);
        count += instr->kind == kind && (instr->section != SBP_SECTION_FORWARD) == (back == 1);
    }
    return count;
}

static int64_t acts_of(const struct bench *b, int actor)
{
    return actor < 0 ? 0 : b->messages.graph.actor[actor].acts;
}

static void check_acts(const struct bench *b)
{
    const int64_t devices = b->plan.step.mesh.devices;
    for (int rank = 0; rank < b->messages.graph.ranks; rank++)
        for (int back = 0; back < 2; back++) {
            const struct sbp_message_actors *own = &b->messages.rank[rank];
            const int stage = (int)(rank / devices);
            assert_int_equal(acts_of(b, own->pass[back]),
                             count_tasks(b, stage, SBP_INSTR_SEND, back));
            assert_int_equal(acts_of(b, own->take[back]),
                             count_tasks(b, stage, SBP_INSTR_RECEIVE, back));
        }
}

/* Two of each side, or for all micro-batches in flight where arrivals decide. */
static int slots_of(const struct bench *b)
{
    const int half = (b->plan.step.memory[0].in_flight + 1) / 2;
    return b->plan.parallel.schedule == SBP_MESSAGE_DRIVEN && half > 2 ? half : 2;
}

static void all_messages_are_acts(void **state)
{
    enum { PLANS = 60 };
    struct sbp_random random;
    int checked = 0, several = 0;
    (void)state;
    sbp_random_seed(&random, seed + 1000);
    while (checked < PLANS) {
        struct bench b;
        struct sbp_diag diag = {0};
        if (!open_bench(&b, &random, checked % 3, plan_cut_stages))
            continue;
        expect_ok(make(&b, &diag), &diag);
        assert_int_equal(b.messages.slots, slots_of(&b));
        check_acts(&b);
        several += b.plan.step.stages > 1;
        checked++;
        close_bench(&b);
    }
    assert_true(several > PLANS / 2);
}

/* ---- two stages made by hand ---------------------------------------------------------------- */

enum { MOST_TASKS = 40, ELEMENTS = 6 };

struct setting {
    struct sbp_arena arena;
    struct sbp_program program[2];
    struct sbp_buffer buffer;
    struct sbp_instr instr[2][MOST_TASKS];
    struct sbp_task task[2][MOST_TASKS];
    struct sbp_tasks tasks[2];
    int program_of[2];
    struct sbp_step step;
    struct sbp_message_plan messages;
};

static void open_setting(struct setting *s)
{
    *s = (struct setting){.program_of = {0, 1}, .buffer = {.elements = ELEMENTS}};
    for (int stage = 0; stage < 2; stage++) {
        s->program[stage] = (struct sbp_program){
            .instr = s->instr[stage], .buffer = &s->buffer, .bytes = {.activation = 8}};
        s->tasks[stage] = (struct sbp_tasks){.task = s->task[stage]};
    }
    s->step = (struct sbp_step){.stages = 2,
                                .pieces = 2,
                                .mesh = {.devices = 1},
                                .program_of = s->program_of,
                                .program = s->program};
}

static void add(struct setting *s, int stage, enum sbp_instr_kind kind, enum sbp_section section,
                int count)
{
    for (int i = 0; i < count; i++) {
        const int64_t at = s->tasks[stage].count++;
        s->instr[stage][at] = (struct sbp_instr){.kind = kind, .section = section};
        s->task[stage][at] = (struct sbp_task){.instr = (int)at};
    }
}

static enum sbp_status make_by_hand(struct setting *s, struct sbp_diag *diag)
{
    return sbp_message_plan_make(&s->step, s->tasks, &s->arena, &s->messages, diag);
}

/* Both stages send all before they receive anything: what is under way lies in slots, of which a
 * direction has those of both sides. */
static void orders_that_need_more_slots_are_refused(void **state)
{
    (void)state;
    for (int messages = 1; messages <= 9; messages++) {
        struct setting s;
        struct sbp_diag diag = {0};
        open_setting(&s);
        add(&s, 0, SBP_INSTR_SEND, SBP_SECTION_FORWARD, messages);
        add(&s, 0, SBP_INSTR_RECEIVE, SBP_SECTION_BACKWARD, messages);
        add(&s, 1, SBP_INSTR_SEND, SBP_SECTION_BACKWARD, messages);
        add(&s, 1, SBP_INSTR_RECEIVE, SBP_SECTION_FORWARD, messages);
        assert_int_equal(make_by_hand(&s, &diag), messages <= 2 * 2 ? SBP_OK : SBP_E_INPUT);
        assert_int_equal(s.messages.slots, 2);
        assert_int_equal(s.messages.graph.reg[0].bytes, ELEMENTS * 8);
        sbp_arena_free(&s.arena);
    }
}

static void orders_that_wait_for_each_other_are_refused(void **state)
{
    (void)state;
    struct setting s;
    struct sbp_diag diag = {0};
    open_setting(&s);
    add(&s, 0, SBP_INSTR_RECEIVE, SBP_SECTION_BACKWARD, 1);
    add(&s, 0, SBP_INSTR_SEND, SBP_SECTION_FORWARD, 1);
    add(&s, 1, SBP_INSTR_RECEIVE, SBP_SECTION_FORWARD, 1);
    add(&s, 1, SBP_INSTR_SEND, SBP_SECTION_BACKWARD, 1);
    assert_int_equal(make_by_hand(&s, &diag), SBP_E_INPUT);
    assert_memory_equal(diag.text, "actors wait for each other: ", 28);
    sbp_arena_free(&s.arena);
}

/* What a stage sends of a micro-batch, in 4 bytes an element, for all that it or the stage before
 * it, which has no fewer, has in flight. */
static double sent_ahead(const struct bench *b, int stage)
{
    const struct sbp_tasks *tasks = &b->tasks[stage];
    double bytes = 0;
    for (int64_t i = 0; i < tasks->count; i++) {
        const struct sbp_instr *instr = sbp_task_instr(&b->plan.step, stage, &tasks->task[i]);
        if (instr->kind == SBP_INSTR_SEND && instr->box.kind != SBP_LOCAL)
            bytes += 4.0 * (double)sbp_step_chunk(&b->plan.step, stage, tasks->task[i].chunk)
                               ->buffer[instr->buffer[SBP_AT_IN]]
                               .elements;
    }
    return bytes / (double)b->plan.step.micro_batches *
           b->plan.step.memory[stage > 0 ? stage - 1 : 0].in_flight;
}

/* Without a flush there are no slots: copies of what is under way are needed beside the arena. */
static void copies_of_messages_are_needed(void **state)
{
    enum { PLANS = 24 };
    struct sbp_random random;
    int plans = 0, sent = 0;
    (void)state;
    sbp_random_seed(&random, seed + 40);
    for (int tries = 0; plans < PLANS && tries < 20 * MOST_TRIES; tries++) {
        struct bench b;
        struct sbp_diag diag = {0};
        if (!open_bench(&b, &random, tries % 3,
                        plans % 4 == 3 ? plan_cut_on_device : plan_cut_cyclic))
            continue;
        const struct sbp_step *step = &b.plan.step;
        expect_ok(make(&b, &diag), &diag);
        for (int stage = 0; stage < step->stages; stage++) {
            const struct sbp_run_need need = sbp_run_need_of(
                step, stage * step->mesh.devices, &(struct sbp_verify_need){.rank_bytes = 0},
                &sbp_device_host_memory);
            const double ahead = sent_ahead(&b, stage);
            assert_true(need.bytes == (double)sbp_run_arena_bytes(step, stage) + ahead);
            sent += ahead > 0;
        }
        plans++;
        close_bench(&b);
    }
    print_message("seed %llu: %d plans, %d stages that send\n", (unsigned long long)seed, plans,
                  sent);
    assert_true(plans == PLANS && sent >= PLANS / 2);
}

/* The largest message that a stage sends in a direction, in bytes of 4 an element. */
static double largest_message(const struct bench *b, int stage, int back)
{
    int64_t most = 0;
    for (int64_t i = 0; i < b->tasks[stage].count; i++) {
        const struct sbp_task *task = &b->tasks[stage].task[i];
        const struct sbp_instr *instr = sbp_task_instr(&b->plan.step, stage, task);
        if (instr->kind == SBP_INSTR_SEND && (instr->section != SBP_SECTION_FORWARD) == (back == 1))
            most = instr->box.elements > most ? instr->box.elements : most;
    }
    return 4 * (double)most;
}

/* Slots of a direction that a stage sends in, on one side. */
static double slots_bytes(const struct bench *b, int stage, int back)
{
    const int64_t sent = count_tasks(b, stage, SBP_INSTR_SEND, back);
    const double slots = (double)(sent < b->messages.slots ? sent : b->messages.slots);
    return 64 * ceil(slots * largest_message(b, stage, back) / 64);
}

/* A stage has slots of what it sends, and of what its neighbours send it, no more than there are
 * messages; these are needed beside the arena, and once more as the backend's copies. */
static void slots_of_messages_are_needed(void **state)
{
    enum { PLANS = 40 };
    struct sbp_random random;
    int plans = 0, few = 0;
    (void)state;
    sbp_random_seed(&random, seed + 60);
    while (plans < PLANS) {
        struct bench b;
        struct sbp_diag diag = {0};
        if (!open_bench(&b, &random, plans % 3, plan_cut_stages))
            continue;
        const struct sbp_step *step = &b.plan.step;
        expect_ok(make(&b, &diag), &diag);
        for (int stage = 0; stage < step->stages; stage++) {
            const int stages = step->stages, rank = (int)(stage * step->mesh.devices);
            const double slots = slots_bytes(&b, stage, 0) + slots_bytes(&b, stage, 1) +
                                 slots_bytes(&b, (stage + stages - 1) % stages, 0) +
                                 slots_bytes(&b, (stage + 1) % stages, 1);
            const struct sbp_run_need need = sbp_run_need_of(
                step, rank, &(struct sbp_verify_need){.rank_bytes = 0}, &sbp_device_host_memory);
            assert_true(sbp_actor_graph_bytes(&b.messages.graph, rank) == slots);
            assert_true((double)sbp_stage_slot_bytes(step, stage) == slots);
            assert_int_equal(step->memory[stage].message_bytes,
                             b.plan.cluster.runtime.has_slots ? (int64_t)slots : 0);
            assert_true(need.bytes == (double)sbp_run_arena_bytes(step, stage) +
                                          (double)step->memory[stage].host_bytes + 2 * slots);
            few += slots > 0 && step->micro_batches < b.messages.slots;
        }
        plans++;
        close_bench(&b);
    }
    assert_true(few > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_messages_are_acts),
        cmocka_unit_test(orders_that_need_more_slots_are_refused),
        cmocka_unit_test(orders_that_wait_for_each_other_are_refused),
        cmocka_unit_test(copies_of_messages_are_needed),
        cmocka_unit_test(slots_of_messages_are_needed),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
