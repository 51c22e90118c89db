/* Mixtures of experts: one that is written out, gradients by differences, the judgement of a run's
 * choice of experts, faults, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costmodel/program/runnable.h"
#include "executor/verify/reference_priv.h"
#include "run_checks.h"

/* ---- written out ------------------------------------------------------------------------------
 */

enum { SEQUENCES = 8, PLACES = 4, TOKENS = SEQUENCES * PLACES, HIDDEN = 6, FFN = 8, EXPERTS = 8 };
enum { VOCABULARY = 16, MOST_TOP = 3 };

static const double *weight_of(struct sbp_reference *reference, const char *name)
{
    for (int t = 0; t < reference->graph.tensor_count; t++)
        if (strcmp(reference->graph.tensor[t].name, name) == 0)
            return sbp_reference_weight(reference, t);
    fail_msg("no weight %s", name);
    return NULL;
}

static void multiply(double *y, const double *x, const double *weight, int in, int out)
{
    for (int o = 0; o < out; o++) {
        y[o] = 0;
        for (int i = 0; i < in; i++)
            y[o] += x[i] * weight[i * out + o];
    }
}

/* Of all tokens: scores, what experts are ranked by, and these from the best one on; whether a copy
 * has a slot. */
struct routing {
    int experts, top_k, groups, nodes; /* groups 0: experts are of any */
    bool sigmoid, biased; /* biased: so are the experts, behind the router, in one weight */
    double score[TOKENS][EXPERTS], rank[TOKENS][EXPERTS];
    int expert[TOKENS][MOST_TOP];
    bool kept[TOKENS][MOST_TOP];
    int dropped;
};

/* Groups have two experts each, of which top_k / nodes count, rounded up. */
static double rank_of_group(const struct routing *r, int token, int group)
{
    const double *pair = &r->rank[token][2 * group];
    return r->top_k > r->nodes ? pair[0] + pair[1] : fmax(pair[0], pair[1]);
}

static void close_groups(const struct routing *r, int token, bool *taken)
{
    for (int g = 0; g < r->groups; g++) {
        int better = 0;
        for (int other = 0; other < r->groups; other++)
            better += rank_of_group(r, token, other) > rank_of_group(r, token, g);
        taken[2 * g] = taken[2 * g + 1] = better >= r->nodes;
    }
}

static void choose(struct routing *r, int token)
{
    bool taken[EXPERTS] = {false};
    close_groups(r, token, taken);
    for (int k = 0; k < r->top_k; k++) {
        int best = -1;
        for (int e = 0; e < r->experts; e++)
            if (!taken[e] && (best < 0 || r->rank[token][e] > r->rank[token][best]))
                best = e;
        taken[best] = true;
        r->expert[token][k] = best;
    }
}

/* Each group of tokens has `capacity` times its share of slots of an expert, rounded up; first
 * choices of all of its tokens come before second ones. */
static void deal(struct routing *r, int groups, double capacity)
{
    const int tokens = TOKENS / groups;
    const int slots = (int)ceil(tokens * r->top_k * capacity / r->experts - 1e-9);
    r->dropped = 0;
    for (int g = 0; g < groups; g++) {
        int used[EXPERTS] = {0};
        for (int k = 0; k < r->top_k; k++)
            for (int t = g * tokens; t < (g + 1) * tokens; t++) {
                r->kept[t][k] = used[r->expert[t][k]]++ < slots;
                r->dropped += !r->kept[t][k];
            }
    }
}

static double sigmoid(double score)
{
    return 1 / (1 + exp(-score));
}

static double weight_in_sum(const struct routing *r, int token, int k)
{
    double sum = 0;
    if (r->sigmoid) {
        for (int i = 0; i < r->top_k; i++)
            sum += sigmoid(r->score[token][r->expert[token][i]]);
        return sigmoid(r->score[token][r->expert[token][k]]) / (r->top_k > 1 ? sum : 1);
    }
    for (int i = 0; i < (r->top_k > 1 ? r->top_k : r->experts); i++)
        sum += exp(r->score[token][r->top_k > 1 ? r->expert[token][i] : i]);
    return exp(r->score[token][r->expert[token][k]]) / sum;
}

