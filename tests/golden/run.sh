#!/bin/sh
# Golden command lines: every cases/NAME.cmd is run by sh in an empty folder, where `sbplan` is the
# program under test and $DATA the folder of input files; what it prints and its exit status are
# compared with NAME.out, NAME.err and NAME.rc. Missing files mean: nothing printed, status 0.
#
# Usage: run.sh [--rewrite] SBPLAN SOURCE_ROOT [NAME...]
#        run.sh [--rewrite] SBPLAN SOURCE_ROOT --first WORD...    cases whose name begins with one of
#                                                                these words and a hyphen, or is it
#        run.sh [--rewrite] SBPLAN SOURCE_ROOT --other WORD...    all cases but those
set -u

rewrite=false
if [ "$1" = --rewrite ]; then
    rewrite=true
    shift
fi
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
source=$(cd "$2" && pwd)
shift 2
golden=$source/tests/golden
cases=$golden/cases
export DATA="$golden/data"
export SBPLAN_CONFIGS="$source/configs"
unset LANG LC_ALL COLUMNS

scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
ln -s "$program" "$scratch/bin/sbplan"
export PATH="$scratch/bin:$PATH"

# Times of the clock and the place of the sources differ from run to run; how many evaluations a
# solver needs is no promise.
filter() {
    sed -E -e "s|$source|SOURCE|g" \
        -e 's/[.0-9]+( [kMGT])? evaluations in [-+.e0-9]+ [a-z]+/COUNT evaluations in TIME/' \
        -e 's/("(wall_s|elapsed_s|evaluations)":[[:space:]]*)[-+.e0-9]+/\1NUMBER/' "$1"
}

# One file of a case: same as expected, or rewritten; an empty file is none.
check() {
    if $rewrite; then
        if [ -s "$1" ]; then cp "$1" "$2"; else rm -f "$2"; fi
        return 0
    fi
    [ -e "$2" ] || : >"$scratch/empty"
    expected=$2
    [ -e "$2" ] || expected=$scratch/empty
    diff -u "$expected" "$1"
}

run_case() {
    rm -rf "$scratch/work"
    mkdir "$scratch/work"
    (cd "$scratch/work" && sh "$cases/$1.cmd" >"$scratch/raw.out" 2>"$scratch/raw.err" </dev/null)
    status=$?
    : >"$scratch/rc"
    [ $status -eq 0 ] || echo $status >"$scratch/rc"
    filter "$scratch/raw.out" >"$scratch/out"
    filter "$scratch/raw.err" >"$scratch/err"
    same=true
    for part in out err rc; do
        check "$scratch/$part" "$cases/$1.$part" || same=false
    done
    $same
}

# Prints the names of all cases, or of those whose first word is, or is not, one of WORD...
list_cases() { # [--first | --other WORD...]
    for file in "$cases"/*.cmd; do
        name=$(basename "$file" .cmd)
        case "${1-} " in
        '--first ') has_word "${name%%-*}" "$@" || continue ;;
        '--other ') ! has_word "${name%%-*}" "$@" || continue ;;
        esac
        echo "$name"
    done
}

has_word() { # WORD OPTION WORD...
    wanted=$1
    shift 2
    for word; do
        [ "$word" != "$wanted" ] || return 0
    done
    return 1
}

failed=0
count=0
case ${1---} in
--*)
    # shellcheck disable=SC2046 # names have no spaces
    set -- $(list_cases "$@")
    ;;
esac
for name; do
    count=$((count + 1))
    if ! run_case "$name"; then
        echo "FAILED $name: $(cat "$cases/$name.cmd")"
        failed=$((failed + 1))
    fi
done
echo "$count golden cases, $failed failed"
[ $failed -eq 0 ] && [ $count -gt 0 ]
