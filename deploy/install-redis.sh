#!/usr/bin/env bash
# Installs Debian's redis-server (7.0 or later) if there is none, and starts nothing. Needs root only when something is missing.
set -euo pipefail

oldest=7
if command -v redis-server > /dev/null; then
    version=$(redis-server --version | sed -n 's/.* v=\([0-9]*\)\..*/\1/p')
    if [ "${version:-0}" -lt "$oldest" ]; then
        echo "install-redis: redis-server is version ${version:-unknown}; Stoker needs $oldest.0 or later" >&2
        exit 1
    fi
    exit 0
fi
if ! command -v apt-get > /dev/null; then
    echo "install-redis: no redis-server here, and no apt-get to install it with; install Redis $oldest.0 or later by hand" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-redis: installing redis-server needs root; run: sudo $0" >&2
    exit 1
fi
# A package's service would otherwise be started with settings that forget.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server > /dev/null
echo "install-redis: $(redis-server --version)"
