/* The step over time: what stages compute, what they send, and what they hold. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/page/page_priv.h"
#include "planner/report/plan_trace.h"

enum { MOST_ROWS = 16, MOST_LANES = 16, POINTS = 1200, MOST_CURVES = 3, WINDOWED = 60 };
static const double WINDOW_MOST = 0.5; /* of the step; a longer part shows no more than the whole */

struct event {
    int process;
    bool beside; /* not computing: in the thin row */
    enum sbp_colour colour;
    double begin_s, end_s;
};

struct sample {
    int process;
    double at_s;
    double bytes;
};

/* What the trace says, as it is heard. */
struct events {
    int processes;
    const char *lane[MOST_LANES]; /* static names of the trace */
    struct sbp_text names;        /* NUL-separated, in the order of processes */
    struct event *event;
    struct sample *sample;
    size_t event_count, event_room, sample_count, sample_room;
    double end_s;
    bool failed;
};

/* --- hearing --- */

/* Makes room for one more of `size` bytes. */
static bool grow(void **array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return true;
    const size_t more = *room == 0 ? 1024 : 2 * *room;
    void *moved = realloc(*array, more * size);
    if (moved == NULL)
        return false;
    *array = moved;
    *room = more;
    return true;
}

static void hear_process(void *context, int pid, const char *name)
{
    struct events *events = context;
    (void)pid;
    sbp_text_add(&events->names, "%s%c", name, '\0');
    events->processes++;
}

static void hear_lane(void *context, int pid, int lane, const char *name)
{
    struct events *events = context;
    (void)pid;
    if (lane >= 0 && lane < MOST_LANES)
        events->lane[lane] = name;
}

/* Whether a name is that of a work, "forward [3]", and not of one of its tasks, "forward fc1". */
static bool is_work(const char *name, const char *work)
{
    const size_t length = strlen(work);
    return strncmp(name, work, length) == 0 && (name[length] == '\0' || name[length] == ',' ||
                                                (name[length] == ' ' && name[length + 1] == '['));
}

/* The colour of an interval; false: it is not drawn. */
static bool colour_of(const char *lane, const char *name, struct event *event)
{
    static const struct {
        const char *name;
        enum sbp_colour colour;
    } works[] = {{"forward", SBP_COLOUR_FORWARD},
                 {"backward", SBP_COLOUR_BACKWARD},
                 {"weight gradients", SBP_COLOUR_STATES},
                 {"recompute", SBP_COLOUR_RECOMPUTE},
                 {"update", SBP_COLOUR_UPDATE}},
      lanes[] = {{"collective", SBP_COLOUR_COLLECTIVE},
                 {"send to next", SBP_COLOUR_SEND},
                 {"send to previous", SBP_COLOUR_SEND},
                 {"copy", SBP_COLOUR_COPY}};
    event->beside = strcmp(lane, "compute") != 0;
    for (size_t i = 0; i < sizeof works / sizeof *works && !event->beside; i++)
        if (is_work(name, works[i].name)) {
            event->colour = works[i].colour;
            return true;
        }
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes && event->beside; i++)
        if (strcmp(lane, lanes[i].name) == 0) {
            event->colour = lanes[i].colour;
            return true;
        }
    return false;
}

static void hear_interval(void *context, int pid, int lane, const char *name, double begin_s,
                          double end_s)
{
    struct events *events = context;
    struct event event = {.process = events->processes - 1, .begin_s = begin_s, .end_s = end_s};
    (void)pid;
    if (lane < 0 || lane >= MOST_LANES || events->lane[lane] == NULL ||
        !colour_of(events->lane[lane], name, &event))
        return;
    if (!grow((void **)&events->event, events->event_count, &events->event_room, sizeof event)) {
        events->failed = true;
        return;
    }
    events->event[events->event_count++] = event;
    events->end_s = fmax(events->end_s, end_s);
}

static void hear_counter(void *context, int pid, const char *name, double at_s, int64_t value)
{
    struct events *events = context;
    (void)pid;
    if (strcmp(name, "memory") != 0)
        return;
    if (!grow((void **)&events->sample, events->sample_count, &events->sample_room,
              sizeof *events->sample)) {
        events->failed = true;
        return;
    }
    events->sample[events->sample_count++] =
        (struct sample){events->processes - 1, at_s, (double)value};
}

static void free_events(struct events *events)
{
    sbp_text_free(&events->names);
    free(events->event);
    free(events->sample);
}

