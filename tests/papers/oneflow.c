/* OneFlow's tables 1 and 2: signatures of a matrix product, and what boxing moves. Their bodies are
 * lost in the text of the paper; they are taken from the code that it describes.
 */
#include <stdio.h>
#include <string.h>

#include "costmodel/layout/boxing.h"
#include "tests/papers/boxing_disjoint.h"
#include "costmodel/model/op.h"
#include "tests/papers/paper.h"
#include "tests/papers/setting.h"
#include "tests/papers/signatures.h"

#define S0 SBP_STATE_S(0)
#define S1 SBP_STATE_S(1)
#define B  SBP_STATE_B
#define P  SBP_STATE_P

/* --- table 1 --- */

#define SIGNATURES 6
static const struct {
    struct signature signature;
    const char *meaning;
} theirs[SIGNATURES] = {
    {{{SBP_SPLIT, 0}, {SBP_BROADCAST, 0}, {SBP_SPLIT, 0}}, "data parallelism"},
    {{{SBP_BROADCAST, 0}, {SBP_SPLIT, 1}, {SBP_SPLIT, 1}}, "model parallelism, by columns"},
    {{{SBP_SPLIT, 1}, {SBP_SPLIT, 0}, {SBP_PARTIAL, 0}}, "by rows"},
    {{{SBP_PARTIAL, 0}, {SBP_BROADCAST, 0}, {SBP_PARTIAL, 0}}, "linear in A"},
    {{{SBP_BROADCAST, 0}, {SBP_PARTIAL, 0}, {SBP_PARTIAL, 0}}, "linear in B"},
    {{{SBP_BROADCAST, 0}, {SBP_BROADCAST, 0}, {SBP_BROADCAST, 0}}, "repeated work"},
};

/* The catalogue's states of a linear layer as those of matrices (rows: tokens). */
static struct sbp_state of_activation(struct sbp_state state)
{
    return state.kind != SBP_SPLIT ? state : state.dim == SBP_DIM_FEATURE ? S1 : S0;
}

static struct sbp_state of_weight(struct sbp_state state)
{
    return state.kind != SBP_SPLIT ? state : state.dim == SBP_DIM_OUT ? S1 : S0;
}

static struct sbp_state transposed(struct sbp_state state)
{
    return state.kind != SBP_SPLIT ? state : state.dim == 0 ? S1 : S0;
}

static struct sbp_state dual(struct sbp_state state)
{
    return state.kind == SBP_BROADCAST ? P : state.kind == SBP_PARTIAL ? B : state;
}

/* A linear layer's roles without `mirror`, the last: the paper's tensors have three states. */
static int roles_of(const struct sbp_op_entry *linear)
{
    return sbp_op_role(linear, "mirror");
}

#define PRODUCTS 3
static const char *const product_text[PRODUCTS] = {"Y = XW", "dX = dY W'", "dW = X' dY"};

/* The signature of one of a linear layer's three products on an axis that plays a role. */
static struct signature signature_of(const struct sbp_role *role, int product)
{
    const struct sbp_state x = of_activation(role->input[0]), y = of_activation(role->output);
    const struct sbp_state w = of_weight(role->weight[0]);
    if (product == 0)
        return (struct signature){x, w, y};
    if (product == 1)
        return (struct signature){dual(y), transposed(w), dual(x)};
    return (struct signature){transposed(x), dual(y), of_weight(role->gradient[0])};
}

/* "role: product" of all that have the signature. */
static void list_roles(const struct signature *signature, struct sbp_text *text)
{
    const struct sbp_op_entry *linear = sbp_op(SBP_OP_LINEAR);
    for (int r = 0; r < roles_of(linear); r++)
        for (int i = 0; i < PRODUCTS; i++) {
            const struct signature ours = signature_of(&linear->role[r], i);
            if (signature_equal(signature, &ours))
                sbp_text_add(text, "%s%s: %s", text->length == 0 ? "" : "; ", linear->role[r].name,
                             product_text[i]);
        }
}

static int known(const struct signature *signature)
{
    for (int i = 0; i < SIGNATURES; i++)
        if (signature_equal(signature, &theirs[i].signature))
            return i;
    return -1;
}

