#!/bin/sh
# The programs that plan and read logs link neither MPI nor BLAS nor CUDA, also where they are; those
# that calibrate and run load what is CUDA's when it is asked for.
# Usage: links.sh PATTERN PROGRAM...
pattern=$1
shift
bad=0
echo "$# programs read"
[ $# -gt 0 ] || exit 1
for program; do
    needed=$(readelf -d "$program") || exit 1
    if printf '%s\n' "$needed" | grep NEEDED | grep -iE "$pattern"; then
        echo "$program must not need these"
        bad=1
    fi
done
exit $bad
