#!/bin/sh
# The cluster file of a calibration says what a virtual cluster was made of: the rate of the shaped
# links, the tier within hosts, ports that ranks share; and a host that is slow is named.
#
# usage: virtual_calibrate.sh CALIBRATE MPIRUN [all]
#   all: 2 x 2 and 4 x 1 ranks at three rates, as a table
set -eu
calibrate=$(realpath "$1") mpirun=$2 all=${3-}
cluster=$(cd "$(dirname "$0")" && pwd)/virtual_cluster.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

# The share of a shaped link's bits that is payload: 1448 of 1514 bytes of a full frame.
payload=0.9564

# measure NAME HOSTS RANKS RATES OPTION...: NAME.json, NAME.samples.jsonl, NAME.out
measure() {
    name=$1 hosts=$2 ranks=$3 rates=$4
    shift 4
    status=0
    "$cluster" "$hosts" "$ranks" "$rates" "$mpirun" "$calibrate" -o "$folder/$name.json" "$@" \
        >"$folder/$name.out" 2>&1 || status=$?
    [ $status -ne 77 ] || { cat "$folder/$name.out" && exit 77; }
    [ $status -eq 0 ] || fail "$name: exit status $status: $(cat "$folder/$name.out")"
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# level NAME LEVEL KEY: what the cluster file says of a level; empty: nothing.
level() {
    awk -v name="\"$2\"," -v key="\"$3\":" '
        $1 == "\"name\":" { here = $2 == name }
        here && $1 == key { sub(/,$/, "", $2); print $2; exit }' "$folder/$1.json"
}

# rate NAME LEVEL: bytes a second.
rate() {
    awk -v beta="$(level "$1" "$2" beta_s_per_byte)" 'BEGIN { print (beta > 0 ? 1 / beta : 0) }'
}

# near VALUE EXPECTED SHARE
near() {
    awk -v value="$1" -v expected="$2" -v share="$3" 'BEGIN {
        off = value / expected - 1
        exit off > share || off < -share
    }'
}

# within WHAT VALUE EXPECTED SHARE
within() {
    awk -v what="$1" -v value="$2" -v expected="$3" -v share="$4" 'BEGIN {
        off = value / expected - 1
        printf "%s: %.4g, expected %.4g (%+.1f %%)\n", what, value, expected, 100 * off
        exit off > share || off < -share
    }' || fail "$1 is off by more than the share $4"
}

named() { # NAME TEXT
    grep -q "$2" "$folder/$1.out" || fail "$1: nothing says \"$2\": $(cat "$folder/$1.out")"
}

# measure_link NAME HOSTS RANKS RATE EXPECTED ATTEMPTS: until the file's level between hosts has the
# expected rate. The least of the repeats counts, since other programs may run on this machine, too;
# a busy one gets more time: what was measured stays. What sockets and the link's queue take at once
# hides up to some milliseconds of a message, 5 % of 4 MiB at 500 Mbit/s, so that more is sent.
measure_link() {
    wanted=$5 attempts=$6
    set -- "$1" "$2" "$3" "$4" --collectives send-recv --method curves --statistic least \
        --max-bytes 8M --runs 3 --budget-s 25
    measure "$@" --fresh
    for attempt in $(seq 2 "$attempts"); do
        ! near "$(rate "$1" node)" "$wanted" 0.05 || return 0
        measure "$@" --merge "$folder/$1.json" --seed "$attempt"
    done
}

# payload_of MBIT: bytes a second that a link of so many Mbit/s has room for.
payload_of() {
    awk -v p=$payload -v m="$1" 'BEGIN { print p * m * 1e6 / 8 }'
}

check_rate() { # MBIT
    expected=$(payload_of "$1")
    measure_link "pair$1" 2 2 "$1mbit" "$expected" 3
    near "$(rate "pair$1" node)" "$expected" 0.05 || skip_if_busy "$(rate "pair$1" node)" "$expected"
    within "one link of $1 Mbit/s, bytes/s" "$(rate "pair$1" node)" "$expected" 0.05
    awk -v inner="$(rate "pair$1" rank)" -v link="$expected" 'BEGIN {
        printf "within a host: %.1f times the rate of the link\n", inner / link
        exit inner < 2 * link
    }' || fail 'the tier within a host is no faster than the network'
    [ "$(level "pair$1" node ports)" = 1 ] || fail "two ranks of a host share one link, not \
$(level "pair$1" node ports)"
    named "pair$1" '4 ranks on 2 hosts'
    ! grep -q ' is slow' "$folder/pair$1.out" ||
        fail "found slow: $(grep slow "$folder/pair$1.out")"
}

# Four ranks and their links need two cores. Load averages count the ranks themselves.
skip_if_busy() {
    awk -v cores="$(nproc)" '{ exit !($1 > 2 * cores + 4) }' /proc/loadavg || return 0
    echo "skipped: $1 of $2 bytes/s, load average $(cut -d' ' -f1 /proc/loadavg) on $(nproc) cores"
    exit 77
}

if [ "$all" != all ]; then
    # Twice the rate is enough to see that the file follows it; 2 Gbit/s take more of two cores than a
    # busy machine has.
    check_rate 500
    check_rate 1000
    measure slow 3 1 1gbit,1gbit,200mbit --collectives send-recv,all-gather --max-bytes 1M --runs 2 --budget-s 8
    named slow 'host n2 is slow over the network'
    grep 'host n2' "$folder/slow.out"
    exit 0
fi

echo '| hosts x ranks | shaped, bit/s | payload, B/s | between hosts, B/s | off | ports | within a host, B/s | load average |'
echo '| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |'
for layout in '2 2' '4 1'; do
    for mbit in 500 1000 2000; do
        nodes=${layout% *} expected=$(payload_of $mbit) inner=-
        measure_link all "$nodes" "${layout#* }" ${mbit}mbit "$expected" "${ATTEMPTS:-5}"
        [ "$layout" = '4 1' ] || inner=$(rate all rank)
        awk -v l="$layout" -v m=$mbit -v expected="$expected" -v r="$(rate all node)" \
            -v ports="$(level all node ports)" -v inner="$inner" -v load="$(cut -d' ' -f1 /proc/loadavg)" 'BEGIN {
            sub(/ /, " x ", l)
            printf "| %s | %.3g | %.4g | %.4g | %+.1f %% | %d | %s | %s |\n", l, m * 1e6, expected, r, \
                100 * (r / expected - 1), ports, inner == "-" ? "-" : sprintf("%.3g", inner), load
        }'
    done
done
