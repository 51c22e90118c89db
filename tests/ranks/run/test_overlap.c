/* Sums of gradients beside the backward pass: they are the sums of a run without, to the bit, and
 * those of one device; they do run beside; and a wait that is missing, or for a rank that does not
 * come, is named. */
#include <string.h>

#include "run_checks.h"
#include "trained.h"

/* ---- plans --------------------------------------------------------------------------------- */

/* Of eight plans two sum whole gradients, two may have owners, and four keep the ZeRO level that
 * was drawn. */
static void draw_sums(struct plan *plan, int index, struct sbp_random *random)
{
    if (index / 2 % 4 < 2)
        plan->parallel.zero = 0;
    if (index / 2 % 4 == 1)
        plan_draw_owner(plan, *random);
    plan->parallel.gradient_overlap = 0;
    plan->cluster.runtime.hidden[SBP_HIDES_GRADIENTS] = 1;
}

/* A random plan, every second one in stages, whose sums go beside, and the step where they do not;
 * false: there is none. */
static bool open_beside(struct sbp_random *random, int index, enum sbp_real real, char *model,
                        struct plan *plan, struct sbp_step *plain)
{
    random_model(random, kind_of(index), model, MODEL_BYTES);
    plan_open(plan, model, random_levels(random));
    if (index % 2 == 1 && !plan_cut_stages(plan, random))
        return false;
    if (index % 2 == 0)
        plan_cut_step(plan, random);
    if (plan->graph.loss < 0)
        plan->graph.training.update.learning_rate *= 1e-5; /* or they would leave all numbers */
    draw_sums(plan, index, random);
    plan_randomise(plan, random, index % 3 == 0, SBP_BOXING_FULL, real);
    *plain = plan->step;
    plan->parallel.gradient_overlap = 1;
    plan_step(plan, &plan->parallel, NULL, real, &plan->step);
    plan->program = plan->step.program;
    return true;
}

static void close_beside(struct plan *plan, struct sbp_step *plain)
{
    sbp_step_free(plain);
    plan_close(plan);
}

/* Sums beside: of whole gradients, to shards and to owners, and those of each micro-batch. */
enum { WHOLE, TO_SHARDS, TO_OWNER, WITHIN, SUMS };
static const char *const sum_names[SUMS] = {"whole", "to shards", "to owners",
                                            "of each micro-batch"};

/* Of all runs so far: sums, and those that were under way when the rank went on. */
struct tally_of_sums {
    int all[SUMS], early[SUMS];
};

static void count_sum(const struct plan *plan, const struct sbp_instr *instr, bool early,
                      struct tally_of_sums *tally)
{
    const bool owned = plan->step.parallel.owner != SBP_OWNER_NONE;
    const int kind = instr->kind != SBP_INSTR_SCATTER ? WHOLE : owned ? TO_OWNER : TO_SHARDS;
    tally->all[kind]++;
    tally->early[kind] += early;
    tally->all[WITHIN] += instr->section != SBP_SECTION_STEP;
    tally->early[WITHIN] += early && instr->section != SBP_SECTION_STEP;
}

static void count_sums(const struct plan *plan, const struct sbp_run_result *result,
                       struct tally_of_sums *tally)
{
    for (int rank = 0; rank < result->ranks; rank++) {
        const int stage = rank / (int)plan->step.mesh.devices;
        const struct sbp_tasks *tasks = &result->tasks[stage];
        const struct sbp_run_interval *interval = result->intervals + rank * result->most_tasks;
        for (int64_t i = 0; i + 1 < tasks->count; i++)
            if (tasks->task[i].is_beside)
                count_sum(plan, sbp_task_instr(&plan->step, stage, &tasks->task[i]),
                          !tasks->task[i + 1].is_beside &&
                              interval[i + 1].start_s < interval[i].start_s + interval[i].wall_s,
                          tally);
    }
}

typedef void (*check_beside)(const struct plan *plan, const struct sbp_step *plain,
                             struct sbp_random *random, const char *model, enum sbp_real real);

