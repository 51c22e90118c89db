/* A machine about itself: which settings are kept, and what files below a root tell. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "calib/samples/system.h"
#include "tests/support/unit.h"

static void expect_settings(char *const *environment, int size, const char *expected)
{
    char text[512];
    assert_in_range(size, 1, sizeof text);
    sbp_system_settings(environment, text, size);
    assert_string_equal(text, expected);
}

static void test_settings(void **state)
{
    (void)state;
    char *const environment[] = {"UCX_TLS=rc",
                                 "HOME=/root",
                                 "NCCL_ALGO=Ring",
                                 "NCCL_API_KEY=abc",
                                 "NCCL_SITE_TOKEN=abc",
                                 "UCX_PASSWORD=abc",
                                 "I_MPI_SECRET_FILE=abc",
                                 "MY_NCCL_ALGO=Tree",
                                 "NCCL_DEBUG=TOKEN", /* of the value nobody asks */
                                 "OMPI_MCA_btl=tcp\nself",
                                 "OMPI_MCA_orte_precondition_transports=0123",
                                 "SLURM_CPU_BIND=cores",
                                 "SLURM_CPU_BIND_LIST=0xff",
                                 NULL};
    static const char all[] = "NCCL_ALGO=Ring\nNCCL_DEBUG=TOKEN\nOMPI_MCA_btl=tcp\n"
                              "SLURM_CPU_BIND=cores\nUCX_TLS=rc";
    char *const none[] = {NULL};
    expect_settings(environment, 512, all);
    expect_settings(none, 512, "");
    /* Settings that do not fit are left out, and the text says so. */
    expect_settings(environment, 36, "NCCL_ALGO=Ring\nNCCL_DEBUG=TOKEN...");
    expect_settings(environment, 20, "NCCL_ALGO=Ring...");
}

/* --- files below a root --- */

static void put(const char *root, const char *path, const char *text)
{
    char whole[256];
    (void)snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(whole, 0700); /* it may be there */
        *slash = '/';
    }
    assert_int_equal(sbp_file_write(whole, text, strlen(text), NULL), SBP_OK);
}

static void remove_all(const char *root)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0);
}

static void expect_network(const char *root, double bytes_per_s, const char *name)
{
    char found[64];
    double rate;
    assert_true(sbp_system_network(root, &rate, found, sizeof found) == (bytes_per_s > 0));
    assert_true(rate == bytes_per_s);
    assert_string_equal(found, name);
}

static void test_files(void **state)
{
    (void)state;
    char root[] = "/tmp/sbplan-system-XXXXXX", driver[160];
    assert_non_null(mkdtemp(root));
    sbp_system_driver(root, driver, sizeof driver);
    assert_string_equal(driver, "");
    expect_network(root, 0, "");
    put(root, "sys/class/net/lo/speed", "99999\n");
    put(root, "sys/class/net/eth0/speed", "10000\n");
    put(root, "sys/class/net/eth0/operstate", "up\n");
    put(root, "sys/class/net/eth1/speed", "-1\n");
    put(root, "sys/class/net/eth2/speed", "40000\n");
    put(root, "sys/class/net/eth2/operstate", "down\n");
    expect_network(root, 1.25e9, "eth0");
    /* Adapters before interfaces, be they slower. */
    put(root, "sys/class/infiniband/mlx5_0/ports/1/rate", "8 Gb/sec (1X QDR)\n");
    put(root, "sys/class/infiniband/mlx5_0/fw_ver", "28.36.1010\n");
    expect_network(root, 1e9, "mlx5_0");
    put(root, "sys/class/infiniband/mlx5_1/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    put(root, "sys/class/infiniband/mlx5_2/ports/1/rate", "400\n"); /* of what? */
    expect_network(root, 5e10, "mlx5_1");
    put(root, "sys/module/nvidia/version", "550.54.15\n");
    sbp_system_driver(root, driver, sizeof driver);
    assert_string_equal(driver, "nvidia 550.54.15, mlx5_0 firmware 28.36.1010");
    remove_all(root);
}

static void test_binding(void **state)
{
    (void)state;
    char text[64];
    int own, all;
    sbp_system_binding(text, sizeof text);
    assert_int_equal(sscanf(text, "%d of %d cores a rank", &own, &all), 2);
    assert_in_range(own, 1, all);
}

static void expect_launcher(int ranks, const char *launcher, const char *job)
{
    char text[96];
    sbp_system_launcher(ranks, text, sizeof text);
    assert_string_equal(text, launcher);
    sbp_system_job(text, sizeof text);
    assert_string_equal(text, job);
}

/* Environments as a Slurm 22.05 makes them. */
static void test_launcher(void **state)
{
    (void)state;
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "PMIX_RANK",      "PMI_RANK",
        "SLURM_PROCID",         "SLURM_JOB_ID",   "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS", "SLURM_MPI_TYPE", "SLURM_JOB_PARTITION"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unsetenv(names[i]), 0);
    expect_launcher(4, "", "");
    assert_int_equal(setenv("SLURM_JOB_ID", "12", 1), 0); /* the script of sbatch */
    assert_int_equal(setenv("SLURM_PROCID", "0", 1), 0);
    expect_launcher(4, "", "Slurm 12");
    assert_int_equal(setenv("OMPI_COMM_WORLD_RANK", "0", 1), 0); /* mpirun in it */
    assert_int_equal(setenv("SLURM_JOB_PARTITION", "all", 1), 0);
    expect_launcher(4, "mpirun", "Slurm 12, partition all");
    assert_int_equal(unsetenv("OMPI_COMM_WORLD_RANK"), 0);
    assert_int_equal(setenv("PMIX_RANK", "0", 1), 0); /* a step */
    assert_int_equal(setenv("SLURM_STEP_ID", "3", 1), 0);
    assert_int_equal(setenv("SLURM_STEP_NUM_TASKS", "4", 1), 0);
    assert_int_equal(setenv("SLURM_MPI_TYPE", "pmix", 1), 0);
    expect_launcher(4, "srun --mpi=pmix", "Slurm 12.3, partition all");
    expect_launcher(8, "mpirun", "Slurm 12.3, partition all"); /* whose daemons are a step */
    assert_int_equal(unsetenv("SLURM_MPI_TYPE"), 0);
    expect_launcher(4, "srun", "Slurm 12.3, partition all");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unsetenv(names[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_binding),
        cmocka_unit_test(test_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
