/* Buckets of states in host memory: every parameter passes once, in order, and the tasks of all
 * buckets take the time that the timeline has for them. */
#include "base/math/random.h"
#include "costmodel/program/buckets.h"
#include "costmodel/program/task_play.h"
#include "tests/support/step_bench.h"

static const char text[] =
    "{\"name\": \"m\", \"global_batch\": 16, \"precision\": \"mixed\", \"layers\": ["
    "{\"op\": \"linear\", \"in\": 24, \"out\": 40, \"bias\": true}, {\"op\": \"layernorm\"}, "
    "{\"op\": \"linear\", \"out\": 8}, {\"op\": \"linear\", \"out\": 64, \"bias\": true}]}";

/* A step on four devices, with launches that take time. */
static void open_offloaded(struct bench *b, int zero, int64_t bucket_parameters)
{
    struct sbp_cluster cluster = flat(4);
    struct sbp_parallel parallel = in_stages(1, 16, SBP_ONE_F_ONE_B);
    cluster.host_link_bytes_per_s = 1e9;
    cluster.kernel_launch_s = 3e-6;
    parallel.zero = zero;
    parallel.offload = true;
    parallel.bucket_parameters = bucket_parameters;
    *b = (struct bench){0};
    bench_open(b, text, &cluster, &parallel);
    bench_run(b);
}

/* Parts of a bucket, by tensor, lie behind each other and fill it; `seen`: parameters of each
 * tensor so far. */
static void check_bucket(const struct sbp_program *program, const struct sbp_buckets *buckets,
                         int64_t bucket, int64_t *seen)
{
    const int64_t size = sbp_buckets_size(buckets, bucket);
    int64_t filled = 0;
    assert_true(size > 0 && size <= buckets->parameters && size <= buckets->buffer);
    for (int t = 0; t < program->graph->tensor_count; t++) {
        const struct sbp_bucket_part part = sbp_buckets_part(program, buckets, t, bucket);
        if (part.count == 0)
            continue;
        assert_int_equal(part.at, filled);
        assert_int_equal(part.first, seen[t]);
        seen[t] += part.count;
        filled += part.count;
    }
    assert_int_equal(filled, size);
}

static void test_every_parameter_passes_once(void **state)
{
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, 31);
    for (int i = 0; i < 60; i++) {
        struct bench b;
        int64_t seen[32] = {0}, all = 0;
        const int64_t most = 1 + (int64_t)sbp_random_below(&random, i % 2 == 0 ? 2600 : 90);
        open_offloaded(&b, i % 4, most);
        const struct sbp_program *program = b.step.program;
        const struct sbp_buckets buckets = sbp_buckets_of(program);
        assert_true(buckets.parameters <= most);
        assert_int_equal(buckets.kinds, 3);
        assert_int_equal(buckets.count, b.step.end[0].offload.buckets);
        assert_int_equal(program->host_bytes, 12 * buckets.updated);
        for (int64_t bucket = 0; bucket < buckets.count; bucket++)
            check_bucket(program, &buckets, bucket, seen);
        for (int t = 0; t < program->graph->tensor_count; t++) {
            assert_int_equal(seen[t], program->shard[t].elements);
            all += seen[t];
        }
        assert_int_equal(all, buckets.updated);
        bench_close(&b);
    }
}

/* Where nothing but updates stands at the end of a step. */
static void test_tasks_take_the_timelines_time(void **state)
{
    (void)state;
    for (int64_t most = 50; most < 4000; most += 321) {
        struct bench b;
        struct sbp_arena arena = {0};
        struct sbp_diag diag = {{0}};
        struct sbp_tasks tasks;
        open_offloaded(&b, 0, most);
        assert_int_equal(sbp_tasks_make(&b.step, 0, &arena, &tasks, &diag), SBP_OK);
        const struct sbp_offload *offload = &b.step.end[0].offload;
        double copy_s[2] = {0, 0}, update_s = 0;
        for (int64_t i = 0; i < tasks.count; i++) {
            const struct sbp_instr *instr = sbp_task_instr(&b.step, 0, &tasks.task[i]);
            const double task_s = sbp_task_price(&b.step, 0, &tasks.task[i]).compute_s;
            if (sbp_program_is_host_copy(instr))
                copy_s[instr->kind == SBP_INSTR_COPY_IN] += task_s;
            else if (instr->kind == SBP_INSTR_UPDATE)
                update_s += task_s;
        }
        oracle_near("in", copy_s[1], offload->buckets * offload->in_s);
        oracle_near("out", copy_s[0], offload->buckets * offload->out_s);
        oracle_near("updates", update_s, offload->buckets * offload->step_s);
        sbp_arena_free(&arena);
        bench_close(&b);
    }
}

