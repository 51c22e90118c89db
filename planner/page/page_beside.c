/* Several plans beside each other, a sweep as plots, a run beside its prediction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "planner/page/page_priv.h"
#include "planner/plan/plan_diff.h"
#include "planner/report/plan_line.h"

/* --- plans --- */

enum { PARTS = 3 };

static void cost_parts(const struct sbp_summary *summary, struct sbp_part part[PARTS])
{
    part[0] = (struct sbp_part){"arithmetic", SBP_COLOUR_FORWARD, sbp_summary_work_s(summary)};
    part[1] = (struct sbp_part){"exposed communication", SBP_COLOUR_COLLECTIVE,
                                summary->totals.exposed_s};
    part[2] = (struct sbp_part){"bubble", SBP_COLOUR_REST, summary->totals.bubble_s};
}

static void add_step_bars(struct sbp_text *html, const struct sbp_page *page)
{
    struct sbp_part part[PARTS];
    double most_s = 0, most_bubble_s = 0;
    for (int i = 0; i < page->plan_count; i++) {
        most_s = fmax(most_s, page->plan[i].report->summary.totals.step_s);
        most_bubble_s = fmax(most_bubble_s, page->plan[i].report->summary.totals.bubble_s);
    }
    sbp_text_add(html, "<div class=\"rows three\">");
    for (int i = 0; i < page->plan_count; i++) {
        const struct sbp_summary *summary = &page->plan[i].report->summary;
        cost_parts(summary, part);
        sbp_text_add(html, "<span>%d</span>", i + 1);
        sbp_figure_bar(html, "The step of a plan; the table below has the numbers", part, PARTS,
                       most_s, 0);
        sbp_text_add(html, "<span>");
        sbp_markup_seconds(html, summary->totals.step_s);
        sbp_text_add(html, "</span>");
    }
    sbp_text_add(html, "</div>");
    part[2].value = most_bubble_s;
    sbp_figure_key(html, part, PARTS);
}

/* Whether two steps do the same, so that their times compare. */
static bool is_same_work(const struct sbp_plan *a, const struct sbp_plan *b)
{
    const struct sbp_graph *one = &a->cut.graph, *two = &b->cut.graph;
    return strcmp(one->name, two->name) == 0 && one->global_batch == two->global_batch &&
           one->sequence == two->sequence && one->parameters == two->parameters;
}

static void add_plan_row(struct sbp_text *html, const struct sbp_page *page, int index)
{
    const struct sbp_page_plan *plan = &page->plan[index];
    const struct sbp_summary *summary = &plan->report->summary;
    const double first_s = page->plan[0].report->summary.totals.step_s;
    const bool same_work = is_same_work(page->plan[0].plan, plan->plan);
    char layout[SBP_LAYOUT_BYTES], change[SBP_PLAN_CHANGE_BYTES], rank[SBP_PAGE_RANK_BYTES];
    sbp_text_add(html, "<tr><td>%d</td><td>", index + 1);
    sbp_markup_seconds(html, summary->totals.step_s);
    sbp_text_add(html, "</td>");
    if (same_work)
        sbp_markup_cell(html, "%+.2f %%", 100 * (summary->totals.step_s / first_s - 1));
    else
        sbp_markup_cell(html, "-");
    sbp_text_add(html, "<td>");
    sbp_markup_seconds(html, sbp_summary_work_s(summary));
    sbp_text_add(html, "</td><td>");
    sbp_markup_seconds(html, summary->totals.exposed_s);
    sbp_text_add(html, "</td><td>");
    sbp_markup_seconds(html, summary->totals.bubble_s);
    sbp_text_add(html, "</td><td>");
    sbp_markup_bytes(html, (double)summary->totals.device_bytes);
    sbp_text_add(html, "</td><td>");
    sbp_markup_share(html, summary->mfu, 1);
    sbp_text_add(html, "</td>");
    sbp_markup_words(html, "%s", sbp_page_rank(plan->plan, rank));
    sbp_markup_words(html, "%s", sbp_layout_line_text(&plan->report->layout, layout));
    (void)sbp_plan_change(page->plan[0].plan, plan->plan, change);
    sbp_markup_words(html, "%s%s", same_work ? "" : "another model or batch; ",
                     index == 0 ? "" : change);
    sbp_markup_words(html, "%s", plan->file);
    sbp_text_add(html, "</tr>\n");
}

