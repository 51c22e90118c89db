/* The supported families of Hugging Face configs, as tables: which key of a config becomes which
 * key of a model file, and which values are refused. A family's function `rest` handles what a
 * table cannot say. Internal to planner/import/hf.h.
 */
#ifndef SBP_PLANNER_IMPORT_HF_FAMILIES_PRIV_H
#define SBP_PLANNER_IMPORT_HF_FAMILIES_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"

struct cJSON;

/* Sizes and counts are legal up to here. */
#define SBP_IMPORT_MOST (INT64_C(1) << 31)

/* An import under way. */
struct sbp_import {
    struct sbp_json config;
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
    const struct sbp_import_switch *switches; /* ended by an entry without a key */
    const char *const *activations; /* supported ones, NULL-terminated; the first is the default */
    bool images;                    /* takes images, so that there is no sequence */
    enum sbp_status (*rest)(struct sbp_import *import); /* may be NULL */
};

extern const struct sbp_import_family sbp_import_families[];
extern const int sbp_import_family_count;

/* Whether the config has the key with a value other than null; then *member is it. */
bool sbp_import_given(const struct sbp_json *config, const char *key, struct sbp_json *member);
void sbp_import_put_number(struct sbp_import *import, const char *key, double value);
void sbp_import_put_flag(struct sbp_import *import, const char *key, bool value);
void sbp_import_put_text(struct sbp_import *import, const char *key, const char *value);
/* Adds to the model's "notes": says what was left out or taken as something close. */
void sbp_import_note(struct sbp_import *import, const char *format, ...) SBP_PRINTF(2, 3);

#endif
