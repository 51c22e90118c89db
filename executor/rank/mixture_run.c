#include "executor/rank/mixture_run_priv.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "costmodel/model/op_cost.h"
#include "executor/rank/rank_ops_priv.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

bool sbp_rank_biases_experts(const struct sbp_graph *graph, const struct sbp_op_node *node)
{
    if (node->weight_count <= 3)
        return false;
    const int64_t *first = graph->tensor[node->weight[1]].shape.size;
    const int64_t *biases = graph->tensor[node->weight[3]].shape.size;
    return biases[SBP_DIM_IN] == first[0] && biases[SBP_DIM_OUT] >= first[2] * first[3] + first[1];
}

/* The fourth weight holds the router's biases (experts), those of the first products (experts, ffn,
 * gates), and those of the second ones (experts, hidden); each rank has all of them. */
static void find_biases(const struct sbp_graph *graph, const struct sbp_op_node *node,
                        const struct sbp_digits *ffn, struct sbp_rank_mixture *mixture)
{
    if (node->weight_count <= 3)
        return;
    const int64_t experts = mixture->tokens.experts;
    const int64_t *size = graph->tensor[node->weight[3]].shape.size;
    const int64_t apart = sbp_digits_global_size(ffn) * mixture->gates;
    mixture->biases_experts = sbp_rank_biases_experts(graph, node);
    mixture->biases_router =
        !mixture->biases_experts || size[SBP_DIM_OUT] > apart + mixture->hidden;
    mixture->chooses_by_bias = mixture->biases_router && node->moe.sigmoid;
    mixture->adds_bias = mixture->biases_router && !mixture->chooses_by_bias;
    const int64_t begin = mixture->biases_router ? experts : 0;
    mixture->first_apart = apart;
    mixture->first_bias = begin + sbp_digits_global(ffn, 0) * mixture->gates;
    mixture->second_bias = begin + experts * apart;
}

/* Which experts a rank holds, and over how many members they are split; no other operator splits
 * their columns, so that the local ones follow each other. */
static void find_held(const struct sbp_program *program, int op, int64_t place,
                      struct sbp_rank_mixture *mixture)
{
    const struct sbp_graph *graph = program->graph;
    const struct sbp_layout layout = {&program->mesh, graph->class_count, program->strategy.split};
    const struct sbp_dist dist =
        sbp_strategy_weight(graph, &program->mesh, &program->strategy, op, 1);
    struct sbp_region region;
    sbp_dist_region(&layout, &graph->tensor[graph->op[op].weight[1]].shape, &dist, place, &region);
    find_biases(graph, &graph->op[op], &region.dim[2], mixture);
    mixture->parts = sbp_dist_split(&program->mesh, &dist, 2);
    mixture->held = region.dim[0];
    mixture->experts = sbp_digits_local_size(&mixture->held);
    mixture->members = mixture->tokens.experts / mixture->experts;
}

struct sbp_rank_mixture sbp_rank_mixture_of(const struct sbp_program *program, int op,
                                            int64_t place)
{
    const struct sbp_graph *graph = program->graph;
    const struct sbp_op_node *node = &graph->op[op];
    const struct sbp_factor factor =
        sbp_strategy_factor(graph, &program->mesh, &program->strategy, op);
    const struct sbp_op_sizes sizes = sbp_op_sizes(graph, op, &factor);
    const double *first = sizes.weight[1], *input = sizes.input[0];
    struct sbp_rank_mixture mixture = {.slots = (int64_t)sbp_op_slots(node, &sizes),
                                       .hidden = (int64_t)first[1],
                                       .ffn = (int64_t)first[2],
                                       .gates = (int64_t)first[3]};
    const int64_t experts = graph->tensor[node->weight[0]].shape.size[SBP_DIM_OUT];
    mixture.tokens =
        (struct sbp_routing){.tokens = (int64_t)(input[SBP_DIM_BATCH] * input[SBP_DIM_SEQUENCE]),
                             .experts = experts,
                             .top_k = node->moe.top_k,
                             .capacity = mixture.slots / experts,
                             .in = mixture.hidden,
                             .groups = node->moe.groups,
                             .most_groups = node->moe.nodes_per_token,
                             .sigmoid = node->moe.sigmoid};
    find_held(program, op, place, &mixture);
    return mixture;
}

