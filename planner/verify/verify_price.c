/* Checks seconds of transfers and operators, and their sums, by formulas of its own where verify.h
 * says so. */
#include <math.h>

#include "planner/verify/verify_priv.h"

/* ---- transfers ------------------------------------------------------------------------------ */

/* Members of a transfer's group at each level. Over stages: all of them, or as many along the
 * outermost level that stages divide. */
static void group_of(const struct sbp_verification *c, const struct sbp_instr *instr,
                     struct sbp_group *group)
{
    const struct sbp_cluster *whole = &c->plan->workload.cluster, *stage = &c->step->cluster;
    for (int level = 0; level < SBP_MAX_LEVELS; level++)
        group->members[level] = 1;
    for (int axis = 0; axis < c->mesh->axis_count; axis++)
        if ((instr->box.axes >> axis & 1) != 0)
            group->members[c->mesh->axis[axis].level] *= (double)c->mesh->axis[axis].size;
    if (instr->stages <= 1)
        return;
    const bool all = instr->stages == c->step->stages;
    for (int level = 0; level < whole->level_count; level++) {
        const int64_t parts = whole->level[level].size / stage->level[level].size;
        if (all)
            group->members[level] *= (double)parts;
        if (!all && parts > 1) {
            group->members[level] *= instr->stages;
            return;
        }
    }
}

/* AutoDDL, table 2: seconds for g members and n bytes. */
static double alpha_beta_s(enum sbp_collective kind, double g, double n, double alpha, double beta)
{
    switch (kind) {
    case SBP_ALL_REDUCE:
        return 2 * (g - 1) * alpha + 2 * (g - 1) / g * n * beta;
    case SBP_ALL_GATHER:
    case SBP_REDUCE_SCATTER:
    case SBP_ALL_TO_ALL:
        return (g - 1) * alpha + (g - 1) / g * n * beta;
    case SBP_BROADCAST_COLL:
        return (g - 1) * alpha + n * beta;
    case SBP_SEND_RECV:
        return alpha + n * beta;
    default:
        return 0;
    }
}

/* Factor by which a level's ports stretch beta: devices of a member that send at the same time,
 * over ports. Of a group only one device crosses, but all of them in an all-to-all. */
static double crowding(const struct sbp_cluster *net, const struct sbp_group *group, int level,
                       enum sbp_collective kind)
{
    double sending = 1;
    for (int inner = level + 1; inner < net->level_count; inner++)
        sending *=
            (double)net->level[inner].size / (kind == SBP_ALL_TO_ALL ? 1 : group->members[inner]);
    return net->level[level].ports > 0 ? fmax(1, sending / net->level[level].ports) : 1;
}

/* Seconds of one ring whose links all have the largest alpha and beta of the levels it spans. */
static double ring_s(const struct sbp_cluster *net, const struct sbp_group *group,
                     enum sbp_collective kind, double bytes)
{
    double members = 1, alpha = 0, beta = 0;
    for (int level = 0; level < net->level_count; level++) {
        if (group->members[level] <= 1)
            continue;
        members *= group->members[level];
        alpha = fmax(alpha, net->level[level].alpha_s);
        beta = fmax(beta, net->level[level].beta_s_per_byte * crowding(net, group, level, kind));
    }
    return members > 1 ? alpha_beta_s(kind, members, bytes, alpha, beta) : 0;
}

/* n of the cost formula, in bytes: gradients of weights in the type of their sums, weights in the
 * type that they are gathered in, statistics in theirs, all else as activations. */
static double bytes_of(const struct sbp_verification *c, const struct sbp_program *program,
                       const struct sbp_instr *instr)
{
    const double elements =
        instr->kind == SBP_INSTR_INNER ? instr->inner_elements : (double)instr->box.elements;
    if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT)
        return elements * (double)c->bytes.reduce;
    if (instr->statistic)
        return elements * (double)c->bytes.statistic;
    if (instr->cause != SBP_CAUSE_WEIGHT)
        return elements * (double)c->bytes.activation;
    const struct sbp_buffer *out = &program->buffer[instr->buffer[SBP_AT_OUT]];
    const bool computed = c->bytes.compute > 0 && out->use == SBP_USE_GATHERED;
    return elements * (double)(computed ? c->bytes.compute : c->bytes.weight);
}

