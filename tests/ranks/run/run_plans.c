#include "run_plans.h"
#include "base/text.h"
#include "costmodel/program/runnable.h"
#include "tests/support/searched_roles.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

static void check(enum sbp_status status, const struct sbp_diag *diag, const char *what)
{
    if (status != SBP_OK)
        fail_msg("%s: %s: %s", what, sbp_status_name(status), diag->text);
}

static void read_cluster(const int *levels, struct sbp_cluster *cluster)
{
    char text[1024];
    int used = snprintf(text, sizeof text, "{\"name\": \"test\", \"levels\": [");
    for (int i = 0; levels[i] > 0; i++)
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "%s{\"name\": \"level%d\", \"size\": %d, \"alpha_s\": 1e-6, "
                         "\"beta_s_per_byte\": 1e-9, \"ports\": 1}",
                         i > 0 ? ", " : "", i, levels[i]);
    (void)snprintf(text + used, sizeof text - (size_t)used,
                   "], \"device\": {\"memory_bytes\": 1073741824, \"flops\": {\"fp32\": 1e10, "
                   "\"fp64\": 5e9}, \"memory_bytes_per_s\": 1e10}}");
    struct cJSON *root = NULL;
    struct sbp_json at;
    struct sbp_diag diag = {0};
    struct sbp_arena arena = {0}; /* of no table that is used */
    check(sbp_json_parse(text, "cluster", &root, &at, &diag), &diag, "cluster");
    check(sbp_cluster_read(&at, &arena, cluster), &diag, "cluster");
    sbp_arena_free(&arena);
    cJSON_Delete(root);
}

void plan_open(struct plan *plan, const char *model, const int *levels)
{
    struct cJSON *root = NULL;
    struct sbp_json at;
    struct sbp_diag diag = {0};
    *plan = (struct plan){0};
    read_cluster(levels, &plan->cluster);
    check(sbp_mesh_make(&plan->cluster, &plan->mesh, &diag), &diag, "mesh");
    check(sbp_json_parse(model, "model", &root, &at, &diag), &diag, model);
    check(sbp_graph_read(&at, &plan->graph), &diag, model);
    plan->parallel = sbp_parallel_default(&plan->graph);
    cJSON_Delete(root);
}

void plan_close(struct plan *plan)
{
    sbp_step_free(&plan->step);
    sbp_graph_free(&plan->graph);
    sbp_arena_free(&plan->arena);
}

static int below(struct sbp_random *random, int bound)
{
    return (int)sbp_random_below(random, (uint64_t)bound);
}

/* The table's user decides for the tied head: the roles that split the weight alike. */
static uint8_t tied_role(struct sbp_random *random, const struct plan *plan, int op, int axis)
{
    static const char *const matching[][2] = {
        {"vocab", "column"}, {"column", "row"}, {"mirror", "mirror"}};
    int table_user = 0;
    while (plan->graph.op[table_user].kind != SBP_OP_EMBEDDING)
        table_user++;
    const struct sbp_op_entry *embedding = sbp_op(SBP_OP_EMBEDDING),
                              *linear = sbp_op(SBP_OP_LINEAR);
    const char *role = embedding->role[plan->strategy.op[table_user].role[axis]].name;
    const char *want = below(random, 2) == 0 ? "batch" : "sequence";
    for (int i = 0; i < 3; i++)
        if (strcmp(role, matching[i][0]) == 0)
            want = matching[i][1];
    for (int r = 0; r < linear->role_count; r++)
        if (strcmp(linear->role[r].name, want) == 0)
            return (uint8_t)r;
    fail_msg("linear has no role %s for operator %d", want, op);
    return 0;
}

/* Splits attention by sequence, half of the time that its work is to be repeated; drawn from a
 * stream of its own: all else stays the same plan. */
static int repeated_role(struct sbp_random random, const struct sbp_op_entry *entry)
{
    const int context = sbp_op_role(entry, "context");
    sbp_random_seed(&random, sbp_random_next(&random));
    return context >= 0 && below(&random, 2) ? context : sbp_op_role(entry, "replicate");
}

/* A random role. `wide` also draws, half of the time, roles that searches leave out: partial sums
 * that are kept, attention split by sequence, and work that is repeated. */
static uint8_t random_role(struct sbp_random *random, const struct sbp_op_node *node, bool wide)
{
    const struct sbp_op_entry *entry = node->entry;
    const int partial = sbp_op_role(entry, "partial");
    const int spare = partial < 0 || below(random, 2) ? repeated_role(*random, entry) : partial;
    return (uint8_t)(!wide || below(random, 2) ? below(random, searched_roles(entry)) : spare);
}

