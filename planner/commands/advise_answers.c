/* The answers of `sbplan advise`. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/math/portable.h"
#include "planner/commands/advise_priv.h"
#include "planner/commands/commands.h"

#define PAYS      0.9  /* of a device's best rate: what a node adds is worth its hours */
#define SAME      5e-4 /* times that differ by less are called the same */
#define ROUND_OFF 1e-6 /* of derivatives */
#define HALF      "half"
#define TOKENS_PER_WEIGHT                                                                          \
    20.0 /* Hoffmann et al., "Training compute-optimal large language models" */

/* One of each question; plan, time, bottleneck and training. */
enum { ANSWERS = SBP_ADVISE_MOST_QUESTIONS + 4 };

struct answer {
    char name[48];
    struct sbp_text text, command;
};

struct answers {
    int count;
    struct answer answer[ANSWERS];
};

static struct answer *begin(struct answers *answers, const char *name, const char *of)
{
    assert(answers->count < ANSWERS);
    struct answer *answer = &answers->answer[answers->count++];
    (void)snprintf(answer->name, sizeof answer->name, "%s%s", of, name);
    return answer;
}

/* --- commands --- */

/* Appends the words of the command line without --tokens, which does not go with a sweep. Blanks
 * within quotes part no words. */
static void add_words(struct sbp_text *text, const char *record)
{
    static const char TOKENS[] = "--tokens";
    bool skips = false;
    while (*record != '\0') {
        const char *end = record;
        bool quoted = false;
        for (; *end != '\0' && (quoted || *end != ' '); end++)
            quoted ^= *end == '\'';
        const bool tokens = strncmp(record, TOKENS, strlen(TOKENS)) == 0;
        if (!skips && !tokens)
            sbp_text_add(text, " %.*s", (int)(end - record), record);
        skips = tokens && record[strlen(TOKENS)] == ' ';
        record = *end == ' ' ? end + 1 : end;
    }
}

/* "sbplan search MODEL CLUSTER ..." with the options that were given. */
static void add_search(struct sbp_text *text, const struct sbp_advice *advice)
{
    static const char ADVISE[] = "sbplan advise ";
    sbp_text_add(text, "sbplan search");
    add_words(text, advice->arguments->record + strlen(ADVISE));
}

/* The sweep that a question is; in quotes where a shell would read the brackets. */
static void add_sweep(struct sbp_text *text, const struct sbp_advice *advice,
                      const struct sbp_advise_question *question)
{
    const char *quote = strchr(question->key, '[') == NULL ? "" : "'";
    add_search(text, advice);
    sbp_text_add(text, " --sweep %s%s=", quote, question->key);
    const char *comma = "";
    for (int i = 0; i < question->count; i++) {
        if (question->value[i].is_illegal)
            continue;
        sbp_text_add(text, "%s%s", comma, question->value[i].text);
        comma = ",";
    }
    sbp_text_add(text, "%s", quote);
}

/* --- words --- */

static double rate_of(const struct sbp_search_row *row)
{
    return row->summary.tokens_per_s;
}

/* What 1 % more saves; less than is shown is nothing, whatever its sign. */
static double shown_share(double share)
{
    return fabs(share) < SAME ? 0 : share;
}

/* Where a row has no plan, why. */
static const char *lack_of(const struct sbp_search_row *row)
{
    return row->skipped                                 ? "not searched"
           : row->refused                               ? "not possible"
           : row->shortage.needed_bytes > 0             ? "nothing fits"
           : row->outcome.status == SBP_PLAN_INFEASIBLE ? "nothing fits"
                                                        : "none found";
}

/* " (gap 1.2 %)" where the search did not end with a proof. */
static void add_gap(struct sbp_text *text, const struct sbp_search_row *row)
{
    char word[SBP_VERDICT_BYTES];
    if (row->found && row->outcome.status == SBP_PLAN_FEASIBLE)
        sbp_text_add(text, " (%s)", sbp_search_outcome_word(&row->outcome, word));
}

