#!/bin/bash
# `make demo`: a C program sends messages there and back between two network namespaces, first over
# DPDK's net_af_packet, then over net_tap. Every byte is checked. Exits 0 only if nothing was lost
# or wrong.
#
# What it asks of examples/c/echo.c:
#   echo server --config FILE          prints "ready" on a line of its own once it can be reached;
#                                      runs until SIGTERM, then exits 0
#   echo client --config FILE --json   sends to 10.0.0.1; prints for each size one line
#       {"bytes":1424,"count":1000,"wrong":0,"p50_us":12.3,"p99_us":20.1,"gbps":0.61}
#                                      and exits 0 if nothing was lost or wrong
set -eu

cd "$(dirname "$0")/.."
OUT=${CARGO_TARGET_DIR:-target}/demo
SIZES="1 100 1424 1425 10000 100000 1000000"
READY_SECS=10
CLIENT_SECS=120

die() {
    echo "demo: $1" >&2
    exit 1
}

build() {
    config/setup.sh
    cargo build --release
    mkdir -p "$OUT"
    # The archive comes first: it needs what DPDK's libraries have.
    # shellcheck disable=SC2046
    cc -std=c11 -O2 -Wall -Wextra -Werror -Iinclude examples/c/echo.c \
        "${CARGO_TARGET_DIR:-target}/release/libdemihoma.a" \
        -Wl,--as-needed $(pkg-config --libs libdpdk) -lrte_net_ring -lpthread -ldl -lm -o "$OUT/echo"
}

# settings BACKEND ROLE: writes that side's configuration and names the file.
settings() {
    local interface=lab0 number=1 file=$OUT/$1-$2.toml
    [ "$1" = af_packet ] || interface=tap0
    [ "$2" = server ] || number=2
    cat >"$file" <<END
[network]
backend = "$1"
interface = "$interface"
address = "10.0.0.$number/24"
END
    echo "$file"
}

# The table's rows as they come, which is also the sign that something goes on.
table() {
    python3 -u -c '
import json, sys
sizes, done, wrong = sys.argv[1].split(), [], 0
print("    bytes   count    p50 us    p99 us    Gbps  wrong")
for line in sys.stdin:
    row = json.loads(line)
    done.append(str(row["bytes"]))
    wrong += row["wrong"]
    print("{bytes:>9} {count:>7} {p50_us:>9.1f} {p99_us:>9.1f} {gbps:>7.2f} {wrong:>6}".format(**row))
missing = [size for size in sizes if size not in done]
if missing:
    print("demo: no result for messages of", ", ".join(missing), "bytes", file=sys.stderr)
sys.exit(1 if wrong or missing else 0)' "$SIZES"
}

wait_until_ready() {
    local tries
    for tries in $(seq $((READY_SECS * 20))); do
        grep -qx ready "$1" && return
        kill -0 "$2" 2>/dev/null || die "the server ended early: $(tail -n 3 "$1")"
        sleep 0.05
    done
    die "the server was not ready within $READY_SECS s: $(tail -n 3 "$1")"
}

# pair BACKEND: server and client talk; both must end well.
pair() {
    local backend=$1 log=$OUT/$1-server.log server code=0
    echo "demo: C client and server over net_$backend, round trips:"
    : >"$log"
    config/lab.sh run --as server "$OUT/echo" server --config "$(settings "$backend" server)" \
        >"$log" 2>&1 &
    server=$!
    wait_until_ready "$log" $server
    config/lab.sh run --as client timeout $CLIENT_SECS \
        "$OUT/echo" client --config "$(settings "$backend" client)" --json \
        2>"$OUT/$backend-client.log" | table || code=1
    kill $server 2>/dev/null || true
    wait $server || { echo "demo: the server failed: $(tail -n 3 "$log")" >&2 && code=1; }
    [ $code = 0 ] || sed 's/^/client: /' "$OUT/$backend-client.log" >&2
    return $code
}

if [ "${1-}" = --inside ]; then
    set -o pipefail
    code=0
    for backend in af_packet tap; do
        pair $backend || code=1
    done
    [ $code = 0 ] && echo "demo: every message came back, every byte was right"
    exit $code
fi

[ -e examples/c/echo.c ] || die "examples/c/echo.c is not there"
build
# A lab of its own, so that two demos, or a test beside one, do not meet.
LAB=demo-$$ config/lab.sh with config/demo.sh --inside
