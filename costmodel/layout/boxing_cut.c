#include "costmodel/layout/boxing_cut.h"

#include <math.h>

/* Two costs are the same within this: sums of the same numbers in different order. */
#define ROUNDOFF 1e-12

static const enum sbp_collective KINDS[SBP_CUT_KINDS] = {SBP_ALL_REDUCE, SBP_REDUCE_SCATTER,
                                                         SBP_ALL_GATHER, SBP_ALL_TO_ALL};
enum column { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL };

/* --- sets --- */

static int count_in(const struct sbp_boxing_cut_prices *prices, int set, int family)
{
    return prices->count[(size_t)set * (size_t)prices->mesh->family_count + (size_t)family];
}

static struct sbp_group group_of(const struct sbp_boxing_cut_prices *prices, int set)
{
    struct sbp_group group = sbp_collective_group_one();
    for (int f = 0; f < prices->mesh->family_count; f++) {
        const struct sbp_family *family = &prices->mesh->family[f];
        for (int k = count_in(prices, set, f); k > 0; k--)
            group.members[family->level] *= (double)family->prime;
    }
    return group;
}

/* Subsets of a set in numeric order, like an odometer's digits: the next smaller one of any but 0,
 * the next larger one of any but the set itself. */
static int smaller_subset(const struct sbp_boxing_cut_prices *prices, int set, int subset)
{
    for (int f = 0;; f++) {
        if (count_in(prices, subset, f) > 0)
            return subset - prices->stride[f];
        subset += count_in(prices, set, f) * prices->stride[f];
    }
}

static int larger_subset(const struct sbp_boxing_cut_prices *prices, int set, int subset)
{
    for (int f = 0;; f++) {
        if (count_in(prices, subset, f) < count_in(prices, set, f))
            return subset + prices->stride[f];
        subset -= count_in(prices, set, f) * prices->stride[f];
    }
}

static bool is_subset(const struct sbp_boxing_cut_prices *prices, int subset, int set)
{
    for (int f = 0; f < prices->mesh->family_count; f++)
        if (count_in(prices, subset, f) > count_in(prices, set, f))
            return false;
    return true;
}

/* --- prices --- */

static bool has_curves(const struct sbp_cluster *cluster)
{
    bool has = sbp_network_is_given(&cluster->network);
    for (int level = 0; level < cluster->level_count; level++)
        for (int k = 0; k < SBP_CUT_KINDS; k++)
            has |= sbp_curves_has(&cluster->curves, level, KINDS[k]);
    return has;
}

/* Whether a ring over both levels is always as slow as the one level, however many devices within a
 * member share the ports. */
static bool is_slower(const struct sbp_cluster *cluster, int level, int than)
{
    double devices = 1;
    for (int i = than + 1; i < cluster->level_count; i++)
        devices *= (double)cluster->level[i].size;
    const struct sbp_level *slow = &cluster->level[level], *fast = &cluster->level[than];
    const double stretch = fast->ports == 0 ? 1 : fmax(1, devices / fast->ports);
    return slow->alpha_s >= fast->alpha_s &&
           slow->beta_s_per_byte >= stretch * fast->beta_s_per_byte;
}

/* Whether cuts are least on this cluster. Phases of the hierarchical model add up, and every one
 * grows with its members. A ring has the largest alpha and the largest beta of its levels, so no two
 * levels may each be the slower one at some sizes. */
static bool are_levels_ordered(const struct sbp_cluster *cluster)
{
    if (cluster->collectives != SBP_MODEL_RING)
        return true;
    for (int i = 0; i < cluster->level_count; i++)
        for (int j = i + 1; j < cluster->level_count; j++)
            if (cluster->level[i].size > 1 && cluster->level[j].size > 1 &&
                !is_slower(cluster, i, j) && !is_slower(cluster, j, i))
                return false;
    return true;
}

static bool number_sets(const struct sbp_mesh *mesh, struct sbp_boxing_cut_prices *prices)
{
    int64_t count = 1;
    for (int f = 0; f < mesh->family_count; f++) {
        prices->stride[f] = (int)count;
        count *= mesh->family[f].count + 1;
        if (count > SBP_MOST_CUT_SETS)
            return false;
    }
    prices->set_count = (int)count;
    return true;
}

/* Both terms of the formula, from sizes at which the other one is nothing. */
static void tabulate(struct sbp_boxing_cut_prices *prices)
{
    static const double LARGE = 0x1p100;
    for (int set = 0; set < prices->set_count; set++) {
        for (int f = 0; f < prices->mesh->family_count; f++)
            prices->count[(size_t)set * (size_t)prices->mesh->family_count + (size_t)f] =
                (uint8_t)(set / prices->stride[f] % (prices->mesh->family[f].count + 1));
        const struct sbp_group group = group_of(prices, set);
        prices->members[set] = sbp_collective_group_size(&group);
        for (int k = 0; k < SBP_CUT_KINDS && prices->linear; k++) {
            const size_t at = (size_t)k * (size_t)prices->set_count + (size_t)set;
            prices->start_s[at] = sbp_collective_group_s(prices->cluster, KINDS[k], &group, 0);
            prices->per_byte_s[at] =
                sbp_collective_group_s(prices->cluster, KINDS[k], &group, LARGE) / LARGE;
        }
    }
}