/* "1.3 % less time", of a quantity that was `before`. */
static void add_change(struct sbp_text *text, double before, double after, const char *what)
{
    const double change = after / before - 1;
    if (fabs(change) < SAME)
        sbp_text_add(text, "the same %s", what);
    else
        sbp_text_add(text, "%.1f %% %s %s", 100 * fabs(change), change < 0 ? "less" : "more", what);
}

/* Whether a search ended too early to find what is as good as the plan that is there, which a
 * machine with more of something can play, too. */
static bool fell_short(const struct sbp_advice *advice, const struct sbp_search_row *row)
{
    return row->found && row->outcome.status == SBP_PLAN_FEASIBLE &&
           rate_of(row) < rate_of(&advice->row) * (1 - SAME);
}

static void add_row(struct sbp_text *text, const struct sbp_advice *advice,
                    const struct sbp_advise_value *value, const char *name, bool by_rate)
{
    sbp_text_add(text, "%s: ", name);
    if (!value->row.found)
        sbp_text_add(text, "%s", lack_of(&value->row));
    else if (strcmp(name, HALF) != 0 && fell_short(advice, &value->row))
        sbp_text_add(text, "no better plan was found");
    else if (by_rate)
        add_change(text, rate_of(&advice->row), rate_of(&value->row), "a second");
    else
        add_change(text, advice->row.summary.totals.step_s, value->row.summary.totals.step_s,
                   "time");
    add_gap(text, &value->row);
}

/* --- answers --- */

static void answer_plan(struct answers *answers, const struct sbp_advice *advice)
{
    struct answer *answer = begin(answers, "plan", "");
    char seconds[32], word[SBP_VERDICT_BYTES];
    sbp_text_add(&answer->text, "%s a step, %s, MFU %.1f %%; %s",
                 sbp_report_seconds(advice->row.summary.totals.step_s, seconds), advice->row.rate,
                 100 * advice->row.summary.mfu,
                 sbp_search_outcome_word(&advice->row.outcome, word));
    add_search(&answer->command, advice);
    sbp_text_add(&answer->command, " -o plan.json");
}

static void answer_time(struct answers *answers, const struct sbp_advice *advice)
{
    struct answer *answer = begin(answers, "time", "");
    const struct sbp_step_totals *totals = &advice->row.summary.totals;
    const double percent = totals->step_s > 0 ? 100 / totals->step_s : 0;
    sbp_text_add(&answer->text, "%.1f %% arithmetic, %.1f %% exposed communication, %.1f %% bubble",
                 percent * sbp_summary_work_s(&advice->row.summary), percent * totals->exposed_s,
                 percent * totals->bubble_s);
    sbp_text_add(&answer->command, "sbplan explain plan.json");
}

double sbp_advise_pays(const struct sbp_advice *advice, const struct sbp_advise_question *question)
{
    double best = 0, largest = 0;
    for (int i = 0; i < question->count; i++) {
        const struct sbp_search_row *row = sbp_advise_row(advice, &question->value[i]);
        if (row->found)
            best = fmax(best, rate_of(row) / (double)row->summary.devices);
    }
    for (int i = 0; i < question->count; i++) {
        const struct sbp_search_row *row = sbp_advise_row(advice, &question->value[i]);
        if (row->found && rate_of(row) / (double)row->summary.devices >= PAYS * best)
            largest = question->value[i].value;
    }
    return largest;
}

