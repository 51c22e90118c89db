#include "perceptron.h"

#include <math.h>

enum { LAYERS = 4, MOST_STRATEGIES = 1 << 10 };

static const double units[LAYERS + 1] = {32768, 16384, 4096, 2048, 512};

#define ALPHA_S          1e-5
#define BETA_S_PER_BYTE  1e-10
#define BYTES_AN_ELEMENT 4.0

struct strategy {
    double batch, column, row; /* factors; their product is the number of devices */
};

/* A ring over so many members, bytes on the larger side. */
static double ring_s(double members, double bytes)
{
    return (members - 1) * ALPHA_S + (members - 1) / members * bytes * BETA_S_PER_BYTE;
}

static int list_strategies(int log2_devices, struct strategy *strategies)
{
    int count = 0;
    for (int batch = 0; batch <= log2_devices; batch++)
        for (int column = 0; batch + column <= log2_devices; column++)
            strategies[count++] =
                (struct strategy){exp2(batch), exp2(column), exp2(log2_devices - batch - column)};
    return count;
}

/* Forward and backward boxing of one layer and the reduction of its gradient. */
static double layer_s(struct strategy strategy, int layer, double batch)
{
    const double in = batch * units[layer] * BYTES_AN_ELEMENT;
    const double out = batch * units[layer + 1] * BYTES_AN_ELEMENT;
    const double weights = units[layer] * units[layer + 1] * BYTES_AN_ELEMENT;
    const double gather = ring_s(strategy.column, in / (strategy.batch * strategy.row));
    const double scatter = ring_s(strategy.row, out / (strategy.batch * strategy.column));
    const double gradient = ring_s(strategy.batch, weights / (strategy.column * strategy.row));
    return (layer == 0 ? 0 : 2 * gather) + 2 * scatter + 2 * gradient;
}

static double edge_s(struct strategy from, struct strategy to, int layer, double batch,
                     double devices)
{
    if (from.batch == to.batch || from.column == to.row)
        return 0;
    const double members = fmax(from.batch, to.batch) / fmin(from.batch, to.batch);
    return 2 * ring_s(members, batch * units[layer] * BYTES_AN_ELEMENT / devices);
}

enum sbp_status perceptron_build(struct sbp_problem *problem, int log2_devices, double batch)
{
    struct strategy strategies[MOST_STRATEGIES];
    const int count = list_strategies(log2_devices, strategies);
    SBP_TRY(sbp_problem_init(problem, LAYERS, LAYERS - 1));
    for (int layer = 0; layer < LAYERS; layer++) {
        if (sbp_problem_add_variable(problem, "fc", count, 0, NULL) < 0)
            return SBP_E_MEMORY;
        for (int k = 0; k < count; k++)
            problem->variable[layer].cost[k] = layer_s(strategies[k], layer, batch);
    }
    for (int layer = 1; layer < LAYERS; layer++) {
        bool transposed; /* never: the edge is new */
        double *cost = sbp_problem_edge_table(problem, layer - 1, layer, &transposed);
        if (cost == NULL)
            return SBP_E_MEMORY;
        for (int i = 0; i < count; i++)
            for (int j = 0; j < count; j++)
                cost[i * count + j] =
                    edge_s(strategies[i], strategies[j], layer, batch, exp2(log2_devices));
    }
    return SBP_OK;
}