int64_t sbp_rank_mixture_slot(const struct sbp_rank_mixture *mixture, int64_t expert, int64_t slot)
{
    int64_t local;
    const int64_t member = sbp_digits_owner(&mixture->held, expert, &local);
    return (member * mixture->experts + local) * mixture->tokens.capacity + slot;
}

struct sbp_rank_kept sbp_rank_mixture_kept(struct sbp_rank *rank, const struct sbp_instr *instr,
                                           const struct sbp_rank_mixture *mixture)
{
    const int64_t bytes = rank->kernels->real_bytes, slots = mixture->slots;
    unsigned char *const copies = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED]);
    unsigned char *const first = copies + slots * mixture->hidden * bytes;
    unsigned char *const activation = first + slots * mixture->ffn * mixture->gates * bytes;
    unsigned char *const second = activation + slots * mixture->ffn * bytes;
    return (struct sbp_rank_kept){.copies = copies,
                                  .first = first,
                                  .activation = activation,
                                  .second = second,
                                  .scores = second + slots * mixture->hidden * bytes,
                                  .table = sbp_rank_buffer(rank, instr->buffer[SBP_AT_SAVED3])};
}

/* ---- an instruction -------------------------------------------------------------------------- */

/* What the phases of an instruction work on. */
struct work {
    struct sbp_rank *rank;
    const struct sbp_kernels *k;
    const struct sbp_instr *instr;
    struct sbp_rank_mixture mixture;
    struct sbp_rank_kept kept;
    unsigned char *scratch[2]; /* (slots, hidden); the second one backward */
    int64_t block;             /* elements of these */
    bool apart;
};

static struct work work_of(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    struct work w = {.rank = rank, .k = rank->kernels, .instr = instr};
    w.mixture = sbp_rank_mixture_of(rank->program, instr->op, rank->rank);
    w.kept = sbp_rank_mixture_kept(rank, instr, &w.mixture);
    w.block = w.mixture.slots * w.mixture.hidden;
    w.scratch[0] = sbp_rank_buffer(rank, instr->buffer[SBP_AT_WORK]);
    w.scratch[1] = w.scratch[0] + w.block * rank->kernels->real_bytes;
    w.apart = w.mixture.members > 1;
    return w;
}

static void *operand(const struct work *w, int place)
{
    return sbp_rank_buffer(w->rank, w->instr->buffer[place]);
}

/* Rows of a block, or of a weight, of an expert that is held here. */
static void *of_expert(const struct work *w, void *block, int64_t expert, int64_t elements)
{
    return (unsigned char *)block + expert * elements * w->k->real_bytes;
}

/* Biases of an expert that is held here, of the weight or its gradient (SBP_AT_W or SBP_AT_DW).
 * Products whose sum is the second one have its bias in one of them. NULL: none. */
static void *bias_of(const struct work *w, int weights, int64_t expert, bool second)
{
    const struct sbp_rank_mixture *m = &w->mixture;
    if (!m->biases_experts || (second && !sbp_rank_leads(w->rank, m->parts)))
        return NULL;
    const int64_t of_all = sbp_digits_global(&m->held, expert);
    const int64_t at =
        second ? m->second_bias + of_all * m->hidden : m->first_bias + of_all * m->first_apart;
    return of_expert(w, operand(w, weights + 3), at, 1);
}

/* From slots by member to slots by expert, or back. */
static void sort(const struct work *w, void *to, const void *from, bool by_expert)
{
    const struct sbp_rank_mixture *m = &w->mixture;
    const int64_t shape[] = {by_expert ? m->members : m->experts,
                             by_expert ? m->experts : m->members,
                             w->block / (m->members * m->experts)};
    const int order[] = {1, 0, 2};
    w->k->permute(to, from, 3, shape, order);
}

