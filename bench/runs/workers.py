#!/usr/bin/env python3
"""Compares the test loss of asynchronous jobs of several workers with that of one, with replay damped or not. Prints
JSON.

    cargo build --release
    python3 bench/runs/workers.py CACHE/census/census-train.csv CACHE/census/census-test.csv --flags "--label label --alpha 0.05"

The processes are real and on loopback: one server of one thread, and 1, 2, 4 or 8 workers over tcp that take the
batches in turn. Worker 0 tests when all are done. Each setting runs `--rounds` times, because the model of several
workers depends on their timing. `damped` is the value of `--damping`, and `loss` the log loss on the test file.
`staleness` counts pulls by how many steps the slowest worker was behind.
"""
import argparse
import json
import pathlib
import shlex
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 1800


def job(o, workers, damping):
    server = subprocess.Popen([str(o.gannet), "server", "--listen", "127.0.0.1:0", "--threads", "1"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    started = [server]
    try:
        at = server.stdout.readline().split()[4]
        hosts = ",".join(f"127.0.0.1:{9 + i}" for i in range(workers))
        command = [str(o.gannet), "train", str(o.train), *shlex.split(o.flags), "--ps-hosts", at, "--worker-hosts", hosts,
                   "--job-name", "worker", "--tasks", "off", "--transport", "tcp", "--damping", damping, "--json"]
        others = [subprocess.Popen([*command, "--task-index", str(i)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                  for i in range(1, workers)]
        started += others
        done = subprocess.run([*command, "--task-index", "0", "--test", str(o.test)], capture_output=True, text=True, timeout=TIMEOUT)
        for process in others:
            error = process.communicate(timeout=TIMEOUT)[1]
            if process.returncode != 0:
                raise SystemExit(f"a worker: exit {process.returncode}: {error[-2000:]}")
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\nexit {done.returncode}: {done.stderr[-2000:]}")
        return json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{"):])[0]
    finally:
        for process in started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("train", type=pathlib.Path)
    a.add_argument("test", type=pathlib.Path)
    a.add_argument("--flags", default="", help="more flags of gannet train")
    a.add_argument("--workers", default="1,2,4,8")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    o = a.parse_args()
    if not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release, or --gannet PATH")
    lines = []
    for workers in map(int, o.workers.split(",")):
        for damping in ("off", "on"):
            answers = [job(o, workers, damping) for _ in range(1 if workers == 1 else o.rounds)]
            line = {"workers": workers, "damped": damping, "loss": [round(x["test_logloss"], 5) for x in answers],
                    "auc": [round(x["test_auc"], 5) for x in answers], "staleness": answers[-1].get("staleness")}
            print(line, file=sys.stderr, flush=True)
            lines.append(line)
    print(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
