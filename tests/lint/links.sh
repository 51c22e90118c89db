#!/bin/sh
# The program that plans links neither MPI nor BLAS nor CUDA, also where they are.
# Usage: links.sh SBPLAN
if readelf -d "$1" | grep NEEDED | grep -iE 'mpi|blas|cuda|cublas|nccl'; then
    echo "$1 must not need these"
    exit 1
fi
