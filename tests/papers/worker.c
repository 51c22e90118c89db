#include "tests/papers/worker.h"

#include <math.h>
#include <stdlib.h>

#include "costmodel/timeline/cdp.h"
#include "costmodel/program/price.h"
#include "tests/papers/kept.h"

static void add_stair(struct worker *worker, double bytes, double seconds)
{
    worker->begin[worker->count] = worker->total_s;
    worker->bytes[worker->count] = bytes;
    worker->count++;
    worker->total_s += seconds;
    worker->peak_bytes = fmax(worker->peak_bytes, bytes);
    worker->mean_bytes += bytes * seconds;
}

/* Elements of the operator's weights; no weight of these models is shared. */
static double weight_elements(const struct sbp_graph *graph, int op)
{
    double elements = 0;
    for (int i = 0; i < graph->op[op].weight_count; i++)
        elements += (double)sbp_graph_tensor_parameters(&graph->tensor[graph->op[op].weight[i]]);
    return elements;
}

void worker_trace(const struct sbp_graph *graph, const struct sbp_cluster *cluster, bool states,
                  struct worker *worker)
{
    static double kept[WORKER_MOST_OPS];
    const struct sbp_element_bytes bytes = sbp_program_element_bytes(&graph->precision);
    const struct sbp_pricing pricing = sbp_price_setup(graph, cluster, &bytes);
    const struct sbp_factor one = sbp_op_factor_one();
    if (graph->op_count > WORKER_MOST_OPS)
        abort();
    kept_bytes(graph, kept);
    *worker = (struct worker){0};
    double held = states ? (double)graph->parameters * (double)bytes.moment : 0;
    for (int op = 0; op < graph->op_count; op++) {
        held += kept[op];
        add_stair(worker, held, sbp_price_pass_s(&pricing, op, &one, SBP_PASS_FORWARD));
    }
    for (int op = graph->op_count - 1; op >= 0; op--) {
        held += states ? weight_elements(graph, op) * (double)bytes.gradient : 0;
        add_stair(worker, held,
                  sbp_price_pass_s(&pricing, op, &one, SBP_PASS_INPUT_GRADIENT) +
                      sbp_price_pass_s(&pricing, op, &one, SBP_PASS_WEIGHT_GRADIENT));
        held -= kept[op];
    }
    for (int i = 0; i < worker->count; i++)
        worker->begin[i] /= worker->total_s;
    worker->mean_bytes /= worker->total_s;
}

double worker_at(const struct worker *worker, double time)
{
    const double part = time - floor(time);
    int low = 0, high = worker->count; /* the last stair that has begun lies between */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (worker->begin[middle] <= part)
            low = middle;
        else
            high = middle;
    }
    return worker->bytes[low];
}

double worker_cyclic_at(const struct worker *worker, int workers, double time)
{
    double sum = 0;
    for (int i = 0; i < workers; i++)
        sum += worker_at(worker, time + (double)i / workers);
    return sum / workers;
}

/* The sum is a staircase too: it changes where one of its terms does. */
double worker_cyclic_peak(const struct worker *worker, int workers)
{
    double peak = 0;
    for (int i = 0; i < worker->count; i++)
        peak = fmax(peak, worker_cyclic_at(worker, workers, worker->begin[i] + 1e-12));
    return peak;
}

/* Forward and backward time of an operator, in parts of the pass, and its kept bytes. */
static void operator_of(const struct worker *worker, int op, double *time, double *bytes)
{
    const int back = worker->count - 1 - op;
    const double end = back + 1 < worker->count ? worker->begin[back + 1] : 1;
    *time = worker->begin[op + 1] - worker->begin[op] + end - worker->begin[back];
    *bytes = worker->bytes[op] - (op > 0 ? worker->bytes[op - 1] : 0);
}

/* Stages' time and bytes; an operator goes to the stage that its middle falls into. */
static void cut(const struct worker *worker, int stages, bool by_bytes, double *time, double *bytes)
{
    double whole = 0, before = 0, part[2];
    for (int op = 0; op < worker->count / 2; op++) {
        operator_of(worker, op, &part[0], &part[1]);
        whole += part[by_bytes];
    }
    for (int op = 0; op < worker->count / 2; op++) {
        operator_of(worker, op, &part[0], &part[1]);
        const int stage = (int)((before + part[by_bytes] / 2) / whole * stages);
        before += part[by_bytes];
        time[stage] += part[0];
        bytes[stage] += part[1];
    }
}

struct worker_stages worker_stages(const struct worker *worker, int stages, bool by_bytes)
{
    double time[WORKER_MOST_STAGES] = {0}, bytes[WORKER_MOST_STAGES] = {0};
    struct worker_stages result = {0};
    double whole = 0, most = 0;
    cut(worker, stages, by_bytes, time, bytes);
    for (int j = 1; j <= stages; j++) {
        whole += bytes[j - 1];
        result.slowest = fmax(result.slowest, time[j - 1] * stages);
    }
    const int64_t steady = sbp_cdp_forward_slot(stages, 1, 1, 2);
    for (int64_t slot = steady; slot < steady + 2 * stages; slot++) {
        double held = 0;
        for (int64_t t = 0; t < 4; t++)
            for (int i = 1; i <= stages; i++)
                for (int j = 1; j <= stages; j++)
                    if (sbp_cdp_forward_slot(stages, i, j, t) <= slot &&
                        slot <= sbp_cdp_backward_slot(stages, i, j, t))
                        held += bytes[j - 1];
        most = fmax(most, held);
    }
    result.held_share = most / (whole * stages);
    return result;
}
