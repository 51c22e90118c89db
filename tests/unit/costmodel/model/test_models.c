/* Architectures: parameters against published totals and against formulas written out by hand,
 * products against published counts, and what holds of every shipped model.
 */
#include <dirent.h>
#include <math.h>

#include "base/math/random.h"
#include "costmodel/model/op_cost.h"
#include "base/text.h"
#include "tests/support/model_reader.h"
#include "tests/support/seeded.h"

#define SEED UINT64_C(90125)

static void expect_parameters(const char *what, const struct sbp_graph *graph, int64_t expected)
{
    if (graph->parameters != expected)
        fail_msg("%s: %lld parameters, expected %lld", what, (long long)graph->parameters,
                 (long long)expected);
}

/* --- published totals --- */

/* From the table of architectures that the project was checked with: transformers' config.json
 * files (gpt2, Llama, Mixtral, Qwen3), torchvision's model pages (VGG, ResNet, ViT), Narayanan et
 * al., 2021, table 1, and Singh and Bhatele, 2022, table I. DeepSeek-V3's 671,026,419,200 is the
 * "671B main model" of its card; worked out from its config.json: 2 x 129280 x 7168 for the tables,
 * 61 x (187,107,328 of attention and its two norms + 2 x 7168), 3 x 3 x 7168 x 18432 dense, 58 x
 * (257 x 3 x 7168 x 2048 experts + 256 x 7168 router + 256 bias), 7168 at the end. */
static void test_shipped_totals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
    } rows[] = {
        {"gpt2-small", INT64_C(124439808)},
        {"gpt2-medium", INT64_C(354823168)},
        {"gpt2-large", INT64_C(774030080)},
        {"gpt2-xl", INT64_C(1557611200)},
        {"gpt3-175b", INT64_C(174615846912)},
        {"llama-2-7b", INT64_C(6738415616)},
        {"llama-2-70b", INT64_C(68976648192)},
        {"llama-3.1-8b", INT64_C(8030261248)},
        {"llama-3.1-70b", INT64_C(70553706496)},
        {"llama-3.1-405b", INT64_C(405853388800)},
        {"mixtral-8x7b", INT64_C(46702792704)},
        {"qwen3-8b", INT64_C(8190735360)},
        /* as transformers builds them, tests/unit/planner/import/test_hf_published.c */
        {"qwen3-30b-a3b", INT64_C(30532122624)},
        {"gpt-oss-120b", INT64_C(116829156672)},
        {"gemma-3-27b", INT64_C(27009346304)},
        {"glm-4.5", INT64_C(352797829024)},
        {"kimi-k2", INT64_C(1026408232448)},
        {"deepseek-v3", INT64_C(671026419200)},
        {"bert-large", INT64_C(335141888)},
        {"vit-b-16", INT64_C(86567656)},
        {"vgg-13", INT64_C(133047848)},
        {"resnet-50", INT64_C(25557032)},
        {"myelin-12b", INT64_C(11962440000)},
        {"myelin-24b", INT64_C(23455073664)},
        {"myelin-50b", INT64_C(49437967104)},
        {"myelin-100b", INT64_C(101421983520)},
        {"autoddl-8l", INT64_C(6871138304)},
        {"autoddl-20l", INT64_C(16536092672)},
        {"autoddl-44l", INT64_C(35866001408)},
        {"autoddl-36l", INT64_C(7463591936)},
        {"autoddl-gcp-small", INT64_C(355788800)},
        {"autoddl-gcp-large", INT64_C(5852553216)},
        {"tiny-gpt", 2 * (12 * 64 * 64 + 13 * 64) + 256 * 64 + 32 * 64 + 2 * 64},
        {"tiny-mlp", 48 * 96 + 96 + 96 * 48 + 48 + 48 * 24 + 24},
        {"autoddl-mlp", INT64_C(32768) * 16384 + 16384 * 4096 + 4096 * 2048 + 2048 * 512},
        {"autoddl-attention", INT64_C(8192) * 8192 * 4},
        /* two tables of 51.2 M ids, widths 1 and 16; 429 -> 1024, six of 1024, a logit */
        {"wide-deep",
         INT64_C(51200000) * 17 + 429 * 1024 + 1024 + 6 * (INT64_C(1024) * 1024 + 1024) + 1024 + 1},
        /* insightface's iresnet100 has 65,155,648 trained parameters; of these 11,136 are slopes
         * of its rectifiers, and the gain of its last norm, 512 more, is not trained */
        {"face", INT64_C(65155648) - 11136 + 512 + INT64_C(512) * 360232},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model model;
        must_open(&model, rows[i].name);
        assert_string_equal(model.graph.name, rows[i].name);
        expect_parameters(rows[i].name, &model.graph, rows[i].parameters);
        drop(&model);
    }
}