/* Seconds of one collective of a group. Measured curves, networks and hierarchical collectives are
 * priced by the cost model's own function. */
static double one_s(const struct sbp_cluster *net, const struct sbp_group *group,
                    enum sbp_collective kind, double bytes)
{
    if (net->curves.curve_count > 0 || sbp_network_is_given(&net->network) ||
        net->collectives != SBP_MODEL_RING)
        return sbp_collective_group_s(net, kind, group, bytes);
    return ring_s(net, group, kind, bytes);
}

/* Whether a transfer sends each token once to every node and device that wants it. */
static bool sends_once(const struct sbp_verification *c, const struct sbp_instr *instr)
{
    if (instr->kind != SBP_INSTR_INNER || instr->cause != SBP_CAUSE_OPERATOR ||
        c->graph->op[instr->op].kind != SBP_OP_MOE)
        return false;
    return c->plan->workload.cluster.runtime.dispatches_once ||
           c->graph->op[instr->op].moe.nodes_per_token > 0;
}

/* Returns the share of the copies of a token that go over a level. A token's experts are drawn one
 * after the other; each lies with the probability of what is left on a member that has none of
 * them yet, and then a copy goes there. */
static double first_copies(const struct sbp_verification *c, const struct sbp_instr *instr,
                           const struct sbp_group *group, int level)
{
    const struct sbp_op_node *node = &c->graph->op[instr->op];
    const int innermost = c->step->cluster.level_count - 1;
    const double most = (double)node->moe.nodes_per_token;
    double nodes = 1, taken = 0;
    for (int i = 0; i <= level && i < innermost; i++)
        nodes *= group->members[i];
    nodes = most > 0 && nodes > most ? most : nodes;
    const double members = level == innermost ? nodes * group->members[level] : nodes;
    for (int64_t expert = 0; expert < node->moe.top_k; expert++)
        taken += 1 - taken / members;
    return taken / (double)node->moe.top_k;
}

/* A level of a group alone. */
static struct sbp_group alone(const struct sbp_group *group, int level)
{
    struct sbp_group one = {0};
    for (int i = 0; i < SBP_MAX_LEVELS; i++)
        one.members[i] = i == level ? group->members[i] : 1;
    return one;
}

static double transfer_s(const struct sbp_verification *c, const struct sbp_program *program,
                         const struct sbp_instr *instr)
{
    const struct sbp_cluster *net =
        instr->stages > 1 ? &c->plan->workload.cluster : &c->step->cluster;
    const double bytes = bytes_of(c, program, instr);
    struct sbp_group group;
    double seconds = 0;
    group_of(c, instr, &group);
    if (!sends_once(c, instr))
        return instr->times * one_s(net, &group, instr->box.kind, bytes);
    for (int level = 0; level < net->level_count; level++) {
        const struct sbp_group phase = alone(&group, level);
        seconds +=
            one_s(net, &phase, SBP_ALL_TO_ALL, first_copies(c, instr, &group, level) * bytes);
    }
    return instr->times * seconds;
}

static bool is_transfer(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_BOX || instr->kind == SBP_INSTR_REDUCE ||
           instr->kind == SBP_INSTR_INNER || instr->kind == SBP_INSTR_GATHER ||
           instr->kind == SBP_INSTR_SCATTER || instr->kind == SBP_INSTR_SEND ||
           instr->kind == SBP_INSTR_PASS;
}

/* ---- operators ------------------------------------------------------------------------------ */

static enum sbp_type arithmetic(const struct sbp_verification *c)
{
    return c->bytes.activation == 8   ? SBP_FP64
           : c->bytes.activation == 4 ? SBP_FP32
                                      : c->graph->precision.activation;
}

