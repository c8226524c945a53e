#!/usr/bin/env bash
# First chaos: GANNET_SOAK_ROUNDS (20) rounds of each mode, of jobs whose workers and servers are killed, with seeds
# from GANNET_SOAK_FROM (1) on, and as many of jobs with followers. It ends with a table. Then the randomised tests and
# the attack run repeatedly with new seeds. The first argument is how many seconds they run (0: chaos alone).
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
# Built as by `make test`: it is slower, so the faults hit a job in the middle.
GANNET_SOAK_ROUNDS=${GANNET_SOAK_ROUNDS:-20} cargo test -q -p gannet-cli --test soak -- --nocapture || exit 1
end=$(($(date +%s) + seconds))
rounds=0
while [ "$(date +%s)" -lt "$end" ]; do
    echo "round $((rounds + 1))"
    # The native module of the wheel is left out, because it needs Python.
    # proptest draws new seeds each time and prints what failed; the simulation takes seeds in order.
    PROPTEST_CASES=500 SEEDS=$((200 * (rounds + 1))) GANNET_SOAK_ROUNDS=3 GANNET_SOAK_FROM=$((1000 + 3 * rounds)) cargo test --release --workspace --exclude gannet-python -q || exit 1
    KILL_STRIDE=1 cargo test --release -q -p gannet-core --features kill-points --test kill || exit 1
    HOSTILE_SECONDS=$((seconds < 600 ? seconds / 4 + 1 : 300)) HOSTILE_SEED=$((rounds + 2)) \
        cargo test --release -q -p gannet-cli --test servers after_an_attack || exit 1
    FUZZ_SECONDS=30 FUZZ_SEED=$rounds cargo test --release -q -p gannet-server -p gannet-train --test fuzzed || exit 1
    rounds=$((rounds + 1))
done
echo "$rounds rounds passed, 0 failed, in $seconds s"