/* Where an activation may rest: producers' splits stay or are gathered, sums may stay where they
 * are read; sizes of 1 do not split. */
static struct sbp_state random_rest(struct sbp_random *random, const struct sbp_shape *shape,
                                    struct sbp_state output, bool whole, bool partial)
{
    if (partial && output.kind == SBP_PARTIAL && below(random, 2) == 0)
        return SBP_STATE_P;
    if (whole && below(random, 4) == 0)
        return SBP_STATE_B;
    if (output.kind == SBP_SPLIT)
        return output;
    for (;;) {
        const int dim = below(random, 3);
        if (shape->size[dim] > 1)
            return SBP_STATE_S((uint8_t)dim);
    }
}

/* Mirrors an operator on some levels. */
static void mirror_op(struct plan *plan, struct sbp_random *random, int op)
{
    const int mirror = sbp_op_role(plan->graph.op[op].entry, "mirror");
    for (int level = 0; level < plan->mesh.level_count; level++) {
        const bool takes = below(random, 4) == 0;
        for (int axis = 0; axis < plan->mesh.axis_count && takes; axis++)
            if (plan->mesh.axis[axis].level == level)
                plan->strategy.op[op].role[axis] = (uint8_t)mirror;
    }
}

/* Lets a tensor rest mirrored on some levels. */
static void mirror_rest(const struct plan *plan, struct sbp_random *random, struct sbp_dist *rest)
{
    for (int level = 0; level < plan->mesh.level_count; level++) {
        const bool takes = below(random, 3) == 0;
        for (int axis = 0; axis < plan->mesh.axis_count && takes; axis++)
            if (plan->mesh.axis[axis].level == level)
                rest->axis[axis] = SBP_STATE_M;
    }
}

static void randomise_op(struct plan *plan, struct sbp_random *random, bool wide, int op)
{
    const struct sbp_op_node *node = &plan->graph.op[op];
    for (int axis = 0; axis < plan->mesh.axis_count; axis++)
        plan->strategy.op[op].role[axis] = node->transposed_weight
                                               ? tied_role(random, plan, op, axis)
                                               : random_role(random, node, wide);
    if (wide && !node->transposed_weight)
        mirror_op(plan, random, op);
    if (node->output < 0)
        return;
    const struct sbp_dist output =
        sbp_strategy_output(&plan->graph, &plan->mesh, &plan->strategy, op);
    const bool read = sbp_graph_consumers(&plan->graph, node->output, NULL, 0) > 0;
    for (int axis = 0; axis < plan->mesh.axis_count; axis++)
        plan->strategy.rest[node->output].axis[axis] = random_rest(
            random, &plan->graph.tensor[node->output].shape, output.axis[axis], wide, wide && read);
    if (wide)
        mirror_rest(plan, random, &plan->strategy.rest[node->output]);
}

static bool try_random(struct plan *plan, struct sbp_random *random, bool wide)
{
    struct sbp_diag diag = {0};
    const int input = plan->graph.input;
    if (input >= 0)
        for (int axis = 0; axis < plan->mesh.axis_count; axis++)
            plan->strategy.rest[input].axis[axis] =
                plan->graph.input_split ? random_rest(random, &plan->graph.tensor[input].shape,
                                                      SBP_STATE_B, false, false)
                                        : SBP_STATE_B;
    for (int op = 0; op < plan->graph.op_count; op++)
        randomise_op(plan, random, wide, op);
    return sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag) == SBP_OK;
}

void plan_cut_step(struct plan *plan, struct sbp_random *random)
{
    static const int parts[] = {1, 2, 3, 4};
    static const enum sbp_recompute kinds[] = {SBP_RECOMPUTE_NONE, SBP_RECOMPUTE_ATTENTION,
                                               SBP_RECOMPUTE_SELECTIVE, SBP_RECOMPUTE_FULL};
    struct sbp_diag diag = {0};
    int64_t rows = plan->graph.global_batch;
    const int part = parts[below(random, 4)];
    if (rows % (part * plan->mesh.devices) == 0)
        rows /= part;
    plan->parallel.micro_batch = rows;
    plan->parallel.zero = below(random, 4);
    plan->parallel.recompute = kinds[below(random, 4)];
    plan->parallel.regather = below(random, 4) == 0;
    plan->parallel.gather_blocks = below(random, 2) == 0;
    check(sbp_graph_set_micro_batch(&plan->graph, rows, &diag), &diag, "micro-batch");
}

