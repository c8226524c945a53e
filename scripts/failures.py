#!/usr/bin/env python3
"""Prints what failed in a run of tests. It reads the log of `cargo test --no-fail-fast` (standard output and standard
error in one file), or of binaries that scripts/test_rdma.sh started one after the other. For each binary that failed
it prints everything but the tests that passed. The names of the failures are appended to a file, a line each:
scripts/sections.sh repeats them at the end.

    scripts/failures.py LOG NAMES
"""

import re
import sys

RUNNING = re.compile(r"^ +Running (?:unittests )?(\S+) \((?:.*/)?(.+?)(?:-[0-9a-f]{8,})?\)$")
DOCS = re.compile(r"^ +Doc-tests (\S+)$")
GUEST = re.compile(r"^-- (.* \(node \d+, kernel .*\))$")
PASSED = re.compile(r"^test .* \.\.\. (?:ok|ignored.*|bench:.*)$")
RERUN = re.compile(r"^error: (?:test|doctest|bench) failed, to rerun pass `(.*)`$")
DEATH = re.compile(r"^ +process didn't exit successfully: .*\(((?:signal|exit status): [^()]*)\)$")
SUMMARY = re.compile(r"^error: (?:\d+ targets? failed:|test failed|doctest failed)")
BROKEN = re.compile(r"^error: could not (?:compile|document) (.*?)(?: due to .*)?$")


class Binary:
    """The output of one test binary."""

    def __init__(self, name):
        self.name, self.lines, self.death, self.failed = name, [], None, False

    def runs(self):
        """Whether each run of tests in it ended and passed."""
        begun = ended = bad = 0
        for line in self.lines:
            if re.match(r"^running \d+ tests?$", line):
                begun += 1
            elif line.startswith("test result: "):
                ended, bad = ended + 1, bad + (not line.startswith("test result: ok"))
        return begun, ended, bad

    def failures(self):
        """The names of the tests that failed in it; empty if none did."""
        begun, ended, bad = self.runs()
        names, listed = [], []
        for line in self.lines:
            if line == "failures:":
                listed = []
            elif re.match(r"^    \S", line):
                listed.append(line.strip())
            elif line.startswith("test result: FAILED"):
                names += listed
        if self.death or begun > ended:
            how = self.death or "it did not say how"
            names.append(f"died before its tests had ended ({how})")
        elif (bad or self.failed) and not names:
            names.append("failed without naming a test")
        return list(dict.fromkeys(names))


def read(lines):
    """The binaries of a log, and cargo's output outside them."""
    binaries, outside, now, compiling = [], [], None, []
    for line in lines:
        running, docs, guest = RUNNING.match(line), DOCS.match(line), GUEST.match(line)
        if running or docs or guest:
            name = f"{running[2]} ({running[1]})" if running else f"doc-tests of {docs[1]}" if docs else guest[1]
            now = Binary(name)
            binaries.append(now)
        elif now and (rerun := RERUN.match(line)):
            now.name, now.failed = f"cargo test {rerun[1]}", True
        elif now and (death := DEATH.match(line)):
            now.death = death[1]
        elif SUMMARY.match(line):
            now = None
        elif now:
            now.lines.append(line)
        else:
            outside.append(line)
            if broken := BROKEN.match(line):
                compiling.append(f"could not compile {broken[1].replace('(lib test)', '(lib)')}")
    # A library and its tests print the same errors, or cargo stops before the second.
    return binaries, outside, list(dict.fromkeys(compiling))


def main(log, names_file):
    with open(log, errors="replace") as file:
        lines = [line.rstrip("\r\n") for line in file]
    binaries, outside, names = read(lines)
    for binary in binaries:
        failures = binary.failures()
        if not failures:
            continue
        print(f"-- {binary.name}")
        print("\n".join(line for line in binary.lines if not PASSED.match(line)))
        names += [f"{binary.name}: {failure}" for failure in failures]
    if not names or not binaries:
        # No test ran: print the other output.
        print("\n".join(outside))
    with open(names_file, "a") as file:
        file.writelines(f"{name}\n" for name in names)


if __name__ == "__main__":
    main(*sys.argv[1:])
