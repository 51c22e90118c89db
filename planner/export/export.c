#include "planner/export/export.h"

#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "planner/export/export_priv.h"

/* Architectures of model files that have a counterpart in Megatron-LM's pretrain_gpt.py. */
static const char *const DECODERS[] = {"gpt", "llama", "mixtral", "deepseek", NULL};
static const char *const DENSE[] = {"gpt", "llama", NULL};
static const char *const MODERN[] = {"llama", "mixtral", "deepseek", NULL};

/* Each level or kind is written as the one at its place here: as itself where the target has it. */
#define RECOMPUTES(none, attention, selective, full)                                               \
    {                                                                                              \
        SBP_RECOMPUTE_##none, SBP_RECOMPUTE_##attention, SBP_RECOMPUTE_##selective,                \
            SBP_RECOMPUTE_##full                                                                   \
    }

/* ---- searches that keep to a target ---------------------------------------------------------- */

#define BIT(name) (1u << (name))

static const char *const UNITS_KEYS[] = {"gather_blocks=true", NULL};
static const struct sbp_export_search deepspeed_search = {.space = SBP_SPACE_ZERO,
                                                          .set = UNITS_KEYS};
static const struct sbp_export_search fsdp2_search = {.space = SBP_SPACE_ZERO,
                                                      .set = UNITS_KEYS,
                                                      .zero_levels = BIT(2) | BIT(3),
                                                      .recomputes = BIT(SBP_RECOMPUTE_NONE) |
                                                                    BIT(SBP_RECOMPUTE_FULL)};
static const char *const DTENSOR_KEYS[] = {"pipeline=1",    "zero=0",         "recompute=none",
                                           "offload=false", "regather=false", NULL};
static const struct sbp_export_search dtensor_search = {.space = SBP_SPACE_FULL,
                                                        .set = DTENSOR_KEYS};
/* The target's own table says the rest. */
static const char *const NO_KEYS[] = {NULL};
static const struct sbp_export_search layouts_search = {
    .space = SBP_SPACE_FULL, .set = NO_KEYS, .layouts = true};
static const struct sbp_export_search chakra_search = {
    .space = SBP_SPACE_FULL, .set = NO_KEYS, .all = true};

/* ---- precisions ------------------------------------------------------------------------------ */

enum {
    FLOATS = BIT(SBP_EXPORT_FP32) | BIT(SBP_EXPORT_MIXED) | BIT(SBP_EXPORT_FP16),
    EIGHTS = BIT(SBP_EXPORT_FP8) | BIT(SBP_EXPORT_MXFP8)
};

/* Megatron-LM is under Megatron-Bridge, too. */
enum {
    MEGATRON = SBP_EXPORT_PIPELINE | SBP_EXPORT_CONTEXT | SBP_EXPORT_EXPERT |
               SBP_EXPORT_SEQUENCE_PARALLEL | SBP_EXPORT_OFFLOAD | SBP_EXPORT_SEGMENTS |
               SBP_EXPORT_EXPERTS_BY_SEQUENCE | SBP_EXPORT_OFFLOADS_SHARDS |
               SBP_EXPORT_SHARDS_ADAM | SBP_EXPORT_SAYS_OPTIMIZER | SBP_EXPORT_SAYS_CLIP |
               SBP_EXPORT_SAYS_CAPACITY
};

/* ---- the table ------------------------------------------------------------------------------- */