void plan_draw_owner(struct plan *plan, struct sbp_random random)
{
    sbp_random_seed(&random, sbp_random_next(&random));
    if (plan->parallel.zero == 0 && !sbp_parallel_hands_on(&plan->parallel))
        plan->parallel.owner = (enum sbp_owner)below(&random, SBP_OWNERS);
}

bool plan_place_stages(struct plan *plan)
{
    struct sbp_cluster stage;
    struct sbp_diag diag = {0};
    int level, first[16];
    const int pieces = (int)sbp_parallel_pieces(&plan->parallel);
    if (sbp_parallel_check(&plan->parallel, &plan->graph, &plan->cluster, &diag) != SBP_OK ||
        sbp_parallel_stage_cluster(&plan->parallel, &plan->cluster, &stage, &level, &diag) !=
            SBP_OK ||
        sbp_stages_cut_as(&plan->graph, pieces, &plan->parallel, first, &diag) != SBP_OK)
        return false;
    check(sbp_mesh_make(&stage, &plan->mesh, &diag), &diag, "mesh of a stage");
    return true;
}

/* Micro-batches that the interleaved schedule works on in groups. */
static void draw_chunks(struct plan *plan, struct sbp_random *random)
{
    struct sbp_diag diag = {0};
    const int64_t count = plan->parallel.pipeline * (1 + below(random, 2));
    const int64_t devices = plan->mesh.devices / plan->parallel.pipeline;
    plan->parallel.chunks = 2 + below(random, 2);
    if (devices == 0 || plan->graph.global_batch % (count * devices) != 0)
        return;
    plan->parallel.micro_batch = plan->graph.global_batch / count;
    check(sbp_graph_set_micro_batch(&plan->graph, plan->parallel.micro_batch, &diag), &diag,
          "micro-batch");
}

/* Half of the plans of 1F1B are message-driven instead, drawn from a stream of its own: all else
 * stays the same plan. */
static void draw_driven(struct plan *plan, struct sbp_random random)
{
    sbp_random_seed(&random, sbp_random_next(&random));
    if (below(&random, 2) == 0)
        return;
    plan->parallel.schedule = SBP_MESSAGE_DRIVEN;
    plan->parallel.pipeline_limit = below(&random, 2 * (int)plan->parallel.pipeline);
}

bool plan_cut_stages(struct plan *plan, struct sbp_random *random)
{
    static const int stages[] = {2, 2, 3, 4};
    static const enum sbp_schedule schedules[] = {SBP_GPIPE, SBP_ONE_F_ONE_B, SBP_INTERLEAVED,
                                                  SBP_ZERO_BUBBLE};
    plan_cut_step(plan, random);
    plan->parallel.pipeline = stages[below(random, 4)];
    plan->parallel.stage_cut = below(random, 2) ? SBP_CUT_FLOPS : SBP_CUT_BLOCKS;
    plan->parallel.schedule = schedules[below(random, 4)];
    if (plan->parallel.schedule == SBP_INTERLEAVED)
        draw_chunks(plan, random);
    if (plan->parallel.schedule == SBP_ZERO_BUBBLE)
        plan->parallel.pipeline_limit = below(random, 2 * (int)plan->parallel.pipeline);
    if (plan->parallel.schedule == SBP_ONE_F_ONE_B)
        draw_driven(plan, *random);
    plan->parallel.keep_sent = below(random, 4) == 0;
    return plan_place_stages(plan);
}

/* Draws the rule and micro-batches of a step without a flush, whose stages are placed, on so many
 * devices each: as many as these, or fewer than `more` in addition. */
static bool cut_cyclic(struct plan *plan, int more, int64_t devices, struct sbp_random *random)
{
    struct sbp_diag diag = {0};
    struct sbp_parallel *parallel = &plan->parallel;
    parallel->schedule = below(random, 2) ? SBP_CDP_V1 : SBP_CDP_V2;
    parallel->allow_delayed_gradients = true;
    parallel->stage_cut = below(random, 2) ? SBP_CUT_FLOPS : SBP_CUT_BLOCKS;
    const int64_t count = sbp_parallel_pieces(parallel) + below(random, more);
    if (devices == 0 || plan->graph.global_batch % (count * devices) != 0)
        return false;
    parallel->micro_batch = plan->graph.global_batch / count;
    check(sbp_graph_set_micro_batch(&plan->graph, parallel->micro_batch, &diag), &diag,
          "micro-batch");
    return plan_place_stages(plan);
}

