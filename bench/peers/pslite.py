#!/usr/bin/env python3
"""Runs a benchmark of ps-lite in turn with `gannet bench` over tcp. It prints medians of keys a second and of CPU time,
and their ratios, as a markdown table (docs/benchmarks.md). Standard library only.

    cargo build --release -p gannet-cli
    python3 bench/peers/pslite.py PATH [--rounds 5] [--dims 1,16,64] [--seconds 3]

PATH is a program that is built with ps-lite: `PATH DIM SECONDS`. It takes its role from DMLC_ROLE, fills 4,000,000 rows,
pulls and then pushes batches of 65,536 keys with four in flight, and its worker prints a line of each:
`dim DIM pull|push RATE M keys/s`. Gannet's sources have no such program.

Both have one server process and one worker process on this machine. CPU time is that of the process in the seconds
before the line, as the system counts it, for a million keys.
"""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKS = ("pull", "push")
TIMEOUT = 300
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process):
    """CPU seconds of a process so far, or None if it has ended."""
    try:
        text = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Sampler(threading.Thread):
    """Looks at the CPU time of processes, many times a second."""

    def __init__(self, processes):
        super().__init__(daemon=True)
        self.processes, self.samples, self.ends = processes, [], threading.Event()

    def run(self):
        while not self.ends.wait(0.02):
            self.samples.append((time.monotonic(), [cpu_seconds(process) for process in self.processes]))

    def spent(self, begin, end):
        """CPU seconds of each process between two times."""
        inside = [spent for at, spent in self.samples if begin <= at <= end and None not in spent]
        if len(inside) < 2:
            raise SystemExit("the program ended before its CPU time was counted: give more --seconds")
        return [last - first for first, last in zip(inside[0], inside[-1])]


def pslite(path, dim, seconds):
    """Rates, and CPU ms of a million keys of the server and of the worker."""
    port = random.randrange(20_000, 30_000)
    shared = {
        **os.environ,
        **{"DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1"},
        **{"DMLC_PS_ROOT_PORT": str(port), "DMLC_INTERFACE": "lo"},
    }

    def start(role):
        where = subprocess.PIPE if role == "worker" else subprocess.DEVNULL
        command = [str(path), str(dim), str(seconds)]
        environment = {**shared, "DMLC_ROLE": role}
        return subprocess.Popen(command, env=environment, stdout=where, stderr=subprocess.DEVNULL, text=True)

    processes = [start(role) for role in ("scheduler", "server", "worker")]
    timer = threading.Timer(TIMEOUT, lambda: [process.kill() for process in processes])
    timer.start()
    sampler = Sampler(processes[1:])
    sampler.start()
    found = {}
    try:
        for line in processes[2].stdout:
            match = re.match(r"dim \d+ (pull|push) ([\d.]+) M keys/s", line)
            if match:
                now, rate = time.monotonic(), float(match[2])
                spent = sampler.spent(now - seconds, now)
                found[match[1]] = (rate, *(each * 1e3 / (rate * seconds) for each in spent))
            if len(found) == len(WORKS):
                break
    finally:
        timer.cancel()
        sampler.ends.set()
        for process in processes:
            process.kill()
            process.wait()
    if len(found) < len(WORKS):
        raise SystemExit(f"{path} {dim} {seconds}: it printed no line of {set(WORKS) - set(found)} in {TIMEOUT} s")
    return found


def gannet(path, dim, seconds):
    command = [str(path), "bench", "--json", "--transport", "tcp", "--dims", str(dim), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit {done.returncode}: {done.stderr[-2000:]}")
    rates = json.loads(done.stdout)["tcp"][f"dim{dim}"]
    cost = "{}_{}_cpu_ms_per_million".format
    return {
        work: (rates[f"{work}_keys_per_s"] / 1e6, rates[cost(work, "server")], rates[cost(work, "worker")])
        for work in WORKS
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=pathlib.Path, help="a program that is built with ps-lite")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dims", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    given = parser.parse_args()
    dims = [int(dim) for dim in given.dims.split(",")]
    answers = {(dim, name): [] for dim in dims for name in ("ps-lite", "gannet")}
    for _ in range(given.rounds):
        for dim in dims:
            answers[dim, "ps-lite"].append(pslite(given.path.resolve(), dim, given.seconds))
            answers[dim, "gannet"].append(gannet(given.gannet, dim, given.seconds))
    print("| dim | work | ps-lite M keys/s | gannet M keys/s | ratio | ps-lite CPU ms | gannet CPU ms | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for dim in dims:
        for work in WORKS:
            theirs, ours = ([each[work] for each in answers[dim, name]] for name in ("ps-lite", "gannet"))

            def middle(all_of, of=lambda each: each[0]):
                return statistics.median(map(of, all_of))

            def spread(of):
                ratios = [of(b) / of(a) for a, b in zip(theirs, ours)]
                return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"

            def cpu(each):
                return each[1] + each[2]

            def costs(all_of):
                server, worker = middle(all_of, lambda each: each[1]), middle(all_of, lambda each: each[2])
                return f"{server + worker:.0f} ({server:.0f} + {worker:.0f})"

            cells = [str(dim), work, f"{middle(theirs):.1f}", f"{middle(ours):.1f}", spread(lambda each: each[0])]
            print("| " + " | ".join([*cells, costs(theirs), costs(ours), spread(cpu)]) + " |")


if __name__ == "__main__":
    main()
