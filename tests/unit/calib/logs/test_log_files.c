/* Real logs: what an independent reading of each file found (the last eight words of its rows, and
 * what its collector noted of the run), and the files that must be refused. The logs are not part
 * of the sources; the tests are skipped where they are not beside them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/log_world.h"
#include "tests/support/unit.h"

/* A table of a file: its shape, points, and one of them. */
static const struct fact {
    const char *file;
    int number; /* of the table */
    enum sbp_collective kind;
    int nodes, each, points;
    double bytes, time_us;
} facts[] = {
    {"alcf_polaris/polaris_all_gather_n128_r512_nccl_2_18_env5_2024-04-29-18-31-53.txt", 0,
     SBP_ALL_GATHER, 128, 4, 18, 4194304, 7689.2},
    {"alcf_polaris/polaris_all_gather_n2_r8_nccl_2_18_env1_2024-04-29-18-41-24.txt", 0,
     SBP_ALL_GATHER, 2, 4, 24, 524288, 311.7},
    {"alcf_polaris/polaris_all_gather_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt", 0,
     SBP_ALL_GATHER, 2, 4, 24, 524288, 240.7},
    {"alcf_polaris/polaris_all_gather_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt", 0,
     SBP_ALL_GATHER, 8, 4, 22, 1048576, 986.05},
    {"alcf_polaris/polaris_all_reduce_n2_r8_nccl_2_18_env1_2024-04-29-18-41-24.txt", 0,
     SBP_ALL_REDUCE, 2, 4, 29, 65536, 135.5},
    {"alcf_polaris/polaris_all_reduce_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt", 0,
     SBP_ALL_REDUCE, 2, 4, 29, 65536, 82.65},
    {"alcf_polaris/polaris_all_reduce_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt", 0,
     SBP_ALL_REDUCE, 8, 4, 29, 65536, 219.95},
    {"alcf_polaris/polaris_alltoall_n2_r8_nccl_2_18_env1_2024-04-29-18-41-24.txt", 0,
     SBP_ALL_TO_ALL, 2, 4, 26, 262144, 229.5},
    {"alcf_polaris/polaris_alltoall_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt", 0,
     SBP_ALL_TO_ALL, 2, 4, 26, 262144, 123.9},
    {"alcf_polaris/polaris_alltoall_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt", 0,
     SBP_ALL_TO_ALL, 8, 4, 24, 524288, 354.1},
    {"alps_gh200/alps_allreduce_r0004_N001_FI_HMEM_CUDA_USE_GDRCOPY_0_1.13.0_table.txt", 0,
     SBP_ALL_REDUCE, 1, 4, 30, 262144, 11.38},
    {"alps_gh200/alps_allreduce_r0004_N001_NCCL_CROSS_NIC_1_1.13.0_table.txt", 0, SBP_ALL_REDUCE, 1,
     4, 30, 262144, 11.455},
    {"alps_gh200/alps_allreduce_r0016_N004_FI_HMEM_CUDA_USE_GDRCOPY_0_1.13.0_table.txt", 0,
     SBP_ALL_REDUCE, 4, 4, 30, 262144, 396.55},
    {"alps_gh200/alps_allreduce_r0016_N004_NCCL_CROSS_NIC_1_1.13.0_table.txt", 0, SBP_ALL_REDUCE, 4,
     4, 30, 262144, 282.65},
    {"alps_gh200/alps_allreduce_r0064_N016_NCCL_CROSS_NIC_1_1.13.0_table.txt", 0, SBP_ALL_REDUCE,
     16, 4, 30, 262144, 260.3},
    {"alps_gh200/alps_allreduce_r0256_N064_FI_HMEM_CUDA_USE_GDRCOPY_0_1.13.0_table.txt", 0,
     SBP_ALL_REDUCE, 64, 4, 30, 262144, 538.25},
    {"alps_gh200/alps_allreduce_r0256_N064_NCCL_CROSS_NIC_1_1.13.0_table.txt", 0, SBP_ALL_REDUCE,
     64, 4, 30, 262144, 656.5},
    {"alps_gh200/alps_allreduce_r1024_N256_NCCL_CROSS_NIC_1_1.13.0_table.txt", 0, SBP_ALL_REDUCE,
     256, 4, 30, 262144, 774.35},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-001_cnode2-002.txt", 0, SBP_ALL_TO_ALL, 2, 8, 10,
     1073741824, 42714.8},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-001_cnode2-002.txt", 1, SBP_SEND_RECV, 2, 8, 10,
     1073741824, 70928.5},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-006_cnode2-015.txt", 0, SBP_ALL_TO_ALL, 2, 8, 10,
     1073741824, 62190.8},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-006_cnode2-015.txt", 1, SBP_SEND_RECV, 2, 8, 10,
     1073741824, 73707.7},
    {"h100_cluster01/cluster01_N10_G1_r10.txt", 0, SBP_ALL_REDUCE, 10, 1, 10, 1073741824, 39747.7},
    {"h100_cluster01/cluster01_N10_G1_r10.txt", 1, SBP_ALL_GATHER, 10, 1, 10, 1073741760, 20556.2},
    {"h100_cluster01/cluster01_N10_G1_r10.txt", 2, SBP_REDUCE_SCATTER, 10, 1, 10, 1073741760,
     20206.3},
    {"h100_cluster01/cluster01_N10_G1_r10.txt", 3, SBP_ALL_TO_ALL, 10, 1, 10, 1073741760, 21624.7},
    {"h100_cluster01/cluster01_N10_G1_r10.txt", 4, SBP_SEND_RECV, 10, 1, 10, 1073741824, 43154.7},
    {"h100_cluster01/cluster01_N10_G8_r80.txt", 0, SBP_ALL_REDUCE, 10, 8, 10, 1073741824, 6134.15},
    {"h100_cluster01/cluster01_N10_G8_r80.txt", 1, SBP_ALL_GATHER, 10, 8, 10, 1073740800, 4006.57},
    {"h100_cluster01/cluster01_N10_G8_r80.txt", 2, SBP_REDUCE_SCATTER, 10, 8, 10, 1073740800,
     3936.18},
    {"h100_cluster01/cluster01_N10_G8_r80.txt", 3, SBP_ALL_TO_ALL, 10, 8, 10, 1073740800, 21159.9},
    {"h100_cluster01/cluster01_N10_G8_r80.txt", 4, SBP_SEND_RECV, 10, 8, 10, 1073741824, 70501.7},
    {"h100_cluster01/cluster01_N1_G4_r4_cnode3-002.txt", 0, SBP_ALL_REDUCE, 1, 4, 10, 1073741824,
     4531.36},
    {"h100_cluster01/cluster01_N1_G4_r4_cnode3-002.txt", 1, SBP_ALL_GATHER, 1, 4, 10, 1073741824,
     2443.14},
    {"h100_cluster01/cluster01_N1_G4_r4_cnode3-002.txt", 2, SBP_REDUCE_SCATTER, 1, 4, 10,
     1073741824, 2510.43},
    {"h100_cluster01/cluster01_N1_G4_r4_cnode3-002.txt", 3, SBP_ALL_TO_ALL, 1, 4, 10, 1073741824,
     2386.68},
    {"h100_cluster01/cluster01_N1_G4_r4_cnode3-002.txt", 4, SBP_SEND_RECV, 1, 4, 10, 1073741824,
     2974.26},
    {"h100_cluster01/cluster01_N1_G8_r8_cnode3-002.txt", 0, SBP_ALL_REDUCE, 1, 8, 10, 1073741824,
     3999.2},
    {"h100_cluster01/cluster01_N1_G8_r8_cnode3-002.txt", 1, SBP_ALL_GATHER, 1, 8, 10, 1073741824,
     2710.18},
    {"h100_cluster01/cluster01_N1_G8_r8_cnode3-002.txt", 2, SBP_REDUCE_SCATTER, 1, 8, 10,
     1073741824, 2737.93},
    {"h100_cluster01/cluster01_N1_G8_r8_cnode3-002.txt", 3, SBP_ALL_TO_ALL, 1, 8, 10, 1073741824,
     2830},
    {"h100_cluster01/cluster01_N1_G8_r8_cnode3-002.txt", 4, SBP_SEND_RECV, 1, 8, 10, 1073741824,
     2974.51},
    {"h100_cluster01/cluster01_N2_G1_r2_cnode3-002_cnode3-003.txt", 0, SBP_ALL_REDUCE, 2, 1, 5,
     134217728, 3028.44},
    {"h100_cluster01/cluster01_N2_G1_r2_cnode3-002_cnode3-003.txt", 1, SBP_SEND_RECV, 2, 1, 5,
     134217728, 3108.44},
    {"h100_cluster01/cluster01_N2_G8_r16_cnode3-002_cnode3-003.txt", 0, SBP_ALL_TO_ALL, 2, 8, 3,
     8589934592, 87635.7},
    {"h100_cluster01/cluster01_N2_G8_r16_cnode3-002_cnode3-003.txt", 1, SBP_SEND_RECV, 2, 8, 3,
     8589934592, 187260},
    {"issues/nccl-tests_309_gjaion_h100_allreduce_r16.txt", 0, SBP_ALL_REDUCE, 2, 8, 14, 134217728,
     750.95},
    {"issues/nccl-tests_309_gjaion_h100_allreduce_r64.txt", 0, SBP_ALL_REDUCE, 8, 8, 14, 134217728,
     1154.3},
    {"misc/aws_batch_p5_allreduce.txt", 0, SBP_ALL_REDUCE, 1, 8, 32, 524288, 21.065},
    {"misc/aws_p3dn_v100_allreduce_r16_nccl2.4_efa_mixed_log.txt", 0, SBP_ALL_REDUCE, 2, 8, 21,
     8192, 161.05},
    {"misc/coreweave_gb200_allreduce_r72.txt", 0, SBP_ALL_REDUCE, 18, 4, 5, 2147483648, 5531.85},
    {"misc/deepops_v100_roce_allreduce_old_format.txt", 0, SBP_ALL_REDUCE, 2, 8, 29, 131072,
     198.65},
    {"misc/gcp_a3high_allgather_r16.txt", 0, SBP_ALL_GATHER, 2, 8, 10, 33554432, 1168.3},
    {"misc/kestrel_h100_allgather_r64.txt", 0, SBP_ALL_GATHER, 16, 4, 23, 2097152, 1353.2},
    {"misc/kestrel_h100_allreduce_r64.txt", 0, SBP_ALL_REDUCE, 16, 4, 30, 262144, 311.7},
    {"misc/mi300x_allreduce_r8.txt", 0, SBP_ALL_REDUCE, 1, 8, 31, 262144, 17.17},
    {"misc/mi355_alltoall_r8.txt", 0, SBP_ALL_TO_ALL, 1, 8, 21, 131072, 31.57},
    {"misc/oci_oke_a100_allreduce_r16.txt", 0, SBP_ALL_REDUCE, 2, 8, 31, 262144, 66.88},
    {"misc/superbench_a100_r8_all_gather_old_format.txt", 0, SBP_ALL_GATHER, 1, 8, 29, 524288,
     59.44},
    {"misc/superbench_a100_r8_alltoall_old_format.txt", 0, SBP_ALL_TO_ALL, 1, 8, 29, 524288,
     87.955},
    {"osu_other/stackhpc_alaska_ib-gcc9-openmpi4-ucx_osu_allgather.out", 0, SBP_ALL_GATHER, 2, 32,
     21, 65536, 78.37},
    {"osu_other/stackhpc_alaska_ib-gcc9-openmpi4-ucx_osu_allreduce.out", 0, SBP_ALL_REDUCE, 2, 32,
     19, 2048, 20.93},
    {"osu_other/stackhpc_alaska_ib-gcc9-openmpi4-ucx_osu_alltoall.out", 0, SBP_ALL_TO_ALL, 2, 32,
     21, 65536, 186.13},
    {"osu_other/stackhpc_alaska_ib-gcc9-openmpi4-ucx_osu_latency.out", 0, SBP_SEND_RECV, 2, 1, 23,
     2048, 2.39},
    {"osu_other/stackhpc_alaska_roce-gcc9-openmpi4-ucx_osu_allgather.out", 0, SBP_ALL_GATHER, 2, 32,
     21, 65536, 96.72},
    {"osu_other/stackhpc_alaska_roce-gcc9-openmpi4-ucx_osu_allreduce.out", 0, SBP_ALL_REDUCE, 2, 32,
     19, 2048, 28.62},
    {"osu_other/stackhpc_alaska_roce-gcc9-openmpi4-ucx_osu_alltoall.out", 0, SBP_ALL_TO_ALL, 2, 32,
     21, 65536, 353.08},
    {"osu_other/stackhpc_alaska_roce-gcc9-openmpi4-ucx_osu_latency.out", 0, SBP_SEND_RECV, 2, 1, 23,
     2048, 3.72},
};