/* Biases of experts: of all first products, then of all second ones; zeros where there are none. */
static const double *biases_of(struct sbp_reference *reference, const struct routing *r, int expert,
                               bool second)
{
    static const double none[2 * FFN + HIDDEN] = {0};
    const int at =
        r->experts + (second ? r->experts * 2 * FFN + expert * HIDDEN : expert * 2 * FFN);
    return r->biased ? weight_of(reference, "moe.biases") + at : none;
}

static void add_expert(double *y, struct sbp_reference *reference, const struct routing *r,
                       const double *x, int expert, double weight)
{
    const double *bias = biases_of(reference, r, expert, false);
    double both[2 * FFN], gated[FFN], out[HIDDEN];
    multiply(both, x, weight_of(reference, "moe.first") + expert * HIDDEN * 2 * FFN, HIDDEN,
             2 * FFN);
    for (int i = 0; i < 2 * FFN; i++)
        both[i] += bias[i];
    bias = biases_of(reference, r, expert, true);
    for (int i = 0; i < FFN; i++)
        gated[i] = both[2 * i] / (1 + exp(-both[2 * i])) * both[2 * i + 1];
    multiply(out, gated, weight_of(reference, "moe.second") + expert * FFN * HIDDEN, FFN, HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        y[i] += weight * (out[i] + bias[i]);
}

static double loss_of_token(struct sbp_reference *reference, const double *x, int label)
{
    double logits[VOCABULARY], sum = 0;
    multiply(logits, x, weight_of(reference, "head.weight"), HIDDEN, VOCABULARY);
    for (int i = 0; i < VOCABULARY; i++)
        sum += exp(logits[i]);
    return log(sum) - logits[label];
}

static double written_out_loss(struct sbp_reference *reference, int groups, double capacity,
                               struct routing *r)
{
    const int32_t *ids = sbp_rank_buffer(&reference->rank, reference->program->ids_buffer[0]);
    const int32_t *labels = sbp_rank_buffer(&reference->rank, reference->program->labels_buffer);
    const double *table = weight_of(reference, "embed.table");
    const double *bias = weight_of(reference, r->biased ? "moe.biases" : "moe.router_bias");
    struct sbp_diag diag = {0};
    double loss = 0;
    expect_ok(sbp_rank_begin_micro_batch(&reference->rank, 0, &diag), &diag); /* ids, labels */
    for (int t = 0; t < TOKENS; t++) {
        multiply(r->score[t], table + ids[t] * HIDDEN, weight_of(reference, "moe.router"), HIDDEN,
                 r->experts);
        for (int e = 0; e < r->experts; e++) {
            r->score[t][e] += r->sigmoid ? 0 : bias[e];
            r->rank[t][e] = r->sigmoid ? sigmoid(r->score[t][e]) + bias[e] : r->score[t][e];
        }
        choose(r, t);
    }
    deal(r, groups, capacity);
    for (int t = 0; t < TOKENS; t++) {
        const double *x = table + ids[t] * HIDDEN;
        double y[HIDDEN];
        memcpy(y, x, sizeof y);
        for (int k = 0; k < r->top_k; k++)
            if (r->kept[t][k])
                add_expert(y, reference, r, x, r->expert[t][k], weight_in_sum(r, t, k));
        loss += loss_of_token(reference, y, labels[t]);
    }
    return loss / TOKENS;
}

/* Ways to choose take turns: by a softmax, by sigmoids, and of groups of two experts. */
enum { WAYS = 3 };

static struct routing routing_of(int top_k, int way)
{
    return (struct routing){.experts = EXPERTS,
                            .top_k = top_k,
                            .sigmoid = way > 0,
                            .biased = (top_k + way) % 2 == 1,
                            .groups = way == 2 ? EXPERTS / 2 : 0,
                            .nodes = way == 2 ? (top_k + 1) / 2 : 0};
}

static void write_router(char *text, const struct routing *r)
{
    (void)snprintf(text, 128, "%s", r->sigmoid ? ", \"scoring\": \"sigmoid\"" : "");
    if (r->groups > 0)
        (void)snprintf(text, 128,
                       ", \"scoring\": \"sigmoid\", \"expert_groups\": %d, \"nodes_per_token\": %d",
                       r->groups, r->nodes);
}

static void write_model(char *model, const struct routing *r, double capacity)
{
    char router[128];
    write_router(router, r);
    (void)snprintf(model, MODEL_BYTES,
                   "{\"name\": \"mixture\", \"global_batch\": %d, \"sequence\": %d, \"layers\": ["
                   "{\"op\": \"embedding\", \"name\": \"embed\", \"vocab\": 24, \"hidden\": %d}, "
                   "{\"op\": \"moe\", \"name\": \"moe\", \"experts\": %d, \"top_k\": %d, "
                   "\"ffn\": %d, \"capacity\": %g, \"router_bias\": true%s%s}, "
                   "{\"op\": \"add\", \"name\": \"sum\", \"inputs\": [\"embed\", \"moe\"]}, "
                   "{\"op\": \"linear\", \"name\": \"head\", \"out\": %d}, "
                   "{\"op\": \"cross_entropy\"}]}",
                   SEQUENCES, PLACES, HIDDEN, r->experts, r->top_k, FFN, capacity, router,
                   r->biased ? ", \"expert_bias\": true" : "", VOCABULARY);
}

/* The same role of every operator on all axes, but of the mixture. */
static void set_roles(struct plan *plan, const char *others, const char *mixture)
{
    struct sbp_diag diag = {0};
    expect_ok(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), &diag);
    for (int op = 0; op < plan->graph.op_count; op++)
        for (int axis = 0; axis < plan->mesh.axis_count; axis++) {
            const struct sbp_op_node *node = &plan->graph.op[op];
            const char *name = node->kind == SBP_OP_MOE ? mixture : others;
            plan->strategy.op[op].role[axis] = (uint8_t)sbp_op_role(node->entry, name);
            if (node->output >= 0)
                plan->strategy.rest[node->output].axis[axis] = SBP_STATE_S(SBP_DIM_BATCH);
        }
    expect_ok(sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag), &diag);
    plan_step(plan, &plan->parallel, NULL, SBP_F64, &plan->step);
    plan->program = plan->step.program;
}