static const char *process_name(const struct events *events, int process)
{
    const char *name = events->names.bytes;
    for (int i = 0; i < process; i++)
        name += strlen(name) + 1;
    const char *comma = strchr(name, ',');
    return comma == NULL ? "device" : comma + 2; /* "predicted, stage 3" */
}

/* --- rows --- */

static int row_count(const struct events *events)
{
    return events->processes < MOST_ROWS ? events->processes : MOST_ROWS;
}

static void add_tracks(struct sbp_text *html, const struct events *events, int process,
                       double begin_s, double end_s)
{
    struct sbp_strip work = {.begin_s = begin_s, .end_s = end_s};
    struct sbp_strip beside = {.begin_s = begin_s, .end_s = end_s};
    char label[96];
    for (size_t i = 0; i < events->event_count; i++)
        if (events->event[i].process == process)
            sbp_figure_strip_add(events->event[i].beside ? &beside : &work, events->event[i].colour,
                                 events->event[i].begin_s, events->event[i].end_s);
    (void)snprintf(label, sizeof label, "%s, what it computes", process_name(events, process));
    sbp_text_add(html, "<div>");
    sbp_figure_strip_end(&work, html, "track", label);
    (void)snprintf(label, sizeof label, "%s, what it sends", process_name(events, process));
    sbp_figure_strip_end(&beside, html, "track thin", label);
    sbp_text_add(html, "</div>");
}

static void add_window(struct sbp_text *html, const struct events *events, const char *caption,
                       double begin_s, double end_s)
{
    sbp_text_add(html, "<figure><figcaption>%s</figcaption><div class=\"rows\">", caption);
    for (int row = 0; row < row_count(events); row++) {
        const int process = sbp_page_spread(row, row_count(events), events->processes);
        sbp_text_add(html, "<span>");
        sbp_markup_text(html, process_name(events, process));
        sbp_text_add(html, "</span>");
        add_tracks(html, events, process, begin_s, end_s);
    }
    sbp_text_add(html, "<span></span>");
    sbp_figure_time_axis(html, begin_s, end_s);
    sbp_text_add(html, "</div></figure>\n");
}

static void add_key(struct sbp_text *html, const struct events *events)
{
    static const struct sbp_part all[] = {{"forward", SBP_COLOUR_FORWARD, 1},
                                          {"backward", SBP_COLOUR_BACKWARD, 1},
                                          {"weight gradients", SBP_COLOUR_STATES, 1},
                                          {"recompute", SBP_COLOUR_RECOMPUTE, 1},
                                          {"update", SBP_COLOUR_UPDATE, 1},
                                          {"collective", SBP_COLOUR_COLLECTIVE, 1},
                                          {"message to a stage", SBP_COLOUR_SEND, 1},
                                          {"copy to or from the host", SBP_COLOUR_COPY, 1}};
    enum { COUNT = sizeof all / sizeof *all };
    struct sbp_part part[COUNT];
    memcpy(part, all, sizeof all);
    for (int k = 0; k < COUNT; k++)
        part[k].value = 0;
    for (size_t i = 0; i < events->event_count; i++)
        for (int k = 0; k < COUNT; k++)
            if (part[k].colour == events->event[i].colour)
                part[k].value = 1;
    sbp_figure_key(html, part, COUNT);
}

/* A part of the step in which works can be seen one by one: so many of them, and the time in which
 * a pipeline fills. */
static double window_s(const struct events *events)
{
    double sum_s = 0, fill_s = events->end_s;
    int64_t count = 0;
    for (size_t i = 0; i < events->event_count; i++) {
        const struct event *event = &events->event[i];
        if (event->beside)
            continue;
        sum_s += event->end_s - event->begin_s;
        count++;
        if (event->process == events->processes - 1)
            fill_s = fmin(fill_s, event->begin_s);
    }
    return count == 0 ? events->end_s : fill_s + WINDOWED * sum_s / (double)count;
}

static void add_windows(struct sbp_text *html, const struct events *events)
{
    const double part_s = window_s(events);
    add_window(html, events, "The whole step", 0, events->end_s);
    if (part_s > WINDOW_MOST * events->end_s)
        return;
    add_window(html, events, "Its begin", 0, part_s);
    add_window(html, events, "Its end", events->end_s - part_s, events->end_s);
}

/* --- memory over time --- */

