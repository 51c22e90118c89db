#include "executor/run_shrink.h"

#include <string.h>

#include <cjson/cJSON.h>

static const double LEAST_WIDTH = 16, LEAST_SEQUENCE = 16;
enum { LEAST_WINDOW = 4 };

/* How much smaller a model becomes. */
struct scale {
    int64_t devices;         /* of a stage: no split has more parts */
    int64_t divisor;         /* of widths */
    bool few_heads;          /* as few as the devices let them; else all */
    bool small_images;       /* of networks of convolutions */
    int64_t sequences, rows; /* of the batch and of a micro-batch */
    int64_t sequence;        /* of the plan's model, by which windows shrink */
};

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* The smallest multiple of what `size` has in common with the devices that is not under `least`,
 * and not over `size`. */
static int64_t shrink(const struct scale *scale, int64_t size, int64_t least)
{
    const int64_t unit = common_divisor(size, scale->devices);
    const int64_t small = (least + unit - 1) / unit * unit;
    return small < size ? small : size;
}

/* ---- the model's file ---------------------------------------------------------------------- */

static void set(cJSON *item, int64_t value)
{
    (void)cJSON_SetNumberValue(item, (double)value);
}

static bool is_among(const char *key, const char *const *names)
{
    while (*names != NULL && strcmp(*names, key) != 0)
        names++;
    return *names != NULL;
}

static bool is_width(const cJSON *item)
{
    static const char *const names[] = {"hidden",    "ffn",    "in",      "out",        "features",
                                        "dense_ffn", "q_rank", "kv_rank", "expert_ffn", NULL};
    return cJSON_IsNumber(item) && item->string != NULL && is_among(item->string, names);
}

/* ---- images ---- */

static bool is_network(const cJSON *model, const char *name)
{
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(model, "architecture");
    return cJSON_IsString(kind) && strcmp(kind->valuestring, name) == 0;
}

/* Halves images while their last pool, which a batch normalisation may follow, has places enough to
 * tell a variance. */
static void shrink_images(cJSON *model, const struct scale *scale)
{
    const bool norms = is_network(model, "resnet") ||
                       cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(model, "batch_norm"));
    const int64_t least = norms ? 112 : 64; /* 2 x 2 places behind a VGG's pools */
    cJSON *image = cJSON_GetObjectItemCaseSensitive(model, "image");
    if (!scale->small_images || !cJSON_IsNumber(image) ||
        !(is_network(model, "vgg") || is_network(model, "resnet")))
        return;
    int64_t side = (int64_t)image->valuedouble;
    if (is_network(model, "vgg")) /* which takes multiples of 32 */
        side = side < least ? side : (least + 31) / 32 * 32;
    while (side % 2 == 0 && side / 2 >= least)
        side /= 2;
    set(image, side);
}

/* A VGG's linears have a width that its file need not give. */
enum { VGG_HIDDEN = 4096 };

static bool lacks_hidden(const cJSON *model)
{
    return is_network(model, "vgg") && cJSON_GetObjectItemCaseSensitive(model, "hidden") == NULL;
}

/* The common divisor of all widths below `item`, and the smallest of them. */
static void find_widths(const cJSON *item, int64_t *common, double *smallest)
{
    if (is_width(item)) {
        *common = common_divisor(*common, (int64_t)item->valuedouble);
        *smallest = item->valuedouble < *smallest ? item->valuedouble : *smallest;
    }
    for (const cJSON *child = item->child; child != NULL; child = child->next)
        find_widths(child, common, smallest);
}

/* A vocabulary that is padded stays so. */
static void shrink_vocabulary(cJSON *model, const struct scale *scale)
{
    enum { LEAST = 8 };
    cJSON *vocabulary = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    cJSON *multiple = cJSON_GetObjectItemCaseSensitive(model, "vocab_multiple");
    if (!cJSON_IsNumber(vocabulary))
        return;
    const int64_t rows = (int64_t)vocabulary->valuedouble;
    const int64_t of = cJSON_IsNumber(multiple) ? (int64_t)multiple->valuedouble : 1;
    const int64_t padded = (rows + of - 1) / of * of;
    const int64_t unit = common_divisor(padded, scale->devices);
    if (LEAST * unit >= rows)
        return;
    set(vocabulary, LEAST * unit - (padded > rows && unit > 1));
    if (multiple != NULL)
        set(multiple, unit);
}

