#!/usr/bin/env python3
"""Compares `--wire f16` (wire) or `--row-type bf16` (rows) with f32 over tcp, in turn: keys a second of `gannet bench`, or
examples a second and losses of trainings. Prints medians, ratios round by round and bytes as markdown tables
(docs/benchmarks.md). Standard library only.

    cargo build --release -p gannet-cli
    python3 scripts/bench_precision.py wire|rows bench [--rounds 5] [--dims 1,16,64] [--seconds 1]
    python3 scripts/bench_precision.py wire|rows train [--rounds 5] NAME=TRAIN,TEST[,FLAGS]...

FLAGS are words for `gannet train`, such as `--label label`. With `--model` among them only that model is trained.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKS = ("pull", "push", "cycle")
# The flag, its other value, and the models that are compared.
FLAGS = {"wire": ("--wire", "f16"), "rows": ("--row-type", "bf16")}
MODELS = {
    "wire": {"lr, ftrl": ["--optimizer", "ftrl"], "fm, adagrad": ["--model", "fm"]},
    "rows": {
        "fm, adagrad": ["--model", "fm"],
        "fm, row-adagrad": ["--model", "fm", "--optimizer", "row-adagrad"],
        "fm, adam": ["--model", "fm", "--optimizer", "adam", "--alpha", "0.01"],
    },
}
TIMEOUT = 900


def print_row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def ratio(rounds):
    ratios = [small / wide for small, wide in zip(*reversed(rounds.values()), strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def bench(o, flag, names):
    rounds = {name: [] for name in names}
    for _ in range(o.rounds):
        for name, answers in rounds.items():
            words = [o.gannet, "bench", "--json", f"--dims={o.dims}", f"--seconds={o.seconds}", f"{flag}={name}"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
            if done.returncode != 0:
                sys.exit(f"gannet bench {flag} {name}: exit code {done.returncode}\n{done.stderr}")
            answers.append(json.loads(done.stdout)["tcp"])
    small = names[1]
    print_row("dim", "work", "f32 M keys/s", f"{small} M keys/s", f"{small} / f32", f"f32, {small} bytes a key sent",
              f"f32, {small} CPU ms", f"f32, {small} bytes a stored row")
    print_row(*["---"] * 8)
    for dim in o.dims.split(","):
        for work in WORKS:
            def of(name, field):
                return [answer[f"dim{dim}"][f"{work}_{field}"] for answer in rounds[name]]

            def cost(name):
                both = zip(*(of(name, f"{who}_cpu_ms_per_million") for who in ("server", "worker")), strict=True)
                return statistics.median(map(sum, both))

            rates = {name: of(name, "keys_per_s") for name in names}
            medians = [f"{statistics.median(rates[name]) / 1e6:.1f}" for name in names]
            sizes = ", ".join(f"{statistics.median(of(name, 'bytes_per_key')):.1f}" for name in names)
            costs = ", ".join(f"{cost(name):.0f}" for name in names)
            stored = ", ".join(f"{rounds[name][0][f'dim{dim}']['bytes_per_row']:.1f}" for name in names)
            print_row(dim, work, *medians, ratio(rates), sizes, costs, stored)


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


def trainings(o, flag, names):
    small = names[1]
    print_row("data", "model", f"loss, first pass: f32, {small}", f"test loss: f32, {small}",
              f"bytes sent, {small} / f32", f"f32, {small} bytes a row", "f32 examples/s", f"{small} / f32")
    print_row(*["---"] * 8)
    for data in o.data:
        name, _, rest = data.partition("=")
        files, test, *flags = rest.split(",")
        given = " ".join(flags).split()
        models = {given[given.index("--model") + 1]: []} if "--model" in given else MODELS[o.of]
        for model, of_model in models.items():
            words = [files, "--test", test, *given, *of_model]
            rounds = {name: [] for name in names}
            for _ in range(o.rounds):
                for value, reports in rounds.items():
                    reports.append(train(o, [*words, flag, value]))

            def losses(part):
                wide, other = (rounds[value][0][part] for value in names)
                return f"{wide:.6f}, {other:.6f} ({(other / wide - 1) * 100:+.4f}%)"

            def size(value):
                report = rounds[value][0]["wire"]
                return report["sent_bytes"] + report["received_bytes"]

            # Only the report of lr has bytes.
            saved = f"{size(small) / size('f32'):.3f}" if "wire" in rounds["f32"][0] else ""

            stored = [rounds[value][0].get("bytes_per_row") for value in names]
            stored = ", ".join(f"{size:.1f}" for size in stored) if all(stored) else ""
            rates = {value: [report["examples"] / report["seconds"] for report in rounds[value]] for value in names}
            print_row(name, model, losses("logloss"), losses("test_logloss"), saved, stored,
                      f"{statistics.median(rates['f32']):,.0f}", ratio(rates))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("of", choices=tuple(FLAGS))
    a.add_argument("what", choices=("bench", "train"))
    a.add_argument("data", nargs="*", help="for train: NAME=TRAIN,TEST[,FLAGS]")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--dims", help="for bench; default: 1,16,64, and 16,64 for rows")
    a.add_argument("--seconds", type=float, default=1.0, help="of each measurement of bench")
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    o = a.parse_intermixed_args()
    if not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release -p gannet-cli, or --gannet PATH")
    o.dims = o.dims or ("16,64" if o.of == "rows" else "1,16,64")
    if (o.what == "train") != bool(o.data):
        a.error("train needs data, and bench takes none")
    flag, small = FLAGS[o.of]
    bench(o, flag, ("f32", small)) if o.what == "bench" else trainings(o, flag, ("f32", small))


if __name__ == "__main__":
    main()