/* A bucket comes, is updated and goes; a weight that is shared out is gathered once all of its
 * shard has been updated. */
static void test_order(void **state)
{
    struct bench b;
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {{0}};
    struct sbp_tasks tasks;
    int64_t seen[32] = {0};
    int bucket = 0, gathered = 0;
    bool inside = false;
    (void)state;
    open_offloaded(&b, 1, 100);
    const struct sbp_program *program = b.step.program;
    const struct sbp_buckets buckets = sbp_buckets_of(program);
    assert_int_equal(sbp_tasks_make(&b.step, 0, &arena, &tasks, &diag), SBP_OK);
    for (int64_t i = 0; i < tasks.count; i++) {
        const struct sbp_task *task = &tasks.task[i];
        const struct sbp_instr *instr = &program->instr[task->instr];
        if (sbp_program_is_host_copy(instr)) {
            assert_int_equal(inside, instr->kind == SBP_INSTR_COPY_OUT);
            inside = !inside;
            bucket += inside;
        }
        if (instr->kind == SBP_INSTR_UPDATE) {
            assert_true(inside && task->bucket == bucket);
            seen[instr->tensor] +=
                sbp_buckets_part(program, &buckets, instr->tensor, bucket - 1).count;
        }
        if (instr->kind == SBP_INSTR_GATHER) {
            assert_int_equal(seen[instr->tensor], program->shard[instr->tensor].elements);
            gathered++;
        }
    }
    assert_int_equal(bucket, buckets.count);
    assert_int_equal(gathered, 7);
    sbp_arena_free(&arena);
    bench_close(&b);
}

/* Chunks of buckets are summed one after the other beside the optimizer, one call each, as long as
 * the timeline says; all parameters once. */
static void test_sums_beside(void **state)
{
    static const char square[] =
        "{\"name\": \"m\", \"global_batch\": 16, \"precision\": \"bf16\", \"layers\": ["
        "{\"op\": \"linear\", \"in\": 64, \"out\": 64}, {\"op\": \"linear\", \"out\": 64}]}";
    (void)state;
    for (int factor = 1; factor <= 9; factor++) {
        struct bench b = {0};
        struct sbp_arena arena = {0};
        struct sbp_diag diag = {{0}};
        struct sbp_tasks tasks;
        struct sbp_play play;
        struct sbp_cluster cluster = flat(4);
        cluster.host_link_bytes_per_s = factor % 2 == 0 ? 1e9 : 1e11; /* copies hide, or sums */
        bench_open(&b, square, &cluster, NULL);
        b.parallel.offload = true;
        b.parallel.bucket_parameters = 1024;
        b.parallel.chunk_factor = factor;
        bench_run(&b);
        if (sbp_tasks_make(&b.step, 0, &arena, &tasks, &diag) != SBP_OK)
            fail_msg("%s", diag.text);
        int64_t parameters = 0, sums = 0;
        const struct sbp_buckets buckets = sbp_buckets_of(b.step.program);
        for (int64_t i = 0; i < tasks.count; i++) {
            const struct sbp_instr *instr = sbp_task_instr(&b.step, 0, &tasks.task[i]);
            if (!tasks.task[i].is_beside)
                continue;
            parameters +=
                sbp_buckets_sum(b.step.program, &buckets, tasks.task[i].bucket - 1, instr->tensor)
                    .parameters;
            sums++;
        }
        assert_int_equal(parameters, 8192);
        assert_int_equal(sums, (8 + factor - 1) / factor);
        double **length_s = sbp_tasks_lengths(&b.step, &tasks, NULL, &arena);
        assert_int_equal(sbp_tasks_play(&b.step, &tasks, length_s, &arena, &play, &diag), SBP_OK);
        oracle_near("step", play.step_s, b.step.totals.step_s);
        sbp_arena_free(&arena);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_parameter_passes_once),
        cmocka_unit_test(test_tasks_take_the_timelines_time),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_sums_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
