/* Searches models on clusters from 2 to 16,384 devices with the program itself, as a user does, and
 * writes a table of what it answers and what that takes.
 *
 * Usage: bench_front SBPLAN [-o FOLDER] [--time-limit S] [MODEL...]
 * Ends with 1 when a program crashes, takes over LIMIT_S or gives an answer that is none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/bench/answer.h"
#include "tests/bench/inputs.h"
#include "tests/bench/measure.h"
#include "tests/bench/report.h"

#define LIMIT_S      60.0 /* no search may take longer */
#define TIME_LIMIT_S "40" /* what the program is told, unless asked otherwise */

enum { MOST_CLUSTERS = 7, SHORTAGE_BYTES = 128 };

/* A model and the clusters that it is searched on. */
struct front {
    const char *title;   /* in the table */
    const char *config;  /* Hugging Face's, in ../shared/data/hf; NULL: none */
    const char *shipped; /* in configs/models: where there is no config */
    const char *cluster; /* whose devices and links are taken */
    int64_t sequence;    /* tokens; 0: images */
    bool attention;      /* has attention, which is searched with the flash kernel */
    struct size {
        int64_t nodes, node_devices, batch; /* nodes 0: the list's end */
    } size[MOST_CLUSTERS];
};

#define A100 "dgx-a100-8x8"
#define H100 "dgx-h100-8x8"
/* Batches: 4 sequences or 32 images a device up to what such models are trained with, 2 M to 64 M
 * tokens or some 32,768 images a step, then that. */
static const struct front fronts[] = {
    {"GPT-2",
     "gpt2_config.json",
     "gpt2-small",
     A100,
     1024,
     true,
     {{1, 2, 8}, {1, 8, 32}, {4, 8, 128}, {32, 8, 512}}},
    {"GPT-2 medium",
     "gpt2-medium_vocab32000_config.json",
     "gpt2-medium",
     A100,
     1024,
     true,
     {{1, 2, 8}, {1, 8, 32}, {8, 8, 256}, {64, 8, 512}}},
    {"BERT-large",
     "bert-large-uncased_nvidia_config.json",
     "bert-large",
     A100,
     512,
     true,
     {{1, 2, 8}, {1, 8, 64}, {8, 8, 512}, {64, 8, 4096}}},
    {"ViT-B/16",
     "google--vit-base-patch16-224_config.json",
     "vit-b-16",
     A100,
     0,
     true,
     {{1, 2, 64}, {1, 8, 256}, {8, 8, 2048}, {128, 8, 4096}}},
    {"VGG-13",
     NULL,
     "vgg-13",
     A100,
     0,
     false,
     {{1, 2, 64}, {1, 8, 256}, {4, 8, 1024}, {32, 8, 2048}}},
    {"ResNet-50",
     NULL,
     "resnet-50",
     A100,
     0,
     false,
     {{1, 2, 64}, {1, 8, 256}, {32, 8, 8192}, {256, 8, 32768}, {2048, 8, 65536}}},
    {"Llama-2 7B",
     "meta-llama--Llama-2-7b-chat-hf_config.json",
     "llama-2-7b",
     A100,
     4096,
     true,
     {{1, 2, 8}, {1, 8, 32}, {8, 8, 256}, {64, 8, 1024}, {256, 8, 1024}}},
    {"Llama-3.1 8B",
     "meta-llama--Meta-Llama-3.1-8B_config.json",
     "llama-3.1-8b",
     H100,
     8192,
     true,
     {{1, 2, 8}, {1, 8, 32}, {16, 8, 512}, {128, 8, 1024}, {1024, 8, 2048}}},
    {"Qwen3 8B",
     "Qwen--Qwen3-8B_config.json",
     "qwen3-8b",
     H100,
     4096,
     true,
     {{1, 2, 8}, {1, 8, 32}, {16, 8, 512}, {256, 8, 2048}}},
    {"Mixtral 8x7B",
     "mistralai--Mixtral-8x7B-v0.1_config.json",
     "mixtral-8x7b",
     H100,
     4096,
     true,
     {{1, 2, 8}, {1, 8, 32}, {4, 8, 128}, {16, 8, 512}, {128, 8, 1024}}},
    {"Llama-3.1 70B",
     "meta-llama--Meta-Llama-3.1-70B_config.json",
     "llama-3.1-70b",
     H100,
     8192,
     true,
     {{1, 8, 32}, {8, 8, 256}, {32, 8, 512}, {256, 8, 1024}, {2048, 8, 2048}}},
    {"Llama-3.1 405B",
     NULL,
     "llama-3.1-405b",
     H100,
     8192,
     true,
     {{1, 2, 8}, {8, 8, 128}, {64, 8, 512}, {512, 8, 1024}, {1024, 8, 2048}, {2048, 8, 2048}}},
    {"DeepSeek-V3 671B",
     "deepseek-ai--DeepSeek-V3_config.json",
     "deepseek-v3",
     H100,
     4096,
     true,
     {{1, 2, 8}, {32, 8, 1024}, {256, 8, 15360}, {2048, 8, 16384}}},
};

