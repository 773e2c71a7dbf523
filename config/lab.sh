#!/bin/bash
# A lab: two network namespaces on one machine, joined so that two processes can talk over DPDK.
#
#   config/lab.sh up                        makes the lab; one that stands already is left alone
#   config/lab.sh run --as server CMD...    runs CMD in one namespace
#   config/lab.sh run --as client CMD...    and in the other
#   config/lab.sh down                      ends what runs in the lab and removes it all
#   config/lab.sh with CMD...               up, CMD (which may call `run`), down; CMD's exit code
#
#   LAB=name    names the lab, so that several can stand side by side (default: demihoma)
#   MTU=bytes   of the links (default: 1500)
#
#        namespace $LAB-server                        namespace $LAB-client
#     net_af_packet on lab0  <====== veth pair ======>  lab0 net_af_packet
#     net_tap on tap0 <-tc-> wire0 <== veth pair ==> wire0 <-tc-> tap0 net_tap
#
# The addresses 10.0.0.1 (server) and 10.0.0.2 (client) belong to demihoma's own stack, so the
# kernel must not have them: it would answer Homa packets with ICMP "protocol unreachable". IPv6 is
# off, because the kernel would chatter. Checksum offload is off on lab0, because a kernel peer on
# a veth leaves checksums half done.
#
# Why tap0 and wire0 are no ports of a bridge: net_tap gives its own MAC to the kernel side of the
# tap, a bridge takes frames for the MAC of one of its ports as meant for itself, and nearly all
# would be lost. `tc` passes on every frame, whatever its address. The taps are made here and not by
# net_tap, because the `tc` rules need them; they are `multi_queue`, as net_tap opens them.
#
# As non-root all this happens in a user namespace of our own (`unshare -Urnm`), which a sleeping
# process keeps alive between `up` and `down`. AF_PACKET rings there count against RLIMIT_MEMLOCK.
set -eu

PATH=$PATH:/usr/sbin:/sbin
LAB=${LAB:-demihoma}
MTU=${MTU:-1500}
ROLES=(server client)
KEEPER_FILE=${XDG_RUNTIME_DIR:-/tmp}/demihoma-lab-$(id -u)-$LAB

die() {
    echo "lab: $1" >&2
    exit 1
}

usage() {
    sed -n '2,/^set -eu/{s/^# \{0,1\}//p}' "$0"
    exit 2
}

# --- the lab itself; all of this runs as root, be it only root of a user namespace ---

exists() {
    [ -e "/run/netns/$LAB-server" ] || [ -e "/run/netns/$LAB-client" ]
}

complete() {
    local role link
    for role in "${ROLES[@]}"; do
        for link in lab0 wire0 tap0; do
            [ -e "/run/netns/$LAB-$role" ] &&
                ip -n "$LAB-$role" link show dev "$link" >/dev/null 2>&1 || return 1
        done
    done
}

silence() {
    ip netns exec "$1" bash -c 'for switch in /proc/sys/net/ipv6/conf/*/disable_ipv6; do
        [ ! -e "$switch" ] || echo 1 >"$switch"
    done'
}

# pass NAMESPACE FROM TO: every frame that comes in at FROM leaves at TO.
pass() {
    tc -n "$1" qdisc add dev "$2" clsact
    local match
    # Kernels differ in the classifiers they were built with; each of these matches every frame.
    for match in "matchall" "u32 match u32 0 0"; do
        # shellcheck disable=SC2086
        tc -n "$1" filter add dev "$2" ingress protocol all $match \
            action mirred egress redirect dev "$3" 2>/dev/null && return 0
    done
    die "this kernel has neither tc classifier (cls_matchall, cls_u32), or no act_mirred"
}

furnish() {
    local role=$1 netns=$LAB-$1 number=$2 link
    ip -n "$netns" link set lo up
    for link in lab0 wire0; do
        ethtool_off "$netns" "$link"
        ip -n "$netns" link set "$link" up
    done
    ip -n "$netns" tuntap add dev tap0 mode tap multi_queue
    ip -n "$netns" link set tap0 mtu "$MTU" address "02:00:00:00:02:0$number" up
    pass "$netns" tap0 wire0
    pass "$netns" wire0 tap0
    echo "lab: $role: namespace $netns, lab0 (veth) for af_packet, tap0 for tap, MTU $MTU"
}

ethtool_off() {
    ip netns exec "$1" ethtool -K "$2" tx off tso off gso off gro off >/dev/null 2>&1 ||
        die "ethtool cannot turn off the offloads of $2 in $1"
}

