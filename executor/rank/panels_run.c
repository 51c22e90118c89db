#include "executor/rank/panels_run_priv.h"

#include <stddef.h>

#include "executor/rank/linear_run_priv.h"
#include "executor/rank/rank_ops_priv.h"

/* ---- the grid -------------------------------------------------------------------------------- */

/* The operands of a product: a grid splits the features of both. */
enum side { OF_X, OF_W };

/* One rank's part of a product. */
struct grid {
    struct sbp_rank *rank;
    const struct sbp_kernels *k;
    const struct sbp_instr *instr;
    sbp_axes axes[2];       /* the axes by which the grid splits each operand's features */
    int64_t members[2];     /* how many ranks the group over these axes has */
    int64_t place[2];       /* which of them this rank is */
    enum side whole;        /* one member holds each panel of this operand; of the other operand,
                               all members hold parts of each panel */
    int64_t panels;         /* how many there are: as many as the longer side has members */
    int64_t parts;          /* how many a panel has: as many as the shorter side has members */
    sbp_axes digits;        /* the axes whose digits say where a feature lies */
    int64_t run;            /* how many features lie behind each other whatever the digits are */
    int64_t others;         /* how many runs a part has: one for each value of the digits of axes
                               that are not of the grid */
    int64_t rows, columns;  /* of Y here */
    int64_t width;          /* features of a panel */
    unsigned char *room[2]; /* a panel: X's (rows, width) or (parts, rows, width / parts), and W's
                               (width, columns) */
};

static void *operand(const struct grid *g, int place)
{
    return sbp_rank_buffer(g->rank, g->instr->buffer[place]);
}

static void find_sides(struct grid *g)
{
    static const char *const roles[] = {"grid_column", "grid_row"};
    const struct sbp_program *program = g->rank->program;
    const struct sbp_op_entry *entry = program->graph->op[g->instr->op].entry;
    for (int side = OF_X; side <= OF_W; side++) {
        g->axes[side] = sbp_strategy_axes(program->graph, &program->mesh, &program->strategy,
                                          g->instr->op, 1U << sbp_op_role(entry, roles[side]));
        g->members[side] = sbp_mesh_group_size(&program->mesh, g->axes[side]);
        g->place[side] = sbp_mesh_group_place(&program->mesh, g->axes[side], g->rank->rank);
    }
    g->whole = g->members[OF_W] > g->members[OF_X] ? OF_W : OF_X;
    g->panels = g->members[g->whole];
    g->parts = g->members[1 - g->whole];
}

static void find_features(struct grid *g)
{
    const struct sbp_program *program = g->rank->program;
    const struct sbp_graph *graph = program->graph;
    const struct sbp_shape *x = &graph->tensor[graph->op[g->instr->op].input[0]].shape;
    const int dim_class = x->dim_class[SBP_DIM_FEATURE];
    const int64_t features = x->size[SBP_DIM_FEATURE] * x->size[SBP_DIM_INNER];
    g->digits = dim_class == SBP_NO_CLASS ? 0 : program->strategy.split[dim_class];
    g->run = features / sbp_mesh_group_size(&program->mesh, g->digits);
    g->width = features / g->panels;
    g->others = g->width / g->parts / g->run;
}

static struct grid find_grid(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    const int y = instr->kind == SBP_INSTR_FORWARD ? SBP_AT_OUT : SBP_AT_DY;
    struct grid g = {.rank = rank,
                     .k = rank->kernels,
                     .instr = instr,
                     .rows = sbp_rank_tokens(rank, instr, y),
                     .columns = sbp_rank_features(rank, instr, y)};
    find_sides(&g);
    find_features(&g);
    g.room[OF_X] = operand(&g, SBP_AT_WORK);
    g.room[OF_W] = g.room[OF_X] + g.rows * g.width * g.k->real_bytes;
    return g;
}

/* ---- between an operand and a panel ---------------------------------------------------------- */

/* A panel is a row of runs, and `index` is the place of one: this finds where that run begins in
 * this rank's block of an operand. The digits of the shorter side lead in the order of a panel's
 * runs, those of axes outside the grid follow. */
