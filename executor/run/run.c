#include "executor/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/launcher.h"
#include "base/machine.h"
#include "base/math/numeric.h"
#include "costmodel/program/runnable.h"
#include "executor/run/run_memory.h"
#include "executor/run/run_times.h"
#include "executor/run/runner_priv.h"

/* Lists the tasks of all stages. */
static enum sbp_status open_tasks(struct sbp_run_job *job, struct sbp_diag *diag)
{
    struct sbp_run_result *result = job->result;
    struct sbp_tasks *tasks = SBP_NEW(&result->arena, struct sbp_tasks, job->step->stages);
    if (tasks == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's tasks");
    job->tasks = result->tasks = tasks;
    for (int stage = 0; stage < job->step->stages; stage++) {
        SBP_TRY(sbp_tasks_make(job->step, stage, &result->arena, &tasks[stage], diag));
        const int64_t bytes = sbp_run_arena_bytes(job->step, stage);
        result->most_tasks =
            tasks[stage].count > result->most_tasks ? tasks[stage].count : result->most_tasks;
        result->arena_bytes = bytes > result->arena_bytes ? bytes : result->arena_bytes;
        if (job->step->memory[stage].host_bytes > result->host_bytes)
            result->host_bytes = job->step->memory[stage].host_bytes;
    }
    SBP_TRY(sbp_message_plan_make(job->step, tasks, &result->arena, &job->messages, diag));
    SBP_TRY(sbp_sum_plan_make(job->step, tasks, &result->arena, &job->sums, diag));
    job->sums.is_late = job->options->fault == SBP_FAULT_NO_WAIT;
    return sbp_run_predict(job->step, tasks, &result->arena, &result->prediction, diag);
}

bool sbp_run_has_cores(const struct sbp_run_result *result)
{
    return result->ranks_here <= result->cores * result->slowdown;
}

static enum sbp_status open_result(struct sbp_run_job *job, struct sbp_diag *diag)
{
    const struct sbp_run_options *options = job->options;
    struct sbp_run_result *result = job->result;
    struct sbp_machine machine;
    sbp_machine_find(SBP_CONTROL_GROUP, &machine);
    *result = (struct sbp_run_result){
        .ranks = (int)job->ranks,
        .steps = options->steps,
        .cores = machine.cores,
        .slowdown = job->device->lanes != NULL ? 1 : fmax(1, job->step->cluster.slowdown),
        .verified = options->verify,
        .sampled = options->verify && options->sampled};
    SBP_TRY(open_tasks(job, diag));
    result->step = SBP_NEW(&result->arena, struct sbp_run_step, options->steps);
    int64_t count = 0;
    if (options->trace && sbp_mul_i64(job->ranks, result->most_tasks, &count))
        result->intervals = SBP_NEW(&result->arena, struct sbp_run_interval, count);
    if (result->step == NULL || (options->trace && result->intervals == NULL))
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the run's results");
    return SBP_OK;
}

/* Sees that the ranks of this process find the address space for memory, kernels, and stacks, of a
 * rank and of its lanes of messages and sums, and keeps the kernels' part. */
static enum sbp_status keep_space(struct sbp_run_job *job, int64_t ranks, double values,
                                  struct sbp_diag *diag)
{
    enum { STACK_BYTES = 8 << 20 };
    char what[64];
    void *all, *space;
    const int64_t bytes = ranks * SBP_KERNELS_CPU_SPACE_BYTES;
    (void)snprintf(what, sizeof what, "%lld rank%s", (long long)ranks, ranks == 1 ? "" : "s");
    const int64_t whole = bytes + (int64_t)values + 3 * ranks * STACK_BYTES;
    SBP_TRY(sbp_machine_reserve(whole, what, &all, diag));
    sbp_machine_release(all, whole);
    SBP_TRY(sbp_machine_reserve(bytes, what, &space, diag));
    job->space = space;
    job->space_bytes = bytes;
    return SBP_OK;
}

/* Processes wait for each other before MPI tells them who they are, and one may never come. */
static void note_launch(struct sbp_run_job *job)
{
    const int64_t rank = sbp_launcher_rank();
    if (rank >= 0 && rank < job->ranks)
        sbp_post_wait(sbp_watch_post(&job->watch, (int)rank), SBP_WAITS_ALL);
}

/* Counts what verification takes, and sees that the ranks of this process find their memory, as far
 * as it can tell alone: processes of one host compare theirs when they agree. */
static enum sbp_status prepare_process(struct sbp_run_job *job, struct sbp_diag *diag)
{
    double bytes;
    if (job->options->verify)
        SBP_TRY(sbp_verify_count(job->step, job->cluster, job->options->real, job->options->sampled,
                                 &job->verify, diag));
    if (sbp_run_is_mpi(job)) {
        const int64_t own = sbp_launcher_rank(), rank = own >= 0 && own < job->ranks ? own : 0;
        bytes = sbp_run_need_of(job->step, rank, &job->verify, job->device->memory).bytes;
        return keep_space(job, 1, bytes, diag);
    }
    SBP_TRY(sbp_run_check_threads(job->step, &job->verify, job->device->memory, &bytes, diag));
    return keep_space(job, job->ranks, bytes, diag);
}

bool sbp_run_starts_mpi(const char *backend)
{
    return strcmp(backend, "mpi") == 0 || strcmp(backend, "nccl") == 0;
}

static bool is_nccl(const struct sbp_run_job *job)
{
    return strcmp(job->options->backend, "nccl") == 0;
}

static enum sbp_status check_backend(const struct sbp_run_job *job, struct sbp_diag *diag)
{
    if (is_nccl(job) && job->device->memory == &sbp_device_host_memory)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "backend nccl: plans run on threads and mpi, and with --device cuda on "
                        "nccl");
    return SBP_OK;
}

