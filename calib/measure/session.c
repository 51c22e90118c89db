#include "calib/measure/session.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/machine.h"
#include "calib/measure/measure.h"
#include "calib/measure/origin_find.h"
#include "calib/measure/perform.h"
#include "calib/samples/sample_file_writer.h"

/* --- before measuring --- */

/* Fails before the measurements, not after them, where the result cannot be written. */
static enum sbp_status check_output(const char *path, struct sbp_diag *diag)
{
    struct stat file;
    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode))
        return sbp_fail(diag, SBP_E_IO, "%s: cannot be written: not a regular file", path);
    return sbp_file_check_writable(path, diag);
}

/* Reads the older samples before the measurements, which may write over them. */
static enum sbp_status read_older(struct sbp_calibration_session *session)
{
    char path[SBP_PATH_BYTES];
    if (session->settings->diff == NULL)
        return SBP_OK;
    SBP_TRY(sbp_sample_file_path(session->settings->diff, path, SBP_PATH_BYTES, &session->diag));
    SBP_TRY(sbp_sample_file_read(path, &session->older, &session->diag));
    session->has_older = true;
    return SBP_OK;
}

static enum sbp_status check_run(struct sbp_calibration_session *session, int ranks)
{
    const struct sbp_measure_settings *settings = session->settings;
    if (ranks < 2 && settings->ranks != 1)
        return sbp_fail(&session->diag, SBP_E_USAGE,
                        "there is 1 rank, collectives need 2: start it with mpirun -n RANKS, or "
                        "use --backend threads -n RANKS; -n 1 measures one device alone");
    if (ranks < 2 && settings->kinds != 0)
        return sbp_fail(&session->diag, SBP_E_USAGE,
                        "--collectives: there is 1 rank, legal are 2 and more");
    if (settings->ranks > 0 && settings->ranks != ranks)
        return sbp_fail(&session->diag, SBP_E_USAGE, "-n %lld, but the launcher started %d ranks",
                        (long long)settings->ranks, ranks);
    SBP_TRY(sbp_sample_file_path(settings->finish.output, session->record_path, SBP_PATH_BYTES,
                                 &session->diag));
    if (settings->dry_run)
        return SBP_OK;
    SBP_TRY(read_older(session));
    return check_output(settings->finish.output, &session->diag);
}

/* All ranks learn whether rank 0 lets the run go on. */
static enum sbp_status agree(const struct sbp_sampler *sampler, bool mine, bool *all,
                             struct sbp_diag *diag)
{
    double refused = mine ? 0 : 1;
    SBP_TRY(sbp_sampler_largest(sampler, &refused, 1, diag));
    *all = refused < 1;
    return SBP_OK;
}

/* --- measuring --- */

/* The state of one rank. */
struct part {
    struct sbp_calibration_session *session;
    struct sbp_endpoint ranks; /* whose calls are timed */
    const struct sbp_sampler *sampler;
    struct sbp_processor processor;
    bool is_root;
    double start_s;
    struct sbp_rank_placement placement;
    struct sbp_calibration_origin origin;
    struct sbp_sample_sweep sweep;
    struct sbp_sample_writer writer; /* of rank 0 */
    int taken;                       /* cells that it has, with those of before */
};

static enum sbp_status find_origin(struct part *part, struct sbp_diag *diag)
{
    const struct sbp_measure_settings *settings = part->session->settings;
    struct sbp_calibration_origin *origin = &part->origin;
    SBP_TRY(sbp_origin_find_placement(part->sampler, &part->placement, diag));
    SBP_TRY(part->session->compute->find(part->placement.most_ranks, &part->processor, diag));
    SBP_TRY(sbp_origin_find(part->sampler, &part->placement, part->ranks, &part->processor, origin,
                            diag));
    origin->version = SBP_VERSION;
    origin->command = part->session->command;
    origin->seed = (uint64_t)settings->seed;
    origin->budget_s = settings->budget_s;
    origin->max_bytes = settings->max_bytes;
    origin->runs = (int)settings->runs;
    if (settings->nominal_bytes_per_s > 0) {
        origin->nominal_bytes_per_s = settings->nominal_bytes_per_s;
        (void)snprintf(origin->nominal_from, sizeof origin->nominal_from, "--nominal");
    }
    return SBP_OK;
}

static enum sbp_status make_sweep(struct part *part, struct sbp_diag *diag)
{
    double most[1 + SBP_LACKS] = {-(double)part->processor.copy_bytes};
    const unsigned own =
        part->processor.lacks | (sbp_perform_has_lane(&part->ranks) ? 0 : SBP_LACKS_LANE);
    unsigned lacks = 0; /* what any rank does */
    for (int i = 0; i < SBP_LACKS; i++)
        most[1 + i] = own >> i & 1;
    SBP_TRY(sbp_sampler_largest(part->sampler, most, 1 + SBP_LACKS, diag));
    for (int i = 0; i < SBP_LACKS; i++)
        lacks |= most[1 + i] > 0 ? 1u << i : 0;
    const struct sbp_sweep_options options = {.nodes = part->placement.nodes,
                                              .ranks_per_node = part->placement.least_ranks,
                                              .max_bytes = part->session->settings->max_bytes,
                                              .copy_bytes = (int64_t)-most[0],
                                              .products = part->session->compute->products,
                                              .kinds = part->session->settings->kinds,
                                              .lacks = lacks,
                                              .budget_s = part->session->settings->budget_s};
    return sbp_sweep_init(&part->sweep, &options, diag);
}

