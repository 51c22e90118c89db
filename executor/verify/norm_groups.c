#include "executor/verify/norm_groups_priv.h"

bool sbp_norm_groups_has(const struct sbp_graph *graph)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_BATCHNORM)
            return true;
    return false;
}

static const struct sbp_program *program_of(const struct sbp_step *step, int op)
{
    int piece = 0;
    while (op >= sbp_step_program(step, piece)->scope.end_op)
        piece++;
    return sbp_step_program(step, piece);
}

/* Members of the mesh that normalise the rows of this one, but for those before it, repeat them. */
static bool is_first(const struct sbp_program *program, const struct sbp_dist *dist, int64_t place)
{
    const sbp_axes rows = sbp_dist_split(&program->mesh, dist, SBP_DIM_BATCH) |
                          sbp_dist_split(&program->mesh, dist, SBP_DIM_SEQUENCE);
    for (int axis = 0; axis < program->mesh.axis_count; axis++)
        if ((rows >> axis & 1) == 0 && sbp_mesh_coordinate(&program->mesh, place, axis) != 0)
            return false;
    return true;
}

/* The rows (image, height) of a member's block, in the micro-batch that begins at `image`. */
static enum sbp_status make_group(const struct sbp_region *region, int64_t image,
                                  struct sbp_arena *arena, struct sbp_norm_rows *rows)
{
    const struct sbp_digits *batch = &region->dim[SBP_DIM_BATCH];
    const struct sbp_digits *height = &region->dim[SBP_DIM_SEQUENCE];
    const int64_t images = sbp_digits_local_size(batch), high = sbp_digits_local_size(height);
    int64_t *row = SBP_NEW(arena, int64_t, images * high);
    if (row == NULL)
        return SBP_E_MEMORY;
    for (int64_t i = 0; i < images * high; i++)
        row[i] = (image + sbp_digits_global(batch, i / high)) * sbp_digits_global_size(height) +
                 sbp_digits_global(height, i % high);
    rows->count = images * high;
    rows->row = row;
    return SBP_OK;
}

static enum sbp_status make_groups(const struct sbp_graph *graph, const struct sbp_program *program,
                                   int op, struct sbp_arena *arena, struct sbp_norm_groups_of *of)
{
    const int64_t micro_batch = program->graph->micro_batch;
    const int64_t times = graph->micro_batch / micro_batch;
    const struct sbp_shape *shape = &program->graph->tensor[graph->op[op].input[0]].shape;
    const struct sbp_dist dist =
        sbp_strategy_input(program->graph, &program->mesh, &program->strategy, op, 0);
    const struct sbp_layout layout = {&program->mesh, graph->class_count, program->strategy.split};
    of->rows = SBP_NEW(arena, struct sbp_norm_rows, times * program->mesh.devices);
    if (of->rows == NULL)
        return SBP_E_MEMORY;
    for (int64_t m = 0; m < times; m++)
        for (int64_t place = 0; place < program->mesh.devices; place++) {
            struct sbp_norm_rows *const rows = &of->rows[of->count];
            struct sbp_region region;
            if (!is_first(program, &dist, place))
                continue;
            sbp_dist_region(&layout, shape, &dist, place, &region);
            SBP_TRY(make_group(&region, m * micro_batch, arena, rows));
            rows->channels = shape->size[SBP_DIM_FEATURE];
            rows->width = shape->size[SBP_DIM_INNER];
            of->count++;
        }
    return SBP_OK;
}

enum sbp_status sbp_norm_groups_make(const struct sbp_graph *graph, const struct sbp_step *step,
                                     struct sbp_arena *arena, struct sbp_norm_groups *groups)
{
    groups->of = SBP_NEW(arena, struct sbp_norm_groups_of, graph->op_count);
    if (groups->of == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_BATCHNORM)
            SBP_TRY(make_groups(graph, program_of(step, op), op, arena, &groups->of[op]));
    return SBP_OK;
}
