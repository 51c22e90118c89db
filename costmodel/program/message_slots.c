#include "costmodel/program/message_slots.h"

#include "base/math/numeric.h"

enum { LEAST_SLOTS = 2 };

int sbp_message_slots(const struct sbp_step *step)
{
    if (step->parallel.schedule != SBP_MESSAGE_DRIVEN)
        return LEAST_SLOTS;
    const int half = (step->timeline.device[0].in_flight + 1) / 2;
    return half > LEAST_SLOTS ? half : LEAST_SLOTS;
}

/* Bytes of what a chunk sends to the next, or back; 0: nothing, or in its own arena. */
static int64_t message_bytes(const struct sbp_program *program, bool back)
{
    int64_t bytes = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->kind == SBP_INSTR_SEND && instr->box.kind != SBP_LOCAL &&
            (instr->section != SBP_SECTION_FORWARD) == back)
            bytes = program->buffer[instr->buffer[SBP_AT_IN]].elements * program->bytes.activation;
    }
    return bytes;
}

/* Adds the slots of one side for what a stage sends in a direction. False: they are too many. */
static bool add_side(const struct sbp_step *step, int stage, bool back, int64_t *bytes)
{
    int64_t messages = 0, largest = 0, side;
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++) {
        const int64_t own = message_bytes(sbp_step_chunk(step, stage, chunk), back);
        messages += own > 0 ? step->micro_batches : 0;
        largest = own > largest ? own : largest;
    }
    const int64_t slots = sbp_message_slots(step), quota = messages < slots ? messages : slots;
    return sbp_mul_i64(quota, largest, &side) && sbp_add_i64(side, 63, &side) &&
           sbp_add_i64(*bytes, side / 64 * 64, bytes);
}

int64_t sbp_message_slot_bytes(const struct sbp_step *step, int stage)
{
    const int before = (stage + step->stages - 1) % step->stages;
    const int behind = (stage + 1) % step->stages;
    int64_t bytes = 0;
    if (step->stages == 1 || sbp_timeline_delays_gradients(step->parallel.schedule))
        return 0;
    const bool fits = add_side(step, stage, false, &bytes) && add_side(step, stage, true, &bytes) &&
                      add_side(step, before, false, &bytes) && add_side(step, behind, true, &bytes);
    return fits ? bytes : INT64_MAX;
}
