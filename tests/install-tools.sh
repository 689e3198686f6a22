#!/usr/bin/env bash
# What the tests use besides Python, where Debian's packages have it: hosts made of namespaces (iproute2, nftables, util-linux),
# certificates (openssl), clocks that jump (a C compiler) or are years off (faketime), units (systemd), system calls (strace), a second
# test of memory (stressapptest), a browser (chromium), terminals (tmux), compose files (docker-compose), alerts and dashboards (programs
# of prometheus and prometheus-alertmanager).
# Installs what is missing; starts nothing. Tests that find no tool skip and say so.
set -euo pipefail

missing=()
for pair in ip:iproute2 tc:iproute2 nft:nftables nsenter:util-linux unshare:util-linux setpriv:util-linux openssl:openssl cc:build-essential \
    systemd-analyze:systemd strace:strace faketime:faketime stressapptest:stressapptest chromium:chromium tmux:tmux \
    docker-compose:docker-compose; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
# These two packages are servers, which would begin to serve once they are installed: only their programs are taken out.
servers=()
for pair in promtool:prometheus prometheus:prometheus amtool:prometheus-alertmanager prometheus-alertmanager:prometheus-alertmanager; do
    command -v "${pair%%:*}" >/dev/null && continue
    [[ " ${servers[*]-} " == *" ${pair##*:} "* ]] || servers+=("${pair##*:}")
done
# Alertmanager does not start without its templates.
templates=/usr/share/prometheus/alertmanager
[[ -e $templates/default.tmpl || " ${servers[*]-} " == *" prometheus-alertmanager "* ]] || servers+=(prometheus-alertmanager)
if ((${#missing[@]} + ${#servers[@]} == 0)); then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]-} ${servers[*]-}; install them with this system's package manager" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
if ((${#missing[@]} > 0)); then
    apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for package in "${servers[@]}"; do
    (cd "$folder" && apt-get download -q -o APT::Sandbox::User=root "$package" && dpkg-deb -x "$package"_*.deb .)
done
for program in promtool prometheus amtool prometheus-alertmanager; do
    if [[ -e $folder/usr/bin/$program ]]; then
        install -m 0755 "$folder/usr/bin/$program" "/usr/local/bin/$program"
    fi
done
if [[ -e $folder$templates ]]; then
    mkdir -p "$templates"
    cp -r "$folder$templates/." "$templates"
fi
