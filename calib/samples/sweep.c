#include "calib/samples/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "calib/samples/points.h"

#define MOST_CELLS       1000000
#define MOST_NODE_ROUNDS 32                 /* of a tournament of nodes; beyond, every so many */
#define REQUIRED_BYTES   ((int64_t)1 << 20) /* no larger message is measured whatever the time */
#define LATENCY_BYTES    ((int64_t)4 << 10) /* of pairs */
#define BANDWIDTH_BYTES  ((int64_t)1 << 20)
#define BESIDE_BYTES     ((int64_t)64 << 10) /* of a collective beside products, at least */
#define LINK_BYTES       ((int64_t)64 << 20) /* of pinned host memory a rank, at most */
/* Clocks settle within a minute of load; three runs of it leave most of the time to the rest. */
#define MOST_LOAD_S 60
#define LOAD_SHARE  0.1 /* of the budget */

static const enum sbp_collective kinds[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                            SBP_ALL_TO_ALL, SBP_SEND_RECV,  SBP_BROADCAST_COLL};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* --- products --- */

static const struct sbp_product_shape cpu_shapes[] = {
    {SBP_FP32, 256, 256, 256},
    {SBP_FP64, 256, 256, 256},
    {SBP_FP64, 512, 512, 512},
};
static const struct sbp_product_shape gpu_shapes[] = {
    {SBP_BF16, 8192, 8192, 8192}, {SBP_FP16, 8192, 8192, 8192}, {SBP_FP32, 4096, 4096, 4096},
    {SBP_FP64, 4096, 4096, 4096}, {SBP_FP8, 8192, 8192, 8192},
};
enum {
    CPU_SHAPES = sizeof cpu_shapes / sizeof *cpu_shapes,
    GPU_SHAPES = sizeof gpu_shapes / sizeof *gpu_shapes,
};

/* Sizes a factor of four apart, which are no powers of two: rows of those fall into the same sets
 * of the caches. Measured on an AMD EPYC these predict 300 random products with a median error
 * of 2.8 % and those of GPT-2 small with 2.5; 64, 256 and 1024 with 4.3 and 5.0. Sizes up to 3072
 * took seven times as long and predicted no better. */
static const int64_t cpu_tokens[] = {12, 48, 192, 768};
static const int64_t cpu_features[] = {48, 192, 768};
/* These sizes predict other products of H100, A100 and B200 (measured, all of 128 and more) with a
 * median error of 5.4, 6.8 and 7.8 %. */
static const int64_t gpu_tokens[] = {128, 512, 2048, 8192};
static const int64_t gpu_features[] = {128, 256, 768, 3072, 12288};
/* Fewer features predict fp8 as well: 6.5 and 8.0 % on H100 and B200, those above 6.5 and 8.5.
 */
static const int64_t fp8_features[] = {256, 1024, 4096, 12288};
enum {
    CPU_TOKENS = sizeof cpu_tokens / sizeof *cpu_tokens,
    CPU_FEATURES = sizeof cpu_features / sizeof *cpu_features,
    GPU_TOKENS = sizeof gpu_tokens / sizeof *gpu_tokens,
    GPU_FEATURES = sizeof gpu_features / sizeof *gpu_features,
    FP8_FEATURES = sizeof fp8_features / sizeof *fp8_features,
};
_Static_assert((int)CPU_SHAPES + SBP_PASSES * CPU_TOKENS * CPU_FEATURES * CPU_FEATURES <=
                   SBP_MAX_GEMMS,
               "products fit the tables");
_Static_assert((int)GPU_SHAPES + SBP_PASSES * GPU_TOKENS *
                                     (GPU_FEATURES * GPU_FEATURES + FP8_FEATURES * FP8_FEATURES) <=
                   SBP_MAX_GEMMS,
               "products fit the tables");
static const struct sbp_layer_list cpu_layers[] = {
    {SBP_FP32, CPU_TOKENS, CPU_FEATURES, cpu_tokens, cpu_features, 1e9}};
static const struct sbp_layer_list gpu_layers[] = {
    {SBP_BF16, GPU_TOKENS, GPU_FEATURES, gpu_tokens, gpu_features, 1.5e11},
    {SBP_FP8, GPU_TOKENS, FP8_FEATURES, gpu_tokens, fp8_features, 6e11}};

/* Experts of a mixture, of layers that widen and that narrow: enough of them on a GPU that the
 * weights of the first are no longer in its cache (75 MB and more) when its turn comes again. */