/* The window shrinks with the sequence, so that some keys stay hidden; but a query that saw one key
 * alone would give its scores no gradient. */
static int64_t shrink_window(const struct scale *scale, int64_t window)
{
    const int64_t sequence = shrink(scale, scale->sequence, (int64_t)LEAST_SEQUENCE);
    const int64_t least = sequence > LEAST_WINDOW ? LEAST_WINDOW : 2;
    if (window <= least)
        return window;
    const double small = (double)window * (double)sequence / (double)scale->sequence;
    return small > (double)least ? (int64_t)small : least;
}

static void shrink_number(cJSON *item, const struct scale *scale)
{
    static const char *const heads[] = {"heads", "out_heads", "kv_heads", NULL};
    const int64_t value = (int64_t)item->valuedouble;
    if (is_width(item))
        set(item, value / scale->divisor);
    else if (is_among(item->string, heads) && scale->few_heads)
        set(item, shrink(scale, value, 1));
    else if (strcmp(item->string, "sequence") == 0)
        set(item, shrink(scale, value, (int64_t)LEAST_SEQUENCE));
    else if (strcmp(item->string, "window") == 0)
        set(item, shrink_window(scale, value));
    else if (strcmp(item->string, "global_batch") == 0)
        set(item, scale->sequences);
}

static int64_t number_of(const cJSON *item, const char *key, int64_t otherwise)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(item, key);
    return cJSON_IsNumber(member) ? (int64_t)member->valuedouble : otherwise;
}

/* Twice as many experts as a token takes, and in each of its groups as many as it may take there.
 */
static void shrink_experts(cJSON *model, const struct scale *scale)
{
    cJSON *experts = cJSON_GetObjectItemCaseSensitive(model, "experts");
    const int64_t top_k = number_of(model, "top_k", 1),
                  nodes = number_of(model, "nodes_per_token", 1);
    const int64_t groups = number_of(model, "expert_groups", 1);
    if (!cJSON_IsNumber(experts))
        return;
    const int64_t all = (int64_t)experts->valuedouble, unit = common_divisor(all, scale->devices);
    const int64_t step = unit / common_divisor(unit, groups) * groups;
    const int64_t in_group = (top_k + nodes - 1) / nodes * groups;
    const int64_t least = 2 * top_k > in_group ? 2 * top_k : in_group;
    const int64_t small = (least + step - 1) / step * step;
    if (small < all)
        set(experts, small);
}

static void shrink_item(cJSON *item, const struct scale *scale)
{
    if (cJSON_IsObject(item)) {
        shrink_vocabulary(item, scale);
        shrink_experts(item, scale);
    }
    if (cJSON_IsNumber(item) && item->string != NULL)
        shrink_number(item, scale);
    for (cJSON *child = item->child; child != NULL; child = child->next)
        shrink_item(child, scale);
}

/* ---- the plan ------------------------------------------------------------------------------ */

/* As many micro-batches as keep all stages busy, of as few sequences as are split alike. */
static void shrink_batch(const struct sbp_plan *plan, struct scale *scale)
{
    const struct sbp_parallel *parallel = &plan->cut.parallel;
    const int64_t count = sbp_parallel_micro_batches(parallel, &plan->workload.model);
    const int64_t enough = 2 * parallel->pipeline;
    scale->rows = shrink(scale, parallel->micro_batch, 1);
    scale->sequences = scale->rows * (count < enough ? count : enough);
}

/* Takes the plan's strategy over. */
static enum sbp_status adopt(const struct sbp_plan *plan, struct sbp_plan *small,
                             struct sbp_diag *diag)
{
    const struct sbp_graph *graph = &small->cut.graph, *whole = &plan->cut.graph;
    if (graph->op_count != whole->op_count || graph->tensor_count != whole->tensor_count ||
        graph->class_count != whole->class_count)
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "the smaller model has other operators");
    if (sbp_strategy_alloc(graph, &small->arena, &small->strategy) != SBP_OK)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a smaller plan");
    sbp_strategy_copy(graph, &plan->strategy, &small->strategy);
    return sbp_strategy_close(graph, &small->cut.mesh, &small->strategy, diag);
}

