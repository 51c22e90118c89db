#include "executor/run.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/launcher.h"
#include "base/machine.h"
#include "base/math/numeric.h"
#include "base/math/random.h"
#include "base/text.h"
#include "costmodel/program/runnable.h"
#include "executor/rank/rank.h"

enum { TAG_REPORT = 1, TAG_INTERVALS = 2, TAG_PLEDGE = 3 };

/* The data that all rank mains share; only rank 0 writes to the result. */
struct job {
    const struct sbp_step *step;
    int64_t ranks;                 /* of all stages */
    const struct sbp_tasks *tasks; /* (stages) of a step */
    const struct sbp_cluster *cluster;
    const struct sbp_run_options *options;
    struct sbp_run_result *result;
    _Atomic(void *)
        space; /* kept for the kernels until all ranks have the memory they need; NULL: used */
    int64_t space_bytes;
    int refused; /* how many ranks there are, where the plan is for another number; else 0 */
};

/* One rank under way. */
struct runner {
    struct job *job;
    int stage;
    const struct sbp_tasks *tasks; /* of the stage */
    struct sbp_arena arena;
    struct sbp_channel channel;
    struct sbp_stage_layout layout; /* of the arena */
    struct sbp_rank rank;
    struct sbp_verifier *verifier;      /* NULL: no verification */
    struct sbp_run_interval *intervals; /* (tasks) */
    double *compute_s;                  /* (most tasks of a stage) to send, or received */
    struct sbp_progress progress;       /* of the lead */
    struct sbp_run_fault fault;         /* tests only */
};

/* A rank's share of a step's report, sent as bytes. */
struct report {
    struct sbp_run_step step;
    bool has_loss;
    int calls;
    int64_t high_water_bytes;
};

/* Among the ranks of all stages. */
static int world_rank(const struct runner *runner)
{
    return sbp_channel_rank(&runner->channel, runner->stage, runner->rank.rank);
}

static bool is_lead(const struct runner *runner)
{
    return world_rank(runner) == 0;
}

static enum sbp_status execute(struct runner *runner, const struct sbp_task *task,
                               struct sbp_diag *diag)
{
    const struct sbp_run_options *options = runner->job->options;
    const struct sbp_instr *instr = &runner->rank.program->instr[task->instr];
    const int piece = task->chunk * runner->job->step->stages + runner->stage;
    const enum sbp_fault fault =
        options->fault_instr == task->instr && options->fault_piece == piece ? options->fault
                                                                             : SBP_FAULT_NONE;
    if (fault != SBP_FAULT_NONE)
        SBP_TRY(sbp_run_fault_before(&runner->fault, fault, &runner->rank, instr, diag));
    if (runner->verifier != NULL && instr->kind == SBP_INSTR_UPDATE)
        SBP_TRY(sbp_verify_update(runner->verifier, instr, diag));
    else
        SBP_TRY(sbp_rank_execute(&runner->rank, instr, diag));
    if (fault != SBP_FAULT_NONE)
        SBP_TRY(sbp_run_fault_after(&runner->fault, fault, &runner->rank, instr, diag));
    return runner->verifier != NULL ? sbp_verify_watch(runner->verifier, task->instr, diag)
                                    : SBP_OK;
}

/* Runs a task and takes its time, without what verification adds to it and without the data of a
 * micro-batch that it begins. */
static enum sbp_status execute_timed(struct runner *runner, int64_t index, double step_start_s,
                                     struct sbp_diag *diag)
{
    const struct sbp_task *task = &runner->tasks->task[index];
    const struct sbp_device_ops *device = runner->rank.device;
    const struct sbp_channel *channel = &runner->channel;
    sbp_rank_turn(&runner->rank, task->chunk);
    if (task->begins)
        SBP_TRY(sbp_rank_begin_work(&runner->rank, task, diag));
    const double wall_s = sbp_clock_s(), compute_s = device->compute_s();
    const double exchange_wall_s = channel->wall_s, exchange_cpu_s = channel->cpu_s;
    const struct sbp_spent spent = sbp_verify_spent(runner->verifier);
    SBP_TRY(execute(runner, task, diag));
    const enum sbp_status status = device->finish();
    if (status != SBP_OK)
        return sbp_fail(diag, status, "device %s failed", device->name);
    const struct sbp_spent now = sbp_verify_spent(runner->verifier);
    struct sbp_run_interval *interval = &runner->intervals[index];
    interval->start_s = wall_s - step_start_s;
    interval->wall_s = sbp_clock_s() - wall_s - (now.wall_s - spent.wall_s);
    interval->communication_s = channel->wall_s - exchange_wall_s;
    interval->compute_s =
        fmax(0, device->compute_s() - compute_s - (channel->cpu_s - exchange_cpu_s) -
                    (now.cpu_s - spent.cpu_s));
    return task->ends ? sbp_rank_end_work(&runner->rank, task, diag) : SBP_OK;
}

