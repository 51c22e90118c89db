/* Files of samples that a calibration goes on from, and those that --merge puts in front: a file
 * that was accepted is a file of samples afterwards, with all results of the one before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "calib/samples/sample_file_writer.h"
#include "tests/fuzz/fuzz.h"

static const struct sbp_calibration_origin origin = {.name = "c",
                                                     .backend = "threads",
                                                     .version = "0",
                                                     .command = "",
                                                     .ranks = 4,
                                                     .hosts = 2,
                                                     .least_ranks_per_host = 2,
                                                     .ranks_per_host = 2,
                                                     .cores = 1,
                                                     .memory_bytes = 1 << 20,
                                                     .max_bytes = SBP_SWEEP_LEAST_MAX_BYTES,
                                                     .runs = 2};

/* Results of a file of samples; -1: it is none. */
static int results_of(const char *path)
{
    struct sbp_record record;
    struct sbp_diag diag = {{0}};
    char *text;
    size_t length;
    if (sbp_file_read(path, &text, &length, &diag) != SBP_OK)
        return -1;
    const enum sbp_status status = sbp_sample_file_parse(path, text, length, &record, &diag);
    const int count = status == SBP_OK ? record.result_count : -1;
    if (status == SBP_OK)
        sbp_sample_file_free(&record);
    free(text);
    return count;
}

static void begin(const char *path, const char *merge, const struct sbp_sample_sweep *sweep)
{
    static char hosts[4][SBP_HOST_NAME] = {"a", "a", "b", "b"};
    struct sbp_rank_placement placement;
    struct sbp_sample_writer writer;
    struct sbp_diag diag = {{0}};
    fuzz_check(sbp_placement_of(hosts, 4, &placement, &diag) == SBP_OK, "a placement");
    const struct sbp_writer_options options = {
        .path = path, .merge = merge, .placement = &placement};
    const int older = results_of(merge == NULL ? path : merge);
    if (sbp_writer_open(&writer, &options, &origin, sweep, &diag) == SBP_OK) {
        const int now = results_of(path);
        fuzz_check(writer.measured <= origin.runs * sweep->count, "cells that there are");
        fuzz_check(writer.resumes || merge != NULL ? now == older : now == 0, "results");
        sbp_writer_close(&writer);
    } else {
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    }
    sbp_placement_free(&placement);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sbp_sample_sweep sweep;
    static char path[] = "/tmp/sbp_fuzz_XXXXXX";
    const struct fuzz_file bytes = fuzz_file_open(data, size);
    struct sbp_diag diag = {{0}};
    if (sweep.count == 0) {
        const struct sbp_sweep_options options = {.nodes = 2,
                                                  .ranks_per_node = 2,
                                                  .max_bytes = SBP_SWEEP_LEAST_MAX_BYTES,
                                                  .copy_bytes = 1};
        fuzz_check(sbp_sweep_init(&sweep, &options, &diag) == SBP_OK, "cells");
        fuzz_check(close(mkstemp(path)) == 0, "a file");
    }
    fuzz_check(sbp_file_write(path, (const char *)data, size, &diag) == SBP_OK, "the bytes");
    begin(path, NULL, &sweep);
    fuzz_check(unlink(path) == 0, "nothing to go on with");
    begin(path, bytes.path, &sweep);
    (void)unlink(path);
    (void)close(bytes.descriptor);
    return 0;
}
