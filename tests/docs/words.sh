#!/bin/sh
# What the program says of itself to shells and to man: scripts complete what they should, in bash
# and in fish where it is; each of them is accepted by its shell; the manual page has every option.
#
# Usage: words.sh SBPLAN SOURCE_ROOT
set -u
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
export SBPLAN_CONFIGS="$2/configs"
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/work"
ln -s "$program" "$scratch/bin/sbplan"
export PATH="$scratch/bin:$PATH"
cd "$scratch/work" || exit 2
: >plan.json
failed=0

# equals WHAT FOUND EXPECTED
equals() {
    [ "$2" = "$3" ] && return 0
    echo "FAILED $1: found \"$2\", expected \"$3\""
    failed=$((failed + 1))
}

for shell in bash zsh fish; do
    sbplan completion $shell >"$scratch/$shell" || exit 1
    command -v $shell >/dev/null || continue
    equals "syntax of $shell" "$($shell -n "$scratch/$shell" 2>&1)" ''
done

# Words of a line, of which the last one is completed.
cat >"$scratch/complete" <<'END'
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_sbplan
echo "${COMPREPLY[*]}"
END
completes() {
    expected=$1
    shift
    equals "bash, $*" "$(bash "$scratch/complete" "$scratch/bash" "$@")" "$expected"
}
completes search sbplan se
completes 'gpt2-large gpt2-medium gpt2-small gpt2-xl' sbplan search gpt2-
completes plan.json sbplan explain pl
completes plan.json sbplan search --strategy p
completes 'megatron megatron-node megatron-3d' sbplan search --space meg
completes 'zero-1 zero-2 zero-3' sbplan search --space = zero-
completes 'fsdp fsdp2' sbplan price gpt2-small laptop-4 --runtime fs
completes --objective sbplan search --ob
completes '' sbplan solve --ob
completes '' sbplan search --seed ''
completes 'models clusters devices runtimes' sbplan list ''
completes explain sbplan help ex
if command -v fish >/dev/null; then
    equals fish "$(fish -c "source $scratch/fish; complete -C 'sbplan search --space summ'" |
        cut -f 1)" summa
fi

sbplan manual >"$scratch/page"
for name in $(sbplan --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    grep -q "^\.B sbplan $name" "$scratch/page" || equals "manual" 'nothing' "$name"
    for option in $(sbplan "$name" --help | sed -n 's/^  \(--*[a-z-]*\).*/\1/p'); do
        escaped=$(printf '%s' "$option" | sed 's/-/\\\\-/g')
        grep -q "^\.BI \"$escaped[ \"]" "$scratch/page" || equals "manual of $name" 'nothing' "$option"
    done
done
if command -v groff >/dev/null; then
    equals 'the manual for groff' "$(groff -man -Tascii -ww "$scratch/page" 2>&1 >/dev/null)" ''
fi
[ $failed -eq 0 ]
