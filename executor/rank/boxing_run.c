#include "executor/rank/boxing_run_priv.h"

#include <stddef.h>

static enum sbp_status permute(const struct sbp_kernels *kernels,
                               const struct sbp_permutation *order, void *dst, const void *src,
                               struct sbp_diag *diag)
{
    if (dst == NULL)
        return sbp_fail(diag, SBP_E_INTERNAL, "a boxing step lacks its pack or unpack buffer");
    kernels->permute(dst, src, order->dims, order->shape, order->order);
    return SBP_OK;
}

static void copy(const struct sbp_kernels *kernels, void *dst, const void *src, int64_t elements)
{
    const int order = 0;
    kernels->permute(dst, src, 1, &elements, &order);
}

static enum sbp_status run_all_reduce(const struct sbp_boxing_run *run, struct sbp_channel *channel,
                                      struct sbp_diag *diag)
{
    const int64_t elements = sbp_dist_local_elements(run->layout->mesh, run->shape, &run->step->to);
    if (run->in != run->out)
        copy(channel->kernels, run->out, run->in, elements);
    const struct sbp_exchange exchange = {.kind = SBP_ALL_REDUCE,
                                          .members.axes = run->step->axes,
                                          .reduction = SBP_SUM,
                                          .receive = run->out,
                                          .count = elements};
    return sbp_channel_exchange(channel, &exchange, diag);
}

/* Pack by member, exchange, put in place. */
static enum sbp_status run_exchange(const struct sbp_boxing_run *run, struct sbp_channel *channel,
                                    struct sbp_diag *diag)
{
    const struct sbp_boxing_step *step = run->step;
    const struct sbp_mesh *mesh = run->layout->mesh;
    struct sbp_permutation pack, unpack;
    sbp_boxing_pack(run->layout, run->shape, step, &pack);
    sbp_boxing_unpack(run->layout, run->shape, step, &unpack);

    int64_t count = sbp_dist_local_elements(mesh, run->shape, &step->from);
    if (step->kind != SBP_ALL_GATHER)
        count /= sbp_mesh_group_size(mesh, step->axes);
    const struct sbp_exchange exchange = {.kind = step->kind,
                                          .members.axes = step->axes,
                                          .receive = unpack.needed ? run->unpack : run->out,
                                          .send = pack.needed ? run->pack : run->in,
                                          .count = count};
    if (pack.needed)
        SBP_TRY(permute(channel->kernels, &pack, run->pack, run->in, diag));
    if (exchange.receive == NULL)
        return sbp_fail(diag, SBP_E_INTERNAL, "a boxing step lacks its unpack buffer");
    SBP_TRY(sbp_channel_exchange(channel, &exchange, diag));
    return unpack.needed ? permute(channel->kernels, &unpack, run->out, run->unpack, diag) : SBP_OK;
}

/* A local step as nested loops over the digits that run in both blocks. A digit that runs in one
 * block only stands at this rank's coordinate there: a slice of the source, a place in the target.
 */
struct loops {
    int count;
    struct {
        int64_t size, from_stride, to_stride;
    } loop[4 * SBP_MAX_AXES];
    int64_t from_start, to_start;
    int64_t from_stride, to_stride; /* of the next digit outwards */
    bool padded;                    /* the target holds more than is copied */
    bool silent;                    /* B -> P on a member that keeps nothing */
};

/* Loops are added from the innermost outwards; one that continues its inner neighbour widens it. */
static void add_loop(struct loops *loops, int64_t size)
{
    const int last = loops->count - 1;
    if (last >= 0 && loops->loop[last].from_stride * loops->loop[last].size == loops->from_stride &&
        loops->loop[last].to_stride * loops->loop[last].size == loops->to_stride) {
        loops->loop[last].size *= size;
    } else {
        loops->loop[loops->count].size = size;
        loops->loop[loops->count].from_stride = loops->from_stride;
        loops->loop[loops->count++].to_stride = loops->to_stride;
    }
    loops->from_stride *= size;
    loops->to_stride *= size;
}

