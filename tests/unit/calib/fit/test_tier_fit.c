/* The formula across group shapes against brute force: least absolute deviations against every
 * vertex, least squares, which stand for them in a build without GLPK, against every support. Built
 * with and without GLPK. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/random.h"
#include "calib/fit/lad.h"
#include "calib/fit/tier_fit.h"
#include "tests/support/unit.h"

enum { TERMS = SBP_NETWORK_TERMS, SHAPES = 4, SIZES = 3, ROWS = SHAPES * SIZES, INSTANCES = 300 };
#define SEED UINT64_C(60413)

/* --- instances --- */

struct instance {
    struct sbp_measured_group shape[SHAPES];
    struct sbp_curve_sample sample[SHAPES][SIZES];
    struct sbp_network network;
    int columns, column[TERMS]; /* terms that the shapes tell apart */
    double row[ROWS][TERMS]; /* by column, over the measured time: right where they add up to 1 */
};

enum groups { BOTH, WITHIN, BETWEEN, KINDS };

/* Groups within nodes and between them, of all sizes; within nodes alone, of as many ranks each,
 * where steps cannot be told from the launch; or between nodes alone, of as many ranks a node,
 * where steps within nodes cannot. */
static void choose_shapes(struct instance *instance, enum groups groups, struct sbp_random *random)
{
    static const int told[KINDS][TERMS] = {
        {SBP_LAUNCH, SBP_INTRA_STEP, SBP_INTER_STEP, SBP_INTRA_BYTE, SBP_INTER_BYTE},
        {SBP_LAUNCH, SBP_INTRA_BYTE},
        {SBP_LAUNCH, SBP_INTER_STEP, SBP_INTER_BYTE}};
    static const int columns[KINDS] = {5, 2, 3};
    instance->columns = columns[groups];
    memcpy(instance->column, told[groups], sizeof told[groups]);
    for (int s = 0; s < SHAPES; s++) {
        const bool within = groups == WITHIN || (groups == BOTH && s % 2 == 0);
        instance->shape[s] = (struct sbp_measured_group){
            .kind = SBP_ALL_GATHER,
            .nodes = within ? 1 : 2 + s + 4 * (int)sbp_random_below(random, 4),
            .ranks_per_node = groups != BOTH ? 4 : 1 + within + (int)sbp_random_below(random, 8),
            .count = SIZES,
            .sample = instance->sample[s]};
    }
}

/* Times that no formula gives: a term and its like are off by up to 2.7 times either way. */
static void make_instance(struct instance *instance, enum groups groups, struct sbp_random *random)
{
    static const double truth[TERMS] = {1e-5, 2e-6, 8e-6, 4e-12, 5e-11};
    *instance = (struct instance){.columns = 0};
    choose_shapes(instance, groups, random);
    for (int s = 0; s < SHAPES; s++)
        for (int i = 0; i < SIZES; i++) {
            const struct sbp_measured_group *shape = &instance->shape[s];
            const double bytes = (double)(1 + sbp_random_below(random, 1000)) * exp2(10 * i);
            double term[TERMS], time_s = 0;
            sbp_network_terms(shape->kind, shape->nodes, shape->ranks_per_node, 0, bytes, term);
            if (shape->nodes > 1)
                term[SBP_INTRA_BYTE] = 0; /* the network is the slower of the two */
            for (int t = 0; t < TERMS; t++)
                time_s += truth[t] * term[t];
            time_s *= exp(2 * sbp_random_unit(random) - 1);
            instance->sample[s][i] = (struct sbp_curve_sample){bytes, time_s};
            for (int j = 0; j < instance->columns; j++)
                instance->row[s * SIZES + i][j] = term[instance->column[j]] / time_s;
        }
}

/* --- brute force --- */

static double loss_of(const struct instance *instance, const double *x, bool squares)
{
    double loss = 0;
    for (int i = 0; i < ROWS; i++) {
        double off = -1;
        for (int j = 0; j < instance->columns; j++)
            off += instance->row[i][j] * x[j];
        loss += squares ? off * off : fabs(off);
    }
    return loss;
}

