/* Collectives beside products: of a made-up machine what a collective adds to products comes back,
 * and a CPU rank does both at the same time. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "calib/measure/perform.h"
#include "tests/support/unit.h"

#define COLLECTIVE_S 3e-3
#define PRODUCT_S    1e-3
#define ADDED_SHARE  0.3
#define GROUP        5
#define MOST_BYTES   4096

/* --- a made-up machine of one rank's view --- */

struct sbp_comm {
    int reduced, gathered, scattered, barriers;
    bool in_stream; /* where work goes now */
};
static struct sbp_comm comm;

static int rank_of(const struct sbp_comm *of)
{
    (void)of;
    return 0;
}

static enum sbp_status make_group(struct sbp_comm *of, const int *ranks, int count, int key,
                                  int *group)
{
    (void)of;
    (void)ranks;
    (void)key;
    assert_int_equal(count, 2);
    *group = GROUP;
    return SBP_OK;
}

static enum sbp_status reduce(struct sbp_comm *of, int group, void *buffer, int64_t count,
                              enum sbp_real real, enum sbp_comm_reduction reduction)
{
    assert_true(buffer != NULL && real == SBP_F32 && reduction == SBP_SUM && of->in_stream);
    assert_int_equal(group, GROUP);
    assert_int_equal(count, MOST_BYTES / 4 / 4);
    of->reduced++;
    return SBP_OK;
}

static enum sbp_status gather(struct sbp_comm *of, int group, void *receive, const void *send,
                              int64_t count, enum sbp_real real)
{
    assert_true(receive != NULL && send != NULL && real == SBP_F32 && of->in_stream);
    assert_int_equal(group, GROUP);
    assert_int_equal(count, MOST_BYTES / 4 / 4 / 2);
    of->gathered++;
    return SBP_OK;
}

static enum sbp_status scatter(struct sbp_comm *of, int group, void *receive, const void *send,
                               int64_t count, enum sbp_real real)
{
    (void)gather(of, group, receive, send, count, real);
    of->gathered--;
    of->scattered++;
    return SBP_OK;
}

static enum sbp_status barrier(struct sbp_comm *of)
{
    of->barriers++;
    return SBP_OK;
}

static void work_on(struct sbp_comm *of, void *stream)
{
    of->in_stream = stream != NULL;
}

static void *allocate(int64_t bytes)
{
    return calloc(1, (size_t)bytes);
}

static const struct sbp_memory_ops memory = {.allocate = allocate, .release = free};
static const struct sbp_comm_ops ops = {.name = "made up",
                                        .memory = &memory,
                                        .rank = rank_of,
                                        .group = make_group,
                                        .all_reduce = reduce,
                                        .all_gather = gather,
                                        .reduce_scatter = scatter,
                                        .barrier = barrier,
                                        .work_on = work_on};

/* The most products that were asked for beside a collective. */
static int most_products;

static enum sbp_status open_none(struct sbp_compute **compute, int64_t copy_bytes,
                                 struct sbp_diag *diag)
{
    (void)copy_bytes;
    (void)diag;
    *compute = NULL;
    return SBP_OK;
}

static void close_none(struct sbp_compute *compute)
{
    (void)compute;
}

static enum sbp_status together(struct sbp_compute *compute, const struct sbp_cell *cell,
                                int products, const struct sbp_beside *beside, double *time_s,
                                struct sbp_diag *diag)
{
    static int stream;
    (void)compute;
    *time_s = products * PRODUCT_S;
    assert_true(products == 0 || (cell->m > 0 && cell->n > 0 && cell->k > 0));
    if (beside == NULL)
        return SBP_OK;
    *time_s = products == 0                         ? COLLECTIVE_S
              : products * PRODUCT_S > COLLECTIVE_S ? *time_s + ADDED_SHARE * COLLECTIVE_S
                                                    : COLLECTIVE_S;
    most_products = products > most_products ? products : most_products;
    return beside->call(beside->context, &stream, diag);
}

