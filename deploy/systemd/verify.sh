#!/bin/sh
# What systemd itself says about router.service. Not part of `cargo test`: it needs systemd-analyze, but no running systemd.
#
#   deploy/systemd/verify.sh BINARY
#
# BINARY is the router, such as target/release/router; the unit is checked as if it were installed.
set -eu

if [ $# -ne 1 ] || [ ! -x "$1" ]; then
    echo "usage: $0 BINARY" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
binary=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

sed -e "s|/usr/local/bin/router|$binary|" -e '/^Documentation=/d' "$here/router.service" >"$scratch/router.service"
# It may exit with 0 although it complains.
complaints=$(systemd-analyze verify --man=no "$scratch/router.service" 2>&1) || true
# Other units of this machine are not ours to judge.
complaints=$(printf '%s\n' "$complaints" | grep router.service || true)
if [ -n "$complaints" ]; then
    printf '%s\n' "$complaints" >&2
    exit 1
fi
# In tenths: 0 is locked up, 100 is wide open.
systemd-analyze security --offline=true --threshold=20 --no-pager "$scratch/router.service" | tail -1
