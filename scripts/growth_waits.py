#!/usr/bin/env python3
"""Measures what growth costs the threads of a server: runs `gannet bench --grow` under perf, and counts how often and
how long they sleep on a locked page. That happens while the grower copies a chunk in use into a huge page. Needs root
and perf. Standard library only.

    cargo build --release
    python3 scripts/growth_waits.py target/release/gannet [--rows 50000000]
"""
import argparse
import collections
import pathlib
import re
import subprocess
import tempfile

EVENTS = ["sched:sched_switch", "exceptions:page_fault_user", "syscalls:sys_enter_madvise", "syscalls:sys_exit_madvise"]
LINE = re.compile(r"^\s*(.+?)\s+(\d+)\s+([\d.]+):\s+(\S+):\s(.*)$")
SWITCH = re.compile(r"prev_comm=(.*?) prev_pid=(\d+) .*prev_state=(\S+) ==> next_comm=(.*?) next_pid=(\d+)")
COLLAPSE = "behavior: 0x00000019"


class Waits:
    """The times of a thread's waits."""

    def __init__(self):
        self.took = []
        self.by_second = collections.Counter()

    def add(self, at, took):
        self.took.append(took)
        self.by_second[int(at)] += took

    def __str__(self):
        took = sorted(self.took)
        return (
            f"{len(took)}, {sum(took) * 1e3:.0f} ms in all, median {took[len(took) // 2] * 1e3:.2f} ms, "
            f"the longest {took[-1] * 1e3:.1f} ms, the worst second {max(self.by_second.values()) * 1e3:.0f} ms"
        )


def count(lines):
    """Waits by what and thread, and page faults by thread, from the lines of `perf script`."""
    waits, faults, left, begun = collections.defaultdict(Waits), collections.Counter(), {}, {}
    for line in lines:
        found = LINE.match(line)
        if not found:
            continue
        thread, tid, at, event, rest = found.groups()
        at = float(at)
        if event == "sched:sched_switch":
            _, out, state, enters, into = SWITCH.search(rest).groups()
            left[out] = (at, state)
            since, state = left.pop(into, (at, "S"))
            what = {"D": "asleep on a page or a lock", "R": "waits for a core"}.get(state[0])
            if what:
                waits[what, enters].add(at, at - since)
        elif event == "exceptions:page_fault_user":
            faults[thread] += 1
        elif event.endswith("enter_madvise"):
            begun[tid] = (at, rest)
        elif tid in begun:
            since, call = begun.pop(tid)
            if COLLAPSE in call:
                waits["collapses a chunk", thread].add(since, at - since)
    return waits, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--rows", default="50000000")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "perf.data"
        events = [word for event in EVENTS for word in ("-e", event)]
        bench = [args.binary, "bench", "--grow", args.rows]
        record = ["perf", "record", "-q", "-a", "-m", "4096", "-o", data, *events, "--", *bench]
        subprocess.run(record, check=True, timeout=900)
        # The lines are read as they come, so the limit is a command's.
        script = ["timeout", "900", "perf", "script", "-i", data, "-F", "comm,tid,time,event,trace"]
        with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as lines:
            waits, faults = count(lines.stdout)
        if lines.returncode != 0:
            why = "124: it took more than 900 s; try fewer --rows"
            raise SystemExit(f"perf script ended with status {lines.returncode} ({why})")
    for (what, thread), found in sorted(waits.items()):
        if thread.startswith(("gannet-shard", "gannet-grower")):
            print(f"{thread} {what}: {found}")
    for thread, number in sorted(faults.items()):
        if thread.startswith("gannet-shard"):
            print(f"{thread} page faults: {number}")


if __name__ == "__main__":
    main()
