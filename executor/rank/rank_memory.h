/* A rank's memory: the buffers of its program, and the weights and data that fill them.
 *
 * All tensors live in one arena at the program's offsets. Weights, data and dropout masks are
 * functions of (seed, tensor or operator, global index), so that a rank makes its own blocks and
 * every split of a model computes the same thing.
 */
#ifndef SBP_EXECUTOR_RANK_RANK_MEMORY_H
#define SBP_EXECUTOR_RANK_RANK_MEMORY_H

#include "costmodel/program/stage_layout.h"
#include "executor/comm/channel.h"
#include "executor/device/device.h"

/* Labels of tokens are drawn, so that there is nothing to learn; or are, seven times in eight, that
 * of the token's id; or are drawn of one token in seven, and the others have none. */
enum sbp_token_labels { SBP_LABELS_DRAWN, SBP_LABELS_OF_IDS, SBP_LABELS_MASKED };

/* Tables of a mixture (kernels.h) that a rank takes instead of choosing experts itself: by
 * operator, (micro-batches, tokens, top_k, 2) with slots as the rank has them; NULL: no mixture. */
struct sbp_given_experts {
    int32_t **table; /* (op_count) */
};

/* Of each operator, rows of its input that share their statistics, which the members of a plan have
 * apart: what a reference of one device computes batchnorms by. */
struct sbp_norm_groups {
    struct sbp_norm_groups_of {
        int count; /* 0: no batchnorm */
        struct sbp_norm_rows *rows;
    } * of; /* (op_count) */
};

struct sbp_rank {
    const struct sbp_stage_layout *arena; /* borrowed: its chunks and where they lie */
    const struct sbp_program *program;    /* of the chunk at work */
    int chunk;
    const struct sbp_device_ops *device;
    const struct sbp_kernels *kernels; /* of the run's reals, */
    const struct sbp_kernels *wide;    /* and of statistics and optimizer states */
    struct sbp_channel *channel;       /* borrowed; NULL: one device, nothing to communicate */
    struct sbp_layout layout;
    int64_t rank; /* its place in the program's mesh */
    uint64_t seed;
    enum sbp_token_labels labels;
    unsigned char *memory;         /* the arena, the device's */
    int64_t high_water_bytes;      /* end of the highest buffer touched */
    unsigned char *host;           /* offloaded optimizer states, in host memory; NULL: none */
    int64_t host_high_water_bytes; /* end of the highest one that was copied */
    int64_t bucket;                /* of the task at hand (task.h) */
    int places;                    /* of buckets on the device, in turn; 0: one */
    int64_t place_bytes;           /* of each; they begin with the arena's own bucket */
    bool skips_copy;               /* tests only: states stay where they are */
    int64_t step;                  /* from 1 */
    int64_t micro_batch;           /* of the step */
    int64_t number;                /* from 0, of the step that the task at hand is of */
    int64_t frame;                 /* that it has, of those of its chunk */
    int version;                   /* of a weight's two versions the one at hand: by how many
                                      updates it has seen, modulo 2 */
    int gradients;                 /* likewise of the two buffers of a gradient that is handed on:
                                      by the step that it is of */
    const struct sbp_given_experts *given; /* of a reference; borrowed. NULL: it chooses */
    const struct sbp_norm_groups *groups;  /* borrowed; NULL: a block's rows are one */
    const struct sbp_rank_block *block;    /* of keys that go round a ring (context_run_priv.h), at
                                              hand; NULL: they do not */
    bool adds;        /* gradients are added to those of the micro-batches before */
    bool keeps_apart; /* each instruction leaves what it writes, for who looks */
    bool next_waits;  /* the task behind the one at hand, for a sum beside (task.h) */
    const struct sbp_instr *done_gelu;       /* forward, by the product before it; NULL: none */
    const struct sbp_instr *waiting_product; /* backward, for its gelu; NULL: none */
    uint64_t step_seed;                      /* of the micro-batch: data differ from step to step */
    struct sbp_step_state *state;            /* of the step, in the device's memory */
    struct sbp_step_state known;             /* as it was read last */
    void *norm;      /* what the last NORM wrote, the sum over ranks after it; NULL: no NORM yet */
    bool is_decided; /* the device has been given the decision on the step's norm and scales */
    bool is_read;    /* `known` holds that decision */
};

/* Turns to a chunk of the stage, and to no bucket of it. */
void sbp_rank_turn(struct sbp_rank *rank, int chunk);
/* Turns to the weights as they are after so many updates, the last or the one before; at first both
 * are the initial ones. Nothing where a weight has one version. */