static const int64_t cpu_expert_tokens[] = {12, 48, 192};
static const int64_t cpu_expert_features[][2] = {{192, 768}, {768, 192}};
static const int64_t gpu_expert_tokens[] = {128, 512, 2048};
static const int64_t gpu_expert_features[][2] = {{768, 3072}, {3072, 768}, {3072, 3072}};
static const struct sbp_expert_list
    cpu_experts = {.experts = 8,
                   .token_counts = sizeof cpu_expert_tokens / sizeof *cpu_expert_tokens,
                   .layers = sizeof cpu_expert_features / sizeof *cpu_expert_features,
                   .tokens = cpu_expert_tokens,
                   .feature = cpu_expert_features},
    gpu_experts = {.experts = 16,
                   .token_counts = sizeof gpu_expert_tokens / sizeof *gpu_expert_tokens,
                   .layers = sizeof gpu_expert_features / sizeof *gpu_expert_features,
                   .tokens = gpu_expert_tokens,
                   .feature = gpu_expert_features};
_Static_assert(SBP_PASSES *(sizeof gpu_expert_tokens / sizeof *gpu_expert_tokens) *
                       (sizeof gpu_expert_features / sizeof *gpu_expert_features) <=
                   SBP_MAX_GROUPED,
               "grouped products fit the tables");

/* Shares rise with the sequence by what a causal mask leaves of whole tiles: to half within one
 * tile, little beyond the longest. They are higher where all rows fit the second-level cache, which
 * those of a step do not (measured: 0.22 for 0.17 at head size 64 and sequence 64, AMD EPYC). */
static const int64_t cpu_head_sizes[] = {32, 64, 128};
static const int64_t cpu_sequences[] = {16, 64, 256, 1024};
static const struct sbp_attention_list cpu_attention = {
    .head_sizes = sizeof cpu_head_sizes / sizeof *cpu_head_sizes,
    .sequences = sizeof cpu_sequences / sizeof *cpu_sequences,
    .head_size = cpu_head_sizes,
    .sequence = cpu_sequences,
    .heads = 2,
    .rows = 2048,
};

/* 16 heads over 16,384 tokens fill every GPU. Rows are tokens of 512 to 8192 features in bf16. */
static const int64_t gpu_head_sizes[] = {32, 64, 128};
static const int64_t gpu_sequences[] = {128, 512, 2048, 8192};
static const struct sbp_attention_list gpu_attention = {
    .head_sizes = sizeof gpu_head_sizes / sizeof *gpu_head_sizes,
    .sequences = sizeof gpu_sequences / sizeof *gpu_sequences,
    .head_size = gpu_head_sizes,
    .sequence = gpu_sequences,
    .heads = 16,
    .rows = 16 * 16384,
};
static const int64_t gpu_row_bytes[] = {1024, 4096, 16384};

/* The C library copies more than 2 KiB in another way, which is twice as fast (glibc on an AMD
 * EPYC: 6.5 GB/s of 2048 B, 12 of 2560, 8.4 of 512 and 16.6 of 12288): there two sizes lie close.
 */
static const int64_t cpu_row_bytes[] = {512, 2048, 2560, 10240};

static const struct sbp_product_list lists[] = {
    [SBP_PRODUCTS_CPU] = {.count = CPU_SHAPES,
                          .required = 2,
                          .shape = cpu_shapes,
                          .training = SBP_FP32,
                          .layer_lists = sizeof cpu_layers / sizeof *cpu_layers,
                          .layers = cpu_layers,
                          .experts = &cpu_experts,
                          .small = 1e9,
                          .copy_bytes = (int64_t)64 << 20,
                          .flops = 1e10,
                          .copy_bytes_per_s = 1e10,
                          .has_gelu = true,
                          .beside = {SBP_FP32, 256, 256, 256},
                          .attention = &cpu_attention,
                          .row_sizes = sizeof cpu_row_bytes / sizeof *cpu_row_bytes,
                          .row_bytes = cpu_row_bytes},
    [SBP_PRODUCTS_GPU] = {.count = GPU_SHAPES,
                          .required = GPU_SHAPES,
                          .shape = gpu_shapes,
                          .training = SBP_BF16,
                          .layer_lists = sizeof gpu_layers / sizeof *gpu_layers,
                          .layers = gpu_layers,
                          .experts = &gpu_experts,
                          .small = 1024.0 * 1024 * 1024,
                          .copy_bytes = (int64_t)512 << 20,
                          .sustains = true,
                          .has_host = true,
                          .beside = {SBP_BF16, 2048, 3072, 3072},
                          .flops = 1e14,
                          .copy_bytes_per_s = 1e12,
                          .attention = &gpu_attention,
                          .row_sizes = sizeof gpu_row_bytes / sizeof *gpu_row_bytes,
                          .row_bytes = gpu_row_bytes},
};

