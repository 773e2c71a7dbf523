#!/bin/bash
# Installs what is missing to build and test demihoma on Debian 12 or newer, and nothing else.
#
#   config/setup.sh [PACKAGE...]     PACKAGE: more Debian packages that the caller needs
#
# Silent and instant when nothing is missing. Taken as given: Rust, gcc, g++, make, git, Python 3.
# Without root (or sudo that asks no password), or without network, it says in one line what to
# install and exits with 1.
set -eu

missing=()

# need PACKAGE CHECK...: PACKAGE is missing unless the command CHECK succeeds.
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

has() {
    # `ip` and `ethtool` live in sbin, which is in no plain user's PATH.
    PATH=$PATH:/usr/sbin:/sbin command -v "$1"
}

libclang() {
    # bindgen loads libclang at run time, from LIBCLANG_PATH or where Debian puts it.
    compgen -G "${LIBCLANG_PATH:-/nonexistent}/libclang*.so*" ||
        compgen -G '/usr/lib/llvm-*/lib/libclang*.so*'
}

dpdk() {
    # 22.11 is the oldest DPDK this is built against; the package brings the drivers along.
    has pkg-config && pkg-config --exists 'libdpdk >= 22.11'
}

need pkg-config has pkg-config
need libdpdk-dev dpdk
need libclang-dev libclang
need iproute2 has ip
need ethtool has ethtool
need binutils has objcopy
need util-linux has unshare
need valgrind has valgrind
for package in "$@"; do
    need "$package" dpkg-query -s "$package"
done

[ ${#missing[@]} -gt 0 ] || exit 0

give_up() {
    echo "setup: missing: ${missing[*]}; $1; as root, run: apt-get install -y ${missing[*]}" >&2
    exit 1
}

become_root=()
if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || give_up "installing needs root"
    become_root=(sudo -n)
fi
command -v apt-get >/dev/null || give_up "this is no Debian, so find these packages by hand"

apt() {
    "${become_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq \
        -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o Dpkg::Use-Pty=0 "$@"
}

echo "setup: installing ${missing[*]} (about a minute)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# `update` is content with an old list if no server answers; then `install` names the trouble.
apt update >"$log" 2>&1 || give_up "no package list ($(tail -n 1 "$log"))"
apt install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
    give_up "installing failed ($(grep -m 1 '^E:' "$log" || tail -n 1 "$log"))"
