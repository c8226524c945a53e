#!/usr/bin/env python3
"""Trains DeepFM of deepctr-torch on the CPU and `gannet train --model deepfm` in turn, on the same rows.

    python3 bench/peers/deepfm.py GANNET DIR [--rounds 3] [--rows 40000]     # needs torch and deepctr-torch

DIR has criteo.svm (scripts/data/criteo_like.py): 13 numbers and 26 categories a row. The first rows train, a quarter as many
behind them test. Both have 8 factors, hidden layers of 32 and 16 units, batches of 256, AdaGrad at 0.05 and one pass.
Both networks read a vector a field; gannet's has vectors for the 13 numbers too, whose values deepctr-torch reads as they
are. deepctr-torch gets numpy arrays, and only its `fit` is timed. gannet's time includes reading the text.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
from deepctr_torch.inputs import DenseFeat, SparseFeat
from deepctr_torch.models import DeepFM


def arrays(lines):
    """Labels, numbers and ids of the rows."""
    rows = [line.split() for line in lines]
    pairs = [[pair.split(":") for pair in row[1:]] for row in rows]
    labels = np.array([float(row[0]) > 0 for row in rows], np.float32)
    numbers = np.array([[float(value) for _, value in row[:13]] for row in pairs], np.float32)
    ids = np.array([[int(id) for id, _ in row[13:]] for row in pairs], np.int64)
    return labels, numbers, ids - ids.min(axis=0)


def deepctr(labels, numbers, ids, rows):
    """Examples/s and the log loss on the rows behind the first `rows`."""
    sparse = [SparseFeat(f"C{at}", int(ids[:, at].max()) + 1, embedding_dim=8) for at in range(26)]
    columns = sparse + [DenseFeat(f"I{at}", 1) for at in range(13)]
    inputs = {f"C{at}": ids[:, at] for at in range(26)} | {f"I{at}": numbers[:, at] for at in range(13)}
    model = DeepFM(columns, columns, dnn_hidden_units=(32, 16), device="cpu", l2_reg_linear=0, l2_reg_embedding=0)
    model.compile(torch.optim.Adagrad(model.parameters(), lr=0.05), "binary_crossentropy")
    start = time.time()
    train = {name: values[:rows] for name, values in inputs.items()}
    model.fit(train, labels[:rows], batch_size=256, epochs=1, verbose=0)
    rate = rows / (time.time() - start)
    test = {name: values[rows:] for name, values in inputs.items()}
    p = model.predict(test, 4096).ravel().clip(1e-6, 1 - 1e-6)
    y = labels[rows:]
    return rate, float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


def with_fields(line):
    """A line of libsvm as one of libffm: the field of a feature is its place in the line."""
    label, *pairs = line.split()
    return " ".join([label, *(f"{field}:{pair}" for field, pair in enumerate(pairs))]) + "\n"


def gannet(binary, folder):
    line = [binary, "train", "train.ffm", "--test", "test.ffm", "--model", "deepfm", "--json"]
    report = json.loads(subprocess.run(line, cwd=folder, check=True, capture_output=True, text=True).stdout)
    return report["examples"] / report["seconds"], report["test_logloss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gannet", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=40_000)
    args = parser.parse_args()
    with open(args.folder / "criteo.svm") as file:
        lines = [line for line, _ in zip(file, range(args.rows + args.rows // 4))]
    data, binary = arrays(lines), str(args.gannet.resolve())
    with tempfile.TemporaryDirectory() as folder:
        for name, part in (("train.ffm", lines[:args.rows]), ("test.ffm", lines[args.rows:])):
            pathlib.Path(folder, name).write_text("".join(map(with_fields, part)))
        rounds = [(deepctr(*data, args.rows), gannet(binary, folder)) for _ in range(args.rounds)]
    for at, name in enumerate(["deepctr-torch", "gannet"]):
        rate = statistics.median(both[at][0] for both in rounds)
        losses = sorted({round(both[at][1], 6) for both in rounds})
        print(json.dumps({"system": name, "examples_per_second": round(rate), "log_losses": losses}))
    print(json.dumps({"ratios": sorted(round(ours[0] / theirs[0], 1) for theirs, ours in rounds)}))


if __name__ == "__main__":
    main()
