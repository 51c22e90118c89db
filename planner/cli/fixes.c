/* Strategies given by hand: --fix words, strategy files, plan files. */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/math/numeric.h"
#include "base/text.h"
#include "costmodel/program/regather.h"
#include "planner/cli/inputs.h"

#define MOST_FACTOR (INT64_C(1) << 31)

struct fixes {
    const struct sbp_plan *plan;
    struct sbp_arena *arena;
    struct sbp_fix *fix;
    int count;
};

static int find_op(const struct sbp_graph *graph, const char *name)
{
    for (int op = 0; op < graph->op_count; op++)
        if (strcmp(graph->op[op].name, name) == 0)
            return op;
    return -1;
}

static bool chooses(const struct sbp_graph *graph, int op)
{
    return graph->op[op].site == op && !graph->op[op].entry->follows;
}

/* "fc1, fc2, ...": layers that choose, as many as there is room for. */
static const char *layers_of(const struct sbp_graph *graph, char *buffer, size_t size)
{
    static const char MORE[] = ", ...";
    size_t used = 0;
    buffer[0] = '\0';
    for (int op = 0; op < graph->op_count; op++) {
        const char *name = graph->op[op].name;
        if (!chooses(graph, op))
            continue;
        const char *add = used + strlen(", ") + strlen(name) + sizeof MORE > size ? "..." : name;
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", used > 0 ? ", " : "", add);
        if (add != name)
            break;
    }
    return buffer;
}

/* Finds the operator of a layer that a strategy can be given to; fails with the reason why a name
 * is none. */
static enum sbp_status find_layer(const struct fixes *fixes, const char *where, const char *name,
                                  int *op, struct sbp_diag *diag)
{
    const struct sbp_graph *graph = &fixes->plan->cut.graph;
    *op = find_op(graph, name);
    if (*op >= 0 && graph->op[*op].entry->follows)
        return sbp_fail(diag, SBP_E_INPUT,
                        "%s: \"%.60s\" has no strategy of its own: %s runs as its input is split",
                        where, name, graph->op[*op].entry->name);
    if (*op >= 0)
        return SBP_OK;
    const char **names = SBP_NEW(fixes->arena, const char *, graph->op_count + 1);
    int count = 0;
    for (int i = 0; names != NULL && i < graph->op_count; i++)
        if (chooses(graph, i))
            names[count++] = graph->op[i].name;
    const char *nearest = names == NULL ? NULL : sbp_text_nearest(name, names);
    if (nearest != NULL)
        return sbp_fail(diag, SBP_E_INPUT,
                        "%s: the model has no layer \"%.60s\", did you mean \"%s\"?", where, name,
                        nearest);
    char layers[240];
    return sbp_fail(diag, SBP_E_INPUT, "%s: the model has no layer \"%.60s\", legal are %s", where,
                    name, layers_of(graph, layers, sizeof layers));
}

static void role_names(const struct sbp_plan *plan, int op, const char *names[SBP_MAX_ROLES + 1])
{
    const struct sbp_op_entry *entry = plan->cut.graph.op[op].entry;
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        names[role] = role < entry->role_count ? entry->role[role].name : NULL;
    names[SBP_MAX_ROLES] = NULL;
}

static struct sbp_fix *add_fix(struct fixes *fixes, int op, int64_t factor)
{
    struct sbp_fix *fix = &fixes->fix[fixes->count++];
    *fix = (struct sbp_fix){.layer = "", .rests = false, .zero = SBP_ANY};
    (void)snprintf(fix->layer, sizeof fix->layer, "%s", fixes->plan->cut.graph.op[op].name);
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix->factor[role][level] = factor;
    return fix;
}

/* --- reasons: a search would only say that there is no legal strategy --- */

#define REASON_BYTES 240

/* Ways that a role splits the layer over all levels; a level that is not given counts as 1. */
static int64_t parts_of(const struct sbp_plan *plan, const struct sbp_fix *fix, int role)
{
    int64_t parts = 1;
    for (int level = 0; level < plan->cut.stage.level_count; level++)
        if (fix->factor[role][level] != SBP_ANY &&
            !sbp_mul_i64(parts, fix->factor[role][level], &parts))
            return INT64_MAX;
    return parts;
}

