/* Turns a Hugging Face config.json into a model file.
 *
 * The options give what the training decides (batch, sequence, precision); the config is asked for
 * the type of its weights alone, where the options name no precision. Of a config with parts (text,
 * vision) its text_config is imported. A key that the config lacks has the default of the
 * publisher's library, so that the model is the one that this library would build. The import
 * refuses a key that changes the model in a way that the cost model does not know. Where it leaves
 * something out, takes it as something close or assumes it, it says so in the model's "notes". It
 * ignores keys that change nothing here (generation, tokens, versions). Learned positions limit the
 * sequence, rotated ones do not.
 */
#ifndef SBP_PLANNER_IMPORT_HF_H
#define SBP_PLANNER_IMPORT_HF_H

#include <stdint.h>

#include "base/json/json.h"
#include "base/status.h"

struct cJSON;

struct sbp_import_options {
    const char *name;       /* NULL: the published name of a model of this size, or a made one */
    const char *precision;  /* "fp32", "mixed", "bf16", "fp16"; NULL: of the config's type */
    int64_t global_batch;   /* sequences or images per step, >= 1 */
    int64_t sequence;       /* tokens per sequence, >= 1; models of images take 0 */
    int64_t vocab_multiple; /* the vocabulary is padded to a multiple of it; 0: 128 */
};

/* Families: those of hf_decoders.c, hf_mixtures.c and hf_encoders.c; bert also without model_type,
 * as in its authors' files. On success *model is the caller's (cJSON_Delete) and reads as a model
 * file, with attention "flash" where it has one and an array "notes" of texts, of which the first
 * names the source; else it is NULL.
 * E_INPUT: an unsupported or incomplete config, options out of range; E_MEMORY. */
enum sbp_status sbp_import_hf(const struct sbp_json *config,
                              const struct sbp_import_options *options, struct cJSON **model,
                              struct sbp_diag *diag) SBP_MUST_USE;

#endif
