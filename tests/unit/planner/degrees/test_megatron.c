/* Command lines of Megatron-LM: what they say of a plan is taken, what they say of a model is
 * checked, and what cannot be said is refused with the flag.
 */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "planner/degrees/megatron.h"
#include "tests/support/unit.h"

static const char MODEL[] =
    "{\"name\": \"llama\", \"architecture\": \"llama\", \"layers\": 32, \"hidden\": 64,"
    "\"heads\": 8, \"kv_heads\": 2, \"ffn\": 128, \"sequence\": 64, \"vocab\": 128,"
    "\"global_batch\": 64, \"precision\": \"mixed\"}";

/* Reads and checks; the message is the caller's. */
static enum sbp_status take(const char *words, struct sbp_megatron_flags *flags,
                            struct sbp_diag *diag)
{
    struct cJSON *model = cJSON_Parse(MODEL);
    struct sbp_graph graph;
    struct sbp_json at;
    sbp_json_at(model, "model", diag, &at);
    assert_int_equal(sbp_graph_read(&at, &graph), SBP_OK);
    enum sbp_status status = sbp_megatron_read(words, flags, diag);
    if (status == SBP_OK)
        status = sbp_megatron_check(flags, model, &graph, diag);
    sbp_graph_free(&graph);
    cJSON_Delete(model);
    return status;
}

static void read_flags(const char *words, struct sbp_megatron_flags *flags)
{
    struct sbp_diag diag = {{0}};
    if (take(words, flags, &diag) != SBP_OK)
        fail_msg("%s: %s", words, diag.text);
}

static void test_degrees(void **state)
{
    (void)state;
    struct sbp_megatron_flags flags;
    read_flags("torchrun --nproc_per_node 8 pretrain_gpt.py \\\n --tensor-model-parallel-size 8 "
               "--pipeline-model-parallel-size=4 --num-layers-per-virtual-pipeline-stage 2 "
               "--context-parallel-size 2 --expert-model-parallel-size 16 "
               "--expert-tensor-parallel-size 1 --sequence-parallel --micro-batch-size 2 "
               "--global-batch-size 512 --use-distributed-optimizer --recompute-granularity full "
               "--recompute-method uniform --recompute-num-layers 3",
               &flags);
    const struct sbp_degrees *d = &flags.degrees;
    assert_int_equal(d->tensor, 8);
    assert_int_equal(d->pipeline, 4);
    assert_int_equal(d->chunks, 4);
    assert_int_equal(d->context, 2);
    assert_int_equal(d->expert, 16);
    assert_int_equal(d->expert_tensor, 1);
    assert_int_equal(d->micro_batch, 2);
    assert_int_equal(d->zero, 1);
    assert_int_equal(d->recompute, SBP_RECOMPUTE_FULL);
    assert_int_equal(d->recompute_every, 3);
    assert_true(d->sequence_parallel);
    assert_int_equal(flags.global_batch, 512);
}

static void test_nothing_given(void **state)
{
    (void)state;
    struct sbp_megatron_flags flags;
    read_flags("  ", &flags);
    const struct sbp_degrees none = sbp_degrees_none();
    assert_memory_equal(&flags.degrees, &none, sizeof none);
    assert_int_equal(flags.note_count, 0);
}

static void test_layouts(void **state)
{
    (void)state;
    struct sbp_megatron_flags flags;
    read_flags("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout \"Et*17|t*15,L\"",
               &flags);
    assert_int_equal(flags.degrees.stage_blocks_count, 2);
    assert_int_equal(flags.degrees.stage_blocks[0], 17);
    assert_int_equal(flags.degrees.stage_blocks[1], 15);
    assert_int_equal(flags.degrees.chunks, 1);
    read_flags("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
               "'Ett|t*10|t*20|L'",
               &flags);
    assert_int_equal(flags.degrees.stage_blocks_count, 4);
    assert_int_equal(flags.degrees.stage_blocks[0], 2);
    assert_int_equal(flags.degrees.stage_blocks[3], 0);
    assert_int_equal(flags.degrees.chunks, 2);
}

