#include <stdlib.h>
#include <string.h>

#include "tests/support/op_form.h"
#include "tests/support/unit.h"

/* --- terms --- */

struct term *add_term(struct form *form, int64_t out)
{
    if (form->term_count == form->term_capacity) {
        form->term_capacity = 2 * form->term_capacity + 64;
        form->term = realloc(form->term, (size_t)form->term_capacity * sizeof *form->term);
        assert_non_null(form->term);
    }
    struct term *term = &form->term[form->term_count++];
    *term = (struct term){.out = out};
    return term;
}

void add_operand(struct form *form, enum operand_kind kind, int index, const char *gathered,
                 const int64_t size[4], const int dim_class[4])
{
    const uint64_t stream = 100 + 2 * (uint64_t)form->operand_count;
    form->operand[form->operand_count++] =
        (struct operand){.kind = kind,
                         .index = index,
                         .gathered = gathered,
                         .value = whole_of(size, dim_class, stream),
                         .gradient = whole_of(size, dim_class, stream + 1)};
}

void set_output(struct form *form, const int64_t size[4], const int dim_class[4])
{
    form->y = whole_of(size, dim_class, 7);
    form->dy = whole_of(size, dim_class, 8);
}

void drop_form(struct form *form)
{
    for (int i = 0; i < form->operand_count; i++) {
        free(form->operand[i].value.value);
        free(form->operand[i].gradient.value);
    }
    free(form->y.value);
    free(form->dy.value);
    free(form->term);
}

/* --- members --- */

static const struct sbp_role *role_on(const struct form *form, const int *role, int axis)
{
    return &sbp_op(form->kind)->role[role[axis]];
}

/* Whether a word is one of a list's, which blanks part. */
static bool lists(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' '))
            return true;
    return false;
}

sbp_axes axes_of_role(const struct stage *stage, const struct form *form, const int *role,
                      const char *names)
{
    sbp_axes axes = 0;
    for (int i = 0; i < stage->mesh.axis_count && names != NULL; i++)
        if (lists(names, role_on(form, role, i)->name))
            axes |= (sbp_axes)1 << i;
    return axes;
}

static struct sbp_dist output_dist(const struct stage *stage, const struct form *form,
                                   const int *role)
{
    struct sbp_dist dist = {0};
    for (int i = 0; i < stage->mesh.axis_count; i++)
        dist.axis[i] = role_on(form, role, i)->output;
    return dist;
}

struct sbp_dist operand_dist(const struct stage *stage, const struct form *form, int operand,
                             const int *role)
{
    const struct operand *o = &form->operand[operand];
    struct sbp_dist dist = {0};
    for (int i = 0; i < stage->mesh.axis_count; i++) {
        const struct sbp_role *r = role_on(form, role, i);
        dist.axis[i] = o->kind == INPUT ? r->input[o->index] : r->weight[o->index];
        if (o->kind == IMAGES)
            dist.axis[i] = r->output.kind == SBP_SPLIT && r->output.dim <= SBP_DIM_SEQUENCE
                               ? r->output
                               : SBP_STATE_B;
    }
    return dist;
}

/* Returns the distribution that the catalogue gives to an operand's gradient. A weight declares its
 * gradient's states; an activation's gradient has the dual states. */
static struct sbp_dist gradient_dist(const struct stage *stage, const struct form *form,
                                     int operand, const int *role)
{
    const struct operand *o = &form->operand[operand];
    struct sbp_dist dist = operand_dist(stage, form, operand, role);
    if (o->kind == INPUT)
        return sbp_dist_dual(&stage->mesh, &dist);
    for (int i = 0; i < stage->mesh.axis_count; i++)
        dist.axis[i] = role_on(form, role, i)->gradient[o->index];
    return dist;
}

/* Every member gets what its group over `axes` holds. */
static void gather(const struct stage *stage, const struct sbp_shape *shape, sbp_axes axes,
                   struct shards *shards)
{
    struct shards all = shards_empty(stage, shape);
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t o = 0; o < stage->mesh.devices; o++)
            for (int64_t i = 0; i < oracle_size(shape); i++)
                if (oracle_same_group(&stage->mesh, axes, r, o) && shards->there[o][i]) {
                    assert_true(!all.there[r][i] || axes == 0 || r == o ||
                                all.value[r][i] == shards->value[o][i]);
                    all.value[r][i] = shards->value[o][i];
                    all.there[r][i] = true;
                }
    shards_drop(stage, shards);
    *shards = all;
}

/* Adds up the values of the members of a group over `axes` and gives the sum to the owner by
 * `dist`. A value without an owner in the group stays where it is, so that the check finds it. */
