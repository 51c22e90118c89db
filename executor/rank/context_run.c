#include "executor/rank/context_run_priv.h"

#include <assert.h>
#include <stddef.h>

#include "costmodel/model/op_cost.h"
#include "executor/rank/boxing_run_priv.h"

/* Keys and values, of a packed projection (B,S,H,3,D), a tensor of their own (B,S,KH,2,D), or one
 * (B,S,H,nope + value) and the shared part (B,S,rope), and the two blocks of all of them in an
 * instruction's scratch. */
struct keys {
    bool packed;
    struct sbp_shape shape; /* (B,S,H,2,D) over all ranks; latent: of whole rows, not of heads */
    struct sbp_boxing_step step; /* to all of them */
    int64_t count, own;          /* elements of all, of this rank's */
    int64_t width;               /* elements here that are copied as one */
    int64_t shared;              /* of them, those of the shared part; 0: there is none */
    unsigned char *first, *second;
};

/* Where keys and values lie, and the shared part of the keys (NULL: there is none). */
struct held {
    unsigned char *keys, *shared;
};

static sbp_axes context_axes(const struct sbp_rank *rank, int held)
{
    return sbp_dist_split(&rank->program->mesh, &rank->program->buffer[held].dist,
                          SBP_DIM_SEQUENCE);
}

static struct sbp_dist with_axes(const struct sbp_dist *dist, sbp_axes axes, struct sbp_state state)
{
    struct sbp_dist with = *dist;
    for (int axis = 0; axis < SBP_MAX_AXES; axis++)
        if (axes >> axis & 1)
            with.axis[axis] = state;
    return with;
}

/* The buffer of an attention's pass that has the keys and values. */
static int held_by(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const bool packed = rank->program->graph->op[instr->op].kind == SBP_OP_ATTENTION;
    return instr->buffer[packed ? SBP_AT_IN : SBP_AT_IN2];
}

bool sbp_rank_has_ring(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return rank->program->graph->op[instr->op].attention.ring &&
           context_axes(rank, held_by(rank, instr)) != 0;
}

static enum sbp_op_kind kind_of(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return rank->program->graph->op[instr->op].kind;
}

static int64_t local_size(const struct sbp_rank *rank, int held, int dim)
{
    const struct sbp_buffer *buffer = &rank->program->buffer[held];
    return sbp_dist_local_size(&rank->program->mesh,
                               &rank->program->graph->tensor[buffer->tensor].shape, &buffer->dist,
                               dim);
}

/* Elements of log-sum-exps of the local queries that stay while blocks go round. */
static int64_t block_sums(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int y = instr->buffer[SBP_AT_OUT];
    if (instr->kind != SBP_INSTR_FORWARD || !sbp_rank_has_ring(rank, instr))
        return 0;
    return sbp_attention_sums_elements(
        &(struct sbp_attention_shape){.batch = local_size(rank, y, SBP_DIM_BATCH),
                                      .sequence = local_size(rank, y, SBP_DIM_SEQUENCE),
                                      .heads = local_size(rank, y, SBP_DIM_FEATURE),
                                      .kind = rank->program->graph->op[instr->op].attention.kind});
}

/* Elements that the kernel takes of the scratch. */
static int64_t kernel_scratch(const struct sbp_rank *rank, const struct sbp_instr *instr,
                              int64_t sequence)
{
    const struct sbp_graph *graph = rank->program->graph;
    const struct sbp_op_node *node = &graph->op[instr->op];
    const struct sbp_latent_parts parts = sbp_op_latent_parts(graph, node);
    const struct sbp_attention_shape shape = {
        .sequence = sequence, .head_size = node->attention.qk_size, .kind = node->attention.kind};
    return block_sums(rank, instr) +
           (node->kind == SBP_OP_LATENT_ATTENTION
                ? sbp_latent_scratch_elements(&shape, &parts,
                                              instr->section == SBP_SECTION_BACKWARD)
                : sbp_attention_scratch_elements(&shape));
}

/* Elements of a row of keys and values of the local heads. */
static int64_t local_row(const struct sbp_rank *rank, int held)
{
    const int tensor = rank->program->buffer[held].tensor;
    return local_size(rank, held, SBP_DIM_FEATURE) *
           rank->program->graph->tensor[tensor].shape.size[SBP_DIM_INNER];
}

/* What is copied as one, where it is not all; `shared`: the buffer of the shared part, -1: none. */
static void set_rows(const struct sbp_rank *rank, int held, int shared, struct keys *keys)
{
    int64_t *const size = keys->shape.size;
    if (shared >= 0) {
        keys->shared = size[SBP_DIM_FEATURE];
        keys->width = local_row(rank, held) + keys->shared;
        size[SBP_DIM_FEATURE] = keys->width;
        keys->shape.dim_class[SBP_DIM_FEATURE] = SBP_NO_CLASS;
    } else if (keys->packed) {
        size[SBP_DIM_INNER] = keys->width = size[SBP_DIM_INNER] / 3 * 2;
    }
}

