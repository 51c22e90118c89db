/* Files of samples as text: a session of 8 ranks on 2 hosts, lines of cells, and the record that a
 * reader makes of them. */
#ifndef SBP_TESTS_SAMPLE_TEXT_H
#define SBP_TESTS_SAMPLE_TEXT_H

#include "calib/samples/sample_file.h"
#include "tests/support/unit.h"

static const struct sbp_cell sample_text_reduce = {.work = SBP_CELL_COLLECTIVE,
                                                   .kind = SBP_ALL_REDUCE,
                                                   .nodes = 2,
                                                   .ranks_per_node = 4,
                                                   .groups = 1,
                                                   .bytes = 1 << 20};

static inline struct sbp_calibration_origin sample_text_origin(void)
{
    return (struct sbp_calibration_origin){.name = "a-8",
                                           .host = "a",
                                           .library = "Open MPI v4",
                                           .backend = "mpi",
                                           .settings = "NCCL_ALGO=Ring\nUCX_TLS=rc,\"x\"",
                                           .version = "1",
                                           .command = "c \\ \"d\"",
                                           .ranks = 8,
                                           .hosts = 2,
                                           .ranks_per_host = 4,
                                           .least_ranks_per_host = 4,
                                           .cores = 8,
                                           .max_bytes = 1 << 20,
                                           .runs = 3,
                                           .seed = 5};
}

/* The line of a session whose rank r lies on host n(first + r / ranks_per_host). */
static inline void sample_text_session_of(struct sbp_text *text,
                                          const struct sbp_calibration_origin *origin, bool resumes,
                                          int first)
{
    char host[8][SBP_HOST_NAME];
    struct sbp_rank_placement placement;
    for (int r = 0; r < origin->ranks; r++)
        (void)snprintf(host[r], SBP_HOST_NAME, "n%d", first + r / origin->ranks_per_host);
    assert_int_equal(sbp_placement_of(host, origin->ranks, &placement, NULL), SBP_OK);
    sbp_sample_file_session_line(origin, &placement, resumes, text);
    sbp_placement_free(&placement);
}

static inline void sample_text_session(struct sbp_text *text, bool resumes)
{
    const struct sbp_calibration_origin origin = sample_text_origin();
    sample_text_session_of(text, &origin, resumes, 0);
}

static inline void sample_text_result(struct sbp_text *text, int run, const struct sbp_cell *cell,
                                      double time_s)
{
    const double times[] = {time_s, 1.01 * time_s, 0.99 * time_s};
    const struct sbp_result result = {.cell = *cell,
                                      .run = run,
                                      .count = 3,
                                      .time_s = times,
                                      .settled = true,
                                      .slowest_rank = -1};
    sbp_sample_file_result_line(&result, text);
}

static inline struct sbp_record sample_text_parse(struct sbp_text *text)
{
    struct sbp_record record;
    struct sbp_diag diag = {0};
    assert_false(text->failed);
    if (sbp_sample_file_parse("s.jsonl", text->bytes, text->length, &record, &diag) != SBP_OK)
        fail_msg("%s", diag.text);
    sbp_text_free(text);
    return record;
}

#endif
