#include "signature_plans.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

/* ---- models ---------------------------------------------------------------------------------- */

/* 'x' stands for "x", @N for N units, #N for N units less N, and $ for the target's kind and name.
 * Norms have several features, since those of two or three are steep. */
#define TOKENS "'sequence': @1, "
#define FLASH  TOKENS "'attention': 'flash', "
#define IMAGES "'input': {'height': @1, 'width': 3, 'channels': @1}, "
#define LOSS   "{'op': 'cross_entropy', 'name': 'loss'}"
#define FIRST  "{'op': 'linear', 'name': 'first', 'in': @1, 'out': @1, 'bias': true}, "
#define WIDE   "{'op': 'linear', 'name': 'first', 'in': @1, 'out': @3, 'bias': true}, "
#define LAST   ", {'op': 'linear', 'name': 'last', 'out': @1, 'bias': true}, " LOSS
#define FLAT   ", {'op': 'flatten', 'name': 'flat'}" LAST
#define HEADS  "{'op': 'linear', 'name': 'first', 'in': @1, 'out': @2, 'out_heads': @1}, "
#define QKV                                                                                        \
    "{'op': 'linear', 'name': 'first', 'in': @1, 'out': @6, 'out_heads': @1, 'bias': true}, "
#define CONVOLVED                                                                                  \
    "{'op': 'conv2d', 'name': 'first', 'out': @1, 'kernel': 3, 'padding': 1, 'bias': true}, "
#define GROUPED                                                                                    \
    "{'op': 'linear', 'name': 'q', 'inputs': ['input'], 'in': @1, 'out': @4, 'out_heads': @2}, "   \
    "{'op': 'linear', 'name': 'kv', 'inputs': ['input'], 'out': @4, 'out_heads': @1}, "            \
    "{$, 'inputs': ['q', 'kv'], 'heads': @2, 'kv_heads': @1, 'head_dim': 2"
#define LATENT                                                                                     \
    "{'op': 'linear', 'name': 'q', 'inputs': ['input'], 'in': @1, 'out': @3, 'out_heads': @1}, "   \
    "{'op': 'linear', 'name': 'kv', 'inputs': ['input'], 'out': @3, 'out_heads': @1}, "            \
    "{'op': 'linear', 'name': 'rope', 'inputs': ['input'], 'out': 2}, "                            \
    "{$, 'inputs': ['q', 'kv', 'rope'], 'heads': @1, 'nope': 1, 'rope': 2, 'value': 2"

