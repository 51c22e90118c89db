/* Compares tables with each other: refuses copies, and runs that used another network or a part of
 * theirs. */
#include <stdlib.h>
#include <string.h>

#include "base/math/stats.h"
#include "calib/logs/log_parts_priv.h"

#define LARGE_BYTES  1048576.0 /* from which bandwidth decides */
#define MIDDLE_BYTES 131072.0  /* of tables that end about there, as OSU's of collectives */
#define LEAST_COMMON 3         /* large sizes that both have */
#define TWICE        2.0
#define SLOWER       1.25
#define MOST_COMMON  256

/* Whether two tables hold the same collective of the same shape. */
static bool are_alike(const struct sbp_log_table *a, const struct sbp_log_table *b)
{
    return a->kept > 0 && b->kept > 0 && a->kind == b->kind && a->nodes == b->nodes &&
           a->ranks_per_node == b->ranks_per_node;
}

/* The time of a size, 0 without. The search begins at *next, since sizes mostly rise in both. */
static double time_of(const struct sbp_log_table *table, double bytes, int *next)
{
    for (int i = 0; i < table->kept; i++) {
        const int at = (*next + i) % table->kept;
        if (table->point[at].bytes != bytes)
            continue;
        *next = at + 1;
        return table->point[at].time_s;
    }
    return 0;
}

static bool are_copies(const struct sbp_log_table *a, const struct sbp_log_table *b)
{
    if (a->kept != b->kept || a->kept < LEAST_COMMON)
        return false;
    for (int i = 0; i < a->kept; i++)
        if (a->point[i].bytes != b->point[i].bytes || a->point[i].time_s != b->point[i].time_s)
            return false;
    return true;
}

/* A large size that both have: bytes, and the time in a over that in b. */
struct common {
    double bytes, ratio;
};

static int compare_common(const void *left, const void *right)
{
    const struct common *a = left, *b = right;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Fills common (MOST_COMMON) with the sizes from `least_bytes` on that both have; returns how many.
 */
static int find_common(const struct sbp_log_table *a, const struct sbp_log_table *b,
                       double least_bytes, struct common *common)
{
    int count = 0, next = 0;
    for (int i = 0; i < a->kept && count < MOST_COMMON; i++) {
        const struct sbp_measured_point *point = &a->point[i];
        const double other_s = point->bytes < least_bytes ? 0 : time_of(b, point->bytes, &next);
        if (other_s > 0)
            common[count++] = (struct common){point->bytes, point->time_s / other_s};
    }
    return count;
}

/* Compares a with b over the upper half of the large sizes that both have: *least and *middle are
 * the least and the median of time / time. False: they have too few. */
static bool compare_times(const struct sbp_log_table *a, const struct sbp_log_table *b,
                          double *least, double *middle)
{
    struct common common[MOST_COMMON];
    double ratio[MOST_COMMON];
    int count = find_common(a, b, LARGE_BYTES, common);
    if (count < LEAST_COMMON)
        count = find_common(a, b, MIDDLE_BYTES, common);
    if (count < LEAST_COMMON)
        return false;
    qsort(common, (size_t)count, sizeof *common, compare_common);
    const int upper = count / 2 > LEAST_COMMON ? count / 2 : LEAST_COMMON;
    *least = common[count - 1].ratio;
    for (int i = 0; i < upper; i++) {
        ratio[i] = common[count - 1 - i].ratio;
        *least = ratio[i] < *least ? ratio[i] : *least;
    }
    *middle = sbp_median(ratio, upper);
    return true;
}

/* --- copies --- */

static enum sbp_status check_copies(struct sbp_logs *logs, int index)
{
    struct sbp_log_table *table = &logs->table[index];
    for (int other = 0; other < index; other++) {
        const struct sbp_log_table *first = &logs->table[other];
        if (first->is_refused || !are_alike(table, first) || !are_copies(table, first))
            continue;
        return sbp_log_add_note(logs, table->file, index, table->line, SBP_LOG_COPY,
                                "every time is that of %s, line %d: a copy",
                                logs->file[first->file], first->line);
    }
    return SBP_OK;
}

/* --- networks --- */

/* Finds a table of a run over several nodes and a fabric; -1: none. */
static int find_fabric(const struct sbp_logs *logs)
{
    for (int t = 0; t < logs->table_count; t++) {
        const struct sbp_log_table *table = &logs->table[t];
        if (!table->is_refused && table->nodes > 1 && table->network != NULL &&
            !sbp_log_is_socket(table->network))
            return t;
    }
    return -1;
}

static enum sbp_status check_network(struct sbp_logs *logs, int index, int fabric)
{
    const struct sbp_log_table *table = &logs->table[index], *other = &logs->table[fabric];
    if (table->nodes < 2 || !sbp_log_is_socket(table->network))
        return SBP_OK;
    return sbp_log_add_note(logs, table->file, index, table->line, SBP_LOG_SOCKET_TWIN,
                            "it went over TCP sockets, but %s over %s: it did not use the fabric; "
                            "import it alone if training will not, either",
                            logs->file[other->file], other->network);
}

/* --- slow runs --- */

/* Compares a table with the one beside which it is slowest. */
static enum sbp_status check_speed(struct sbp_logs *logs, int index)
{
    const struct sbp_log_table *table = &logs->table[index];
    double worst = 0, worst_middle = 0;
    int beside = -1;
    for (int other = 0; other < logs->table_count; other++) {
        double least, middle;
        if (other == index || logs->table[other].is_refused ||
            !are_alike(table, &logs->table[other]) ||
            !compare_times(table, &logs->table[other], &least, &middle) || least <= worst)
            continue;
        worst = least;
        worst_middle = middle;
        beside = other;
    }
    if (worst <= SLOWER)
        return SBP_OK;
    const struct sbp_log_table *faster = &logs->table[beside];
    return sbp_log_add_note(
        logs, table->file, index, table->line, worst > TWICE ? SBP_LOG_SLOW_TWIN : SBP_LOG_SLOWER,
        "its large messages take %.1f times as long as those of %s, line %d: %s", worst_middle,
        logs->file[faster->file], faster->line,
        worst > TWICE ? "it used another network (TCP?), or a part of it, or another cluster; "
                        "import it alone if training will have no more"
                      : "a slow node or link, or other settings?");
}

/* Compares every table with all that stand, so that the order of files decides nothing. A table
 * refused for its speed is refused beside a faster one, which stays. */
static enum sbp_status check_speeds(struct sbp_logs *logs)
{
    bool *is_refused = SBP_NEW(&logs->arena, bool, logs->table_count);
    if (is_refused == NULL)
        return SBP_E_MEMORY;
    for (int t = 0; t < logs->table_count; t++) {
        if (logs->table[t].is_refused)
            continue;
        SBP_TRY(check_speed(logs, t));
        is_refused[t] = logs->table[t].is_refused;
        logs->table[t].is_refused = false;
    }
    for (int t = 0; t < logs->table_count; t++)
        logs->table[t].is_refused = logs->table[t].is_refused || is_refused[t];
    return SBP_OK;
}

enum sbp_status sbp_log_compare(struct sbp_logs *logs)
{
    const int fabric = find_fabric(logs);
    for (int t = 0; t < logs->table_count; t++) {
        if (!logs->table[t].is_refused)
            SBP_TRY(check_copies(logs, t));
        if (!logs->table[t].is_refused && fabric >= 0)
            SBP_TRY(check_network(logs, t, fabric));
    }
    return check_speeds(logs);
}