void sbp_page_beside(struct sbp_text *html, const struct sbp_page *page)
{
    static const char *const TITLES[] = {
        "plan",   "step", "over plan 1", "arithmetic", "exposed comm.",        "bubble",
        "memory", "MFU",  "<rank",       "<layout",    "<differs from plan 1", "<file"};
    sbp_page_section(html, 0, "beside", "Plans beside each other");
    add_step_bars(html, page);
    sbp_markup_table(html, "Plans beside each other", (int)(sizeof TITLES / sizeof *TITLES),
                     TITLES);
    for (int i = 0; i < page->plan_count; i++)
        add_plan_row(html, page, i);
    sbp_markup_table_end(html);
    sbp_text_add(html, "</section>\n");
}

/* --- lists of files --- */

static enum sbp_status walk_to(const struct sbp_json *array, int index, struct sbp_json *element)
{
    return index == 0 ? sbp_json_element(array, 0, element) : sbp_json_next(array, index, element);
}

/* --- a sweep --- */

enum { MOST_SWEPT = 256, MOST_SERIES = 8, MOST_KEYS = 4 };

struct swept {
    const struct cJSON *values; /* KEY: text */
    const char *status, *plan;
    double step_s, rate, mfu, device_bytes; /* NAN: no plan */
};

struct sweep {
    int rows, ticks;
    struct swept row[MOST_SWEPT];
    const char *tick[MOST_SWEPT]; /* values of the last key, in their order */
};

/* A number of a member, NAN where the row has no plan. */
static enum sbp_status read_number(const struct sbp_json *row, const char *part, const char *key,
                                   double *value)
{
    struct sbp_json object, member;
    *value = NAN;
    if (!sbp_json_has(row, part))
        return SBP_OK;
    SBP_TRY(sbp_json_member(row, part, &object));
    SBP_TRY(sbp_json_member(&object, key, &member));
    return sbp_json_double(&member, 0, 1e300, value);
}

static enum sbp_status read_text(const struct sbp_json *row, const char *key, const char **text)
{
    struct sbp_json member;
    *text = "";
    if (!sbp_json_has(row, key))
        return SBP_OK;
    SBP_TRY(sbp_json_member(row, key, &member));
    return sbp_json_string(&member, text);
}

static enum sbp_status read_row(const struct sbp_json *at, struct swept *row)
{
    struct sbp_json values;
    SBP_TRY(sbp_json_member(at, "values", &values));
    row->values = values.node;
    const int keys = cJSON_GetArraySize(row->values);
    if (!cJSON_IsObject(row->values) || keys < 1 || keys > MOST_KEYS)
        return sbp_json_refuse(&values, "must be an object of 1 to %d texts", MOST_KEYS);
    for (const struct cJSON *value = row->values->child; value != NULL; value = value->next)
        if (!cJSON_IsString(value))
            return sbp_json_refuse(&values, "must be an object of 1 to %d texts", MOST_KEYS);
    SBP_TRY(read_text(at, "status", &row->status));
    SBP_TRY(read_text(at, "plan", &row->plan));
    SBP_TRY(read_number(at, "cost", "step_s", &row->step_s));
    SBP_TRY(read_number(at, "cost", "tokens_per_s", &row->rate));
    SBP_TRY(read_number(at, "cost", "mfu", &row->mfu));
    return read_number(at, "memory", "device_bytes", &row->device_bytes);
}

static const struct cJSON *last_of(const struct cJSON *values)
{
    const struct cJSON *last = values->child;
    while (last->next != NULL)
        last = last->next;
    return last;
}

static int tick_of(struct sweep *sweep, const char *value)
{
    int at = 0;
    while (at < sweep->ticks && strcmp(sweep->tick[at], value) != 0)
        at++;
    if (at == sweep->ticks)
        sweep->tick[sweep->ticks++] = value;
    return at;
}

static enum sbp_status read_sweep(const struct sbp_page_file *file, struct sweep *sweep,
                                  struct sbp_diag *diag)
{
    struct sbp_json root, rows, row;
    sbp_json_at(file->json, file->name, diag, &root);
    SBP_TRY(sbp_json_member(&root, "rows", &rows));
    SBP_TRY(sbp_json_length(&rows, &sweep->rows));
    if (sweep->rows < 1 || sweep->rows > MOST_SWEPT)
        return sbp_json_refuse(&rows, "has %d rows, legal are 1 to %d", sweep->rows, MOST_SWEPT);
    for (int i = 0; i < sweep->rows; i++) {
        SBP_TRY(walk_to(&rows, i, &row));
        SBP_TRY(read_row(&row, &sweep->row[i]));
        (void)tick_of(sweep, last_of(sweep->row[i].values)->valuestring);
    }
    return SBP_OK;
}