static void open_reference(struct sbp_reference *reference, const struct plan *plan,
                           const struct sbp_step *step, uint64_t of_seed)
{
    struct sbp_diag diag = {0};
    const struct sbp_reference_of of = {.graph = &plan->graph,
                                        .cluster = &plan->cluster,
                                        .step = step,
                                        .seed = of_seed,
                                        .real = SBP_F64};
    expect_ok(sbp_reference_open(reference, &of, &diag), &diag);
    assert_int_equal(sbp_rank_fill_weights(&reference->rank), SBP_OK);
    assert_int_equal(sbp_rank_fill_weights(&reference->shadow), SBP_OK);
}

static double run_reference(struct sbp_reference *reference)
{
    struct sbp_diag diag = {0};
    expect_ok(sbp_reference_run(reference, 1, &diag), &diag);
    return reference->loss;
}

static void expect_loss(const char *what, double loss, double written_out)
{
    if (!(fabs(loss - written_out) <= 1e-12 * fabs(written_out)))
        fail_msg("seed %llu, %s: loss %.17g, written out %.17g", (unsigned long long)seed, what,
                 loss, written_out);
}

/* On one device, and on four, whose tokens are groups of their own. How many copies are dropped. */
static int check_written_out(struct routing *routing, double capacity, const char *role,
                             struct sbp_random *random)
{
    char model[MODEL_BYTES];
    const struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_reference reference;
    struct sbp_run_result result;
    struct plan plan;
    write_model(model, routing, capacity);
    plan_open(&plan, model, (const int[]){4, 0});
    set_roles(&plan, "batch", role);
    open_reference(&reference, &plan, NULL, options.seed);
    const double loss = run_reference(&reference);
    expect_loss("one device", loss, written_out_loss(&reference, 1, capacity, routing));
    int dropped = routing->dropped;
    run_plan(&plan, &options, model, &result);
    assert_false(result.finding.found);
    expect_loss(role, result.step[0].loss, written_out_loss(&reference, 4, capacity, routing));
    dropped += routing->dropped;
    sbp_run_free(&result);
    sbp_reference_close(&reference);
    plan_close(&plan);
    return dropped;
}