/* Bytes of a rank's arena as the plan counts them. */
static int64_t arena_bytes(const struct job *job, int stage)
{
    return job->step->memory[stage].device_bytes - job->step->memory[stage].reserve_bytes;
}

static enum sbp_status check_high_water(const struct runner *runner, struct sbp_diag *diag)
{
    const int64_t rounded = (runner->rank.high_water_bytes + 63) / 64 * 64;
    const int64_t planned = arena_bytes(runner->job, runner->stage);
    if (rounded == planned)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_INTERNAL,
                    "rank %d used %lld bytes of its arena, the plan says %lld", world_rank(runner),
                    (long long)rounded, (long long)planned);
}

static enum sbp_status run_instructions(struct runner *runner, struct report *report,
                                        struct sbp_diag *diag)
{
    const struct sbp_comm_ops *ops = runner->channel.ops;
    sbp_channel_begin_step(&runner->channel);
    const enum sbp_status status = ops->barrier(runner->channel.comm);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", ops->reason(runner->channel.comm));
    const struct sbp_spent spent = sbp_verify_spent(runner->verifier);
    const double start_s = sbp_clock_s();
    for (int64_t i = 0; i < runner->tasks->count; i++) {
        SBP_TRY(execute_timed(runner, i, start_s, diag));
        report->step.compute_s += runner->intervals[i].compute_s;
        report->step.communication_s += runner->intervals[i].communication_s;
    }
    SBP_TRY(sbp_rank_end_step(&runner->rank, diag));
    report->step.wall_s =
        sbp_clock_s() - start_s - (sbp_verify_spent(runner->verifier).wall_s - spent.wall_s);
    SBP_TRY(sbp_channel_check(&runner->channel, diag));
    SBP_TRY(check_high_water(runner, diag));
    report->step.loss = sbp_rank_loss(&runner->rank);
    report->calls = runner->channel.call_count;
    report->has_loss = runner->layout.program[runner->layout.chunks - 1]->loss_buffer >= 0;
    report->step.grad_norm = runner->rank.grad_norm;
    report->step.loss_scale = runner->rank.scaler.scale;
    report->step.left_out = runner->rank.scaler.overflowed;
    report->high_water_bytes = (runner->rank.high_water_bytes + 63) / 64 * 64;
    return SBP_OK;
}

/* The loss is the last stage's; a stage without weights has no norm. */
static void keep_maxima(struct sbp_run_result *result, int step, const struct report *report)
{
    struct sbp_run_step *most = &result->step[step];
    if (isnan(report->step.grad_norm) || isnan(most->grad_norm))
        most->grad_norm = NAN;
    else
        most->grad_norm = fmax(most->grad_norm, report->step.grad_norm);
    result->calls = report->calls > result->calls ? report->calls : result->calls;
    if (report->has_loss)
        most->loss = report->step.loss;
    most->wall_s = fmax(most->wall_s, report->step.wall_s);
    most->compute_s = fmax(most->compute_s, report->step.compute_s);
    most->communication_s = fmax(most->communication_s, report->step.communication_s);
    if (report->high_water_bytes > result->high_water_bytes)
        result->high_water_bytes = report->high_water_bytes;
}

/* The slowest rank's arithmetic of each task of a stage. */
static void keep_slowest(const double *compute_s, int64_t tasks, double *slowest_s)
{
    for (int64_t i = 0; i < tasks; i++)
        slowest_s[i] = fmax(slowest_s[i], compute_s[i]);
}