/* Spellings of pieces: commas and counts mean nothing by themselves, a piece may be empty. */
static void test_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *pieces;
        int64_t stages;
        int count;
        uint16_t blocks[4];
    } rows[] = {
        {"Et*17|t*15,L", 2, 2, {17, 15}},
        {"E,t*17|t*15L", 2, 2, {17, 15}},
        {"E|t*16|t*16|L", 2, 4, {0, 16, 16, 0}},
        {"tttt*14|t*15", 2, 2, {17, 15}},
        {"Et*2t*14,t|t*10,t*4,t,L", 2, 2, {17, 15}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_megatron_flags flags;
        char words[256];
        (void)snprintf(words, sizeof words,
                       "--pipeline-model-parallel-size %lld --pipeline-model-parallel-layout %s",
                       (long long)rows[i].stages, rows[i].pieces);
        read_flags(words, &flags);
        assert_int_equal(flags.degrees.stage_blocks_count, rows[i].count);
        for (int piece = 0; piece < rows[i].count; piece++)
            assert_int_equal(flags.degrees.stage_blocks[piece], rows[i].blocks[piece]);
    }
}

static void test_wrong_pieces(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "Et*17|t*15,Lt",                                        /* a layer behind the loss */
        "Et*17|t*15,LL",                                        /* two losses */
        "Et*17|t*15,L|t",                                       /* the loss before the last piece */
        "tEt*16|t*15L",                                         /* the embedding is not first */
        "EEt*17|t*15L",       "Et*17|Et*15L", "Et*|t*15L",      /* no count */
        "Et*17|t*L",          "Et*-17|t*15L", "Et*70000|t*15L", /* more layers than a piece has */
        "Et*99999999|t*15L",                                    /* more digits than a count has */
        "Et*40000t*40000|tL", "Ed*17|t*15L",  "Et*32L",         /* one piece */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_megatron_flags flags;
        struct sbp_diag diag = {{0}};
        char words[256];
        (void)snprintf(words, sizeof words, "--pipeline-model-parallel-layout %s", rows[i]);
        const enum sbp_status status = take(words, &flags, &diag);
        if (status != SBP_E_INPUT || strstr(diag.text, "legal are pieces of E, t") == NULL)
            fail_msg("%s: status %d, \"%s\"", rows[i], status, diag.text);
    }
}

/* Blanks within quotes belong to a word, and a quote of the other kind is a letter there. */
static void test_quotes(void **state)
{
    (void)state;
    struct sbp_megatron_flags flags;
    read_flags("--data-path \"/a b/c --tensor-model-parallel-size 4\" --micro-batch-size '2'",
               &flags);
    assert_int_equal(flags.degrees.tensor, 0);
    assert_int_equal(flags.degrees.micro_batch, 2);
    assert_string_equal(flags.note[0], "flags that change nothing here: --data-path");
    read_flags("--title 'a \"b' --micro-batch-size 4 --other \"it's\"", &flags);
    assert_int_equal(flags.degrees.micro_batch, 4);
}

/* A word of 1023 letters has room; quotes are no letters of its own, but count. */
static void test_long_words(void **state)
{
    (void)state;
    char words[2048];
    struct sbp_megatron_flags flags;
    for (int letters = 1020; letters < 1030; letters++) {
        struct sbp_diag diag = {{0}};
        int at = snprintf(words, sizeof words, "--micro-batch-size 2 --data-path ");
        memset(words + at, 'x', (size_t)letters);
        words[at + letters] = '\0';
        const enum sbp_status status = take(words, &flags, &diag);
        assert_int_equal(status, letters < 1024 ? SBP_OK : SBP_E_INPUT);
        if (status != SBP_OK &&
            strstr(diag.text, "has 1024 letters and more, fewer are legal") == NULL)
            fail_msg("%d letters: %s", letters, diag.text);
    }
}

static void test_recompute(void **state)
{
    (void)state;
    struct sbp_megatron_flags flags;
    read_flags("--recompute-activations --recompute-num-layers 4", &flags);
    assert_int_equal(flags.degrees.recompute, SBP_RECOMPUTE_ATTENTION);
    assert_int_equal(flags.degrees.recompute_every, 0);
    read_flags("--recompute-granularity full --recompute-method block --recompute-num-layers 4",
               &flags);
    assert_int_equal(flags.degrees.recompute, SBP_RECOMPUTE_FULL);
    assert_int_equal(flags.degrees.recompute_every, 0);
    assert_int_equal(flags.note_count, 1);
    assert_non_null(strstr(flags.note[0], "block"));
}

