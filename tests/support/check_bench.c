#include <string.h>

#include <cjson/cJSON.h>

#include "planner/plan/plan.h"
#include "tests/support/check_bench.h"
#include "tests/support/solve_plan.h"
#include "tests/support/unit.h"

#define TWO                                                                                        \
    "{\"name\": \"two\", \"levels\": [" LEVEL(                                                     \
        "node", 2, "\"beta_s_per_byte\": 1e-9, \"ports\": 1") ", " LEVEL("rank", 4,                \
                                                                         "\"beta_s_per_byte\": "   \
                                                                         "1e-10") "], " DEVICE "}"
/* Launches take longer than the states' way to the host and back. */
#define LAUNCHING                                                                                  \
    "{\"name\": \"launching\", \"levels\": [" LEVEL(                                               \
        "rank", 4,                                                                                 \
        "\"beta_s_per_byte\": 1e-9") "], "                                                         \
                                     "\"device\": {\"memory_bytes\": 1e12, \"flops\": {\"fp32\": " \
                                     "1e12, \"bf16\": 4e12},"                                      \
                                     "\"memory_bytes_per_s\": 1e11, \"host_link_bytes_per_s\": "   \
                                     "1e10, \"kernel_launch_s\": 1e-3}}"
#define SIX                                                                                        \
    "{\"name\": \"six\", \"collectives\": \"hierarchical\", \"levels\": [" LEVEL(                  \
        "node", 2,                                                                                 \
        "\"beta_s_per_byte\": 1e-9") ", " LEVEL("rank", 3,                                         \
                                                "\"beta_s_per_byte\": 1e-10") "], " DEVICE "}"
#define TWELVE                                                                                     \
    "{\"name\": \"twelve\", \"levels\": [" LEVEL(                                                  \
        "node", 6, "\"beta_s_per_byte\": 1e-9") ", " LEVEL("rank", 2,                              \
                                                           "\"beta_s_per_byte\": "                 \
                                                           "1e-10") "], " DEVICE "}"

/* Everything that a device may say of what it reaches. */
#define RATED(more)                                                                                \
    "{\"name\": \"rated\", \"levels\": [" LEVEL(                                                   \
        "rank", 4,                                                                                 \
        "\"beta_s_per_byte\": 1e-9") "], "                                                         \
                                     "\"device\": {\"memory_bytes\": 1e12, \"flops\": {\"fp32\": " \
                                     "1e12, \"bf16\": 4e12},"                                      \
                                     "\"memory_bytes_per_s\": 1e11, \"kernel_launch_s\": 1e-7, "   \
                                     "\"stream_efficiency\": 0.7, \"vector_operations_per_s\": "   \
                                     "1e11,"                                                       \
                                     "\"sustained\": 0.9, \"alignment\": {\"multiple\": 8, "       \
                                     "\"efficiency\": 0.8}, \"gemm_grids\":"                       \
                                     "[{\"m\": [4, 64], \"n\": [4, 64], \"k\": [8], "              \
                                     "\"efficiency\": [0.01, 0.02, 0.04, 0.1]},"                   \
                                     "{\"type\": \"bf16\", \"pass\": \"weight_gradient\", \"m\": " \
                                     "[1], \"n\": [1], \"k\": [1, 99],"                            \
                                     "\"efficiency\": [0.01, 0.05]}], \"pass_efficiency\": "       \
                                     "{\"input_gradient\": 0.6},"                                  \
                                     "\"grouped_efficiency\": {\"forward\": 0.5, "                 \
                                     "\"weight_gradient\": 0.4}, \"attention_grids\":"             \
                                     "[{\"head_size\": [2], \"sequence\": [4, 24], \"rows\": [9, " \
                                     "99], \"efficiency\":"                                        \
                                     "[0.001, 0.002, 0.003, 0.005]}],"                             \
                                     "\"dispatch_efficiency\": {\"row_bytes\": [64, 512], "        \
                                     "\"efficiency\": [0.2, 0.6]}" more "}}"
#define UNFUSED                                                                                    \
    ", \"unfused_attention\": {\"forward_passes\": 6.5, \"backward_passes\": 9.5, "                \
    "\"efficiency\": 0.6}"

#define GPT(layers)                                                                                \
    "{\"name\": \"gpt\", \"architecture\": \"gpt\", \"layers\": " #layers ", \"hidden\": 24,"      \
    "\"heads\": 12, \"sequence\": 12, \"vocab\": 48, \"global_batch\": 48, \"dropout\": 0.1,"      \
    "\"precision\": \"mixed\", \"clip_norm\": 1}"
