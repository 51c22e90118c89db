#include "costmodel/program/step_trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 160 };

/* From 1, since 0 is the process's own. */
enum lane { COMPUTE = 1, COLLECTIVE, TO_NEXT, TO_PREVIOUS, RECEIVE, COPY, COPY_BACK, LANES };

static const char *const lane_names[LANES] = {
    [COMPUTE] = "compute",      [COLLECTIVE] = "collective",
    [TO_NEXT] = "send to next", [TO_PREVIOUS] = "send to previous",
    [RECEIVE] = "receive",      [COPY] = "copy",
    [COPY_BACK] = "copy back",
};

/* A device as far as it is drawn. */
struct process {
    struct sbp_trace *trace;
    const struct sbp_step *step;
    int pid;
    unsigned named; /* lanes that have their name: a bit each */
    int in_flight;
    int64_t held_bytes; /* between works */
};

static void draw(struct process *process, enum lane lane, const char *name, double begin_s,
                 double end_s, const struct sbp_trace_detail *details, int detail_count)
{
    if ((process->named >> lane & 1) == 0)
        sbp_trace_lane(process->trace, process->pid, (int)lane, lane_names[lane]);
    process->named |= 1U << lane;
    sbp_trace_interval(process->trace, process->pid, (int)lane, name, begin_s, end_s, details,
                       detail_count);
}

static void count_bytes(const struct process *process, double at_s, int64_t bytes)
{
    sbp_trace_counter(process->trace, process->pid, "memory", "bytes", at_s, bytes);
}

static void count_in_flight(struct process *process, double at_s, int change)
{
    process->in_flight += change;
    sbp_trace_counter(process->trace, process->pid, "micro-batches in flight", "micro-batches",
                      at_s, process->in_flight);
}

/* Weight gradients that are a work of their own are the last to need a micro-batch's frame. */
/* ---- names --------------------------------------------------------------------------------- */

const char *sbp_step_trace_name(const struct sbp_step *step, const char *what, int stage,
                                char *buffer)
{
    if (step->stages > 1)
        (void)snprintf(buffer, SBP_STEP_TRACE_NAME_BYTES, "%s, stage %d", what, stage);
    else
        (void)snprintf(buffer, SBP_STEP_TRACE_NAME_BYTES, "%s", what);
    return buffer;
}

/* Adds the micro-batch where there are several; -1: what runs once a step. */
static void add_micro_batch(const struct sbp_step *step, int micro_batch, char *name)
{
    const size_t used = strlen(name);
    if (step->micro_batches > 1 && micro_batch >= 0)
        (void)snprintf(name + used, NAME_BYTES - used, " [%d]", micro_batch);
}

static const char *const work_names[SBP_WORK_KINDS] = {
    [SBP_WORK_FORWARD] = "forward",
    [SBP_WORK_BACKWARD] = "backward",
    [SBP_WORK_WEIGHT] = "weight gradients",
    [SBP_WORK_UPDATE] = "update",
};

/* ---- task by task -------------------------------------------------------------------------- */

struct device {
    struct process process;
    int stage;
    const struct sbp_tasks *tasks;
    const struct sbp_task_time *time;
    int64_t drawn[2]; /* forward, backward works, where arrivals ordered them */
};

static const struct sbp_stage_cost *cost_of(const struct device *device, int chunk)
{
    const struct sbp_step *step = device->process.step;
    return sbp_step_cost(step, device->stage, chunk);
}

static enum lane lane_of(const struct device *device, int64_t index)
{
    const struct sbp_instr *instr =
        sbp_task_instr(device->process.step, device->stage, &device->tasks->task[index]);
    if (instr->kind == SBP_INSTR_SEND)
        return instr->section == SBP_SECTION_FORWARD ? TO_NEXT : TO_PREVIOUS;
    if (instr->kind == SBP_INSTR_PASS)
        return TO_NEXT;
    if (instr->kind == SBP_INSTR_RECEIVE || instr->kind == SBP_INSTR_TAKE)
        return RECEIVE;
    if (sbp_program_is_host_copy(instr))
        return instr->kind == SBP_INSTR_COPY_IN ? COPY : COPY_BACK;
    return sbp_program_is_call(instr) ? COLLECTIVE : COMPUTE;
}

static void draw_task(struct device *device, int64_t index)
{
    const struct sbp_task *task = &device->tasks->task[index];
    const struct sbp_task_time *time = &device->time[index];
    const struct sbp_trace_detail details[] = {{"compute_s", time->compute_s},
                                               {"communication_s", time->communication_s}};
    char name[NAME_BYTES];
    const struct sbp_program *program =
        sbp_step_chunk(device->process.step, device->stage, task->chunk);
    sbp_task_name(program, task, name, NAME_BYTES);
    draw(&device->process, lane_of(device, index), name, time->begin_s, time->end_s, details, 2);
}

