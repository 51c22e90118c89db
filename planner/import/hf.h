/* Import of a Hugging Face config.json: what the file says about the model becomes a model file.
 *
 * What the training decides (batch, sequence, precision) comes from the options, never from the
 * file; positions that are learned are a limit of the sequence, rotated ones are not. Keys that the
 * file leaves out have the defaults of the publisher's library, which is what that library would
 * build from the same file. Keys that change the model in a way that the cost model does not know
 * are refused; what is left out or taken as something close is said in the model's "notes". Keys
 * that change nothing here (generation, tokens, versions) are ignored.
 */
#ifndef SBP_PLANNER_IMPORT_HF_H
#define SBP_PLANNER_IMPORT_HF_H

#include <stdint.h>

#include "base/json/json.h"
#include "base/status.h"

struct cJSON;

struct sbp_import_options {
    const char *name;       /* NULL: the published name of the size, or one out of its sizes */
    const char *precision;  /* "fp32", "mixed"; NULL: fp32 */
    int64_t global_batch;   /* sequences or images a step, >= 1 */
    int64_t sequence;       /* tokens of a sequence, >= 1; 0 for models of images */
    int64_t vocab_multiple; /* 0: 128 */
};

/* Families: gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, deepseek_v2, deepseek_v3, bert
 * (without model_type too, as its authors' files are), vit, resnet. On success *model is the
 * caller's (cJSON_Delete) and reads as a model file; else it is NULL. E_INPUT: an unsupported or
 * incomplete config, options out of range; E_MEMORY. */
enum sbp_status sbp_import_hf(const struct sbp_json *config,
                              const struct sbp_import_options *options, struct cJSON **model,
                              struct sbp_diag *diag) SBP_MUST_USE;

#endif
