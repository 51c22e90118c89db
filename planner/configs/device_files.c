/* Fills in the device of a cluster that names a device file. */
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/configs/config_files.h"

#define PEAKS "flops"

/* Tables of products: a cluster that has one of its own takes none, for a grid would go before the
 * cluster's shapes. */
static bool is_product_table(const char *key)
{
    return strcmp(key, "gemm") == 0 || strcmp(key, "gemm_grids") == 0;
}

static bool has(const struct cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key) != NULL;
}

static bool copy_into(struct cJSON *object, const struct cJSON *item)
{
    struct cJSON *copy = cJSON_Duplicate(item, true);
    if (cJSON_AddItemToObject(object, item->string, copy))
        return true;
    cJSON_Delete(copy);
    return false;
}

/* Peaks of types that the cluster does not state. */
static bool fill_peaks(struct cJSON *device, const struct cJSON *like)
{
    struct cJSON *own = cJSON_GetObjectItemCaseSensitive(device, PEAKS);
    const struct cJSON *peaks = cJSON_GetObjectItemCaseSensitive(like, PEAKS), *peak;
    cJSON_ArrayForEach(peak, peaks)
    {
        if (cJSON_IsObject(own) && !has(own, peak->string) && !copy_into(own, peak))
            return false;
    }
    return true;
}

/* Copies what the device lacks. */
static bool fill(struct cJSON *device, const struct cJSON *like)
{
    const bool own_table = has(device, "gemm") || has(device, "gemm_grids");
    for (const struct cJSON *item = like->child; item != NULL; item = item->next) {
        if (has(device, item->string) || (own_table && is_product_table(item->string)))
            continue;
        if (!copy_into(device, item))
            return false;
    }
    return fill_peaks(device, like);
}

/* Finds the file that "like" names, and reads it as a device of its own, so that what is wrong with
 * it is said of it. */
static enum sbp_status open_like(const struct sbp_json *like, struct sbp_arena *arena,
                                 struct cJSON **root)
{
    struct sbp_cluster unused;
    struct sbp_diag why = {{0}};
    struct sbp_json at;
    const char *word = NULL, *path = NULL;
    SBP_TRY(sbp_json_string(like, &word));
    const enum sbp_status found = sbp_config_find(SBP_CONFIG_DEVICE, word, arena, &path, &why);
    if (found != SBP_OK)
        return found == SBP_E_INPUT ? sbp_json_refuse(like, "%s", why.text)
                                    : sbp_fail(like->diag, found, "%s", why.text);
    SBP_TRY(sbp_json_open(path, root, &at, like->diag));
    return sbp_cluster_read_device(&at, arena, &unused);
}

enum sbp_status sbp_device_file_fill(struct cJSON *cluster, const char *name,
                                     struct sbp_arena *arena, struct sbp_diag *diag)
{
    struct cJSON *device = cJSON_GetObjectItemCaseSensitive(cluster, "device"), *root = NULL;
    struct sbp_json at, device_at, like;
    if (!cJSON_IsObject(device) || !has(device, "like"))
        return SBP_OK;
    sbp_json_at(cluster, name, diag, &at);
    SBP_TRY(sbp_json_member(&at, "device", &device_at));
    SBP_TRY(sbp_json_member(&device_at, "like", &like));
    enum sbp_status status = open_like(&like, arena, &root);
    if (status == SBP_OK && !fill(device, root))
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    if (status == SBP_OK)
        cJSON_DeleteItemFromObjectCaseSensitive(device, "like");
    cJSON_Delete(root);
    return status;
}
