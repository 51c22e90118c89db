/* Runs whose optimizer states wait in host memory and pass through the device in buckets: against
 * one device in double, against the same step without buckets, bit by bit, and with planted faults.
 * A run itself fails where the arena or host memory is not as full as the plan says. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "costmodel/program/buckets.h"
#include "run_checks.h"
#include "trained.h"

/* ---- plans --------------------------------------------------------------------------------- */

/* Elements that a rank updates of the plan's largest piece. */
static int64_t most_updated(const struct plan *plan)
{
    int64_t most = 0;
    for (int piece = 0; piece < plan->step.pieces; piece++) {
        const struct sbp_program *program = sbp_step_program(&plan->step, piece);
        int64_t updated = 0;
        for (int t = 0; t < plan->graph.tensor_count; t++)
            updated += sbp_weight_updated(&program->shard[t], t);
        most = updated > most ? updated : most;
    }
    return most;
}

/* The plan's step with states in host memory, and sums of so many buckets beside the optimizer (0:
 * before it); the bytes of a run in `real`. */
static void offload_states(const struct plan *plan, int64_t bucket_parameters, int64_t chunk_factor,
                           enum sbp_real real, struct sbp_step *step)
{
    struct sbp_parallel parallel = plan->parallel;
    parallel.offload = true;
    parallel.bucket_parameters = bucket_parameters;
    parallel.chunk_factor = chunk_factor;
    plan_step(plan, &parallel, NULL, real, step);
}

/* A random plan of 1 to 8 ranks, every second one in stages, and its step with 1 to 9 buckets of
 * the largest piece; false: there is none. `beside`: with sums beside the optimizer. `plain`: the
 * step without. */
static bool open_offloaded(struct sbp_random *random, int index, bool beside, enum sbp_real real,
                           char *model, struct plan *plan, struct sbp_step *plain)
{
    static const int one_axis[][2] = {{1, 0}, {4, 0}};
    const bool odd = index % 8 == 4, staged = index % 2 == 1;
    random_model(random, odd ? ODD : kind_of(index), model, MODEL_BYTES);
    plan_open(plan, model, index % 4 == 0 ? one_axis[odd] : random_levels(random));
    plan->cluster.host_link_bytes_per_s = 1e9;
    plan->cluster.kernel_launch_s = 1e-6;
    if (staged && !plan_cut_stages(plan, random))
        return false;
    if (!staged)
        plan_cut_step(plan, random);
    if (plan->graph.loss < 0)
        plan->graph.training.update.learning_rate *= 1e-5; /* or they would leave all numbers */
    if (beside)
        plan->parallel.zero = 0, plan->graph.training.clip_norm = 0;
    else
        plan_draw_owner(plan, *random);
    plan_randomise(plan, random, index % 3 == 0 && !odd, SBP_BOXING_FULL, real);
    if (!has_alike_ties(plan))
        return false;
    const int64_t most = most_updated(plan), buckets = 1 + (int64_t)sbp_random_below(random, 9);
    const int64_t factor = beside ? 1 + (int64_t)sbp_random_below(random, (uint64_t)buckets) : 0;
    *plain = plan->step;
    offload_states(plan, (most - 1) / buckets + 1, factor, real, &plan->step);
    plan->program = plan->step.program;
    return true;
}

static void close_offloaded(struct plan *plan, struct sbp_step *plain)
{
    sbp_step_free(plain);
    plan_close(plan);
}

/* Plans and what was among them. */
struct seen {
    int plans, states, several, cut, sharded, staged, chunked, stepwise, sums;
};

static void count_offloaded(const struct plan *plan, struct seen *seen)
{
    bool several = false, cut = false, sharded = false, sums = false;
    for (int piece = 0; piece < plan->step.pieces; piece++) {
        const struct sbp_program *program = sbp_step_program(&plan->step, piece);
        const struct sbp_buckets buckets = sbp_buckets_of(program);
        several |= buckets.count > 1;
        for (int t = 0; t < plan->graph.tensor_count && buckets.count > 1; t++) {
            const struct sbp_bucket_part part = sbp_buckets_part(program, &buckets, t, 0);
            cut |= part.count > 0 && part.count < program->shard[t].elements;
            sharded |= program->shard[t].level > 0;
            sums |=
                sbp_buckets_sums(program, t) && plan->step.parallel.chunk_factor < buckets.count;
        }
    }
    seen->sums += sums;
    seen->plans++;
    seen->states += plan->step.totals.host_bytes > 0;
    seen->several += several;
    seen->cut += cut;
    seen->sharded += sharded;
    seen->staged += plan->step.stages > 1;
    seen->chunked += plan->step.pieces > plan->step.stages;
    seen->stepwise += plan->step.micro_batches > 1;
}

