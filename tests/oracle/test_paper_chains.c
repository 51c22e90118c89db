/* The search with the paper's boxing against closed formulas of AutoDDL on unlabelled tuples, over
 * random chains of linear layers. */
#include <math.h>
#include <stdio.h>

#include "planner/plan/plan.h"
#include "oracle_plan.h"
#include "search_check.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

struct tuple {
    double p[3]; /* batch, column, row */
};

/* One flat level; seconds of ring collectives over g members (AutoDDL, table 2). */
struct link {
    double alpha_s, beta_s_per_byte;
};

static double one_way_s(const struct link *link, double g, double bytes)
{
    return g <= 1 ? 0 : (g - 1) * link->alpha_s + (g - 1) / g * bytes * link->beta_s_per_byte;
}

struct paper_chain {
    int layers, tuples;
    double devices, tokens;
    double size[6]; /* size[i], size[i + 1]: input and output features of layer i */
    bool bias[5], input_split;
    struct link link;
    struct tuple tuple[256];
};

static int64_t whole_gcd(int64_t a, int64_t b)
{
    return b == 0 ? a : whole_gcd(b, a % b);
}

/* Within a layer: reduce-scatter of the output over p2, all-gather of the input over p1, each
 * answered by its dual in backward; gradients of weight and bias are all-reduced over p0. */
static double paper_layer_s(const struct paper_chain *chain, int layer, const struct tuple *t)
{
    const double fp32 = 4, in = chain->size[layer], out = chain->size[layer + 1];
    double total =
        2 * one_way_s(&chain->link, t->p[2], fp32 * chain->tokens * out / (t->p[0] * t->p[1]));
    if (layer > 0 || chain->input_split)
        total +=
            2 * one_way_s(&chain->link, t->p[1], fp32 * chain->tokens * in / (t->p[0] * t->p[2]));
    total += 2 * one_way_s(&chain->link, t->p[0], fp32 * in * out / (t->p[1] * t->p[2]));
    if (chain->bias[layer])
        total += 2 * one_way_s(&chain->link, t->p[0], fp32 * out / t->p[1]);
    return total;
}

/* Between two layers: nothing where p0 = p0' or p1 = p2', else an all-to-all, forward and back. */
static double paper_edge_s(const struct paper_chain *chain, int layer, const struct tuple *a,
                           const struct tuple *b)
{
    if (a->p[0] == b->p[0] || a->p[1] == b->p[2])
        return 0;
    const int64_t p = (int64_t)a->p[0], q = (int64_t)b->p[0], gcd = whole_gcd(p, q);
    const int64_t members = p / gcd * (q / gcd);
    return 2 * one_way_s(&chain->link, (double)members,
                         4 * chain->tokens * chain->size[layer + 1] / chain->devices);
}

static double paper_least(const struct paper_chain *chain, int layer, const struct tuple *last)
{
    if (layer == chain->layers)
        return 0;
    double least = INFINITY;
    for (int t = 0; t < chain->tuples; t++) {
        const struct tuple *const here = &chain->tuple[t];
        double cost = paper_layer_s(chain, layer, here);
        if (last != NULL)
            cost += paper_edge_s(chain, layer - 1, last, here);
        least = fmin(least, cost + paper_least(chain, layer + 1, here));
    }
    return least;
}

