#!/bin/sh
# The programs that plan and read logs link neither MPI nor BLAS nor CUDA, also where they are.
# Usage: links.sh PROGRAM...
for program; do
    if readelf -d "$program" | grep NEEDED | grep -iE 'mpi|blas|cuda|cublas|nccl'; then
        echo "$program must not need these"
        exit 1
    fi
done