/* Every refusal of a file: as many of one reason. */
static const struct {
    const char *file;
    enum sbp_log_reason reason;
    int count, line; /* line of the first */
    const char *part;
} refusals[] = {
    {"alps_gh200/alps_allreduce_r0064_N016_FI_HMEM_CUDA_USE_GDRCOPY_0_1.13.0_table.txt",
     SBP_LOG_WRONG_VALUES, 1, 27, "after 67108864 bytes"},
    {"alps_gh200/alps_allreduce_r1024_N256_FI_HMEM_CUDA_USE_GDRCOPY_0_1.13.0_table.txt",
     SBP_LOG_WRONG_VALUES, 1, 21, "after 1048576 bytes"},
    {"broken_samples/cluster00_failures.txt", SBP_LOG_NO_TABLE, 1, 0, "no table"},
    {"broken_samples/polaris_all_gather_n128_r512_nccl_2_18_env1_2024-04-29-18-31-53.txt",
     SBP_LOG_FAILED_RUN, 1, 2, "a port for PMI"},
    {"broken_samples/polaris_all_gather_n128_r512_nccl_2_18_env3_2024-04-29-18-31-53.txt",
     SBP_LOG_FAILED_RUN, 1, 2, "CXI alloc failed"},
    {"broken_samples/sophia_alltoall_n2_r16_nccl_env1_2024-10-15-11-28-16.txt", SBP_LOG_FAILED_RUN,
     1, 21, "unhandled system error"},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-002_cnode2-008.txt", SBP_LOG_FAILED_RUN, 2, 23,
     "network error"},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-003_cnode2-008.txt", SBP_LOG_NO_ROWS, 1, 2,
     "before its first row"},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-005_cnode2-016.txt", SBP_LOG_FAILED_RUN, 2, 23,
     "network error"},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-007_cnode2-016.txt", SBP_LOG_FAILED_RUN, 2, 23,
     "network error"},
    {"h100_cluster00/cluster00_N2_G8_r16_cnode2-008_cnode2-009.txt", SBP_LOG_FAILED_RUN, 2, 23,
     "network error"},
    {"misc/aws_batch_p5_allreduce.txt", SBP_LOG_NODES_UNKNOWN, 1, 3, "8 ranks"},
    {"osu_other/kestrel_osu_allreduce.txt", SBP_LOG_RANKS_UNKNOWN, 1, 2, "--ranks-per-node"},
    {"osu_other/kestrel_osu_alltoall.txt", SBP_LOG_RANKS_UNKNOWN, 1, 2, "--ranks-per-node"},
    {"osu_other/kestrel_osu_latency.txt", SBP_LOG_NODES_UNKNOWN, 1, 2, "2 ranks"},
    {"osu_other/kestrel_osu_mbw_mr.txt", SBP_LOG_NOT_PRICED, 1, 2, "windows"},
    {"osu_other/stackhpc_alaska_ib-gcc9-openmpi4-ucx_osu_bw.out", SBP_LOG_NOT_PRICED, 1, 2,
     "windows"},
    {"osu_other/stackhpc_alaska_roce-gcc9-openmpi4-ucx_osu_bw.out", SBP_LOG_NOT_PRICED, 1, 2,
     "windows"},
    {"pico_periter/lumi_allreduce_p16_134217728_default_mpich_int32.csv", SBP_LOG_NO_TABLE, 1, 0,
     "no table"},
    {"pico_periter/lumi_allreduce_p16_8_default_mpich_int32.csv", SBP_LOG_NO_TABLE, 1, 0,
     "no table"},
};

