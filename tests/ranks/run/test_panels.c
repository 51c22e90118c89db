/* SUMMA's linears: products over grids of ranks, panel by panel, against one device. */
#include <string.h>

#include "run_checks.h"

/* ---- random plans ---------------------------------------------------------------------------- */

/* What grids the plans have had. */
struct grids {
    int square, wide, tall, lines; /* as many columns as rows, more, fewer; rows or columns alone */
    int uneven;                    /* of which no side divides the other */
    int among;                     /* beside digits of axes that are not of the grid */
};

static int64_t members(const struct plan *plan, int op, const char *role, sbp_axes *axes)
{
    const struct sbp_op_entry *entry = plan->graph.op[op].entry;
    *axes = 0;
    for (int axis = 0; axis < plan->mesh.axis_count; axis++)
        if (plan->strategy.op[op].role[axis] == sbp_op_role(entry, role))
            *axes |= (sbp_axes)1 << axis;
    return sbp_mesh_group_size(&plan->mesh, *axes);
}

static void count_grid(const struct plan *plan, int op, struct grids *grids)
{
    sbp_axes of[2];
    const int64_t rows = members(plan, op, "grid_row", &of[0]);
    const int64_t columns = members(plan, op, "grid_column", &of[1]);
    const struct sbp_shape *x = &plan->graph.tensor[plan->graph.op[op].input[0]].shape;
    const sbp_axes digits = plan->strategy.split[x->dim_class[SBP_DIM_FEATURE]];
    if (rows * columns == 1)
        return;
    grids->square += rows == columns;
    grids->wide += columns > rows && rows > 1;
    grids->tall += rows > columns && columns > 1;
    grids->lines += rows == 1 || columns == 1;
    grids->uneven += rows % columns != 0 && columns % rows != 0;
    grids->among += (digits & ~(of[0] | of[1])) != 0;
}

static void count_grids(const struct plan *plan, struct grids *grids)
{
    for (int op = 0; op < plan->graph.op_count; op++)
        if (plan->graph.op[op].kind == SBP_OP_SUMMA_LINEAR)
            count_grid(plan, op, grids);
}

static void print_grids(enum sbp_real real, int plans, const struct grids *grids, double worst)
{
    print_message("seed %llu, %s: %d plans, grids: %d square, %d wide, %d tall, %d of one side, "
                  "%d uneven, %d among other digits; largest difference / bound %.3f\n",
                  (unsigned long long)seed, sbp_real_name(real), plans, grids->square, grids->wide,
                  grids->tall, grids->lines, grids->uneven, grids->among, worst);
}

/* One stage with micro-batches, ZeRO, owners and recomputation; every fourth plan without. */
static void check_plans(enum sbp_real real, int plans, struct grids *grids)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    double worst = 0;
    sbp_random_seed(&random, seed + 1700 + (uint64_t)real);
    for (int i = 0; i < plans; i++) {
        struct plan plan;
        open_random(&random, GRIDS, i % 2 == 0, i % 4 != 0, SBP_BOXING_FULL, real, model, &plan);
        struct sbp_run_options options = options_for(real, &random);
        options.steps = real == SBP_REAL_FP16 ? 8 : 2;
        check_run(&plan, &options, model, &worst);
        count_grids(&plan, grids);
        plan_close(&plan);
    }
    print_grids(real, plans, grids, worst);
}

static void double_precision_equals_one_device(void **state)
{
    struct grids grids = {0};
    const int plans = draws(80);
    (void)state;
    check_plans(SBP_F64, plans, &grids);
    assert_true(plans < 80 || (grids.square > 10 && grids.wide > 10 && grids.tall > 10 &&
                               grids.lines > 10 && grids.uneven > 10 && grids.among > 10));
}

static void shorter_types_equal_one_device(void **state)
{
    static const enum sbp_real reals[] = {SBP_F32, SBP_REAL_BF16, SBP_REAL_FP16};
    const int plans = draws(20);
    (void)state;
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        struct grids grids = {0};
        check_plans(reals[i], plans, &grids);
        assert_true(plans < 20 || (grids.square > 0 && grids.wide + grids.tall > 0 &&
                                   grids.lines > 0 && grids.among > 0));
    }
}

