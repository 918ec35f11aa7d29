#!/usr/bin/env bash
# SGLang's own benchmark client against a mock worker and against the router. Opt-in: it needs the package registry.
#
#   cargo build --release -p simworker -p router
#   scripts/sglang_bench/run.sh [--simworker FILE] [--router FILE] [--prompts-per-group N]
#
# It makes a Python environment that is thrown away, with `sglang` and only those packages that its client
# `sglang.benchmark.serving` needs: no torch, no GPU, no model. See shim/sitecustomize.py for how, and check.py for what
# is checked. With BENCH_VENV=DIR the environment is made there, kept, and used again.
#
# Exit codes: 0 all holds, 1 something does not, 2 wrong usage, 77 skipped: the client could not be installed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
version=0.5.23
needs=(aiohttp msgspec numpy orjson pillow pybase64 requests tqdm transformers)

scratch=$(mktemp -d "${TMPDIR:-/tmp}/sglang-bench-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
venv=${BENCH_VENV:-$scratch/venv}

install() {
    "${PYTHON:-python3}" -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --only-binary :all: --no-deps "sglang==$version" &&
        "$venv/bin/pip" install --quiet --only-binary :all: "${needs[@]}"
}

if [ ! -e "$venv/ready" ]; then
    if ! install >"$scratch/install.log" 2>&1; then
        echo "SKIPPED: sglang $version and what its client needs cannot be installed:"
        tail -n 3 "$scratch/install.log"
        exit 77
    fi
    touch "$venv/ready"
fi
# Not exec: the environment is removed afterwards.
PYTHONPATH="$here/shim" SGLANG_CLIENT_ONLY=1 "$venv/bin/python" "$here/check.py" --scratch "$scratch" "$@"