static void test_sharding(void **state)
{
    (void)state;
    struct sbp_megatron_flags flags;
    read_flags("--use-torch-fsdp2 --use-distributed-optimizer", &flags);
    assert_int_equal(flags.degrees.zero, 3);
    read_flags("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", &flags);
    assert_int_equal(flags.degrees.zero, 2);
}

/* One note lists what was left out, once each. */
static void test_left_out(void **state)
{
    (void)state;
    struct sbp_megatron_flags flags;
    read_flags("--lr 3e-4 --profile-ranks 0 1 --lr 1 --no-such-flag --bf16 --num-layers 32 "
               "--num-query-groups 2 --ffn-hidden-size 128",
               &flags);
    assert_int_equal(flags.note_count, 1);
    assert_string_equal(flags.note[0], "flags that change nothing here: --lr, --profile-ranks, "
                                       "--no-such-flag");
    read_flags("--use-flash-attn --tp-comm-overlap", &flags);
    assert_int_equal(flags.note_count, 2);
    assert_non_null(strstr(flags.note[1], "materialised"));
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *says;
    } rows[] = {
        {"--tensor-model-parallel-size eight", "--tensor-model-parallel-size: \"eight\""},
        {"--tensor-model-parallel-size 0", "whole numbers from 1"},
        {"--tensor-model-parallel-size --bf16", "has no value"},
        {"--num-layers 40", "--num-layers: 40, but model llama has layers 32"},
        {"--hidden-size=128", "--hidden-size: 128, but model llama has hidden 64"},
        {"--num-attention-heads 4", "--num-attention-heads: 4, but model llama has heads 8"},
        {"--num-query-groups 8", "--num-query-groups: 8, but model llama has kv_heads 2"},
        {"--seq-length 4096", "--seq-length: 4096, but model llama has sequence 64"},
        {"--kv-channels 16", "--kv-channels: 16, but model llama has head_dim 8"},
        {"--num-experts 8", "--num-experts: 8, but model llama has no experts"},
        {"--num-layers-per-virtual-pipeline-stage 3 --pipeline-model-parallel-size 2",
         "3 layers do not divide those of a stage, 32 / 2"},
        {"--recompute-granularity most", "\"most\", legal are full and selective"},
        {"--recompute-method often", "legal are uniform and block"},
        {"--attention-backend slow", "legal are flash, fused"},
        {"--pipeline-model-parallel-layout Et*3|(tt|)*29,m|L", "legal are pieces of E, t"},
        {"--pipeline-model-parallel-layout t|Et|L", "legal are pieces of E, t"},
        {"--pipeline-model-parallel-layout EtL|t", "legal are pieces of E, t"},
        {"--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|t|L",
         "has 3 pieces, legal are multiples of the 2 stages"},
        {"--decoder-first-pipeline-num-layers 3", "legal is --set stage_cut"},
        {"--bf16 true", "--bf16: takes no value: it is there, or it is not"},
        {"--sequence-parallel False", "--sequence-parallel: takes no value"},
        {"--sequence-parallel=0", "--sequence-parallel: takes no value"},
        {"--use-distributed-optimizer yes --bf16", "--use-distributed-optimizer: takes no value"},
        {"--data-path \"/a b --bf16", "a quote (\") is not closed"},
        {"--data-path 'a\" --bf16", "a quote (') is not closed"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sbp_megatron_flags flags;
        struct sbp_diag diag = {{0}};
        assert_int_equal(take(rows[i].words, &flags, &diag), SBP_E_INPUT);
        if (strncmp(diag.text, "--megatron: ", 12) != 0 || strstr(diag.text, rows[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", diag.text, rows[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_degrees),      cmocka_unit_test(test_nothing_given),
        cmocka_unit_test(test_layouts),      cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_wrong_pieces), cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_long_words),   cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_sharding),     cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