/* Seconds of a kernel: arithmetic or memory, whichever is slower (DESIGN.md, section 5). */
static double kernel_s(const struct sbp_verification *c, double flops, double bytes)
{
    const struct sbp_cluster *device = &c->plan->workload.cluster;
    const double one_s = sbp_cluster_kernel_s(device, arithmetic(c), 1, 0); /* 1 / peak */
    const double stream = device->rates.stream_share;
    return fmax(flops * one_s, bytes / device->memory_bytes_per_s / (stream > 0 ? stream : 1));
}

/* The same with operations an element, where the device says how many it does; doubles are half as
 * many. Rows that go to experts and come back are copied one behind the other, before and behind
 * it, if the device says what part of its bandwidth such copies have. */
static double stream_s(const struct sbp_verification *c, const struct sbp_work *work, double bytes)
{
    const struct sbp_cluster *device = &c->plan->workload.cluster;
    const double rate = device->rates.vector_operations_per_s;
    const double each_s = rate > 0 ? 1 / rate : 0;
    const double element = (double)c->bytes.activation;
    const double part = sbp_device_dispatch_share(&device->rates, work->row * element);
    const double rows = part > 0 && work->row > 0 ? work->row_elements * element : 0;
    const double others_s =
        fmax(kernel_s(c, work->flops, bytes - rows),
             work->vector_operations * each_s * (c->bytes.activation == 8 ? 2 : 1));
    return rows > 0 ? others_s + rows / part / device->memory_bytes_per_s : others_s;
}

/* Seconds of (m, k) x (k, n); the cost model's own function says what share of the peak it reaches.
 */
static double product_s(const struct sbp_verification *c, const struct sbp_product *product,
                        enum sbp_pass pass)
{
    const struct sbp_cluster *device = &c->plan->workload.cluster;
    const enum sbp_type products = c->graph->precision.products, plain = arithmetic(c);
    const bool has_type = plain == c->graph->precision.activation && device->flops[products] > 0;
    const enum sbp_type type = has_type ? products : plain;
    const double m = product->m, n = product->n, k = product->k;
    const double elements = product->elements > 0 ? product->elements : m * k + k * n + m * n;
    const double bytes = elements * (double)sbp_cluster_type_bytes(type);
    const double share = sbp_device_product_share(
        &device->rates,
        &(struct sbp_device_product){
            .type = type, .pass = pass, .m = m, .n = n, .k = k, .grouped = product->grouped});
    const double one_s = sbp_cluster_kernel_s(device, type, 1, 0);
    return fmax(2 * m * n * k * one_s / share, bytes / device->memory_bytes_per_s);
}

/* Seconds of attention. Fused, it is a kernel at a share of the peak; unfused, products at theirs
 * and then the passes over the scores, where the device counts them. */
static double attention_s(const struct sbp_verification *c, const struct sbp_work *work,
                          enum sbp_pass pass, double bytes)
{
    const struct sbp_device_rates *rates = &c->plan->workload.cluster.rates;
    const struct sbp_attention_work *a = &work->attention;
    const struct sbp_device_attention kernel = {.type = arithmetic(c),
                                                .pass = pass,
                                                .head_size = a->head_size,
                                                .sequence = a->sequence,
                                                .rows = a->rows};
    const double given = rates->sustained[arithmetic(c)], sustained = given > 0 ? given : 1;
    if (a->fused)
        return kernel_s(c, work->flops / sbp_device_attention_share(rates, &kernel), bytes);
    if (!(rates->unfused.share > 0))
        return kernel_s(c, work->flops / sustained, bytes);
    const bool forward = pass == SBP_PASS_FORWARD;
    const double counted = forward ? 1 : 2; /* passes that the catalogue counts */
    const double passes = forward ? rates->unfused.forward_passes : rates->unfused.backward_passes;
    const double scores = (passes - counted) * a->scores * (double)c->bytes.activation;
    return kernel_s(c, a->full_flops / (rates->unfused.share * sustained), 0) +
           kernel_s(c, 0, bytes + scores);
}

