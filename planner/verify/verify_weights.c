/* Checks weights and their gradients: shards, sums over members and stages, the norm, updates. */
#include "planner/verify/verify_flow_priv.h"

/* ---- weights -------------------------------------------------------------------------------- */

struct sbp_dist sbp_verify_flow_partial(const struct sbp_dist *dist, sbp_axes shared)
{
    struct sbp_dist gradient = *dist;
    for (int axis = 0; axis < SBP_MAX_AXES; axis++)
        if ((shared >> axis & 1) != 0)
            gradient.axis[axis] = SBP_STATE_P;
    return gradient;
}

/* A collective between shards and whole blocks goes over the axes that share the weight. */
static enum sbp_status check_exchange(const struct sbp_flow *f, const struct sbp_instr *instr,
                                      enum sbp_collective sharded)
{
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const enum sbp_owner owner = f->c->plan->cut.parallel.owner;
    const enum sbp_collective kind = owner == SBP_OWNER_NONE        ? sharded
                                     : owner == SBP_OWNER_BROADCAST ? SBP_BROADCAST_COLL
                                                                    : SBP_SEND_RECV;
    if (held->level == 0 || instr->box.kind != kind || instr->box.axes != held->shared ||
        instr->box.elements != held->padded)
        return sbp_verify_refuse(
            f->c, "%s: the %s of its states is none of %lld elements over %lld",
            f->graph->tensor[instr->tensor].name, sbp_program_instr_name(instr->kind),
            (long long)held->padded, (long long)held->members);
    SBP_TRY(sbp_verify_flow_owner(f, instr, SBP_AT_IN, instr->tensor));
    return sbp_verify_flow_owner(f, instr, SBP_AT_OUT, instr->tensor);
}

enum sbp_status sbp_verify_flow_gather(struct sbp_flow *f, const struct sbp_instr *instr)
{
    SBP_TRY(check_exchange(f, instr, SBP_ALL_GATHER));
    if (instr->section == SBP_SECTION_STEP) {
        f->gathered[instr->tensor]++;
        return f->updated[instr->tensor] == 1
                   ? SBP_OK
                   : sbp_verify_refuse(f->c, "%s: is gathered before it is updated",
                                       f->graph->tensor[instr->tensor].name);
    }
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const struct sbp_dist dist = sbp_verify_weight(f->c, held->op, held->index);
    return sbp_verify_flow_write(f, instr, SBP_AT_OUT, instr->tensor, &dist);
}

enum sbp_status sbp_verify_flow_convert(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    if (held->op < 0)
        return sbp_verify_refuse(f->c, "%s: is converted and not held",
                                 f->graph->tensor[instr->tensor].name);
    const struct sbp_dist dist = sbp_verify_weight(f->c, held->op, held->index);
    SBP_TRY(sbp_verify_flow_owner(f, instr, SBP_AT_IN, instr->tensor));
    return sbp_verify_flow_write(f, instr, SBP_AT_OUT, instr->tensor, &dist);
}

enum sbp_status sbp_verify_flow_scatter(struct sbp_flow *f, const struct sbp_instr *instr)
{
    SBP_TRY(check_exchange(f, instr, SBP_REDUCE_SCATTER));
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const struct sbp_dist dist = sbp_verify_weight(f->c, held->op, held->index);
    const struct sbp_dist formed = sbp_verify_flow_partial(&dist, held->shared);
    if (f->formed[instr->tensor] != held->uses ||
        !sbp_verify_same(f->c, &f->gradient[instr->tensor], &formed))
        return sbp_verify_refuse(f->c, "%s: its gradient is scattered before it is there",
                                 f->graph->tensor[instr->tensor].name);
    f->gradient[instr->tensor] = dist; /* of each block a shard */
    return SBP_OK;
}

/* A replica takes the sum so far before it forms its own gradient and passes it behind that; then
 * the finished one comes and goes, before the replica's devices sum what they have of it. */
enum sbp_status sbp_verify_flow_hand_on(struct sbp_flow *f, const struct sbp_instr *instr)
{
    enum { TAKEN, PASSED, TAKEN_LATE, PASSED_LATE };
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const char *name = f->graph->tensor[instr->tensor].name;
    const bool takes = instr->kind == SBP_INSTR_TAKE, late = instr->section == SBP_SECTION_STEP;
    const int order = (late ? TAKEN_LATE : TAKEN) + (takes ? 0 : 1);
    if (held->op < 0 || held->level > 0 || f->handed[instr->tensor]++ != order ||
        f->formed[instr->tensor] != (order == TAKEN ? 0 : held->uses))
        return sbp_verify_refuse(f->c, "%s: replicas do not hand its gradients on in order", name);
    const struct sbp_dist dist = sbp_verify_weight(f->c, held->op, held->index);
    const struct sbp_dist formed = sbp_verify_flow_partial(&dist, held->shared);
    if (order != TAKEN && !sbp_verify_same(f->c, &f->gradient[instr->tensor], &formed))
        return sbp_verify_refuse(f->c, "%s: replicas hand on what is no gradient as formed", name);
    if (instr->stages != 2 || instr->box.kind != SBP_SEND_RECV || instr->box.axes != 0 ||
        instr->cause != SBP_CAUSE_WEIGHT_GRADIENT || instr->box.elements != held->local)
        return sbp_verify_refuse(f->c, "%s: replicas hand on %lld elements, it has %lld", name,
                                 (long long)instr->box.elements, (long long)held->local);
    return sbp_verify_flow_owner(f, instr, takes ? SBP_AT_OUT : SBP_AT_IN, instr->tensor);
}

