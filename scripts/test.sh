#!/usr/bin/env bash
# Runs every check and test: formatting, lints, tests, kill points, documentation. The output of a failure is printed
# where it happens, and its name again before the last line, `N passed, N failed`. Whole logs are in target/test-logs.
# `make demo` builds with a profile of its own.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need cc gcc || exit 1
need ip iproute2 || exit 1
need_sshd || exit 1
need_etcd && need_rdma && need_python || exit 1
# One build for the tests here and for those in guests with soft-RoCE. Two other builds are small: gannet-core with kill
# points, and gannet-transport with the feature `rdma`. The documentation has no RDMA.
test_features=gannet-cli/etcd,gannet-cli/grpc,gannet-cli/rdma-dlopen
features=(--features $test_features)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
[ -z "${CARGO_TARGET_DIR:-}" ] || export CARGO_TARGET_DIR=$target

# A first build keeps no data for incremental builds: it would take ten times the space. A folder that has such data, as
# of a developer, keeps it.
[ -n "$(ls -A "$target/debug/incremental" 2>/dev/null)" ] || export CARGO_INCREMENTAL=0

. scripts/sections.sh
sections_begin "$target/test-logs"

# The data of tests/learning/models.rs. Without it, these tests print SKIPPED.
echo "== data of models"
python3 -m pip --version >/dev/null 2>&1 || install "python3 and pip" "python3 python3-pip" "python3 python3-pip" "python3 py3-pip"
for set in digits movielens reuters; do
    python3 scripts/data/fetch_models.py $set "${GANNET_DATA:-$HOME/.cache/gannet-data}" || echo "$set: not fetched"
done

check "format" cargo fmt --all --check
check "how failures are reported" scripts/sections_check.sh
check "lints" cargo clippy --workspace "${features[@]}" --all-targets -- -D warnings
# Most tests of jobs wait for other processes or for time limits.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}
check "build of the tests" cargo test --workspace "${features[@]}" --no-run --lib --bins --tests

# Many tests wait: for time limits, for other processes, guests for each other. So all of them run beside what is built
# meanwhile, which begins when cargo has let go of the folder. One thing is built at a time: first what the longest
# tests need.
run_tests() {
    sections_begin none
    tests "$@"
    sections_end
}

# The tests that need an RDMA device are left out, also of the count. The lints check the examples.
most_tests() {
    local targets
    targets=$(cargo metadata --no-deps --offline --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    for target in package["targets"]:
        name = target["name"]
        if target["kind"] == ["test"] and name not in ("jobs", "kill") and not name.startswith("verbs"):
            print("--test", name)') || return 1
    cargo test --workspace "${features[@]}" --no-fail-fast --lib --bins $targets -- --skip verbs::hostile --skip guests::
}
nested_begin jobs run_tests "tests of jobs" cargo test --workspace "${features[@]}" --no-fail-fast --test jobs
nested_begin most run_tests "most tests" most_tests
nested_runs jobs "tests of jobs"
nested_runs most "most tests"

check "build for the guests" scripts/test_rdma.sh --build
nested_begin rdma scripts/test_rdma.sh --built

# Not optimized: that would take four times the CPU time, and the children spend theirs in starting.
kills=(--workspace "${features[@]}" --features gannet-core/kill-points --test kill
    --config profile.dev.package.gannet-core.opt-level=0)
check "build with kill points" cargo test --no-run "${kills[@]}"
nested_begin kills run_tests "kill -9 at every step" cargo test "${kills[@]}"
nested_runs kills "kill -9 at every step"

# The wheel has the command of the tests, and a native module with their dependencies: cargo compiles only pyo3, numpy
# and the module once more. It is not for users, so it is not in python/dist.
export GANNET_BINARY=$target/debug/gannet GANNET_WHEELS=$target/test-wheel
wheel() {
    GANNET_TEST_FEATURES=$test_features scripts/python_wheel.sh && scripts/test_python.sh --prepare
}
python_tests() {
    sections_begin none
    check "python: numpy client, data sets, local cluster, scikit-learn" scripts/test_python.sh --prepared
    sections_end
}
check "python: the wheel and its types" wheel
nested_begin python python_tests
unset GANNET_BINARY GANNET_WHEELS
echo "   left out: make test-ecosystem (PyTorch, TensorFlow, notebooks; they take gigabytes); make test-kafka"

tests "examples in the documentation" cargo test --workspace "${features[@]}" --no-fail-fast --doc
# The whole workspace: a single package has other features, and some dependencies would be built again.
check "benches, once" cargo test --workspace "${features[@]}" --bench optim --bench core --bench transport
check "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --features gannet-cli/etcd --no-deps

nested_end kills "kill points"
nested_end python "python"
nested_end jobs "jobs"
nested_end most "tests"
nested_end rdma "rdma, in guests with soft-RoCE"
sections_end
