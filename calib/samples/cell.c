#include "calib/samples/cell.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/numeric.h"
#include "base/math/stats.h"

#define MOST_RANKS 1000000
#define MOST_SIZE  ((int64_t)1 << 40)
#define MOST_EDGE  ((int64_t)1 << 30)
#define CONFIDENCE 0.95
#define TOLERANCE  0.05
/* Of a sustained product. */
#define OLDER_LOAD_S 3
#define MOST_LOAD_S  86400
#define MOVED        3 /* operands of a stream, its result among them */

static const char *const kind_names[] = {
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv", "broadcast", NULL};
static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                            SBP_ALL_TO_ALL, SBP_SEND_RECV,  SBP_BROADCAST_COLL};
/* As enum sbp_type. */
static const char *const type_names[] = {"fp32", "fp64", "bf16", "fp16", "fp8", NULL};

/* --- order --- */

static int sign(int64_t difference)
{
    return (difference > 0) - (difference < 0);
}

int sbp_cell_compare(const struct sbp_cell *a, const struct sbp_cell *b)
{
    const struct sbp_attention_point *x = &a->attention, *y = &b->attention;
    const int64_t differences[] = {
        (int64_t)a->work - (int64_t)b->work,
        (int64_t)a->kind - (int64_t)b->kind,
        (int64_t)a->nodes - b->nodes,
        (int64_t)a->ranks_per_node - b->ranks_per_node,
        (int64_t)a->groups - b->groups,
        (int64_t)a->type - (int64_t)b->type,
        (int64_t)a->pass - (int64_t)b->pass,
        a->m - b->m,
        a->n - b->n,
        a->k - b->k,
        a->experts - b->experts,
        a->load_s - b->load_s,
        (int64_t)a->round - b->round,
        a->row_bytes - b->row_bytes,
        a->bytes - b->bytes,
        (int64_t)x->type - (int64_t)y->type,
        (int64_t)x->pass - (int64_t)y->pass,
        x->head_size - y->head_size,
        x->sequence - y->sequence,
        x->heads - y->heads,
        x->batch - y->batch,
    };
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        if (differences[i] != 0)
            return sign(differences[i]);
    return 0;
}

struct sbp_gemm_point sbp_cell_product(const struct sbp_cell *cell)
{
    return (struct sbp_gemm_point){cell->type, cell->m, cell->n, cell->k, cell->pass};
}

bool sbp_cell_product_same(const struct sbp_gemm_point *a, const struct sbp_gemm_point *b)
{
    return a->type == b->type && a->pass == b->pass && a->m == b->m && a->n == b->n && a->k == b->k;
}

bool sbp_cell_is_alone(const struct sbp_cell *cell)
{
    return cell->m == 0;
}

double sbp_cell_product_flops(const struct sbp_cell *cell)
{
    const double products = cell->work == SBP_CELL_GROUPED ? (double)cell->experts : 1;
    return 2 * products * (double)cell->m * (double)cell->n * (double)cell->k;
}

bool sbp_cell_same(const struct sbp_cell *a, const struct sbp_cell *b)
{
    return sbp_cell_compare(a, b) == 0;
}

int64_t sbp_cell_attention_rows(const struct sbp_attention_point *point)
{
    return point->batch * point->sequence * point->heads;
}

double sbp_cell_attention_flops(const struct sbp_attention_point *point)
{
    const double size = (double)point->head_size;
    const double scores =
        (double)sbp_cell_attention_rows(point) * ((double)point->sequence + 1) / 2;
    return scores * sbp_device_score_flops(point->pass, size, size, true);
}

int64_t sbp_cell_whole_bytes(enum sbp_collective kind, int members, int64_t bytes)
{
    const bool is_whole =
        kind == SBP_SEND_RECV || kind == SBP_ALL_REDUCE || kind == SBP_BROADCAST_COLL;
    const int64_t element = (int64_t)sizeof(float) * (is_whole ? 1 : members);
    return (bytes > element ? bytes / element : 1) * element;
}

