#include "planner/plan/request.h"

#include <stddef.h>
#include <string.h>

#include "costmodel/program/parallel.h"

static const char *const space_names[] = {
#define SBP_SPACE_TEXT(name, text) text,
    SBP_SPACE_MAP(SBP_SPACE_TEXT)
#undef SBP_SPACE_TEXT
        NULL,
};

const char *sbp_request_space_name(enum sbp_space_kind kind)
{
    return space_names[kind];
}

const char *const *sbp_request_space_names(void)
{
    return space_names;
}

unsigned sbp_request_bit(const char *key)
{
    const char *const *keys = sbp_parallel_keys();
    for (int i = 0; keys[i] != NULL; i++)
        if (strcmp(keys[i], key) == 0)
            return 1u << i;
    return 0;
}

bool sbp_request_gives(const struct sbp_request *request, const char *key)
{
    return (request->given & sbp_request_bit(key)) != 0;
}
