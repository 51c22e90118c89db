#include "base/json/json_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/math/random.h"

void sbp_json_put(struct cJSON *object, const char *key, struct cJSON *item, bool *failed)
{
    if (item != NULL && object != NULL && cJSON_AddItemToObject(object, key, item))
        return;
    cJSON_Delete(item);
    *failed = true;
}

void sbp_json_put_number(struct cJSON *object, const char *key, double value, bool *failed)
{
    sbp_json_put(object, key, cJSON_CreateNumber(value), failed);
}

static double rounded(double value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.6g", value);
    return strtod(text, NULL);
}

void sbp_json_put_measured(struct cJSON *object, const char *key, double value, bool *failed)
{
    sbp_json_put_number(object, key, rounded(value), failed);
}

void sbp_json_put_text(struct cJSON *object, const char *key, const char *text, bool *failed)
{
    if (text != NULL)
        sbp_json_put(object, key, cJSON_CreateString(text), failed);
}

void sbp_json_put_bool(struct cJSON *object, const char *key, bool value, bool *failed)
{
    sbp_json_put(object, key, cJSON_CreateBool(value), failed);
}

struct cJSON *sbp_json_put_object(struct cJSON *object, const char *key, bool *failed)
{
    struct cJSON *member = cJSON_AddObjectToObject(object, key);
    *failed = *failed || member == NULL;
    return member;
}

struct cJSON *sbp_json_put_array(struct cJSON *object, const char *key, bool *failed)
{
    struct cJSON *member = cJSON_AddArrayToObject(object, key);
    *failed = *failed || member == NULL;
    return member;
}

/* The element when it could be added, else NULL. */
static struct cJSON *push(struct cJSON *array, struct cJSON *item, bool *failed)
{
    if (item != NULL && cJSON_AddItemToArray(array, item))
        return item;
    cJSON_Delete(item);
    *failed = true;
    return NULL;
}

struct cJSON *sbp_json_push_object(struct cJSON *array, bool *failed)
{
    return push(array, cJSON_CreateObject(), failed);
}

void sbp_json_push_text(struct cJSON *array, const char *text, bool *failed)
{
    (void)push(array, cJSON_CreateString(text), failed);
}

void sbp_json_push_number(struct cJSON *array, double value, bool *failed)
{
    (void)push(array, cJSON_CreateNumber(value), failed);
}

void sbp_json_push_measured(struct cJSON *array, double value, bool *failed)
{
    sbp_json_push_number(array, rounded(value), failed);
}

char *sbp_json_text(const struct cJSON *json)
{
    char *printed = cJSON_Print(json);
    if (printed == NULL)
        return NULL;
    const size_t length = strlen(printed);
    char *text = malloc(length + 2);
    if (text != NULL) {
        memcpy(text, printed, length);
        memcpy(text + length, "\n", 2);
    }
    cJSON_free(printed);
    return text;
}

enum sbp_status sbp_json_print(const struct cJSON *json, FILE *out, struct sbp_diag *diag)
{
    char *text = json == NULL ? NULL : sbp_json_text(json);
    if (text == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const bool printed = fputs(text, out) >= 0;
    free(text);
    return printed ? SBP_OK : sbp_fail(diag, SBP_E_IO, "standard output: %s", strerror(errno));
}

enum sbp_status sbp_json_finish(struct cJSON *json, bool failed, struct sbp_diag *diag)
{
    const enum sbp_status status = sbp_json_print(failed ? NULL : json, stdout, diag);
    cJSON_Delete(json);
    return status;
}

enum sbp_status sbp_json_write(const struct cJSON *json, const char *path, struct sbp_diag *diag)
{
    char *text = json == NULL ? NULL : sbp_json_text(json);
    if (text == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", path);
    const enum sbp_status status = sbp_file_write(path, text, strlen(text), diag);
    free(text);
    return status;
}

bool sbp_json_hash(const struct cJSON *json, char *buffer)
{
    char *text = cJSON_PrintUnformatted(json);
    if (text == NULL)
        return false;
    (void)snprintf(buffer, SBP_HASH_BYTES, "fnv1a64:%016" PRIx64,
                   sbp_hash_bytes(text, strlen(text)));
    cJSON_free(text);
    return true;
}