/* "layers=4, zero=1" of all keys but the last, or all of them. */
static void add_values(struct sbp_text *text, const struct cJSON *values, bool all)
{
    const char *comma = "";
    for (const struct cJSON *value = values->child; value != NULL; value = value->next)
        if (all || value->next != NULL) {
            sbp_text_add(text, "%s%s=%s", comma, value->string, value->valuestring);
            comma = ", ";
        }
}

/* Curves over the last key, one for each combination of the others. */
struct curves {
    struct sbp_series series[MOST_SERIES];
    struct sbp_text name[MOST_SERIES];
    double x[MOST_SERIES][MOST_SWEPT], y[MOST_SERIES][MOST_SWEPT];
    int count;
};

static int curve_named(struct curves *curves, const struct cJSON *values)
{
    struct sbp_text name = {0};
    int at = 0;
    add_values(&name, values, false);
    const char *bytes = name.bytes == NULL ? "" : name.bytes;
    while (at < curves->count && strcmp(curves->series[at].name, bytes) != 0)
        at++;
    if (at < curves->count || at == MOST_SERIES) {
        sbp_text_free(&name);
        return at;
    }
    curves->name[at] = name;
    curves->series[at] = (struct sbp_series){.name = bytes,
                                             .colour = sbp_figure_colour(at),
                                             .is_dotted = true,
                                             .x = curves->x[at],
                                             .y = curves->y[at]};
    curves->count++;
    return at;
}

static void free_curves(struct curves *curves)
{
    for (int i = 0; i < curves->count; i++)
        sbp_text_free(&curves->name[i]);
    free(curves);
}

static enum sbp_status add_plot(struct sbp_text *html, struct sweep *sweep, const char *title,
                                enum sbp_figure_unit unit, size_t offset, struct sbp_diag *diag)
{
    struct curves *curves = calloc(1, sizeof *curves);
    if (curves == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < sweep->rows; i++) {
        const struct swept *row = &sweep->row[i];
        const int at = curve_named(curves, row->values);
        if (at == MOST_SERIES)
            continue;
        const int count = curves->series[at].count++;
        curves->x[at][count] = tick_of(sweep, last_of(row->values)->valuestring);
        memcpy(&curves->y[at][count], (const char *)row + offset, sizeof(double));
    }
    const struct sbp_lines lines = {.title = title,
                                    .label = title,
                                    .unit = unit,
                                    .low_x = -0.4,
                                    .high_x = sweep->ticks - 0.6,
                                    .tick_count = sweep->ticks,
                                    .tick = sweep->tick,
                                    .count = curves->count,
                                    .series = curves->series};
    sbp_figure_lines(html, &lines);
    free_curves(curves);
    return SBP_OK;
}

static void add_swept_row(struct sbp_text *html, const struct swept *row)
{
    struct sbp_text values = {0};
    add_values(&values, row->values, true);
    html->failed |= values.failed;
    sbp_text_add(html, "<tr>");
    sbp_markup_cell(html, "%s", values.bytes == NULL ? "" : values.bytes);
    sbp_text_free(&values);
    sbp_text_add(html, "<td>");
    sbp_markup_seconds(html, row->step_s);
    sbp_text_add(html, "</td><td>");
    sbp_markup_count(html, row->rate);
    sbp_text_add(html, "</td><td>");
    sbp_markup_bytes(html, row->device_bytes);
    sbp_text_add(html, "</td><td>");
    if (isfinite(row->mfu))
        sbp_markup_share(html, row->mfu, 1);
    sbp_text_add(html, "</td>");
    sbp_markup_words(html, "%s", row->status);
    sbp_markup_words(html, "%s", row->plan);
    sbp_text_add(html, "</tr>\n");
}

