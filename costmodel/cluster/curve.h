/* Measured times of collectives on a network level, which override its alpha and beta.
 *
 * A curve holds the times of one kind at one group size. Seconds at n bytes:
 * - between two points: a straight line in (log n, log t);
 * - above the last point: the straight line through the last two;
 * - below the first point: its time, scaled by what the level's alpha and beta say of both sizes.
 * Points rise in bytes and never fall in seconds, so every curve is monotone in n.
 *
 * The time of a group size that was not measured follows from that of one step. A ring of g members
 * takes steps(g) steps of share(g) n / steps(g) bytes. A step of so many bytes takes t(g0, n0) /
 * steps(g0) on the measured curve of g0 members, where n0 bytes make equal steps. Between two
 * measured sizes the two answers are averaged geometrically by log g; beyond the smallest and the
 * largest the nearest one counts. This is exact where times follow alpha and beta.
 */
#ifndef SBP_COSTMODEL_CLUSTER_CURVE_H
#define SBP_COSTMODEL_CLUSTER_CURVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"
#include "costmodel/cluster/collective_kind.h"

#define SBP_MAX_CURVES       96   /* of a cluster */
#define SBP_MAX_CURVE_POINTS 1024 /* of all its curves together */

struct sbp_time_point {
    double bytes, seconds; /* > 0 */
};

struct sbp_curve {
    enum sbp_collective kind;
    int level;
    int64_t members; /* >= 2 */
    int first, count;
};

/* All curves of a cluster: of a level and kind in a row, members rising. Copied by value. */
struct sbp_curves {
    int curve_count, point_count;
    struct sbp_curve curve[SBP_MAX_CURVES];
    struct sbp_time_point point[SBP_MAX_CURVE_POINTS];
};

/* Reads a level's {"all-reduce": [{"members": 8, "points": [[bytes, seconds], ...]}, ...], ...} and
 * appends it. E_INPUT: an unknown kind (or local), members that do not rise, fewer than
 * two points, points that do not rise in bytes or that fall in seconds, too many. */
enum sbp_status sbp_curves_read(const struct sbp_json *at, int level,
                                struct sbp_curves *curves) SBP_MUST_USE;

bool sbp_curves_has(const struct sbp_curves *curves, int level, enum sbp_collective kind);

/* Seconds of a collective that the level has curves of; members >= 2, bytes >= 0. */
double sbp_curves_s(const struct sbp_curves *curves, int level, enum sbp_collective kind,
                    double alpha_s, double beta_s_per_byte, double members, double bytes);

#endif