struct bench {
    struct report_arguments arguments;
    struct inputs inputs;
    struct sbp_text table, csv;
    int pairs, broken, unanswered;
    double slowest_s, largest_bytes;
};

/* One search. */
struct pair {
    const struct front *front;
    const struct size *size;
    bool imported;
    char model[INPUTS_PATH_BYTES], cluster[INPUTS_PATH_BYTES], plan[INPUTS_PATH_BYTES];
    struct measured measured;
    struct answer answer;
    struct sbp_diag diag; /* why it is broken */
};

/* ---- searching ------------------------------------------------------------------------------ */

static enum sbp_status make_inputs(const struct bench *bench, struct pair *pair)
{
    const struct front *front = pair->front;
    const struct size *size = pair->size;
    const int64_t sizes[] = {size->nodes, size->node_devices};
    pair->imported = front->config != NULL && inputs_has_config(front->config);
    SBP_TRY(inputs_cluster(&bench->inputs, front->cluster, sizes, 2, pair->cluster, &pair->diag));
    if (pair->imported)
        return inputs_import(&bench->inputs, bench->arguments.program, front->config, size->batch,
                             front->sequence, pair->model, &pair->diag);
    return inputs_model(&bench->inputs, front->shipped, size->batch, front->sequence, pair->model,
                        &pair->diag);
}

static enum sbp_status search(const struct bench *bench, struct pair *pair)
{
    const char *words[16] = {
        bench->arguments.program, "search", pair->model, pair->cluster, "--json", "-o", pair->plan};
    int count = 7;
    if (pair->front->attention) {
        words[count++] = "--set";
        words[count++] = "attention=flash";
    }
    if (bench->arguments.time_limit != NULL) {
        words[count++] = "--time-limit";
        words[count++] = bench->arguments.time_limit;
    }
    (void)snprintf(pair->plan, sizeof pair->plan, "%s/plan.json", bench->inputs.folder);
    SBP_TRY(measure_run(words, LIMIT_S, &pair->measured, &pair->diag));
    return answer_read(&pair->measured, pair->size->nodes * pair->size->node_devices,
                       pair->size->batch, &pair->answer, &pair->diag);
}

static double cost_of(const struct cJSON *answer)
{
    const struct cJSON *cost = cJSON_GetObjectItemCaseSensitive(answer, "cost");
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(cost, "step_s"));
}

