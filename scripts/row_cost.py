#!/usr/bin/env python3
"""What a key of a push and of a pull costs, at two commits: CPU time and instructions.

    python3 scripts/row_cost.py OLD [--new COMMIT] [--rounds 20] [--folder DIR]

It builds bench/examples/row_cost.rs against both commits, in worktrees below target/row_cost. Then it runs the two
programs in turn, ROUNDS times, and prints the median of CPU milliseconds for a million keys, with the lowest and the
highest, and the median of the ratio within each pair. With valgrind on the PATH it counts instructions as well: of
12 rounds less those of 2, for each key. --new is the current commit by default.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "target" / "row_cost"
KEYS = 60_000


def build(commit):
    """The program at a commit."""
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", commit], cwd=ROOT, text=True).strip()
    tree, binary = BASE / f"tree-{commit}", BASE / f"row_cost-{commit}"
    if binary.exists():
        return binary
    BASE.mkdir(parents=True, exist_ok=True)
    subprocess.check_call(["git", "worktree", "add", "--force", "--detach", tree, commit], cwd=ROOT)
    try:
        shutil.copy(ROOT / "bench" / "examples" / "row_cost.rs", tree / "bench" / "examples")
        built = ["cargo", "build", "--release", "-p", "gannet-bench", "--example", "row_cost"]
        target = BASE / "target"
        subprocess.check_call(built, cwd=tree, env={**os.environ, "CARGO_TARGET_DIR": str(target)})
        shutil.copy(target / "release" / "examples" / "row_cost", binary)
    finally:
        subprocess.check_call(["git", "worktree", "remove", "--force", tree], cwd=ROOT)
    return binary


def run(binary, what, rounds, dim, base, callgrind=False):
    """CPU milliseconds for a million keys, or all instructions."""
    with tempfile.TemporaryDirectory(dir=base) as folder:
        # Valgrind has address space for six shards.
        shards = 4 if callgrind else 64
        command = [binary, what, str(rounds), str(dim), str(shards)] + ([folder] if base else [])
        if not callgrind:
            return float(subprocess.check_output(command, text=True))
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
        without_clock = {**os.environ, "ROW_COST_WITHOUT_CLOCK": "1"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=without_clock)
        return int(done.stderr.split("Collected :")[1].split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("--new", default="HEAD")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", help="put the tables here instead of in memory")
    options = parser.parse_args()
    binaries = [build(options.old), build(options.new)]
    count = shutil.which("valgrind") is not None
    print("work    dim | CPU ms a million keys: old, new | new / old | instructions a key: old, new | new / old")
    for dim in (1, 16):
        for what in ("push", "slots", "pull"):
            pairs = [[run(b, what, 50, dim, options.folder) for b in binaries] for _ in range(options.rounds)]
            old, new = zip(*pairs)
            ratios = sorted(n / o for o, n in pairs)
            spread = lambda all: f"{statistics.median(all):.1f} [{min(all):.1f}, {max(all):.1f}]"
            line = f"{what:7} {dim:3} | {spread(old)}, {spread(new)}"
            line += f" | {statistics.median(ratios):.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}]"
            if count:
                counted = [[run(b, what, r, dim, options.folder, True) for r in (2, 12)] for b in binaries]
                old, new = ((high - low) / (10 * KEYS) for low, high in counted)
                line += f" | {old:.1f}, {new:.1f} | {new / old:.3f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