/* The curve of a process, at most two points for each of POINTS moments: the most that it holds
 * there, and what it goes on with. Returns how many. */
static int curve_of(const struct events *events, int process, double *x, double *y)
{
    const double moment_s = events->end_s / (POINTS - 1);
    double held = 0;
    int count = 0;
    for (size_t i = 0; i < events->sample_count; i++) {
        const struct sample *sample = &events->sample[i];
        if (sample->process != process)
            continue;
        const double at_s = floor(fmin(sample->at_s, events->end_s) / moment_s) * moment_s;
        if (count > 0 && at_s < x[count - 1] + moment_s / 2) {
            y[count - 1] = fmax(y[count - 1], sample->bytes);
        } else {
            if (count > 0 && held < y[count - 1]) {
                x[count] = x[count - 1] + moment_s / 4;
                y[count++] = held;
            }
            x[count] = at_s;
            y[count++] = sample->bytes;
        }
        held = sample->bytes;
    }
    x[count] = events->end_s;
    y[count++] = held;
    return count;
}

static int fullest(const struct events *events)
{
    size_t most = 0;
    for (size_t i = 1; i < events->sample_count; i++)
        if (events->sample[i].bytes > events->sample[most].bytes)
            most = i;
    return events->sample_count == 0 ? 0 : events->sample[most].process;
}

struct curves {
    struct sbp_series series[MOST_CURVES + 1];
    double x[MOST_CURVES][2 * POINTS + 2], y[MOST_CURVES][2 * POINTS + 2];
    double limit_x[2], limit_y[2];
    int count;
};

static void add_curve(struct curves *curves, const struct events *events, int process)
{
    static const enum sbp_colour colours[] = {SBP_COLOUR_COLLECTIVE, SBP_COLOUR_FORWARD,
                                              SBP_COLOUR_STATES};
    const int at = curves->count;
    for (int i = 0; i < at; i++)
        if (curves->series[i].name == process_name(events, process))
            return;
    curves->series[at] =
        (struct sbp_series){.name = process_name(events, process),
                            .colour = colours[at],
                            .is_stepped = true,
                            .count = curve_of(events, process, curves->x[at], curves->y[at]),
                            .x = curves->x[at],
                            .y = curves->y[at]};
    curves->count++;
}

static double most_bytes(const struct events *events)
{
    double most = 0;
    for (size_t i = 0; i < events->sample_count; i++)
        most = fmax(most, events->sample[i].bytes);
    return most;
}

static enum sbp_status add_memory(struct sbp_text *html, const struct events *events,
                                  double limit_bytes, struct sbp_diag *diag)
{
    const bool has_limit = sbp_page_shows_limit(most_bytes(events), limit_bytes);
    struct curves *curves = calloc(1, sizeof *curves);
    if (curves == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    add_curve(curves, events, fullest(events));
    add_curve(curves, events, 0);
    add_curve(curves, events, events->processes - 1);
    curves->limit_x[1] = events->end_s;
    curves->limit_y[0] = curves->limit_y[1] = limit_bytes;
    curves->series[curves->count] = (struct sbp_series){.name = "limit",
                                                        .colour = SBP_COLOUR_REST,
                                                        .is_dashed = true,
                                                        .count = 2,
                                                        .x = curves->limit_x,
                                                        .y = curves->limit_y};
    const struct sbp_lines lines = {.title = "Memory of a device over the step",
                                    .label = "Memory over time, below the device's limit",
                                    .unit = SBP_FIGURE_BYTES,
                                    .high_x = events->end_s,
                                    .count = curves->count + has_limit,
                                    .series = curves->series};
    sbp_figure_lines(html, &lines);
    free(curves);
    return SBP_OK;
}

/* --- one micro-batch --- */

static void add_section(struct sbp_text *html, const struct sbp_program *program,
                        enum sbp_section section, enum sbp_colour colour, double whole_s)
{
    struct sbp_strip strip = {.end_s = whole_s};
    double at_s = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->section != section)
            continue;
        sbp_figure_strip_add(&strip, colour, at_s, at_s + instr->compute_s);
        at_s += instr->compute_s;
        sbp_figure_strip_add(&strip, SBP_COLOUR_COLLECTIVE, at_s, at_s + instr->communication_s);
        at_s += instr->communication_s;
    }
    if (at_s > 0) {
        sbp_text_add(html, "<span>%s</span><div>", sbp_program_section_name(section));
        sbp_figure_strip_end(&strip, html, "track",
                             "Arithmetic and communication, one after the other");
        sbp_text_add(html, "</div>");
    }
}

