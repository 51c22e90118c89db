/* Costs of an operator in a tuple, part by part: compute, boxing that depends on the operator
 * alone, synchronisation and updates of weights; and its bytes while it works. choice_costs.c
 * weights the parts and adds them up. */
#include <math.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/pricing/pricing.h"

/* Columns of the operator catalogue's roles. */
enum column { INPUT, WEIGHT, GRADIENT /* of a weight */, OUTPUT };

/* ---- groups of an operator's operands ------------------------------------------------------- */

/* A tuple by the operator's own roles: the devices' shape and the factor of each. */
struct played {
    int shape[SBP_MAX_ROLES];
    struct sbp_factor factor;
};

/* Roles by their state in a column: bit r for role r. What is mirrored is broadcast, too. */
struct roles {
    unsigned split, broadcast, partial, mirrored;
};

/* An operator, prepared so that one tuple after the other can be priced. */
struct sheet {
    const struct sbp_space *space;
    const struct sbp_op_group *group;
    const struct sbp_op_node *node;
    struct roles input[SBP_MAX_INPUTS], weight[SBP_MAX_WEIGHTS], gradient[SBP_MAX_WEIGHTS], output;
    double input_elements[SBP_MAX_INPUTS], weight_elements[SBP_MAX_WEIGHTS], output_elements;
    struct sbp_arithmetic *memo;
};

static struct sbp_state state_of(const struct sbp_role *role, enum column column, int index)
{
    switch (column) {
    case INPUT:
        return role->input[index];
    case WEIGHT:
        return role->weight[index];
    case GRADIENT:
        return role->gradient[index];
    default:
        return role->output;
    }
}

static struct roles roles_of(const struct sbp_op_entry *entry, enum column column, int index)
{
    struct roles roles = {0};
    for (int r = 0; r < entry->role_count; r++) {
        const enum sbp_kind kind = state_of(&entry->role[r], column, index).kind;
        unsigned *const of = kind == SBP_SPLIT     ? &roles.split
                             : kind == SBP_PARTIAL ? &roles.partial
                                                   : &roles.broadcast;
        *of |= 1u << r;
        roles.mirrored |= kind == SBP_MIRRORED ? 1u << r : 0;
    }
    return roles;
}

static int shape_of(const struct played *played, unsigned roles)
{
    int shape = 0;
    for (int r = 0; roles >> r != 0; r++)
        shape += roles >> r & 1 ? played->shape[r] : 0;
    return shape;
}

static double parts_of(const struct played *played, unsigned roles)
{
    double parts = 1;
    for (int r = 0; roles >> r != 0; r++)
        parts *= roles >> r & 1 ? played->factor.of[r] : 1;
    return parts;
}

static double collective_s(const struct sheet *sheet, enum sbp_collective kind, int shape,
                           double bytes)
{
    return sbp_group_collective_s(sheet->space->shapes, kind, shape, bytes);
}

/* ---- arithmetic ----------------------------------------------------------------------------- */

/* Times that depend on the product of factors alone, not on levels: few differ among many tuples.
 */
struct sbp_arithmetic {
    struct sbp_factor factor; /* of[0] is 0 where nothing is remembered */
    double forward_s, input_s, weight_s;
    int inner_count;
    struct sbp_op_inner inner[SBP_MAX_INNER];
};

static struct sbp_arithmetic compute(const struct sheet *sheet, const struct sbp_factor *factor)
{
    const struct sbp_space *space = sheet->space;
    const struct sbp_pricing *pricing = &space->pricing;
    const int op = sheet->group->op;
    struct sbp_arithmetic a = {.factor = *factor};
    a.inner_count = sbp_op_inner(space->graph, op, factor, a.inner);
    if (space->request->asked.objective != SBP_STEP_TIME)
        return a;
    a.forward_s = sbp_price_pass_s(pricing, op, factor, SBP_PASS_FORWARD);
    a.weight_s = sbp_price_pass_s(pricing, op, factor, SBP_PASS_WEIGHT_GRADIENT);
    if (sbp_op_forms_input_gradient(space->graph, op))
        a.input_s = sbp_price_pass_s(pricing, op, factor, SBP_PASS_INPUT_GRADIENT);
    return a;
}

