#include "planner/degrees/megatron.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/text.h"
#include "costmodel/program/stages.h"

#define REFUSE(...) sbp_fail(diag, SBP_E_INPUT, "--megatron: " __VA_ARGS__)
#define MOST_COUNT  (INT64_C(1) << 31)
#define WORD_BYTES  1024
#define SHOWN_BYTES 48

/* ---- the table of flags --------------------------------------------------------------------- */

/* What a flag's value fills. */
enum kind {
    COUNT,  /* an int64_t of struct sbp_megatron_flags */
    CLAIM,  /* of the model */
    SWITCH, /* takes no value; `fill` says the rest */
    TEXT,   /* `fill` reads it */
    REFUSED /* a plan depends on it; `key` says what is legal instead */
};

struct flag {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *key;
    bool (*fill)(struct sbp_megatron_flags *flags, const char *value);
    const char *legal; /* of TEXT */
};

static void note(struct sbp_megatron_flags *flags, const char *format, ...) SBP_PRINTF(2, 3);
static void note(struct sbp_megatron_flags *flags, const char *format, ...)
{
    va_list arguments;
    if (flags->note_count == SBP_DEGREES_NOTES)
        return;
    va_start(arguments, format);
    (void)vsnprintf(flags->note[flags->note_count++], SBP_DEGREES_NOTE_BYTES, format, arguments);
    va_end(arguments);
}

static bool set_sequence(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    flags->degrees.sequence_parallel = true;
    return true;
}

static bool set_optimizer(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    if (flags->degrees.zero < 1)
        flags->degrees.zero = 1;
    return true;
}

static bool set_offload(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    flags->degrees.offload = true;
    return true;
}

static bool set_fsdp(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    flags->degrees.zero = 3;
    return true;
}