static void a_mixture_is_what_is_written_out(void **state)
{
    static const char *const roles[] = {"batch", "expert"};
    struct sbp_random random;
    int dropped = 0;
    (void)state;
    sbp_random_seed(&random, seed + 720);
    for (int top_k = 1; top_k <= MOST_TOP; top_k++)
        for (int way = 0; way < 2 * WAYS; way++) {
            struct routing routing = routing_of(top_k, way % WAYS);
            const int i = way / WAYS;
            dropped += check_written_out(&routing, 1 + 0.25 * i, roles[i], &random);
        }
    print_message("seed %llu: %d copies dropped\n", (unsigned long long)seed, dropped);
    assert_true(dropped > 20);
}

/* A router's bias of one expert has the rows that biases of experts have: one. */
static void one_expert_is_what_is_written_out(void **state)
{
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 725);
    for (int way = 0; way < 4; way++) {
        struct routing routing = {
            .experts = 1, .top_k = 1, .sigmoid = way % 2 == 1, .biased = way / 2 == 1};
        assert_int_equal(check_written_out(&routing, 1, "batch", &random), 0);
    }
}

/* ---- gradients by differences ------------------------------------------------------------------
 */

static double loss_with(struct sbp_reference *reference, double *weight, double value)
{
    const double kept = *weight;
    *weight = value;
    const double loss = run_reference(reference);
    *weight = kept;
    return loss;
}

static double difference(struct sbp_reference *reference, double *weight, double h)
{
    return (loss_with(reference, weight, *weight + h) - loss_with(reference, weight, *weight - h)) /
           (2 * h);
}

/* Of a random element of a weight; 1: it has been held, and is not 0. Where two widths differ a
 * token changes its experts in between. */
static int check_gradient(struct sbp_reference *reference, struct sbp_random *random, int tensor)
{
    static const double H = 0x1p-14;
    const int buffer = reference->program->weight_buffer[tensor];
    const int64_t elements = reference->program->buffer[buffer].elements;
    const int64_t at = (int64_t)sbp_random_below(random, (uint64_t)elements);
    (void)run_reference(reference);
    const double gradient = sbp_reference_gradient(reference, tensor)[at];
    double *const weight = &sbp_reference_weight(reference, tensor)[at];
    const double near = difference(reference, weight, H),
                 far = difference(reference, weight, 2 * H);
    if (fabs(near - far) > 1e-6 * (fabs(near) + 1e-3))
        return 0;
    if (!(fabs(gradient - near) <= 2e-6 * (fabs(near) + 1e-3)))
        fail_msg("seed %llu, %s, element %lld: gradient %.12g, central difference %.12g",
                 (unsigned long long)seed, reference->graph.tensor[tensor].name, (long long)at,
                 gradient, near);
    return gradient != 0;
}

static void gradients_are_differences(void **state)
{
    enum { PICKS = 8 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 730);
    for (int way = 0; way < WAYS * MOST_TOP; way++) {
        const struct routing routing = routing_of(1 + way / WAYS, way % WAYS);
        struct sbp_reference reference;
        struct plan plan;
        write_model(model, &routing, 1.25);
        plan_open(&plan, model, (const int[]){2, 0});
        open_reference(&reference, &plan, NULL, seed);
        for (int t = 0; t < reference.graph.tensor_count; t++) {
            int held = 0;
            for (int i = 0; i < PICKS && reference.program->weight_buffer[t] >= 0; i++)
                held += check_gradient(&reference, &random, t);
            const bool chooses =
                routing.sigmoid && !routing.biased && t == plan.graph.op[1].weight[3];
            if (reference.program->weight_buffer[t] >= 0 && (held == 0) != chooses)
                fail_msg("seed %llu: no element of %s held", (unsigned long long)seed,
                         reference.graph.tensor[t].name);
        }
        sbp_reference_close(&reference);
        plan_close(&plan);
    }
}

