#include "tests/bench/answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"

#define ROUNDING 1e-9 /* relative: sums in another order */

enum { MOST_GROUPS = 64, SHOWN_GROUPS = 2, ROLES_BYTES = 96 };

/* Strategies of layers, repeats counted. */
struct groups {
    int count, layers;
    struct group {
        char roles[ROLES_BYTES];
        int layers;
    } group[MOST_GROUPS];
};

/* The parts of an answer that apply to the whole step, not to single layers. */
struct cut {
    int64_t pipeline, micro_batch, chunks, zero;
    const char *schedule, *recompute; /* borrowed */
    bool offload;
    int64_t least_zero, most_zero; /* of layers with weights */
};

/* ---- layers --------------------------------------------------------------------------------- */

/* {"batch": [2, 4], "column": [1, 2]} as "batch 8 x column 2", and the product of all. */
static enum sbp_status read_roles(const struct sbp_json *layer, char *text, int64_t *product)
{
    struct sbp_json roles, role, level;
    int used = 0, levels;
    *product = 1;
    (void)snprintf(text, ROLES_BYTES, "whole");
    SBP_TRY(sbp_json_member(layer, "roles", &roles));
    for (const struct cJSON *item = roles.node->child; item != NULL; item = item->next) {
        int64_t total = 1, factor = 1;
        SBP_TRY(sbp_json_member(&roles, item->string, &role));
        SBP_TRY(sbp_json_length(&role, &levels));
        for (int i = 0; i < levels; i++) {
            SBP_TRY(sbp_json_element(&role, i, &level));
            SBP_TRY(sbp_json_int64(&level, 1, 1 << 24, &factor));
            total *= factor;
        }
        if (total > 1 && used < ROLES_BYTES)
            used += snprintf(text + used, (size_t)(ROLES_BYTES - used), "%s%s %lld",
                             used > 0 ? " x " : "", item->string, (long long)total);
        *product *= total;
    }
    return SBP_OK;
}

static void count_layer(struct groups *groups, const char *roles, int repeats)
{
    int at = 0;
    while (at < groups->count && strcmp(groups->group[at].roles, roles) != 0)
        at++;
    groups->layers += repeats;
    if (at == MOST_GROUPS)
        return;
    if (at == groups->count)
        (void)snprintf(groups->group[groups->count++].roles, ROLES_BYTES, "%s", roles);
    groups->group[at].layers += repeats;
}

static enum sbp_status read_layer(const struct sbp_json *layer, int64_t devices, struct cut *cut,
                                  struct groups *groups)
{
    char roles[ROLES_BYTES];
    int64_t product, repeats, parameters, zero = cut->zero;
    struct sbp_json member;
    SBP_TRY(read_roles(layer, roles, &product));
    if (product != devices)
        return sbp_json_refuse(layer, "roles multiply to %lld, a stage has %lld devices",
                               (long long)product, (long long)devices);
    SBP_TRY(sbp_json_member(layer, "repeats", &member));
    SBP_TRY(sbp_json_int64(&member, 1, 1 << 20, &repeats));
    SBP_TRY(sbp_json_member(layer, "parameters", &member));
    SBP_TRY(sbp_json_int64(&member, 0, (int64_t)1 << 53, &parameters));
    SBP_TRY(sbp_json_get_int64(layer, "zero", 0, 3, &zero));
    if (parameters == 0 || sbp_json_has(layer, "follows"))
        return SBP_OK;
    cut->least_zero = zero < cut->least_zero ? zero : cut->least_zero;
    cut->most_zero = zero > cut->most_zero ? zero : cut->most_zero;
    count_layer(groups, roles, (int)repeats);
    return SBP_OK;
}

static enum sbp_status read_layers(const struct sbp_json *at, int64_t devices, struct cut *cut,
                                   struct groups *groups)
{
    struct sbp_json layers, layer;
    int count;
    SBP_TRY(sbp_json_member(at, "layers", &layers));
    SBP_TRY(sbp_json_length(&layers, &count));
    if (count == 0)
        return sbp_json_refuse(&layers, "a plan has layers");
    for (int i = 0; i < count; i++) {
        SBP_TRY(i == 0 ? sbp_json_element(&layers, 0, &layer) : sbp_json_next(&layers, i, &layer));
        SBP_TRY(read_layer(&layer, devices, cut, groups));
    }
    return SBP_OK;
}

/* ---- the step around them ------------------------------------------------------------------- */

static enum sbp_status read_string(const struct sbp_json *object, const char *key,
                                   const char **text)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(object, key, &member));
    return sbp_json_string(&member, text);
}

static enum sbp_status read_number(const struct sbp_json *object, const char *key, double least,
                                   double most, double *value)
{
    struct sbp_json member;
    SBP_TRY(sbp_json_member(object, key, &member));
    return sbp_json_double(&member, least, most, value);
}

