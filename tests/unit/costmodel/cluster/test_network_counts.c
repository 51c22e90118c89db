/* Rank counts that a shipped cluster was not fitted to: alps.json holds curves of 4, 16, 64, 256
 * and 1,024 ranks; those between, and twice the last, are predicted.
 */
#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "costmodel/cluster/cluster.h"
#include "tests/papers/alps_counts.h"
#include "tests/support/unit.h"

#define MOST_OFF 0.2

static void read_alps(struct sbp_cluster *cluster)
{
    const char *root = getenv("SBP_SOURCE_ROOT");
    struct sbp_diag diag = {{0}};
    struct sbp_arena arena = {0}; /* of no table that is used */
    struct sbp_json at;
    struct cJSON *tree;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/configs/clusters/alps.json", root == NULL ? "." : root);
    if (sbp_json_open(path, &tree, &at, &diag) != SBP_OK ||
        sbp_cluster_read(&at, &arena, cluster) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_arena_free(&arena);
    cJSON_Delete(tree);
}

static void test_alps(void **state)
{
    (void)state;
    static struct sbp_cluster cluster;
    read_alps(&cluster);
    for (int i = 0; i < ALPS_COUNTS; i++) {
        const double error = alps_error(&alps_counts[i], &cluster.network);
        print_message("%4d ranks: %5.2f %%, at most %g %%\n", alps_counts[i].ranks, 100 * error,
                      100 * MOST_OFF);
        if (!(error <= MOST_OFF))
            fail_msg("%d ranks: %.3g, at most %g", alps_counts[i].ranks, error, MOST_OFF);
    }
}

/* None of them is one that it was fitted to; curves within a node say nothing of two nodes. */
static void test_alps_not_measured(void **state)
{
    (void)state;
    static struct sbp_cluster cluster;
    read_alps(&cluster);
    for (int i = 0; i < ALPS_COUNTS; i++) {
        const double nodes = (double)alps_counts[i].ranks / ALPS_RANKS_PER_NODE;
        const enum sbp_basis basis =
            sbp_network_price(&cluster.network, SBP_ALL_REDUCE, nodes, ALPS_RANKS_PER_NODE, 1e6)
                .basis;
        assert_int_equal(basis,
                         i == 0 || i == ALPS_COUNTS - 1 ? SBP_BASIS_BEYOND : SBP_BASIS_BETWEEN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alps),
        cmocka_unit_test(test_alps_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