enum sbp_status sbp_boxing_cut_prices_make(const struct sbp_cluster *cluster,
                                           const struct sbp_mesh *mesh, struct sbp_arena *arena,
                                           struct sbp_boxing_cut_prices *prices)
{
    const bool curves = has_curves(cluster);
    *prices = (struct sbp_boxing_cut_prices){.cluster = cluster,
                                             .mesh = mesh,
                                             .least = !curves && are_levels_ordered(cluster),
                                             .linear = !curves};
    if (!number_sets(mesh, prices))
        return SBP_E_UNSUPPORTED;
    prices->count = SBP_NEW(arena, uint8_t, prices->set_count * mesh->family_count + 1);
    prices->members = SBP_NEW(arena, double, prices->set_count);
    prices->start_s = SBP_NEW(arena, double, SBP_CUT_KINDS * prices->set_count);
    prices->per_byte_s = SBP_NEW(arena, double, SBP_CUT_KINDS * prices->set_count);
    prices->best_s = SBP_NEW(arena, double, prices->set_count);
    prices->best_first = SBP_NEW(arena, int, prices->set_count);
    prices->best_count = SBP_NEW(arena, int, prices->set_count);
    if (prices->count == NULL || prices->members == NULL || prices->start_s == NULL ||
        prices->per_byte_s == NULL || prices->best_s == NULL || prices->best_first == NULL ||
        prices->best_count == NULL)
        return SBP_E_MEMORY;
    tabulate(prices);
    return SBP_OK;
}

static double price_s(const struct sbp_boxing_cut_prices *prices, enum column column, int set,
                      double bytes)
{
    const size_t at = (size_t)column * (size_t)prices->set_count + (size_t)set;
    if (prices->linear)
        return prices->start_s[at] + prices->per_byte_s[at] * bytes;
    const struct sbp_group group = group_of(prices, set);
    return sbp_collective_group_s(prices->cluster, KINDS[column], &group, bytes);
}

/* --- one kind, cut --- */

/* Cuts a set into groups of one kind. A block is `bytes` times the sizes of those axes of the set
 * that are not yet scattered, or already gathered. Fills the scratch columns for all subsets: the
 * first group of a scatter, the last of a gather. */
static void cut(const struct sbp_boxing_cut_prices *prices, enum column column, int set,
                double bytes)
{
    const bool grows = column == REDUCE_SCATTER || column == ALL_GATHER;
    prices->best_s[0] = 0;
    prices->best_count[0] = 0;
    for (int whole = 0; whole != set;) {
        whole = larger_subset(prices, set, whole);
        const double n = grows ? bytes * prices->members[whole] : bytes;
        double best_s = price_s(prices, column, whole, n);
        int first = whole, count = 1;
        for (int part = smaller_subset(prices, whole, whole); part > 0;
             part = smaller_subset(prices, whole, part)) {
            const double seconds = price_s(prices, column, part, n) + prices->best_s[whole - part];
            const int steps = 1 + prices->best_count[whole - part];
            if (seconds < best_s * (1 - ROUNDOFF) ||
                (seconds <= best_s * (1 + ROUNDOFF) && steps < count)) {
                best_s = seconds;
                first = part;
                count = steps;
            }
        }
        prices->best_s[whole] = best_s;
        prices->best_first[whole] = first;
        prices->best_count[whole] = count;
    }
}

/* --- all kinds --- */

/* Choices that a list has for axes that may or may not be split. */
enum option { SCATTER_PARTIAL, SLICE_WHOLE, SUM_REST, OPTIONS };

/* A list in the making. */
struct trial {
    int option[OPTIONS]; /* sets of axes that take part so */
    int set[SBP_CUT_KINDS];
    double bytes; /* of the smallest block on the way */
    double seconds;
    int count;
};

static void price_trial(const struct sbp_boxing_cut_prices *prices, struct trial *trial)
{
    trial->seconds = 0;
    trial->count = 0;
    for (int k = 0; k < SBP_CUT_KINDS; k++) {
        if (trial->set[k] == 0)
            continue;
        cut(prices, (enum column)k, trial->set[k], trial->bytes);
        trial->seconds += prices->best_s[trial->set[k]];
        trial->count += prices->best_count[trial->set[k]];
    }
}