const struct sbp_product_list *sbp_sweep_products(enum sbp_products products)
{
    return &lists[products];
}

static struct sbp_cell pass_product(enum sbp_type type, enum sbp_pass pass, int64_t tokens,
                                    int64_t in, int64_t out)
{
    return (struct sbp_cell){.work = SBP_CELL_GEMM,
                             .type = type,
                             .pass = pass,
                             .m = pass == SBP_PASS_WEIGHT_GRADIENT ? in : tokens,
                             .n = pass == SBP_PASS_INPUT_GRADIENT ? in : out,
                             .k = pass == SBP_PASS_WEIGHT_GRADIENT  ? tokens
                                  : pass == SBP_PASS_INPUT_GRADIENT ? out
                                                                    : in};
}

/* The product of a pass of a layer, `index` of all combinations. False: it is too large. */
static bool layer_product(const struct sbp_layer_list *layers, int index, enum sbp_pass pass,
                          struct sbp_cell *cell)
{
    const int64_t out = layers->feature[index % layers->features];
    const int64_t in = layers->feature[index / layers->features % layers->features];
    const int64_t tokens = layers->tokens[index / layers->features / layers->features];
    *cell = pass_product(layers->type, pass, tokens, in, out);
    return (double)tokens * (double)in * (double)out <= layers->most;
}

static int layer_count(const struct sbp_layer_list *layers)
{
    return layers->token_counts * layers->features * layers->features;
}

/* The products of a pass of a layer of experts, `index` of all combinations. */
static struct sbp_cell grouped_products(const struct sbp_product_list *list, int index,
                                        enum sbp_pass pass)
{
    const struct sbp_expert_list *experts = list->experts;
    const int64_t *feature = experts->feature[index % experts->layers];
    struct sbp_cell cell = pass_product(
        list->training, pass, experts->tokens[index / experts->layers], feature[0], feature[1]);
    cell.work = SBP_CELL_GROUPED;
    cell.experts = experts->experts;
    return cell;
}

static int grouped_count(const struct sbp_expert_list *experts)
{
    return experts->token_counts * experts->layers;
}

static void raise_to(int64_t *most, int64_t value)
{
    *most = value > *most ? value : *most;
}

static void raise_bytes(const struct sbp_cell *gemm, int64_t *y_bytes, int64_t *a_bytes,
                        int64_t *b_bytes)
{
    const int64_t products = gemm->work == SBP_CELL_GROUPED ? gemm->experts : 1;
    const int64_t bytes = products * sbp_cluster_type_bytes(gemm->type);
    const enum sbp_type result = gemm->type == SBP_FP8 ? SBP_BF16 : gemm->type;
    raise_to(y_bytes, gemm->m * gemm->n * products * sbp_cluster_type_bytes(result));
    raise_to(a_bytes, gemm->m * gemm->k * bytes);
    raise_to(b_bytes, gemm->k * gemm->n * bytes);
}

static struct sbp_cell shape_product(const struct sbp_product_shape *shape)
{
    return (struct sbp_cell){
        .work = SBP_CELL_GEMM, .type = shape->type, .m = shape->m, .n = shape->n, .k = shape->k};
}

void sbp_sweep_product_bytes(const struct sbp_product_list *list, int64_t *y_bytes,
                             int64_t *a_bytes, int64_t *b_bytes)
{
    struct sbp_cell gemm;
    for (int i = 0; i < list->count; i++) {
        gemm = shape_product(&list->shape[i]);
        raise_bytes(&gemm, y_bytes, a_bytes, b_bytes);
    }
    for (int l = 0; l < list->layer_lists; l++)
        for (int i = 0; i < layer_count(&list->layers[l]); i++)
            for (int pass = 0; pass < SBP_PASSES; pass++)
                if (layer_product(&list->layers[l], i, (enum sbp_pass)pass, &gemm))
                    raise_bytes(&gemm, y_bytes, a_bytes, b_bytes);
    for (int i = 0; i < grouped_count(list->experts); i++)
        for (int pass = 0; pass < SBP_PASSES; pass++) {
            gemm = grouped_products(list, i, (enum sbp_pass)pass);
            raise_bytes(&gemm, y_bytes, a_bytes, b_bytes);
        }
}

