#include "planner/validate/agreement.h"

#include <math.h>
#include <stdlib.h>

/* A value and where it stands. */
struct item {
    double value, weight;
    int at;
};

static int by_value(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Arrays as long as the runs, for one group at a time. */
struct scratch {
    struct item *item;
    double *predicted, *measured, *rank_of_predicted, *rank_of_measured;
};

/* ---- errors --------------------------------------------------------------------------------- */

/* sum |c p/m - 1| = sum (p/m) |c - m/p| is least where c is the median of m/p weighted by p/m. */
static double best_factor(const double *predicted, const double *measured, int count,
                          struct item *item)
{
    double half = 0, below = 0;
    for (int i = 0; i < count; i++) {
        const double ratio = predicted[i] / measured[i];
        item[i] = (struct item){.value = 1 / ratio, .weight = ratio, .at = i};
        half += ratio / 2;
    }
    qsort(item, (size_t)count, sizeof *item, by_value);
    for (int i = 0; i < count; i++) {
        below += item[i].weight;
        if (below >= half)
            return item[i].value;
    }
    return 1;
}

static double median_error(const double *predicted, const double *measured, int count,
                           struct item *item)
{
    for (int i = 0; i < count; i++)
        item[i] = (struct item){.value = fabs(predicted[i] / measured[i] - 1), .at = i};
    qsort(item, (size_t)count, sizeof *item, by_value);
    return (item[(count - 1) / 2].value + item[count / 2].value) / 2;
}

static void count_errors(const double *predicted, const double *measured, int count,
                         struct item *item, struct sbp_agreement *agreement)
{
    agreement->factor = best_factor(predicted, measured, count, item);
    agreement->median_error = median_error(predicted, measured, count, item);
    for (int i = 0; i < count; i++) {
        const double ratio = predicted[i] / measured[i];
        agreement->error += fabs(ratio - 1) / count;
        agreement->bias += (ratio - 1) / count;
        agreement->factor_error += fabs(agreement->factor * ratio - 1) / count;
    }
}

/* ---- ranks ---------------------------------------------------------------------------------- */

/* Ranks from 1; equal values share the mean of their places. */
static void rank(const double *value, int count, struct item *item, double *ranks)
{
    for (int i = 0; i < count; i++)
        item[i] = (struct item){.value = value[i], .at = i};
    qsort(item, (size_t)count, sizeof *item, by_value);
    for (int first = 0, next; first < count; first = next) {
        for (next = first; next < count && item[next].value == item[first].value;)
            next++;
        for (int i = first; i < next; i++)
            ranks[item[i].at] = (first + 1 + next) / 2.0;
    }
}

/* Pearson's correlation of ranks, which is Spearman's coefficient with ties; NAN where all values
 * of one side are equal. */
static double correlate(const double *a, const double *b, int count)
{
    const double mean = (count + 1) / 2.0;
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < count; i++) {
        ab += (a[i] - mean) * (b[i] - mean);
        aa += (a[i] - mean) * (a[i] - mean);
        bb += (b[i] - mean) * (b[i] - mean);
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

static double spearman(const double *predicted, const double *measured, int count,
                       const struct scratch *scratch)
{
    rank(predicted, count, scratch->item, scratch->rank_of_predicted);
    rank(measured, count, scratch->item, scratch->rank_of_measured);
    return correlate(scratch->rank_of_predicted, scratch->rank_of_measured, count);
}

/* What taking the predicted best costs above the best. */
static double regret_of(const double *predicted, const double *measured, int count)
{
    int chosen = 0;
    double least = measured[0];
    for (int i = 1; i < count; i++) {
        if (predicted[i] < predicted[chosen] ||
            (predicted[i] == predicted[chosen] && measured[i] > measured[chosen]))
            chosen = i;
        least = measured[i] < least ? measured[i] : least;
    }
    return measured[chosen] / least - 1;
}

/* Copies the runs of a group together; returns how many. */
static int gather(const double *predicted, const double *measured, const int *group, int count,
                  int wanted, const struct scratch *scratch)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (group[i] != wanted)
            continue;
        scratch->predicted[found] = predicted[i];
        scratch->measured[found++] = measured[i];
    }
    return found;
}

static void add_group(int count, const struct scratch *scratch, struct sbp_agreement *agreement)
{
    if (count < SBP_AGREEMENT_LEAST_GROUP)
        return;
    const double correlation = spearman(scratch->predicted, scratch->measured, count, scratch);
    const double regret = regret_of(scratch->predicted, scratch->measured, count);
    if (isnan(correlation))
        return;
    agreement->groups++;
    agreement->group_rank += correlation;
    agreement->regret += regret;
    agreement->worst_regret = regret > agreement->worst_regret ? regret : agreement->worst_regret;
}

static void judge_groups(const double *predicted, const double *measured, const int *group,
                         int count, const struct scratch *scratch, struct sbp_agreement *agreement)
{
    int last = -1;
    for (int i = 0; i < count; i++)
        last = group[i] > last ? group[i] : last;
    for (int wanted = 0; wanted <= last; wanted++)
        add_group(gather(predicted, measured, group, count, wanted, scratch), scratch, agreement);
    const double groups = agreement->groups; /* 0 / 0: no group, no figure */
    agreement->group_rank /= groups;
    agreement->regret /= groups;
    if (agreement->groups == 0)
        agreement->worst_regret = NAN;
}

enum sbp_status sbp_agreement_make(const double *predicted, const double *measured,
                                   const int *group, int count, struct sbp_arena *arena,
                                   struct sbp_agreement *agreement, struct sbp_diag *diag)
{
    const struct scratch scratch = {.item = SBP_NEW(arena, struct item, count),
                                    .predicted = SBP_NEW(arena, double, count),
                                    .measured = SBP_NEW(arena, double, count),
                                    .rank_of_predicted = SBP_NEW(arena, double, count),
                                    .rank_of_measured = SBP_NEW(arena, double, count)};
    if (scratch.item == NULL || scratch.predicted == NULL || scratch.measured == NULL ||
        scratch.rank_of_predicted == NULL || scratch.rank_of_measured == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    *agreement = (struct sbp_agreement){.count = count};
    if (count == 0) {
        *agreement = (struct sbp_agreement){0, NAN, NAN, NAN, NAN, NAN, NAN, 0, NAN, NAN, NAN};
        return SBP_OK;
    }
    count_errors(predicted, measured, count, scratch.item, agreement);
    agreement->rank = spearman(predicted, measured, count, &scratch);
    judge_groups(predicted, measured, group, count, &scratch, agreement);
    return SBP_OK;
}