static const struct sbp_arithmetic *arithmetic_of(const struct sheet *sheet,
                                                  const struct sbp_factor *factor)
{
    uint64_t hash = 0;
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        hash = (hash + (uint64_t)factor->of[r]) * UINT64_C(0x9E3779B97F4A7C15);
    struct sbp_arithmetic *a = &sheet->memo[hash >> (64 - SBP_PRICING_ARITHMETIC_MEMO_BITS)];
    if (memcmp(&a->factor, factor, sizeof *factor) != 0)
        *a = compute(sheet, factor);
    return a;
}

/* Seconds of a collective inside the operator. */
static double inner_s(const struct sheet *sheet, const struct sbp_op_inner *inner, int shape)
{
    const struct sbp_pricing *pricing = &sheet->space->pricing;
    const int64_t element = inner->statistic ? pricing->bytes.statistic : pricing->bytes.activation;
    const double bytes = inner->elements * (double)element;
    const struct sbp_dispatch dispatch = sbp_op_dispatch(sheet->node, &pricing->cluster->runtime);
    return dispatch.copies > 0 ? sbp_group_dispatch_s(sheet->space->shapes, shape, &dispatch, bytes)
                               : collective_s(sheet, inner->kind, shape, bytes);
}

static void add_arithmetic(const struct sheet *sheet, const struct played *played, double *row)
{
    const struct sbp_arithmetic *a = arithmetic_of(sheet, &played->factor);
    const bool forms = sbp_op_forms_input_gradient(sheet->space->graph, sheet->group->op);
    double *const part[SBP_PASSES] = {[SBP_PASS_FORWARD] = &row[SBP_COLUMN_INNER],
                                      [SBP_PASS_INPUT_GRADIENT] = &row[SBP_COLUMN_BACK_INNER],
                                      [SBP_PASS_WEIGHT_GRADIENT] = &row[SBP_COLUMN_WEIGHT_INNER]};
    row[SBP_COLUMN_COMPUTE] = a->forward_s;
    row[SBP_COLUMN_BACK] = a->input_s;
    row[SBP_COLUMN_BACK_WEIGHT] = a->weight_s;
    for (int i = 0; i < a->inner_count; i++) {
        const struct sbp_op_inner *inner = &a->inner[i];
        if (inner->pass == SBP_PASS_INPUT_GRADIENT && !forms)
            continue;
        *part[inner->pass] += inner->count * inner_s(sheet, inner, shape_of(played, inner->roles));
    }
}

/* ---- boxing --------------------------------------------------------------------------------- */

/* Gathers of inputs, the reduce-scatter of the output, and their duals on the way back; where
 * rests may be whole, the edges bear these. */
static void add_boxing(const struct sheet *sheet, const struct played *played, double *row)
{
    const double bytes = (double)sheet->space->pricing.bytes.activation;
    for (int i = 0; i < sheet->node->input_count; i++) {
        if ((sheet->group->boxed >> i & 1) == 0)
            continue;
        const struct roles *input = &sheet->input[i];
        const int gather = shape_of(played, input->broadcast);
        const int sum = shape_of(played, input->broadcast & ~input->mirrored);
        const double n = sheet->input_elements[i] / parts_of(played, input->split) * bytes;
        /* What becomes a partial sum is still split while the others are gathered. */
        row[SBP_COLUMN_BOX_IN + i] =
            collective_s(sheet, SBP_ALL_GATHER, gather, n / parts_of(played, input->partial));
        row[SBP_COLUMN_BACK_BOX] += collective_s(sheet, SBP_REDUCE_SCATTER, sum, n);
    }
    if (!sheet->group->boxed_output)
        return;
    const int partial = shape_of(played, sheet->output.partial);
    const double n = sheet->output_elements / parts_of(played, sheet->output.split) * bytes;
    row[SBP_COLUMN_BOX_OUT] = collective_s(sheet, SBP_REDUCE_SCATTER, partial, n);
    row[SBP_COLUMN_BACK_BOX] += collective_s(sheet, SBP_ALL_GATHER, partial, n);
}

/* ---- weights -------------------------------------------------------------------------------- */

/* How the replicas of a weight share its states (ZeRO: Rajbhandari et al., 2020, section 5; owners:
 * CDP, section 4.4), as costmodel/program/program_weights.c compiles it. */
struct replicas {
    int shape;
    double members;
    double local, shard; /* elements that a device holds, and that it updates under ZeRO, or of
                            those that owners are dealt in the mean */
};

