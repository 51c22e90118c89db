/* Builders of what works on images, (batch, height, channels, width), and of what turns them into
 * tokens or single rows.
 *
 * Heights are a class of their own wherever the size changes; a window that keeps the rows in
 * place (stride 1, as many rows out as in) keeps their class, so that sums over a residual block
 * line up.
 */
#include <stdio.h>

#include "costmodel/model/graph_build_priv.h"

/* --- windows --- */

/* Output size along one side, 0 when the kernel does not fit. All terms are below 2^53. */
static int64_t windows_along(const struct sbp_build_window *window, int side, int64_t size)
{
    const int64_t room = size + 2 * window->padding[side] - window->kernel[side];
    return room < 0 ? 0 : room / window->stride[side] + 1;
}

static enum sbp_status slide(struct sbp_builder *builder, const struct sbp_json *at,
                             const struct sbp_build_window *window, struct sbp_shape *shape)
{
    static const int DIM[2] = {SBP_DIM_SEQUENCE, SBP_DIM_INNER};
    const struct sbp_json kernel = sbp_build_at(at, "kernel"),
                          padding = sbp_build_at(at, "padding");
    int64_t size[2];
    for (int side = 0; side < 2; side++) {
        const int64_t in = shape->size[DIM[side]];
        size[side] = windows_along(window, side, in);
        if (size[side] < 1)
            return sbp_json_refuse(
                &kernel, "%lld on a %s of %lld with padding %lld, legal are 1 to %lld",
                (long long)window->kernel[side], side == 0 ? "height" : "width", (long long)in,
                (long long)window->padding[side], (long long)(in + 2 * window->padding[side]));
        if (window->padding[side] >= window->kernel[side])
            return sbp_json_refuse(&padding, "%lld, but must be less than the kernel's %lld",
                                   (long long)window->padding[side],
                                   (long long)window->kernel[side]);
    }
    if (size[0] != shape->size[SBP_DIM_SEQUENCE] || window->stride[0] != 1)
        sbp_build_set_dim(shape, SBP_DIM_SEQUENCE, size[0],
                          sbp_build_class(builder, size[0], "%s.height", window->name));
    shape->size[SBP_DIM_INNER] = size[1];
    return SBP_OK;
}

static void keep_window(struct sbp_op_node *op, const struct sbp_build_window *window)
{
    for (int side = 0; side < 2; side++) {
        op->window.kernel[side] = window->kernel[side];
        op->window.stride[side] = window->stride[side];
        op->window.padding[side] = window->padding[side];
    }
}

enum sbp_status sbp_build_conv2d(struct sbp_builder *builder, const struct sbp_json *at,
                                 const struct sbp_build_window *window)
{
    const struct sbp_shape input = sbp_build_shape(builder, window->input);
    struct sbp_shape output = input;
    SBP_TRY(slide(builder, at, window, &output));
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_CONV2D, window->name);
    const int out = sbp_build_class(builder, window->out, "%s.out", op->name);
    sbp_build_set_dim(&output, SBP_DIM_FEATURE, window->out, out);
    sbp_build_reads(op, window->input);
    keep_window(op, window);
    const int64_t area = window->kernel[0] * window->kernel[1];
    struct sbp_shape vector = sbp_build_vector(&output);
    sbp_build_set_dim(&vector, SBP_DIM_OUT_INNER, 1, SBP_NO_CLASS);
    struct sbp_shape kernel = vector;
    sbp_build_set_dim(&kernel, SBP_DIM_IN, input.size[SBP_DIM_FEATURE],
                      input.dim_class[SBP_DIM_FEATURE]);
    sbp_build_set_dim(&kernel, SBP_DIM_IN_INNER, area, SBP_NO_CLASS);
    const double terms = (double)input.size[SBP_DIM_FEATURE] * (double)area;
    const double spread = sbp_build_spread(builder, terms);
    SBP_TRY(sbp_build_weight(builder, at, op, ".weight", &kernel, 0, spread));
    if (window->bias)
        SBP_TRY(sbp_build_bias(builder, at, op, &vector));
    return sbp_build_output(builder, at, op, &output);
}