/* Solves a (n, n + 1) in place; false: singular. */
static bool eliminate(double a[TERMS][TERMS + 1], int n, double *x)
{
    for (int c = 0; c < n; c++) {
        int pivot = c;
        for (int r = c + 1; r < n; r++)
            pivot = fabs(a[r][c]) > fabs(a[pivot][c]) ? r : pivot;
        if (fabs(a[pivot][c]) < 1e-12)
            return false;
        for (int k = 0; k <= n; k++) {
            const double kept = a[c][k];
            a[c][k] = a[pivot][k];
            a[pivot][k] = kept;
        }
        for (int r = 0; r < n; r++)
            for (int k = n; k >= c && r != c; k--)
                a[r][k] -= a[r][c] / a[c][c] * a[c][k];
    }
    for (int c = 0; c < n; c++)
        x[c] = a[c][n] / a[c][c];
    return true;
}

/* The largest of a column, by which it is scaled. */
static double scale_of(const struct instance *instance, int column)
{
    double most = 0;
    for (int i = 0; i < ROWS; i++)
        most = fmax(most, instance->row[i][column]);
    return most;
}

/* x (columns) of the columns in a bit set, the others 0: through the rows in a bit set (as many),
 * or without any by least squares; false: there is none, or one is below 0. */
static bool solve(const struct instance *instance, unsigned columns, unsigned rows, double *x)
{
    double a[TERMS][TERMS + 1] = {{0}}, scale[TERMS], found[TERMS];
    int at[TERMS], n = 0, taken = 0;
    for (int j = 0; j < instance->columns; j++) {
        x[j] = 0;
        scale[j] = scale_of(instance, j);
        if (columns >> j & 1)
            at[n++] = j;
    }
    for (int i = 0; i < ROWS; i++) {
        double row[TERMS + 1];
        for (int k = 0; k < n; k++)
            row[k] = instance->row[i][at[k]] / scale[at[k]];
        row[n] = 1;
        for (int r = 0; r < n && rows == 0; r++)
            for (int k = 0; k <= n; k++)
                a[r][k] += row[r] * row[k];
        if (rows >> i & 1)
            memcpy(a[taken++], row, sizeof row);
    }
    if (!eliminate(a, n, found))
        return false;
    for (int k = 0; k < n; k++) {
        if (found[k] < 0)
            return false;
        x[at[k]] = found[k] / scale[at[k]];
    }
    return true;
}

static int count_bits(unsigned set)
{
    int count = 0;
    for (; set != 0; set &= set - 1)
        count++;
    return count;
}

/* The least loss over x >= 0: one of them is 0 outside of some columns and goes through as many
 * rows, or is the least-squares solution of these columns. */
static double find_least(const struct instance *instance, bool squares)
{
    double x[TERMS] = {0}, least = loss_of(instance, x, squares);
    for (unsigned columns = 1; columns < 1u << instance->columns; columns++)
        for (unsigned rows = 0; rows < (squares ? 1u : 1u << ROWS); rows++)
            if ((squares || count_bits(rows) == count_bits(columns)) &&
                solve(instance, columns, rows, x))
                least = fmin(least, loss_of(instance, x, squares));
    return least;
}

/* --- the fit --- */

static void check_instance(enum groups groups, int number, struct sbp_random *random)
{
    struct instance instance;
    struct sbp_formula formula;
    double x[TERMS], rest = 0;
    const bool squares = !sbp_lad_is_available();
    make_instance(&instance, groups, random);
    const struct sbp_measured_groups shapes = {.count = SHAPES, .shape = instance.shape};
    assert_int_equal(
        sbp_tier_fit(&shapes, &instance.network, SBP_ALL_GATHER, SBP_NO_SHAPE, &formula, NULL),
        SBP_OK);
    assert_true(formula.is_given);
    for (int j = 0; j < instance.columns; j++) {
        x[j] = formula.coefficient[instance.column[j]];
        rest -= x[j];
        assert_true(x[j] >= 0);
    }
    for (int t = 0; t < TERMS; t++)
        rest += formula.coefficient[t];
    assert_true(fabs(rest) < 1e-12); /* what cannot be told is 0 */
    const double found = loss_of(&instance, x, squares), least = find_least(&instance, squares);
    if (!(fabs(found - least) <= 1e-6 * least))
        fail_msg("instance %d, seed %llu: loss %.12g, the least is %.12g", number,
                 (unsigned long long)SEED, found, least);
}

static void test_brute_force(void **state)
{
    (void)state;
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (int i = 0; i < INSTANCES; i++)
        check_instance((enum groups)(i % KINDS), i, &random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute_force)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
