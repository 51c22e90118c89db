#include "planner/plan/request.h"

#include <stddef.h>

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
