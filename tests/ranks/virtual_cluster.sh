#!/bin/sh
# Runs a command over MPI ranks on a virtual cluster: hosts are network namespaces with names of
# their own, joined by a bridge; the uplink of each is shaped by tc's token bucket.
#
# usage: virtual_cluster.sh HOSTS RANKS RATES MPIRUN COMMAND...
#   HOSTS x RANKS ranks; RATES: of each host's uplink, as tc takes them ("1gbit"), separated by
#   commas, the last for all further hosts
#
# Everything is made inside mount, network and host name namespaces of this command's own: nothing
# of it is seen outside, no file of the machine is changed, and it goes away with the last process.
# Exit status 77, with the reason, where such namespaces cannot be made.
set -eu

# The second half: inside the namespaces.
if [ "${1-}" = --inside ]; then
    shift
    hosts=$1 ranks=$2 rates=$3 mpirun=$4 folder=$5
    shift 5
    subnet=10.213.77
    mount -t tmpfs none /run
    mkdir -p /run/netns
    mount --bind "$folder/hosts" /etc/hosts
    hostname cluster
    ip link set lo up
    ip link add cluster0 type bridge
    ip addr add $subnet.1/24 dev cluster0
    ip link set cluster0 up
    echo "127.0.0.1 localhost" >"$folder/hosts"
    echo "$subnet.1 cluster" >>"$folder/hosts"
    list=
    for i in $(seq 0 $((hosts - 1))); do
        rate=${rates%%,*}
        rates=${rates#*,}
        echo "$subnet.$((10 + i)) n$i" >>"$folder/hosts"
        ip netns add "n$i"
        ip link add "uplink$i" type veth peer name eth0 netns "n$i"
        ip link set "uplink$i" master cluster0 up
        ip -n "n$i" link set lo up
        ip -n "n$i" addr add "$subnet.$((10 + i))/24" dev eth0
        # The bucket is small, since what it holds goes out at once, and yet holds two segments: those
        # that it does not hold are cut into frames, each of which waits for a timer and a core; on
        # a busy machine half of 2 Gbit/s went lost that way. The queue is long enough not to drop.
        ip -n "n$i" link set eth0 gso_max_size 16384 up
        tc -n "n$i" qdisc add dev eth0 root tbf rate "$rate" burst 32kb limit 4mb
        list="$list${list:+,}n$i:$ranks"
    done
    cat >"$folder/agent" <<'AGENT'
#!/bin/sh
# what mpirun takes for ssh: HOST COMMAND...
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec sh -c "$*"' "$host" "$@"
AGENT
    chmod +x "$folder/agent"
    status=0
    # Ahead of other programs of this machine, where that is allowed: ranks that wait for a core do
    # not keep the links busy.
    ahead=
    ! nice -n -10 true 2>/dev/null || ahead='nice -n -10'
    # shellcheck disable=SC2086 # words
    $ahead "$mpirun" -q --allow-run-as-root -n $((hosts * ranks)) -H "$list" \
        --mca plm_rsh_agent "$folder/agent" --mca btl_tcp_if_include $subnet.0/24 \
        --mca oob_tcp_if_include $subnet.0/24 --mca btl self,vader,tcp --mca pml ob1 \
        --mca mpi_yield_when_idle 1 --bind-to none "$@" || status=$?
    exit $status
fi

skip() {
    echo "skipped: $*"
    exit 77
}

[ $# -ge 5 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
[ "$(id -u)" -eq 0 ] || skip 'namespaces of a virtual cluster need root'
PATH=$PATH:/usr/sbin:/sbin
export PATH
for tool in ip tc unshare; do
    command -v $tool >/dev/null || skip "$tool is not installed (iproute2, util-linux)"
done
unshare --mount --net --uts true 2>/dev/null || skip 'unshare: no namespaces can be made here'
unshare --net sh -c 'ip link add cluster0 type bridge && ip link set cluster0 up &&
    ip link add uplink0 type veth peer name uplink1 && tc qdisc add dev uplink0 root tbf rate 1gbit burst 32kb limit 4mb' \
    >/dev/null 2>&1 || skip 'this kernel has no bridge, no veth or no tbf'

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
: >"$folder/hosts"
script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
hosts=$1 ranks=$2 rates=$3 mpirun=$4
shift 4
status=0
unshare --mount --net --uts sh "$script" --inside "$hosts" "$ranks" "$rates" "$mpirun" "$folder" \
    "$@" || status=$?
exit $status
