/* What is known of a plan beside its price: the proof, what it assumes, where it comes from. */
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "planner/page/page_priv.h"

enum { MOST_CONSTANTS = 400, PATH_BYTES = 160 };

static const char *text_of(const struct cJSON *object, const char *key)
{
    const struct cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static double number_of(const struct cJSON *object, const char *key)
{
    const struct cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

double sbp_page_limit_bytes(const struct sbp_page_plan *plan)
{
    const double limit = number_of(plan->plan->search, "memory_limit_bytes");
    return limit >= 1 ? limit : (double)plan->report->summary.memory_bytes;
}

/* --- the proof --- */

static bool is_priced(const struct cJSON *search)
{
    static const char PRICE[] = "sbplan price ";
    const char *command = text_of(search, "command");
    return search == NULL || (command != NULL && strncmp(command, PRICE, strlen(PRICE)) == 0);
}

static bool is_optimal(const struct cJSON *search)
{
    const char *status = text_of(search, "status");
    return status != NULL && strcmp(status, "optimal") == 0;
}

/* By how much of the bound the plan may cost more than the best; < 0: there is no bound. */
static double gap_of(const struct cJSON *search)
{
    const double bound_s = number_of(search, "lower_bound_s");
    return bound_s > 0 ? number_of(search, "objective_s") / bound_s - 1 : -1;
}

/* What the bound is about where that is not the step: " in communication". */
static const char *objective_of(const struct cJSON *search)
{
    const char *objective = text_of(search, "objective");
    return objective != NULL && strcmp(objective, "communication") == 0 ? " in communication" : "";
}

const char *sbp_page_rank(const struct sbp_plan *plan, char buffer[SBP_PAGE_RANK_BYTES])
{
    const struct cJSON *search = plan->search;
    const double gap = gap_of(search);
    const char *covers = text_of(search, "covers");
    int used;
    if (is_priced(search))
        (void)snprintf(buffer, SBP_PAGE_RANK_BYTES, "priced, not searched");
    else if (!is_optimal(search) && gap < 0)
        (void)snprintf(buffer, SBP_PAGE_RANK_BYTES, "feasible, no bound");
    else {
        used = is_optimal(search) ? snprintf(buffer, SBP_PAGE_RANK_BYTES, "optimal")
                                  : snprintf(buffer, SBP_PAGE_RANK_BYTES,
                                             "at most %.3g %% above the best", 100 * gap);
        (void)snprintf(buffer + used, SBP_PAGE_RANK_BYTES - (size_t)used, "%s%s%.48s",
                       objective_of(search), covers == NULL ? "" : " over ",
                       covers == NULL ? "" : covers);
    }
    return buffer;
}

static void open_row(struct sbp_text *html, const char *name)
{
    sbp_text_add(html, "<tr>");
    sbp_markup_cell(html, "%s", name);
    sbp_text_add(html, "<td>");
}

static void close_row(struct sbp_text *html)
{
    sbp_text_add(html, "</td></tr>\n");
}

static void text_row(struct sbp_text *html, const char *name, const char *text)
{
    if (text == NULL)
        return;
    open_row(html, name);
    sbp_markup_text(html, text);
    close_row(html);
}

/* A bound holds for what the command allows (degrees that it fixes, a space), and of that for what
 * the search covers. */
static void add_bound(struct sbp_text *html, const struct cJSON *search)
{
    const char *covers = text_of(search, "covers");
    sbp_text_add(html, "No plan that its command allows");
    if (covers != NULL)
        sbp_markup_add(html, " (over %s)", covers);
    sbp_text_add(html, " costs less%s than ", objective_of(search));
    sbp_markup_seconds(html, number_of(search, "lower_bound_s"));
    if (is_optimal(search)) {
        sbp_text_add(html, ", which is what this one takes.");
        return;
    }
    sbp_text_add(html, "; this one is at most ");
    sbp_markup_share(html, gap_of(search), 1);
    sbp_text_add(html, " above the best.");
}

static void add_verdict(struct sbp_text *html, const struct cJSON *search)
{
    sbp_text_add(html, "<p>");
    if (is_priced(search)) {
        sbp_text_add(html, "This plan was given and priced. Nothing is claimed of others.");
    } else if (is_optimal(search) || gap_of(search) >= 0) {
        add_bound(html, search);
    } else {
        sbp_text_add(html, "The search gives no bound for this request: a better plan may exist.");
    }
    sbp_text_add(html, " The proof is about the model's prices, which differ from measured times "
                       "by more than close plans differ from each other.</p>\n");
}

void sbp_page_proof(struct sbp_text *html, const struct sbp_page_plan *plan, int number)
{
    static const char *const TITLES[] = {"", "as the plan says"};
    static const char *const KEYS[] = {"status", "space", "covers", "objective", "algorithm"};
    static const struct {
        const char *key, *name, *means;
    } flags[] = {{"stopped", "ended early", "by a limit or an interrupt"},
                 {"left_out", "left out", "strategies that needed more memory than the search had"},
                 {"plain", "large meshes", "by plain splits alone"}};
    const struct cJSON *search = plan->plan->search;
    sbp_page_section(html, number, "proof", "What the proof says");
    add_verdict(html, search);
    if (!is_priced(search)) {
        sbp_text_add(html, "<div class=\"words\">");
        sbp_markup_table(html, "Record of the search", 2, TITLES);
        for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
            text_row(html, KEYS[i], text_of(search, KEYS[i]));
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(search, flags[i].key)))
                text_row(html, flags[i].name, flags[i].means);
        open_row(html, "lower bound");
        if (number_of(search, "lower_bound_s") > 0)
            sbp_markup_seconds(html, number_of(search, "lower_bound_s"));
        else
            sbp_text_add(html, "none");
        close_row(html);
        open_row(html, "strategies evaluated");
        sbp_markup_count(html, number_of(search, "evaluations"));
        close_row(html);
        sbp_markup_table_end(html);
        sbp_text_add(html, "</div>");
    }
    sbp_text_add(html, "</section>\n");
}

