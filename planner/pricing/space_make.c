#include "planner/space/space.h"

#include <string.h>

#include "planner/space/domain_build.h"
#include "planner/pricing/pricing.h"
#include "planner/pricing/price_cache.h"
#include "planner/space/space_table.h"

/* A follower chooses nothing but the ZeRO level of its weights, and where its output rests. */
static bool gives_no_roles(const struct sbp_fix *fix)
{
    bool alone = fix->rests || fix->zero != SBP_ANY;
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            alone &= fix->factor[role][level] == SBP_ANY;
    return alone;
}

static enum sbp_status check_fixes(const struct sbp_space *space, struct sbp_diag *diag)
{
    for (int i = 0; i < space->request->asked.fix_count; i++) {
        const struct sbp_fix *fix = &space->request->asked.fix[i];
        bool found = false;
        for (int op = 0; op < space->graph->op_count && !found; op++)
            found = strcmp(space->graph->op[op].name, fix->layer) == 0 &&
                    ((space->op_variable[op] >= 0 && space->graph->op[op].site == op) ||
                     gives_no_roles(fix));
        if (!found)
            return sbp_fail(diag, SBP_E_INPUT,
                            "fix: %s: no layer of this name chooses a strategy of its own",
                            fix->layer);
    }
    return SBP_OK;
}

/* Checks that an operator's fixed roles can leave its output in the fixed rest. */
static enum sbp_status check_rests(const struct sbp_space *space, struct sbp_diag *diag)
{
    for (int k = 0; k < space->output_edge_count; k++) {
        const struct sbp_output_edge *edge = &space->output_edge[k];
        const int rests = space->variable[edge->rest_variable].choice_count;
        bool found = sbp_space_rest_fix(space, edge->rest_variable) == NULL;
        const int choices = space->variable[edge->op_variable].choice_count;
        for (int c = 0; c < choices && !found; c++)
            for (int r = 0; r < rests && !found; r++)
                found = sbp_pricing_can_rest(space, edge, c, r);
        if (!found)
            return sbp_fail(
                diag, SBP_E_INPUT,
                "fix: %s: its output cannot rest like this: splits stay or rest B or M, "
                "partial sums rest split, B or P, what is whole rests B, M or split",
                space->graph->op[edge->op].name);
    }
    return SBP_OK;
}

struct sbp_class_limit sbp_space_class_unlimited(int64_t parts)
{
    struct sbp_class_limit limit = {.parts = parts};
    memset(limit.axes, SBP_ANY_AXES, sizeof limit.axes);
    return limit;
}

static enum sbp_status allocate(struct sbp_space_maker *maker,
                                const struct sbp_class_limit *class_limit)
{
    struct sbp_space *space = maker->space;
    const struct sbp_graph *graph = space->graph;
    const int ops = graph->op_count;
    space->variable = SBP_NEW(&space->arena, struct sbp_space_variable, 2 * ops + 2);
    space->input_edge = SBP_NEW(&space->arena, struct sbp_input_edge, SBP_MAX_INPUTS * ops + 1);
    space->output_edge = SBP_NEW(&space->arena, struct sbp_output_edge, ops + 1);
    space->op_variable = SBP_NEW(&space->arena, int, ops + 1);
    space->slot = SBP_NEW(&space->arena, int, graph->tensor_count + 1);
    space->class_limit = SBP_NEW(&space->arena, struct sbp_class_limit, graph->class_count + 1);
    space->shapes = sbp_group_prices_make(space->cluster, space->mesh, &space->arena);
    uint8_t *roles = SBP_NEW(&space->arena, uint8_t, (ops + 1) * SBP_MAX_ROLES);
    maker->row_linear = SBP_NEW(&space->arena, bool, ops + 1);
    maker->unlimited = SBP_NEW(&space->arena, struct sbp_class_limit, graph->class_count + 1);
    if (space->variable == NULL || space->input_edge == NULL || space->output_edge == NULL ||
        space->op_variable == NULL || space->slot == NULL || space->class_limit == NULL ||
        space->shapes == NULL || roles == NULL || maker->row_linear == NULL ||
        maker->unlimited == NULL)
        return SBP_E_MEMORY;
    space->op_role = (uint8_t(*)[SBP_MAX_ROLES])roles;
    for (int c = 0; c < graph->class_count; c++) {
        maker->unlimited[c] = sbp_space_class_unlimited(graph->dim_class[c].size);
        space->class_limit[c] = class_limit != NULL ? class_limit[c] : maker->unlimited[c];
    }
    return SBP_OK;
}

/* Whether nothing narrows the space, so that the cache may serve it. */
static bool is_whole(const struct sbp_space_maker *maker)
{
    const struct sbp_space *space = maker->space;
    for (int c = 0; c < space->graph->class_count; c++)
        if (memcmp(&space->class_limit[c], &maker->unlimited[c], sizeof *maker->unlimited) != 0)
            return false;
    return maker->megatron == NULL && space->request->part == NULL;
}

