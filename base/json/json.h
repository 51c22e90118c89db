/* Reading JSON with exact diagnostics, on cJSON.
 *
 * A cursor is a value together with where it stands, so that every complaint names file, JSON path,
 * what is wrong and what is legal: `model.json: layers[3].op: unknown value "linar", did you
 * mean "linear"?`. Duplicate keys, NaN, infinities, trailing text and wrong types are refused.
 */
#ifndef SBP_BASE_JSON_JSON_H
#define SBP_BASE_JSON_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct cJSON;

struct sbp_json {
    const struct cJSON *node;
    const char *file; /* borrowed; name used in messages */
    char path[192];   /* "" for the root */
    struct sbp_diag *diag;
};

/* Parses a file (or text, named `file` in messages). On success *root is owned by the caller
 * (cJSON_Delete) and *cursor stands on it; on failure *root is NULL.
 * E_IO: cannot be read; E_INPUT: not JSON, a duplicate key, deeper than 64; E_MEMORY. */
enum sbp_status sbp_json_open(const char *file, struct cJSON **root, struct sbp_json *cursor,
                              struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_json_parse(const char *text, const char *file, struct cJSON **root,
                               struct sbp_json *cursor, struct sbp_diag *diag) SBP_MUST_USE;
/* A cursor on a tree that is already in memory. */
void sbp_json_at(const struct cJSON *node, const char *file, struct sbp_diag *diag,
                 struct sbp_json *cursor);

/* Refuses the cursor's value: `file: path: message`. */
enum sbp_status sbp_json_refuse(const struct sbp_json *at, const char *format, ...)
    SBP_PRINTF(2, 3);

/* The value is an object and holds no key outside `known` (NULL-terminated); an unknown key is
 * refused with the nearest known one. */
enum sbp_status sbp_json_keys(const struct sbp_json *object, const char *const *known) SBP_MUST_USE;

/* Whether the object has the key (false also when the value is no object). */
bool sbp_json_has(const struct sbp_json *object, const char *key);
/* Member of an object, element of an array; E_INPUT when it is missing or the type is wrong. */
enum sbp_status sbp_json_member(const struct sbp_json *object, const char *key,
                                struct sbp_json *member) SBP_MUST_USE;
enum sbp_status sbp_json_length(const struct sbp_json *array, int *length) SBP_MUST_USE;
enum sbp_status sbp_json_element(const struct sbp_json *array, int index,
                                 struct sbp_json *element) SBP_MUST_USE;
/* As element, but *element stands on array[index - 1] already and moves on: a long array is walked
 * in linear time (element counts from the start each time). */
enum sbp_status sbp_json_next(const struct sbp_json *array, int index,
                              struct sbp_json *element) SBP_MUST_USE;

/* Scalars, bounds included. int64 must be a whole number that a double holds exactly (<= 2^53). */
enum sbp_status sbp_json_int64(const struct sbp_json *at, int64_t least, int64_t most,
                               int64_t *value) SBP_MUST_USE;
enum sbp_status sbp_json_double(const struct sbp_json *at, double least, double most,
                                double *value) SBP_MUST_USE;
enum sbp_status sbp_json_bool(const struct sbp_json *at, bool *value) SBP_MUST_USE;
/* *text is borrowed from the tree. */
enum sbp_status sbp_json_string(const struct sbp_json *at, const char **text) SBP_MUST_USE;
/* A string copied into a fixed field; E_INPUT when empty or longer than size - 1 bytes. */
enum sbp_status sbp_json_name(const struct sbp_json *at, char *name, int size) SBP_MUST_USE;
/* A string out of a NULL-terminated list; *index is its place. */
enum sbp_status sbp_json_choice(const struct sbp_json *at, const char *const *names,
                                int *index) SBP_MUST_USE;

/* Member with a default: *value is left alone when the key is absent. */
enum sbp_status sbp_json_get_int64(const struct sbp_json *object, const char *key, int64_t least,
                                   int64_t most, int64_t *value) SBP_MUST_USE;
enum sbp_status sbp_json_get_double(const struct sbp_json *object, const char *key, double least,
                                    double most, double *value) SBP_MUST_USE;
/* The index of a string among NULL-terminated names, as sbp_json_choice. */
enum sbp_status sbp_json_get_choice(const struct sbp_json *object, const char *key,
                                    const char *const *names, int *index) SBP_MUST_USE;
enum sbp_status sbp_json_get_bool(const struct sbp_json *object, const char *key,
                                  bool *value) SBP_MUST_USE;

#endif
