#include "costmodel/program/parallel.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/text.h"
#include "costmodel/program/program.h"
#include "costmodel/program/stages.h"

#define TEXT(symbol, text) text,
static const char *const recompute_names[] = {SBP_RECOMPUTE_MAP(TEXT) NULL};
static const char *const owner_names[] = {SBP_OWNER_MAP(TEXT) NULL};
static const char *const stage_cut_names[] = {SBP_STAGE_CUT_MAP(TEXT) NULL};
/* "none": one stage has no order to follow. */
static const char *const schedule_names[] = {SBP_SCHEDULE_MAP(TEXT) "none", NULL};

const char *sbp_parallel_recompute_name(enum sbp_recompute recompute)
{
    return recompute_names[recompute];
}

const char *sbp_parallel_owner_name(enum sbp_owner owner)
{
    return owner_names[owner];
}

const char *sbp_parallel_stage_cut_name(enum sbp_stage_cut cut)
{
    return stage_cut_names[cut];
}

struct sbp_parallel sbp_parallel_default(const struct sbp_graph *graph)
{
    return (struct sbp_parallel){.pipeline = 1,
                                 .chunks = 1,
                                 .micro_batch = graph->global_batch,
                                 .schedule = SBP_ONE_F_ONE_B,
                                 .recompute_every = 1,
                                 .bucket_parameters = INT64_C(1) << 24,
                                 .gradient_overlap = -1};
}

bool sbp_parallel_is_plain(const struct sbp_parallel *parallel, const struct sbp_graph *graph)
{
    return parallel->pipeline == 1 && parallel->chunks == 1 &&
           parallel->micro_batch == graph->global_batch && parallel->zero == 0 &&
           parallel->recompute == SBP_RECOMPUTE_NONE && !parallel->regather && !parallel->offload &&
           parallel->owner == SBP_OWNER_NONE && !sbp_timeline_delays_gradients(parallel->schedule);
}

int64_t sbp_parallel_micro_batches(const struct sbp_parallel *parallel,
                                   const struct sbp_graph *graph)
{
    return graph->global_batch / parallel->micro_batch;
}

/* ---- reading and writing ------------------------------------------------------------------- */

/* Whole numbers by key. */
struct whole {
    const char *key;
    size_t offset; /* of an int64_t in struct sbp_parallel */
    int64_t least, most;
};
#define WHOLE(field, least, most)                                                                  \
    {                                                                                              \
#field, offsetof(struct sbp_parallel, field), (least), (most)                              \
    }
#define MOST_STAGES 65536
static const struct whole wholes[] = {WHOLE(pipeline, 1, MOST_STAGES),
                                      WHOLE(chunks, 1, MOST_STAGES),
                                      WHOLE(micro_batch, 1, INT64_C(1) << 53),
                                      WHOLE(pipeline_limit, 0, MOST_STAGES * 2),
                                      WHOLE(zero, 0, 3),
                                      WHOLE(recompute_every, 1, MOST_STAGES),
                                      WHOLE(bucket_parameters, 1, INT64_C(1) << 53),
                                      WHOLE(chunk_factor, 0, INT64_C(1) << 31)};
#define WHOLES ((int)(sizeof wholes / sizeof wholes[0]))

/* true or false by key. */
struct flag {
    const char *key;
    size_t offset; /* of a bool in struct sbp_parallel */
};
#define FLAG(field)                                                                                \
    {                                                                                              \
#field, offsetof(struct sbp_parallel, field)                                               \
    }
static const struct flag flags[] = {
    FLAG(gather_blocks),           FLAG(regather), FLAG(keep_sent), FLAG(offload),
    FLAG(allow_delayed_gradients), FLAG(pyramid)};
#define FLAGS ((int)(sizeof flags / sizeof flags[0]))

static int64_t whole_of(const struct sbp_parallel *parallel, int i)
{
    int64_t value;
    memcpy(&value, (const char *)parallel + wholes[i].offset, sizeof value);
    return value;
}

static bool flag_of(const struct sbp_parallel *parallel, int i)
{
    bool value;
    memcpy(&value, (const char *)parallel + flags[i].offset, sizeof value);
    return value;
}