/* `held`: a buffer of the projection, of keys and values, or of its gradient; `shared`: likewise of
 * the shared part. */
static struct keys find_keys(struct sbp_rank *rank, const struct sbp_instr *instr, int held,
                             int shared)
{
    const struct sbp_mesh *mesh = &rank->program->mesh;
    const struct sbp_buffer *buffer = &rank->program->buffer[shared >= 0 ? shared : held];
    struct keys keys = {.packed = kind_of(rank, instr) == SBP_OP_ATTENTION,
                        .shape = rank->program->graph->tensor[buffer->tensor].shape};
    set_rows(rank, held, shared, &keys);
    keys.step = (struct sbp_boxing_step){
        .kind = SBP_ALL_GATHER, .axes = context_axes(rank, held), .from = buffer->dist};
    keys.step.to = with_axes(&buffer->dist, keys.step.axes, SBP_STATE_B);
    keys.count = keys.step.elements = sbp_dist_local_elements(mesh, &keys.shape, &keys.step.to);
    keys.own = sbp_dist_local_elements(mesh, &keys.shape, &keys.step.from);
    if (keys.width == 0) /* all of them lie as they are gathered */
        keys.width = keys.own;
    keys.first = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK]);
    keys.first +=
        kernel_scratch(rank, instr, keys.shape.size[SBP_DIM_SEQUENCE]) * rank->kernels->real_bytes;
    keys.second = keys.first + keys.count * rank->kernels->real_bytes;
    return keys;
}

bool sbp_rank_find_context(struct sbp_rank *rank, const struct sbp_instr *instr,
                           struct sbp_rank_context *at)
{
    const int held = held_by(rank, instr);
    struct sbp_region region;
    if (context_axes(rank, held) == 0)
        return false;
    const struct keys keys = find_keys(rank, instr, held, instr->buffer[SBP_AT_IN3]);
    at->row = keys.width;
    sbp_rank_region(rank, held, &region);
    at->rows = region.dim[SBP_DIM_SEQUENCE];
    at->context = (struct sbp_attention_context){
        .rows = &at->rows, .keys = keys.first, .key_gradients = keys.second};
    if (rank->block != NULL)
        at->context = (struct sbp_attention_context){.rows = &at->rows,
                                                     .keys = rank->block->keys,
                                                     .key_gradients = rank->block->gradients,
                                                     .block = &rank->block->of};
    return true;
}

/* A query's probabilities are split over ranks as its output is. A backward pass has the output as
 * one of the operands that the forward pass saved. */
const struct sbp_attention_dropout *
sbp_rank_find_attention_dropout(struct sbp_rank *rank, const struct sbp_instr *instr,
                                struct sbp_rank_attention_dropout *at)
{
    const double p = rank->program->graph->op[instr->op].attention.dropout;
    const bool back = instr->kind == SBP_INSTR_BACKWARD;
    const int mask = instr->buffer[SBP_AT_SAVED3];
    if (p <= 0)
        return NULL;
    sbp_rank_batch_region(rank, instr->buffer[back ? SBP_AT_SAVED2 : SBP_AT_OUT], &at->region);
    at->dropout =
        (struct sbp_attention_dropout){.p = p,
                                       .seed = rank->step_seed,
                                       .stream = sbp_rank_dropout_stream(instr),
                                       .region = &at->region,
                                       .mask = mask < 0 ? NULL : sbp_rank_buffer(rank, mask)};
    return &at->dropout;
}

/* Rows of n elements that begin so far apart in both places. */
static void copy(const struct sbp_rank *rank, unsigned char *apart, int64_t apart_row,
                 unsigned char *held, int64_t held_row, int64_t n, int64_t rows, bool out)
{
    if (out)
        rank->kernels->copy_rows(apart, apart_row, held, held_row, n, rows);
    else
        rank->kernels->copy_rows(held, held_row, apart, apart_row, n, rows);
}

/* Copies the keys and values of every head of this rank's rows out of where they are held, or their
 * gradients back in: in a packed projection queries lie between them, and the shared part of the
 * keys lies elsewhere. */