static void expect_seen(const struct seen *seen, int plans, bool beside)
{
    print_message("seed %llu: %d plans, %d with states, %d in several buckets, %d that cut a "
                  "tensor, %d of shards, %d in stages, %d of several chunks, %d of micro-batches, "
                  "%d with sums in several chunks of buckets\n",
                  (unsigned long long)seed, seen->plans, seen->states, seen->several, seen->cut,
                  seen->sharded, seen->staged, seen->chunked, seen->stepwise, seen->sums);
    assert_int_equal(seen->plans, plans);
    if (plans >= 16)
        assert_true(seen->several > plans / 3 && seen->cut > plans / 4 && seen->staged > plans / 4);
    if (plans >= 40)
        assert_true((beside ? seen->sums > plans / 4 : seen->sharded > plans / 6) &&
                    seen->chunked > 0 && seen->stepwise > plans / 4);
}

typedef void (*check_offloaded)(const struct plan *plan, const struct sbp_step *plain,
                                struct sbp_random *random, const char *model, enum sbp_real real);

static void for_offloaded(uint64_t stream, int plans, bool beside, enum sbp_real real,
                          check_offloaded check)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct seen seen = {0};
    plans = draws(plans);
    sbp_random_seed(&random, seed + stream);
    for (int tries = 0; seen.plans < plans && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        struct sbp_step plain = {0};
        if (open_offloaded(&random, seen.plans, beside, real, model, &plan, &plain)) {
            check(&plan, &plain, &random, model, real);
            count_offloaded(&plan, &seen);
        }
        close_offloaded(&plan, &plain);
    }
    expect_seen(&seen, plans, beside);
}

/* ---- against one device -------------------------------------------------------------------- */

/* What is held: the states that left the device make room for the bucket. */
static void check_memory(const struct plan *plan, const struct sbp_step *plain,
                         const struct sbp_run_result *result)
{
    for (int stage = 0; stage < plan->step.stages; stage++) {
        const struct sbp_stage_memory *with = &plan->step.memory[stage];
        const struct sbp_stage_memory *without = &plain->memory[stage];
        assert_int_equal(with->moment_bytes + with->master_bytes, 0);
        assert_int_equal(without->device_bytes - with->device_bytes,
                         without->moment_bytes + without->master_bytes - with->bucket_bytes);
    }
    assert_int_equal(result->high_water_bytes, plan->step.totals.device_bytes);
    assert_int_equal(result->host_high_water_bytes, plan->step.totals.host_bytes);
    assert_int_equal(result->host_bytes, plan->step.totals.host_bytes);
}

/* Where nothing else hides, and no stages sum together, the tasks that run take as long as the
 * timeline's buckets. Sums beside the optimizer do where all weights are summed over the same
 * devices (tests/unit/costmodel/program/test_buckets.c). */
static void check_prediction(const struct plan *plan, const struct sbp_run_result *result)
{
    const double step_s = plan->step.totals.step_s;
    const bool sums_norm = plan->graph.training.clip_norm > 0 || plan->program->bytes.scales_loss;
    const bool beside = plan->step.parallel.chunk_factor > 0;
    if (count_ties(plan, false) == 0 && !sums_within(plan) && !sums_norm && !beside)
        assert_true(fabs(result->prediction.step_s - step_s) <= 1e-9 * step_s);
}

/* Tasks of a rank that sum while a bucket before them is still under way. */
static int count_early(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                       const struct sbp_run_interval *interval)
{
    double end_s = 0;
    int early = 0;
    for (int64_t i = 0; i < tasks->count; i++) {
        const struct sbp_instr *instr = sbp_task_instr(step, stage, &tasks->task[i]);
        if (sbp_program_is_host_copy(instr))
            end_s = interval[i].start_s + interval[i].wall_s;
        early += tasks->task[i].is_beside && interval[i].start_s < end_s;
    }
    return early;
}

/* Of all runs so far. Sums in their place would never be early. */
static int early_sums;

static void note_early(const struct plan *plan, const struct sbp_run_result *result)
{
    for (int rank = 0; rank < result->ranks; rank++) {
        const int stage = rank / (int)plan->step.mesh.devices;
        early_sums += count_early(&plan->step, stage, &result->tasks[stage],
                                  result->intervals + rank * result->most_tasks);
    }
}

