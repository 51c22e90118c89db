#!/bin/sh
# The programs that plan and read logs link neither MPI nor BLAS nor CUDA, also where they are; those
# that calibrate and run load what is CUDA's when it is asked for.
# Usage: links.sh PATTERN PROGRAM...
pattern=$1
shift
for program; do
    if readelf -d "$program" | grep NEEDED | grep -iE "$pattern"; then
        echo "$program must not need these"
        exit 1
    fi
done
