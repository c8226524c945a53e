#!/usr/bin/env python3
"""Runs `gannet bench` over shared memory and over tcp in turn. It prints medians of keys a second, their ratios round by
round, and the CPU time of both processes, as a markdown table (docs/benchmarks.md). Standard library only.

    cargo build --release -p gannet-cli
    python3 bench/runs/transports.py [--rounds 5] [--dims 1,16,64] [--workers 1,2] [--seconds 1]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKS = ("pull", "push", "cycle")
TIMEOUT = 900


def measure(o, transport, workers):
    words = [o.gannet, "bench", "--json", f"--dims={o.dims}", f"--workers={workers}", f"--seconds={o.seconds}"]
    done = subprocess.run([*words, f"--transport={transport}"], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        sys.exit(f"gannet bench --transport {transport}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)[transport]


def row(workers, dim, work, rounds):
    rates = {t: [answer[dim][f"{work}_keys_per_s"] for answer in answers] for t, answers in rounds.items()}
    cost = {
        t: statistics.median(
            sum(answer[dim][f"{work}_{process}_cpu_ms_per_million"] for process in ("server", "worker"))
            for answer in answers
        )
        for t, answers in rounds.items()
    }
    ratios = [shm / tcp for shm, tcp in zip(rates["shm"], rates["tcp"], strict=True)]
    cells = [workers, dim.removeprefix("dim"), work]
    cells += [f"{statistics.median(rates[t]) / 1e6:.1f}" for t in ("tcp", "shm")]
    cells += [f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"]
    cells += [f"{cost[t]:.0f}" for t in ("tcp", "shm")]
    shares = [answer[dim].get(f"{work}_one_sided") for answer in rounds["shm"]]
    cells += ["" if work == "push" else f"{statistics.median(shares):.0%}"]
    print("| " + " | ".join(map(str, cells)) + " |")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--dims", default="1,16,64")
    a.add_argument("--workers", default="1,2", help="numbers of worker processes")
    a.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    o = a.parse_args()
    if not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release -p gannet-cli, or --gannet PATH")
    print("| workers | dim | work | tcp M keys/s | shm M keys/s | shm / tcp | tcp CPU ms | shm CPU ms | rows read |")
    print("|---|---|---|---|---|---|---|---|---|")
    for workers in o.workers.split(","):
        rounds = {"tcp": [], "shm": []}
        for number in range(o.rounds):
            for transport, answers in rounds.items():
                answers.append(measure(o, transport, workers))
            print(f"round {number + 1} with {workers} workers: done", file=sys.stderr)
        for dim in (f"dim{dim}" for dim in o.dims.split(",")):
            for work in WORKS:
                row(workers, dim, work, rounds)


if __name__ == "__main__":
    main()
