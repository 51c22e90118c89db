#include "costmodel/cluster/cluster.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_COUNT    (INT64_C(1) << 53) /* whole numbers that a JSON number holds exactly */
#define MOST_RATE     1e30
#define MOST_SLOWDOWN 1e6

static const struct {
    const char *name;
    int64_t bytes;
} TYPES[SBP_TYPES] = {
    [SBP_FP32] = {"fp32", 4}, [SBP_FP64] = {"fp64", 8}, [SBP_BF16] = {"bf16", 2},
    [SBP_FP16] = {"fp16", 2}, [SBP_FP8] = {"fp8", 1},
};

const char *sbp_cluster_type_name(enum sbp_type type)
{
    assert((unsigned)type < SBP_TYPES);
    return TYPES[type].name;
}

int64_t sbp_cluster_type_bytes(enum sbp_type type)
{
    assert((unsigned)type < SBP_TYPES);
    return TYPES[type].bytes;
}

/* --- reading --- */

static enum sbp_status read_level(const struct sbp_json *at, struct sbp_level *level)
{
    static const char *const KEYS[] = {"name",  "size",   "alpha_s", "beta_s_per_byte",
                                       "ports", "curves", "source",  NULL};
    struct sbp_json member;
    int64_t ports = 0;
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(sbp_json_member(at, "name", &member));
    SBP_TRY(sbp_json_name(&member, level->name, (int)sizeof level->name));
    SBP_TRY(sbp_json_member(at, "size", &member));
    SBP_TRY(sbp_json_int64(&member, 1, SBP_CLUSTER_MOST_DEVICES, &level->size));
    SBP_TRY(sbp_json_member(at, "alpha_s", &member));
    SBP_TRY(sbp_json_double(&member, 0, 1e6, &level->alpha_s));
    SBP_TRY(sbp_json_member(at, "beta_s_per_byte", &member));
    SBP_TRY(sbp_json_double(&member, 0, 1e6, &level->beta_s_per_byte));
    SBP_TRY(sbp_json_get_int64(at, "ports", 1, 1 << 20, &ports));
    level->ports = (int)ports;
    return SBP_OK;
}

/* Reports and strategies name levels, so names are not given twice. */
static enum sbp_status check_level_name(const struct sbp_json *at,
                                        const struct sbp_cluster *cluster, int place)
{
    const char *name = cluster->level[place].name;
    for (int i = 0; i < place; i++)
        if (strcmp(cluster->level[i].name, name) == 0) {
            struct sbp_json member;
            SBP_TRY(sbp_json_member(at, "name", &member));
            return sbp_json_refuse(&member, "\"%s\" is the name of levels[%d] already", name, i);
        }
    return SBP_OK;
}

static enum sbp_status read_levels(const struct sbp_json *at, struct sbp_cluster *cluster)
{
    struct sbp_json levels, level, curves;
    int64_t devices = 1;
    int count;
    SBP_TRY(sbp_json_member(at, "levels", &levels));
    SBP_TRY(sbp_json_length(&levels, &count));
    if (count < 1 || count > SBP_MAX_LEVELS)
        return sbp_json_refuse(&levels, "has %d levels, legal are 1 to %d", count, SBP_MAX_LEVELS);
    cluster->level_count = count;
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(&levels, i, &level));
        SBP_TRY(read_level(&level, &cluster->level[i]));
        SBP_TRY(check_level_name(&level, cluster, i));
        if (sbp_json_has(&level, "curves")) {
            SBP_TRY(sbp_json_member(&level, "curves", &curves));
            SBP_TRY(sbp_curves_read(&curves, i, &cluster->curves));
        }
        if (cluster->level[i].size > SBP_CLUSTER_MOST_DEVICES / devices)
            return sbp_json_refuse(&levels, "more than 2^40 devices in all");
        devices *= cluster->level[i].size;
    }
    return SBP_OK;
}

static enum sbp_status read_flops(const struct sbp_json *device, struct sbp_cluster *cluster)
{
    const char *known[SBP_TYPES + 1] = {0};
    struct sbp_json flops;
    int given = 0;
    for (int type = 0; type < SBP_TYPES; type++)
        known[type] = TYPES[type].name;
    SBP_TRY(sbp_json_member(device, "flops", &flops));
    SBP_TRY(sbp_json_keys(&flops, known));
    for (int type = 0; type < SBP_TYPES; type++) {
        SBP_TRY(sbp_json_get_double(&flops, known[type], 1, MOST_RATE, &cluster->flops[type]));
        given += cluster->flops[type] > 0;
    }
    if (given == 0)
        return sbp_json_refuse(&flops, "give the peak rate of at least one of fp32, fp64, bf16, "
                                       "fp16, fp8");
    return SBP_OK;
}

