#include "planner/report/price_interval.h"

#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/table.h"

#define POOR        1.0 /* error e from which even a measured price is in doubt: half or twice as much */
#define LEAST_SHARE 0.01 /* share of the step from which a doubt is told */

/* --- doubts --- */

static bool is_doubted(const struct sbp_network_price *price)
{
    return price->error >= POOR ||
           (price->basis != SBP_BASIS_MEASURED && price->basis != SBP_BASIS_BETWEEN);
}

static void add_doubt(struct sbp_price_interval *trust, const struct sbp_doubt *doubt)
{
    for (int i = 0; i < trust->doubt_count; i++) {
        struct sbp_doubt *old = &trust->doubt[i];
        if (old->kind != doubt->kind || old->nodes != doubt->nodes ||
            old->ranks_per_node != doubt->ranks_per_node)
            continue;
        old->seconds += doubt->seconds;
        old->basis = doubt->basis > old->basis ? doubt->basis : old->basis;
        old->error = doubt->error > old->error ? doubt->error : old->error;
        return;
    }
    if (trust->doubt_count < SBP_MOST_DOUBTS)
        trust->doubt[trust->doubt_count++] = *doubt;
}

/* Adds a piece's doubtful collectives, in seconds of a device, the mean over `stages`. */
static void doubt_piece(const struct sbp_step *step, int piece, struct sbp_price_interval *trust)
{
    const struct sbp_program *program = sbp_step_program(step, piece);
    const struct sbp_cluster *cluster = &step->cluster;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        struct sbp_group group;
        if (!(instr->communication_s > 0))
            continue;
        const struct sbp_network_price price =
            sbp_price_of_network(program, cluster, instr, &group);
        const double times = sbp_step_times(step, piece, instr);
        const double inner = group.members[cluster->level_count - 1];
        const struct sbp_doubt doubt = {
            instr->box.kind, sbp_collective_group_size(&group) / inner,    inner, price.basis,
            price.error,     times * instr->communication_s / step->stages};
        if (is_doubted(&price))
            add_doubt(trust, &doubt);
    }
}

static int compare_doubts(const void *left, const void *right)
{
    const struct sbp_doubt *a = left, *b = right;
    if (a->seconds != b->seconds)
        return a->seconds < b->seconds ? 1 : -1;
    if (a->kind != b->kind)
        return (int)a->kind - (int)b->kind;
    if (a->nodes != b->nodes)
        return a->nodes < b->nodes ? 1 : -1;
    return (a->ranks_per_node < b->ranks_per_node) - (a->ranks_per_node > b->ranks_per_node);
}

static void find_doubts(const struct sbp_step *step, struct sbp_price_interval *trust)
{
    for (int piece = 0; piece < step->pieces; piece++)
        doubt_piece(step, piece, trust);
    qsort(trust->doubt, (size_t)trust->doubt_count, sizeof *trust->doubt, compare_doubts);
    while (trust->doubt_count > 0 &&
           trust->doubt[trust->doubt_count - 1].seconds < LEAST_SHARE * step->totals.step_s)
        trust->doubt_count--;
}

/* --- the interval --- */

static enum sbp_status step_at(const struct sbp_plan *plan, enum sbp_bound bound, double *step_s,
                               struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&plan->cut.graph.precision);
    struct sbp_cluster *cluster = malloc(sizeof *cluster);
    struct sbp_step step;
    if (cluster == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    *cluster = plan->workload.cluster;
    cluster->network.bound = bound;
    struct sbp_step_request request = sbp_cut_request(&plan->cut, &plan->strategy, &bytes);
    request.cluster = cluster;
    const enum sbp_status status = sbp_step_make(&request, &step, diag);
    if (status == SBP_OK) {
        *step_s = step.totals.step_s;
        sbp_step_free(&step);
    }
    free(cluster);
    return status;
}