double sbp_cell_least_collective_s(enum sbp_collective kind, double members, double bytes)
{
    return fmax(SBP_LEAST_TIME_S,
                sbp_collective_share(kind, members) * bytes / SBP_MOST_BUS_BYTES_PER_S);
}

double sbp_cell_least_s(const struct sbp_cell *cell)
{
    switch (cell->work) {
    case SBP_CELL_BESIDE: /* what is hidden wholly adds nothing */
        if (!sbp_cell_is_alone(cell))
            return SBP_LEAST_TIME_S;
        /* fall through */
    case SBP_CELL_COLLECTIVE:
        return sbp_cell_least_collective_s(cell->kind, (double)cell->nodes * cell->ranks_per_node,
                                           (double)cell->bytes);
    case SBP_CELL_PAIRS:
        return sbp_cell_least_collective_s(SBP_SEND_RECV, 2, (double)cell->bytes);
    case SBP_CELL_COPY:
    case SBP_CELL_LINK:
    case SBP_CELL_ROWS:
        return fmax(SBP_LEAST_TIME_S, 2 * (double)cell->bytes / SBP_MOST_COPY_BYTES_PER_S);
    case SBP_CELL_GEMM:
    case SBP_CELL_SUSTAINED:
    case SBP_CELL_LAUNCH:
    case SBP_CELL_HOST:
    case SBP_CELL_GROUPED:
        return fmax(SBP_LEAST_TIME_S, sbp_cell_product_flops(cell) / SBP_MOST_FLOPS);
    case SBP_CELL_STREAM:
        return fmax(SBP_LEAST_TIME_S, MOVED * (double)cell->bytes / SBP_MOST_COPY_BYTES_PER_S);
    case SBP_CELL_GELU:
        return fmax(SBP_LEAST_TIME_S, 2 * (double)cell->bytes / SBP_MOST_COPY_BYTES_PER_S);
    case SBP_CELL_ATTENTION:
        return fmax(SBP_LEAST_TIME_S, sbp_cell_attention_flops(&cell->attention) / SBP_MOST_FLOPS);
    }
    return SBP_LEAST_TIME_S;
}

/* --- text --- */

static const char *const pass_words[SBP_PASSES] = {
    [SBP_PASS_FORWARD] = "",
    [SBP_PASS_INPUT_GRADIENT] = " of an input gradient",
    [SBP_PASS_WEIGHT_GRADIENT] = " of a weight gradient",
};

static void name_attention(const struct sbp_attention_point *attention, char *buffer)
{
    (void)snprintf(buffer, SBP_CELL_NAME, "%s attention, %lld x %lld heads of %lld over %lld%s",
                   sbp_cluster_type_name(attention->type), (long long)attention->batch,
                   (long long)attention->heads, (long long)attention->head_size,
                   (long long)attention->sequence,
                   attention->pass == SBP_PASS_FORWARD ? "" : ", backward");
}

