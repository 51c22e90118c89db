/* Message-driven stages whose messages come late, now these, now those: what they do next follows
 * what has come, and nothing else changes: neither bits, nor memory, nor the limit of micro-batches
 * in flight. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "run_checks.h"
#include "trained.h"

enum { MOST_RANKS = 16, MOST_WORKS = 256, STEPS = 2 };

/* What ranks did, and what makes their messages late. Counts are of all steps. */
struct disturbed {
    const struct sbp_step *step;
    int limit;   /* micro-batches in flight, at most */
    bool staged; /* as if buffers were a device's */
    uint64_t draw;
    atomic_int begun[MOST_RANKS][2];        /* forward, backward works */
    int asked_for[MOST_RANKS][2];           /* one more than the number of the last message */
    double asked_s[MOST_RANKS][2];          /* when it was asked for first */
    atomic_int received[MOST_RANKS][2];     /* messages */
    atomic_bool wrong;                      /* an order that no stage may have */
    char order[MOST_RANKS][MOST_WORKS + 1]; /* 'F', 'B' */
};

/* ---- works and messages of a rank ----------------------------------------------------------- */

static int stage_of(const struct disturbed *d, int rank)
{
    return rank / (int)d->step->mesh.devices;
}

/* Works of a direction come in the order of micro-batches, and no stage has more in flight than
 * the limit; the last one has one. */
static void begins(void *context, int rank, const struct sbp_task *task)
{
    struct disturbed *d = context;
    const int back = task->work == SBP_WORK_BACKWARD;
    if (task->work == SBP_WORK_UPDATE)
        return;
    const int at = atomic_load(&d->begun[rank][0]) + atomic_load(&d->begun[rank][1]);
    const int number = atomic_fetch_add(&d->begun[rank][back], 1);
    const int in_flight = atomic_load(&d->begun[rank][0]) - atomic_load(&d->begun[rank][1]);
    const int most = stage_of(d, rank) < d->step->stages - 1 ? d->limit : 1;
    if (task->micro_batch != number % d->step->micro_batches || in_flight < 0 || in_flight > most ||
        at >= MOST_WORKS)
        atomic_store(&d->wrong, true);
    else
        d->order[rank][at] = back ? 'B' : 'F';
}

/* A third of all messages is late, by two milliseconds at most. */
static bool is_late_at_random(void *context, int rank, bool forward, int number)
{
    struct disturbed *d = context;
    double *const from_s = &d->asked_s[rank][!forward];
    struct sbp_random random;
    sbp_random_seed(&random, d->draw + (uint64_t)(number * MOST_RANKS + rank) * 2 + forward);
    if (d->asked_for[rank][!forward] != number + 1)
        *from_s = sbp_clock_s();
    d->asked_for[rank][!forward] = number + 1;
    return sbp_random_below(&random, 3) == 0 &&
           sbp_clock_s() < *from_s + 2e-3 * sbp_random_unit(&random);
}

/* Gradients are not there before the stage between two others has done all the forward works that
 * it can. */
static bool are_gradients_late(void *context, int rank, bool forward, int number)
{
    const struct disturbed *d = context;
    const int count = (int)d->step->micro_batches, ahead = number % count + d->limit;
    return !forward && stage_of(d, rank) == 1 &&
           atomic_load(&d->begun[rank][0]) <
               number / count * count + (ahead < count ? ahead : count);
}

/* Activations are not there before it has done all the backward works that it can. */
static bool are_activations_late(void *context, int rank, bool forward, int number)
{
    const struct disturbed *d = context;
    return forward && stage_of(d, rank) == 1 && atomic_load(&d->begun[rank][1]) < number;
}

/* Nothing is late; the second forward work of the stage between two others lasts until the third
 * activations and the first gradients are there. */
static bool is_seen(void *context, int rank, bool forward, int number)
{
    struct disturbed *d = context;
    atomic_store(&d->received[rank][!forward], number);
    return false;
}

static void begins_and_waits(void *context, int rank, const struct sbp_task *task)
{
    struct disturbed *d = context;
    begins(context, rank, task);
    while (stage_of(d, rank) == 1 && task->work == SBP_WORK_FORWARD && task->micro_batch == 1 &&
           atomic_load(&d->begun[rank][0]) == 2 &&
           (atomic_load(&d->received[rank][0]) < 3 || atomic_load(&d->received[rank][1]) < 1))
        (void)sched_yield();
}

/* ---- training ------------------------------------------------------------------------------- */