const struct signature_model signature_models[] = {
    {SBP_OP_LINEAR, TOKENS, FIRST "{$, 'out': @1, 'bias': true}, " LOSS},
    {SBP_OP_LINEAR, TOKENS,
     "{'op': 'embedding', 'name': 'table', 'vocab': @2, 'hidden': @1}, {'op': 'gelu'}, "
     "{$, 'tied': 'table'}, " LOSS},
    {SBP_OP_RELU, TOKENS, FIRST "{$}" LAST},
    {SBP_OP_GELU, TOKENS, FIRST "{$}" LAST},
    {SBP_OP_TANH, TOKENS, FIRST "{$}" LAST},
    {SBP_OP_EMBEDDING, TOKENS, "{$, 'vocab': @2, 'hidden': @1, 'positions': @1, 'types': 2}" LAST},
    {SBP_OP_EMBEDDING, TOKENS,
     "{'op': 'embedding', 'name': 'wide', 'vocab': @1, 'hidden': @1}, {$, 'vocab': @3, 'hidden': "
     "@1}, {'op': 'add', 'name': 'sum', 'inputs': ['wide', 't']}" LAST},
    {SBP_OP_LAYERNORM, TOKENS, WIDE "{$}" LAST},
    {SBP_OP_LAYERNORM,
     TOKENS "'architecture': 'bert', 'layers': 1, 'hidden': @2, 'heads': @1, 'positions': @2, "
            "'vocab': #2, 'vocab_multiple': @1, 'types': 2, 'head': 'mlm'",
     NULL},
    {SBP_OP_ATTENTION, TOKENS, QKV "{$, 'heads': @1}" LAST},
    {SBP_OP_ATTENTION, FLASH, QKV "{$, 'heads': @1, 'causal': false, 'dropout': 0.3}" LAST},
    {SBP_OP_ATTENTION, FLASH, QKV "{$, 'heads': @1, 'context': 'ring'}" LAST},
    {SBP_OP_ADD, TOKENS,
     FIRST "{'op': 'linear', 'name': 'second', 'out': @1}, {$, 'inputs': ['first', "
           "'second']}" LAST},
    {SBP_OP_DROPOUT, TOKENS, FIRST "{$, 'p': 0.3}" LAST},
    {SBP_OP_CROSS_ENTROPY, TOKENS, FIRST "{$}"},
    {SBP_OP_CROSS_ENTROPY,
     TOKENS "'architecture': 'gpt', 'layers': 1, 'hidden': @2, 'heads': @1, 'vocab': #2, "
            "'vocab_multiple': @1, 'dropout': 0.1",
     NULL},
    {SBP_OP_RMSNORM, TOKENS, WIDE "{$}" LAST},
    {SBP_OP_SWIGLU, TOKENS, HEADS "{$}" LAST},
    {SBP_OP_ROTARY, TOKENS, HEADS "{$}" LAST},
    {SBP_OP_GROUPED_ATTENTION, TOKENS, GROUPED "}" LAST},
    {SBP_OP_GROUPED_ATTENTION, FLASH "'input': 'split', ",
     GROUPED ", 'sinks': true, 'window': 2, 'context': 'ring'}" LAST},
    {SBP_OP_LATENT_ATTENTION, TOKENS, LATENT "}" LAST},
    {SBP_OP_LATENT_ATTENTION, FLASH, LATENT ", 'context': 'ring', 'dropout': 0.3}" LAST},
    {SBP_OP_LATENT_ATTENTION,
     TOKENS "'architecture': 'deepseek', 'layers': 1, 'hidden': @2, 'heads': @1, 'q_rank': @2, "
            "'kv_rank': @2, 'nope': 2, 'rope': 2, 'value': 3, 'dense_layers': 1, 'ffn': @1, "
            "'experts': @1, 'top_k': 1, 'expert_ffn': @1, 'vocab': @2",
     NULL},
    {SBP_OP_CONV2D, IMAGES,
     CONVOLVED "{$, 'out': @1, 'kernel': 3, 'padding': 1, 'bias': true}" FLAT},
    {SBP_OP_CONV2D, "'input': {'height': @2, 'width': 3, 'channels': @1, 'split': true}, ",
     CONVOLVED "{$, 'out': @1, 'kernel': [3, 2], 'stride': [2, 1], 'padding': [1, 0]}" FLAT},
    {SBP_OP_BATCHNORM, IMAGES, CONVOLVED "{$}" FLAT},
    {SBP_OP_BATCHNORM, IMAGES,
     CONVOLVED "{'op': 'relu', 'name': 'x'}, {'op': 'conv2d', 'name': 'inner', 'out': @1, "
               "'kernel': 1}, {$}, {'op': 'add', 'name': 'sum', 'inputs': ['x', 't']}, "
               "{'op': 'maxpool', 'name': 'pool', 'kernel': [2, 1]}" FLAT},
    {SBP_OP_MAXPOOL, IMAGES, CONVOLVED "{$, 'kernel': 2, 'stride': 1, 'padding': 1}" FLAT},
    {SBP_OP_AVGPOOL, IMAGES, CONVOLVED "{$, 'kernel': 2, 'stride': 1}" FLAT},
    {SBP_OP_AVGPOOL, IMAGES, CONVOLVED "{$, 'global': true}" LAST},
    {SBP_OP_FLATTEN, IMAGES, CONVOLVED "{$}" LAST},
    {SBP_OP_PATCH_EMBEDDING, TOKENS "'input': {'height': 2, 'width': @2, 'channels': 2}, ",
     "{$, 'patch': 2, 'hidden': @1, 'class_token': false}" LAST},
    {SBP_OP_PATCH_EMBEDDING, TOKENS "'input': {'height': 2, 'width': #2, 'channels': 2}, ",
     "{$, 'patch': 2, 'hidden': @1}" LAST},
    {SBP_OP_MOE, TOKENS, FIRST "{$, 'experts': @1, 'top_k': 2, 'ffn': @1, 'capacity': 1.5}" LAST},
    {SBP_OP_MOE, TOKENS,
     FIRST "{$, 'experts': @2, 'top_k': 2, 'ffn': @1, 'scoring': 'sigmoid', 'router_bias': true, "
           "'expert_bias': true, 'expert_groups': @1, 'nodes_per_token': 1}" LAST},
    {SBP_OP_SUMMA_LINEAR, TOKENS, FIRST "{$, 'out': @1, 'bias': true}, " LOSS},
    {SBP_OP_HEAD_NORM, TOKENS, QKV "{$, 'size': 6}" LAST},
    {SBP_OP_HEAD_NORM,
     TOKENS "'architecture': 'llama', 'layers': 1, 'hidden': @2, 'heads': @2, 'kv_heads': @1, "
            "'head_dim': 4, 'ffn': @1, 'vocab': @2, 'qk_norm': true, 'sandwich_norm': true, "
            "'qkv_bias': true, 'window': 3",
     NULL},
    {SBP_OP_FIRST_TOKEN, TOKENS, FIRST "{$}" LAST},
    {SBP_OP_CUSTOM, TOKENS,
     FIRST "{$, 'out': @1, 'parameters': @1, 'roles': [{'name': 'batch', 'input': 'S0', "
           "'weight': 'B', 'output': 'S0'}], 'flops': {'forward': 1}}, " LOSS},
};

