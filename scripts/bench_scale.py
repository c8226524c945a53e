#!/usr/bin/env python3
"""Measures how cost grows: `gannet bench` over rows, workers and keys a batch, each beside the limit of the same size
and run. It prints markdown tables (docs/benchmarks.md). Standard library only.

    cargo build --release
    python3 scripts/bench_scale.py [--rounds 2] [--dims 1,16] [--seconds 1] [--what rows,workers,batch]

A share is the median of each run's share of the limit. The limit is one thread's gather (pull) or scatter-SGD (push)
over as many rows, and the network. With several workers the limit is still that of one thread. 64,000,000 rows of dim
16 take 6 GB on the server, and as much for the gather.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 1800
SERIES = {
    "rows": [1_000_000, 4_000_000, 16_000_000, 64_000_000],
    "workers": [1, 2, 4],
    "batch": [64, 256, 1024, 4096, 16_384, 65_536, 262_144],
}


def run(o, dim, what, value):
    command = [o.gannet, "bench", "--json", "--dims", dim, "--seconds", o.seconds, f"--{what}", value]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit {done.returncode}: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout)
    tcp, limit = answer["tcp"][f"dim{dim}"], answer["limit"][f"dim{dim}"]
    print(f"{what} {value} dim {dim} load {os.getloadavg()[0]:.1f}: {json.dumps(tcp)}", file=sys.stderr)
    return tcp, limit


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gannet", default=ROOT / "target" / "release" / "gannet")
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--dims", default="1,16")
    arguments.add_argument("--seconds", type=float, default=1)
    arguments.add_argument("--what", default="rows,workers,batch")
    o = arguments.parse_args()
    for what in o.what.split(","):
        print(f"\n| {what} | dim | pull M keys/s | share of the limit | push M keys/s | share | cycle M keys/s | gather M rows/s | 64-key pull p50 us | bytes a row |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for dim in map(int, o.dims.split(",")):
            for value in SERIES[what]:
                runs = [run(o, dim, what, value) for _ in range(o.rounds)]
                median = lambda f: statistics.median(f(t, l) for t, l in runs)
                cells = [
                    f"{value:,}", dim, f"{median(lambda t, l: t['pull_keys_per_s'] / 1e6):.1f}",
                    f"{median(lambda t, l: t['pull_keys_per_s'] / l['tcp_pull_keys_per_s']):.2f}",
                    f"{median(lambda t, l: t['push_keys_per_s'] / 1e6):.1f}",
                    f"{median(lambda t, l: t['push_keys_per_s'] / l['tcp_push_keys_per_s']):.2f}",
                    f"{median(lambda t, l: t['cycle_keys_per_s'] / 1e6):.1f}",
                    f"{median(lambda t, l: l['gather_rows_per_s'] / 1e6):.0f}",
                    f"{median(lambda t, l: t['pull64_us_p50']):.1f}", f"{median(lambda t, l: t['bytes_per_row']):.1f}",
                ]
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
