#include "planner/request.h"

#include <stddef.h>

static const char *const space_names[] = {
#define SBP_SPACE_TEXT(name, text, summary) text,
    SBP_SPACE_MAP(SBP_SPACE_TEXT)
#undef SBP_SPACE_TEXT
        NULL,
};

static const char *const space_summaries[] = {
#define SBP_SPACE_SUMMARY(name, text, summary) summary,
    SBP_SPACE_MAP(SBP_SPACE_SUMMARY)
#undef SBP_SPACE_SUMMARY
};

const char *sbp_space_name(enum sbp_space_kind kind)
{
    return space_names[kind];
}

const char *sbp_space_summary(enum sbp_space_kind kind)
{
    return space_summaries[kind];
}

const char *const *sbp_space_names(void)
{
    return space_names;
}