static int64_t find_local(const struct grid *g, enum side side, int64_t panel, int64_t index)
{
    const struct sbp_mesh *mesh = &g->rank->program->mesh;
    int64_t part = index / g->others, other = index % g->others, local = 0, stride = g->run;
    for (int axis = mesh->axis_count - 1; axis >= 0; axis--) {
        const sbp_axes bit = (sbp_axes)1 << axis;
        const int64_t size = mesh->axis[axis].size;
        int64_t *const left = (bit & g->axes[g->whole]) != 0       ? &panel
                              : (bit & g->axes[1 - g->whole]) != 0 ? &part
                                                                   : &other;
        if ((bit & g->digits) == 0)
            continue;
        if ((bit & g->axes[side]) == 0) {
            local += *left % size * stride;
            stride *= size;
        }
        *left /= size;
    }
    return local;
}

/* Features that lie behind each other in a block of an operand, and in a panel as well. */
struct stretch {
    int64_t local, panel, count;
};

/* The next one of what this rank holds of a panel; *index: begins with 0. */
static bool next_stretch(const struct grid *g, enum side side, int64_t panel, int64_t *index,
                         struct stretch *stretch)
{
    const bool is_whole = side == g->whole;
    const int64_t end = is_whole ? (g->place[side] == panel) * g->parts * g->others : g->others;
    const int64_t first = is_whole ? 0 : g->place[side] * g->others;
    if (*index >= end)
        return false;
    *stretch = (struct stretch){.local = find_local(g, side, panel, first + *index),
                                .panel = (first + *index) * g->run,
                                .count = g->run};
    while (++*index < end &&
           find_local(g, side, panel, first + *index) == stretch->local + stretch->count)
        stretch->count += g->run;
    return true;
}

/* `move` copies elements of an operand into a panel, copies them back, or adds them. */
enum way { INTO_PANEL, OUT_OF_PANEL, ADDED };

/* Rows of an operand and of a panel, in elements. */
struct moved {
    int64_t count, rows;
    int64_t block_row, panel_row; /* from one to the next */
};

static void move(const struct grid *g, unsigned char *block, unsigned char *panel,
                 const struct moved *of, enum way way)
{
    const int64_t bytes = g->k->real_bytes;
    if (way == INTO_PANEL)
        g->k->copy_rows(panel, of->panel_row, block, of->block_row, of->count, of->rows);
    else if (way == OUT_OF_PANEL)
        g->k->copy_rows(block, of->block_row, panel, of->panel_row, of->count, of->rows);
    else
        for (int64_t row = 0; row < of->rows; row++) {
            unsigned char *const to = block + row * of->block_row * bytes;
            g->k->add(to, to, panel + row * of->panel_row * bytes, of->count);
        }
}

static void move_w(const struct grid *g, unsigned char *block, int64_t panel, enum way way)
{
    const int64_t row_bytes = g->columns * g->k->real_bytes;
    struct stretch s;
    for (int64_t index = 0; next_stretch(g, OF_W, panel, &index, &s);) {
        const struct moved all = {.count = s.count * g->columns, .rows = 1};
        move(g, block + s.local * row_bytes, g->room[OF_W] + s.panel * row_bytes, &all, way);
    }
}

/* A panel in parts has a matrix of each. Columns that are all of both matrices are one stretch. */
static void move_x(const struct grid *g, unsigned char *block, int64_t panel, enum way way)
{
    const int64_t bytes = g->k->real_bytes, own = g->width * g->panels / g->members[OF_X];
    const int64_t wide = g->whole == OF_X ? g->width : g->width / g->parts;
    struct stretch s;
    for (int64_t index = 0; next_stretch(g, OF_X, panel, &index, &s);) {
        const int64_t together = s.count == own && s.count == wide ? g->rows : 1;
        const struct moved rows = {s.count * together, g->rows / together, own, wide};
        unsigned char *const to = g->room[OF_X] + s.panel / wide * wide * g->rows * bytes;
        move(g, block + s.local * bytes, to + s.panel % wide * bytes, &rows, way);
    }
}

/* The panel goes from who holds it to all, or its sum there. */
static enum sbp_status share(const struct grid *g, enum side side, int64_t panel, bool sums,
                             struct sbp_diag *diag)
{
    const struct sbp_exchange exchange = {.kind = SBP_BROADCAST_COLL,
                                          .members.axes = g->axes[side],
                                          .receive = g->room[side],
                                          .count = g->width * (side == OF_X ? g->rows : g->columns),
                                          .owner = side == g->whole ? panel : SBP_OWNED_IN_PARTS,
                                          .to_owner = sums};
    return g->members[side] == 1 ? SBP_OK : sbp_channel_exchange(g->rank->channel, &exchange, diag);
}