#define MIXTRAL                                                                                    \
    "{\"name\": \"mixtral\", \"architecture\": \"mixtral\", \"layers\": 2, \"hidden\": 24,"        \
    "\"heads\": 12, \"kv_heads\": 12, \"ffn\": 48, \"experts\": 12, \"top_k\": 2,"                 \
    "\"sequence\": 12, \"vocab\": 48, \"global_batch\": 24}"
#define DEEPSEEK                                                                                   \
    "{\"name\": \"deepseek\", \"architecture\": \"deepseek\", \"layers\": 2, \"hidden\": 24,"      \
    "\"heads\": 12, \"kv_rank\": 12, \"nope\": 4, \"rope\": 2, \"value\": 4, \"ffn\": 48,"         \
    "\"experts\": 12, \"top_k\": 2, \"expert_ffn\": 12, \"shared_experts\": 1, \"sequence\": 12,"  \
    "\"vocab\": 48, \"global_batch\": 24}"
#define GRID                                                                                       \
    "{\"name\": \"grid\", \"global_batch\": 48, \"optimizer\": \"sgd\", \"layers\": ["             \
    "{\"op\": \"summa_linear\", \"in\": 48, \"out\": 48, \"bias\": true}, {\"op\": \"gelu\"},"     \
    "{\"op\": \"linear\", \"name\": \"a\", \"in\": 48, \"out\": 48},"                              \
    "{\"op\": \"linear\", \"name\": \"b\", \"in\": 48, \"out\": 48},"                              \
    "{\"op\": \"add\", \"inputs\": [\"a\", \"b\"]}]}"
/* Two linears read a norm. */
#define NORMED                                                                                     \
    "{\"name\": \"normed\", \"global_batch\": 48, \"sequence\": 24, \"features\": 48, "            \
    "\"layers\": ["                                                                                \
    "{\"op\": \"linear\", \"name\": \"u\", \"out\": 48}, {\"op\": \"rmsnorm\", \"name\": \"n\"},"  \
    "{\"op\": \"linear\", \"name\": \"q\", \"inputs\": [\"n\"], \"out\": 96},"                     \
    "{\"op\": \"linear\", \"name\": \"k\", \"inputs\": [\"n\"], \"out\": 96},"                     \
    "{\"op\": \"add\", \"inputs\": [\"q\", \"k\"]}, {\"op\": \"linear\", \"out\": 48}, {\"op\": "  \
    "\"cross_entropy\"}]}"