/* Narayanan et al., 2021, table 1, whose vocabulary is 51200 and sequence 2048; the table rounds to
 * a tenth of a billion. Their count by formula (section 5.1): 12 l h^2 (1 + 13/12h + (V+s)/12lh),
 * which leaves out the last norm, 2 h. */
static void test_sc21(void **state)
{
    (void)state;
    static const struct {
        int64_t layers, hidden, heads;
        double billions;
    } rows[] = {{24, 2304, 24, 1.7},      {30, 3072, 32, 3.6},     {36, 4096, 32, 7.5},
                {40, 6144, 48, 18.4},     {48, 8192, 64, 39.1},    {60, 10240, 80, 76.1},
                {80, 12288, 96, 145.6},   {96, 16384, 128, 310.1}, {105, 20480, 128, 529.6},
                {128, 25600, 160, 1008.0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int64_t l = rows[i].layers, h = rows[i].hidden;
        struct model model;
        char text[256];
        (void)snprintf(text, sizeof text,
                       "{\"name\": \"m\", \"architecture\": \"gpt\", \"layers\": %lld, \"hidden\": "
                       "%lld, \"heads\": %lld, \"vocab\": 51200, \"sequence\": 2048, "
                       "\"global_batch\": 4}",
                       (long long)l, (long long)h, (long long)rows[i].heads);
        must_read(&model, text);
        expect_parameters(text, &model.graph, 12 * l * h * h + 13 * l * h + 53248 * h + 2 * h);
        assert_true(fabs((double)model.graph.parameters / 1e9 - rows[i].billions) < 0.0501);
        drop(&model);
    }
}

/* torchvision's pages. */
static void test_other_depths(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        int64_t parameters;
    } rows[] = {
        {"\"vgg\", \"depth\": 11", INT64_C(132863336)},
        {"\"vgg\", \"depth\": 16", INT64_C(138357544)},
        {"\"vgg\", \"depth\": 19", INT64_C(143667240)},
        {"\"vgg\", \"depth\": 13, \"batch_norm\": true", INT64_C(133053736)},
        {"\"resnet\", \"depth\": 18", INT64_C(11689512)},
        {"\"resnet\", \"depth\": 34", INT64_C(21797672)},
        {"\"resnet\", \"depth\": 101", INT64_C(44549160)},
        {"\"resnet\", \"depth\": 152", INT64_C(60192808)},
        {"\"vit\", \"patch\": 32, \"layers\": 12, \"hidden\": 768, \"heads\": 12",
         INT64_C(88224232)},
        {"\"vit\", \"patch\": 16, \"layers\": 24, \"hidden\": 1024, \"heads\": 16",
         INT64_C(304326632)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model model;
        char text[256];
        (void)snprintf(text, sizeof text,
                       "{\"name\": \"m\", \"global_batch\": 8, \"architecture\": %s}",
                       rows[i].keys);
        must_read(&model, text);
        expect_parameters(rows[i].keys, &model.graph, rows[i].parameters);
        drop(&model);
    }
}

/* --- the table of architectures, where it is --- */

enum { MODEL, PARAMS, LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, MAX_POS, GATED, TIED };
enum { FIELDS = 14 };

/* The keys that a row of the table stands for. */
static bool write_row(char *const field[FIELDS], char *text, size_t size)
{
    const char *name = field[MODEL];
    if (strncmp(name, "ViT", 3) == 0)
        (void)snprintf(text, size,
                       "{\"name\": \"m\", \"architecture\": \"vit\", \"layers\": %s, \"hidden\": "
                       "%s, \"ffn\": %s, \"heads\": %s, \"patch\": 16, \"global_batch\": 4}",
                       field[LAYERS], field[HIDDEN], field[FFN], field[HEADS]);
    else if (strncmp(name, "VGG13", 5) == 0)
        (void)snprintf(text, size,
                       "{\"name\": \"m\", \"architecture\": \"vgg\", \"depth\": 13, "
                       "\"global_batch\": 4}");
    else if (strncmp(name, "ResNet-50", 9) == 0)
        (void)snprintf(text, size,
                       "{\"name\": \"m\", \"architecture\": \"resnet\", \"depth\": 50, "
                       "\"global_batch\": 4}");
    else if (strncmp(name, "Llama", 5) == 0)
        (void)snprintf(text, size,
                       "{\"name\": \"m\", \"architecture\": \"llama\", \"layers\": %s, \"hidden\": "
                       "%s, \"ffn\": %s, \"heads\": %s, \"kv_heads\": %s, \"head_dim\": %s, "
                       "\"vocab\": %s, \"sequence\": 512, \"global_batch\": 4}",
                       field[LAYERS], field[HIDDEN], field[FFN], field[HEADS], field[KV_HEADS],
                       field[HEAD_DIM], field[VOCAB]);
    else if (field[LAYERS][0] != '\0' && field[GATED][0] == '0')
        (void)snprintf(text, size,
                       "{\"name\": \"m\", \"architecture\": \"%s\", \"layers\": %s, \"hidden\": "
                       "%s, \"ffn\": %s, \"heads\": %s, \"vocab\": %s, \"positions\": %s, "
                       "\"sequence\": 512, \"global_batch\": 4}",
                       strncmp(name, "BERT", 4) == 0 ? "bert" : "gpt", field[LAYERS], field[HIDDEN],
                       field[FFN], field[HEADS], field[VOCAB], field[MAX_POS]);
    else
        return false;
    return true;
}

/* Commas inside quotes stand in the last columns only. */
static void check_row(char *row)
{
    char *field[FIELDS] = {0}, *rest = row, text[1024];
    int64_t parameters;
    struct model model;
    if (row[0] == '"') { /* a name with a comma in it */
        field[MODEL] = row + 1;
        rest = strchr(row + 1, '"');
        assert_non_null(rest);
        *rest = '\0';
        rest += 2;
    }
    for (int i = field[MODEL] == NULL ? 0 : 1; i < FIELDS; i++) {
        field[i] = strsep(&rest, ",");
        if (field[i] == NULL)
            fail_msg("a row of %d fields: %s", i, row);
    }
    assert_true(sbp_parse_int64(field[PARAMS], &parameters));
    if (!write_row(field, text, sizeof text))
        fail_msg("no architecture for %s", field[MODEL]);
    must_read(&model, text);
    expect_parameters(field[MODEL], &model.graph, parameters);
    drop(&model);
}

static void test_table(void **state)
{
    (void)state;
    char path[4096], line[2048];
    int rows = 0;
    (void)snprintf(path, sizeof path, "%s/../shared/data/architectures.csv", source_root());
    FILE *table = fopen(path, "r");
    if (table == NULL) {
        print_message("skipped: %s is not there\n", path);
        skip();
        return;
    }
    assert_non_null(fgets(line, (int)sizeof line, table)); /* titles */
    for (; fgets(line, (int)sizeof line, table) != NULL; rows++)
        check_row(line);
    (void)fclose(table);
    print_message("%d published models\n", rows);
    assert_true(rows >= 30);
}

/* --- formulas --- */

static int64_t pick(struct sbp_random *random, int64_t least, int64_t most)
{
    return least + (int64_t)sbp_random_below(random, (uint64_t)(most - least + 1));
}

static void check_text(const struct sbp_text *text, int64_t parameters)
{
    struct model model;
    assert_false(text->failed);
    must_read(&model, text->bytes);
    expect_parameters(text->bytes, &model.graph, parameters);
    drop(&model);
}

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

/* Attention with grouped heads, by its matrices: q, k, v, o, their biases and norms. */
static int64_t grouped(int64_t h, int64_t a, int64_t k, int64_t d, bool qkv_bias, bool o_bias,
                       bool norms)
{
    return h * a * d + 2 * h * k * d + a * d * h + (qkv_bias ? a * d + 2 * k * d : 0) +
           (o_bias ? h : 0) + (norms ? 2 * d : 0);
}

struct mixture {
    int64_t experts, shared, dense, dense_ffn, every;
    bool router_bias, expert_bias;
};

static struct mixture draw_mixture(struct sbp_random *random, int64_t layers)
{
    return (struct mixture){.experts = pick(random, 1, 6),
                            .shared = pick(random, 0, 2),
                            .dense = pick(random, 0, layers),
                            .dense_ffn = pick(random, 1, 9),
                            .every = pick(random, 1, layers),
                            .router_bias = pick(random, 0, 1) == 1,
                            .expert_bias = pick(random, 0, 1) == 1};
}

static void put_mixture(struct sbp_text *text, const struct mixture *m)
{
    sbp_text_add(text,
                 ", \"experts\": %lld, \"top_k\": 1, \"shared_experts\": %lld, \"dense_layers\": "
                 "%lld, \"dense_ffn\": %lld, \"moe_every\": %lld, \"router_bias\": %s, "
                 "\"expert_bias\": %s}",
                 (long long)m->experts, (long long)m->shared, (long long)m->dense,
                 (long long)m->dense_ffn, (long long)m->every, truth(m->router_bias),
                 truth(m->expert_bias));
}

/* Of the second halves of all layers, one by one; f: width of an expert. */
static int64_t mixture_parameters(const struct mixture *m, int64_t layers, int64_t h, int64_t f)
{
    const int64_t e = m->experts;
    int64_t sum = 0;
    for (int64_t layer = 0; layer < layers; layer++)
        if (layer >= m->dense && (layer - m->dense) % m->every == m->every - 1)
            sum += h * e + (e + m->shared) * 3 * h * f + (m->router_bias ? e : 0) +
                   (m->expert_bias ? e * (2 * f + h) : 0);
        else
            sum += 3 * h * m->dense_ffn;
    return sum;
}

static void check_llama(struct sbp_random *random)
{
    const int64_t l = pick(random, 1, 4), k = pick(random, 1, 3), a = k * pick(random, 1, 4);
    const int64_t h = pick(random, 1, 40), d = 2 * pick(random, 1, 8), f = pick(random, 1, 50);
    const int64_t v = pick(random, 2, 99);
    const bool qkv = pick(random, 0, 1) == 1, o = pick(random, 0, 1) == 1,
               norms = pick(random, 0, 1) == 1, tied = pick(random, 0, 1) == 1,
               mixed = pick(random, 0, 1) == 1, ffn = !mixed && pick(random, 0, 1) == 1,
               sandwich = pick(random, 0, 1) == 1, sinks = pick(random, 0, 1) == 1;
    const int64_t mlp = 3 * h * f + (ffn ? 2 * f + h : 0);
    const struct mixture m = draw_mixture(random, l);
    const int64_t block =
        2 * h + (sandwich ? 2 * h : 0) + (sinks ? a : 0) + grouped(h, a, k, d, qkv, o, norms);
    struct sbp_text text = {0};
    sbp_text_add(&text,
                 "{\"name\": \"m\", \"architecture\": \"%s\", \"layers\": %lld, \"hidden\": %lld, "
                 "\"heads\": %lld, \"kv_heads\": %lld, \"head_dim\": %lld, \"ffn\": %lld, "
                 "\"vocab\": %lld, \"vocab_multiple\": 16, \"sequence\": 7, \"global_batch\": 3, "
                 "\"qkv_bias\": %s, \"projection_bias\": %s, \"qk_norm\": %s, \"tied\": %s, "
                 "\"sandwich_norm\": %s, \"sinks\": %s, \"window\": 3, \"window_layers\": %lld",
                 mixed ? "mixtral" : "llama", (long long)l, (long long)h, (long long)a,
                 (long long)k, (long long)d, (long long)f, (long long)v, truth(qkv), truth(o),
                 truth(norms), truth(tied), truth(sandwich), truth(sinks), (long long)l);
    if (mixed)
        put_mixture(&text, &m);
    else
        sbp_text_add(&text, ", \"ffn_bias\": %s}", truth(ffn));
    check_text(&text, (tied ? 1 : 2) * v * h + h + l * block +
                          (mixed ? mixture_parameters(&m, l, h, f) : l * mlp));
    sbp_text_free(&text);
}

/* DeepSeek-V2, section 2.1: every matrix by its name there. */
static int64_t latent(int64_t h, int64_t a, int64_t q, int64_t kv, int64_t n, int64_t r, int64_t v)
{
    const int64_t queries = q == 0 ? h * a * (n + r) : h * q + q + q * a * (n + r);
    return queries + h * (kv + r) + kv + kv * a * (n + v) + a * v * h;
}

static void check_deepseek(struct sbp_random *random)
{
    const int64_t l = pick(random, 1, 5), dense = pick(random, 0, l), h = pick(random, 1, 30);
    const int64_t a = pick(random, 1, 5), q = pick(random, 0, 9), kv = pick(random, 1, 9);
    const int64_t n = 2 * pick(random, 1, 5), r = 2 * pick(random, 1, 5), v = pick(random, 1, 9);
    const int64_t f = pick(random, 1, 50), x = pick(random, 1, 20), e = pick(random, 2, 6);
    const int64_t shared = pick(random, 0, 2), vocab = pick(random, 2, 99);
    const bool bias = pick(random, 0, 1) == 1;
    const int64_t moe = h * e + (bias ? e : 0) + (e + shared) * 3 * h * x;
    struct sbp_text text = {0};
    sbp_text_add(&text,
                 "{\"name\": \"m\", \"architecture\": \"deepseek\", \"layers\": %lld, "
                 "\"hidden\": %lld, \"heads\": %lld, \"kv_rank\": %lld, \"nope\": %lld, "
                 "\"rope\": %lld, \"value\": %lld, \"ffn\": %lld, \"expert_ffn\": %lld, "
                 "\"experts\": %lld, \"top_k\": 2, \"shared_experts\": %lld, \"vocab\": %lld, "
                 "\"dense_layers\": %lld, \"router_bias\": %s, \"sequence\": 7, "
                 "\"global_batch\": 3",
                 (long long)l, (long long)h, (long long)a, (long long)kv, (long long)n,
                 (long long)r, (long long)v, (long long)f, (long long)x, (long long)e,
                 (long long)shared, (long long)vocab, (long long)dense, truth(bias));
    if (q > 0)
        sbp_text_add(&text, ", \"q_rank\": %lld", (long long)q);
    sbp_text_add(&text, "}");
    check_text(&text, 2 * vocab * h + h + l * (2 * h + latent(h, a, q, kv, n, r, v)) +
                          dense * 3 * h * f + (l - dense) * moe);
    sbp_text_free(&text);
}

static void check_bert(struct sbp_random *random)
{
    const int64_t l = pick(random, 1, 4), a = pick(random, 1, 4), h = a * pick(random, 1, 9);
    const int64_t f = pick(random, 1, 50), v = pick(random, 2, 99), p = pick(random, 7, 20);
    const int64_t t = pick(random, 1, 4);
    const bool mlm = pick(random, 0, 1) == 1;
    const int64_t block = 4 * (h * h + h) + 2 * h * f + f + h + 4 * h;
    const int64_t head = mlm ? h * h + h + 2 * h + v : h * h + h;
    struct sbp_text text = {0};
    sbp_text_add(&text,
                 "{\"name\": \"m\", \"architecture\": \"bert\", \"layers\": %lld, \"hidden\": "
                 "%lld, \"heads\": %lld, \"ffn\": %lld, \"vocab\": %lld, \"vocab_multiple\": 8, "
                 "\"positions\": %lld, \"types\": %lld, \"head\": \"%s\", \"sequence\": 7, "
                 "\"global_batch\": 3, \"dropout\": 0.1, \"attention_dropout\": 0.1}",
                 (long long)l, (long long)h, (long long)a, (long long)f, (long long)v, (long long)p,
                 (long long)t, mlm ? "mlm" : "pooler");
    check_text(&text, (v + p + t) * h + 2 * h + l * block + head);
    sbp_text_free(&text);
}

static void check_mlp(struct sbp_random *random)
{
    const int64_t f = pick(random, 1, 20), h = pick(random, 1, 20), l = pick(random, 1, 5);
    const int64_t c = pick(random, 2, 9);
    struct sbp_text text = {0};
    sbp_text_add(&text,
                 "{\"name\": \"m\", \"architecture\": \"mlp\", \"layers\": %lld, \"hidden\": "
                 "%lld, \"features\": %lld, \"classes\": %lld, \"global_batch\": 3}",
                 (long long)l, (long long)h, (long long)f, (long long)c);
    check_text(&text, (f + 1) * h + (l - 1) * (h + 1) * h + (h + 1) * c);
    sbp_text_free(&text);
}

static void test_formulas(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int trial = 0; trial < 200; trial++) {
        check_llama(&random);
        check_deepseek(&random);
        check_bert(&random);
        check_mlp(&random);
    }
}