/* Whether every use has formed its part of a weight's gradient and its members have added them up.
 */
static bool is_summed(const struct sbp_flow *f, int tensor)
{
    const struct sbp_held_weight *held = &f->held[tensor];
    if (held->op < 0)
        return false;
    const struct sbp_dist dist = sbp_verify_weight(f->c, held->op, held->index);
    return f->formed[tensor] == held->uses && sbp_verify_same(f->c, &f->gradient[tensor], &dist);
}

enum sbp_status sbp_verify_flow_states(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const bool in = instr->kind == SBP_INSTR_COPY_IN;
    const int bucket = instr->buffer[in ? SBP_AT_OUT : SBP_AT_IN];
    if (f->copies++ != (in ? 0 : 1) || bucket < 0 ||
        f->program->buffer[bucket].use != SBP_USE_BUCKET)
        return sbp_verify_refuse(f->c, "%s: states do not pass through a bucket and back",
                                 sbp_program_instr_name(instr->kind));
    return SBP_OK;
}

enum sbp_status sbp_verify_flow_update(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const char *name = f->graph->tensor[instr->tensor].name;
    f->updated[instr->tensor]++;
    if (held->op < 0)
        return sbp_verify_refuse(f->c, "%s: is updated and not held", name);
    if (!is_summed(f, instr->tensor) ||
        (f->c->holders[instr->tensor] > 1 && f->stage_sums[instr->tensor] == 0) ||
        f->chunk_sums[instr->tensor] < sbp_verify_chunk_sums(f, instr->tensor))
        return sbp_verify_refuse(f->c, "%s: is updated from a gradient that is not summed", name);
    if (f->norm_sums != sbp_verify_norm_sums(f))
        return sbp_verify_refuse(f->c, "%s: is updated before the norm of all gradients is summed",
                                 name);
    if (f->program->host_bytes > 0 && f->copies != 1)
        return sbp_verify_refuse(f->c, "%s: is updated while its states are on the host", name);
    if (f->program->shard[instr->tensor].elements != held->shard)
        return sbp_verify_refuse(f->c, "%s: %lld parameters are updated, the device has %lld", name,
                                 (long long)f->program->shard[instr->tensor].elements,
                                 (long long)held->shard);
    SBP_TRY(sbp_verify_flow_owner(f, instr, SBP_AT_W, instr->tensor));
    return sbp_verify_flow_owner(f, instr, SBP_AT_DW, instr->tensor);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Chunks of a device that hold one weight add up their gradients. */
static enum sbp_status check_chunk_sum(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    f->chunk_sums[instr->tensor]++;
    if (!is_summed(f, instr->tensor) ||
        !sbp_verify_near(instr->inner_elements, (double)held->shard))
        return sbp_verify_refuse(f->c, "%s: chunks sum %g elements, %d hold %lld",
                                 f->graph->tensor[instr->tensor].name, instr->inner_elements,
                                 f->c->pieces_of[instr->tensor], (long long)held->shard);
    return sbp_verify_flow_owner(f, instr, SBP_AT_OUT, instr->tensor);
}

/* Stages that hold one weight add up the gradients that each of them has summed. */
enum sbp_status sbp_verify_flow_stage_sum(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const struct sbp_held_weight *held = &f->held[instr->tensor];
    const char *name = f->graph->tensor[instr->tensor].name;
    if (instr->box.kind == SBP_LOCAL)
        return check_chunk_sum(f, instr);
    if (!is_summed(f, instr->tensor))
        return sbp_verify_refuse(f->c, "%s: stages sum its gradient before they have it", name);
    f->stage_sums[instr->tensor]++;
    if (instr->stages != f->c->holders[instr->tensor] || instr->box.kind != SBP_ALL_REDUCE ||
        instr->box.axes != 0 || !sbp_verify_near(instr->inner_elements, (double)held->shard))
        return sbp_verify_refuse(f->c, "%s: %d stages sum %g elements, %d hold %lld", name,
                                 instr->stages, instr->inner_elements, f->c->holders[instr->tensor],
                                 (long long)held->shard);
    return sbp_verify_flow_owner(f, instr, SBP_AT_OUT, instr->tensor);
}

enum sbp_status sbp_verify_flow_norm(struct sbp_flow *f)
{
    for (int tensor = 0; tensor < f->graph->tensor_count; tensor++)
        if (f->held[tensor].op >= 0 && !is_summed(f, tensor))
            return sbp_verify_refuse(f->c, "%s: the norm is formed before its gradient is summed",
                                     f->graph->tensor[tensor].name);
    f->norms++;
    return SBP_OK;
}

/* The norm is summed over all devices of all stages. */
enum sbp_status sbp_verify_flow_norm_sum(struct sbp_flow *f, const struct sbp_instr *instr)
{
    const double elements =
        instr->kind == SBP_INSTR_INNER ? instr->inner_elements : (double)instr->box.elements;
    f->norm_sums++;
    if (f->norms != 1 || instr->cause != SBP_CAUSE_SCALAR || instr->box.kind != SBP_ALL_REDUCE ||
        sbp_verify_members(f->c, instr->box.axes) * instr->stages !=
            f->c->mesh->devices * f->c->step->stages ||
        !sbp_verify_near(elements, 1))
        return sbp_verify_refuse(f->c, "%s of %g elements is not the sum of the gradients' norm",
                                 sbp_collective_name(instr->box.kind), elements);
    return SBP_OK;
}
