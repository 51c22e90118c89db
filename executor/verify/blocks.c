#include "executor/verify/blocks_priv.h"

#include <string.h>

enum { TAG_GO = 11, TAG_BLOCK = 12 };

/* Local indices k * run ... (k + 1) * run - 1 have consecutive global indices. */
static int64_t run_length(const struct sbp_region *region)
{
    int64_t run = 1;
    for (int dim = SBP_MAX_DIMS - 1; dim >= 0; dim--) {
        const struct sbp_digits *digits = &region->dim[dim];
        run *= digits->rest;
        for (int i = digits->count - 1; i >= 0; i--) {
            if (digits->fixed[i] >= 0)
                return run;
            run *= digits->size[i];
        }
    }
    return run;
}

static void take_piece(const struct sbp_rank_blocks *blocks, int64_t place,
                       const struct sbp_region *region, int64_t start, int64_t count)
{
    const int64_t run = run_length(region), bytes = blocks->rank->kernels->real_bytes;
    for (int64_t at = start; at < start + count;) {
        const int64_t length = sbp_least_i64(run - at % run, start + count - at);
        const struct sbp_block_values values = {
            place, sbp_channel_rank(blocks->rank->channel, blocks->stage, place),
            sbp_region_global(region, at), length,
            (const char *)blocks->message + (at - start) * bytes};
        blocks->take(blocks->context, blocks, &values);
        at += length;
    }
}

static enum sbp_status load_piece(const struct sbp_rank_blocks *blocks, int64_t start,
                                  int64_t count, struct sbp_diag *diag)
{
    const int64_t bytes = blocks->rank->kernels->real_bytes;
    const char *from = (const char *)blocks->memory + start * bytes;
    if (!blocks->on_host)
        return sbp_rank_to_host(blocks->rank, blocks->message, from, count * bytes, diag);
    memcpy(blocks->message, from, (size_t)(count * bytes));
    return SBP_OK;
}

/* What a rank has of a block, and where it begins there. */
static struct sbp_stretch stretch_of(const struct sbp_rank_blocks *blocks, int64_t place)
{
    const struct sbp_program *program =
        sbp_step_program(blocks->rank->channel->step, blocks->piece);
    return blocks->is_shard ? sbp_rank_stretch(program, blocks->tensor, place)
                            : (struct sbp_stretch){0, blocks->elements};
}

/* One rank's block, on rank 0. */
static enum sbp_status collect_from(const struct sbp_rank_blocks *blocks, int64_t place,
                                    struct sbp_diag *diag)
{
    struct sbp_rank *rank = blocks->rank;
    struct sbp_channel *channel = rank->channel;
    const int peer = sbp_channel_rank(channel, blocks->stage, place);
    const int64_t bytes = rank->kernels->real_bytes;
    const char go = 1;
    struct sbp_region region;
    const struct sbp_stretch stretch = stretch_of(blocks, place);
    sbp_dist_region(&rank->layout, &rank->program->graph->tensor[blocks->tensor].shape,
                    blocks->dist, place, &region);
    region.first = blocks->first_row;
    if (peer != 0)
        SBP_TRY(sbp_channel_send(channel, peer, TAG_GO, &go, sizeof go, diag));
    for (int64_t start = 0; start < stretch.count; start += SBP_BLOCKS_PIECE) {
        const int64_t count = sbp_least_i64(stretch.count - start, SBP_BLOCKS_PIECE);
        if (peer == 0)
            SBP_TRY(load_piece(blocks, start, count, diag));
        else
            SBP_TRY(sbp_channel_receive(channel, peer, TAG_BLOCK, blocks->message, count * bytes,
                                        diag));
        take_piece(blocks, place, &region, stretch.first + start, count);
    }
    return SBP_OK;
}

static enum sbp_status offer(const struct sbp_rank_blocks *blocks, struct sbp_diag *diag)
{
    struct sbp_rank *rank = blocks->rank;
    char go;
    const struct sbp_stretch stretch = stretch_of(blocks, rank->rank);
    SBP_TRY(sbp_channel_receive(rank->channel, 0, TAG_GO, &go, sizeof go, diag));
    for (int64_t start = 0; start < stretch.count; start += SBP_BLOCKS_PIECE) {
        const int64_t count = sbp_least_i64(stretch.count - start, SBP_BLOCKS_PIECE);
        SBP_TRY(load_piece(blocks, start, count, diag));
        SBP_TRY(sbp_channel_send(rank->channel, 0, TAG_BLOCK, blocks->message,
                                 count * rank->kernels->real_bytes, diag));
    }
    return SBP_OK;
}

static bool asks(const struct sbp_rank_blocks *blocks, int64_t place)
{
    return blocks->asks == NULL || blocks->asks(blocks->context, blocks, place);
}

enum sbp_status sbp_blocks_collect(const struct sbp_rank_blocks *blocks, struct sbp_diag *diag)
{
    const struct sbp_rank *rank = blocks->rank;
    const int stage = rank->channel->stage;
    if (sbp_channel_rank(rank->channel, stage, rank->rank) != 0)
        return blocks->stage == stage && asks(blocks, rank->rank) ? offer(blocks, diag) : SBP_OK;
    for (int64_t place = 0; place < rank->program->mesh.devices; place++)
        if (asks(blocks, place))
            SBP_TRY(collect_from(blocks, place, diag));
    return SBP_OK;
}
