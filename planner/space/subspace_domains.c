/* A space of which only a part is looked for (planner/space/subspace.h). */
#include <string.h>

#include "planner/space/subspace.h"
#include "planner/space/domain_build.h"

static struct sbp_split split_of(const struct sbp_space *space, int variable, int tuple)
{
    struct sbp_split split = {.op = space->variable[variable].op};
    for (int role = 0; role < SBP_MAX_ROLES; role++)
        for (int level = 0; level < SBP_MAX_LEVELS; level++)
            split.factor[role][level] = 1;
    for (int f = 0; f < space->mesh->family_count; f++) {
        const struct sbp_family *family = &space->mesh->family[f];
        const uint8_t *count = sbp_tuple_count(space, variable, tuple, f);
        for (int role = 0; role < space->variable[variable].role_count; role++)
            for (int k = 0; k < count[role]; k++)
                split.factor[role][family->level] *= family->prime;
    }
    return split;
}

/* The tuples of the variable's first operator that are in the part; others are tied to it. */
static void keep_tuples(struct sbp_space *space, int variable)
{
    struct sbp_space_variable *v = &space->variable[variable];
    const size_t row = (size_t)space->mesh->family_count * SBP_MAX_ROLES;
    int left = 0;
    for (int tuple = 0; tuple < v->tuple_count; tuple++) {
        const struct sbp_split split = split_of(space, variable, tuple);
        if (!sbp_subspace_has(space->request->part, &split))
            continue;
        memmove(v->count + (size_t)left * row, v->count + (size_t)tuple * row, row);
        v->tag[left++] = v->tag[tuple];
    }
    v->tuple_count = left;
}

enum sbp_status sbp_space_keep_part(struct sbp_space_maker *maker)
{
    struct sbp_space *space = maker->space;
    for (int v = 0; v < space->variable_count && space->request->part != NULL; v++) {
        if (space->variable[v].op < 0)
            continue;
        keep_tuples(space, v);
        if (space->variable[v].tuple_count == 0)
            return sbp_fail(maker->diag, SBP_E_INPUT, "%s: is split in no other way",
                            space->graph->op[space->variable[v].op].name);
    }
    return SBP_OK;
}
