#include "calib/samples/findings.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/math/stats.h"
#include "base/text.h"

#define SHORT_BYTES ((int64_t)64 << 10)

static void find(struct sbp_sample_findings *findings, const char *format, ...) SBP_PRINTF(2, 3);

static void find(struct sbp_sample_findings *findings, const char *format, ...)
{
    if (findings->count == SBP_MAX_FINDINGS) {
        (void)snprintf(findings->line[SBP_MAX_FINDINGS - 1], sizeof findings->line[0],
                       "there is more to note than %d lines: the samples hold the rest",
                       SBP_MAX_FINDINGS);
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    const int length =
        vsnprintf(findings->line[findings->count], sizeof findings->line[0], format, arguments);
    va_end(arguments);
    findings->count += length > 0;
}

static const struct sbp_session *last_session(const struct sbp_record *record)
{
    return &record->session[record->session_count - 1];
}

static bool is_last(const struct sbp_record *record, const struct sbp_result *result)
{
    return record->session[result->session].is_last;
}

/* --- sessions --- */

static bool is_like(const struct sbp_calibration_origin *a, const struct sbp_calibration_origin *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->library, b->library) == 0 &&
           strcmp(a->driver, b->driver) == 0 && strcmp(a->binding, b->binding) == 0 &&
           strcmp(a->settings, b->settings) == 0;
}

void sbp_findings_of_sessions(const struct sbp_record *record, struct sbp_sample_findings *findings)
{
    const struct sbp_session *last = last_session(record);
    bool elsewhere = false, otherwise = false;
    for (int i = 0; i < record->session_count; i++) {
        const struct sbp_session *session = &record->session[i];
        if (session->chain != last->chain || session->count == 0)
            continue;
        elsewhere |= !session->is_last;
        otherwise |= !is_like(&session->origin, &last->origin);
    }
    if (elsewhere)
        find(findings, "it was gone on with on other hosts: ranks, hosts and links are named by "
                       "what was measured on the last ones alone");
    if (otherwise)
        find(findings, "it was gone on with on another device or under another library, driver, "
                       "binding or other settings: its times are of both (--fresh begins anew)");
    if (!last->ended)
        find(findings, "it was not measured to its end: the command that began it goes on with it");
}

/* --- runs --- */

void sbp_findings_of_runs(const struct sbp_sample_runs *runs, struct sbp_sample_findings *findings)
{
    for (int i = 0; i < runs->count; i++) {
        const struct sbp_sample_run *run = &runs->run[i];
        if (run->bad)
            find(findings,
                 "run %d was slow as a whole: %.2f times as long as the others in the middle of %d "
                 "collectives; left out",
                 run->run + 1, run->slowdown, run->compared);
        else if (run->slowdown >= SBP_BAD_RUN)
            find(findings,
                 "run %d took %.2f times as long as another in the middle of %d collectives: two "
                 "runs cannot tell which is right, three can",
                 run->run + 1, run->slowdown, run->compared);
    }
}

/* --- times --- */

void sbp_findings_of_times(const struct sbp_record *record, struct sbp_sample_findings *findings)
{
    const struct sbp_result *first = NULL;
    char name[SBP_CELL_NAME];
    int count = 0;
    for (int i = 0; i < record->result_count; i++) {
        const struct sbp_result *result = &record->result[i];
        if (result->cell.work == SBP_CELL_PAIRS || sbp_sample_file_is_possible(result))
            continue;
        first = count++ == 0 ? result : first;
    }
    if (count > 0)
        find(findings, "%.60s: line %d: %s in %.3g s, less than any machine takes%s: left out",
             sbp_file_name(record->path), first->line, sbp_cell_name(&first->cell, name),
             first->median_s, count == 1 ? "" : ", and more such lines");
}

/* --- compute --- */