/* Offloaded states pass in about as many buckets as the plan's do. */
static int64_t shrink_bucket(const struct sbp_plan *plan, const struct sbp_graph *small)
{
    const double share = (double)small->parameters / (double)plan->workload.model.parameters;
    const double bucket = share * (double)plan->cut.parallel.bucket_parameters;
    return bucket >= 1 ? (int64_t)bucket : 1;
}

/* Cuts the small step where the plan cuts its own. */
static enum sbp_status cut(const struct sbp_plan *plan, const struct scale *scale,
                           const struct sbp_element_bytes *bytes, struct sbp_plan *small,
                           struct sbp_step *step, struct sbp_diag *diag)
{
    struct sbp_parallel parallel = plan->cut.parallel;
    const int pieces = (int)sbp_parallel_pieces(&parallel);
    int *first = SBP_NEW(&small->arena, int, pieces + 1);
    if (first == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a smaller plan");
    parallel.micro_batch = scale->rows;
    parallel.bucket_parameters = shrink_bucket(plan, &small->workload.model);
    SBP_TRY(sbp_stages_cut_as(&plan->cut.graph, pieces, &parallel, first, diag));
    SBP_TRY(sbp_plan_cut(small, &parallel, diag));
    SBP_TRY(adopt(plan, small, diag));
    struct sbp_step_request request = sbp_cut_request(&small->cut, &small->strategy, bytes);
    request.first = first;
    request.runs = true;
    return sbp_step_make(&request, step, diag);
}

static enum sbp_status try_scale(const struct sbp_plan *plan, const struct scale *scale,
                                 const struct sbp_element_bytes *bytes, struct sbp_plan *small,
                                 struct sbp_step *step, struct sbp_diag *diag)
{
    cJSON *model = cJSON_Duplicate(plan->workload.model_json, true);
    cJSON *cluster = cJSON_Duplicate(plan->workload.cluster_json, true);
    if (model == NULL || cluster == NULL) {
        cJSON_Delete(model);
        cJSON_Delete(cluster);
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for a smaller model");
    }
    if (lacks_hidden(model))
        (void)cJSON_AddNumberToObject(model, "hidden", VGG_HIDDEN);
    shrink_images(model, scale);
    shrink_item(model, scale);
    SBP_TRY(sbp_plan_begin(model, "smaller model", cluster, "cluster", small, diag));
    const enum sbp_status status = cut(plan, scale, bytes, small, step, diag);
    if (status != SBP_OK)
        sbp_plan_free(small);
    return status;
}

/* From the narrowest widths on, those that the plan is legal with. */
enum sbp_status sbp_run_shrink(const struct sbp_plan *plan, const struct sbp_element_bytes *bytes,
                               struct sbp_plan *small, struct sbp_step *step, struct sbp_diag *diag)
{
    struct scale scale = {.devices = plan->cut.mesh.devices,
                          .sequence = plan->workload.model.sequence};
    struct sbp_diag why = {0};
    double smallest = 9007199254740992.0; /* 2^53 */
    int64_t common = 0;
    shrink_batch(plan, &scale);
    find_widths(plan->workload.model_json, &common, &smallest);
    if (lacks_hidden(plan->workload.model_json)) {
        common = common_divisor(common, VGG_HIDDEN);
        smallest = smallest < VGG_HIDDEN ? smallest : VGG_HIDDEN;
    }
    const int64_t most = common > 0 ? (int64_t)(smallest / LEAST_WIDTH) : 1;
    for (scale.divisor = most > 1 ? most : 1; scale.divisor >= 1; scale.divisor--)
        for (int few = 3; few >= 0 && common % scale.divisor == 0; few--) {
            scale.few_heads = (few & 1) != 0;
            scale.small_images = (few & 2) != 0;
            const enum sbp_status status = try_scale(plan, &scale, bytes, small, step, &why);
            if (status == SBP_OK || status == SBP_E_MEMORY)
                return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", why.text);
        }
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "--verify=shrunk: the plan is legal for no smaller model: %s", why.text);
}
