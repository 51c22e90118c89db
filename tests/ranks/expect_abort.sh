#!/bin/sh
# Runs a command in which one rank fails: it must end, not with 0, and give the reason.
output=$("$@" 2>&1)
code=$?
if [ "$code" -eq 0 ] || ! printf '%s\n' "$output" | grep -q 'rank [0-9]*: planted failure'; then
    printf 'exit %s, expected another one than 0 and the planted reason in:\n%s\n' "$code" "$output"
    exit 1
fi
