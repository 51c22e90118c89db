#include "planner/report/layout_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/text.h"
#include "costmodel/program/stages.h"
#include "planner/plan/roles.h"

/* ---- degrees of a layer --------------------------------------------------------------------- */

/* What a role of a layer is called by those who train. */
enum word { WORD_NONE, WORD_DATA, WORD_CONTEXT, WORD_EXPERT, WORD_TENSOR };

static bool splits_weights(const struct sbp_op_node *node, const struct sbp_role *role)
{
    for (int w = 0; w < node->weight_count; w++)
        if (role->weight[w].kind == SBP_SPLIT)
            return true;
    return false;
}

static enum word word_of(const struct sbp_op_node *node, int role)
{
    const char *name = node->entry->role[role].name;
    if (strcmp(name, "expert") == 0 || strcmp(name, "expert_sequence") == 0)
        return WORD_EXPERT;
    if (strcmp(name, "batch") == 0)
        return WORD_DATA;
    if (strcmp(name, "sequence") == 0 || strcmp(name, "context") == 0 ||
        strcmp(name, "height") == 0)
        return WORD_CONTEXT;
    return splits_weights(node, &node->entry->role[role]) ? WORD_TENSOR : WORD_NONE;
}

/* Ways that roles of a word split a layer; tokens of experts are split as data is. */
static int64_t ways(const struct sbp_plan *plan, int op, enum word word)
{
    const struct sbp_op_node *node = &plan->cut.graph.op[op];
    int64_t product = 1;
    for (int role = 0; role < node->entry->role_count; role++) {
        const enum word mine = word_of(node, role);
        if (mine == word || (word == WORD_DATA && mine == WORD_EXPERT))
            product *= sbp_role_total(plan, op, role);
    }
    return product;
}

static int64_t zero_of(const struct sbp_plan *plan, int op, enum word unused)
{
    (void)unused;
    return sbp_plan_zero(plan, op);
}

/* Whether a layer has weights, chooses for itself and is the first of its repeats. */
static bool has_weights(const struct sbp_op_node *node)
{
    return !node->entry->follows && node->weight_count > 0;
}

static bool is_expert(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_MOE;
}

static bool is_dense(const struct sbp_op_node *node)
{
    return has_weights(node) && !is_expert(node);
}

/* Those of which context parallelism is said; other layers may be split by sequence beside it. */
static bool is_attention(const struct sbp_op_node *node)
{
    return sbp_op_role(node->entry, "context") >= 0;
}

typedef int64_t (*measure)(const struct sbp_plan *plan, int op, enum word word);

/* Layers, with repeats, among those that count whose degree is `value`. */
static int64_t count_alike(const struct sbp_plan *plan, bool (*counts)(const struct sbp_op_node *),
                           measure of, enum word word, int64_t value)
{
    int64_t count = 0;
    for (int op = 0; op < plan->cut.graph.op_count; op++) {
        const struct sbp_op_node *node = &plan->cut.graph.op[op];
        if (node->site == op && counts(node) && of(plan, op, word) == value)
            count += node->repeats;
    }
    return count;
}

/* The degree of most layers; of several the larger one. */
static struct sbp_layout_degree degree(const struct sbp_plan *plan,
                                       bool (*counts)(const struct sbp_op_node *), measure of,
                                       enum word word)
{
    struct sbp_layout_degree found = {.common = of == zero_of ? 0 : 1};
    int64_t best = 0;
    for (int op = 0; op < plan->cut.graph.op_count; op++) {
        const struct sbp_op_node *node = &plan->cut.graph.op[op];
        if (node->site != op || !counts(node))
            continue;
        const int64_t value = of(plan, op, word);
        const int64_t alike = count_alike(plan, counts, of, word, value);
        if (best == 0 || value < found.least)
            found.least = value;
        if (best == 0 || value > found.most)
            found.most = value;
        if (alike > best || (alike == best && value > found.common)) {
            found.common = value;
            best = alike;
        }
    }
    if (best == 0)
        found.least = found.most = found.common;
    return found;
}

