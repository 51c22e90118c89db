/* The threads backend: correct collectives and messages, and no hang whatever goes wrong. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "executor/comm/comm_staged.h"
#include "tests/ranks/comm_checks.h"
#include "tests/support/unit.h"

enum { MAX_RANKS = 8 };

static void expect_ok(enum sbp_status status, const struct sbp_diag *diag)
{
    if (status != SBP_OK)
        fail_msg("%s: %s", sbp_status_name(status), diag->text);
}

static void test_collectives(void **state)
{
    const uint64_t seed = *(const uint64_t *)*state;
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        struct comm_checks checks = {.seed = seed + (uint64_t)ranks, .rounds = 150, .half = true};
        struct sbp_diag diag = {0};
        checks.ordered = true;
        expect_ok(sbp_threads_run(ranks, comm_checks_collectives, &checks, &diag), &diag);
    }
}

static void test_messages(void **state)
{
    const uint64_t seed = *(const uint64_t *)*state;
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        struct comm_checks checks = {.seed = seed + (uint64_t)ranks, .rounds = 20, .polled = true};
        struct sbp_diag diag = {0};
        expect_ok(sbp_threads_run(ranks, comm_checks_messages, &checks, &diag), &diag);
    }
}

/* The same through copies, as of buffers on a device. */
static enum sbp_status staged_checks(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     void *argument, struct sbp_diag *diag)
{
    const struct sbp_endpoint inner = {ops, comm};
    struct sbp_endpoint staged;
    SBP_TRY(sbp_staged_open(&inner, &sbp_device_host_memory, &staged, diag));
    enum sbp_status status = comm_checks_collectives(staged.ops, staged.comm, argument, diag);
    if (status == SBP_OK)
        status = comm_checks_messages(staged.ops, staged.comm, argument, diag);
    sbp_staged_close(&staged);
    return status;
}

static void test_staged(void **state)
{
    const uint64_t seed = *(const uint64_t *)*state;
    for (int ranks = 1; ranks <= 4; ranks += 3) {
        struct comm_checks checks = {.seed = seed, .rounds = 30, .ordered = true, .half = true};
        struct sbp_diag diag = {0};
        expect_ok(sbp_threads_run(ranks, staged_checks, &checks, &diag), &diag);
    }
}

/* Handles grow, repeated groups and one of everybody are groups like any other. */
static enum sbp_status many_groups(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                   void *argument, struct sbp_diag *diag)
{
    enum { GROUPS = 100 };
    const int size = ops->size(comm);
    int ranks[256];
    int handles[GROUPS];
    (void)argument;
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    for (int g = 0; g < GROUPS; g++)
        SBP_TRY(ops->group(comm, ranks, size, g / 2, &handles[g]));
    for (int g = 0; g < GROUPS; g += 33) {
        double sum = 1;
        SBP_TRY(ops->all_reduce(comm, handles[g], &sum, 1, SBP_F64, SBP_SUM));
        if (sum != size)
            return sbp_fail(diag, SBP_E_INTERNAL, "sum is %g, expected %d", sum, size);
    }
    return ops->barrier(comm);
}

static void test_many(void **state)
{
    (void)state;
    struct sbp_diag diag = {0};
    expect_ok(sbp_threads_run(3, many_groups, NULL, &diag), &diag);
    expect_ok(sbp_threads_run(200, many_groups, NULL, &diag), &diag);
}

/* A NaN of any member survives a maximum. */
static enum sbp_status max_of_nan(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                  void *argument, struct sbp_diag *diag)
{
    const int ranks[] = {0, 1, 2};
    const int rank = ops->rank(comm);
    int group;
    (void)argument;
    SBP_TRY(ops->group(comm, ranks, 3, 0, &group));
    float values[3] = {1, 2, 3};
    values[rank] = (float)strtod("nan", NULL);
    SBP_TRY(ops->all_reduce(comm, group, values, 3, SBP_F32, SBP_MAX));
    for (int i = 0; i < 3; i++)
        if (values[i] == values[i])
            return sbp_fail(diag, SBP_E_INTERNAL, "maximum %d is %g, expected nan", i,
                            (double)values[i]);
    return SBP_OK;
}

