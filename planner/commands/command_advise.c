#include <string.h>

#include "base/clock.h"
#include "planner/commands/advise_priv.h"
#include "planner/commands/commands.h"

/* --- questions --- */

static enum sbp_status add_value(struct sbp_advice *advice, struct sbp_advise_question *question,
                                 double value, bool is_given, struct sbp_diag *diag)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.15g", value);
    struct sbp_advise_value *added = &question->value[question->count++];
    *added = (struct sbp_advise_value){
        .text = sbp_arena_strdup(&advice->arena, text), .value = value, .is_given = is_given};
    return added->text == NULL ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

static struct sbp_advise_question *begin(struct sbp_advice *advice, enum sbp_advise_kind kind,
                                         int level, const char *format, struct sbp_diag *diag)
{
    char key[64];
    struct sbp_advise_question *question = &advice->question[advice->question_count++];
    (void)snprintf(key, sizeof key, "%s", format);
    char *at = strchr(key, '#');
    if (at != NULL) /* one digit: there are four levels at most */
        *at = (char)('0' + level);
    *question = (struct sbp_advise_question){
        .kind = kind, .level = level, .key = sbp_arena_strdup(&advice->arena, key)};
    if (question->key == NULL)
        (void)sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    return question->key == NULL ? NULL : question;
}

/* A constant as it is, and twice or half of it. */
static enum sbp_status ask(struct sbp_advice *advice, enum sbp_advise_kind kind, int level,
                           const char *format, double value, bool halves, bool doubles,
                           struct sbp_diag *diag)
{
    struct sbp_advise_question *question = begin(advice, kind, level, format, diag);
    if (question == NULL)
        return SBP_E_MEMORY;
    if (halves)
        SBP_TRY(add_value(advice, question, value / 2, false, diag));
    SBP_TRY(add_value(advice, question, value, true, diag));
    return doubles ? add_value(advice, question, 2 * value, false, diag) : SBP_OK;
}

/* Fewer nodes by halves, and twice as many. */
static enum sbp_status ask_nodes(struct sbp_advice *advice, struct sbp_diag *diag)
{
    const int64_t size = advice->job.plan.workload.cluster.level[0].size;
    int64_t least = size;
    struct sbp_advise_question *question =
        begin(advice, SBP_ADVISE_NODES, 0, "cluster.levels[#].size", diag);
    if (question == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < SBP_ADVISE_HALVES && least > 1; i++)
        least /= 2;
    for (int64_t nodes = least; nodes < size;) {
        SBP_TRY(add_value(advice, question, (double)nodes, false, diag));
        int64_t next = size; /* the next larger of the halves */
        while (next / 2 > nodes)
            next /= 2;
        nodes = next;
    }
    SBP_TRY(add_value(advice, question, (double)size, true, diag));
    return add_value(advice, question, 2 * (double)size, false, diag);
}

/* Whether prices of a level follow what was measured, not its beta. */
static bool is_measured(const struct sbp_cluster *cluster, int level)
{
    bool curves = false;
    for (int i = 0; i < cluster->curves.curve_count; i++)
        curves |= cluster->curves.curve[i].level == level;
    return curves || sbp_network_is_given(&cluster->network);
}

/* Of every level that has links, and links that are not free. */
static enum sbp_status ask_links(struct sbp_advice *advice, struct sbp_diag *diag)
{
    const struct sbp_cluster *cluster = &advice->job.plan.workload.cluster;
    for (int level = 0; level < cluster->level_count; level++) {
        const struct sbp_level *link = &cluster->level[level];
        const bool measured = is_measured(cluster, level);
        if (link->size < 2 || (!measured && !(link->beta_s_per_byte > 0)))
            continue;
        SBP_TRY(ask(advice, SBP_ADVISE_LINK, level, "cluster.levels[#].beta_s_per_byte",
                    link->beta_s_per_byte, !measured, false, diag));
        if (measured)
            advice->question[advice->question_count - 1].key = NULL;
    }
    return SBP_OK;
}

