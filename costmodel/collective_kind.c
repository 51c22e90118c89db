#include "costmodel/collective_kind.h"

static const char *const names[] = {
#define SBP_COLLECTIVE_TEXT(name, text) [SBP_##name] = text,
    SBP_COLLECTIVE_MAP(SBP_COLLECTIVE_TEXT)
#undef SBP_COLLECTIVE_TEXT
};

const char *sbp_collective_name(enum sbp_collective kind)
{
    return names[kind];
}

double sbp_collective_steps(enum sbp_collective kind, double members)
{
    switch (kind) {
    case SBP_ALL_REDUCE:
        return 2 * (members - 1);
    case SBP_SEND_RECV:
        return 1;
    case SBP_LOCAL:
        return 0;
    default:
        return members - 1;
    }
}

double sbp_collective_share(enum sbp_collective kind, double members)
{
    if (kind == SBP_SEND_RECV || kind == SBP_BROADCAST_COLL)
        return 1;
    return sbp_collective_steps(kind, members) / members;
}