bool plan_cut_cyclic(struct plan *plan, struct sbp_random *random)
{
    plan_cut_step(plan, random);
    plan->parallel.pipeline = 1 + below(random, 4);
    return cut_cyclic(plan, 5, plan->mesh.devices / plan->parallel.pipeline, random);
}

bool plan_cut_on_device(struct plan *plan, struct sbp_random *random)
{
    plan_cut_step(plan, random);
    plan->parallel.chunks = 2 + below(random, 3);
    return cut_cyclic(plan, 5, plan->mesh.devices, random);
}

bool plan_cut_replicas(struct plan *plan, struct sbp_random *random)
{
    plan_cut_step(plan, random);
    plan->parallel.zero = 0;
    plan->graph.training.clip_norm = 0;
    const int count = 2 + below(random, 3);
    plan->parallel.pipeline = plan->parallel.chunks = count;
    return !sbp_graph_is_tied(&plan->graph) &&
           cut_cyclic(plan, 1, plan->mesh.devices / count, random);
}

/* Rules take turns: draws are few. */
bool plan_cut_pyramid(struct plan *plan, struct sbp_random *random)
{
    static int made;
    plan_cut_step(plan, random);
    plan->parallel.zero = 0;
    plan->graph.training.clip_norm = 0;
    plan->parallel.pyramid = true;
    plan->parallel.pipeline = 2 + below(random, 3);
    const int64_t groups = sbp_parallel_groups(&plan->parallel);
    const bool alone = below(random, 2) == 0;
    const int64_t devices = alone ? 1 : plan->mesh.devices;
    for (int i = 0; i < plan->cluster.level_count && alone; i++)
        plan->cluster.level[i].size = 1;
    plan->cluster.level[0].size *= groups;
    const bool fits = !sbp_graph_is_tied(&plan->graph) && groups * devices <= 24 &&
                      cut_cyclic(plan, 1, devices, random);
    if (fits)
        plan->parallel.schedule = made++ % 2 == 0 ? SBP_CDP_V1 : SBP_CDP_V2;
    return fits;
}

/* Half of the operators have a level of their own. */
static void draw_levels(struct plan *plan, struct sbp_random *random)
{
    for (int op = 0; op < plan->graph.op_count; op++)
        if (plan->parallel.zero > 0 && below(random, 2) == 0)
            plan->strategy.zero[op] = (uint8_t)below(random, 4);
}

void plan_step(const struct plan *plan, const struct sbp_parallel *parallel,
               const struct sbp_strategy *strategy, enum sbp_real real, struct sbp_step *step)
{
    const struct sbp_element_bytes bytes = sbp_program_run_bytes(real);
    struct sbp_diag diag = {0};
    const struct sbp_step_request request = {.graph = &plan->graph,
                                             .cluster = &plan->cluster,
                                             .parallel = parallel,
                                             .strategy =
                                                 strategy != NULL ? strategy : &plan->strategy,
                                             .bytes = &bytes,
                                             .runs = true};
    check(sbp_step_make(&request, step, &diag), &diag, "step");
}

void plan_randomise(struct plan *plan, struct sbp_random *random, bool wide,
                    enum sbp_boxing_mode boxing, enum sbp_real real)
{
    struct sbp_diag diag = {0};
    check(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), &diag, "strategy");
    plan->strategy.boxing = boxing;
    int tries = 0;
    while (!try_random(plan, random, wide))
        if (++tries == 200000)
            fail_msg("no legal strategy for %s in 200000 tries", plan->graph.name);
    draw_levels(plan, random);
    plan_step(plan, &plan->parallel, NULL, real, &plan->step);
    plan->program = plan->step.program;
}

static const char *random_optimizer(struct sbp_random *random)
{
    static const char *const optimizers[] = {
        "\"sgd\"",
        "{\"name\": \"sgd\", \"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0.01}",
        "\"adam\"",
        "{\"name\": \"adam\", \"learning_rate\": 0.01, \"weight_decay\": 0.1}",
        "{\"name\": \"adamw\", \"learning_rate\": 0.002, \"weight_decay\": 0.1}",
    };
    return optimizers[below(random, 5)];
}

/* Widths whose factors leave room for every mesh of the tests; or that no group divides, so that
 * shards are padded. */
static int random_width(struct sbp_random *random, bool odd)
{
    static const int widths[2][3] = {{24, 48, 72}, {13, 21, 35}};
    return widths[odd][below(random, 3)];
}

