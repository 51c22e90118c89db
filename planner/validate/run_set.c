#include "planner/validate/run_set.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/text.h"

#define MOST_RUNS    100000
#define MOST_DEVICES ((int64_t)1 << 31)
#define MOST_BYTES   1e18
#define MOST_SECONDS 1e9

/* Element i of an array, whose elements are walked from the first on. */
static enum sbp_status walk(const struct sbp_json *array, int i, struct sbp_json *element)
{
    return i == 0 ? sbp_json_element(array, 0, element) : sbp_json_next(array, i, element);
}

/* ---- figures -------------------------------------------------------------------------------- */

static const struct {
    const char *key;
    size_t offset;
    double least, most;
} figure_keys[] = {
    {"error", offsetof(struct sbp_run_figures, error), 0, 100},
    {"rank", offsetof(struct sbp_run_figures, rank), -1, 1},
    {"regret", offsetof(struct sbp_run_figures, regret), 0, 100},
    {"memory_error", offsetof(struct sbp_run_figures, memory_error), 0, 100},
    {"settled_error", offsetof(struct sbp_run_figures, settled_error), 0, 100},
    {"refused", offsetof(struct sbp_run_figures, refused), 0, MOST_RUNS},
};
#define FIGURES (sizeof figure_keys / sizeof *figure_keys)

static enum sbp_status read_figures(const struct sbp_json *at, bool named,
                                    struct sbp_run_figures *figures)
{
    const char *known[FIGURES + 2] = {0};
    size_t count = 0;
    *figures = (struct sbp_run_figures){NAN, NAN, NAN, NAN, NAN, 0};
    for (; count < FIGURES; count++)
        known[count] = figure_keys[count].key;
    if (named)
        known[count] = "name";
    SBP_TRY(sbp_json_keys(at, known));
    for (size_t i = 0; i < FIGURES; i++)
        SBP_TRY(sbp_json_get_double(at, figure_keys[i].key, figure_keys[i].least,
                                    figure_keys[i].most,
                                    (double *)((char *)figures + figure_keys[i].offset)));
    return SBP_OK;
}

static enum sbp_status out_of_memory(const struct sbp_json *at)
{
    return sbp_fail(at->diag, SBP_E_MEMORY, "%s: out of memory", at->file);
}

