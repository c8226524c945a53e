#!/usr/bin/env python3
"""Rounds of jobs on machines of their own, with a fault in the middle of each. Needs root. Standard library only.

    cargo build --release -p gannet-cli --features etcd
    python3 scripts/failover/rounds.py --rounds 50 [--from 1] [--logs DIR]
    python3 scripts/failover/rounds.py --seed 7         # one round again
    python3 scripts/failover/rounds.py --fault power --rounds 6

A machine is a network namespace (net.py). A job has three ps, two workers, and a coordinator: a `gannet
scheduler --data-dir`, or three members of etcd. The seed of a round draws what the job does, and the fault:
- kill: SIGKILL for a server, for good.
- sleep: SIGSTOP for a server, for longer than its lease, then SIGCONT.
- cut: a server's links lose what it sends, what it should get, or both: to all, to the coordinator, to a server, or to
  a worker.
- two: two of these, with time to recover between them. The first victim may be started again.
- leader: SIGKILL for the leader of etcd, and in half of the rounds for a server soon after.
- disk: the disk of the scheduler's --data-dir is full for a while. In half of the rounds a server dies meanwhile.
- memory: a backup reaches its --memory-limit, and must leave the set of backups.
Two faults are drawn by no seed; --fault names them. Each ps has a --data-dir then:
- power: SIGKILL for all servers and the scheduler at once. All are started again with the same flags.
- full: the disk of a server's --data-dir is full for a while.

After each round every worker must have ended with exit code 0. `gannet status` must count every record once a pass. A
server that lost its place must have ended with exit code 1, and the others must live. Jobs of the kind `count` learn
nothing, so that the weight of each key counts its records: each row of the saved model must be exact. For the other
kinds the log loss of the saved model must be within 1% of that of an undisturbed job. The stall is the longest time in
which no worker's acknowledged rows grew. Its goal is a median of 3 s and a worst of 6 s. Rounds whose stall depends on
how long a fault lasts, and those that kill the leader of etcd, are counted apart.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from faults import Faults
from job import GANNET, KEYS, LINES, Job, Stalls, write_data
from net import Etcd, Machines, isolated, run

FAULTS = ("kill", "sleep", "cut", "two", "leader", "cut", "disk", "kill", "memory", "cut")
MODES = ("asp", "ssp:8", "bsp")
WORKS = [("count", mode) for mode in MODES] + [("learn", mode) for mode in MODES] + 2 * [("fm", "ssp:8")]
# Faults of servers with folders.
WITH_FOLDERS = ("power", "full")
PASSES = {"count": 50, "learn": 50, "fm": 25}
# Of rounds with two faults.
PASSES_OF_TWO = 80
SERVERS, WORKERS = 3, 2
MEMBERS = ["etcd0", "etcd1", "etcd2"]
# At this rate nothing is learned: the probability stays one half, and each record adds half of it to its keys.
RATE = 2.0**-100
COUNT = ["--optimizer", "sgd", "--push", "gradient", "--reduce", "sum", "--alpha", repr(RATE), "--damping", "off"]
INTERCEPT = 2**64 - 1
LOSS_WITHIN = 0.01
STALL_GOAL = (3.0, 6.0)
LOG_BYTES = 30_000


def plan(seed, fault):
    """What a round does, drawn from its seed. `fault`: its name, if the seed is not to draw it."""
    dice = random.Random(seed)
    fault = fault or FAULTS[seed % len(FAULTS)]
    work, mode = dice.choice(WORKS)
    has_etcd = dice.random() < 0.4
    drawn = {"seed": seed, "fault": fault, "work": work, "mode": mode, "backups": 2 if dice.random() < 0.3 else 1}
    drawn["etcd"] = fault == "leader" or has_etcd and fault != "disk"
    if fault in ("memory", "two", "full"):
        drawn |= {"work": "count", "mode": dice.choice(MODES)}
    if fault == "memory":
        # So that the victim keeps copies of one place, whose size is known.
        drawn["backups"] = 1
    return drawn


class Counting:
    """The data of jobs that count, and how many records have each key. `more`: each record has a key of its own."""

    def __init__(self, data, positive, more):
        self.positive, self.wanted = positive, collections.Counter()
        with open(data) as lines, open(positive, "w") as out:
            for number, line in enumerate(lines):
                features = line.split()[1:] + [f"{KEYS + 1 + number}:1"] * more
                self.wanted.update(int(feature.split(":")[0]) for feature in features)
                out.write("1 " + " ".join(features) + "\n")
        self.wanted[INTERCEPT] = LINES

    def wrong(self, model, passes):
        """What is wrong with the rows of a saved model, as text. Empty: nothing."""
        rows = list(saved_rows(model))
        counts = {key: weight / RATE * 2 for key, weight in rows}
        if len(counts) < len(rows):
            return f"{len(rows)} rows are saved, of {len(counts)} keys"
        wanted = {key: count * passes for key, count in self.wanted.items()}
        wrong = [key for key in wanted.keys() | counts.keys() if counts.get(key) != wanted.get(key)]
        text = ", ".join(f"{key}: {counts.get(key)} instead of {wanted.get(key)}" for key in wrong[:3])
        return f"{len(wrong)} of {len(wanted)} rows are wrong ({text})" if wrong else ""


def saved_rows(model):
    """Keys and weights of a model folder (docs/checkpoint.md)."""
    for path in pathlib.Path(model).glob("rows-*"):
        data = path.read_bytes()
        rows, floats = struct.unpack_from("<QI", data, 16)
        values = struct.unpack_from(f"<{rows * floats}f", data, 32 + 8 * rows)
        yield from zip(struct.unpack_from(f"<{rows}Q", data, 32), values[::floats])


class Round:
    """A job, what happens to it, and what came out."""

    def __init__(self, drawn, data, counting, folder):
        self.plan, self.data, self.folder = drawn, data, pathlib.Path(folder)
        self.counting = counting[drawn["fault"] in ("memory", "full")]
        self.passes = PASSES_OF_TWO if drawn["fault"] == "two" else PASSES[drawn["work"]]
        self.job = self.etcd = self.faults = None
        names = [f"ps{index}" for index in range(SERVERS)] + [f"worker{index}" for index in range(WORKERS)]
        self.machines = Machines(names + (MEMBERS if drawn["etcd"] else ["coordinator"]))

    def start(self):
        """The coordinator and the servers."""
        if self.plan["etcd"]:
            self.etcd = Etcd(self.machines, self.folder, MEMBERS)
        coordinator = self.etcd and self.etcd.coordinator()
        self.job = Job(self.machines, self.folder, SERVERS, self.plan["backups"], etcd=coordinator)
        if self.etcd:
            self.job.until("leader of etcd", self.etcd.leader, 30)
        else:
            self.faults.make_disk()
            self.job.start_coordinator("--data-dir", str(self.faults.disk))
        for index in range(SERVERS):
            self.job.start_server(index, *self.faults.folder(index))
        self.job.until_backed(self.plan["backups"])
        self.faults.before()

    def train(self):
        """Starts the workers, does the fault, and waits for the workers. Returns the longest stall."""
        positive = self.counting.positive if self.plan["work"] == "count" else self.data
        how = {"count": COUNT, "learn": ["--damping", "off"], "fm": ["--model", "fm"]}[self.plan["work"]]
        how = [*how, "--out", str(self.folder / "model")]
        for index in range(WORKERS):
            self.job.start_worker(index, positive, self.plan["mode"], self.passes, *how)
        self.job.until("pushes of both workers", self.has_begun, 60)
        stalls = Stalls(self.job)
        self.faults.happen()
        self.codes, _ = self.job.until_ended()
        self.faults.end()
        return stalls.longest()

    def has_begun(self):
        """Whether both workers have pushed."""
        self.faults.must_train()
        return all(self.job.pushed(index) for index in range(WORKERS))

    def problems(self):
        """What went wrong, as texts."""
        found = [f"the workers ended with {self.codes}"] if self.codes != [0] * WORKERS else []
        if not self.job.counted_all(LINES * self.passes):
            found.append(f"the scheduler counted {self.job.status().get('job')}")
        if self.plan["work"] == "count" and (wrong := self.counting.wrong(self.folder / "model", self.passes)):
            found.append(wrong)
        found += self.faults.problems()
        for log in self.folder.glob("*.log"):
            if "panicked" in log.read_text(errors="replace"):
                found.append(f"a thread panicked: {log.name}")
        return found

    def loss(self):
        """The log loss of the saved model."""
        if self.plan["work"] == "count":
            return None
        args = [GANNET, "predict", "--model", self.folder / "model", self.data, "--json"]
        asked = subprocess.run(args, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
        return json.loads(asked.stdout)["logloss"]

    def end(self):
        if self.job:
            self.job.end()
        if self.etcd:
            self.etcd.end()
        self.machines.remove()
        if self.faults:
            self.faults.remove_disks()


def happened(drawn, data, counting, logs):
    """Runs a round. Returns its result; what went wrong is in `problems`."""
    with tempfile.TemporaryDirectory(dir=pathlib.Path(data).parent) as folder:
        this = Round(drawn, data, counting, folder)
        this.faults = Faults(this)
        result = dict(drawn)
        try:
            begun = time.monotonic()
            this.start()
            result["stall"] = this.train()
            result["problems"] = this.problems()
            result["loss"] = this.loss()
            result["seconds"], result["load"] = round(time.monotonic() - begun, 1), os.getloadavg()[0]
        except Exception as error:
            result.setdefault("problems", []).append(f"{type(error).__name__}: {error}")
        finally:
            result |= {"happened": this.faults.told, "apart": this.faults.is_apart}
            try:
                if result.get("problems"):
                    print(told(this), flush=True)
            finally:
                this.end()
                if logs:
                    shutil.copytree(folder, pathlib.Path(logs) / f"seed-{drawn['seed']}", dirs_exist_ok=True,
                                    ignore=lambda _, names: [name for name in names if not name.endswith(".log")])
        return result


def told(this):
    """What all processes of a round have logged, and what the job's status is."""
    try:
        status = this.job.status() if this.job else {}
    except Exception as error:
        status = str(error)
    texts = [f"==== status\n{json.dumps(status)}"]
    for log in sorted(this.folder.glob("*.log")):
        text = log.read_text(errors="replace")
        texts.append(f"==== {log.name}, {len(text)} bytes\n{text[-LOG_BYTES:]}")
    return "\n".join(texts)


