#!/usr/bin/env bash
# Builds the Python package: a wheel and a source distribution in python/dist. Installs maturin into python/.venv-build.
#     scripts/python_wheel.sh
# GANNET_BINARY=FILE puts this command into the wheel, instead of one that is built here. GANNET_WHEEL_PROFILE=quick
# builds the native module faster, for tests. The wheel is checked: the
# symbols that it needs (auditwheel), its use of Python's stable interface (abi3audit), and its size (at most 15 MB, or
# 20 MB for tests).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need_python
venv=python/.venv-build
if ! "$venv/bin/maturin" --version 2>/dev/null | grep -qx 'maturin 1.16.0'; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet maturin==1.16.0 auditwheel==6.8.2 abi3audit==0.0.26
fi
rm -rf python/dist
cd python
export PATH="$PWD/.venv-build/bin:$PATH"
python -c 'import _build; _build.add_command()'
maturin build --profile "${GANNET_WHEEL_PROFILE:-release}" --locked --out dist
python -c 'import _build; _build.build_sdist("dist")'
wheel=(dist/*.whl)
auditwheel show "${wheel[0]}" | grep 'platform tag: "manylinux'
abi3audit --strict --summary "${wheel[0]}"
bytes=$(stat -c %s "${wheel[0]}")
limit=15000000
[ "${GANNET_WHEEL_PROFILE:-release}" = release ] || limit=20000000
if [ "$bytes" -gt $limit ]; then
    echo "${wheel[0]} has $bytes bytes: at most $limit are allowed" >&2
    exit 1
fi
ls -l dist