/* --- products --- */

/* Multiply-adds of one image: torchvision's pages give 4.09, 11.31 and 17.56 G (ViT without its
 * attention products, 2 x 12 x 197^2 x 768). A model's flops are three forward passes, but the
 * first convolution forms no gradient of the images. */
static void test_image_products(void **state)
{
    (void)state;
    struct model model;
    const double vgg_first = 224.0 * 224 * 64 * 27;
    must_open(&model, "vgg-13");
    const double vgg = (sbp_op_model_flops(&model.graph) / 2 / 128 + vgg_first) / 3;
    assert_true(fabs(vgg - 11.31e9) < 0.01e9);
    drop(&model);
    must_open(&model, "resnet-50");
    const double resnet_first = 112.0 * 112 * 64 * 147;
    const double resnet = (sbp_op_model_flops(&model.graph) / 2 / 256 + resnet_first) / 3;
    assert_true(fabs(resnet - 4.09e9) < 0.005e9);
    drop(&model);
    must_open(&model, "vit-b-16");
    const double patches = 196.0 * 768 * 768, attention = 2.0 * 12 * 197 * 197 * 768;
    const double vit = (sbp_op_model_flops(&model.graph) / 2 / 4096 + patches) / 3 - attention;
    if (fabs(vit - 16.87e9) > 0.03e9)
        fail_msg("%g multiply-adds in the linears, published are 17.56 G with attention", vit);
    drop(&model);
}

