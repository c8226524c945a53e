#!/usr/bin/env bash
# Tests checkpoints and data in a bucket, against moto: a server of the S3 protocol in Python. Then it tries servers of
# the protocols of Google Cloud Storage and Azure. Installs all of them into CACHE once.
#     scripts/test_cloud.sh [CACHE]        (default: target)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$(realpath -m "${1:-target}")
if [ ! -x "$cache/moto/bin/moto_server" ]; then
    python3 -m venv "$cache/moto"
    "$cache/moto/bin/pip" install --quiet 'moto[server]==5.2.5'
fi
export MOTO_SERVER="$cache/moto/bin/moto_server"
cargo test -p gannet-cli --test cloud -- --ignored --test-threads 2
. scripts/needs.sh
need npm npm
exec python3 scripts/data/other_stores.py --gannet "${CARGO_TARGET_DIR:-target}/debug/gannet" --cache "$cache"