static enum sbp_status read_cut(const struct sbp_json *at, int64_t devices, int64_t batch,
                                struct cut *cut)
{
    struct sbp_json parallel, stages;
    int stage_count;
    *cut = (struct cut){.pipeline = 1, .micro_batch = batch, .chunks = 1, .least_zero = 3};
    SBP_TRY(sbp_json_member(at, "parallel", &parallel));
    SBP_TRY(sbp_json_get_int64(&parallel, "pipeline", 1, devices, &cut->pipeline));
    SBP_TRY(sbp_json_get_int64(&parallel, "micro_batch", 1, batch, &cut->micro_batch));
    SBP_TRY(sbp_json_get_int64(&parallel, "chunks", 1, 1 << 20, &cut->chunks));
    SBP_TRY(sbp_json_get_int64(&parallel, "zero", 0, 3, &cut->zero));
    SBP_TRY(sbp_json_get_bool(&parallel, "offload", &cut->offload));
    SBP_TRY(read_string(&parallel, "schedule", &cut->schedule));
    SBP_TRY(read_string(&parallel, "recompute", &cut->recompute));
    if (devices % cut->pipeline != 0 || batch % cut->micro_batch != 0)
        return sbp_json_refuse(&parallel, "%lld stages of %lld devices, micro-batch %lld of %lld",
                               (long long)cut->pipeline, (long long)devices,
                               (long long)cut->micro_batch, (long long)batch);
    SBP_TRY(sbp_json_member(at, "stages", &stages));
    SBP_TRY(sbp_json_length(&stages, &stage_count));
    if (stage_count != cut->pipeline)
        return sbp_json_refuse(&stages, "has %d, the plan %lld", stage_count,
                               (long long)cut->pipeline);
    return SBP_OK;
}

/* ---- the line ------------------------------------------------------------------------------- */

static void add_cut(const struct cut *cut, int64_t batch, struct sbp_text *line)
{
    if (cut->pipeline > 1)
        sbp_text_add(line, "pipeline %lld %s, ", (long long)cut->pipeline, cut->schedule);
    if (cut->chunks > 1)
        sbp_text_add(line, "%lld chunks, ", (long long)cut->chunks);
    if (cut->micro_batch < batch)
        sbp_text_add(line, "micro-batch %lld, ", (long long)cut->micro_batch);
    if (cut->most_zero > cut->least_zero)
        sbp_text_add(line, "ZeRO %lld-%lld, ", (long long)cut->least_zero,
                     (long long)cut->most_zero);
    else if (cut->most_zero > 0)
        sbp_text_add(line, "ZeRO %lld, ", (long long)cut->most_zero);
    if (strcmp(cut->recompute, "none") != 0)
        sbp_text_add(line, "recompute %s, ", cut->recompute);
    if (cut->offload)
        sbp_text_add(line, "offload, ");
}

/* The most frequent first; of equal ones the first in the model. */
static void add_groups(struct groups *groups, struct sbp_text *line)
{
    for (int shown = 0; shown < SHOWN_GROUPS && shown < groups->count; shown++) {
        int best = 0;
        for (int i = 1; i < groups->count; i++)
            if (groups->group[i].layers > groups->group[best].layers)
                best = i;
        sbp_text_add(line, "%s%s (%d)", shown > 0 ? ", " : "", groups->group[best].roles,
                     groups->group[best].layers);
        groups->group[best].layers = 0;
    }
    if (groups->count > SHOWN_GROUPS)
        sbp_text_add(line, " of %d", groups->layers);
}

static enum sbp_status read_plan(const struct sbp_json *at, int64_t devices, int64_t batch,
                                 struct answer *answer)
{
    struct groups groups = {0};
    struct sbp_text line = {0};
    struct cut cut;
    SBP_TRY(read_cut(at, devices, batch, &cut));
    SBP_TRY(read_layers(at, devices / cut.pipeline, &cut, &groups));
    add_cut(&cut, batch, &line);
    add_groups(&groups, &line);
    const bool failed = line.failed || line.bytes == NULL;
    if (!failed)
        (void)snprintf(answer->plan, sizeof answer->plan, "%s", line.bytes);
    sbp_text_free(&line);
    return failed ? SBP_E_MEMORY : SBP_OK;
}

/* ---- costs and memory ----------------------------------------------------------------------- */

static enum sbp_status read_bound(const struct sbp_json *at, struct answer *answer)
{
    struct sbp_json member;
    double objective_s;
    SBP_TRY(read_number(at, "objective_s", 1e-12, 1e15, &objective_s));
    SBP_TRY(sbp_json_member(at, "lower_bound_s", &member));
    if (!cJSON_IsNull(member.node))
        SBP_TRY(sbp_json_double(&member, 0, 1e15, &answer->bound_s));
    if (fabs(objective_s - answer->step_s) > ROUNDING * answer->step_s)
        return sbp_json_refuse(at, "searched for %.12g s, reported %.12g s", objective_s,
                               answer->step_s);
    if (answer->bound_s > objective_s * (1 + ROUNDING))
        return sbp_json_refuse(&member, "%.12g is above the cost %.12g", answer->bound_s,
                               objective_s);
    if (strcmp(answer->status, "optimal") == 0 && answer->bound_s < objective_s * (1 - ROUNDING))
        return sbp_json_refuse(&member, "%.12g leaves a gap under %.12g, yet it is optimal",
                               answer->bound_s, objective_s);
    return SBP_OK;
}

