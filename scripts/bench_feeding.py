#!/usr/bin/env python3
"""Compares a job whose workers get data from a client (in-graph) with the same job whose workers read files themselves.
It prints JSON.

    cargo build --release
    python3 scripts/bench_feeding.py TRAIN --flags "--alpha 0.05" --epochs 3 --rounds 5

The processes are real and use tcp on loopback: one server of one thread, and `--workers` workers. `read` is
`--tasks on`; `fed` is `--job-name client` with workers in an empty folder. The two take turns. `speed` is all
examples divided by the seconds of the slowest worker. `cpu_us` is the CPU time of all processes except the server, in
us an example. `bytes` is what the client sent for each example.
"""
import argparse
import json
import os
import pathlib
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 1800


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def job(o, fed, folder):
    server = subprocess.Popen([str(o.gannet), "server", "--listen", "127.0.0.1:0", "--threads", "1"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    started = [server]
    try:
        at = server.stdout.readline().split()[4]
        hosts = ",".join(f"127.0.0.1:{9 + i}" for i in range(o.workers))
        flags = [*shlex.split(o.flags), "--ps-hosts", at, "--worker-hosts", hosts, "--transport", "tcp", "--json", "--epochs",
                 str(o.epochs), "--task-bytes", o.task_bytes]
        data = str(o.train.resolve())
        before = cpu_of_children()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        client = None
        if fed:
            client = subprocess.Popen([str(o.gannet), "train", data, *flags, "--job-name", "client", "--feed", "127.0.0.1:0"], **pipes)
            started.append(client)
            feed = client.stderr.readline().split()[4]
            own = [f for f in flags if f not in ("--task-bytes", o.task_bytes)]
            command = [str(o.gannet), "train", *own, "--job-name", "worker", "--feed", feed]
        else:
            command = [str(o.gannet), "train", data, *flags, "--job-name", "worker", "--tasks", "on"]
        workers = [subprocess.Popen([*command, "--task-index", str(i)], cwd=folder, **pipes) for i in range(o.workers)]
        started += workers
        reports = []
        for process in workers + ([client] if client else []):
            out, error = process.communicate(timeout=TIMEOUT)
            if process.returncode != 0:
                raise SystemExit(f"{' '.join(process.args)}\nexit {process.returncode}: {error[-2000:]}")
            reports.append(json.loads(out))
        cpu = cpu_of_children() - before
        trained = reports[:o.workers]
        examples = sum(report["examples"] for report in trained)
        line = {"speed": examples / max(report["seconds"] for report in trained), "cpu_us": cpu / examples * 1e6}
        if client:
            line["bytes"] = reports[-1]["fed"]["bytes"] / examples
        return line
    finally:
        for process in started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("train", type=pathlib.Path)
    a.add_argument("--flags", default="", help="more flags of gannet train")
    a.add_argument("--workers", type=int, default=2)
    a.add_argument("--epochs", type=int, default=3)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--task-bytes", default="1MiB")
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    o = a.parse_args()
    if not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release, or --gannet PATH")
    lines = {"read": [], "fed": []}
    with tempfile.TemporaryDirectory() as folder:
        for at in range(o.rounds):
            for way in (["read", "fed"] if at % 2 == 0 else ["fed", "read"]):
                lines[way].append(job(o, way == "fed", folder))
                print(way, lines[way][-1], file=sys.stderr, flush=True)
    middle = {way: {name: round(statistics.median(line[name] for line in of), 2) for name in of[0]} for way, of in lines.items()}
    ratios = {name: [round(fed[name] / read[name], 3) for fed, read in zip(lines["fed"], lines["read"])] for name in ("speed", "cpu_us")}
    size = os.path.getsize(o.train)
    print(json.dumps({"bytes_of_the_file": size, "workers": o.workers, "medians": middle, "fed_by_read": ratios}, indent=1))


if __name__ == "__main__":
    main()