const char *sbp_cell_name(const struct sbp_cell *cell, char *buffer)
{
    char size[32];
    const char *bytes = sbp_format_bytes((double)cell->bytes, size);
    switch (cell->work) {
    case SBP_CELL_COLLECTIVE:
        (void)snprintf(buffer, SBP_CELL_NAME, "%s of %d x %d ranks, %d group%s a node, %s",
                       sbp_collective_name(cell->kind), cell->nodes, cell->ranks_per_node,
                       cell->groups, cell->groups == 1 ? "" : "s", bytes);
        break;
    case SBP_CELL_BESIDE:
        (void)snprintf(buffer, SBP_CELL_NAME, "%s of %d x %d ranks, %s, %s products",
                       sbp_collective_name(cell->kind), cell->nodes, cell->ranks_per_node, bytes,
                       sbp_cell_is_alone(cell) ? "timed without" : "beside");
        break;
    case SBP_CELL_HOST:
        (void)snprintf(buffer, SBP_CELL_NAME, "launch by the host");
        break;
    case SBP_CELL_GEMM:
    case SBP_CELL_SUSTAINED:
        (void)snprintf(buffer, SBP_CELL_NAME, "%s%s product %lld x %lld x %lld%s",
                       cell->work == SBP_CELL_SUSTAINED ? "sustained " : "",
                       sbp_cluster_type_name(cell->type), (long long)cell->m, (long long)cell->n,
                       (long long)cell->k, pass_words[cell->pass]);
        break;
    case SBP_CELL_GROUPED:
        (void)snprintf(buffer, SBP_CELL_NAME, "%s products of %lld experts, %lld x %lld x %lld%s",
                       sbp_cluster_type_name(cell->type), (long long)cell->experts,
                       (long long)cell->m, (long long)cell->n, (long long)cell->k,
                       pass_words[cell->pass]);
        break;
    case SBP_CELL_COPY:
        (void)snprintf(buffer, SBP_CELL_NAME, "copy of %s", bytes);
        break;
    case SBP_CELL_LINK:
        (void)snprintf(buffer, SBP_CELL_NAME, "copies of %s to the host and back", bytes);
        break;
    case SBP_CELL_LAUNCH:
        (void)snprintf(buffer, SBP_CELL_NAME, "smallest product");
        break;
    case SBP_CELL_PAIRS:
        (void)snprintf(buffer, SBP_CELL_NAME, "round %d of pairs, %s", cell->round, bytes);
        break;
    case SBP_CELL_STREAM:
        (void)snprintf(buffer, SBP_CELL_NAME, "sum of two times %s", bytes);
        break;
    case SBP_CELL_GELU:
        (void)snprintf(buffer, SBP_CELL_NAME, "GELU of %s", bytes);
        break;
    case SBP_CELL_ROWS:
        (void)snprintf(buffer, SBP_CELL_NAME, "rows of %lld B by expert, %s",
                       (long long)cell->row_bytes, bytes);
        break;
    case SBP_CELL_ATTENTION:
        name_attention(&cell->attention, buffer);
        break;
    }
    return buffer;
}

static void write_attention(const struct sbp_attention_point *attention, struct sbp_text *text)
{
    sbp_text_add(text,
                 "\"attention\":\"%s\",\"head_size\":%lld,\"sequence\":%lld,\"heads\":%lld,"
                 "\"batch\":%lld",
                 sbp_cluster_type_name(attention->type), (long long)attention->head_size,
                 (long long)attention->sequence, (long long)attention->heads,
                 (long long)attention->batch);
    if (attention->pass != SBP_PASS_FORWARD)
        sbp_text_add(text, ",\"pass\":\"%s\"", sbp_device_pass_name(attention->pass));
}

static void write_product(const char *key, const struct sbp_cell *cell, struct sbp_text *text)
{
    sbp_text_add(text, "\"%s\":\"%s\",\"m\":%lld,\"n\":%lld,\"k\":%lld", key,
                 sbp_cluster_type_name(cell->type), (long long)cell->m, (long long)cell->n,
                 (long long)cell->k);
    if (cell->pass != SBP_PASS_FORWARD)
        sbp_text_add(text, ",\"pass\":\"%s\"", sbp_device_pass_name(cell->pass));
}

static void write_collective(const char *key, const struct sbp_cell *cell, struct sbp_text *text)
{
    sbp_text_add(text,
                 "\"%s\":\"%s\",\"nodes\":%d,\"ranks_per_node\":%d,\"groups\":%d,\"bytes\":%lld",
                 key, sbp_collective_name(cell->kind), cell->nodes, cell->ranks_per_node,
                 cell->groups, (long long)cell->bytes);
}

static void write_beside(const struct sbp_cell *cell, struct sbp_text *text)
{
    write_collective("beside", cell, text);
    if (sbp_cell_is_alone(cell))
        return;
    sbp_text_add(text, ",");
    write_product("products", cell, text);
}

