#!/usr/bin/env python3
"""What each part of the hot path costs: nanoseconds of one core for a key.

    cargo build --release -p gannet-cli && cargo build --release -p gannet-bench --example ladder
    python3 scripts/ladder.py --rounds 5

The lower rungs are bench/examples/ladder.rs: from the bare copy of a row up to the shards of a table, in one thread.
The upper ones are the CPU time of a server with one thread in `gannet bench`, over shared memory and over tcp, where
the worker requests all rows. They take turns. The tables show medians, in Markdown.
"""

import argparse
import json
import statistics
import subprocess
from pathlib import Path

TIMEOUT = 900
RELEASE = Path(__file__).resolve().parent.parent / "target" / "release"


def rungs(dim, rows):
    """The lower rungs: pull and push by name."""
    command = [RELEASE / "examples" / "ladder", str(dim), str(rows), "3"]
    lines = subprocess.check_output(command, text=True, timeout=TIMEOUT).splitlines()
    fields = [line.split("\t") for line in lines]
    return {name: [None if word == "-" else float(word) for word in words] for name, *words in fields}


def server(dim, rows, seconds, transport):
    """CPU nanoseconds of the server for a key of a pull, and of a push."""
    flags = [f"--dims={dim}", f"--rows={rows}", f"--seconds={seconds}", f"--transport={transport}", "--threads=1"]
    command = [RELEASE / "gannet", "bench", "--json", "--one-sided=never", *flags]
    report = json.loads(subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL, timeout=TIMEOUT))
    measured = report[transport][f"dim{dim}"]
    return [measured[f"{work}_server_cpu_ms_per_million"] for work in ("pull", "push")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dims", default="1,16,64")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement of a server")
    args = parser.parse_args()
    dims = [int(dim) for dim in args.dims.split(",")]
    nanos = {}
    for _ in range(args.rounds):
        for dim in dims:
            measured = rungs(dim, args.rows)
            for transport in ("shm", "tcp"):
                measured[f"a server over {transport}"] = server(dim, args.rows, args.seconds, transport)
            for name, works in measured.items():
                for work, value in zip(("pull", "push"), works):
                    if value is not None:
                        nanos.setdefault((name, dim, work), []).append(value)
    names = list(dict.fromkeys(name for name, _, _ in nanos))
    columns = [(dim, work) for dim in dims for work in ("pull", "push")]
    print("| | " + " | ".join(f"dim {dim} {work}" for dim, work in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name in names:
        cells = [nanos.get((name, *column)) for column in columns]
        print(f"| {name} | " + " | ".join(f"{statistics.median(cell):.0f}" if cell else "" for cell in cells) + " |")


if __name__ == "__main__":
    main()
