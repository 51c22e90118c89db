#include "executor/verify/finding.h"

#include <math.h>
#include <stdio.h>

const char *sbp_finding_text(const struct sbp_finding *finding, char *buffer, int size)
{
    (void)snprintf(buffer, (size_t)size,
                   "step %lld: %s%s%s, element %lld on rank %lld: run %.17g, reference %.17g, "
                   "difference %.3g, bound %.3g",
                   (long long)finding->step, finding->what, finding->tensor[0] ? " of " : "",
                   finding->tensor, (long long)finding->index, (long long)finding->rank,
                   finding->run, finding->reference, fabs(finding->run - finding->reference),
                   finding->bound);
    return buffer;
}

bool sbp_findings_near(struct sbp_findings *findings, double run, double reference, double bound)
{
    const double difference = fabs(run - reference);
    if (bound > 0 && difference / bound > findings->worst_ratio)
        findings->worst_ratio = difference / bound;
    return isfinite(run) && isfinite(bound) && difference <= bound;
}
