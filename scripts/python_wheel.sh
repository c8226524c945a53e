#!/usr/bin/env bash
# Builds the Python package: a wheel and a source distribution in python/dist. Installs maturin into python/.venv-build.
#     scripts/python_wheel.sh
# GANNET_BINARY=FILE puts this command into the wheel, instead of one that is built here. GANNET_WHEELS=FOLDER takes the
# place of python/dist. With GANNET_TEST_FEATURES (test.sh) the native module is that of the tests: it shares their
# dependencies, and no user should get it. The wheel is checked: the symbols that it needs (auditwheel), its use of
# Python's stable interface (abi3audit), and, if it is no test's, its size (at most 15 MB).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need_python
out=$(realpath -m "${GANNET_WHEELS:-python/dist}")
venv=python/.venv-build
if ! "$venv/bin/maturin" --version 2>/dev/null | grep -qx 'maturin 1.16.0'; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet maturin==1.16.0 auditwheel==6.8.2 abi3audit==0.0.26
fi
rm -f "$out"/gannet-*.whl "$out"/gannet-*.tar.gz
cd python
export PATH="$PWD/.venv-build/bin:$PATH"
python -c 'import _build; _build.add_command()'
if [ -n "${GANNET_TEST_FEATURES:-}" ]; then
    CARGO=$PWD/../scripts/cargo_for_maturin.sh maturin build --profile dev --locked --out "$out"
else
    maturin build --release --locked --out "$out"
fi
python -c 'import sys, _build; _build.build_sdist(sys.argv[1])' "$out"
# Each crate of the workspace must be in it, and its lock file must hold.
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
tar -xzf "$out"/gannet-*.tar.gz --strip-components 1 -C "$unpacked"
cargo tree --quiet --locked --workspace --manifest-path "$unpacked/Cargo.toml" >/dev/null
wheel=("$out"/gannet-*.whl)
auditwheel show "${wheel[0]}" | grep 'platform tag: "manylinux'
abi3audit --strict --summary "${wheel[0]}"
bytes=$(stat -c %s "${wheel[0]}")
if [ "$bytes" -gt 15000000 ] && [ -z "${GANNET_TEST_FEATURES:-}" ]; then
    echo "${wheel[0]} has $bytes bytes: at most 15000000 are allowed" >&2
    exit 1
fi
ls -l "$out"
