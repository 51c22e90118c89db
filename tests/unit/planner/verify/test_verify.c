/* The second opinion on plans: right plans pass, and every way of corrupting one is caught.
 *
 * Plans come from a seeded random search, so that they are no special ones. Each corruption changes
 * one thing of a plan or of the programs that it compiles to; test_verify_figures.c has those of
 * what is promised.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_bench.h"
#include "tests/support/unit.h"

/* ---- right plans ---------------------------------------------------------------------------- */

static void test_right_plans_pass(void **state)
{
    int plans = 0;
    (void)state;
    for (int setting = 0; setting < setting_count(); setting++) {
        int here = 0;
        for (uint64_t seed = SEED; seed < SEED + 240 && here < 6; seed++) {
            struct bench b;
            struct sbp_diag diag;
            if (!bench_open(&b, setting, seed))
                continue;
            if (check(&b, &diag) != SBP_OK)
                fail_msg("setting %d seed %llu: %s", setting, (unsigned long long)seed, diag.text);
            bench_close(&b);
            here++;
        }
        if (here == 0)
            fail_msg("setting %d has no plan from seed %llu on", setting, (unsigned long long)SEED);
        plans += here;
    }
    print_message("%d plans from seed %llu\n", plans, (unsigned long long)SEED);
}

/* ---- corruptions ---------------------------------------------------------------------------- */

static bool is_box(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_BOX;
}

static bool is_paid_box(const struct sbp_instr *instr)
{
    return is_box(instr) && instr->communication_s > 0;
}

static bool is_sum(const struct sbp_instr *instr)
{
    return instr->cause == SBP_CAUSE_WEIGHT_GRADIENT;
}

static bool is_forward(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_FORWARD && instr->compute_s > 0;
}

static bool is_update(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_UPDATE;
}

static bool is_host_copy(const struct sbp_instr *instr)
{
    return sbp_program_is_host_copy(instr);
}

static bool is_inner(const struct sbp_instr *instr)
{
    return instr->op >= 0 &&
           (instr->kind == SBP_INSTR_REDUCE ||
            (instr->kind == SBP_INSTR_INNER && instr->cause == SBP_CAUSE_OPERATOR));
}

/* Of a convolution: its rows of other members, or the gradients of these. */
static bool moves_rows(const struct sbp_instr *instr)
{
    return is_inner(instr) && instr->box.kind == SBP_SEND_RECV;
}

static bool is_add(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_ADD_GRADIENT;
}

static bool is_send(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_SEND;
}

static bool is_exchange(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_SCATTER || instr->kind == SBP_INSTR_GATHER;
}

/* Leaves the instruction out. */
static bool drop(struct bench *b)
{
    struct sbp_program *program = &b->step.program[0];
    const int place = (int)(b->instr - program->instr);
    memmove(b->instr, b->instr + 1, (size_t)(program->instr_count - place - 1) * sizeof *b->instr);
    program->instr_count--;
    return true;
}

/* Each changes one thing; false: there is nothing of the kind in this plan. */

static bool other_role(struct bench *b)
{
    const int op = bench_any_op(b), axis = bench_any_axis(b),
              roles = b->plan.cut.graph.op[op].entry->role_count;
    uint8_t *role = &b->plan.strategy.op[op].role[axis];
    *role = (uint8_t)((*role + 1 + bench_below(b, roles - 1)) % roles);
    return true;
}

static bool no_such_role(struct bench *b)
{
    const int op = bench_any_op(b);
    b->plan.strategy.op[op].role[bench_any_axis(b)] =
        (uint8_t)b->plan.cut.graph.op[op].entry->role_count;
    return true;
}

static bool other_rest(struct bench *b)
{
    struct sbp_state *rest = &b->plan.strategy.rest[bench_any_output(b)].axis[bench_any_axis(b)];
    const struct sbp_state states[] = {SBP_STATE_S(SBP_DIM_BATCH), SBP_STATE_S(SBP_DIM_FEATURE),
                                       SBP_STATE_B, SBP_STATE_P};
    const struct sbp_state other = states[bench_below(b, 4)];
    const bool changes = !sbp_state_equal(*rest, other);
    *rest = other;
    return changes;
}