static enum sbp_status ask_arithmetic(struct sbp_advice *advice, struct sbp_diag *diag)
{
    const struct sbp_cluster *cluster = &advice->job.plan.workload.cluster;
    const enum sbp_type type =
        sbp_cluster_rate_type(cluster, advice->job.plan.cut.graph.precision.compute);
    char key[64];
    if (!(cluster->flops[type] > 0))
        return SBP_OK;
    (void)snprintf(key, sizeof key, "cluster.device.flops.%s", sbp_cluster_type_name(type));
    return ask(advice, SBP_ADVISE_ARITHMETIC, 0, key, cluster->flops[type], false, true, diag);
}

static bool sets(const struct sbp_word_list *words, const char *key)
{
    for (int i = 0; i < words->count; i++)
        if (strncmp(words->word[i], key, strlen(key)) == 0)
            return true;
    return false;
}

static enum sbp_status ask_all(struct sbp_advice *advice, struct sbp_diag *diag)
{
    const struct sbp_graph *model = &advice->job.plan.workload.model;
    const double batch = (double)model->global_batch;
    const bool by_tokens = advice->job.settings.global_batch_tokens > 0;
    SBP_TRY(ask_nodes(advice, diag));
    SBP_TRY(ask_links(advice, diag));
    SBP_TRY(ask(advice, SBP_ADVISE_MEMORY, 0, "cluster.device.memory_bytes",
                (double)advice->job.plan.workload.cluster.memory_bytes, true, true, diag));
    SBP_TRY(ask_arithmetic(advice, diag));
    return ask(advice, SBP_ADVISE_BATCH, 0, by_tokens ? "global_batch_tokens" : "global_batch",
               by_tokens ? (double)advice->job.settings.global_batch_tokens : batch,
               model->global_batch % 2 == 0, true, diag);
}

/* --- searches --- */

struct searches {
    struct sbp_progress progress;
    double limit_s; /* of all together; 0: none */
    int left;
};

/* Seconds for the next search: an equal share of the time that is left. 0: any time; below 0: there
 * is none, or the user asks to stop. */
static double share_of_time(const struct sbp_advice *advice, const struct searches *searches)
{
    const struct sbp_solver_options *options = &advice->job.request.solver_options;
    const double left_s = searches->limit_s - (sbp_clock_s() - searches->progress.start_s);
    if (options->stop != NULL && *options->stop != 0)
        return -1;
    if (searches->limit_s == 0)
        return 0;
    return left_s > 0 ? left_s / searches->left : -1;
}

static int count_searches(const struct sbp_advice *advice)
{
    int count = 0;
    for (int i = 0; i < advice->question_count; i++)
        for (int k = 0; k < advice->question[i].count; k++)
            count += !advice->question[i].value[k].is_given;
    return count;
}

/* Searches with one constant changed; where nothing is found, that is an answer, too. */
static enum sbp_status search_value(struct sbp_advice *advice, struct searches *searches,
                                    const char *word, double limit_s,
                                    struct sbp_advise_value *value, struct sbp_diag *diag)
{
    struct sbp_arguments given = *advice->arguments;
    struct sbp_search_row *row = &value->row;
    const char *words[] = {word};
    char label[160];
    (void)snprintf(label, sizeof label, "%s, %d left", word, searches->left);
    given.row = (struct sbp_word_list){.count = 1, .word = words};
    struct sbp_search_job job = {
        .arguments = &given, .progress = &searches->progress, .label = label};
    enum sbp_status status = sbp_search_job_open(&job, &row->why);
    job.request.solver_options.time_limit_s = limit_s;
    value->is_illegal = status != SBP_OK;
    if (status == SBP_OK)
        status = sbp_search_job_run(&job, 1, &row->why);
    row->refused = status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED || status == SBP_E_USAGE;
    if (status == SBP_OK)
        status = sbp_search_row_fill(&job, row, diag);
    else if (row->refused)
        status = SBP_OK;
    else
        status = sbp_fail(diag, status, "%s", row->why.text);
    sbp_search_job_free(&job);
    return status;
}

