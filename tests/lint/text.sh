#!/bin/sh
# What no file may hold: paths of somebody's machine, unfinished business, an exit below main.
# Usage: text.sh ROOT
. "$(dirname "$0")/sources.sh"
cd "$1" || exit 99
bad=0
report() {
    [ -z "$2" ] && return
    printf '%s:\n%s\n' "$1" "$2"
    bad=1
}

# shellcheck disable=SC2086 # folders are words
texts=$(find $folders configs docs results tests subprojects/packagefiles -name '*.[ch]' -o \
    -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.hpp' -o -name 'meson.build' -o -name '*.sh' -o -name '*.json' -o -name '*.md')
count_sources "$texts"
top='dev README.md ARCHITECTURE.md DESIGN.md CONTRIBUTING.md CHANGELOG.md meson.build meson_options.txt .ci/run'

# Brackets keep the patterns from finding themselves.
# shellcheck disable=SC2086
report 'paths of a machine' "$(grep -nE '(^|[^A-Za-z0-9_.])/(hom[e]|wor[k]|roo[t]|usr/loca[l]|op[t]|Use[r]s)/' $texts $top)"
# shellcheck disable=SC2086
report 'unfinished' "$(grep -nwE 'TOD[O]|FIXM[E]|XX[X]|HAC[K]' $texts $top)"
# shellcheck disable=SC2086
report 'blanks at the end of a line' "$(grep -nE '[[:blank:]]+$' $texts $top | grep -v '\.json:')"

code=$(sources '*.[ch]')
count_sources "$code"
for file in $code; do
    grep -qE '^(int|static int) main\(' "$file" ||
        report 'exit below main' "$(sed -e 's,/\*.*\*/,,' -e '/^ *\*/d' -e '/^ *\/\*/d' "$file" |
            grep -nE '(^|[^A-Za-z0-9_])(_?exit|_Exit|quick_exit) *\(' | sed "s,^,$file:,")"
done
exit $bad
