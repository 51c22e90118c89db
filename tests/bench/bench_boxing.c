/* Times paths between distributions, mesh by mesh: tensors of three dimensions that every axis may
 * split, in random distributions; and the hardest, where all axes stay as they are or become whole,
 * so that each may be split on the way. Times are the thread's CPU times, the least of a few runs
 * of each path. Checks nothing but that paths were found. */
#include <stdio.h>

#include "base/clock.h"
#include "base/math/random.h"
#include "base/table.h"
#include "costmodel/layout/boxing_path.h"

enum { PATHS = 1000, REPETITIONS = 5, DIMS = 3 };

struct bench_case {
    const char *what;
    int64_t nodes, devices;
    bool hardest;
};
static const struct bench_case cases[] = {
    {"random", 8, 8, false},   {"random", 512, 8, false},  {"random", 2048, 8, false},
    {"hardest", 512, 8, true}, {"hardest", 2048, 8, true},
};

struct question {
    struct sbp_dist from, to;
    double element_bytes; /* all differ, so that none is known */
};

struct setting {
    struct sbp_cluster cluster;
    struct sbp_mesh mesh;
    struct sbp_shape shape;
    sbp_axes split[DIMS];
    struct sbp_layout layout;
    struct question question[PATHS];
};

static struct sbp_state draw_state(struct sbp_random *random, bool whole)
{
    const uint64_t draw = sbp_random_below(random, whole ? 2 : DIMS + 2);
    return draw == 0 ? SBP_STATE_B : draw == 1 ? SBP_STATE_P : SBP_STATE_S((uint8_t)(draw - 2));
}

static enum sbp_status open_setting(const struct bench_case *c, struct setting *s,
                                    struct sbp_diag *diag)
{
    struct sbp_random random;
    *s = (struct setting){.cluster = {.level_count = 2}};
    s->cluster.level[0].size = c->nodes;
    s->cluster.level[1].size = c->devices;
    s->cluster.level[1].alpha_s = 2e-6;
    s->cluster.level[1].beta_s_per_byte = 4e-12;
    s->cluster.level[0].alpha_s = 5e-6;
    s->cluster.level[0].beta_s_per_byte = 4e-11;
    SBP_TRY(sbp_mesh_make(&s->cluster, &s->mesh, diag));
    s->layout = (struct sbp_layout){&s->mesh, DIMS, s->split};
    for (int d = 0; d < SBP_MAX_DIMS; d++) {
        s->shape.size[d] = d < DIMS ? s->mesh.devices : 1;
        s->shape.dim_class[d] = d < DIMS ? d : SBP_NO_CLASS;
        if (d < DIMS)
            s->split[d] = (sbp_axes)(((uint64_t)1 << s->mesh.axis_count) - 1);
    }
    sbp_random_seed(&random, 0);
    for (int i = 0; i < PATHS; i++) {
        s->question[i].element_bytes = 2 + 1e-3 * i;
        for (int axis = 0; axis < s->mesh.axis_count; axis++) {
            s->question[i].from.axis[axis] = draw_state(&random, c->hardest);
            const bool stays = c->hardest && sbp_random_below(&random, 4) > 0;
            s->question[i].to.axis[axis] = stays        ? s->question[i].from.axis[axis]
                                           : c->hardest ? SBP_STATE_B
                                                        : draw_state(&random, false);
        }
    }
    return SBP_OK;
}

struct times {
    double mean_s, most_s, known_s, normal_s; /* of a path; of one that is known; the normal form */
    double share;                             /* of the normal form's cost, where it exists */
};

static enum sbp_status ask(struct sbp_paths *paths, const struct setting *s, int i,
                           struct sbp_boxing *boxing, struct sbp_diag *diag)
{
    const struct question *q = &s->question[i];
    return sbp_paths_find(paths, &s->layout, &s->shape, q->element_bytes, &q->from, &q->to, boxing,
                          diag);
}

