#!/usr/bin/env python3
"""Trains field-aware factorization machines in turn on the same rows: `gannet train --model ffm`, LIBFFM and xLearn.

    cargo install libffm@0.2.0 --features cli --root CACHE/libffm      # LIBFFM, ported to Rust
    pip download --no-deps --no-binary :all: xlearn==0.40a1            # its CMake builds xlearn_train, xlearn_predict
    python3 bench/peers/ffm.py GANNET TABLE.csv --libffm CACHE/libffm/bin --xlearn FOLDER [--rounds 5] [--epochs 1]

TABLE has a label, 1 or 0, in its first column. Each other column is a field, and each of its texts a feature of value 1:
what LIBFFM is made for. Every fifth row tests. All have 4 factors a field and otherwise their own defaults. Threads: of
gannet one reads and one learns; the others have two. The time is the wall time of the command with reading of text.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def convert(table, folder):
    """Writes train.ffm and test.ffm. Returns the labels of the rows that test."""
    ids, labels = {}, []
    with open(table, newline="") as rows, open(folder / "train.ffm", "w") as train, open(folder / "test.ffm", "w") as test:
        reader = csv.reader(rows)
        next(reader)
        for at, (label, *texts) in enumerate(reader):
            label = int(float(label) > 0)
            pairs = (f"{field}:{ids.setdefault((field, text), len(ids))}:1" for field, text in enumerate(texts))
            print(label, *pairs, file=test if at % 5 == 4 else train)
            if at % 5 == 4:
                labels.append(label)
    return labels


def log_loss(labels, file):
    said = [min(max(float(line), 1e-7), 1 - 1e-7) for line in open(file)]
    assert len(said) == len(labels), f"{file}: {len(said)} predictions of {len(labels)} rows"
    return -sum(math.log(p if y else 1 - p) for y, p in zip(labels, said)) / len(labels)


def timed(words, folder):
    start = time.time()
    # xLearn ends with an error where USER is not set.
    env = {"USER": "gannet", **os.environ}
    done = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{words[0]} ended with {done.returncode}: {done.stderr[-500:]}{done.stdout[-500:]}")
    return time.time() - start


def gannet(args, folder):
    took = timed([args.gannet, "train", "train.ffm", "--model", "ffm", "--epochs", args.epochs, "--out", "gannet"], folder)
    with open(folder / "said", "w") as said:
        subprocess.run([args.gannet, "predict", "--model", "gannet", "test.ffm"], cwd=folder, stdout=said, stderr=subprocess.DEVNULL, check=True)
    return took


def libffm(args, folder):
    took = timed([args.libffm / "ffm-train", "-t", args.epochs, "-s", 2, "train.ffm", "libffm"], folder)
    timed([args.libffm / "ffm-predict", "test.ffm", "libffm", "said"], folder)
    return took


def xlearn(args, folder):
    # Without the binary copy that an earlier run left.
    for copy in folder.glob("*.bin"):
        copy.unlink()
    words = ["-s", 2, "-e", args.epochs, "--dis-es", "-nthread", 2, "-m", "xlearn", "-l", "log"]
    took = timed([args.xlearn / "xlearn_train", "train.ffm", *words], folder)
    timed([args.xlearn / "xlearn_predict", "test.ffm", "xlearn", "-o", "said", "--sigmoid", "-l", "log"], folder)
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gannet", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--libffm", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--xlearn", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    for name in ("gannet", "libffm", "xlearn"):
        setattr(args, name, getattr(args, name).resolve())
    systems, rounds = [gannet, libffm, xlearn], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        labels = convert(args.table, folder)
        for _ in range(args.rounds):
            rounds.append([(system(args, folder), log_loss(labels, folder / "said")) for system in systems])
    for at, system in enumerate(systems):
        seconds = statistics.median(of[at][0] for of in rounds)
        losses = sorted({round(of[at][1], 5) for of in rounds})
        ratios = sorted(round(of[at][0] / of[0][0], 2) for of in rounds)
        print(json.dumps({"system": system.__name__, "seconds": round(seconds, 2), "log_losses": losses, "ratios": ratios}))


if __name__ == "__main__":
    main()