/* The plan that was written is read and priced again: it costs the same. */
static enum sbp_status read_again(const struct bench *bench, struct pair *pair)
{
    const char *const words[] = {bench->arguments.program, "explain", pair->plan, "--json", NULL};
    struct measured measured;
    char end[MEASURE_END_BYTES];
    if (!pair->answer.has_plan)
        return SBP_OK;
    SBP_TRY(measure_run(words, LIMIT_S, &measured, &pair->diag));
    enum sbp_status status = SBP_OK;
    if (measured.exit_code != 0 || measured.answer == NULL)
        status =
            sbp_fail(&pair->diag, SBP_E_INPUT, "explain: %s", measure_end_text(&measured, end));
    else if (!(cost_of(measured.answer) == pair->answer.step_s))
        status = sbp_fail(&pair->diag, SBP_E_INPUT, "explain prices the plan %.12g s, not %.12g s",
                          cost_of(measured.answer), pair->answer.step_s);
    measure_free(&measured);
    return status;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* How much memory would do, or what was seen without a proof. */
static const char *shortage_text(const struct answer *answer, char *buffer)
{
    char bytes[32];
    (void)sbp_format_bytes((double)answer->needed_bytes, bytes);
    buffer[0] = '\0';
    if (strcmp(answer->status, "infeasible") == 0)
        (void)snprintf(buffer, SHORTAGE_BYTES, "%s a device would do, %s dominate", bytes,
                       answer->dominates);
    else if (answer->needed_bytes > 0)
        (void)snprintf(buffer, SHORTAGE_BYTES, "least memory seen: %s a device", bytes);
    return buffer;
}

static void add_answer(struct bench *bench, const struct pair *pair)
{
    const struct answer *answer = &pair->answer;
    char verdict[32], step[32], count[32], shortage[SHORTAGE_BYTES];
    sbp_text_add(&bench->table, " %s | %s | ", sbp_format_count((double)answer->parameters, count),
                 answer_verdict(answer, verdict));
    if (answer->has_plan)
        sbp_text_add(&bench->table, "%s | %.1f %% | %s |", sbp_format_seconds(answer->step_s, step),
                     100 * answer->mfu, answer->plan);
    else
        sbp_text_add(&bench->table, "| | %s |", shortage_text(answer, shortage));
}

static void add_row(struct bench *bench, const struct pair *pair, enum sbp_status status)
{
    const struct front *front = pair->front;
    const struct size *size = pair->size;
    const struct measured *measured = &pair->measured;
    sbp_text_add(&bench->table, "| %s%s | %s %" PRId64 " x %" PRId64 " | %" PRId64 " |",
                 front->title, pair->imported ? "" : " *",
                 strncmp(front->cluster, "dgx-a", 5) == 0 ? "A100" : "H100", size->nodes,
                 size->node_devices, size->batch);
    if (status == SBP_OK)
        add_answer(bench, pair);
    else
        sbp_text_add(&bench->table, " | broken | | | %.160s |", pair->diag.text);
    sbp_text_add(&bench->table, " %.2f | %.0f |\n", measured->wall_s,
                 (double)measured->peak_bytes / (1 << 20));
}

static void add_csv(struct bench *bench, const struct pair *pair, enum sbp_status status)
{
    const struct answer *answer = &pair->answer;
    sbp_text_add(&bench->csv,
                 "%s,%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",",
                 pair->front->title, pair->imported ? "config" : "shipped", pair->front->cluster,
                 pair->size->nodes, pair->size->node_devices, pair->size->batch,
                 pair->front->sequence, answer->parameters);
    sbp_text_add(&bench->csv,
                 "%s,%.9g,%.9g,%.6g,%" PRId64 ",%" PRId64 ",\"%s\",%.3f,%.3f,%" PRId64 "\n",
                 status == SBP_OK ? answer->status : "broken", answer->step_s, answer->bound_s,
                 answer->mfu, answer->device_bytes, answer->needed_bytes, answer->plan,
                 pair->measured.wall_s, pair->measured.cpu_s, pair->measured.peak_bytes);
}

/* One line as it is done: a run takes minutes. */
static void show(const struct pair *pair, enum sbp_status status)
{
    char verdict[32];
    (void)printf(
        "%-17s %5" PRId64 " x %" PRId64 "  %6.2f s (%6.2f s of processor)  %5.0f MiB  %s\n",
        pair->front->title, pair->size->nodes, pair->size->node_devices, pair->measured.wall_s,
        pair->measured.cpu_s, (double)pair->measured.peak_bytes / (1 << 20),
        status == SBP_OK ? answer_verdict(&pair->answer, verdict) : pair->diag.text);
    (void)fflush(stdout);
}

static void run_pair(struct bench *bench, const struct front *front, const struct size *size)
{
    struct pair pair = {.front = front, .size = size};
    enum sbp_status status = make_inputs(bench, &pair);
    if (status == SBP_OK)
        status = search(bench, &pair);
    if (status == SBP_OK)
        status = read_again(bench, &pair);
    show(&pair, status);
    add_row(bench, &pair, status);
    add_csv(bench, &pair, status);
    bench->pairs++;
    bench->broken += status != SBP_OK;
    bench->unanswered += status == SBP_OK && strcmp(pair.answer.status, "time_limit") == 0;
    if (pair.measured.wall_s > bench->slowest_s)
        bench->slowest_s = pair.measured.wall_s;
    if ((double)pair.measured.peak_bytes > bench->largest_bytes)
        bench->largest_bytes = (double)pair.measured.peak_bytes;
    measure_free(&pair.measured);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void open_files(struct bench *bench)
{
    sbp_text_add(
        &bench->table,
        "| model | cluster | batch | parameters | answer | step | MFU | plan | search (s) | "
        "memory (MiB) |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    sbp_text_add(&bench->csv, "model,source,cluster,nodes,node_devices,batch,sequence,parameters,"
                              "status,step_s,bound_s,mfu,device_bytes,needed_bytes,plan,wall_s,"
                              "processor_s,peak_bytes\n");
}

static void add_head(const struct bench *bench, struct sbp_text *page)
{
    sbp_text_add(page, "# Searches from 2 to 16,384 devices\n\nMade by `./dev bench front` of ");
    report_add_machine(page);
    sbp_text_add(page,
                 ".\nEach row is one run of `sbplan search MODEL CLUSTER --json --time-limit %s`, ",
                 bench->arguments.time_limit);
    sbp_text_add(
        page,
        "from reading the files to the written plan;\nits time is wall time and its memory "
        "the most that "
        "was resident. [front.csv](front.csv) has all digits.\n\n"
        "Models are imported from their Hugging Face configs (`sbplan import hf CONFIG "
        "--global-batch N\n--sequence N --precision mixed`); those with a * are of "
        "`configs/models`. Precision is mixed, attention\nflash; the batch is in sequences "
        "or images a step; sequences have as many tokens as the model was\ntrained with. "
        "Clusters are `dgx-a100-8x8` and `dgx-h100-8x8` with other level sizes, nodes x "
        "devices of a node,\nwith the rates of their devices and Megatron Core as the trainer "
        "(docs/validate.md).\n\n");
    sbp_text_add(
        page, "The answer is `optimal`, or how far the plan is above the proven bound at most; "
              "a star\nsays that this holds among common roles and rests, else it holds over every "
              "role of every operator\n(docs/search.md); `infeasible` is proven,\nand the row says "
              "how much memory would do. The plan: how "
              "the step is cut, then the most frequent\nstrategies of layers with weights, with "
              "how many layers have them. Every plan was written, read\nand priced again by "
              "`sbplan explain`.\n\n");
    sbp_text_add(
        page,
        "%d pairs: %d broken (a crash, no answer in %.0f s, or a malformed one), %d without "
        "plan and proof. The\nslowest search took %.2f s, the largest %.0f MiB.\n\n",
        bench->pairs, bench->broken, LIMIT_S, bench->unanswered, bench->slowest_s,
        bench->largest_bytes / (1 << 20));
}

static bool write_files(const struct bench *bench)
{
    struct sbp_text page = {0};
    add_head(bench, &page);
    sbp_text_add(&page, "%s", bench->table.bytes == NULL ? "" : bench->table.bytes);
    page.failed |= bench->table.failed;
    const bool good = report_write(&bench->arguments, "front.md", &page) &&
                      report_write(&bench->arguments, "front.csv", &bench->csv);
    sbp_text_free(&page);
    return good;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct sbp_diag diag = {{0}};
    if (!report_read_arguments(argc, argv, &bench.arguments))
        return 2;
    if (bench.arguments.time_limit == NULL)
        bench.arguments.time_limit = TIME_LIMIT_S;
    if (inputs_open(&bench.inputs, &diag) != SBP_OK) {
        (void)fprintf(stderr, "bench_front: %s\n", diag.text);
        return 2;
    }
    open_files(&bench);
    for (size_t i = 0; i < sizeof fronts / sizeof *fronts; i++)
        for (int at = 0; at < MOST_CLUSTERS && fronts[i].size[at].nodes > 0; at++)
            if (report_wants(&bench.arguments, fronts[i].title))
                run_pair(&bench, &fronts[i], &fronts[i].size[at]);
    const bool written = write_files(&bench);
    inputs_close(&bench.inputs);
    sbp_text_free(&bench.table);
    sbp_text_free(&bench.csv);
    return bench.broken > 0 || !written;
}
