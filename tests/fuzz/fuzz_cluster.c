/* Cluster files: whatever is accepted prices products and collectives and shrinks without a
 * surprise. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

#include "costmodel/cluster/collective.h"
#include "tests/fuzz/fuzz.h"

/* Over all devices, and over those of the innermost level that has several. */
static void check_collectives(const struct sbp_cluster *cluster)
{
    struct sbp_group all = sbp_collective_group_one(), inner = sbp_collective_group_one();
    for (int i = cluster->level_count - 1; i >= 0; i--) {
        all.members[i] = (double)cluster->level[i].size;
        if (sbp_collective_group_size(&inner) <= 1)
            inner.members[i] = all.members[i];
    }
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++) {
        double last[2] = {0, 0};
        for (double bytes = 0; bytes < 1e12; bytes = 7 * bytes + 3) {
            const double seconds[2] = {
                sbp_collective_group_s(cluster, (enum sbp_collective)kind, &all, bytes),
                sbp_collective_group_s(cluster, (enum sbp_collective)kind, &inner, bytes)};
            for (int i = 0; i < 2; i++) {
                fuzz_check(isfinite(seconds[i]) && seconds[i] >= last[i] * (1 - 1e-9),
                           "more bytes cost no less");
                last[i] = seconds[i];
            }
        }
    }
}

/* Products and attention of any size take at least the peak's time, and a finite one. */
static void check_rates(const struct sbp_cluster *cluster)
{
    for (int i = 0; i < SBP_TYPES * SBP_PASSES; i++) {
        const enum sbp_type type = (enum sbp_type)(i % SBP_TYPES);
        const enum sbp_pass pass = (enum sbp_pass)(i / SBP_TYPES);
        for (double size = 1; size < 1e6; size = 5 * size + 2) {
            const struct sbp_device_product product = {
                .type = type, .pass = pass, .m = size, .n = 100, .k = 7, .grouped = i % 2 == 0};
            const struct sbp_device_attention attention = {type, pass, 96, size, 7 * size};
            fuzz_check(isfinite(sbp_cluster_product_s(cluster, &product)), "a time of a product");
            fuzz_check(sbp_device_product_share(&cluster->rates, &product) <= 1 + 1e-9,
                       "no product above the peak");
            fuzz_check(isfinite(sbp_cluster_attention_s(cluster, &attention, size, 1)),
                       "a time of attention");
        }
    }
}

static void check(const struct sbp_cluster *cluster)
{
    const int64_t devices = sbp_cluster_devices(cluster);
    fuzz_check(devices >= 1 && devices <= (int64_t)1 << 31, "devices within bounds");
    check_rates(cluster);
    check_collectives(cluster);
    for (int64_t wanted = 1; wanted <= 64; wanted *= 2) {
        struct sbp_cluster smaller = *cluster;
        struct sbp_diag reason = {0};
        if (sbp_cluster_shrink(&smaller, wanted, &reason) == SBP_OK)
            fuzz_check(sbp_cluster_devices(&smaller) == wanted, "as many devices as asked for");
        else
            fuzz_check(reason.text[0] != '\0', "a reason after a refusal");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct cJSON *root = NULL;
    struct sbp_diag diag = {0};
    struct sbp_json cursor;
    if (sbp_json_parse(text, "input", &root, &cursor, &diag) == SBP_OK) {
        struct sbp_cluster cluster;
        struct sbp_arena arena = {0};
        if (sbp_cluster_read(&cursor, &arena, &cluster) == SBP_OK)
            check(&cluster);
        else
            fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
        sbp_arena_free(&arena);
    }
    cJSON_Delete(root);
    free(text);
    return 0;
}
