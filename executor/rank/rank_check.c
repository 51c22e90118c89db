#include "executor/rank/rank_check_priv.h"

#include <stddef.h>

#include "executor/rank/latent_run_priv.h"
#include "executor/rank/mixture.h"
#include "executor/rank/rank.h"

static const struct sbp_op_node *node_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return &rank->program->graph->op[instr->op];
}

/* ---- operators ------------------------------------------------------------------------------- */

/* Whether a device has kernels for an operator: all have those that are not named here. */
static bool has_kernels(const struct sbp_kernels *k, const struct sbp_op_node *node)
{
    switch (node->kind) {
    case SBP_OP_EMBEDDING:
        return node->types == 0 || k->token_types_forward != NULL;
    case SBP_OP_FIRST_TOKEN:
        return k->first_token_forward != NULL;
    case SBP_OP_PATCH_EMBEDDING:
        return k->patches_forward != NULL;
    case SBP_OP_CONV2D:
        return k->conv2d_forward != NULL;
    case SBP_OP_MAXPOOL:
        return k->maxpool_forward != NULL;
    case SBP_OP_AVGPOOL:
        return k->avgpool_forward != NULL;
    case SBP_OP_BATCHNORM:
        return k->batchnorm_forward != NULL;
    case SBP_OP_LATENT_ATTENTION:
        return k->latent_attention_forward != NULL;
    case SBP_OP_MOE:
        return k->moe_route != NULL && k->moe_combine_backward != NULL;
    default:
        return true;
    }
}

static enum sbp_status refuse(const struct sbp_rank *rank, const struct sbp_op_node *node,
                              struct sbp_diag *diag)
{
    return sbp_fail(diag, SBP_E_UNSUPPORTED, "operator %s: device %s has no kernel of %s in %s",
                    node->name, rank->device->name, node->entry->name,
                    sbp_real_name(rank->kernels->real));
}

enum sbp_status sbp_rank_check_kernels(const struct sbp_rank *rank, struct sbp_diag *diag)
{
    for (int i = 0; i < rank->program->instr_count; i++) {
        const struct sbp_instr *instr = &rank->program->instr[i];
        if (instr->kind != SBP_INSTR_FORWARD)
            continue;
        if (!has_kernels(rank->kernels, node_of(rank, instr)))
            return refuse(rank, node_of(rank, instr), diag);
    }
    return SBP_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t local_size(const struct sbp_rank *rank, const struct sbp_instr *instr, int place,
                          int dim)
{
    const struct sbp_buffer *of = &rank->program->buffer[instr->buffer[place]];
    return sbp_dist_local_size(&rank->program->mesh,
                               &rank->program->graph->tensor[of->tensor].shape, &of->dist, dim);
}

/* 0: the operator has no heads. */
static int64_t head_size(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    switch (node_of(rank, instr)->kind) {
    case SBP_OP_ATTENTION:
        return local_size(rank, instr, SBP_AT_IN, SBP_DIM_INNER) / 3; /* queries, keys and values */
    case SBP_OP_GROUPED_ATTENTION:
        return local_size(rank, instr, SBP_AT_IN, SBP_DIM_INNER);
    case SBP_OP_LATENT_ATTENTION:
        return larger(sbp_rank_latent_shape(rank, instr).head_size,
                      node_of(rank, instr)->attention.value_size);
    default:
        return 0;
    }
}

static enum sbp_status check_heads(const struct sbp_rank *rank, const struct sbp_instr *instr,
                                   struct sbp_diag *diag)
{
    const int64_t size = head_size(rank, instr);
    const int64_t most =
        rank->kernels->largest_head != NULL ? rank->kernels->largest_head() : INT64_MAX;
    if (size <= most)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "operator %s has heads of %lld features, device %s has kernels of %lld in %s "
                    "at most",
                    node_of(rank, instr)->name, (long long)size, rank->device->name,
                    (long long)most, sbp_real_name(rank->kernels->real));
}

static enum sbp_status check_experts(const struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag)
{
    const int64_t most = rank->kernels->most_experts;
    if (node_of(rank, instr)->kind != SBP_OP_MOE || most == 0)
        return SBP_OK;
    const int64_t experts =
        sbp_rank_mixture_of(rank->program, instr->op, rank->rank).tokens.experts;
    if (experts <= most)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "operator %s has %lld experts, device %s has kernels for %lld at most",
                    node_of(rank, instr)->name, (long long)experts, rank->device->name,
                    (long long)most);
}

static struct sbp_windows windows_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return sbp_rank_windows(rank, instr, SBP_AT_IN, SBP_AT_OUT);
}

static int64_t area_of(const struct sbp_windows *windows)
{
    return windows->kernel[0] * windows->kernel[1];
}

/* Numbers of an operator that kernels count in int, sides of matrices first of all; what it has not
 * is 0. */
enum { SIDES = 5 };

static void linear_sides(int64_t side[SIDES], const struct sbp_rank *rank,
                         const struct sbp_instr *instr)
{
    side[0] = sbp_rank_tokens(rank, instr, SBP_AT_IN);
    side[1] = sbp_rank_features(rank, instr, SBP_AT_IN);
    side[2] = sbp_rank_features(rank, instr, SBP_AT_OUT);
}