static enum sbp_status run_ranks(struct sbp_run_job *job, struct sbp_diag *diag)
{
    SBP_TRY(check_backend(job, diag));
    if (sbp_run_is_mpi(job))
        note_launch(job);
    const enum sbp_status status = prepare_process(job, diag);
    if (sbp_run_is_mpi(job))
        return status != SBP_OK
                   ? sbp_run_refuse(status, diag)
                   : (is_nccl(job) ? sbp_comm_nccl_run : sbp_mpi_run)(sbp_runner_main, job, diag);
    return status == SBP_OK ? sbp_threads_run((int)job->ranks, sbp_runner_main, job, diag) : status;
}

static bool same_states(const struct sbp_program *a, const struct sbp_program *b, int tensor)
{
    return a->shard[tensor].level == b->shard[tensor].level &&
           a->shard[tensor].elements == b->shard[tensor].elements &&
           a->shard[tensor].owner == b->shard[tensor].owner &&
           (a->shard[tensor].owner < 0 || a->shard[tensor].axes == b->shard[tensor].axes) &&
           sbp_dist_equal(&a->mesh, &a->buffer[a->weight_buffer[tensor]].dist,
                          &b->buffer[b->weight_buffer[tensor]].dist);
}

/* Stages and chunks that share a weight sum its gradients block by block, or shard by shard. */
static enum sbp_status check_ties(const struct sbp_run_job *job, struct sbp_diag *diag)
{
    const struct sbp_step *step = job->step;
    const struct sbp_graph *graph = sbp_step_program(step, 0)->graph;
    for (int t = 0; t < graph->tensor_count; t++)
        for (int piece = 0; piece < step->pieces; piece++)
            if (sbp_step_program(step, piece)->weight_buffer[t] >= 0 &&
                !same_states(sbp_step_program(step, piece),
                             sbp_step_program(step, sbp_step_holder(step, t)), t))
                return sbp_fail(diag, SBP_E_UNSUPPORTED,
                                "plan: %s: split or sharded otherwise in another stage or chunk is "
                                "searched and priced, not run: alike is legal",
                                graph->tensor[t].name);
    return SBP_OK;
}

static enum sbp_status find_device(struct sbp_run_job *job, struct sbp_diag *diag)
{
    const enum sbp_real real = job->options->real;
    SBP_TRY(sbp_device_find(job->options->device, &job->device, diag));
    if (job->options->tf32) {
        if (job->device->kernels_tf32 == NULL || real != SBP_F32)
            return sbp_fail(diag, SBP_E_UNSUPPORTED,
                            "--math tf32 is for tensors in f32 on device cuda, not in %s on device "
                            "%s",
                            sbp_real_name(real), job->device->name);
        job->tf32_device = *job->device;
        job->tf32_device.kernels = job->device->kernels_tf32;
        job->device = &job->tf32_device;
    }
    if (job->device->kernels(real) == NULL)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "device %s has no kernels of %s, legal are f32, bf16 and f16",
                        job->device->name, sbp_real_name(real));
    return SBP_OK;
}

/* Checks what needs no ranks, and makes room for the result. */
static enum sbp_status open_job(struct sbp_run_job *job, struct sbp_diag *diag)
{
    const struct sbp_program *program = &job->step->program[0];
    *job->result = (struct sbp_run_result){0};
    SBP_TRY(sbp_runnable_check(program->graph, &program->parallel, diag));
    SBP_TRY(check_ties(job, diag));
    SBP_TRY(find_device(job, diag));
    return open_result(job, diag);
}

enum sbp_status sbp_run_check(const struct sbp_step *step, const struct sbp_run_options *options,
                              struct sbp_diag *diag)
{
    struct sbp_run_result result;
    struct sbp_run_job job = {.step = step,
                              .ranks = step->stages * step->mesh.devices,
                              .options = options,
                              .result = &result};
    enum sbp_status status = open_job(&job, diag);
    double bytes;
    if (status == SBP_OK)
        status = check_backend(&job, diag);
    if (status == SBP_OK && !sbp_run_is_mpi(&job))
        status = sbp_run_check_threads(step, &job.verify, job.device->memory, &bytes, diag);
    sbp_run_free(&result);
    return status;
}

enum sbp_status sbp_run(const struct sbp_step *step, const struct sbp_cluster *cluster,
                        const struct sbp_run_options *options, struct sbp_run_result *result,
                        struct sbp_diag *diag)
{
    struct sbp_run_job job = {.step = step,
                              .ranks = step->stages * step->mesh.devices,
                              .cluster = cluster,
                              .options = options,
                              .result = result};
    enum sbp_status status = open_job(&job, diag);
    if (status == SBP_OK && options->alarm != NULL)
        status = sbp_watch_start(&job.watch, options->alarm, step, job.tasks,
                                 result->prediction.step_s, options->deadline_s, diag);
    if (status == SBP_OK)
        status = run_ranks(&job, diag);
    sbp_watch_stop(&job.watch);
    sbp_machine_release(job.space, job.space_bytes); /* where ranks did not come so far */
    if (status == SBP_OK && job.refused > 0)
        status = sbp_fail(diag, SBP_E_INPUT, "plan is for %lld ranks, %d are running",
                          (long long)job.ranks, job.refused);
    if (status != SBP_OK)
        sbp_run_free(result);
    return status;
}

void sbp_run_free(struct sbp_run_result *result)
{
    sbp_arena_free(&result->arena);
    *result = (struct sbp_run_result){0};
}