bool sbp_parallel_equal(const struct sbp_parallel *a, const struct sbp_parallel *b)
{
    bool equal = a->stage_cut == b->stage_cut && a->schedule == b->schedule &&
                 a->recompute == b->recompute && a->owner == b->owner &&
                 a->gradient_overlap == b->gradient_overlap &&
                 a->stage_blocks_count == b->stage_blocks_count;
    for (int i = 0; i < a->stage_blocks_count && equal; i++)
        equal = a->stage_blocks[i] == b->stage_blocks[i];
    for (int i = 0; i < WHOLES; i++)
        equal = equal && whole_of(a, i) == whole_of(b, i);
    for (int i = 0; i < FLAGS; i++)
        equal = equal && flag_of(a, i) == flag_of(b, i);
    return equal;
}

const char *const *sbp_parallel_keys(void)
{
    static const char *const keys[] = {"pipeline",
                                       "stage_cut",
                                       "micro_batch",
                                       "schedule",
                                       "chunks",
                                       "pipeline_limit",
                                       "zero",
                                       "gather_blocks",
                                       "recompute",
                                       "recompute_every",
                                       "regather",
                                       "keep_sent",
                                       "offload",
                                       "bucket_parameters",
                                       "chunk_factor",
                                       "gradient_overlap",
                                       "allow_delayed_gradients",
                                       "pyramid",
                                       "owner",
                                       NULL};
    return keys;
}

static enum sbp_status read_schedule(const struct sbp_json *value, enum sbp_schedule *schedule)
{
    int choice = 0;
    SBP_TRY(sbp_json_choice(value, schedule_names, &choice));
    *schedule = choice < SBP_SCHEDULES ? (enum sbp_schedule)choice : SBP_ONE_F_ONE_B;
    return SBP_OK;
}

/* true and false stand for full and none. */
static enum sbp_status read_recompute(const struct sbp_json *value, enum sbp_recompute *recompute)
{
    bool all = false;
    int choice = 0;
    if (cJSON_IsBool(value->node)) {
        SBP_TRY(sbp_json_bool(value, &all));
        *recompute = all ? SBP_RECOMPUTE_FULL : SBP_RECOMPUTE_NONE;
        return SBP_OK;
    }
    SBP_TRY(sbp_json_choice(value, recompute_names, &choice));
    *recompute = (enum sbp_recompute)choice;
    return SBP_OK;
}

static enum sbp_status refuse_stage_cut(const struct sbp_json *value)
{
    return sbp_json_refuse(value,
                           "legal are blocks, flops, or the blocks of each piece, as in 17,15: of "
                           "2 to %d pieces, 0 to %d blocks each",
                           SBP_MOST_GIVEN_PIECES, UINT16_MAX);
}

/* "17,15", as --set gives it. */
static enum sbp_status read_block_list(const struct sbp_json *value, const char *text,
                                       struct sbp_parallel *parallel)
{
    parallel->stage_blocks_count = 0;
    while (parallel->stage_blocks_count < SBP_MOST_GIVEN_PIECES) {
        char word[8];
        int64_t blocks;
        const size_t length = strcspn(text, ",");
        (void)snprintf(word, sizeof word, "%.*s", (int)(length < 7 ? length : 7), text);
        if (!sbp_parse_int64(word, &blocks) || blocks < 0 || blocks > UINT16_MAX)
            break;
        parallel->stage_blocks[parallel->stage_blocks_count++] = (uint16_t)blocks;
        if (text[length] == '\0')
            return parallel->stage_blocks_count > 1 ? SBP_OK : refuse_stage_cut(value);
        text += length + 1;
    }
    return refuse_stage_cut(value);
}

/* [17, 15], as files have it. */
static enum sbp_status read_block_array(const struct sbp_json *value, struct sbp_parallel *parallel)
{
    struct sbp_json element;
    int length = 0;
    SBP_TRY(sbp_json_length(value, &length));
    if (length < 2 || length > SBP_MOST_GIVEN_PIECES)
        return refuse_stage_cut(value);
    for (int i = 0; i < length; i++) {
        int64_t blocks = 0;
        SBP_TRY(sbp_json_element(value, i, &element));
        SBP_TRY(sbp_json_int64(&element, 0, UINT16_MAX, &blocks));
        parallel->stage_blocks[i] = (uint16_t)blocks;
    }
    parallel->stage_blocks_count = length;
    return SBP_OK;
}

