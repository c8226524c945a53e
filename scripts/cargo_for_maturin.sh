#!/usr/bin/env bash
# Stands in for cargo when maturin builds the wheel of `make test` (python_wheel.sh). maturin asks for the native module
# alone. Its dependencies would then have other features than in the tests, and cargo would build them all once more.
# So this asks for the module with the packages of the tests and $GANNET_TEST_FEATURES.
set -euo pipefail
[ "${1:-}" = rustc ] || exec cargo "$@"
# A test is among the targets, because the dependencies have the features that tests need only then. maturin knows only
# the module and what it depends on, so it reads of the module alone.
cargo build --workspace --locked --features "$GANNET_TEST_FEATURES" --lib --test tidy \
    --message-format json-render-diagnostics | grep -F '#gannet-python@'
