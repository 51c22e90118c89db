#!/bin/sh
# The folders and what they may include of ours: a program that plans must not depend on running.
# Usage: includes.sh ROOT
. "$(dirname "$0")/sources.sh"
cd "$1" || exit 99
bad=0
code=$(sources '*.[ch]')
count_sources "$code"

# folder, then the folders it may include besides itself
while read -r folder allowed; do
    [ -d "$folder" ] || continue
    legal="^($(printf '%s' "$folder $allowed" | tr ' ' '|'))/"
    found=$(grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$folder" |
        awk -F'"' -v legal="$legal" '$2 !~ legal { print $1 $2 }')
    if [ -n "$found" ]; then
        printf '%s/ may include %s, but:\n%s\n' "$folder" "$folder $allowed" "$found"
        bad=1
    fi
done <<EOF
base
costmodel base
planner base costmodel
kernels base
executor base costmodel planner kernels
calib base costmodel kernels executor
EOF

# What runs on a laptop includes neither MPI nor BLAS nor CUDA.
found=$(grep -rnE --include='*.[ch]' 'include *<(mpi|cblas|cuda|cublas|nccl)[^>]*>' base costmodel planner)
if [ -n "$found" ]; then
    printf 'the planner needs no such header:\n%s\n' "$found"
    bad=1
fi
exit $bad