static void send_home(const struct stage *stage, const struct sbp_shape *shape, sbp_axes axes,
                      const struct sbp_dist *dist, struct shards *shards)
{
    struct shards home = shards_empty(stage, shape);
    for (int64_t r = 0; r < stage->mesh.devices; r++)
        for (int64_t i = 0; i < oracle_size(shape); i++) {
            bool owned = false;
            for (int64_t o = 0; o < stage->mesh.devices; o++)
                if (oracle_same_group(&stage->mesh, axes, r, o)) {
                    owned |= element_there(stage, shape, dist, o, i);
                    home.value[r][i] += shards->value[o][i];
                    home.there[r][i] |= shards->there[o][i];
                }
            if (owned && !element_there(stage, shape, dist, r, i))
                home.there[r][i] = false;
        }
    shards_drop(stage, shards);
    *shards = home;
}

/* The product of a term's factors but one (-1: all), if the member holds them. */
static bool product_of(const struct term *term, const struct shards *operand, int64_t rank,
                       int except, int64_t *product)
{
    *product = 1;
    for (int f = 0; f < term->count; f++) {
        const struct factor factor = term->factor[f];
        if (f == except)
            continue;
        if (!operand[factor.operand].there[rank][factor.at])
            return false;
        *product *= operand[factor.operand].value[rank][factor.at];
    }
    return true;
}

/* One play of a form: what all members hold. */
struct scene {
    const struct stage *stage;
    struct form *form;
    const int *role;
    struct shards operand[MOST_OPERANDS]; /* gathered where the operator gathers */
    struct shards used[MOST_OPERANDS];    /* there: by the member, in some term */
    struct sbp_dist output;
    sbp_axes summed;
    bool gathers;
};

static void open_scene(struct scene *scene)
{
    const struct stage *stage = scene->stage;
    const struct form *form = scene->form;
    scene->output = output_dist(stage, form, scene->role);
    scene->summed = axes_of_role(stage, form, scene->role, form->summed);
    for (int i = 0; i < form->operand_count; i++) {
        const struct operand *o = &form->operand[i];
        const struct sbp_dist dist = operand_dist(stage, form, i, scene->role);
        const sbp_axes axes = axes_of_role(stage, form, scene->role, o->gathered);
        scene->operand[i] = deal(stage, &o->value, &dist);
        scene->used[i] = shards_empty(stage, &o->value.shape);
        gather(stage, &o->value.shape, axes, &scene->operand[i]);
        scene->gathers |= axes != 0;
    }
}

/* A member that has gathered could make more than its own: it makes what it, or a member of its
 * group that is sent sums, is to hold. */
static bool makes(const struct scene *scene, int64_t rank, int64_t out)
{
    bool its_own = !scene->gathers;
    for (int64_t o = 0; o < scene->stage->mesh.devices && !its_own; o++)
        its_own = oracle_same_group(&scene->stage->mesh, scene->summed, rank, o) &&
                  element_there(scene->stage, &scene->form->y.shape, &scene->output, o, out);
    return its_own;
}

/* A weight by itself is added to outputs that are there for other reasons, and where they are
 * partial by one member. */
static bool is_bias(const struct form *form, const struct term *term)
{
    return term->count == 1 && form->operand[term->factor[0].operand].kind == WEIGHT;
}

static void note_use(struct scene *scene, const struct term *term, int64_t rank)
{
    for (int f = 0; f < term->count; f++)
        scene->used[term->factor[f].operand].there[rank][term->factor[f].at] = true;
}

/* Nobody holds what it has no use for: a split that is declared whole. (Of what is gathered here,
 * operators gather less.) */
static void must_be_used(const struct scene *scene)
{
    const struct form *form = scene->form;
    for (int i = 0; i < form->operand_count; i++) {
        const struct operand *o = &form->operand[i];
        const bool some =
            o->sparse || axes_of_role(scene->stage, form, scene->role, o->gathered) != 0;
        for (int64_t r = 0; r < scene->stage->mesh.devices && !some; r++)
            for (int64_t e = 0; e < oracle_size(&o->value.shape); e++)
                if (scene->operand[i].there[r][e] && !scene->used[i].there[r][e])
                    fail_msg("%s: rank %lld has no use for element %lld of operand %d",
                             sbp_op(form->kind)->name, (long long)r, (long long)e, i);
    }
}

