/* Findings: sentences for the user about what is wrong with the machine or the measurement: slow
 * ranks, links and hosts by name, runs that were slow as a whole, and how near to its nominal rate
 * the network came. Input is the record of a file of samples.
 *
 * Pairs of ranks find the slow ones. A rank is slow when even its best message, of those over one
 * kind of link, takes SBP_SLOW times the lower quartile of all pairs. A host is slow when all of
 * its ranks are, over the network. A link is slow when it takes SBP_SLOW times as long as every
 * other link of both its ends. The least time over the runs counts, and only sessions of the last
 * chain that had every rank on the same host as the last one: others say nothing about these hosts.
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
    int count; /* when more would follow, the last line says so */
    char line[SBP_MAX_FINDINGS][240];
};

/* Each of these adds lines. Ranks are named where the record says on which hosts they lay. */

/* How the sessions of the last chain differ (hosts, software, settings), and a missing end. */
void sbp_findings_of_sessions(const struct sbp_record *record,
                              struct sbp_sample_findings *findings);
void sbp_findings_of_runs(const struct sbp_sample_runs *runs, struct sbp_sample_findings *findings);
/* Cells that took less time than is possible, which sbp_points leaves out: the first, by its line.
 */
void sbp_findings_of_times(const struct sbp_record *record, struct sbp_sample_findings *findings);
/* A rank that was slowest at most of what is timed of compute. */
void sbp_findings_of_compute(const struct sbp_record *record, struct sbp_sample_findings *findings);
/* Slow ranks, hosts and links by the pairs of the last chain; crowded: ranks share cores.
 * E_MEMORY. */
enum sbp_status sbp_findings_of_pairs(const struct sbp_record *record, bool crowded,
                                      struct sbp_sample_findings *findings,
                                      struct sbp_diag *diag) SBP_MUST_USE;
/* Says that there are no rates of attention, why, and what stands in for them. */
void sbp_findings_of_no_attention(const struct sbp_record *record,
                                  struct sbp_sample_findings *findings);
/* Says that a GPU's products in fp8 were not timed, and what stands in for them. */
void sbp_findings_of_no_fp8(const struct sbp_record *record, const struct sbp_compute_times *times,
                            struct sbp_sample_findings *findings);
/* The rate of the longest message between two nodes, over the nominal one where that is known. */
void sbp_findings_of_network(const struct sbp_record *record, struct sbp_sample_findings *findings);

#endif
