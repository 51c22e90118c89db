#!/bin/sh
# Titles of commits: `folder: imperative what`, at most 72 characters, no full stop at the end.
# Usage: titles.sh RANGE
git log --no-merges --format='%h %s' "$1" | awk '
{
    title = substr($0, index($0, " ") + 1)
    if (length(title) > 72 || title !~ /^[a-z.][a-z0-9_.\/, -]*: [a-z]/ || title ~ /\.$/) {
        print "not `folder: imperative what` in 72 characters: " $0
        bad = 1
    }
}
END { exit bad }'