static void expect_flops(const char *name, double expected)
{
    struct model model;
    must_open(&model, name);
    const double value = sbp_op_model_flops(&model.graph);
    if (fabs(value - expected) > 1e-9 * expected)
        fail_msg("%s: %.17g flops, expected %.17g", name, value, expected);
    drop(&model);
}

/* PaLM, appendix B: 6 N + 12 L H Q T a token, N without the input embedding, T the keys that a
 * causal query sees in the mean; of experts those that a token takes. */
static void test_token_products(void **state)
{
    (void)state;
    const double mixtral =
        32.0 * (4096.0 * 4096 * 2 + 4096.0 * 1024 * 2 + 4096 * 8 + 2 * 3 * 4096.0 * 14336) +
        32000.0 * 4096;
    expect_flops("mixtral-8x7b", 1024.0 * 4096 * (6 * mixtral + 12.0 * 32 * 4096 * 4097 / 2));
    /* 52 of 62 layers see 1024 tokens, the first 1024 queries those before them */
    const double gemma =
        62.0 * (5376.0 * 4096 * 2 + 5376.0 * 2048 * 2 + 3 * 5376.0 * 21504) + 262208.0 * 5376;
    const double seen = 52 * (1024 * 1025 / 2 + 3072 * 1024.0) / 4096 + 10 * 4097 / 2.0;
    expect_flops("gemma-3-27b", 1024.0 * 4096 * (6 * gemma + 12 * 4096 * seen));
}