static void answer_nodes(struct answers *answers, const struct sbp_advice *advice,
                         const struct sbp_advise_question *question)
{
    const struct sbp_cluster *cluster = &advice->job.plan.workload.cluster;
    struct answer *answer = begin(answers, "s", cluster->level[0].name);
    const double largest = sbp_advise_pays(advice, question);
    int64_t unused;
    const char *unit = sbp_summary_unit(&advice->job.plan.cut.graph, &unused);
    const bool tokens = strcmp(unit, "tokens") == 0;
    int found = 0;
    for (int i = 0; i < question->count; i++)
        found += sbp_advise_row(advice, &question->value[i])->found;
    if (found < 2)
        sbp_text_add(&answer->text, "how many pay is not known; %s/s of a device:", unit);
    else
        sbp_text_add(&answer->text, "%.0f%s pay%s; %s/s of a device:", largest,
                     largest >= question->value[question->count - 1].value ? " or more" : "",
                     largest > 1 ? "" : "s", unit);
    for (int i = 0; i < question->count; i++) {
        const struct sbp_search_row *row = sbp_advise_row(advice, &question->value[i]);
        const double scale = tokens ? 1 : (double)advice->job.plan.cut.graph.sequence;
        char rate[32];
        sbp_text_add(
            &answer->text, "%s %s on %s", i > 0 ? "," : "",
            row->found ? sbp_format_count(rate_of(row) / scale / (double)row->summary.devices, rate)
                       : lack_of(row),
            question->value[i].text);
        add_gap(&answer->text, row);
    }
    add_sweep(&answer->command, advice, question);
}

static void answer_link(struct answers *answers, const struct sbp_advice *advice,
                        const struct sbp_advise_question *question)
{
    const struct sbp_cluster *cluster = &advice->job.plan.workload.cluster;
    struct answer *answer = begin(answers, " links", cluster->level[question->level].name);
    sbp_text_add(&answer->text, "1 %% faster saves %.3f %%; ",
                 shown_share(advice->elasticity.link[question->level]));
    if (question->key == NULL) {
        sbp_text_add(&answer->text, "they are measured curves, of which none is twice as fast");
        sbp_text_add(&answer->command, "sbplan explain plan.json");
        return;
    }
    add_row(&answer->text, advice, &question->value[0], "twice as fast", false);
    add_sweep(&answer->command, advice, question);
}

static void answer_other(struct answers *answers, const struct sbp_advice *advice,
                         const struct sbp_advise_question *question)
{
    static const char *const names[] = {[SBP_ADVISE_MEMORY] = "memory",
                                        [SBP_ADVISE_ARITHMETIC] = "arithmetic",
                                        [SBP_ADVISE_BATCH] = "batch"};
    struct answer *answer = begin(answers, names[question->kind], "");
    const bool by_rate = question->kind == SBP_ADVISE_BATCH;
    const char *before = "";
    if (question->kind == SBP_ADVISE_ARITHMETIC)
        sbp_text_add(&answer->text, "1 %% faster saves %.3f %%; ",
                     shown_share(advice->elasticity.arithmetic));
    for (int i = question->count - 1; i >= 0; i--) {
        const struct sbp_advise_value *value = &question->value[i];
        if (value->is_given)
            continue;
        sbp_text_add(&answer->text, "%s", before);
        add_row(&answer->text, advice, value, i == 0 ? HALF : "twice", by_rate);
        before = "; ";
    }
    add_sweep(&answer->command, advice, question);
}

/* What there may be more of, and what 1 % more saves of the time that a token takes. */
struct share {
    char name[48];
    double share;
    bool is_machine; /* a derivative of the step by one constant: these add up to 1 at most */
};
enum { SHARES = 4 + SBP_MAX_LEVELS };

/* Memory and the batch change the plan: the mean over a doubling. False: there is no such plan. */
static bool share_of_twice(const struct sbp_advice *advice, enum sbp_advise_kind kind,
                           double *share)
{
    for (int i = 0; i < advice->question_count; i++) {
        const struct sbp_advise_question *question = &advice->question[i];
        const struct sbp_search_row *row = &question->value[question->count - 1].row;
        if (question->kind != kind || !row->found || fell_short(advice, row))
            continue;
        *share = sbp_log2(rate_of(row) / rate_of(&advice->row));
        return true;
    }
    return false;
}

/* The largest first; the like in their order. */
static void sort_shares(struct share *share, int count)
{
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && share[k - 1].share < share[k].share - ROUND_OFF; k--) {
            const struct share moved = share[k];
            share[k] = share[k - 1];
            share[k - 1] = moved;
        }
}

