#!/bin/sh
# A name of ours means one thing: tags and macros that begin with sbp_ or SBP_ are defined in one
# file. Each backend completes its own handle, which no other file looks into.
# Usage: once.sh ROOT
. "$(dirname "$0")/sources.sh"
cd "$1" || exit 99
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
/^(struct|enum|union) sbp_[a-z0-9_]+ *\{/ { define($2) }
/^[ \t]*#[ \t]*define[ \t]+SBP_/ {
    name = $0
    sub(/^[ \t]*#[ \t]*define[ \t]+/, "", name)
    sub(/[^A-Za-z0-9_].*/, "", name)
    define(name)
}
END { print names " names"; exit bad || names == 0 }
' $code