static enum sbp_status hear_report(struct runner *runner, int step, int peer, double **slowest_s,
                                   struct sbp_diag *diag)
{
    const struct job *job = runner->job;
    const int stage = (int)(peer / job->step->mesh.devices);
    const int64_t tasks = job->tasks[stage].count;
    struct report other;
    SBP_TRY(sbp_channel_receive(&runner->channel, peer, TAG_REPORT, &other, sizeof other, diag));
    keep_maxima(job->result, step, &other);
    SBP_TRY(sbp_channel_receive(&runner->channel, peer, TAG_REPORT, runner->compute_s,
                                tasks * (int64_t)sizeof *runner->compute_s, diag));
    keep_slowest(runner->compute_s, tasks, slowest_s[stage]);
    return SBP_OK;
}

/* Zeros, for every task of every stage. */
static double **all_tasks(const struct job *job, struct sbp_arena *arena)
{
    double **seconds = SBP_NEW(arena, double *, job->step->stages);
    for (int stage = 0; seconds != NULL && stage < job->step->stages; stage++) {
        seconds[stage] = SBP_NEW(arena, double, job->tasks[stage].count + 1);
        if (seconds[stage] == NULL)
            return NULL;
    }
    return seconds;
}

static enum sbp_status hear_reports(struct runner *runner, int step, const struct report *own,
                                    struct sbp_diag *diag)
{
    const struct job *job = runner->job;
    struct sbp_run_step *const result = &job->result->step[step];
    double **slowest_s = all_tasks(job, &runner->arena);
    if (slowest_s == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's times");
    *result = own->step;
    keep_maxima(job->result, step, own);
    keep_slowest(runner->compute_s, runner->tasks->count, slowest_s[runner->stage]);
    for (int peer = 1; peer < job->ranks; peer++)
        SBP_TRY(hear_report(runner, step, peer, slowest_s, diag));
    return sbp_run_replay(job->step, job->tasks, slowest_s, &runner->arena, &result->replay_s,
                          diag);
}

static enum sbp_status gather_reports(struct runner *runner, int step, const struct report *report,
                                      struct sbp_diag *diag)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(&runner->arena);
    const int64_t bytes = runner->tasks->count * (int64_t)sizeof *runner->compute_s;
    for (int64_t i = 0; i < runner->tasks->count; i++)
        runner->compute_s[i] = runner->intervals[i].compute_s;
    if (!is_lead(runner)) {
        SBP_TRY(sbp_channel_send(&runner->channel, 0, TAG_REPORT, report, sizeof *report, diag));
        return sbp_channel_send(&runner->channel, 0, TAG_REPORT, runner->compute_s, bytes, diag);
    }
    const enum sbp_status status = hear_reports(runner, step, report, diag);
    sbp_arena_release(&runner->arena, mark);
    return status;
}

/* Where a rank's intervals stand in the result. */
static struct sbp_run_interval *intervals_of(const struct job *job, int rank)
{
    return job->result->intervals + rank * job->result->most_tasks;
}

static enum sbp_status gather_intervals(struct runner *runner, struct sbp_diag *diag)
{
    const struct job *job = runner->job;
    const int64_t one = (int64_t)sizeof *runner->intervals;
    const int64_t bytes = runner->tasks->count * one;
    if (!job->options->trace)
        return SBP_OK;
    if (!is_lead(runner))
        return sbp_channel_send(&runner->channel, 0, TAG_INTERVALS, runner->intervals, bytes, diag);
    memcpy(intervals_of(job, 0), runner->intervals, (size_t)bytes);
    for (int peer = 1; peer < job->ranks; peer++)
        SBP_TRY(sbp_channel_receive(&runner->channel, peer, TAG_INTERVALS, intervals_of(job, peer),
                                    job->tasks[peer / job->step->mesh.devices].count * one, diag));
    return SBP_OK;
}

/* Called between the parts of a step only: a terminal must not slow down the timed part. */
static void show_progress(struct runner *runner, int step, const char *part)
{
    if (is_lead(runner))
        sbp_progress_show(&runner->progress, "step %d of %d: %s", step + 1,
                          runner->job->options->steps, part);
}