static enum sbp_status add_plots(struct sbp_text *html, struct sweep *sweep, struct sbp_diag *diag)
{
    static const struct {
        const char *title;
        enum sbp_figure_unit unit;
        size_t offset;
    } plots[] = {{"Step", SBP_FIGURE_SECONDS, offsetof(struct swept, step_s)},
                 {"Tokens or samples a second", SBP_FIGURE_COUNT, offsetof(struct swept, rate)},
                 {"Memory of a device", SBP_FIGURE_BYTES, offsetof(struct swept, device_bytes)},
                 {"MFU", SBP_FIGURE_SHARE, offsetof(struct swept, mfu)}};
    sbp_text_add(html, "<div class=\"plots\">");
    for (size_t i = 0; i < sizeof plots / sizeof *plots; i++)
        SBP_TRY(add_plot(html, sweep, plots[i].title, plots[i].unit, plots[i].offset, diag));
    sbp_text_add(html, "</div>");
    return SBP_OK;
}

static enum sbp_status add_sweep(struct sbp_text *html, const struct sbp_page_file *file,
                                 struct sweep *sweep, struct sbp_diag *diag)
{
    static const char *const TITLES[] = {"values", "step",    "a second", "memory",
                                         "MFU",    "<status", "<plan"};
    const struct cJSON *command = cJSON_GetObjectItemCaseSensitive(file->json, "command");
    sbp_text_add(html, "<p class=\"note\">");
    sbp_markup_name(html, file->name);
    sbp_text_add(html, ", over ");
    sbp_markup_name(html, last_of(sweep->row[0].values)->string);
    sbp_text_add(html, "</p>\n");
    if (cJSON_IsString(command)) {
        sbp_text_add(html, "<div class=\"code\">");
        sbp_markup_text(html, command->valuestring);
        sbp_text_add(html, "</div>");
    }
    SBP_TRY(add_plots(html, sweep, diag));
    sbp_markup_table(html, "Rows of the sweep", 7, TITLES);
    for (int i = 0; i < sweep->rows; i++)
        add_swept_row(html, &sweep->row[i]);
    sbp_markup_table_end(html);
    return SBP_OK;
}

enum sbp_status sbp_page_sweep(struct sbp_text *html, const struct sbp_page_file *file, int number,
                               struct sbp_diag *diag)
{
    char id[32];
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (sweep == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    (void)snprintf(id, sizeof id, "sweep-%d", number);
    sbp_page_section(html, 0, id, "What a change would bring");
    enum sbp_status status = read_sweep(file, sweep, diag);
    if (status == SBP_OK)
        status = add_sweep(html, file, sweep, diag);
    sbp_text_add(html, "</section>\n");
    free(sweep);
    return status;
}

/* --- a run --- */

enum { MOST_STEPS = 100000, SHOWN_STEPS = 200 };

struct run {
    const char *model, *backend, *device, *dtype, *plan, *verified;
    double ranks, cores, seed;
    double predicted_s, predicted_compute_s, predicted_communication_s;
    double replay_s, wall_s, compute_s; /* medians over steps */
    double arena_bytes, used_bytes;     /* NAN: the run ended early */
    bool wall_is_parallel;
    int steps;
    double *loss, *step; /* (steps), owned: of the line that is compared */
};

static enum sbp_status get_number(const struct sbp_json *object, const char *key, double *value)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(object, key, &member));
    return sbp_json_double(&member, -1e300, 1e300, value);
}

static int by_size(const void *a, const void *b)
{
    const double one = *(const double *)a, two = *(const double *)b;
    return (one > two) - (one < two);
}

/* The median of a key over all steps; sorts `room`. */
static enum sbp_status median(const struct sbp_json *steps, int count, const char *key,
                              double *room, double *value)
{
    struct sbp_json step;
    for (int i = 0; i < count; i++) {
        SBP_TRY(walk_to(steps, i, &step));
        SBP_TRY(get_number(&step, key, &room[i]));
    }
    qsort(room, (size_t)count, sizeof *room, by_size);
    *value = (room[(count - 1) / 2] + room[count / 2]) / 2;
    return SBP_OK;
}

static enum sbp_status read_losses(const struct sbp_json *steps, struct run *run)
{
    struct sbp_json step;
    for (int i = 0; i < run->steps; i++) {
        SBP_TRY(walk_to(steps, i, &step));
        const struct cJSON *loss = cJSON_GetObjectItemCaseSensitive(step.node, "loss");
        run->loss[i] = cJSON_IsNumber(loss) ? loss->valuedouble : NAN;
        run->step[i] = i;
    }
    return SBP_OK;
}

