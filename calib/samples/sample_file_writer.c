#include "calib/samples/sample_file_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

#define SYNC_INTERVAL_S 2 /* a machine that goes down loses so much at most */

/* --- writing --- */

static enum sbp_status refuse_io(const struct sbp_sample_writer *writer, struct sbp_diag *diag)
{
    return sbp_fail(diag, SBP_E_IO, "%s: cannot be written: %s", writer->path, strerror(errno));
}

/* Writes the text and frees it. A line goes out in one call, so that only the last can be torn. */
static enum sbp_status append(struct sbp_sample_writer *writer, struct sbp_text *text, bool sync,
                              struct sbp_diag *diag)
{
    enum sbp_status status = SBP_OK;
    if (text->failed)
        status = sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", writer->path);
    for (size_t written = 0; status == SBP_OK && written < text->length;) {
        const ssize_t count = write(writer->file, text->bytes + written, text->length - written);
        if (count >= 0)
            written += (size_t)count;
        else if (errno != EINTR)
            status = refuse_io(writer, diag);
    }
    sbp_text_free(text);
    const double now_s = sbp_clock_s();
    if (status == SBP_OK && (sync || now_s - writer->synced_s >= SYNC_INTERVAL_S)) {
        if (fsync(writer->file) != 0 && errno != EINVAL && errno != EROFS)
            status = refuse_io(writer, diag);
        writer->synced_s = now_s;
    }
    return status;
}

enum sbp_status sbp_writer_take(void *context, const struct sbp_result *result,
                                struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    sbp_sample_file_result_line(result, &text);
    return append(context, &text, false, diag);
}

enum sbp_status sbp_writer_end(struct sbp_sample_writer *writer, bool finished,
                               struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    sbp_sample_file_end_line(finished, sbp_clock_s() - writer->start_s, &text);
    return append(writer, &text, true, diag);
}

/* --- what is there --- */

static int compare_cells(const void *left, const void *right)
{
    const struct sbp_cell *const *a = left, *const *b = right;
    return sbp_cell_compare(*a, *b);
}

