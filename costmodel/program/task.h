/* The work of a stage in a step, instruction by instruction: its programs unrolled over the works
 * of the schedule.
 *
 * A program stands for one micro-batch of one chunk of a stage. A work of the schedule runs the
 * instructions of its sections, in the program's order: a forward work those of `forward`, a
 * backward work all others but those of `step`, which follow the last work; where weight gradients
 * wait (zero-bubble), those of `backward-weight` are a work of their own. With a single
 * micro-batch whole gradients on their way to shards are summed where they stand, and in one stage
 * all gradients. At the step's end chunks sum their gradients one after the other, then the norm
 * over all of them, then they update; where states are in host memory, bucket by bucket, and sums
 * of chunks of them before their first one, if those run beside (buckets.h). The list is what the
 * executor plays, logs and times, and what its predictions are sums over.
 *
 * Where gradients may hide behind the backward pass (sync_overlap > 0), those that one collective
 * sums, in place, to shards or to an owner, are summed beside it: they stand in the chunk's last
 * work that forms gradients, those of each micro-batch in its own, and go to a lane of their own.
 * The lane does them in the list's order, and a task that communicates with the stage's devices
 * waits for those before it, so that all ranks make their collectives in one order, one at a time;
 * so does one that works where a sum has its gradient.
 *
 * Where arrivals decide what a stage does next (message-driven), the list is one order of several:
 * whoever plays it takes forward works one after the other, and backward works likewise, but begins
 * one or the other by what has come. Gradients are summed in the order of micro-batches either way,
 * so that all orders compute the same.
 *
 * Without a flush (cdp) the list goes from behind the update of the step before to the step's own
 * update, again and again: a stage begins with those of its tasks that are ahead, of the first
 * step, and the last step leaves them out. A task is stale where it reads the weights of the step
 * before the last update: under cdp-v1 all are, under cdp-v2 those of micro-batches that are ahead.
 * Replicas have one version, and update chunk by chunk: there the list has all of a stage's passes
 * of the next step, which are ahead, and between them the step's own updates, as soon as their
 * weights have been read for the last time (costmodel/timeline/replicas.h). So have groups of a
 * pyramid, and since they take turns, their list is that of several steps, phase by phase: a step
 * does the tasks of its own (costmodel/timeline/pyramid.h).
 */
#ifndef SBP_COSTMODEL_PROGRAM_TASK_H
#define SBP_COSTMODEL_PROGRAM_TASK_H

#include "costmodel/program/stage_layout.h"
#include "costmodel/timeline/replicas.h"

struct sbp_task {
    int instr;         /* of the chunk's program */
    int micro_batch;   /* of the step; the last one for what runs once a step */
    int bucket;        /* from 1, of the chunk's: the part of its instruction that is of this bucket
                          alone; 0: all */
    int16_t chunk;     /* of the stage */
    uint8_t work;      /* enum sbp_work_kind; SBP_WORK_UPDATE for what runs once a step */
    bool begins, ends; /* the first, the last task of its work */
    bool adds;         /* its gradients are added to those of another micro-batch */
    bool is_ahead;     /* its micro-batch is one of the step that follows */
    bool is_stale;     /* it reads the older of two versions that its step may read */
    int16_t phase;     /* of a list of several steps: which of them does it; else 0 */
    bool is_beside;    /* a sum of gradients that the lane of sums does, while the stage goes on */
    int after; /* tasks from the list's first to the last sum beside that must be over before
                  it begins; 0: none */
};

/* The tasks of the list that a stage goes through. */
enum sbp_round {
    SBP_ROUND_WHOLE,
    SBP_ROUND_AHEAD, /* before the first step: those that are ahead */
    SBP_ROUND_LAST,  /* the last step: those that are not */
};

struct sbp_tasks {
    struct sbp_task *task;
    int64_t count;
    int phases; /* steps after which the list repeats, where these are several; else 0 or 1 */
    /* (micro-batches) the first tasks of forward works, of backward works, where arrivals decide
     * between the next of each; NULL: the list is the order. */
    int64_t *begin[2];
};

/* How many steps the list is of. */
static inline int sbp_tasks_steps(const struct sbp_tasks *tasks)
{
    return tasks->phases > 1 ? tasks->phases : 1;
}