/* ---- the judgement of choices ------------------------------------------------------------------
 */

struct judged {
    int near[2], far[2]; /* in single, in double precision */
};

static void judge(void *context, int op, int64_t copy, double run, double best,
                  const struct sbp_reference_score *size)
{
    static const double u[] = {0x1p-24, 0x1p-53};
    struct judged *judged = context;
    (void)op;
    (void)copy;
    for (int i = 0; i < 2; i++) {
        const double inherited = i == 0 ? size->inherited * 0x1p-24 / 0x1p-53 : size->inherited;
        const double bound = 8 * (sqrt(size->terms) * u[i] * size->sum + inherited);
        (fabs(run - best) <= bound ? judged->near : judged->far)[i]++;
    }
}

/* Gives every token the experts that it chooses itself, but for one copy, which goes to `expert`.
 */
static void give(struct sbp_reference *reference, int op, const struct routing *r, int token, int k,
                 int expert)
{
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < r->top_k; i++) {
            int32_t *const copy = reference->given.table[op] + 2 * (t * r->top_k + i);
            copy[0] = t == token && i == k ? expert : r->expert[t][i];
            copy[1] = -1; /* slots are not judged */
        }
}

/* A copy that goes to the worst expert is far from right in any precision. One that goes to an
 * expert that is as good as the best but for round-off of single precision is right there, and
 * wrong in double. */
static void choices_are_judged(void **state)
{
    char model[MODEL_BYTES];
    struct routing routing = routing_of(2, 0);
    struct sbp_reference reference;
    struct judged judged = {{0}, {0}};
    struct plan plan;
    const int op = 1;
    (void)state;
    write_model(model, &routing, 1);
    plan_open(&plan, model, (const int[]){2, 0});
    set_roles(&plan, "batch", "batch");
    open_reference(&reference, &plan, &plan.step, seed);
    give(&reference, op, &routing, -1, 0, 0);
    (void)run_reference(&reference); /* for the ids */
    (void)written_out_loss(&reference, 1, 1, &routing);
    reference.judge = judge;
    reference.judge_context = &judged;
    give(&reference, op, &routing, -1, 0, 0);
    (void)run_reference(&reference);
    assert_int_equal(judged.near[0] + judged.far[0], 0);
    int worst = 0;
    for (int e = 0; e < EXPERTS; e++)
        worst = routing.score[5][e] < routing.score[5][worst] ? e : worst;
    give(&reference, op, &routing, 5, 1, worst);
    (void)run_reference(&reference);
    assert_int_equal(judged.far[0], 1);
    assert_int_equal(judged.far[1], 1);
    const int second = routing.expert[5][1];
    double *const bias = sbp_reference_weight(&reference, plan.graph.op[op].weight[3]);
    bias[worst] += routing.score[5][second] - routing.score[5][worst] - 0x1p-28;
    judged = (struct judged){{0}, {0}};
    (void)written_out_loss(&reference, 1, 1, &routing);
    give(&reference, op, &routing, 5, 1, worst);
    (void)run_reference(&reference);
    assert_int_equal(judged.near[0], 1);
    assert_int_equal(judged.far[1], 1);
    sbp_reference_close(&reference);
    plan_close(&plan);
}

/* The same of a token that takes both experts of one group, which is the worst of four, or as good
 * as the best but for round-off of single precision. */
