/* A user's own operator: the model file gives its roles with their states, sizes, work, kept bytes
 * and collectives (AutoDDL, section 4.2.1). It is priced and searched, but not run.
 *
 * States that the file leaves out follow by duality, numbers that it leaves out are 0, and
 * check_role refuses contradictions.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "costmodel/model/graph_build_priv.h"
#include "costmodel/model/op_cost.h"

#define MOST_ROLES (SBP_MAX_ROLES - 2) /* `replicate` and `mirror` are added */
#define MOST_WORK  1e30

const char *const sbp_build_custom_keys[] = {"out",         "out_heads",   "parameters", "weights",
                                             "roles",       "flops",       "bytes",      "time_s",
                                             "saved_bytes", "collectives", NULL};

static const char *const PASSES[] = {"forward", "input_gradient", "weight_gradient", NULL};
static const char *const STATES[] = {"B", "P", "S0", "S1", "S2", "S3", NULL};

struct custom {
    struct sbp_builder *builder;
    struct sbp_json at;
    struct sbp_custom *it;
    struct sbp_op_node *op;
    struct sbp_shape output;
};

/* --- roles --- */

static enum sbp_status read_state(const struct sbp_json *at, struct sbp_state *state)
{
    int choice;
    SBP_TRY(sbp_json_choice(at, STATES, &choice));
    if (choice == 0)
        *state = SBP_STATE_B;
    else if (choice == 1)
        *state = SBP_STATE_P;
    else
        *state = SBP_STATE_S((uint8_t)(choice - 2));
    return SBP_OK;
}

/* One state for all operands of a kind, or a list with one for each. */
static enum sbp_status read_states(const struct sbp_json *role, const char *key, int count,
                                   struct sbp_state *state)
{
    struct sbp_json member, element;
    int length;
    SBP_TRY(sbp_json_member(role, key, &member));
    if (!cJSON_IsArray(member.node)) {
        SBP_TRY(read_state(&member, &state[0]));
        for (int i = 1; i < count; i++)
            state[i] = state[0];
        return SBP_OK;
    }
    SBP_TRY(sbp_json_length(&member, &length));
    if (length != count)
        return sbp_json_refuse(&member, "has %d states, the layer has %d operands of that kind",
                               length, count);
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(&member, i, &element));
        SBP_TRY(read_state(&element, &state[i]));
    }
    return SBP_OK;
}

/* Whether the operand has the dimension of a split: one of a class, which a size in the file makes.
 */
static enum sbp_status check_dimension(const struct sbp_json *role, const char *key,
                                       struct sbp_state state, const struct sbp_shape *shape)
{
    if (state.kind == SBP_SPLIT && shape->dim_class[state.dim] == SBP_NO_CLASS)
        return SBP_BUILD_REFUSE(role, key, "S%d: dimension %d of this operand cannot be split",
                                state.dim, state.dim);
    return SBP_OK;
}

/* State of the weight's gradient. A shard's gradient is that shard. A whole weight's is partial, or
 * whole where every member has the whole output's gradient, that is where the output is partial
 * (DESIGN.md, section 2, idea 3). */
static enum sbp_status check_weight(const struct sbp_json *at, const struct sbp_role *role,
                                    struct sbp_state weight, struct sbp_state gradient)
{
    if (weight.kind == SBP_PARTIAL)
        return SBP_BUILD_REFUSE(at, "weight", "a weight is held split or whole, legal are B and S");
    if (weight.kind == SBP_SPLIT && !sbp_state_equal(weight, gradient))
        return SBP_BUILD_REFUSE(at, "gradient", "the gradient of a weight in S%d is in S%d too",
                                weight.dim, weight.dim);
    if (weight.kind == SBP_BROADCAST && gradient.kind == SBP_SPLIT)
        return SBP_BUILD_REFUSE(at, "gradient",
                                "the gradient of a whole weight is P (or B), not split");
    if (weight.kind == SBP_BROADCAST && gradient.kind == SBP_BROADCAST &&
        role->output.kind != SBP_PARTIAL)
        return SBP_BUILD_REFUSE(at, "gradient",
                                "a gradient is whole on every member (B) only where the "
                                "output's is, whose output is P: here it is P");
    return SBP_OK;
}

static bool communicates(const struct sbp_custom *custom, int role, int pass)
{
    for (int i = 0; i < custom->collective_count; i++)
        if (custom->collective[i].role == role && custom->collective[i].pass == pass)
            return true;
    return false;
}

/* A role without a collective must follow from what a member holds: part of a sum yields part of a
 * sum, and part of an operand cannot yield the whole output. Backward is the dual of this check. */