/* The product Y = XW by the shapes: m rows of tokens, k features in, n out, each divided by its
 * axes. */
static void linear_product(const struct sbp_verification *c, int op, enum sbp_pass pass,
                           struct sbp_product *product)
{
    const struct sbp_op_node *node = &c->graph->op[op];
    const int64_t *x = c->graph->tensor[node->input[0]].shape.size;
    const int64_t *y = c->graph->tensor[node->output].shape.size;
    const struct sbp_dist in = sbp_verify_input(c, op, 0), out = sbp_verify_output(c, op);
    double m = (double)x[SBP_DIM_BATCH] * (double)x[SBP_DIM_SEQUENCE];
    double k = (double)x[SBP_DIM_FEATURE] * (double)x[SBP_DIM_INNER];
    double n = (double)y[SBP_DIM_FEATURE] * (double)y[SBP_DIM_INNER];
    for (int axis = 0; axis < c->mesh->axis_count; axis++) {
        const double parts = (double)c->mesh->axis[axis].size;
        const struct sbp_state read = in.axis[axis], made = out.axis[axis];
        if (read.kind == SBP_SPLIT)
            *(read.dim == SBP_DIM_FEATURE ? &k : &m) /= parts;
        if (made.kind == SBP_SPLIT && made.dim == SBP_DIM_FEATURE)
            n /= parts;
    }
    *product = pass == SBP_PASS_FORWARD ? (struct sbp_product){.count = 1, .m = m, .n = n, .k = k}
               : pass == SBP_PASS_INPUT_GRADIENT
                   ? (struct sbp_product){.count = 1, .m = m, .n = k, .k = n}
                   : (struct sbp_product){.count = 1, .m = k, .n = n, .k = m};
}

/* Seconds of a pass over a device's blocks. The catalogue says the work of all operators but linear
 * ones. */
static double pass_s(const struct sbp_verification *c, int op, enum sbp_pass pass)
{
    const struct sbp_factor factor = sbp_verify_factor(c, op);
    const struct sbp_op_node *node = &c->graph->op[op];
    struct sbp_work work = {.product_count = 1};
    if (pass == SBP_PASS_WEIGHT_GRADIENT && node->weight_count == 0)
        return 0;
    if (node->kind == SBP_OP_LINEAR)
        linear_product(c, op, pass, &work.product[0]);
    else
        work = sbp_op_work(c->graph, op, &factor, pass);
    if (work.time_s > 0)
        return work.time_s;
    const double bytes = work.elements * (double)c->bytes.activation +
                         work.gradient_elements * (double)c->bytes.gradient + work.bytes;
    double seconds =
        work.attention.given ? attention_s(c, &work, pass, bytes) : stream_s(c, &work, bytes);
    double launches = work.flops > 0 || bytes > 0;
    for (int i = 0; i < work.product_count; i++) {
        seconds += work.product[i].count * product_s(c, &work.product[i], pass);
        launches += work.product[i].count;
    }
    if (node->kind == SBP_OP_MOE && pass == SBP_PASS_FORWARD)
        seconds += c->plan->workload.cluster.runtime.experts_wait_s;
    return seconds + launches * c->plan->workload.cluster.kernel_launch_s;
}

/* ---- one program ---------------------------------------------------------------------------- */

/* Seconds of one program, by section and operator. */
struct ledger {
    struct sbp_verification *c;
    const struct sbp_program *program;
    double *section[SBP_SECTIONS]; /* (op_count) seconds of each operator by the program */
    bool *again;                   /* (op_count) recomputed */
};

/* Elements that a device updates: weights of a round are updated at the same time, each by its
 * owner, in what the largest takes. */
static double updated(const struct sbp_program *program, int tensor)
{
    return program->shard[tensor].leader == tensor ? (double)program->shard[tensor].elements : 0;
}

