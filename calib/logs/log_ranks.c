/* Compares the columns of a row with each other, each number standing for the interval that rounds
 * to it:
 *
 *     algbw = size / time          (all-gathers and reduce-scatters before June 2020: busbw)
 *     busbw = algbw x factor(ranks)
 *     size = count x element x (ranks where the count is per rank)
 *
 * Rows that disagree are broken; where ranks are not listed, the numbers that fit are inferred.
 */
#include <limits.h>
#include <math.h>

#include "calib/logs/log_parts_priv.h"

#define LOOSE      1e-9 /* of sums of rounded numbers */
#define MOST_RANKS 1000000
#define MOST_TRIED 64 /* ranks that one row may leave open */

struct interval {
    double low, high;
};

static struct interval around(struct sbp_log_number number)
{
    return (struct interval){number.value - number.slack, number.value + number.slack};
}

static bool meet(struct interval a, struct interval b)
{
    const double loose = LOOSE * (fabs(a.high) + fabs(b.high));
    return a.low <= b.high + loose && b.low <= a.high + loose;
}

/* The GB/s of so many bytes in the half's time. */
static struct interval bandwidth(double size_bytes, const struct sbp_log_half *half)
{
    const struct interval time = around(half->time_us);
    return (struct interval){size_bytes / time.high / 1e3,
                             time.low > 0 ? size_bytes / time.low / 1e3 : INFINITY};
}

/* The bandwidth as far as both columns show it. */
static struct interval shown_bandwidth(double size_bytes, const struct sbp_log_half *half)
{
    const struct interval by_time = bandwidth(size_bytes, half), printed = around(half->algbw);
    return (struct interval){fmax(by_time.low, printed.low), fmin(by_time.high, printed.high)};
}

/* --- one half for a number of ranks --- */

static bool half_agrees(double size_bytes, const struct sbp_log_half *half,
                        const struct sbp_log_collective *collective, int ranks)
{
    const struct interval by_time = bandwidth(size_bytes, half);
    const struct interval algbw = around(half->algbw), busbw = around(half->busbw);
    const double factor = ranks > 0 ? sbp_log_factor_of(collective->factor, ranks) : 0;
    /* Before "Change all_gather/reduce_scatter algbw", nccl-tests printed busbw for both. */
    const struct interval shared = {by_time.low * factor, by_time.high * factor};
    if (collective->factor == SBP_LOG_FACTOR_SHARED && ranks > 0 && meet(algbw, shared) &&
        half->algbw.value == half->busbw.value)
        return true;
    if (!meet(algbw, by_time))
        return false;
    const struct interval shown = shown_bandwidth(size_bytes, half);
    return ranks == 0 || meet(busbw, (struct interval){shown.low * factor, shown.high * factor});
}

static bool count_agrees(const struct sbp_log_row *row, const struct sbp_log_collective *collective,
                         int ranks)
{
    if (row->element_bytes == 0 || (collective->is_shared && ranks == 0))
        return true;
    const double own = row->count * row->element_bytes;
    return row->size_bytes == (collective->is_shared ? own * ranks : own);
}

bool sbp_log_row_agrees(const struct sbp_log_row *row, const struct sbp_log_collective *collective,
                        int ranks)
{
    if (!count_agrees(row, collective, ranks))
        return false;
    for (int h = 0; h < SBP_LOG_HALVES; h++)
        if (row->half[h].is_there && row->half[h].time_us.value > 0 &&
            !half_agrees(row->size_bytes, &row->half[h], collective, ranks))
            return false;
    return true;
}

/* --- ranks --- */

/* The ranks of a row whose count is one rank's: size / (count x element); 0: none. */
static int shared_ranks(const struct sbp_log_row *row)
{
    const double own = row->count * row->element_bytes;
    const double ranks = own > 0 ? row->size_bytes / own : 0;
    return ranks >= 1 && ranks <= MOST_RANKS && ranks == rint(ranks) ? (int)ranks : 0;
}