/* Frames fill and empty with works as they do in the timeline's simulation. */
static void hold_at_begin(struct process *process, const struct sbp_stage_cost *cost,
                          enum sbp_work_kind kind, double at_s)
{
    if (kind == SBP_WORK_FORWARD) {
        process->held_bytes += cost->kept_bytes;
        count_in_flight(process, at_s, 1);
    }
    if (kind == SBP_WORK_BACKWARD)
        process->held_bytes += cost->parked_gradients_bytes;
    count_bytes(process, at_s, process->held_bytes + cost->transient_bytes);
}

static void hold_at_end(struct process *process, const struct sbp_stage_cost *cost,
                        enum sbp_work_kind kind, double at_s)
{
    if (kind == SBP_WORK_BACKWARD)
        process->held_bytes -= cost->kept_bytes - cost->parked_inputs_bytes;
    if (kind == SBP_WORK_WEIGHT)
        process->held_bytes -= cost->parked_inputs_bytes + cost->parked_gradients_bytes;
    if (kind == (sbp_timeline_weights_wait(process->step->parallel.schedule) ? SBP_WORK_WEIGHT
                                                                             : SBP_WORK_BACKWARD))
        count_in_flight(process, at_s, -1);
    count_bytes(process, at_s, process->held_bytes);
}

/* Draws a work without its messages, which the stage may wait for or leave to its links. */
static void draw_work(struct device *device, const struct sbp_task *task, double begin_s,
                      double end_s)
{
    struct process *process = &device->process;
    const struct sbp_stage_cost *cost = cost_of(device, task->chunk);
    const enum sbp_work_kind kind = (enum sbp_work_kind)task->work;
    const bool once = kind == SBP_WORK_UPDATE;
    char name[NAME_BYTES];
    (void)snprintf(name, NAME_BYTES, "%s", work_names[kind]);
    add_micro_batch(process->step, once ? -1 : task->micro_batch, name);
    draw(process, COMPUTE, name, begin_s, end_s, NULL, 0);
    if (once)
        return;
    hold_at_begin(process, cost, kind, begin_s);
    hold_at_end(process, cost, kind, end_s);
}

/* Draws the tasks of a work, of which `first` is the first one; returns the end. The work does not
 * wait for sums beside. */
static int64_t draw_tasks(struct device *device, int64_t first)
{
    double begin_s = INFINITY, end_s = 0;
    int64_t end = first;
    if (isnan(device->time[first].begin_s)) /* of another step */
        return sbp_tasks_end(device->tasks, first);
    do {
        if (lane_of(device, end) <= COLLECTIVE && !device->tasks->task[end].is_beside) {
            begin_s = fmin(begin_s, device->time[end].begin_s);
            end_s = fmax(end_s, device->time[end].end_s);
        }
    } while (!device->tasks->task[end++].ends && end < device->tasks->count);
    if (isfinite(begin_s))
        draw_work(device, &device->tasks->task[first], begin_s, end_s);
    for (int64_t i = first; i < end; i++)
        draw_task(device, i);
    return end;
}

/* The work that is drawn next, of which `listed` begins the list's next one: counters go in the
 * order of time. */
static int64_t next_work(struct device *device, int64_t listed)
{
    const int64_t count = device->process.step->micro_batches;
    const int64_t forward = device->drawn[0], backward = device->drawn[1];
    int64_t *const *begin = device->tasks->begin;
    if (begin[0] == NULL || backward == count)
        return listed;
    const bool back =
        forward == count || (backward < forward && device->time[begin[1][backward]].begin_s <
                                                       device->time[begin[0][forward]].begin_s);
    return begin[back][device->drawn[back]++];
}

void sbp_step_trace_played(const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                           const struct sbp_play *play, const double *compute_s,
                           struct sbp_task_time *time)
{
    for (int64_t i = 0; i < tasks->count; i++) {
        const struct sbp_task_price price = sbp_task_price(step, stage, &tasks->task[i]);
        time[i] =
            (struct sbp_task_time){.begin_s = play->begin_s[stage][i],
                                   .end_s = play->end_s[stage][i],
                                   .compute_s = compute_s == NULL ? price.compute_s : compute_s[i],
                                   .communication_s = price.communication_s};
    }
}

/* Without a flush as many micro-batches began before the step as begin in it for the next one and
 * do not come back in it. */
static void hold_earlier(struct device *device)
{
    int earlier = 0;
    for (int64_t i = 0; i < device->tasks->count; i++)
        if (device->tasks->task[i].begins && device->tasks->task[i].is_ahead)
            earlier += device->tasks->task[i].work == SBP_WORK_FORWARD ? 1 : -1;
    if (earlier == 0)
        return;
    device->process.held_bytes += earlier * cost_of(device, 0)->kept_bytes;
    count_in_flight(&device->process, 0, earlier);
}