make() {
    local role
    for role in "${ROLES[@]}"; do
        ip netns add "$LAB-$role"
        silence "$LAB-$role"
    done
    ip -n "$LAB-server" link add lab0 mtu "$MTU" address 02:00:00:00:00:01 type veth \
        peer name lab0 mtu "$MTU" address 02:00:00:00:00:02 netns "$LAB-client"
    ip -n "$LAB-server" link add wire0 mtu "$MTU" address 02:00:00:00:01:01 type veth \
        peer name wire0 mtu "$MTU" address 02:00:00:00:01:02 netns "$LAB-client"
    furnish server 1
    furnish client 2
}

up() {
    if complete; then
        echo "lab: $LAB stands already"
        return
    fi
    down
    # Not `if ! (make)`: bash would then go on after a failed step.
    local code
    set +e
    (set -e && make)
    code=$?
    set -e
    [ $code = 0 ] && return
    down
    die "could not make the lab, see above"
}

down() {
    local role pids
    exists || return 0
    for role in "${ROLES[@]}"; do
        [ -e "/run/netns/$LAB-$role" ] || continue
        pids=$(ip netns pids "$LAB-$role")
        # shellcheck disable=SC2086
        if [ -n "$pids" ]; then
            kill $pids 2>/dev/null || true
            timeout 1 tail -f /dev/null $(printf -- '--pid=%s ' $pids) || true
            kill -9 $pids 2>/dev/null || true
        fi
        ip netns del "$LAB-$role"
    done
    echo "lab: $LAB is gone"
}

run() {
    [ "${1-}" = --as ] && [ $# -ge 3 ] || usage
    case $2 in server | client) ;; *) die "--as is server or client, not $2" ;; esac
    [ -e "/run/netns/$LAB-$2" ] || die "no lab $LAB stands; make it with: config/lab.sh up"
    local netns=$LAB-$2
    shift 2
    exec ip netns exec "$netns" "$@"
}

with() {
    [ $# -ge 1 ] || usage
    local code=0 child=
    trap 'down >/dev/null' EXIT
    trap 'kill $child; exit 130' INT
    trap 'kill $child; exit 143' TERM
    up
    # In the background, so that a signal to us need not wait for CMD to end.
    LAB=$LAB MTU=$MTU "$@" <&0 &
    child=$!
    wait $child || code=$?
    exit $code
}

# --- not root: a user namespace of our own first ---

in_namespace() {
    [ -n "${DEMIHOMA_LAB_INSIDE:-}" ] || [ "$(id -u)" = 0 ]
}

# /run of a plain user is not writable; inside, it is ours alone.
prepare_run() {
    mount -t tmpfs tmpfs /run && mkdir -p /run/netns
}

keeper() {
    local pid
    pid=$(cat "$KEEPER_FILE" 2>/dev/null) || return 1
    # A number may have been given to another process since.
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "demihoma-lab-keeper $LAB" || return 1
    echo "$pid"
}

start_keeper() {
    unshare -Ur true 2>/dev/null || die "this kernel lets only root make namespaces; use root"
    setsid unshare -Urnm bash -c 'mount -t tmpfs tmpfs /run && mkdir /run/netns && echo $$ >"$1" &&
        exec -a "demihoma-lab-keeper $2" sleep infinity' keeper "$KEEPER_FILE" "$LAB" \
        >/dev/null 2>&1 </dev/null &
    local tries
    for tries in $(seq 100); do
        keeper >/dev/null && return
        sleep 0.02
    done
    die "could not make a user namespace (unshare -Urnm, then a tmpfs on /run)"
}

unprivileged() {
    local pid
    case $1 in
    with) exec unshare -Urnm env DEMIHOMA_LAB_INSIDE=fresh LAB="$LAB" MTU="$MTU" "$0" "$@" ;;
    up) keeper >/dev/null || start_keeper ;;
    down) keeper >/dev/null || return 0 ;;
    run) keeper >/dev/null || die "no lab $LAB stands; make it with: config/lab.sh up" ;;
    esac
    pid=$(keeper)
    set -- nsenter -t "$pid" -U --preserve-credentials -n -m --wd="$PWD" \
        env DEMIHOMA_LAB_INSIDE=kept LAB="$LAB" MTU="$MTU" "$0" "$@"
    if [ "${ACTION}" = down ]; then
        "$@"
        kill "$pid"
        rm -f "$KEEPER_FILE"
    else
        exec "$@"
    fi
}

ACTION=${1-}
case $ACTION in up | down | run | with) ;; *) usage ;; esac
if ! in_namespace; then
    unprivileged "$@"
    exit
fi
if [ "${DEMIHOMA_LAB_INSIDE:-}" = fresh ]; then
    prepare_run
    export DEMIHOMA_LAB_INSIDE=kept
fi
shift
"$ACTION" "$@"
