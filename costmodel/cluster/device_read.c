/* Reads the rates of a device: device.h says which keys. */
#include <string.h>

#include <cjson/cJSON.h>

#include "base/math/portable.h"
#include "costmodel/cluster/cluster.h"

#define MOST_COUNT  (INT64_C(1) << 53) /* whole numbers that a JSON number holds exactly */
#define MOST_SIZES  4096               /* of an axis */
#define MOST_SHARES (1 << 20)          /* of a grid */
#define MOST_PASSES 1000               /* of unfused attention over its scores */
#define MOST_RATE   1e30
#define MOST_HOST_S 1 /* of a launch */

const char *const sbp_device_rate_keys[] = {"gemm",
                                            "gemm_grids",
                                            "attention_grids",
                                            "pass_efficiency",
                                            "grouped_efficiency",
                                            "alignment",
                                            "unfused_attention",
                                            "stream_efficiency",
                                            "dispatch_efficiency",
                                            "vector_operations_per_s",
                                            "overlap_efficiency",
                                            "host_launch_s",
                                            "sustained",
                                            NULL};

static enum sbp_status read_share(const struct sbp_json *at, const char *key, double *share)
{
    return sbp_json_get_double(at, key, SBP_DEVICE_LEAST_SHARE, 1, share);
}

static enum sbp_status need_double(const struct sbp_json *at, const char *key, double least,
                                   double most, double *value)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(at, key, &member));
    return sbp_json_double(&member, least, most, value);
}

/* A long array is walked in linear time: *element stands on the one before. */
static enum sbp_status walk(const struct sbp_json *list, int index, struct sbp_json *element)
{
    return index == 0 ? sbp_json_element(list, 0, element) : sbp_json_next(list, index, element);
}

/* --- tables --- */

static enum sbp_status read_scope(const struct sbp_json *at, struct sbp_rate_scope *scope)
{
    const char *types[SBP_TYPES + 1] = {0}, *passes[SBP_PASSES + 1] = {0};
    for (int type = 0; type < SBP_TYPES; type++)
        types[type] = sbp_cluster_type_name((enum sbp_type)type);
    for (int pass = 0; pass < SBP_PASSES; pass++)
        passes[pass] = sbp_device_pass_name((enum sbp_pass)pass);
    *scope = (struct sbp_rate_scope){-1, -1};
    SBP_TRY(sbp_json_get_choice(at, "type", types, &scope->type));
    return sbp_json_get_choice(at, "pass", passes, &scope->pass);
}

static enum sbp_status read_efficiency(const struct sbp_json *at, struct sbp_efficiency *entry)
{
    static const char *const KEYS[] = {"m", "n", "k", "efficiency", "type", "pass", NULL};
    struct sbp_json member;
    int64_t *sizes[] = {&entry->m, &entry->n, &entry->k};
    SBP_TRY(sbp_json_keys(at, KEYS));
    for (int i = 0; i < 3; i++) {
        SBP_TRY(sbp_json_member(at, KEYS[i], &member));
        SBP_TRY(sbp_json_int64(&member, 1, MOST_COUNT, sizes[i]));
    }
    SBP_TRY(read_scope(at, &entry->scope));
    return need_double(at, "efficiency", SBP_DEVICE_LEAST_SHARE, 1, &entry->share);
}

