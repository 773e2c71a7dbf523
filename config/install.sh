#!/bin/bash
# Installs demihoma below PREFIX, or takes away what an earlier install put there.
#
#   config/install.sh install | uninstall
#
#   PREFIX=/usr/local   where programs will look for it
#   DESTDIR=            put in front of PREFIX while copying, for those who make packages
#
# Installed: archive, shared library, headers, manual pages, two pkg-config files, and the program. The
# list of files is kept in PREFIX/lib/demihoma.files, so that uninstall removes exactly those.
set -eu

cd "$(dirname "$0")/.."
PREFIX=${PREFIX:-/usr/local}
ROOT=${DESTDIR:-}$PREFIX
FILES=$ROOT/lib/demihoma.files
OUT=${CARGO_TARGET_DIR:-target}/install
BUILT=${CARGO_TARGET_DIR:-target}/release
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SONAME=libdemihoma.so.0

die() {
    echo "install: $1" >&2
    exit 1
}

# One object out of the whole archive, whose only names are demi_* and homa_*. Two Rust archives of
# different compilers would otherwise define the same names twice in the C program that links both.
#
# --force-group-allocation: without it a panic that is caught crashes, because the unwind tables
# still speak of sections that another archive's copy replaced. The two sections that go hold LLVM
# bitcode, on which other tools choke.
localise() {
    ld -r --force-group-allocation --whole-archive "$BUILT/libdemihoma.a" -o "$OUT/demihoma.o"
    objcopy --wildcard --keep-global-symbol='demi_*' --keep-global-symbol='homa_*' \
        --remove-section=.llvmbc --remove-section=.llvmcmd "$OUT/demihoma.o"
    rm -f "$OUT/libdemihoma.a"
    ar rcs "$OUT/libdemihoma.a" "$OUT/demihoma.o"
    check_exports "$(nm -g --defined-only "$OUT/demihoma.o" | awk '{ print $3 }')"
}

check_exports() {
    local stray
    [ -n "$1" ] || die "the archive has no demi_* function; build it with the feature dpdk"
    stray=$(grep -Ev '^(demi|homa)_' <<<"$1" || true)
    [ -z "$stray" ] || die "the archive shows more than demi_* and homa_*: $(head -n 3 <<<"$stray")"
}

# From the same object, and not by cargo: rustc hands its own anonymous version script to the
# linker, and GNU ld takes no second one beside that.
share() {
    cc -shared -o "$OUT/$SONAME" "$OUT/demihoma.o" -Wl,-soname,$SONAME \
        -Wl,--version-script=config/exports.map -Wl,--no-undefined -Wl,--gc-sections \
        -Wl,--as-needed $(pkg-config --libs libdpdk) -lrte_net_ring -lgcc_s -lpthread -ldl -lm
}

# as_files NAME...: the linker's words for DPDK's static libraries, those that this DPDK has.
as_files() {
    local name
    for name in "$@"; do
        [ ! -e "$DPDK_LIBDIR/librte_$name.a" ] || printf -- '-l:librte_%s.a ' "$name"
    done
}

fill() {
    DPDK_LIBDIR=$(pkg-config --variable=libdir libdpdk)
    local drivers libraries
    drivers=$(as_files bus_vdev bus_pci mempool_ring \
        net_af_packet net_tap net_ring net_memif net_vhost net_virtio net_null \
        net_e1000 net_igc net_ixgbe net_i40e net_iavf net_ice net_ena net_vmxnet3)
    libraries=$(as_files eal ethdev mbuf mempool ring kvargs telemetry net pci meter hash rcu \
        security cryptodev vhost gso ip_frag dmadev common_iavf timer)
    sed -e "s|@PREFIX@|$PREFIX|" -e "s|@VERSION@|$VERSION|" -e "s|@DPDK_LIBDIR@|$DPDK_LIBDIR|" \
        -e "s|@DRIVERS@|$drivers|" -e "s|@LIBRARIES@|$libraries|" "$1" >"$2"
}

# put MODE FROM TO: TO is below PREFIX.
put() {
    install -D -m "$1" "$2" "$ROOT/$3"
    echo "$3" >>"$FILES.new"
}

install_all() {
    # `sudo make install` often has no cargo; what the user built before is then good enough.
    if command -v cargo >/dev/null; then
        cargo build --release
    fi
    [ -e "$BUILT/libdemihoma.a" ] || die "nothing is built; first run: cargo build --release"
    mkdir -p "$OUT" "$ROOT/lib" || die "cannot write to $ROOT; try sudo, or another PREFIX"
    localise
    share
    : >"$FILES.new"
    put 644 "$OUT/libdemihoma.a" lib/libdemihoma.a
    put 755 "$OUT/$SONAME" lib/$SONAME
    ln -sf $SONAME "$ROOT/lib/libdemihoma.so"
    echo lib/libdemihoma.so >>"$FILES.new"
    local header template name page
    for header in include/demi/*.h; do
        put 644 "$header" "$header"
    done
    for template in config/*.pc.in; do
        name=$(basename "$template" .in)
        fill "$template" "$OUT/$name"
        put 644 "$OUT/$name" "lib/pkgconfig/$name"
    done
    for page in man/*; do
        put 644 "$page" "share/man/man${page##*.}/${page#man/}"
    done
    put 755 "$BUILT/demihoma" bin/demihoma
    mv "$FILES.new" "$FILES"
    echo "install: $(wc -l <"$FILES") files below $ROOT"
}

uninstall_all() {
    [ -e "$FILES" ] || die "nothing of demihoma is installed below $ROOT"
    local file
    while read -r file; do
        rm -f "$ROOT/$file"
    done <"$FILES"
    rm -f "$FILES"
    rmdir "$ROOT/include/demi" 2>/dev/null || true
    echo "install: demihoma is gone from $ROOT"
}

case ${1-} in
install) install_all ;;
uninstall) uninstall_all ;;
*) die "say install or uninstall" ;;
esac