static void random_perceptron(struct sbp_random *random, bool residual, bool odd,
                              struct sbp_text *text)
{
    static const char *const activations[] = {"relu", "gelu"};
    const int layers = odd ? 1 : 1 + below(random, 3), width = random_width(random, odd);
    sbp_text_add(text, "\"global_batch\": %d, \"sequence\": %d, \"input\": \"%s\", \"layers\": [",
                 below(random, 2) ? 24 : 48, odd || below(random, 3) == 0 ? 24 : 1,
                 below(random, 2) ? "free" : "split");
    sbp_text_add(text,
                 "{\"op\": \"linear\", \"name\": \"first\", \"in\": %d, \"out\": %d, "
                 "\"bias\": true}",
                 random_width(random, odd), width);
    for (int i = 0; i < layers; i++) {
        const char *from = i == 0 ? "first" : residual ? "sum" : "out";
        sbp_text_add(text, ", {\"op\": \"linear\", \"name\": \"fc%d\", \"inputs\": [\"%s", i, from);
        if (i > 0)
            sbp_text_add(text, "%d", i - 1);
        sbp_text_add(text, "\"], \"out\": %d, \"bias\": %s}, {\"op\": \"%s\"}",
                     residual ? width : random_width(random, odd),
                     below(random, 2) ? "true" : "false", activations[below(random, 2)]);
        sbp_text_add(text, ", {\"op\": \"linear\", \"name\": \"out%d\", \"out\": %d}", i, width);
        if (residual)
            sbp_text_add(text,
                         ", {\"op\": \"add\", \"name\": \"sum%d\", \"inputs\": [\"out%d\", "
                         "\"%s",
                         i, i, from);
        if (residual && i > 0)
            sbp_text_add(text, "%d", i - 1);
        if (residual)
            sbp_text_add(text, "\"]}");
    }
    if (below(random, 2))
        sbp_text_add(text, ", {\"op\": \"cross_entropy\"}");
    sbp_text_add(text, "]");
}

static void random_gpt(struct sbp_random *random, struct sbp_text *text)
{
    sbp_text_add(text,
                 "\"global_batch\": %d, \"architecture\": \"gpt\", \"layers\": %d, "
                 "\"hidden\": %d, \"heads\": %d, \"sequence\": %d, \"vocab\": %d, "
                 "\"vocab_multiple\": 24, \"dropout\": %s, \"tied\": %s, \"bias\": %s, "
                 "\"attention\": \"%s\"",
                 24, 1 + below(random, 2), below(random, 2) ? 48 : 24, 24, 24,
                 31 + below(random, 40), below(random, 2) ? "0.1" : "0",
                 below(random, 3) ? "true" : "false", below(random, 3) ? "true" : "false",
                 below(random, 2) ? "materialised" : "flash");
}

/* Blocks of a norm, a gated product and a sum, behind a bounded activation, or features that are
 * turned in pairs before a gate. */
static void random_gated(struct sbp_random *random, struct sbp_text *text)
{
    const int layers = 1 + below(random, 2), width = random_width(random, false);
    const bool turned = below(random, 2) == 0;
    sbp_text_add(text, "\"global_batch\": %d, \"sequence\": %d, \"input\": \"%s\", \"layers\": [",
                 below(random, 2) ? 24 : 48, turned || below(random, 3) == 0 ? 24 : 1,
                 below(random, 2) ? "free" : "split");
    sbp_text_add(text,
                 "{\"op\": \"linear\", \"name\": \"first\", \"in\": %d, \"out\": %d, "
                 "\"out_heads\": %d}, ",
                 random_width(random, false), turned ? 2 * width : width, width);
    sbp_text_add(text, "%s{\"op\": \"%s\", \"name\": \"sum0\"}",
                 turned ? "{\"op\": \"rotary\"}, " : "", turned ? "swiglu" : "tanh");
    for (int i = 0; i < layers; i++) {
        const int ffn = random_width(random, false);
        sbp_text_add(text, ", {\"op\": \"rmsnorm\", \"inputs\": [\"sum%d\"]}", i);
        sbp_text_add(text,
                     ", {\"op\": \"linear\", \"name\": \"up%d\", \"out\": %d, \"out_heads\": %d, "
                     "\"bias\": %s}, {\"op\": \"swiglu\"}",
                     i, 2 * ffn, ffn, below(random, 2) ? "true" : "false");
        sbp_text_add(text,
                     ", {\"op\": \"linear\", \"name\": \"down%d\", \"out\": %d}, "
                     "{\"op\": \"add\", \"name\": \"sum%d\", \"inputs\": [\"sum%d\", \"down%d\"]}",
                     i, width, i + 1, i, i);
    }
    sbp_text_add(text, ", {\"op\": \"%s\"}]", below(random, 2) ? "cross_entropy" : "rmsnorm");
}