class Results:
    """What came out of all rounds."""

    def __init__(self):
        self.rounds, self.alone = [], {}

    def add(self, result, alone):
        """Adds a round, and compares its loss with that of an undisturbed job."""
        if result.get("loss") is not None and alone is not None:
            result["off"] = result["loss"] / alone - 1
            if not abs(result["off"]) <= LOSS_WITHIN:
                result["problems"].append(f"the loss is {result['loss']}, and {alone} without a fault")
        self.rounds.append(result)
        print(json.dumps(result), flush=True)

    def undisturbed(self, drawn, data, counting, logs):
        """The loss of an undisturbed job of the same kind, which runs once. None: the kind has none."""
        kind = (drawn["work"], drawn["mode"])
        if kind[0] != "count" and kind not in self.alone:
            none = {"seed": f"none-{'-'.join(kind)}", "fault": None, "work": kind[0], "mode": kind[1]}
            alone = happened(none | {"etcd": False, "backups": 1}, data, counting, logs)
            print(json.dumps(alone), flush=True)
            if alone["problems"]:
                raise RuntimeError(f"the undisturbed job failed: {alone['problems']}")
            self.alone[kind] = alone["loss"]
        return self.alone.get(kind)

    def failed(self):
        return [result for result in self.rounds if result["problems"]]

    def table(self):
        """A line for each fault, as in docs/benchmarks.md."""
        groups = collections.defaultdict(list)
        for result in self.rounds:
            groups[(result["apart"] or "", result["fault"])].append(result)
        print("| fault | rounds | good | rows exact | loss, furthest off | stall, median | stall, worst | apart |")
        print("|---|---|---|---|---|---|---|---|")
        for (apart, fault), group in sorted(groups.items()):
            print(f"| {fault} | {line(group)} | {apart} |")
        goal = [result for result in self.rounds if not result["apart"]]
        print(f"| all but those apart | {line(goal)} | |")
        stalls = [result["stall"] for result in goal if result.get("stall") is not None]
        if stalls:
            reached = statistics.median(stalls) <= STALL_GOAL[0] and max(stalls) <= STALL_GOAL[1]
            print(f"stall: the goal of a median of 3 s and a worst of 6 s is {'reached' if reached else 'MISSED'}")