/* A name, or the blocks of each piece; either takes the other's place. */
static enum sbp_status read_stage_cut(const struct sbp_json *value, struct sbp_parallel *parallel)
{
    int choice = 0;
    if (cJSON_IsArray(value->node))
        return read_block_array(value, parallel);
    if (cJSON_IsNumber(value->node))
        return refuse_stage_cut(value);
    if (cJSON_IsString(value->node) && strchr(value->node->valuestring, ',') != NULL)
        return read_block_list(value, value->node->valuestring, parallel);
    SBP_TRY(sbp_json_choice(value, stage_cut_names, &choice));
    parallel->stage_cut = (enum sbp_stage_cut)choice;
    parallel->stage_blocks_count = 0;
    return SBP_OK;
}

static enum sbp_status read_key(const struct sbp_json *value, const char *key,
                                struct sbp_parallel *parallel)
{
    int choice = 0;
    for (int i = 0; i < WHOLES; i++)
        if (strcmp(key, wholes[i].key) == 0)
            return sbp_json_int64(value, wholes[i].least, wholes[i].most,
                                  (int64_t *)(void *)((char *)parallel + wholes[i].offset));
    for (int i = 0; i < FLAGS; i++)
        if (strcmp(key, flags[i].key) == 0)
            return sbp_json_bool(value, (bool *)(void *)((char *)parallel + flags[i].offset));
    if (strcmp(key, "schedule") == 0)
        return read_schedule(value, &parallel->schedule);
    if (strcmp(key, "recompute") == 0)
        return read_recompute(value, &parallel->recompute);
    if (strcmp(key, "gradient_overlap") == 0)
        return sbp_json_double(value, 0, 1, &parallel->gradient_overlap);
    if (strcmp(key, "stage_cut") == 0)
        return read_stage_cut(value, parallel);
    SBP_TRY(sbp_json_choice(value, owner_names, &choice));
    parallel->owner = (enum sbp_owner)choice;
    return SBP_OK;
}

enum sbp_status sbp_parallel_read(const struct sbp_json *object, struct sbp_parallel *parallel)
{
    const char *const *keys = sbp_parallel_keys();
    struct sbp_parallel read = *parallel;
    SBP_TRY(sbp_json_keys(object, keys));
    for (int i = 0; keys[i] != NULL; i++) {
        struct sbp_json value;
        if (!sbp_json_has(object, keys[i]))
            continue;
        SBP_TRY(sbp_json_member(object, keys[i], &value));
        SBP_TRY(read_key(&value, keys[i], &read));
    }
    *parallel = read;
    return SBP_OK;
}

static void write_stage_cut(struct cJSON *object, const struct sbp_parallel *parallel, bool *failed)
{
    if (parallel->stage_blocks_count == 0) {
        sbp_json_put_text(object, "stage_cut", sbp_parallel_stage_cut_name(parallel->stage_cut),
                          failed);
        return;
    }
    struct cJSON *blocks = sbp_json_put_array(object, "stage_cut", failed);
    for (int i = 0; i < parallel->stage_blocks_count; i++)
        sbp_json_push_number(blocks, parallel->stage_blocks[i], failed);
}

void sbp_parallel_write(struct cJSON *object, const struct sbp_parallel *parallel, bool *failed)
{
    for (int i = 0; i < WHOLES; i++)
        sbp_json_put_number(object, wholes[i].key, (double)whole_of(parallel, i), failed);
    sbp_json_put_text(object, "schedule", sbp_timeline_schedule_name(parallel->schedule), failed);
    sbp_json_put_text(object, "recompute", sbp_parallel_recompute_name(parallel->recompute),
                      failed);
    for (int i = 0; i < FLAGS; i++)
        sbp_json_put_bool(object, flags[i].key, flag_of(parallel, i), failed);
    if (parallel->gradient_overlap >= 0)
        sbp_json_put_number(object, "gradient_overlap", parallel->gradient_overlap, failed);
    write_stage_cut(object, parallel, failed);
    sbp_json_put_text(object, "owner", sbp_parallel_owner_name(parallel->owner), failed);
}

/* ---- what fits ----------------------------------------------------------------------------- */

/* "1, 2, 4, 8": divisors up to `most`, as many as the text holds. */
static const char *divisors(int64_t number, int64_t most, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int64_t d = 1; d <= most && d <= number; d++) {
        char word[32];
        if (number % d != 0)
            continue;
        const int length =
            snprintf(word, sizeof word, "%s%lld", used > 0 ? ", " : "", (long long)d);
        if (used + (size_t)length + 8 > size) {
            memcpy(text + used, ", ...", 6);
            break;
        }
        memcpy(text + used, word, (size_t)length + 1);
        used += (size_t)length;
    }
    return text;
}

