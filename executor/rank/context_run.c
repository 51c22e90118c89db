#include "executor/rank/context_run_priv.h"

#include "executor/rank/boxing_run_priv.h"

/* Keys and values, of a packed projection (B,S,H,3,D) or a tensor of their own (B,S,KH,2,D), and
 * the two blocks of all of them in an instruction's scratch. */
struct keys {
    bool packed;
    struct sbp_shape shape;      /* (B,S,H,2,D) over all ranks */
    struct sbp_boxing_step step; /* to all of them */
    int64_t count, own;          /* elements of all, of this rank's */
    int64_t head_size;
    unsigned char *first, *second;
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

/* Elements that the kernel takes of the scratch. */
static int64_t kernel_scratch(const struct sbp_rank *rank, const struct sbp_instr *instr,
                              const struct keys *keys)
{
    const struct sbp_attention_shape shape = {
        .sequence = keys->shape.size[SBP_DIM_SEQUENCE],
        .head_size = keys->head_size,
        .kind = rank->program->graph->op[instr->op].attention.kind};
    return sbp_attention_scratch_elements(&shape);
}

static bool is_packed(const struct sbp_rank *rank, const struct sbp_instr *instr)
{
    return rank->program->graph->op[instr->op].kind == SBP_OP_ATTENTION;
}

/* `held`: a buffer of the projection, of keys and values, or of its gradient. */
static struct keys find_keys(struct sbp_rank *rank, const struct sbp_instr *instr, int held)
{
    const struct sbp_mesh *mesh = &rank->program->mesh;
    const struct sbp_buffer *buffer = &rank->program->buffer[held];
    struct keys keys = {.packed = is_packed(rank, instr),
                        .shape = rank->program->graph->tensor[buffer->tensor].shape};
    keys.head_size = keys.shape.size[SBP_DIM_INNER] / (keys.packed ? 3 : 2);
    keys.shape.size[SBP_DIM_INNER] = 2 * keys.head_size;
    keys.step = (struct sbp_boxing_step){
        .kind = SBP_ALL_GATHER, .axes = context_axes(rank, held), .from = buffer->dist};
    keys.step.to = with_axes(&buffer->dist, keys.step.axes, SBP_STATE_B);
    keys.count = keys.step.elements = sbp_dist_local_elements(mesh, &keys.shape, &keys.step.to);
    keys.own = sbp_dist_local_elements(mesh, &keys.shape, &keys.step.from);
    keys.first = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK]);
    keys.first += kernel_scratch(rank, instr, &keys) * rank->kernels->real_bytes;
    keys.second = keys.first + keys.count * rank->kernels->real_bytes;
    return keys;
}

bool sbp_rank_find_context(struct sbp_rank *rank, const struct sbp_instr *instr,
                           struct sbp_rank_context *at)
{
    const int held = instr->buffer[is_packed(rank, instr) ? SBP_AT_IN : SBP_AT_IN2];
    struct sbp_region region;
    if (context_axes(rank, held) == 0)
        return false;
    const struct keys keys = find_keys(rank, instr, held);
    sbp_rank_region(rank, held, &region);
    at->rows = region.dim[SBP_DIM_SEQUENCE];
    at->context = (struct sbp_attention_context){
        .rows = &at->rows, .keys = keys.first, .key_gradients = keys.second};
    return true;
}

/* Copies the keys and values of every head of this rank's rows out of where they are held, or their
 * gradients back in: in a packed projection queries lie between them. */
static void copy_rows(const struct sbp_rank *rank, const struct keys *keys, unsigned char *apart,
                      unsigned char *held, bool out)
{
    const int64_t bytes = rank->kernels->real_bytes;
    const int64_t width = keys->packed ? 2 * keys->head_size : keys->own;
    const int order = 0;
    for (int64_t row = 0; row < keys->own / width; row++) {
        unsigned char *const in_apart = apart + row * width * bytes;
        unsigned char *const in_held =
            held + (keys->packed ? (3 * row + 1) * keys->head_size * bytes : 0);
        rank->kernels->permute(out ? in_apart : in_held, out ? in_held : in_apart, 1, &width,
                               &order);
    }
}

static enum sbp_status gather(struct sbp_rank *rank, const struct keys *keys, unsigned char *held,
                              struct sbp_diag *diag)
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
static enum sbp_status scatter(struct sbp_rank *rank, const struct keys *keys, unsigned char *held,
                               struct sbp_diag *diag)
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
    const int held = instr->buffer[gathers ? SBP_AT_IN : SBP_AT_OUT];
    const struct keys keys = find_keys(rank, instr, held);
    return (gathers ? gather : scatter)(rank, &keys, sbp_rank_buffer(rank, held), diag);
}
