#!/bin/sh
# A calibration finds what a virtual cluster was made of: the rate of the shaped links, the tier
# within hosts, ports that ranks share, and a host that is slow.
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

# Of a shaped link's bits, what is left for payload: 1448 of 1514 bytes of a full frame.
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

# rate NAME KIND NODES RANKS GROUPS: bytes a second, as the times grow from 512 KiB on. The least
# time of each size counts, since other programs may run on this machine, too.
rate() {
    grep "\"collective\":\"$2\",\"nodes\":$3,\"ranks_per_node\":$4,\"groups\":$5," \
        "$folder/$1.samples.jsonl" | awk '
        {
            match($0, /"bytes":[0-9]+/)
            bytes = substr($0, RSTART + 8, RLENGTH - 8)
            sub(/.*"s":\[/, "")
            sub(/\].*/, "")
            count = split($0, times, ",")
            for (i = 1; i <= count; i++)
                if (!(bytes in least) || times[i] + 0 < least[bytes])
                    least[bytes] = times[i] + 0
        }
        END {
            for (bytes in least) {
                if (bytes + 0 < 524288)
                    continue
                if (low == 0 || bytes + 0 < low)
                    low = bytes + 0
                if (bytes + 0 > high)
                    high = bytes + 0
            }
            if (high <= low)
                exit 1
            print (high - low) / (least[high] - least[low])
        }' || fail "$1: no two sizes of $2"
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

# measure_link NAME HOSTS RANKS RATE EXPECTED ATTEMPTS: until a message between all hosts goes at the
# expected rate. A busy machine gets more time: what was measured stays.
measure_link() {
    wanted=$5 attempts=$6
    set -- "$1" "$2" "$3" "$4" --collectives send-recv,all-gather --max-bytes 4M --runs 2 \
        --budget-s 18
    measure "$@" --fresh
    for attempt in $(seq 2 "$attempts"); do
        ! near "$(rate "$1" send-recv "$2" 1 1)" "$wanted" 0.05 || return 0
        measure "$@" --merge "$folder/$1.json" --seed "$attempt"
    done
}

if [ "$all" != all ]; then
    expected=$(awk -v p=$payload 'BEGIN { print p * 1e9 / 8 }')
    measure_link pair 2 2 1gbit "$expected" 3
    link=$(rate pair send-recv 2 1 1)
    shared=$(rate pair send-recv 2 1 2)
    inner=$(rate pair send-recv 1 2 1)
    within 'one link, bytes/s' "$link" "$expected" 0.05
    within 'two messages on one link, bytes/s each' "$shared" \
        "$(awk -v e="$expected" 'BEGIN { print e / 2 }')" 0.1
    awk -v inner="$inner" -v link="$link" 'BEGIN {
        printf "within a host: %.1f times the rate of the link\n", inner / link
        exit inner < 2 * link
    }' || fail 'the tier within a host is no faster than the network'
    named pair '4 ranks on 2 hosts'
    ! grep -q ' is slow' "$folder/pair.out" || fail "found slow: $(grep slow "$folder/pair.out")"

    measure slow 3 1 1gbit,1gbit,200mbit --collectives send-recv,all-gather --max-bytes 1M --runs 2 --budget-s 8
    named slow 'host n2 is slow over the network'
    grep 'host n2' "$folder/slow.out"
    exit 0
fi

echo '| hosts x ranks | shaped, bit/s | payload, B/s | measured, B/s | off | within a host, B/s |'
echo '| --- | ---: | ---: | ---: | ---: | ---: |'
for layout in '2 2' '4 1'; do
    for mbit in 500 1000 2000; do
        nodes=${layout% *} expected=$(awk -v p=$payload -v m=$mbit 'BEGIN { print p * m * 1e6 / 8 }')
        measure_link all "$nodes" "${layout#* }" ${mbit}mbit "$expected" "${ATTEMPTS:-5}"
        inner=-
        [ "$layout" = '4 1' ] || inner=$(rate all send-recv 1 2 1)
        awk -v l="$layout" -v m=$mbit -v expected="$expected" -v r="$(rate all send-recv "$nodes" 1 1)" \
            -v inner="$inner" 'BEGIN {
            sub(/ /, " x ", l)
            printf "| %s | %.3g | %.4g | %.4g | %+.1f %% | %s |\n", l, m * 1e6, expected, r, \
                100 * (r / expected - 1), inner == "-" ? "-" : sprintf("%.3g", inner)
        }'
    done
done