void sbp_rank_turn_version(struct sbp_rank *rank, int64_t updates);
/* Turns to the gradients of a step, where there are those of two. */
void sbp_rank_turn_gradients(struct sbp_rank *rank, int64_t step);
/* A buffer's memory, in the frame of the micro-batch at hand where frames hold it (NULL for -1), of
 * the version at hand where it holds a weight, and the block it holds. */
void *sbp_rank_buffer(struct sbp_rank *rank, int buffer);
void sbp_rank_region(const struct sbp_rank *rank, int buffer, struct sbp_region *region);
/* Whether this rank's coordinate is 0 on every axis of a set: the one member that counts. */
bool sbp_rank_leads(const struct sbp_rank *rank, sbp_axes axes);
/* Tokens, and features x inner, of the local block of an instruction's operand. */
int64_t sbp_rank_tokens(const struct sbp_rank *rank, const struct sbp_instr *instr, int place);
int64_t sbp_rank_features(const struct sbp_rank *rank, const struct sbp_instr *instr, int place);
/* The rows of the vocabulary that are local, for embedding and cross-entropy. */
void sbp_rank_vocabulary(const struct sbp_rank *rank, int buffer, int dim,
                         struct sbp_digits *vocabulary);

/* Bytes of an element of a buffer. */
int64_t sbp_rank_element_bytes(const struct sbp_rank *rank, int buffer);
/* Copies bytes of the device to the host. Fails as the device does, which diag names. */
enum sbp_status sbp_rank_to_host(const struct sbp_rank *rank, void *host, const void *device,
                                 int64_t bytes, struct sbp_diag *diag) SBP_MUST_USE;

/* Fills this rank's blocks, or shards, of the weights of all chunks with their initial values.
 * E_MEMORY. */
enum sbp_status sbp_rank_fill_weights(struct sbp_rank *rank) SBP_MUST_USE;

/* Begins a step, with the loss scale that follows from those before and at the newest weights; and
 * a micro-batch of it, whose rows of the batch follow those of the one before: fills token ids,
 * labels and positions. */
void sbp_rank_begin_step(struct sbp_rank *rank, int64_t step);
/* The data of a step from now on, which may be that behind the one that began. */
void sbp_rank_turn_data(struct sbp_rank *rank, int64_t step);
enum sbp_status sbp_rank_begin_micro_batch(struct sbp_rank *rank, int64_t micro_batch,
                                           struct sbp_diag *diag) SBP_MUST_USE;
/* The same of a tensor whose dimension 0 is the batch: with the micro-batch's place in it. */
void sbp_rank_batch_region(const struct sbp_rank *rank, int buffer, struct sbp_region *region);
/* The stream of an operator's masks, beyond those of the data. */
static inline uint64_t sbp_rank_dropout_stream(const struct sbp_instr *instr)
{
    return (uint64_t)instr->op + 16;
}
/* This rank's shard in a buffer of a weight, or of its gradient: all of the buffer where it holds
 * no more, or the weight is not shared out. */
void *sbp_rank_shard(struct sbp_rank *rank, int tensor, int buffer);
/* Elements of a weight that this rank updates, those behind the block's end with them; 0 where
 * another member owns it: then its buffers hold another weight. */
int64_t sbp_rank_updates(const struct sbp_rank *rank, int tensor);
/* Elements of a weight's block before the shard of a place of the mesh, and of the block in it:
 * fewer, or none, at the block's end. */
struct sbp_stretch {
    int64_t first, count;
};
struct sbp_stretch sbp_rank_stretch(const struct sbp_program *program, int tensor, int64_t place);
/* The same of a weight whose states are not shared out, too: what would be the place's shard. */
struct sbp_stretch sbp_rank_share(const struct sbp_program *program, int tensor, int64_t place);
/* Fills the OUT of an INPUT or OUTPUT_GRADIENT instruction with standard normal values by global
 * index. One member holds the value of a partial tensor, the others hold zeros. */
void sbp_rank_fill_data(struct sbp_rank *rank, const struct sbp_instr *instr);
/* Fills what a patch embedding keeps of its images, cut into patches: (batch, patches here, pixels)
 * of standard normal data by global index, the class token's row left out. */
void sbp_rank_fill_patches(struct sbp_rank *rank, const struct sbp_instr *instr,
                           const struct sbp_patches *patches);

#endif
