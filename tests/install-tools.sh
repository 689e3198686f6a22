#!/usr/bin/env bash
# What the tests use besides Python, where Debian's packages have it: hosts made of namespaces (iproute2, nftables, util-linux),
# certificates (openssl), clocks that jump (a C compiler), units (systemd). Installs what is missing; starts nothing. Tests that find no tool skip and say so.
set -euo pipefail

missing=()
for pair in ip:iproute2 nft:nftables nsenter:util-linux unshare:util-linux setpriv:util-linux openssl:openssl cc:build-essential systemd-analyze:systemd; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if ((${#missing[@]} == 0)); then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]}; install them with this system's package manager" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends "${missing[@]}"