/* The rank that was slowest, by SBP_SLOW_COMPUTE, at the most cells; -1: none. */
static int find_slow_computer(const struct sbp_record *record, int ranks, int *times, int *cells,
                              double *ratio)
{
    int *count = calloc((size_t)ranks, sizeof *count);
    int slowest = -1;
    *cells = *times = 0;
    *ratio = HUGE_VAL;
    if (count == NULL)
        return slowest; /* a finding less */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < record->result_count; i++) {
            const struct sbp_result *result = &record->result[i];
            if (!is_last(record, result) || result->slowest_rank < 0 ||
                result->slowest_rank >= ranks || result->cell.work == SBP_CELL_LAUNCH ||
                result->cell.work == SBP_CELL_HOST)
                continue;
            const bool is_slow = result->slowest_ratio >= SBP_SLOW_COMPUTE;
            *cells += pass == 0;
            if (pass == 0)
                count[result->slowest_rank] += is_slow;
            else if (is_slow && result->slowest_rank == slowest)
                *ratio = fmin(*ratio, result->slowest_ratio);
        }
        for (int r = 0; r < ranks && pass == 0; r++)
            if (count[r] > *times) {
                *times = count[r];
                slowest = r;
            }
    }
    free(count);
    return slowest;
}

void sbp_findings_of_compute(const struct sbp_record *record, struct sbp_sample_findings *findings)
{
    const struct sbp_rank_placement *placement = &last_session(record)->placement;
    int times, cells;
    double ratio;
    if (placement->ranks < 3)
        return;
    const int slow = find_slow_computer(record, placement->ranks, &times, &cells, &ratio);
    if (slow < 0 || 2 * times <= cells)
        return;
    find(findings,
         "rank %d (host %s) computes slowly: slowest in %d of %d products, copies and others, "
         "%.2f times the middle rank's time or more",
         slow, placement->host[placement->node[slow]], times, cells, ratio);
}

void sbp_findings_of_no_attention(const struct sbp_record *record,
                                  struct sbp_sample_findings *findings)
{
    if (last_session(record)->origin.device[0] != '\0')
        find(findings,
             "attention was not timed, for sbplan was built without its kernels for GPUs "
             "(-Dcuda=enabled): \"like\" in \"device\" takes a device file's rates of it; without "
             "one it counts at the peak");
    else
        find(findings, "attention was not timed: it counts at the peak of products");
}

void sbp_findings_of_no_fp8(const struct sbp_record *record, const struct sbp_compute_times *times,
                            struct sbp_sample_findings *findings)
{
    for (int i = 0; i < times->gemm_count; i++)
        if (times->gemm[i].type == SBP_FP8)
            return;
    if (last_session(record)->origin.device[0] != '\0')
        find(findings,
             "products in fp8 were not timed, where a GPU, or its cuBLASLt, has none: they "
             "count at the rates of bf16");
}

/* --- pairs --- */

/* Pairs of one kind of link (within nodes, or between them) and one size. */
struct links {
    const struct sbp_rank_placement *placement;
    int count;
    struct sbp_sample_pair *pair; /* (count), a < b in rank; the least time of all runs */
    double *scratch;              /* (count) */
    double usual_s;               /* what the faster quarter takes */
    double limit;                 /* times that, which is slow */
    int least_runs; /* that must have a link: where ranks share cores, one says nothing */
    int *runs;      /* (count) that a link has */
    bool *is_slow;  /* (ranks) */
};

/* Orders pairs by their ranks, the least time first. */
static int compare_pairs(const void *left, const void *right)
{
    const struct sbp_sample_pair *x = left, *y = right;
    if (x->a != y->a)
        return x->a - y->a;
    if (x->b != y->b)
        return x->b - y->b;
    return (x->time_s > y->time_s) - (x->time_s < y->time_s);
}

/* Keeps one pair of each link that enough runs have, with its least time. */
static void merge_links(struct links *links)
{
    int kept = 0;
    qsort(links->pair, (size_t)links->count, sizeof *links->pair, compare_pairs);
    for (int first = 0, end; first < links->count; first = end) {
        const struct sbp_sample_pair *link = &links->pair[first];
        for (end = first + 1;
             end < links->count && links->pair[end].a == link->a && links->pair[end].b == link->b;)
            end++;
        if (end - first < links->least_runs)
            continue;
        links->runs[kept] = end - first;
        links->pair[kept++] = *link;
    }
    links->count = kept;
}