/* The number that most rows name; 0 where fewer than four fifths agree. */
static int infer_shared(const struct sbp_log_run *run, int *low, int *high)
{
    int best = 0, votes = 0, voters = 0; /* no voters: 0 */
    /* A majority is left when different voters cancel out (Boyer, Moore). */
    for (int i = 0; i < run->row_count; i++) {
        const int ranks = shared_ranks(&run->row[i]);
        if (ranks == 0)
            continue;
        best = votes == 0 ? ranks : best;
        votes += ranks == best ? 1 : -1;
    }
    votes = 0;
    for (int i = 0; i < run->row_count; i++) {
        const int ranks = shared_ranks(&run->row[i]);
        voters += ranks > 0;
        votes += ranks > 0 && ranks == best;
    }
    best = 5 * votes >= 4 * voters ? best : 0;
    *low = *high = best;
    return best;
}

/* The numbers of ranks of an all-reduce that a half's bandwidths leave open: the factor is
 * 2 (p-1)/p, so p = 2 / (2 - factor). */
static struct interval open_ranks(double size_bytes, const struct sbp_log_half *half)
{
    const struct interval shown = shown_bandwidth(size_bytes, half), busbw = around(half->busbw);
    if (!(shown.low > 0) || shown.high < shown.low)
        return (struct interval){1, INFINITY};
    const double least = fmax(busbw.low, 0) / shown.high, most = busbw.high / shown.low;
    return (struct interval){least < 2 ? 2 / (2 - least) : INFINITY,
                             most < 2 ? 2 / (2 - most) : INFINITY};
}

/* The numbers that the most exact half leaves open. */
static struct interval tightest(const struct sbp_log_run *run)
{
    struct interval best = {1, INFINITY};
    for (int i = 0; i < run->row_count; i++)
        for (int h = 0; h < SBP_LOG_HALVES; h++) {
            const struct sbp_log_half *half = &run->row[i].half[h];
            if (!half->is_there || !(run->row[i].size_bytes > 0))
                continue;
            const struct interval open = open_ranks(run->row[i].size_bytes, half);
            if (open.high - open.low < best.high - best.low)
                best = open;
        }
    return best;
}

static int count_agreeing(const struct sbp_log_run *run,
                          const struct sbp_log_collective *collective, int ranks)
{
    int agreeing = 0;
    for (int i = 0; i < run->row_count; i++)
        agreeing += sbp_log_row_agrees(&run->row[i], collective, ranks);
    return agreeing;
}

static int infer_twice(const struct sbp_log_run *run, const struct sbp_log_collective *collective,
                       int *low, int *high)
{
    const struct interval open = tightest(run);
    const double first = ceil(open.low - 1e-6), last = floor(open.high + 1e-6);
    int most = 0;
    *low = first <= MOST_RANKS ? (int)first : MOST_RANKS;
    *high = last <= MOST_RANKS ? (int)last : MOST_RANKS;
    if (last - first > MOST_TRIED)
        return 0;
    for (int ranks = (int)first; ranks <= (int)last; ranks++) {
        const int agreeing = count_agreeing(run, collective, ranks);
        if (agreeing > most) {
            most = agreeing;
            *low = ranks;
        }
        if (agreeing == most)
            *high = ranks;
    }
    if (5 * most < 4 * run->row_count)
        *low = *high = 0;
    return *low == *high ? *low : 0;
}

int sbp_log_infer_ranks(const struct sbp_log_run *run, const struct sbp_log_collective *collective,
                        int *low, int *high)
{
    *low = *high = 0;
    if (run->is_bare || run->row_count == 0)
        return 0;
    if (collective->is_shared)
        return infer_shared(run, low, high);
    if (collective->factor == SBP_LOG_FACTOR_TWICE)
        return infer_twice(run, collective, low, high);
    return 0;
}