static const struct setting SETTINGS[] = {
    {SBP_BOXING_FULL, GPT(2), RATED(UNFUSED), "{\"recompute\": \"selective\"}"},
    {SBP_BOXING_FULL, GPT(2), RATED(""), "{\"micro_batch\": 24}"},
    {SBP_BOXING_FULL, LLAMA, RATED(UNFUSED), "{\"zero\": 2}"},
    {SBP_BOXING_FULL, MIXTRAL, RATED(""), "{}"},
    {SBP_BOXING_FULL, GPT(2), FLAT, "{}"},
    {SBP_BOXING_FULL, GPT(2), TWO, "{\"zero\": 1, \"micro_batch\": 24, \"gradient_overlap\": 0.5}"},
    {SBP_BOXING_FULL, GPT(4), TWO, "{\"pipeline\": 2, \"micro_batch\": 12, \"zero\": 2}"},
    {SBP_BOXING_FULL, GPT(4), TWO,
     "{\"pipeline\": 4, \"micro_batch\": 12, \"recompute\": \"full\"}"},
    {SBP_BOXING_FULL, GPT(4), TWO,
     "{\"pipeline\": 2, \"micro_batch\": 12, \"schedule\": \"gpipe\", \"zero\": 3}"},
    {SBP_BOXING_FULL, GPT(4), TWO,
     "{\"pipeline\": 2, \"micro_batch\": 12, \"schedule\": \"interleaved\", \"chunks\": 2}"},
    {SBP_BOXING_FULL, GPT(2), TWO,
     "{\"zero\": 3, \"gather_blocks\": true, \"recompute\": \"selective\"}"},
    {SBP_BOXING_FULL, GPT(2), TWO,
     "{\"offload\": true, \"bucket_parameters\": 1000, \"regather\": true}"},
    {SBP_BOXING_FULL, GPT(2), LAUNCHING, "{\"offload\": true}"},
    {SBP_BOXING_FULL, GPT(2), TWO,
     "{\"pipeline\": 2, \"micro_batch\": 12, \"schedule\": \"zero-bubble\"}"},
    {SBP_BOXING_FULL, GPT(2), TWO,
     "{\"pipeline\": 2, \"micro_batch\": 12, \"schedule\": \"message-driven\"}"},
    {SBP_BOXING_FULL, GPT(2), FLAT,
     "{\"pipeline\": 2, \"micro_batch\": 24, \"schedule\": \"cdp-v2\","
     "\"allow_delayed_gradients\": true, \"owner\": \"broadcast\"}"},
    {SBP_BOXING_FULL, LLAMA, FLAT,
     "{\"pipeline\": 2, \"chunks\": 2, \"micro_batch\": 12, \"schedule\": \"cdp-v2\","
     "\"allow_delayed_gradients\": true}"},
    {SBP_BOXING_FULL, LLAMA, TWELVE,
     "{\"pipeline\": 3, \"micro_batch\": 8, \"schedule\": \"cdp-v1\","
     "\"allow_delayed_gradients\": true, \"pyramid\": true}"},
    {SBP_BOXING_FULL, LLAMA, TWO, "{\"recompute\": \"attention\"}"},
    {SBP_BOXING_FULL, LLAMA, SIX, "{\"zero\": 1}"},
    {SBP_BOXING_FULL, MIXTRAL, TWO, "{}"},
    {SBP_BOXING_FULL, DEEPSEEK, SIX, "{\"micro_batch\": 12}"},
    {SBP_BOXING_FULL, MIXTRAL, TWO, "{\"zero\": 2, \"recompute\": \"full\"}"},
    {SBP_BOXING_FULL, DEEPSEEK, SIX,
     "{\"micro_batch\": 12, \"recompute\": \"selective\", \"zero\": 3}"},
    {SBP_BOXING_FULL, IMAGES, TWO, "{}"},
    {SBP_BOXING_FULL, IMAGES, SIX, "{\"zero\": 2}"},
    {SBP_BOXING_FULL, GRID, TWO, "{}"},
    {SBP_BOXING_FULL, GRID, FLAT, "{\"recompute\": \"full\"}"},
    {SBP_BOXING_FULL, IMAGES, TWO, "{\"micro_batch\": 12, \"recompute\": \"full\"}"},
    {SBP_BOXING_FULL, LLAMA, TWO, "{\"regather\": true}"},
    {SBP_BOXING_FULL, LLAMA, SIX, "{\"regather\": true, \"recompute\": \"full\"}"},
    {SBP_BOXING_FULL, NORMED, TWO, "{\"regather\": true, \"micro_batch\": 12}"},
    {SBP_BOXING_PATH, GPT(2), TWO, "{}"},
    {SBP_BOXING_PATH, GPT(4), TWO, "{\"pipeline\": 2, \"micro_batch\": 12}"},
    {SBP_BOXING_PATH, LLAMA, SIX, "{}"},
    {SBP_BOXING_PAPER, GRID, TWO, "{}"},
};
int setting_count(void)
{
    return (int)(sizeof SETTINGS / sizeof *SETTINGS);
}

struct cJSON *parsed(const char *text)
{
    struct cJSON *json = cJSON_Parse(text);
    if (json == NULL)
        fail_msg("no JSON: %s", text);
    return json;
}

static void set_parallel(struct bench *b)
{
    struct sbp_diag diag = {0};
    struct cJSON *json = parsed(b->setting->parallel);
    struct sbp_json at;
    struct sbp_parallel parallel = b->plan.cut.parallel;
    sbp_json_at(json, "parallel", &diag, &at);
    if (sbp_parallel_read(&at, &parallel) != SBP_OK ||
        sbp_plan_cut(&b->plan, &parallel, &diag) != SBP_OK)
        fail_msg("%s: %s", b->setting->parallel, diag.text);
    cJSON_Delete(json);
}

