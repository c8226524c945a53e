#!/usr/bin/env python3
"""Where `gannet train --threads N` saturates: measures what each stage of a training costs, and simulates N threads.

A training in one process is a pipeline of threads. One reads lines, some parse them, one makes batches and finds their
rows, and one learns. Between them are queues of a few batches. The script runs a real training and takes the CPU
time of each thread from /proc. It then simulates machines with more cores. Threads that are ready share the cores
alike. Service times vary by an eighth, at random from a fixed seed. Memory bandwidth and caches are not simulated.

    python3 scripts/scaling_model.py target/release/gannet DATA [--model fm] [--cores 2,4,8,16]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# As in train/src/limits.rs: batches between the maker and the learner.
BATCH_QUEUE = 4
STAGES = {"gannet-lines": "lines", "gannet-parser": "parser", "gannet-parse": "maker"}


def cpu_seconds(process: int, seen: dict[int, tuple[str, float]]) -> None:
    """Notes the name and the CPU seconds of each thread that lives."""
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            # Nanoseconds on a core, nanoseconds ready, turns.
            running = int((task / "schedstat").read_text().split()[0]) / 1e9
            name = (task / "comm").read_text().strip()
        except (OSError, IndexError):
            continue
        seen[int(task.name)] = (STAGES.get(name, "learner"), running)


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Microseconds of CPU of each stage for an example, from a training with two parsers."""
    words = [args.gannet, "train", args.data, "--model", args.model, "--threads", "3", "--epochs", str(args.epochs)]
    training = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    seen: dict[int, tuple[str, float]] = {}
    while training.poll() is None:
        try:
            cpu_seconds(training.pid, seen)
        except OSError:
            break
        time.sleep(0.005)
    report = training.communicate()[0]
    found = re.search(r"(\d+) examples in ([\d.]+) s", report)
    if training.returncode != 0 or not found:
        sys.exit(f"the training failed with code {training.returncode}: run it alone to see why: {' '.join(words)}")
    stages: dict[str, float] = dict.fromkeys(("lines", "parser", "maker", "learner"), 0.0)
    for stage, seconds in seen.values():
        stages[stage] += seconds
    examples = int(found[1])
    costs = {stage: seconds / examples * 1e6 for stage, seconds in stages.items()}
    print(f"{examples} examples, {examples / float(found[2]):,.0f} examples/s on {os.cpu_count()} cores, 3 threads")
    return costs


@dataclass
class Stage:
    """A thread. It takes batches from the queue before it, and puts them into the queue behind it."""

    cost: float
    before: list[int] | None
    behind: list[int]
    room: int
    left: float | None = None
    batch: int = 0
    # A batch that waits for room in the queue behind.
    holds: int | None = None


def simulate(costs: dict[str, float], threads: int, cores: int, batches: int = 3000) -> float:
    """Batches a second. The costs are microseconds a batch."""
    chance = random.Random(1)
    parsers = threads - 1 if threads > 2 else 0
    stages: list[Stage] = []
    ready: list[int] = []
    lines: list[list[int]] = [[] for _ in range(parsers)]
    parsed: list[list[int]] = [[] for _ in range(parsers)]
    made = {"next": 0, "cut": 0, "learned": 0}
    if parsers:
        cutter = Stage(costs["lines"], None, [], 1)
        stages.append(cutter)
        stages += [Stage(costs["parser"], lines[at], parsed[at], 1) for at in range(parsers)]
        maker = Stage(costs["maker"], [], ready, BATCH_QUEUE)
    else:
        maker = Stage(costs["lines"] + costs["parser"] + costs["maker"], None, ready, BATCH_QUEUE)
    learner = Stage(costs["learner"], ready, [], 1 << 60)
    stages += [maker, learner]

    def queue_behind(stage: Stage, batch: int) -> list[int]:
        return lines[batch % parsers] if parsers and stage is stages[0] else stage.behind

    def take(stage: Stage) -> int | None:
        if stage is maker and parsers:
            queue = parsed[made["next"] % parsers]
            if not queue:
                return None
            made["next"] += 1
            return queue.pop(0)
        if stage.before is None:
            made["cut"] += 1
            return made["cut"] - 1
        return stage.before.pop(0) if stage.before else None

    now = 0.0
    while made["learned"] < batches:
        moved = True
        while moved:
            moved = False
            for stage in stages:
                if stage.holds is not None and len(queue_behind(stage, stage.holds)) < stage.room:
                    queue_behind(stage, stage.holds).append(stage.holds)
                    stage.holds, moved = None, True
                if stage.left is None and stage.holds is None:
                    batch = take(stage)
                    if batch is not None:
                        stage.batch, stage.left, moved = batch, stage.cost * chance.uniform(0.875, 1.125), True
        busy = [stage for stage in stages if stage.left is not None]
        share = min(1.0, cores / len(busy))
        step = min(stage.left or 0.0 for stage in busy) / share
        now += step
        for stage in busy:
            stage.left = (stage.left or 0.0) - step * share
            if stage.left <= 1e-9:
                stage.left, stage.holds = None, stage.batch
                if stage is learner:
                    stage.holds = None
                    made["learned"] += 1
    return batches / now * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gannet", help="the command")
    parser.add_argument("data", help="a data file that takes a second or more to train")
    parser.add_argument("--model", default="lr")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--cores", default="2,4,8,16", help="cores of the simulated machines")
    args = parser.parse_args()
    costs = measure(args)
    print("us of CPU for an example: " + ", ".join(f"{stage} {cost:.3f}" for stage, cost in costs.items()))
    all_cores = [int(cores) for cores in args.cores.split(",")]
    print("| threads | " + " | ".join(f"{cores} cores" for cores in all_cores) + " |")
    print("|---" * (len(all_cores) + 1) + "|")
    batch = {stage: cost * 256 for stage, cost in costs.items()}
    for threads in (1, 2, 3, 4, 6, 8, 12, 16):
        if threads == 1:
            rates = [1e6 / sum(costs.values())] * len(all_cores)
        else:
            rates = [simulate(batch, threads, cores) * 256 for cores in all_cores]
        print(f"| {threads} | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")


if __name__ == "__main__":
    main()