/* Lists the legal numbers of stages: a divisor of the outermost level, or that level times a
 * divisor of the next, ... */
static const char *legal_stages(const struct sbp_cluster *cluster, char *text, size_t size)
{
    int64_t outer = 1;
    size_t used = 0;
    text[0] = '\0';
    for (int level = 0; level < cluster->level_count; level++) {
        for (int64_t d = level == 0 ? 1 : 2; d <= cluster->level[level].size; d++) {
            if (cluster->level[level].size % d != 0 || used + 32 > size)
                continue;
            used += (size_t)snprintf(text + used, size - used, "%s%lld", used > 0 ? ", " : "",
                                     (long long)(outer * d));
        }
        outer *= cluster->level[level].size;
    }
    return text;
}

/* Sizes of the levels as a stage has them, and the outermost level that stages are parted at; -1:
 * none is. */
static enum sbp_status share_out(const struct sbp_parallel *parallel,
                                 const struct sbp_cluster *cluster, int64_t size[SBP_MAX_LEVELS],
                                 int *level, struct sbp_diag *diag)
{
    const int64_t groups = sbp_parallel_groups(parallel);
    int64_t left = groups;
    *level = -1;
    for (int i = 0; i < cluster->level_count; i++) {
        const int64_t whole = cluster->level[i].size;
        const int64_t taken = left % whole == 0 ? whole : whole % left == 0 ? left : 0;
        if (taken == 0)
            break;
        if (taken > 1 && *level < 0)
            *level = i;
        size[i] = whole / taken;
        left /= taken;
    }
    if (left > 1 && parallel->pyramid)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: pyramid: its %lld groups of devices, of %lld stages, cannot "
                        "share out the levels of cluster %s, false is legal",
                        (long long)groups, (long long)parallel->pipeline, cluster->name);
    if (left > 1) {
        char legal[160];
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: pipeline: %lld stages cannot share out the levels of cluster "
                        "%s, legal are %s",
                        (long long)parallel->pipeline, cluster->name,
                        legal_stages(cluster, legal, sizeof legal));
    }
    return SBP_OK;
}

enum sbp_status sbp_parallel_stage_cluster(const struct sbp_parallel *parallel,
                                           const struct sbp_cluster *cluster,
                                           struct sbp_cluster *stage, int *level,
                                           struct sbp_diag *diag)
{
    int64_t size[SBP_MAX_LEVELS];
    SBP_TRY(share_out(parallel, cluster, size, level, diag));
    *stage = *cluster;
    for (int i = 0; i < cluster->level_count; i++)
        stage->level[i].size = size[i];
    return SBP_OK;
}

/* Who hands sums of gradients on, for messages. */
static const char *hands_on_name(const struct sbp_parallel *parallel)
{
    return parallel->pyramid ? "groups of a pyramid" : "replicas";
}

/* Whether counts are those of a pyramid, or of replicas. */
static enum sbp_status check_places(const struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    const char *name = sbp_timeline_schedule_name(parallel->schedule);
    const long long stages = (long long)parallel->pipeline;
    if (parallel->pyramid && !sbp_timeline_delays_gradients(parallel->schedule))
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: pyramid: schedule %s has one group of devices a stage, true is "
                        "legal with cdp-v1 and cdp-v2",
                        name);
    if (parallel->pyramid && (parallel->pipeline < 2 || parallel->chunks > 1))
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: pyramid: %lld stages of %lld chunks, legal are 2 and more of 1",
                        stages, (long long)parallel->chunks);
    if (!parallel->pyramid && parallel->chunks != parallel->pipeline)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: chunks: schedule %s has 1 on each of %lld stages, or all of as "
                        "many on each (replicas), 1 and %lld are legal",
                        name, stages, stages);
    return SBP_OK;
}