static bool set_sharding(struct sbp_megatron_flags *flags, const char *value)
{
    static const char *const levels[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    for (int level = 0; level < 4; level++)
        if (strcmp(value, levels[level]) == 0) {
            flags->degrees.zero = level;
            return true;
        }
    return false;
}

static bool set_recompute(struct sbp_megatron_flags *flags, const char *value)
{
    const bool full = strcmp(value, "full") == 0;
    flags->degrees.recompute = full ? SBP_RECOMPUTE_FULL : SBP_RECOMPUTE_ATTENTION;
    return full || strcmp(value, "selective") == 0;
}

static bool set_selective(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    return set_recompute(flags, "selective");
}

static bool set_method(struct sbp_megatron_flags *flags, const char *value)
{
    if (strcmp(value, "block") == 0) {
        note(flags, "--recompute-method block: all layers are recomputed, not the first of each "
                    "stage alone");
        flags->recompute_block = true;
        return true;
    }
    return strcmp(value, "uniform") == 0;
}

static bool set_modules(struct sbp_megatron_flags *flags, const char *value)
{
    if (strcmp(value, "core_attn") != 0)
        note(flags, "--recompute-modules: selective recompute is priced as that of core_attn");
    return true;
}

static bool set_backend(struct sbp_megatron_flags *flags, const char *value)
{
    static const char *const names[] = {"unfused", "local", "flash", "fused", "auto"};
    for (int i = 0; i < 5; i++)
        if (strcmp(value, names[i]) == 0) {
            flags->flash |= i >= 2;
            return true;
        }
    return false;
}

static bool set_flash(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    flags->flash = true;
    return true;
}

static bool set_half(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    flags->half = true;
    return true;
}

static bool set_fp8(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    note(flags, "--fp8-format: products are priced in the model's precision, --set precision=fp8 "
                "prices them in fp8");
    return true;
}

static bool set_overlap(struct sbp_megatron_flags *flags, const char *value)
{
    (void)value;
    flags->overlap = true;
    return true;
}

/* Reads "t" or "t*17" at *at and moves to its last letter. */
static bool take_layers(const char **at, int64_t *layers)
{
    char count[8];
    int64_t times = 1;
    if ((*at)[1] == '*') {
        const size_t length = strspn(*at + 2, "0123456789");
        if (length == 0 || length >= sizeof count)
            return false;
        (void)snprintf(count, sizeof count, "%.*s", (int)length, *at + 2);
        if (!sbp_parse_int64(count, &times))
            return false;
        *at += 1 + length;
    }
    *layers += times;
    return *layers <= UINT16_MAX;
}

/* "Et*17|t*15,L": pieces parted by '|', of which the first begins with the embedding and the last
 * ends with the loss; t: a layer. */
static bool set_layout(struct sbp_megatron_flags *flags, const char *value)
{
    int pieces = 0;
    int64_t layers = 0;
    bool ended = false; /* by the loss */
    for (const char *at = value;; at++) {
        if (*at == '|' || *at == '\0') {
            if (pieces == SBP_MOST_GIVEN_PIECES)
                return false;
            flags->degrees.stage_blocks[pieces++] = (uint16_t)layers;
            layers = 0;
        }
        if (*at == '\0')
            break;
        const bool begins = *at == 'E' && at == value;
        const bool ends = *at == 'L' && !ended && strchr(at, '|') == NULL;
        if (*at == 't' && !ended ? !take_layers(&at, &layers)
                                 : *at != '|' && *at != ',' && !begins && !ends)
            return false;
        ended |= ends;
    }
    flags->degrees.stage_blocks_count = pieces;
    return pieces > 1;
}

#define OF(field) offsetof(struct sbp_megatron_flags, field)
static const struct flag table[] = {
    {"--tensor-model-parallel-size", COUNT, .offset = OF(degrees.tensor)},
    {"--pipeline-model-parallel-size", COUNT, .offset = OF(degrees.pipeline)},
    {"--num-virtual-stages-per-pipeline-rank", COUNT, .offset = OF(degrees.chunks)},
    {"--num-layers-per-virtual-pipeline-stage", COUNT, .offset = OF(chunk_layers)},
    {"--context-parallel-size", COUNT, .offset = OF(degrees.context)},
    {"--expert-model-parallel-size", COUNT, .offset = OF(degrees.expert)},
    {"--expert-tensor-parallel-size", COUNT, .offset = OF(degrees.expert_tensor)},
    {"--micro-batch-size", COUNT, .offset = OF(degrees.micro_batch)},
    {"--global-batch-size", COUNT, .offset = OF(global_batch)},
    {"--recompute-num-layers", COUNT, .offset = OF(degrees.recompute_every)},
    {"--sequence-parallel", SWITCH, .fill = set_sequence},
    {"--use-distributed-optimizer", SWITCH, .fill = set_optimizer},
    {"--optimizer-cpu-offload", SWITCH, .fill = set_offload},
    {"--use-megatron-fsdp", SWITCH, .fill = set_fsdp},
    {"--use-torch-fsdp2", SWITCH, .fill = set_fsdp},
    {"--data-parallel-sharding-strategy", TEXT, .fill = set_sharding,
     .legal = "no_shard, optim, optim_grads and optim_grads_params"},
    {"--recompute-activations", SWITCH, .fill = set_selective},
    {"--recompute-granularity", TEXT, .fill = set_recompute, .legal = "full and selective"},
    {"--recompute-method", TEXT, .fill = set_method, .legal = "uniform and block"},
    {"--recompute-modules", TEXT, .fill = set_modules},
    {"--use-flash-attn", SWITCH, .fill = set_flash},
    {"--attention-backend", TEXT, .fill = set_backend,
     .legal = "flash, fused, auto, unfused and local"},
    {"--bf16", SWITCH, .fill = set_half},
    {"--fp16", SWITCH, .fill = set_half},
    {"--fp8-format", TEXT, .fill = set_fp8},
    {"--overlap-grad-reduce", SWITCH, .fill = set_overlap},
    {"--overlap-param-gather", SWITCH, .fill = set_overlap},
    {"--tp-comm-overlap", SWITCH, .fill = set_overlap},
    {"--pipeline-model-parallel-layout", TEXT, .fill = set_layout,
     .legal = "pieces of E, t, t*N and L with | between, as in Et*17|t*15,L"},
    {"--decoder-first-pipeline-num-layers", REFUSED, .key = "--set stage_cut=N,N,..."},
    {"--decoder-last-pipeline-num-layers", REFUSED, .key = "--set stage_cut=N,N,..."},
    {"--account-for-embedding-in-pipeline-split", REFUSED, .key = "--set stage_cut=N,N,..."},
    {"--account-for-loss-in-pipeline-split", REFUSED, .key = "--set stage_cut=N,N,..."},
    {"--hierarchical-context-parallel-sizes", REFUSED, .key = "--context-parallel-size N"},
    {"--num-layers", CLAIM, .key = "layers"},
    {"--hidden-size", CLAIM, .key = "hidden"},
    {"--num-attention-heads", CLAIM, .key = "heads"},
    {"--num-query-groups", CLAIM, .key = "kv_heads"},
    {"--kv-channels", CLAIM, .key = "head_dim"},
    {"--ffn-hidden-size", CLAIM, .key = "ffn"},
    {"--seq-length", CLAIM, .key = "sequence"},
    {"--vocab-size", CLAIM, .key = "vocab"},
    {"--num-experts", CLAIM, .key = "experts"},
    {"--moe-router-topk", CLAIM, .key = "top_k"},
    {"--q-lora-rank", CLAIM, .key = "q_rank"},
    {"--kv-lora-rank", CLAIM, .key = "kv_rank"},
};
#undef OF

/* ---- words ---------------------------------------------------------------------------------- */

static const char SPACES[] = " \t\r\n\\";

static bool is_quote(char letter)
{
    return letter == '"' || letter == '\'';
}

/* Copies the next word, without its quotes, within which blanks belong to it; false at the end.
 * What check_words refused is not met. */
static bool next_word(const char **at, char *word)
{
    size_t used = 0;
    char open = '\0';
    *at += strspn(*at, SPACES);
    if (**at == '\0')
        return false;
    for (; **at != '\0' && (open != '\0' || strchr(SPACES, **at) == NULL); ++*at) {
        if (open == '\0' ? is_quote(**at) : **at == open)
            open = open == '\0' ? **at : '\0';
        else
            word[used++] = **at;
    }
    word[used] = '\0';
    return true;
}

/* Refuses words that have no room and quotes that are not closed. */
static enum sbp_status check_words(const char *words, struct sbp_diag *diag)
{
    size_t length = 0;
    char open = '\0';
    for (const char *at = words; *at != '\0'; at++) {
        if (open == '\0' ? is_quote(*at) : *at == open)
            open = open == '\0' ? *at : '\0';
        length = open == '\0' && strchr(SPACES, *at) != NULL ? 0 : length + 1;
        if (length >= WORD_BYTES)
            return REFUSE(
                "a word begins with \"%.40s\" and has %d letters and more, fewer are legal",
                at + 1 - length, WORD_BYTES);
    }
    return open == '\0' ? SBP_OK : REFUSE("a quote (%c) is not closed", open);
}

static bool is_flag(const char *word)
{
    return strncmp(word, "--", 2) == 0 && word[2] != '\0';
}

/* The value of a flag: what stands behind its '=', or the next word unless it is a flag. Words that
 * follow it are skipped, as "--profile-ranks 0 1" has them. */
static bool take_value(const char **at, char *flag, char *value)
{
    char *equals = strchr(flag, '=');
    value[0] = '\0';
    if (equals != NULL) {
        *equals = '\0';
        (void)snprintf(value, WORD_BYTES, "%s", equals + 1);
        return true;
    }
    char word[WORD_BYTES];
    const char *next = *at;
    bool found = false;
    while (next_word(&next, word) && !is_flag(word)) {
        if (!found)
            (void)snprintf(value, WORD_BYTES, "%s", word);
        found = true;
        *at = next;
    }
    return found;
}

static const struct flag *find_flag(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static enum sbp_status read_count(const struct flag *flag, const char *text, int64_t *value,
                                  struct sbp_diag *diag)
{
    if (!sbp_parse_int64(text, value) || *value < 1 || *value > MOST_COUNT)
        return REFUSE("%s: \"%.40s\", whole numbers from 1 are legal", flag->name, text);
    return SBP_OK;
}

/* Whether a word behind a switch says yes or no, which argparse would not read either. */
static bool is_truth(const char *word)
{
    static const char *const words[] = {"true", "false", "True", "False", "yes",
                                        "no",   "on",    "off",  "0",     "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static enum sbp_status read_flag(struct sbp_megatron_flags *flags, const struct flag *flag,
                                 bool has_value, const char *value, struct sbp_diag *diag)
{
    if (flag->kind == REFUSED)
        return REFUSE("%s: is not read, legal is %s", flag->name, flag->key);
    if (flag->kind == SWITCH) {
        if (has_value && is_truth(value))
            return REFUSE("%s: takes no value: it is there, or it is not", flag->name);
        (void)flag->fill(flags, NULL);
        return SBP_OK;
    }
    if (!has_value)
        return REFUSE("%s: has no value", flag->name);
    if (flag->kind == COUNT)
        return read_count(flag, value, (int64_t *)(void *)((char *)flags + flag->offset), diag);
    if (flag->kind == TEXT)
        return flag->fill(flags, value)
                   ? SBP_OK
                   : REFUSE("%s: \"%.60s\", legal are %s", flag->name, value, flag->legal);
    struct sbp_megatron_claim *claim = &flags->claim[flags->claim_count];
    if (flags->claim_count == SBP_MEGATRON_CLAIMS)
        return REFUSE("%s: the model's sizes are given more than once", flag->name);
    *claim = (struct sbp_megatron_claim){.flag = flag->name, .key = flag->key};
    flags->claim_count++;
    return read_count(flag, value, &claim->value, diag);
}

/* Adds a flag to those that were left out. */
static void leave_out(struct sbp_text *left, const char *name)
{
    char shown[SHOWN_BYTES];
    (void)snprintf(shown, sizeof shown, "%.40s", name);
    if (left->bytes == NULL || strstr(left->bytes, shown) == NULL)
        sbp_text_add(left, "%s%s", left->length > 0 ? ", " : "", shown);
}

static enum sbp_status read_words(const char *words, struct sbp_megatron_flags *flags,
                                  struct sbp_text *left, struct sbp_diag *diag)
{
    char word[WORD_BYTES], value[WORD_BYTES];
    while (next_word(&words, word)) {
        if (!is_flag(word))
            continue; /* a program and its file, or the value of an unknown flag */
        const bool has_value = take_value(&words, word, value);
        const struct flag *flag = find_flag(word);
        if (flag == NULL)
            leave_out(left, word);
        else
            SBP_TRY(read_flag(flags, flag, has_value, value, diag));
    }
    return left->failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

static void add_notes(struct sbp_megatron_flags *flags, const struct sbp_text *left)
{
    if (flags->overlap)
        note(flags, "flags of overlap: --runtime NAME says what hides");
    if (left->length > 0)
        note(flags, "flags that change nothing here: %.150s%s", left->bytes,
             left->length > 150 ? "..." : "");
}

enum sbp_status sbp_megatron_read(const char *words, struct sbp_megatron_flags *flags,
                                  struct sbp_diag *diag)
{
    struct sbp_text left = {0};
    *flags = (struct sbp_megatron_flags){.degrees = sbp_degrees_none()};
    SBP_TRY(check_words(words, diag));
    const enum sbp_status status = read_words(words, flags, &left, diag);
    if (status == SBP_OK)
        add_notes(flags, &left);
    sbp_text_free(&left);
    if (flags->degrees.recompute != SBP_RECOMPUTE_FULL || flags->recompute_block)
        flags->degrees.recompute_every = 0; /* it counts layers of another method */
    return status;
}

/* ---- against the model ---------------------------------------------------------------------- */

static bool number_of(const struct cJSON *model, const char *key, int64_t *value)
{
    const struct cJSON *node = cJSON_GetObjectItemCaseSensitive(model, key);
    if (!cJSON_IsNumber(node))
        return false;
    *value = (int64_t)node->valuedouble;
    return true;
}

/* The model's value of a key, with the defaults of architectures. False: it has none. */
static bool value_of(const struct cJSON *model, const char *key, int64_t *value)
{
    int64_t hidden = 0, heads = 0;
    if (strcmp(key, "ffn") == 0 && number_of(model, "dense_ffn", value))
        return true; /* "ffn" is that of an expert */
    if (number_of(model, key, value))
        return true;
    const bool sizes = number_of(model, "hidden", &hidden) && number_of(model, "heads", &heads);
    if (!sizes || heads < 1)
        return false;
    *value = strcmp(key, "kv_heads") == 0   ? heads
             : strcmp(key, "head_dim") == 0 ? hidden / heads
             : strcmp(key, "ffn") == 0      ? 4 * hidden
                                            : -1;
    return *value >= 0;
}

static enum sbp_status check_claim(const struct sbp_megatron_claim *claim,
                                   const struct cJSON *model, const struct sbp_graph *graph,
                                   struct sbp_diag *diag)
{
    int64_t have;
    if (!value_of(model, claim->key, &have))
        return REFUSE("%s: %lld, but model %s has no %s", claim->flag, (long long)claim->value,
                      graph->name, claim->key);
    if (have != claim->value)
        return REFUSE("%s: %lld, but model %s has %s %lld", claim->flag, (long long)claim->value,
                      graph->name, claim->key, (long long)have);
    return SBP_OK;
}

static enum sbp_status check_chunks(struct sbp_megatron_flags *flags, const struct cJSON *model,
                                    struct sbp_diag *diag)
{
    struct sbp_degrees *d = &flags->degrees;
    const int64_t stages = d->pipeline > 0 ? d->pipeline : 1;
    int64_t layers = 0;
    if (flags->degrees.stage_blocks_count > 0 && flags->degrees.stage_blocks_count % stages != 0)
        return REFUSE("--pipeline-model-parallel-layout: has %d pieces, legal are multiples of the "
                      "%lld stages",
                      flags->degrees.stage_blocks_count, (long long)stages);
    if (flags->degrees.stage_blocks_count > 0)
        d->chunks = flags->degrees.stage_blocks_count / stages;
    if (flags->chunk_layers == 0)
        return SBP_OK;
    if (!number_of(model, "layers", &layers) || layers % stages != 0 ||
        (layers / stages) % flags->chunk_layers != 0)
        return REFUSE("--num-layers-per-virtual-pipeline-stage: %lld layers do not divide those of "
                      "a stage, %lld / %lld",
                      (long long)flags->chunk_layers, (long long)layers, (long long)stages);
    d->chunks = layers / stages / flags->chunk_layers;
    return SBP_OK;
}

/* The blocks before layer number `count`; -1: a block is of several layers, which the boundary
 * parts. */
static int blocks_before(const struct sbp_graph *graph, const int *layer, const int *block,
                         int64_t count)
{
    int blocks = 0, op = 0;
    for (; op < graph->op_count && (layer[op] < 0 || layer[op] < count); op++)
        if (block[op] >= blocks)
            blocks = block[op] + 1;
    return op < graph->op_count && op > 0 && block[op] >= 0 && block[op] == block[op - 1] ? -1
                                                                                          : blocks;
}

/* Without a layout every piece has as many layers. */
static void share_layers(struct sbp_degrees *d, int layers)
{
    const int64_t pieces = (d->pipeline > 0 ? d->pipeline : 1) * (d->chunks > 0 ? d->chunks : 1);
    if (d->stage_blocks_count > 0 || pieces < 2 || pieces > SBP_MOST_GIVEN_PIECES ||
        layers % pieces != 0)
        return;
    d->stage_blocks_count = (int)pieces;
    for (int64_t piece = 0; piece < pieces; piece++)
        d->stage_blocks[piece] = (uint16_t)(layers / pieces);
}

/* Segments are of whole blocks. */
static void count_segments(struct sbp_megatron_flags *flags, int block_layers)
{
    const int64_t layers = flags->degrees.recompute_every;
    flags->degrees.recompute_every = (layers + block_layers - 1) / block_layers;
    if (layers % block_layers != 0)
        note(flags,
             "--recompute-num-layers: %lld layers are priced as %lld, whole groups of the %d that "
             "repeat together",
             (long long)layers, (long long)flags->degrees.recompute_every * block_layers,
             block_layers);
}

/* Layers are counted; what stages are cut by are the blocks that repeat. */
static enum sbp_status count_blocks(struct sbp_megatron_flags *flags, const struct sbp_graph *graph,
                                    struct sbp_arena *arena, struct sbp_diag *diag)
{
    struct sbp_degrees *d = &flags->degrees;
    int *layer = SBP_NEW(arena, int, graph->op_count),
        *block = SBP_NEW(arena, int, graph->op_count);
    if (layer == NULL || block == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const int layers = sbp_degrees_layers(graph, layer);
    int64_t count = 0, before = 0;
    if (layers == 0 || layers == sbp_stages_blocks(graph, block))
        return SBP_OK;
    count_segments(flags, sbp_degrees_block_layers(graph, layer, block));
    share_layers(d, layers);
    for (int piece = 0; piece < d->stage_blocks_count; piece++) {
        count += d->stage_blocks[piece];
        const int blocks = blocks_before(graph, layer, block, count);
        if (blocks < 0)
            return REFUSE("--pipeline-model-parallel-layout: piece %d ends within layers that "
                          "repeat together, the end of such a group is legal",
                          piece);
        d->stage_blocks[piece] = (uint16_t)(blocks - before);
        before = blocks;
    }
    return count == layers || d->stage_blocks_count == 0
               ? SBP_OK
               : REFUSE("--pipeline-model-parallel-layout: has %lld layers, but model "
                        "%s has %d",
                        (long long)count, graph->name, layers);
}

static bool keeps_scores(const struct sbp_graph *graph)
{
    for (int op = 0; op < graph->op_count; op++)
        if (graph->op[op].kind == SBP_OP_ATTENTION ||
            graph->op[op].kind == SBP_OP_GROUPED_ATTENTION ||
            graph->op[op].kind == SBP_OP_LATENT_ATTENTION)
            return graph->op[op].attention.kind == SBP_ATTENTION_MATERIALISED;
    return false;
}

enum sbp_status sbp_megatron_check(struct sbp_megatron_flags *flags, const struct cJSON *model,
                                   const struct sbp_graph *graph, struct sbp_diag *diag)
{
    for (int i = 0; i < flags->claim_count; i++)
        SBP_TRY(check_claim(&flags->claim[i], model, graph, diag));
    if (flags->half && graph->precision.compute == SBP_FP32)
        return REFUSE("--bf16, --fp16: model %s computes in fp32, --set precision=mixed is legal",
                      graph->name);
    if (flags->flash && keeps_scores(graph))
        note(flags,
             "the attention of model %s is materialised, --set attention=flash says what "
             "the flags do",
             graph->name);
    SBP_TRY(check_chunks(flags, model, diag));
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    const enum sbp_status status = count_blocks(flags, graph, &arena, diag);
    sbp_arena_free(&arena);
    return status;
}
