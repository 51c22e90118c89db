/* Tasks of stages that are made by hand, played: messages, sums over stages and beside, and waiting
 * for ever. */
#include "costmodel/program/task_play.h"
#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

enum { MOST_STAGES = 3, MOST_TASKS = 12, TENSOR = 0 };

struct setting {
    struct sbp_arena arena;
    struct sbp_program program[MOST_STAGES];
    struct sbp_instr instr[MOST_STAGES][MOST_TASKS];
    struct sbp_task task[MOST_STAGES][MOST_TASKS];
    struct sbp_tasks tasks[MOST_STAGES];
    double length_s[MOST_STAGES][MOST_TASKS];
    int weight[MOST_STAGES]; /* buffer of TENSOR; -1: not here */
    int program_of[MOST_STAGES];
    struct sbp_step step;
};

static void open_setting(struct setting *s, int stages, int64_t micro_batches)
{
    *s = (struct setting){.program_of = {0, 1, 2}};
    for (int stage = 0; stage < stages; stage++) {
        s->weight[stage] = -1;
        s->program[stage] =
            (struct sbp_program){.instr = s->instr[stage], .weight_buffer = &s->weight[stage]};
        s->tasks[stage] = (struct sbp_tasks){.task = s->task[stage]};
    }
    s->step = (struct sbp_step){.stages = stages,
                                .pieces = stages,
                                .micro_batches = micro_batches,
                                .program_of = s->program_of,
                                .program = s->program};
}

static void add(struct setting *s, int stage, enum sbp_instr_kind kind, enum sbp_section section,
                int micro_batch, double length_s)
{
    const int64_t at = s->tasks[stage].count++;
    s->instr[stage][at] = (struct sbp_instr){
        .kind = kind, .section = section, .stages = kind == SBP_INSTR_INNER ? 2 : 1};
    s->task[stage][at] = (struct sbp_task){.instr = (int)at, .micro_batch = micro_batch};
    s->length_s[stage][at] = length_s;
}

