#include "costmodel/cluster/collective_kind.h"

#define TEXT(name, text) text,

const char *sbp_collective_name(enum sbp_collective kind)
{
    static const char *const names[] = {SBP_COLLECTIVE_MAP(TEXT)};
    return names[kind];
}

enum sbp_status sbp_collectives_given(const struct sbp_json *at, unsigned *kinds)
{
    const char *known[SBP_COLLECTIVES + 1] = {0};
    int count = 0;
    *kinds = 0;
    for (int kind = 0; kind < SBP_COLLECTIVES; kind++) {
        const char *name = sbp_collective_name((enum sbp_collective)kind);
        if (kind == SBP_LOCAL)
            continue;
        known[count++] = name;
        *kinds |= sbp_json_has(at, name) ? 1u << kind : 0;
    }
    return sbp_json_keys(at, known);
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
