/* The program's compiler: its state while a program grows, and its parts.
 *
 * Instructions and buffers are appended in time order; lifetimes follow from the instructions that
 * name a buffer (program_layout.c). Forward goes through the operators, backward comes back, and
 * what an operator leaves for its backward pass stands in struct sbp_compiler. program_make.c
 * drives program_forward.c, program_backward.c, program_weights.c and program_layout.c.
 */
#ifndef SBP_COSTMODEL_PROGRAM_PROGRAM_COMPILE_PRIV_H
#define SBP_COSTMODEL_PROGRAM_PROGRAM_COMPILE_PRIV_H

#include "costmodel/layout/boxing_path.h"
#include "costmodel/program/program.h"

/* How a device holds the states of a weight. */
struct sbp_weight_plan {
    int first_user;  /* operator; -1: not of this scope */
    int uses_left;   /* gradients still to come; negative once one has been written */
    int level;       /* ZeRO 0 .. 3; 3 with an owner */
    sbp_axes shared; /* axes on which the weight is whole and its gradient partial */
    int64_t members; /* of a group over them */
    int64_t local;   /* elements of the block */
    int64_t shard;   /* elements of which the device holds states; an owner's: all */
    int64_t padded;  /* elements of the block with room for all shards, which are of one size */
    int unreduced;   /* buffer of the whole gradient under level 2 and 3; -1 outside backward */
};

struct sbp_compiler {
    struct sbp_program *program;
    const struct sbp_graph *graph;
    const struct sbp_mesh *mesh;
    const struct sbp_strategy *strategy;
    struct sbp_layout layout;
    struct sbp_paths *paths;         /* of boxing=path; NULL: lists in normal form */
    struct sbp_element_bytes policy; /* of the model's precision: paths of a run in another type are
                                        those of the plan */
    struct sbp_diag *diag;
    enum sbp_section section; /* of the instructions to come */
    int instr_capacity, buffer_capacity;
    int *value;    /* (tensor_count) buffer of an activation where it rests; -1 */
    int *gatherer; /* (tensor_count) the operator that gathers it again (regather.h); -1 */
    int *kept;     /* (tensor_count) what waits for that, as it was produced */
    int *gradient; /* (tensor_count) buffer of its gradient there; -1 until the first one */
    struct sbp_weight_plan *weight; /* (tensor_count) */
    int (*input)[SBP_MAX_INPUTS];   /* (op_count) buffers that the operator read, boxed */
    int *output;                    /* (op_count) buffer of the output as the operator left it */
    int (*saved)[3];                /* (op_count) what forward kept for backward */
    int *half;  /* (op_count) under selective recompute, the half of its output that is kept; -1 */
    int *block; /* (op_count) the block whose weights are gathered together; -1: by operator */
    int *gathered;     /* (tensor_count) a weight's whole copy in the block at hand */
    int *sum;          /* (tensor_count) buffer of a gradient's sum over micro-batches; -1 */
    int bucket;        /* buffer that offloaded states pass through; -1: none */
    int open_block;    /* the block whose weights are gathered now; -1: none */
    bool open_forward; /* they are gathered for its forward pass, else for the backward one */
    int *segment;      /* (op_count) first operator of the recomputed segment that it is in; -1 */
};

/* Whether weight gradients are a work of their own, behind all input gradients. */
static inline bool sbp_compiler_parts_backward(const struct sbp_compiler *c)
{
    return sbp_timeline_weights_wait(c->program->parallel.schedule);
}

static inline bool sbp_compiler_is_attention(enum sbp_op_kind kind)
{
    return kind == SBP_OP_ATTENTION || kind == SBP_OP_GROUPED_ATTENTION ||
           kind == SBP_OP_LATENT_ATTENTION;
}

/* ---- growing (program_emit.c) -------------------------------------------------------------- */

/* A new instruction with no buffers; NULL when memory is out. Valid until the next one. */
struct sbp_instr *sbp_emit_instr(struct sbp_compiler *c, enum sbp_instr_kind kind, int op,
                                 int phase);
enum sbp_status sbp_emit_buffer(struct sbp_compiler *c, enum sbp_buffer_use use,
                                enum sbp_buffer_type type, int tensor, const struct sbp_dist *dist,
                                int64_t elements, int *buffer) SBP_MUST_USE;
/* A buffer for this rank's block of a tensor (or of its gradient). */
enum sbp_status sbp_emit_block(struct sbp_compiler *c, enum sbp_buffer_use use, int tensor,
                               const struct sbp_dist *dist, int *buffer) SBP_MUST_USE;
/* Scratch of so many elements, rounded up; *buffer stays -1 for none. */
enum sbp_status sbp_emit_work(struct sbp_compiler *c, double elements, int *buffer) SBP_MUST_USE;
/* The same of statistics. */
enum sbp_status sbp_emit_statistics(struct sbp_compiler *c, double elements,
                                    int *buffer) SBP_MUST_USE;