static enum sbp_status read_peers(const struct sbp_json *root, struct sbp_run_set *set)
{
    struct sbp_json list, peer, name;
    if (!sbp_json_has(root, "peers"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(root, "peers", &list));
    SBP_TRY(sbp_json_length(&list, &set->peer_count));
    set->peer = SBP_NEW(&set->arena, struct sbp_run_peer, set->peer_count);
    if (set->peer == NULL)
        return out_of_memory(root);
    for (int i = 0; i < set->peer_count; i++) {
        SBP_TRY(walk(&list, i, &peer));
        SBP_TRY(read_figures(&peer, true, &set->peer[i].figures));
        SBP_TRY(sbp_json_member(&peer, "name", &name));
        SBP_TRY(sbp_json_string(&name, &set->peer[i].name));
    }
    return SBP_OK;
}

/* ---- columns -------------------------------------------------------------------------------- */

/* What a column that is not the model's fills. */
enum cell_kind { CELL_ID, CELL_WHOLE, CELL_FLAG, CELL_RECOMPUTE, CELL_BLOCKS, CELL_NUMBER };
static const struct {
    const char *name;
    enum cell_kind kind;
    size_t offset;
    double least, most;
} cells[] = {
#define RUN(field)    offsetof(struct sbp_run, field)
#define DEGREE(field) offsetof(struct sbp_run, degrees.field)
    {"id", CELL_ID, RUN(id), 0, 0},
    {"gpus", CELL_WHOLE, RUN(devices), 1, MOST_DEVICES},
    {"gpus_per_node", CELL_WHOLE, RUN(devices_per_node), 1, MOST_DEVICES},
    {"tp", CELL_WHOLE, DEGREE(tensor), 1, MOST_DEVICES},
    {"pp", CELL_WHOLE, DEGREE(pipeline), 1, MOST_DEVICES},
    {"vpp", CELL_WHOLE, DEGREE(chunks), 1, MOST_DEVICES},
    {"cp", CELL_WHOLE, DEGREE(context), 1, MOST_DEVICES},
    {"ep", CELL_WHOLE, DEGREE(expert), 1, MOST_DEVICES},
    {"etp", CELL_WHOLE, DEGREE(expert_tensor), 1, MOST_DEVICES},
    {"dp", CELL_WHOLE, DEGREE(data), 1, MOST_DEVICES},
    {"zero", CELL_WHOLE, DEGREE(zero), 0, 3},
    {"micro_batch", CELL_WHOLE, DEGREE(micro_batch), 1, MOST_DEVICES},
    {"sequence_parallel", CELL_FLAG, DEGREE(sequence_parallel), 0, 0},
    {"stage_blocks", CELL_BLOCKS, DEGREE(stage_blocks), 0, 0},
    {"counts_ends", CELL_FLAG, RUN(counts_ends), 0, 0},
    {"recompute", CELL_RECOMPUTE, DEGREE(recompute), 0, 0},
    {"step_s", CELL_NUMBER, RUN(step_s), 1e-9, MOST_SECONDS},
    {"memory_bytes", CELL_NUMBER, RUN(memory_bytes), 1, MOST_BYTES},
    {"settled_bytes", CELL_NUMBER, RUN(settled_bytes), 1, MOST_BYTES},
    {"reserve_bytes", CELL_NUMBER, RUN(reserve_bytes), 0, MOST_BYTES},
#undef RUN
#undef DEGREE
};
#define CELLS (sizeof cells / sizeof *cells)

/* The place of a column among `cells`; -1: it is a key of the model. */
static int cell_of(const char *column)
{
    for (size_t i = 0; i < CELLS; i++)
        if (strcmp(cells[i].name, column) == 0)
            return (int)i;
    return -1;
}

static enum sbp_status read_recompute(const struct sbp_json *at, int *recompute)
{
    const char *names[SBP_RECOMPUTES + 1] = {0};
    for (int i = 0; i < SBP_RECOMPUTES; i++)
        names[i] = sbp_parallel_recompute_name((enum sbp_recompute)i);
    return sbp_json_choice(at, names, recompute);
}

/* Layers of each piece of the pipeline, in order. */
static enum sbp_status read_blocks(const struct sbp_json *list, struct sbp_degrees *degrees)
{
    struct sbp_json at;
    SBP_TRY(sbp_json_length(list, &degrees->stage_blocks_count));
    if (degrees->stage_blocks_count > SBP_MOST_GIVEN_PIECES)
        return sbp_json_refuse(list, "has %d pieces, legal are up to %d",
                               degrees->stage_blocks_count, SBP_MOST_GIVEN_PIECES);
    for (int i = 0; i < degrees->stage_blocks_count; i++) {
        int64_t blocks;
        SBP_TRY(walk(list, i, &at));
        SBP_TRY(sbp_json_int64(&at, 0, UINT16_MAX, &blocks));
        degrees->stage_blocks[i] = (uint16_t)blocks;
    }
    return SBP_OK;
}

/* Words where others are legal: in a table every cell may hold one. */
static enum sbp_status refuse_word(int cell, const struct sbp_json *at)
{
    const char *word = at->node->valuestring;
    const long long least = (long long)cells[cell].least, most = (long long)cells[cell].most;
    switch (cells[cell].kind) {
    case CELL_WHOLE:
        return sbp_json_refuse(at,
                               "\"%.60s\" is not legal, legal is a whole number from %lld to %lld",
                               word, least, most);
    case CELL_FLAG:
        return sbp_json_refuse(at, "\"%.60s\" is not legal, legal are true and false", word);
    case CELL_NUMBER:
        return sbp_json_refuse(at, "\"%.60s\" is not legal, legal is a number from %g to %g", word,
                               cells[cell].least, cells[cell].most);
    default:
        return SBP_OK;
    }
}

static enum sbp_status fill(int cell, const struct sbp_json *at, struct sbp_run *run)
{
    void *field = (char *)run + cells[cell].offset;
    if (cJSON_IsString(at->node))
        SBP_TRY(refuse_word(cell, at));
    switch (cells[cell].kind) {
    case CELL_ID:
        return sbp_json_string(at, field);
    case CELL_WHOLE:
        return sbp_json_int64(at, (int64_t)cells[cell].least, (int64_t)cells[cell].most, field);
    case CELL_FLAG:
        return sbp_json_bool(at, field);
    case CELL_RECOMPUTE:
        return read_recompute(at, field);
    case CELL_BLOCKS:
        return read_blocks(at, &run->degrees);
    default:
        return sbp_json_double(at, cells[cell].least, cells[cell].most, field);
    }
}

static enum sbp_status read_columns(const struct sbp_json *root, struct sbp_run_set *set)
{
    struct sbp_json list, column;
    SBP_TRY(sbp_json_member(root, "columns", &list));
    SBP_TRY(sbp_json_length(&list, &set->column_count));
    if (set->column_count < 1 || set->column_count > SBP_RUN_SET_MOST_COLUMNS)
        return sbp_json_refuse(&list, "has %d columns, legal are 1 to %d", set->column_count,
                               SBP_RUN_SET_MOST_COLUMNS);
    set->column = SBP_NEW(&set->arena, const char *, set->column_count);
    if (set->column == NULL)
        return out_of_memory(root);
    for (int i = 0; i < set->column_count; i++) {
        SBP_TRY(walk(&list, i, &column));
        SBP_TRY(sbp_json_string(&column, &set->column[i]));
        for (int j = 0; j < i; j++)
            if (strcmp(set->column[i], set->column[j]) == 0)
                return sbp_json_refuse(&column, "\"%s\" is column %d as well", set->column[i], j);
    }
    return SBP_OK;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* What all runs share. */
static enum sbp_status read_shared(const struct sbp_json *root, struct sbp_run *shared)
{
    struct sbp_json object, member;
    const char *known[CELLS + 1] = {0};
    *shared = (struct sbp_run){.degrees = sbp_degrees_none()};
    if (!sbp_json_has(root, "run"))
        return SBP_OK;
    for (size_t i = 1; i < CELLS; i++) /* all but the identifier */
        known[i - 1] = cells[i].name;
    SBP_TRY(sbp_json_member(root, "run", &object));
    SBP_TRY(sbp_json_keys(&object, known));
    for (size_t i = 1; i < CELLS; i++) {
        if (!sbp_json_has(&object, cells[i].name))
            continue;
        SBP_TRY(sbp_json_member(&object, cells[i].name, &member));
        SBP_TRY(fill((int)i, &member, shared));
    }
    return SBP_OK;
}

static enum sbp_status check_run(const struct sbp_json *row, const struct sbp_run *run)
{
    if (run->id == NULL || run->devices == 0)
        return sbp_json_refuse(row, "has no %s", run->id == NULL ? "id" : "gpus");
    if (run->step_s == 0 && run->memory_bytes == 0 && run->settled_bytes == 0)
        return sbp_json_refuse(row, "has no step_s, memory_bytes or settled_bytes");
    if (run->devices % run->devices_per_node != 0)
        return sbp_json_refuse(row,
                               "%lld gpus are not whole nodes of %lld gpus_per_node, legal are "
                               "multiples of it",
                               (long long)run->devices, (long long)run->devices_per_node);
    return SBP_OK;
}

/* A place in a table has a line and a name. */
static void name_place(struct sbp_json *at, int line, const char *column)
{
    if (line > 0)
        (void)snprintf(at->path, sizeof at->path, "line %d%s%.100s", line,
                       column == NULL ? "" : ": column ", column == NULL ? "" : column);
}

static enum sbp_status read_row(const struct sbp_json *row, const struct sbp_run_set *set,
                                const struct sbp_run *shared, int line, struct sbp_run *run)
{
    struct sbp_json at;
    int length;
    SBP_TRY(sbp_json_length(row, &length));
    if (length != set->column_count)
        return sbp_json_refuse(row, "has %d cells, legal are %d, one for each column", length,
                               set->column_count);
    *run = *shared;
    run->line = line;
    for (int i = 0; i < length; i++) {
        const int cell = cell_of(set->column[i]);
        SBP_TRY(walk(row, i, &at));
        name_place(&at, line, set->column[i]);
        if (cell >= 0 && !cJSON_IsNull(at.node))
            SBP_TRY(fill(cell, &at, run));
    }
    if (run->devices_per_node == 0 ||
        (run->devices_per_node == shared->devices_per_node && run->devices < run->devices_per_node))
        run->devices_per_node = run->devices; /* a part of a node */
    return check_run(row, run);
}

/* line: (runs); NULL: of no table. */
static enum sbp_status read_runs(const struct sbp_json *root, const int *line,
                                 struct sbp_run_set *set)
{
    struct sbp_run shared;
    struct sbp_json list, row;
    SBP_TRY(read_shared(root, &shared));
    SBP_TRY(sbp_json_member(root, "runs", &list));
    SBP_TRY(sbp_json_length(&list, &set->run_count));
    if (set->run_count < 1 || set->run_count > MOST_RUNS)
        return sbp_json_refuse(&list, "has %d runs, legal are 1 to %d", set->run_count, MOST_RUNS);
    set->run = SBP_NEW(&set->arena, struct sbp_run, set->run_count);
    if (set->run == NULL)
        return out_of_memory(root);
    for (int i = 0; i < set->run_count; i++) {
        SBP_TRY(walk(&list, i, &row));
        name_place(&row, line == NULL ? 0 : line[i], NULL);
        SBP_TRY(read_row(&row, set, &shared, line == NULL ? 0 : line[i], &set->run[i]));
    }
    return SBP_OK;
}

/* ---- groups --------------------------------------------------------------------------------- */

static const struct cJSON *row_of(const struct sbp_run_set *set, int run)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(set->root, "runs"), run);
}

