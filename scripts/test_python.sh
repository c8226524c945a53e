#!/usr/bin/env bash
# Tests the wheel in python/dist, which it builds if there is none: the tests in python/tests, the types, and the native
# part's own tests and lints.
#     scripts/test_python.sh [PYTEST ARGUMENTS]
# It installs the wheel into $GANNET_PYTHON_VENV (default: python/.venv-test).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need python3 python3
python3 -c 'import ensurepip, venv' 2>/dev/null || install "Python's environments" python3-venv python3 python3
compgen -G 'python/dist/*.whl' >/dev/null || scripts/python_wheel.sh
venv=$(realpath -m "${GANNET_PYTHON_VENV:-python/.venv-test}")
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1 pytest==9.2.0 hypothesis==6.170.17 scikit-learn==1.9.1 \
    safetensors==0.8.0 mypy==2.4.1 tqdm==4.70.1 pyarrow==26.0.1 pandas==3.1.1 polars==2.1.0
"$venv/bin/pip" install --quiet --force-reinstall --no-deps python/dist/*.whl
cargo fmt --manifest-path python/Cargo.toml --check -- --config-path .
profile=${GANNET_WHEEL_PROFILE:-release}
cargo clippy --quiet --profile "$profile" --locked --manifest-path python/Cargo.toml --all-targets -- -D warnings
# Its tests are linked with the library of Python.
command -v python3-config >/dev/null || install "Python's library" python3-dev python3-devel python3-dev
cargo test --quiet --profile "$profile" --locked --manifest-path python/Cargo.toml
# Outside of python/, so that the installed package is tested.
cd "$venv"
unset GANNET_COMMAND PYTHONPATH
"$venv/bin/mypy" --strict --no-incremental -p gannet
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider --rootdir "$OLDPWD/python" "$OLDPWD/python/tests" "$@"