static void copy_rows(const struct sbp_rank *rank, const struct keys *keys, unsigned char *apart,
                      const struct held *held, bool out)
{
    const int64_t bytes = rank->kernels->real_bytes, own = keys->width - keys->shared;
    const int64_t step = keys->packed ? own / 2 * 3 : own, first = step - own;
    const int64_t rows = keys->own / keys->width;
    copy(rank, apart, keys->width, held->keys + first * bytes, step, own, rows, out);
    if (keys->shared > 0)
        copy(rank, apart + own * bytes, keys->width, held->shared, keys->shared, keys->shared, rows,
             out);
}

static enum sbp_status gather(struct sbp_rank *rank, const struct keys *keys,
                              const struct held *held, struct sbp_diag *diag)
{
    struct sbp_permutation unpack;
    sbp_boxing_unpack(&rank->layout, &keys->shape, &keys->step, &unpack);
    const int64_t place = sbp_mesh_group_place(&rank->program->mesh, keys->step.axes, rank->rank);
    unsigned char *const received = unpack.needed ? keys->second : keys->first;
    unsigned char *const own = received + place * keys->own * rank->kernels->real_bytes;
    const struct sbp_boxing_run run = {.layout = &rank->layout,
                                       .shape = &keys->shape,
                                       .step = &keys->step,
                                       .rank = rank->rank,
                                       .in = own,
                                       .out = keys->first,
                                       .unpack = keys->second};
    copy_rows(rank, keys, own, held, true);
    return sbp_boxing_execute(&run, rank->channel, diag);
}

/* Nobody reads the gathered keys any more: gradients are packed into their place. The sum is
 * received into the gradients' own place, or into that of the keys where nothing is packed. */
static enum sbp_status scatter(struct sbp_rank *rank, const struct keys *keys,
                               const struct held *held, struct sbp_diag *diag)
{
    struct sbp_boxing_step step = keys->step;
    struct sbp_permutation pack;
    step.kind = SBP_REDUCE_SCATTER;
    step.from = with_axes(&keys->step.to, step.axes, SBP_STATE_P);
    step.to = keys->step.from;
    sbp_boxing_pack(&rank->layout, &keys->shape, &step, &pack);
    unsigned char *const sum = pack.needed ? keys->second : keys->first;
    const struct sbp_boxing_run run = {.layout = &rank->layout,
                                       .shape = &keys->shape,
                                       .step = &step,
                                       .rank = rank->rank,
                                       .in = keys->second,
                                       .out = sum,
                                       .pack = keys->first};
    SBP_TRY(sbp_boxing_execute(&run, rank->channel, diag));
    copy_rows(rank, keys, sum, held, false);
    return SBP_OK;
}

enum sbp_status sbp_rank_share_context(struct sbp_rank *rank, const struct sbp_instr *instr,
                                       struct sbp_diag *diag)
{
    const bool gathers = instr->box.kind == SBP_ALL_GATHER;
    const int own = instr->buffer[gathers ? SBP_AT_IN : SBP_AT_OUT];
    const int shared = instr->buffer[gathers ? SBP_AT_IN2 : SBP_AT_OUT2];
    const struct keys keys = find_keys(rank, instr, own, shared);
    const struct held held = {sbp_rank_buffer(rank, own), sbp_rank_buffer(rank, shared)};
    return (gathers ? gather : scatter)(rank, &keys, &held, diag);
}

/* ---- round a ring ---------------------------------------------------------------------------- */

/* A pass whose keys go round. */
struct ring {
    struct sbp_rank *rank;
    const struct sbp_instr *instr;
    struct keys keys; /* `own` elements in a block */
    int64_t members, place;
};

/* Places in scratch, which has the last two backward alone. */
enum { KEYS, COMING_KEYS, GRADIENTS, COMING_GRADIENTS };

static unsigned char *place_of(const struct ring *ring, int which)
{
    return ring->keys.first + which * ring->keys.own * ring->rank->kernels->real_bytes;
}

/* Keys at hand and those that come change places from round to round. */
static unsigned char *keys_of_round(const struct ring *ring, int64_t round)
{
    return place_of(ring, round % 2 == 0 ? KEYS : COMING_KEYS);
}

/* The end of what the plan counts as scratch. */
static const unsigned char *scratch_end(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int work = instr->buffer[SBP_AT_WORK];
    const unsigned char *const first = sbp_rank_buffer(rank, work);
    return first + rank->program->buffer[work].elements * rank->kernels->real_bytes;
}

static struct ring find_ring(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct ring ring = {
        .rank = rank,
        .instr = instr,
        .keys = find_keys(rank, instr, held_by(rank, instr), instr->buffer[SBP_AT_IN3])};
    const struct sbp_mesh *mesh = &rank->program->mesh;
    ring.members = sbp_mesh_group_size(mesh, ring.keys.step.axes);
    ring.place = sbp_mesh_group_place(mesh, ring.keys.step.axes, rank->rank);
    assert(place_of(&ring, instr->kind == SBP_INSTR_BACKWARD ? COMING_GRADIENTS + 1 : GRADIENTS) ==
           scratch_end(rank, instr));
    return ring;
}

