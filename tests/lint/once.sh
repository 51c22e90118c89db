#!/bin/sh
# A name of ours means one thing: tags, macros and constants that begin with sbp_ or SBP_ are defined
# in one file (symbols.sh holds it of functions). Each backend completes its own handle, which no
# other file looks into.
# Usage: once.sh ROOT
. "$(dirname "$0")/sources.sh"
cd "$1" || exit 99
folders="$folders tests"
code=$(sources '*.[ch]')
count_sources "$code"
handles=' sbp_comm sbp_compute '
# shellcheck disable=SC2086 # paths are words
awk -v handles="$handles" '
function define(name) {
    if (!(name in file)) {
        file[name] = FILENAME
        names++
    } else if (file[name] != FILENAME && !index(handles, " " name " ")) {
        print name " is defined in " file[name] " and in " FILENAME
        bad = 1
    }
}
/^[ \t]*(typedef +|static +|const +)*(struct|enum|union) +sbp_[a-z0-9_]+ *\{/ {
    name = $0
    sub(/^.*(struct|enum|union) +/, "", name)
    sub(/[^a-z0-9_].*/, "", name)
    define(name)
}
/^[ \t]*(enum *\{ *)?SBP_[A-Z0-9_]+ *=[^=]/ {
    name = $0
    sub(/^[ \t]*(enum *\{ *)?/, "", name)
    sub(/[^A-Z0-9_].*/, "", name)
    define(name)
}
/^[ \t]*#[ \t]*define[ \t]+SBP_/ {
    name = $0
    sub(/^[ \t]*#[ \t]*define[ \t]+/, "", name)
    sub(/[^A-Za-z0-9_].*/, "", name)
    define(name)
}
END { print names " names"; exit bad || names == 0 }
' $code