static void play_forward(struct scene *scene)
{
    const struct stage *stage = scene->stage;
    struct form *form = scene->form;
    const sbp_axes partial = axes_in(stage, &scene->output, SBP_PARTIAL);
    struct shards y = shards_empty(stage, &form->y.shape);
    zero_whole(&form->y);
    for (int64_t i = 0; i < form->term_count; i++) {
        const struct term *term = &form->term[i];
        int64_t product = 1;
        for (int f = 0; f < term->count; f++)
            product *= form->operand[term->factor[f].operand].value.value[term->factor[f].at];
        form->y.value[term->out] += product;
        for (int64_t r = 0; r < stage->mesh.devices; r++) {
            if (!makes(scene, r, term->out) || !product_of(term, scene->operand, r, -1, &product))
                continue;
            const bool bias = is_bias(form, term);
            if (bias && !element_there(stage, &form->y.shape, &scene->output, r, term->out))
                continue;
            note_use(scene, term, r);
            if (bias && place_in(stage, partial, r) != 0)
                continue;
            y.value[r][term->out] += product;
            y.there[r][term->out] = true;
        }
    }
    must_be_used(scene);
    send_home(stage, &form->y.shape, scene->summed, &scene->output, &y);
    must_be("y", stage, &form->y, &scene->output, &y);
    shards_drop(stage, &y);
}

static void play_gradient(struct scene *scene, int operand, const struct shards *dy)
{
    const struct stage *stage = scene->stage;
    const struct form *form = scene->form;
    struct operand *o = &scene->form->operand[operand];
    const struct sbp_dist dist = gradient_dist(stage, form, operand, scene->role);
    const sbp_axes axes = axes_of_role(stage, form, scene->role, o->gathered);
    struct shards dx = shards_empty(stage, &o->value.shape);
    char what[64];
    zero_whole(&o->gradient);
    for (int64_t i = 0; i < form->term_count; i++) {
        const struct term *term = &form->term[i];
        for (int f = 0; f < term->count; f++) {
            if (term->factor[f].operand != operand)
                continue;
            const int64_t x = term->factor[f].at;
            int64_t product = form->dy.value[term->out];
            for (int g = 0; g < term->count; g++)
                if (g != f)
                    product *=
                        form->operand[term->factor[g].operand].value.value[term->factor[g].at];
            o->gradient.value[x] += product;
            for (int64_t r = 0; r < stage->mesh.devices; r++)
                if (dy->there[r][term->out] && product_of(term, scene->operand, r, f, &product)) {
                    dx.value[r][x] += dy->value[r][term->out] * product;
                    dx.there[r][x] = true;
                }
        }
    }
    send_home(stage, &o->value.shape, axes, &dist, &dx);
    if (o->sparse)
        allow_zeros(stage, &o->value.shape, &dist, &dx);
    (void)snprintf(what, sizeof what, "%s: gradient of operand %d", sbp_op(form->kind)->name,
                   operand);
    must_be(what, stage, &o->gradient, &dist, &dx);
    shards_drop(stage, &dx);
}

void play(const struct stage *stage, struct form *form, const int *role)
{
    struct scene scene = {.stage = stage, .form = form, .role = role};
    open_scene(&scene);
    play_forward(&scene);
    const struct sbp_dist dual = sbp_dist_dual(&stage->mesh, &scene.output);
    struct shards dy = deal(stage, &form->dy, &dual);
    gather(stage, &form->dy.shape, scene.summed, &dy);
    for (int i = 0; i < form->operand_count; i++)
        if (form->operand[i].kind != IMAGES)
            play_gradient(&scene, i, &dy);
    shards_drop(stage, &dy);
    for (int i = 0; i < form->operand_count; i++) {
        shards_drop(stage, &scene.operand[i]);
        shards_drop(stage, &scene.used[i]);
    }
}

/* --- all pairs of roles --- */

void all_pairs(const struct stage *stage, enum sbp_op_kind kind, play_pair *pair, void *operands)
{
    const int roles = sbp_op(kind)->role_count;
    const int second = stage->mesh.axis_count > 1 ? roles : 1;
    for (int a = 0; a < roles; a++)
        for (int b = 0; b < second; b++)
            pair(stage, operands, (int[]){a, b});
}

void play_any(const struct stage *stage, void *form, const int *role)
{
    play(stage, form, role);
}

void play_pairs(make_form *make, play_pair *pair)
{
    for (int m = 0; m < MESH_COUNT; m++) {
        struct stage stage;
        struct form form = {0};
        stage_make(&stage, 2, MESHES[m]);
        make(&form, stage.mesh.devices);
        all_pairs(&stage, form.kind, pair, &form);
        drop_form(&form);
    }
}
