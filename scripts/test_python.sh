#!/usr/bin/env bash
# Tests the wheel in python/dist ($GANNET_WHEELS), which it builds if there is none: the tests in python/tests and the
# types. The tests and lints of the native module are those of the workspace (test.sh).
#     scripts/test_python.sh [PYTEST ARGUMENTS]
#     scripts/test_python.sh --prepare, then scripts/test_python.sh --prepared [PYTEST ARGUMENTS]
# --prepare makes the environment, installs the wheel into it, and checks the types. --prepared runs the tests in it.
# The environment is $GANNET_PYTHON_VENV (default: python/.venv-test).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need_python
wheels=${GANNET_WHEELS:-python/dist}
venv=$(realpath -m "${GANNET_PYTHON_VENV:-python/.venv-test}")

prepare() {
    compgen -G "$wheels/gannet-*.whl" >/dev/null || scripts/python_wheel.sh
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1 pytest==9.2.0 hypothesis==6.170.17 scikit-learn==1.9.1 \
        safetensors==0.8.0 mypy==2.4.1 tqdm==4.70.1 pyarrow==26.0.1 pandas==3.1.1 polars==2.1.0 trustme==1.2.1 onnx==1.23.2 onnxruntime==1.32.0
    "$venv/bin/pip" install --quiet --force-reinstall --no-deps "$wheels"/gannet-*.whl
    # Outside of python/, so that the installed package is checked.
    (cd "$venv" && bin/mypy --strict --no-incremental -p gannet)
}

case "${1:-}" in
--prepare)
    prepare
    exit
    ;;
--prepared) shift ;;
*) prepare ;;
esac
root=$PWD
# Outside of python/, so that the installed package is tested.
cd "$venv"
unset GANNET_COMMAND PYTHONPATH
exec bin/python -m pytest -q -p no:cacheprovider --rootdir "$root/python" "$root/python/tests" "$@"