static double moved_s(const struct ledger *l, const struct sbp_instr *instr)
{
    const struct sbp_verification *c = l->c;
    const struct sbp_buffer *buffer = l->program->buffer;
    double bytes = 0;
    if (instr->kind == SBP_INSTR_ADD_GRADIENT)
        bytes =
            3 * (double)buffer[instr->buffer[SBP_AT_OUT]].elements * (double)c->bytes.activation;
    if (instr->kind == SBP_INSTR_CONVERT)
        bytes = (double)buffer[instr->buffer[SBP_AT_OUT]].elements *
                (double)(c->bytes.weight + c->bytes.compute);
    for (int t = 0; instr->kind == SBP_INSTR_NORM && t < c->graph->tensor_count; t++)
        bytes += updated(l->program, t) * (double)c->bytes.gradient;
    return kernel_s(c, 0, bytes);
}

/* Seconds of an update: gradient and weight are read, the weight is written; the master copy and
 * each moment are read and written. */
static double update_s(const struct ledger *l, const struct sbp_instr *instr)
{
    const struct sbp_verification *c = l->c;
    const struct sbp_update *update = &c->graph->training.update;
    const int moments = update->optimizer != SBP_SGD ? 2 : update->momentum > 0 ? 1 : 0;
    const int64_t a_parameter = c->bytes.gradient + 2 * c->bytes.weight + 2 * c->bytes.master +
                                2 * moments * c->bytes.moment;
    return kernel_s(c, 0, updated(l->program, instr->tensor) * (double)a_parameter) +
           c->plan->workload.cluster.kernel_launch_s;
}

static enum sbp_status check_instr(struct ledger *l, const struct sbp_instr *instr)
{
    const struct sbp_verification *c = l->c;
    double compute_s = 0, communication_s = 0;
    if (instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD) {
        l->section[instr->section][instr->op] += instr->compute_s;
        l->again[instr->op] |= instr->section == SBP_SECTION_RECOMPUTE;
        compute_s = instr->compute_s; /* checked by operator in check_passes */
    } else if (is_transfer(instr)) {
        communication_s = transfer_s(c, l->program, instr);
    } else if (instr->kind == SBP_INSTR_UPDATE) {
        compute_s = update_s(l, instr);
    } else if (sbp_program_is_host_copy(instr)) {
        compute_s =
            (double)l->program->host_bytes / c->plan->workload.cluster.host_link_bytes_per_s;
    } else {
        compute_s = moved_s(l, instr);
    }
    if (!sbp_verify_near(communication_s, instr->communication_s) ||
        !sbp_verify_near(compute_s, instr->compute_s))
        return sbp_verify_refuse(
            c, "%s: price: %s %s of %g elements takes %.12g s, the plan says %.12g s",
            instr->op >= 0 ? c->graph->op[instr->op].name : "the step",
            sbp_program_instr_name(instr->kind),
            is_transfer(instr) ? sbp_collective_name(instr->box.kind) : "",
            instr->kind == SBP_INSTR_INNER ? instr->inner_elements : (double)instr->box.elements,
            communication_s + compute_s, instr->communication_s + instr->compute_s);
    return SBP_OK;
}