/* From shards, or from the owner, to all replicas, or back. */
static double share_out_s(const struct sheet *sheet, const struct replicas *replicas,
                          enum sbp_collective kind, int64_t element_bytes)
{
    const enum sbp_owner owner = sheet->space->parallel->owner;
    if (owner != SBP_OWNER_NONE)
        kind = owner == SBP_OWNER_BROADCAST ? SBP_BROADCAST_COLL : SBP_SEND_RECV;
    const double elements =
        owner == SBP_OWNER_NONE ? replicas->shard * replicas->members : replicas->local;
    return collective_s(sheet, kind, replicas->shape, elements * (double)element_bytes);
}

/* Whole weights for a pass: gathered in the type that operators compute in, or converted to it. */
static void add_copies(const struct sheet *sheet, const struct replicas *replicas, double *row)
{
    const struct sbp_space *space = sheet->space;
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    double convert_s = 0;
    if (bytes->compute > 0 && space->request->asked.objective == SBP_STEP_TIME)
        convert_s =
            sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0,
                                 replicas->local * (double)(bytes->weight + bytes->compute));
    row[SBP_COLUMN_CONVERT] += convert_s;
    if (replicas->members > 1)
        row[SBP_COLUMN_GATHER] += share_out_s(sheet, replicas, SBP_ALL_GATHER,
                                              bytes->compute > 0 ? bytes->compute : bytes->weight);
    else
        row[SBP_COLUMN_CONVERT_OWN] += convert_s;
}

/* Several stages that hold a tied weight add its gradients up once a step. */
static double stage_sum_s(const struct sheet *sheet, int weight, double elements)
{
    const struct sbp_space *space = sheet->space;
    const int holders = sheet->group->holders[weight];
    if (holders < 2)
        return 0;
    const struct sbp_group group =
        sbp_price_stage_group(space->cut->cluster, space->cluster, space->parallel->pipeline,
                              holders, sbp_collective_group_one());
    return sbp_collective_group_s(space->cut->cluster, SBP_ALL_REDUCE, &group,
                                  elements * (double)space->pricing.bytes.reduce);
}

static void add_weight(const struct sheet *sheet, int weight, const struct played *played,
                       double *row)
{
    const struct sbp_element_bytes *bytes = &sheet->space->pricing.bytes;
    const int shape = shape_of(played, sheet->gradient[weight].partial);
    struct replicas replicas = {
        .shape = shape,
        .members = sheet->space->shapes->size[shape],
        .local = sheet->weight_elements[weight] / parts_of(played, sheet->weight[weight].split),
    };
    replicas.shard = ceil(replicas.local / replicas.members);
    add_copies(sheet, &replicas, row);
    if ((sheet->group->owned >> weight & 1) == 0)
        return;
    row[SBP_COLUMN_REDUCE] +=
        collective_s(sheet, SBP_ALL_REDUCE, shape, replicas.local * (double)bytes->reduce);
    row[SBP_COLUMN_SCATTER] += share_out_s(sheet, &replicas, SBP_REDUCE_SCATTER, bytes->reduce);
    row[SBP_COLUMN_SHARE] += share_out_s(sheet, &replicas, SBP_ALL_GATHER, bytes->weight);
    row[SBP_COLUMN_STAGE_BLOCKS] += stage_sum_s(sheet, weight, replicas.local);
    row[SBP_COLUMN_STAGE_SHARDS] += stage_sum_s(
        sheet, weight,
        sheet->space->parallel->owner != SBP_OWNER_NONE ? replicas.local : replicas.shard);
    row[SBP_COLUMN_LOCAL] += replicas.local;
    row[SBP_COLUMN_SHARD] += replicas.shard;
}

/* ---- activations ---------------------------------------------------------------------------- */

/* Bytes of a micro-batch that are kept because of the tuple. Readers of an input that may rest
 * whole need not gather it each: all then share the largest of their copies, which is no less than
 * the mean. */
static double kept_bytes(const struct sheet *sheet, const struct played *played)
{
    const struct sbp_op_group *group = sheet->group;
    const double element_bytes = (double)sheet->space->pricing.bytes.activation;
    if (group->keeps_half)
        return sheet->output_elements / parts_of(played, sheet->output.split) / 2 * element_bytes;
    if (!group->keeps_copy)
        return 0;
    const double gather = parts_of(played, sheet->input[0].broadcast);
    const double whole = gather * parts_of(played, sheet->input[0].partial);
    const double regathered = sheet->space->parallel->regather ? whole : 1;
    if (!(gather > regathered ? group->keeps_copy : group->keeps_block))
        return 0;
    return sheet->input_elements[0] / parts_of(played, sheet->input[0].split) / regathered /
           group->sharers * element_bytes;
}

