#!/usr/bin/env bash
# The randomised tests again and again, with new seeds, for as many seconds as the first argument says.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
end=$(($(date +%s) + seconds))
rounds=0
while [ "$(date +%s)" -lt "$end" ]; do
    seed=$((RANDOM * 32768 + RANDOM))
    echo "round $((rounds + 1)), seed $seed"
    GANNET_SEED=$seed PROPTEST_CASES=500 cargo test --release --workspace -q || { echo "failed with GANNET_SEED=$seed"; exit 1; }
    KILL_STRIDE=1 cargo test --release -q -p gannet-core --features kill-points --test kill || { echo "kill test failed"; exit 1; }
    rounds=$((rounds + 1))
done
echo "$rounds rounds passed, 0 failed, in $seconds s"