/* --- what was assumed --- */

/* A tree on its way to rows: the path so far, and the nearest objects with sources of constants. */
struct walk {
    struct sbp_text *html;
    int rows;
    char path[PATH_BYTES];
    const struct cJSON *root;   /* the sources of the whole file */
    const struct cJSON *source; /* of the object that the path below begins in */
    size_t source_at;           /* length of its path */
};

/* The source of a constant, or of what it is a part of, by a path within the object. */
static const char *source_in(const struct cJSON *sources, const char *path)
{
    char key[PATH_BYTES];
    (void)snprintf(key, sizeof key, "%s", *path == '.' ? path + 1 : path);
    if (cJSON_IsString(sources))
        return sources->valuestring;
    for (;;) {
        const char *found = text_of(sources, key);
        char *dot = strrchr(key, '.'), *bracket = strrchr(key, '[');
        char *end = bracket > dot ? bracket : dot;
        if (found != NULL || end == NULL)
            return found;
        *end = '\0';
    }
}

/* What the whole file says of a constant, which may change a device that it is like, comes first.
 */
static const char *source_of(const struct walk *walk)
{
    const char *found = source_in(walk->root, walk->path);
    return found != NULL ? found : source_in(walk->source, walk->path + walk->source_at);
}

static void constant_row(struct walk *walk, const struct cJSON *item)
{
    const char *source = source_of(walk);
    char number[32];
    if (walk->rows++ >= MOST_CONSTANTS)
        return;
    sbp_text_add(walk->html, "<tr>");
    sbp_markup_cell(walk->html, "%s", walk->path);
    sbp_text_add(walk->html, "<td>");
    if (cJSON_IsString(item))
        sbp_markup_text(walk->html, item->valuestring);
    else if (cJSON_IsNumber(item)) {
        (void)snprintf(number, sizeof number, "%.12g", item->valuedouble);
        sbp_markup_value(walk->html, item->valuedouble, number);
    } else if (cJSON_IsArray(item) || cJSON_IsObject(item))
        sbp_markup_add(walk->html, "a table of %d", cJSON_GetArraySize(item));
    else
        sbp_markup_text(walk->html, cJSON_IsTrue(item) ? "true" : "false");
    sbp_text_add(walk->html, "</td>");
    sbp_markup_cell(walk->html, "%s", source == NULL ? "" : source);
    sbp_text_add(walk->html, "</tr>\n");
}

