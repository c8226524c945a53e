#!/usr/bin/env python3
"""Compares jobs with and without a cache in the workers: bytes over the network (the server's count, with heads),
examples a second, CPU seconds and test loss. There are one server and two workers over tcp. The settings take turns
for ROUNDS rounds; it prints medians.

    scripts/bench_cache.py TRAIN TEST [--rounds 3] [--gannet target/release/gannet] [--flags "--label label"]
    scripts/bench_cache.py TRAIN TEST --settings "--cache-bytes 64MB;--cache-bytes 64MB --cache-staleness 32"
"""
import argparse
import json
import re
import resource
import statistics
import subprocess
import time
import urllib.request

SETTINGS = [
    "",
    "--cache-bytes 64MB",
    "--cache-bytes 64MB --cache-use always --cache-staleness 2",
    "--cache-bytes 64MB --cache-use always",
    "--cache-bytes 64MB --cache-use always --sync-rows full",
    "--cache-bytes 64MB --cache-use always --cache-staleness 32",
    "--sync ssp:8",
    "--sync ssp:8 --cache-bytes 64MB --cache-use always",
]


def start(gannet):
    server = subprocess.Popen(
        [gannet, "server", "--listen", "127.0.0.1:0", "--threads", "1", "--metrics", "127.0.0.1:0", "--transport", "tcp"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = None
    for line in server.stderr:
        if found := re.search(r"http://(127\.0\.0\.1:\d+)/metrics", line):
            metrics = found[1]
            break
    addr = re.search(r"127\.0\.0\.1:\d+", server.stdout.readline())[0]
    return server, addr, metrics


def wire(metrics):
    page = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10).read().decode()
    count = lambda name: sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))
    return count("gannet_server_received_bytes_total"), count("gannet_server_sent_bytes_total")


def job(args, setting):
    server, addr, metrics = start(args.gannet)
    worker = lambda index, more: [
        args.gannet, "train", args.train, "--ps-hosts", addr, "--worker-hosts", "127.0.0.1:9,127.0.0.1:10", "--job-name", "worker",
        "--task-index", str(index), "--tasks", "off", "--transport", "tcp", "--json", *args.flags.split(), *setting.split(), *more]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.time()
    other = subprocess.Popen(worker(1, []), stdout=subprocess.PIPE, text=True)
    # The chief waits for the other worker before it tests. So the bytes of the test are the same for all settings. The
    # column of training bytes leaves them out.
    chief = subprocess.run(worker(0, ["--test", args.test]), stdout=subprocess.PIPE, text=True, check=True)
    second = json.loads(other.communicate()[0])
    first = json.loads(chief.stdout)
    took = time.time() - began
    up, down = wire(metrics)
    server.terminate()
    server.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    both = [first, second]
    rows = {name: sum((report["cache"] or {}).get(name, 0) for report in both) for name in ("had", "same", "sent")}
    examples = sum(report["examples"] for report in both)
    return {
        "payload": sum(report["wire"]["sent_bytes"] + report["wire"]["received_bytes"] for report in both) / examples,
        "wire": (up + down) / examples,
        "rate": sum(report["examples_per_second"] for report in both),
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "loss": first["test_logloss"],
        "had": rows["had"] / max(1, sum(rows.values())),
        "same": rows["same"] / max(1, sum(rows.values())),
        "seconds": took,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gannet", default="target/release/gannet")
    parser.add_argument("--flags", default="")
    parser.add_argument("--settings", help="use these settings instead of the built-in ones; separate them by semicolons")
    args = parser.parse_args()
    settings = args.settings.split(";") if args.settings is not None else SETTINGS
    runs = {setting: [] for setting in settings}
    for _ in range(args.rounds):
        for setting in settings:
            runs[setting].append(job(args, setting))
    print("| flags | training bytes an example | with the test and heads | examples/s | CPU s | rows cached | rows unchanged | test log loss |")
    print("|---|---|---|---|---|---|---|---|")
    for setting, all_of in runs.items():
        middle = {name: statistics.median(run[name] for run in all_of) for name in all_of[0]}
        losses = [run["loss"] for run in all_of]
        print(
            f"| `{setting or '(none)'}` | {middle['payload']:.1f} | {middle['wire']:.1f} | {middle['rate']:,.0f} | {middle['cpu']:.2f} | "
            f"{middle['had']:.1%} | {middle['same']:.1%} | {middle['loss']:.6f} ({min(losses):.6f}-{max(losses):.6f}) |")


if __name__ == "__main__":
    main()
