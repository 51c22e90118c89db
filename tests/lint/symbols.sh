#!/bin/sh
# What a static library of ours exports begins with sbp_, and nothing in it can be written to
# between calls: state lives in arguments.
# Usage: symbols.sh LIBRARY...
bad=0
for library in "$@"; do
    # Sanitizers add names of their own, which begin with two underscores.
    found=$(nm -g --defined-only "$library" | awk 'NF == 3 && $3 !~ /^(sbp_|__)/ { print $3 }')
    if [ -n "$found" ]; then
        printf '%s exports names without sbp_:\n%s\n' "$library" "$found"
        bad=1
    fi
    [ -z "$SBP_SANITIZED" ] || continue
    # Flag O: an object with a name. Tables of constant pointers are in .data.rel.ro.
    found=$(objdump -t "$library" |
        awk '/ O / && $4 ~ /^\.(data|bss|tdata|tbss)/ && $4 !~ /^\.data\.rel\.ro/ { print $4, $NF }
             / O / && $4 == "*COM*" { print $4, $NF }')
    if [ -n "$found" ]; then
        printf '%s has state of its own:\n%s\n' "$library" "$found"
        bad=1
    fi
done
exit $bad
