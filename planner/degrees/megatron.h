/* Reads a command line of Megatron-LM: its degrees, and what it says of the model, which is checked
 * and not taken.
 *
 * Flags are words "--name value", "--name=value" or "--name"; line ends behind a backslash count as
 * spaces. Flags that no plan depends on are left out, and one note lists them.
 */
#ifndef SBP_PLANNER_DEGREES_MEGATRON_H
#define SBP_PLANNER_DEGREES_MEGATRON_H

#include "planner/degrees/degrees.h"

struct sbp_megatron_claim {
    const char *flag; /* "--num-layers" */
    const char *key;  /* of the model, "layers" */
    int64_t value;
};

#define SBP_MEGATRON_CLAIMS 16
struct sbp_megatron_flags {
    struct sbp_degrees degrees;
    int64_t chunk_layers; /* of --num-layers-per-virtual-pipeline-stage; 0: not given */
    int64_t global_batch; /* sequences a step; 0: not given */
    int claim_count;      /* what the flags say of the model */
    struct sbp_megatron_claim claim[SBP_MEGATRON_CLAIMS];
    bool flash;           /* --use-flash-attn, or another attention that keeps no scores */
    bool half;            /* --bf16 or --fp16 */
    bool overlap;         /* communication is said to overlap */
    bool recompute_block; /* --recompute-method block */
    int note_count;
    char note[SBP_DEGREES_NOTES][SBP_DEGREES_NOTE_BYTES];
};

/* Reads the words of a command line. E_INPUT, "--megatron: FLAG: what is wrong, what is legal". */
enum sbp_status sbp_megatron_read(const char *words, struct sbp_megatron_flags *flags,
                                  struct sbp_diag *diag) SBP_MUST_USE;

/* Checks the claims about the model against its file, and works out the degrees that need its
 * layers. E_INPUT names a flag and both values. */
enum sbp_status sbp_megatron_check(struct sbp_megatron_flags *flags, const struct cJSON *model,
                                   const struct sbp_graph *graph,
                                   struct sbp_diag *diag) SBP_MUST_USE;

#endif