bool bench_open(struct bench *b, int setting, uint64_t seed)
{
    struct sbp_diag diag = {0};
    *b = (struct bench){.setting = &SETTINGS[setting], .seed = seed};
    if (sbp_plan_begin(parsed(b->setting->model), "model", parsed(b->setting->cluster), "cluster",
                       &b->plan, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    b->plan.workload.cluster.runtime.has_slots = seed % 2 == 1;
    set_parallel(b);
    const bool paper = b->setting->boxing == SBP_BOXING_PAPER;
    b->request = (struct sbp_request){.space = paper ? SBP_SPACE_AUTODDL : SBP_SPACE_FULL,
                                      .quick = true,
                                      .boxing = b->setting->boxing,
                                      .solver = sbp_solver_find("random"),
                                      .solver_options = {.seed = seed, .max_evaluations = 1}};
    if (solve_plan(&b->plan, &b->request, &b->outcome, &diag) != SBP_OK)
        fail_msg("setting %d seed %llu: %s", setting, (unsigned long long)seed, diag.text);
    if (b->outcome.status != SBP_PLAN_OPTIMAL && b->outcome.status != SBP_PLAN_FEASIBLE) {
        sbp_plan_free(&b->plan);
        return false;
    }
    if (sbp_cut_step(&b->plan.cut, &b->plan.strategy, false, &b->step, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_random_seed(&b->random, seed);
    return true;
}

void bench_close(struct bench *b)
{
    sbp_step_free(&b->step);
    sbp_plan_free(&b->plan);
}

enum sbp_status check(const struct bench *b, struct sbp_diag *diag)
{
    const struct sbp_claim claim = {
        .plan = &b->plan, .step = &b->step, .request = &b->request, .outcome = &b->outcome};
    *diag = (struct sbp_diag){0};
    return sbp_verify_plan(&claim, diag);
}

int bench_below(struct bench *b, int count)
{
    return (int)sbp_random_below(&b->random, (uint64_t)count);
}

int bench_any_op(struct bench *b)
{
    int op;
    do
        op = bench_below(b, b->plan.cut.graph.op_count);
    while (b->plan.cut.graph.op[op].entry->follows);
    return op;
}

int bench_any_axis(struct bench *b)
{
    return bench_below(b, b->plan.cut.mesh.axis_count);
}

int bench_any_output(struct bench *b)
{
    int op;
    do
        op = bench_below(b, b->plan.cut.graph.op_count);
    while (b->plan.cut.graph.op[op].output < 0);
    return b->plan.cut.graph.op[op].output;
}

struct sbp_fix *bench_ask_for(struct bench *b, int op)
{
    struct sbp_fix *fix = &b->fix;
    *fix = (struct sbp_fix){.zero = SBP_ANY};
    (void)snprintf(fix->layer, sizeof fix->layer, "%s",
                   b->plan.cut.graph.op[b->plan.cut.graph.op[op].site].name);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix->factor[role][level] = SBP_ANY;
    b->request.fix = fix;
    b->request.fix_count = 1;
    return fix;
}

int bench_zero_level(const struct bench *b, int op)
{
    const int level = b->plan.strategy.zero[op];
    return level == SBP_ZERO_DEFAULT ? (int)b->plan.cut.parallel.zero : level;
}

int bench_repeat_of_follower(struct bench *b)
{
    const struct sbp_graph *graph = &b->plan.cut.graph;
    const int from = bench_below(b, graph->op_count);
    for (int i = 0; i < graph->op_count; i++) {
        const int op = (from + i) % graph->op_count;
        if (graph->op[op].entry->follows && graph->op[op].site != op)
            return op;
    }
    return -1;
}

/* ---- corruptions ---------------------------------------------------------------------------- */

/* An instruction of the first program for which the test holds; NULL: there is none. */
static struct sbp_instr *find_instr(struct bench *b, instr_test *test)
{
    struct sbp_program *program = &b->step.program[0];
    const int first = bench_below(b, program->instr_count);
    for (int i = 0; i < program->instr_count; i++) {
        struct sbp_instr *instr = &program->instr[(first + i) % program->instr_count];
        if (test(instr))
            return instr;
    }
    return NULL;
}

/* Returns whether there was something to corrupt. */
static bool corrupt(const struct corruption *corruption, int setting, uint64_t seed)
{
    struct bench b;
    struct sbp_diag diag;
    if (!bench_open(&b, setting, seed))
        return false;
    if (corruption->of != NULL)
        b.instr = find_instr(&b, corruption->of);
    const bool changed = (corruption->of == NULL || b.instr != NULL) && corruption->corrupt(&b);
    if (changed && check(&b, &diag) != SBP_E_INTERNAL)
        fail_msg("setting %d seed %llu: %s was not noticed", setting, (unsigned long long)seed,
                 corruption->name);
    if (changed && strstr(diag.text, "no plan is written") == NULL)
        fail_msg("%s: \"%s\"", corruption->name, diag.text);
    if (changed && corruption->word != NULL && strstr(diag.text, corruption->word) == NULL)
        fail_msg("setting %d seed %llu: %s: \"%s\" where \"%s\" is expected", setting,
                 (unsigned long long)seed, corruption->name, diag.text, corruption->word);
    bench_close(&b);
    return changed;
}

void check_corruptions(const struct corruption *corruptions, size_t count)
{
    int all = 0;
    for (size_t i = 0; i < count; i++) {
        int done = 0;
        for (int setting = 0; setting < setting_count(); setting++)
            for (uint64_t seed = SEED; seed < SEED + 4; seed++)
                done += corrupt(&corruptions[i], setting, seed);
        if (done == 0)
            fail_msg("%s: no plan has anything of the kind", corruptions[i].name);
        all += done;
    }
    print_message("%zu kinds of corruption, %d of them tried\n", count, all);
}
