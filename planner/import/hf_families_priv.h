/* Families of Hugging Face configs, as tables: which key of a config is which key of a model file.
 * Private to import_*.c.
 */
#ifndef SBP_PLANNER_IMPORT_HF_FAMILIES_PRIV_H
#define SBP_PLANNER_IMPORT_HF_FAMILIES_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"

struct cJSON;

/* The model while it is written. `failed`: out of memory. */
struct sbp_import {
    struct sbp_json config;
    const struct sbp_import_family *family;
    struct cJSON *model, *notes;
    bool failed;
};

enum sbp_import_type {
    SBP_IMPORT_SIZE,
    SBP_IMPORT_SIZE_OR_NULL, /* null: the model file's default, whatever `absent` says */
    SBP_IMPORT_NUMBER,
    SBP_IMPORT_PROBABILITY,
    SBP_IMPORT_FLAG
};

/* One key of the model file, from the first of the config's keys that is there and not null. */
struct sbp_import_field {
    const char *ours;
    const char *theirs[4]; /* older and newer names */
    enum sbp_import_type type;
    bool required;
    double absent; /* the library's default; NAN: the model file's */
};

/* A switch that would make it another model. */
struct sbp_import_switch {
    const char *key;
    bool supported;
};

struct sbp_import_family {
    const char *name;                      /* model_type */
    const char *architecture;              /* of the model file */
    const struct sbp_import_field *fields; /* up to one without a name */
    const struct sbp_import_switch *switches;
    const char *const *activations; /* supported ones, NULL-terminated; the first is the default */
    bool images;                    /* no sequence of its own */
    enum sbp_status (*rest)(struct sbp_import *import); /* what no table says; may be NULL */
};

extern const struct sbp_import_family sbp_import_families[];
extern const int sbp_import_family_count;

/* The member when it is there and not null. */
bool sbp_import_given(const struct sbp_json *config, const char *key, struct sbp_json *member);
void sbp_import_put_number(struct sbp_import *import, const char *key, double value);
void sbp_import_put_flag(struct sbp_import *import, const char *key, bool value);
void sbp_import_put_text(struct sbp_import *import, const char *key, const char *value);
/* What the model file cannot say. */
void sbp_import_note(struct sbp_import *import, const char *format, ...) SBP_PRINTF(2, 3);

#endif