static int shares_of(const struct sbp_advice *advice, struct share share[SHARES])
{
    const struct sbp_cluster *cluster = &advice->job.plan.workload.cluster;
    int count = 0;
    share[count++] = (struct share){"arithmetic", advice->elasticity.arithmetic, true};
    share[count++] = (struct share){"memory bandwidth", advice->elasticity.memory_bandwidth, true};
    for (int level = 0; level < cluster->level_count; level++) {
        share[count] = (struct share){"", advice->elasticity.link[level], true};
        (void)snprintf(share[count++].name, sizeof share->name, "%s links",
                       cluster->level[level].name);
    }
    share[count] = (struct share){.name = "memory"};
    count += share_of_twice(advice, SBP_ADVISE_MEMORY, &share[count].share);
    share[count] = (struct share){.name = "batch"};
    count += share_of_twice(advice, SBP_ADVISE_BATCH, &share[count].share);
    sort_shares(share, count);
    return count;
}

static void answer_bottleneck(struct answers *answers, const struct sbp_advice *advice)
{
    struct answer *answer = begin(answers, "bottleneck", "");
    struct share share[SHARES];
    const int count = shares_of(advice, share);
    double rest = 1;
    int64_t unused;
    for (int i = 0; i < count; i++)
        rest -= share[i].is_machine ? share[i].share : 0;
    sbp_text_add(&answer->text, "%s; 1 %% more saves of the time that %s take:",
                 rest > share[0].share ? "latencies, launches, waiting" : share[0].name,
                 sbp_summary_unit(&advice->job.plan.cut.graph, &unused));
    for (int i = 0; i < count; i++)
        sbp_text_add(&answer->text, "%s %.3f %% %s", i > 0 ? "," : "", shown_share(share[i].share),
                     share[i].name);
    sbp_text_add(&answer->command, "sbplan report plan.json -o page.html");
}

/* Tokens of the training that is asked for, or that pays for the model's size; 0: of a model that
 * reads none. */
static double tokens_of(const struct sbp_advice *advice)
{
    const struct sbp_graph *graph = &advice->job.plan.cut.graph;
    int64_t unused;
    if (advice->arguments->tokens > 0)
        return advice->arguments->tokens;
    return strcmp(sbp_summary_unit(graph, &unused), "tokens") == 0
               ? TOKENS_PER_WEIGHT * (double)graph->parameters
               : 0;
}

static void answer_training(struct answers *answers, const struct sbp_advice *advice)
{
    const double tokens = tokens_of(advice);
    char count[32], days[32], hours[32];
    if (tokens <= 0)
        return;
    struct answer *answer = begin(answers, "training", "");
    const struct sbp_training_cost cost = sbp_summary_training(&advice->row.summary, tokens);
    sbp_text_add(&answer->text, "%s tokens%s: %s days, %s GPU-hours",
                 sbp_format_count(tokens, count),
                 advice->arguments->tokens > 0 ? "" : " (20 a parameter)",
                 sbp_format_digits(cost.days, SBP_REPORT_DIGITS, days),
                 sbp_format_count(cost.gpu_hours, hours));
    add_search(&answer->command, advice);
    sbp_text_add(&answer->command, " --tokens %.17g", tokens);
}

static void answer_all(struct answers *answers, const struct sbp_advice *advice)
{
    answer_plan(answers, advice);
    answer_time(answers, advice);
    for (int i = 0; i < advice->question_count; i++) {
        const struct sbp_advise_question *question = &advice->question[i];
        if (question->kind == SBP_ADVISE_NODES)
            answer_nodes(answers, advice, question);
        else if (question->kind == SBP_ADVISE_LINK)
            answer_link(answers, advice, question);
        else
            answer_other(answers, advice, question);
    }
    answer_bottleneck(answers, advice);
    answer_training(answers, advice);
}

/* --- printing --- */

static enum sbp_status print_text(const struct answers *answers, const struct sbp_advice *advice)
{
    SBP_TRY(sbp_report_print_model(&advice->job.plan, stdout));
    SBP_PRINT("\n");
    for (int i = 0; i < answers->count; i++) {
        SBP_PRINT_LINE("%-12s %s\n", answers->answer[i].name, answers->answer[i].text.bytes);
        SBP_PRINT_LINE("             $ %s\n", answers->answer[i].command.bytes);
    }
    return SBP_OK;
}

