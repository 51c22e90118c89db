#include "planner/problem/live_ranges.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The start or the end of a span. Ends come first at equal times, as intervals are half-open. */
struct live_event {
    int64_t time;
    int span;
    bool start;
};

static int compare_events(const void *left, const void *right)
{
    const struct live_event *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->start != b->start)
        return a->start ? 1 : -1;
    return (a->span > b->span) - (a->span < b->span);
}

/* The largest usage among values that are not forbidden by themselves. */
static double largest_usage(const struct sbp_variable *variable, const double *usage)
{
    double most = 0;
    for (int k = 0; k < variable->domain; k++)
        if (variable->cost[k] < SBP_FORBIDDEN && usage[k] > most)
            most = usage[k];
    return most;
}

static bool is_used(const struct sbp_variable *variable, int interval)
{
    return variable->interval[interval].from < variable->interval[interval].to &&
           largest_usage(variable, variable->usage + (size_t)interval * (size_t)variable->domain) >
               0;
}

static size_t collect(const struct sbp_problem *problem, struct sbp_live *live,
                      struct live_event *events)
{
    int spans = 0;
    size_t count = 0;
    for (int v = 0; v < problem->variable_count; v++) {
        const struct sbp_variable *variable = &problem->variable[v];
        live->begin[v] = spans;
        for (int i = 0; i < variable->interval_count; i++) {
            if (!is_used(variable, i))
                continue;
            const struct sbp_interval interval = variable->interval[i];
            events[count++] = (struct live_event){interval.from, spans, true};
            events[count++] = (struct live_event){interval.to, spans, false};
            live->span[spans++].usage = variable->usage + (size_t)i * (size_t)variable->domain;
        }
    }
    live->begin[problem->variable_count] = spans;
    return count;
}

/* Numbers the maximal live sets; one is complete where an end follows a start. */
static void number_points(struct sbp_live *live, const struct live_event *events, size_t count)
{
    bool grew = false;
    for (size_t i = 0; i < count; i++) {
        if (events[i].start) {
            live->span[events[i].span].first = live->point_count;
            grew = true;
        } else {
            live->point_count += grew;
            live->span[events[i].span].last = live->point_count;
            grew = false;
        }
    }
}

/* Drops the points at which every choice fits. most, renumbered: (point_count + 1) scratch. */
static void drop_slack_points(const struct sbp_problem *problem, struct sbp_live *live,
                              double *most, int *renumbered)
{
    for (int v = 0; v < problem->variable_count; v++)
        for (int s = live->begin[v]; s < live->begin[v + 1]; s++) {
            const double usage = largest_usage(&problem->variable[v], live->span[s].usage);
            most[live->span[s].first] += usage;
            most[live->span[s].last] -= usage;
        }
    double sum = 0, largest = 0;
    for (int p = 0; p < live->point_count; p++) {
        sum += most[p];
        most[p] = sum;
        largest = fmax(largest, sum);
    }
    /* A large usage that begins and ends may round a small one away. */
    const double limit =
        problem->capacity + SBP_CAPACITY_ROUND_OFF * (fabs(problem->capacity) - largest);
    int kept = 0;
    for (int p = 0; p < live->point_count; p++) {
        renumbered[p] = kept;
        kept += most[p] > fmin(limit, problem->capacity);
    }
    renumbered[live->point_count] = kept;
    live->point_count = kept;
    for (int s = 0; s < live->begin[problem->variable_count]; s++) {
        live->span[s].first = renumbered[live->span[s].first];
        live->span[s].last = renumbered[live->span[s].last];
    }
}

static int compare_points(const void *left, const void *right)
{
    const int a = *(const int *)left, b = *(const int *)right;
    return (a > b) - (a < b);
}

/* *usage (domain): the sum over all spans that cover the point; NULL when none does. False when
 * memory is out. */