static void groups_are_judged(void **state)
{
    char model[MODEL_BYTES];
    struct routing routing = routing_of(2, 2);
    struct sbp_reference reference;
    struct judged judged = {{0}, {0}};
    struct plan plan;
    const int op = 1;
    (void)state;
    write_model(model, &routing, 1);
    plan_open(&plan, model, (const int[]){2, 0});
    set_roles(&plan, "batch", "batch");
    open_reference(&reference, &plan, &plan.step, seed);
    give(&reference, op, &routing, -1, 0, 0);
    (void)run_reference(&reference); /* for the ids */
    double *const bias = sbp_reference_weight(&reference, plan.graph.op[op].weight[3]);
    reference.judge = judge;
    reference.judge_context = &judged;
    for (int near = 0; near < 2; near++) {
        (void)written_out_loss(&reference, 1, 1, &routing);
        give(&reference, op, &routing, -1, 0, 0);
        (void)run_reference(&reference);
        assert_int_equal(judged.near[0] + judged.far[0], 0);
        int worst = 0;
        for (int g = 0; g < routing.groups; g++)
            worst = rank_of_group(&routing, 5, g) < rank_of_group(&routing, 5, worst) ? g : worst;
        const double off = rank_of_group(&routing, 5, routing.expert[5][0] / 2) -
                           rank_of_group(&routing, 5, worst);
        for (int i = 0; i < 2 && near; i++)
            bias[2 * worst + i] += (off - 0x1p-28) / 2;
        (void)written_out_loss(&reference, 1, 1, &routing);
        const double *rank = routing.rank[5] + 2 * worst;
        routing.expert[5][0] = 2 * worst + (rank[1] > rank[0]);
        routing.expert[5][1] = 2 * worst + (rank[1] <= rank[0]);
        give(&reference, op, &routing, -1, 0, 0);
        (void)run_reference(&reference);
        assert_int_equal(judged.near[0], near);
        assert_int_equal(judged.far[0], 1 - near);
        assert_int_equal(judged.far[1], 1);
        judged = (struct judged){{0}, {0}};
    }
    sbp_reference_close(&reference);
    plan_close(&plan);
}

/* Half of many experts chosen: in 16 bits some are ranked otherwise than in double. */
static void near_ties_are_no_alarm(void **state)
{
    static const char model[] =
        "{\"name\": \"ties\", \"global_batch\": 16, \"sequence\": 16, \"input\": \"free\", "
        "\"layers\": [{\"op\": \"linear\", \"name\": \"in\", \"in\": 16, \"out\": 16}, "
        "{\"op\": \"moe\", \"name\": \"moe\", \"experts\": 128, \"top_k\": 64, \"ffn\": 2}, "
        "{\"op\": \"linear\", \"name\": \"out\", \"out\": 8}]}";
    static const enum sbp_real reals[] = {SBP_REAL_BF16, SBP_F32};
    struct sbp_random random;
    double worst = 0;
    (void)state;
    sbp_random_seed(&random, seed + 740);
    for (int i = 0; i < 2; i++) {
        struct plan plan;
        plan_open(&plan, model, (const int[]){4, 0});
        plan_randomise(&plan, &random, false, SBP_BOXING_FULL, reals[i]);
        struct sbp_run_options options = options_for(reals[i], &random);
        options.steps = 1;
        check_run(&plan, &options, model, &worst);
        plan_close(&plan);
    }
    print_message("seed %llu: largest difference / bound %.3f\n", (unsigned long long)seed, worst);
}

/* ---- faults ------------------------------------------------------------------------------------
 */

static int find_instr(const struct plan *plan, enum sbp_instr_kind kind, enum sbp_section section,
                      int phase)
{
    for (int i = 0; i < plan->program->instr_count; i++) {
        const struct sbp_instr *instr = &plan->program->instr[i];
        if (instr->kind == kind && instr->section == section && instr->phase == phase &&
            instr->op >= 0 && plan->graph.op[instr->op].kind == SBP_OP_MOE)
            return i;
    }
    fail_msg("no such instruction");
    return -1;
}

