#!/usr/bin/env bash
# What the tests use besides Python, where Debian's packages have it: hosts made of namespaces (iproute2, nftables, util-linux),
# certificates (openssl), clocks that jump (a C compiler) or are years off (faketime), units (systemd), system calls (strace), a second
# test of memory (stressapptest), rules of alerts (promtool, a file of prometheus). Installs what is missing; starts nothing. Tests that
# find no tool skip and say so.
set -euo pipefail

missing=()
for pair in ip:iproute2 tc:iproute2 nft:nftables nsenter:util-linux unshare:util-linux setpriv:util-linux openssl:openssl cc:build-essential \
    systemd-analyze:systemd strace:strace faketime:faketime stressapptest:stressapptest; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
wanted=("${missing[@]}")
command -v promtool >/dev/null || wanted+=(prometheus)
if ((${#wanted[@]} == 0)); then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "missing: ${wanted[*]}; install them with this system's package manager" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
if ((${#missing[@]} > 0)); then
    apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
# The package prometheus is a server and begins to serve once it is installed, so only its program promtool is taken out.
if ! command -v promtool >/dev/null; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    (cd "$folder" && apt-get download -q -o APT::Sandbox::User=root prometheus && dpkg-deb -x prometheus_*.deb .)
    install -m 0755 "$folder/usr/bin/promtool" /usr/local/bin/promtool
fi