static bool level_reason(const struct sbp_plan *plan, int op, const struct sbp_fix *fix, int level,
                         char *buffer)
{
    const struct sbp_level *stage = &plan->cut.stage.level[level];
    int64_t parts = 1;
    for (int role = 0; role < plan->cut.graph.op[op].entry->role_count; role++)
        if (fix->factor[role][level] != SBP_ANY &&
            !sbp_mul_i64(parts, fix->factor[role][level], &parts))
            parts = INT64_MAX;
    if (stage->size % parts == 0)
        return false;
    (void)snprintf(buffer, REASON_BYTES,
                   "the factors at level \"%s\" make %lld parts, which do not divide its %lld "
                   "members%s",
                   stage->name, (long long)parts, (long long)stage->size,
                   plan->cut.parallel.pipeline > 1 ? " in a stage" : "");
    return true;
}

static bool operand_reason(const struct sbp_plan *plan, const char *role, int tensor,
                           struct sbp_state state, int64_t parts, char *buffer)
{
    const struct sbp_graph *graph = &plan->cut.graph;
    if (state.kind != SBP_SPLIT || tensor < 0)
        return false;
    const struct sbp_shape *shape = &graph->tensor[tensor].shape;
    const int dim_class = shape->dim_class[state.dim];
    const bool by_batch = dim_class != SBP_NO_CLASS && graph->micro_batch < graph->global_batch &&
                          shape->size[state.dim] == graph->micro_batch &&
                          state.dim == SBP_DIM_BATCH &&
                          graph->tensor[tensor].kind == SBP_ACTIVATION;
    if (dim_class != SBP_NO_CLASS && shape->size[state.dim] % parts == 0)
        return false;
    if (dim_class == SBP_NO_CLASS)
        (void)snprintf(buffer, REASON_BYTES, "role %s splits %s, which nothing may split there",
                       role, graph->tensor[tensor].name);
    else
        (void)snprintf(buffer, REASON_BYTES,
                       "role %s splits %s (%lld%s) into %lld parts, which do not divide it%s", role,
                       graph->dim_class[dim_class].name, (long long)shape->size[state.dim],
                       by_batch ? ", a micro-batch" : "", (long long)parts,
                       strcmp(graph->dim_class[dim_class].name, "vocab") == 0
                           ? "; vocab_multiple=N pads a language model's vocabulary"
                           : "");
    return true;
}

/* A tied table is stored transposed. */
static struct sbp_state stored(const struct sbp_op_node *node, int weight, struct sbp_state state)
{
    if (state.kind == SBP_SPLIT && weight == 0 && node->transposed_weight)
        state.dim = state.dim == SBP_DIM_IN ? SBP_DIM_OUT : SBP_DIM_IN;
    return state;
}

static bool role_reason(const struct sbp_plan *plan, int op, const struct sbp_fix *fix, int index,
                        char *buffer)
{
    const struct sbp_op_node *node = &plan->cut.graph.op[op];
    const struct sbp_role *role = &node->entry->role[index];
    const int64_t parts = parts_of(plan, fix, index);
    bool found = false;
    if (parts == 1)
        return false;
    for (int w = 0; w < node->weight_count && !found; w++)
        found = operand_reason(plan, role->name, node->weight[w], stored(node, w, role->weight[w]),
                               parts, buffer);
    for (int i = 0; i < node->input_count && !found; i++)
        found = operand_reason(plan, role->name, node->input[i], role->input[i], parts, buffer);
    return found || operand_reason(plan, role->name, node->output, role->output, parts, buffer);
}

/* "role column splits block0.ffn (256) into 3 parts, which do not divide it". The reason is a level
 * whose members the factors do not divide, or a dimension; "" where neither is wrong, though the
 * strategy as a whole may still be illegal. Returns buffer. */
