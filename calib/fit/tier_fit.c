#include "calib/fit/tier_fit.h"

#include <math.h>
#include <stdlib.h>

#include "calib/fit/lad.h"

#define SIZES_A_SHAPE 16   /* at most: small shapes count as much as long ones, and it is quick */
#define LEAST_ENDS    6    /* sizes, from which on the ends alone can count */
#define ROUNDS        2000 /* of coordinate descent, without GLPK */

/* The shapes that a formula is fitted to. */
struct choice {
    const struct sbp_measured_groups *shapes;
    const struct sbp_network *network;
    unsigned kinds; /* bit set */
    int left_out;
    bool ends; /* the smallest and the largest sizes alone */
};

static bool is_chosen(const struct choice *choice, int shape)
{
    return shape != choice->left_out && choice->kinds >> choice->shapes->shape[shape].kind & 1 &&
           !sbp_network_sets_aside(choice->network, &choice->network->curve[shape]);
}

/* --- which coefficients can be told apart --- */

static void see(int value, int *least, int *most)
{
    *least = *most == 0 || value < *least ? value : *least;
    *most = value > *most ? value : *most;
}

static bool is_each_told(const struct choice *choice, bool has_launch, bool told[SBP_NETWORK_TERMS])
{
    int within = 0, between = 0;
    int least_nodes = 0, most_nodes = 0, least_ranks = 0, most_ranks = 0;
    for (int s = 0; s < choice->shapes->count; s++) {
        const struct sbp_measured_group *shape = &choice->shapes->shape[s];
        if (!is_chosen(choice, s))
            continue;
        within += shape->nodes == 1;
        between += shape->nodes > 1;
        see(shape->ranks_per_node, &least_ranks, &most_ranks);
        if (shape->nodes > 1)
            see(shape->nodes, &least_nodes, &most_nodes);
    }
    const bool both = within > 0 && between > 0;
    told[SBP_LAUNCH] = has_launch;
    told[SBP_INTRA_STEP] =
        most_ranks > 1 && (both || most_ranks > least_ranks || (!has_launch && within > 0));
    told[SBP_INTER_STEP] = between > 0 && (both || most_nodes > least_nodes || !has_launch);
    told[SBP_INTRA_BYTE] = within > 0;
    told[SBP_INTER_BYTE] = between > 0;
    return within + between > 0;
}

/* --- the system --- */

struct system {
    int rows, columns;
    int term[SBP_NETWORK_TERMS]; /* (columns) */
    double *matrix, *target;     /* (rows, columns), (rows) */
};

static int sizes_of(const struct sbp_measured_group *shape)
{
    return shape->count < SIZES_A_SHAPE ? shape->count : SIZES_A_SHAPE;
}

/* Whether a size is of the middle half, where protocols switch and neither latency nor bandwidth
 * decides. */
static bool is_middle(int size, int sizes)
{
    return sizes >= LEAST_ENDS && 4 * size >= sizes && 4 * (sizes - 1 - size) >= sizes;
}

/* Adds the rows of a shape. Bytes stream through both tiers at the same time; the network is taken
 * for the slower one. */
static void add_shape(const struct sbp_measured_group *shape, int ports, bool ends,
                      struct system *system)
{
    const int sizes = sizes_of(shape);
    for (int i = 0; i < sizes; i++) {
        const struct sbp_curve_sample *sample =
            &shape->sample[sizes == 1 ? 0 : i * (shape->count - 1) / (sizes - 1)];
        double term[SBP_NETWORK_TERMS];
        if (ends && is_middle(i, sizes))
            continue;
        sbp_network_terms(shape->kind, shape->nodes, shape->ranks_per_node, ports, sample->bytes,
                          term);
        if (shape->nodes > 1)
            term[SBP_INTRA_BYTE] = 0;
        for (int j = 0; j < system->columns; j++)
            system->matrix[system->rows * system->columns + j] =
                term[system->term[j]] / sample->time_s;
        system->target[system->rows++] = 1;
    }
}

