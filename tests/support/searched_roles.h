/* Roles that a search tries of its own accord: the first so many, spare ones stand last. */
#ifndef SBP_TESTS_SEARCHED_ROLES_H
#define SBP_TESTS_SEARCHED_ROLES_H

#include "costmodel/model/op.h"

static inline int searched_roles(const struct sbp_op_entry *entry)
{
    int count = 0;
    while (count < entry->role_count && !entry->role[count].spare)
        count++;
    return count;
}

#endif