static void test_what_is_added_comes_back(void **state)
{
    (void)state;
    static const struct sbp_compute_ops compute = {
        .products = SBP_PRODUCTS_CPU, .open = open_none, .close = close_none, .beside = together};
    const struct sbp_sweep_options options = {1, 2, MOST_BYTES, 1, SBP_PRODUCTS_CPU, 0, 0, 0};
    int node[] = {0, 0}, local[] = {0, 1};
    const struct sbp_rank_placement placement = {
        .ranks = 2, .nodes = 1, .least_ranks = 2, .most_ranks = 2, .node = node, .local = local};
    struct sbp_sample_sweep sweep;
    struct sbp_performer performer;
    int alone = 0, beside = 0;
    assert_int_equal(sbp_sweep_init(&sweep, &options, NULL), SBP_OK);
    assert_int_equal(sbp_perform_open(&performer, (struct sbp_endpoint){&ops, &comm}, &compute,
                                      &placement, &sweep, NULL),
                     SBP_OK);
    for (int i = 0; i < sweep.count; i++) {
        const struct sbp_cell *cell = &sweep.cell[i];
        double time_s;
        if (cell->work != SBP_CELL_BESIDE)
            continue;
        performer.cell = cell;
        assert_int_equal(sbp_perform(&performer, &time_s, NULL), SBP_OK);
        assert_false(comm.in_stream); /* other calls of the rank are not the lane's */
        if (sbp_cell_is_alone(cell))
            assert_true(time_s == COLLECTIVE_S);
        else
            assert_true(fabs(time_s - ADDED_SHARE * COLLECTIVE_S) < 1e-12);
        (sbp_cell_is_alone(cell) ? alone++ : beside++);
    }
    assert_true(alone == 3 && beside == 3 && comm.barriers == 3);
    /* Each alone once; to count the products that outlast it twice, then beside them. */
    assert_true(comm.reduced == 4 && comm.gathered == 4 && comm.scattered == 4);
    assert_int_equal(most_products, 5);
    sbp_perform_close(&performer);
    sbp_sweep_free(&sweep);
}

/* --- a CPU rank --- */

#define NAP_S 0.2

static pthread_t caller;
static double nap_s;  /* that the last one took */
static bool is_apart; /* every call had another thread than products, and no stream */

static enum sbp_status nap(void *context, void *stream, struct sbp_diag *diag)
{
    const struct timespec pause = {.tv_nsec = (long)(1e9 * NAP_S)};
    (void)diag;
    is_apart = is_apart && stream == NULL && !pthread_equal(pthread_self(), caller);
    const double start_s = sbp_clock_s();
    (void)nanosleep(&pause, NULL);
    nap_s = sbp_clock_s() - start_s;
    return *(enum sbp_status *)context;
}

/* The core's time of products. */
static double core_s(struct sbp_compute *compute, const struct sbp_cell *cell, int products,
                     const struct sbp_beside *beside, double *time_s)
{
    const double before_s = sbp_thread_cpu_s();
    assert_int_equal(sbp_compute_cpu.beside(compute, cell, products, beside, time_s, NULL), SBP_OK);
    return sbp_thread_cpu_s() - before_s;
}

/* A call that sleeps takes no core from products. Behind each other both take the call's time and
 * the core's time of products at least, however busy the machine is. */
static void test_cpu_does_both_at_once(void **state)
{
    (void)state;
    const struct sbp_cell cell = {.work = SBP_CELL_BESIDE, .m = 256, .n = 256, .k = 256};
    struct sbp_compute *compute;
    enum sbp_status status = SBP_OK;
    const struct sbp_beside beside = {.call = nap, .context = &status};
    double both_s = 1, behind_s = 0;
    caller = pthread_self();
    is_apart = true;
    assert_int_equal(sbp_compute_cpu.open(&compute, 1 << 20, NULL), SBP_OK);
    const double product_s = core_s(compute, &cell, 20, NULL, &both_s) / 20;
    const int products = 1 + (int)(NAP_S / 8 / product_s);
    for (int i = 0; i < 20 && both_s >= behind_s; i++) {
        const double products_s = core_s(compute, &cell, products, &beside, &both_s);
        behind_s = nap_s + products_s / 2;
    }
    print_message("a nap of %.3f s and products take %.3f s\n", nap_s, both_s);
    assert_true(both_s < behind_s);
    double time_s;
    assert_int_equal(sbp_compute_cpu.beside(compute, &cell, 0, &beside, &time_s, NULL), SBP_OK);
    assert_true(time_s >= NAP_S);
    status = SBP_E_PEER;
    assert_int_equal(sbp_compute_cpu.beside(compute, &cell, 1, &beside, &time_s, NULL), SBP_E_PEER);
    assert_true(is_apart);
    sbp_compute_cpu.close(compute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_added_comes_back),
                                       cmocka_unit_test(test_cpu_does_both_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