const int signature_model_count = (int)(sizeof signature_models / sizeof signature_models[0]);

/* Writes what a character stands for and returns its length, 0 where it stands for itself. */
static int expand(const char *at, const char *kind, int unit, char *text, size_t size)
{
    if (*at == '@' || *at == '#')
        return snprintf(text, size, "%d", (at[1] - '0') * (*at == '@' ? unit : unit - 1));
    if (*at == '$')
        return snprintf(text, size, "\"op\": \"%s\", \"name\": \"t\"", kind);
    return *at == '\'' ? snprintf(text, size, "\"") : 0;
}

void signature_model_text(const struct signature_model *model, int unit, char *text, int size)
{
    char form[4096];
    const char *kind = sbp_op(model->kind)->name;
    const bool has_layers = model->layers != NULL;
    int used = 0;
    (void)snprintf(form, sizeof form,
                   "{'name': '%s', 'optimizer': 'sgd', 'global_batch': @1, %s%s%s%s}", kind,
                   model->keys, has_layers ? "'layers': [" : "", has_layers ? model->layers : "",
                   has_layers ? "]" : "");
    for (const char *at = form; *at != '\0'; at++) {
        const int more = expand(at, kind, unit, text + used, (size_t)(size - used));
        assert_true(used + more + 1 < size);
        if (more == 0)
            text[used++] = *at;
        used += more;
        at += *at == '@' || *at == '#';
    }
    text[used] = '\0';
}

int signature_target(const struct plan *plan, enum sbp_op_kind kind)
{
    int target = -1;
    for (int op = 0; op < plan->graph.op_count; op++) {
        if (plan->graph.op[op].kind != kind)
            continue;
        target = op;
        if (strcmp(plan->graph.op[op].name, "t") == 0)
            return op;
    }
    assert_true(target >= 0);
    return target;
}

/* ---- strategies ------------------------------------------------------------------------------ */

/* The draws of one strategy give the target these roles. */
struct signature {
    struct plan *plan;
    int target;
    const int *role; /* (axes) */
    struct sbp_random *random;
};

static int below(const struct signature *s, int bound)
{
    return (int)sbp_random_below(s->random, (uint64_t)bound);
}

