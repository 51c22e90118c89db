#!/bin/sh
# Runs a command on a Slurm cluster of this machine: its own munged and slurmctld, and a slurmd on
# each of some hosts, which are network namespaces with names of their own, joined by a bridge.
#
# usage: slurm_cluster.sh HOSTS CPUS COMMAND...
#   HOSTS n0, n1, ... of CPUS processors and as many GPUs each, however many this machine has; COMMAND finds the
#   cluster in $SLURM_CONF, and logs of the daemons, NAME.log, beside that file
#
# Everything is made inside mount, network, process and host name namespaces of this command's own:
# another Slurm of this machine sees nothing of it, no file is changed, and daemons and jobs end with
# COMMAND. Exit status 77, with the reason, where there is no Slurm or no such namespaces.
set -eu

subnet=10.213.78

# Waits until a command does not fail; daemons of a busy machine take their time.
until_done() { # SECONDS COMMAND...
    tries=$(($1 * 10))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}

# A Slurm that does not start here says nothing of what would run under it.
give_up() { # WHAT LOG
    echo "skipped: $1"
    tail -n 20 "$2" || true
    exit 77
}

write_config() {
    cat >"$folder/slurm.conf" <<CONF
ClusterName=sbplan
SlurmctldHost=cluster($subnet.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MessageTimeout=60
SlurmdTimeout=0
KillWait=5
ReturnToService=2
NodeName=n[0-$((hosts - 1))] CPUs=$cpus Gres=gpu:$cpus
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    # Hosts share the files of this machine, and what PMIx calls a host's own must not be shared.
    echo "PMIxCliTmpDirBase=/run" >"$folder/mpi.conf"
    # GPUs that nobody has but stand-ins: files that are there.
    echo "Name=gpu File=$folder/gpu[0-$((cpus - 1))]" >"$folder/gres.conf"
    for gpu in $(seq 0 $((cpus - 1))); do
        : >"$folder/gpu$gpu"
    done
    # No control group is made; which plugin would make them must be said where none are mounted.
    echo "CgroupPlugin=cgroup/v1" >"$folder/cgroup.conf"
}

add_host() { # NUMBER
    echo "$subnet.$((10 + $1)) n$1" >>"$folder/hosts"
    ip netns add "n$1"
    ip link add "uplink$1" type veth peer name eth0 netns "n$1"
    ip link set "uplink$1" master cluster0 up
    ip -n "n$1" link set lo up
    ip -n "n$1" addr add "$subnet.$((10 + $1))/24" dev eth0
    ip -n "n$1" link set eth0 up
}

start_munged() {
    mkdir -p "$folder/munge"
    head -c 128 /dev/urandom >"$folder/munge/key"
    chmod 400 "$folder/munge/key"
    munged --socket="$folder/munge.socket" --key-file="$folder/munge/key" \
        --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" \
        --seed-file="$folder/munge/seed" >"$folder/munged.log" 2>&1 ||
        give_up 'munged does not start' "$folder/munged.log"
}

all_idle() {
    [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" -eq "$hosts" ]
}

# The second half: inside the namespaces.
if [ "${1-}" = --inside ]; then
    shift
    hosts=$1 cpus=$2 folder=$3
    shift 3
    trap 'exit 1' HUP INT TERM # the first process of a namespace has no default
    for name in $(env | sed -n 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p'); do
        unset "$name" # of a job that this command itself is part of
    done
    export SLURM_CONF="$folder/slurm.conf"
    mount -t tmpfs none /run
    mkdir -p /run/netns "$folder/state"
    echo "127.0.0.1 localhost" >"$folder/hosts"
    echo "$subnet.1 cluster" >>"$folder/hosts"
    mount --bind "$folder/hosts" /etc/hosts
    hostname cluster
    ip link set lo up
    ip link add cluster0 type bridge
    ip addr add $subnet.1/24 dev cluster0
    ip link set cluster0 up
    write_config
    for i in $(seq 0 $((hosts - 1))); do
        add_host "$i"
    done
    start_munged
    slurmctld || give_up 'slurmctld does not start' "$folder/slurmctld.log"
    for i in $(seq 0 $((hosts - 1))); do
        ip netns exec "n$i" unshare --uts sh -c 'hostname "$0" && mount -t tmpfs none /run && slurmd -N "$0"' \
            "n$i" || give_up "slurmd of n$i does not start" "$folder/n$i.log"
    done
    until_done 60 all_idle || give_up 'the hosts do not come up' "$folder/slurmctld.log"
    status=0
    "$@" || status=$?
    exit $status
fi

skip() {
    echo "skipped: $*"
    exit 77
}

[ $# -ge 3 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
[ "$(id -u)" -eq 0 ] || skip 'a Slurm cluster of namespaces needs root'
PATH=$PATH:/usr/sbin:/sbin
export PATH
for tool in ip unshare munged slurmctld slurmd srun sbatch; do
    command -v $tool >/dev/null || skip "$tool is not installed (iproute2, util-linux, slurm-wlm)"
done
unshare --mount --net --uts --pid --fork true 2>/dev/null || skip 'unshare: no namespaces can be made here'
unshare --net ip link add cluster0 type bridge 2>/dev/null || skip 'this kernel has no bridge'

folder=$(mktemp -d)
chmod 755 "$folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
hosts=$1 cpus=$2
shift 2
status=0
unshare --mount --net --uts --pid --fork --kill-child --mount-proc sh "$script" --inside \
    "$hosts" "$cpus" "$folder" "$@" || status=$?
exit $status