static const struct sbp_export_target targets[] = {
    {.name = "megatron",
     .what = "the argument list of Megatron-LM",
     .trainer = "Megatron-LM",
     .search = &layouts_search,
     .models = DECODERS,
     .precisions = FLOATS | EIGHTS,
     .can = MEGATRON,
     .schedules = SBP_EXPORT_SCHEDULE(SBP_INTERLEAVED),
     .zero = {0, 1, 2, 3},
     .recompute = RECOMPUTES(NONE, ATTENTION, FULL, FULL),
     .write = sbp_export_megatron},
    {.name = "megatron-bridge",
     .what = "a function that sets the configuration of a Megatron-Bridge recipe",
     .trainer = "Megatron-Bridge",
     .search = &layouts_search,
     .models = DECODERS,
     .precisions = BIT(SBP_EXPORT_MIXED) | BIT(SBP_EXPORT_FP16) | EIGHTS,
     .can = MEGATRON,
     .schedules = SBP_EXPORT_SCHEDULE(SBP_INTERLEAVED),
     .zero = {0, 1, 2, 3},
     .recompute = RECOMPUTES(NONE, ATTENTION, FULL, FULL),
     .write = sbp_export_megatron_bridge},
    /* Weights of layers stay gathered from forward to backward pass in place of ZeRO 1. */
    {.name = "torchtitan",
     .what = "a function that sets the configuration classes of torchtitan",
     .trainer = "torchtitan",
     .search = &layouts_search,
     .models = MODERN,
     .precisions = BIT(SBP_EXPORT_FP32) | BIT(SBP_EXPORT_MIXED),
     .can = SBP_EXPORT_PIPELINE | SBP_EXPORT_CONTEXT | SBP_EXPORT_EXPERT |
            SBP_EXPORT_SEQUENCE_PARALLEL | SBP_EXPORT_EXPERTS_BY_SEQUENCE |
            SBP_EXPORT_EXPERTS_WHOLE | SBP_EXPORT_UNITS | SBP_EXPORT_SHARDS_GROUPS |
            SBP_EXPORT_STAGES_UNTIED | SBP_EXPORT_BY_MODULE,
     .schedules = SBP_EXPORT_SCHEDULE(SBP_GPIPE) | SBP_EXPORT_SCHEDULE(SBP_INTERLEAVED),
     .zero = {0, 2, 2, 3},
     .recompute = RECOMPUTES(NONE, SELECTIVE, SELECTIVE, FULL),
     .write = sbp_export_torchtitan},
    {.name = "deepspeed",
     .what = "the JSON configuration of DeepSpeed",
     .trainer = "DeepSpeed",
     .search = &deepspeed_search,
     .precisions = FLOATS,
     .can = SBP_EXPORT_OFFLOAD | SBP_EXPORT_UNITS | SBP_EXPORT_OFFLOADS_SHARDS |
            SBP_EXPORT_SEGMENTS | SBP_EXPORT_SCRIPT_RECOMPUTE | SBP_EXPORT_SAYS_CLIP,
     .zero = {0, 1, 2, 3},
     .recompute = RECOMPUTES(NONE, ATTENTION, SELECTIVE, FULL),
     .write = sbp_export_deepspeed},
    {.name = "fsdp2",
     .what = "the YAML configuration of Accelerate for FSDP2",
     .trainer = "Accelerate",
     .search = &fsdp2_search,
     .precisions = FLOATS,
     .can = SBP_EXPORT_CONTEXT | SBP_EXPORT_UNITS | SBP_EXPORT_SCRIPT_BATCH,
     .zero = {2, 2, 2, 3},
     .recompute = RECOMPUTES(NONE, NONE, FULL, FULL),
     .write = sbp_export_fsdp2},
    {.name = "galvatron",
     .what = "the JSON configuration of Galvatron",
     .trainer = "Galvatron",
     .search = &layouts_search,
     .models = DENSE,
     .precisions = FLOATS,
     .can = SBP_EXPORT_PIPELINE | SBP_EXPORT_CONTEXT | SBP_EXPORT_SEQUENCE_PARALLEL |
            SBP_EXPORT_SCRIPT_PRECISION,
     .schedules = SBP_EXPORT_SCHEDULE(SBP_GPIPE),
     .zero = {0, 2, 2, 3},
     .recompute = RECOMPUTES(NONE, NONE, FULL, FULL),
     .write = sbp_export_galvatron},
    {.name = "dtensor",
     .what = "a mesh and placements for DTensor of PyTorch",
     .trainer = "DTensor",
     .search = &dtensor_search,
     .can =
         SBP_EXPORT_CONTEXT | SBP_EXPORT_EXPERT | SBP_EXPORT_BY_LAYER | SBP_EXPORT_SCRIPT_PRECISION,
     .write = sbp_export_dtensor},
    {.name = "oneflow",
     .what = "a placement and SBP signatures for OneFlow's global tensors",
     .trainer = "OneFlow",
     .search = &dtensor_search,
     .can =
         SBP_EXPORT_CONTEXT | SBP_EXPORT_EXPERT | SBP_EXPORT_BY_LAYER | SBP_EXPORT_SCRIPT_PRECISION,
     .write = sbp_export_oneflow},
    {.name = "chakra",
     .what = "execution traces of Chakra",
     .trainer = "Chakra",
     .search = &chakra_search,
     .can = SBP_EXPORT_PIPELINE | SBP_EXPORT_CONTEXT | SBP_EXPORT_EXPERT | SBP_EXPORT_BY_LAYER |
            SBP_EXPORT_WHOLE,
     .write_all = sbp_export_chakra},
};

enum { TARGETS = sizeof targets / sizeof *targets };

const char *sbp_export_name(int place)
{
    return place >= 0 && place < TARGETS ? targets[place].name : NULL;
}

const struct sbp_export_target *sbp_export_target(int place)
{
    return &targets[place];
}

const struct sbp_export_search *sbp_export_search(const struct sbp_export_target *target)
{
    return target->search;
}

const struct sbp_export_target *sbp_export_search_target(int place)
{
    for (int i = 0; i < TARGETS && place >= 0; i++)
        if (targets[i].search != NULL && place-- == 0)
            return &targets[i];
    return NULL;
}

const char *sbp_export_search_name(int place)
{
    const struct sbp_export_target *target = sbp_export_search_target(place);
    return target == NULL ? NULL : target->name;
}

const char *sbp_export_what(const struct sbp_export_target *target)
{
    return target->what;
}

enum sbp_status sbp_export_json(struct cJSON *json, bool failed, struct sbp_text *text,
                                struct sbp_diag *diag)
{
    char *written = failed ? NULL : sbp_json_text(json);
    if (written != NULL)
        sbp_text_add(text, "%s", written);
    failed |= written == NULL || text->failed;
    free(written);
    cJSON_Delete(json);
    return failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

enum sbp_status sbp_export_files_make(int count, struct sbp_export_files *files,
                                      struct sbp_diag *diag)
{
    files->file = calloc((size_t)count, sizeof *files->file);
    files->count = files->file == NULL ? 0 : count;
    return files->file == NULL ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

void sbp_export_files_free(struct sbp_export_files *files)
{
    for (int i = 0; i < files->count; i++) {
        sbp_text_free(&files->file[i].name);
        sbp_text_free(&files->file[i].text);
    }
    free(files->file);
    *files = (struct sbp_export_files){0};
}

enum sbp_status sbp_export_write(struct sbp_export *export, const char *path,
                                 struct sbp_export_files *files, struct sbp_diag *diag)
{
    *files = (struct sbp_export_files){0};
    if (export->target->write_all != NULL)
        return export->target->write_all(export, path, files, diag);
    SBP_TRY(sbp_export_files_make(1, files, diag));
    sbp_text_add(&files->file[0].name, "%s", path);
    return export->target->write(export, &files->file[0].text, diag);
}