/* Every product of every role, by arithmetic and in the paper's table. */
static void hold_roles(struct paper *paper)
{
    const struct sbp_op_entry *linear = sbp_op(SBP_OP_LINEAR);
    for (int r = 0; r < roles_of(linear); r++)
        for (int i = 0; i < PRODUCTS; i++) {
            const struct signature ours = signature_of(&linear->role[r], i);
            paper_true(paper, linear->role[r].name, signature_holds(&ours, 1) && known(&ours) >= 0);
        }
}

static struct signature numbered(int i)
{
    const int states = SIGNATURE_STATES;
    return (struct signature){signature_state(i / states / states),
                              signature_state(i / states % states), signature_state(i % states)};
}

#define TRIPLES (SIGNATURE_STATES * SIGNATURE_STATES * SIGNATURE_STATES)
/* All triples, on two devices and on 2 x 2: those that hold are the table, and its products. */
static void hold_all(struct paper *paper)
{
    int one = 0, two = 0;
    bool in_table = true, products = true;
    for (int i = 0; i < TRIPLES; i++) {
        const struct signature outer = numbered(i);
        const bool holds = signature_holds(&outer, 1);
        one += holds;
        in_table &= holds == (known(&outer) >= 0);
        for (int j = 0; j < TRIPLES; j++) {
            const struct signature both[2] = {outer, numbered(j)};
            const bool pair_holds = signature_holds(both, 2);
            two += pair_holds;
            products &= pair_holds == (known(&both[0]) >= 0 && known(&both[1]) >= 0);
        }
    }
    paper_true(paper, "one axis: the table and nothing else", in_table);
    paper_true(paper, "two axes: products of the table and nothing else", products);
    paper_say(paper,
              "All %d triples of states were tried with real matrices on 2 devices: %d hold, the "
              "table's and no other.\nOf the %d pairs of triples on 2 x 2 devices %d hold: the "
              "products of the table's rows, which are what\nroles of two mesh axes make (the "
              "paper's table 3 shows two of them).\n\n",
              TRIPLES, one, TRIPLES * TRIPLES, two);
}

static void table_1(struct paper *paper)
{
    paper_say(paper,
              "## Table 1: signatures of C = AB\n\n"
              "Theirs: table 1 of the paper (body lost in its text), from `matmul_op.cpp` of "
              "OneFlow 25c8978c. Ours: the\nroles of `linear` on one mesh axis, in its three "
              "products (a prime transposes).\n\n");
    paper_table(paper, "| theirs: A | B | C | meaning | by arithmetic | ours |");
    for (int i = 0; i < SIGNATURES; i++) {
        const struct signature *s = &theirs[i].signature;
        char a[8], b[8], c[8];
        struct sbp_text roles = {0};
        list_roles(s, &roles);
        const bool holds = signature_holds(s, 1);
        paper_true(paper, "a signature of table 1", holds && roles.length > 0);
        paper_say(paper, "| %s | %s | %s | %s | %s | %s |\n", signature_state_text(s->a, a),
                  signature_state_text(s->b, b), signature_state_text(s->c, c), theirs[i].meaning,
                  holds ? "holds" : "fails", roles.length > 0 ? roles.bytes : "-");
        sbp_text_free(&roles);
    }
    paper_say(paper,
              "\nWhy they differ: they do not. A weight is stored, never a sum, so `B, P` is "
              "no forward role of ours: it is\nthe weight gradient of a layer whose output "
              "gradient is a sum.\n\n");
    hold_roles(paper);
    hold_all(paper);
}

/* --- table 2, same devices --- */

enum formula { ZERO, ALL_TO_ALL, GATHER, SCATTER, REDUCE, NONE };
static const char *const formula_text[] = {"0",       "T (p-1)/p", "T (p-1)",
                                           "T (p-1)", "2T (p-1)",  "none"};

static double formula(enum formula which, double p)
{
    const double value[] = {0, (p - 1) / p, p - 1, p - 1, 2 * (p - 1), 0};
    return value[which];
}

struct transition {
    struct sbp_state from, to;
    enum formula theirs;
    const char *why;
};