static void for_beside(uint64_t stream, int plans, enum sbp_real real, check_beside check)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    int checked = 0, several = 0, staged = 0;
    plans = draws(plans);
    sbp_random_seed(&random, seed + stream);
    for (int tries = 0; checked < plans && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        struct sbp_step plain = {0};
        if (open_beside(&random, checked, real, model, &plan, &plain) && has_alike_ties(&plan)) {
            check(&plan, &plain, &random, model, real);
            checked++;
            several += plan.step.micro_batches > 1;
            staged += plan.step.stages > 1;
        }
        close_beside(&plan, &plain);
    }
    print_message("seed %llu: %d plans, %d of several micro-batches, %d in stages\n",
                  (unsigned long long)seed, checked, several, staged);
    assert_int_equal(checked, plans);
    assert_true(plans < 40 || (several > plans / 4 && staged > plans / 4));
}

/* ---- against one device, and without -------------------------------------------------------- */

static struct tally_of_sums sums;

static void check_verified(const struct plan *plan, const struct sbp_step *plain,
                           struct sbp_random *random, const char *model, enum sbp_real real)
{
    struct sbp_run_options options = options_for(real, random);
    struct sbp_run_result result;
    char text[512];
    (void)plain;
    options.trace = true;
    run_plan(plan, &options, model, &result);
    if (result.finding.found) {
        describe_plan(plan, model);
        fail_msg("%s", sbp_verify_finding_text(&result.finding, text, (int)sizeof text));
    }
    assert_int_equal(result.high_water_bytes, plan->step.totals.device_bytes);
    count_sums(plan, &result, &sums);
    sbp_run_free(&result);
}

static void sums_beside_equal_one_device(void **state)
{
    (void)state;
    for_beside(4100, 60, SBP_F64, check_verified);
    for_beside(4110, 20, SBP_REAL_FP16, check_verified);
    for (int kind = 0; kind < SUMS; kind++) {
        print_message("%d of %d sums %s were under way while the rank went on\n", sums.early[kind],
                      sums.all[kind], sum_names[kind]);
        assert_true(sums.all[kind] > draws(100) / 5 &&
                    sums.early[kind] > sums.all[kind] / (kind == WHOLE ? 20 : 50));
    }
}

static void check_bits(const struct plan *plan, const struct sbp_step *plain,
                       struct sbp_random *random, const char *model, enum sbp_real real)
{
    expect_same_training(plan, plain, 4, real, random, model);
}

/* In its place, as where one thread alone may communicate. */
static void check_in_line(const struct plan *plan, const struct sbp_step *plain,
                          struct sbp_random *random, const char *model, enum sbp_real real)
{
    struct trained with, without;
    char text[256];
    (void)random;
    (void)real;
    train(&plan->step, 3, seed, &with);
    train(plain, 3, seed, &without);
    if (!trained_alike(&with, &without, text, (int)sizeof text)) {
        describe_plan(plan, model);
        fail_msg("%s", text);
    }
    trained_free(&with);
    trained_free(&without);
}

static void sums_beside_train_the_same_bits(void **state)
{
    (void)state;
    for_beside(4200, 60, SBP_F32, check_bits);
    for_beside(4210, 20, SBP_REAL_BF16, check_bits);
    for_beside(4220, 40, SBP_F32, check_in_line);
}

/* ---- faults -------------------------------------------------------------------------------- */

/* Leaves out a wait of the first stage that `find` finds (-1: there is none), in plans enough, and
 * checks what comes of it. */