static const char *fix_reason(const struct sbp_plan *plan, int op, const struct sbp_fix *fix,
                              char *buffer)
{
    buffer[0] = '\0';
    for (int level = 0; level < plan->cut.stage.level_count; level++)
        if (level_reason(plan, op, fix, level, buffer))
            return buffer;
    for (int role = 0; role < plan->cut.graph.op[op].entry->role_count; role++)
        if (role_reason(plan, op, fix, role, buffer))
            return buffer;
    return buffer;
}

/* --- --fix --- */

#define REFUSE_FIX(...) sbp_fail(diag, SBP_E_USAGE, __VA_ARGS__)

/* "4/2" or "4", one factor a level. */
static bool parse_factors(char *text, int levels, int64_t *factor)
{
    for (int level = 0; level < levels; level++) {
        char *slash = strchr(text, '/');
        if ((slash == NULL) != (level + 1 == levels))
            return false;
        if (slash != NULL)
            *slash = '\0';
        if (!sbp_parse_int64(text, &factor[level]) || factor[level] < 1 ||
            factor[level] > MOST_FACTOR)
            return false;
        text = slash == NULL ? text : slash + 1;
    }
    return true;
}

static enum sbp_status refuse_role(const char *word, const char *op, const char *role,
                                   const char *const *names, struct sbp_diag *diag)
{
    const char *nearest = sbp_text_nearest(role, names);
    char legal[192] = "";
    size_t used = 0;
    if (nearest != NULL)
        return REFUSE_FIX("--fix %.80s: %s has no role \"%.40s\", did you mean \"%s\"?", word, op,
                          role, nearest);
    for (int i = 0; names[i] != NULL && used < sizeof legal; i++)
        used += (size_t)snprintf(legal + used, sizeof legal - used, "%s%.20s", i == 0 ? "" : ", ",
                                 names[i]);
    return REFUSE_FIX("--fix %.80s: %s has no role \"%.40s\", legal are %s", word, op, role, legal);
}

/* "node 8 x gpu 8", of a stage where there are several. */
#define LEVELS_BYTES 192
static const char *levels_of(const struct sbp_plan *plan, char *buffer)
{
    int used = 0;
    for (int i = 0; i < plan->cut.stage.level_count; i++)
        used +=
            snprintf(buffer + used, (size_t)(LEVELS_BYTES - used), "%s%s %lld", i > 0 ? " x " : "",
                     plan->cut.stage.level[i].name, (long long)plan->cut.stage.level[i].size);
    if (plan->cut.parallel.pipeline > 1)
        (void)snprintf(buffer + used, (size_t)(LEVELS_BYTES - used), " in a stage");
    return buffer;
}

static enum sbp_status parse_role(const struct fixes *fixes, int op, const char *word, char *item,
                                  struct sbp_fix *fix, struct sbp_diag *diag)
{
    const char *names[SBP_MAX_ROLES + 1];
    char level_text[LEVELS_BYTES];
    const int levels = fixes->plan->cut.stage.level_count;
    char *colon = strchr(item, ':');
    role_names(fixes->plan, op, names);
    if (colon == NULL)
        return REFUSE_FIX("--fix %.80s: \"%.40s\": legal is ROLE:FACTOR", word, item);
    *colon = '\0';
    int role = 0;
    while (names[role] != NULL && strcmp(names[role], item) != 0)
        role++;
    if (names[role] == NULL) {
        return refuse_role(word, fixes->plan->cut.graph.op[op].entry->name, item, names, diag);
    }
    if (fix->factor[role][0] != SBP_ANY)
        return REFUSE_FIX("--fix %.80s: role %s is given twice", word, item);
    if (parse_factors(colon + 1, levels, fix->factor[role]))
        return SBP_OK;
    if (levels == 1)
        return REFUSE_FIX("--fix %.80s: role %s needs a factor of 1 and more, as in %s:4", word,
                          item, item);
    return REFUSE_FIX("--fix %.80s: role %s needs %d factors of 1 and more, one for each level of "
                      "%s, as in %s:4/2",
                      word, item, levels, levels_of(fixes->plan, level_text), item);
}

