/* Arenas: alignment, zeroing, marks against a model of live allocations, sizes that overflow. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/math/random.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(20240611)

static void assert_bytes(const unsigned char *bytes, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value)
            fail_msg("byte %zu of %zu is %d, expected %d", i, count, bytes[i], value);
}

static void test_alignment_and_zeroing(void **state)
{
    (void)state;
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    for (size_t size = 0; size < 300; size++) {
        unsigned char *bytes = sbp_arena_alloc(&arena, size, 1);
        assert_non_null(bytes);
        assert_int_equal((uintptr_t)bytes % 16, 0);
        assert_bytes(bytes, size, 0);
        memset(bytes, 0xff, size);
    }
    sbp_arena_free(&arena);
    assert_null(arena.head);
    sbp_arena_free(&arena);
    sbp_arena_free(NULL);
}

/* Two arenas share a budget: what one holds the other lacks, and what is freed comes back. */
static void test_budget_is_shared(void **state)
{
    (void)state;
    struct sbp_arena_budget budget = {.most_bytes = 100 << 10};
    struct sbp_arena one = {.budget = &budget}, other = {.budget = &budget};
    assert_non_null(sbp_arena_alloc(&one, 60 << 10, 1));
    assert_null(sbp_arena_alloc(&other, 60 << 10, 1));
    assert_true(budget.refused);
    assert_true(budget.held_bytes >= 60 << 10 && budget.held_bytes <= budget.most_bytes);
    sbp_arena_free(&one);
    assert_int_equal(budget.held_bytes, 0);
    assert_non_null(sbp_arena_alloc(&other, 60 << 10, 1));
    const struct sbp_arena_mark mark = sbp_arena_mark(&other);
    const size_t before = budget.held_bytes;
    assert_non_null(sbp_arena_alloc(&other, 20 << 10, 1));
    sbp_arena_release(&other, mark);
    assert_int_equal(budget.held_bytes, before);
    sbp_arena_free(&other);
    assert_true(other.budget == &budget);
    assert_int_equal(budget.held_bytes, 0);
}

static void test_bytes_outside_of_arenas(void **state)
{
    (void)state;
    struct sbp_arena_budget budget = {.most_bytes = 100};
    assert_true(sbp_arena_budget_take(&budget, 60));
    assert_false(sbp_arena_budget_take(&budget, 41));
    assert_int_equal(sbp_arena_budget_left(&budget), 40);
    assert_true(sbp_arena_budget_take(&budget, 40));
    sbp_arena_budget_return(&budget, 100);
    assert_int_equal(sbp_arena_budget_left(&budget), 100);
    assert_true(sbp_arena_budget_take(NULL, SIZE_MAX));
    assert_true(sbp_arena_budget_left(NULL) == SIZE_MAX);
}

static void test_nothing_has_an_address(void **state)
{
    (void)state;
    struct sbp_arena arena = {0};
    const void *first = sbp_arena_alloc(&arena, 0, 8);
    const void *second = sbp_arena_alloc(&arena, 8, 0);
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    sbp_arena_free(&arena);
}

static void test_overflow_is_refused(void **state)
{
    (void)state;
    struct sbp_arena arena = {0};
    assert_null(sbp_arena_alloc(&arena, SIZE_MAX / 2 + 1, 2));
    assert_null(sbp_arena_alloc(&arena, SIZE_MAX, 1));
    assert_null(sbp_arena_alloc(&arena, SIZE_MAX - 16, 1));
    assert_null(sbp_arena_alloc(&arena, (size_t)1 << 32, (size_t)1 << 32));
    assert_int_equal(arena.used_bytes, 0);
    assert_non_null(SBP_NEW(&arena, double, 3)); /* still usable */
    assert_int_equal(arena.used_bytes, 32);
    sbp_arena_free(&arena);
}

static void test_strdup(void **state)
{
    (void)state;
    struct sbp_arena arena = {0};
    char text[] = "layers";
    const char *copy = sbp_arena_strdup(&arena, text);
    text[0] = 'p';
    assert_string_equal(copy, "layers");
    assert_string_equal(sbp_arena_strdup(&arena, ""), "");
    sbp_arena_free(&arena);
}

/* Random allocations, nested marks and releases: what lives keeps its bytes, the count is exact. */
static void test_marks_against_a_model(void **state)
{
    (void)state;
    enum { MOST = 400, DEPTH = 8 };
    struct {
        unsigned char *bytes;
        size_t size;
    } live[MOST];
    struct {
        struct sbp_arena_mark mark;
        size_t count, used_bytes;
    } marks[DEPTH];
    size_t count = 0, depth = 0, used_bytes = 0;
    struct sbp_arena arena = {0};
    struct sbp_random random = seeded(SEED);
    for (int step = 0; step < 20000; step++) {
        const uint64_t what = sbp_random_below(&random, 20);
        if (what == 0 && depth < DEPTH) {
            marks[depth].mark = sbp_arena_mark(&arena);
            marks[depth].count = count;
            marks[depth++].used_bytes = used_bytes;
        } else if ((what == 1 || count == MOST) && depth > 0) {
            depth = (size_t)sbp_random_below(&random, depth);
            sbp_arena_release(&arena, marks[depth].mark);
            count = marks[depth].count;
            used_bytes = marks[depth].used_bytes;
        } else if (count < MOST) {
            const size_t size = 1 + (size_t)sbp_random_below(&random, what == 2 ? 60000 : 200);
            const bool zeroed = what % 2 == 0;
            live[count].bytes =
                zeroed ? sbp_arena_alloc(&arena, size, 1) : sbp_arena_take(&arena, size, 1);
            live[count].size = size;
            assert_non_null(live[count].bytes);
            if (zeroed)
                assert_bytes(live[count].bytes, size, 0);
            memset(live[count].bytes, (int)(count % 255) + 1, size);
            count++;
            used_bytes += (size + 15) / 16 * 16;
        }
        assert_int_equal(arena.used_bytes, used_bytes);
        if (count > 0) {
            const size_t probe = (size_t)sbp_random_below(&random, count);
            assert_bytes(live[probe].bytes, live[probe].size, (unsigned char)(probe % 255 + 1));
        }
    }
    sbp_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignment_and_zeroing),
        cmocka_unit_test(test_budget_is_shared),
        cmocka_unit_test(test_bytes_outside_of_arenas),
        cmocka_unit_test(test_nothing_has_an_address),
        cmocka_unit_test(test_overflow_is_refused),
        cmocka_unit_test(test_strdup),
        cmocka_unit_test(test_marks_against_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