static void say_resumed(const struct part *part)
{
    if (part->writer.resumes && !part->session->settings->finish.quiet)
        (void)sbp_text_print_line(stderr, "%s: %d of %d cells are measured, going on\n",
                                  part->writer.path, part->writer.measured,
                                  part->sweep.count * part->origin.runs);
}

static enum sbp_status open_writer(struct part *part, bool *go, struct sbp_diag *diag)
{
    struct sbp_calibration_session *session = part->session;
    const struct sbp_measure_settings *settings = session->settings;
    if (part->is_root) {
        char merge[SBP_PATH_BYTES];
        if (settings->merge != NULL)
            session->verdict =
                sbp_sample_file_path(settings->merge, merge, SBP_PATH_BYTES, &session->diag);
        const struct sbp_writer_options options = {.path = session->record_path,
                                                   .merge = settings->merge == NULL ? NULL : merge,
                                                   .placement = &part->placement,
                                                   .fresh = settings->fresh};
        if (session->verdict == SBP_OK)
            session->verdict = sbp_writer_open(&part->writer, &options, &part->origin, &part->sweep,
                                               &session->diag);
        if (session->verdict == SBP_OK)
            say_resumed(part);
    }
    return agree(part->sampler, !part->is_root || session->verdict == SBP_OK, go, diag);
}

static void count(const struct part *part, int done, int total)
{
    struct sbp_done *progress = part->session->progress;
    if (progress == NULL || !part->is_root)
        return;
    progress->done = done;
    progress->total = total;
}

static void begin(void *context)
{
    const struct part *part = context;
    struct sbp_calibration_session *session = part->session;
    sbp_machine_release(atomic_exchange(&session->space, NULL), session->space_bytes);
}

static enum sbp_status take(void *context, const struct sbp_result *result, struct sbp_diag *diag)
{
    struct part *part = context;
    SBP_TRY(sbp_writer_take(&part->writer, result, diag));
    count(part, ++part->taken, part->sweep.count * part->origin.runs);
    return SBP_OK;
}

static enum sbp_status measure(struct part *part, struct sbp_diag *diag)
{
    const struct sbp_measure_settings *settings = part->session->settings;
    const double used_s = sbp_clock_s() - part->start_s + part->writer.spent_s;
    const struct sbp_measuring measuring = {.ranks = part->ranks,
                                            .sampler = part->sampler,
                                            .compute = part->session->compute,
                                            .placement = &part->placement,
                                            .sweep = &part->sweep,
                                            .runs = part->origin.runs,
                                            .seed = part->origin.seed,
                                            .budget_s = settings->budget_s - used_s,
                                            .done = part->writer.done,
                                            .progress = part->is_root && !settings->finish.quiet,
                                            .begin = begin,
                                            .take = take,
                                            .context = part};
    bool finished;
    part->taken = part->writer.measured;
    count(part, part->taken, part->sweep.count * part->origin.runs);
    SBP_TRY(sbp_measure(&measuring, &finished, diag));
    if (part->is_root)
        SBP_TRY(sbp_writer_end(&part->writer, finished, diag));
    count(part, part->taken, part->taken); /* what there was time for is all */
    return SBP_OK;
}

static enum sbp_status run_part(struct part *part, struct sbp_diag *diag)
{
    struct sbp_calibration_session *session = part->session;
    bool go;
    part->start_s = sbp_clock_s();
    SBP_TRY(find_origin(part, diag));
    SBP_TRY(make_sweep(part, diag));
    if (session->settings->dry_run) {
        if (part->is_root) {
            session->planned = true;
            session->plan = part->sweep.options;
        }
        return SBP_OK;
    }
    SBP_TRY(open_writer(part, &go, diag));
    if (!go)
        return SBP_OK; /* rank 0 says why */
    return measure(part, diag);
}

enum sbp_status sbp_session_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *argument, struct sbp_diag *diag)
{
    struct sbp_calibration_session *session = argument;
    struct sbp_sampler sampler;
    struct part part = {.session = session,
                        .ranks = {ops, comm},
                        .sampler = &sampler,
                        .is_root = ops->rank(comm) == 0,
                        .writer = {.file = -1}};
    bool go;
    SBP_TRY(sbp_sampler_open(ops->host(comm), &sampler, diag));
    if (part.is_root) {
        session->is_root = true;
        session->verdict = check_run(session, ops->size(comm));
    }
    SBP_TRY(agree(&sampler, !part.is_root || session->verdict == SBP_OK, &go, diag));
    if (!go)
        return SBP_OK;
    const enum sbp_status status = run_part(&part, diag);
    sbp_writer_close(&part.writer);
    sbp_sweep_free(&part.sweep);
    sbp_placement_free(&part.placement);
    return status;
}

void sbp_session_free(struct sbp_calibration_session *session)
{
    if (session->has_older)
        sbp_sample_file_free(&session->older);
    session->has_older = false;
    sbp_machine_release(atomic_exchange(&session->space, NULL), session->space_bytes);
}
