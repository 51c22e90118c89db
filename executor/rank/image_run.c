#include "executor/rank/image_run_priv.h"

#include <stddef.h>

#include "executor/rank/halo_run_priv.h"
#include "executor/rank/rank.h"
#include "executor/rank/rank_ops_priv.h"

static const struct sbp_op_node *node_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return &rank->program->graph->op[instr->op];
}

static void *at(struct sbp_rank *rank, const struct sbp_instr *instr, int place)
{
    return sbp_rank_buffer(rank, instr->buffer[place]);
}

/* An operand that an operator need not have: `weight` counts from the first one; 0: none. */
static void *beside(struct sbp_rank *rank, const struct sbp_instr *instr, int first, int weight)
{
    return weight == 0 ? NULL : at(rank, instr, first + weight);
}

static int64_t local_size(const struct sbp_rank *rank, const struct sbp_instr *instr, int place,
                          int dim)
{
    const struct sbp_buffer *buffer = &rank->program->buffer[instr->buffer[place]];
    return sbp_dist_local_size(&rank->program->mesh,
                               &rank->program->graph->tensor[buffer->tensor].shape, &buffer->dist,
                               dim);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

void sbp_rank_first_token(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    rank->kernels->first_token_forward(at(rank, instr, SBP_AT_OUT), at(rank, instr, SBP_AT_IN),
                                       local_size(rank, instr, SBP_AT_IN, SBP_DIM_BATCH),
                                       local_size(rank, instr, SBP_AT_IN, SBP_DIM_SEQUENCE),
                                       sbp_rank_features(rank, instr, SBP_AT_IN));
}

void sbp_rank_first_token_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    rank->kernels->first_token_backward(at(rank, instr, SBP_AT_OUT), at(rank, instr, SBP_AT_DY),
                                        local_size(rank, instr, SBP_AT_OUT, SBP_DIM_BATCH),
                                        local_size(rank, instr, SBP_AT_OUT, SBP_DIM_SEQUENCE),
                                        sbp_rank_features(rank, instr, SBP_AT_OUT));
}

/* (batch, height, channels, width) becomes (batch, channels, height, width), or the other way. */
void sbp_rank_flatten(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    static const int order[] = {0, 2, 1, 3};
    const bool forward = instr->kind == SBP_INSTR_FORWARD;
    const int image = forward ? SBP_AT_IN : SBP_AT_OUT;
    const int64_t height = local_size(rank, instr, image, SBP_DIM_SEQUENCE);
    const int64_t channels = local_size(rank, instr, image, SBP_DIM_FEATURE);
    const int64_t shape[] = {local_size(rank, instr, image, SBP_DIM_BATCH),
                             forward ? height : channels, forward ? channels : height,
                             local_size(rank, instr, image, SBP_DIM_INNER)};
    rank->kernels->permute(at(rank, instr, SBP_AT_OUT),
                           at(rank, instr, forward ? SBP_AT_IN : SBP_AT_DY), 4, shape, order);
}

/* ---- patches --------------------------------------------------------------------------------- */

static struct sbp_patches patches_of(const struct sbp_rank *rank, const struct sbp_instr *instr,
                                     int tokens, const struct sbp_region *region)
{
    const struct sbp_op_node *node = node_of(rank, instr);
    return (struct sbp_patches){
        .rows = &region->dim[SBP_DIM_SEQUENCE],
        .batch = local_size(rank, instr, tokens, SBP_DIM_BATCH),
        .pixels = rank->program->graph->tensor[node->weight[0]].shape.size[SBP_DIM_IN],
        .features = sbp_rank_features(rank, instr, tokens),
        .class_token = node->class_token > 0};
}