/* --- lists of cells --- */

struct list {
    struct sbp_cell *cell; /* NULL: only counted */
    int *stage;
    int64_t count;
};

static void add(struct list *list, int stage, const struct sbp_cell *cell)
{
    if (list->cell != NULL) {
        list->cell[list->count] = *cell;
        list->stage[list->count] = stage;
    }
    list->count++;
}

/* --- collectives --- */

/* The stage of a size: 0 for sizes far apart, 3 for every power of two. The largest message belongs
 * to the first stage, since it shows the bandwidth. */
static int stage_of_size(int64_t bytes, int64_t max_bytes)
{
    int power = 0;
    for (int64_t at = SBP_SWEEP_LEAST_BYTES; at < bytes; at *= 2)
        power++;
    if (power % 8 == 0 || bytes * 2 > max_bytes)
        return 0;
    return power % 4 == 0 ? 1 : power % 2 == 0 ? 2 : 3;
}

/* Whether a shape is the widest within a node, between nodes, or of both. */
static bool is_first_shape(const struct sbp_sweep_options *options, int nodes, int ranks_per_node)
{
    const bool all_nodes = nodes == options->nodes,
               all_ranks = ranks_per_node == options->ranks_per_node;
    return (all_nodes && all_ranks) || (all_nodes && ranks_per_node == 1) ||
           (nodes == 1 && all_ranks);
}

static int stage_of_shape(const struct sbp_sweep_options *options, const struct sbp_cell *cell)
{
    const int most = options->ranks_per_node / cell->ranks_per_node;
    const bool is_between = cell->groups != 1 && cell->groups != most;
    return (is_first_shape(options, cell->nodes, cell->ranks_per_node) ? 0 : 1) +
           (is_between ? 1 : 0);
}

static void list_sizes(struct list *list, const struct sbp_sweep_options *options,
                       struct sbp_cell cell)
{
    const int shape_stage = stage_of_shape(options, &cell);
    const int members = cell.nodes * cell.ranks_per_node;
    for (int64_t bytes = SBP_SWEEP_LEAST_BYTES; bytes <= options->max_bytes; bytes *= 2) {
        const int stage = stage_of_size(bytes, options->max_bytes);
        for (int k = 0; k < KINDS; k++) {
            if (options->kinds != 0 && !(options->kinds >> kinds[k] & 1))
                continue;
            cell.kind = kinds[k];
            cell.bytes = sbp_cell_whole_bytes(kinds[k], members, bytes);
            /* Sizes below one float a member all round to the same one. */
            if (bytes == SBP_SWEEP_LEAST_BYTES ||
                cell.bytes > sbp_cell_whole_bytes(kinds[k], members, bytes / 2))
                add(list, shape_stage + stage, &cell);
        }
    }
}

static bool is_wanted(int groups, int most, const struct sbp_cell *shape)
{
    const bool shares_ports = shape->nodes > 1 && shape->ranks_per_node == 1;
    return groups == 1 || groups == most || (shares_ports && most % groups == 0);
}

static void list_collectives(struct list *list, const struct sbp_sweep_options *options)
{
    struct sbp_cell cell = {.work = SBP_CELL_COLLECTIVE};
    for (cell.nodes = options->nodes; cell.nodes >= 1; cell.nodes--) {
        if (options->nodes % cell.nodes != 0)
            continue;
        for (cell.ranks_per_node = options->ranks_per_node; cell.ranks_per_node >= 1;
             cell.ranks_per_node--) {
            if (options->ranks_per_node % cell.ranks_per_node != 0 ||
                cell.nodes * cell.ranks_per_node < 2)
                continue;
            const int most = options->ranks_per_node / cell.ranks_per_node;
            for (cell.groups = 1; cell.groups <= most; cell.groups++)
                if (is_wanted(cell.groups, most, &cell))
                    list_sizes(list, options, cell);
        }
    }
}

/* --- compute and pairs --- */

/* Small products come first, since the large ones take as long as all others together; passes of
 * backward come a stage behind the forward products of their size. */
