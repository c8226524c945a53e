#!/usr/bin/env python3
"""What followers cost a training at full speed, and how old the rows are that they answer with.

    cargo build --release -p gannet-cli
    python3 bench/runs/follow.py CACHE/follow > docs/benchmarks/follow.tsv

A server with one thread and a worker train the shipped flights again and again, by logistic regression and by DeepFM.
Each round trains without a follower, with one, and with a chain of two, in turn. The examples a second are those of the
worker, and the CPU time is that of the server, from /proc. The age is `gannet_serve_model_age_seconds`, read every 5 ms
from the last follower: how old the rows are that an answer at that moment has.
"""
import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "flights.csv.gz"
MODELS = {"lr": "", "deepfm": "--model deepfm"}
FOLLOWERS = [0, 1, 2]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(o, line):
    """A command, once it has said its first line."""
    process = subprocess.Popen([o.gannet, *line.split()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, process.stdout.readline()


def follow(o, hosts, count):
    """A chain of followers. Returns them, and the address of the last one."""
    chain, address = [], None
    for number in range(count):
        feeds = "--pulls 127.0.0.1:0" if number + 1 < count else ""
        process, said = start(o, f"serve --listen 127.0.0.1:0 --threads 1 --follow {hosts} {feeds}")
        chain.append(process)
        address = said.split("//")[1].strip()
        if feeds:
            hosts = process.stdout.readline().split()[-1]
    return chain, address


def age(address):
    page = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
    return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith("gannet_serve_model_age_seconds{"))


def measure(o, model, followers):
    hosts = f"127.0.0.1:{free_port()}"
    server, _ = start(o, f"server --listen {hosts} --threads 1")
    train = f"train {DATA} {MODELS[model]} --ps-hosts {hosts} --worker-hosts 127.0.0.1:1 --job-name worker --task-index 0"
    worker = subprocess.Popen([o.gannet, *train.split(), "--epochs", str(o.epochs[model]), "--json"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    chain, ages = [], []
    try:
        time.sleep(1)
        chain, address = follow(o, hosts, followers)
        time.sleep(1)
        while followers and worker.poll() is None:
            ages.append(age(address))
            time.sleep(0.005)
        report = json.loads(worker.communicate()[0].strip().splitlines()[-1])
        used = cpu(server.pid)
    finally:
        for process in [*chain, worker, server]:
            process.send_signal(signal.SIGKILL)
            process.wait()
    rate = report["examples"] / report["seconds"]
    return rate, used / report["examples"] * 1e6, ages


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gannet", default=ROOT / "target" / "release" / "gannet")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lr-epochs", type=int, default=100)
    parser.add_argument("--deepfm-epochs", type=int, default=3)
    o = parser.parse_args()
    o.epochs = {"lr": o.lr_epochs, "deepfm": o.deepfm_epochs}
    o.folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for _ in range(o.rounds):
        for model in MODELS:
            for followers in FOLLOWERS:
                got = measure(o, model, followers)
                results.setdefault((model, followers), []).append(got)
                print(model, followers, f"{got[0]:.0f}", f"{got[1]:.3f}", len(got[2]), file=sys.stderr)
    print("model\tfollowers\texamples/s\tserver CPU, us an example\tage, median, s\tp99\tmost")
    for (model, followers), all_of in results.items():
        ages = sorted(age for _, _, some in all_of for age in some)
        at = lambda share: f"{ages[min(len(ages) - 1, int(share * len(ages)))]:.3f}" if ages else ""
        rate, used = (statistics.median(of[at] for of in all_of) for at in (0, 1))
        print(f"{model}\t{followers}\t{rate:,.0f}\t{used:.3f}\t{at(0.5)}\t{at(0.99)}\t{at(1)}")


main()