/* A table of measurements: its numbers are too many for rows. */
static bool is_table(const struct cJSON *item)
{
    const struct cJSON *first = item->child;
    return cJSON_IsArray(item) &&
           (first == NULL || !cJSON_IsObject(first) || cJSON_GetArraySize(item) > 8);
}

static void walk_tree(struct walk *walk, const struct cJSON *item, int depth)
{
    const size_t length = strlen(walk->path);
    const struct cJSON *source = walk->source;
    const size_t source_at = walk->source_at;
    const struct cJSON *own = cJSON_GetObjectItemCaseSensitive(item, "source");
    int index = 0;
    if ((!cJSON_IsArray(item) && !cJSON_IsObject(item)) || is_table(item) || depth == 0) {
        constant_row(walk, item);
        return;
    }
    if (own != NULL) {
        walk->source = own;
        walk->source_at = length;
    }
    for (const struct cJSON *child = item->child; child != NULL; child = child->next, index++) {
        if (child == own)
            continue;
        if (cJSON_IsArray(item))
            (void)snprintf(walk->path + length, PATH_BYTES - length, "[%d]", index);
        else
            (void)snprintf(walk->path + length, PATH_BYTES - length, "%s%s", length > 0 ? "." : "",
                           child->string);
        walk_tree(walk, child, depth - 1);
    }
    walk->path[length] = '\0';
    walk->source = source;
    walk->source_at = source_at;
}

static void add_constants(struct sbp_text *html, const char *title, const struct cJSON *json,
                          int depth)
{
    static const char *const TITLES[] = {"constant", "value", "where it comes from"};
    struct walk walk = {.html = html, .root = cJSON_GetObjectItemCaseSensitive(json, "source")};
    sbp_text_add(html, "<details><summary>%s</summary><div class=\"words\">", title);
    sbp_markup_table(html, title, 3, TITLES);
    walk_tree(&walk, json, depth);
    sbp_markup_table_end(html);
    if (walk.rows > MOST_CONSTANTS)
        sbp_text_add(html, "<p class=\"note\">%d more are in the plan file.</p>",
                     walk.rows - MOST_CONSTANTS);
    sbp_text_add(html, "</div></details>\n");
}

/* Without a trainer the machine alone says what its host takes. */
static void add_host(struct sbp_text *html, const struct sbp_runtime *runtime)
{
    if (runtime->host_s > 0) {
        sbp_text_add(html, "; the host takes ");
        sbp_markup_seconds(html, runtime->host_s);
        sbp_text_add(html, " to launch an operator's pass.</p>\n");
    } else {
        sbp_text_add(html, " and launches are free.</p>\n");
    }
}

static void add_trainer(struct sbp_text *html, const struct sbp_cluster *cluster)
{
    const struct sbp_runtime *runtime = &cluster->runtime;
    bool hides = false;
    sbp_text_add(html, "<p>Trainer: ");
    if (runtime->name[0] == '\0') {
        sbp_text_add(html, "none is given, so that nothing hides behind arithmetic");
        add_host(html, runtime);
        return;
    }
    sbp_markup_name(html, runtime->name);
    sbp_text_add(html, "; hides behind arithmetic: ");
    for (int i = 0; i < SBP_HIDINGS; i++)
        if (runtime->hidden[i] > 0) {
            sbp_markup_add(html, "%s%s %.0f %%", hides ? ", " : "",
                           sbp_runtime_hiding_name((enum sbp_hiding)i), 100 * runtime->hidden[i]);
            hides = true;
        }
    sbp_text_add(html, "%s. Reserve of a device: ", hides ? "" : "nothing");
    sbp_markup_bytes(html, (double)cluster->reserve_bytes);
    sbp_text_add(html, ".</p>\n");
}