static const struct transition transitions[] = {
    {{SBP_SPLIT, 0}, {SBP_SPLIT, 0}, ZERO, ""},
    {{SBP_SPLIT, 0}, {SBP_SPLIT, 1}, ALL_TO_ALL, ""},
    {{SBP_SPLIT, 1}, {SBP_SPLIT, 0}, ALL_TO_ALL, ""},
    {{SBP_SPLIT, 0}, {SBP_BROADCAST, 0}, GATHER, ""},
    {{SBP_BROADCAST, 0}, {SBP_SPLIT, 0}, ZERO, "their code charges a token of 1 byte"},
    {{SBP_BROADCAST, 0}, {SBP_BROADCAST, 0}, ZERO, ""},
    {{SBP_PARTIAL, 0}, {SBP_SPLIT, 0}, SCATTER, ""},
    {{SBP_PARTIAL, 0}, {SBP_BROADCAST, 0}, REDUCE, ""},
    {{SBP_PARTIAL, 0}, {SBP_PARTIAL, 0}, ZERO, ""},
    {{SBP_SPLIT, 0}, {SBP_PARTIAL, 0}, NONE, "theirs goes by B; ours pads with zeros"},
    {{SBP_BROADCAST, 0}, {SBP_PARTIAL, 0}, NONE, "theirs forbids it; ours keeps one copy"},
};
enum { TRANSITIONS = sizeof transitions / sizeof transitions[0] };

#define SIDE INT64_C(5040) /* divisible by the device counts, twice over where they are small */

struct plane {
    struct sbp_cluster cluster;
    struct sbp_mesh mesh;
    sbp_axes split[2];
    struct sbp_layout layout;
    struct sbp_shape shape;
};

/* A matrix on so many devices, whose rows and columns any axis may split. */
static void plane_make(struct plane *plane, int64_t devices)
{
    plane->cluster = setting_cluster(devices);
    plane->mesh = setting_mesh(&plane->cluster);
    plane->split[0] = plane->split[1] = ((sbp_axes)1 << plane->mesh.axis_count) - 1;
    plane->layout = (struct sbp_layout){&plane->mesh, 2, plane->split};
    plane->shape = (struct sbp_shape){{SIDE, SIDE, 1, 1}, {0, 1, SBP_NO_CLASS, SBP_NO_CLASS}};
}

/* Returns the volume that the planner's list of steps moves, summed over devices, in parts of the
 * tensor. Adds the names of the steps to the text. */
static double boxed(const struct plane *plane, const struct sbp_dist *from,
                    const struct sbp_dist *to, struct sbp_text *steps)
{
    struct sbp_diag diag = {{0}};
    struct sbp_boxing boxing;
    setting_must(sbp_boxing_make(&plane->layout, &plane->shape, from, to, &boxing, &diag), &diag);
    double sum = 0;
    for (int i = 0; i < boxing.count; i++) {
        const struct sbp_boxing_step *step = &boxing.step[i];
        sum += (double)plane->mesh.devices * sbp_collective_traffic_bytes(&plane->mesh, step->kind,
                                                                          step->axes,
                                                                          (double)step->elements);
        if (steps != NULL)
            sbp_text_add(steps, "%s%s", i == 0 ? "" : ", ", sbp_collective_name(step->kind));
    }
    return sum / ((double)SIDE * (double)SIDE);
}

static double boxed_flat(int64_t devices, const struct transition *t, struct sbp_text *steps)
{
    struct plane plane;
    plane_make(&plane, devices);
    const struct sbp_dist from = sbp_dist_all(t->from), to = sbp_dist_all(t->to);
    return boxed(&plane, &from, &to, steps);
}

static const int64_t device_counts[] = {2, 3, 4, 6, 8, 12, 16};
enum { DEVICE_COUNTS = sizeof device_counts / sizeof device_counts[0] };

