#!/usr/bin/env bash
# Trains a click model on the shipped flights: will this flight arrive more than 15 minutes late?
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need cc gcc
echo "building gannet (the first time takes some minutes)"
cargo build --release --quiet
out=target/demo-model
target/release/gannet train data/flights.csv.gz --label label \
    --categorical carrier,flight,tailnum,origin,dest,hour,month,weekday,date \
    --epochs 30 --alpha 0.02 --out "$out"
cat <<EOF

The model is in $out. Try next:
  target/release/gannet predict --model $out data/flights.csv.gz | head
  target/release/gannet train data/flights.csv.gz --label label --categorical carrier,origin,dest --json
  target/release/gannet bench --dims 16
EOF