static void expect_fault(const struct plan *plan, struct sbp_random *random, const char *model,
                         enum sbp_fault fault, int instr, const char *what)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    char text[512];
    plant_fault(&options, fault, 0, instr);
    run_plan(plan, &options, model, &result);
    if (!result.finding.found || (what != NULL && strcmp(result.finding.what, what) != 0))
        fail_msg("fault %d in instruction %d: %s", (int)fault, instr,
                 result.finding.found
                     ? sbp_verify_finding_text(&result.finding, text, (int)sizeof text)
                     : "went unnoticed");
    sbp_run_free(&result);
}

static void faults_are_found(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct plan plan;
    (void)state;
    sbp_random_seed(&random, seed + 750);
    const struct routing routing = routing_of(2, 0);
    write_model(model, &routing, 1.5);
    plan_open(&plan, model, (const int[]){4, 0});
    set_roles(&plan, "batch", "expert");
    const enum sbp_section there = SBP_SECTION_FORWARD, back = SBP_SECTION_BACKWARD;
    for (int phase = 0; phase < 2; phase++) {
        expect_fault(&plan, &random, model, SBP_FAULT_SKIP,
                     find_instr(&plan, SBP_INSTR_INNER, there, phase), NULL);
        expect_fault(&plan, &random, model, SBP_FAULT_SKIP,
                     find_instr(&plan, SBP_INSTR_INNER, back, phase), "gradient");
    }
    expect_fault(&plan, &random, model, SBP_FAULT_SCALE,
                 find_instr(&plan, SBP_INSTR_FORWARD, there, 2), NULL);
    expect_fault(&plan, &random, model, SBP_FAULT_SCALE,
                 find_instr(&plan, SBP_INSTR_BACKWARD, back, 2), "gradient");
    expect_fault(&plan, &random, model, SBP_FAULT_SLOT,
                 find_instr(&plan, SBP_INSTR_FORWARD, there, 0), "slot of a token's copy");
    plan_close(&plan);
}

/* ---- refusals ----------------------------------------------------------------------------------
 */

static void expect_refused(const char *key, const char *word)
{
    char model[MODEL_BYTES];
    struct sbp_diag diag = {0};
    struct plan plan;
    (void)snprintf(
        model, sizeof model,
        "{\"name\": \"refused\", \"global_batch\": 8, \"layers\": ["
        "{\"op\": \"linear\", \"name\": \"in\", \"in\": 8, \"out\": 8}, {\"op\": \"moe\", "
        "\"name\": \"mix\", \"experts\": 8, \"top_k\": 2, \"ffn\": 8%s}]}",
        key);
    plan_open(&plan, model, (const int[]){2, 0});
    const enum sbp_status status = sbp_runnable_check(&plan.graph, &plan.parallel, &diag);
    if (word == NULL)
        expect_ok(status, &diag);
    else if (status != SBP_E_UNSUPPORTED || strstr(diag.text, word) == NULL ||
             strstr(diag.text, "mix: ") == NULL)
        fail_msg("%s: %s", key, diag.text);
    plan_close(&plan);
}

static void what_does_not_run_is_refused(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    struct plan plan;
    (void)state;
    expect_refused(", \"router_bias\": true", NULL);
    expect_refused(", \"gated\": false", "without gates");
    expect_refused(", \"nodes_per_token\": 1", "a limit of the nodes");
    expect_refused(", \"expert_bias\": true", NULL);
    sbp_random_seed(&random, seed + 760);
    const struct routing routing = routing_of(2, 0);
    write_model(model, &routing, 1);
    plan_open(&plan, model, (const int[]){2, 0});
    set_roles(&plan, "batch", "batch");
    struct sbp_run_options options = options_for(SBP_F64, &random);
    options.sampled = true;
    assert_int_equal(sbp_run(&plan.step, &plan.cluster, &options, &result, &diag),
                     SBP_E_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "operator moe: --verify=sampled"));
    plan_close(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mixture_is_what_is_written_out),
        cmocka_unit_test(one_expert_is_what_is_written_out),
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(choices_are_judged),
        cmocka_unit_test(groups_are_judged),
        cmocka_unit_test(near_ties_are_no_alarm),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(what_does_not_run_is_refused),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
