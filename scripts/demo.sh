#!/usr/bin/env bash
# Trains a click model on the shipped flights: will this flight arrive more than 15 minutes late? The command is built
# with the profile `demo` (Cargo.toml), without object stores and etcd: in less than half of the CPU time of a release.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need cc gcc
echo "building gannet (the first time takes some minutes)"
cargo build --profile demo --quiet -p gannet-cli --bin gannet --no-default-features
target=${CARGO_TARGET_DIR:-target}
gannet=$target/demo/gannet
out=$target/demo-model
"$gannet" train data/flights.csv.gz --label label \
    --categorical carrier,flight,tailnum,origin,dest,hour,month,weekday,date \
    --epochs 30 --alpha 0.02 --out "$out"
cat <<EOF

The model is in $out. Try next:
  $gannet predict --model $out data/flights.csv.gz | head
  $gannet train data/flights.csv.gz --label label --categorical carrier,origin,dest --json
  $gannet launch --servers 2 --workers 2 -- train data/flights.csv.gz --epochs 30
For work, install the faster command, with object stores and etcd: cargo install --locked --path cli
EOF