static enum sbp_status read_cost(const struct sbp_json *at, struct answer *answer)
{
    struct sbp_json cost, memory;
    double device_bytes, reserve_bytes, available_bytes;
    SBP_TRY(sbp_json_member(at, "cost", &cost));
    SBP_TRY(read_number(&cost, "step_s", 1e-12, 1e15, &answer->step_s));
    SBP_TRY(read_number(&cost, "mfu", 0, 1, &answer->mfu));
    SBP_TRY(sbp_json_member(at, "memory", &memory));
    SBP_TRY(read_number(&memory, "available_bytes", 1, 1e18, &available_bytes));
    SBP_TRY(read_number(&memory, "device_bytes", 1, available_bytes, &device_bytes));
    SBP_TRY(read_number(&memory, "reserve_bytes", 0, device_bytes, &reserve_bytes));
    answer->device_bytes = (int64_t)device_bytes;
    answer->reserve_bytes = (int64_t)reserve_bytes;
    return read_bound(at, answer);
}

static enum sbp_status read_shortage(const struct sbp_json *at, struct answer *answer)
{
    struct sbp_json memory;
    double available_bytes, needed_bytes = 0, bound_bytes = 0;
    const char *dominates = "";
    SBP_TRY(sbp_json_member(at, "memory", &memory));
    SBP_TRY(read_number(&memory, "available_bytes", 1, 1e18, &available_bytes));
    const bool proved = strcmp(answer->status, "infeasible") == 0;
    if (proved || sbp_json_has(&memory, "needed_bytes"))
        SBP_TRY(read_number(&memory, "needed_bytes", available_bytes, 1e18, &needed_bytes));
    if (sbp_json_has(&memory, "lower_bound_bytes"))
        SBP_TRY(read_number(&memory, "lower_bound_bytes", 1, needed_bytes, &bound_bytes));
    if (proved || sbp_json_has(&memory, "dominates"))
        SBP_TRY(read_string(&memory, "dominates", &dominates));
    answer->needed_bytes = (int64_t)needed_bytes;
    answer->needed_bound_bytes = (int64_t)bound_bytes;
    (void)snprintf(answer->dominates, sizeof answer->dominates, "%s", dominates);
    return SBP_OK;
}

/* ---- all ------------------------------------------------------------------------------------ */

static enum sbp_status read_covers(const struct sbp_json *at, struct answer *answer)
{
    const char *covers;
    if (!sbp_json_has(at, "covers"))
        return SBP_OK;
    SBP_TRY(read_string(at, "covers", &covers));
    answer->is_narrow = strcmp(covers, "common roles and rests") == 0;
    return SBP_OK;
}

static enum sbp_status read_status(const struct sbp_json *at, int exit_code, struct answer *answer)
{
    static const char *const STATUSES[] = {"optimal", "feasible", "infeasible", "time_limit", NULL};
    struct sbp_json member;
    int status;
    SBP_TRY(sbp_json_member(at, "status", &member));
    SBP_TRY(sbp_json_choice(&member, STATUSES, &status));
    answer->status = STATUSES[status];
    answer->has_plan = status < 2;
    if (exit_code != (answer->has_plan ? 0 : 1))
        return sbp_json_refuse(&member, "%s, but exit status %d", answer->status, exit_code);
    return SBP_OK;
}

enum sbp_status answer_read(const struct measured *measured, int64_t devices, int64_t batch,
                            struct answer *answer, struct sbp_diag *diag)
{
    struct sbp_json at, model;
    double parameters;
    char end[MEASURE_END_BYTES];
    *answer = (struct answer){.status = "none"};
    if (measured->answer == NULL || measured->exit_code < 0 || measured->exit_code > 1)
        return sbp_fail(diag, SBP_E_INPUT, "%s", measure_end_text(measured, end));
    sbp_json_at(measured->answer, "answer", diag, &at);
    SBP_TRY(read_status(&at, measured->exit_code, answer));
    SBP_TRY(read_covers(&at, answer));
    SBP_TRY(sbp_json_member(&at, "model", &model));
    SBP_TRY(read_number(&model, "parameters", 1, 1e15, &parameters));
    answer->parameters = (int64_t)parameters;
    if (!answer->has_plan)
        return read_shortage(&at, answer);
    SBP_TRY(read_cost(&at, answer));
    return read_plan(&at, devices, batch, answer);
}

const char *answer_verdict(const struct answer *answer, char *buffer)
{
    const char *star = answer->is_narrow ? " *" : "";
    if (strcmp(answer->status, "feasible") != 0)
        (void)snprintf(buffer, 32, "%s%s", answer->status, star);
    else if (answer->bound_s <= 0)
        (void)snprintf(buffer, 32, "no bound");
    else
        (void)snprintf(buffer, 32, "gap %.2g %%%s", 100 * (answer->step_s / answer->bound_s - 1),
                       star);
    return buffer;
}
