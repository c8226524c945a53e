#!/usr/bin/env python3
"""Compares `--wire f16` (wire), or weights stored in 16 bits (bf16, f16: `--row-type`), with f32, in turn. Prints
markdown tables (docs/benchmarks.md). Standard library only.

    cargo build --release -p gannet-cli
    python3 bench/runs/precision.py wire|bf16|f16 bench [--rounds 5] [--dims 1,16,64] [--seconds 1]
    python3 bench/runs/precision.py wire|bf16|f16 train [--rounds 5] NAME=TRAIN,TEST[,FLAGS]...
    python3 bench/runs/precision.py wire|bf16|f16 seeds [--rounds 5] NAME=TRAIN,TEST,FLAGS...

bench: keys a second of `gannet bench` over tcp, medians and ratios round by round. train: examples a second and losses
of a worker and a server. seeds: test losses in one process, with another seed in each round and another order of the
training lines (TRAIN is one file in libsvm format that ends in .svm, or has a line of names).

FLAGS are words for `gannet train`, such as `--label label`. With `--model` among them only that model is trained.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKS = ("pull", "push", "cycle")
# The flag, its other value, and the models that are compared.
FLAGS = {"wire": ("--wire", "f16"), "bf16": ("--row-type", "bf16"), "f16": ("--row-type", "f16")}
ROWS = {
    "fm, adagrad": ["--model", "fm"],
    "fm, row-adagrad": ["--model", "fm", "--optimizer", "row-adagrad"],
    "fm, adam": ["--model", "fm", "--optimizer", "adam", "--alpha", "0.01"],
}
MODELS = {
    "wire": {"lr, ftrl": ["--optimizer", "ftrl"], "fm, adagrad": ["--model", "fm"]},
    "bf16": ROWS,
    "f16": ROWS,
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


def shuffled(path, seed, folder):
    """The lines of a file in another order. A line of names stays the first."""
    path = pathlib.Path(path)
    lines = path.read_text().splitlines(keepends=True)
    head = 0 if path.suffix == ".svm" else 1
    rest = lines[head:]
    random.Random(seed).shuffle(rest)
    out = pathlib.Path(folder) / f"{seed}{path.suffix}"
    out.write_text("".join(lines[:head] + rest))
    return str(out)


def seeds(o, flag, names):
    print_row("data", f"mean test loss: f32, {names[1]}", "differences", "highest / lowest f32")
    print_row(*["---"] * 4)
    for data in o.data:
        name, _, rest = data.partition("=")
        file, test, *flags = rest.split(",")
        given, losses = " ".join(flags).split(), {value: [] for value in names}
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(1, o.rounds + 1):
                train_file = shuffled(file, seed, folder)
                for value, found in losses.items():
                    words = [o.gannet, "train", train_file, "--test", test, *given, "--json", "--push", "gradient"]
                    # The rows of softmax begin with 0.
                    words += [flag, value] if "softmax" in given else [flag, value, "--seed", str(seed)]
                    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
                    if done.returncode != 0:
                        sys.exit(f"{words}: exit code {done.returncode}\n{done.stderr}")
                    found.append(json.loads(done.stdout)["test_logloss"])
        wide, small = losses.values()
        means = statistics.mean(wide), statistics.mean(small)
        differences = ", ".join(f"{(b / a - 1) * 100:+.3f}" for a, b in zip(wide, small, strict=True))
        share = f"{(means[1] / means[0] - 1) * 100:+.4f}%"
        print_row(f"{name} ({' '.join(flags)})", f"{means[0]:.6f}, {means[1]:.6f} ({share})", f"{differences}%",
                  f"{max(wide) / min(wide):.3f}")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("of", choices=tuple(FLAGS))
    a.add_argument("what", choices=("bench", "train", "seeds"))
    a.add_argument("data", nargs="*", help="for train and seeds: NAME=TRAIN,TEST[,FLAGS]")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--dims", help="for bench; default: 1,16,64, and 16,64 for bf16 and f16")
    a.add_argument("--seconds", type=float, default=1.0, help="of each measurement of bench")
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    o = a.parse_intermixed_args()
    if not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release -p gannet-cli, or --gannet PATH")
    o.dims = o.dims or ("1,16,64" if o.of == "wire" else "16,64")
    if (o.what != "bench") != bool(o.data):
        a.error("train and seeds need data, and bench takes none")
    flag, small = FLAGS[o.of]
    {"bench": bench, "train": trainings, "seeds": seeds}[o.what](o, flag, ("f32", small))


if __name__ == "__main__":
    main()