static bool partial_of_a_split(struct bench *b)
{
    const int op = bench_any_op(b), axis = bench_any_axis(b);
    const struct sbp_op_node *node = &b->plan.cut.graph.op[op];
    const struct sbp_role *role = &node->entry->role[b->plan.strategy.op[op].role[axis]];
    if (node->output < 0 || role->output.kind == SBP_PARTIAL)
        return false;
    b->plan.strategy.rest[node->output].axis[axis] = SBP_STATE_P;
    return true;
}

static bool digit_too_many(struct bench *b)
{
    const int dim_class = bench_below(b, b->plan.cut.graph.class_count);
    const sbp_axes bit = (sbp_axes)1 << bench_any_axis(b);
    const bool changes = (b->plan.strategy.split[dim_class] & bit) == 0;
    b->plan.strategy.split[dim_class] |= bit;
    return changes;
}

static bool digit_missing(struct bench *b)
{
    const int dim_class = bench_below(b, b->plan.cut.graph.class_count);
    const bool changes = b->plan.strategy.split[dim_class] != 0;
    b->plan.strategy.split[dim_class] &= b->plan.strategy.split[dim_class] - 1;
    return changes;
}

static bool other_zero(struct bench *b)
{
    const int op = bench_below(b, b->plan.cut.graph.op_count);
    const struct sbp_op_node *node = &b->plan.cut.graph.op[op];
    const int level = b->plan.cut.parallel.zero == 0 ? 1 : 0;
    bool shared = false;
    if (b->plan.cut.parallel.owner != SBP_OWNER_NONE || node->weight_count == 0)
        return false;
    for (int axis = 0; axis < b->plan.cut.mesh.axis_count; axis++) {
        const int role = sbp_strategy_role(&b->plan.cut.graph, &b->plan.strategy, op, axis);
        shared |= node->entry->role[role].gradient[0].kind == SBP_PARTIAL;
    }
    b->plan.strategy.zero[op] = (uint8_t)level;
    return shared && !node->transposed_weight; /* a tied weight is held as its first user says */
}

static bool no_such_zero(struct bench *b)
{
    b->plan.strategy.zero[bench_any_op(b)] = 7;
    return true;
}

/* Two activations at one place that live at the same time. */
static bool overlapping_buffers(struct bench *b)
{
    struct sbp_program *program = &b->step.program[0];
    for (int i = 0; i < program->buffer_count; i++)
        for (int k = i + 1; k < program->buffer_count; k++) {
            struct sbp_buffer *one = &program->buffer[i], *two = &program->buffer[k];
            if (one->use != SBP_USE_ACTIVATION || two->use != SBP_USE_ACTIVATION ||
                one->first < 0 || two->first > one->last || one->first > two->last ||
                two->first < 0)
                continue;
            two->offset_bytes = one->offset_bytes;
            return true;
        }
    return false;
}

static bool shorter_life(struct bench *b)
{
    struct sbp_program *program = &b->step.program[0];
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].last > program->buffer[i].first) {
            program->buffer[i].last--;
            return true;
        }
    return false;
}

static bool smaller_block(struct bench *b)
{
    struct sbp_instr *instr = b->instr;
    struct sbp_program *program = &b->step.program[0];
    if (b->plan.cut.graph.op[instr->op].output < 0)
        return false;
    program->buffer[instr->buffer[SBP_AT_OUT]].elements /= 2;
    return true;
}

static bool other_state(struct bench *b)
{
    struct sbp_instr *instr = b->instr;
    struct sbp_program *program = &b->step.program[0];
    if (b->plan.cut.graph.op[instr->op].output < 0)
        return false;
    struct sbp_state *state =
        &program->buffer[instr->buffer[SBP_AT_OUT]].dist.axis[bench_any_axis(b)];
    state->kind = state->kind == SBP_BROADCAST ? SBP_PARTIAL : SBP_BROADCAST;
    state->dim = 0;
    return true;
}

static bool other_kind(struct bench *b)
{
    struct sbp_instr *instr = b->instr;
    instr->box.kind = instr->box.kind == SBP_ALL_GATHER ? SBP_REDUCE_SCATTER : SBP_ALL_GATHER;
    return true;
}

static bool other_axes(struct bench *b)
{
    b->instr->box.axes ^= (sbp_axes)1 << bench_any_axis(b);
    return true;
}