void sbp_step_trace_tasks(struct sbp_trace *trace, int pid, const char *process,
                          const struct sbp_step *step, int stage, const struct sbp_tasks *tasks,
                          const struct sbp_task_time *time)
{
    struct device device = {.process = {.trace = trace, .step = step, .pid = pid},
                            .stage = stage,
                            .tasks = tasks,
                            .time = time};
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++)
        device.process.held_bytes += cost_of(&device, chunk)->static_bytes;
    sbp_trace_process(trace, pid, process);
    hold_earlier(&device);
    count_bytes(&device.process, 0, device.process.held_bytes);
    for (int64_t end = 0; end < tasks->count;)
        end = draw_tasks(&device, next_work(&device, end));
}

/* ---- work by work -------------------------------------------------------------------------- */

/* A message stands behind the work that it leaves. */
static enum lane lane_of_interval(const struct sbp_timeline_interval *interval)
{
    switch (interval->kind) {
    case SBP_INTERVAL_SEND:
        return interval[-1].kind == SBP_INTERVAL_FORWARD ? TO_NEXT : TO_PREVIOUS;
    case SBP_INTERVAL_SYNC:
        return COLLECTIVE;
    case SBP_INTERVAL_OFFLOAD:
        return COPY;
    case SBP_INTERVAL_FORWARD:
    case SBP_INTERVAL_BACKWARD:
    case SBP_INTERVAL_BACKWARD_WEIGHT:
    case SBP_INTERVAL_RECOMPUTE:
    case SBP_INTERVAL_OPTIMIZER:
        break;
    }
    return COMPUTE;
}

/* Steps are told apart where several are simulated, chunks where a stage has several. */
static void name_interval(const struct sbp_step *step, const struct sbp_timeline_interval *interval,
                          char *name)
{
    static const char *const names[] = {
        [SBP_INTERVAL_FORWARD] = "forward",
        [SBP_INTERVAL_BACKWARD] = "backward",
        [SBP_INTERVAL_BACKWARD_WEIGHT] = "weight gradients",
        [SBP_INTERVAL_RECOMPUTE] = "recompute",
        [SBP_INTERVAL_SEND] = "send",
        [SBP_INTERVAL_SYNC] = "sum of gradients",
        [SBP_INTERVAL_OFFLOAD] = "copy",
        [SBP_INTERVAL_OPTIMIZER] = "update",
    };
    (void)snprintf(name, NAME_BYTES, "%s", names[interval->kind]);
    add_micro_batch(step, interval->micro_batch, name);
    size_t used = strlen(name);
    if (sbp_step_chunks(step) > 1 && (interval->micro_batch >= 0 || step->replicates))
        (void)snprintf(name + used, NAME_BYTES - used, ", chunk %d",
                       step->replicates ? interval->stage : interval->chunk);
    used = strlen(name);
    if (step->timeline.steps > 1)
        (void)snprintf(name + used, NAME_BYTES - used, ", step %d", interval->step);
}

static void draw_interval(struct process *process, const struct sbp_timeline_interval *interval)
{
    const bool last = interval->kind == (sbp_timeline_weights_wait(process->step->parallel.schedule)
                                             ? SBP_INTERVAL_BACKWARD_WEIGHT
                                             : SBP_INTERVAL_BACKWARD);
    char name[NAME_BYTES];
    name_interval(process->step, interval, name);
    draw(process, lane_of_interval(interval), name, interval->begin_s, interval->end_s, NULL, 0);
    if (interval->kind == SBP_INTERVAL_FORWARD)
        count_in_flight(process, interval->begin_s, 1);
    if (last)
        count_in_flight(process, interval->end_s, -1);
}

static void draw_stage(struct sbp_trace *trace, const struct sbp_step *step, int stage)
{
    const struct sbp_timeline *timeline = &step->timeline;
    struct process process = {.trace = trace, .step = step, .pid = stage + 1};
    char name[SBP_STEP_TRACE_NAME_BYTES];
    sbp_trace_process(trace, process.pid, sbp_step_trace_name(step, "predicted", stage, name));
    for (int64_t i = 0; i < timeline->interval_count; i++)
        if (timeline->interval[i].device == stage)
            draw_interval(&process, &timeline->interval[i]);
    for (int64_t i = 0; i < timeline->memory_count; i++)
        if (timeline->memory[i].device == stage)
            count_bytes(&process, timeline->memory[i].at_s, timeline->memory[i].bytes);
}

int sbp_step_trace_stages(const struct sbp_step *step)
{
    const struct sbp_timeline *timeline = &step->timeline;
    const double in_flight = (double)timeline->memory_count / 2; /* samples are of works, too */
    const double events = (double)(timeline->interval_count + timeline->memory_count) + in_flight;
    return (int)fmin(step->stages, SBP_STEP_TRACE_MOST_EVENTS / (events / step->stages));
}

void sbp_step_trace_works(struct sbp_trace *trace, const struct sbp_step *step, int stages)
{
    for (int i = 0; i < stages; i++)
        draw_stage(trace, step,
                   stages == 1 ? 0 : (int)((int64_t)i * (step->stages - 1) / (stages - 1)));
}