static void draw_paper_chain(struct sbp_random *random, int devices, struct paper_chain *chain,
                             struct small_text *model, struct small_text *cluster)
{
    static const int sizes[] = {144, 288, 576, 1152, 4608};
    *chain = (struct paper_chain){.layers = 2 + (int)sbp_random_below(random, 3),
                                  .devices = devices,
                                  .tokens = sizes[sbp_random_below(random, 5)],
                                  .input_split = sbp_random_below(random, 2) == 0,
                                  .link = {1e-8 * (double)(1 + sbp_random_below(random, 1000)),
                                           1e-11 * (double)(1 + sbp_random_below(random, 50))}};
    for (int p0 = 1; p0 <= devices; p0++)
        for (int p1 = 1; p0 * p1 <= devices; p1++)
            if (devices % (p0 * p1) == 0)
                chain->tuple[chain->tuples++] =
                    (struct tuple){{p0, p1, devices / (double)(p0 * p1)}};
    for (int i = 0; i <= chain->layers; i++)
        chain->size[i] = sizes[sbp_random_below(random, 5)];
    *model = *cluster = (struct small_text){.length = 0};
    int at = snprintf(model->text, sizeof model->text,
                      "{\"name\": \"chain\", \"global_batch\": %.0f, \"input\": \"%s\", "
                      "\"layers\": [",
                      chain->tokens, chain->input_split ? "split" : "free");
    for (int i = 0; i < chain->layers; i++) {
        chain->bias[i] = sbp_random_below(random, 3) == 0;
        at += snprintf(model->text + at, sizeof model->text - (size_t)at,
                       "%s{\"op\": \"linear\", \"in\": %.0f, \"out\": %.0f, \"bias\": %s}",
                       i > 0 ? ", {\"op\": \"relu\"}, " : "", chain->size[i], chain->size[i + 1],
                       chain->bias[i] ? "true" : "false");
    }
    snprintf(model->text + at, sizeof model->text - (size_t)at, "]}");
    snprintf(cluster->text, sizeof cluster->text,
             "{\"name\": \"flat\", \"levels\": [{\"name\": \"node\", \"size\": %d, \"alpha_s\": "
             "%.17g, \"beta_s_per_byte\": %.17g}], \"device\": {\"memory_bytes\": 1e15, "
             "\"flops\": {\"fp32\": 1e12}, \"memory_bytes_per_s\": 1e12}}",
             devices, chain->link.alpha_s, chain->link.beta_s_per_byte);
}

static void test_paper_chains(void **state)
{
    (void)state;
    static const int devices[] = {2, 3, 4, 6, 8, 12, 16};
    int full_cheaper = 0, run = 0;
    for (uint64_t seed = 0; seed < 140; seed++) {
        struct sbp_random random;
        sbp_random_seed(&random, seed);
        struct small_instance instance = {.seed = seed,
                                          .request = {.space = SBP_SPACE_AUTODDL,
                                                      .quick = true,
                                                      .objective = SBP_COMMUNICATION,
                                                      .boxing = SBP_BOXING_PAPER}};
        struct paper_chain chain;
        draw_paper_chain(&random, devices[seed % 7], &chain, &instance.model.text,
                         &instance.cluster);
        begin_plan(parsed(instance.model.text.text), parsed(instance.cluster.text), &instance.plan);
        instance.request.solver = sbp_solver_find("exact");
        struct sbp_outcome outcome;
        struct sbp_diag diag = {{0}};
        if (solve_plan(&instance.plan, &instance.request, &outcome, &diag) != SBP_OK)
            small_instance_complain(&instance, "%s", diag.text);
        const double least = paper_least(&chain, 0, NULL);
        if (!is_close(outcome.objective_s, least) || outcome.status != SBP_PLAN_OPTIMAL)
            small_instance_complain(&instance, "%s %.17g, closed formula %.17g",
                                    sbp_solver_status_name(outcome.status), outcome.objective_s,
                                    least);
        check_plan(&instance, &outcome);
        instance.request.boxing = SBP_BOXING_FULL;
        if (solve_plan(&instance.plan, &instance.request, &outcome, &diag) != SBP_OK)
            small_instance_complain(&instance, "%s", diag.text);
        if (outcome.objective_s > least * (1 + CLOSE))
            small_instance_complain(&instance, "boxing=full %.17g above boxing=paper %.17g",
                                    outcome.objective_s, least);
        full_cheaper += outcome.objective_s < least * (1 - CLOSE);
        run++;
        sbp_plan_free(&instance.plan);
    }
    print_message(
        "paper boxing: %d chains equal the closed formula; full boxing is cheaper for %d\n", run,
        full_cheaper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_paper_chains)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