static enum sbp_status run_step(struct runner *runner, int step, struct sbp_diag *diag)
{
    const struct sbp_run_options *options = runner->job->options;
    struct report report = {0};
    show_progress(runner, step, "preparing");
    sbp_rank_begin_step(&runner->rank, step + 1);
    if (options->fault_piece % runner->job->step->stages == runner->stage)
        sbp_run_fault_begin_step(options->fault, &runner->rank);
    if (runner->verifier != NULL)
        SBP_TRY(sbp_verify_begin_step(runner->verifier, diag));
    show_progress(runner, step, "training");
    SBP_TRY(run_instructions(runner, &report, diag));
    show_progress(runner, step, "verifying");
    if (runner->verifier != NULL)
        SBP_TRY(sbp_verify_end_step(runner->verifier, diag));
    return gather_reports(runner, step, &report, diag);
}

static enum sbp_status run_steps(struct runner *runner, struct sbp_diag *diag)
{
    struct sbp_done *progress = runner->job->options->progress;
    for (int step = 0; step < runner->job->options->steps; step++) {
        SBP_TRY(run_step(runner, step, diag));
        if (progress != NULL && is_lead(runner))
            progress->done = step + 1;
    }
    SBP_TRY(gather_intervals(runner, diag));
    if (!is_lead(runner))
        return SBP_OK;
    struct sbp_run_result *result = runner->job->result;
    if (runner->verifier != NULL) {
        const struct sbp_verify_outcome *outcome = sbp_verify_outcome(runner->verifier);
        result->finding = outcome->first;
        result->worst_ratio = outcome->worst_ratio;
    }
    result->filled = true;
    return SBP_OK;
}

/* ---- agreeing ------------------------------------------------------------------------------ */

/* A rank's word about the program that it is about to run, or the reason why it cannot. Processes
 * read plan and options on their own, and ranks that run different programs would wait for each
 * other for ever. */
struct pledge {
    uint64_t program, host;
    int64_t status;
    char reason[1024];
};

static uint64_t mix(uint64_t hash, const int64_t *values, int count)
{
    return hash * 0x100000001b3 ^ sbp_hash_bytes(values, (uint64_t)count * sizeof *values);
}

/* Ranks with other rates would not wait for each other, but train parts of different models. */
static uint64_t mix_training(uint64_t hash, const struct sbp_training *training)
{
    const struct sbp_update *update = &training->update;
    const double rates[] = {update->learning_rate, update->momentum,         update->beta1,
                            update->beta2,         update->epsilon,          update->weight_decay,
                            training->clip_norm,   (double)update->optimizer};
    return hash * 0x100000001b3 ^ sbp_hash_bytes(rates, sizeof rates);
}

static uint64_t mix_program(uint64_t hash, const struct sbp_program *program)
{
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const int64_t one[] = {instr->kind,     instr->op,       instr->phase,   instr->tensor,
                               instr->box.kind, instr->box.axes, instr->section, instr->stages};
        hash = mix(hash, one, (int)(sizeof one / sizeof *one));
    }
    for (int i = 0; i < program->buffer_count; i++)
        hash = mix(hash, &program->buffer[i].elements, 1);
    return mix(hash, &program->arena_bytes, 1);
}

static uint64_t hash_job(const struct job *job)
{
    const struct sbp_run_options *options = job->options;
    const int64_t whole[] = {
        job->ranks,     job->step->stages,      (int64_t)job->step->parallel.schedule,
        options->steps, options->verify,        options->trace,
        options->real,  (int64_t)options->seed, job->step->micro_batches};
    uint64_t hash = mix(0, whole, (int)(sizeof whole / sizeof *whole));
    hash = mix_training(hash, &sbp_step_program(job->step, 0)->graph->training);
    for (int piece = 0; piece < job->step->pieces; piece++)
        hash = mix_program(hash, sbp_step_program(job->step, piece));
    for (int stage = 0; stage < job->step->stages; stage++) {
        const int64_t tasks[] = {job->tasks[stage].count, job->tasks[stage].frames};
        hash = mix(hash, tasks, 2);
    }
    return hash;
}

/* A number that ranks on one host share. */
static uint64_t hash_host(void)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1); /* without a name all hosts are one */
    return sbp_hash_bytes(name, strlen(name));
}