/* --- whatever is shipped --- */

static void check_classes(const struct sbp_graph *graph)
{
    for (int t = 0; t < graph->tensor_count; t++)
        for (int dim = 0; dim < SBP_MAX_DIMS; dim++) {
            const int dim_class = graph->tensor[t].shape.dim_class[dim];
            if (dim_class == SBP_NO_CLASS)
                continue;
            assert_in_range(dim_class, 0, graph->class_count - 1);
            assert_int_equal(graph->dim_class[dim_class].size, graph->tensor[t].shape.size[dim]);
        }
}

/* A repeat has the kind and the sizes of its site, and a site stands for as many as it says. */
static void check_sites(const struct sbp_graph *graph)
{
    int *stands_for = calloc((size_t)graph->op_count, sizeof *stands_for);
    assert_non_null(stands_for);
    for (int i = 0; i < graph->op_count; i++) {
        const struct sbp_op_node *op = &graph->op[i], *site = &graph->op[op->site];
        stands_for[op->site]++;
        assert_int_equal(op->kind, site->kind);
        assert_int_equal(op->weight_count, site->weight_count);
        for (int w = 0; w < op->weight_count; w++)
            assert_memory_equal(graph->tensor[op->weight[w]].shape.size,
                                graph->tensor[site->weight[w]].shape.size,
                                sizeof graph->tensor[0].shape.size);
        if (op->output >= 0)
            assert_memory_equal(graph->tensor[op->output].shape.size,
                                graph->tensor[site->output].shape.size,
                                sizeof graph->tensor[0].shape.size);
    }
    for (int i = 0; i < graph->op_count; i++)
        assert_int_equal(graph->op[i].repeats, stands_for[i]);
    free(stands_for);
}

