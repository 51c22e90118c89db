#!/bin/sh
# A kernel's access out of bounds is named by AddressSanitizer with file and line.
# Usage: beyond.sh PROGRAM SOURCE
line=$(grep -n 'PLANTED_BEYOND_BUFFER first' "$2" | cut -d : -f 1)
[ -n "$line" ] || exit 99
if said=$(ASAN_OPTIONS=detect_leaks=0 "$1" 2>&1); then
    echo "nothing was found"
    exit 1
fi
case $said in
*heap-buffer-overflow*"planted.cu:$line"*) exit 0 ;;
esac
printf '%s\n' "$said" "this lacks heap-buffer-overflow and planted.cu:$line"
exit 1
