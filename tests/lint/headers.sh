#!/bin/sh
# Every header compiles alone, twice over.
# Usage: headers.sh ROOT COMPILER...
. "$(dirname "$0")/sources.sh"
root=$1
shift
headers=$(cd "$root" && sources '*.h') || exit 99
count_sources "$headers"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
bad=0
for header in $headers; do
    case $header in
    kernels/*) [ -z "$SBP_NO_BLAS" ] || continue ;;
    esac
    printf '#include "%s"\n#include "%s"\ntypedef int one_declaration;\n' "$header" "$header" \
        >"$work/alone.c"
    # shellcheck disable=SC2086 # flags are words
    if ! "$@" -std=gnu17 -D_GNU_SOURCE -DSBP_REAL_F64=0 -Wall -Wextra -Wconversion -Wshadow \
        -Wno-sign-conversion -Werror $SBP_INCLUDE_FLAGS -I"$root" -fsyntax-only "$work/alone.c"; then
        echo "$header does not compile alone"
        bad=1
    fi
done
exit $bad