#define FACTS    (sizeof facts / sizeof *facts)
#define REFUSALS (sizeof refusals / sizeof *refusals)

static void path_of(const char *file, char *path, size_t size)
{
    const char *root = getenv("SBP_SOURCE_ROOT");
    (void)snprintf(path, size, "%s/../shared/data/logs/%s", root == NULL ? "." : root, file);
}

/* Skips the test where the logs are not. */
static void need_logs(void)
{
    char path[1024];
    struct stat found;
    path_of("", path, sizeof path);
    if (stat(path, &found) != 0) {
        print_message("skipped: %s is not there\n", path);
        skip();
    }
}

static void read_files(const char *const *file, int count, const struct sbp_log_options *options,
                       struct sbp_logs *logs, struct sbp_measured *measured)
{
    static const struct sbp_log_options none = {0};
    char paths[16][1024];
    const char *path[16];
    struct sbp_diag diag = {{0}};
    assert_true(count <= 16);
    for (int i = 0; i < count; i++) {
        path_of(file[i], paths[i], sizeof paths[i]);
        path[i] = paths[i];
    }
    if (sbp_logs_read(path, count, options == NULL ? &none : options, logs, measured, &diag) !=
        SBP_OK)
        fail_msg("%s", diag.text);
}

/* No file has tables beyond those of the facts, and none of these is refused. */
static void test_facts(void **state)
{
    (void)state;
    need_logs();
    for (size_t f = 0; f < FACTS; f++) {
        const struct fact *fact = &facts[f];
        const bool is_unsaid = strstr(fact->file, "aws_batch_p5") != NULL;
        const struct sbp_log_options options = {.nodes = is_unsaid ? 1 : 0};
        struct sbp_logs logs;
        struct sbp_measured measured;
        bool is_found = false;
        int known = 0;
        for (size_t g = 0; g < FACTS; g++)
            known += strcmp(facts[g].file, fact->file) == 0;
        read_files(&fact->file, 1, &options, &logs, &measured);
        assert_int_equal(logs.table_count, known);
        assert_int_equal(measured.source_count, known);
        assert_null(log_world_note(&logs, SBP_LOG_BROKEN_ROW));
        assert_null(log_world_note(&logs, SBP_LOG_SHORTENED));
        assert_null(log_world_note(&logs, SBP_LOG_CUT_OFF));
        assert_null(log_world_note(&logs, SBP_LOG_NAME_GUESSED));
        const struct sbp_log_table *table = &logs.table[fact->number];
        if (table->is_refused || table->kind != fact->kind || table->nodes != fact->nodes ||
            table->ranks_per_node != fact->each || table->kept != fact->points)
            fail_msg("%s, table %d: %s of %d x %d, %d points", fact->file, fact->number,
                     sbp_collective_name(table->kind), table->nodes, table->ranks_per_node,
                     table->kept);
        for (int i = 0; i < table->kept; i++)
            is_found = is_found || (table->point[i].bytes == fact->bytes &&
                                    fabs(table->point[i].time_s * 1e6 / fact->time_us - 1) < 1e-5);
        if (!is_found)
            fail_msg("%s: no %.0f bytes in %g us", fact->file, fact->bytes, fact->time_us);
        log_world_free(&logs, &measured);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    need_logs();
    for (size_t r = 0; r < REFUSALS; r++) {
        struct sbp_logs logs;
        struct sbp_measured measured;
        int count = 0;
        read_files(&refusals[r].file, 1, NULL, &logs, &measured);
        for (int n = 0; n < logs.note_count; n++) {
            const struct sbp_log_note *note = &logs.note[n];
            if (sbp_log_reasons[note->reason].effect != SBP_LOG_REFUSED)
                continue;
            if (count >= refusals[r].count || note->reason != refusals[r].reason ||
                strstr(note->text, refusals[r].part) == NULL ||
                (count == 0 && note->line != refusals[r].line))
                fail_msg("%s: line %d: %s", refusals[r].file, note->line, note->text);
            count++;
        }
        assert_int_equal(count, refusals[r].count);
        assert_int_equal(measured.count, 0);
        log_world_free(&logs, &measured);
    }
}

/* Runs over TCP beside those over the fabric: by what is noted of them, and by their times alone.
 */
static void test_twins(void **state)
{
    (void)state;
    need_logs();
    static const char *const names[] = {"all_gather", "all_reduce", "alltoall"};
    struct sbp_logs logs;
    struct sbp_measured measured;
    for (int i = 0; i < 3; i++) {
        char file[2][128];
        const char *const pair[] = {file[0], file[1]};
        for (int e = 0; e < 2; e++)
            (void)snprintf(file[e], sizeof file[e],
                           "alcf_polaris/polaris_%s_n2_r8_nccl_2_18_env%d_2024-04-29-18-41-24.txt",
                           names[i], e == 0 ? 1 : 5);
        read_files(pair, 2, NULL, &logs, &measured);
        assert_true(logs.table[0].is_refused);
        assert_false(logs.table[1].is_refused);
        assert_non_null(log_world_note(&logs, SBP_LOG_SOCKET_TWIN));
        assert_int_equal(measured.source_count, 1);
        assert_string_equal(measured.source[0].network, "OFI");
        log_world_free(&logs, &measured);
        read_files(pair, 1, NULL, &logs, &measured); /* alone it is told */
        assert_non_null(log_world_note(&logs, SBP_LOG_SOCKETS));
        assert_int_equal(measured.source_count, 1);
        log_world_free(&logs, &measured);
    }
    static const char *const fabrics[] = {
        "osu_other/stackhpc_alaska_roce-gcc9-openmpi4-ucx_osu_latency.out",
        "osu_other/stackhpc_alaska_ib-gcc9-openmpi4-ucx_osu_latency.out"};
    read_files(fabrics, 2, NULL, &logs, &measured);
    assert_true(logs.table[0].is_refused);
    assert_non_null(log_world_note(&logs, SBP_LOG_SLOW_TWIN));
    log_world_free(&logs, &measured);
    static const char *const pairs[] = {
        "h100_cluster00/cluster00_N2_G8_r16_cnode2-001_cnode2-002.txt",
        "h100_cluster00/cluster00_N2_G8_r16_cnode2-006_cnode2-015.txt"};
    read_files(pairs, 2, NULL, &logs, &measured); /* a slow link */
    const struct sbp_log_note *note = log_world_note(&logs, SBP_LOG_SLOWER);
    assert_non_null(note);
    assert_int_equal(note->file, 1);
    assert_int_equal(measured.source_count, 4);
    log_world_free(&logs, &measured);
}

static void test_collector_files(void **state)
{
    (void)state;
    need_logs();
    static const struct {
        const char *file;
        double bytes, time_us; /* of the first row */
    } files[] = {{"aiconfigurator_csv/a100_sxm_nccl_2.27.3.csv", 512, 8.98},
                 {"aiconfigurator_csv/h100_sxm_nccl_2.29.2.csv", 512, 5.31},
                 {"aiconfigurator_csv/l40s_nccl_2.27.3.csv", 512, 5.3}};
    for (int f = 0; f < 3; f++) {
        struct sbp_logs logs;
        struct sbp_measured measured;
        read_files(&files[f].file, 1, NULL, &logs, &measured);
        assert_int_equal(logs.table_count, 24); /* 4 operations, 3 numbers of devices, 2 types */
        assert_int_equal(measured.count, 504);
        assert_true(measured.point[0].bytes == files[f].bytes);
        assert_true(fabs(measured.point[0].time_s * 1e6 - files[f].time_us) < 1e-6);
        log_world_free(&logs, &measured);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_collector_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