static enum sbp_status bring(const struct grid *g, enum side side, int at, int64_t panel,
                             struct sbp_diag *diag)
{
    (side == OF_X ? move_x : move_w)(g, operand(g, at), panel, INTO_PANEL);
    return share(g, side, panel, false, diag);
}

/* ---- products -------------------------------------------------------------------------------- */

/* The matrices of which a panel of X consists, with the rows of W's panel for each. */
struct factors {
    void *x, *w;
    int64_t features;
};

static int64_t count_factors(const struct grid *g)
{
    return g->whole == OF_X ? 1 : g->parts;
}

static struct factors factors_of(const struct grid *g, int64_t i)
{
    const int64_t features = g->width / count_factors(g), bytes = g->k->real_bytes;
    return (struct factors){.x = g->room[OF_X] + i * features * g->rows * bytes,
                            .w = g->room[OF_W] + i * features * g->columns * bytes,
                            .features = features};
}

static enum sbp_status form_output(const struct grid *g, struct sbp_diag *diag)
{
    void *const y = operand(g, SBP_AT_OUT);
    const void *const bias = sbp_rank_added_once(g->rank, g->instr, SBP_AT_W2);
    for (int64_t panel = 0; panel < g->panels; panel++) {
        SBP_TRY(bring(g, OF_X, SBP_AT_IN, panel, diag));
        SBP_TRY(bring(g, OF_W, SBP_AT_W, panel, diag));
        for (int64_t i = 0; i < count_factors(g); i++) {
            const struct factors f = factors_of(g, i);
            if (panel == 0 && i == 0)
                g->k->linear_forward(y, f.x, f.w, bias, g->rows, f.features, g->columns);
            else
                g->k->linear_add(y, f.x, f.w, g->rows, f.features, g->columns);
        }
    }
    return SBP_OK;
}

static enum sbp_status form_input_gradient(const struct grid *g, struct sbp_diag *diag)
{
    for (int64_t panel = 0; panel < g->panels; panel++) {
        SBP_TRY(bring(g, OF_W, SBP_AT_W, panel, diag));
        for (int64_t i = 0; i < count_factors(g); i++) {
            const struct factors f = factors_of(g, i);
            g->k->linear_backward_input(f.x, operand(g, SBP_AT_DY), f.w, g->rows, f.features,
                                        g->columns);
        }
        SBP_TRY(share(g, OF_X, panel, true, diag));
        move_x(g, operand(g, SBP_AT_OUT), panel, OUT_OF_PANEL);
    }
    return SBP_OK;
}

/* The bias's gradient, which no panel has a part in, is formed beside the first product. */
static enum sbp_status form_weight_gradient(const struct grid *g, struct sbp_diag *diag)
{
    const unsigned adds = sbp_rank_adds_of(g->rank, g->instr);
    for (int64_t panel = 0; panel < g->panels; panel++) {
        SBP_TRY(bring(g, OF_X, SBP_AT_IN, panel, diag));
        for (int64_t i = 0; i < count_factors(g); i++) {
            const struct factors f = factors_of(g, i);
            g->k->linear_backward_weight(f.w, panel == 0 && i == 0 ? operand(g, SBP_AT_DW2) : NULL,
                                         f.x, operand(g, SBP_AT_DY), g->rows, f.features,
                                         g->columns, adds & SBP_ADDS_REST);
        }
        SBP_TRY(share(g, OF_W, panel, true, diag));
        move_w(g, operand(g, SBP_AT_DW), panel,
               (adds & SBP_ADDS_FIRST) != 0 ? ADDED : OUT_OF_PANEL);
    }
    return SBP_OK;
}

static enum sbp_status multiply_alone(struct sbp_rank *rank, const struct sbp_instr *instr)
{
    (instr->kind == SBP_INSTR_FORWARD ? sbp_rank_linear : sbp_rank_linear_backward)(rank, instr);
    return SBP_OK;
}

enum sbp_status sbp_rank_panels(struct sbp_rank *rank, const struct sbp_instr *instr,
                                struct sbp_diag *diag)
{
    /* The arena has room for a panel even where the grid has one rank, which needs none. */
    const struct grid g = find_grid(rank, instr);
    if (g.panels == 1)
        return multiply_alone(rank, instr);
    if (instr->kind == SBP_INSTR_FORWARD)
        return form_output(&g, diag);
    return (instr->phase == 0 ? form_input_gradient : form_weight_gradient)(&g, diag);
}
