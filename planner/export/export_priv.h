/* A target as a row of a table, and what its writers share. */
#ifndef SBP_PLANNER_EXPORT_EXPORT_PRIV_H
#define SBP_PLANNER_EXPORT_EXPORT_PRIV_H

#include "planner/export/export.h"

/* Abilities of a target, and its demands. */
enum {
    SBP_EXPORT_PIPELINE = 1 << 0,
    SBP_EXPORT_CONTEXT = 1 << 1,
    SBP_EXPORT_EXPERT = 1 << 2,
    SBP_EXPORT_SEQUENCE_PARALLEL = 1 << 3,
    SBP_EXPORT_OFFLOAD = 1 << 4,
    SBP_EXPORT_SEGMENTS = 1 << 5, /* of several blocks under full recompute */
    SBP_EXPORT_UNITS = 1 << 6,    /* a block's weights are gathered together, at every ZeRO level */
    /* Beside the first, it demands the second. */
    SBP_EXPORT_EXPERTS_BY_SEQUENCE = 1 << 7, /* sequence parallel, with experts and tensor parallel
                                              */
    SBP_EXPORT_EXPERTS_WHOLE = 1 << 8,       /* no expert is split */
    SBP_EXPORT_OFFLOADS_SHARDS = 1 << 9,     /* offload, ZeRO 1 and more */
    SBP_EXPORT_SHARDS_GROUPS = 1 << 10,      /* context, and experts beyond the tensor group, ZeRO
                                                that shards */
    SBP_EXPORT_STAGES_UNTIED = 1 << 11,      /* stages, embeddings that are not tied */
    SBP_EXPORT_SHARDS_ADAM = 1 << 12,        /* ZeRO and offload, Adam */
    /* Its file says these of training. */
    SBP_EXPORT_SAYS_OPTIMIZER = 1 << 13,
    SBP_EXPORT_SAYS_CLIP = 1 << 14,
    SBP_EXPORT_SAYS_CAPACITY = 1 << 15, /* of experts */
    /* Its file leaves these to the training script, which can do as the plan says. */
    SBP_EXPORT_SCRIPT_BATCH = 1 << 16,
    SBP_EXPORT_SCRIPT_RECOMPUTE = 1 << 17,
    SBP_EXPORT_SCRIPT_PRECISION = 1 << 18,
    SBP_EXPORT_WHOLE = 1 << 19,     /* all of the plan as it is */
    SBP_EXPORT_BY_LAYER = 1 << 20,  /* every layer is split as the plan has it */
    SBP_EXPORT_BY_MODULE = 1 << 21, /* so are modules of llama over one mesh (export_modules.h) */
};

#define SBP_EXPORT_SCHEDULE(name) (1u << (name))

/* Precisions by name (docs/models.md). */
enum sbp_export_precision {
    SBP_EXPORT_FP32,
    SBP_EXPORT_MIXED,
    SBP_EXPORT_FP16,
    SBP_EXPORT_FP8,
    SBP_EXPORT_MXFP8,
    SBP_EXPORT_PRECISIONS
};
/* The precision of a plan; types that are given one by one count as that of their products, else of
 * their compute. */
enum sbp_export_precision sbp_export_precision_of(const struct sbp_plan *plan);
const char *sbp_export_precision_name(enum sbp_export_precision precision);

struct sbp_export_target {
    const char *name;
    const char *what;                       /* the file, for people */
    const char *trainer;                    /* who reads it */
    const char *const *models;              /* architectures, ended by NULL; NULL: all */
    const struct sbp_export_search *search; /* NULL: a search cannot be kept to it */
    unsigned can;
    unsigned precisions;               /* a bit for each that it has; mixed stands for others */
    unsigned schedules;                /* beside 1f1b */
    uint8_t zero[4];                   /* the level that stands for each */
    uint8_t recompute[SBP_RECOMPUTES]; /* what stands for each */
    enum sbp_status (*write)(struct sbp_export *export, struct sbp_text *text,
                             struct sbp_diag *diag); /* of one file */
    enum sbp_status (*write_all)(struct sbp_export *export, const char *path,
                                 struct sbp_export_files *files,
                                 struct sbp_diag *diag); /* of several, in its place */
};

/* ---- rules of layouts -------------------------------------------------------------------------
 */

/* Embeddings that the first stage and the last would share. */
bool sbp_export_is_tied(const struct sbp_export *export);
/* Whether the optimizer is one whose states the target does not shard. */
bool sbp_export_keeps_states_whole(const struct sbp_export *export);
bool sbp_export_has_experts(const struct sbp_graph *graph);
/* The ZeRO level, or the first above it that the other degrees ask for; none where states stay
 * whole. */