static bool is_add(const struct sbp_op_node *node)
{
    return node->kind == SBP_OP_ADD;
}

/* ---- the layout ----------------------------------------------------------------------------- */

/* Blocks whose first operator lies in each piece. */
static enum sbp_status count_blocks(const struct sbp_graph *graph, const int *first, int pieces,
                                    struct sbp_arena *arena, int *blocks)
{
    int *block = SBP_NEW(arena, int, graph->op_count);
    if (block == NULL)
        return SBP_E_MEMORY;
    (void)sbp_stages_blocks(graph, block);
    for (int piece = 0; piece < pieces; piece++)
        for (int op = first[piece]; op < first[piece + 1]; op++)
            blocks[piece] += block[op] >= 0 && (op == 0 || block[op - 1] != block[op]);
    return SBP_OK;
}

enum sbp_status sbp_layout_line_make(const struct sbp_plan *plan, const int *first,
                                     struct sbp_arena *arena, struct sbp_layout_line *layout)
{
    const struct sbp_parallel *parallel = &plan->cut.parallel;
    const struct sbp_graph *graph = &plan->cut.graph;
    const int pieces = (int)sbp_parallel_pieces(parallel);
    int *blocks = SBP_NEW(arena, int, pieces);
    *layout = (struct sbp_layout_line){.plan = plan,
                                       .tensor = degree(plan, is_dense, ways, WORD_TENSOR),
                                       .data = degree(plan, is_dense, ways, WORD_DATA),
                                       .context = degree(plan, is_attention, ways, WORD_CONTEXT),
                                       .expert = degree(plan, is_expert, ways, WORD_EXPERT),
                                       .expert_tensor = degree(plan, is_expert, ways, WORD_TENSOR),
                                       .zero = degree(plan, has_weights, zero_of, WORD_NONE),
                                       .pieces = pieces,
                                       .blocks = blocks};
    layout->micro_batch = parallel->micro_batch / layout->data.common;
    layout->tokens = graph->sequence > 1 ? graph->global_batch * graph->sequence : 0;
    layout->sequence_parallel =
        layout->tensor.common > 1 &&
        degree(plan, is_add, ways, WORD_CONTEXT).common > layout->context.common;
    return blocks == NULL ? SBP_E_MEMORY : count_blocks(graph, first, pieces, arena, blocks);
}

/* ---- text ----------------------------------------------------------------------------------- */

/* A line in the making. */
struct line {
    char *bytes; /* (SBP_LAYOUT_BYTES) */
    int used;
};

static void SBP_PRINTF(2, 3) add(struct line *line, const char *format, ...)
{
    va_list arguments;
    if (line->used >= SBP_LAYOUT_BYTES - 1)
        return;
    va_start(arguments, format);
    line->used += vsnprintf(line->bytes + line->used, (size_t)(SBP_LAYOUT_BYTES - line->used),
                            format, arguments);
    va_end(arguments);
}

/* ", TP 4", or ", TP 4 (2 to 8)" where layers differ. */
static void add_degree(struct line *line, const char *name, const struct sbp_layout_degree *degree)
{
    add(line, "%s%s %lld", line->used > 0 ? ", " : "", name, (long long)degree->common);
    if (degree->least < degree->most)
        add(line, " (%lld to %lld)", (long long)degree->least, (long long)degree->most);
}

static void add_stages(struct line *line, const struct sbp_parallel *parallel)
{
    add(line, ", PP %lld", (long long)sbp_parallel_parts(parallel));
    if (parallel->chunks > 1)
        add(line, " x %lld", (long long)parallel->chunks);
    if (sbp_parallel_replicates(parallel))
        add(line, " on %lld replicas", (long long)parallel->pipeline);
    if (parallel->pyramid)
        add(line, " on %lld groups", (long long)sbp_parallel_groups(parallel));
    if (parallel->pipeline > 1)
        add(line, " %s", sbp_timeline_schedule_name(parallel->schedule));
}

