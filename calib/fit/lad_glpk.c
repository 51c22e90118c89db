#include <glpk.h>
#include <math.h>
#include <setjmp.h>

#include "calib/fit/lad.h"

/* An error of GLPK aborts the process by default; a jump out of its hook makes it a status. */
struct program {
    glp_prob *glpk;
    double scale[SBP_LAD_COLUMNS]; /* largest entry of a column of the matrix */
    jmp_buf failed;
};

static void leave(void *info)
{
    struct program *program = info;
    longjmp(program->failed, 1);
}

bool sbp_lad_is_available(void)
{
    return true;
}

/* GLPK's tolerances are absolute, so columns of bytes and of steps are scaled to about 1. */
static void find_scales(const struct sbp_lad *lad, struct program *program)
{
    for (int j = 0; j < lad->columns; j++) {
        double largest = 0;
        for (int i = 0; i < lad->rows; i++)
            largest = fmax(largest, fabs(lad->matrix[i * lad->columns + j]));
        program->scale[j] = largest > 0 ? largest : 1;
    }
}

static void set_row(const struct sbp_lad *lad, const struct program *program, int row,
                    const double *entries, int slack)
{
    int index[SBP_LAD_COLUMNS + 3], used = 0;
    double value[SBP_LAD_COLUMNS + 3];
    for (int j = 0; j < lad->columns; j++)
        if (entries[j] != 0) {
            index[++used] = j + 1;
            value[used] = entries[j] / program->scale[j];
        }
    if (slack > 0) {
        index[++used] = slack;
        value[used] = 1;
        index[++used] = slack + 1;
        value[used] = -1;
    }
    glp_set_mat_row(program->glpk, row, used, index, value);
}

/* Order rows hold sums of very different sizes: each is brought to 1 as well. */
static void add_order(const struct sbp_lad *lad, struct program *program)
{
    for (int k = 0; k < lad->order_rows; k++) {
        double entries[SBP_LAD_COLUMNS], largest = 0;
        for (int j = 0; j < lad->columns; j++)
            largest = fmax(largest, fabs(lad->order[k * lad->columns + j]) / program->scale[j]);
        for (int j = 0; j < lad->columns; j++)
            entries[j] = lad->order[k * lad->columns + j] / (largest > 0 ? largest : 1);
        set_row(lad, program, lad->rows + k + 1, entries, 0);
        glp_set_row_bnds(program->glpk, lad->rows + k + 1, GLP_LO, 0, 0);
    }
}

static void build(const struct sbp_lad *lad, struct program *program)
{
    find_scales(lad, program);
    glp_set_obj_dir(program->glpk, GLP_MIN);
    (void)glp_add_rows(program->glpk, lad->rows + lad->order_rows);
    (void)glp_add_cols(program->glpk, lad->columns + 2 * lad->rows);
    for (int column = 1; column <= lad->columns + 2 * lad->rows; column++) {
        glp_set_col_bnds(program->glpk, column, GLP_LO, 0, 0);
        glp_set_obj_coef(program->glpk, column, column > lad->columns ? 1 : 0);
    }
    for (int i = 0; i < lad->rows; i++) {
        set_row(lad, program, i + 1, &lad->matrix[i * lad->columns], lad->columns + 2 * i + 1);
        glp_set_row_bnds(program->glpk, i + 1, GLP_FX, lad->target[i], lad->target[i]);
    }
    add_order(lad, program);
}

/* Starts the simplex from u = target, v = 0, x = 0, which is a feasible basis. */
static bool solve(const struct sbp_lad *lad, struct program *program, double *x)
{
    glp_smcp settings;
    build(lad, program);
    glp_init_smcp(&settings);
    settings.msg_lev = GLP_MSG_OFF;
    for (int j = 1; j <= lad->columns; j++)
        glp_set_col_stat(program->glpk, j, GLP_NL);
    for (int i = 0; i < lad->rows; i++) {
        glp_set_row_stat(program->glpk, i + 1, GLP_NS);
        glp_set_col_stat(program->glpk, lad->columns + 2 * i + 1,
                         lad->target[i] >= 0 ? GLP_BS : GLP_NL);
        glp_set_col_stat(program->glpk, lad->columns + 2 * i + 2,
                         lad->target[i] >= 0 ? GLP_NL : GLP_BS);
    }
    for (int k = 0; k < lad->order_rows; k++)
        glp_set_row_stat(program->glpk, lad->rows + k + 1, GLP_BS);
    if (glp_simplex(program->glpk, &settings) != 0 || glp_get_status(program->glpk) != GLP_OPT)
        return false;
    for (int j = 0; j < lad->columns; j++)
        x[j] = fmax(0, glp_get_col_prim(program->glpk, j + 1)) / program->scale[j];
    return true;
}

enum sbp_status sbp_lad_solve(const struct sbp_lad *lad, double *x, struct sbp_diag *diag)
{
    struct program program;
    volatile bool solved = false;
    (void)glp_term_out(GLP_OFF);
    if (setjmp(program.failed) != 0) {
        glp_error_hook(NULL, NULL);
        (void)glp_free_env(); /* what GLPK held is freed with it */
        return sbp_fail(diag, SBP_E_MEMORY, "GLPK failed on a fit of %d rows", lad->rows);
    }
    glp_error_hook(leave, &program);
    program.glpk = glp_create_prob();
    solved = solve(lad, &program, x);
    glp_delete_prob(program.glpk);
    glp_error_hook(NULL, NULL);
    return solved ? SBP_OK
                  : sbp_fail(diag, SBP_E_INTERNAL, "GLPK found no fit of %d rows", lad->rows);
}