static void test_nan(void **state)
{
    (void)state;
    struct sbp_diag diag = {0};
    expect_ok(sbp_threads_run(3, max_of_nan, NULL, &diag), &diag);
}

/* Failures ---------------------------------------------------------------------------------- */

enum how { RETURN_ERROR, RETURN_NO, ABORT_AND_RETURN_OK, HOWS };

struct fault {
    int rank, step;
    enum how how;
    char text[64];
    enum sbp_status seen[MAX_RANKS]; /* by the call that failed */
    char reasons[MAX_RANKS][1024];
};

/* The last step is a collective of all, so that nobody ends before the fault. */
enum { STEPS = 11, COUNT = 5000 };

/* Buffers live for one step, so that a member released too early would be seen to free them. */
static enum sbp_status one_step(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int step,
                                int everybody, int pair)
{
    const int rank = ops->rank(comm);
    const int size = ops->size(comm);
    double *buffer = calloc((size_t)COUNT * MAX_RANKS, sizeof *buffer);
    double *other = calloc((size_t)COUNT * MAX_RANKS, sizeof *other);
    enum sbp_status status = SBP_E_MEMORY;
    if (buffer != NULL && other != NULL) {
        switch (step % 5) {
        case 0:
            status = ops->all_reduce(comm, everybody, buffer, COUNT, SBP_F64, SBP_SUM);
            break;
        case 1:
            status = ops->all_gather(comm, pair, buffer, other, COUNT, SBP_F64);
            break;
        case 2:
            status = ops->barrier(comm);
            break;
        case 3:
            status = ops->send(comm, (rank + 1) % size, step, buffer, COUNT);
            if (status == SBP_OK)
                status = ops->receive(comm, (rank + size - 1) % size, step, other, COUNT);
            break;
        default:
            status = ops->all_to_all(comm, everybody, buffer, other, COUNT, SBP_F64);
        }
    }
    free(buffer);
    free(other);
    return status;
}

static enum sbp_status fail_here(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 const struct fault *fault, struct sbp_diag *diag)
{
    if (fault->how == RETURN_NO)
        return sbp_fail(diag, SBP_NO, "%s", fault->text);
    if (fault->how == RETURN_ERROR)
        return sbp_fail(diag, SBP_E_INPUT, "%s", fault->text);
    ops->abort(comm, fault->text);
    return SBP_OK;
}

static enum sbp_status faulty_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                   void *argument, struct sbp_diag *diag)
{
    struct fault *fault = argument;
    const int rank = ops->rank(comm);
    const int size = ops->size(comm);
    int ranks[MAX_RANKS];
    int everybody;
    int pair;
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    enum sbp_status status = ops->group(comm, ranks, size, 0, &everybody);
    if (status == SBP_OK)
        status = ops->group(comm, &ranks[rank / 2 * 2], rank / 2 * 2 + 1 < size ? 2 : 1, 1, &pair);
    for (int step = 0; step < STEPS && status == SBP_OK; step++) {
        if (rank == fault->rank && step == fault->step)
            return fail_here(ops, comm, fault, diag);
        status = one_step(ops, comm, step, everybody, pair);
    }
    fault->seen[rank] = status;
    (void)snprintf(fault->reasons[rank], sizeof fault->reasons[rank], "%s", ops->reason(comm));
    return status;
}

static void run_fault(struct fault *fault, int ranks)
{
    static const enum sbp_status wanted[HOWS] = {SBP_E_INPUT, SBP_NO, SBP_E_BACKEND};
    (void)snprintf(fault->text, sizeof fault->text, "planted at rank %d, step %d", fault->rank,
                   fault->step);
    struct sbp_diag diag = {0};
    const enum sbp_status status = sbp_threads_run(ranks, faulty_rank, fault, &diag);
    assert_int_equal(status, wanted[fault->how]);
    assert_string_equal(diag.text, fault->text);
    for (int r = 0; r < ranks; r++) {
        if (r == fault->rank)
            continue;
        assert_int_equal(fault->seen[r], SBP_E_PEER);
        if (strstr(fault->reasons[r], fault->text) == NULL)
            fail_msg("rank %d: reason '%s', expected '%s'", r, fault->reasons[r], fault->text);
    }
}