def line(group):
    good = sum(not result["problems"] for result in group)
    counts = [result for result in group if result["work"] == "count"]
    exact = sum(not result["problems"] for result in counts)
    off = max((abs(result["off"]) for result in group if "off" in result), default=math.nan)
    stalls = [result["stall"] for result in group if result.get("stall") is not None] or [math.nan]
    return (f"{len(group)} | {good} | {exact} of {len(counts)} | {100 * off:.2f}% | {statistics.median(stalls):.2f} s "
            f"| {max(stalls):.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="run the round of this seed alone")
    parser.add_argument("--fault", choices=sorted({*FAULTS, *WITH_FOLDERS}), help="the fault of all rounds")
    parser.add_argument("--logs", help="a folder for the logs of all processes of all rounds")
    args = parser.parse_args()
    missing = [name for name in ("ip", "unshare", "setpriv", "etcd") if not shutil.which(name)]
    if missing or not GANNET.exists():
        sys.exit(f"{', '.join(missing) or GANNET} is missing: this needs iproute2, util-linux, etcd-server, and gannet "
                 "built with `cargo build --release -p gannet-cli --features etcd`")
    isolated()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as folder:
        run(f"mount -t tmpfs failover {folder}")
        try:
            sys.exit(rounds(args, folder))
        finally:
            run(f"umount --lazy {folder}")


def rounds(args, folder):
    """Runs the rounds. Returns the exit code."""
    os.environ.setdefault("GANNET_LOG", "warn")
    data = os.path.join(folder, "train.svm")
    write_data(data, 1)
    results = Results()
    counting = [Counting(data, os.path.join(folder, f"count{more}.svm"), more) for more in (False, True)]
    try:
        for seed in [args.seed] if args.seed is not None else range(args.first, args.first + args.rounds):
            drawn = plan(seed, args.fault)
            alone = results.undisturbed(drawn, data, counting, args.logs)
            results.add(happened(drawn, data, counting, args.logs), alone)
    finally:
        results.table()
    for result in results.failed():
        print(f"FAILED: seed {result['seed']}, {result['fault']}: {'; '.join(result['problems'])}")
    return 1 if results.failed() else 0


if __name__ == "__main__":
    main()