/* What is drawn apart; each by a stream of its own, so that one says nothing of another. */
enum apart { APART_SINKS, APART_EXPERT_BIAS, APART_DROPOUT, APART_CHANCE, APART_RING };

/* True in one of so many cases, by a copy of the generator: all else stays the same model. */
static bool drawn_apart(struct sbp_random random, enum apart what, int of)
{
    sbp_random_seed(&random, sbp_random_next(&random) + (uint64_t)what);
    return below(&random, of) == 0;
}

/* Keys of fewer heads, norms of heads, norms behind the products, windows in some of the layers. */
static void random_llama(struct sbp_random *random, struct sbp_text *text)
{
    static const int kv_heads[] = {24, 24, 12, 8}, sizes[] = {2, 4, 6};
    const int layers = 1 + below(random, 2);
    sbp_text_add(text,
                 "\"global_batch\": %d, \"architecture\": \"llama\", \"layers\": %d, "
                 "\"hidden\": %d, \"heads\": %d, \"kv_heads\": %d, \"head_dim\": %d, "
                 "\"ffn\": %d, \"sequence\": %d, \"vocab\": %d, \"vocab_multiple\": 24, ",
                 24, layers, below(random, 2) ? 48 : 24, 24, kv_heads[below(random, 4)],
                 sizes[below(random, 3)], random_width(random, false), 24, 31 + below(random, 40));
    if (below(random, 2))
        sbp_text_add(text, "\"window\": %d, \"window_layers\": %d, ", 1 + below(random, 24),
                     1 + below(random, layers));
    sbp_text_add(text,
                 "\"qk_norm\": %s, \"sandwich_norm\": %s, \"qkv_bias\": %s, \"tied\": %s, "
                 "\"attention\": \"%s\"",
                 below(random, 2) ? "true" : "false", below(random, 3) ? "false" : "true",
                 below(random, 3) ? "false" : "true", below(random, 2) ? "true" : "false",
                 below(random, 2) ? "materialised" : "flash");
    if (strstr(text->bytes, "flash") != NULL && drawn_apart(*random, APART_SINKS, 2))
        sbp_text_add(text, ", \"sinks\": true");
}

/* How a router chooses: by a softmax or by sigmoids, of all of 24 experts or of some groups. */
static void add_router(struct sbp_random *random, int top_k, struct sbp_text *text)
{
    sbp_text_add(text, "\"experts\": 24, \"top_k\": %d, \"capacity\": %s, \"router_bias\": %s",
                 top_k, below(random, 2) ? "1" : "1.5", below(random, 2) ? "true" : "false");
    if (below(random, 2))
        sbp_text_add(text, ", \"scoring\": \"sigmoid\"");
    if (below(random, 3) == 0)
        sbp_text_add(text, ", \"expert_groups\": 6, \"nodes_per_token\": %d",
                     1 + below(random, top_k));
}

static void add_expert_bias(const struct sbp_random *random, struct sbp_text *text)
{
    if (drawn_apart(*random, APART_EXPERT_BIAS, 2))
        sbp_text_add(text, ", \"expert_bias\": true");
}

/* Layers of their own with experts, of tokens of which some find no slot, and decoders with some.
 */