static enum sbp_status hear(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int peer,
                            const struct pledge *own, int *ranks_here, struct sbp_diag *diag)
{
    struct pledge other;
    const enum sbp_status status = ops->receive(comm, peer, TAG_PLEDGE, &other, sizeof other);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", ops->reason(comm));
    if (other.status != SBP_OK)
        return sbp_fail(diag, (enum sbp_status)other.status, "rank %d: %s", peer, other.reason);
    if (other.program != own->program)
        return sbp_fail(diag, SBP_E_INPUT,
                        "rank %d has another plan or other options than rank 0: all must be alike",
                        peer);
    *ranks_here += other.host == own->host;
    return SBP_OK;
}

/* Ranks agree before they exchange anything else; rank 0 ends all when one differs. */
static enum sbp_status agree(const struct job *job, const struct sbp_comm_ops *ops,
                             struct sbp_comm *comm, struct sbp_diag *diag)
{
    const struct pledge own = {.program = hash_job(job), .host = hash_host(), .status = SBP_OK};
    if (ops->rank(comm) != 0) {
        const enum sbp_status status = ops->send(comm, 0, TAG_PLEDGE, &own, sizeof own);
        return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", ops->reason(comm));
    }
    job->result->ranks_here = 1;
    for (int peer = 1; peer < ops->size(comm); peer++)
        SBP_TRY(hear(ops, comm, peer, &own, &job->result->ranks_here, diag));
    return SBP_OK;
}

/* Rank 0 speaks for itself; the others tell it, and wait for the end that it brings. */
static enum sbp_status refusing_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     void *argument, struct sbp_diag *diag)
{
    const struct pledge *own = argument;
    if (ops->rank(comm) == 0)
        return sbp_fail(diag, (enum sbp_status)own->status, "%s", own->reason);
    SBP_TRY(ops->send(comm, 0, TAG_PLEDGE, own, sizeof *own));
    return ops->barrier(comm);
}

enum sbp_status sbp_run_refuse(enum sbp_status status, struct sbp_diag *diag)
{
    struct pledge own = {.status = status};
    (void)snprintf(own.reason, sizeof own.reason, "%s", diag->text);
    const enum sbp_status ended = sbp_mpi_run(refusing_rank, &own, diag);
    return ended == SBP_OK ? status : ended;
}

/* ---- all ranks ----------------------------------------------------------------------------- */

