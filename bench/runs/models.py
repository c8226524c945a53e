#!/usr/bin/env python3
"""Trains models with two builds of gannet in turn, each in one process, and compares how fast they are.

    python3 bench/runs/models.py BEFORE AFTER DIR [--rounds 5] [--models fm,deepfm,softmax-10-epochs]

BEFORE and AFTER are binaries. DIR has criteo.svm (scripts/data/criteo_like.py), mnist-train.svm and mnist-test.svm
(scripts/data/fetch_models.py), and census-train.csv and census-test.csv (scripts/data/fetch_census.py). The builds take turns within a round. It prints the medians of examples/s and of CPU seconds,
the median of the rounds' ratios, and the losses, as JSON. A process's CPU seconds are those of all its threads.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

MODELS = {
    "fm": ["criteo.svm", "--model", "fm"],
    "deepfm": ["criteo.svm", "--model", "deepfm"],
    "softmax": ["mnist-train.svm", "--model", "softmax", "--test", "mnist-test.svm"],
    "fm-census": ["census-train.csv", "--label", "label", "--model", "fm", "--test", "census-test.csv"],
    "deepfm-census": ["census-train.csv", "--label", "label", "--model", "deepfm", "--test", "census-test.csv"],
    "softmax-10-epochs": ["mnist-train.svm", "--model", "softmax", "--test", "mnist-test.svm", "--epochs", "10"],
}


def train(binary, flags, folder):
    """Examples/s, CPU seconds, and the losses: progressive, and held out if there is a test set."""
    before = os.times()
    line = [binary, "train", *flags, "--json"]
    report = json.loads(subprocess.run(line, cwd=folder, check=True, capture_output=True, text=True).stdout)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    losses = [round(report[name], 6) for name in ("logloss", "test_logloss") if name in report]
    return report["examples"] / report["seconds"], cpu, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", default="fm,deepfm,softmax")
    args = parser.parse_args()
    binaries = [str(args.before.resolve()), str(args.after.resolve())]
    for model in args.models.split(","):
        rounds = [[train(binary, MODELS[model], args.folder) for binary in binaries] for _ in range(args.rounds)]
        of = lambda build, what: statistics.median(both[build][what] for both in rounds)
        result = {"model": model, "rounds": args.rounds}
        for build, name in enumerate(["before", "after"]):
            losses = sorted({tuple(both[build][2]) for both in rounds})
            result[name] = {"examples_per_second": round(of(build, 0)), "cpu_s": round(of(build, 1), 3), "losses": losses}
        result["ratio"] = round(statistics.median(after[0] / before[0] for before, after in rounds), 2)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