void sbp_cell_write(const struct sbp_cell *cell, struct sbp_text *text)
{
    switch (cell->work) {
    case SBP_CELL_COLLECTIVE:
        write_collective("collective", cell, text);
        break;
    case SBP_CELL_BESIDE:
        write_beside(cell, text);
        break;
    case SBP_CELL_HOST:
        sbp_text_add(text, "\"host\":true");
        break;
    case SBP_CELL_GEMM:
        write_product("gemm", cell, text);
        break;
    case SBP_CELL_SUSTAINED:
        write_product("sustained", cell, text);
        sbp_text_add(text, ",\"load_s\":%lld", (long long)cell->load_s);
        break;
    case SBP_CELL_GROUPED:
        write_product("grouped", cell, text);
        sbp_text_add(text, ",\"experts\":%lld", (long long)cell->experts);
        break;
    case SBP_CELL_COPY:
        sbp_text_add(text, "\"copy\":%lld", (long long)cell->bytes);
        break;
    case SBP_CELL_LINK:
        sbp_text_add(text, "\"link\":%lld", (long long)cell->bytes);
        break;
    case SBP_CELL_LAUNCH:
        sbp_text_add(text, "\"launch\":true");
        break;
    case SBP_CELL_PAIRS:
        sbp_text_add(text, "\"pairs\":%d,\"bytes\":%lld", cell->round, (long long)cell->bytes);
        break;
    case SBP_CELL_STREAM:
        sbp_text_add(text, "\"stream\":%lld", (long long)cell->bytes);
        break;
    case SBP_CELL_GELU:
        sbp_text_add(text, "\"gelu\":%lld", (long long)cell->bytes);
        break;
    case SBP_CELL_ROWS:
        sbp_text_add(text, "\"rows\":%lld,\"row_bytes\":%lld", (long long)cell->bytes,
                     (long long)cell->row_bytes);
        break;
    case SBP_CELL_ATTENTION:
        write_attention(&cell->attention, text);
        break;
    }
}

/* --- reading --- */

static enum sbp_status read_int64(const struct sbp_json *object, const char *key, int64_t least,
                                  int64_t most, int64_t *value)
{
    struct sbp_json at;
    SBP_TRY(sbp_json_member(object, key, &at));
    return sbp_json_int64(&at, least, most, value);
}

static enum sbp_status read_int(const struct sbp_json *object, const char *key, int least,
                                int *value)
{
    int64_t wide;
    SBP_TRY(read_int64(object, key, least, MOST_RANKS, &wide));
    *value = (int)wide;
    return SBP_OK;
}

static enum sbp_status read_choice(const struct sbp_json *object, const char *key,
                                   const char *const *names, int *index)
{
    struct sbp_json at;
    SBP_TRY(sbp_json_member(object, key, &at));
    return sbp_json_choice(&at, names, index);
}

static enum sbp_status read_members(const struct sbp_json *object, const char *key,
                                    struct sbp_cell *cell)
{
    int kind;
    SBP_TRY(read_choice(object, key, kind_names, &kind));
    cell->kind = kinds[kind];
    SBP_TRY(read_int(object, "nodes", 1, &cell->nodes));
    SBP_TRY(read_int(object, "ranks_per_node", 1, &cell->ranks_per_node));
    SBP_TRY(read_int(object, "groups", 1, &cell->groups));
    SBP_TRY(read_int64(object, "bytes", 1, MOST_SIZE, &cell->bytes));
    if ((int64_t)cell->nodes * cell->ranks_per_node < 2)
        return sbp_json_refuse(object, "a group of 1 rank, legal are 2 and more");
    return SBP_OK;
}

static enum sbp_status read_collective(const struct sbp_json *object, struct sbp_cell *cell)
{
    return read_members(object, "collective", cell);
}