/* Whether operators that run where their input rests can run in a state; the target in its role. */
static bool readers_follow(const struct signature *s, int tensor, int axis, struct sbp_state state)
{
    const struct sbp_graph *graph = &s->plan->graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_entry *entry = graph->op[op].entry;
        bool follows = false;
        if (!entry->follows || graph->op[op].input[0] != tensor)
            continue;
        for (int r = 0; r < entry->role_count; r++)
            follows |= sbp_state_equal(entry->role[r].input[0], state) &&
                       (op != s->target || r == s->role[axis]);
        if (!follows)
            return false;
    }
    return true;
}

/* Any state in which the output of an operator may rest (strategy.h). */
static struct sbp_state draw_rest(const struct signature *s, int tensor, int axis,
                                  struct sbp_state output)
{
    const struct sbp_shape *shape = &s->plan->graph.tensor[tensor].shape;
    struct sbp_state state = output;
    for (int tries = 0; tries < 40; tries++) {
        const int what = below(s, 8);
        state = what < 3    ? output
                : what == 3 ? SBP_STATE_B
                : what == 4 ? SBP_STATE_M
                            : SBP_STATE_S((uint8_t)(what - 5));
        const bool other_split =
            output.kind == SBP_SPLIT && state.kind == SBP_SPLIT && state.dim != output.dim;
        const bool too_small = state.kind == SBP_SPLIT && shape->size[state.dim] == 1;
        if (!other_split && !too_small && readers_follow(s, tensor, axis, state))
            break;
    }
    return state;
}

/* A split input rests in splits alone; any other one rests nowhere (strategy.h). */
static void draw_input(const struct signature *s)
{
    const struct sbp_graph *graph = &s->plan->graph;
    if (!graph->input_split)
        return;
    for (int axis = 0; axis < s->plan->mesh.axis_count; axis++)
        s->plan->strategy.rest[graph->input].axis[axis] = SBP_STATE_S((uint8_t)below(s, 3));
}

static void draw_op(const struct signature *s, int op)
{
    struct plan *plan = s->plan;
    const struct sbp_op_node *node = &plan->graph.op[op];
    for (int axis = 0; axis < plan->mesh.axis_count; axis++)
        plan->strategy.op[op].role[axis] =
            (uint8_t)(op == s->target ? s->role[axis] : below(s, node->entry->role_count));
    if (node->output < 0)
        return;
    const struct sbp_dist output =
        sbp_strategy_output(&plan->graph, &plan->mesh, &plan->strategy, op);
    for (int axis = 0; axis < plan->mesh.axis_count; axis++)
        plan->strategy.rest[node->output].axis[axis] =
            draw_rest(s, node->output, axis, output.axis[axis]);
}

static bool has_roles(const struct signature *s)
{
    for (int axis = 0; axis < s->plan->mesh.axis_count; axis++)
        if (sbp_strategy_role(&s->plan->graph, &s->plan->strategy, s->target, axis) !=
            s->role[axis])
            return false;
    return true;
}

/* Whether a refusal is of the target: "strategy: NAME: why". */
static bool is_of_target(const struct signature *s, const struct sbp_diag *diag)
{
    char of[96];
    (void)snprintf(of, sizeof of, "strategy: %s: ", s->plan->graph.op[s->target].name);
    return strstr(diag->text, of) != NULL;
}

static bool draw_strategy(const struct signature *s, struct sbp_diag *why)
{
    enum { TRIES = 20000 };
    struct plan *plan = s->plan;
    bool is_said = false;
    for (int tries = 0; tries < TRIES; tries++) {
        struct sbp_diag diag = {0};
        draw_input(s);
        for (int op = 0; op < plan->graph.op_count; op++)
            draw_op(s, op);
        const bool legal =
            sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag) == SBP_OK;
        if (legal && has_roles(s))
            return true;
        if (!legal && (is_of_target(s, &diag) || !is_said))
            *why = diag;
        is_said |= is_of_target(s, &diag);
    }
    return false;
}

bool signature_plan(struct plan *plan, int target, const int *role, struct sbp_random *random,
                    struct sbp_diag *diag)
{
    const struct signature s = {plan, target, role, random};
    assert_int_equal(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), SBP_OK);
    if (!draw_strategy(&s, diag))
        return false;
    plan_step(plan, &plan->parallel, NULL, SBP_F64, &plan->step);
    plan->program = plan->step.program;
    return true;
}