static enum sbp_status check_role(const struct custom *c, const struct sbp_json *at, int index)
{
    const struct sbp_role *role = &c->it->entry.role[index];
    const struct sbp_json output = sbp_build_at(at, "output"), input = sbp_build_at(at, "input");
    const bool talks = communicates(c->it, index, SBP_PASS_FORWARD);
    bool split = false, partial = false;
    for (int i = 0; i < c->op->input_count; i++) {
        const struct sbp_shape shape = sbp_build_shape(c->builder, c->op->input[i]);
        SBP_TRY(check_dimension(at, "input", role->input[i], &shape));
        split |= role->input[i].kind == SBP_SPLIT;
        partial |= role->input[i].kind == SBP_PARTIAL;
    }
    for (int w = 0; w < c->op->weight_count; w++) {
        const struct sbp_shape shape = sbp_build_shape(c->builder, c->op->weight[w]);
        SBP_TRY(check_dimension(at, "weight", role->weight[w], &shape));
        SBP_TRY(check_weight(at, role, role->weight[w], role->gradient[w]));
        split |= role->weight[w].kind == SBP_SPLIT;
    }
    SBP_TRY(check_dimension(at, "output", role->output, &c->output));
    if (partial && role->output.kind != SBP_PARTIAL && !talks)
        return sbp_json_refuse(&input,
                               "P: a partial sum's output is P, unless a forward collective "
                               "of this role adds it up");
    if (split && role->output.kind == SBP_BROADCAST && !talks)
        return sbp_json_refuse(&output, "B: of split operands every member has a part, which takes "
                                        "a forward collective of this role (legal: S or P)");
    return SBP_OK;
}

static enum sbp_status read_role(struct custom *c, const struct sbp_json *at, int index, char *name)
{
    static const char *const KEYS[] = {"name", "input", "weight", "gradient", "output", NULL};
    struct sbp_role *role = &c->it->entry.role[index];
    struct sbp_json member;
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(sbp_json_member(at, "name", &member));
    SBP_TRY(sbp_json_name(&member, name, SBP_OP_NAME_BYTES));
    if (strcmp(name, "replicate") == 0 || strcmp(name, "mirror") == 0)
        return sbp_json_refuse(&member, "\"%s\" is every operator's spare role: leave it away",
                               name);
    if (sbp_op_role(&c->it->entry, name) >= 0)
        return sbp_json_refuse(&member, "two roles are called \"%s\"", name);
    SBP_TRY(read_states(at, "input", c->op->input_count, role->input));
    if (c->op->weight_count > 0 || sbp_json_has(at, "weight"))
        SBP_TRY(read_states(at, "weight", c->op->weight_count, role->weight));
    for (int w = 0; w < c->op->weight_count; w++)
        role->gradient[w] = role->weight[w].kind == SBP_BROADCAST ? SBP_STATE_P : role->weight[w];
    if (sbp_json_has(at, "gradient"))
        SBP_TRY(read_states(at, "gradient", c->op->weight_count, role->gradient));
    SBP_TRY(sbp_json_member(at, "output", &member));
    SBP_TRY(read_state(&member, &role->output));
    role->name = name;
    role->paper = true;
    c->it->entry.role_count++;
    return SBP_OK;
}

/* Repeated work, as the catalogue's operators have it. */
static void add_repeated(struct sbp_op_entry *entry)
{
    const struct sbp_op_entry *relu = sbp_op(SBP_OP_RELU);
    entry->role[entry->role_count++] = relu->role[sbp_op_role(relu, "replicate")];
    entry->role[entry->role_count++] = relu->role[sbp_op_role(relu, "mirror")];
}

static enum sbp_status read_roles(struct custom *c, struct sbp_json *roles)
{
    struct sbp_json element;
    int count;
    SBP_TRY(sbp_json_member(&c->at, "roles", roles));
    SBP_TRY(sbp_json_length(roles, &count));
    if (count < 1 || count > MOST_ROLES)
        return sbp_json_refuse(roles, "has %d roles, legal are 1 to %d", count, MOST_ROLES);
    char *names = SBP_NEW(&c->builder->graph->arena, char, count *SBP_OP_NAME_BYTES);
    if (names == NULL)
        return sbp_fail(c->at.diag, SBP_E_MEMORY, "%s: out of memory", c->at.file);
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(roles, i, &element));
        SBP_TRY(read_role(c, &element, i, names + (size_t)i * SBP_OP_NAME_BYTES));
    }
    return SBP_OK;
}

/* --- work --- */