/* Whether two rows say the same of the model, but for a padding that follows the tensor degree. */
static bool same_model(const struct sbp_run_set *set, const struct cJSON *a, const struct cJSON *b)
{
    const struct cJSON *x = a->child, *y = b->child;
    for (int i = 0; i < set->column_count; i++, x = x->next, y = y->next)
        if (cell_of(set->column[i]) < 0 && strcmp(set->column[i], "vocab_multiple") != 0 &&
            !cJSON_Compare(x, y, true))
            return false;
    return true;
}

/* Numbers groups in the order of their first runs; quadratic in rows of one number of devices. */
static enum sbp_status number_groups(struct sbp_run_set *set, const struct sbp_json *root)
{
    const struct cJSON **row = SBP_NEW(&set->arena, const struct cJSON *, set->run_count);
    if (row == NULL)
        return out_of_memory(root);
    row[0] = row_of(set, 0);
    for (int i = 0; i < set->run_count; i++) {
        int j = 0;
        row[i] = i == 0 ? row[0] : row[i - 1]->next;
        while (j < i &&
               (set->run[j].devices != set->run[i].devices || !same_model(set, row[j], row[i])))
            j++;
        set->run[i].group = j < i ? set->run[j].group : set->group_count++;
    }
    return SBP_OK;
}

