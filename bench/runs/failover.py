#!/usr/bin/env python3
"""Kills servers for good in the middle of jobs, and measures how long the workers stand still. Standard library only.

    cargo build --release
    python3 bench/runs/failover.py failover [--rounds 10] [--modes asp,ssp:8,bsp] [--lease 2]
    python3 bench/runs/failover.py throughput [--rounds 5]
    python3 bench/runs/failover.py fill [--rounds 5] [--replication sync|async]

failover: a coordinator (`gannet scheduler`), three ps with --backups 1, and two workers that train logistic regression
by splits. At a random moment one ps gets SIGKILL, and is not started again. The workers must end with exit code 0, and
the scheduler must have counted every record once a pass. The stall is the longest time in which the number of rows
whose pushes were acknowledged, over both workers, does not grow. It is read every 20 ms from their metrics. The loss is
compared with that of a job without a kill. scripts/failover/rounds.py does more to jobs, on machines of their own.
throughput: two ps and one worker over tcp on the same data, in turn: without a coordinator, with one and no backup, and
with one backup of each ps, with synchronous and with asynchronous replication. It prints examples/s, their ratio to the
run without a coordinator of the same round, and the CPU seconds of both ps for a million examples.
fill: two ps that are backups of each other, and two workers, on data with millions of keys. One ps gets SIGKILL, the
other takes its place, and the first is started again as its backup. The rates are acknowledged rows/s of both workers:
before the kill, while the other ps is alone, while it fills the backup, and after that. The fill is timed from the
first line of the ps until the coordinator has it as a backup of both places. The longest stall is that in the fill.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "failover"))
from job import LINES, Job, Loopback, Stalls, seconds_of_cpu, write_data  # noqa: E402

PASSES = 40
# Data with many rows: uniform keys.
MANY_LINES, MANY_FIELDS, MANY_KEYS = 300_000, 16, 4_000_000


def write_many(path, seed):
    dice = random.Random(seed)
    with open(path, "w") as out:
        for _ in range(MANY_LINES):
            keys = sorted({dice.randrange(1, MANY_KEYS) for _ in range(MANY_FIELDS)})
            out.write(f"{keys[0] % 2} " + " ".join(f"{key}:1" for key in keys) + "\n")


def started(folder, servers, workers, backups, mode, more=(), lease=2.0, of_servers=(), passes=PASSES):
    """A job whose servers have their backups, and whose workers have begun."""
    job = Job(Loopback(), folder, servers, backups, lease, workers=workers)
    try:
        job.start_coordinator()
        for index in range(servers):
            job.start_server(index, *more, *of_servers)
        if backups:
            job.until_backed(backups)
        for index in range(workers):
            job.start_worker(index, os.path.join(folder, "train.svm"), mode, passes, "--damping", "off", *more)
    except BaseException:
        job.end()
        raise
    return job


def round_of(folder, mode, seed, kill, lease):
    dice = random.Random(seed)
    job = started(folder, 3, 2, 1, mode, lease=lease)
    try:
        time.sleep(1)
        stalls = Stalls(job)
        time.sleep(dice.uniform(0, 1))
        victim = dice.randrange(3)
        if kill:
            assert all(job.is_alive(f"worker{index}") for index in range(2)), "the job ended before the kill"
            job.process(f"ps{victim}").send_signal(signal.SIGKILL)
        codes, reports = job.until_ended()
        stall, loss = stalls.longest(), statistics.mean(report["last_pass_logloss"] for report in reports)
        exact = job.counted_all(LINES * PASSES)
        return {"mode": mode, "victim": victim, "codes": codes, "exact": exact, "stall": stall, "loss": loss}
    finally:
        job.end()


def failover(folder, args):
    for mode in args.modes.split(","):
        alone = round_of(folder, mode, 0, False, args.lease)["loss"]
        rounds = []
        for seed in range(1, args.rounds + 1):
            result = round_of(folder, mode, seed, True, args.lease)
            result["loss"] /= alone
            print(json.dumps(result), flush=True)
            rounds.append(result)
        stalls = sorted(result["stall"] for result in rounds)
        good = sum(result["exact"] and result["codes"] == [0, 0] for result in rounds)
        loss = max(abs(result["loss"] - 1) for result in rounds)
        print(f"{mode}: {good} of {len(rounds)} exact; stall median {statistics.median(stalls):.2f} s, worst "
              f"{stalls[-1]:.2f} s; loss at most {100 * loss:.2f}% off", flush=True)


def throughput(folder, args):
    kinds = {"no coordinator": (None, []), "a coordinator, no backup": (0, []), "sync": (1, [])}
    kinds["async"] = (1, ["--replication", "async"])
    results = {name: [] for name in kinds}
    for _ in range(args.rounds):
        for name, (backups, of_servers) in kinds.items():
            # With a backup, each ps keeps copies of the other's rows beside its own.
            job = started(folder, 2, 1, backups, "asp", ["--transport", "tcp"], args.lease, of_servers)
            try:
                report = job.until_ended()[1][0]
                used = sum(seconds_of_cpu(job.process(f"ps{index}").pid) for index in range(2))
                results[name].append((report["examples_per_second"], used / (LINES * PASSES) * 1e6))
            finally:
                job.end()
        print(json.dumps({name: runs[-1] for name, runs in results.items()}), flush=True)
    for name, runs in results.items():
        rate, used = (statistics.median(run[at] for run in runs) for at in (0, 1))
        ratios = sorted(run[0] / base[0] for run, base in zip(runs, results["no coordinator"]))
        print(f"{name}: {rate:.0f} examples/s, {statistics.median(ratios):.2f} of none ({ratios[0]:.2f} to "
              f"{ratios[-1]:.2f}), {used:.2f} CPU s of both ps for a million examples")


class Rate(threading.Thread):
    """Reads the acknowledged rows of all workers every 20 ms."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job, self.samples, self.over = job, [], threading.Event()
        self.start()

    def run(self):
        while not self.over.is_set():
            now = [self.job.pushed(index) for index in range(self.job.workers)]
            if None not in now:
                self.samples.append((time.monotonic(), sum(now)))
            time.sleep(0.02)

    def end(self):
        self.over.set()
        self.join()

    def between(self, begin, end):
        """Rows/s, and the longest time without a new row."""
        samples = [sample for sample in self.samples if begin <= sample[0] <= end]
        (first, before), (last, behind) = samples[0], samples[-1]
        stall, since, rows = 0.0, first, before
        for at, now in samples:
            if now != rows:
                stall, since, rows = max(stall, at - since), at, now
        return (behind - before) / (last - first), max(stall, last - since)


