#!/usr/bin/env bash
# Tests of Gannet with programs of others that take gigabytes: TensorFlow. They stay in a folder that the next run uses
# again: GANNET_ECOSYSTEM, by default ~/.cache/gannet-ecosystem.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need cc gcc
python3 -m venv --help >/dev/null 2>&1 && python3 -c 'import ensurepip' 2>/dev/null ||
    install "python3 and venv" "python3 python3-venv" "python3" "python3"

venv="${GANNET_ECOSYSTEM:-$HOME/.cache/gannet-ecosystem}"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
echo "== programs of others, in $venv"
"$venv/bin/pip" install -q --disable-pip-version-check -r tests/ecosystem/requirements.txt

cargo build --release -p gannet-cli
GANNET="${CARGO_TARGET_DIR:-$PWD/target}/release/gannet" TF_CPP_MIN_LOG_LEVEL=2 \
    "$venv/bin/python" -m pytest -q tests/ecosystem