static enum sbp_status time_paths(const struct setting *s, struct times *times,
                                  struct sbp_diag *diag)
{
    struct sbp_paths paths;
    struct sbp_boxing boxing;
    double took_s[PATHS], path_s = 0, normal_s = 0;
    *times = (struct times){0};
    for (int run = 0; run < REPETITIONS; run++) {
        SBP_TRY(sbp_paths_init(&paths, &s->cluster, &s->mesh, diag));
        enum sbp_status status = SBP_OK;
        double begin_s = sbp_thread_cpu_s();
        for (int i = 0; i < PATHS && status == SBP_OK; i++) {
            status = ask(&paths, s, i, &boxing, diag);
            const double now_s = sbp_thread_cpu_s();
            took_s[i] = run == 0 || now_s - begin_s < took_s[i] ? now_s - begin_s : took_s[i];
            begin_s = now_s;
        }
        for (int i = 0; i < PATHS && status == SBP_OK; i++)
            status = ask(&paths, s, i, &boxing, diag);
        times->known_s = (sbp_thread_cpu_s() - begin_s) / PATHS;
        sbp_paths_free(&paths);
        SBP_TRY(status);
    }
    for (int i = 0; i < PATHS; i++) {
        const struct question *q = &s->question[i];
        times->mean_s += took_s[i] / PATHS;
        times->most_s = took_s[i] > times->most_s ? took_s[i] : times->most_s;
        const double begin_s = sbp_thread_cpu_s();
        SBP_TRY(sbp_boxing_make(&s->layout, &s->shape, &q->from, &q->to, &boxing, diag));
        times->normal_s += (sbp_thread_cpu_s() - begin_s) / PATHS;
        normal_s += sbp_boxing_s(&s->cluster, &s->mesh, &boxing, q->element_bytes);
        SBP_TRY(sbp_boxing_path(&s->cluster, &s->layout, &s->shape, q->element_bytes, &q->from,
                                &q->to, &boxing, diag));
        path_s += sbp_boxing_s(&s->cluster, &s->mesh, &boxing, q->element_bytes);
    }
    times->share = path_s / normal_s;
    return SBP_OK;
}

static enum sbp_status add_row(const struct bench_case *c, struct sbp_table *table,
                               struct sbp_diag *diag)
{
    static struct setting s;
    struct times times;
    SBP_TRY(open_setting(c, &s, diag));
    SBP_TRY(time_paths(&s, &times, diag));
    sbp_table_cell(table, "%lld x %lld", (long long)c->nodes, (long long)c->devices);
    sbp_table_cell(table, "%d", s.mesh.axis_count);
    sbp_table_cell(table, "%s", c->what);
    sbp_table_cell(table, "%.1f", times.mean_s * 1e6);
    sbp_table_cell(table, "%.1f", times.most_s * 1e6);
    sbp_table_cell(table, "%.2f", times.known_s * 1e6);
    sbp_table_cell(table, "%.2f", times.normal_s * 1e6);
    sbp_table_cell(table, "%.0f %%", times.share * 100);
    return SBP_OK;
}

int main(void)
{
    static const char *const titles[] = {"mesh",  "axes",  "distributions", "path (us)",
                                         "worst", "known", "normal form",   "cost"};
    struct sbp_diag diag = {{0}};
    struct sbp_table table;
    sbp_table_init(&table, 8, titles);
    enum sbp_status status = SBP_OK;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && status == SBP_OK; i++)
        status = add_row(&cases[i], &table, &diag);
    if (status == SBP_OK) {
        printf("%d paths a mesh, CPU time of each; cost: of all together, of the normal form's\n",
               PATHS);
        status = sbp_table_print(&table, stdout, 2);
    }
    sbp_table_free(&table);
    if (status != SBP_OK)
        (void)fprintf(stderr, "bench_boxing: %s\n", diag.text);
    return sbp_status_exit_code(status);
}