static bool fewer_elements(struct bench *b)
{
    b->instr->box.elements /= 2;
    return true;
}

static bool missing_inner(struct bench *b)
{
    return b->instr->section != SBP_SECTION_RECOMPUTE && drop(b);
}

/* Rows are fetched behind their reader, or gradients of rows go before they are formed. */
static bool rows_at_another_time(struct bench *b)
{
    const bool fetches = b->instr->buffer[SBP_AT_IN] >= 0;
    const enum sbp_instr_kind past = fetches ? SBP_INSTR_FORWARD : SBP_INSTR_BACKWARD;
    struct sbp_instr *at = b->instr;
    do {
        struct sbp_instr *const next = fetches ? at + 1 : at - 1;
        const struct sbp_instr moved = *at;
        *at = *next;
        *next = moved;
        at = next;
    } while ((fetches ? at - 1 : at + 1)->kind != past);
    return true;
}

static bool brings_back(const struct sbp_instr *instr)
{
    return moves_rows(instr) && instr->buffer[SBP_AT_OUT] >= 0;
}

static bool fetches_rows(const struct sbp_instr *instr)
{
    return moves_rows(instr) && instr->buffer[SBP_AT_IN] >= 0;
}

static bool other_work(struct bench *b)
{
    b->instr->buffer[SBP_AT_WORK] = b->instr->buffer[SBP_AT_OUT];
    return true;
}

static bool other_saved(struct bench *b)
{
    b->instr->buffer[SBP_AT_SAVED] = b->instr->buffer[SBP_AT_IN];
    return true;
}

static bool has_operand(const struct sbp_instr *instr, int buffer)
{
    for (int i = 0; i < SBP_INSTR_BUFFERS; i++)
        if (instr->buffer[i] == buffer)
            return true;
    return false;
}

/* Gradients of rows go once others have read what they are added to. */
static bool brought_back_late(struct bench *b)
{
    const struct sbp_program *program = &b->step.program[0];
    const struct sbp_instr *const end = program->instr + program->instr_count;
    const struct sbp_instr brought = *b->instr;
    struct sbp_instr *reader = b->instr + 1;
    while (reader < end &&
           (reader->kind == SBP_INSTR_INNER || !has_operand(reader, brought.buffer[SBP_AT_OUT])))
        reader++;
    if (reader == end)
        return false;
    memmove(b->instr, b->instr + 1, (size_t)(reader - b->instr) * sizeof *reader);
    *reader = brought;
    return true;
}

static bool message_to_more(struct bench *b)
{
    b->instr->stages = 3;
    return true;
}

static bool narrower_exchange(struct bench *b)
{
    b->instr->box.axes &= b->instr->box.axes - 1;
    return true;
}

/* Another buffer of the same size and use stands at a slot. */
static bool swap_buffer(struct bench *b, int slot)
{
    const struct sbp_program *program = &b->step.program[0];
    struct sbp_instr *instr = b->instr;
    if (instr->buffer[slot] < 0)
        return false;
    const struct sbp_buffer *mine = &program->buffer[instr->buffer[slot]];
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sbp_buffer *other = &program->buffer[i];
        if (other->tensor != mine->tensor && other->use == mine->use &&
            other->elements == mine->elements) {
            instr->buffer[slot] = i;
            return true;
        }
    }
    return false;
}

/* The first instruction from `from` on of an operator that works in place, or NULL. */
static struct sbp_instr *find_in_place(struct bench *b, enum sbp_section section,
                                       const struct sbp_instr *from)
{
    struct sbp_program *program = &b->step.program[0];
    const int first = from == NULL ? 0 : (int)(from - program->instr) + 1;
    for (int i = first; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->op >= 0 && instr->section == section &&
            (instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD) &&
            b->plan.cut.graph.op[instr->op].entry->in_place)
            return &program->instr[i];
    }
    return NULL;
}

/* One does its work twice, and the next one not at all. */
static bool turned_twice(struct bench *b)
{
    const struct sbp_instr *one = find_in_place(b, SBP_SECTION_FORWARD, NULL);
    struct sbp_instr *other = one == NULL ? NULL : find_in_place(b, SBP_SECTION_FORWARD, one);
    if (other == NULL || other->buffer[SBP_AT_IN] == one->buffer[SBP_AT_IN])
        return false;
    *other = *one;
    return true;
}

