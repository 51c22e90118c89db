/* Logs of benchmarks: whatever is read, points are usable and nothing is left out in silence. */
#include <math.h>
#include <stdlib.h>

#include "calib/logs/log.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct sbp_logs *logs, const struct sbp_measured *measured)
{
    for (int i = 0; i < measured->count; i++) {
        const struct sbp_measured_point *point = &measured->point[i];
        fuzz_check(point->time_s > 0 && isfinite(point->time_s), "a time");
        fuzz_check(point->bytes > 0 && isfinite(point->bytes), "a size");
        fuzz_check(point->spread >= 0 && isfinite(point->spread), "a spread");
        fuzz_check(point->nodes >= 1 && point->ranks_per_node >= 1, "a shape");
        fuzz_check((double)point->nodes * point->ranks_per_node >= 2, "two members");
        fuzz_check(point->source >= 0 && point->source < measured->source_count, "a source");
    }
    fuzz_check(measured->count > 0 || logs->note_count > 0, "a reason where there is nothing");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sbp_log_options options[] = {{0}, {.nodes = 2, .ranks_per_node = 4}};
    char *text = fuzz_text(data, size);
    for (int i = 0; i < 2; i++) {
        struct sbp_logs logs;
        struct sbp_measured measured;
        struct sbp_diag diag = {{0}};
        if (sbp_logs_read_text(text, size, "input", &options[i], &logs, &measured, &diag) == SBP_OK)
            check(&logs, &measured);
        sbp_points_free(&measured);
        sbp_logs_free(&logs);
    }
    free(text);
    return 0;
}
