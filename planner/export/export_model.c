/* Keys of a model's file, for writers of model parts. */
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/export/export_priv.h"

static const struct cJSON *member(const struct sbp_export *export, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(export->given->workload.model_json, key);
}

double sbp_export_real(const struct sbp_export *export, const char *key, double otherwise)
{
    const struct cJSON *node = member(export, key);
    return cJSON_IsNumber(node) ? node->valuedouble : otherwise;
}

int64_t sbp_export_number(const struct sbp_export *export, const char *key, int64_t otherwise)
{
    return (int64_t)sbp_export_real(export, key, (double)otherwise);
}

bool sbp_export_flag(const struct sbp_export *export, const char *key, bool otherwise)
{
    const struct cJSON *node = member(export, key);
    return cJSON_IsBool(node) ? cJSON_IsTrue(node) : otherwise;
}

const char *sbp_export_word(const struct sbp_export *export, const char *key)
{
    const char *word = cJSON_GetStringValue(member(export, key));
    return word == NULL ? "" : word;
}

bool sbp_export_is(const struct sbp_export *export, const char *architecture)
{
    return strcmp(sbp_export_word(export, "architecture"), architecture) == 0;
}

static const char *const PRECISIONS[] = {"fp32", "mixed", "fp16", "fp8", "mxfp8"};

const char *sbp_export_precision_name(enum sbp_export_precision precision)
{
    return PRECISIONS[precision];
}

enum sbp_export_precision sbp_export_precision_of(const struct sbp_plan *plan)
{
    const struct sbp_precision *precision = &plan->workload.model.precision;
    const char *name = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(plan->workload.model_json, "precision"));
    for (int i = 0; i < SBP_EXPORT_PRECISIONS && name != NULL; i++)
        if (strcmp(PRECISIONS[i], name) == 0)
            return (enum sbp_export_precision)i;
    return precision->products == SBP_FP8   ? SBP_EXPORT_FP8
           : precision->compute == SBP_BF16 ? SBP_EXPORT_MIXED
           : precision->compute == SBP_FP16 ? SBP_EXPORT_FP16
                                            : SBP_EXPORT_FP32;
}

void sbp_export_add_name(struct sbp_text *text, const struct sbp_export *export)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (const char *at = export->plan.cut.graph.name; *at != '\0'; at++)
        sbp_text_add(text, "%c", strchr(legal, *at) != NULL ? *at : '_');
}

bool sbp_export_keeps_scores(const struct sbp_export *export)
{
    return strcmp(sbp_export_word(export, "attention"), "flash") != 0;
}

int64_t sbp_export_machines(const struct sbp_cluster *cluster)
{
    int innermost = cluster->level_count - 2;
    int64_t count = 1;
    for (int level = 0; level < cluster->level_count; level++)
        if (strcmp(cluster->level[level].name, "node") == 0 ||
            strcmp(cluster->level[level].name, "host") == 0)
            innermost = level;
    for (int level = 0; level <= innermost; level++)
        count *= cluster->level[level].size;
    return count;
}

static bool is_among(const char *const *keys, const char *key)
{
    while (*keys != NULL && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

enum sbp_status sbp_export_lose_keys(struct sbp_export *export, const char *const *written)
{
    const struct cJSON *key;
    bool lost = false;
    cJSON_ArrayForEach(key, export->given->workload.model_json)
    {
        if (is_among(written, key->string) || cJSON_IsFalse(key))
            continue;
        SBP_TRY(sbp_export_lose(export, "the model's %.40s is not written", key->string));
        lost = true;
    }
    return lost ? sbp_export_lose(export, "both prices are of the model with what is not written")
                : SBP_OK;
}