enum sbp_status sbp_build_pool(struct sbp_builder *builder, const struct sbp_json *at,
                               enum sbp_op_kind kind, const struct sbp_build_window *window)
{
    struct sbp_build_window own = *window;
    struct sbp_shape shape = sbp_build_shape(builder, window->input);
    if (own.kernel[0] == 0) {
        own.kernel[0] = own.stride[0] = shape.size[SBP_DIM_SEQUENCE];
        own.kernel[1] = own.stride[1] = shape.size[SBP_DIM_INNER];
    }
    SBP_TRY(slide(builder, at, &own, &shape));
    struct sbp_op_node *op = sbp_build_op(builder, kind, own.name);
    sbp_build_reads(op, own.input);
    keep_window(op, &own);
    return sbp_build_output(builder, at, op, &shape);
}

/* --- one row a sample --- */

static void set_one_row(struct sbp_builder *builder, const char *name, struct sbp_shape *shape)
{
    if (shape->size[SBP_DIM_SEQUENCE] > 1)
        sbp_build_set_dim(shape, SBP_DIM_SEQUENCE, 1, sbp_build_class(builder, 1, "%s.rows", name));
}

enum sbp_status sbp_build_flatten(struct sbp_builder *builder, const struct sbp_json *at,
                                  const char *name, int input)
{
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_FLATTEN, name);
    struct sbp_shape shape = sbp_build_shape(builder, input);
    sbp_build_reads(op, input);
    shape.size[SBP_DIM_INNER] *= shape.size[SBP_DIM_SEQUENCE];
    set_one_row(builder, name, &shape);
    return sbp_build_output(builder, at, op, &shape);
}

enum sbp_status sbp_build_first_token(struct sbp_builder *builder, const struct sbp_json *at,
                                      const char *name, int input)
{
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_FIRST_TOKEN, name);
    struct sbp_shape shape = sbp_build_shape(builder, input);
    sbp_build_reads(op, input);
    set_one_row(builder, name, &shape);
    return sbp_build_output(builder, at, op, &shape);
}

/* --- patches --- */

int64_t sbp_build_patch_tokens(const struct sbp_build_patches *patches)
{
    return (patches->height / patches->patch) * (patches->width / patches->patch) +
           (patches->class_token ? 1 : 0);
}

static enum sbp_status check_patches(const struct sbp_json *at,
                                     const struct sbp_build_patches *patches)
{
    if (patches->height % patches->patch == 0 && patches->width % patches->patch == 0)
        return SBP_OK;
    return SBP_BUILD_REFUSE(at, "patch", "patches of %lld do not divide images of %lld x %lld",
                            (long long)patches->patch, (long long)patches->height,
                            (long long)patches->width);
}

enum sbp_status sbp_build_patches(struct sbp_builder *builder, const struct sbp_json *at,
                                  const struct sbp_build_patches *patches)
{
    SBP_TRY(check_patches(at, patches));
    struct sbp_op_node *op = sbp_build_op(builder, SBP_OP_PATCH_EMBEDDING, patches->name);
    const int64_t rows = sbp_build_patch_tokens(patches);
    const int64_t pixels = patches->patch * patches->patch * patches->channels;
    const int hidden = sbp_build_class(builder, patches->hidden, "hidden");
    struct sbp_shape output = sbp_build_tokens(builder);
    if (rows != builder->graph->sequence)
        sbp_build_set_dim(&output, SBP_DIM_SEQUENCE, rows,
                          sbp_build_class(builder, rows, "%s.tokens", op->name));
    output = sbp_build_with_features(&output, patches->hidden, hidden, 1);
    const struct sbp_shape row = sbp_build_vector(&output);
    struct sbp_shape table = row;
    op->window.kernel[0] = op->window.kernel[1] = patches->patch;
    op->window.stride[0] = op->window.stride[1] = patches->patch;
    op->patches = patches->class_token ? rows - 1 : rows;
    sbp_build_set_dim(&table, SBP_DIM_IN, pixels, SBP_NO_CLASS);
    SBP_TRY(sbp_build_weight(builder, at, op, ".weight", &table, 0,
                             sbp_build_spread(builder, (double)pixels)));
    op->bias = patches->bias ? op->weight_count : 0;
    if (patches->bias)
        SBP_TRY(sbp_build_bias(builder, at, op, &row));
    op->class_token = patches->class_token ? op->weight_count : 0;
    if (patches->class_token)
        SBP_TRY(sbp_build_weight(builder, at, op, ".class", &row, 0, SBP_INIT_SPREAD));
    sbp_build_set_dim(&table, SBP_DIM_IN, rows, SBP_NO_CLASS);
    op->positions = patches->positions ? op->weight_count : 0;
    if (patches->positions)
        SBP_TRY(sbp_build_weight(builder, at, op, ".positions", &table, 0, SBP_INIT_SPREAD));
    return sbp_build_output(builder, at, op, &output);
}
