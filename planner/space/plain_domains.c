/* Plain tuples: the few ways to give a large mesh's axes to roles that people write by hand. Roles
 * take axes one after the other, each as many as divide its sizes, the outermost first, over the
 * whole mesh or within one level; what nothing divides repeats work. Their number grows with roles
 * and levels, not with axes. */
#include <string.h>

#include "planner/limits.h"
#include "planner/space/domain_build.h"

/* A variable's roles while they take axes. */
struct filling {
    struct sbp_space_maker *maker;
    int variable;
    unsigned resorts;       /* roles, bits */
    int left[SBP_MAX_AXES]; /* (family) axes that no role has taken */
    int *capacity;          /* of the variable's tuples */
};

static uint8_t *trial_row(const struct filling *filling)
{
    const struct sbp_space *space = filling->maker->space;
    struct sbp_space_variable *v = &space->variable[filling->variable];
    return v->count + (size_t)v->tuple_count * (size_t)space->mesh->family_count * SBP_MAX_ROLES;
}

/* Axes of a family that a role may take: where the request says how many split the batch, so many.
 */
static int most_axes(const struct filling *filling, int role, int family)
{
    const struct sbp_space_maker *maker = filling->maker;
    const int *batch = maker->space->request->batch_axes;
    return batch != NULL && maker->legality.batch >> role & 1 ? batch[family] : SBP_MAX_AXES;
}

/* Lets a role take axes of one level (-1: of all) as long as they divide. Returns how many. */
static int take(struct filling *filling, int role, int level)
{
    const struct sbp_space *space = filling->maker->space;
    const struct sbp_mesh *mesh = space->mesh;
    uint8_t *const count = trial_row(filling);
    int taken = 0;
    for (int f = 0; f < mesh->family_count; f++) {
        if (level >= 0 && mesh->family[f].level != level)
            continue;
        uint8_t *const own = &count[f * SBP_MAX_ROLES + role];
        while (filling->left[f] > 0 && *own < most_axes(filling, role, f)) {
            ++*own;
            if (!sbp_space_divides(space, filling->variable, &filling->maker->legality,
                                   1u << role)) {
                --*own;
                break;
            }
            filling->left[f]--;
            taken++;
        }
    }
    return taken;
}

static void give_back(struct filling *filling, int role)
{
    uint8_t *const count = trial_row(filling);
    for (int f = 0; f < filling->maker->space->mesh->family_count; f++) {
        filling->left[f] += count[f * SBP_MAX_ROLES + role];
        count[f * SBP_MAX_ROLES + role] = 0;
    }
}

static bool is_full(const struct filling *filling)
{
    int left = 0;
    for (int f = 0; f < filling->maker->space->mesh->family_count; f++)
        left += filling->left[f];
    return left == 0;
}

/* Whether the tuple under trial is accepted already. */
static bool is_known(const struct filling *filling)
{
    const struct sbp_space *space = filling->maker->space;
    const struct sbp_space_variable *v = &space->variable[filling->variable];
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    const uint8_t *count = trial_row(filling);
    for (int tuple = 0; tuple < v->tuple_count; tuple++)
        if (memcmp(v->count + (size_t)tuple * row, count, row) == 0)
            return true;
    return false;
}

static enum sbp_status accept(const struct filling *filling)
{
    struct sbp_space_maker *const maker = filling->maker;
    const struct sbp_space *space = maker->space;
    bool legal = sbp_space_is_legal(space, filling->variable, &maker->legality);
    for (int f = 0; f < space->mesh->family_count; f++)
        legal &= sbp_space_obeys_batch(space, filling->variable, &maker->legality, f);
    if (!legal || is_known(filling) ||
        space->variable[filling->variable].tuple_count >= SBP_SPACE_MOST_PLAIN_TUPLES)
        return SBP_OK;
    return sbp_space_accept_tuple(maker, filling->variable, filling->capacity);
}

static enum sbp_status fill(struct filling *filling, unsigned roles, int depth);

/* Lets a role take axes of a level, or of all, and goes on with the other roles. */
static enum sbp_status fill_by(struct filling *filling, unsigned roles, int role, int level,
                               int depth)
{
    enum sbp_status status = SBP_OK;
    if (take(filling, role, level) > 0)
        status = fill(filling, roles & ~(1u << role), depth + 1);
    if (status == SBP_OK)
        give_back(filling, role);
    return status;
}

/* Gives what is left to last resorts, each by itself. */
static enum sbp_status resort(struct filling *filling)
{
    for (int role = 0; filling->resorts >> role != 0; role++)
        if (filling->resorts >> role & 1) {
            if (take(filling, role, -1) > 0 && is_full(filling))
                SBP_TRY(accept(filling));
            give_back(filling, role);
        }
    return SBP_OK;
}

/* Fills what is left of the mesh by roles that have taken none. The first of them may keep to a
 * level. */
static enum sbp_status fill(struct filling *filling, unsigned roles, int depth)
{
    const int levels = filling->maker->space->mesh->level_count;
    if (is_full(filling))
        return accept(filling);
    if (sbp_space_interrupted(filling->maker->space))
        return SBP_STOPPED;
    for (int role = 0; roles >> role != 0 && depth < SBP_SPACE_PLAIN_ROLES; role++) {
        if (!(roles >> role & 1))
            continue;
        SBP_TRY(fill_by(filling, roles, role, -1, depth));
        for (int level = 0; depth < SBP_SPACE_LEVEL_ROLES && levels > 1 && level < levels; level++)
            SBP_TRY(fill_by(filling, roles, role, level, depth));
    }
    return resort(filling);
}

enum sbp_status sbp_space_fill_domain(struct sbp_space_maker *maker, int variable, unsigned allowed,
                                      unsigned resorts, int *capacity)
{
    const struct sbp_mesh *mesh = maker->space->mesh;
    struct filling filling = {
        .maker = maker, .variable = variable, .resorts = resorts, .capacity = capacity};
    for (int f = 0; f < mesh->family_count; f++)
        filling.left[f] = mesh->family[f].count;
    maker->space->variable[variable].allowed = allowed | resorts;
    return fill(&filling, allowed & ~resorts, 0);
}