/* Replicas, and groups of a pyramid, hand on sums of whole gradients, piece by piece. */
static enum sbp_status check_handed(const struct sbp_parallel *parallel,
                                    const struct sbp_graph *graph, struct sbp_diag *diag)
{
    const char *who = hands_on_name(parallel);
    const long long stages = (long long)parallel->pipeline;
    const bool shards = parallel->zero != 0;
    SBP_TRY(check_places(parallel, diag));
    if (graph->global_batch % parallel->pipeline != 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: pipeline: %lld %s do not share a global batch of %lld "
                        "evenly, divisors of it are legal",
                        stages, parallel->pyramid ? "micro-batches of a pyramid" : who,
                        (long long)graph->global_batch);
    if (sbp_parallel_micro_batches(parallel, graph) != parallel->pipeline)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: micro_batch: %s %lld %s a step, %lld sequences are legal",
                        parallel->pyramid ? "a pyramid of" : "each of the", stages,
                        parallel->pyramid ? "stages does as many" : "replicas does one",
                        (long long)(graph->global_batch / parallel->pipeline));
    if (shards || parallel->owner != SBP_OWNER_NONE)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: %s: %s have all states of their weights, %s is legal",
                        shards ? "zero" : "owner", who, shards ? "0" : "none");
    if (parallel->offload)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: offload: %s update %s between their passes, false is legal", who,
                        parallel->pyramid ? "each by itself" : "chunk by chunk");
    return SBP_OK;
}

static enum sbp_status check_schedule(const struct sbp_parallel *parallel,
                                      const struct sbp_graph *graph, struct sbp_diag *diag)
{
    const int64_t micro_batches = sbp_parallel_micro_batches(parallel, graph);
    const char *name = sbp_timeline_schedule_name(parallel->schedule);
    const bool interleaved = parallel->schedule == SBP_INTERLEAVED;
    if (interleaved && parallel->chunks < 2)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: chunks: schedule interleaved works on %lld chunk a stage, legal "
                        "are 2 and more",
                        (long long)parallel->chunks);
    if (interleaved && parallel->pipeline < 2)
        return sbp_fail(
            diag, SBP_E_INPUT,
            "parallel: pipeline: schedule interleaved has chunks of several stages take "
            "turns, legal are 2 stages and more");
    const bool cyclic = sbp_timeline_delays_gradients(parallel->schedule);
    const int64_t pieces = sbp_parallel_pieces(parallel);
    if (!interleaved && !cyclic && parallel->chunks > 1)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: chunks: schedule %s has one chunk a stage, %lld are legal with "
                        "interleaved, cdp-v1 and cdp-v2 alone",
                        name, (long long)parallel->chunks);
    if (sbp_parallel_hands_on(parallel))
        SBP_TRY(check_handed(parallel, graph, diag));
    if (interleaved && micro_batches % parallel->pipeline != 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: micro_batch: schedule interleaved works on %lld micro-batches, "
                        "legal are multiples of the %lld stages",
                        (long long)micro_batches, (long long)parallel->pipeline);
    if (parallel->pipeline_limit > 0 && parallel->schedule != SBP_MESSAGE_DRIVEN &&
        parallel->schedule != SBP_ZERO_BUBBLE)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: pipeline_limit: schedule %s fixes what is in flight itself, 0 "
                        "is legal; message-driven and zero-bubble take a limit",
                        name);
    if (cyclic && micro_batches < pieces)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: micro_batch: schedule %s works on %lld micro-batches, legal are "
                        "as many as the %lld stages and more",
                        name, (long long)micro_batches, (long long)pieces);
    if (cyclic && !parallel->allow_delayed_gradients)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: schedule: %s updates with gradients of an older state, which is "
                        "another training; legal with allow_delayed_gradients true",
                        name);
    return SBP_OK;
}

double sbp_parallel_hidden_share(const struct sbp_parallel *parallel,
                                 const struct sbp_cluster *cluster)
{
    if (sbp_timeline_delays_gradients(parallel->schedule))
        return 0;
    return fmin(parallel->gradient_overlap >= 0 ? parallel->gradient_overlap
                                                : cluster->gradient_overlap,
                sbp_device_factor(cluster->rates.overlap_share));
}

static enum sbp_status check_overlap(const struct sbp_parallel *parallel, struct sbp_diag *diag)
{
    if (parallel->gradient_overlap > 0 && parallel->chunk_factor > 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: gradient_overlap: chunks of buckets overlap with the optimizer, "
                        "0 is legal with chunk_factor %lld",
                        (long long)parallel->chunk_factor);
    if (parallel->gradient_overlap > 0 && sbp_timeline_delays_gradients(parallel->schedule))
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: gradient_overlap: no pass of its own step follows the last "
                        "gradients under schedule %s, 0 is legal",
                        sbp_timeline_schedule_name(parallel->schedule));
    return SBP_OK;
}