static void test_failures(void **state)
{
    struct sbp_random random;
    sbp_random_seed(&random, *(const uint64_t *)*state);
    for (int ranks = 2; ranks <= MAX_RANKS; ranks++)
        for (int step = 0; step < STEPS; step++) {
            struct fault fault = {.step = step};
            fault.rank = (int)sbp_random_below(&random, (uint64_t)ranks);
            fault.how = (enum how)sbp_random_below(&random, HOWS);
            run_fault(&fault, ranks);
        }
}

enum { LONG = 200000 };

struct stop_race {
    int spins;     /* of rank 3 before it ends the run */
    double bad[3]; /* an element of a result that came with OK and is not the sum, 0 if none */
};

static enum sbp_status reduce_ones(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group,
                                   double *bad)
{
    double *buffer = malloc(LONG * sizeof *buffer);
    if (buffer == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < LONG; i++)
        buffer[i] = 1;
    const enum sbp_status status = ops->all_reduce(comm, group, buffer, LONG, SBP_F64, SBP_SUM);
    for (int i = 0; i < LONG && status == SBP_OK; i++)
        *bad = buffer[i] != 3 ? buffer[i] : *bad;
    free(buffer);
    return status;
}

/* Ranks 0 to 2 reduce until rank 3 ends the run, at any moment: a result that came with OK must be
 * whole, which it is not if a member left while others still moved data. */
static enum sbp_status stopped_reduction(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                         void *argument, struct sbp_diag *diag)
{
    static const int ranks[] = {0, 1, 2};
    struct stop_race *race = argument;
    const int rank = ops->rank(comm);
    int group;
    (void)diag;
    if (rank == 3) {
        for (volatile int spin = race->spins; spin > 0; spin--)
            continue;
        return SBP_NO;
    }
    SBP_TRY(ops->group(comm, ranks, 3, 0, &group));
    enum sbp_status status = SBP_OK;
    while (status == SBP_OK)
        status = reduce_ones(ops, comm, group, &race->bad[rank]);
    return status;
}

static void test_stop_while_moving(void **state)
{
    struct sbp_random random;
    sbp_random_seed(&random, *(const uint64_t *)*state);
    for (int repeat = 0; repeat < 40; repeat++) {
        struct sbp_diag diag = {0};
        struct stop_race race = {.spins = (int)sbp_random_below(&random, 5000000)};
        assert_int_equal(sbp_threads_run(4, stopped_reduction, &race, &diag), SBP_NO);
        for (int r = 0; r < 3; r++)
            if (race.bad[r] != 0)
                fail_msg("rank %d: an element is %g, expected 3", r, race.bad[r]);
    }
}

/* Calls that do not match ------------------------------------------------------------------- */

typedef enum sbp_status (*call_f)(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group);

/* Rank 1 of 3 calls `odd`, rank 0 calls `even` in the same group, rank 2 waits in a barrier. */
struct mismatch {
    call_f even, odd;
    enum sbp_status seen[3];
};

static enum sbp_status sum3(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    float x[8] = {0};
    return ops->all_reduce(comm, group, x, 3, SBP_F32, SBP_SUM);
}

static enum sbp_status sum4(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    float x[8] = {0};
    return ops->all_reduce(comm, group, x, 4, SBP_F32, SBP_SUM);
}

static enum sbp_status sum0(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    return ops->all_reduce(comm, group, NULL, 0, SBP_F32, SBP_SUM);
}

static enum sbp_status max3(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    float x[8] = {0};
    return ops->all_reduce(comm, group, x, 3, SBP_F32, SBP_MAX);
}

static enum sbp_status sum3_double(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    double x[8] = {0};
    return ops->all_reduce(comm, group, x, 3, SBP_F64, SBP_SUM);
}

static enum sbp_status gather3(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    float x[8] = {0};
    float y[8] = {0};
    return ops->all_gather(comm, group, y, x, 3, SBP_F32);
}

static enum sbp_status scatter3(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    float x[8] = {0};
    float y[8] = {0};
    return ops->reduce_scatter(comm, group, y, x, 3, SBP_F32);
}

static enum sbp_status exchange3(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    float x[8] = {0};
    float y[8] = {0};
    return ops->all_to_all(comm, group, y, x, 3, SBP_F32);
}