static enum sbp_status open_runner(struct runner *runner, const struct sbp_comm_ops *ops,
                                   struct sbp_comm *comm, struct sbp_diag *diag)
{
    const struct job *job = runner->job;
    const int64_t devices = job->step->mesh.devices;
    const struct sbp_device_ops *device = sbp_device(job->options->device, diag);
    if (device == NULL)
        return SBP_E_UNSUPPORTED;
    runner->stage = (int)(ops->rank(comm) / devices);
    runner->tasks = &job->tasks[runner->stage];
    SBP_TRY(sbp_channel_open(&runner->channel, ops, comm, job->step, runner->tasks,
                             device->kernels(job->options->real), &runner->arena, diag));
    runner->intervals = SBP_NEW(&runner->arena, struct sbp_run_interval, runner->tasks->count);
    runner->compute_s = SBP_NEW(&runner->arena, double, job->result->most_tasks + 1);
    if (runner->intervals == NULL || runner->compute_s == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's times");
    SBP_TRY(sbp_stage_layout_make(job->step, runner->stage, &runner->arena, &runner->layout, diag));
    SBP_TRY(sbp_rank_open(&runner->rank, &runner->layout, device, job->options->real,
                          job->options->seed, ops->rank(comm) % devices, &runner->channel, diag));
    if (sbp_rank_fill_weights(&runner->rank) != SBP_OK)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the initial weights");
    if (!job->options->verify)
        return SBP_OK;
    return sbp_verify_open(&runner->rank, job->cluster, &runner->verifier, diag);
}

/* Leaves the kernels the address space that was kept for them, now that all ranks of this process
 * have their memory. What is large is allocated by then. */
static enum sbp_status release_space(struct runner *runner, const struct sbp_comm_ops *ops,
                                     struct sbp_comm *comm, struct sbp_diag *diag)
{
    struct job *job = runner->job;
    const enum sbp_status status = ops->barrier(comm);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", ops->reason(comm));
    sbp_machine_release(atomic_exchange(&job->space, NULL), job->space_bytes);
    return SBP_OK;
}

static enum sbp_status rank_main(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    struct runner runner = {.job = argument};
    sbp_progress_start(&runner.progress);
    SBP_TRY(agree(runner.job, ops, comm, diag));
    if (ops->size(comm) != runner.job->ranks) {
        /* Every rank sees it: no need to end the others. */
        runner.job->refused = ops->size(comm);
        return SBP_OK;
    }
    enum sbp_status status = open_runner(&runner, ops, comm, diag);
    if (status == SBP_OK)
        status = release_space(&runner, ops, comm, diag);
    if (status == SBP_OK)
        status = run_steps(&runner, diag);
    sbp_progress_end(&runner.progress);
    sbp_verify_close(runner.verifier);
    sbp_run_fault_free(&runner.fault, &runner.rank);
    sbp_rank_close(&runner.rank);
    sbp_arena_free(&runner.arena);
    return status;
}

/* Lists the tasks of all stages. */
static enum sbp_status open_tasks(struct job *job, struct sbp_diag *diag)
{
    struct sbp_run_result *result = job->result;
    struct sbp_tasks *tasks = SBP_NEW(&result->arena, struct sbp_tasks, job->step->stages);
    if (tasks == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the step's tasks");
    job->tasks = result->tasks = tasks;
    for (int stage = 0; stage < job->step->stages; stage++) {
        SBP_TRY(sbp_tasks_make(job->step, stage, &result->arena, &tasks[stage], diag));
        const int64_t bytes = arena_bytes(job, stage);
        result->most_tasks =
            tasks[stage].count > result->most_tasks ? tasks[stage].count : result->most_tasks;
        result->arena_bytes = bytes > result->arena_bytes ? bytes : result->arena_bytes;
    }
    return sbp_run_predict(job->step, tasks, &result->arena, &result->prediction, diag);
}

static enum sbp_status open_result(struct job *job, struct sbp_diag *diag)
{
    const struct sbp_run_options *options = job->options;
    struct sbp_run_result *result = job->result;
    struct sbp_machine machine;
    sbp_machine_find(SBP_CONTROL_GROUP, &machine);
    *result = (struct sbp_run_result){.ranks = (int)job->ranks,
                                      .steps = options->steps,
                                      .cores = machine.cores,
                                      .verified = options->verify};
    SBP_TRY(open_tasks(job, diag));
    result->step = SBP_NEW(&result->arena, struct sbp_run_step, options->steps);
    int64_t count = 0;
    if (options->trace && sbp_mul_i64(job->ranks, result->most_tasks, &count))
        result->intervals = SBP_NEW(&result->arena, struct sbp_run_interval, count);
    if (result->step == NULL || (options->trace && result->intervals == NULL))
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the run's results");
    return SBP_OK;
}

/* Arenas of all ranks. */
static double arenas_bytes(const struct job *job)
{
    double bytes = 0;
    for (int stage = 0; stage < job->step->stages; stage++)
        bytes += (double)job->step->mesh.devices * (double)arena_bytes(job, stage);
    return bytes;
}

/* What verification adds in this process, which runs `ranks`; 0 without it. */
static enum sbp_status verification_bytes(const struct job *job, int64_t ranks, double *bytes,
                                          struct sbp_diag *diag)
{
    struct sbp_verify_need need = {0};
    if (job->options->verify)
        SBP_TRY(sbp_verify_count(job->step, job->cluster, &need, diag));
    const bool leads = ranks == job->ranks || sbp_launcher_rank() <= 0;
    *bytes = (leads ? need.reference_bytes : 0) + (double)ranks * need.rank_bytes;
    return SBP_OK;
}

/* Linux hands out memory that is not there and ends a process, or another one, when it is touched;
 * so the need is compared with the machine first. */
static enum sbp_status check_memory(int64_t ranks, double arenas, double verification,
                                    struct sbp_diag *diag)
{
    struct sbp_machine machine;
    char needs[32], has[32], of_it[32], part[96] = "";
    sbp_machine_find(SBP_CONTROL_GROUP, &machine);
    const double there = (double)machine.memory_bytes;
    if (there == 0 || arenas + verification <= there)
        return SBP_OK;
    if (verification > 0)
        (void)snprintf(part, sizeof part, ", %s of it to verify (--verify=shrunk takes less)",
                       sbp_format_bytes(verification, of_it));
    return sbp_fail(diag, SBP_E_MEMORY, "%lld rank%s need%s %s together%s, this machine has %s",
                    (long long)ranks, ranks == 1 ? "" : "s", ranks == 1 ? "s" : "",
                    sbp_format_bytes(arenas + verification, needs), part,
                    sbp_format_bytes(there, has));
}

/* Sees that the ranks of this process find the address space for memory, stack and kernels, and
 * keeps the kernels' part. */
static enum sbp_status keep_space(struct job *job, int64_t ranks, double values,
                                  struct sbp_diag *diag)
{
    enum { STACK_BYTES = 8 << 20 };
    char what[64];
    void *all, *space;
    const int64_t bytes = ranks * SBP_KERNELS_CPU_SPACE_BYTES;
    (void)snprintf(what, sizeof what, "%lld rank%s", (long long)ranks, ranks == 1 ? "" : "s");
    const int64_t whole = bytes + (int64_t)values + ranks * STACK_BYTES;
    SBP_TRY(sbp_machine_reserve(whole, what, &all, diag));
    sbp_machine_release(all, whole);
    SBP_TRY(sbp_machine_reserve(bytes, what, &space, diag));
    job->space = space;
    job->space_bytes = bytes;
    return SBP_OK;
}

/* `ranks` of this process, whose arenas take so many bytes. */
static enum sbp_status prepare_process(struct job *job, int64_t ranks, double arenas,
                                       struct sbp_diag *diag)
{
    double verification;
    SBP_TRY(verification_bytes(job, ranks, &verification, diag));
    SBP_TRY(check_memory(ranks, arenas, verification, diag));
    return keep_space(job, ranks, arenas + verification, diag);
}

static enum sbp_status run_ranks(struct job *job, struct sbp_diag *diag)
{
    const char *backend = job->options->backend;
    if (strcmp(backend, "mpi") == 0) {
        const enum sbp_status status =
            prepare_process(job, 1, (double)job->result->arena_bytes, diag);
        return status == SBP_OK ? sbp_mpi_run(rank_main, job, diag) : sbp_run_refuse(status, diag);
    }
    if (strcmp(backend, "nccl") == 0)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "backend nccl: plans run on threads and mpi, NCCL is for calibrating");
    if (job->ranks > 1024)
        return sbp_fail(diag, SBP_E_INPUT, "plan is for %lld ranks, the threads backend runs 1024",
                        (long long)job->ranks);
    SBP_TRY(prepare_process(job, job->ranks, arenas_bytes(job), diag));
    return sbp_threads_run((int)job->ranks, rank_main, job, diag);
}

static bool same_states(const struct sbp_program *a, const struct sbp_program *b, int tensor)
{
    return a->shard[tensor].level == b->shard[tensor].level &&
           a->shard[tensor].elements == b->shard[tensor].elements &&
           sbp_dist_equal(&a->mesh, &a->buffer[a->weight_buffer[tensor]].dist,
                          &b->buffer[b->weight_buffer[tensor]].dist);
}

/* Stages and chunks that share a weight sum its gradients block by block, or shard by shard. */
static enum sbp_status check_ties(const struct job *job, struct sbp_diag *diag)
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

enum sbp_status sbp_run(const struct sbp_step *step, const struct sbp_cluster *cluster,
                        const struct sbp_run_options *options, struct sbp_run_result *result,
                        struct sbp_diag *diag)
{
    const struct sbp_program *program = &step->program[0];
    struct job job = {.step = step,
                      .ranks = step->stages * step->mesh.devices,
                      .cluster = cluster,
                      .options = options,
                      .result = result};
    SBP_TRY(sbp_runnable_check(program->graph, &program->mesh, &program->strategy,
                               &program->parallel, diag));
    SBP_TRY(check_ties(&job, diag));
    enum sbp_status status = open_result(&job, diag);
    if (status == SBP_OK)
        status = run_ranks(&job, diag);
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
