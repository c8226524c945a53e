#!/usr/bin/env python3
"""Compares `--wire f16` with f32 over tcp, in turn: keys a second of `gannet bench`, or examples a second and losses of
trainings. Prints medians, ratios round by round and bytes as markdown tables (docs/benchmarks.md). Standard library only.

    cargo build --release -p gannet-cli
    python3 scripts/bench_wire.py bench [--rounds 5] [--dims 1,16,64] [--seconds 1]
    python3 scripts/bench_wire.py train [--rounds 5] NAME=TRAIN,TEST[,FLAGS]...

FLAGS are words for `gannet train`, such as `--label label`.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIRES = ("f32", "f16")
WORKS = ("pull", "push", "cycle")
MODELS = {
    "lr, ftrl": ["--optimizer", "ftrl"],
    "fm, adagrad": ["--model", "fm"],
}
TIMEOUT = 900


def print_row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def ratio(rounds):
    ratios = [f16 / f32 for f16, f32 in zip(rounds["f16"], rounds["f32"], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def bench(o):
    rounds = {wire: [] for wire in WIRES}
    for _ in range(o.rounds):
        for wire, answers in rounds.items():
            words = [o.gannet, "bench", "--json", f"--dims={o.dims}", f"--seconds={o.seconds}", f"--wire={wire}"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
            if done.returncode != 0:
                sys.exit(f"gannet bench --wire {wire}: exit code {done.returncode}\n{done.stderr}")
            answers.append(json.loads(done.stdout)["tcp"])
    print_row("dim", "work", "f32 M keys/s", "f16 M keys/s", "f16 / f32", "f32, f16 bytes a key", "f32, f16 CPU ms")
    print_row(*["---"] * 7)
    for dim in o.dims.split(","):
        for work in WORKS:
            def of(wire, name):
                return [answer[f"dim{dim}"][f"{work}_{name}"] for answer in rounds[wire]]

            def cost(wire):
                both = zip(*(of(wire, f"{who}_cpu_ms_per_million") for who in ("server", "worker")), strict=True)
                return statistics.median(map(sum, both))

            rates = {wire: of(wire, "keys_per_s") for wire in WIRES}
            medians = [f"{statistics.median(rates[wire]) / 1e6:.1f}" for wire in WIRES]
            sizes = ", ".join(f"{statistics.median(of(wire, 'bytes_per_key')):.1f}" for wire in WIRES)
            costs = ", ".join(f"{cost(wire):.0f}" for wire in WIRES)
            print_row(dim, work, *medians, ratio(rates), sizes, costs)


def train(o, words):
    """One server of its own, and one worker. Returns the worker's report."""
    server = subprocess.Popen(
        [o.gannet, "server", "--listen", "127.0.0.1:0", "--transport", "tcp"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"127\.0\.0\.1:\d+", server.stdout.readline())[0]
        words = [*words, "--ps-hosts", address, "--worker-hosts", "127.0.0.1:9", "--job-name", "worker"]
        words = [o.gannet, "train", *words, "--json", "--transport", "tcp", "--push", "gradient"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode != 0:
            sys.exit(f"{words}: exit code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)
    finally:
        server.kill()
        server.wait()


def trainings(o):
    print_row("data", "model", "loss, first pass: f32, f16", "test loss: f32, f16", "bytes, f16 / f32",
              "f32 examples/s", "f16 / f32")
    print_row(*["---"] * 7)
    for data in o.data:
        name, _, rest = data.partition("=")
        files, test, *flags = rest.split(",")
        for model, of_model in MODELS.items():
            words = [files, "--test", test, *" ".join(flags).split(), *of_model]
            rounds = {wire: [] for wire in WIRES}
            for _ in range(o.rounds):
                for wire, reports in rounds.items():
                    reports.append(train(o, [*words, "--wire", wire]))

            def losses(part):
                f32, f16 = (rounds[wire][0][part] for wire in WIRES)
                return f"{f32:.6f}, {f16:.6f} ({(f16 / f32 - 1) * 100:+.4f}%)"

            def size(wire):
                report = rounds[wire][0]["wire"]
                return report["sent_bytes"] + report["received_bytes"]

            # Only the report of lr has bytes.
            saved = f"{size('f16') / size('f32'):.3f}" if "wire" in rounds["f32"][0] else ""

            rates = {w: [report["examples"] / report["seconds"] for report in rounds[w]] for w in WIRES}
            print_row(name, model, losses("logloss"), losses("test_logloss"), saved, f"{statistics.median(rates['f32']):,.0f}",
                      ratio(rates))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("what", choices=("bench", "train"))
    a.add_argument("data", nargs="*", help="for train: NAME=TRAIN,TEST[,FLAGS]")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--dims", default="1,16,64")
    a.add_argument("--seconds", type=float, default=1.0, help="of each measurement of bench")
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    o = a.parse_intermixed_args()
    if not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release -p gannet-cli, or --gannet PATH")
    if (o.what == "train") != bool(o.data):
        a.error("train needs data, and bench takes none")
    bench(o) if o.what == "bench" else trainings(o)


if __name__ == "__main__":
    main()
