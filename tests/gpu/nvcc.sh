#!/bin/sh
# Every kernel source compiles for sm_80, sm_90, sm_100 and to PTX without a warning, and its kernels
# take the registers and spills of a table; another nvcc than the table's may differ in numbers, which
# are shown then.
# Usage: nvcc.sh [--rewrite] NVCC ROOT TABLE
rewrites=
[ "$1" != --rewrite ] || { rewrites=yes && shift; }
nvcc=$1 root=$2 table=$3
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$root" || exit 99

# As kernels/cuda/meson.build does: attention takes minutes, and is compiled in parts.
parts=
"$nvcc" --help | grep -q -e --split-compile && parts='--split-compile 0'

compile() { # SOURCE ARCHITECTURE: FILE.rc, FILE.log
    at=$work/$(basename "$1" .cu)-$2
    case $1 in *attention.cu) split=$parts ;; *) split= ;; esac
    # shellcheck disable=SC2086 # words
    "$nvcc" $split -std=c++17 -Werror all-warnings -Xcompiler -Wall,-Wextra -Xptxas -v -I. -arch="$2" -cubin \
        -o "$at.cubin" "$1" >"$at.log" 2>&1 || echo failed >"$at.failed"
}

to_ptx() { # SOURCE
    at=$work/$(basename "$1" .cu)-ptx
    "$nvcc" -std=c++17 -Werror all-warnings -I. -arch=compute_80 -ptx -o "$at.ptx" "$1" >"$at.log" 2>&1 ||
        echo failed >"$at.failed"
}

# "SOURCE ARCHITECTURE KERNEL REGISTERS STACK SPILL_STORES SPILL_LOADS" out of what ptxas says.
rows() { # SOURCE ARCHITECTURE
    c++filt <"$work/$1-$2.log" | awk -v source="$1" -v arch="$2" '
        /Compiling entry function/ { name = ""; next }
        /Function properties for/ { sub(/^.*Function properties for /, ""); name = $0; next }
        /bytes spill stores/ { stack = $1; stores = $5; loads = $9; next }
        /Used [0-9]+ registers/ {
            sub(/^void /, "", name)
            sub(/\(.*$/, "", name)
            gsub(/ /, "", name)
            match($0, /Used [0-9]+/)
            print source, arch, name, substr($0, RSTART + 5, RLENGTH - 5), stack, stores, loads
        }'
}

version=$("$nvcc" --version | sed -n 's/^.*release \([0-9.]*\),.*/\1/p')
[ -n "$version" ] || { echo "$nvcc tells no version" && exit 99; }
sources=$(ls kernels/cuda/*.cu) || exit 99
for source in $sources; do
    for arch in sm_80 sm_90 sm_100; do
        compile "$source" "$arch" &
        compile_one=$!
        [ "$arch" != sm_80 ] || to_ptx "$source"
        wait "$compile_one"
    done
done
for failed in "$work"/*.failed; do
    [ -e "$failed" ] || continue
    echo "$(basename "$failed" .failed):"
    grep -E 'error|warning' "${failed%.failed}.log" | head -n 20
    exit 1
done
{
    echo "# nvcc $version: source, architecture, kernel, registers, bytes of stack, of spill stores and of loads."
    echo "# Made by tests/gpu/nvcc.sh --rewrite; no kernel of it was run on a GPU."
    for source in $sources; do
        for arch in sm_80 sm_90 sm_100; do
            rows "$(basename "$source" .cu)" "$arch"
        done
    done | LC_ALL=C sort
} >"$work/table"
kernels=$(grep -vc '^#' "$work/table")
echo "$kernels kernels compiled"
[ "$kernels" -gt 0 ] || exit 99
[ -z "$rewrites" ] || { cp "$work/table" "$table" && exit 0 || exit 1; }
# Kernels of attention come out a little different from time to time, since nvcc compiles them in parts.
is_near() {
    awk '/^#/ { next }
        FNR == NR { seen[$1, $2, $3] = $4 " " $6 + $7 " " $5; listed++; next }
        !(($1, $2, $3) in seen) { exit far = 1 }
        {
            split(seen[$1, $2, $3], was)
            compiled++
            registers = $1 ~ /attention/ ? 4 : 0
            spills = $1 ~ /attention/ && was[2] > 0 ? 32 : 0
            stack = spills / 2
            if (($4 - was[1]) ^ 2 > registers ^ 2 || ($5 - was[3]) ^ 2 > stack ^ 2 || $6 + $7 > was[2] + spills)
                exit far = 1
        }
        END { exit far || listed != compiled }' "$table" "$work/table"
}
diff "$table" "$work/table" && exit 0
is_near && echo "the table is near: kernels of attention alone differ, by at most 4 registers and 32 bytes of spills" && exit 0
[ "$(sed -n 's/^# nvcc \([0-9.]*\):.*/\1/p' "$table")" != "$version" ] && exit 0
echo "the table differs; if that is right: tests/gpu/nvcc.sh --rewrite NVCC . $table"
exit 1
