#include "executor/verify/textbook_priv.h"

#include <float.h>
#include <math.h>

/* A value and how far a run's may be from it. */
struct value {
    double exact, error;
};

/* Scaled gradient plus coupled decay. */
static struct value effective_gradient(const struct sbp_textbook *textbook, double gradient,
                                       double weight)
{
    const struct sbp_update *update = &textbook->update;
    const double u = textbook->u;
    const double decay = update->optimizer == SBP_ADAMW ? 0 : update->weight_decay;
    const double scaled = gradient * update->gradient_scale, decayed = decay * weight;
    return (struct value){scaled + decayed, 4 * u * (fabs(scaled) + fabs(decayed))};
}

static void sgd(const struct sbp_textbook *textbook, struct value g,
                const struct sbp_parameter *before, struct sbp_parameter *after,
                struct sbp_parameter *bound)
{
    const struct sbp_update *update = &textbook->update;
    const double u = textbook->u;
    struct value step = g;
    if (update->momentum != 0) {
        const double kept = update->momentum * before->first;
        step.exact = kept + g.exact;
        step.error = g.error + 4 * u * (fabs(kept) + fabs(g.exact));
        after->first = step.exact;
        bound->first = step.error;
    }
    const double rate = update->learning_rate, delta = rate * step.exact;
    after->weight = before->weight - delta;
    bound->weight = rate * step.error + 4 * u * (fabs(before->weight) + fabs(delta));
}

/* Kingma and Ba, 2015, algorithm 1; Loshchilov and Hutter, 2019, algorithm 2. */
static void adam(const struct sbp_textbook *textbook, struct value g,
                 const struct sbp_parameter *before, struct sbp_parameter *after,
                 struct sbp_parameter *bound)
{
    const struct sbp_update *update = &textbook->update;
    const double u = textbook->u, beta1 = update->beta1, beta2 = update->beta2;
    const double correction1 = textbook->correction1, correction2 = textbook->correction2;
    after->first = beta1 * before->first + (1 - beta1) * g.exact;
    bound->first =
        (1 - beta1) * g.error + 4 * u * (beta1 * fabs(before->first) + (1 - beta1) * fabs(g.exact));
    after->second = beta2 * before->second + (1 - beta2) * g.exact * g.exact;
    /* Squares of small gradients underflow in single precision. */
    bound->second = (1 - beta2) * (2 * fabs(g.exact) + g.error) * g.error + 6 * u * after->second +
                    (u > DBL_EPSILON ? (double)FLT_MIN : DBL_MIN);
    const double root = sqrt(after->second / correction2);
    const double root_error =
        fmin(bound->second / (2 * sqrt(after->second)), sqrt(bound->second)) / sqrt(correction2) +
        4 * u * root;
    const double below = root + update->epsilon, rate = update->learning_rate;
    const double delta = rate * (after->first / correction1) / below;
    const double delta_error = rate * bound->first / correction1 / below +
                               fabs(delta) * fmin(1, root_error / below) + 6 * u * fabs(delta);
    const double decay =
        update->optimizer == SBP_ADAMW ? rate * update->weight_decay * before->weight : 0;
    after->weight = before->weight - decay - delta;
    bound->weight = delta_error + 4 * u * (fabs(before->weight) + fabs(decay) + fabs(delta));
}

struct sbp_textbook sbp_textbook_make(const struct sbp_update *update, double u)
{
    const double step = (double)update->step;
    return (struct sbp_textbook){*update, u, 1 - pow(update->beta1, step),
                                 1 - pow(update->beta2, step)};
}

void sbp_textbook_update(const struct sbp_textbook *textbook, double gradient,
                         const struct sbp_parameter *before, struct sbp_parameter *after,
                         struct sbp_parameter *bound)
{
    const struct value g = effective_gradient(textbook, gradient, before->weight);
    *after = *before;
    *bound = (struct sbp_parameter){0};
    (textbook->update.optimizer == SBP_SGD ? sgd : adam)(textbook, g, before, after, bound);
}