/* The keys of a device: its own and those of its rates. */
static enum sbp_status check_device_keys(const struct sbp_json *device)
{
    static const char *const OWN[] = {"name",
                                      "memory_bytes",
                                      "reserve_bytes",
                                      "flops",
                                      "source",
                                      "memory_bytes_per_s",
                                      "host_memory_bytes",
                                      "host_link_bytes_per_s",
                                      "kernel_launch_s",
                                      "slowdown"};
    const char *keys[32] = {0};
    int count = 0;
    for (size_t i = 0; i < sizeof OWN / sizeof *OWN; i++)
        keys[count++] = OWN[i];
    for (int i = 0; sbp_device_rate_keys[i] != NULL; i++)
        keys[count++] = sbp_device_rate_keys[i];
    assert(count < (int)(sizeof keys / sizeof *keys));
    return sbp_json_keys(device, keys);
}

/* Has everything that a device does take as many times as long; its rates are shares of these. */
static enum sbp_status read_slowdown(const struct sbp_json *device, struct sbp_cluster *cluster)
{
    cluster->slowdown = 1;
    SBP_TRY(sbp_json_get_double(device, "slowdown", 1, MOST_SLOWDOWN, &cluster->slowdown));
    for (int type = 0; type < SBP_TYPES; type++)
        cluster->flops[type] /= cluster->slowdown;
    cluster->memory_bytes_per_s /= cluster->slowdown;
    cluster->host_link_bytes_per_s /= cluster->slowdown;
    cluster->rates.vector_operations_per_s /= cluster->slowdown;
    cluster->kernel_launch_s *= cluster->slowdown;
    return SBP_OK;
}

static enum sbp_status read_device(const struct sbp_json *device, struct sbp_arena *arena,
                                   struct sbp_cluster *cluster)
{
    struct sbp_json member;
    SBP_TRY(check_device_keys(device));
    SBP_TRY(sbp_json_member(device, "memory_bytes", &member));
    SBP_TRY(sbp_json_int64(&member, 1, MOST_COUNT, &cluster->memory_bytes));
    SBP_TRY(sbp_json_get_int64(device, "reserve_bytes", 0, cluster->memory_bytes,
                               &cluster->reserve_bytes));
    SBP_TRY(sbp_json_member(device, "memory_bytes_per_s", &member));
    SBP_TRY(sbp_json_double(&member, 1, MOST_RATE, &cluster->memory_bytes_per_s));
    SBP_TRY(sbp_json_get_int64(device, "host_memory_bytes", 0, MOST_COUNT,
                               &cluster->host_memory_bytes));
    SBP_TRY(sbp_json_get_double(device, "host_link_bytes_per_s", 0, MOST_RATE,
                                &cluster->host_link_bytes_per_s));
    SBP_TRY(sbp_json_get_double(device, "kernel_launch_s", 0, 1e6, &cluster->kernel_launch_s));
    SBP_TRY(read_flops(device, cluster));
    SBP_TRY(sbp_device_rates_read(device, arena, &cluster->rates));
    return read_slowdown(device, cluster);
}

enum sbp_status sbp_cluster_read_device(const struct sbp_json *device, struct sbp_arena *arena,
                                        struct sbp_cluster *cluster)
{
    *cluster = (struct sbp_cluster){0};
    return read_device(device, arena, cluster);
}

static enum sbp_status read_model(const struct sbp_json *at, struct sbp_cluster *cluster)
{
    static const char *const NAMES[] = {
        [SBP_MODEL_RING] = "ring", [SBP_MODEL_HIERARCHICAL] = "hierarchical", NULL};
    int model = SBP_MODEL_RING;
    SBP_TRY(sbp_json_get_choice(at, "collectives", NAMES, &model));
    cluster->collectives = (enum sbp_collective_model)model;
    return sbp_json_get_double(at, "gradient_overlap", 0, 1, &cluster->gradient_overlap);
}

/* A group's nodes share the ports of the level that holds nodes. */
static enum sbp_status read_network(const struct sbp_json *at, struct sbp_cluster *cluster)
{
    struct sbp_json member;
    if (!sbp_json_has(at, "network"))
        return SBP_OK;
    if (cluster->level_count > 1)
        cluster->network.ports = cluster->level[cluster->level_count - 2].ports;
    SBP_TRY(sbp_json_member(at, "network", &member));
    return sbp_network_read(&member, &cluster->network);
}

