/* The check of one program's flow: the parts and the state that they share. Internal.
 */
#ifndef SBP_PLANNER_VERIFY_VERIFY_FLOW_PRIV_H
#define SBP_PLANNER_VERIFY_VERIFY_FLOW_PRIV_H

#include "planner/verify/verify_priv.h"

/* The state of a walk over a program's instructions. An activation's block comes out of its
 * producer, is carried to where it rests and from there to the state that each reader asks for;
 * gradients go the other way. `root` is the block at rest that a block was made from, `of` the
 * tensor that it was made for; `value` the activation that it holds, which operators in place
 * change. */
struct sbp_flow {
    struct sbp_verification *c;
    const struct sbp_program *program;
    const struct sbp_graph *graph;
    struct sbp_held_weight *held; /* (tensor_count) */
    bool *there;                  /* (buffer_count) was written */
    int *root, *of, *value;       /* (buffer_count) */
    int *forward, *backward;      /* (op_count) instructions seen of the passes */
    int *again;                   /* (op_count) instructions seen of the recomputed pass */
    int *sums;                    /* (tensor_count) additions of gradients */
    int *formed, *updated;        /* (tensor_count) times seen, of weights */
    int *stage_sums, *gathered;   /* (tensor_count) once a step */
    int *chunk_sums;              /* (tensor_count) within a stage, once a step */
    int *handed;                  /* (tensor_count) sums of replicas that came and went, 0 to 4 */
    struct sbp_dist *gradient;    /* (tensor_count) its state so far, of a weight */
    unsigned *inner;              /* (op_count) collectives inside operators seen, as bits */
    unsigned *inner_again;        /* (op_count) those seen in the recomputed pass */
    int *parts, *reader;          /* (tensor_count) parts of its gradient; its first */
    int sent[2], received[2];     /* messages forward, backward */
    int norms, norm_sums;
    int copies; /* of offloaded states: to the device and back */
};

/* The check of one instruction, after those before it. */
typedef enum sbp_status sbp_verify_flow_check(struct sbp_flow *flow,
                                              const struct sbp_instr *instr) SBP_MUST_USE;

/* ---- blocks (verify_blocks.c) ---------------------------------------------------------------- */

/* The operator that an instruction serves. */
const char *sbp_verify_flow_name(const struct sbp_flow *flow, const struct sbp_instr *instr);
/* The buffer at a slot; NULL: none. */
const struct sbp_buffer *sbp_verify_flow_buffer(const struct sbp_flow *flow,
                                                const struct sbp_instr *instr, int slot);
/* Check that the block at a slot was written, is in that state and whole; the second one notes that
 * it is written now. */
enum sbp_status sbp_verify_flow_read(const struct sbp_flow *flow, const struct sbp_instr *instr,
                                     int slot, int tensor,
                                     const struct sbp_dist *dist) SBP_MUST_USE;
enum sbp_status sbp_verify_flow_write(struct sbp_flow *flow, const struct sbp_instr *instr,
                                      int slot, int tensor,
                                      const struct sbp_dist *dist) SBP_MUST_USE;
/* Checks that a buffer was made from where its tensor rests. */
enum sbp_status sbp_verify_flow_root(const struct sbp_flow *flow, const struct sbp_instr *instr,
                                     int buffer, int tensor,
                                     const struct sbp_dist *rest) SBP_MUST_USE;
/* Check the operands of an operator. */
enum sbp_status sbp_verify_flow_input(const struct sbp_flow *flow, const struct sbp_instr *instr,
                                      int input) SBP_MUST_USE;
enum sbp_status sbp_verify_flow_weights(const struct sbp_flow *flow,
                                        const struct sbp_instr *instr) SBP_MUST_USE;
/* Checks that the buffer at a slot is a weight's own, or its gradient's. */
enum sbp_status sbp_verify_flow_owner(const struct sbp_flow *flow, const struct sbp_instr *instr,
                                      int slot, int weight) SBP_MUST_USE;
/* Whether a block holds all of a tensor's gradient, or one of its parts. */
bool sbp_verify_flow_is_gradient(const struct sbp_flow *flow, const struct sbp_buffer *buffer,
                                 int tensor);
bool sbp_verify_flow_is_part(const struct sbp_flow *flow, const struct sbp_buffer *buffer,
                             int tensor);
sbp_verify_flow_check sbp_verify_flow_box;
sbp_verify_flow_check sbp_verify_flow_message;

/* ---- operators (verify_operators.c) -----------------------------------------------------------
 */

sbp_verify_flow_check sbp_verify_flow_forward;
sbp_verify_flow_check sbp_verify_flow_backward;
sbp_verify_flow_check sbp_verify_flow_sum;
sbp_verify_flow_check sbp_verify_flow_model_input;
/* Checks a collective inside an operator. */
sbp_verify_flow_check sbp_verify_flow_declared;

/* ---- weights (verify_weights.c) ---------------------------------------------------------------
 */

/* A gradient as operators form it: partial on the axes that share the weight. */
struct sbp_dist sbp_verify_flow_partial(const struct sbp_dist *dist, sbp_axes shared);
sbp_verify_flow_check sbp_verify_flow_gather;
sbp_verify_flow_check sbp_verify_flow_convert;
sbp_verify_flow_check sbp_verify_flow_scatter;
sbp_verify_flow_check sbp_verify_flow_hand_on; /* sums of replicas, in or out */
sbp_verify_flow_check sbp_verify_flow_states;  /* offloaded ones, in or out */
sbp_verify_flow_check sbp_verify_flow_update;
sbp_verify_flow_check sbp_verify_flow_stage_sum;
enum sbp_status sbp_verify_flow_norm(struct sbp_flow *flow) SBP_MUST_USE;
sbp_verify_flow_check sbp_verify_flow_norm_sum;

/* ---- the end (verify_complete.c) --------------------------------------------------------------
 */

/* Number of sums of the gradients' norm that an update waits for: one where gradients are clipped
 * and devices are several. */
int sbp_verify_norm_sums(const struct sbp_flow *flow);

/* Sums over chunks of a stage that a weight's update waits for. */
int sbp_verify_chunk_sums(const struct sbp_flow *flow, int tensor);

/* Checks, after the last instruction, that every operator ran in all its phases with all its
 * collectives, every gradient got all its parts and every weight was updated once. */
enum sbp_status sbp_verify_complete(struct sbp_flow *flow) SBP_MUST_USE;

#endif
