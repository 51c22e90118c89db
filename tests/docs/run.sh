#!/bin/sh
# The examples of the pages for users, run and compared with what the pages show.
#
#   ```console   lines that begin with "$ " are run by sh, one after the other, in a folder that is
#                empty when the page begins; what a command prints is what follows up to the next
#                "$ " or the end of the block. A line "..." stands for lines that are left out, "..."
#                inside a line for a part of it. A "\" at the end of a command goes on below.
#   ```json      after <!-- file: NAME --> is written to NAME in that folder.
#   ```sh        is not run: it needs a cluster, MPI, minutes. Each --option that it gives to an
#                sbplan command has to stand in that command's --help.
#
# The same holds for options in `inline code`. Links into the repository have to lead somewhere.
# Pages for developers stand with those for users.
#
# Usage: run.sh SBPLAN SOURCE_ROOT [PAGE...]
set -u
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
source=$(cd "$2" && pwd)
shift 2
export SBPLAN_CONFIGS="$source/configs"
unset LANG LC_ALL

scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
ln -s "$program" "$scratch/bin/sbplan"
export PATH="$scratch/bin:$PATH"
failed=0

fail() {
    echo "FAILED $*"
    failed=$((failed + 1))
}

# Parts a page: NUMBER.cmd and NUMBER.out, NUMBER.file (its name in NUMBER.name), spans, links.
part_page() {
    rm -rf "$scratch/parts"
    mkdir "$scratch/parts"
    : >"$scratch/parts/spans"
    : >"$scratch/parts/links"
    awk -v parts="$scratch/parts" '
        function item(kind) { return sprintf("%s/%04d.%s", parts, count, kind) }
        /^<!-- file: / { name = $3; next }
        /^```/ {
            if (inside) { inside = more = 0; fence = name = ""; next }
            inside = 1
            fence = substr($0, 4)
            if (name != "") { count++; print name >item("name"); printf "" >item("file") }
            else if (fence == "console") more = 0
            next
        }
        inside && name != "" { print >item("file"); next }
        inside && fence == "console" {
            if (more) print >item("cmd")
            else if (/^\$ /) { count++; print substr($0, 3) >item("cmd"); printf "" >item("out") }
            else { print >item("out"); next }
            more = /\\$/
            next
        }
        inside && fence == "sh" {
            line = line $0
            if (sub(/\\$/, " ", line)) next
            print line >(parts "/spans")
            line = ""
            next
        }
        inside { next }
        { text = text $0 " " }
        END {
            count = split(text, span, "`")
            for (i = 2; i <= count; i += 2) print span[i] >(parts "/spans")
            while (match(text, /\]\([^)]*\)/)) {
                print substr(text, RSTART + 2, RLENGTH - 3) >(parts "/links")
                text = substr(text, RSTART + RLENGTH)
            }
        }' "$1"
}

# Times of the clock and counts of evaluations differ from run to run.
filter() {
    sed -E 's/[.0-9]+( [kMGT])? evaluations in [-+.e0-9]+ [a-z]+/COUNT evaluations in TIME/' "$1"
}

# matches EXPECTED ACTUAL: whether the lines agree, "..." aside.
matches() {
    awk '
        # Parts between "..." follow each other; the first begins the line, the last ends it.
        function alike(pattern, text,    part, parts, i, at) {
            parts = split(pattern, part, /\.\.\./)
            if (parts <= 1) return pattern == text
            if (substr(text, 1, length(part[1])) != part[1]) return 0
            text = substr(text, length(part[1]) + 1)
            for (i = 2; i < parts; i++) {
                if (part[i] == "") continue
                if (!(at = index(text, part[i]))) return 0
                text = substr(text, at + length(part[i]))
            }
            at = length(text) - length(part[parts])
            return at >= 0 && substr(text, at + 1) == part[parts]
        }
        FILENAME == ARGV[1] { expected[++wanted] = $0; next }
        { actual[++got] = $0 }
        END {
            # reach[j]: whether the lines of the page so far agree with the first j that were printed.
            reach[0] = 1
            for (i = 1; i <= wanted; i++) {
                gap = expected[i] == "..."
                for (j = got; j >= 0; j--)
                    if (!gap) reach[j] = j > 0 && reach[j - 1] && alike(expected[i], actual[j])
                for (j = 1; gap && j <= got; j++) reach[j] = reach[j] || reach[j - 1]
            }
            exit !reach[got]
        }' "$1" "$2"
}

examples=0
run_example() { # page, command file
    expected=${2%.cmd}.out
    examples=$((examples + 1))
    (cd "$scratch/work" && sh "$2" >"$scratch/raw" 2>&1 </dev/null)
    status=$?
    filter "$scratch/raw" >"$scratch/actual"
    filter "$expected" >"$scratch/expected"
    [ $status -le 2 ] || fail "$1: exit status $status of: $(cat "$2")"
    matches "$scratch/expected" "$scratch/actual" && return
    fail "$1: $(cat "$2")"
    diff -u "$scratch/expected" "$scratch/actual"
}

help_of() { # command
    [ -e "$scratch/help.$1" ] || sbplan "$1" --help >"$scratch/help.$1" 2>/dev/null
    cat "$scratch/help.$1"
}

# Options of "sbplan COMMAND --option ..." are that command's; of "--option ..." some command's.
options=0
check_span() { # page, text
    case $2 in
    *'sbplan '[a-z]*)
        rest=${2#*sbplan }
        commands=${rest%% *}
        ;;
    --*)
        rest=$2
        commands='search compare price explain export solve import list calibrate run bench'
        ;;
    *) return ;;
    esac
    for option in $(printf '%s\n' "$rest" | grep -oE '(^| )--?[a-z][a-z-]*'); do
        options=$((options + 1))
        case $option in --help | --version) continue ;; esac
        for command in $commands; do help_of "$command"; done |
            grep -qE -- "(^|[^a-z-])$option([^a-z-]|\$)" || fail "$1: no $option in: $2"
    done
}

links=0
check_link() { # page, target
    case $2 in http*:* | "#"*) return ;; esac
    links=$((links + 1))
    [ -e "$(dirname "$source/$1")/${2%%#*}" ] || fail "$1: a link leads nowhere: $2"
}

run_page() {
    part_page "$source/$1"
    rm -rf "$scratch/work"
    mkdir "$scratch/work"
    for part in "$scratch/parts"/*; do
        case $part in
        *.file) cp "$part" "$scratch/work/$(cat "${part%.file}.name")" ;;
        *.cmd) run_example "$1" "$part" ;;
        esac
    done
    while read -r span; do check_span "$1" "$span"; done <"$scratch/parts/spans"
    while read -r link; do check_link "$1" "$link"; done <"$scratch/parts/links"
}

# shellcheck disable=SC2046 # names of pages are words
[ $# -gt 0 ] || set -- $(cd "$source" && ls ./*.md ./*/README.md docs/*.md | sed 's,^\./,,' | sort -u)
for page; do run_page "$page"; done
echo "$# pages: $examples examples run, $options options and $links links checked, $failed failed"
[ $failed -eq 0 ] && [ $examples -gt 0 ]