/* Makes of what the device can what the trainer's kernels reach of it. */
static void reach(const struct sbp_runtime *runtime, struct sbp_device_rates *rates)
{
    for (int pass = 0; pass < SBP_PASSES; pass++)
        rates->pass_share[pass] =
            sbp_device_factor(rates->pass_share[pass]) * runtime->reach[SBP_REACH_PRODUCTS];
    rates->attention_share =
        sbp_device_factor(rates->attention_share) * runtime->reach[SBP_REACH_ATTENTION];
    rates->stream_share =
        sbp_device_factor(rates->stream_share) * runtime->reach[SBP_REACH_STREAMS];
    rates->dispatch_share = runtime->reach[SBP_REACH_STREAMS];
    if (runtime->unfused.share > 0)
        rates->unfused = runtime->unfused;
}

/* What the machine leaves of a trainer's profile. A share of a profile that was fitted to steps
 * holds what communication took from the arithmetic beside it, so that the lesser of both counts,
 * not their product. */
static void limit(const struct sbp_device_rates *rates, struct sbp_runtime *runtime)
{
    for (int i = 0; i < SBP_HIDINGS; i++)
        runtime->hidden[i] = fmin(runtime->hidden[i], sbp_device_factor(rates->overlap_share));
    runtime->host_s = fmax(runtime->host_s, rates->host_launch_s);
}

/* A runtime adds to the machine how a trainer behaves. An older key, gradient_overlap of the
 * device, says the same of gradients alone. */