static double section_s(const struct sbp_program *program, enum sbp_section section)
{
    double seconds = 0;
    for (int i = 0; i < program->instr_count; i++)
        if (program->instr[i].section == section)
            seconds += program->instr[i].compute_s + program->instr[i].communication_s;
    return seconds;
}

/* The program of the first piece: others differ in their first and last layers. */
static void add_program(struct sbp_text *html, const struct sbp_step *step)
{
    static const enum sbp_colour colours[SBP_SECTIONS] = {
        [SBP_SECTION_FORWARD] = SBP_COLOUR_FORWARD,
        [SBP_SECTION_RECOMPUTE] = SBP_COLOUR_RECOMPUTE,
        [SBP_SECTION_BACKWARD] = SBP_COLOUR_BACKWARD,
        [SBP_SECTION_BACKWARD_WEIGHT] = SBP_COLOUR_STATES,
        [SBP_SECTION_STEP] = SBP_COLOUR_UPDATE};
    const struct sbp_program *program = sbp_step_program(step, 0);
    double whole_s = 0;
    for (int section = 0; section < SBP_SECTIONS; section++)
        whole_s = fmax(whole_s, section_s(program, (enum sbp_section)section));
    if (!(whole_s > 0))
        return;
    sbp_text_add(html,
                 "<h4>One micro-batch, operator by operator</h4>"
                 "<p class=\"note\">Priced one after the other, on a device%s; row step "
                 "stands for what runs once a step. What hides behind arithmetic is in the "
                 "timeline above.</p><div class=\"rows\">",
                 step->pieces > 1 ? " of the first stage" : "");
    for (int section = 0; section < SBP_SECTIONS; section++)
        add_section(html, program, (enum sbp_section)section, colours[section], whole_s);
    sbp_text_add(html, "<span></span>");
    sbp_figure_time_axis(html, 0, whole_s);
    sbp_text_add(html, "</div>\n");
}

/* --- the section --- */

static enum sbp_status add_drawn(struct sbp_text *html, const struct sbp_page_plan *plan,
                                 const struct events *events, const struct sbp_plan_trace *drawn,
                                 struct sbp_diag *diag)
{
    const struct sbp_step *step = &plan->report->step;
    sbp_text_add(html, "<p class=\"note\">%s.",
                 drawn->by_tasks ? "Played task by task, as a run plays it"
                                 : "Work by work, as the schedule was simulated; a pass holds the "
                                   "communication that it waits for");
    if (row_count(events) < step->stages)
        sbp_text_add(html, " %d of %d stages are drawn.", row_count(events), step->stages);
    if (sbp_timeline_delays_gradients(step->parallel.schedule))
        sbp_text_add(html, " Steps have no end of their own: all that were simulated are drawn.");
    sbp_text_add(html, " Thick rows compute, thin rows send.</p>\n");
    add_key(html, events);
    add_windows(html, events);
    return add_memory(html, events, sbp_page_limit_bytes(plan), diag);
}

enum sbp_status sbp_page_timeline(struct sbp_text *html, const struct sbp_page_plan *plan,
                                  int number, struct sbp_diag *diag)
{
    struct events events = {0};
    const struct sbp_trace_sink sink = {&events, hear_process, hear_lane, hear_interval,
                                        hear_counter};
    struct sbp_trace trace = {.sink = &sink};
    struct sbp_plan_trace drawn;
    struct sbp_diag why = {{0}};
    enum sbp_status status = sbp_plan_trace_draw(plan->plan, &trace, &drawn, &why);
    sbp_page_section(html, number, "timeline", "The step over time");
    if (events.failed || events.names.failed)
        status = sbp_fail(&why, SBP_E_MEMORY, "out of memory for the timeline of a step");
    if (status == SBP_OK && events.end_s > 0)
        status = add_drawn(html, plan, &events, &drawn, diag);
    else if (status == SBP_E_INPUT || status == SBP_OK)
        sbp_text_add(html, "<p>The step has too many works to be drawn.</p>");
    else
        (void)sbp_fail(diag, status, "%s", why.text);
    if (status == SBP_OK || status == SBP_E_INPUT)
        add_program(html, &plan->report->step);
    sbp_text_add(html, "</section>\n");
    free_events(&events);
    return status == SBP_E_INPUT ? SBP_OK : status;
}