void sbp_rank_patches(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = node_of(rank, instr);
    struct sbp_region region;
    sbp_rank_region(rank, instr->buffer[SBP_AT_OUT], &region);
    const struct sbp_patches patches = patches_of(rank, instr, SBP_AT_OUT, &region);
    sbp_rank_fill_patches(rank, instr, &patches);
    rank->kernels->patches_forward(
        at(rank, instr, SBP_AT_OUT), at(rank, instr, SBP_AT_SAVED), at(rank, instr, SBP_AT_W),
        beside(rank, instr, SBP_AT_W, node->bias), beside(rank, instr, SBP_AT_W, node->class_token),
        beside(rank, instr, SBP_AT_W, node->positions), &patches);
}

void sbp_rank_patches_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_op_node *node = node_of(rank, instr);
    struct sbp_region region;
    sbp_rank_region(rank, instr->buffer[SBP_AT_DY], &region);
    const struct sbp_patches patches = patches_of(rank, instr, SBP_AT_DY, &region);
    rank->kernels->patches_backward(
        at(rank, instr, SBP_AT_DW), beside(rank, instr, SBP_AT_DW, node->bias),
        beside(rank, instr, SBP_AT_DW, node->class_token),
        beside(rank, instr, SBP_AT_DW, node->positions), at(rank, instr, SBP_AT_SAVED),
        at(rank, instr, SBP_AT_DY), &patches, sbp_rank_adds_of(rank, instr));
}

/* ---- windows --------------------------------------------------------------------------------- */

struct sbp_windows sbp_rank_windows(const struct sbp_rank *rank, const struct sbp_instr *instr,
                                    int in, int out)
{
    const struct sbp_op_node *node = node_of(rank, instr);
    struct sbp_windows windows = {
        .batch = local_size(rank, instr, in, SBP_DIM_BATCH),
        .channels = local_size(rank, instr, in, SBP_DIM_FEATURE),
        .height = local_size(rank, instr, in, SBP_DIM_SEQUENCE),
        .width = local_size(rank, instr, in, SBP_DIM_INNER),
        .out_height = local_size(rank, instr, out, SBP_DIM_SEQUENCE),
        .out_width = local_size(rank, instr, out, SBP_DIM_INNER),
    };
    for (int side = 0; side < 2; side++) {
        windows.kernel[side] = node->window.kernel[side];
        windows.stride[side] = node->window.stride[side];
        windows.padding[side] = node->window.padding[side];
    }
    return windows;
}

/* One member adds the bias of a partial sum. */
static const void *bias_of(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_dist *output = &rank->program->buffer[instr->buffer[SBP_AT_OUT]].dist;
    const sbp_axes partial = sbp_dist_of_kind(&rank->program->mesh, output, SBP_PARTIAL);
    return sbp_rank_leads(rank, partial) ? at(rank, instr, SBP_AT_W2) : NULL;
}

void sbp_rank_conv2d(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct sbp_windows windows = sbp_rank_windows(rank, instr, SBP_AT_IN, SBP_AT_OUT);
    sbp_rank_reach(rank, instr, SBP_AT_IN, &windows);
    rank->kernels->conv2d_forward(at(rank, instr, SBP_AT_OUT), at(rank, instr, SBP_AT_IN),
                                  at(rank, instr, SBP_AT_W), bias_of(rank, instr), &windows,
                                  local_size(rank, instr, SBP_AT_OUT, SBP_DIM_FEATURE));
}

void sbp_rank_conv2d_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_kernels *k = rank->kernels;
    const int64_t out = local_size(rank, instr, SBP_AT_DY, SBP_DIM_FEATURE);
    const int images = instr->phase == 0 ? SBP_AT_OUT : SBP_AT_IN;
    struct sbp_windows windows = sbp_rank_windows(rank, instr, images, SBP_AT_DY);
    sbp_rank_reach(rank, instr, images, &windows);
    if (instr->phase == 1) {
        k->conv2d_backward_weight(at(rank, instr, SBP_AT_DW), at(rank, instr, SBP_AT_DW2),
                                  at(rank, instr, SBP_AT_IN), at(rank, instr, SBP_AT_DY), &windows,
                                  out, sbp_rank_adds_of(rank, instr));
        return;
    }
    k->conv2d_backward_input(at(rank, instr, SBP_AT_OUT), at(rank, instr, SBP_AT_DY),
                             at(rank, instr, SBP_AT_W), &windows, out);
    sbp_rank_form_around(rank, instr, &windows);
}

