#!/usr/bin/env python3
"""Runs `gannet bench` in turn on memfd and in data folders, or over each driver of tcp. It prints medians as shares
of the limit of the same run, as a markdown table (docs/benchmarks.md). Standard library only.

    cargo build --release
    python3 scripts/bench_tcp.py [--rounds 3] [--dims 1,16,64] [--seconds 3] [--data-dir /dev/shm/gannet-bench] [--keep DIR]
    python3 scripts/bench_tcp.py --io epoll --io uring      # the drivers in turn
    python3 scripts/bench_tcp.py --read DIR        # the table again, from what --keep wrote there

A share is the median of each run's share, never a quotient of medians, because other work on the machine slows both
sides. The lowest and the highest share are in brackets.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 600


def run(o, folder, io):
    command = [o.gannet, "bench", "--json", "--dims", o.dims, "--seconds", o.seconds]
    command += ["--data-dir", folder] if folder else []
    command += ["--io", io] if io else []
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit {done.returncode}: {done.stderr[-2000:]}")
    return {"load": os.getloadavg()[0], **json.loads(done.stdout)}


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def table(answers):
    print("| where | dim | pull M keys/s | share | push M keys/s | share | cycle M keys/s | p50 us | p99 us | bytes a row |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for where, runs in answers.items():
        for dim in runs[0]["tcp"]:
            def all_of(name):
                return [r["tcp"][dim][name] for r in runs]

            def shares(what):
                return [r["tcp"][dim][f"{what}_keys_per_s"] / r["limit"][dim][f"tcp_{what}_keys_per_s"] for r in runs]
            cells = [where, dim.removeprefix("dim")]
            for what in ("pull", "push"):
                cells += [f"{statistics.median(all_of(what + '_keys_per_s')) / 1e6:.1f}", spread(shares(what), ".2f")]
            cells.append(f"{statistics.median(all_of('cycle_keys_per_s')) / 1e6:.1f}")
            cells += [spread(all_of("pull64_us_p50"), ".1f"), f"{statistics.median(all_of('pull64_us_p99')):.0f}"]
            cells.append(f"{statistics.median(all_of('bytes_per_row')):.1f}")
            print("| " + " | ".join(cells) + " |")
    loads = [r["load"] for runs in answers.values() for r in runs if "load" in r]
    if loads:
        print(f"\nload average after a run: {min(loads):.1f} to {max(loads):.1f}")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--dims", default="1,16,64")
    a.add_argument("--seconds", type=float, default=3)
    a.add_argument("--data-dir", action="append", default=[], help="also measure in this folder; may be given twice")
    a.add_argument("--io", action="append", default=[], help="over this driver of tcp; may be given twice")
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    a.add_argument("--keep", type=pathlib.Path, help="write each run's JSON into this folder")
    a.add_argument("--read", type=pathlib.Path, help="measure nothing: read what --keep wrote")
    o = a.parse_args()
    answers = {}
    if o.read:
        for path in sorted(o.read.glob("*.json")):
            answer = json.loads(path.read_text())
            answers.setdefault(answer.get("where", path.stem.rsplit("-", 1)[0]), []).append(answer)
        if not answers:
            a.error(f"{o.read}: no JSON of --keep there")
        return table(answers)
    if not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release, or --gannet PATH")
    for n in range(o.rounds):
        for folder, io in itertools.product([None, *o.data_dir], o.io or [None]):
            where = (folder or "memfd") + (f", {io}" if io else "")
            answer = {"where": where, **run(o, folder, io)}
            answers.setdefault(where, []).append(answer)
            print(f"round {n + 1}, {where}: done, load {answer['load']:.1f}", file=sys.stderr)
            if o.keep:
                o.keep.mkdir(parents=True, exist_ok=True)
                name = where.strip("/").replace("/", "_").replace(", ", "-")
                (o.keep / f"{name}-{n + 1}.json").write_text(json.dumps(answer))
    return table(answers)


if __name__ == "__main__":
    main()