static enum sbp_status read_gemm(const struct sbp_json *device, struct sbp_arena *arena,
                                 struct sbp_device_rates *rates)
{
    struct sbp_json list, element;
    int count;
    if (!sbp_json_has(device, "gemm"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(device, "gemm", &list));
    if (!cJSON_IsArray(list.node))
        return sbp_json_refuse(&list, "legal is a list of products and the share of the peak that "
                                      "they reach, as in [{\"m\": 4096, \"n\": 4096, \"k\": 4096, "
                                      "\"efficiency\": 0.6}]");
    SBP_TRY(sbp_json_length(&list, &count));
    struct sbp_efficiency *entries = SBP_NEW(arena, struct sbp_efficiency, count);
    if (entries == NULL)
        return sbp_fail(list.diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < count; i++) {
        SBP_TRY(walk(&list, i, &element));
        SBP_TRY(read_efficiency(&element, &entries[i]));
    }
    rates->efficiency = entries;
    rates->efficiency_count = count;
    return SBP_OK;
}

/* --- grids --- */

/* Sizes are kept as logarithms, in which prices interpolate. */
static enum sbp_status read_axis(const struct sbp_json *at, const char *key,
                                 struct sbp_arena *arena, int *count, const double **log_size)
{
    struct sbp_json list, element;
    int64_t size = 0, before = 0;
    SBP_TRY(sbp_json_member(at, key, &list));
    SBP_TRY(sbp_json_length(&list, count));
    if (*count < 1 || *count > MOST_SIZES)
        return sbp_json_refuse(&list, "has %d sizes, legal are 1 to %d", *count, MOST_SIZES);
    double *logs = SBP_NEW(arena, double, *count);
    if (logs == NULL)
        return sbp_fail(at->diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < *count; i++, before = size) {
        SBP_TRY(walk(&list, i, &element));
        SBP_TRY(sbp_json_int64(&element, 1, MOST_COUNT, &size));
        if (size <= before)
            return sbp_json_refuse(&element, "%lld does not rise above %lld, the size before it",
                                   (long long)size, (long long)before);
        logs[i] = sbp_log((double)size);
    }
    *log_size = logs;
    return SBP_OK;
}

static enum sbp_status read_shares(const struct sbp_json *at, struct sbp_arena *arena,
                                   struct sbp_rate_grid *grid)
{
    struct sbp_json list, element;
    int64_t wanted = 1;
    int count;
    double share = 1;
    for (int axis = 0; axis < SBP_RATE_AXES; axis++) /* up to 4096 each: no overflow */
        wanted *= grid->count[axis];
    SBP_TRY(sbp_json_member(at, "efficiency", &list));
    SBP_TRY(sbp_json_length(&list, &count));
    if (count != wanted || count > MOST_SHARES)
        return sbp_json_refuse(&list, "has %d shares, the sizes make %d x %d x %d, at most %d",
                               count, grid->count[0], grid->count[1], grid->count[2], MOST_SHARES);
    double *logs = SBP_NEW(arena, double, count);
    if (logs == NULL)
        return sbp_fail(at->diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < count; i++) {
        SBP_TRY(walk(&list, i, &element));
        SBP_TRY(sbp_json_double(&element, SBP_DEVICE_LEAST_SHARE, 1, &share));
        logs[i] = sbp_log(share);
    }
    grid->log_share = logs;
    return SBP_OK;
}

static enum sbp_status read_grid(const struct sbp_json *at, const char *const sizes[SBP_RATE_AXES],
                                 struct sbp_arena *arena, struct sbp_rate_grid *grid)
{
    const char *const keys[] = {"type",   "pass",       sizes[0], sizes[1],
                                sizes[2], "efficiency", "source", NULL};
    SBP_TRY(sbp_json_keys(at, keys));
    SBP_TRY(read_scope(at, &grid->scope));
    for (int axis = 0; axis < SBP_RATE_AXES; axis++)
        SBP_TRY(read_axis(at, sizes[axis], arena, &grid->count[axis], &grid->log_size[axis]));
    return read_shares(at, arena, grid);
}

/* Two grids of one scope are an error, since the second would be ignored. */
static enum sbp_status check_scope(const struct sbp_json *at, const struct sbp_rate_grid *grids,
                                   int place)
{
    for (int i = 0; i < place; i++)
        if (grids[i].scope.type == grids[place].scope.type &&
            grids[i].scope.pass == grids[place].scope.pass)
            return sbp_json_refuse(at, "has the type and the pass of grid %d", i);
    return SBP_OK;
}

static enum sbp_status read_grids(const struct sbp_json *device, const char *key,
                                  const char *const sizes[SBP_RATE_AXES], struct sbp_arena *arena,
                                  int *count, const struct sbp_rate_grid **grids)
{
    struct sbp_json list, element;
    if (!sbp_json_has(device, key))
        return SBP_OK;
    SBP_TRY(sbp_json_member(device, key, &list));
    SBP_TRY(sbp_json_length(&list, count));
    struct sbp_rate_grid *made = SBP_NEW(arena, struct sbp_rate_grid, *count);
    if (made == NULL)
        return sbp_fail(list.diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < *count; i++) {
        SBP_TRY(walk(&list, i, &element));
        SBP_TRY(read_grid(&element, sizes, arena, &made[i]));
        SBP_TRY(check_scope(&element, made, i));
    }
    *grids = made;
    return SBP_OK;
}

/* Reads a grid that has one axis, a row's bytes. */
static enum sbp_status read_dispatch(const struct sbp_json *device, struct sbp_arena *arena,
                                     struct sbp_device_rates *rates)
{
    static const char *const KEYS[] = {"row_bytes", "efficiency", "source", NULL};
    struct sbp_json object;
    if (!sbp_json_has(device, "dispatch_efficiency"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(device, "dispatch_efficiency", &object));
    SBP_TRY(sbp_json_keys(&object, KEYS));
    struct sbp_rate_grid *grid = SBP_NEW(arena, struct sbp_rate_grid, 1);
    if (grid == NULL)
        return sbp_fail(object.diag, SBP_E_MEMORY, "out of memory");
    *grid = (struct sbp_rate_grid){.scope = {-1, -1}, .count = {1, 1, 1}};
    SBP_TRY(read_axis(&object, "row_bytes", arena, &grid->count[0], &grid->log_size[0]));
    SBP_TRY(read_shares(&object, arena, grid));
    rates->dispatch = grid;
    return SBP_OK;
}

/* --- factors --- */

static enum sbp_status read_passes(const struct sbp_json *device, const char *key,
                                   double share[SBP_PASSES])
{
    const char *keys[SBP_PASSES + 1] = {0};
    struct sbp_json object;
    if (!sbp_json_has(device, key))
        return SBP_OK;
    for (int pass = 0; pass < SBP_PASSES; pass++)
        keys[pass] = sbp_device_pass_name((enum sbp_pass)pass);
    SBP_TRY(sbp_json_member(device, key, &object));
    SBP_TRY(sbp_json_keys(&object, keys));
    for (int pass = 0; pass < SBP_PASSES; pass++)
        SBP_TRY(read_share(&object, keys[pass], &share[pass]));
    return SBP_OK;
}

static enum sbp_status read_alignment(const struct sbp_json *device, struct sbp_device_rates *rates)
{
    static const char *const KEYS[] = {"multiple", "efficiency", NULL};
    struct sbp_json object, member;
    int64_t multiple = 0;
    if (!sbp_json_has(device, "alignment"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(device, "alignment", &object));
    SBP_TRY(sbp_json_keys(&object, KEYS));
    SBP_TRY(sbp_json_member(&object, "multiple", &member));
    SBP_TRY(sbp_json_int64(&member, 1, MOST_COUNT, &multiple));
    rates->alignment.multiple = (double)multiple;
    return need_double(&object, "efficiency", SBP_DEVICE_LEAST_SHARE, 1, &rates->alignment.share);
}

enum sbp_status sbp_device_read_unfused(const struct sbp_json *object,
                                        struct sbp_unfused_attention *unfused)
{
    static const char *const KEYS[] = {"forward_passes", "backward_passes", "efficiency", NULL};
    SBP_TRY(sbp_json_keys(object, KEYS));
    SBP_TRY(need_double(object, KEYS[0], 1, MOST_PASSES, &unfused->forward_passes));
    SBP_TRY(need_double(object, KEYS[1], 2, MOST_PASSES, &unfused->backward_passes));
    return need_double(object, KEYS[2], SBP_DEVICE_LEAST_SHARE, 1, &unfused->share);
}

static enum sbp_status read_unfused(const struct sbp_json *device, struct sbp_device_rates *rates)
{
    struct sbp_json object;
    if (!sbp_json_has(device, "unfused_attention"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(device, "unfused_attention", &object));
    return sbp_device_read_unfused(&object, &rates->unfused);
}

/* One share of all types, or one by type. */
static enum sbp_status read_sustained(const struct sbp_json *device, struct sbp_device_rates *rates)
{
    const char *types[SBP_TYPES + 1] = {0};
    struct sbp_json member;
    double share = 0;
    for (int type = 0; type < SBP_TYPES; type++)
        types[type] = sbp_cluster_type_name((enum sbp_type)type);
    if (!sbp_json_has(device, "sustained"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(device, "sustained", &member));
    if (!cJSON_IsObject(member.node)) {
        SBP_TRY(read_share(device, "sustained", &share));
        for (int type = 0; type < SBP_TYPES; type++)
            rates->sustained[type] = share;
        return SBP_OK;
    }
    SBP_TRY(sbp_json_keys(&member, types));
    for (int type = 0; type < SBP_TYPES; type++)
        SBP_TRY(read_share(&member, types[type], &rates->sustained[type]));
    return SBP_OK;
}

enum sbp_status sbp_device_rates_read(const struct sbp_json *device, struct sbp_arena *arena,
                                      struct sbp_device_rates *rates)
{
    static const char *const PRODUCT[] = {"m", "n", "k"};
    static const char *const ATTENTION[] = {"head_size", "sequence", "rows"};
    *rates = (struct sbp_device_rates){0};
    SBP_TRY(read_gemm(device, arena, rates));
    SBP_TRY(read_grids(device, "gemm_grids", PRODUCT, arena, &rates->grid_count, &rates->grid));
    SBP_TRY(read_grids(device, "attention_grids", ATTENTION, arena, &rates->attention_count,
                       &rates->attention));
    SBP_TRY(read_dispatch(device, arena, rates));
    SBP_TRY(read_passes(device, "pass_efficiency", rates->pass_share));
    SBP_TRY(read_passes(device, "grouped_efficiency", rates->grouped_share));
    SBP_TRY(read_alignment(device, rates));
    SBP_TRY(read_unfused(device, rates));
    SBP_TRY(read_share(device, "stream_efficiency", &rates->stream_share));
    SBP_TRY(sbp_json_get_double(device, "vector_operations_per_s", 1, MOST_RATE,
                                &rates->vector_operations_per_s));
    SBP_TRY(read_share(device, "overlap_efficiency", &rates->overlap_share));
    SBP_TRY(sbp_json_get_double(device, "host_launch_s", 0, MOST_HOST_S, &rates->host_launch_s));
    return read_sustained(device, rates);
}