enum sbp_status sbp_price_interval_make(const struct sbp_plan *plan, const struct sbp_step *step,
                                        struct sbp_price_interval *trust, struct sbp_diag *diag)
{
    const struct sbp_cluster *cluster = &plan->workload.cluster;
    const double step_s = step->totals.step_s, error = cluster->runtime.error;
    *trust = (struct sbp_price_interval){.is_calibrated = sbp_network_is_given(&cluster->network),
                                         .low_s = step_s,
                                         .high_s = step_s};
    trust->trainer = error > 0 ? cluster->runtime.name : NULL;
    trust->is_given = trust->is_calibrated || trust->trainer != NULL;
    if (trust->is_calibrated) {
        find_doubts(step, trust);
        SBP_TRY(step_at(plan, SBP_LOWEST, &trust->low_s, diag));
        SBP_TRY(step_at(plan, SBP_HIGHEST, &trust->high_s, diag));
    }
    trust->low_s /= 1 + error;
    trust->high_s *= 1 + error;
    return SBP_OK;
}

/* --- telling --- */

static enum sbp_status print_doubt(const struct sbp_doubt *doubt, double step_s, FILE *out)
{
    return fprintf(out,
                   "%.0f %% of the step's time is %s over %g x %g: %s, right within a factor of "
                   "%.3g\n",
                   100 * doubt->seconds / step_s, sbp_collective_name(doubt->kind), doubt->nodes,
                   doubt->ranks_per_node, sbp_network_basis_text(doubt->basis),
                   1 + doubt->error) < 0
               ? SBP_E_IO
               : SBP_OK;
}

enum sbp_status sbp_price_interval_print(const struct sbp_price_interval *trust, double step_s,
                                         FILE *out)
{
    char low[32], high[32];
    if (!trust->is_given)
        return SBP_OK;
    if (fprintf(out, "interval   %s .. %s a step, by the errors of %s%s%s\n",
                sbp_format_seconds(trust->low_s, low), sbp_format_seconds(trust->high_s, high),
                trust->is_calibrated ? "the calibration" : "",
                trust->is_calibrated && trust->trainer != NULL ? " and of " : "",
                trust->trainer != NULL ? "measured runs" : "") < 0)
        return SBP_E_IO;
    for (int i = 0; i < trust->doubt_count; i++) {
        if (fprintf(out, "warning    ") < 0)
            return SBP_E_IO;
        SBP_TRY(print_doubt(&trust->doubt[i], step_s, out));
    }
    return SBP_OK;
}

void sbp_price_interval_cell(struct sbp_table *table, const struct sbp_price_interval *trust)
{
    char low[32], high[32];
    if (trust->is_given)
        sbp_table_cell(table, "%s .. %s%s", sbp_format_seconds(trust->low_s, low),
                       sbp_format_seconds(trust->high_s, high), trust->doubt_count > 0 ? " *" : "");
    else
        sbp_table_cell(table, "-");
}

enum sbp_status sbp_price_interval_print_star(const struct sbp_price_interval *trust, double step_s,
                                              const char *row, FILE *out)
{
    if (!trust->is_given || trust->doubt_count == 0)
        return SBP_OK;
    if (fprintf(out, "%s *: ", row) < 0)
        return SBP_E_IO;
    return print_doubt(&trust->doubt[0], step_s, out);
}

void sbp_price_interval_put(struct cJSON *json, const struct sbp_price_interval *trust,
                            bool *failed)
{
    if (!trust->is_given)
        return;
    struct cJSON *cost = cJSON_GetObjectItemCaseSensitive(json, "cost");
    sbp_json_put_number(cost, "step_low_s", trust->low_s, failed);
    sbp_json_put_number(cost, "step_high_s", trust->high_s, failed);
    struct cJSON *doubts = sbp_json_put_array(json, "doubts", failed);
    for (int i = 0; i < trust->doubt_count && !*failed; i++) {
        const struct sbp_doubt *doubt = &trust->doubt[i];
        struct cJSON *item = sbp_json_push_object(doubts, failed);
        sbp_json_put_text(item, "collective", sbp_collective_name(doubt->kind), failed);
        sbp_json_put_number(item, "nodes", doubt->nodes, failed);
        sbp_json_put_number(item, "ranks_per_node", doubt->ranks_per_node, failed);
        sbp_json_put_text(item, "basis", sbp_network_basis_text(doubt->basis), failed);
        sbp_json_put_number(item, "error", doubt->error, failed);
        sbp_json_put_number(item, "seconds", doubt->seconds, failed);
    }
}