static void table_2_same(struct paper *paper)
{
    paper_say(paper,
              "## Table 2: what boxing moves, same devices\n\n"
              "Bytes sent, summed over the p devices, T = bytes of the tensor. Theirs: table 2, "
              "\"same\" (body lost in the\npaper's text), from `sbp_infer_util.cpp`. Ours: "
              "`sbp_boxing_make` and `sbp_collective_traffic_bytes`,\nheld to theirs for p = 2, 3, "
              "4, 6, 8, 12, 16; printed for p = 4.\n\n");
    paper_table(paper, "| transition | theirs | p = 4 | ours, p = 4 | by | why they differ |");
    for (int i = 0; i < TRANSITIONS; i++) {
        const struct transition *t = &transitions[i];
        char from[8], to[8], number[32];
        struct sbp_text steps = {0};
        const double ours = boxed_flat(4, t, &steps);
        for (int j = 0; j < DEVICE_COUNTS; j++)
            paper_equal(paper, "table 2, same devices", boxed_flat(device_counts[j], t, NULL),
                        formula(t->theirs, (double)device_counts[j]), 1e-12);
        (void)snprintf(number, sizeof number, "%g T", formula(t->theirs, 4));
        paper_say(paper, "| %s -> %s | %s | %s | %g T | %s | %s |\n",
                  signature_state_text(t->from, from), signature_state_text(t->to, to),
                  formula_text[t->theirs], t->theirs == NONE ? "-" : number, ours,
                  steps.length > 0 ? steps.bytes : "-", t->why);
        sbp_text_free(&steps);
    }
    paper_say(paper, "\n");
}

/* --- two axes --- */

struct pair {
    struct sbp_state from[2], to[2];
    double theirs;
    const char *why;
};

static const struct pair pairs[] = {
    {{{SBP_BROADCAST, 0}, {SBP_SPLIT, 0}},
     {{SBP_SPLIT, 0}, {SBP_SPLIT, 0}},
     13,
     "theirs gathers to (B, B) and slices, since nested splits put the outer axis's part "
     "elsewhere; "
     "an axis of ours owns its digit of the index whatever others do, so this is a slice"},
    {{{SBP_PARTIAL, 0}, {SBP_SPLIT, 0}},
     {{SBP_SPLIT, 0}, {SBP_BROADCAST, 0}},
     24,
     "theirs takes fewest hops, not the cheapest; ours scatters, then gathers"},
};
enum { PAIRS = sizeof pairs / sizeof pairs[0] };

/* The first half of a 4 x 4 mesh's four binary axes is its outer axis. */
static struct sbp_dist grid_dist(const struct sbp_mesh *mesh, const struct sbp_state state[2])
{
    struct sbp_dist dist = sbp_dist_all(B);
    for (int i = 0; i < mesh->axis_count; i++)
        dist.axis[i] = state[i < mesh->axis_count / 2 ? 0 : 1];
    return dist;
}

static void table_2_grid(struct paper *paper)
{
    struct plane plane;
    plane_make(&plane, 16);
    paper_say(paper, "Two axes, 4 x 4 devices. Theirs: the fewest hops of `boxing_collector.cpp`, "
                     "each priced by table 2.\n\n");
    paper_table(paper, "| transition | theirs | ours | by | why they differ |");
    for (int i = 0; i < PAIRS; i++) {
        const struct sbp_dist from = grid_dist(&plane.mesh, pairs[i].from);
        const struct sbp_dist to = grid_dist(&plane.mesh, pairs[i].to);
        char text[4][8];
        struct sbp_text steps = {0};
        const double ours = boxed(&plane, &from, &to, &steps);
        paper_within(paper, "two axes", ours, 0, pairs[i].theirs);
        paper_say(paper, "| (%s, %s) -> (%s, %s) | %g T | %g T | %s | %s |\n",
                  signature_state_text(pairs[i].from[0], text[0]),
                  signature_state_text(pairs[i].from[1], text[1]),
                  signature_state_text(pairs[i].to[0], text[2]),
                  signature_state_text(pairs[i].to[1], text[3]), pairs[i].theirs, ours, steps.bytes,
                  pairs[i].why);
        sbp_text_free(&steps);
    }
    paper_say(paper, "\n");
}

/* --- table 2, disjoint devices --- */

