/* Launchers: ranks and sizes as mpirun and Slurm announce them in the environment. */
#include <stdlib.h>
#include <string.h>

#include "base/launcher.h"
#include "tests/support/unit.h"

static void test_launcher(void **state)
{
    (void)state;
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    static const char *const slurm[] = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(unsetenv(names[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(unsetenv(slurm[i]), 0);
    assert_int_equal(sbp_launcher_rank(), -1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(setenv(names[i], "7", 1), 0);
        assert_int_equal(sbp_launcher_rank(), 7);
        assert_int_equal(setenv(names[i], "x", 1), 0);
        assert_int_equal(sbp_launcher_rank(), -1);
        assert_int_equal(unsetenv(names[i]), 0);
    }
}

/* Environments as Slurm makes them. */
static void test_slurm(void **state)
{
    (void)state;
    static const struct {
        const char *value[4]; /* of the names below; NULL: not set */
        int rank, size;
        bool connects;
    } cases[] = {
        {{"0", NULL, NULL, NULL}, -1, 1, false}, /* the script of sbatch */
        {{"0", "1", NULL, NULL}, -1, 1, false},  /* the shell of salloc, or of srun --pty */
        {{"0", "4", NULL, NULL}, 0, 4, false},   /* srun --mpi=none */
        {{"3", "4", NULL, NULL}, 3, 4, false},
        {{"3", "4", "3", "4"}, 3, 4, true},  /* srun --mpi=pmi2 */
        {{"0", NULL, "2", "8"}, 2, 8, true}, /* mpirun in a script */
        {{"1", "2", "5", "8"}, 5, 8, true},  /* the same, whose daemons it starts by srun */
    };
    static const char *const names[] = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "PMI_RANK",
                                        "PMI_SIZE"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *values = cases[i].value;
        for (int v = 0; v < 4; v++)
            assert_int_equal(values[v] == NULL ? 0 : setenv(names[v], values[v], 1), 0);
        assert_int_equal(sbp_launcher_rank(), cases[i].rank);
        assert_int_equal(sbp_launcher_size(), cases[i].size);
        assert_int_equal(sbp_launcher_connects(), cases[i].connects);
        for (int v = 0; v < 4; v++)
            assert_int_equal(unsetenv(names[v]), 0);
    }
}

static void test_alone(void **state)
{
    (void)state;
    struct sbp_diag diag = {0};
    assert_int_equal(setenv("OMPI_COMM_WORLD_SIZE", "3", 1), 0);
    assert_int_equal(sbp_launcher_alone(&diag), SBP_OK); /* inherited, not started by it */
    assert_int_equal(setenv("OMPI_COMM_WORLD_RANK", "0", 1), 0);
    assert_int_equal(sbp_launcher_alone(&diag), SBP_E_USAGE);
    assert_non_null(strstr(diag.text, "the launcher started 3"));
    assert_int_equal(setenv("OMPI_COMM_WORLD_SIZE", "1", 1), 0);
    assert_int_equal(sbp_launcher_alone(&diag), SBP_OK);
    assert_int_equal(unsetenv("OMPI_COMM_WORLD_SIZE"), 0);
    assert_int_equal(unsetenv("OMPI_COMM_WORLD_RANK"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launcher),
        cmocka_unit_test(test_slurm),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