static enum sbp_status read_passes(const struct custom *c, const char *key,
                                   double value[SBP_PASSES])
{
    struct sbp_json member;
    if (!sbp_json_has(&c->at, key))
        return SBP_OK;
    SBP_TRY(sbp_json_member(&c->at, key, &member));
    SBP_TRY(sbp_json_keys(&member, PASSES));
    for (int pass = 0; pass < SBP_PASSES; pass++)
        SBP_TRY(sbp_json_get_double(&member, PASSES[pass], 0, MOST_WORK, &value[pass]));
    if (c->op->weight_count > 0 || value[SBP_PASS_WEIGHT_GRADIENT] <= 0)
        return SBP_OK;
    return SBP_BUILD_REFUSE(&member, PASSES[SBP_PASS_WEIGHT_GRADIENT],
                            "this layer has no weights, legal is 0");
}

static enum sbp_status read_work(const struct custom *c)
{
    if (!sbp_json_has(&c->at, "flops") && !sbp_json_has(&c->at, "bytes") &&
        !sbp_json_has(&c->at, "time_s"))
        return sbp_json_refuse(&c->at, "a custom layer needs \"flops\", \"bytes\" or \"time_s\": "
                                       "{\"forward\", \"input_gradient\", \"weight_gradient\"}");
    SBP_TRY(read_passes(c, "flops", c->it->flops));
    SBP_TRY(read_passes(c, "bytes", c->it->bytes));
    SBP_TRY(read_passes(c, "time_s", c->it->time_s));
    return sbp_json_get_double(&c->at, "saved_bytes", 0, MOST_WORK, &c->it->saved_bytes);
}

/* --- collectives --- */

static enum sbp_status read_kind(const struct sbp_json *at, enum sbp_collective *kind)
{
    static const enum sbp_collective KINDS[] = {SBP_ALL_REDUCE, SBP_ALL_GATHER, SBP_REDUCE_SCATTER,
                                                SBP_ALL_TO_ALL, SBP_SEND_RECV,  SBP_BROADCAST_COLL};
    const char *names[sizeof KINDS / sizeof KINDS[0] + 1] = {0};
    int choice;
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
        names[i] = sbp_collective_name(KINDS[i]);
    SBP_TRY(sbp_json_choice(at, names, &choice));
    *kind = KINDS[choice];
    return SBP_OK;
}

static enum sbp_status read_collective(struct custom *c, const struct sbp_json *at)
{
    static const char *const KEYS[] = {"pass", "role", "kind", "bytes", "divided", NULL};
    struct sbp_custom_collective *collective = &c->it->collective[c->it->collective_count];
    struct sbp_json member;
    const char *role;
    SBP_TRY(sbp_json_keys(at, KEYS));
    SBP_TRY(sbp_json_member(at, "pass", &member));
    SBP_TRY(sbp_json_choice(&member, PASSES, &collective->pass));
    if (collective->pass == SBP_PASS_WEIGHT_GRADIENT && c->op->weight_count == 0)
        return sbp_json_refuse(&member, "this layer has no weights");
    SBP_TRY(sbp_json_member(at, "role", &member));
    SBP_TRY(sbp_json_string(&member, &role));
    collective->role = sbp_op_role(&c->it->entry, role);
    if (collective->role < 0)
        return sbp_json_refuse(&member, "\"%.60s\" is no role of this layer", role);
    SBP_TRY(sbp_json_member(at, "kind", &member));
    SBP_TRY(read_kind(&member, &collective->kind));
    SBP_TRY(sbp_json_member(at, "bytes", &member));
    SBP_TRY(sbp_json_double(&member, 0, MOST_WORK, &collective->bytes));
    collective->divided = true;
    SBP_TRY(sbp_json_get_bool(at, "divided", &collective->divided));
    c->it->collective_count++;
    return SBP_OK;
}

static enum sbp_status read_collectives(struct custom *c)
{
    struct sbp_json list, element;
    int count;
    if (!sbp_json_has(&c->at, "collectives"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(&c->at, "collectives", &list));
    SBP_TRY(sbp_json_length(&list, &count));
    if (count > SBP_MAX_CUSTOM_COLLECTIVES)
        return sbp_json_refuse(&list, "has %d collectives, legal are at most %d", count,
                               SBP_MAX_CUSTOM_COLLECTIVES);
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(&list, i, &element));
        SBP_TRY(read_collective(c, &element));
    }
    return SBP_OK;
}

/* --- sizes --- */

static enum sbp_status read_output(struct custom *c)
{
    c->output = sbp_build_shape(c->builder, c->op->input[0]);
    if (!sbp_json_has(&c->at, "out") && !sbp_json_has(&c->at, "out_heads"))
        return SBP_OK;
    int64_t out, heads;
    SBP_TRY(sbp_build_require(&c->at, "out", SBP_MOST_SIZE, &out));
    heads = out;
    SBP_TRY(sbp_json_get_int64(&c->at, "out_heads", 1, SBP_MOST_SIZE, &heads));
    if (out % heads != 0)
        return SBP_BUILD_REFUSE(&c->at, "out_heads", "%lld heads do not divide the %lld outputs",
                                (long long)heads, (long long)out);
    const int dim_class = sbp_build_class(c->builder, heads, "%s.out", c->op->name);
    c->output = sbp_build_with_features(&c->output, heads, dim_class, out / heads);
    return SBP_OK;
}