/* Marks the cells that the last chain of a record has measured. */
static enum sbp_status mark_done(struct sbp_sample_writer *writer, const struct sbp_record *record,
                                 const struct sbp_sample_sweep *sweep, int runs,
                                 struct sbp_diag *diag)
{
    const int chain = record->session[record->session_count - 1].chain;
    const struct sbp_cell **sorted = calloc((size_t)sweep->count, sizeof *sorted);
    if (sorted == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d cells", sweep->count);
    for (int i = 0; i < sweep->count; i++)
        sorted[i] = &sweep->cell[i];
    qsort(sorted, (size_t)sweep->count, sizeof *sorted, compare_cells);
    for (int i = 0; i < record->result_count; i++) {
        const struct sbp_result *result = &record->result[i];
        const struct sbp_cell *cell = &result->cell;
        if (record->session[result->session].chain != chain || result->run >= runs)
            continue;
        const struct sbp_cell *const *found =
            bsearch(&cell, sorted, (size_t)sweep->count, sizeof *sorted, compare_cells);
        if (found == NULL)
            continue;
        bool *done = &writer->done[(size_t)result->run * (size_t)sweep->count +
                                   (size_t)(*found - sweep->cell)];
        writer->measured += !*done;
        writer->spent_s += result->took_s;
        *done = true;
    }
    free(sorted);
    return SBP_OK;
}

static bool is_same(const struct sbp_calibration_origin *a, const struct sbp_calibration_origin *b)
{
    return a->ranks == b->ranks && a->hosts == b->hosts &&
           a->least_ranks_per_host == b->least_ranks_per_host && a->max_bytes == b->max_bytes &&
           a->runs == b->runs && a->seed == b->seed && strcmp(a->backend, b->backend) == 0;
}

/* Whether the text is no more than the beginning of a first line. */
static bool is_barely_begun(const char *text, size_t length)
{
    static const char begin[] = SBP_SAMPLE_FILE_BEGIN;
    const size_t most = length < sizeof begin - 1 ? length : sizeof begin - 1;
    return memchr(text, '\n', length) == NULL && memcmp(text, begin, most) == 0;
}

/* Resumes an unfinished calibration that has measured something, or refuses. */
static enum sbp_status look_at_record(struct sbp_sample_writer *writer,
                                      const struct sbp_record *record,
                                      const struct sbp_calibration_origin *origin,
                                      const struct sbp_sample_sweep *sweep, size_t *keep_bytes,
                                      struct sbp_diag *diag)
{
    const struct sbp_session *last = &record->session[record->session_count - 1];
    const struct sbp_calibration_origin *older = &last->origin;
    bool has_results = false;
    for (int i = record->session_count - 1; i >= 0 && record->session[i].chain == last->chain; i--)
        has_results = has_results || record->session[i].count > 0;
    if (last->ended || !has_results)
        return SBP_OK;
    if (!is_same(older, origin))
        return sbp_fail(diag, SBP_E_USAGE,
                        "%s: holds an unfinished calibration of other settings (%d ranks on %d "
                        "nodes, backend %s, --max-bytes %lld, --runs %d, --seed %lld): the same "
                        "go on with it, --fresh drops it, another -o leaves it",
                        writer->path, older->ranks, older->hosts, older->backend,
                        (long long)older->max_bytes, older->runs, (long long)older->seed);
    writer->resumes = true;
    *keep_bytes = record->whole_bytes;
    return mark_done(writer, record, sweep, origin->runs, diag);
}

/* A first line that a killed program left torn counts as no file. A file of anything else is
 * refused, since it may be of use to somebody. */
static enum sbp_status look_at_older(struct sbp_sample_writer *writer,
                                     const struct sbp_calibration_origin *origin,
                                     const struct sbp_sample_sweep *sweep, size_t *keep_bytes,
                                     struct sbp_diag *diag)
{
    struct sbp_record record;
    struct sbp_diag why = {0};
    char *text;
    size_t length;
    if (access(writer->path, F_OK) != 0)
        return SBP_OK;
    SBP_TRY(sbp_file_read(writer->path, &text, &length, diag));
    enum sbp_status status = SBP_OK;
    if (!is_barely_begun(text, length)) {
        status = sbp_sample_file_parse(writer->path, text, length, &record, &why);
        if (status == SBP_OK) {
            status = look_at_record(writer, &record, origin, sweep, keep_bytes, diag);
            sbp_sample_file_free(&record);
        } else {
            status = sbp_fail(diag, status, "%s; --fresh drops the file, another -o leaves it",
                              why.text);
        }
    }
    free(text);
    return status;
}

/* Refuses to merge times of another backend or kind of device. */
static enum sbp_status check_merged(const char *path, const struct sbp_record *record,
                                    const struct sbp_calibration_origin *origin,
                                    struct sbp_diag *diag)
{
    for (int i = 0; i < record->session_count; i++) {
        const struct sbp_calibration_origin *older = &record->session[i].origin;
        if (strcmp(older->backend, origin->backend) != 0 ||
            strcmp(older->device, origin->device) != 0)
            return sbp_fail(diag, SBP_E_USAGE,
                            "%s: was measured over backend %s%s%s, this calibration over %s%s%s: "
                            "--merge takes samples of the same, --diff compares with others",
                            path, older->backend, older->device[0] == '\0' ? "" : " on ",
                            older->device, origin->backend, origin->device[0] == '\0' ? "" : " on ",
                            origin->device);
    }
    return SBP_OK;
}

static enum sbp_status add_merged(const char *path, const struct sbp_calibration_origin *origin,
                                  struct sbp_text *whole, struct sbp_diag *diag)
{
    struct sbp_record record;
    char *older;
    size_t length;
    SBP_TRY(sbp_file_read(path, &older, &length, diag));
    enum sbp_status status = sbp_sample_file_parse(path, older, length, &record, diag);
    if (status == SBP_OK) {
        status = check_merged(path, &record, origin, diag);
        if (status == SBP_OK)
            sbp_text_add(whole, "%.*s", (int)record.whole_bytes, older);
        sbp_sample_file_free(&record);
    }
    free(older);
    return status;
}

/* Makes a new file in one piece, the samples to merge and the session's line, so that a file never
 * lies there without a session. */
static enum sbp_status begin_file(const struct sbp_sample_writer *writer, const char *merge,
                                  const struct sbp_calibration_origin *origin,
                                  const struct sbp_text *line, struct sbp_diag *diag)
{
    struct sbp_text whole = {0};
    if (merge != NULL)
        SBP_TRY(add_merged(merge, origin, &whole, diag));
    sbp_text_add(&whole, "%s", line->failed ? "" : line->bytes);
    const enum sbp_status status =
        line->failed || whole.failed
            ? sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", writer->path)
            : sbp_file_write(writer->path, whole.bytes, whole.length, diag);
    sbp_text_free(&whole);
    return status;
}

static enum sbp_status open_file(struct sbp_sample_writer *writer, size_t keep_bytes,
                                 struct sbp_diag *diag)
{
    writer->file = open(writer->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (writer->file < 0)
        return refuse_io(writer, diag);
    if (writer->resumes && ftruncate(writer->file, (off_t)keep_bytes) != 0)
        return refuse_io(writer, diag);
    return SBP_OK;
}

/* Begins a new file, or one more session of the file that is there. */
static enum sbp_status begin_session(struct sbp_sample_writer *writer,
                                     const struct sbp_writer_options *options,
                                     const struct sbp_calibration_origin *origin, size_t keep_bytes,
                                     struct sbp_diag *diag)
{
    struct sbp_text line = {0};
    enum sbp_status status = SBP_OK;
    sbp_sample_file_session_line(origin, options->placement, writer->resumes, &line);
    if (!writer->resumes)
        status = begin_file(writer, options->merge, origin, &line, diag);
    if (status == SBP_OK)
        status = open_file(writer, keep_bytes, diag);
    if (status == SBP_OK && writer->resumes)
        return append(writer, &line, true, diag);
    sbp_text_free(&line);
    return status;
}

enum sbp_status sbp_writer_open(struct sbp_sample_writer *writer,
                                const struct sbp_writer_options *options,
                                const struct sbp_calibration_origin *origin,
                                const struct sbp_sample_sweep *sweep, struct sbp_diag *diag)
{
    size_t keep_bytes = 0;
    *writer = (struct sbp_sample_writer){.file = -1, .start_s = sbp_clock_s()};
    (void)snprintf(writer->path, sizeof writer->path, "%s", options->path);
    writer->done = calloc((size_t)sweep->count * (size_t)origin->runs, sizeof *writer->done);
    if (writer->done == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %d cells", sweep->count);
    enum sbp_status status =
        options->fresh ? SBP_OK : look_at_older(writer, origin, sweep, &keep_bytes, diag);
    if (status == SBP_OK)
        status = begin_session(writer, options, origin, keep_bytes, diag);
    if (status != SBP_OK)
        sbp_writer_close(writer);
    return status;
}

void sbp_writer_close(struct sbp_sample_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->file >= 0)
        (void)close(writer->file); /* what counts was synced */
    free(writer->done);
    writer->file = -1;
    writer->done = NULL;
}