static int stage_of_product(const struct sbp_product_list *list, const struct sbp_cell *gemm)
{
    const double multiplications = (double)gemm->m * (double)gemm->n * (double)gemm->k;
    const int stage = multiplications <= list->small       ? 1
                      : multiplications <= 8 * list->small ? 2
                                                           : 3;
    return stage + (gemm->pass > SBP_PASS_FORWARD);
}

static bool is_lacking(const struct sbp_sweep_options *options, enum sbp_type type)
{
    return type == SBP_FP8 && (options->lacks & SBP_LACKS_FP8) != 0;
}

static void list_shapes(struct list *list, const struct sbp_sweep_options *options, int first,
                        int end)
{
    const struct sbp_product_list *products = sbp_sweep_products(options->products);
    for (int i = first; i < end; i++) {
        const struct sbp_cell gemm = shape_product(&products->shape[i]);
        if (!is_lacking(options, gemm.type))
            add(list, i < products->required ? 0 : stage_of_product(products, &gemm), &gemm);
    }
}

static void list_layers(struct list *list, const struct sbp_product_list *products,
                        const struct sbp_layer_list *layers)
{
    struct sbp_cell gemm;
    for (int i = 0; i < layer_count(layers); i++)
        for (int pass = 0; pass < SBP_PASSES; pass++)
            if (layer_product(layers, i, (enum sbp_pass)pass, &gemm))
                add(list, stage_of_product(products, &gemm), &gemm);
}

/* They come a stage behind the single products, beside whose times theirs count. */
static void list_experts(struct list *list, const struct sbp_product_list *products)
{
    for (int i = 0; i < grouped_count(products->experts); i++)
        for (int pass = 0; pass < SBP_PASSES; pass++) {
            const struct sbp_cell cell = grouped_products(products, i, (enum sbp_pass)pass);
            add(list, stage_of_product(products, &cell) + 1, &cell);
        }
}

/* Long sequences come a stage behind short ones, backward passes a stage behind forward. */
static void list_attention(struct list *list, const struct sbp_attention_list *attention,
                           enum sbp_type type)
{
    struct sbp_cell cell = {.work = SBP_CELL_ATTENTION, .attention.type = type};
    struct sbp_attention_point *at = &cell.attention;
    at->heads = attention->heads;
    for (int s = 0; s < attention->sequences; s++)
        for (int h = 0; h < attention->head_sizes; h++)
            for (int pass = SBP_PASS_FORWARD; pass <= SBP_PASS_INPUT_GRADIENT; pass++) {
                at->sequence = attention->sequence[s];
                at->head_size = attention->head_size[h];
                at->batch = attention->rows / (at->heads * at->sequence);
                at->pass = (enum sbp_pass)pass;
                add(list, 1 + (s + 1 == attention->sequences) + pass, &cell);
            }
}

/* A cell copies as many whole rows as fit in the bytes of a copy. */
static void list_rows(struct list *list, const struct sbp_product_list *products,
                      int64_t copy_bytes)
{
    for (int i = 0; i < products->row_sizes; i++) {
        struct sbp_cell cell = {.work = SBP_CELL_ROWS, .row_bytes = products->row_bytes[i]};
        cell.bytes = copy_bytes / cell.row_bytes * cell.row_bytes;
        if (cell.bytes > 0)
            add(list, 1, &cell);
    }
}

static int64_t load_of(double budget_s)
{
    const double load_s = LOAD_SHARE * budget_s;
    return load_s >= MOST_LOAD_S ? MOST_LOAD_S : load_s >= 1 ? (int64_t)load_s : 1;
}