const char *sbp_layout_line_text(const struct sbp_layout_line *layout, char *buffer)
{
    const struct sbp_parallel *parallel = &layout->plan->cut.parallel;
    struct line line = {.bytes = buffer};
    buffer[0] = '\0';
    add_degree(&line, "TP", &layout->tensor);
    if (layout->sequence_parallel)
        add(&line, " sequence-parallel");
    add_stages(&line, parallel);
    add_degree(&line, "DP", &layout->data);
    add_degree(&line, "CP", &layout->context);
    add_degree(&line, "EP", &layout->expert);
    if (layout->expert.most > 1 && layout->expert_tensor.common != layout->tensor.common)
        add_degree(&line, "ETP", &layout->expert_tensor);
    add_degree(&line, "ZeRO", &layout->zero);
    add(&line, ", micro-batch %lld a replica", (long long)layout->micro_batch);
    if (parallel->recompute != SBP_RECOMPUTE_NONE)
        add(&line, ", %s recompute", sbp_parallel_recompute_name(parallel->recompute));
    return buffer;
}

static int block_count(const struct sbp_layout_line *layout)
{
    int blocks = 0;
    for (int piece = 0; piece < layout->pieces; piece++)
        blocks += layout->blocks[piece];
    return blocks;
}

static bool are_alike(const struct sbp_layout_line *layout)
{
    for (int piece = 1; piece < layout->pieces; piece++)
        if (layout->blocks[piece] != layout->blocks[0])
            return false;
    return true;
}

/* "4 blocks a stage", or those of each, "17, 15 blocks a stage", of runs "3 x 8, 7". */
static void add_blocks(struct line *line, const struct sbp_layout_line *layout)
{
    if (are_alike(layout)) {
        add(line, "%d", layout->blocks[0]);
    } else {
        for (int from = 0, to; from < layout->pieces; from = to) {
            for (to = from + 1; to < layout->pieces; to++)
                if (layout->blocks[to] != layout->blocks[from])
                    break;
            add(line, "%s", from > 0 ? ", " : "");
            if (to - from > 1)
                add(line, "%d x ", to - from);
            add(line, "%d", layout->blocks[from]);
        }
    }
    const bool one = are_alike(layout) && layout->blocks[0] == 1;
    add(line, " block%s a %s", one ? "" : "s",
        layout->plan->cut.parallel.chunks > 1 ? "chunk" : "stage");
}

const char *sbp_layout_line_sizes(const struct sbp_layout_line *layout, char *buffer)
{
    struct line line = {.bytes = buffer};
    buffer[0] = '\0';
    if (layout->pieces > 1 && block_count(layout) > 0)
        add_blocks(&line, layout);
    if (layout->tokens > 0)
        add(&line, "%s%lld tokens a step", line.used > 0 ? ", " : "", (long long)layout->tokens);
    return buffer;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

void sbp_layout_line_put(struct cJSON *json, const struct sbp_layout_line *layout, bool *failed)
{
    char text[SBP_LAYOUT_BYTES];
    const struct sbp_parallel *parallel = &layout->plan->cut.parallel;
    const struct {
        const char *key;
        int64_t value;
    } wholes[] = {
        {"tensor", layout->tensor.common},   {"pipeline", parallel->pipeline},
        {"chunks", parallel->chunks},        {"data", layout->data.common},
        {"context", layout->context.common}, {"expert", layout->expert.common},
        {"zero", layout->zero.common},       {"micro_batch_per_replica", layout->micro_batch},
        {"tokens", layout->tokens}};
    struct cJSON *object = sbp_json_put_object(json, "layout", failed);
    sbp_json_put_text(object, "text", sbp_layout_line_text(layout, text), failed);
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        sbp_json_put_number(object, wholes[i].key, (double)wholes[i].value, failed);
    sbp_json_put_bool(object, "sequence_parallel", layout->sequence_parallel, failed);
    sbp_json_put_text(object, "recompute", sbp_parallel_recompute_name(parallel->recompute),
                      failed);
    if (block_count(layout) == 0)
        return;
    struct cJSON *blocks = sbp_json_put_array(object, "stage_blocks", failed);
    for (int piece = 0; piece < layout->pieces && !*failed; piece++)
        sbp_json_push_number(blocks, layout->blocks[piece], failed);
}