static void put_value(struct cJSON *rows, const struct sbp_advice *advice,
                      const struct sbp_advise_value *value, bool *failed)
{
    const struct sbp_search_row *row = sbp_advise_row(advice, value);
    struct cJSON *item = sbp_json_push_object(rows, failed);
    sbp_json_put_number(item, "value", value->value, failed);
    if (value->is_given)
        sbp_json_put_bool(item, "given", true, failed);
    if (row->skipped || row->refused) {
        sbp_json_put_text(item, "status", row->skipped ? "not searched" : "refused", failed);
        if (row->refused)
            sbp_json_put_text(item, "why", row->why.text, failed);
        return;
    }
    sbp_json_put_text(item, "status", sbp_solver_status_name(row->outcome.status), failed);
    if (!row->found)
        return;
    sbp_json_put_number(item, "devices", (double)row->summary.devices, failed);
    sbp_json_put_number(item, "step_s", row->summary.totals.step_s, failed);
    sbp_json_put_number(item, "lower_bound_s", row->outcome.lower_bound_s, failed);
    sbp_json_put_number(item, "tokens_per_s", rate_of(row), failed);
    sbp_json_put_number(item, "device_bytes", (double)row->summary.totals.device_bytes, failed);
}

static void put_elasticity(struct cJSON *json, const struct sbp_advice *advice, bool *failed)
{
    struct share share[SHARES];
    const int count = shares_of(advice, share);
    struct cJSON *list = sbp_json_put_array(json, "saved_by_1_percent", failed);
    for (int i = 0; i < count && !*failed; i++) {
        struct cJSON *item = sbp_json_push_object(list, failed);
        sbp_json_put_text(item, "of", share[i].name, failed);
        sbp_json_put_number(item, "percent", share[i].share, failed);
    }
}

static enum sbp_status print_json(const struct answers *answers, const struct sbp_advice *advice,
                                  struct sbp_diag *diag)
{
    const struct sbp_report_options options = {.tokens = tokens_of(advice)};
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    sbp_search_put(json, &advice->job, &advice->job.outcome, &failed);
    sbp_json_put_text(json, "version", SBP_VERSION, &failed);
    sbp_report_put(json, &advice->report, &options, &failed);
    put_elasticity(json, advice, &failed);
    struct cJSON *sweeps = sbp_json_put_array(json, "sweeps", &failed);
    for (int i = 0; i < advice->question_count && !failed; i++) {
        const struct sbp_advise_question *question = &advice->question[i];
        if (question->key == NULL)
            continue;
        struct cJSON *item = sbp_json_push_object(sweeps, &failed);
        sbp_json_put_text(item, "key", question->key, &failed);
        struct cJSON *rows = sbp_json_put_array(item, "rows", &failed);
        for (int k = 0; k < question->count && !failed; k++)
            put_value(rows, advice, &question->value[k], &failed);
    }
    struct cJSON *list = sbp_json_put_array(json, "answers", &failed);
    for (int i = 0; i < answers->count && !failed; i++) {
        struct cJSON *item = sbp_json_push_object(list, &failed);
        sbp_json_put_text(item, "of", answers->answer[i].name, &failed);
        sbp_json_put_text(item, "text", answers->answer[i].text.bytes, &failed);
        sbp_json_put_text(item, "command", answers->answer[i].command.bytes, &failed);
    }
    return sbp_json_finish(json, failed, diag);
}

enum sbp_status sbp_advise_print(const struct sbp_advice *advice, struct sbp_diag *diag)
{
    struct answers answers = {0};
    bool failed = false;
    answer_all(&answers, advice);
    for (int i = 0; i < answers.count; i++)
        failed |= answers.answer[i].text.failed || answers.answer[i].command.failed;
    const enum sbp_status status = failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory")
                                   : advice->arguments->json ? print_json(&answers, advice, diag)
                                                             : print_text(&answers, advice);
    for (int i = 0; i < answers.count; i++) {
        sbp_text_free(&answers.answer[i].text);
        sbp_text_free(&answers.answer[i].command);
    }
    return status;
}
