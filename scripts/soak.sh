#!/usr/bin/env bash
# The randomised tests again and again, with new seeds, for as many seconds as the first argument says.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
end=$(($(date +%s) + seconds))
rounds=0
while [ "$(date +%s)" -lt "$end" ]; do
    echo "round $((rounds + 1))"
    # proptest draws new seeds each time and prints what failed; the simulation takes seeds in order.
    PROPTEST_CASES=500 SEEDS=$((200 * (rounds + 1))) cargo test --release --workspace -q || exit 1
    KILL_STRIDE=1 cargo test --release -q -p gannet-core --features kill-points --test kill || exit 1
    HOSTILE_SECONDS=$((seconds < 600 ? seconds / 4 + 1 : 300)) HOSTILE_SEED=$((rounds + 2)) \
        cargo test --release -q -p gannet --test hostile after_an_attack || exit 1
    FUZZ_SECONDS=30 FUZZ_SEED=$rounds cargo test --release -q -p gannet-node -p gannet-train --test fuzzed || exit 1
    rounds=$((rounds + 1))
done
echo "$rounds rounds passed, 0 failed, in $seconds s"