static enum sbp_status read_steps(const struct sbp_json *root, struct run *run,
                                  struct sbp_diag *diag)
{
    struct sbp_json steps;
    SBP_TRY(sbp_json_member(root, "steps", &steps));
    SBP_TRY(sbp_json_length(&steps, &run->steps));
    if (run->steps < 1 || run->steps > MOST_STEPS)
        return sbp_json_refuse(&steps, "has %d steps, legal are 1 to %d", run->steps, MOST_STEPS);
    run->loss = calloc((size_t)run->steps, sizeof *run->loss);
    run->step = calloc((size_t)run->steps, sizeof *run->step);
    if (run->loss == NULL || run->step == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    SBP_TRY(median(&steps, run->steps, "replay_s", run->loss, &run->replay_s));
    SBP_TRY(median(&steps, run->steps, "wall_s", run->loss, &run->wall_s));
    SBP_TRY(median(&steps, run->steps, "compute_s", run->loss, &run->compute_s));
    return read_losses(&steps, run);
}

static enum sbp_status read_run(const struct sbp_page_file *file, struct run *run,
                                struct sbp_diag *diag)
{
    struct sbp_json root, predicted, member;
    sbp_json_at(file->json, file->name, diag, &root);
    SBP_TRY(read_text(&root, "model", &run->model));
    SBP_TRY(read_text(&root, "backend", &run->backend));
    SBP_TRY(read_text(&root, "device", &run->device));
    SBP_TRY(read_text(&root, "dtype", &run->dtype));
    SBP_TRY(read_text(&root, "plan", &run->plan));
    SBP_TRY(get_number(&root, "ranks", &run->ranks));
    SBP_TRY(get_number(&root, "cores", &run->cores));
    SBP_TRY(get_number(&root, "seed", &run->seed));
    SBP_TRY(sbp_json_member(&root, "wall_is_parallel", &member));
    SBP_TRY(sbp_json_bool(&member, &run->wall_is_parallel));
    SBP_TRY(sbp_json_member(&root, "predicted", &predicted));
    SBP_TRY(get_number(&predicted, "step_s", &run->predicted_s));
    SBP_TRY(get_number(&predicted, "compute_s", &run->predicted_compute_s));
    SBP_TRY(get_number(&predicted, "communication_s", &run->predicted_communication_s));
    run->arena_bytes = run->used_bytes = NAN;
    if (sbp_json_has(&root, "high_water_bytes")) {
        SBP_TRY(get_number(&root, "arena_bytes", &run->arena_bytes));
        SBP_TRY(get_number(&root, "high_water_bytes", &run->used_bytes));
    }
    const struct cJSON *verified = cJSON_GetObjectItemCaseSensitive(root.node, "verification");
    verified = cJSON_GetObjectItemCaseSensitive(verified, "status");
    run->verified = cJSON_IsString(verified) ? verified->valuestring : "off";
    return read_steps(&root, run, diag);
}

/* The plan that a run is of, by model and by the name of its file; -1: none is of its model. */
static int plan_of(const struct sbp_page *page, const struct run *run)
{
    int found = -1;
    for (int i = page->plan_count - 1; i >= 0; i--)
        if (strcmp(page->plan[i].plan->cut.graph.name, run->model) == 0 &&
            (found < 0 || strcmp(page->plan[i].file, run->plan) == 0))
            found = i;
    return found;
}

static void measured_row(struct sbp_text *html, const char *name, double predicted, double measured,
                         void (*add)(struct sbp_text *, double))
{
    sbp_text_add(html, "<tr>");
    sbp_markup_cell(html, "%s", name);
    sbp_text_add(html, "<td>");
    add(html, predicted);
    sbp_text_add(html, "</td><td>");
    add(html, measured);
    sbp_text_add(html, "</td>");
    if (isfinite(predicted) && isfinite(measured) && predicted > 0)
        sbp_markup_cell(html, "%.2f", measured / predicted);
    else
        sbp_markup_cell(html, "-");
    sbp_text_add(html, "</tr>\n");
}

static void add_pair(struct sbp_text *html, const struct run *run)
{
    const double compared_s = run->wall_is_parallel ? run->wall_s : run->replay_s;
    const double most_s = fmax(run->predicted_s, compared_s);
    const struct sbp_part predicted = {"predicted", SBP_COLOUR_FORWARD, run->predicted_s};
    const struct sbp_part measured = {"measured", SBP_COLOUR_UPDATE, compared_s};
    sbp_text_add(html, "<div class=\"rows three\"><span>predicted</span>");
    sbp_figure_bar(html, "The predicted step", &predicted, 1, most_s, 0);
    sbp_text_add(html, "<span>");
    sbp_markup_seconds(html, run->predicted_s);
    sbp_text_add(html, "</span><span>measured</span>");
    sbp_figure_bar(html, "The measured step", &measured, 1, most_s, 0);
    sbp_text_add(html, "<span>");
    sbp_markup_seconds(html, compared_s);
    sbp_text_add(html, "</span></div>\n");
}

static void add_losses(struct sbp_text *html, const struct run *run)
{
    const int count = run->steps < SHOWN_STEPS ? run->steps : SHOWN_STEPS;
    static const char *const first[] = {"first step"};
    char title[64];
    if (run->steps < 3)
        return;
    const struct sbp_series series = {.name = "loss",
                                      .colour = SBP_COLOUR_FORWARD,
                                      .count = count,
                                      .x = run->step,
                                      .y = run->loss};
    (void)snprintf(title, sizeof title, "Loss over %s%d steps",
                   count < run->steps ? "the first " : "", count);
    const struct sbp_lines lines = {.title = title,
                                    .label = title,
                                    .unit = SBP_FIGURE_COUNT,
                                    .high_x = count - 1,
                                    .tick_count = 1,
                                    .tick = first,
                                    .count = 1,
                                    .series = &series};
    sbp_figure_lines(html, &lines);
}

static void add_run(struct sbp_text *html, const struct run *run, int plan)
{
    static const char *const TITLES[] = {"", "predicted", "measured", "measured / predicted"};
    sbp_text_add(html, "<p class=\"note\">Plan %d, ", plan + 1);
    sbp_markup_add(html,
                   "%d step%s of %.0f ranks on %.0f cores, %s on %s in %s, seed %.0f; "
                   "verification: %s. Times are medians over steps. ",
                   run->steps, run->steps == 1 ? "" : "s", run->ranks, run->cores, run->backend,
                   run->device, run->dtype, run->seed, run->verified);
    sbp_text_add(html, "%s</p>\n",
                 run->wall_is_parallel
                     ? "Every rank has a core, so that the time of the clock is compared."
                     : "Ranks share cores, so that measured arithmetic on the predicted timeline "
                       "is compared (replay); the time of the clock is not that of a parallel "
                       "machine.");
    add_pair(html, run);
    sbp_markup_table(html, "Predicted beside measured", 4, TITLES);
    measured_row(html, "step, replay", run->predicted_s, run->replay_s, sbp_markup_seconds);
    measured_row(html, "step, by the clock", run->wall_is_parallel ? run->predicted_s : NAN,
                 run->wall_s, sbp_markup_seconds);
    measured_row(html, "compute", run->predicted_compute_s, run->compute_s, sbp_markup_seconds);
    measured_row(html, "communication", run->predicted_communication_s, NAN, sbp_markup_seconds);
    measured_row(html, "memory of the arena", run->arena_bytes, run->used_bytes, sbp_markup_bytes);
    sbp_markup_table_end(html);
    add_losses(html, run);
}

enum sbp_status sbp_page_run(struct sbp_text *html, const struct sbp_page *page, int index,
                             struct sbp_diag *diag)
{
    const struct sbp_page_file *file = &page->run[index];
    struct run run = {0};
    char id[32];
    enum sbp_status status = read_run(file, &run, diag);
    const int plan = status == SBP_OK ? plan_of(page, &run) : -1;
    if (status == SBP_OK && plan < 0)
        status = sbp_fail(diag, SBP_E_INPUT,
                          "%s: model: \"%.60s\" is not the model of a plan that is given, legal is "
                          "\"%.60s\"",
                          file->name, run.model, page->plan[0].plan->cut.graph.name);
    (void)snprintf(id, sizeof id, "run-%d", index + 1);
    sbp_page_section(html, 0, id, "Predicted beside measured");
    if (status == SBP_OK)
        add_run(html, &run, plan);
    sbp_text_add(html, "</section>\n");
    free(run.loss);
    free(run.step);
    return status;
}