/* Which rows of the sequence the block at hand has: those of the member so many places before. */
static struct sbp_digits rows_of_round(const struct ring *ring, int64_t round)
{
    const struct sbp_rank *rank = ring->rank;
    const struct sbp_buffer *held = &rank->program->buffer[held_by(rank, ring->instr)];
    const int64_t member = (ring->place + ring->members - round) % ring->members;
    struct sbp_region region;
    sbp_dist_region(
        &rank->layout, &rank->program->graph->tensor[held->tensor].shape, &held->dist,
        sbp_mesh_group_rank(&rank->program->mesh, ring->keys.step.axes, rank->rank, member),
        &region);
    return region.dim[SBP_DIM_SEQUENCE];
}

static enum sbp_status pass_on(const struct ring *ring, bool gradients, const void *block,
                               struct sbp_diag *diag)
{
    return sbp_channel_pass_block(ring->rank->channel, ring->keys.step.axes, gradients, block,
                                  ring->keys.own, diag);
}

static enum sbp_status take(const struct ring *ring, bool gradients, void *block,
                            struct sbp_diag *diag)
{
    return sbp_channel_take_block(ring->rank->channel, ring->keys.step.axes, gradients, block,
                                  ring->keys.own, diag);
}

/* Adds the gradients so far of the block at hand to those by the local queries. */
static enum sbp_status pass_gradients(const struct ring *ring, int64_t round, struct sbp_diag *diag)
{
    unsigned char *const sum = place_of(ring, GRADIENTS);
    if (round > 0) {
        SBP_TRY(take(ring, true, place_of(ring, COMING_GRADIENTS), diag));
        ring->rank->kernels->add(sum, sum, place_of(ring, COMING_GRADIENTS), ring->keys.own);
    }
    return pass_on(ring, true, sum, diag);
}

/* The sum that comes home is the gradient of the rank's own keys. */
static enum sbp_status take_home(const struct ring *ring, struct sbp_diag *diag)
{
    struct sbp_rank *rank = ring->rank;
    const struct sbp_instr *instr = ring->instr;
    const int own = instr->buffer[ring->keys.packed ? SBP_AT_OUT : SBP_AT_OUT2];
    const struct held held = {sbp_rank_buffer(rank, own),
                              sbp_rank_buffer(rank, instr->buffer[SBP_AT_OUT3])};
    SBP_TRY(take(ring, true, place_of(ring, GRADIENTS), diag));
    copy_rows(rank, &ring->keys, place_of(ring, GRADIENTS), &held, false);
    return SBP_OK;
}

static void attend(const struct ring *ring, int64_t round,
                   void (*op)(struct sbp_rank *rank, const struct sbp_instr *instr))
{
    const struct sbp_digits rows = rows_of_round(ring, round);
    const bool back = ring->instr->kind == SBP_INSTR_BACKWARD;
    const struct sbp_rank_block block = {.of = {.keys = &rows, .first = round == 0},
                                         .keys = keys_of_round(ring, round),
                                         .gradients = back ? place_of(ring, GRADIENTS) : NULL};
    ring->rank->block = &block;
    op(ring->rank, ring->instr);
    ring->rank->block = NULL;
}

enum sbp_status sbp_rank_go_round(struct sbp_rank *rank, const struct sbp_instr *instr,
                                  void (*op)(struct sbp_rank *rank, const struct sbp_instr *instr),
                                  struct sbp_diag *diag)
{
    const struct ring ring = find_ring(rank, instr);
    const bool back = instr->kind == SBP_INSTR_BACKWARD;
    const struct held held = {sbp_rank_buffer(rank, held_by(rank, instr)),
                              sbp_rank_buffer(rank, instr->buffer[SBP_AT_IN3])};
    SBP_TRY(sbp_channel_meet_ring(rank->channel, ring.keys.step.axes, diag));
    copy_rows(rank, &ring.keys, place_of(&ring, KEYS), &held, true);
    for (int64_t round = 0; round < ring.members; round++) {
        const bool goes_on = round + 1 < ring.members;
        if (goes_on)
            SBP_TRY(pass_on(&ring, false, keys_of_round(&ring, round), diag));
        attend(&ring, round, op);
        if (back)
            SBP_TRY(pass_gradients(&ring, round, diag));
        if (goes_on)
            SBP_TRY(take(&ring, false, keys_of_round(&ring, round + 1), diag));
    }
    return back ? take_home(&ring, diag) : SBP_OK;
}