static double play(struct setting *s, struct sbp_play *played)
{
    struct sbp_diag diag = {{0}};
    double *length_s[MOST_STAGES] = {s->length_s[0], s->length_s[1], s->length_s[2]};
    if (sbp_tasks_play(&s->step, s->tasks, length_s, &s->arena, played, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    return played->step_s;
}

/* There and back: each waits for the other's message. */
static void test_messages(void **state)
{
    (void)state;
    struct setting s;
    struct sbp_play played;
    open_setting(&s, 2, 1);
    add(&s, 0, SBP_INSTR_FORWARD, SBP_SECTION_FORWARD, 0, 1);
    add(&s, 0, SBP_INSTR_SEND, SBP_SECTION_FORWARD, 0, 0.5);
    add(&s, 0, SBP_INSTR_RECEIVE, SBP_SECTION_BACKWARD, 0, 0);
    add(&s, 0, SBP_INSTR_BACKWARD, SBP_SECTION_BACKWARD, 0, 2);
    add(&s, 1, SBP_INSTR_RECEIVE, SBP_SECTION_FORWARD, 0, 0);
    add(&s, 1, SBP_INSTR_FORWARD, SBP_SECTION_FORWARD, 0, 1);
    add(&s, 1, SBP_INSTR_BACKWARD, SBP_SECTION_BACKWARD, 0, 1.5);
    add(&s, 1, SBP_INSTR_SEND, SBP_SECTION_BACKWARD, 0, 0.25);
    assert_float_equal(play(&s, &played), 1 + 0.5 + 1 + 1.5 + 0.25 + 2, 1e-12);
    assert_float_equal(played.begin_s[1][1], 1.5, 1e-12);
    assert_float_equal(played.end_s[0][0], 1, 1e-12);
    assert_float_equal(played.end_s[0][1], 1.5, 1e-12);
    assert_float_equal(played.begin_s[0][2], 1, 1e-12);
    assert_float_equal(played.end_s[0][2], 4.25, 1e-12);
    sbp_arena_free(&s.arena);
}

/* A link carries one message after the other, beside the sender's work. */
static void test_link(void **state)
{
    (void)state;
    struct setting s;
    struct sbp_play played;
    open_setting(&s, 2, 2);
    for (int m = 0; m < 2; m++) {
        add(&s, 0, SBP_INSTR_FORWARD, SBP_SECTION_FORWARD, m, 1);
        add(&s, 0, SBP_INSTR_SEND, SBP_SECTION_FORWARD, m, 3);
        add(&s, 1, SBP_INSTR_RECEIVE, SBP_SECTION_FORWARD, m, 0);
        add(&s, 1, SBP_INSTR_FORWARD, SBP_SECTION_FORWARD, m, 1);
    }
    assert_float_equal(play(&s, &played), 1 + 3 + 3 + 1, 1e-12);
    assert_float_equal(played.begin_s[0][2], 1, 1e-12);
    assert_float_equal(played.begin_s[0][3], 4, 1e-12);
    assert_float_equal(played.end_s[0][3], 7, 1e-12);
    sbp_arena_free(&s.arena);
}

/* The first and the last stage hold a weight: the one between does not wait for their sum. */
static void test_sums(void **state)
{
    (void)state;
    struct setting s;
    struct sbp_play played;
    open_setting(&s, 3, 1);
    s.weight[0] = s.weight[2] = 0;
    for (int stage = 0; stage < 3; stage++) {
        add(&s, stage, SBP_INSTR_BACKWARD, SBP_SECTION_BACKWARD, 0, 1 + stage);
        if (stage != 1)
            add(&s, stage, SBP_INSTR_INNER, SBP_SECTION_STEP, 0, 0.5);
        add(&s, stage, SBP_INSTR_UPDATE, SBP_SECTION_STEP, 0, 0.25);
    }
    assert_float_equal(play(&s, &played), 3 + 0.5 + 0.25, 1e-12);
    assert_float_equal(played.begin_s[0][1], 3, 1e-12);
    assert_float_equal(played.end_s[0][1], 3.5, 1e-12);
    assert_float_equal(played.begin_s[1][1], 2, 1e-12);
    sbp_arena_free(&s.arena);
}

/* A backward pass of equal layers, each of which is summed, and updates once all have. */
static double play_layers(int layers, double layer_s, double sum_s, double update_s, bool beside)
{
    struct setting s;
    struct sbp_play played;
    open_setting(&s, 1, 1);
    for (int i = 0; i < layers; i++) {
        add(&s, 0, SBP_INSTR_BACKWARD, SBP_SECTION_BACKWARD, 0, layer_s);
        add(&s, 0, SBP_INSTR_BOX, SBP_SECTION_STEP, 0, sum_s);
        s.task[0][2 * i + 1].is_beside = beside;
    }
    for (int i = 0; i < layers; i++) {
        add(&s, 0, SBP_INSTR_UPDATE, SBP_SECTION_STEP, 0, update_s);
        s.task[0][2 * layers + i].after = beside ? 2 * i + 2 : 0;
    }
    const double step_s = play(&s, &played);
    for (int i = 0; i < layers && beside; i++) /* the stage goes on, and comes back when it must */
        assert_true(fabs(played.begin_s[0][2 * i] - i * layer_s) < 1e-12);
    sbp_arena_free(&s.arena);
    return step_s;
}

/* Only the last sum shows where sums are shorter than layers, and only the first layer where they
 * are longer. Updates of earlier layers go beside later sums. */
static void test_sums_beside(void **state)
{
    enum { LAYERS = 4 };
    static const double sums_s[] = {0.25, 1, 3};
    const double update_s = 0.125;
    (void)state;
    for (int i = 0; i < 3; i++) {
        const double sum_s = sums_s[i];
        const double summed_s =
            sum_s <= 1 ? LAYERS + fmax(sum_s, (LAYERS - 1) * update_s) : 1 + LAYERS * sum_s;
        const double in_line_s = LAYERS * (1 + sum_s + update_s);
        assert_true(fabs(play_layers(LAYERS, 1, sum_s, update_s, true) - summed_s - update_s) <
                    1e-12);
        assert_true(fabs(play_layers(LAYERS, 1, sum_s, update_s, false) - in_line_s) < 1e-12);
    }
}

/* Others that communicate wait for the sums before them, and the next sum for its gradient. */
static void test_one_order(void **state)
{
    struct setting s;
    struct sbp_play played;
    (void)state;
    open_setting(&s, 1, 1);
    add(&s, 0, SBP_INSTR_BACKWARD, SBP_SECTION_BACKWARD, 0, 1);
    add(&s, 0, SBP_INSTR_BOX, SBP_SECTION_STEP, 0, 2);
    add(&s, 0, SBP_INSTR_BACKWARD, SBP_SECTION_BACKWARD, 0, 0.5);
    add(&s, 0, SBP_INSTR_REDUCE, SBP_SECTION_BACKWARD, 0, 0.25);
    add(&s, 0, SBP_INSTR_BOX, SBP_SECTION_STEP, 0, 1);
    add(&s, 0, SBP_INSTR_NORM, SBP_SECTION_STEP, 0, 0.5);
    s.task[0][1].is_beside = s.task[0][4].is_beside = true;
    s.task[0][3].after = 2;
    s.task[0][5].after = 5;
    assert_float_equal(play(&s, &played), 1 + 2 + 0.25 + 1 + 0.5, 1e-12);
    assert_float_equal(played.end_s[0][2], 1.5, 1e-12);
    assert_float_equal(played.begin_s[0][3], 3, 1e-12);
    assert_float_equal(played.begin_s[0][4], 3.25, 1e-12);
    sbp_arena_free(&s.arena);
}

/* A work of one second between its messages; what it sends is under way for sent_s. */
static void add_work(struct setting *s, int stage, bool back, int micro_batch, double sent_s)
{
    const enum sbp_section section = back ? SBP_SECTION_BACKWARD : SBP_SECTION_FORWARD;
    const int64_t first = s->tasks[stage].count;
    if (stage != (back ? 2 : 0))
        add(s, stage, SBP_INSTR_RECEIVE, section, micro_batch, 0);
    add(s, stage, back ? SBP_INSTR_BACKWARD : SBP_INSTR_FORWARD, section, micro_batch, 1);
    if (stage != (back ? 0 : 2))
        add(s, stage, SBP_INSTR_SEND, section, micro_batch, sent_s);
    s->task[stage][s->tasks[stage].count - 1].ends = true;
    if (s->tasks[stage].begin[0] != NULL)
        s->tasks[stage].begin[back][micro_batch] = first;
}

/* The stage between two others, whose second activations are under way for late_s. Returns when it
 * begins the second forward work, and the first backward work. */
static void play_driven(double late_s, double *forward_s, double *backward_s, double *step_s)
{
    struct setting s;
    struct sbp_play played;
    int64_t begin[2][2];
    open_setting(&s, 3, 2);
    s.tasks[1].begin[0] = begin[0];
    s.tasks[1].begin[1] = begin[1];
    for (int stage = 0; stage < 3; stage++)
        for (int work = 0; work < 4; work++) {
            const bool back = stage == 2 ? work % 2 : work / 2;
            const int m = stage == 2 ? work / 2 : work % 2;
            add_work(&s, stage, back, m, stage == 0 && m == 1 ? late_s : 0);
        }
    *step_s = play(&s, &played);
    *forward_s = played.begin_s[1][begin[0][1] + 1];
    *backward_s = played.begin_s[1][begin[1][0] + 1];
    sbp_arena_free(&s.arena);
}

/* Gradients are there at 4. A forward work slips in before them if it can begin earlier. */
static void test_arrivals(void **state)
{
    (void)state;
    double forward_s, backward_s, step_s;
    play_driven(1.5, &forward_s, &backward_s, &step_s);
    assert_float_equal(forward_s, 3.5, 1e-12);
    assert_float_equal(backward_s, 4.5, 1e-12);
    assert_float_equal(step_s, 8.5, 1e-12);
    for (double late_s = 2; late_s <= 2.5; late_s += 0.5) {
        play_driven(late_s, &forward_s, &backward_s, &step_s);
        assert_float_equal(backward_s, 4, 1e-12);
        assert_float_equal(forward_s, 5, 1e-12);
        assert_float_equal(step_s, 10, 1e-12);
    }
}

static void test_waiting_for_ever(void **state)
{
    (void)state;
    struct setting s;
    struct sbp_play played;
    struct sbp_diag diag = {{0}};
    open_setting(&s, 2, 1);
    add(&s, 0, SBP_INSTR_RECEIVE, SBP_SECTION_BACKWARD, 0, 0);
    add(&s, 0, SBP_INSTR_SEND, SBP_SECTION_FORWARD, 0, 1);
    add(&s, 1, SBP_INSTR_RECEIVE, SBP_SECTION_FORWARD, 0, 0);
    add(&s, 1, SBP_INSTR_SEND, SBP_SECTION_BACKWARD, 0, 1);
    double *length_s[MOST_STAGES] = {s.length_s[0], s.length_s[1]};
    assert_int_equal(sbp_tasks_play(&s.step, s.tasks, length_s, &s.arena, &played, &diag),
                     SBP_E_INTERNAL);
    assert_non_null(strstr(diag.text, "stage 0 at task 0, receive of micro-batch 0"));
    sbp_arena_free(&s.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_sums_beside),
        cmocka_unit_test(test_one_order),
        cmocka_unit_test(test_arrivals),
        cmocka_unit_test(test_waiting_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