static void check_verified(const struct plan *plan, const struct sbp_step *plain,
                           struct sbp_random *random, const char *model, enum sbp_real real)
{
    struct sbp_run_options options = options_for(real, random);
    struct sbp_run_result result;
    char text[512];
    options.steps = real == SBP_REAL_FP16 ? 6 : 3;
    options.trace = true;
    run_plan(plan, &options, model, &result);
    note_early(plan, &result);
    if (result.finding.found) {
        describe_plan(plan, model);
        fail_msg("%s", sbp_verify_finding_text(&result.finding, text, (int)sizeof text));
    }
    check_memory(plan, plain, &result);
    check_prediction(plan, &result);
    sbp_run_free(&result);
}

static void offloaded_states_equal_one_device(void **state)
{
    (void)state;
    early_sums = 0;
    for_offloaded(3100, 90, false, SBP_F64, check_verified);
    assert_int_equal(early_sums, 0);
}

static void narrow_types_equal_one_device(void **state)
{
    (void)state;
    for_offloaded(3110, 20, false, SBP_F32, check_verified);
    for_offloaded(3120, 24, false, SBP_REAL_BF16, check_verified);
    for_offloaded(3130, 24, false, SBP_REAL_FP16, check_verified);
}

static void sums_beside_the_optimizer_equal_one_device(void **state)
{
    (void)state;
    for_offloaded(3140, 60, true, SBP_F64, check_verified);
    for_offloaded(3150, 16, true, SBP_F32, check_verified);
    for_offloaded(3160, 16, true, SBP_REAL_BF16, check_verified);
    print_message("%d sums began while a bucket before them was under way\n", early_sums);
    assert_true(early_sums > 0);
}

/* ---- against the same step without --------------------------------------------------------- */

static void check_bits(const struct plan *plan, const struct sbp_step *plain,
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
        fail_msg("%d stages, buckets of %lld: %s", plan->step.stages,
                 (long long)plan->step.parallel.bucket_parameters, text);
    }
    trained_free(&with);
    trained_free(&without);
}

/* Of runs in 16 bits, whose masters are offloaded, too, losses and norms of later steps tell. */
static void check_losses(const struct plan *plan, const struct sbp_step *plain,
                         struct sbp_random *random, const char *model, enum sbp_real real)
{
    expect_same_training(plan, plain, 5, real, random, model);
}

static void buckets_train_the_same_bits(void **state)
{
    (void)state;
    for_offloaded(3200, 60, false, SBP_F32, check_bits);
    for_offloaded(3210, 24, false, SBP_REAL_BF16, check_losses);
    for_offloaded(3220, 24, false, SBP_REAL_FP16, check_losses);
    for_offloaded(3230, 40, true, SBP_F32, check_bits);
    for_offloaded(3240, 16, true, SBP_REAL_BF16, check_losses);
}

/* ---- faults -------------------------------------------------------------------------------- */

/* A copy of a random piece that has a second bucket; -1: there is none. */
static int find_copy(const struct plan *plan, struct sbp_random *random, enum sbp_instr_kind kind,
                     int *piece)
{
    *piece = (int)sbp_random_below(random, (uint64_t)plan->step.pieces);
    const struct sbp_program *program = sbp_step_program(&plan->step, *piece);
    if (sbp_buckets_of(program).count < 2)
        return -1;
    for (int i = 0; i < program->instr_count; i++)
        if (program->instr[i].kind == kind)
            return i;
    return -1;
}

static bool is_in_second(const struct plan *plan, int piece, const char *tensor)
{
    const struct sbp_program *program = sbp_step_program(&plan->step, piece);
    const struct sbp_buckets buckets = sbp_buckets_of(program);
    for (int t = 0; t < plan->graph.tensor_count; t++)
        if (strcmp(plan->graph.tensor[t].name, tensor) == 0)
            return sbp_buckets_part(program, &buckets, t, 1).count > 0;
    return false;
}

