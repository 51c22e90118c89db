/* What a calibration noticed that its user should know: slow ranks, links and hosts by name, runs
 * that were slow as a whole, and how near to its nominal rate the network came.
 *
 * Pairs. A rank is slow when even its best message, of those over one kind of link, takes
 * SBP_SLOW times what the faster quarter of all pairs takes. A host is slow when all of its ranks
 * are, over the network. A link is slow when it takes as many times what every other link of both
 * its ends takes. Times count that every run has at least, of the sessions of the last chain that
 * had every rank on the same host as the last one: what was measured on others names nobody here.
 */
#ifndef SBP_CALIB_SAMPLES_FINDINGS_H
#define SBP_CALIB_SAMPLES_FINDINGS_H

#include "calib/samples/points.h"
#include "calib/samples/sample_file.h"

#define SBP_SLOW         1.5 /* of messages that bandwidth decides */
#define SBP_SLOW_NOISY   3.0 /* of short ones, of a link in one run, where ranks share cores */
#define SBP_SLOW_COMPUTE 1.25

#define SBP_MAX_FINDINGS 16
struct sbp_sample_findings {
    int count; /* where there is more to say, the last line says that */
    char line[SBP_MAX_FINDINGS][240];
};

/* Each adds lines. Ranks are named where the record says on which hosts they lay. */
/* What changed between the sessions of the last chain: it was gone on with on other hosts, or under
 * other software and settings; whether its end is missing. */
void sbp_findings_of_sessions(const struct sbp_record *record,
                              struct sbp_sample_findings *findings);
void sbp_findings_of_runs(const struct sbp_sample_runs *runs, struct sbp_sample_findings *findings);
/* Compute that the same rank was slowest at. */
void sbp_findings_of_compute(const struct sbp_record *record, struct sbp_sample_findings *findings);
/* The pairs of the last chain; crowded: ranks share cores. E_MEMORY. */
enum sbp_status sbp_findings_of_pairs(const struct sbp_record *record, bool crowded,
                                      struct sbp_sample_findings *findings,
                                      struct sbp_diag *diag) SBP_MUST_USE;
/* Bandwidth of the longest messages between two nodes over the nominal one, where both are known.
 */
void sbp_findings_of_network(const struct sbp_record *record, struct sbp_sample_findings *findings);

#endif