static bool sum_usages(const struct sbp_variable *variable, const struct sbp_span *span, int count,
                       int point, struct sbp_arena *arena, const double **usage)
{
    double *sum = NULL;
    *usage = NULL;
    for (int s = 0; s < count; s++) {
        if (point < span[s].first || point >= span[s].last)
            continue;
        if (*usage != NULL && sum == NULL) {
            sum = SBP_NEW(arena, double, variable->domain);
            if (sum == NULL)
                return false;
            memcpy(sum, *usage, (size_t)variable->domain * sizeof *sum);
        }
        for (int k = 0; sum != NULL && k < variable->domain; k++)
            sum[k] += span[s].usage[k];
        *usage = sum != NULL ? sum : span[s].usage;
    }
    return true;
}

/* Cuts a variable's spans where any of them begins or ends and adds up overlapping ones. Returns
 * the number of spans in cut (at most 2 count - 1), or -1 when memory is out. point: (2 count)
 * scratch.
 */
static int cut_spans(const struct sbp_variable *variable, const struct sbp_span *span, int count,
                     int *point, struct sbp_arena *arena, struct sbp_span *cut)
{
    for (int s = 0; s < count; s++) {
        point[2 * s] = span[s].first;
        point[2 * s + 1] = span[s].last;
    }
    qsort(point, 2 * (size_t)count, sizeof *point, compare_points);
    int made = 0;
    for (int i = 0; i + 1 < 2 * count; i++) {
        const double *usage = NULL;
        if (point[i] == point[i + 1])
            continue;
        if (!sum_usages(variable, span, count, point[i], arena, &usage))
            return -1;
        if (usage != NULL)
            cut[made++] =
                (struct sbp_span){.first = point[i], .last = point[i + 1], .usage = usage};
    }
    return made;
}

/* Replaces all spans such that no two of a variable cover one point. */
static bool separate_spans(const struct sbp_problem *problem, struct sbp_arena *arena,
                           struct sbp_live *live)
{
    const size_t room = 2 * (size_t)live->begin[problem->variable_count];
    struct sbp_span *separate = SBP_NEW(arena, struct sbp_span, room);
    int *point = SBP_NEW(arena, int, room);
    if (separate == NULL || point == NULL)
        return false;
    int first = 0, made = 0;
    for (int v = 0; v < problem->variable_count; v++) {
        const int last = live->begin[v + 1];
        live->begin[v] = made;
        const int count = cut_spans(&problem->variable[v], live->span + first, last - first, point,
                                    arena, separate + made);
        if (count < 0)
            return false;
        made += count;
        first = last;
    }
    live->begin[problem->variable_count] = made;
    live->span = separate;
    return true;
}

enum sbp_status sbp_live_build(const struct sbp_problem *problem, struct sbp_arena *arena,
                               struct sbp_live *live)
{
    *live = (struct sbp_live){0};
    live->begin = SBP_NEW(arena, int, (size_t)problem->variable_count + 1);
    if (live->begin == NULL)
        return SBP_E_MEMORY;
    if (!(problem->capacity < INFINITY))
        return SBP_OK;
    size_t room = 0;
    for (int v = 0; v < problem->variable_count; v++)
        room += (size_t)problem->variable[v].interval_count;
    live->span = SBP_NEW(arena, struct sbp_span, room);
    struct live_event *events = calloc(2 * room + 1, sizeof *events);
    if (live->span == NULL || events == NULL) {
        free(events);
        return SBP_E_MEMORY;
    }
    const size_t count = collect(problem, live, events);
    qsort(events, count, sizeof *events, compare_events);
    number_points(live, events, count);
    free(events);
    double *most = SBP_NEW(arena, double, (size_t)live->point_count + 1);
    int *renumbered = SBP_NEW(arena, int, (size_t)live->point_count + 1);
    if (most == NULL || renumbered == NULL)
        return SBP_E_MEMORY;
    drop_slack_points(problem, live, most, renumbered);
    return separate_spans(problem, arena, live) ? SBP_OK : SBP_E_MEMORY;
}
