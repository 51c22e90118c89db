#include "calib/fit/lad.h"

bool sbp_lad_is_available(void)
{
    return false;
}

enum sbp_status sbp_lad_solve(const struct sbp_lad *lad, double *x, struct sbp_diag *diag)
{
    (void)lad;
    (void)x;
    return sbp_fail(diag, SBP_E_UNSUPPORTED,
                    "this build has no GLPK, which least absolute deviations need");
}
