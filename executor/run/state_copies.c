#include "executor/run/state_copies.h"

#include "executor/rank/rank.h"

static const struct sbp_instr *instr_of(const struct sbp_state_copies *copies, int64_t index)
{
    const struct sbp_channel *channel = copies->lanes->channel;
    return sbp_task_instr(channel->step, channel->stage, &copies->tasks->task[index]);
}

void sbp_state_copies_begin_step(struct sbp_state_copies *copies)
{
    copies->next = 0;
    copies->due = -1;
    for (int place = 0; place < SBP_RANK_MOST_PLACES; place++) {
        copies->back[place] = -1;
        copies->is_taken[place] = false;
    }
}

/* The copy waits for the task that frees its place; -1: none. */
static enum sbp_status give(struct sbp_state_copies *copies, int64_t index, int64_t behind,
                            struct sbp_diag *diag)
{
    sbp_run_lanes_begin(copies->lanes, index, behind);
    SBP_TRY(sbp_rank_copy_states(copies->rank, instr_of(copies, index), diag));
    sbp_run_lanes_end(copies->lanes, true, 0, &copies->intervals[index]);
    return SBP_OK;
}

/* Gives copies to the device, in their order, as far as places are free. */
static enum sbp_status bring_ahead(struct sbp_state_copies *copies, struct sbp_diag *diag)
{
    for (; copies->next < copies->tasks->count; copies->next++) {
        if (instr_of(copies, copies->next)->kind != SBP_INSTR_COPY_IN)
            continue;
        sbp_rank_turn_to(copies->rank, &copies->tasks->task[copies->next]);
        const int place = sbp_rank_bucket_place(copies->rank);
        if (copies->is_taken[place])
            return SBP_OK;
        SBP_TRY(give(copies, copies->next, copies->back[place], diag));
        copies->is_taken[place] = true;
    }
    return SBP_OK;
}

enum sbp_status sbp_state_copies_do(struct sbp_state_copies *copies, int64_t index,
                                    struct sbp_diag *diag)
{
    const bool in = instr_of(copies, index)->kind == SBP_INSTR_COPY_IN;
    /* The norm lies among activations; sums of gradients beside are over (task.h). */
    if (copies->rank->norm != NULL)
        sbp_rank_decide(copies->rank);
    if (in) {
        copies->due = index;
    } else {
        const int place = sbp_rank_bucket_place(copies->rank);
        sbp_state_copies_await(copies);
        SBP_TRY(give(copies, index, -1, diag));
        copies->back[place] = index;
        copies->is_taken[place] = false;
    }
    SBP_TRY(bring_ahead(copies, diag));
    sbp_rank_turn_to(copies->rank, &copies->tasks->task[index]);
    return SBP_OK;
}

void sbp_state_copies_await(struct sbp_state_copies *copies)
{
    if (copies->due >= 0)
        copies->lanes->ops->await(copies->due);
    copies->due = -1;
}
