/* Fits of real logs, held to what planning needs: sizes and groups that were not shown are met,
 * pairs are put in order. The logs are not part of the sources; the tests are skipped where they
 * are not beside them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/stats.h"
#include "base/text.h"
#include "calib/log.h"
#include "calib/network_fit.h"

#define PATH_BYTES 1024
#define MOST_FILES 8

struct machine {
    const char *name;
    double most_mis_ordered;
    const char *file[MOST_FILES];
};

static const char alps[] = "alps_gh200/alps_allreduce_r";

static const struct machine machines[] = {
    {"Polaris",
     0.03,
     {"alcf_polaris/polaris_all_gather_n128_r512_nccl_2_18_env5_2024-04-29-18-31-53.txt",
      "alcf_polaris/polaris_all_gather_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt",
      "alcf_polaris/polaris_all_gather_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt",
      "alcf_polaris/polaris_all_reduce_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt",
      "alcf_polaris/polaris_all_reduce_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt",
      "alcf_polaris/polaris_alltoall_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt",
      "alcf_polaris/polaris_alltoall_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt"}},
    {"Alps",
     0.03,
     {"alps_gh200/alps_allreduce_r0004_N001_NCCL_CROSS_NIC_1_1.13.0_table.txt",
      "alps_gh200/alps_allreduce_r0016_N004_NCCL_CROSS_NIC_1_1.13.0_table.txt",
      "alps_gh200/alps_allreduce_r0064_N016_NCCL_CROSS_NIC_1_1.13.0_table.txt",
      "alps_gh200/alps_allreduce_r0256_N064_NCCL_CROSS_NIC_1_1.13.0_table.txt",
      "alps_gh200/alps_allreduce_r1024_N256_NCCL_CROSS_NIC_1_1.13.0_table.txt"}},
    {"H100 and InfiniBand",
     0.03,
     {"h100_cluster01/cluster01_N10_G1_r10.txt", "h100_cluster01/cluster01_N10_G8_r80.txt",
      "h100_cluster01/cluster01_N1_G4_r4_cnode3-002.txt",
      "h100_cluster01/cluster01_N1_G8_r8_cnode3-002.txt"}},
    {"A100", 0.03, {"aiconfigurator_csv/a100_sxm_nccl_2.27.3.csv"}},
    {"H100", 0.03, {"aiconfigurator_csv/h100_sxm_nccl_2.29.2.csv"}},
    {"L40S", 0.03, {"aiconfigurator_csv/l40s_nccl_2.27.3.csv"}},
    {"Kestrel",
     0.03,
     {"misc/kestrel_h100_allreduce_r64.txt", "misc/kestrel_h100_allgather_r64.txt"}},
    /* Up to 512 B it takes 23 us, then 14 us: no curve that rises puts these in order. */
    {"MI300X", 0.12, {"misc/mi300x_allreduce_r8.txt"}},
    {"OCI A100", 0.03, {"misc/oci_oke_a100_allreduce_r16.txt"}},
};

static void path_of(const char *file, char path[PATH_BYTES])
{
    const char *root = getenv("SBP_SOURCE_ROOT");
    (void)snprintf(path, PATH_BYTES, "%s/../shared/data/logs/%s", root == NULL ? "." : root, file);
}

static void need_logs(void)
{
    char path[PATH_BYTES];
    struct stat status;
    path_of("MANIFEST.tsv", path);
    if (stat(path, &status) == 0)
        return;
    print_message("skipped: no logs at %s\n", path);
    skip();
}

