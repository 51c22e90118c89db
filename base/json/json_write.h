/* Building and writing JSON: one flag notes that memory ran out, so that it is checked once.
 *
 * Every function accepts a NULL parent (after an earlier failure) and then sets *failed. Numbers
 * that are not finite become null.
 */
#ifndef SBP_BASE_JSON_JSON_WRITE_H
#define SBP_BASE_JSON_JSON_WRITE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

struct cJSON;

/* Takes over `item` (NULL counts as a failure). */
void sbp_json_put(struct cJSON *object, const char *key, struct cJSON *item, bool *failed);
void sbp_json_put_number(struct cJSON *object, const char *key, double value, bool *failed);
/* Six significant digits: no measurement has more. */
void sbp_json_put_measured(struct cJSON *object, const char *key, double value, bool *failed);
/* Nothing for NULL. */
void sbp_json_put_text(struct cJSON *object, const char *key, const char *text, bool *failed);
void sbp_json_put_bool(struct cJSON *object, const char *key, bool value, bool *failed);

/* The new member, borrowed; NULL on failure. */
struct cJSON *sbp_json_put_object(struct cJSON *object, const char *key, bool *failed);
struct cJSON *sbp_json_put_array(struct cJSON *object, const char *key, bool *failed);
/* New elements of an array. */
struct cJSON *sbp_json_push_object(struct cJSON *array, bool *failed);
void sbp_json_push_text(struct cJSON *array, const char *text, bool *failed);
void sbp_json_push_number(struct cJSON *array, double value, bool *failed);
void sbp_json_push_measured(struct cJSON *array, double value, bool *failed);

/* The text of a tree with a final newline; the caller frees it (free); NULL when memory is out. */
char *sbp_json_text(const struct cJSON *json);
/* Prints the text of a tree; NULL counts as memory that ran out. E_MEMORY, E_IO. */
enum sbp_status sbp_json_print(const struct cJSON *json, FILE *out,
                               struct sbp_diag *diag) SBP_MUST_USE;
/* The same to standard output, of a tree that is deleted; failed: it is not whole. */
enum sbp_status sbp_json_finish(struct cJSON *json, bool failed,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Writes the text of a tree to a file, whole or not at all; NULL as above. E_IO, E_MEMORY. */
enum sbp_status sbp_json_write(const struct cJSON *json, const char *path,
                               struct sbp_diag *diag) SBP_MUST_USE;
/* "fnv1a64:..." of a tree's compact text: the name of a model or a cluster in a plan. */
#define SBP_HASH_BYTES 32
bool sbp_json_hash(const struct cJSON *json, char *buffer);

#endif
