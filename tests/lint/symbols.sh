#!/bin/sh
# What a static library of ours exports begins with sbp_ and a word of its file's or folder's name, so
# that a reader knows where it is; base is everybody's vocabulary and says what it does alone. Nothing
# in a library can be written to between calls: state lives in arguments.
# Usage: symbols.sh LIBRARY...
bad=0
echo "$# libraries read"
[ $# -gt 0 ] || exit 1
for library in "$@"; do
    nm -g --defined-only "$library" >/dev/null || exit 1
    # Sanitizers add names of their own, which begin with two underscores.
    found=$(nm -g --defined-only "$library" | awk 'NF == 3 && $3 !~ /^(sbp_|__)/ { print $3 }')
    if [ -n "$found" ]; then
        printf '%s exports names without sbp_:\n%s\n' "$library" "$found"
        bad=1
    fi
    # An object is called after its folders and its file: inner_cut_solve.c.o. A name may shorten a
    # word of it or lengthen it by an ending.
    found=$(nm -A -g --defined-only "$library" | awk -v library="$library" '
        $1 ~ /libsbp_base\.a/ || $3 !~ /^sbp_/ { next }
        {
            split($1, path, ":")
            object = path[2] ~ /\.o$/ ? path[2] : path[1]
            sub(/.*\//, "", object)
            sub(/\.c\.o$/, "", object)
            if (library ~ /libsbp_kernels/)
                object = "kernels_" object
            split($3, name, "_")
            count = split(object, word, "_")
            for (i = 1; i <= count; i++) {
                short = length(word[i]) < length(name[2]) ? word[i] : name[2]
                if (word[i] == name[2] || (length(short) >= 4 && index(word[i], short) == 1 && \
                    index(name[2], short) == 1))
                    next
            }
            print object ": " $3
        }')
    if [ -n "$found" ]; then
        printf '%s exports names that say nothing of their place:\n%s\n' "$library" "$found"
        bad=1
    fi
    [ -z "$SBP_SANITIZED" ] || continue
    # Flag O: an object with a name. Tables of constant pointers are in .data.rel.ro.
    found=$(objdump -t "$library" |
        awk '/ O / && $4 ~ /^\.(data|bss|tdata|tbss)/ && $4 !~ /^\.data\.rel\.ro/ { print $4, $NF }
             / O / && $4 == "*COM*" { print $4, $NF }')
    if [ -n "$found" ]; then
        printf '%s has state of its own:\n%s\n' "$library" "$found"
        bad=1
    fi
done
# A name is defined in one object of all libraries; kernels are compiled once for each type.
found=$(nm -A -g --defined-only "$@" | awk '
    NF == 3 && $3 ~ /^sbp_/ {
        object = $1
        sub(/:[0-9a-f]*$/, "", object)
        sub(/.*\//, "", object)
        sub(/^[^:]*:/, "", object)
        if (($3 in where) && where[$3] != object)
            print $3 " in " where[$3] " and in " object
        where[$3] = object
    }' | sort -u)
if [ -n "$found" ]; then
    printf 'defined more than once:\n%s\n' "$found"
    bad=1
fi
exit $bad