static void form_trial(const struct sbp_boxing_cut_prices *prices,
                       const struct sbp_boxing_cut_task *task, struct trial *trial)
{
    const int *option = trial->option;
    const int resting = task->rest - option[SUM_REST];
    trial->set[ALL_REDUCE] = task->sum + option[SUM_REST];
    trial->set[REDUCE_SCATTER] = task->leave + resting + option[SCATTER_PARTIAL];
    trial->set[ALL_GATHER] = task->gather + resting + option[SLICE_WHOLE];
    trial->set[ALL_TO_ALL] = task->move;
    trial->bytes = task->bytes * prices->members[option[SUM_REST]] *
                   prices->members[task->partial - option[SCATTER_PARTIAL]] *
                   prices->members[task->whole - option[SLICE_WHOLE]];
    price_trial(prices, trial);
}

static bool is_better(const struct trial *a, const struct trial *b)
{
    if (a->seconds < b->seconds * (1 - ROUNDOFF))
        return true;
    return a->seconds <= b->seconds * (1 + ROUNDOFF) && a->count < b->count;
}

/* Steps to the next combination of options; false after the last. */
static bool next_options(const struct sbp_boxing_cut_prices *prices, const int most[OPTIONS],
                         int option[OPTIONS])
{
    for (int i = 0; i < OPTIONS; i++) {
        if (option[i] != most[i]) {
            option[i] = larger_subset(prices, most[i], option[i]);
            return true;
        }
        option[i] = 0;
    }
    return false;
}

/* The two halves of an all-reduce cost as much as it by the formula. It may cost less only together
 * with sums that cannot be scattered, whose phases or ring it then shares. */
static struct trial find_best(const struct sbp_boxing_cut_prices *prices,
                              const struct sbp_boxing_cut_task *task)
{
    const int most[OPTIONS] = {
        [SCATTER_PARTIAL] = task->partial,
        [SLICE_WHOLE] = task->whole,
        [SUM_REST] = prices->least && task->sum == 0 ? 0 : task->rest,
    };
    struct trial best = {.seconds = INFINITY}, trial = {.count = 0};
    do {
        form_trial(prices, task, &trial);
        if (is_better(&trial, &best))
            best = trial;
    } while (next_options(prices, most, trial.option));
    return best;
}

static bool is_local(const struct sbp_boxing_cut_task *task)
{
    return task->sum + task->rest + task->leave + task->move + task->gather == 0;
}

/* --- the list --- */

/* Scatters take the largest block first, gathers last. */
static void add_steps(const struct sbp_boxing_cut_prices *prices, enum column column, int set,
                      double bytes, struct sbp_boxing_cut *out)
{
    if (set == 0)
        return;
    cut(prices, column, set, bytes);
    const int count = prices->best_count[set];
    for (int i = 0; i < count; i++) {
        const int at = column == ALL_GATHER ? count - 1 - i : i;
        out->step[out->count + at] =
            (struct sbp_boxing_cut_step){KINDS[column], prices->best_first[set]};
        set -= prices->best_first[set];
    }
    out->count += count;
}

/* A scatter and a gather of the same axes with nothing in between are an all-reduce. */
static void join_halves(const struct sbp_boxing_cut_prices *prices,
                        const struct sbp_boxing_cut_task *task, double bytes,
                        struct sbp_boxing_cut *out)
{
    int at = 0;
    while (at < out->count && out->step[at].kind == SBP_REDUCE_SCATTER)
        at++;
    if (at == 0 || at == out->count || out->step[at].kind != SBP_ALL_GATHER ||
        out->step[at].set != out->step[at - 1].set ||
        !is_subset(prices, out->step[at].set, task->rest))
        return;
    const int set = out->step[at].set;
    const double n = bytes * prices->members[set];
    const double joined_s = price_s(prices, ALL_REDUCE, set, n);
    const double halves_s =
        price_s(prices, REDUCE_SCATTER, set, n) + price_s(prices, ALL_GATHER, set, n);
    if (joined_s > halves_s * (1 + ROUNDOFF))
        return;
    out->seconds += joined_s - halves_s;
    out->summed = set;
    out->step[at - 1].kind = SBP_ALL_REDUCE;
    out->count--;
    for (int i = at; i < out->count; i++)
        out->step[i] = out->step[i + 1];
}

void sbp_boxing_cut_make(const struct sbp_boxing_cut_prices *prices,
                         const struct sbp_boxing_cut_task *task, struct sbp_boxing_cut *out)
{
    static const enum column ORDER[] = {REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, ALL_GATHER};
    *out = (struct sbp_boxing_cut){0};
    if (is_local(task))
        return;
    const struct trial best = find_best(prices, task);
    out->seconds = best.seconds;
    out->summed = best.option[SUM_REST];
    out->partial = best.option[SCATTER_PARTIAL];
    out->whole = best.option[SLICE_WHOLE];
    for (int k = 0; k < SBP_CUT_KINDS; k++)
        add_steps(prices, ORDER[k], best.set[ORDER[k]], best.bytes, out);
    join_halves(prices, task, best.bytes, out);
}