static bool leave_elsewhere(struct bench *b, enum sbp_section section)
{
    b->instr = find_in_place(b, section, NULL);
    return b->instr != NULL && swap_buffer(b, SBP_AT_OUT);
}

static bool turned_elsewhere(struct bench *b)
{
    return leave_elsewhere(b, SBP_SECTION_FORWARD);
}

static bool turned_back_elsewhere(struct bench *b)
{
    return leave_elsewhere(b, SBP_SECTION_BACKWARD);
}

static bool other_weight(struct bench *b)
{
    return swap_buffer(b, SBP_AT_W);
}

static bool other_gradient(struct bench *b)
{
    return swap_buffer(b, SBP_AT_DW);
}

static bool other_sum(struct bench *b)
{
    return swap_buffer(b, SBP_AT_OUT);
}

static bool is_backward(const struct sbp_instr *instr)
{
    return instr->kind == SBP_INSTR_BACKWARD && instr->section == SBP_SECTION_BACKWARD;
}

static bool weights_section(struct bench *b)
{
    b->instr->section = SBP_SECTION_STEP;
    return true;
}

static bool sum_each_time(struct bench *b)
{
    struct sbp_instr *instr = b->instr;
    if (instr->section != SBP_SECTION_STEP)
        return false;
    instr->section = SBP_SECTION_BACKWARD;
    return b->plan.cut.parallel.zero < 2;
}

static bool cheaper_transfer(struct bench *b)
{
    b->instr->communication_s *= 1 - 1e-6;
    return true;
}

static bool cheaper_compute(struct bench *b)
{
    b->instr->compute_s *= 1 - 1e-6;
    return true;
}

static bool turned_copy(struct bench *b)
{
    b->instr->kind = b->instr->kind == SBP_INSTR_COPY_IN ? SBP_INSTR_COPY_OUT : SBP_INSTR_COPY_IN;
    return true;
}

static bool other_boundary(struct bench *b)
{
    b->step.first[1] += bench_below(b, 2) == 0 ? 1 : -1;
    return b->step.pieces > 1;
}

static bool last_boundary(struct bench *b)
{
    b->step.first[b->step.pieces]--;
    return true;
}

static bool other_program(struct bench *b)
{
    int *program = &b->step.program_of[bench_below(b, b->step.pieces)];
    *program = (*program + 1) % b->step.program_count;
    return b->step.program_count > 1;
}

static bool other_holders(struct bench *b)
{
    b->step.holders[b->plan.cut.graph.op[0].weight[0]]++;
    return true;
}

static bool other_micro_batch(struct bench *b)
{
    b->plan.cut.parallel.micro_batch /= 2;
    return true;
}

static bool other_stages(struct bench *b)
{
    b->step.cluster.level[0].size *= 3;
    return true;
}

static bool other_axis(struct bench *b)
{
    b->plan.cut.mesh.axis[bench_any_axis(b)].size = 5;
    return true;
}

static bool broken_fix(struct bench *b)
{
    const int op = bench_any_op(b);
    bench_ask_for(b, op)->factor[bench_below(b, b->plan.cut.graph.op[op].entry->role_count)][0] = 5;
    return true;
}

static bool broken_rest_fix(struct bench *b)
{
    const int op = bench_any_op(b);
    struct sbp_fix *fix = bench_ask_for(b, op);
    fix->rests = true;
    fix->rest[bench_below(b, SBP_REST_STATES)][0] = 5;
    return b->plan.cut.graph.op[op].output >= 0;
}

static bool broken_zero_fix(struct bench *b)
{
    const int op = bench_any_op(b);
    bench_ask_for(b, op)->zero = (bench_zero_level(b, op) + 1) % 4;
    return true;
}

/* The site keeps to the fix, its repeat does not. */
static bool broken_repeat(struct bench *b)
{
    const int op = bench_repeat_of_follower(b);
    if (op < 0)
        return false;
    struct sbp_fix *const fix = bench_ask_for(b, op);
    fix->zero = bench_zero_level(b, b->plan.cut.graph.op[op].site);
    b->plan.strategy.zero[op] = (uint8_t)((fix->zero + 1) % 4);
    return true;
}