static enum sbp_status check_states(const struct sbp_parallel *parallel,
                                    const struct sbp_cluster *cluster, struct sbp_diag *diag)
{
    if (parallel->zero < 0 || parallel->zero > 3)
        return sbp_fail(diag, SBP_E_INPUT, "parallel: zero: level %lld, legal are 0 to 3",
                        (long long)parallel->zero);
    if (parallel->owner != SBP_OWNER_NONE && parallel->zero != 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: owner: %s leaves no states to shard, legal with zero 0",
                        sbp_parallel_owner_name(parallel->owner));
    if (parallel->offload && !(cluster->host_link_bytes_per_s > 0))
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: offload: cluster %s does not say how fast host memory is, "
                        "device.host_link_bytes_per_s > 0 is legal",
                        cluster->name);
    if (parallel->chunk_factor > 0 && !parallel->offload)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: chunk_factor: buckets are there with offload alone, 0 is legal");
    return check_overlap(parallel, diag);
}

/* The blocks of each piece, where they are given, are the model's, and every piece has an operator.
 */
static enum sbp_status check_stage_blocks(const struct sbp_parallel *parallel,
                                          const struct sbp_graph *graph, struct sbp_diag *diag)
{
    int first[SBP_MOST_GIVEN_PIECES + 1];
    const int64_t pieces = sbp_parallel_pieces(parallel);
    if (parallel->stage_blocks_count == 0)
        return SBP_OK;
    if (parallel->stage_blocks_count != pieces)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: stage_cut: the blocks of %d pieces are given, legal are %lld "
                        "(%s)",
                        parallel->stage_blocks_count, (long long)pieces,
                        sbp_parallel_replicates(parallel) ? "chunks" : "pipeline x chunks");
    return sbp_stages_cut_as(graph, parallel->stage_blocks_count, parallel, first, diag);
}

/* Who hands sums on updates a piece before the gradients of others are there. */
static enum sbp_status check_updates(const struct sbp_parallel *parallel,
                                     const struct sbp_graph *graph, struct sbp_diag *diag)
{
    const char *who = hands_on_name(parallel), *key = parallel->pyramid ? "pyramid" : "pipeline";
    const char *legal = parallel->pyramid ? "false" : "1";
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    if (sbp_program_has_norm(&graph->training, &bytes))
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: %s: %s form no norm of all gradients, by which %s: "
                        "%s is legal, or a model %s",
                        key, who,
                        bytes.scales_loss ? "a step that overflows in fp16 is found"
                                          : "these are clipped",
                        legal, bytes.scales_loss ? "of another precision" : "with clip_norm 0");
    if (sbp_graph_is_tied(graph))
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: %s: %s do not sum gradients of a tied weight: %s is legal, or a "
                        "model with tied false",
                        key, who, legal);
    return SBP_OK;
}

enum sbp_status sbp_parallel_check(const struct sbp_parallel *parallel,
                                   const struct sbp_graph *graph, const struct sbp_cluster *cluster,
                                   struct sbp_diag *diag)
{
    int64_t size[SBP_MAX_LEVELS];
    char legal[160];
    int level;
    if (parallel->pipeline < 1 || parallel->chunks < 1 || parallel->recompute_every < 1 ||
        parallel->bucket_parameters < 1 || parallel->chunk_factor < 0 ||
        parallel->pipeline_limit < 0)
        return sbp_fail(diag, SBP_E_INPUT, "parallel: a count below what is legal");
    SBP_TRY(share_out(parallel, cluster, size, &level, diag));
    if (sbp_parallel_pieces(parallel) > graph->op_count)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: pipeline: %lld pieces of a model of %d operators, fewer are "
                        "legal",
                        (long long)sbp_parallel_pieces(parallel), graph->op_count);
    if (parallel->micro_batch < 1 || graph->global_batch % parallel->micro_batch != 0)
        return sbp_fail(diag, SBP_E_INPUT,
                        "parallel: micro_batch: %lld does not divide the global batch of %lld, "
                        "legal are %s",
                        (long long)parallel->micro_batch, (long long)graph->global_batch,
                        divisors(graph->global_batch, 65536, legal, sizeof legal));
    SBP_TRY(check_stage_blocks(parallel, graph, diag));
    SBP_TRY(check_schedule(parallel, graph, diag));
    if (sbp_parallel_hands_on(parallel))
        SBP_TRY(check_updates(parallel, graph, diag));
    return check_states(parallel, cluster, diag);
}