/* With --collectives only what a cluster file cannot do without. */
static void list_compute(struct list *list, const struct sbp_sweep_options *options)
{
    const struct sbp_product_list *products = sbp_sweep_products(options->products);
    const struct sbp_cell copy = {.work = SBP_CELL_COPY, .bytes = options->copy_bytes};
    const struct sbp_cell stream = {.work = SBP_CELL_STREAM, .bytes = options->copy_bytes / 2};
    const struct sbp_cell gelu = {.work = SBP_CELL_GELU, .bytes = options->copy_bytes / 2};
    const struct sbp_cell launch = {.work = SBP_CELL_LAUNCH, .m = 1, .n = 1, .k = 1};
    const struct sbp_cell host = {.work = SBP_CELL_HOST, .m = 1, .n = 1, .k = 1};
    const int64_t link_bytes = options->copy_bytes < LINK_BYTES ? options->copy_bytes : LINK_BYTES;
    const struct sbp_cell link = {.work = SBP_CELL_LINK, .bytes = link_bytes};
    struct sbp_cell sustained = shape_product(&products->shape[0]);
    sustained.work = SBP_CELL_SUSTAINED;
    sustained.load_s = load_of(options->budget_s);
    add(list, 0, &copy);
    list_shapes(list, options, 0, products->required);
    add(list, 1, &launch);
    if (options->kinds != 0)
        return;
    list_shapes(list, options, products->required, products->count);
    for (int i = 0; i < products->layer_lists; i++)
        if (!is_lacking(options, products->layers[i].type))
            list_layers(list, products, &products->layers[i]);
    list_experts(list, products);
    if (products->sustains)
        add(list, 1, &sustained);
    if (products->has_host) {
        add(list, 1, &host);
        add(list, 1, &link);
    }
    if (stream.bytes > 0)
        add(list, 1, &stream);
    if (products->has_gelu && gelu.bytes > 0)
        add(list, 1, &gelu);
    if ((options->lacks & SBP_LACKS_KERNELS) != 0)
        return;
    list_attention(list, products->attention, products->training);
    list_rows(list, products, options->copy_bytes);
}

/* Each is timed alone, too, by the same clock. */
static void list_beside_of(struct list *list, const struct sbp_sweep_options *options, int nodes,
                           int ranks_per_node)
{
    static const enum sbp_collective summed[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER,
                                                 SBP_REDUCE_SCATTER};
    const struct sbp_product_shape *shape = &sbp_sweep_products(options->products)->beside;
    struct sbp_cell alone = {.work = SBP_CELL_BESIDE,
                             .nodes = nodes,
                             .ranks_per_node = ranks_per_node,
                             .groups = options->ranks_per_node / ranks_per_node};
    for (size_t k = 0; k < sizeof summed / sizeof *summed; k++)
        for (int64_t part = 4; part <= 16; part *= 4) {
            const int64_t bytes = options->max_bytes / part;
            alone.kind = summed[k];
            alone.bytes = sbp_cell_whole_bytes(alone.kind, nodes * ranks_per_node, bytes);
            if (bytes < BESIDE_BYTES && part > 4)
                continue;
            struct sbp_cell beside = alone;
            beside.type = shape->type;
            beside.m = shape->m;
            beside.n = shape->n;
            beside.k = shape->k;
            add(list, 2, &alone);
            add(list, 2, &beside);
        }
}

static void list_beside(struct list *list, const struct sbp_sweep_options *options)
{
    if (options->kinds != 0 || (options->lacks & SBP_LACKS_LANE) != 0)
        return;
    for (int nodes = 1; nodes <= options->nodes; nodes++)
        for (int ranks = 1; ranks <= options->ranks_per_node; ranks++)
            if (nodes * ranks > 1 && is_first_shape(options, nodes, ranks))
                list_beside_of(list, options, nodes, ranks);
}

/* The rounds of a tournament in which every two of `players` meet once. */
static int rounds_of(int players)
{
    return players < 2 ? 0 : players + players % 2 - 1;
}

static int node_rounds(const struct sbp_sweep_options *options)
{
    const int rounds = rounds_of(options->nodes);
    return rounds < MOST_NODE_ROUNDS ? rounds : MOST_NODE_ROUNDS;
}

static void list_pairs(struct list *list, const struct sbp_sweep_options *options)
{
    const int inner = rounds_of(options->ranks_per_node);
    const int rounds = inner + node_rounds(options) * options->ranks_per_node;
    struct sbp_cell cell = {.work = SBP_CELL_PAIRS};
    for (cell.round = 0; cell.round < rounds; cell.round++) {
        cell.bytes = LATENCY_BYTES;
        add(list, 0, &cell);
        cell.bytes = BANDWIDTH_BYTES;
        if (cell.bytes <= options->max_bytes)
            add(list, 0, &cell);
    }
}

/* Pairs players by the circle method: the last of an even number stays, the others meet where their
 * numbers add up to the round. -1: nobody. */
static int opponent(int players, int round, int player)
{
    const int seats = players + players % 2 - 1; /* on the circle */
    int other;
    if (player == seats) {
        other = 0;
        while ((2 * other) % seats != round)
            other++;
    } else {
        other = ((round - player) % seats + seats) % seats;
        if (other == player)
            other = seats;
    }
    return other < players ? other : -1;
}