/* From the second step on the second bucket's states do not come in, or do not go out. */
static void check_lost_copy(const struct plan *plan, struct sbp_random *random, const char *model,
                            int piece, int instr, int step)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    char text[512];
    options.steps = 3;
    options.fault = SBP_FAULT_NO_COPY;
    options.fault_piece = piece;
    options.fault_instr = instr;
    run_plan(plan, &options, model, &result);
    const struct sbp_finding *finding = &result.finding;
    if (!finding->found || finding->step != step ||
        strcmp(finding->what, "states since their update") != 0 ||
        !is_in_second(plan, piece, finding->tensor)) {
        describe_plan(plan, model);
        fail_msg("a lost %s of piece %d: %s",
                 sbp_program_instr_name(plan->step.program[piece].instr[instr].kind), piece,
                 finding->found ? sbp_verify_finding_text(finding, text, (int)sizeof text)
                                : "went unnoticed");
    }
    sbp_run_free(&result);
}

static void check_lost_copies(enum sbp_instr_kind kind, int step)
{
    const int faults = draws(12);
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0;
    sbp_random_seed(&random, seed + 3300 + (uint64_t)kind);
    for (int tries = 0; planted < faults && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        struct sbp_step plain = {0};
        if (open_offloaded(&random, planted, planted % 3 == 0, SBP_F64, model, &plan, &plain)) {
            int piece;
            const int instr = find_copy(&plan, &random, kind, &piece);
            if (instr >= 0) {
                check_lost_copy(&plan, &random, model, piece, instr, step);
                planted++;
            }
        }
        close_offloaded(&plan, &plain);
    }
    assert_int_equal(planted, faults);
}

static void lost_copies_are_found(void **state)
{
    (void)state;
    check_lost_copies(SBP_INSTR_COPY_IN, 2);
    check_lost_copies(SBP_INSTR_COPY_OUT, 3);
}

/* A sum beside the optimizer of the first stage; -1: there is none. */
static int find_sum(const struct plan *plan)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {0};
    struct sbp_tasks tasks;
    int found = -1;
    expect_ok(sbp_tasks_make(&plan->step, 0, &arena, &tasks, &diag), &diag);
    for (int64_t i = 0; i < tasks.count && found < 0; i++)
        if (tasks.task[i].chunk == 0 && tasks.task[i].is_beside)
            found = tasks.task[i].instr;
    sbp_arena_free(&arena);
    return found;
}

static void lost_sums_are_found(void **state)
{
    const int faults = draws(10);
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0;
    (void)state;
    sbp_random_seed(&random, seed + 3400);
    for (int tries = 0; planted < faults && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        struct sbp_step plain = {0};
        const bool opened = open_offloaded(&random, tries, true, SBP_F64, model, &plan, &plain);
        const int instr = opened ? find_sum(&plan) : -1;
        if (instr >= 0) {
            struct sbp_run_options options = options_for(SBP_F64, &random);
            struct sbp_run_result result;
            options.fault = SBP_FAULT_SKIP;
            options.fault_instr = instr;
            run_plan(&plan, &options, model, &result);
            assert_true(result.finding.found);
            assert_string_equal(result.finding.what, "gradient");
            sbp_run_free(&result);
            planted++;
        }
        close_offloaded(&plan, &plain);
    }
    assert_int_equal(planted, faults);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static void too_many_buckets_are_refused(void **state)
{
    static const char model[] =
        "{\"name\": \"large\", \"precision\": \"fp32\", \"global_batch\": 2, \"sequence\": 1, "
        "\"optimizer\": \"adam\", \"input\": \"free\", \"layers\": [{\"op\": \"linear\", "
        "\"name\": \"wide\", \"in\": 2048, \"out\": 1024, \"bias\": false}]}";
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    struct sbp_random random;
    struct plan plan;
    (void)state;
    sbp_random_seed(&random, seed);
    plan_open(&plan, model, (const int[]){1, 0});
    plan.cluster.host_link_bytes_per_s = 1e9;
    plan.parallel.offload = true;
    plan.parallel.bucket_parameters = 1;
    plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
    const struct sbp_run_options options = options_for(SBP_F32, &random);
    assert_int_equal(sbp_run(&plan.step, &plan.cluster, &options, &result, &diag), SBP_E_RANGE);
    assert_non_null(strstr(diag.text, "bucket_parameters: 1 makes 2097152 buckets"));
    plan_close(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offloaded_states_equal_one_device),
        cmocka_unit_test(narrow_types_equal_one_device),
        cmocka_unit_test(sums_beside_the_optimizer_equal_one_device),
        cmocka_unit_test(buckets_train_the_same_bits),
        cmocka_unit_test(lost_copies_are_found),
        cmocka_unit_test(lost_sums_are_found),
        cmocka_unit_test(too_many_buckets_are_refused),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