static void share_limits(struct sbp_space *space, int site_tensor, int tensor)
{
    const struct sbp_shape *of_site = &space->graph->tensor[site_tensor].shape;
    const struct sbp_shape *shape = &space->graph->tensor[tensor].shape;
    for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
        if (shape->dim_class[dim] == SBP_NO_CLASS || of_site->dim_class[dim] == SBP_NO_CLASS)
            continue;
        struct sbp_class_limit *const limit = &space->class_limit[of_site->dim_class[dim]];
        const struct sbp_class_limit *own = &space->class_limit[shape->dim_class[dim]];
        if (own->parts < space->graph->dim_class[shape->dim_class[dim]].size &&
            own->parts < limit->parts)
            limit->parts = own->parts;
        for (int f = 0; f < space->mesh->family_count; f++)
            limit->axes[f] = own->axes[f] < limit->axes[f] ? own->axes[f] : limit->axes[f];
    }
}

/* Repeats are split like their sites, whose classes decide which tuples are legal: the sites'
 * limits become those of all repeats. */
static void limit_sites(struct sbp_space *space)
{
    const struct sbp_graph *graph = space->graph;
    for (int op = 0; op < graph->op_count; op++) {
        const struct sbp_op_node *node = &graph->op[op], *site = &graph->op[node->site];
        for (int i = 0; i < node->input_count && node != site; i++)
            share_limits(space, site->input[i], node->input[i]);
        for (int w = 0; w < node->weight_count && node != site; w++)
            share_limits(space, site->weight[w], node->weight[w]);
        if (node->output >= 0 && node != site)
            share_limits(space, site->output, node->output);
    }
}

static enum sbp_status build(struct sbp_space_maker *maker,
                             const struct sbp_class_limit *class_limit)
{
    struct sbp_space *space = maker->space;
    if (space->request->asked.boxing == SBP_BOXING_PAPER &&
        space->request->asked.space == SBP_SPACE_FULL)
        return sbp_fail(maker->diag, SBP_E_USAGE,
                        "--set boxing=paper: the paper's rule knows batch and feature splits only, "
                        "legal with --space autoddl, megatron and data-parallel");
    SBP_TRY(allocate(maker, class_limit));
    limit_sites(space);
    sbp_megatron_pair(maker);
    SBP_TRY(sbp_space_find_rests(space));
    SBP_TRY(sbp_space_connect(space));
    SBP_TRY(check_fixes(space, maker->diag));
    if (space->request->store != NULL && is_whole(maker))
        SBP_TRY(sbp_cache_open(space->request->store, space));
    if (!sbp_cache_take_domains(space)) {
        SBP_TRY(sbp_space_make_domains(maker));
        SBP_TRY(sbp_cache_keep_domains(space));
    }
    SBP_TRY(sbp_space_keep_part(maker));
    SBP_TRY(sbp_pricing_make_groups(space));
    SBP_TRY(sbp_pricing_make_choices(space));
    return space->is_refuted ? SBP_OK : check_rests(space, maker->diag);
}

/* Sets the request's weights, or those of the longest path; for communication the mean over
 * stages. */
static enum sbp_status choose_view(struct sbp_space *space, struct sbp_diag *diag)
{
    if (space->request->weights != NULL && space->request->asked.objective == SBP_STEP_TIME) {
        space->weights = space->request->weights;
        return SBP_OK;
    }
    struct sbp_path_weights *weights = SBP_NEW(&space->arena, struct sbp_path_weights, 1);
    struct sbp_path path;
    space->weights = weights;
    if (weights == NULL)
        return SBP_E_MEMORY;
    if (space->request->asked.objective != SBP_STEP_TIME)
        return sbp_path_weights_mean(space->cut, &space->arena, weights, diag);
    SBP_TRY(sbp_path_longest(space->cut, &space->arena, &path));
    return sbp_path_weights_make(space->cut, &path, &space->arena, weights, diag);
}

enum sbp_status sbp_space_make(const struct sbp_cut *cut, const struct sbp_solve_request *request,
                               const struct sbp_class_limit *class_limit,
                               const struct sbp_megatron_mesh *megatron, struct sbp_space *space,
                               struct sbp_diag *diag)
{
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&cut->graph.precision);
    const struct sbp_parallel *parallel = &cut->parallel;
    *space = (struct sbp_space){.cut = cut,
                                .graph = &cut->graph,
                                .cluster = &cut->stage,
                                .moves_grow = sbp_collective_grows(&cut->stage, SBP_ALL_TO_ALL),
                                .mesh = &cut->mesh,
                                .request = request,
                                .is_open = sbp_space_opens(request, cut),
                                .pricing = sbp_price_setup(&cut->graph, &cut->stage, &bytes),
                                .parallel = parallel,
                                .micro_batches = sbp_parallel_micro_batches(parallel, &cut->graph)};
    space->arena.budget = request->asked.search_memory;
    if (request->asked.objective == SBP_STEP_TIME && !request->nothing_hides)
        space->hidden_share = sbp_parallel_hidden_share(parallel, cut->cluster);
    struct sbp_space_maker maker = {.space = space, .cut = cut, .megatron = megatron, .diag = diag};
    enum sbp_status status = choose_view(space, diag);
    if (status == SBP_OK)
        status = build(&maker, class_limit);
    if (status == SBP_E_MEMORY)
        sbp_fail(diag, status, "out of memory while enumerating strategies");
    if (status != SBP_OK)
        sbp_space_free(space);
    return status;
}

void sbp_space_free(struct sbp_space *space)
{
    if (space == NULL)
        return;
    sbp_arena_free(&space->arena);
    *space = (struct sbp_space){0};
}