static void make_step(const struct plan *plan, enum sbp_schedule schedule, int64_t limit,
                      struct sbp_step *step)
{
    struct sbp_parallel parallel = plan->parallel;
    parallel.schedule = schedule;
    parallel.pipeline_limit = limit;
    plan_step(plan, &parallel, NULL, SBP_F32, step);
}

/* Trains with messages that are late, and compares with what `expected` has learned. */
static void train_late(struct disturbed *d, bool (*is_late)(void *, int, bool, int),
                       const struct trained *expected)
{
    const struct disturbance disturbance = {is_late, is_late == is_seen ? begins_and_waits : begins,
                                            d, d->staged};
    struct trained trained;
    char text[256];
    train_disturbed(d->step, STEPS, seed, &disturbance, &trained);
    assert_false(atomic_load(&d->wrong));
    if (!trained_alike(expected, &trained, text, (int)sizeof text))
        fail_msg("seed %llu: %s", (unsigned long long)seed, text);
    trained_free(&trained);
}

/* ---- three stages --------------------------------------------------------------------------- */

enum { MICRO_BATCHES = 6 };

static const char MODEL[] =
    "{\"name\": \"three\", \"global_batch\": 24, \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 8, \"out\": 16}, {\"op\": \"gelu\"}, "
    "{\"op\": \"linear\", \"name\": \"b\", \"out\": 16}, {\"op\": \"gelu\"}, "
    "{\"op\": \"linear\", \"name\": \"c\", \"out\": 12}, {\"op\": \"cross_entropy\"}]}";

/* Of so many devices each, which split operators at random. */
static void open_three(struct plan *plan, struct sbp_random *random, int devices)
{
    struct sbp_diag diag = {0};
    struct sbp_cluster stage;
    int level;
    plan_open(plan, MODEL, (const int[]){3, devices, 0});
    plan->parallel.pipeline = 3;
    plan->parallel.stage_cut = SBP_CUT_FLOPS;
    plan->parallel.micro_batch = plan->graph.global_batch / MICRO_BATCHES;
    expect_ok(sbp_graph_set_micro_batch(&plan->graph, plan->parallel.micro_batch, &diag), &diag);
    expect_ok(sbp_parallel_stage_cluster(&plan->parallel, &plan->cluster, &stage, &level, &diag),
              &diag);
    expect_ok(sbp_mesh_make(&stage, &plan->mesh, &diag), &diag);
    plan_randomise(plan, random, false, SBP_BOXING_FULL, SBP_F32);
}

/* The order of the middle stage's ranks in every step, with messages that come late. */
static void expect_order(const struct sbp_step *step, int limit, bool staged,
                         bool (*is_late)(void *, int, bool, int), const struct trained *expected,
                         const char *order)
{
    struct disturbed d = {.step = step, .limit = limit, .staged = staged};
    const int devices = (int)step->mesh.devices, works = 2 * MICRO_BATCHES;
    train_late(&d, is_late, expected);
    for (int rank = devices; rank < 2 * devices; rank++)
        for (int i = 0; i < STEPS; i++)
            if (memcmp(d.order[rank] + i * works, order, (size_t)works) != 0)
                fail_msg("rank %d, step %d: %.*s, not %s", rank, i + 1, works,
                         d.order[rank] + i * works, order);
}

/* Of what has come the gradients go first. */
static void backward_works_go_first(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 4; devices *= 2) {
        struct plan plan;
        struct sbp_step step;
        struct sbp_random random;
        struct trained expected;
        sbp_random_seed(&random, seed + 3200 + (uint64_t)devices);
        open_three(&plan, &random, devices);
        make_step(&plan, SBP_MESSAGE_DRIVEN, MICRO_BATCHES, &step);
        struct disturbed d = {.step = &step, .limit = MICRO_BATCHES};
        train(&plan.step, STEPS, seed, &expected);
        train_late(&d, is_seen, &expected);
        for (int rank = devices; rank < 2 * devices; rank++)
            assert_memory_equal(d.order[rank], "FFB", 3);
        trained_free(&expected);
        sbp_step_free(&step);
        plan_close(&plan);
    }
}