/* Every model takes every kind of attention and every policy of precision. */
static void check_policies(const char *path)
{
    static const char *const KINDS[] = {"materialised", "flash"};
    static const char *const POLICIES[] = {"\"fp32\"", "\"mixed\"",
                                           "{\"param\": \"fp16\", \"master\": \"fp32\"}"};
    for (int kind = 0; kind < 2; kind++)
        for (int policy = 0; policy < 3; policy++) {
            struct model model;
            struct sbp_json root;
            memset(&model, 0, sizeof model);
            if (sbp_json_open(path, &model.tree, &root, &model.diag) != SBP_OK)
                fail_msg("%s", model.diag.text);
            cJSON_DeleteItemFromObject(model.tree, "attention");
            cJSON_DeleteItemFromObject(model.tree, "precision");
            assert_non_null(cJSON_AddStringToObject(model.tree, "attention", KINDS[kind]));
            assert_true(
                cJSON_AddItemToObject(model.tree, "precision", cJSON_Parse(POLICIES[policy])));
            if (sbp_graph_read(&root, &model.graph) != SBP_OK)
                fail_msg("%s", model.diag.text);
            for (int op = 0; op < model.graph.op_count; op++)
                if (model.graph.op[op].attention.qk_size > 0)
                    assert_int_equal(model.graph.op[op].attention.kind,
                                     kind == 0 ? SBP_ATTENTION_MATERIALISED : SBP_ATTENTION_FLASH);
            assert_int_equal(model.graph.precision.has_master, policy > 0);
            drop(&model);
        }
}

