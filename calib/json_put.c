#include "calib/json_put.h"

#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

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

void sbp_json_put_measured(struct cJSON *object, const char *key, double value, bool *failed)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.6g", value);
    sbp_json_put_number(object, key, strtod(text, NULL), failed);
}

void sbp_json_put_text(struct cJSON *object, const char *key, const char *text, bool *failed)
{
    if (text != NULL)
        sbp_json_put(object, key, cJSON_CreateString(text), failed);
}

struct cJSON *sbp_json_put_object(struct cJSON *object, const char *key, bool *failed)
{
    struct cJSON *item = cJSON_CreateObject();
    sbp_json_put(object, key, item, failed);
    return *failed ? NULL : item;
}

struct cJSON *sbp_json_put_array(struct cJSON *object, const char *key, bool *failed)
{
    struct cJSON *item = cJSON_CreateArray();
    sbp_json_put(object, key, item, failed);
    return *failed ? NULL : item;
}

static struct cJSON *push(struct cJSON *array, struct cJSON *item, bool *failed)
{
    if (item != NULL && array != NULL && cJSON_AddItemToArray(array, item))
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