static enum sbp_status make(const struct choice *choice, const bool told[SBP_NETWORK_TERMS],
                            struct system *system, struct sbp_diag *diag)
{
    size_t rows = 0;
    *system = (struct system){0};
    for (int j = 0; j < SBP_NETWORK_TERMS; j++)
        if (told[j])
            system->term[system->columns++] = j;
    for (int s = 0; s < choice->shapes->count; s++)
        rows += is_chosen(choice, s) ? (size_t)sizes_of(&choice->shapes->shape[s]) : 0;
    system->matrix = calloc(rows, (size_t)(system->columns + 1) * sizeof *system->matrix);
    if (system->matrix == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for %zu points", rows);
    system->target = system->matrix + rows * (size_t)system->columns;
    for (int s = 0; s < choice->shapes->count; s++)
        if (is_chosen(choice, s))
            add_shape(&choice->shapes->shape[s], choice->network->ports, choice->ends, system);
    return SBP_OK;
}

/* Solves least squares with x >= 0 by descending along one coefficient after the other. */
static void descend(const struct system *system, double *x)
{
    for (int j = 0; j < system->columns; j++)
        x[j] = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int j = 0; j < system->columns; j++) {
            double squares = 0, rest = 0;
            for (int i = 0; i < system->rows; i++) {
                const double *row = &system->matrix[i * system->columns];
                double off = system->target[i];
                for (int k = 0; k < system->columns; k++)
                    off -= k == j ? 0 : row[k] * x[k];
                squares += row[j] * row[j];
                rest += row[j] * off;
            }
            x[j] = squares > 0 ? fmax(0, rest / squares) : 0;
        }
}

static enum sbp_status solve(const struct system *system, double *x, struct sbp_diag *diag)
{
    const struct sbp_lad lad = {.rows = system->rows,
                                .columns = system->columns,
                                .matrix = system->matrix,
                                .target = system->target};
    if (sbp_lad_is_available())
        return sbp_lad_solve(&lad, x, diag);
    descend(system, x);
    return SBP_OK;
}

static enum sbp_status fit(const struct choice *choice, bool has_launch,
                           struct sbp_formula *formula, struct sbp_diag *diag)
{
    bool told[SBP_NETWORK_TERMS];
    double x[SBP_NETWORK_TERMS];
    struct system system;
    *formula = (struct sbp_formula){0};
    if (!is_each_told(choice, has_launch, told))
        return SBP_OK;
    SBP_TRY(make(choice, told, &system, diag));
    const enum sbp_status status = solve(&system, x, diag);
    free(system.matrix);
    SBP_TRY(status);
    formula->is_given = true;
    for (int j = 0; j < system.columns; j++)
        formula->coefficient[system.term[j]] = x[j];
    return SBP_OK;
}

enum sbp_status sbp_tier_fit(const struct sbp_measured_groups *shapes,
                             const struct sbp_network *network, enum sbp_collective kind,
                             int left_out, struct sbp_formula *formula, struct sbp_diag *diag)
{
    const struct choice choice = {shapes, network, 1u << kind, left_out, false};
    return fit(&choice, true, formula, diag);
}

enum sbp_status sbp_tier_fit_levels(const struct sbp_measured_groups *shapes,
                                    const struct sbp_network *network, struct sbp_formula *formula,
                                    struct sbp_diag *diag)
{
    struct choice choice = {shapes, network, (1u << SBP_COLLECTIVES) - 1 - (1u << SBP_SEND_RECV),
                            SBP_NO_SHAPE, false};
    SBP_TRY(fit(&choice, false, formula, diag));
    if (formula->is_given)
        return SBP_OK;
    choice.kinds = 1u << SBP_SEND_RECV;
    choice.ends = true;
    return fit(&choice, false, formula, diag);
}