static void for_waits(uint64_t stream, int (*find)(const struct plan *plan),
                      void (*check)(const struct plan *plan, const struct sbp_run_options *options,
                                    const char *model))
{
    enum { FAULTS = 8 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0;
#ifdef __SANITIZE_THREAD__
    skip(); /* finds the race that is planted */
#endif
    sbp_random_seed(&random, seed + stream);
    for (int tries = 0; planted < FAULTS && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        struct sbp_step plain = {0};
        const bool opened = open_beside(&random, tries, SBP_F64, model, &plan, &plain);
        const int instr = opened && has_alike_ties(&plan) ? find(&plan) : -1;
        if (instr >= 0) {
            struct sbp_run_options options = options_for(SBP_F64, &random);
            plant_fault(&options, SBP_FAULT_NO_WAIT, 0, instr);
            check(&plan, &options, model);
            planted++;
        }
        close_beside(&plan, &plain);
    }
    assert_int_equal(planted, FAULTS);
}

/* The update of the first stage's last sum beside; -1: it has none, or others wait for that, too,
 * or communicate behind it. */
static int find_update(const struct plan *plan)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {0};
    struct sbp_tasks tasks;
    int found = -1, last = 0, others = 0;
    expect_ok(sbp_tasks_make(&plan->step, 0, &arena, &tasks, &diag), &diag);
    for (int64_t i = 0; i < tasks.count; i++) {
        const struct sbp_task *task = &tasks.task[i];
        last = task->is_beside ? (int)i + 1 : last;
        const struct sbp_instr *instr = sbp_task_instr(&plan->step, 0, task);
        const bool waits = last > 0 && task->after == last;
        if (waits && found < 0 && task->chunk == 0 && instr->kind == SBP_INSTR_UPDATE)
            found = task->instr;
        else if (waits || (last > 0 && found >= 0 && sbp_program_is_call(instr)))
            others++;
    }
    sbp_arena_free(&arena);
    return others == 0 ? found : -1;
}

static void check_refused(const struct plan *plan, const struct sbp_run_options *options,
                          const char *model)
{
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    (void)model;
    assert_int_equal(sbp_run(&plan->step, &plan->cluster, options, &result, &diag), SBP_E_INTERNAL);
    assert_non_null(strstr(diag.text, "wait for a sum is left out"));
}

static void a_missing_wait_is_named(void **state)
{
    (void)state;
    for_waits(4300, find_update, check_refused);
}

/* A pass of the first stage that waits for the room of a sum beside; -1: there is none, or no other
 * waits later, or somebody communicates between the two, whose wait would be lost as well, or
 * it comes behind a message, for which the rank may wait until the sum is over. */
static int find_room(const struct plan *plan)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {0};
    struct sbp_tasks tasks;
    int found = -1;
    bool is_last = true, calls = false, waits = false;
    expect_ok(sbp_tasks_make(&plan->step, 0, &arena, &tasks, &diag), &diag);
    for (int64_t i = 0; i < tasks.count; i++) {
        const struct sbp_task *task = &tasks.task[i];
        const struct sbp_instr *instr = sbp_task_instr(&plan->step, 0, task);
        waits = !task->is_beside && (waits || instr->kind == SBP_INSTR_RECEIVE);
        if (task->after > 0 && task->chunk == 0 && instr->kind == SBP_INSTR_BACKWARD && found < 0 &&
            !waits)
            found = task->instr;
        if (found >= 0 && task->after > 0)
            is_last = task->chunk == 0 && task->instr == found;
        calls |= found >= 0 && is_last && !task->is_beside && sbp_program_is_call(instr);
    }
    sbp_arena_free(&arena);
    return is_last || calls ? -1 : found;
}

/* The gradient is overwritten on its way to its shards. */
static void check_spoilt(const struct plan *plan, const struct sbp_run_options *options,
                         const char *model)
{
    struct sbp_run_result result;
    run_plan(plan, options, model, &result);
    if (!result.finding.found)
        describe_plan(plan, model);
    assert_true(result.finding.found);
    assert_string_equal(result.finding.what, "gradient");
    sbp_run_free(&result);
}

static void a_missing_wait_for_room_spoils_the_sum(void **state)
{
    (void)state;
    for_waits(4400, find_room, check_spoilt);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_beside_equal_one_device),
        cmocka_unit_test(sums_beside_train_the_same_bits),
        cmocka_unit_test(a_missing_wait_is_named),
        cmocka_unit_test(a_missing_wait_for_room_spoils_the_sum),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