static enum sbp_status add_weight(struct custom *c, const struct sbp_json *at, int64_t in,
                                  int64_t out)
{
    char part[16];
    (void)snprintf(part, sizeof part, ".weight%d", c->op->weight_count);
    struct sbp_shape shape = sbp_build_scalar();
    if (in > 0)
        sbp_build_set_dim(&shape, SBP_DIM_IN, in,
                          sbp_build_class(c->builder, in, "%s%s.in", c->op->name, part));
    sbp_build_set_dim(&shape, SBP_DIM_OUT, out,
                      sbp_build_class(c->builder, out, "%s%s.out", c->op->name, part));
    return sbp_build_weight(c->builder, at, c->op, part, &shape, 0,
                            sbp_build_spread(c->builder, in > 0 ? (double)in : 1));
}

static enum sbp_status read_weight(struct custom *c, const struct sbp_json *at)
{
    struct sbp_json element;
    int64_t size[2] = {0, 0};
    int count;
    SBP_TRY(sbp_json_length(at, &count));
    if (count < 1 || count > 2)
        return sbp_json_refuse(at, "has %d sizes, legal are [out] and [in, out]", count);
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(at, i, &element));
        SBP_TRY(sbp_json_int64(&element, 1, SBP_MOST_SIZE, &size[i]));
    }
    return count == 2 ? add_weight(c, at, size[0], size[1]) : add_weight(c, at, 0, size[0]);
}

/* A number of parameters is one weight that any role may split as S2. */
static enum sbp_status read_weights(struct custom *c)
{
    struct sbp_json member, element;
    int64_t parameters;
    int count;
    if (sbp_json_has(&c->at, "parameters")) {
        SBP_TRY(sbp_json_member(&c->at, "parameters", &member));
        if (sbp_json_has(&c->at, "weights"))
            return sbp_json_refuse(&member, "\"weights\" says the parameters already");
        SBP_TRY(sbp_json_int64(&member, 0, SBP_MOST_SIZE, &parameters));
        return parameters == 0 ? SBP_OK : add_weight(c, &member, 0, parameters);
    }
    if (!sbp_json_has(&c->at, "weights"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(&c->at, "weights", &member));
    SBP_TRY(sbp_json_length(&member, &count));
    if (count > SBP_MAX_WEIGHTS)
        return sbp_json_refuse(&member, "has %d weights, legal are at most %d", count,
                               SBP_MAX_WEIGHTS);
    for (int i = 0; i < count; i++) {
        SBP_TRY(sbp_json_element(&member, i, &element));
        SBP_TRY(read_weight(c, &element));
    }
    return SBP_OK;
}

/* --- the layer --- */

static enum sbp_status read_custom(struct custom *c)
{
    struct sbp_json roles, element;
    SBP_TRY(read_output(c));
    SBP_TRY(read_weights(c));
    c->it->entry.weights = c->op->weight_count;
    SBP_TRY(read_roles(c, &roles));
    SBP_TRY(read_work(c));
    SBP_TRY(read_collectives(c));
    for (int i = 0; i < c->it->entry.role_count; i++) {
        SBP_TRY(sbp_json_element(&roles, i, &element));
        SBP_TRY(check_role(c, &element, i));
    }
    add_repeated(&c->it->entry);
    return SBP_OK;
}

enum sbp_status sbp_build_custom(struct sbp_builder *builder, const struct sbp_json *at,
                                 const char *name, const int *input, int input_count)
{
    struct custom c = {.builder = builder,
                       .at = *at,
                       .it = SBP_NEW(&builder->graph->arena, struct sbp_custom, 1),
                       .op = sbp_build_op(builder, SBP_OP_CUSTOM, name)};
    if (c.it == NULL)
        return sbp_fail(at->diag, SBP_E_MEMORY, "%s: out of memory", at->file);
    c.it->entry = (struct sbp_op_entry){.name = "custom", .inputs = input_count};
    SBP_TRY(sbp_build_distinct(builder, at, input, input_count));
    for (int i = 0; i < input_count; i++)
        sbp_build_reads(c.op, input[i]);
    c.op->entry = &c.it->entry;
    c.op->custom = c.it;
    SBP_TRY(read_custom(&c));
    return sbp_build_output(builder, at, c.op, &c.output);
}