static void stages_equal_one_device(void **state)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    struct tally tally = {0};
    struct grids grids = {0};
    double worst = 0;
    const int plans = draws(60);
    (void)state;
    sbp_random_seed(&random, seed + 1750);
    for (int tries = 0; tally.plans < plans && tries < 20 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, GRIDS, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if ((tries % 3 == 2 ? plan_cut_cyclic : plan_cut_stages)(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F64);
            if (has_alike_ties(&plan)) {
                const struct sbp_run_options options = options_for(SBP_F64, &random);
                check_run(&plan, &options, model, &worst);
                count_plan(&tally, &plan);
                count_grids(&plan, &grids);
            }
        }
        plan_close(&plan);
    }
    print_grids(SBP_F64, tally.plans, &grids, worst);
    assert_int_equal(tally.plans, plans);
    assert_true(plans < 60 || (grids.square > 0 && grids.wide + grids.tall > 0 && grids.lines > 0 &&
                               grids.among > 0));
}

/* ---- every grid ------------------------------------------------------------------------------ */

/* Two products behind each other with biases; dX of both is formed, and both sizes of the features
 * that they share have digits of all axes. */
static const char TWO[] =
    "{\"name\": \"two\", \"global_batch\": 24, \"input\": \"split\", \"optimizer\": \"adam\", "
    "\"layers\": [{\"op\": \"summa_linear\", \"name\": \"one\", \"in\": 48, \"out\": 24, "
    "\"bias\": true}, {\"op\": \"gelu\"}, {\"op\": \"summa_linear\", \"name\": \"other\", "
    "\"out\": 48, \"bias\": true}, {\"op\": \"cross_entropy\"}]}";

/* r: grid_row, c: grid_column, b: batch, of every axis. */
static uint8_t role_of(char letter)
{
    const struct sbp_op_entry *entry = sbp_op(SBP_OP_SUMMA_LINEAR);
    return (uint8_t)sbp_op_role(entry, letter == 'r'   ? "grid_row"
                                       : letter == 'c' ? "grid_column"
                                                       : "batch");
}

static void open_grid(const int *levels, const char *const roles[2], enum sbp_real real,
                      struct plan *plan)
{
    struct sbp_diag diag = {0};
    int product = 0;
    plan_open(plan, TWO, levels);
    expect_ok(sbp_strategy_alloc(&plan->graph, &plan->arena, &plan->strategy), &diag);
    plan->strategy.rest[plan->graph.input] = sbp_dist_all(SBP_STATE_S(SBP_DIM_BATCH));
    for (int op = 0; op < plan->graph.op_count; op++) {
        const struct sbp_op_node *node = &plan->graph.op[op];
        for (int axis = 0; node->kind == SBP_OP_SUMMA_LINEAR && axis < plan->mesh.axis_count;
             axis++)
            plan->strategy.op[op].role[axis] = role_of(roles[product][axis]);
        product += node->kind == SBP_OP_SUMMA_LINEAR;
        if (node->output >= 0)
            plan->strategy.rest[node->output] =
                sbp_strategy_output(&plan->graph, &plan->mesh, &plan->strategy, op);
    }
    expect_ok(sbp_strategy_close(&plan->graph, &plan->mesh, &plan->strategy, &diag), &diag);
    plan_step(plan, &plan->parallel, NULL, real, &plan->step);
    plan->program = plan->step.program;
}

/* The next word of so many of three letters; false: there is none. */
static bool next_word(char *word, int letters)
{
    static const char order[] = "bcr";
    for (int i = letters - 1; i >= 0; i--) {
        const char *at = strchr(order, word[i]);
        word[i] = at[1] == '\0' ? 'b' : at[1];
        if (at[1] != '\0')
            return true;
    }
    return false;
}

static void check_words(const int *levels, int axes, enum sbp_real real, double *worst)
{
    struct sbp_random random;
    sbp_random_seed(&random, seed + 1800);
    for (char one[] = "bbb"; next_word(one, axes);) {
        const char turned[] = {one[axes - 1], one[1], one[0], '\0'};
        const char *const roles[] = {one, turned};
        struct plan plan;
        open_grid(levels, roles, real, &plan);
        const struct sbp_run_options options = options_for(real, &random);
        check_run(&plan, &options, one, worst);
        plan_close(&plan);
    }
}