def fill_round(folder, args, seed):
    job = started(folder, 2, 2, 1, "asp", (), args.lease, ["--replication", args.replication], 1000)
    rate, victim = Rate(job), seed % 2
    try:
        # All rows are there then.
        time.sleep(args.warm)
        begin = time.monotonic()
        time.sleep(4)
        kill = time.monotonic()
        job.process(f"ps{victim}").send_signal(signal.SIGKILL)
        serves = lambda place: place.get("state") == "serves" and place["owner"] == job.hosts[1 - victim]
        job.until("owner of both places", lambda: [serves(place) for place in job.places()] == [True, True])
        taken = time.monotonic()
        time.sleep(4)
        job.start_server(victim, "--replication", args.replication)
        started_at = time.monotonic()
        job.until_backed(1)
        filled = time.monotonic()
        time.sleep(4)
        end = time.monotonic()
        assert all(job.is_alive(name) for name in job.processes), "a process has ended"
    finally:
        rate.end()
        job.end()
    phases = {"before": (begin, kill), "alone": (taken + 0.5, started_at), "filling": (started_at, filled)}
    phases["after"] = (filled, end)
    return {"fill s": filled - started_at, **{name: rate.between(*phase) for name, phase in phases.items()}}


def fill(folder, args):
    rounds = []
    for seed in range(args.rounds):
        rounds.append(fill_round(folder, args, seed))
        print(json.dumps(rounds[-1]), flush=True)
    median = lambda of: statistics.median(of(result) for result in rounds)
    ratio = lambda name: f"{name} {median(lambda result: result[name][0] / result['before'][0]):.2f}"
    print(f"{args.replication}: fill {median(lambda result: result['fill s']):.2f} s; rows/s before the kill "
          f"{median(lambda result: result['before'][0]):.0f}, and of that: {ratio('alone')}, {ratio('filling')}, "
          f"{ratio('after')}; longest stall while filling: median {median(lambda result: result['filling'][1]):.2f} s, "
          f"worst {max(result['filling'][1] for result in rounds):.2f} s; before the kill: "
          f"{median(lambda result: result['before'][1]):.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["failover", "throughput", "fill"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", default="asp,ssp:8,bsp")
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--replication", choices=["sync", "async"], default="sync", help="of fill")
    parser.add_argument("--warm", type=float, default=15.0, help="fill: seconds in which the workers make the rows")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (write_many if args.what == "fill" else write_data)(os.path.join(folder, "train.svm"), 1)
        {"failover": failover, "throughput": throughput, "fill": fill}[args.what](folder, args)


if __name__ == "__main__":
    main()