static void list_links(const struct sbp_record *record, bool between_nodes, int64_t bytes,
                       struct links *links)
{
    const int *node = links->placement->node;
    links->count = 0;
    for (int i = 0; i < record->result_count; i++) {
        const struct sbp_result *result = &record->result[i];
        if (!is_last(record, result) || result->cell.bytes != bytes)
            continue;
        for (int p = 0; p < result->pair_count; p++) {
            const struct sbp_sample_pair *pair = &result->pair[p];
            const bool is_between = node[pair->a] != node[pair->b];
            if (is_between == between_nodes && pair->time_s >= sbp_cell_least_s(&result->cell))
                links->pair[links->count++] = *pair;
        }
    }
    merge_links(links);
    for (int i = 0; i < links->count; i++)
        links->scratch[i] = links->pair[i].time_s;
    if (links->count > 0) {
        (void)sbp_median(links->scratch, links->count); /* sorts */
        links->usual_s = links->scratch[(links->count - 1) / 4];
    }
}

/* Finds the best time of a rank's links; returns how many it has. */
static int best_of(const struct links *links, int rank, double *best_s)
{
    int count = 0;
    *best_s = HUGE_VAL;
    for (int i = 0; i < links->count; i++)
        if (links->pair[i].a == rank || links->pair[i].b == rank) {
            *best_s = fmin(*best_s, links->pair[i].time_s);
            count++;
        }
    return count;
}

/* Finds the worst time among the other links of a link's ends, without slow ranks; returns how many
 * there are. */
static int worst_beside(const struct links *links, const struct sbp_sample_pair *link,
                        double *worst_s)
{
    int count = 0;
    *worst_s = 0;
    for (int i = 0; i < links->count; i++) {
        const struct sbp_sample_pair *pair = &links->pair[i];
        const bool touches =
            pair->a == link->a || pair->a == link->b || pair->b == link->a || pair->b == link->b;
        if (pair == link || !touches || links->is_slow[pair->a] || links->is_slow[pair->b])
            continue;
        *worst_s = fmax(*worst_s, pair->time_s);
        count++;
    }
    return count;
}

static void mark_slow_ranks(const struct links *links)
{
    for (int r = 0; r < links->placement->ranks; r++) {
        double best_s;
        const int count = best_of(links, r, &best_s);
        links->is_slow[r] = count >= 2 && best_s >= links->limit * links->usual_s;
    }
}

/* Whether all ranks of a node that have links are slow. */
static bool is_slow_node(const struct links *links, int node)
{
    bool any = false;
    for (int r = 0; r < links->placement->ranks; r++) {
        double best_s;
        if (links->placement->node[r] != node || best_of(links, r, &best_s) < 2)
            continue;
        if (!links->is_slow[r])
            return false;
        any = true;
    }
    return any;
}

static void name_slow_ranks(const struct links *links, bool between_nodes, int64_t bytes,
                            struct sbp_sample_findings *findings)
{
    const struct sbp_rank_placement *placement = links->placement;
    char size[32];
    (void)sbp_format_bytes((double)bytes, size);
    for (int n = 0; n < placement->nodes && between_nodes; n++) {
        double least_s = HUGE_VAL, best_s;
        if (!is_slow_node(links, n))
            continue;
        for (int r = 0; r < placement->ranks; r++)
            if (placement->node[r] == n && best_of(links, r, &best_s) >= 2)
                least_s = fmin(least_s, best_s);
        find(findings,
             "host %s is slow over the network: messages of %s take %.1f times what they take "
             "between others, or more",
             placement->host[n], size, least_s / links->usual_s);
    }
    for (int r = 0; r < placement->ranks; r++) {
        double best_s;
        if (!links->is_slow[r] || (between_nodes && is_slow_node(links, placement->node[r])))
            continue;
        (void)best_of(links, r, &best_s);
        find(findings,
             "rank %d (host %s) is slow: messages of %s with every other rank %s take %.1f times "
             "what they take between others, or more",
             r, placement->host[placement->node[r]], size,
             between_nodes ? "over the network" : "of its host", best_s / links->usual_s);
    }
}

static void name_slow_links(const struct links *links, int64_t bytes,
                            struct sbp_sample_findings *findings)
{
    const struct sbp_rank_placement *placement = links->placement;
    char size[32];
    (void)sbp_format_bytes((double)bytes, size);
    for (int i = 0; i < links->count; i++) {
        const struct sbp_sample_pair *link = &links->pair[i];
        double worst_s;
        const double limit = links->runs[i] == 1 ? SBP_SLOW_NOISY : links->limit;
        if (!(link->time_s >= limit * links->usual_s) || links->is_slow[link->a] ||
            links->is_slow[link->b] || worst_beside(links, link, &worst_s) < 2 ||
            !(link->time_s >= limit * worst_s))
            continue;
        find(findings,
             "the link between ranks %d (host %s) and %d (host %s) is slow: messages of %s take "
             "%.1f times what every other link of either takes, or more",
             link->a, placement->host[placement->node[link->a]], link->b,
             placement->host[placement->node[link->b]], size, link->time_s / worst_s);
    }
}