static void random_mixture(struct sbp_random *random, struct sbp_text *text)
{
    const int layers = 1 + below(random, 2), width = random_width(random, false);
    const char *loss = below(random, 3) ? "cross_entropy" : "rmsnorm";
    sbp_text_add(text, "\"global_batch\": 24, \"sequence\": 24, ");
    if (below(random, 3) == 0) {
        sbp_text_add(
            text,
            "\"architecture\": \"mixtral\", \"layers\": %d, \"hidden\": 24, \"heads\": 24, "
            "\"kv_heads\": 24, \"head_dim\": 4, \"ffn\": 24, \"vocab\": 48, "
            "\"shared_experts\": %d, \"moe_every\": %d, \"dense_ffn\": 24, ",
            layers, below(random, 2), 1 + below(random, layers));
    } else {
        sbp_text_add(text,
                     "\"input\": \"%s\", \"layers\": [{\"op\": \"linear\", \"name\": \"sum0\", "
                     "\"in\": %d, \"out\": %d}",
                     below(random, 2) ? "free" : "split", random_width(random, false), width);
        for (int i = 0; i < layers; i++) {
            sbp_text_add(text,
                         ", {\"op\": \"rmsnorm\", \"inputs\": [\"sum%d\"]}, {\"op\": \"moe\", "
                         "\"name\": \"moe%d\", \"ffn\": %d, ",
                         i, i, random_width(random, false));
            add_router(random, 1 + below(random, 3), text);
            add_expert_bias(random, text);
            sbp_text_add(text,
                         "}, {\"op\": \"add\", \"name\": \"sum%d\", "
                         "\"inputs\": [\"sum%d\", \"moe%d\"]}",
                         i + 1, i, i);
        }
        sbp_text_add(text, ", {\"op\": \"%s\"}]", loss);
        return;
    }
    add_router(random, 1 + below(random, 3), text);
    add_expert_bias(random, text);
}

/* Latent attention, of queries that are compressed or not, with values of another size than keys;
 * dense blocks, and some with experts. */
static void random_deepseek(struct sbp_random *random, struct sbp_text *text)
{
    const int layers = 1 + below(random, 2), top_k = 1 + below(random, 3);
    sbp_text_add(text,
                 "\"global_batch\": 24, \"sequence\": 24, \"architecture\": \"deepseek\", "
                 "\"layers\": %d, \"hidden\": %d, \"heads\": 24, \"kv_rank\": %d, \"nope\": %d, "
                 "\"rope\": %d, \"value\": %d, \"dense_layers\": %d, \"ffn\": 24, "
                 "\"expert_ffn\": %d, \"shared_experts\": %d, \"vocab\": %d, "
                 "\"vocab_multiple\": 24, \"tied\": %s, \"attention\": \"%s\", ",
                 layers, below(random, 2) ? 48 : 24, random_width(random, false),
                 1 + below(random, 4), 2 + 2 * below(random, 2), 1 + below(random, 6),
                 below(random, layers + 1), random_width(random, false), below(random, 2),
                 31 + below(random, 40), below(random, 2) ? "true" : "false",
                 below(random, 2) ? "materialised" : "flash");
    if (below(random, 3))
        sbp_text_add(text, "\"q_rank\": %d, ", random_width(random, false));
    add_router(random, top_k, text);
}

/* Types of tokens, norms behind the sums; all tokens have a loss, or the first one a pooler. */
static void random_encoder(struct sbp_random *random, struct sbp_text *text)
{
    sbp_text_add(text,
                 "\"global_batch\": %d, \"architecture\": \"bert\", \"layers\": 1, "
                 "\"hidden\": %d, \"heads\": %d, \"sequence\": %d, \"positions\": %d, "
                 "\"vocab\": %d, \"vocab_multiple\": 24, \"types\": %d, \"head\": \"%s\"",
                 24, below(random, 2) ? 48 : 24, 24, 24, 24 + below(random, 4),
                 31 + below(random, 40), 1 + below(random, 3), below(random, 2) ? "mlm" : "pooler");
}

/* Images of one row of patches, the class token of which makes up for one that is missing. */
static void random_patches(struct sbp_random *random, struct sbp_text *text)
{
    const int class_token = below(random, 2);
    sbp_text_add(text,
                 "\"global_batch\": %d, \"sequence\": 24, \"input\": {\"height\": 2, "
                 "\"width\": %d, \"channels\": %d}, \"layers\": [{\"op\": "
                 "\"patch_embedding\", \"patch\": 2, \"hidden\": %d, \"bias\": %s, "
                 "\"class_token\": %s, \"positions\": %s}, {\"op\": \"layernorm\"}, "
                 "{\"op\": \"linear\", \"out\": %d}, {\"op\": \"gelu\"}, ",
                 24, 2 * (24 - class_token), 1 + below(random, 3), below(random, 2) ? 48 : 24,
                 below(random, 2) ? "true" : "false", class_token ? "true" : "false",
                 below(random, 3) ? "true" : "false", random_width(random, false));
    if (below(random, 2))
        sbp_text_add(text, "{\"op\": \"first_token\"}, ");
    sbp_text_add(text, "{\"op\": \"linear\", \"out\": 24, \"bias\": true}, {\"op\": "
                       "\"cross_entropy\"}]");
}