/* T + (p2 - 1) T if the consumers want copies + (p1 - 1) T if the producers hold a sum. */
static double disjoint_formula(struct sbp_state from, struct sbp_state to, double p1, double p2)
{
    return 1 + (to.kind == SBP_BROADCAST ? p2 - 1 : 0) + (from.kind == SBP_PARTIAL ? p1 - 1 : 0);
}

static const char *disjoint_text(struct sbp_state from, struct sbp_state to)
{
    const bool sum = from.kind == SBP_PARTIAL, copies = to.kind == SBP_BROADCAST;
    return sum && copies ? "(p1 + p2 - 1) T" : sum ? "p1 T" : copies ? "p2 T" : "T";
}

static struct sbp_disjoint disjoint(int64_t p1, struct sbp_state from, int64_t p2,
                                    struct sbp_state to)
{
    struct plane source, target;
    plane_make(&source, p1);
    plane_make(&target, p2);
    const struct sbp_dist held = sbp_dist_all(from), wanted = sbp_dist_all(to);
    const struct sbp_disjoint_side out = {&source.cluster, &source.mesh, &held};
    const struct sbp_disjoint_side in = {&target.cluster, &target.mesh, &wanted};
    return sbp_boxing_disjoint(&out, &in, (struct sbp_disjoint_link){0, 0}, 1);
}

static double disjoint_sum(const struct sbp_disjoint *boxing)
{
    return boxing->reduce_bytes + boxing->send_bytes + boxing->gather_bytes;
}

static void hold_disjoint(struct paper *paper, struct sbp_state from, struct sbp_state to)
{
    for (int i = 0; i < DEVICE_COUNTS; i++)
        for (int j = 0; j < DEVICE_COUNTS; j++) {
            const struct sbp_disjoint ours = disjoint(device_counts[i], from, device_counts[j], to);
            paper_equal(
                paper, "table 2, disjoint devices", disjoint_sum(&ours),
                disjoint_formula(from, to, (double)device_counts[i], (double)device_counts[j]),
                1e-12);
        }
}

static void table_2_disjoint(struct paper *paper)
{
    paper_say(
        paper,
        "## Table 2: what boxing moves, disjoint devices\n\n"
        "From p1 producers to p2 consumers, as between stages of a pipeline. Theirs: table 2, "
        "\"disjoint\".\nOurs: the count of `tests/papers/boxing_disjoint.c`, which no search uses: "
        "sum among producers, cross once,\ncopy among consumers; held to theirs for all pairs of "
        "p1, p2 in 2, 3, 4, 6, 8, 12, 16; printed for p1 = 4,\np2 = 3, with the messages of the "
        "busiest device.\n\n");
    paper_table(paper, "| transition | theirs | p1 = 4, p2 = 3 | ours | reduce + send + gather | "
                       "messages |");
    const struct sbp_state all[] = {S0, S1, B, P};
    for (int i = 0; i < SIGNATURE_STATES * SIGNATURE_STATES; i++) {
        const struct sbp_state from = all[i / SIGNATURE_STATES], to = all[i % SIGNATURE_STATES];
        if (from.kind == SBP_SPLIT && from.dim == 1) /* S(1) as S(0) */
            continue;
        char a[8], b[8];
        const struct sbp_disjoint ours = disjoint(4, from, 3, to);
        hold_disjoint(paper, from, to);
        paper_say(paper, "| %s -> %s | %s | %g T | %g T | %g + %g + %g | %lld |\n",
                  signature_state_text(from, a), signature_state_text(to, b),
                  disjoint_text(from, to), disjoint_formula(from, to, 4, 3), disjoint_sum(&ours),
                  ours.reduce_bytes, ours.send_bytes, ours.gather_bytes, (long long)ours.messages);
    }
    paper_say(paper,
              "\nWhy they differ: they do not. "
              "`tests/unit/costmodel/layout/test_boxing_disjoint.c` carries real\nvalues over "
              "random pairs of meshes and counts the elements that move.\n\n");
}

int main(int argc, char **argv)
{
    struct paper paper;
    paper_open(&paper, "oneflow", "OneFlow: signatures and boxing volumes");
    table_1(&paper);
    table_2_same(&paper);
    table_2_grid(&paper);
    table_2_disjoint(&paper);
    return paper_close(&paper, argc, argv);
}