static void read_logs(const char *const *file, struct sbp_measured *measured)
{
    char path[MOST_FILES][PATH_BYTES];
    const char *paths[MOST_FILES];
    const struct sbp_log_options said = {0};
    struct sbp_diag diag = {0};
    struct sbp_logs logs;
    int count = 0;
    for (; count < MOST_FILES && file[count] != NULL; count++) {
        path_of(file[count], path[count]);
        paths[count] = path[count];
    }
    if (sbp_logs_read(paths, count, &said, &logs, measured, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_logs_free(&logs);
}

static void fit_logs(const char *const *file, bool is_paper, struct sbp_network_fit *fit)
{
    struct sbp_measured measured;
    struct sbp_diag diag = {0};
    const struct sbp_network_options options = {.is_paper = is_paper};
    read_logs(file, &measured);
    if (sbp_network_fit(&measured, &options, fit, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_measured_free(&measured);
}

static void below(double value, double limit, const char *machine, const char *what)
{
    print_message("%-20s %-34s %6.2f %%, at most %g %%\n", machine, what, 100 * value, 100 * limit);
    if (!(value <= limit))
        fail_msg("%s: %s is %.3g, at most %g", machine, what, value, limit);
}

/* An unweighted line misses held-out sizes of such logs by 40 % in the median, a weighted one by
 * 13 %, straight lines between all points by 5 %. Runs of some machines scatter more than others.
 */
static void test_held_out(void **state)
{
    (void)state;
    static struct sbp_network_fit fit;
    double medians[sizeof machines / sizeof *machines];
    need_logs();
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        fit_logs(machines[m].file, false, &fit);
        medians[m] = fit.quality.held_out_sizes.median;
        below(medians[m], 0.1, machines[m].name, "held-out sizes");
        below(fit.quality.held_out_sizes.mis_ordered, machines[m].most_mis_ordered,
              machines[m].name, "mis-ordered held-out sizes");
        below(fit.quality.in_sample.mis_ordered, machines[m].most_mis_ordered, machines[m].name,
              "mis-ordered");
        sbp_network_fit_free(&fit);
    }
    below(sbp_median(medians, (int)(sizeof machines / sizeof *machines)), 0.05, "all machines",
          "held-out sizes");
}

/* The paper's own fit does much worse on the same points. */
static void test_paper(void **state)
{
    (void)state;
    static struct sbp_network_fit fit;
    need_logs();
    fit_logs(machines[0].file, true, &fit);
    assert_true(fit.quality.in_sample.mis_ordered > 0.1);
    assert_true(fit.quality.in_sample.median > 0.3);
    sbp_network_fit_free(&fit);
}

/* Median error on one log, of a fit that was not shown its group. */
static double error_on(const struct sbp_network_fit *fit, const char *file)
{
    const char *const files[] = {file, NULL};
    struct sbp_measured measured;
    double off[256];
    int count = 0;
    read_logs(files, &measured);
    assert_in_range(measured.count, 1, 256);
    for (int i = 0; i < measured.count; i++) {
        const struct sbp_measured_point *p = &measured.point[i];
        off[count++] = fabs(
            sbp_network_fit_s(fit, p->kind, p->nodes, p->ranks_per_node, p->bytes) / p->time_s - 1);
    }
    sbp_measured_free(&measured);
    return sbp_median(off, count);
}

/* Each of the inner groups from those around it, sixteen times apart, and the largest from those up
 * to a quarter of it. */
static void test_alps(void **state)
{
    (void)state;
    static struct sbp_network_fit fit;
    need_logs();
    for (int left_out = 1; left_out < 5; left_out++) {
        const char *files[MOST_FILES] = {NULL};
        int count = 0;
        for (int i = 0; i < 5; i++)
            if (i != left_out)
                files[count++] = machines[1].file[i];
        fit_logs(files, false, &fit);
        below(error_on(&fit, machines[1].file[left_out]), 0.25, "Alps",
              machines[1].file[left_out] + sizeof alps - 1);
        sbp_network_fit_free(&fit);
    }
}

/* nccl-tests, issue 309: 467 GB/s of two nodes, 321 of eight. With both, the eight-node bandwidth
 * is its own; with the two nodes alone, it is not theirs, and the price says what it rests on. */
static void test_two_nodes(void **state)
{
    (void)state;
    static const char *const both[] = {"issues/nccl-tests_309_gjaion_h100_allreduce_r16.txt",
                                       "issues/nccl-tests_309_gjaion_h100_allreduce_r64.txt", NULL};
    static const char *const two[] = {"issues/nccl-tests_309_gjaion_h100_allreduce_r16.txt", NULL};
    static struct sbp_network_fit fit;
    need_logs();
    fit_logs(both, false, &fit);
    below(error_on(&fit, both[1]), 0.05, "issue 309", "eight nodes");
    const double bytes = 8e9;
    const double eight_s = sbp_network_fit_s(&fit, SBP_ALL_REDUCE, 8, 8, bytes);
    const double four_s = sbp_network_fit_s(&fit, SBP_ALL_REDUCE, 4, 8, bytes);
    assert_true(fabs(four_s / eight_s * (63.0 / 64) / (31.0 / 32) - 1) < 0.05);
    sbp_network_fit_free(&fit);
    fit_logs(two, false, &fit);
    const struct sbp_network_price price =
        sbp_network_price(&fit.network, SBP_ALL_REDUCE, 8, 8, bytes);
    assert_int_equal(price.basis, SBP_BASIS_TWO_NODES);
    below(fabs(price.seconds / eight_s - 1), 0.35, "issue 309", "eight nodes from two");
    assert_true(price.seconds > 1.3 * sbp_network_fit_s(&fit, SBP_ALL_REDUCE, 2, 8, bytes));
    sbp_network_fit_free(&fit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_alps),
        cmocka_unit_test(test_two_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
