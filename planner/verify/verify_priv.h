/* The parts of the second opinion (planner/verify/verify.h) and the plan under check that they
 * share. Internal.
 */
#ifndef SBP_PLANNER_VERIFY_VERIFY_PRIV_H
#define SBP_PLANNER_VERIFY_VERIFY_PRIV_H

#include "planner/verify/verify.h"

/* Relative tolerance: sums are formed in another order here. It is this folder's own, as its code
 * is. */
#define SBP_VERIFY_TOLERANCE 1e-9

struct sbp_verification {
    const struct sbp_plan *plan;
    const struct sbp_graph *graph;
    const struct sbp_strategy *strategy;
    const struct sbp_mesh *mesh;
    const struct sbp_step *step;
    const struct sbp_request *request; /* may be NULL */
    const struct sbp_outcome *outcome; /* may be NULL */
    struct sbp_element_bytes bytes;
    int64_t micro_batches;
    struct sbp_arena scratch;
    struct sbp_diag *diag;
    uint8_t (*role)[SBP_MAX_AXES]; /* (op_count) of every axis, followers' included */
    sbp_axes *split;               /* (class_count) axes that were seen to split a class */
    int *holders;                  /* (tensor_count) stages that hold a weight */
    int *pieces_of;                /* (tensor_count) pieces that do */
};

/* Fails with E_INTERNAL and the text; no plan is written then. */
enum sbp_status sbp_verify_refuse(const struct sbp_verification *c, const char *format, ...)
    SBP_PRINTF(2, 3);

/* ---- states (verify_states.c) --------------------------------------------------------------- */

/* Distributions of an operator's operands, by the roles alone; a tied weight's as it is stored. */
struct sbp_dist sbp_verify_input(const struct sbp_verification *c, int op, int input);
struct sbp_dist sbp_verify_weight(const struct sbp_verification *c, int op, int weight);
struct sbp_dist sbp_verify_output(const struct sbp_verification *c, int op);
struct sbp_dist sbp_verify_dual(const struct sbp_dist *dist);
/* How a block in that state lies: a mirrored tensor is whole. */
struct sbp_dist sbp_verify_held(const struct sbp_dist *dist);
bool sbp_verify_same(const struct sbp_verification *c, const struct sbp_dist *a,
                     const struct sbp_dist *b);
/* Number of devices in a group over axes. */
int64_t sbp_verify_members(const struct sbp_verification *c, sbp_axes axes);
/* Elements of a device's block; E_INTERNAL unless the blocks make up the whole tensor. */
enum sbp_status sbp_verify_block(const struct sbp_verification *c, int tensor,
                                 const struct sbp_dist *dist, int64_t *elements) SBP_MUST_USE;
/* Notes which axes split which class; E_INTERNAL for a dimension that cannot be split. */
enum sbp_status sbp_verify_note(struct sbp_verification *c, int tensor,
                                const struct sbp_dist *dist) SBP_MUST_USE;
/* Ways that each role splits an operator. */
struct sbp_factor sbp_verify_factor(const struct sbp_verification *c, int op);
/* Whether the tensor is a model input that comes in any distribution its readers ask for. */
bool sbp_verify_is_free(const struct sbp_verification *c, int tensor);
/* Number of activations that are made before an operator and read by it or later; *one is one of
 * them, -1: none. */
int sbp_verify_crossings(const struct sbp_verification *c, int op, int *one);

/* How a device that works on operators first .. end - 1 holds a weight: as the first of them that
 * reads it says. */
struct sbp_held_weight {
    int op, index; /* that operator, and the weight's index there */
    int uses;
    int level;       /* ZeRO */
    sbp_axes shared; /* the gradient is partial there */
    int64_t members, local, shard;
    int64_t padded; /* the block with room for all shards, which are of one size; what an owner
                       holds is all of the block, and nothing else */
};
/* held: (tensor_count) */
enum sbp_status sbp_verify_hold(struct sbp_verification *c, int first, int end,
                                struct sbp_held_weight *held) SBP_MUST_USE;

/* ---- parts ---------------------------------------------------------------------------------- */

enum sbp_status sbp_verify_states(struct sbp_verification *c) SBP_MUST_USE;
/* Checks every program, and notes the splits that transfers pass through. */
enum sbp_status sbp_verify_flow(struct sbp_verification *c) SBP_MUST_USE;
/* Checks the digit rule over the whole plan, after all splits were noted. */
enum sbp_status sbp_verify_digits(const struct sbp_verification *c) SBP_MUST_USE;
enum sbp_status sbp_verify_memory(struct sbp_verification *c) SBP_MUST_USE;
enum sbp_status sbp_verify_price(struct sbp_verification *c) SBP_MUST_USE;
enum sbp_status sbp_verify_time(struct sbp_verification *c) SBP_MUST_USE;

/* Equal up to rounding. */
bool sbp_verify_near(double a, double b);
/* The program of a piece, and pieces of a stage: chunk 0, 1, ... */
const struct sbp_program *sbp_verify_program(const struct sbp_verification *c, int stage,
                                             int chunk);
/* Whether each stage has all pieces of the model, and does one micro-batch; or is a group of a
 * pyramid, whose stages of the model have N, N - 1, ..., 1 of them; or either. */
bool sbp_verify_replicates(const struct sbp_verification *c);
bool sbp_verify_pyramid(const struct sbp_verification *c);
bool sbp_verify_hands_on(const struct sbp_verification *c);
/* The piece of a chunk of a stage, and the stages that have a piece. */
int sbp_verify_piece(const struct sbp_verification *c, int stage, int chunk);
int sbp_verify_copies(const struct sbp_verification *c, int piece);
/* Whether an instruction counts for a chunk: sums of scalars over the whole step are made once for
 * all chunks of a stage. */
bool sbp_verify_counts(const struct sbp_instr *instr, int chunk);

#endif
