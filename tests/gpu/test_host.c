/* The host that kernels run on: what it says of planted mistakes, and that it says nothing of sound
 * kernels. Usage: test_host PLANTED_SOURCE */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/host.h"
#include "tests/gpu/planted.h"
#include "tests/support/unit.h"

enum { N = 128, SEEDS = 20, BLOCKS = 6 };

static const char *source;
static int order[BLOCKS], noted;

void sbp_planted_note(int block)
{
    order[noted++] = block;
}

struct call {
    enum planted what;
    float to[N], from[N];
};

static void run(void *of)
{
    struct call *call = of;
    sbp_planted_run(call->what, call->to, call->from);
}

static const char *fault_of(struct call *call, enum planted what, uint64_t seed)
{
    call->what = what;
    for (int i = 0; i < N; i++)
        call->from[i] = (float)i;
    sbp_gpu_host_seed(seed);
    return sbp_gpu_host_try(run, call);
}

/* "planted.cu:LINE" of the line that ends in a comment of these words. */
static void place_of(const char *words, char *place, size_t size)
{
    char line[200];
    int number = 0, found = 0;
    FILE *file = fopen(source, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        number++;
        if (strstr(line, words) != NULL) {
            snprintf(place, size, "planted.cu:%d", number);
            found++;
        }
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(found, 1);
}

static void expect_text(const char *fault, const char *what)
{
    if (fault == NULL)
        fail_msg("nothing was found, expected: %s", what);
    else if (strstr(fault, what) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", fault, what);
}

static void expect_place(const char *fault, const char *words)
{
    char place[64];
    place_of(words, place, sizeof place);
    expect_text(fault, place);
}

static void sound_kernels_pass(void **state)
{
    (void)state;
    static struct call call;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        assert_null(fault_of(&call, PLANTED_NOTHING, seed));
        for (int i = 0; i < N; i++)
            assert_true(call.to[i] == 127.0F * 64 + 127);
        assert_null(fault_of(&call, PLANTED_SYNCWARP, seed));
        for (int i = 0; i < N; i++)
            assert_true(call.to[i] == (float)(i ^ 1));
    }
}

/* Whatever the order in which warps ran. */
static void races_are_named(void **state)
{
    (void)state;
    static struct call call;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const char *fault = fault_of(&call, PLANTED_NO_BARRIER, seed);
        expect_text(fault, "a race");
        expect_place(fault, "PLANTED_NO_BARRIER first");
        expect_place(fault, "PLANTED_NO_BARRIER second");
        expect_place(fault_of(&call, PLANTED_WRITES, seed), "PLANTED_WRITES first");
        fault = fault_of(&call, PLANTED_WRITE_AFTER_READ, seed);
        expect_place(fault, "PLANTED_WRITE_AFTER_READ first");
        expect_place(fault, "PLANTED_WRITE_AFTER_READ second");
        fault = fault_of(&call, PLANTED_NO_SYNCWARP, seed);
        expect_place(fault, "PLANTED_NO_SYNCWARP first");
        expect_place(fault, "PLANTED_NO_SYNCWARP second");
        fault = fault_of(&call, PLANTED_BLOCKS, seed);
        expect_text(fault, "of another block writes");
        expect_place(fault, "PLANTED_BLOCKS first");
    }
}

static void divergent_meetings_are_named(void **state)
{
    (void)state;
    static struct call call;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const char *fault = fault_of(&call, PLANTED_DIVERGENT_BARRIER, seed);
        expect_text(fault, "has ended");
        expect_place(fault, "PLANTED_DIVERGENT_BARRIER first");
        fault = fault_of(&call, PLANTED_DIVERGENT_SHUFFLE, seed);
        expect_text(fault, "threads meet at different places");
        expect_place(fault, "PLANTED_DIVERGENT_SHUFFLE first");
        expect_place(fault, "PLANTED_DIVERGENT_SHUFFLE second");
        fault = fault_of(&call, PLANTED_TWO_BARRIERS, seed);
        expect_place(fault, "PLANTED_TWO_BARRIERS first");
        expect_place(fault, "PLANTED_TWO_BARRIERS second");
        fault = fault_of(&call, PLANTED_EARLY_END, seed);
        expect_text(fault, "thread 5 has ended");
        expect_text(fault, "reduce.cuh:");
        expect_place(fault_of(&call, PLANTED_SOME_LANES, seed), "PLANTED_SOME_LANES first");
    }
}

static void shared_memory_is_bounded(void **state)
{
    (void)state;
    static struct call call;
    const char *fault = fault_of(&call, PLANTED_BEYOND_SHARED, 1);
    expect_text(fault, "thread 127 goes beyond shared memory");
    expect_place(fault, "PLANTED_BEYOND_SHARED first");
}

/* As a GPU refuses them. */
static void unaligned_chunks_are_named(void **state)
{
    (void)state;
    static struct call call;
    const char *fault = fault_of(&call, PLANTED_UNALIGNED, 1);
    expect_text(fault, "takes 16 bytes that are not aligned");
    expect_place(fault, "PLANTED_UNALIGNED first");
}

/* Also after a block that left numbers there. */
static void shared_memory_begins_poisoned(void **state)
{
    (void)state;
    static struct call call;
    assert_null(fault_of(&call, PLANTED_SYNCWARP, 1));
    assert_null(fault_of(&call, PLANTED_UNSET, 1));
    for (int i = 0; i < N; i++)
        assert_true(isnan(call.to[i]));
}

/* CUDA refuses such a launch. */
static void empty_grids_are_named(void **state)
{
    (void)state;
    static struct call call;
    expect_text(fault_of(&call, PLANTED_NO_BLOCKS_X, 1), "no blocks");
    expect_text(fault_of(&call, PLANTED_NO_BLOCKS_Y, 1), "no blocks");
    expect_text(fault_of(&call, PLANTED_NO_BLOCKS_Z, 1), "no blocks");
}

static void orders_come_from_the_seed(void **state)
{
    (void)state;
    static struct call call;
    int first[BLOCKS], same = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        noted = 0;
        assert_null(fault_of(&call, PLANTED_ORDER, seed / 2));
        assert_int_equal(noted, BLOCKS);
        if (seed % 2 == 1) /* the seed of the run before */
            assert_memory_equal(first, order, sizeof order);
        else if (seed > 0)
            same += memcmp(first, order, sizeof order) == 0;
        memcpy(first, order, sizeof order);
    }
    assert_true(same < SEEDS / 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_kernels_pass),
        cmocka_unit_test(races_are_named),
        cmocka_unit_test(divergent_meetings_are_named),
        cmocka_unit_test(shared_memory_is_bounded),
        cmocka_unit_test(unaligned_chunks_are_named),
        cmocka_unit_test(shared_memory_begins_poisoned),
        cmocka_unit_test(empty_grids_are_named),
        cmocka_unit_test(orders_come_from_the_seed),
    };
    if (argc != 2) {
        fputs("usage: test_host PLANTED_SOURCE\n", stderr);
        return 2;
    }
    source = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