static enum sbp_status from_first(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    float x[8] = {0};
    return ops->broadcast(comm, group, 0, x, 3, SBP_F32);
}

static enum sbp_status from_second(const struct sbp_comm_ops *ops, struct sbp_comm *comm, int group)
{
    float x[8] = {0};
    return ops->broadcast(comm, group, 1, x, 3, SBP_F32);
}

static enum sbp_status mismatched_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                       void *argument, struct sbp_diag *diag)
{
    struct mismatch *mismatch = argument;
    const int rank = ops->rank(comm);
    const int ranks[] = {0, 1};
    int group = 0;
    (void)diag;
    if (rank < 2)
        SBP_TRY(ops->group(comm, ranks, 2, 0, &group));
    enum sbp_status status;
    if (rank == 2)
        status = ops->barrier(comm);
    else
        status = (rank == 0 ? mismatch->even : mismatch->odd)(ops, comm, group);
    mismatch->seen[rank] = status;
    return status;
}

static void test_mismatches(void **state)
{
    static const call_f calls[] = {sum3,    sum4,     sum0,      max3,       sum3_double,
                                   gather3, scatter3, exchange3, from_first, from_second};
    const size_t count = sizeof calls / sizeof *calls;
    (void)state;
    for (size_t a = 0; a < count; a++)
        for (size_t b = 0; b < count; b++) {
            struct mismatch mismatch = {.even = calls[a], .odd = calls[b]};
            struct sbp_diag diag = {0};
            const enum sbp_status status =
                sbp_threads_run(a == b ? 2 : 3, mismatched_rank, &mismatch, &diag);
            if (a == b) {
                expect_ok(status, &diag);
                continue;
            }
            assert_int_equal(status, SBP_E_BACKEND);
            assert_non_null(strstr(diag.text, "do not match"));
            assert_int_equal(mismatch.seen[0], SBP_E_BACKEND);
            assert_int_equal(mismatch.seen[1], SBP_E_BACKEND);
            assert_int_equal(mismatch.seen[2], SBP_E_PEER);
        }
}

/* Runs that cannot go on --------------------------------------------------------------------- */

static enum sbp_status leaves_early(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                    void *argument, struct sbp_diag *diag)
{
    (void)argument;
    (void)diag;
    return ops->rank(comm) == 1 ? SBP_OK : ops->barrier(comm);
}

static enum sbp_status receives_in_circle(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                          void *argument, struct sbp_diag *diag)
{
    char byte;
    (void)argument;
    (void)diag;
    return ops->receive(comm, (ops->rank(comm) + 1) % ops->size(comm), 0, &byte, 1);
}

static enum sbp_status wrong_tag(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    char byte = 0;
    (void)argument;
    (void)diag;
    if (ops->rank(comm) == 0)
        return ops->send(comm, 1, 3, &byte, 1);
    return ops->rank(comm) == 1 ? ops->receive(comm, 0, 4, &byte, 1) : SBP_OK;
}

static enum sbp_status groups_in_other_order(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                             void *argument, struct sbp_diag *diag)
{
    const int forward[] = {0, 1};
    const int backward[] = {1, 0};
    int group;
    (void)argument;
    (void)diag;
    if (ops->rank(comm) > 1)
        return ops->barrier(comm);
    SBP_TRY(ops->group(comm, ops->rank(comm) == 0 ? forward : backward, 2, 0, &group));
    return sum3(ops, comm, group);
}

static enum sbp_status wrong_length(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                    void *argument, struct sbp_diag *diag)
{
    char bytes[8] = {0};
    (void)argument;
    (void)diag;
    if (ops->rank(comm) == 0)
        SBP_TRY(ops->send(comm, 1, 3, bytes, 7));
    if (ops->rank(comm) == 1)
        SBP_TRY(ops->receive(comm, 0, 3, bytes, 8));
    return ops->barrier(comm);
}

static void expect_stuck(sbp_rank_main rank_main, const char *text)
{
    struct sbp_diag diag = {0};
    for (int repeat = 0; repeat < 20; repeat++) {
        diag.text[0] = '\0';
        assert_int_equal(sbp_threads_run(3, rank_main, NULL, &diag), SBP_E_BACKEND);
        if (strstr(diag.text, text) == NULL)
            fail_msg("text '%s', expected '%s' in it", diag.text, text);
    }
}