static void add_trust(struct sbp_text *html, const struct sbp_page_plan *plan)
{
    const struct sbp_price_interval *trust = plan->trust;
    const double step_s = plan->report->summary.totals.step_s;
    if (!trust->is_given) {
        sbp_text_add(html, "<p>No errors are known for this cluster and trainer, so that no "
                           "interval is given.</p>\n");
        return;
    }
    sbp_text_add(html, "<p>The step lies between ");
    sbp_markup_seconds(html, trust->low_s);
    sbp_text_add(html, " and ");
    sbp_markup_seconds(html, trust->high_s);
    sbp_text_add(html, " by the errors of %s%s%s.</p>\n",
                 trust->is_calibrated ? "the calibration" : "",
                 trust->is_calibrated && trust->trainer != NULL ? " and of " : "",
                 trust->trainer != NULL ? "measured runs" : "");
    if (trust->doubt_count > 0)
        sbp_text_add(html, "<ul>");
    for (int i = 0; i < trust->doubt_count; i++) {
        const struct sbp_doubt *doubt = &trust->doubt[i];
        sbp_text_add(html, "<li>");
        sbp_markup_add(html,
                       "%.0f %% of the step's time is %s over %g x %g: %s, right within a factor "
                       "of %.3g",
                       100 * doubt->seconds / step_s, sbp_collective_name(doubt->kind),
                       doubt->nodes, doubt->ranks_per_node, sbp_network_basis_text(doubt->basis),
                       1 + doubt->error);
        sbp_text_add(html, "</li>");
    }
    if (trust->doubt_count > 0)
        sbp_text_add(html, "</ul>\n");
}

void sbp_page_assumed(struct sbp_text *html, const struct sbp_page_plan *plan, int number)
{
    const struct sbp_workload *workload = &plan->plan->workload;
    sbp_page_section(html, number, "assumed", "What was assumed");
    add_trainer(html, &workload->cluster);
    add_trust(html, plan);
    add_constants(html, "Constants of the cluster, with their sources", workload->cluster_json, 4);
    add_constants(html, "The model", workload->model_json, 3);
    sbp_text_add(html, "</section>\n");
}

/* --- where it comes from --- */

static void hash_row(struct sbp_text *html, const char *name, const struct cJSON *json)
{
    char hash[SBP_HASH_BYTES];
    if (!sbp_json_hash(json, hash))
        html->failed = true;
    else
        text_row(html, name, hash);
}

void sbp_page_origin(struct sbp_text *html, const struct sbp_page_plan *plan, int number)
{
    static const char *const TITLES[] = {"", "value"};
    const struct cJSON *search = plan->plan->search;
    char seed[32];
    sbp_page_section(html, number, "origin", "Where this plan comes from");
    sbp_text_add(html, "<div class=\"words\">");
    sbp_markup_table(html, "Origin of the plan", 2, TITLES);
    text_row(html, "file", plan->file);
    text_row(html, "command", text_of(search, "command"));
    if (search != NULL) {
        (void)snprintf(seed, sizeof seed, "%.0f", number_of(search, "seed"));
        text_row(html, "seed", seed);
    }
    text_row(html, "version", "sbplan " SBP_VERSION);
    hash_row(html, "model", plan->plan->workload.model_json);
    hash_row(html, "cluster", plan->plan->workload.cluster_json);
    sbp_markup_table_end(html);
    sbp_text_add(html, "</div><p class=\"note\">All on this page was worked out anew from the plan "
                       "file; of the search, its record is quoted.</p></section>\n");
}