static void test_shipped_graphs(void **state)
{
    (void)state;
    char path[2048], file[4096];
    int count = 0;
    (void)snprintf(path, sizeof path, "%s/configs/models", source_root());
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *end = strstr(entry->d_name, ".json");
        char name[256];
        struct model model;
        if (end == NULL)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)(end - entry->d_name), entry->d_name);
        must_open(&model, name);
        check_classes(&model.graph);
        check_sites(&model.graph);
        drop(&model);
        (void)snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        check_policies(file);
        count++;
    }
    (void)closedir(folder);
    assert_true(count >= 38);
}

/* Blocks repeat the first of their kind: DeepSeek has two kinds, a ResNet's stages two each. */
static void test_sites(void **state)
{
    (void)state;
    struct model model;
    must_open(&model, "deepseek-v3");
    const struct sbp_graph *graph = &model.graph;
    assert_int_equal(op_named(graph, "block0.q_up")->repeats, 3);
    assert_int_equal(op_named(graph, "block3.moe")->repeats, 58);
    assert_int_equal(op_named(graph, "block3.q_up")->repeats, 58);
    assert_ptr_equal(&graph->op[op_named(graph, "block60.moe")->site],
                     op_named(graph, "block3.moe"));
    drop(&model);
    must_open(&model, "resnet-50");
    assert_int_equal(op_named(&model.graph, "stage3.block0.conv2")->repeats, 1);
    assert_int_equal(op_named(&model.graph, "stage3.block1.conv2")->repeats, 5);
    assert_int_equal(op_named(&model.graph, "stage3.block0.conv2")->window.stride[0], 2);
    drop(&model);
}

static void test_attention_kinds(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-2-7b", "deepseek-v3", "mixtral-8x7b"};
    static const char *const ops[] = {"block5.attention", "block5.attention", "block0.attention"};
    struct model model;
    for (int i = 0; i < 3; i++) {
        must_open(&model, names[i]);
        assert_int_equal(op_named(&model.graph, ops[i])->attention.kind, SBP_ATTENTION_FLASH);
        assert_true(op_named(&model.graph, ops[i])->attention.causal);
        drop(&model);
    }
    must_open(&model, "bert-large");
    assert_int_equal(op_named(&model.graph, "block0.attention")->attention.kind,
                     SBP_ATTENTION_MATERIALISED);
    assert_true(op_named(&model.graph, "block0.attention")->attention.dropout == 0.1);
    assert_false(op_named(&model.graph, "block0.attention")->attention.causal);
    assert_int_equal(model.graph.loss, -1);
    drop(&model);
}

/* --- refusals --- */

#define HEAD  "{\"name\": \"m\", \"global_batch\": 4, \"architecture\": "
#define SIZES "\"layers\": 2, \"hidden\": 8, \"vocab\": 9, \"sequence\": 4, \"ffn\": 6, \"heads\": "