static void attention_sides(int64_t side[SIDES], const struct sbp_rank *rank,
                            const struct sbp_instr *instr)
{
    const int tensor = rank->program->buffer[instr->buffer[SBP_AT_IN]].tensor;
    linear_sides(side, rank, instr);
    side[0] = rank->program->graph->tensor[tensor].shape.size[SBP_DIM_SEQUENCE];
    side[3] = instr->buffer[SBP_AT_IN2] >= 0 ? sbp_rank_features(rank, instr, SBP_AT_IN2) : 0;
}

static void mixture_sides(int64_t side[SIDES], const struct sbp_rank *rank,
                          const struct sbp_instr *instr)
{
    const struct sbp_rank_mixture m = sbp_rank_mixture_of(rank->program, instr->op, rank->rank);
    side[0] = m.tokens.tokens * m.tokens.top_k;
    side[1] = m.tokens.experts;
    side[2] = m.slots;
    side[3] = m.hidden;
    side[4] = m.ffn * m.gates;
}

static void patch_sides(int64_t side[SIDES], const struct sbp_rank *rank,
                        const struct sbp_instr *instr)
{
    const int weight = node_of(rank, instr)->weight[0];
    side[0] = sbp_rank_tokens(rank, instr, SBP_AT_OUT);
    side[1] = sbp_rank_features(rank, instr, SBP_AT_OUT);
    side[2] = rank->program->graph->tensor[weight].shape.size[SBP_DIM_IN];
}

/* Sides of images and kernels are small (SBP_MOST_IMAGE_SIDE), areas of kernels need not be. */
static void window_sides(int64_t side[SIDES], const struct sbp_rank *rank,
                         const struct sbp_instr *instr)
{
    const struct sbp_windows windows = windows_of(rank, instr);
    const bool multiplies = node_of(rank, instr)->kind == SBP_OP_CONV2D;
    side[0] = windows.channels;
    side[1] = area_of(&windows);
    side[2] = multiplies ? windows.channels * area_of(&windows) : 0;
    side[3] =
        multiplies ? local_size(rank, instr, SBP_AT_OUT, SBP_DIM_FEATURE) * area_of(&windows) : 0;
}

static int64_t largest(const int64_t side[SIDES])
{
    int64_t most = 0;
    for (int i = 0; i < SIDES; i++)
        most = larger(most, side[i]);
    return most;
}

static int64_t largest_side(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    int64_t side[SIDES] = {0};
    switch (node_of(rank, instr)->kind) {
    case SBP_OP_LINEAR:
    case SBP_OP_SUMMA_LINEAR:
        linear_sides(side, rank, instr);
        break;
    case SBP_OP_ATTENTION:
    case SBP_OP_GROUPED_ATTENTION:
    case SBP_OP_LATENT_ATTENTION:
        attention_sides(side, rank, instr);
        break;
    case SBP_OP_MOE:
        mixture_sides(side, rank, instr);
        break;
    case SBP_OP_PATCH_EMBEDDING:
        patch_sides(side, rank, instr);
        break;
    case SBP_OP_CONV2D:
    case SBP_OP_MAXPOOL:
    case SBP_OP_AVGPOOL:
        window_sides(side, rank, instr);
        break;
    default:
        break;
    }
    return largest(side);
}

static enum sbp_status check_sides(const struct sbp_rank *rank, const struct sbp_instr *instr,
                                   struct sbp_diag *diag)
{
    const int64_t side = largest_side(rank, instr);
    if (side <= SBP_LARGEST_MATRIX_SIDE)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "operator %s has a matrix with a side of %lld on a rank, %lld is the most",
                    node_of(rank, instr)->name, (long long)side,
                    (long long)SBP_LARGEST_MATRIX_SIDE);
}

/* Numbers of a column (struct sbp_kernels); 0: the operator has none. Sides are checked. */
static int64_t column_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const enum sbp_op_kind kind = node_of(rank, instr)->kind;
    if (kind == SBP_OP_PATCH_EMBEDDING)
        return sbp_rank_features(rank, instr, SBP_AT_OUT);
    if (kind != SBP_OP_CONV2D && kind != SBP_OP_BATCHNORM)
        return 0;
    const int64_t in = local_size(rank, instr, SBP_AT_IN, SBP_DIM_FEATURE);
    if (kind == SBP_OP_BATCHNORM)
        return 2 * in;
    const struct sbp_windows windows = windows_of(rank, instr);
    return (in + local_size(rank, instr, SBP_AT_OUT, SBP_DIM_FEATURE)) * area_of(&windows);
}

static enum sbp_status check_column(const struct sbp_rank *rank, const struct sbp_instr *instr,
                                    struct sbp_diag *diag)
{
    const int64_t column = column_of(rank, instr), most = rank->kernels->largest_column;
    if (most == 0 || column <= most)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "operator %s has columns of %lld numbers on a rank, device %s has room for "
                    "%lld at most",
                    node_of(rank, instr)->name, (long long)column, rank->device->name,
                    (long long)most);
}

enum sbp_status sbp_rank_check_sizes(const struct sbp_rank *rank, struct sbp_diag *diag)
{
    for (int i = 0; i < rank->program->instr_count; i++) {
        const struct sbp_instr *instr = &rank->program->instr[i];
        if (instr->kind != SBP_INSTR_FORWARD)
            continue;
        SBP_TRY(check_heads(rank, instr, diag));
        SBP_TRY(check_experts(rank, instr, diag));
        SBP_TRY(check_sides(rank, instr, diag));
        SBP_TRY(check_column(rank, instr, diag));
    }
    return SBP_OK;
}