/* ---- clusters ------------------------------------------------------------------------------- */

/* Without a finder the set's file holds the whole cluster. */
static enum sbp_status duplicate_cluster(const struct sbp_json *root, struct cJSON **cluster)
{
    struct sbp_json at;
    if (sbp_json_has(root, "runtime")) {
        SBP_TRY(sbp_json_member(root, "runtime", &at));
        return sbp_json_refuse(&at, "names no file here, legal is a member of the cluster");
    }
    SBP_TRY(sbp_json_member(root, "cluster", &at));
    *cluster = cJSON_Duplicate(at.node, true);
    return *cluster == NULL ? out_of_memory(root) : SBP_OK;
}

static void replace(struct cJSON *object, const char *key, double value, bool *failed)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    sbp_json_put_number(object, key, value, failed);
}

/* Ports of a node, in place of those of the file's outermost level. */
static enum sbp_status set_network(const struct sbp_json *root, struct sbp_run_set *set)
{
    static const char *const KEYS[] = {"ports", "port_bytes_per_s", NULL};
    struct sbp_json network, member;
    int64_t ports;
    double rate;
    bool failed = false;
    struct cJSON *level =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(set->cluster, "levels"), 0);
    if (!sbp_json_has(root, "network"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(root, "network", &network));
    SBP_TRY(sbp_json_keys(&network, KEYS));
    SBP_TRY(sbp_json_member(&network, "ports", &member));
    SBP_TRY(sbp_json_int64(&member, 1, 1024, &ports));
    SBP_TRY(sbp_json_member(&network, "port_bytes_per_s", &member));
    SBP_TRY(sbp_json_double(&member, 1, 1e15, &rate));
    replace(level, "ports", (double)ports, &failed);
    replace(level, "beta_s_per_byte", 1 / rate, &failed);
    return failed ? out_of_memory(root) : SBP_OK;
}