int64_t sbp_export_zero_beside(const struct sbp_export *export, const struct sbp_degrees *d,
                               int64_t zero);

/* Layouts that a target can express, those of fewer stages first, and of these those that split
 * layers less. */
struct sbp_export_layout {
    struct sbp_degrees degrees; /* all that layouts say but data, micro-batch, recompute and offload
                                 */
    enum sbp_schedule schedule;
};
struct sbp_export_layouts {
    int count;
    struct sbp_export_layout *layout;
};
/* Lists them for the model and the cluster of export->given, whose target is export's; nothing else
 * of it is read. Stages hold equally many blocks, or as many as make their flops most even (of
 * more than SBP_MOST_GIVEN_PIECES pieces, equally many alone); pieces of interleaved ones divide
 * the blocks. Arrays come out of the arena. E_MEMORY; E_INPUT, with the reason of the first:
 * degrees fit none. */
enum sbp_status sbp_export_list_layouts(const struct sbp_export *export, struct sbp_arena *arena,
                                        struct sbp_export_layouts *layouts,
                                        struct sbp_diag *diag) SBP_MUST_USE;

/* Adds a loss; those for which there is no room are left out, the last line says so. E_MEMORY. */
enum sbp_status sbp_export_lose(struct sbp_export *export, const char *format, ...)
    SBP_PRINTF(2, 3);
/* Adds a line for every key of the step, every layer and every rest in which the plans differ. */
enum sbp_status sbp_export_compare(struct sbp_export *export) SBP_MUST_USE;

/* ---- the model's own keys -------------------------------------------------------------------- */

/* A number of the model's file; the default where it has none. */
int64_t sbp_export_number(const struct sbp_export *export, const char *key, int64_t otherwise);
bool sbp_export_flag(const struct sbp_export *export, const char *key, bool otherwise);
double sbp_export_real(const struct sbp_export *export, const char *key, double otherwise);
/* The name that a key holds; "" where there is none. */
const char *sbp_export_word(const struct sbp_export *export, const char *key);
bool sbp_export_is(const struct sbp_export *export, const char *architecture);
/* Adds the model's name as any language may have it in a comment: letters, digits and "._-" as they
 * are, '_' in place of all else. */
void sbp_export_add_name(struct sbp_text *text, const struct sbp_export *export);
bool sbp_export_keeps_scores(const struct sbp_export *export);
/* Adds a loss for every key of the model that is not among those written, NULL-terminated, and one
 * that says whose the prices are. */
enum sbp_status sbp_export_lose_keys(struct sbp_export *export,
                                     const char *const *written) SBP_MUST_USE;
/* Machines on which a launcher starts ranks: members of the levels down to the innermost one named
 * node or host, else down to the one above the innermost. */
int64_t sbp_export_machines(const struct sbp_cluster *cluster);

/* ---- writers --------------------------------------------------------------------------------- */

#define SBP_DECLARE_WRITER(name)                                                                   \
    enum sbp_status sbp_export_##name(struct sbp_export *export, struct sbp_text *text,            \
                                      struct sbp_diag *diag)
SBP_DECLARE_WRITER(megatron);
SBP_DECLARE_WRITER(megatron_bridge);
SBP_DECLARE_WRITER(torchtitan);
SBP_DECLARE_WRITER(deepspeed);
SBP_DECLARE_WRITER(fsdp2);
SBP_DECLARE_WRITER(galvatron);
SBP_DECLARE_WRITER(dtensor);
SBP_DECLARE_WRITER(oneflow);
enum sbp_status sbp_export_chakra(struct sbp_export *export, const char *path,
                                  struct sbp_export_files *files,
                                  struct sbp_diag *diag) SBP_MUST_USE;
/* The parts of torchtitan's file that shard modules, where the export does: what is in front of the
 * function that sets the configuration, and behind it. */
void sbp_export_add_sharding_imports(struct sbp_text *text, const struct sbp_export *export);
void sbp_export_add_shardings(struct sbp_text *text, const struct sbp_export *export);
/* Adds the text of a tree, which is deleted. failed: it is not whole. E_MEMORY. */
enum sbp_status sbp_export_json(struct cJSON *json, bool failed, struct sbp_text *text,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Empty files. E_MEMORY. */
enum sbp_status sbp_export_files_make(int count, struct sbp_export_files *files,
                                      struct sbp_diag *diag) SBP_MUST_USE;

#endif