static const struct corruption CORRUPTIONS[] = {
    {"another role", NULL, other_role, NULL},
    {"a role that is none", NULL, no_such_role, "no such role"},
    {"another rest", NULL, other_rest, NULL},
    {"a split that rests partial", NULL, partial_of_a_split, NULL},
    {"a digit too many", NULL, digit_too_many, "axes"},
    {"a digit missing", NULL, digit_missing, "axes"},
    {"another ZeRO level", NULL, other_zero, NULL},
    {"a ZeRO level that is none", NULL, no_such_zero, "ZeRO level"},
    {"overlapping buffers", NULL, overlapping_buffers, NULL},
    {"a shorter life", NULL, shorter_life, "lives from"},
    {"a smaller block", is_forward, smaller_block, "its share is"},
    {"a block in another state", is_forward, other_state, NULL},
    {"another kind of transfer", is_paid_box, other_kind, "no legal transition"},
    {"other axes of a transfer", is_box, other_axes, "no legal transition"},
    {"fewer elements of a transfer", is_box, fewer_elements, "it is counted as"},
    {"a missing transfer", is_box, drop, NULL},
    {"a missing sum of a gradient", is_sum, drop, NULL},
    {"a missing update", is_update, drop, NULL},
    {"a missing copy of states", is_host_copy, drop, NULL},
    {"a copy of states the other way", is_host_copy, turned_copy, "through a bucket and back"},
    {"a cheaper copy of states", is_host_copy, cheaper_compute, "price"},
    {"a missing forward pass", is_forward, drop, NULL},
    {"a missing collective inside", is_inner, missing_inner, "inside it is missing"},
    {"rows at another time", moves_rows, rows_at_another_time, NULL},
    {"other WORK", brings_back, other_work, "from where it has not formed them"},
    {"other SAVED", fetches_rows, other_saved, "to where it does not read them"},
    {"brought back behind its reader", brings_back, brought_back_late, "has read by then"},
    {"a missing addition", is_add, drop, NULL},
    {"a message to more stages", is_send, message_to_more, "to one other"},
    {"a narrower exchange of states", is_exchange, narrower_exchange, "of its states"},
    {"a turn that is made twice", NULL, turned_twice, "has not formed it, or formed more"},
    {"a turn that is left elsewhere", NULL, turned_elsewhere, "leaves its result elsewhere"},
    {"a turn back, too", NULL, turned_back_elsewhere, "leaves its result elsewhere"},
    {"an update of another weight", is_update, other_weight, "another buffer in place of"},
    {"an update by another gradient", is_update, other_gradient, "another buffer in place of"},
    {"another gradient's sum", is_sum, other_sum, "another buffer in place of"},
    {"a backward pass once a step", is_backward, weights_section, "in section step"},
    {"a sum for every micro-batch", is_sum, sum_each_time, "in section backward"},
    {"a cheaper transfer", is_paid_box, cheaper_transfer, "price"},
    {"a cheaper operator", is_forward, cheaper_compute, "price"},
    {"a cheaper update", is_update, cheaper_compute, "price"},
    {"another boundary", NULL, other_boundary, NULL},
    {"a boundary too early", NULL, last_boundary, "pieces cover"},
    {"another program", NULL, other_program, "other work"},
    {"other holders", NULL, other_holders, "hold it"},
    {"another micro-batch", NULL, other_micro_batch, "cut in time otherwise"},
    {"other stages", NULL, other_stages, "members of level"},
    {"an axis of another size", NULL, other_axis, "is none of the cluster's"},
    {"a fix that is not kept", NULL, broken_fix, "is fixed to"},
    {"a rest that is not kept", NULL, broken_rest_fix, "to rest otherwise"},
    {"a ZeRO level that is not kept", NULL, broken_zero_fix, "ZeRO is fixed to"},
    {"a repeat that is not kept", NULL, broken_repeat, "ZeRO is fixed to"},
};
static void test_corruptions_are_caught(void **state)
{
    (void)state;
    check_corruptions(CORRUPTIONS, sizeof CORRUPTIONS / sizeof *CORRUPTIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_plans_pass),
        cmocka_unit_test(test_corruptions_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
