/* Slots in which messages between stages wait, as `sbplan run` has them.
 *
 * A stage that sends copies its message into a free slot of its own and goes on; from there it
 * moves to a free slot of the stage that receives, out of which that copies it. Each side of a
 * direction has two, so that one can be filled while the other is on its way: with one, stages
 * would wait longer, but under no order of works for ever. Where arrivals decide what a stage does
 * next there is a slot for every micro-batch in flight, of both sides together: none waits to send.
 * The executor lays slots out behind a rank's arena, and proves before a run that they suffice
 * (executor/run/message_lane.h); where the trainer's profile says that messages have slots they are
 * a part of a stage's memory.
 */
#ifndef SBP_COSTMODEL_PROGRAM_MESSAGE_SLOTS_H
#define SBP_COSTMODEL_PROGRAM_MESSAGE_SLOTS_H

#include "costmodel/program/step.h"

/* Of each side of a direction, but no more than it has messages in a step. The step's timeline is
 * known. */
int sbp_message_slots(const struct sbp_step *step);
/* Bytes of the slots of a device of a stage: of what it sends and of what its neighbours send it,
 * each direction's as large as its largest message. 0 without a flush, where there are copies
 * instead. INT64_MAX: they pass 2^63. */
int64_t sbp_message_slot_bytes(const struct sbp_step *step, int stage);

#endif
