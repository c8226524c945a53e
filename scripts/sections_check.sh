#!/usr/bin/env bash
# Tests scripts/sections.sh and scripts/failures.py. It runs cargo test on a small package whose tests fail, abort and
# do not compile, and looks for each of them in the output.
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
unset GANNET_TEST_LOGS
wrong=0

package() { # NAME
    mkdir -p "$work/$1/src" "$work/$1/tests"
    printf '[package]\nname = "%s"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n' "$1" >"$work/$1/Cargo.toml"
}

package sample
cat >"$work/sample/src/lib.rs" <<'RUST'
//! ```
//! assert_eq!(1, 2, "of the documentation");
//! ```
#[test]
fn a_test_that_passes() {}
#[test]
fn a_test_that_fails_early() {
    println!("said before the others");
    panic!("early reason");
}
RUST
# So much output follows that a tail of the log would not have it.
cat >"$work/sample/tests/long.rs" <<'RUST'
#[test]
fn a_test_that_fails() {
    (0..300).for_each(|line| println!("line {line} of it"));
    panic!("late reason");
}
#[test]
fn a_test_that_passes_too() {}
RUST
cat >"$work/sample/tests/aborts.rs" <<'RUST'
use std::io::Write;
#[test]
fn a_test_that_ends_it() {
    // Past the capturing of output, as the runtime writes when a stack overflows.
    writeln!(std::io::stderr(), "last words").unwrap();
    std::process::abort();
}
RUST
printf '#[test]\nfn fine() {}\n' >"$work/sample/tests/fine.rs"
package broken
echo 'pub fn broken() -> u32 { "no number" }' >"$work/broken/src/lib.rs"
# The output of binaries that ran in guests, without cargo.
cat >"$work/guests" <<'LOG'
-- verbs_near-0123456789abcdef  (node 0, kernel 6.1.0)

running 1 test
test reads ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s

-- verbs_pair-0123456789abcdef  (node 1, kernel 6.1.0)

running 2 tests
test writes ... ok
test cut ... FAILED

failures:

---- cut stdout ----
a guest's reason

failures:
    cut

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
LOG

# A whole run in a separate shell. Its output is in $work/said.
(
    . scripts/sections.sh
    sections_begin "$work/logs"
    cargo_test() {
        CARGO_TARGET_DIR=$work/target cargo test --offline --no-fail-fast --manifest-path "$work/$1/Cargo.toml"
    }
    guests() {
        cat "$work/guests"
        false
    }
    guests_of_another() {
        sections_begin none
        check "a check beside that passes" true
        check "a check beside that fails" sh -c 'echo why it failed beside; exit 4'
        sections_end
    }
    # A test binary that begins after a while, and ends when this run has seen that.
    waits() {
        sleep 0.5
        echo "     Running tests/waits.rs (target/debug/deps/waits-0123456789abcdef)"
        until [ -e "$work/seen" ]; do sleep 0.1; done
        echo "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s"
    }
    waits_beside() {
        sections_begin none
        tests "tests beside" waits
        sections_end
    }
    nested_begin another guests_of_another
    nested_begin waits waits_beside
    nested_runs waits "tests beside"
    grep -q Running "$work/logs/waits/tests-beside.log" || echo "nested_runs came back too soon"
    touch "$work/seen"
    check "a check that passes" true
    check "a check that fails" sh -c 'echo why it failed; exit 3'
    tests "samples" cargo_test sample
    tests "broken" cargo_test broken
    tests "guests" guests
    tests "nothing" true
    nested_begin ended false
    nested_runs ended "a section that never began"
    nested_end ended "ended early"
    nested_end another "beside"
    nested_end waits "waits"
    sections_end
) >"$work/said" 2>&1
ended=$?

has() { # WHERE WHAT
    grep -qF -- "$2" "$1" || { wrong=1; echo "missing: $2"; }
}
[ $ended -eq 1 ] || { wrong=1; echo "exit status $ended"; }
# The whole output of failures, and nothing of tests that passed.
for words in "why it failed" "said before the others" "early reason" "line 0 of it" "line 299 of it" "late reason" \
    "last words" "of the documentation" "mismatched types" "a guest's reason" "no test ran" \
    "why it failed beside"; do
    has "$work/said" "$words"
done
grep -q "a_test_that_passes\|test writes" "$work/said" && { wrong=1; echo "what passed was said"; }
grep "too soon" "$work/said" && wrong=1
# All names again at the end, before the closing line.
sed -n '/^failed (whole logs/,$p' "$work/said" >"$work/end"
for words in "  a check that fails (exit 3)" "  cargo test --lib: a_test_that_fails_early" \
    "  cargo test --test long: a_test_that_fails" \
    "  cargo test --test aborts: died before its tests had ended (signal: 6, SIGABRT" "  cargo test --doc: src/lib.rs" \
    '  could not compile `broken`' "  verbs_pair-0123456789abcdef  (node 1, kernel 6.1.0): cut" \
    "  nothing (no test ran)" "  a check beside that fails (exit 4)" "  ended early (exit 1)"; do
    has "$work/end" "$words"
done
last=$(tail -n 1 "$work/said")
[ "$last" = "8 passed, 10 failed" ] || { wrong=1; echo "the last line is: $last"; }
has "$work/logs/samples.log" "test a_test_that_passes ... ok"
[ $wrong -eq 0 ] || cat "$work/said"
exit $wrong