/* Repeats of a layer are split alike: one fix is for all of them. */
static enum sbp_status check_first(const struct fixes *fixes, const char *word, int op,
                                   struct sbp_diag *diag)
{
    const struct sbp_graph *graph = &fixes->plan->cut.graph;
    const int site = graph->op[op].site;
    for (int i = 0; i < fixes->count; i++) {
        if (strcmp(fixes->fix[i].layer, graph->op[site].name) != 0)
            continue;
        if (graph->op[site].repeats > 1)
            return REFUSE_FIX("--fix %.80s: %s and its repeats are split alike, and fixed already",
                              word, graph->op[site].name);
        return REFUSE_FIX("--fix %.80s: %s is fixed twice", word, graph->op[op].name);
    }
    return SBP_OK;
}

/* Whether an item of a list is empty, as in "", "batch:4," and "batch:4,,row:2": the user may have
 * meant more. */
static bool has_empty_item(const char *items)
{
    const size_t length = strlen(items);
    return length == 0 || items[0] == ',' || items[length - 1] == ',' ||
           strstr(items, ",,") != NULL;
}

static enum sbp_status parse_fix(struct fixes *fixes, const char *word, struct sbp_diag *diag)
{
    char *copy = sbp_arena_strdup(fixes->arena, word);
    if (copy == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    char *equals = strchr(copy, '='), *rest = NULL;
    if (equals == NULL || equals == copy || has_empty_item(equals + 1))
        return REFUSE_FIX("--fix %.80s: legal is LAYER=ROLE:FACTOR,...", word);
    *equals = '\0';
    int op;
    char where[128];
    (void)snprintf(where, sizeof where, "--fix %.100s", word);
    SBP_TRY(find_layer(fixes, where, copy, &op, diag));
    SBP_TRY(check_first(fixes, word, op, diag));
    op = fixes->plan->cut.graph.op[op].site;
    struct sbp_fix *fix = add_fix(fixes, op, SBP_ANY);
    for (char *item = strtok_r(equals + 1, ",", &rest); item != NULL;
         item = strtok_r(NULL, ",", &rest))
        SBP_TRY(parse_role(fixes, op, word, item, fix, diag));
    char reason[REASON_BYTES];
    if (*fix_reason(fixes->plan, op, fix, reason) != '\0')
        return sbp_fail(diag, SBP_E_INPUT, "--fix %.80s: %s", word, reason);
    return SBP_OK;
}

enum sbp_status sbp_fixes_parse(const struct sbp_plan *plan, const struct sbp_word_list *words,
                                struct sbp_arena *arena, const struct sbp_fix **fix, int *count,
                                struct sbp_diag *diag)
{
    struct fixes fixes = {.plan = plan, .arena = arena};
    fixes.fix = SBP_NEW(arena, struct sbp_fix, words->count + 1);
    if (fixes.fix == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (int i = 0; i < words->count; i++)
        SBP_TRY(parse_fix(&fixes, words->word[i], diag));
    *fix = fixes.fix;
    *count = fixes.count;
    return SBP_OK;
}

/* --- files --- */

/* One role's factors: an array, one a level; with one level a number does. */
static enum sbp_status read_factors(const struct sbp_json *at, const struct sbp_plan *plan,
                                    int64_t *factor)
{
    const int levels = plan->cut.stage.level_count;
    char level_text[LEVELS_BYTES];
    struct sbp_json element;
    int length = 0;
    if (levels == 1 && !cJSON_IsArray(at->node))
        return sbp_json_int64(at, 1, MOST_FACTOR, factor);
    SBP_TRY(sbp_json_length(at, &length));
    if (length != levels)
        return sbp_json_refuse(at, "has %d factor%s, legal is one for each level of %s", length,
                               length == 1 ? "" : "s", levels_of(plan, level_text));
    for (int level = 0; level < levels; level++) {
        SBP_TRY(sbp_json_element(at, level, &element));
        SBP_TRY(sbp_json_int64(&element, 1, MOST_FACTOR, &factor[level]));
    }
    return SBP_OK;
}

/* Checks that the factors of a level multiply to its size. */
static enum sbp_status check_products(const struct sbp_json *at, const struct sbp_plan *plan,
                                      int64_t factor[][SBP_MAX_LEVELS], int count)
{
    for (int level = 0; level < plan->cut.stage.level_count; level++) {
        int64_t product = 1;
        for (int i = 0; i < count; i++)
            if (!sbp_mul_i64(product, factor[i][level], &product))
                return sbp_json_refuse(at, "the factors pass 2^63");
        if (product != plan->cut.stage.level[level].size)
            return sbp_json_refuse(at,
                                   "the factors at level \"%s\" make %lld parts, it has %lld "
                                   "members%s",
                                   plan->cut.stage.level[level].name, (long long)product,
                                   (long long)plan->cut.stage.level[level].size,
                                   plan->cut.parallel.pipeline > 1 ? " in a stage" : "");
    }
    return SBP_OK;
}

static enum sbp_status read_roles(const struct sbp_json *roles, const struct fixes *fixes, int op,
                                  struct sbp_fix *fix)
{
    const char *names[SBP_MAX_ROLES + 1];
    struct sbp_json member;
    role_names(fixes->plan, op, names);
    SBP_TRY(sbp_json_keys(roles, names));
    for (int role = 0; names[role] != NULL; role++) {
        if (!sbp_json_has(roles, names[role]))
            continue;
        SBP_TRY(sbp_json_member(roles, names[role], &member));
        SBP_TRY(read_factors(&member, fixes->plan, fix->factor[role]));
    }
    SBP_TRY(check_products(roles, fixes->plan, fix->factor, SBP_MAX_ROLES));
    char reason[REASON_BYTES];
    return *fix_reason(fixes->plan, op, fix, reason) == '\0' ? SBP_OK
                                                             : sbp_json_refuse(roles, "%s", reason);
}

static const char *const REST_NAMES[] = {"S0", "S1", "S2", "B", "P", "M", NULL};

/* A state for every axis, as plans have it. */
static enum sbp_status read_rest_axes(const struct sbp_json *at, const struct sbp_plan *plan,
                                      struct sbp_fix *fix)
{
    struct sbp_json element;
    int length = 0, state = 0;
    SBP_TRY(sbp_json_length(at, &length));
    if (length != plan->cut.mesh.axis_count)
        return sbp_json_refuse(at, "has %d states, the devices make %d axes", length,
                               plan->cut.mesh.axis_count);
    for (int axis = 0; axis < length; axis++) {
        SBP_TRY(sbp_json_element(at, axis, &element));
        SBP_TRY(sbp_json_choice(&element, REST_NAMES, &state));
        fix->rest[state][plan->cut.mesh.axis[axis].level] *= plan->cut.mesh.axis[axis].size;
    }
    return SBP_OK;
}

/* Reads where the output rests: one state for all axes, states with their factors, or a state for
 * each axis. */
static enum sbp_status read_rest(const struct sbp_json *layer, const struct sbp_plan *plan,
                                 struct sbp_fix *fix)
{
    struct sbp_json at, member;
    int state = 0;
    if (!sbp_json_has(layer, "rest"))
        return SBP_OK;
    SBP_TRY(sbp_json_member(layer, "rest", &at));
    fix->rests = true;
    for (int i = 0; i < SBP_REST_STATES; i++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            fix->rest[i][level] = 1;
    if (cJSON_IsArray(at.node))
        return read_rest_axes(&at, plan, fix);
    if (cJSON_IsString(at.node)) {
        SBP_TRY(sbp_json_choice(&at, REST_NAMES, &state));
        for (int level = 0; level < plan->cut.stage.level_count; level++)
            fix->rest[state][level] = plan->cut.stage.level[level].size;
        return SBP_OK;
    }
    if (!cJSON_IsObject(at.node))
        return sbp_json_refuse(&at, "legal is one of S0, S1, S2, B, P and M, an object of "
                                    "their factors, or a list with one for each axis");
    SBP_TRY(sbp_json_keys(&at, REST_NAMES));
    for (int i = 0; i < SBP_REST_STATES; i++)
        if (sbp_json_has(&at, REST_NAMES[i])) {
            SBP_TRY(sbp_json_member(&at, REST_NAMES[i], &member));
            SBP_TRY(read_factors(&member, plan, fix->rest[i]));
        }
    return check_products(&at, plan, fix->rest, SBP_REST_STATES);
}

static enum sbp_status read_zero(const struct sbp_json *layer, struct sbp_fix *fix)
{
    int64_t zero = SBP_ANY;
    SBP_TRY(sbp_json_get_int64(layer, "zero", 0, 3, &zero));
    fix->zero = (int)zero;
    return SBP_OK;
}

/* Takes a fix. Repeats share a strategy, so that theirs must be alike. */
static enum sbp_status take_fix(const struct sbp_json *layer, struct fixes *fixes, int op)
{
    const struct sbp_fix *mine = &fixes->fix[fixes->count - 1];
    for (int i = 0; i + 1 < fixes->count; i++) {
        if (strcmp(fixes->fix[i].layer, mine->layer) != 0)
            continue;
        if (memcmp(fixes->fix[i].factor, mine->factor, sizeof mine->factor) != 0 ||
            fixes->fix[i].rests != mine->rests || fixes->fix[i].zero != mine->zero ||
            memcmp(fixes->fix[i].rest, mine->rest, sizeof mine->rest) != 0)
            return sbp_json_refuse(layer, "%s shares its strategy with %s and is given another one",
                                   fixes->plan->cut.graph.op[op].name, mine->layer);
        fixes->count--;
        return SBP_OK;
    }
    return SBP_OK;
}

static const struct sbp_fix *rest_of_site(const struct fixes *fixes, int op)
{
    const struct sbp_graph *graph = &fixes->plan->cut.graph;
    const char *name = graph->op[graph->op[op].site].name;
    for (int i = 0; i < fixes->count; i++)
        if (fixes->fix[i].rests && strcmp(fixes->fix[i].layer, name) == 0)
            return &fixes->fix[i];
    return NULL;
}

/* Checks the rest of a follower that has none of its own: a repeat's is that of the first, others
 * rest where their input does. */
static enum sbp_status check_follower_rest(const struct sbp_json *layer, const struct fixes *fixes,
                                           int op)
{
    const struct sbp_graph *graph = &fixes->plan->cut.graph;
    int from = op;
    while (from >= 0 && graph->op[from].entry->follows &&
           !sbp_regather_rests_apart(graph, graph->op[from].site))
        from = graph->tensor[graph->op[from].input[0]].producer;
    const struct sbp_fix *given = from < 0 ? NULL : rest_of_site(fixes, from);
    struct sbp_fix own = {.layer = ""};
    SBP_TRY(read_rest(layer, fixes->plan, &own));
    if (!own.rests || given == NULL || memcmp(own.rest, given->rest, sizeof own.rest) == 0)
        return SBP_OK;
    return sbp_json_refuse(layer, "%s rests as %s does and is given another rest",
                           graph->op[op].name, given->layer);
}

/* Reads a follower, a layer that runs as its input is split: the ZeRO level is its own, for each
 * repeat, and where several linears read its output, where that rests. */
static enum sbp_status read_follower(const struct sbp_json *layer, struct fixes *fixes, int op)
{
    const struct sbp_graph *graph = &fixes->plan->cut.graph;
    int64_t zero = fixes->plan->cut.parallel.zero;
    if (op < 0)
        return SBP_OK;
    SBP_TRY(sbp_json_get_int64(layer, "zero", 0, 3, &zero));
    struct sbp_fix *fix = add_fix(fixes, op, SBP_ANY);
    fix->zero = (int)zero;
    if (graph->op[op].site == op && sbp_regather_rests_apart(graph, op))
        SBP_TRY(read_rest(layer, fixes->plan, fix));
    else
        SBP_TRY(check_follower_rest(layer, fixes, op));
    return take_fix(layer, fixes, op);
}

static enum sbp_status read_layer(const struct sbp_json *layer, struct fixes *fixes)
{
    static const char *const KEYS[] = {
        "name",           "op",         "roles",           "axes",      "rest",
        "zero",           "repeats",    "communication_s", "compute_s", "forward_flops",
        "backward_flops", "parameters", "kept_bytes",      "follows",   NULL};
    struct sbp_json name_at, roles;
    const char *name;
    bool follows = false;
    int op;
    SBP_TRY(sbp_json_keys(layer, KEYS));
    SBP_TRY(sbp_json_get_bool(layer, "follows", &follows));
    SBP_TRY(sbp_json_member(layer, "name", &name_at));
    SBP_TRY(sbp_json_string(&name_at, &name));
    op = find_op(&fixes->plan->cut.graph, name);
    const bool follower = op >= 0 && fixes->plan->cut.graph.op[op].entry->follows;
    if (follows || (follower && !sbp_json_has(layer, "roles")))
        return read_follower(layer, fixes, follower ? op : -1);
    char where[256];
    (void)snprintf(where, sizeof where, "%.120s: %.120s", layer->file, name_at.path);
    SBP_TRY(find_layer(fixes, where, name, &op, layer->diag));
    SBP_TRY(sbp_json_member(layer, "roles", &roles));
    struct sbp_fix *fix = add_fix(fixes, fixes->plan->cut.graph.op[op].site, 1);
    SBP_TRY(read_roles(&roles, fixes, op, fix));
    SBP_TRY(read_rest(layer, fixes->plan, fix));
    SBP_TRY(read_zero(layer, fix));
    return take_fix(layer, fixes, op);
}

static bool is_given(const struct fixes *fixes, int op)
{
    for (int i = 0; i < fixes->count; i++)
        if (strcmp(fixes->fix[i].layer, fixes->plan->cut.graph.op[op].name) == 0)
            return true;
    return false;
}

static enum sbp_status check_complete(const struct sbp_json *layers, const struct fixes *fixes)
{
    const struct sbp_graph *graph = &fixes->plan->cut.graph;
    for (int op = 0; op < graph->op_count; op++)
        if (chooses(graph, op) && !is_given(fixes, op))
            return sbp_json_refuse(layers,
                                   "layer \"%s\" (%s) is missing: price needs the strategy "
                                   "of every layer that has a choice",
                                   graph->op[op].name, graph->op[op].entry->name);
    return SBP_OK;
}

static enum sbp_status read_layers(const struct sbp_json *root, struct fixes *fixes)
{
    static const char *const KEYS[] = {"layers", "parallel", NULL};
    struct sbp_json holder = *root, layers, layer;
    int count = 0;
    /* Plan files have further members, which are results. */
    if (!sbp_json_has(root, "version"))
        SBP_TRY(sbp_json_keys(root, KEYS));
    if (sbp_json_has(root, "strategy"))
        SBP_TRY(sbp_json_member(root, "strategy", &holder));
    SBP_TRY(sbp_json_member(&holder, "layers", &layers));
    SBP_TRY(sbp_json_length(&layers, &count));
    fixes->fix = SBP_NEW(fixes->arena, struct sbp_fix, count + 1);
    if (fixes->fix == NULL)
        return sbp_fail(root->diag, SBP_E_MEMORY, "%s: out of memory", root->file);
    for (int i = 0; i < count; i++) {
        if (i == 0)
            SBP_TRY(sbp_json_element(&layers, 0, &layer));
        else
            SBP_TRY(sbp_json_next(&layers, i, &layer));
        SBP_TRY(read_layer(&layer, fixes));
    }
    return check_complete(&layers, fixes);
}

enum sbp_status sbp_fixes_read(const struct sbp_plan *plan, const char *path,
                               struct sbp_arena *arena, const struct sbp_fix **fix, int *count,
                               struct sbp_diag *diag)
{
    struct fixes fixes = {.plan = plan, .arena = arena};
    struct cJSON *root;
    struct sbp_json at;
    SBP_TRY(sbp_json_open(path, &root, &at, diag));
    const enum sbp_status status = read_layers(&at, &fixes);
    cJSON_Delete(root);
    *fix = fixes.fix;
    *count = fixes.count;
    return status;
}