/* The type under the key, and the pass, one of the first `passes`. */
static enum sbp_status read_scope(const struct sbp_json *object, const char *key, int passes,
                                  enum sbp_type *type, enum sbp_pass *pass)
{
    const char *names[SBP_PASSES + 1] = {0};
    int which, in = SBP_PASS_FORWARD;
    for (int p = 0; p < passes; p++)
        names[p] = sbp_device_pass_name((enum sbp_pass)p);
    SBP_TRY(read_choice(object, key, type_names, &which));
    SBP_TRY(sbp_json_get_choice(object, "pass", names, &in));
    *type = (enum sbp_type)which;
    *pass = (enum sbp_pass)in;
    return SBP_OK;
}

static enum sbp_status read_product(const struct sbp_json *object, const char *key,
                                    struct sbp_cell *cell)
{
    SBP_TRY(read_scope(object, key, SBP_PASSES, &cell->type, &cell->pass));
    SBP_TRY(read_int64(object, "m", 1, MOST_EDGE, &cell->m));
    SBP_TRY(read_int64(object, "n", 1, MOST_EDGE, &cell->n));
    return read_int64(object, "k", 1, MOST_EDGE, &cell->k);
}

static enum sbp_status read_gemm(const struct sbp_json *object, struct sbp_cell *cell)
{
    return read_product(object, "gemm", cell);
}

/* Older files do not say how long the load was. */
static enum sbp_status read_sustained(const struct sbp_json *object, struct sbp_cell *cell)
{
    SBP_TRY(read_product(object, "sustained", cell));
    cell->load_s = OLDER_LOAD_S;
    return sbp_json_get_int64(object, "load_s", 1, MOST_LOAD_S, &cell->load_s);
}

static enum sbp_status read_beside(const struct sbp_json *object, struct sbp_cell *cell)
{
    SBP_TRY(read_members(object, "beside", cell));
    return sbp_json_has(object, "products") ? read_product(object, "products", cell) : SBP_OK;
}

static enum sbp_status read_grouped(const struct sbp_json *object, struct sbp_cell *cell)
{
    SBP_TRY(read_product(object, "grouped", cell));
    return read_int64(object, "experts", 1, MOST_EDGE, &cell->experts);
}

static enum sbp_status read_copy(const struct sbp_json *object, struct sbp_cell *cell)
{
    return read_int64(object, "copy", 1, MOST_SIZE, &cell->bytes);
}

static enum sbp_status read_link(const struct sbp_json *object, struct sbp_cell *cell)
{
    return read_int64(object, "link", 1, MOST_SIZE, &cell->bytes);
}

static enum sbp_status read_smallest(const struct sbp_json *object, const char *key,
                                     struct sbp_cell *cell)
{
    struct sbp_json at;
    bool is_there;
    cell->type = SBP_FP32;
    cell->m = cell->n = cell->k = 1;
    SBP_TRY(sbp_json_member(object, key, &at));
    return sbp_json_bool(&at, &is_there);
}

static enum sbp_status read_launch(const struct sbp_json *object, struct sbp_cell *cell)
{
    return read_smallest(object, "launch", cell);
}

static enum sbp_status read_host(const struct sbp_json *object, struct sbp_cell *cell)
{
    return read_smallest(object, "host", cell);
}

static enum sbp_status read_pairs(const struct sbp_json *object, struct sbp_cell *cell)
{
    SBP_TRY(read_int(object, "pairs", 0, &cell->round));
    return read_int64(object, "bytes", 1, MOST_SIZE, &cell->bytes);
}

static enum sbp_status read_stream(const struct sbp_json *object, struct sbp_cell *cell)
{
    return read_int64(object, "stream", 1, MOST_SIZE, &cell->bytes);
}

static enum sbp_status read_gelu(const struct sbp_json *object, struct sbp_cell *cell)
{
    return read_int64(object, "gelu", 1, MOST_SIZE, &cell->bytes);
}

static enum sbp_status read_rows(const struct sbp_json *object, struct sbp_cell *cell)
{
    SBP_TRY(read_int64(object, "rows", 1, MOST_SIZE, &cell->bytes));
    return read_int64(object, "row_bytes", 1, cell->bytes, &cell->row_bytes);
}

