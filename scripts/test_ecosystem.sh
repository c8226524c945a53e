#!/usr/bin/env bash
# Tests of Gannet with programs of others that take gigabytes: PyTorch with the models of deepctr-torch and torch-rechub,
# and TensorFlow; and with clients of `gannet serve`: Triton's and KServe's. They stay in a folder that the next run uses
# again: GANNET_ECOSYSTEM, by default ~/.cache/gannet-ecosystem (8 GB).
#     scripts/test_ecosystem.sh [PYTEST ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need_python

venv="${GANNET_ECOSYSTEM:-$HOME/.cache/gannet-ecosystem}"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
echo "== programs of others, in $venv"
"$venv/bin/pip" install -q --disable-pip-version-check -r tests/ecosystem/requirements.txt
# Their pandas is another one.
[ -x "$venv/clients/bin/python" ] || python3 -m venv "$venv/clients"
"$venv/clients/bin/pip" install -q --disable-pip-version-check -r tests/ecosystem/clients.txt

cargo build --release -p gannet-cli
export GANNET="${CARGO_TARGET_DIR:-$PWD/target}/release/gannet"
GANNET_BINARY="$GANNET" scripts/python_wheel.sh
"$venv/bin/pip" install -q --force-reinstall --no-deps python/dist/*.whl
# The wheel has the command without gRPC.
cargo build --release -p gannet-cli --features grpc
"$venv/clients/bin/python" -m pytest -q -p no:cacheprovider --noconftest tests/ecosystem/test_clients.py \
    tests/ecosystem/test_grpc_client.py
# Outside of python/, so that the installed package is checked.
(cd "$venv" && bin/mypy --strict --no-incremental -p gannet.torch)
export TF_CPP_MIN_LOG_LEVEL=2
# TensorFlow and PyTorch have a process each: they do not share libraries well.
"$venv/bin/python" -m pytest -q -p no:cacheprovider tests/ecosystem/test_tf_config.py
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider --ignore tests/ecosystem/test_tf_config.py \
    --ignore tests/ecosystem/test_clients.py --ignore tests/ecosystem/test_grpc_client.py tests/ecosystem "$@"
