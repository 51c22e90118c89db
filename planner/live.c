#include "planner/live.h"

#include <math.h>
#include <stdlib.h>

/* A start or an end of span `span`; ends come first at equal times (intervals are half-open). */
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

/* The largest usage among choices that are not forbidden by themselves. */
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

/* Numbers the maximal live sets: one ends where an end follows a start. */
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

/* Drops the points that fit whatever is chosen; most, renumbered: (point_count + 1). */
static void drop_slack_points(const struct sbp_problem *problem, struct sbp_live *live,
                              double *most, int *renumbered)
{
    for (int v = 0; v < problem->variable_count; v++)
        for (int s = live->begin[v]; s < live->begin[v + 1]; s++) {
            const double usage = largest_usage(&problem->variable[v], live->span[s].usage);
            most[live->span[s].first] += usage;
            most[live->span[s].last] -= usage;
        }
    double sum = 0;
    int kept = 0;
    for (int p = 0; p < live->point_count; p++) {
        sum += most[p];
        renumbered[p] = kept;
        kept += sum > problem->capacity;
    }
    renumbered[live->point_count] = kept;
    live->point_count = kept;
    for (int s = 0; s < live->begin[problem->variable_count]; s++) {
        live->span[s].first = renumbered[live->span[s].first];
        live->span[s].last = renumbered[live->span[s].last];
    }
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
    return SBP_OK;
}