void sbp_rank_pool(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_windows windows = sbp_rank_windows(rank, instr, SBP_AT_IN, SBP_AT_OUT);
    void *const y = at(rank, instr, SBP_AT_OUT);
    const void *const x = at(rank, instr, SBP_AT_IN);
    if (node_of(rank, instr)->kind == SBP_OP_MAXPOOL)
        rank->kernels->maxpool_forward(y, at(rank, instr, SBP_AT_SAVED), x, &windows);
    else
        rank->kernels->avgpool_forward(y, x, &windows);
}

void sbp_rank_pool_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_windows windows = sbp_rank_windows(rank, instr, SBP_AT_OUT, SBP_AT_DY);
    void *const dx = at(rank, instr, SBP_AT_OUT);
    const void *const dy = at(rank, instr, SBP_AT_DY);
    if (node_of(rank, instr)->kind == SBP_OP_MAXPOOL)
        rank->kernels->maxpool_backward(dx, at(rank, instr, SBP_AT_SAVED), dy, &windows);
    else
        rank->kernels->avgpool_backward(dx, dy, &windows);
}

/* ---- batch normalisation --------------------------------------------------------------------- */

/* The rows that share statistics: all of a block, or those of the i-th group. */
static struct sbp_norm_rows rows_of(const struct sbp_rank *rank, const struct sbp_instr *instr,
                                    int i)
{
    if (rank->groups != NULL)
        return rank->groups->of[instr->op].rows[i];
    return (struct sbp_norm_rows){.count = sbp_rank_tokens(rank, instr, SBP_AT_IN),
                                  .channels = local_size(rank, instr, SBP_AT_IN, SBP_DIM_FEATURE),
                                  .width = local_size(rank, instr, SBP_AT_IN, SBP_DIM_INNER)};
}

static int groups_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return rank->groups != NULL ? rank->groups->of[instr->op].count : 1;
}

void sbp_rank_batchnorm(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_kernels *k = rank->kernels;
    void *const statistics = at(rank, instr, SBP_AT_SAVED);
    const void *const x = at(rank, instr, SBP_AT_IN);
    for (int i = 0; i < groups_of(rank, instr); i++) {
        const struct sbp_norm_rows rows = rows_of(rank, instr, i);
        k->batchnorm_statistics(statistics, x, &rows, node_of(rank, instr)->epsilon);
        k->batchnorm_forward(at(rank, instr, SBP_AT_OUT), x, statistics, at(rank, instr, SBP_AT_W),
                             at(rank, instr, SBP_AT_W2), &rows);
    }
}

/* What is kept has room for the statistics of one group. */
void sbp_rank_batchnorm_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct sbp_kernels *k = rank->kernels;
    const int groups = groups_of(rank, instr);
    void *const statistics = at(rank, instr, SBP_AT_SAVED);
    const void *const x = at(rank, instr, SBP_AT_IN);
    for (int i = 0; i < groups; i++) {
        const struct sbp_norm_rows rows = rows_of(rank, instr, i);
        if (groups > 1)
            k->batchnorm_statistics(statistics, x, &rows, node_of(rank, instr)->epsilon);
        k->batchnorm_backward(at(rank, instr, SBP_AT_OUT), at(rank, instr, SBP_AT_DW),
                              at(rank, instr, SBP_AT_DW2), at(rank, instr, SBP_AT_DY), x,
                              statistics, at(rank, instr, SBP_AT_W), &rows,
                              i > 0 || sbp_rank_adds_to(rank, instr->buffer[SBP_AT_DW]));
    }
}