static const struct refusal REFUSED[] = {
    {HEAD "\"lama\"}", "m.json: architecture: unknown value \"lama\", did you mean \"llama\"?"},
    {HEAD "\"llama\", \"layers\": 2, \"hidden\": 8, \"heads\": 2, \"vocab\": 9, \"sequence\": 4}",
     "m.json: key \"ffn\" is missing"},
    {HEAD "\"llama\", " SIZES "3}", "m.json: heads: 3 heads do not divide the hidden size 8"},
    {HEAD "\"llama\", " SIZES "2, \"head_dim\": 3}",
     "m.json: rotary needs heads of an even size, this input has 2 x 3"},
    {HEAD "\"llama\", " SIZES "4, \"kv_heads\": 3}",
     "m.json: kv_heads: 3 key and value heads do not divide the 4 heads"},
    {HEAD "\"llama\", " SIZES "4, \"window_layers\": 1}",
     "m.json: window_layers: \"window\" says of how many tokens, and is missing"},
    {HEAD "\"llama\", " SIZES "4, \"window\": 4, \"window_layers\": 3}", "m.json: window_layers: "},
    {HEAD "\"mixtral\", " SIZES "4, \"experts\": 2, \"top_k\": 1, \"moe_every\": 2}",
     "m.json: key \"dense_ffn\" is missing"},
    {HEAD "\"mixtral\", " SIZES "4, \"experts\": 2, \"top_k\": 1, \"moe_every\": 3}",
     "m.json: moe_every: "},
    {HEAD "\"llama\", " SIZES "4, \"experts\": 3}", "m.json: unknown key \"experts\""},
    {HEAD "\"llama\", " SIZES "4, \"context\": \"rings\"}", "m.json: context: "},
    {HEAD "\"gpt\", " SIZES "4, \"attention_dropout\": 1}",
     "m.json: attention_dropout: must be at least 0 and less than 1"},
    {HEAD "\"mixtral\", " SIZES "4, \"top_k\": 2}", "m.json: key \"experts\" is missing"},
    {HEAD "\"mixtral\", " SIZES "4, \"top_k\": 3, \"experts\": 2}",
     "m.json: top_k: 3 of 2 experts for a token, legal are 1 to 2"},
    {HEAD "\"mixtral\", " SIZES "4, \"top_k\": 2, \"experts\": 2, \"capacity\": 0.5}",
     "m.json: capacity: "},
    {HEAD "\"deepseek\", " SIZES "4, \"kv_rank\": 3, \"nope\": 2, \"rope\": 2}",
     "m.json: key \"value\" is missing"},
    {HEAD "\"deepseek\", \"layers\": 2, \"hidden\": 8, \"vocab\": 9, \"sequence\": 4, \"heads\": "
          "2, \"kv_rank\": 3, \"nope\": 2, \"rope\": 2, \"value\": 2, \"experts\": 2, \"top_k\": "
          "1, \"expert_ffn\": 3, \"dense_layers\": 3}",
     "m.json: dense_layers: 3 of 2 layers, legal are 0 to 2"},
    {HEAD "\"deepseek\", \"layers\": 2, \"hidden\": 8, \"vocab\": 9, \"sequence\": 4, \"heads\": "
          "2, \"kv_rank\": 3, \"nope\": 2, \"rope\": 2, \"value\": 2, \"experts\": 2, \"top_k\": "
          "1, \"expert_ffn\": 3, \"dense_layers\": 1}",
     "m.json: key \"ffn\" is missing"},
    {HEAD "\"bert\", " SIZES "4, \"head\": \"nsp\"}", "m.json: head: "},
    {HEAD "\"bert\", " SIZES "4, \"positions\": 3}",
     "m.json: positions: 3 positions are fewer than the sequence's 4"},
    {HEAD "\"vit\", \"layers\": 2, \"hidden\": 8, \"heads\": 2}",
     "m.json: key \"patch\" is missing"},
    {HEAD "\"vit\", \"layers\": 2, \"hidden\": 8, \"heads\": 2, \"patch\": 15}",
     "m.json: patch: patches of 15 do not divide images of 224 x 224"},
    {HEAD "\"vit\", \"layers\": 2, \"hidden\": 8, \"heads\": 2, \"patch\": 16, \"sequence\": 196}",
     "m.json: sequence: 196, but the images make 197 (leave it away)"},
    {HEAD "\"vgg\", \"depth\": 12}",
     "m.json: depth: 12 is no published depth, legal are 11, 13, 16, 19"},
    {HEAD "\"vgg\", \"depth\": 13, \"image\": 100}",
     "m.json: image: 100: five pools of 2 need a multiple of 32"},
    {HEAD "\"resnet\"}", "m.json: key \"depth\" is missing"},
    {HEAD "\"vgg\", \"depth\": 13, \"layers\": 3}", "m.json: unknown key \"layers\""},
    {HEAD "\"resnet\", \"depth\": 50, \"sequence\": 2}",
     "m.json: sequence: 2, but the images make 1 (leave it away)"},
    {HEAD "\"face\"}", "m.json: key \"classes\" is missing"},
    {HEAD "\"mlp\", \"layers\": 2, \"hidden\": 8}", "m.json: key \"features\" is missing"},
    {HEAD "\"wide-deep\", \"layers\": 2, \"hidden\": 8}", "m.json: key \"sequence\" is missing"},
};

static void test_refusals(void **state)
{
    (void)state;
    must_refuse_all(REFUSED, sizeof REFUSED / sizeof *REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped_totals), cmocka_unit_test(test_other_depths),
        cmocka_unit_test(test_sc21),           cmocka_unit_test(test_table),
        cmocka_unit_test(test_formulas),       cmocka_unit_test(test_image_products),
        cmocka_unit_test(test_token_products), cmocka_unit_test(test_shipped_graphs),
        cmocka_unit_test(test_sites),          cmocka_unit_test(test_attention_kinds),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