bool sbp_sweep_partner(const struct sbp_sweep_options *options, int round, int node, int local,
                       int *partner_node, int *partner_local)
{
    const int inner = rounds_of(options->ranks_per_node);
    if (node >= options->nodes || local >= options->ranks_per_node)
        return false;
    *partner_node = node;
    *partner_local = local;
    if (round < inner) {
        *partner_local = opponent(options->ranks_per_node, round, local);
        return *partner_local >= 0;
    }
    const int at = (round - inner) / options->ranks_per_node;
    const int rounds = node_rounds(options);
    if ((round - inner) % options->ranks_per_node != local || rounds < 1 || at >= rounds)
        return false;
    const int every = (int)((int64_t)at * rounds_of(options->nodes) / rounds);
    *partner_node = opponent(options->nodes, every, node);
    return *partner_node >= 0;
}

/* --- the whole --- */

static void list_all(struct list *list, const struct sbp_sweep_options *options)
{
    list_compute(list, options);
    list_beside(list, options);
    list_pairs(list, options);
    list_collectives(list, options);
}

static bool is_required(const struct sbp_cell *cell)
{
    return cell->work != SBP_CELL_PAIRS && cell->work != SBP_CELL_BESIDE &&
           (cell->work != SBP_CELL_COLLECTIVE || cell->bytes <= REQUIRED_BYTES);
}

/* Sorts the cells by stage; in the first stage, the required ones go first. */
static void sort_into(struct sbp_sample_sweep *sweep, const struct list *list)
{
    for (int stage = 0; stage < SBP_SWEEP_STAGES; stage++) {
        sweep->first[stage] = sweep->count;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < list->count; i++)
                if (list->stage[i] == stage && is_required(&list->cell[i]) == (pass == 0))
                    sweep->cell[sweep->count++] = list->cell[i];
            if (stage == 0 && pass == 0)
                sweep->required = sweep->count;
        }
    }
    sweep->first[SBP_SWEEP_STAGES] = sweep->count;
}

enum sbp_status sbp_sweep_init(struct sbp_sample_sweep *sweep,
                               const struct sbp_sweep_options *options, struct sbp_diag *diag)
{
    *sweep = (struct sbp_sample_sweep){.options = *options};
    struct list list = {0};
    list_all(&list, options);
    if (list.count >= MOST_CELLS)
        return sbp_fail(diag, SBP_E_RANGE,
                        "%d nodes x %d ranks have %lld cells to measure, legal are fewer than %d",
                        options->nodes, options->ranks_per_node, (long long)list.count, MOST_CELLS);
    const size_t count = (size_t)list.count;
    list.count = 0;
    list.cell = calloc(count, sizeof *list.cell);
    list.stage = calloc(count, sizeof *list.stage);
    sweep->cell = calloc(count, sizeof *sweep->cell);
    enum sbp_status status = SBP_OK;
    if (list.cell == NULL || list.stage == NULL || sweep->cell == NULL) {
        sbp_sweep_free(sweep);
        status = sbp_fail(diag, SBP_E_MEMORY, "out of memory for %zu cells", count);
    } else {
        list_all(&list, options);
        sort_into(sweep, &list);
    }
    free(list.stage);
    free(list.cell);
    return status;
}

void sbp_sweep_free(struct sbp_sample_sweep *sweep)
{
    if (sweep == NULL)
        return;
    free(sweep->cell);
    *sweep = (struct sbp_sample_sweep){0};
}

void sbp_sweep_order(const struct sbp_sample_sweep *sweep, uint64_t seed, int run, int *order)
{
    struct sbp_random random;
    sbp_random_seed(&random, seed + (uint64_t)run * 0x9e3779b97f4a7c15u);
    for (int i = 0; i < sweep->count; i++)
        order[i] = i;
    for (int stage = 0; stage < SBP_SWEEP_STAGES; stage++) {
        const int first = stage == 0 && run == 0 ? sweep->required : sweep->first[stage];
        for (int i = sweep->first[stage + 1] - 1; i > first; i--) {
            const int j = first + (int)sbp_random_below(&random, (uint64_t)(i - first) + 1);
            const int swapped = order[i];
            order[i] = order[j];
            order[j] = swapped;
        }
    }
}
