#!/usr/bin/env python3
"""Kills servers for good in the middle of jobs, and measures how long the workers stand still. Standard library only.

    cargo build --release
    python3 scripts/bench_failover.py failover [--rounds 10] [--modes asp,ssp:8,bsp] [--lease 2]
    python3 scripts/bench_failover.py throughput [--rounds 5]

failover: a coordinator (`gannet scheduler`), three ps with --backups 1, and two workers that train logistic regression
by splits. At a random moment one ps gets SIGKILL, and is not started again. The workers must end with exit code 0, and
the scheduler must have counted every record once a pass. The stall is the longest time in which the number of rows
whose pushes were acknowledged, over both workers, does not grow. It is read every 20 ms from their metrics. The loss is
compared with that of a job without a kill.
throughput: two ps and one worker over tcp on the same data, in turn: without a coordinator, with one and no backup, and
with one backup of each ps. It prints examples/s and the CPU seconds of both ps for a million examples.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
GANNET = ROOT / "target" / "release" / "gannet"
LINES, FIELDS, KEYS, PASSES = 200_000, 12, 50_000, 40
TICKS = os.sysconf("SC_CLK_TCK")


def write_data(path, seed):
    dice = random.Random(seed)
    weights = {key: dice.gauss(0, 1) for key in range(1, 200)}
    with open(path, "w") as out:
        for _ in range(LINES):
            keys = sorted({min(KEYS, int(dice.random() ** -1.1) + 3 * field) for field in range(FIELDS)})
            score = sum(weights.get(key, 0) for key in keys) / 3
            out.write(f"{int(score + dice.gauss(0, 1) > 0)} " + " ".join(f"{key}:1" for key in keys) + "\n")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def cpu(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Job:
    """The processes of a job."""

    def __init__(self, data, servers, workers, backups, mode, more=(), lease=2.0):
        self.log = tempfile.TemporaryFile()
        self.coordinator = self.start("scheduler", "--listen", f"127.0.0.1:{free_port()}")
        at = self.coordinator.stdout.readline().split()[4]
        hosts = sorted(f"127.0.0.1:{free_port()}" for _ in range(servers))
        self.hosts, self.at, self.data = hosts, at, data
        job = ["--ps-hosts", ",".join(hosts), "--worker-hosts", ",".join("a:1" for _ in range(workers)), *more]
        self.job = job + (["--coordinator", at, "--backups", str(backups)] if backups is not None else [])
        lease = ["--lease", str(lease)] if backups is not None else []
        self.servers = []
        for index in range(servers):
            args = ["train", "--job-name", "ps", "--task-index", str(index), "--threads", "1", *self.job, *lease]
            self.servers.append(self.start(*args))
        for server in self.servers:
            server.stdout.readline()
        self.mode, self.workers, self.ports = mode, [], []
        self.until_backed(backups or 0)
        for index in range(workers):
            self.worker(index)

    def start(self, *args):
        return subprocess.Popen([GANNET, *args], stdout=subprocess.PIPE, stderr=self.log, text=True)

    def worker(self, index):
        port = free_port()
        args = ["train", self.data, "--job-name", "worker", "--task-index", str(index), *self.job, "--json"]
        args += ["--tasks", "on", "--sync", self.mode, "--epochs", str(PASSES), "--batch", "256"]
        args += ["--metrics", f"127.0.0.1:{port}", "--peer-timeout", "60", "--damping", "off"]
        self.workers.append(self.start(*args))
        self.ports.append(port)

    def status(self):
        args = [GANNET, "status", "--ps-hosts", ",".join(self.hosts), "--json", "--peer-timeout", "2"]
        args += ["--coordinator", self.at] if "--coordinator" in self.job else []
        return json.loads(subprocess.run(args, stdout=subprocess.PIPE, stderr=self.log, text=True).stdout)

    def until_backed(self, backups):
        end = time.monotonic() + 60
        while backups and min(len((place or {}).get("backups", [])) for place in self.status()["places"]) < backups:
            assert time.monotonic() < end, "no backups after 60 s"
            time.sleep(0.1)

    def pushed(self, index):
        try:
            page = urllib.request.urlopen(f"http://127.0.0.1:{self.ports[index]}/metrics", timeout=2).read().decode()
        except OSError:
            return None
        name = "gannet_worker_pushed_rows_total"
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))

    def end(self):
        for process in [*self.servers, *self.workers, self.coordinator]:
            if process.poll() is None:
                process.kill()
            process.wait()


def watch(job, stalls, over):
    """The longest time in which neither worker's acknowledged rows grow."""
    last, since = None, time.monotonic()
    while not over.is_set():
        now = [job.pushed(index) for index in range(len(job.workers))]
        if None in now:
            return
        if now != last:
            stalls.append(time.monotonic() - since)
            last, since = now, time.monotonic()
        time.sleep(0.02)


def round_of(data, mode, seed, kill, lease):
    dice = random.Random(seed)
    job = Job(data, 3, 2, 1, mode, lease=lease)
    try:
        time.sleep(1)
        stalls, over = [], threading.Event()
        watcher = threading.Thread(target=watch, args=(job, stalls, over))
        watcher.start()
        time.sleep(dice.uniform(0, 1))
        victim = dice.randrange(3)
        if kill:
            assert all(worker.poll() is None for worker in job.workers), "the job ended before the kill"
            job.servers[victim].send_signal(signal.SIGKILL)
        reports = [worker.communicate(timeout=300)[0] for worker in job.workers]
        over.set()
        watcher.join()
        codes = [worker.returncode for worker in job.workers]
        status = job.status()["job"]
        losses = [json.loads(report)["last_pass_logloss"] for report in reports if report]
        exact = status["tasks_done"] == status["tasks"] and status["examples"] == LINES * PASSES
        stall = max(stalls[1:], default=None)
        loss = statistics.mean(losses)
        return {"mode": mode, "victim": victim, "codes": codes, "exact": exact, "stall": stall, "loss": loss}
    finally:
        job.end()


def failover(data, args):
    for mode in args.modes.split(","):
        alone = round_of(data, mode, 0, False, args.lease)["loss"]
        rounds = []
        for seed in range(1, args.rounds + 1):
            result = round_of(data, mode, seed, True, args.lease)
            result["loss"] /= alone
            print(json.dumps(result), flush=True)
            rounds.append(result)
        stalls = sorted(result["stall"] for result in rounds)
        good = sum(result["exact"] and result["codes"] == [0, 0] for result in rounds)
        loss = max(abs(result["loss"] - 1) for result in rounds)
        print(f"{mode}: {good} of {len(rounds)} exact; stall median {statistics.median(stalls):.2f} s, worst "
              f"{stalls[-1]:.2f} s; loss at most {100 * loss:.2f}% off", flush=True)


def throughput(data, args):
    results = {None: [], 0: [], 1: []}
    for _ in range(args.rounds):
        for backups in results:
            # With a backup, each ps keeps copies of the other's rows beside its own.
            job = Job(data, 2, 1, backups, "asp", ["--transport", "tcp"])
            try:
                report = json.loads(job.workers[0].communicate(timeout=300)[0])
                used = sum(cpu(server.pid) for server in job.servers)
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
        data = os.path.join(folder, "train.svm")
        write_data(data, 1)
        (failover if args.what == "failover" else throughput)(data, args)


if __name__ == "__main__":
    main()
