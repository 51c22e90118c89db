#!/bin/sh
# How what plans and what trains is compiled: floating-point operations one by one, as they are
# written, so that the same seed gives the same plan and the same initial weights whatever the
# compiler, its level of optimisation and the processor, and a kernel's vectors of any width agree.
# Usage: floats.sh BUILD_ROOT ROOT
. "$(dirname "$0")/sources.sh"
cd "$1" || exit 99
[ -f compile_commands.json ] || exit 77
bad=0

# Commands of base, costmodel, kernels and planner, one a line.
commands=$(grep '"command":' compile_commands.json |
    grep -E ' -c ([^ ]*/)?(base|costmodel|kernels|planner)/[^ ]*\.c"?,?$')
count_sources "$commands"
found=$(printf '%s\n' "$commands" | grep -v -e '-ffp-contract=off')
if [ -n "$found" ]; then
    printf 'may contract products and sums:\n%s\n' "$found"
    bad=1
fi
found=$(printf '%s\n' "$commands" |
    grep -E -e '-(Ofast|ffast-math|funsafe-math|fassociative-math|freciprocal-math|ffinite-math)')
if [ -n "$found" ]; then
    printf 'may reorder sums:\n%s\n' "$found"
    bad=1
fi

# Functions of a mathematics library that is not the same everywhere; base/math/portable.h has its own.
cd "$2" || exit 99
folders='costmodel planner'
code=$(sources '*.[ch]')
count_sources "$code"
found=$(for file in $code; do
    sed -e 's,/\*.*\*/,,' -e '/\/\*/,/\*\//d' "$file" |
        grep -nE '(^|[^A-Za-z0-9_>.])(log|log2|log10|log1p|exp|exp2|expm1|pow|cbrt|sin|cos|tan)f?[[:space:]]*\(' |
        sed "s,^,$file:,"
done | grep -v 'digits += log10') # the size of a space is told, and decides nothing
if [ -n "$found" ]; then
    printf 'base/math/portable.h has these for plans:\n%s\n' "$found"
    bad=1
fi
exit $bad
