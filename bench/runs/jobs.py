#!/usr/bin/env python3
"""Compares jobs of several workers on one machine (docs/benchmarks.md). Standard library only.

    cargo build --release
    python3 bench/runs/jobs.py workers --data criteo.svm [--workers 1,2,4,8] [--rounds 2]
    python3 bench/runs/jobs.py tasks --data criteo.svm [--epochs 1] [--rounds 5]
    python3 bench/runs/jobs.py slow --data criteo.svm --test held-out.svm [--seconds 20] [--factor 5] [--rounds 2]

workers: one server and 1 to 8 workers over tcp; the scheduler hands out splits (--tasks on). It measures the server's
CPU time for each row that it answers or applies, bytes of payload an example, and the workers' CPU time an example.
tasks: one server and 2 workers over tcp, with fixed shares (--tasks off) and with splits (on) in turn. It measures the
same numbers.
slow: two workers under bsp, ssp:8 and asp, each for SECONDS seconds over fixed shares. The second worker runs only
1/FACTOR of the time (SIGSTOP and SIGCONT, 50 ms a turn). It measures examples/s, and the log loss on the test set of
the model at the end.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
LIMIT = 900


def cpu(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Server:
    """A server in memory, with /metrics."""

    def __init__(self, gannet, threads):
        command = [gannet, "server", "--listen", "127.0.0.1:0", "--threads", str(threads), "--transport", "tcp"]
        port = free_port()
        command += ["--metrics", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().split()[4]
        self.metrics = f"http://127.0.0.1:{port}/metrics"

    def sum(self, *names):
        text = urllib.request.urlopen(self.metrics, timeout=10).read().decode()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return sum(float(value) for name, value in lines if name.split("{")[0] in names)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def worker(o, server, index, workers, flags):
    hosts = ",".join(f"w{n}:1" for n in range(workers))
    command = [o.gannet, "train", o.data, "--ps-hosts", server.address, "--worker-hosts", hosts, "--job-name", "worker"]
    command += ["--task-index", index, "--json", "--transport", "tcp", *flags]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    """The worker's report, and the CPU time that it used."""
    out, err = process.communicate(timeout=LIMIT)
    if not out.strip():
        raise SystemExit(f"a worker ended with {process.returncode}: {err[-2000:]}")
    return json.loads(out.strip().splitlines()[-1])


def one_of_workers(o, count, tasks="on"):
    server = Server(o.gannet, o.threads)
    before, begun = cpu(server.process.pid), time.monotonic()
    children = os.times()
    running = [worker(o, server, n, count, ["--tasks", tasks, "--epochs", o.epochs]) for n in range(count)]
    reports = [ended(process) for process in running]
    took, after = time.monotonic() - begun, os.times()
    spent = cpu(server.process.pid) - before
    rows = server.sum("gannet_table_pulled_rows_total", "gannet_table_pushed_rows_total")
    moved = server.sum("gannet_server_received_bytes_total", "gannet_server_sent_bytes_total")
    server.stop()
    examples = sum(report["examples"] for report in reports)
    of_workers = after.children_user + after.children_system - children.children_user - children.children_system
    return {
        "examples/s": examples / took,
        "server CPU ns a row": spent / rows * 1e9,
        "rows an example": rows / examples,
        "bytes an example": moved / examples,
        "server CPU us an example": spent / examples * 1e6,
        "workers' CPU us an example": of_workers / examples * 1e6,
    }


def workers(o):
    counts = [int(n) for n in o.workers.split(",")]
    found = {count: [] for count in counts}
    for _ in range(o.rounds):
        for count in counts:
            found[count].append(one_of_workers(o, count))
            print(f"{count} workers, load {os.getloadavg()[0]:.1f}: {found[count][-1]}", file=sys.stderr)
    names = list(found[counts[0]][0])
    print("| workers | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for count in counts:
        cells = [f"{statistics.median(one[name] for one in found[count]):,.1f}" for name in names]
        print(f"| {count} | " + " | ".join(cells) + " |")


def tasks(o):
    found = {"off": [], "on": []}
    for _ in range(o.rounds):
        for mode in found:
            found[mode].append(one_of_workers(o, 2, mode))
            print(f"--tasks {mode}, load {os.getloadavg()[0]:.1f}: {found[mode][-1]}", file=sys.stderr)
    names = list(found["on"][0])
    print("| --tasks | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for mode, all in found.items():
        print(f"| {mode} | " + " | ".join(f"{statistics.median(one[name] for one in all):,.2f}" for name in names) + " |")


def one_slowed(o, mode):
    server = Server(o.gannet, o.threads)
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model"
        flags = ["--sync", mode, "--epochs", 10_000, "--batch", o.batch, "--tasks", "off"]
        running = [worker(o, server, n, 2, flags + (["--out", model] if n == 0 else [])) for n in range(2)]
        begun, turn = time.monotonic(), 0.05
        while time.monotonic() - begun < o.seconds:
            time.sleep(turn / o.factor)
            running[1].send_signal(signal.SIGSTOP)
            time.sleep(turn * (1 - 1 / o.factor))
            running[1].send_signal(signal.SIGCONT)
        for process in running:
            process.send_signal(signal.SIGINT)
        reports = [ended(process) for process in running]
        done = [o.gannet, "predict", "--model", str(model), o.test, "--json"]
        quality = json.loads(subprocess.run(done, capture_output=True, text=True, timeout=LIMIT, check=True).stdout)
    server.stop()
    each = [report["examples"] / o.seconds for report in reports]
    return {"examples/s": sum(each), "of the fast one": each[0], "of the slowed one": each[1], "test log loss": quality["logloss"]}


def slow(o):
    modes = ["bsp", "ssp:8", "asp"]
    found = {mode: [] for mode in modes}
    for _ in range(o.rounds):
        for mode in modes:
            found[mode].append(one_slowed(o, mode))
            print(f"{mode}, load {os.getloadavg()[0]:.1f}: {found[mode][-1]}", file=sys.stderr)
    names = list(found["asp"][0])
    print("| | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for mode in modes:
        median = lambda name: statistics.median(one[name] for one in found[mode])
        cells = [f"{median(name):.5f}" if "loss" in name else f"{median(name):,.0f}" for name in names]
        print(f"| {mode} | " + " | ".join(cells) + " |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=["workers", "tasks", "slow"])
    arguments.add_argument("--gannet", default=ROOT / "target" / "release" / "gannet")
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--test")
    arguments.add_argument("--workers", default="1,2,4,8")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--epochs", type=int, default=1)
    arguments.add_argument("--batch", type=int, default=2048)
    arguments.add_argument("--seconds", type=float, default=20)
    arguments.add_argument("--factor", type=float, default=5)
    arguments.add_argument("--rounds", type=int, default=2)
    o = arguments.parse_args()
    if o.what == "slow" and not o.test:
        arguments.error("slow: --test FILE is missing")
    {"workers": workers, "tasks": tasks, "slow": slow}[o.what](o)


if __name__ == "__main__":
    main()
