#!/bin/sh
# Lengths of functions: over 100 lines fails, over 60 is shown. Braces of functions stand in the
# first column, as the format has them.
# Usage: functions.sh ROOT
. "$(dirname "$0")/sources.sh"
cd "$1" || exit 99
code=$(sources '*.[ch]' '*.cu' '*.cuh' '*.cpp' '*.hpp')
count_sources "$code"
# shellcheck disable=SC2086 # paths are words
awk '
FNR == 1 { head = ""; began = 0 }
/^[A-Za-z].*\(/ { head = $0 }
/^\{$/ { began = FNR }
/^\}$/ && began {
    lines = FNR - began - 1
    began = 0
    count++
    if (lines > 60)
        printf "%s:%d: %d lines%s: %s\n", FILENAME, FNR - lines, lines, (lines > 100 ? ", too long" : ""), head
    if (lines > 100)
        bad = 1
}
END { printf "%d functions\n", count; exit bad }
' $code