/* Bytes that wait for the weight gradients of a micro-batch because of the tuple, at the least: its
 * share of the blocks that it may have in common with others. */
static double parked_bytes(const struct sheet *sheet, const struct played *played)
{
    const struct sbp_op_group *group = sheet->group;
    const struct roles input = sheet->input[0];
    const double whole = parts_of(played, input.broadcast) * parts_of(played, input.partial);
    const double regathered = sheet->space->parallel->regather ? whole : 1;
    const int sharers =
        group->sharers > group->input_readers ? group->sharers : group->input_readers;
    double elements = 0;
    if (group->gradient_readers > 0)
        elements += sheet->output_elements / parts_of(played, sheet->output.split) /
                    group->gradient_readers;
    if (group->input_readers > 0)
        elements += sheet->input_elements[0] / parts_of(played, input.split) / regathered / sharers;
    return elements * (double)sheet->space->pricing.bytes.activation;
}

/* Bytes that an operator saves beside its operands beyond an even share: some roles do not split
 * them, and where sizes do not divide none may. */
static double saved_beyond_share(const struct sheet *sheet, const struct played *played)
{
    const struct sbp_space *space = sheet->space;
    const struct sbp_op_kept all = sbp_pricing_kept_whole(space, sheet->group->op);
    const struct sbp_op_kept own = sbp_op_kept(space->graph, sheet->group->op, &played->factor);
    return sheet->group->keeps_saved
               ? fmax(0, sbp_pricing_saved_bytes(space, &own) -
                             sbp_pricing_saved_bytes(space, &all) / (double)space->mesh->devices)
               : 0;
}

/* ---- while it works ------------------------------------------------------------------------- */

/* Bytes of operands: gradients of the output and of the inputs, the latter also as they rest. */
struct operands {
    double dy, dx, dx_at_rest, output;
};

/* Whether the producer of a tensor asks for its gradient. */
static bool is_asked_for(const struct sbp_space *space, int tensor)
{
    const int from = space->graph->tensor[tensor].producer;
    return from >= 0 && space->groups->goes_back[from];
}

static struct operands operands_of(const struct sheet *sheet, const struct played *played)
{
    const struct sbp_space *space = sheet->space;
    const double bytes = (double)space->pricing.bytes.activation;
    struct operands operands = {0};
    operands.dy = operands.output =
        sheet->output_elements / parts_of(played, sheet->output.split) * bytes;
    for (int i = 0; i < sheet->node->input_count; i++) {
        const double elements = sheet->input_elements[i] * bytes;
        const bool is_wanted = !sbp_pricing_free_input(space, sheet->group->op, i);
        if (i == 0 || is_wanted)
            operands.dx += elements / parts_of(played, sheet->input[i].split);
        if (is_wanted && is_asked_for(space, sheet->node->input[i]))
            operands.dx_at_rest += elements / (double)space->mesh->devices;
    }
    return operands;
}

/* Bytes of weight copies, gathered or in the type that operators compute in, and of whole
 * gradients on their way to shards: all of them, and those that wait there since a later user's
 * backward pass. */
struct weight_copies {
    double copies, unreduced, held;
};

static struct weight_copies copies_of(const struct sheet *sheet, const struct played *played,
                                      int level)
{
    const struct sbp_element_bytes *bytes = &sheet->space->pricing.bytes;
    struct weight_copies sum = {0};
    for (int w = 0; w < sheet->node->weight_count; w++) {
        const bool is_shared = parts_of(played, sheet->gradient[w].partial) > 1;
        const double local = sheet->weight_elements[w] / parts_of(played, sheet->weight[w].split);
        if (((sheet->group->owned | sheet->group->lent) >> w & 1) == 0)
            continue;
        if (bytes->compute > 0 || (is_shared && level == 3))
            sum.copies += local * (double)(bytes->compute > 0 ? bytes->compute : bytes->weight);
        const double whole =
            is_shared && level >= 2
                ? local * (double)(bytes->compute > 0 ? bytes->compute : bytes->gradient)
                : 0;
        sum.unreduced += whole;
        if ((sheet->group->used_again >> w & 1) != 0)
            sum.held += whole;
    }
    return sum;
}