/* The phase of a step, from 0; of the tasks ahead of the first one it is that before. */
static inline int sbp_tasks_phase(const struct sbp_tasks *tasks, int64_t number)
{
    const int steps = sbp_tasks_steps(tasks);
    return (int)((number + steps) % steps);
}

/* Whether the list has a task in a step, from 0, that goes a round. */
static inline bool sbp_tasks_have(const struct sbp_tasks *tasks, const struct sbp_task *task,
                                  int64_t number, enum sbp_round round)
{
    return task->phase == sbp_tasks_phase(tasks, number) &&
           (round == SBP_ROUND_WHOLE || task->is_ahead == (round == SBP_ROUND_AHEAD));
}

/* Whether arrivals decide what the stage does next. */
static inline bool sbp_tasks_are_driven(const struct sbp_tasks *tasks)
{
    return tasks->begin[0] != NULL;
}

/* The tasks of a stage of a step that was made for a run; arrays are the arena's. E_UNSUPPORTED:
 * the schedule has no fixed order; E_INPUT as sbp_timeline_works; E_RANGE where there are more than
 * INT32_MAX tasks, or more than SBP_STEP_MOST_BUCKETS buckets of a chunk; E_UNSUPPORTED where sums
 * beside the optimizer are none of one all-reduce, or would wait for the norm; E_MEMORY. */
enum sbp_status sbp_tasks_make(const struct sbp_step *step, int stage, struct sbp_arena *arena,
                               struct sbp_tasks *tasks, struct sbp_diag *diag) SBP_MUST_USE;
/* Calls of the step in order, whose `instr` are tasks of the stage; *calls is the arena's. Those of
 * SUMMA's panels, which instructions INNER stand for, are the product's behind them: panel by panel
 * one of each operand. Likewise attention's behind those of a ring: block by block one of keys and
 * values, and backward one of gradients. E_RANGE, E_MEMORY. */
enum sbp_status sbp_tasks_calls(const struct sbp_step *step, int stage,
                                const struct sbp_tasks *tasks, struct sbp_arena *arena,
                                struct sbp_call **calls, int *count) SBP_MUST_USE;

static inline const struct sbp_instr *sbp_task_instr(const struct sbp_step *step, int stage,
                                                     const struct sbp_task *task)
{
    return &sbp_step_chunk(step, stage, task->chunk)->instr[task->instr];
}

/* Where the sum of gradients of an instruction in a micro-batch of a step, from 0, comes from or
 * goes to, where stages hand them on; and that of a task. */
struct sbp_sum_route sbp_task_sum_route(const struct sbp_step *step, int stage, int chunk,
                                        const struct sbp_instr *instr, int64_t number,
                                        int micro_batch);
static inline struct sbp_sum_route sbp_task_route(const struct sbp_step *step, int stage,
                                                  const struct sbp_task *task)
{
    return sbp_task_sum_route(step, stage, task->chunk, sbp_task_instr(step, stage, task),
                              task->phase + task->is_ahead, task->micro_batch);
}

/* The task after the work, or the step's end, that begins with a task. */
static inline int64_t sbp_tasks_end(const struct sbp_tasks *tasks, int64_t first)
{
    while (!tasks->task[first].ends)
        first++;
    return first + 1;
}

/* The price of a task: that of its instruction, or the share of its bucket, whose tensors are
 * updated by one kernel. */
struct sbp_task_price {
    double compute_s, communication_s;
};
struct sbp_task_price sbp_task_price(const struct sbp_step *step, int stage,
                                     const struct sbp_task *task);

/* Whether a task is the sum of a chunk of buckets beside the optimizer: all gradients are there, so
 * that it begins when the one before it is over, wherever the stage is. */
static inline bool sbp_task_sums_buckets(const struct sbp_task *task)
{
    return task->is_beside && task->bucket > 0;
}

/* Names a task for traces and messages, "backward h1.mlp.fc1 [3]", "update h1.mlp.fc1 {2}": its
 * instruction, the tensor or operator, its micro-batch where there are several, and its bucket. */
void sbp_task_name(const struct sbp_program *program, const struct sbp_task *task, char *name,
                   int size);

#endif
