/* The supported families of Hugging Face configs, as tables: which key of a config becomes which
 * key of a model file, and which values are refused. A family's function `rest` handles what a
 * table cannot say. Internal to planner/import/hf.h.
 */
#ifndef SBP_PLANNER_IMPORT_HF_FAMILIES_PRIV_H
#define SBP_PLANNER_IMPORT_HF_FAMILIES_PRIV_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"

struct cJSON;

/* Sizes and counts are legal up to here. */
#define SBP_IMPORT_MOST (INT64_C(1) << 31)

/* An import under way. */
struct sbp_import {
    struct sbp_json config; /* of the language model: a part of `whole` where that has others */
    struct sbp_json whole;
    int64_t sequence; /* the option; 0: none */
    const struct sbp_import_family *family;
    struct cJSON *model, *notes; /* owned until they are handed over */
    bool failed;                 /* out of memory */
};

enum sbp_import_type {
    SBP_IMPORT_SIZE,
    SBP_IMPORT_SIZE_OR_NULL, /* null leaves the key out: the model file's default */
    SBP_IMPORT_NUMBER,
    SBP_IMPORT_PROBABILITY,
    SBP_IMPORT_FLAG
};

/* A key of the model file. It is read from the first of the config's keys that is present and not
 * null. */
struct sbp_import_field {
    const char *ours;
    const char *theirs[4]; /* older and newer names */
    enum sbp_import_type type;
    bool required;
    double absent; /* value where no key is present; NAN leaves the key out */
};

/* A flag with only one supported value: the other one would be a different model. */
struct sbp_import_switch {
    const char *key;
    bool supported;
};

struct sbp_import_family {
    const char *name;                         /* model_type */
    const char *architecture;                 /* in the model file */
    const struct sbp_import_field *fields;    /* ended by an entry without a name */
    const struct sbp_import_switch *switches; /* ended by an entry without a key; may be NULL */
    const char *const *activations; /* supported ones, NULL-terminated; the first is the default */
    bool images;                    /* takes images, so that there is no sequence */
    bool convolutions;              /* has no attention */
    enum sbp_status (*rest)(struct sbp_import *import); /* may be NULL */
};

/* The families, by kind of model; a table ends with an entry without a name. */
extern const struct sbp_import_family sbp_import_decoders[], sbp_import_mixtures[],
    sbp_import_encoders[];
/* The i-th of them all; NULL beyond the last. */
const struct sbp_import_family *sbp_import_family(int i);

/* ---- fields ---- */

/* Defaults are those of transformers' configuration classes. */
#define SIZE(ours, ...)                                                                            \
    {                                                                                              \
        ours, {__VA_ARGS__}, SBP_IMPORT_SIZE, true, NAN                                            \
    }
#define MAYBE(ours, key, a)                                                                        \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_SIZE, false, (a)                                                   \
    }
/* Where the config says null, the model file's default holds. */
#define COUNT_OF(ours, key, a)                                                                     \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_SIZE_OR_NULL, false, (a)                                           \
    }
#define NUMBER(ours, key, a)                                                                       \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_NUMBER, false, (a)                                                 \
    }
#define CHANCE(ours, key, a)                                                                       \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_PROBABILITY, false, (a)                                            \
    }
#define FLAG(ours, key, a)                                                                         \
    {                                                                                              \
        ours, {key}, SBP_IMPORT_FLAG, false, (a)                                                   \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, {NULL}, SBP_IMPORT_SIZE, false, NAN                                                  \
    }

/* Fields of every decoder of tokens with rotated positions. */
#define DECODER(norm_epsilon)                                                                      \
    SIZE("layers", "num_hidden_layers", "n_layer", "num_layers"),                                  \
        SIZE("hidden", "hidden_size", "n_embd", "d_model"),                                        \
        SIZE("heads", "num_attention_heads", "n_head"), SIZE("vocab", "vocab_size"),               \
        NUMBER("epsilon", "rms_norm_eps", norm_epsilon),                                           \
        CHANCE("attention_dropout", "attention_dropout", 0),                                       \
        FLAG("tied", "tie_word_embeddings", 0)
/* Heads of keys and values: as many as heads of queries where the config says null; `absent` where
 * it has no such key (NAN: as many as heads of queries). */
#define KV_HEADS(absent)  COUNT_OF("kv_heads", "num_key_value_heads", (absent))
#define GROUPED(kv_heads) KV_HEADS(kv_heads), MAYBE("head_dim", "head_dim", NAN)

/* ---- writing the model ---- */

/* Whether the config has the key with a value other than null; then *member is it. */
bool sbp_import_given(const struct sbp_json *config, const char *key, struct sbp_json *member);
void sbp_import_put_number(struct sbp_import *import, const char *key, double value);
void sbp_import_put_flag(struct sbp_import *import, const char *key, bool value);
void sbp_import_put_text(struct sbp_import *import, const char *key, const char *value);
/* Adds to the model's "notes": says what was left out or taken as something close. */
void sbp_import_note(struct sbp_import *import, const char *format, ...) SBP_PRINTF(2, 3);

/* A number of the model as far as it is written; 0: it has none. */
int64_t sbp_import_size(const struct sbp_import *import, const char *ours);

/* ---- keys of several families ---- */

/* The library's class that the config was written for; "" where it names none. */
const char *sbp_import_class_of(const struct sbp_import *import);
/* Notes that another class than this is imported. */
void sbp_import_note_other_head(struct sbp_import *import, const char *taken);
/* Decoders are imported as language models, whatever head the published weights have. */
void sbp_import_note_decoder(struct sbp_import *import);
/* One key decides the biases of queries, keys, values and, where it can have one, the projection.
 * E_INPUT. */
enum sbp_status sbp_import_put_biases(struct sbp_import *import, bool absent,
                                      bool projection) SBP_MUST_USE;
/* Refuses any value of the key but one. E_INPUT. */
enum sbp_status sbp_import_must_be(struct sbp_import *import, const char *key, int64_t value,
                                   const char *why) SBP_MUST_USE;
/* A number that may be 0. E_INPUT. */
enum sbp_status sbp_import_put_count(struct sbp_import *import, const char *ours,
                                     const char *theirs, int64_t absent) SBP_MUST_USE;
/* The window of sliding_window (`absent` where the key is missing, 0: none) in so many layers, or
 * in those that layer_types says. E_INPUT. */
enum sbp_status sbp_import_put_window(struct sbp_import *import, int64_t absent,
                                      int64_t windowed) SBP_MUST_USE;

#endif