/* Bytes that the backward pass reads and that were recomputed for it. */
static double recomputed_bytes(const struct sheet *sheet, const struct played *played,
                               const struct sbp_recomputed_operands *recomputed)
{
    const double bytes = (double)sheet->space->pricing.bytes.activation;
    const struct sbp_op_kept kept =
        sbp_op_kept(sheet->space->graph, sheet->group->op, &played->factor);
    double sum = recomputed->saved ? sbp_pricing_saved_bytes(sheet->space, &kept) : 0;
    for (int i = 0; i < sheet->node->input_count; i++)
        if ((recomputed->inputs & kept.inputs) >> i & 1)
            sum += sheet->input_elements[i] / parts_of(played, sheet->input[i].split) * bytes;
    return sum;
}

/* The most bytes over an operator's instructions, as costmodel/program/program_forward.c and
 * program_backward.c compile them. */
static struct sbp_at_work at_work(const struct sheet *sheet, const struct played *played,
                                  const struct sbp_recomputed_operands *recomputed, int level)
{
    const struct sbp_graph *graph = sheet->space->graph;
    const struct sbp_element_bytes *bytes = &sheet->space->pricing.bytes;
    const int op = sheet->group->op;
    const bool forms = sbp_op_forms_input_gradient(graph, op);
    const struct operands o = operands_of(sheet, played);
    const struct weight_copies weights = copies_of(sheet, played, level);
    double scratch[SBP_PASSES];
    if (sheet->node->entry->in_place)
        return (struct sbp_at_work){0};
    if (sheet->node->kind == SBP_OP_ADD)
        return (struct sbp_at_work){.most = o.output};
    if (sheet->node->kind == SBP_OP_CROSS_ENTROPY) {
        const double logits = o.dx / (double)bytes->activation * (double)bytes->loss;
        const double held = o.dx / (double)bytes->activation * (double)bytes->logit;
        return (struct sbp_at_work){.most = logits + fmax(logits, o.dx) + held};
    }
    for (int pass = 0; pass < SBP_PASSES; pass++)
        scratch[pass] = sbp_op_scratch_elements(graph, op, &played->factor, (enum sbp_pass)pass) *
                        (double)bytes->activation;
    const bool has_phase = sbp_op_has_weight_phase(graph, op);
    const bool keeps_output = sbp_op_kept(graph, op, &played->factor).output;
    const double forward =
        (keeps_output ? 0 : o.output) + weights.copies + scratch[SBP_PASS_FORWARD];
    const double read = o.dy + recomputed_bytes(sheet, played, recomputed);
    const double inputs = read + (forms ? o.dx + weights.copies : 0) +
                          scratch[SBP_PASS_INPUT_GRADIENT] + (has_phase ? 0 : weights.unreduced);
    const bool waits = sbp_timeline_weights_wait(sheet->space->parallel->schedule);
    const double gradients = read + (forms && !waits ? o.dx_at_rest : 0) + weights.unreduced +
                             scratch[SBP_PASS_WEIGHT_GRADIENT];
    const double back =
        sbp_pricing_works_back(graph, op) ? fmax(inputs, has_phase ? gradients : 0) : 0;
    return (struct sbp_at_work){fmax(forward, back), back, weights.held};
}

/* ---- whole tuples --------------------------------------------------------------------------- */

static struct sheet sheet_of(const struct sbp_space *space, const struct sbp_op_group *group,
                             struct sbp_arithmetic *memo)
{
    const struct sbp_op_node *node = &space->graph->op[group->op];
    struct sheet sheet = {.space = space, .group = group, .node = node, .memo = memo};
    for (int i = 0; i < node->input_count; i++) {
        sheet.input[i] = roles_of(node->entry, INPUT, i);
        sheet.input_elements[i] = sbp_pricing_elements(space, node->input[i]);
    }
    for (int w = 0; w < node->weight_count; w++) {
        sheet.weight[w] = roles_of(node->entry, WEIGHT, w);
        sheet.gradient[w] = roles_of(node->entry, GRADIENT, w);
        sheet.weight_elements[w] = sbp_pricing_elements(space, node->weight[w]);
    }
    sheet.output = roles_of(node->entry, OUTPUT, 0);
    if (node->output >= 0)
        sheet.output_elements = sbp_pricing_elements(space, node->output);
    return sheet;
}