static enum sbp_status check_passes(const struct ledger *l, int op)
{
    const struct sbp_verification *c = l->c;
    const bool phases = sbp_op_has_weight_phase(c->graph, op);
    const bool inputs = sbp_op_forms_input_gradient(c->graph, op);
    const bool works = inputs || c->graph->op[op].weight_count > 0;
    const bool half =
        phases && c->plan->cut.parallel.recompute == SBP_RECOMPUTE_SELECTIVE; /* the rest is kept */
    const double forward_s = pass_s(c, op, SBP_PASS_FORWARD);
    const double input_s = (phases ? inputs : works) ? pass_s(c, op, SBP_PASS_INPUT_GRADIENT) : 0;
    const double weight_s = works ? pass_s(c, op, SBP_PASS_WEIGHT_GRADIENT) : 0;
    const double given_s[] = {
        l->section[SBP_SECTION_FORWARD][op], l->section[SBP_SECTION_RECOMPUTE][op],
        l->section[SBP_SECTION_BACKWARD][op], l->section[SBP_SECTION_BACKWARD_WEIGHT][op]};
    const double mine_s[] = {forward_s, l->again[op] ? forward_s / (half ? 2 : 1) : 0,
                             phases ? input_s : input_s + weight_s, phases ? weight_s : 0};
    static const char *const names[] = {"forward", "recompute", "backward", "backward-weight"};
    for (int i = 0; i < 4; i++)
        if (!sbp_verify_near(mine_s[i], given_s[i]))
            return sbp_verify_refuse(c, "%s: price: %s takes %.12g s, the plan says %.12g s",
                                     c->graph->op[op].name, names[i], mine_s[i], given_s[i]);
    return SBP_OK;
}

/* The list of collectives in the plan file must say the same: each count is a member's share of n,
 * or n where all members have all of it. Those inside operators may be rounded. */
static enum sbp_status check_calls(struct sbp_verification *c, const struct sbp_program *program)
{
    struct sbp_call *calls = NULL;
    int count = 0, at = 0;
    SBP_TRY(sbp_program_calls(program, &c->scratch, &calls, &count));
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const enum sbp_collective kind = instr->box.kind;
        const bool all =
            kind == SBP_ALL_REDUCE || kind == SBP_SEND_RECV || kind == SBP_BROADCAST_COLL;
        const double share = all ? 1 : (double)sbp_verify_members(c, instr->box.axes);
        const double n =
            instr->kind == SBP_INSTR_INNER ? instr->inner_elements : (double)instr->box.elements;
        for (int k = 0; is_transfer(instr) && kind != SBP_LOCAL && k < instr->times; k++, at++)
            if (at >= count || calls[at].kind != kind || calls[at].axes != instr->box.axes ||
                fabs((double)calls[at].count * share - n) > share)
                return sbp_verify_refuse(c,
                                         "collective %d of the list is not instruction %d, %s of "
                                         "%g elements",
                                         at, i, sbp_collective_name(kind), n);
    }
    return at == count
               ? SBP_OK
               : sbp_verify_refuse(c, "%d collectives are listed, %d are called", count, at);
}

static enum sbp_status check_program(struct sbp_verification *c, const struct sbp_program *program)
{
    struct ledger ledger = {.c = c, .program = program};
    ledger.again = SBP_NEW(&c->scratch, bool, c->graph->op_count);
    bool complete = ledger.again != NULL;
    for (int s = 0; s < SBP_SECTIONS; s++) {
        ledger.section[s] = SBP_NEW(&c->scratch, double, c->graph->op_count);
        complete = complete && ledger.section[s] != NULL;
    }
    if (!complete)
        return SBP_E_MEMORY;
    for (int i = 0; i < program->instr_count; i++)
        SBP_TRY(check_instr(&ledger, &program->instr[i]));
    for (int op = program->scope.first_op; op < program->scope.end_op; op++)
        SBP_TRY(check_passes(&ledger, op));
    return check_calls(c, program);
}

/* ---- a step --------------------------------------------------------------------------------- */

/* The work of a device in a step, summed over stages; check_totals takes the mean. */
struct sums {
    double compute_s, recompute_s, optimizer_s, bytes;
    double by_cause_s[SBP_CAUSES];
};