static void every_grid_equals_one_device(void **state)
{
    static const enum sbp_real reals[] = {SBP_F64, SBP_F32, SBP_REAL_BF16};
    static const int levels[][4] = {{2, 2, 0}, {4, 0}, {2, 3, 0}, {3, 2, 0}, {2, 2, 2, 0}};
    (void)state;
    for (size_t r = 0; r < sizeof reals / sizeof reals[0]; r++) {
        double worst = 0;
        for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
            check_words(levels[i], levels[i][2] == 0 ? 2 : 3, reals[r], &worst);
        print_message("%s: largest difference / bound %.3f\n", sbp_real_name(reals[r]), worst);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Panels that are not exchanged, and results that are off, of each of a product's three. */
static void faults_are_found(void **state)
{
    static const enum sbp_fault faults[] = {SBP_FAULT_SKIP, SBP_FAULT_SCALE};
    static const char *const roles[][2] = {{"cr", "rc"}, {"rc", "cr"}, {"rr", "cc"}, {"cc", "rr"}};
    static const int levels[][4] = {{2, 2, 0}, {2, 3, 0}};
    struct sbp_random random;
    int found = 0;
    (void)state;
    sbp_random_seed(&random, seed + 1850);
    for (int n = 0; n < 16; n++) {
        struct plan plan;
        const enum sbp_fault fault = faults[n / 8];
        open_grid(levels[n / 4 % 2], roles[n % 4], SBP_F64, &plan);
        for (int i = 0; i < plan.program->instr_count; i++) {
            const struct sbp_instr *instr = &plan.program->instr[i];
            const bool multiplies =
                instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD;
            if (!multiplies || plan.graph.op[instr->op].kind != SBP_OP_SUMMA_LINEAR ||
                (fault == SBP_FAULT_SCALE && instr->buffer[SBP_AT_OUT] < 0))
                continue;
            struct sbp_run_options options = options_for(SBP_F64, &random);
            struct sbp_run_result result;
            plant_fault(&options, fault, 0, i);
            run_plan(&plan, &options, roles[n % 4][0], &result);
            if (!result.finding.found)
                fail_msg("seed %llu: fault %d in instruction %d of %s, %s went unnoticed",
                         (unsigned long long)seed, fault, i, roles[n % 4][0], roles[n % 4][1]);
            found++;
            sbp_run_free(&result);
        }
        plan_close(&plan);
    }
    print_message("%d faults found\n", found);
    /* Eight plans of two products, which have three instructions each; the output of two of them is
     * scaled, since the gradient of weights has a buffer of its own. */
    assert_int_equal(found, 8 * 2 * (3 + 2));
}

/* A rank whose panel has one element less is named by its neighbour before it is called. */
static void other_counts_are_named(void **state)
{
    static const char *const roles[] = {"cr", "rc"};
    static const int levels[] = {2, 2, 0};
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 1900);
    for (int phase = 0; phase < 3; phase++) {
        struct plan plan;
        struct sbp_diag diag = {0};
        struct sbp_run_result result;
        struct sbp_run_options options = options_for(SBP_F32, &random);
        open_grid(levels, roles, SBP_F32, &plan);
        int product = -1;
        for (int i = 0; i < plan.program->instr_count; i++) {
            const struct sbp_instr *instr = &plan.program->instr[i];
            if (instr->op >= 0 && strcmp(plan.graph.op[instr->op].name, "other") == 0 &&
                (phase == 0 ? instr->kind == SBP_INSTR_FORWARD
                            : instr->kind == SBP_INSTR_BACKWARD && instr->phase == phase - 1))
                product = i;
        }
        assert_true(product >= 0);
        options.verify = false;
        options.compares = true;
        plant_fault(&options, SBP_FAULT_COUNT, 0, product);
        assert_int_equal(sbp_run(&plan.step, &plan.cluster, &options, &result, &diag),
                         SBP_E_INTERNAL);
        assert_non_null(strstr(diag.text, " come to collectives of another count: rank "));
        assert_non_null(strstr(diag.text, "other"));
        plan_close(&plan);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_grid_equals_one_device),
        cmocka_unit_test(double_precision_equals_one_device),
        cmocka_unit_test(shorter_types_equal_one_device),
        cmocka_unit_test(stages_equal_one_device),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(other_counts_are_named),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