static void test_stuck(void **state)
{
    (void)state;
    expect_stuck(leaves_early,
                 "rank 0 is in barrier of ranks {0,1,2}; rank 1 has ended; rank 2 is");
    expect_stuck(receives_in_circle, "rank 2 waits for rank 0, tag 0");
    expect_stuck(wrong_tag, "rank 1 waits for rank 0, tag 4");
    expect_stuck(groups_in_other_order, "rank 1 is in all-reduce of ranks {1,0}");
    expect_stuck(wrong_length, "rank 1 expects 8 bytes from rank 0, tag 3; it sent 7");
}

/* Bad arguments ------------------------------------------------------------------------------ */

static enum sbp_status expect_refused(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                      struct sbp_diag *diag, enum sbp_status status, int line)
{
    if (status != SBP_E_BACKEND || ops->reason(comm)[0] == '\0')
        return sbp_fail(diag, SBP_E_INTERNAL, "line %d: %s, expected E_BACKEND and a reason", line,
                        sbp_status_name(status));
    return SBP_OK;
}

#define REFUSED(call) SBP_TRY(expect_refused(ops, comm, diag, (call), __LINE__))

static enum sbp_status bad_arguments(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     void *argument, struct sbp_diag *diag)
{
    const int both[] = {0, 1};
    const int twice[] = {0, 0};
    const int beyond[] = {0, 2};
    const int other[] = {1 - ops->rank(comm)};
    float x[2] = {0};
    int group;
    (void)argument;
    REFUSED(ops->group(comm, twice, 2, 0, &group));
    REFUSED(ops->group(comm, beyond, 2, 0, &group));
    REFUSED(ops->group(comm, other, 1, 0, &group));
    REFUSED(ops->group(comm, both, 0, 0, &group));
    REFUSED(ops->group(comm, both, 3, 0, &group));
    SBP_TRY(ops->group(comm, both, 2, 0, &group));
    REFUSED(ops->all_reduce(comm, group + 1, x, 1, SBP_F32, SBP_SUM));
    REFUSED(ops->all_reduce(comm, -1, x, 1, SBP_F32, SBP_SUM));
    REFUSED(ops->all_reduce(comm, group, x, -1, SBP_F32, SBP_SUM));
    REFUSED(ops->all_reduce(comm, group, x, INT64_MAX / 8, SBP_F32, SBP_SUM));
    REFUSED(ops->all_reduce(comm, group, NULL, 1, SBP_F32, SBP_SUM));
    REFUSED(ops->broadcast(comm, group, 2, x, 1, SBP_F32));
    REFUSED(ops->send(comm, 2, 0, x, 4));
    REFUSED(ops->send(comm, 0, -1, x, 4));
    REFUSED(ops->receive(comm, 0, 0, x, -4));
    return ops->barrier(comm);
}

static void test_arguments(void **state)
{
    (void)state;
    struct sbp_diag diag = {0};
    expect_ok(sbp_threads_run(2, bad_arguments, NULL, &diag), &diag);
    assert_int_equal(sbp_threads_run(0, bad_arguments, NULL, &diag), SBP_E_RANGE);
    assert_int_equal(sbp_threads_run(1025, bad_arguments, NULL, NULL), SBP_E_RANGE);
}

static void test_fingerprints(void **state)
{
    struct sbp_diag diag = {0};
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++)
        expect_ok(sbp_threads_run(ranks, comm_checks_fingerprints, NULL, &diag), &diag);
}

int main(void)
{
    uint64_t seed = comm_checks_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_collectives, &seed),
        cmocka_unit_test_prestate(test_messages, &seed),
        cmocka_unit_test_prestate(test_staged, &seed),
        cmocka_unit_test_prestate(test_many, &seed),
        cmocka_unit_test_prestate(test_nan, &seed),
        cmocka_unit_test_prestate(test_failures, &seed),
        cmocka_unit_test_prestate(test_stop_while_moving, &seed),
        cmocka_unit_test_prestate(test_mismatches, &seed),
        cmocka_unit_test_prestate(test_stuck, &seed),
        cmocka_unit_test_prestate(test_arguments, &seed),
        cmocka_unit_test(test_fingerprints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