static double sent_bytes(const struct sbp_verification *c, const struct sbp_program *program,
                         const struct sbp_instr *instr)
{
    struct sbp_group group;
    group_of(c, instr, &group);
    double g = 1;
    for (int level = 0; level < SBP_MAX_LEVELS; level++)
        g *= group.members[level];
    if (g <= 1 || !is_transfer(instr))
        return 0;
    if (sends_once(c, instr)) {
        double sent = 0;
        for (int level = 0; level < c->step->cluster.level_count; level++)
            if (group.members[level] > 1)
                sent += alpha_beta_s(SBP_ALL_TO_ALL, group.members[level],
                                     first_copies(c, instr, &group, level), 0, 1);
        return instr->times * sent * bytes_of(c, program, instr);
    }
    return instr->times * alpha_beta_s(instr->box.kind, g, bytes_of(c, program, instr), 0, 1);
}

/* How often all devices of one place run an instruction of a piece in a step. Of N groups that make
 * their own updates N - 1 wait for a finished sum, and one of these passes none on; one alone hands
 * on nothing. */
static double times_of(const struct sbp_verification *c, int piece, const struct sbp_instr *instr)
{
    const double copies = sbp_verify_copies(c, piece);
    if (instr->kind == SBP_INSTR_PASS && copies == 1)
        return 0;
    if (instr->section != SBP_SECTION_STEP)
        return (double)c->micro_batches;
    return instr->kind == SBP_INSTR_PASS ? copies - 2 : copies;
}

static void add_piece(const struct sbp_verification *c, int piece, int chunk, struct sums *sums)
{
    const struct sbp_program *program = sbp_step_program(c->step, piece);
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const bool once = instr->section == SBP_SECTION_STEP;
        const double times = times_of(c, piece, instr);
        if (!sbp_verify_counts(instr, chunk))
            continue;
        *(once                                      ? &sums->optimizer_s
          : instr->section == SBP_SECTION_RECOMPUTE ? &sums->recompute_s
                                                    : &sums->compute_s) += times * instr->compute_s;
        sums->by_cause_s[instr->cause] += times * instr->communication_s;
        sums->bytes += times * sent_bytes(c, program, instr);
    }
}

static enum sbp_status check_totals(const struct sbp_verification *c, struct sums *sums)
{
    const struct sbp_step_totals *totals = &c->step->totals;
    const double stages = c->step->stages;
    double communication_s = 0;
    for (int cause = 0; cause < SBP_CAUSES; cause++) {
        communication_s += sums->by_cause_s[cause] / stages;
        if (!sbp_verify_near(sums->by_cause_s[cause] / stages, totals->by_cause_s[cause]))
            return sbp_verify_refuse(c, "price: %s makes %.12g s, the plan says %.12g s",
                                     sbp_program_cause_name((enum sbp_cause)cause),
                                     sums->by_cause_s[cause] / stages, totals->by_cause_s[cause]);
    }
    const struct {
        const char *name;
        double mine, given;
    } total[] = {{"communication", communication_s, totals->communication_s},
                 {"compute", sums->compute_s / stages, totals->compute_s},
                 {"recompute", sums->recompute_s / stages, totals->recompute_s},
                 {"optimizer", sums->optimizer_s / stages, totals->optimizer_s},
                 {"communication in bytes", sums->bytes / stages, totals->communication_bytes}};
    for (size_t i = 0; i < sizeof total / sizeof *total; i++)
        if (!sbp_verify_near(total[i].mine, total[i].given))
            return sbp_verify_refuse(c, "price: %s adds up to %.12g, the plan says %.12g",
                                     total[i].name, total[i].mine, total[i].given);
    return SBP_OK;
}

enum sbp_status sbp_verify_price(struct sbp_verification *c)
{
    struct sums sums = {0};
    for (int i = 0; i < c->step->program_count; i++) {
        const struct sbp_arena_mark mark = sbp_arena_mark(&c->scratch);
        SBP_TRY(check_program(c, &c->step->program[i]));
        sbp_arena_release(&c->scratch, mark);
    }
    for (int piece = 0; piece < c->step->pieces; piece++)
        add_piece(c, piece,
                  sbp_verify_replicates(c) ? piece : piece / (int)c->plan->cut.parallel.pipeline,
                  &sums);
    return check_totals(c, &sums);
}