static enum sbp_status read_attention(const struct sbp_json *object, struct sbp_cell *cell)
{
    struct sbp_attention_point *at = &cell->attention;
    int64_t rows;
    SBP_TRY(read_scope(object, "attention", SBP_PASS_INPUT_GRADIENT + 1, &at->type, &at->pass));
    SBP_TRY(read_int64(object, "head_size", 1, MOST_EDGE, &at->head_size));
    SBP_TRY(read_int64(object, "sequence", 1, MOST_EDGE, &at->sequence));
    SBP_TRY(read_int64(object, "heads", 1, MOST_EDGE, &at->heads));
    SBP_TRY(read_int64(object, "batch", 1, MOST_EDGE, &at->batch));
    if (!sbp_mul_i64(at->batch, at->heads, &rows) || !sbp_mul_i64(rows, at->sequence, &rows) ||
        rows > MOST_SIZE)
        return sbp_json_refuse(object, "batch, heads and sequence make more than %lld queries",
                               (long long)MOST_SIZE);
    return SBP_OK;
}

enum sbp_status sbp_cell_read(const struct sbp_json *object, struct sbp_cell *cell)
{
    static const struct {
        const char *key;
        enum sbp_status (*read)(const struct sbp_json *object, struct sbp_cell *cell);
    } works[SBP_CELL_WORKS] = {
        [SBP_CELL_COLLECTIVE] = {"collective", read_collective},
        [SBP_CELL_GEMM] = {"gemm", read_gemm},
        [SBP_CELL_COPY] = {"copy", read_copy},
        [SBP_CELL_LAUNCH] = {"launch", read_launch},
        [SBP_CELL_PAIRS] = {"pairs", read_pairs},
        [SBP_CELL_SUSTAINED] = {"sustained", read_sustained},
        [SBP_CELL_STREAM] = {"stream", read_stream},
        [SBP_CELL_ATTENTION] = {"attention", read_attention},
        [SBP_CELL_GELU] = {"gelu", read_gelu},
        [SBP_CELL_GROUPED] = {"grouped", read_grouped},
        [SBP_CELL_ROWS] = {"rows", read_rows},
        [SBP_CELL_BESIDE] = {"beside", read_beside},
        [SBP_CELL_HOST] = {"host", read_host},
        [SBP_CELL_LINK] = {"link", read_link},
    };
    for (int work = 0; work < SBP_CELL_WORKS; work++) {
        if (!sbp_json_has(object, works[work].key))
            continue;
        *cell = (struct sbp_cell){.work = (enum sbp_cell_work)work};
        return works[work].read(object, cell);
    }
    return sbp_json_refuse(
        object, "no \"collective\", \"gemm\", \"copy\", \"launch\", \"pairs\", "
                "\"sustained\", \"stream\", \"attention\", \"gelu\", \"grouped\", \"rows\", "
                "\"beside\", \"host\" or \"link\": one of them says what was measured");
}

/* --- samples --- */

void sbp_samples_add(struct sbp_samples *samples, const double *time_s, int count)
{
    for (int i = 0; i < count && samples->count < SBP_MAX_REPEATS; i++)
        samples->time_s[samples->count++] = time_s[i];
    if (samples->count == 0)
        return;
    double sorted[SBP_MAX_REPEATS];
    memcpy(sorted, samples->time_s, (size_t)samples->count * sizeof *sorted);
    samples->median_s = sbp_median(sorted, samples->count);
    const bool known =
        sbp_median_interval(sorted, samples->count, CONFIDENCE, &samples->low_s, &samples->high_s);
    const double margin = TOLERANCE * samples->median_s;
    const bool narrow = samples->high_s - samples->median_s <= margin &&
                        samples->median_s - samples->low_s <= margin;
    samples->settled = (known && narrow) || samples->count == SBP_MAX_REPEATS;
}
