/* Signatures of C = AB by arithmetic: which distributions of A and B, multiplied device by device,
 * make which distribution of C. Knows nothing of the operator catalogue.
 */
#ifndef SBP_TESTS_PAPERS_SIGNATURES_H
#define SBP_TESTS_PAPERS_SIGNATURES_H

#include <stdbool.h>

#include "costmodel/layout/distribution.h"

/* States of A, B and C on one axis of two devices; S(0) splits rows, S(1) columns. */
struct signature {
    struct sbp_state a, b, c;
};

bool signature_equal(const struct signature *left, const struct signature *right);
/* Real 4 x 4 matrices on a grid of 2 (axes = 1) or 2 x 2 devices (axes = 2). */
bool signature_holds(const struct signature *signature, int axes);
/* S(0), S(1), B, P */
#define SIGNATURE_STATES 4
struct sbp_state signature_state(int i);
/* buffer: 8 bytes; returns it */
const char *signature_state_text(struct sbp_state state, char *buffer);

#endif