static enum sbp_status read_runtime(const struct sbp_json *at, struct sbp_cluster *cluster)
{
    struct sbp_runtime *runtime = &cluster->runtime;
    struct sbp_json member;
    limit(&cluster->rates, runtime);
    if (!sbp_json_has(at, "runtime"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(at, "runtime", &member));
    SBP_TRY(sbp_runtime_read(&member, cluster->memory_bytes - cluster->reserve_bytes, runtime));
    limit(&cluster->rates, runtime);
    reach(runtime, &cluster->rates);
    cluster->reserve_bytes += runtime->reserve_bytes;
    cluster->kernel_launch_s += runtime->launch_s;
    if (!sbp_json_has(at, "gradient_overlap"))
        cluster->gradient_overlap = runtime->hidden[SBP_HIDES_GRADIENTS];
    return SBP_OK;
}

enum sbp_status sbp_cluster_read(const struct sbp_json *at, struct sbp_arena *arena,
                                 struct sbp_cluster *cluster)
{
    static const char *const KEYS[] = {"name",   "collectives", "gradient_overlap", "levels",
                                       "device", "network",     "runtime",          "measured",
                                       "source", NULL};
    struct sbp_json member;
    *cluster = (struct sbp_cluster){0};
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(sbp_json_member(at, "name", &member));
    SBP_TRY(sbp_json_name(&member, cluster->name, (int)sizeof cluster->name));
    SBP_TRY(read_model(at, cluster));
    SBP_TRY(read_levels(at, cluster));
    SBP_TRY(read_network(at, cluster));
    SBP_TRY(sbp_json_member(at, "device", &member));
    SBP_TRY(read_device(&member, arena, cluster));
    return read_runtime(at, cluster);
}

/* --- size --- */

int64_t sbp_cluster_devices(const struct sbp_cluster *cluster)
{
    int64_t devices = 1;
    for (int i = 0; i < cluster->level_count; i++)
        devices *= cluster->level[i].size;
    return devices;
}

static enum sbp_status refuse_devices(const struct sbp_cluster *cluster, int64_t devices,
                                      struct sbp_diag *diag)
{
    char legal[256] = "";
    int64_t inside = 1; /* devices of a member of the level */
    for (int i = cluster->level_count - 1; i >= 0; i--) {
        const size_t used = strlen(legal);
        const long long size = cluster->level[i].size;
        if (used == 0)
            (void)snprintf(legal, sizeof legal, "the divisors of %lld", size);
        else if (size > 1)
            (void)snprintf(legal + used, sizeof legal - used, ", %lld times those of %lld",
                           (long long)inside, size);
        inside *= size;
    }
    return sbp_fail(diag, SBP_E_INPUT, "%s: %lld devices do not divide its levels, legal are %s",
                    cluster->name, (long long)devices, legal);
}

enum sbp_status sbp_cluster_shrink(struct sbp_cluster *cluster, int64_t devices,
                                   struct sbp_diag *diag)
{
    const int64_t all = sbp_cluster_devices(cluster);
    struct sbp_cluster shrunk = *cluster;
    int64_t left = devices; /* devices that the outer levels must hold */
    if (devices < 1 || devices > all)
        return sbp_fail(diag, SBP_E_INPUT, "%s: %lld devices asked for, legal are 1 to %lld",
                        cluster->name, (long long)devices, (long long)all);
    for (int i = cluster->level_count - 1; i >= 0; i--) {
        struct sbp_level *level = &shrunk.level[i];
        if (left % level->size == 0) {
            left /= level->size;
        } else if (level->size % left == 0) {
            level->size = left;
            left = 1;
        } else {
            return refuse_devices(cluster, devices, diag);
        }
    }
    assert(left == 1); /* refused above where more are asked for than there are */
    *cluster = shrunk;
    return SBP_OK;
}

/* --- compute --- */

enum sbp_type sbp_cluster_rate_type(const struct sbp_cluster *cluster, enum sbp_type type)
{
    static const enum sbp_type ORDER[SBP_TYPES][SBP_TYPES] = {
        [SBP_FP32] = {SBP_FP32, SBP_FP64, SBP_BF16, SBP_FP16, SBP_FP8},
        [SBP_FP64] = {SBP_FP64, SBP_FP32, SBP_BF16, SBP_FP16, SBP_FP8},
        [SBP_BF16] = {SBP_BF16, SBP_FP16, SBP_FP32, SBP_FP64, SBP_FP8},
        [SBP_FP16] = {SBP_FP16, SBP_BF16, SBP_FP32, SBP_FP64, SBP_FP8},
        [SBP_FP8] = {SBP_FP8, SBP_BF16, SBP_FP16, SBP_FP32, SBP_FP64},
    };
    for (int i = 0; i < SBP_TYPES; i++)
        if (cluster->flops[ORDER[type][i]] > 0)
            return ORDER[type][i];
    return type;
}

static double peak_flops(const struct sbp_cluster *cluster, enum sbp_type type)
{
    const double rate = cluster->flops[sbp_cluster_rate_type(cluster, type)];
    return rate > 0 ? rate
                    : INFINITY; /* a cluster that was not read from a file: compute is free */
}

double sbp_cluster_product_s(const struct sbp_cluster *cluster,
                             const struct sbp_device_product *product)
{
    const double m = product->m, n = product->n, k = product->k;
    const double rate =
        peak_flops(cluster, product->type) * sbp_device_product_share(&cluster->rates, product);
    const double elements = product->elements > 0 ? product->elements : m * k + k * n + m * n;
    const double bytes = elements * (double)sbp_cluster_type_bytes(product->type);
    return fmax(2 * m * n * k / rate, bytes / cluster->memory_bytes_per_s);
}

static double stream_s(const struct sbp_cluster *cluster, double bytes)
{
    return bytes / (cluster->memory_bytes_per_s * sbp_device_factor(cluster->rates.stream_share));
}

double sbp_cluster_kernel_s(const struct sbp_cluster *cluster, enum sbp_type type, double flops,
                            double bytes)
{
    return fmax(flops / peak_flops(cluster, type), stream_s(cluster, bytes));
}

double sbp_cluster_vector_s(const struct sbp_cluster *cluster, enum sbp_type type,
                            double operations)
{
    if (!(cluster->rates.vector_operations_per_s > 0))
        return 0;
    return operations / cluster->rates.vector_operations_per_s * (type == SBP_FP64 ? 2 : 1);
}

double sbp_cluster_rows_s(const struct sbp_cluster *cluster, double bytes, double row_bytes)
{
    const double share = sbp_device_dispatch_share(&cluster->rates, row_bytes);
    return share > 0 ? bytes / (cluster->memory_bytes_per_s * share) : stream_s(cluster, bytes);
}

double sbp_cluster_attention_s(const struct sbp_cluster *cluster,
                               const struct sbp_device_attention *attention, double flops,
                               double bytes)
{
    const double share = sbp_device_attention_share(&cluster->rates, attention);
    return fmax(flops / (peak_flops(cluster, attention->type) * share), stream_s(cluster, bytes));
}

double sbp_cluster_unfused_attention_s(const struct sbp_cluster *cluster, enum sbp_type type,
                                       double flops, double bytes)
{
    const double share =
        cluster->rates.unfused.share * sbp_device_factor(cluster->rates.sustained[type]);
    return flops / (peak_flops(cluster, type) * share) + stream_s(cluster, bytes);
}
