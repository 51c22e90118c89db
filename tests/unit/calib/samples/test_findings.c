/* Slow ranks and links among noise: of random clusters without a fault how many are found fault
 * with, and of those with one how many have it named. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/random.h"
#include "calib/samples/findings.h"
#include "tests/support/unit.h"

enum { CLUSTERS = 1000, LEAST_RANKS = 3, MOST_RANKS = 16, MOST_RUNS = 3 };
enum { MOST_PAIRS = MOST_RANKS * (MOST_RANKS - 1) / 2 };
#define SEED UINT64_C(77013)

/* A time is that of a message without noise, times e to the power of a normal number of this
 * deviation, times 1 to `tail` at random for this share of them. */
struct noise {
    double deviation, share, tail;
};

struct fault {
    int a, b;     /* a link; b < 0: all of rank a */
    double times; /* as slow */
};

struct world {
    struct noise noise;
    struct fault fault; /* times 1: none */
    int ranks, runs;
    bool crowded;
};

/* A number of mean 0 and deviation 1, near enough: the sum of 12 uniform numbers. */
static double normal(struct sbp_random *random)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += sbp_random_unit(random);
    return sum;
}

static double time_of(const struct world *world, int a, int b, struct sbp_random *random)
{
    const struct fault *fault = &world->fault;
    const struct noise *noise = &world->noise;
    const bool is_slow =
        fault->b < 0 ? a == fault->a || b == fault->a : a == fault->a && b == fault->b;
    double time_s = 1e-4 * (is_slow ? fault->times : 1);
    time_s *= exp(noise->deviation * normal(random));
    if (sbp_random_unit(random) < noise->share)
        time_s *= 1 + (noise->tail - 1) * sbp_random_unit(random);
    return time_s;
}

/* A rank a host, each with each. */
static struct sbp_sample_findings look(const struct world *world, struct sbp_random *random)
{
    char host[MOST_RANKS][SBP_HOST_NAME];
    struct sbp_sample_pair pair[MOST_RUNS][MOST_PAIRS];
    struct sbp_result result[MOST_RUNS];
    struct sbp_session session = {.is_last = true};
    struct sbp_sample_findings findings = {0};
    memset(host, 0, sizeof host);
    for (int r = 0; r < world->ranks; r++)
        (void)snprintf(host[r], SBP_HOST_NAME, "n%d", r);
    assert_int_equal(sbp_placement_of(host, world->ranks, &session.placement, NULL), SBP_OK);
    for (int run = 0; run < world->runs; run++) {
        result[run] = (struct sbp_result){
            .cell = {.work = SBP_CELL_PAIRS, .bytes = 1 << 20}, .run = run, .pair = pair[run]};
        for (int a = 0; a < world->ranks; a++)
            for (int b = a + 1; b < world->ranks; b++)
                pair[run][result[run].pair_count++] =
                    (struct sbp_sample_pair){a, b, time_of(world, a, b, random)};
    }
    const struct sbp_record record = {
        .session_count = 1, .result_count = world->runs, .session = &session, .result = result};
    assert_int_equal(sbp_findings_of_pairs(&record, world->crowded, &findings, NULL), SBP_OK);
    sbp_placement_free(&session.placement);
    return findings;
}

/* Whether the fault is named, and nothing else. */
static bool is_named(const struct world *world, const struct sbp_sample_findings *findings)
{
    char expected[64];
    const struct fault *fault = &world->fault;
    if (fault->b < 0)
        (void)snprintf(expected, sizeof expected, "host n%d is slow", fault->a);
    else
        (void)snprintf(expected, sizeof expected, "between ranks %d (host n%d) and %d", fault->a,
                       fault->a, fault->b);
    return findings->count == 1 && strstr(findings->line[0], expected) != NULL;
}

static void test_noise(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct noise noise;
        int runs;
        bool crowded;
        double times;                             /* as slow, of a fault */
        int most_wrong, least_links, least_ranks; /* of CLUSTERS */
    } cases[] = {
        {"quiet", {0.05, 0.02, 3}, 3, false, 2, 5, 980, 980},
        {"quiet, two runs", {0.05, 0.02, 3}, 2, false, 2, 20, 970, 970},
        {"quiet, one run", {0.05, 0.02, 3}, 1, false, 4, 10, 700, 970},
        {"quiet, one run, twice", {0.05, 0.02, 3}, 1, false, 2, 10, 0, 980},
        {"loaded", {0.15, 0.05, 4}, 3, false, 2, 10, 700, 930},
        {"crowded", {0.3, 0.1, 6}, 3, true, 6, 10, 800, 960},
        {"crowded, two runs", {0.3, 0.1, 6}, 2, true, 6, 80, 650, 900},
        {"crowded, one run", {0.3, 0.1, 6}, 1, true, 6, 0, 0, 0},
    };
    struct sbp_random random;
    sbp_random_seed(&random, SEED);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct world world = {
            .noise = cases[c].noise, .runs = cases[c].runs, .crowded = cases[c].crowded};
        int wrong = 0, links = 0, ranks = 0;
        for (int i = 0; i < CLUSTERS; i++) {
            world.ranks = LEAST_RANKS + i % (MOST_RANKS - LEAST_RANKS + 1);
            const int a = (int)sbp_random_below(&random, (uint64_t)world.ranks - 1);
            const int b = a + 1 + (int)sbp_random_below(&random, (uint64_t)(world.ranks - a - 1));
            world.fault.times = 1;
            struct sbp_sample_findings findings = look(&world, &random);
            wrong += findings.count > 0;
            world.fault = (struct fault){a, b, cases[c].times};
            findings = look(&world, &random);
            links += is_named(&world, &findings);
            world.fault = (struct fault){a, -1, cases[c].times};
            findings = look(&world, &random);
            ranks += is_named(&world, &findings);
        }
        if (wrong > cases[c].most_wrong || links < cases[c].least_links ||
            ranks < cases[c].least_ranks)
            fail_msg("%s, seed %llu: of %d clusters without a fault %d were found fault with (%d "
                     "are legal), of as many %d links were named (%d are due) and %d ranks (%d)",
                     cases[c].what, (unsigned long long)SEED, CLUSTERS, wrong, cases[c].most_wrong,
                     links, cases[c].least_links, ranks, cases[c].least_ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_noise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