/* Readies the memo for an operator: repeats that form the same gradients take as long. */
static enum sbp_status open_memo(const struct sbp_space *space, int op, struct sbp_arena *scratch,
                                 struct sbp_arithmetic_memo *memo)
{
    const struct sbp_graph *graph = space->graph;
    const size_t entries = (size_t)1 << SBP_PRICING_ARITHMETIC_MEMO_BITS;
    if (memo->of != NULL && sbp_op_works_alike(graph, memo->op, op))
        return SBP_OK;
    if (memo->of == NULL)
        memo->of = SBP_TAKE(scratch, struct sbp_arithmetic, entries);
    if (memo->of == NULL)
        return SBP_E_MEMORY;
    memo->op = op;
    for (size_t i = 0; i < entries; i++)
        memo->of[i].factor.of[0] = 0;
    return SBP_OK;
}

static struct played play(const struct sheet *sheet, int variable, int tuple)
{
    const struct sbp_space *space = sheet->space;
    const struct sbp_group_prices *shapes = space->shapes;
    struct played played = {{0}, {{0}}};
    for (int f = 0; f < space->mesh->family_count; f++) {
        const uint8_t *count = sbp_tuple_count(space, variable, tuple, f);
        for (int r = 0; r < space->variable[variable].role_count; r++)
            if (sheet->group->map[r] != SBP_NO_ROLE)
                played.shape[sheet->group->map[r]] += count[r] * shapes->stride[f];
    }
    for (int r = 0; r < SBP_MAX_ROLES; r++)
        played.factor.of[r] = shapes->size[played.shape[r]];
    return played;
}

enum sbp_status sbp_pricing_make_working(const struct sbp_space *space, int variable,
                                         const struct sbp_op_group *group,
                                         const struct sbp_recomputed_operands *recomputed,
                                         double *kept, double *saved, struct sbp_at_work *working)
{
    const struct sheet sheet = sheet_of(space, group, NULL); /* no arithmetic */
    for (int tuple = 0; tuple < space->variable[variable].tuple_count; tuple++) {
        const struct played played = play(&sheet, variable, tuple);
        kept[tuple] = kept_bytes(&sheet, &played);
        saved[tuple] = saved_beyond_share(&sheet, &played);
        for (int level = 0; level < SBP_ZERO_LEVELS; level++)
            working[tuple * SBP_ZERO_LEVELS + level] = at_work(&sheet, &played, recomputed, level);
    }
    return SBP_OK;
}

static void fill_row(const struct sheet *sheet, const struct played *played, double *row)
{
    add_arithmetic(sheet, played, row);
    add_boxing(sheet, played, row);
    for (int w = 0; w < sheet->node->weight_count; w++)
        add_weight(sheet, w, played, row);
    row[SBP_COLUMN_KEPT] = kept_bytes(sheet, played);
    row[SBP_COLUMN_PARKED] = parked_bytes(sheet, played);
}

/* Turns rows (tuple, SBP_COLUMNS) into columns and leaves out columns of zeros. */
static enum sbp_status transpose(const double *row, int tuples, struct sbp_arena *arena,
                                 struct sbp_columns *columns)
{
    for (int c = 0; c < SBP_COLUMNS; c++) {
        int first = 0;
        columns->of[c] = NULL;
        while (first < tuples && row[(size_t)first * SBP_COLUMNS + (size_t)c] == 0)
            first++;
        if (first == tuples)
            continue;
        double *const column = SBP_TAKE(arena, double, tuples);
        if (column == NULL)
            return SBP_E_MEMORY;
        for (int tuple = 0; tuple < tuples; tuple++)
            column[tuple] = row[(size_t)tuple * SBP_COLUMNS + (size_t)c];
        columns->of[c] = column;
    }
    return SBP_OK;
}

enum sbp_status sbp_pricing_make_columns(const struct sbp_space *space, int variable,
                                         const struct sbp_op_group *group, struct sbp_arena *arena,
                                         struct sbp_arena *scratch,
                                         struct sbp_arithmetic_memo *memo,
                                         struct sbp_columns *columns)
{
    const int tuples = space->variable[variable].tuple_count;
    SBP_TRY(open_memo(space, group->op, scratch, memo));
    double *const row = SBP_NEW(scratch, double, (size_t)tuples *SBP_COLUMNS);
    if (row == NULL)
        return SBP_E_MEMORY;
    const struct sheet sheet = sheet_of(space, group, memo->of);
    for (int tuple = 0; tuple < tuples; tuple++) {
        const struct played played = play(&sheet, variable, tuple);
        fill_row(&sheet, &played, row + (size_t)tuple * SBP_COLUMNS);
    }
    return transpose(row, tuples, arena, columns);
}