/* A work that sends nothing ends the run. */
static void a_lost_message_ends_the_run(void **state)
{
    (void)state;
    struct plan plan;
    struct sbp_step step;
    struct sbp_random random;
    sbp_random_seed(&random, seed + 3300);
    open_three(&plan, &random, 2);
    make_step(&plan, SBP_MESSAGE_DRIVEN, 4, &step);
    for (int i = 0; i < step.program[1].instr_count; i++) {
        struct sbp_run_options options = options_for(SBP_F32, &random);
        struct sbp_run_result result;
        struct sbp_diag diag = {0};
        if (step.program[1].instr[i].kind != SBP_INSTR_SEND)
            continue;
        options.fault = SBP_FAULT_SKIP;
        options.fault_piece = 1;
        options.fault_instr = i;
        assert_int_equal(sbp_run(&step, &plan.cluster, &options, &result, &diag), SBP_E_INTERNAL);
        assert_non_null(strstr(diag.text, "is left out"));
    }
    sbp_step_free(&step);
    plan_close(&plan);
}

/* Forward works slip in before late gradients, as far as the limit lets them; before late
 * activations all gradients go back. A rank that waits in its own calls cannot tell what has come:
 * it keeps to the list, which holds most. */
static void orders_follow_what_comes(void **state)
{
    (void)state;
    enum { LIMIT = 4 };
    for (int devices = 1; devices <= 4; devices *= 2) {
        struct plan plan;
        struct sbp_step step;
        struct sbp_random random;
        struct trained expected;
        sbp_random_seed(&random, seed + 3000 + (uint64_t)devices);
        open_three(&plan, &random, devices);
        make_step(&plan, SBP_MESSAGE_DRIVEN, LIMIT, &step);
        train(&plan.step, STEPS, seed, &expected);
        for (int staged = 0; staged < 2; staged++) {
            expect_order(&step, LIMIT, staged, are_gradients_late, &expected, "FFFFBFBFBBBB");
            expect_order(&step, LIMIT, staged, are_activations_late, &expected, "FBFBFBFBFBFB");
            expect_order(&step, LIMIT, staged, NULL, &expected, "FFFFBFBFBBBB");
        }
        trained_free(&expected);
        sbp_step_free(&step);
        plan_close(&plan);
    }
}

/* ---- random pipelines ----------------------------------------------------------------------- */

/* Works of ranks that stand elsewhere than in another play. */
static int count_differences(const struct disturbed *a, const struct disturbed *b)
{
    int differences = 0;
    for (int rank = 0; rank < MOST_RANKS; rank++)
        for (int i = 0; i < MOST_WORKS; i++)
            differences += a->order[rank][i] != b->order[rank][i];
    return differences;
}

/* Trains with messages that are late at random, twice; whether orders differ. */
static bool check_random(const struct plan *plan, struct sbp_random *random)
{
    struct sbp_step step;
    struct trained expected;
    const int64_t asked = (int64_t)sbp_random_below(random, 7);
    make_step(plan, SBP_MESSAGE_DRIVEN, asked, &step);
    struct disturbed d[2];
    train(&plan->step, STEPS, seed, &expected);
    for (int i = 0; i < 2; i++) {
        d[i] = (struct disturbed){.step = &step,
                                  .limit = asked > 0 ? (int)asked : step.stages,
                                  .staged = sbp_random_below(random, 2) == 1,
                                  .draw = sbp_random_next(random)};
        train_late(&d[i], is_late_at_random, &expected);
    }
    trained_free(&expected);
    sbp_step_free(&step);
    return count_differences(&d[0], &d[1]) > 0;
}

static void late_messages_change_no_bits(void **state)
{
    const int plans = draws(25);
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, differ = 0;
    (void)state;
    sbp_random_seed(&random, seed + 3100);
    for (int tries = 0; checked < plans && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, kind_of(tries), model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (plan.graph.loss < 0)
            plan.graph.training.update.learning_rate *= 1e-5;
        if (plan_cut_stages(&plan, &random) && plan.parallel.pipeline > 2 &&
            plan.parallel.schedule == SBP_ONE_F_ONE_B) {
            plan_randomise(&plan, &random, checked % 2 == 0, SBP_BOXING_FULL, SBP_F32);
            if (has_alike_ties(&plan) && plan.step.micro_batches > 1) {
                differ += check_random(&plan, &random);
                checked++;
            }
        }
        plan_close(&plan);
    }
    print_message("seed %llu: %d pipelines, in %d stages took turns otherwise the second time\n",
                  (unsigned long long)seed, checked, differ);
    assert_int_equal(checked, plans);
    assert_true(differ > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_follow_what_comes),
        cmocka_unit_test(backward_works_go_first),
        cmocka_unit_test(a_lost_message_ends_the_run),
        cmocka_unit_test(late_messages_change_no_bits),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
