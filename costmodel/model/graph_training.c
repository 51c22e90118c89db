/* Keys that both forms of a model file have: precision, optimizer, clipping and the list of legal
 * ones. */
#include "costmodel/model/graph_read_priv.h"

#include <assert.h>

#include <cjson/cJSON.h>

/* --- keys --- */

enum sbp_status sbp_graph_check_keys(const struct sbp_json *at, const char *const *own)
{
    static const char *const COMMON[] = {"name",      "global_batch", "sequence",  "precision",
                                         "optimizer", "clip_norm",    "attention", "linears",
                                         "notes",     "architecture"};
    const char *known[SBP_MODEL_MOST_KEYS + 1] = {0};
    int count = 0;
    for (size_t i = 0; i < sizeof COMMON / sizeof COMMON[0]; i++)
        known[count++] = COMMON[i];
    for (int i = 0; own[i] != NULL; i++) {
        assert(count < SBP_MODEL_MOST_KEYS);
        known[count++] = own[i];
    }
    return sbp_json_keys(at, known);
}

/* --- precision --- */

/* Everything in one type, but for the optimizer's own states. */
#define PRECISION(type)                                                                            \
    {                                                                                              \
        .param = (type), .grad = (type), .master = SBP_FP32, .moments = SBP_FP32,                  \
        .activation = (type), .reduce = (type), .compute = (type), .accumulate = (type),           \
        .loss = (type), .products = (type)                                                         \
    }
/* By name. mixed and its types: half-precision parameters and gradients, single-precision master
 * and moments (Micikevicius et al., 2018; Myelin, section V.B); gradients are reduced as they are,
 * in half precision. */
static const char *const PRECISION_NAMES[] = {"fp32", "mixed", "bf16", "fp16",
                                              "fp8",  "mxfp8", NULL};
enum { FP8_NAME = 4 }; /* bf16 but for the products of layers (Micikevicius et al., 2022) */
static const struct sbp_precision PRECISIONS[] = {PRECISION(SBP_FP32), PRECISION(SBP_BF16),
                                                  PRECISION(SBP_BF16), PRECISION(SBP_FP16),
                                                  PRECISION(SBP_BF16), PRECISION(SBP_BF16)};

static void derive(struct sbp_precision *precision)
{
    /* A master of the parameters' own type would be the parameters once more. */
    precision->has_master = precision->master != precision->param;
    precision->has_sum = precision->accumulate != precision->grad;
    precision->converts_gradient =
        precision->has_master && precision->accumulate != precision->master;
}

static enum sbp_status get_type(const struct sbp_json *object, const char *key,
                                enum sbp_type absent, int types, enum sbp_type *type)
{
    const char *names[SBP_TYPES + 1] = {0};
    struct sbp_json member;
    int choice;
    *type = absent;
    if (!sbp_json_has(object, key))
        return SBP_OK;
    for (int i = 0; i < types; i++)
        names[i] = sbp_cluster_type_name((enum sbp_type)i);
    SBP_TRY(sbp_json_member(object, key, &member));
    SBP_TRY(sbp_json_choice(&member, names, &choice));
    *type = (enum sbp_type)choice;
    return SBP_OK;
}

static enum sbp_status read_policy(const struct sbp_json *at, struct sbp_precision *precision)
{
    static const char *const KEYS[] = {"param",      "grad",     "master",  "moments",
                                       "activation", "reduce",   "compute", "accumulate",
                                       "loss",       "products", NULL};
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(get_type(at, "param", SBP_FP32, SBP_STORED_TYPES, &precision->param));
    SBP_TRY(get_type(at, "grad", precision->param, SBP_STORED_TYPES, &precision->grad));
    SBP_TRY(get_type(at, "activation", precision->param, SBP_STORED_TYPES, &precision->activation));
    SBP_TRY(get_type(at, "master", precision->param, SBP_STORED_TYPES, &precision->master));
    SBP_TRY(get_type(at, "moments", precision->master, SBP_STORED_TYPES, &precision->moments));
    SBP_TRY(get_type(at, "reduce", precision->grad, SBP_STORED_TYPES, &precision->reduce));
    SBP_TRY(get_type(at, "compute", precision->param, SBP_STORED_TYPES, &precision->compute));
    SBP_TRY(get_type(at, "accumulate", precision->grad, SBP_STORED_TYPES, &precision->accumulate));
    SBP_TRY(get_type(at, "loss", precision->activation, SBP_STORED_TYPES, &precision->loss));
    return get_type(at, "products", precision->activation, SBP_TYPES, &precision->products);
}

