#!/bin/sh
# The official Python client against the router. Not part of `cargo test`: it needs Python 3.9 or newer with venv, and
# installs `openai` from PyPI into an environment that is thrown away afterwards.
#
#   router/tests/clients/run.sh [DIRECTORY]
#
# DIRECTORY holds the binaries `router` and `simworker`, such as target/debug; without it, cargo builds them.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
if [ $# -gt 1 ]; then
    echo "usage: $0 [DIRECTORY]" >&2
    exit 2
elif [ $# -eq 1 ]; then
    binaries=$(cd "$1" && pwd)
else
    (cd "$root" && cargo build -p router -p simworker)
    binaries=${CARGO_TARGET_DIR:-$root/target}/debug
fi
for binary in router simworker; do
    if [ ! -x "$binaries/$binary" ]; then
        echo "$0: no $binary in $binaries" >&2
        exit 2
    fi
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check openai
"$scratch/venv/bin/python" -B "$here/openai_client.py" "$binaries"