/* A residual block of convolutions, with norms and strides or without, pools and a classifier. */
static void random_images(struct sbp_random *random, struct sbp_text *text)
{
    const bool norms = below(random, 2) == 0, flat = below(random, 2) == 0;
    const int stride = 1 + below(random, 2), width = below(random, 2) ? 24 : 48;
    sbp_text_add(text,
                 "\"global_batch\": 24, \"input\": {\"height\": 24, \"width\": %d, "
                 "\"channels\": 24, \"split\": %s}, \"layers\": [{\"op\": \"conv2d\", "
                 "\"name\": \"stem\", \"out\": %d, \"kernel\": [%d, 3], \"stride\": "
                 "[%d, 1], \"padding\": [1, 1], \"bias\": true}, ",
                 3 + below(random, 2), below(random, 2) ? "true" : "false", width, 2 + stride % 2,
                 stride);
    if (norms)
        sbp_text_add(text, "{\"op\": \"batchnorm\"}, ");
    sbp_text_add(text,
                 "{\"op\": \"relu\", \"name\": \"x\"}, {\"op\": \"conv2d\", "
                 "\"name\": \"inner\", \"out\": %d, \"kernel\": 1}, ",
                 width);
    if (norms)
        sbp_text_add(text, "{\"op\": \"batchnorm\", \"name\": \"normed\"}, ");
    sbp_text_add(text,
                 "{\"op\": \"add\", \"name\": \"sum\", \"inputs\": [\"x\", "
                 "\"%s\"]}, {\"op\": \"maxpool\", \"kernel\": [%d, 2], \"stride\": "
                 "[%d, 1], \"padding\": [%d, 0]}, ",
                 norms ? "normed" : "inner", 2 + flat, 2, flat);
    sbp_text_add(text,
                 flat ? "{\"op\": \"flatten\"}, " : "{\"op\": \"avgpool\", \"global\": true}, ");
    sbp_text_add(text, "{\"op\": \"linear\", \"out\": 24}, {\"op\": \"cross_entropy\"}]");
}

/* Dropout of attention in half of the models. */
static void add_attention_dropout(struct sbp_random random, struct sbp_text *text)
{
    if (drawn_apart(random, APART_DROPOUT, 2))
        sbp_text_add(text, ", \"attention_dropout\": %s",
                     drawn_apart(random, APART_CHANCE, 4) ? "0.1" : "0.4");
}

/* Keys and values round a ring, where attention is split by sequence, in half of the models. */
static void add_ring(struct sbp_random random, struct sbp_text *text)
{
    if (drawn_apart(random, APART_RING, 2))
        sbp_text_add(text, ", \"context\": \"ring\"");
}

void random_model(struct sbp_random *random, int kind, char *buffer, int size)
{
    static const int with_grids[] = {0, 1, 2, 4, 5, 8};
    struct sbp_text text = {0};
    sbp_text_add(&text, "{\"name\": \"random%d\", \"optimizer\": %s, \"clip_norm\": %s, ", kind,
                 random_optimizer(random), below(random, 2) ? "0.5" : "0");
    if (kind == 11) {
        sbp_text_add(&text, "\"linears\": \"summa\", ");
        kind = with_grids[below(random, 6)];
    }
    if (kind == 2)
        random_gpt(random, &text);
    else if (kind == 4)
        random_gated(random, &text);
    else if (kind == 5)
        random_llama(random, &text);
    else if (kind == 6)
        random_mixture(random, &text);
    else if (kind == 7)
        random_encoder(random, &text);
    else if (kind == 8)
        random_patches(random, &text);
    else if (kind == 9)
        random_images(random, &text);
    else if (kind == 10)
        random_deepseek(random, &text);
    else
        random_perceptron(random, kind == 1, kind == 3, &text);
    if (kind == 2 || kind == 5 || kind == 7 || kind == 10)
        add_attention_dropout(*random, &text);
    if (strstr(text.bytes, "\"architecture\"") != NULL)
        add_ring(*random, &text);
    sbp_text_add(&text, "}");
    assert_false(text.failed);
    assert_true(snprintf(buffer, (size_t)size, "%s", text.bytes) < size);
    sbp_text_free(&text);
}

const int *random_levels(struct sbp_random *random)
{
    static const int meshes[][4] = {{2, 0},    {4, 0},    {2, 2, 0}, {6, 0},
                                    {2, 3, 0}, {3, 2, 0}, {8, 0},    {2, 2, 2, 0}};
    return meshes[below(random, (int)(sizeof meshes / sizeof meshes[0]))];
}
