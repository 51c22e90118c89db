/* Problem files: whatever is accepted has a price. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "planner/problem/problem.h"
#include "tests/fuzz/fuzz.h"

static void price(const struct sbp_problem *problem)
{
    int *choice = calloc((size_t)problem->variable_count + 1, sizeof *choice);
    fuzz_check(choice != NULL, "memory for a choice");
    const double cost = sbp_problem_cost(problem, choice);
    fuzz_check(!isnan(cost) && !isnan(sbp_problem_peak_usage(problem, choice)), "a price");
    free(choice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fuzz_file file = fuzz_file_open(data, size);
    struct sbp_problem problem;
    struct sbp_diag diag = {0};
    if (sbp_problem_read(file.path, &problem, &diag) == SBP_OK) {
        fuzz_check(problem.variable_count >= 0, "a count of variables");
        price(&problem);
    } else {
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    }
    sbp_problem_free(&problem);
    (void)close(file.descriptor);
    return 0;
}