static void add_digit(struct loops *loops, int64_t size, int64_t coordinate, bool in_from,
                      bool in_to)
{
    if (in_from && in_to) {
        add_loop(loops, size);
    } else if (in_from) {
        loops->from_start += coordinate * loops->from_stride;
        loops->from_stride *= size;
    } else if (in_to) {
        loops->to_start += coordinate * loops->to_stride;
        loops->to_stride *= size;
        loops->padded = true;
    }
}

static bool splits(const struct sbp_dist *dist, int axis, int dim)
{
    return dist->axis[axis].kind == SBP_SPLIT && dist->axis[axis].dim == dim;
}

static void add_dimension(const struct sbp_boxing_run *run, int dim, struct loops *loops)
{
    const struct sbp_mesh *mesh = run->layout->mesh;
    const int dim_class = run->shape->dim_class[dim];
    const sbp_axes digits = dim_class == SBP_NO_CLASS ? 0 : run->layout->split[dim_class];
    add_loop(loops, run->shape->size[dim] / sbp_mesh_group_size(mesh, digits));
    for (int axis = mesh->axis_count - 1; axis >= 0; axis--)
        if (digits >> axis & 1)
            add_digit(loops, mesh->axis[axis].size, sbp_mesh_coordinate(mesh, run->rank, axis),
                      !splits(&run->step->from, axis, dim), !splits(&run->step->to, axis, dim));
}

static void local_loops(const struct sbp_boxing_run *run, struct loops *loops)
{
    const struct sbp_mesh *mesh = run->layout->mesh;
    *loops = (struct loops){.from_stride = 1, .to_stride = 1};
    for (int dim = SBP_MAX_DIMS - 1; dim >= 0; dim--)
        add_dimension(run, dim, loops);
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (run->step->from.axis[axis].kind == SBP_BROADCAST &&
            run->step->to.axis[axis].kind == SBP_PARTIAL &&
            sbp_mesh_coordinate(mesh, run->rank, axis) != 0)
            loops->silent = true;
}

/* Copies the loops from `depth` inwards; the innermost one that is dense on both sides as a run. */
static void copy_loops(const struct sbp_boxing_run *run, const struct sbp_kernels *kernels,
                       const struct loops *loops, int depth, int64_t from, int64_t to)
{
    const int64_t bytes = kernels->real_bytes;
    const bool dense =
        depth == 0 && loops->loop[0].from_stride == 1 && loops->loop[0].to_stride == 1;
    if (depth < 0 || dense) {
        copy(kernels, (char *)run->out + to * bytes, (const char *)run->in + from * bytes,
             dense ? loops->loop[0].size : 1);
        return;
    }
    for (int64_t i = 0; i < loops->loop[depth].size; i++)
        copy_loops(run, kernels, loops, depth - 1, from + i * loops->loop[depth].from_stride,
                   to + i * loops->loop[depth].to_stride);
}

static void run_local(const struct sbp_boxing_run *run, const struct sbp_kernels *kernels)
{
    struct loops loops;
    local_loops(run, &loops);
    if (loops.padded || loops.silent)
        kernels->zero(run->out,
                      sbp_dist_local_elements(run->layout->mesh, run->shape, &run->step->to));
    if (!loops.silent)
        copy_loops(run, kernels, &loops, loops.count - 1, loops.from_start, loops.to_start);
}

enum sbp_status sbp_boxing_execute(const struct sbp_boxing_run *run, struct sbp_channel *channel,
                                   struct sbp_diag *diag)
{
    switch (run->step->kind) {
    case SBP_ALL_REDUCE:
        return run_all_reduce(run, channel, diag);
    case SBP_ALL_GATHER:
    case SBP_REDUCE_SCATTER:
    case SBP_ALL_TO_ALL:
        return run_exchange(run, channel, diag);
    case SBP_LOCAL:
        run_local(run, channel->kernels);
        return SBP_OK;
    case SBP_SEND_RECV:
    case SBP_BROADCAST_COLL:
        break;
    }
    return sbp_fail(diag, SBP_E_UNSUPPORTED, "boxing step of kind %s: not run by this executor",
                    sbp_collective_name(run->step->kind));
}