/* A per-token integer buffer that follows the batch and sequence splits of an activation. */
enum sbp_status sbp_emit_index(struct sbp_compiler *c, int tensor, const struct sbp_dist *dist,
                               int *buffer) SBP_MUST_USE;
/* Room for the loss's logits in its own type; *buffer is -1 where that is the activations'. */
enum sbp_status sbp_emit_logits(struct sbp_compiler *c, int op, int *buffer) SBP_MUST_USE;
/* Adds to the last instruction what a trainer's loss holds of each logit besides. */
enum sbp_status sbp_emit_held_logits(struct sbp_compiler *c, int op) SBP_MUST_USE;
/* Boxes `*buffer`, the tensor's block in `from`, into `to`; *buffer becomes the result. With
 * `in_place` (weight gradients, which are as large afterwards) the result is in the buffer itself,
 * all-reduces work in place, and blocks in between are gradients. `op`: the operator whose strategy
 * asks for it. */
enum sbp_status sbp_emit_boxing(struct sbp_compiler *c, int op, int tensor,
                                const struct sbp_dist *from, const struct sbp_dist *to,
                                enum sbp_cause cause, bool in_place, int *buffer) SBP_MUST_USE;
/* An in-place all-reduce inside an operator or of a scalar; nothing for an empty group. */
enum sbp_status sbp_emit_reduce(struct sbp_compiler *c, int op, sbp_axes axes, int buffer,
                                int reduction, enum sbp_cause cause) SBP_MUST_USE;
/* The collectives inside an operator in a pass, ahead of it, but for those that sum what it
 * computes; they work on `scratch` where there is one. */
enum sbp_status sbp_emit_inner(struct sbp_compiler *c, int op, enum sbp_pass pass,
                               int scratch) SBP_MUST_USE;
/* The collective of a mixture behind a phase, which takes copies of tokens to their experts (0) or
 * back (1) through what forward keeps and `scratch`; nothing where there is none. */
enum sbp_status sbp_emit_journey(struct sbp_compiler *c, int op, enum sbp_pass pass, int phase,
                                 int scratch) SBP_MUST_USE;
/* Those, behind the gradients `dx` (SBP_MAX_INPUTS) of the inputs. */
enum sbp_status sbp_emit_inner_sums(struct sbp_compiler *c, int op, int scratch,
                                    const int *dx) SBP_MUST_USE;
/* Tokens of the block of an activation in a distribution. */
int64_t sbp_emit_tokens(const struct sbp_compiler *c, int tensor, const struct sbp_dist *dist);
struct sbp_factor sbp_emit_factor(const struct sbp_compiler *c, int op);

/* ---- parts --------------------------------------------------------------------------------- */

/* Inputs and weights of an operator, and what forward kept. */
void sbp_program_set_operands(const struct sbp_compiler *c, struct sbp_instr *instr, int op);

/* From where the inputs rest to what the operator's roles want. */
enum sbp_status sbp_program_box_inputs(struct sbp_compiler *c, int op) SBP_MUST_USE;
/* Boxes the inputs that backward reads once more, where they do not rest as it reads them. */
enum sbp_status sbp_program_box_inputs_again(struct sbp_compiler *c, int op) SBP_MUST_USE;
enum sbp_status sbp_program_compile_forward(struct sbp_compiler *c, int op) SBP_MUST_USE;
/* Recomputes attention's forward pass for what it keeps beside its operands. */
enum sbp_status sbp_program_compile_attention_again(struct sbp_compiler *c, int op) SBP_MUST_USE;
enum sbp_status sbp_program_compile_backward(struct sbp_compiler *c, int op) SBP_MUST_USE;

/* States of all weights of the scope. */
enum sbp_status sbp_program_compile_weights(struct sbp_compiler *c) SBP_MUST_USE;
/* Gathers an operator's weights where they are sharded into `buffer` (SBP_MAX_WEIGHTS, by weight);
 * other entries name the buffers that the device holds anyway. */
enum sbp_status sbp_program_gather_weights(struct sbp_compiler *c, int op,
                                           int *buffer) SBP_MUST_USE;
/* Opens buffers for the operator's weight gradients; after the last use of a weight,
 * sbp_program_close_gradients emits its sum. */
enum sbp_status sbp_program_open_gradients(struct sbp_compiler *c, int op,
                                           int *buffer) SBP_MUST_USE;
enum sbp_status sbp_program_close_gradients(struct sbp_compiler *c, int op) SBP_MUST_USE;
enum sbp_status sbp_program_compile_updates(struct sbp_compiler *c) SBP_MUST_USE;

/* ---- layout (program_layout.c) --------------------------------------------------------------- */

/* Sets first, last and offset_bytes of every buffer, and the program's arena_bytes. E_RANGE when
 * all buffers together pass 2^62 bytes, which leaves room to add a device's reserve; E_MEMORY. */
enum sbp_status sbp_program_lay_out(struct sbp_program *program,
                                    struct sbp_diag *diag) SBP_MUST_USE;

#endif
