#!/usr/bin/env python3
"""Kills servers for good in the middle of jobs, and measures how long the workers stand still. Standard library only.

    cargo build --release
    python3 scripts/bench_failover.py failover [--rounds 10] [--modes asp,ssp:8,bsp] [--lease 2]
    python3 scripts/bench_failover.py throughput [--rounds 5]

failover: a coordinator (`gannet scheduler`), three ps with --backups 1, and two workers that train logistic regression
by splits. At a random moment one ps gets SIGKILL, and is not started again. The workers must end with exit code 0, and
the scheduler must have counted every record once a pass. The stall is the longest time in which the number of rows
whose pushes were acknowledged, over both workers, does not grow. It is read every 20 ms from their metrics. The loss is
compared with that of a job without a kill. scripts/failover_rounds.py does more to jobs, on machines of their own.
throughput: two ps and one worker over tcp on the same data, in turn: without a coordinator, with one and no backup, and
with one backup of each ps. It prints examples/s and the CPU seconds of both ps for a million examples.
"""
import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import time

from failover_job import LINES, Job, Loopback, Stalls, seconds_of_cpu, write_data

PASSES = 40


def started(folder, servers, workers, backups, mode, more=(), lease=2.0):
    """A job whose servers have their backups, and whose workers have begun."""
    job = Job(Loopback(), folder, servers, backups, lease, workers=workers)
    try:
        job.start_coordinator()
        for index in range(servers):
            job.start_server(index, *more)
        if backups:
            job.until_backed(backups)
        for index in range(workers):
            job.start_worker(index, os.path.join(folder, "train.svm"), mode, PASSES, "--damping", "off", *more)
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
    results = {None: [], 0: [], 1: []}
    for _ in range(args.rounds):
        for backups in results:
            # With a backup, each ps keeps copies of the other's rows beside its own.
            job = started(folder, 2, 1, backups, "asp", ["--transport", "tcp"])
            try:
                report = job.until_ended()[1][0]
                used = sum(seconds_of_cpu(job.process(f"ps{index}").pid) for index in range(2))
                results[backups].append((report["examples_per_second"], used / (LINES * PASSES) * 1e6))
            finally:
                job.end()
    base = statistics.median(rate for rate, _ in results[None])
    for backups, runs in results.items():
        rate, used = (statistics.median(run[at] for run in runs) for at in (0, 1))
        name = "no coordinator" if backups is None else f"{backups} backups"
        print(f"{name}: {rate:.0f} examples/s ({rate / base:.2f}), {used:.2f} CPU s of both ps for a million examples")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["failover", "throughput"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", default="asp,ssp:8,bsp")
    parser.add_argument("--lease", type=float, default=2.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_data(os.path.join(folder, "train.svm"), 1)
        (failover if args.what == "failover" else throughput)(folder, args)


if __name__ == "__main__":
    main()