/* The set's reserve stands in place of the device's and the trainer's. */
static enum sbp_status read_memory(const struct sbp_json *root, struct sbp_run_set *set)
{
    static const char *const KEYS[] = {"reserve_bytes", "stage", "what", NULL};
    static const char *const STAGES[] = {"most", "last", NULL};
    struct cJSON *const runtime = cJSON_GetObjectItemCaseSensitive(set->cluster, "runtime");
    struct sbp_json memory;
    double reserve_bytes = 0;
    int stage = 0;
    bool failed = false;
    if (!sbp_json_has(root, "memory"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(root, "memory", &memory));
    SBP_TRY(sbp_json_keys(&memory, KEYS));
    SBP_TRY(sbp_json_get_choice(&memory, "stage", STAGES, &stage));
    SBP_TRY(sbp_json_get_double(&memory, "reserve_bytes", 0, MOST_BYTES, &reserve_bytes));
    set->of_last_stage = stage == 1;
    replace(cJSON_GetObjectItemCaseSensitive(set->cluster, "device"), "reserve_bytes",
            reserve_bytes, &failed);
    if (cJSON_IsObject(runtime))
        replace(runtime, "reserve_bytes", 0, &failed);
    return failed ? out_of_memory(root) : SBP_OK;
}

/* The cluster is read once as a check; levels are nodes and devices, or devices alone. */
static enum sbp_status read_cluster(const struct sbp_json *root,
                                    const struct sbp_run_set_finder *finder,
                                    struct sbp_run_set *set)
{
    struct sbp_json at;
    struct sbp_cluster cluster;
    const char *file = NULL;
    SBP_TRY(sbp_json_member(root, "cluster", &at));
    SBP_TRY(finder == NULL ? duplicate_cluster(root, &set->cluster)
                           : finder->cluster(finder->context, root, &set->cluster, &file));
    if (file != NULL)
        sbp_json_at(set->cluster, file, root->diag, &at);
    at.node = set->cluster;
    SBP_TRY(sbp_cluster_read(&at, &set->arena, &cluster));
    if (cluster.level_count > 2)
        return sbp_json_refuse(&at, "has %d levels, legal are 2 (nodes, devices) or 1",
                               cluster.level_count);
    SBP_TRY(set_network(root, set));
    return read_memory(root, set);
}

/* ---- files ---------------------------------------------------------------------------------- */

static enum sbp_status read_texts(const struct sbp_json *root, struct sbp_run_set *set)
{
    static const char *const FORMAT[] = {"sbplan runs", NULL};
    static const char *const KEYS[] = {"title", "source", "trainer"};
    const char **texts[] = {&set->title, &set->source, &set->trainer};
    struct sbp_json member;
    int format;
    SBP_TRY(sbp_json_member(root, "format", &member));
    SBP_TRY(sbp_json_choice(&member, FORMAT, &format));
    for (int i = 0; i < 3; i++) {
        SBP_TRY(sbp_json_member(root, KEYS[i], &member));
        SBP_TRY(sbp_json_string(&member, texts[i]));
    }
    SBP_TRY(sbp_json_member(root, "bounds", &member));
    return read_figures(&member, false, &set->bounds);
}

static enum sbp_status read_set(const struct sbp_json *root, const int *line,
                                const struct sbp_run_set_finder *finder, struct sbp_run_set *set)
{
    static const char *const KEYS[] = {
        "format", "title",  "source",   "trainer", "cluster", "network", "model",   "run",
        "memory", "bounds", "parallel", "peers",   "columns", "runs",    "runtime", NULL};
    struct sbp_json model;
    SBP_TRY(sbp_json_keys(root, KEYS));
    SBP_TRY(read_texts(root, set));
    SBP_TRY(sbp_json_member(root, "model", &model));
    if (!cJSON_IsObject(model.node))
        return sbp_json_refuse(&model, "is no object of keys of a model file");
    SBP_TRY(read_cluster(root, finder, set));
    SBP_TRY(read_peers(root, set));
    SBP_TRY(read_columns(root, set));
    SBP_TRY(read_runs(root, line, set));
    return number_groups(set, root);
}

enum sbp_status sbp_run_set_take(struct cJSON *tree, const char *file, const int *line,
                                 const struct sbp_run_set_finder *finder, struct sbp_run_set *set,
                                 struct sbp_diag *diag)
{
    struct sbp_json root;
    *set = (struct sbp_run_set){.root = tree};
    set->file = sbp_arena_strdup(&set->arena, file);
    sbp_json_at(tree, set->file, diag, &root);
    const enum sbp_status status =
        set->file == NULL ? out_of_memory(&root) : read_set(&root, line, finder, set);
    if (status != SBP_OK)
        sbp_run_set_free(set);
    return status;
}

enum sbp_status sbp_run_set_read(const char *path, const struct sbp_run_set_finder *finder,
                                 struct sbp_run_set *set, struct sbp_diag *diag)
{
    struct sbp_json root;
    struct cJSON *tree;
    *set = (struct sbp_run_set){0};
    SBP_TRY(sbp_json_open(path, &tree, &root, diag));
    return sbp_run_set_take(tree, path, NULL, finder, set, diag);
}

void sbp_run_set_free(struct sbp_run_set *set)
{
    if (set == NULL)
        return;
    cJSON_Delete(set->root);
    cJSON_Delete(set->cluster);
    sbp_arena_free(&set->arena);
    *set = (struct sbp_run_set){0};
}

/* ---- what a run becomes --------------------------------------------------------------------- */

enum sbp_status sbp_run_set_model(const struct sbp_run_set *set, int run, struct cJSON **model,
                                  struct sbp_diag *diag)
{
    const struct cJSON *cell = row_of(set, run)->child;
    bool failed = false;
    *model = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(set->root, "model"), true);
    if (cJSON_GetObjectItemCaseSensitive(*model, "name") == NULL)
        sbp_json_put_text(*model, "name", "run", &failed); /* identifiers may be long */
    for (int i = 0; i < set->column_count; i++, cell = cell->next)
        if (cell_of(set->column[i]) < 0 && !cJSON_IsNull(cell)) {
            cJSON_DeleteItemFromObjectCaseSensitive(*model, set->column[i]);
            sbp_json_put(*model, set->column[i], cJSON_Duplicate(cell, true), &failed);
        }
    if (!failed)
        return SBP_OK;
    cJSON_Delete(*model);
    *model = NULL;
    return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", set->file);
}

enum sbp_status sbp_run_set_cluster(const struct sbp_run_set *set, int run, struct cJSON **cluster,
                                    struct sbp_diag *diag)
{
    const struct sbp_run *one = &set->run[run];
    bool failed = false;
    *cluster = cJSON_Duplicate(set->cluster, true);
    struct cJSON *levels = cJSON_GetObjectItemCaseSensitive(*cluster, "levels");
    const int count = cJSON_GetArraySize(levels);
    const int64_t nodes = one->devices / one->devices_per_node;
    replace(cJSON_GetArrayItem(levels, 0), "size", (double)(count == 1 ? one->devices : nodes),
            &failed);
    if (count == 2)
        replace(cJSON_GetArrayItem(levels, 1), "size", (double)one->devices_per_node, &failed);
    if (!failed)
        return SBP_OK;
    cJSON_Delete(*cluster);
    *cluster = NULL;
    return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", set->file);
}

const struct cJSON *sbp_run_set_parallel(const struct sbp_run_set *set)
{
    return cJSON_GetObjectItemCaseSensitive(set->root, "parallel");
}
