#!/usr/bin/env bash
# Tests checkpoints and data in a bucket, against moto: a server of the S3 protocol in Python. Installs it into CACHE/moto once.
#     scripts/test_cloud.sh [CACHE]        (default: target)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$(realpath -m "${1:-target}")
if [ ! -x "$cache/moto/bin/moto_server" ]; then
    python3 -m venv "$cache/moto"
    "$cache/moto/bin/pip" install --quiet 'moto[server]==5.2.5'
fi
export MOTO_SERVER="$cache/moto/bin/moto_server"
exec cargo test -p gannet-cli --test cloud -- --ignored --test-threads 2
