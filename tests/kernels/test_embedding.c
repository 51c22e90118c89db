/* Embedding against naive lookups, and its vocabulary split over simulated ranks with digits that
 * leave holes. Whole numbers make the sums exact. */
#include "tests/kernels/check.h"

struct problem {
    struct check_split split;
    int64_t tokens, in, position_rows;
    int32_t *ids, *position_of;
    double *table, *positions, *dy;
};

static struct problem draw(struct check *check)
{
    struct problem p = {.split = check_split(check, 6)};
    p.tokens = check_size(check, 20);
    p.in = check_size(check, 17);
    p.position_rows = check_size(check, 8);
    p.ids = check_ids(check, p.tokens, p.split.global);
    p.position_of = check_ids(check, p.tokens, p.position_rows);
    p.table = check_whole(check, p.split.global * p.in);
    p.positions = check_whole(check, p.position_rows * p.in);
    p.dy = check_whole(check, p.tokens * p.in);
    return p;
}

/* The rows that a rank owns; a row is `in` columns wide. */
static double *rank_rows(struct check *check, const struct problem *p, const double *whole,
                         const struct sbp_digits *digits)
{
    double *rows = check_zeros(check, p->split.local * p->in);
    for (int64_t i = 0; i < p->split.local * p->in; i++)
        rows[i] = whole[sbp_digits_global(digits, i / p->in) * p->in + i % p->in];
    return rows;
}

/* Ranks add up to the whole; the first of them adds the positions. */
static void forward(struct check *check)
{
    const struct problem p = draw(check);
    const int64_t n = p.tokens * p.in;
    double *want = check_zeros(check, n);
    for (int64_t i = 0; i < n; i++)
        want[i] = p.table[p.ids[i / p.in] * p.in + i % p.in] +
                  p.positions[p.position_of[i / p.in] * p.in + i % p.in];
    void *sum = check_reals(check, check_zeros(check, n), n);
    const void *positions = check_reals(check, p.positions, p.position_rows * p.in);
    for (int64_t r = 0; r < p.split.ranks; r++) {
        const struct sbp_digits digits = check_rank_digits(&p.split, r);
        const double *rows = rank_rows(check, &p, p.table, &digits);
        void *y = check_blank(check, n);
        check->kernels->embedding_forward(y, p.ids, r == 0 ? p.position_of : NULL,
                                          check_reals(check, rows, p.split.local * p.in),
                                          r == 0 ? positions : NULL, p.tokens, p.in, &digits);
        check->kernels->add(sum, sum, y, n);
    }
    check_equal(check, "y", sum, want, n);
}

static void backward(struct check *check)
{
    const struct problem p = draw(check);
    const int64_t local = p.split.local * p.in, rows = p.position_rows * p.in;
    double *want = check_zeros(check, p.split.global * p.in),
           *want_positions = check_zeros(check, rows);
    for (int64_t i = 0; i < p.tokens * p.in; i++) {
        want[p.ids[i / p.in] * p.in + i % p.in] += p.dy[i];
        want_positions[p.position_of[i / p.in] * p.in + i % p.in] += p.dy[i];
    }
    const void *dy = check_reals(check, p.dy, p.tokens * p.in);
    for (int64_t r = 0; r < p.split.ranks; r++) {
        const struct sbp_digits digits = check_rank_digits(&p.split, r);
        double *mine = rank_rows(check, &p, want, &digits);
        void *dtable = check_blank(check, local), *dpositions = check_blank(check, rows);
        check->kernels->embedding_backward(dtable, dpositions, p.ids, p.position_of, dy, p.tokens,
                                           p.in, p.position_rows, &digits, 0);
        check_equal(check, "dtable", dtable, mine, local);
        check_equal(check, "dpositions", dpositions, want_positions, rows);
        check->kernels->embedding_backward(dtable, dpositions, p.ids, p.position_of, dy, p.tokens,
                                           p.in, p.position_rows, &digits, SBP_ADDS_FIRST);
        check_equal(check, "dpositions beside it", dpositions, want_positions, rows);
        for (int64_t i = 0; i < local; i++)
            mine[i] *= 2;
        check_equal(check, "accumulated dtable", dtable, mine, local);
        double *twice = check_doubles(check, dpositions, rows);
        for (int64_t i = 0; i < rows; i++)
            twice[i] *= 2;
        check->kernels->embedding_backward(dtable, dpositions, p.ids, p.position_of, dy, p.tokens,
                                           p.in, p.position_rows, &digits, SBP_ADDS_REST);
        check_equal(check, "accumulated dpositions", dpositions, twice, rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TABLES(forward, 40),
        CHECK_TABLES(backward, 40),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