enum sbp_status sbp_rank_send_copies(struct sbp_rank *rank, const struct sbp_instr *instr,
                                     struct sbp_diag *diag)
{
    const struct work w = work_of(rank, instr);
    const bool forward = instr->section != SBP_SECTION_BACKWARD, there = instr->phase == 0;
    void *const ways[2][2] = {{w.scratch[0], w.scratch[1]}, {w.kept.second, w.scratch[0]}};
    const struct sbp_exchange exchange = {.kind = SBP_ALL_TO_ALL,
                                          .members.axes = instr->box.axes,
                                          .send = ways[forward][there ? 0 : 1],
                                          .receive = ways[forward][there ? 1 : 0],
                                          .count = w.block / w.mixture.members};
    return sbp_channel_exchange(rank->channel, &exchange, diag);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The rank's own choice, or the one that it is given. */
static void route(const struct work *w)
{
    const struct sbp_routing *tokens = &w->mixture.tokens;
    const int64_t copies = tokens->tokens * tokens->top_k;
    if (w->rank->given != NULL) {
        assert(w->rank->device->memory == &sbp_device_host_memory); /* references run on the CPU */
        memcpy(w->kept.table,
               w->rank->given->table[w->instr->op] + 2 * w->rank->micro_batch * copies,
               (size_t)copies * 2 * sizeof(int32_t));
        return;
    }
    /* What is kept is formed behind this, and has room for a count of 4 bytes an expert: scratch,
     * with one hidden feature of 16 bits, has not. */
    w->k->moe_route(w->kept.table, w->kept.copies, w->kept.scores,
                    w->mixture.chooses_by_bias ? operand(w, SBP_AT_W + 3) : NULL, &w->mixture.held,
                    tokens);
}

static void begin(const struct work *w)
{
    const struct sbp_routing *tokens = &w->mixture.tokens;
    w->k->linear_forward(w->kept.scores, operand(w, SBP_AT_IN), operand(w, SBP_AT_W),
                         w->mixture.adds_bias ? operand(w, SBP_AT_W + 3) : NULL, tokens->tokens,
                         tokens->in, tokens->experts);
    route(w);
    w->k->moe_dispatch(w->apart ? w->kept.second : w->kept.copies, operand(w, SBP_AT_IN),
                       w->kept.table, tokens);
}

static void ask_experts(const struct work *w)
{
    const struct sbp_rank_mixture *m = &w->mixture;
    const int64_t rows = m->slots / m->experts, wide = m->ffn * m->gates;
    if (w->apart)
        sort(w, w->kept.copies, w->scratch[0], true);
    for (int64_t e = 0; e < m->experts; e++) {
        void *const first = of_expert(w, w->kept.first, e, rows * wide);
        void *const activation = of_expert(w, w->kept.activation, e, rows * m->ffn);
        w->k->linear_forward(first, of_expert(w, w->kept.copies, e, rows * m->hidden),
                             of_expert(w, operand(w, SBP_AT_W2), e, m->hidden * wide),
                             bias_of(w, SBP_AT_W, e, false), rows, m->hidden, wide);
        w->k->swiglu_forward(activation, first, rows * m->ffn);
        w->k->linear_forward(of_expert(w, w->kept.second, e, rows * m->hidden), activation,
                             of_expert(w, operand(w, SBP_AT_W + 2), e, m->ffn * m->hidden),
                             bias_of(w, SBP_AT_W, e, true), rows, m->ffn, m->hidden);
    }
    if (w->apart)
        sort(w, w->scratch[0], w->kept.second, false);
}

void sbp_rank_mix(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct work w = work_of(rank, instr);
    if (instr->phase == 0)
        begin(&w);
    else if (instr->phase == 1)
        ask_experts(&w);
    else
        w.k->moe_combine(operand(&w, SBP_AT_OUT), w.kept.second, w.kept.scores, w.kept.table,
                         &w.mixture.tokens);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The gradient of an expert's first product, in its place: some features of the activation's
 * gradient at a time, as many as scratch has room for. */
static void bend_back(const struct work *w, int64_t expert, int64_t rows)
{
    const struct sbp_rank_mixture *m = &w->mixture;
    const int64_t bytes = w->k->real_bytes, room = w->block / rows, wide = m->ffn * m->gates;
    unsigned char *const first = of_expert(w, w->kept.first, expert, rows * wide);
    const unsigned char *const second =
        of_expert(w, operand(w, SBP_AT_W + 2), expert, m->ffn * m->hidden);
    for (int64_t from = 0; from < m->ffn; from += room) {
        const int64_t width = m->ffn - from < room ? m->ffn - from : room;
        w->k->linear_backward_input(w->scratch[1],
                                    of_expert(w, w->kept.second, expert, rows * m->hidden),
                                    second + from * m->hidden * bytes, rows, width, m->hidden);
        const int64_t stretch = width == m->ffn ? rows : 1; /* of rows that follow each other */
        for (int64_t row = 0; row < rows; row += stretch) {
            unsigned char *const at = first + (row * wide + from * m->gates) * bytes;
            w->k->swiglu_backward(at, at, w->scratch[1] + row * width * bytes, stretch * width);
        }
    }
}

static void ask_experts_back(const struct work *w)
{
    const struct sbp_rank_mixture *m = &w->mixture;
    const int64_t rows = m->slots / m->experts, wide = m->ffn * m->gates;
    sort(w, w->kept.second, w->scratch[w->apart], true);
    for (int64_t e = 0; e < m->experts; e++) {
        bend_back(w, e, rows);
        w->k->linear_backward_input(of_expert(w, w->scratch[0], e, rows * m->hidden),
                                    of_expert(w, w->kept.first, e, rows * wide),
                                    of_expert(w, operand(w, SBP_AT_W2), e, m->hidden * wide), rows,
                                    m->hidden, wide);
    }
    if (w->apart)
        sort(w, w->scratch[1], w->scratch[0], false);
}

static void give_back(const struct work *w)
{
    const struct sbp_routing *tokens = &w->mixture.tokens;
    w->k->linear_backward_input(operand(w, SBP_AT_OUT), w->kept.scores, operand(w, SBP_AT_W),
                                tokens->tokens, tokens->in, tokens->experts);
    w->k->moe_dispatch_backward(operand(w, SBP_AT_OUT), w->scratch[0], w->kept.table, tokens);
}

static unsigned adds_to(const struct work *w, int weight)
{
    return sbp_rank_adds_to(w->rank, w->instr->buffer[SBP_AT_DW + weight]);
}

static void form_gradients(const struct work *w)
{
    const struct sbp_rank_mixture *m = &w->mixture;
    const int64_t rows = m->slots / m->experts, wide = m->ffn * m->gates;
    const int biases = w->instr->buffer[SBP_AT_DW + 3];
    const unsigned rest = adds_to(w, 3) ? SBP_ADDS_REST : 0U;
    if ((m->biases_experts || m->chooses_by_bias) && rest == 0) /* of others' experts it stays 0 */
        w->k->zero(operand(w, SBP_AT_DW + 3), w->rank->program->buffer[biases].elements);
    w->k->linear_backward_weight(operand(w, SBP_AT_DW),
                                 m->adds_bias ? operand(w, SBP_AT_DW + 3) : NULL,
                                 operand(w, SBP_AT_IN), w->kept.scores, m->tokens.tokens, m->hidden,
                                 m->tokens.experts, (adds_to(w, 0) ? SBP_ADDS_FIRST : 0U) | rest);
    for (int64_t e = 0; e < m->experts; e++) {
        w->k->linear_backward_weight(of_expert(w, operand(w, SBP_AT_DW2), e, m->hidden * wide),
                                     bias_of(w, SBP_AT_DW, e, false),
                                     of_expert(w, w->kept.copies, e, rows * m->hidden),
                                     of_expert(w, w->kept.first, e, rows * wide), rows, m->hidden,
                                     wide, (adds_to(w, 1) ? SBP_ADDS_FIRST : 0U) | rest);
        w->k->linear_backward_weight(
            of_expert(w, operand(w, SBP_AT_DW + 2), e, m->ffn * m->hidden),
            bias_of(w, SBP_AT_DW, e, true), of_expert(w, w->kept.activation, e, rows * m->ffn),
            of_expert(w, w->kept.second, e, rows * m->hidden), rows, m->ffn, m->hidden,
            (adds_to(w, 2) ? SBP_ADDS_FIRST : 0U) | rest);
    }
}

void sbp_rank_mix_backward(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const struct work w = work_of(rank, instr);
    if (instr->phase == 0)
        w.k->moe_combine_backward(w.scratch[0], w.kept.scores, operand(&w, SBP_AT_DY),
                                  w.kept.second, w.kept.table, &w.mixture.tokens);
    else if (instr->phase == 1)
        ask_experts_back(&w);
    else if (instr->phase == 2)
        give_back(&w);
    else
        form_gradients(&w);
}