/* Whether twice as many nodes are worth a look: so far the largest number pays most, and there is
 * room for another. */
static bool goes_on(const struct sbp_advice *advice, const struct sbp_advise_question *question)
{
    return question->kind == SBP_ADVISE_NODES && question->count < SBP_ADVISE_MOST_VALUES &&
           sbp_advise_pays(advice, question) >= question->value[question->count - 1].value;
}

static enum sbp_status search_all(struct sbp_advice *advice, struct searches *searches,
                                  struct sbp_diag *diag)
{
    for (int i = 0; i < advice->question_count; i++) {
        struct sbp_advise_question *question = &advice->question[i];
        for (int k = 0; k < question->count; k++) {
            struct sbp_advise_value *value = &question->value[k];
            const double limit_s = share_of_time(advice, searches);
            char word[128];
            if (value->is_given)
                continue;
            (void)snprintf(word, sizeof word, "%s=%s", question->key, value->text);
            value->row.skipped = limit_s < 0;
            if (limit_s >= 0)
                SBP_TRY(search_value(advice, searches, word, limit_s, value, diag));
            searches->left--;
            if (k == question->count - 1 && goes_on(advice, question)) {
                SBP_TRY(add_value(advice, question, 2 * value->value, false, diag));
                searches->left++;
            }
        }
    }
    return SBP_OK;
}

/* --- the command --- */

static enum sbp_status check_options(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    return !sets(&arguments->set, "devices=")
               ? SBP_OK
               : sbp_fail(diag, SBP_E_USAGE,
                          "sbplan advise: --set devices: how many pay is one of the answers, legal "
                          "is --set cluster.levels[0].size=N for a machine of another size");
}

/* The machine as it is may take half of the time; what it leaves is the others'. */
static enum sbp_status search_given(struct sbp_advice *advice, struct searches *searches,
                                    struct sbp_diag *diag)
{
    struct sbp_search_job *job = &advice->job;
    struct sbp_diag why = {{0}};
    job->progress = &searches->progress;
    job->label = "the machine as it is";
    job->request.solver_options.time_limit_s = searches->limit_s / 2;
    const enum sbp_status status = sbp_search_job_run(job, 1, &why);
    return status == SBP_OK ? SBP_OK : sbp_inputs_refuse(NULL, status, &why, diag);
}

static enum sbp_status advise(struct sbp_advice *advice, struct searches *searches,
                              struct sbp_diag *diag)
{
    struct sbp_search_job *job = &advice->job;
    SBP_TRY(search_given(advice, searches, diag));
    if (!sbp_search_outcome_has_plan(&job->outcome))
        return SBP_OK;
    SBP_TRY(sbp_report_make(&job->plan, &advice->report, diag));
    SBP_TRY(sbp_search_row_fill(job, &advice->row, diag));
    SBP_TRY(sbp_elasticity_make(&job->plan, &advice->elasticity, diag));
    SBP_TRY(ask_all(advice, diag));
    searches->left = count_searches(advice);
    return search_all(advice, searches, diag);
}

static enum sbp_status answer(struct sbp_advice *advice, struct sbp_diag *diag)
{
    struct searches searches = {0};
    SBP_TRY(check_options(advice->arguments, diag));
    SBP_TRY(sbp_search_job_open(&advice->job, diag));
    searches.limit_s = advice->job.request.solver_options.time_limit_s;
    sbp_progress_start(&searches.progress);
    const enum sbp_status status = advise(advice, &searches, diag);
    sbp_progress_end(&searches.progress);
    SBP_TRY(status);
    return sbp_search_outcome_has_plan(&advice->job.outcome)
               ? sbp_advise_print(advice, diag)
               : sbp_search_answer(&advice->job, diag);
}

enum sbp_status sbp_command_advise(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_advice advice = {.arguments = arguments, .job = {.arguments = arguments}};
    const enum sbp_status status = answer(&advice, diag);
    sbp_report_free(&advice.report);
    sbp_search_job_free(&advice.job);
    sbp_arena_free(&advice.arena);
    return status;
}