static enum sbp_status read_precision(const struct sbp_json *at, struct sbp_precision *precision)
{
    struct sbp_json member;
    int choice;
    *precision = PRECISIONS[0];
    if (!sbp_json_has(at, "precision"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(at, "precision", &member));
    if (cJSON_IsObject(member.node)) {
        SBP_TRY(read_policy(&member, precision));
    } else {
        SBP_TRY(sbp_json_choice(&member, PRECISION_NAMES, &choice));
        *precision = PRECISIONS[choice];
        if (choice >= FP8_NAME) /* blocks with scales of their own multiply as fast */
            precision->products = SBP_FP8;
    }
    derive(precision);
    return SBP_OK;
}

/* --- optimizer --- */

/* Constants of an optimizer that the file gives by name alone: published defaults of the methods,
 * adamw's decay as in Loshchilov and Hutter's reference implementation. */
static const struct sbp_update DEFAULTS[] = {
    [SBP_SGD] = {.optimizer = SBP_SGD, .learning_rate = 1e-2},
    [SBP_ADAM] = {.optimizer = SBP_ADAM,
                  .learning_rate = 1e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .epsilon = 1e-8},
    [SBP_ADAMW] = {.optimizer = SBP_ADAMW,
                   .learning_rate = 1e-3,
                   .beta1 = 0.9,
                   .beta2 = 0.999,
                   .epsilon = 1e-8,
                   .weight_decay = 1e-2},
};

static enum sbp_status read_constants(const struct sbp_json *at, struct sbp_update *update)
{
    static const char *const SGD_KEYS[] = {"name", "learning_rate", "momentum", "weight_decay",
                                           NULL};
    static const char *const ADAM_KEYS[] = {"name",    "learning_rate", "beta1", "beta2",
                                            "epsilon", "weight_decay",  NULL};
    SBP_TRY(sbp_json_keys(at, update->optimizer == SBP_SGD ? SGD_KEYS : ADAM_KEYS));
    SBP_TRY(sbp_json_get_double(at, "learning_rate", 0, 1e6, &update->learning_rate));
    SBP_TRY(sbp_build_probability(at, "momentum", &update->momentum));
    SBP_TRY(sbp_build_probability(at, "beta1", &update->beta1));
    SBP_TRY(sbp_build_probability(at, "beta2", &update->beta2));
    SBP_TRY(sbp_json_get_double(at, "weight_decay", 0, 1e6, &update->weight_decay));
    /* An epsilon of 0 divides by 0 where a gradient is 0, as a masked token's is. */
    return sbp_json_get_double(at, "epsilon", 1e-30, 1, &update->epsilon);
}

static enum sbp_status read_optimizer(const struct sbp_json *at, struct sbp_update *update)
{
    static const char *const NAMES[] = {"sgd", "adam", "adamw", NULL};
    static const enum sbp_optimizer OPTIMIZERS[] = {SBP_SGD, SBP_ADAM, SBP_ADAMW};
    struct sbp_json optimizer, name;
    enum sbp_optimizer kind = SBP_ADAM;
    bool constants = false;
    int choice;
    if (sbp_json_has(at, "optimizer")) {
        SBP_TRY(sbp_json_member(at, "optimizer", &optimizer));
        name = optimizer;
        constants = cJSON_IsObject(optimizer.node);
        if (constants)
            SBP_TRY(sbp_json_member(&optimizer, "name", &name));
        SBP_TRY(sbp_json_choice(&name, NAMES, &choice));
        kind = OPTIMIZERS[choice];
    }
    *update = DEFAULTS[kind];
    update->gradient_scale = 1;
    update->loss_scale = 1;
    update->step = 1;
    return constants ? read_constants(&optimizer, update) : SBP_OK;
}

enum sbp_status sbp_graph_read_training(const struct sbp_json *at, struct sbp_graph *graph)
{
    SBP_TRY(read_precision(at, &graph->precision));
    SBP_TRY(read_optimizer(at, &graph->training.update));
    return sbp_json_get_double(at, "clip_norm", 0, 1e30, &graph->training.clip_norm);
}