static int count_pairs(const struct sbp_record *record)
{
    int count = 0;
    for (int i = 0; i < record->result_count; i++)
        count += record->result[i].pair_count;
    return count;
}

/* The largest size below `below` that pairs were timed at; 0: none. */
static int64_t next_size(const struct sbp_record *record, int64_t below)
{
    int64_t next = 0;
    for (int i = 0; i < record->result_count; i++) {
        const struct sbp_cell *cell = &record->result[i].cell;
        if (cell->work == SBP_CELL_PAIRS && cell->bytes < below && cell->bytes > next)
            next = cell->bytes;
    }
    return next;
}

static void look_at_links(const struct sbp_record *record, bool crowded, struct links *links,
                          struct sbp_sample_findings *findings)
{
    for (int between = 0; between < 2; between++) {
        const int before = findings->count;
        for (int64_t bytes = next_size(record, INT64_MAX); bytes > 0 && findings->count == before;
             bytes = next_size(record, bytes)) {
            list_links(record, between == 1, bytes, links);
            links->limit = crowded || bytes < SHORT_BYTES ? SBP_SLOW_NOISY : SBP_SLOW;
            mark_slow_ranks(links);
            name_slow_ranks(links, between == 1, bytes, findings);
            name_slow_links(links, bytes, findings);
        }
    }
}

enum sbp_status sbp_findings_of_pairs(const struct sbp_record *record, bool crowded,
                                      struct sbp_sample_findings *findings, struct sbp_diag *diag)
{
    const struct sbp_rank_placement *placement = &last_session(record)->placement;
    if (placement->ranks == 0)
        return SBP_OK;
    const size_t most = (size_t)count_pairs(record) + 1;
    struct sbp_arena arena = {0};
    struct links links = {.placement = placement,
                          .least_runs = crowded ? 2 : 1,
                          .pair = SBP_NEW(&arena, struct sbp_sample_pair, most),
                          .scratch = SBP_NEW(&arena, double, most),
                          .runs = SBP_NEW(&arena, int, most),
                          .is_slow = SBP_NEW(&arena, bool, placement->ranks)};
    enum sbp_status status = SBP_OK;
    if (links.pair == NULL || links.scratch == NULL || links.runs == NULL || links.is_slow == NULL)
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory for %zu pairs", most);
    else
        look_at_links(record, crowded, &links, findings);
    sbp_arena_free(&arena);
    return status;
}

/* --- the network --- */

void sbp_findings_of_network(const struct sbp_record *record, struct sbp_sample_findings *findings)
{
    const struct sbp_calibration_origin *origin = &last_session(record)->origin;
    const struct sbp_result *longest = NULL;
    char nominal[32], found[32];
    if (origin->hosts < 2)
        return;
    for (int i = 0; i < record->result_count; i++) {
        const struct sbp_result *result = &record->result[i];
        const struct sbp_cell *cell = &result->cell;
        if (is_last(record, result) && cell->work == SBP_CELL_COLLECTIVE &&
            cell->kind == SBP_SEND_RECV && cell->nodes > 1 && cell->groups == 1 &&
            sbp_sample_file_is_possible(result) &&
            (longest == NULL || cell->bytes > longest->cell.bytes))
            longest = result;
    }
    if (longest == NULL || longest->cell.bytes < SHORT_BYTES)
        return;
    const double rate = (double)longest->cell.bytes / longest->median_s;
    (void)sbp_format_bytes(rate, found);
    if (origin->nominal_bytes_per_s > 0)
        find(findings, "one message between two hosts: %s/s, %.0f %% of the nominal %s/s of %s",
             found, 100 * rate / origin->nominal_bytes_per_s,
             sbp_format_bytes(origin->nominal_bytes_per_s, nominal), origin->nominal_from);
    else
        find(findings,
             "one message between two hosts: %s/s; the system names no nominal rate, --nominal may",
             found);
}
