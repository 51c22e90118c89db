# Lists the sources that lints read; sourced by them. Paths are relative to the root.
folders='base costmodel planner kernels executor calib'

# sources PATTERN...: files of the product whose names match, one a line; a lint that finds none fails.
sources() {
    for pattern in "$@"; do
        # shellcheck disable=SC2086 # folders are words
        find $folders -name "$pattern"
    done | sort
}

# count_sources LIST: says how many files a lint read.
count_sources() {
    count=$(printf '%s' "$1" | grep -c .)
    echo "$count files read"
    [ "$count" -gt 0 ] || exit 1
}
