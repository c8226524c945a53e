#!/usr/bin/env python3
"""Held-out losses with default settings when numbers are measured in other units, beside vw's defaults.

    CACHE/v/bin/pip install vowpalwabbit==9.11.9
    CACHE/v/bin/python bench/runs/units.py CACHE [--gannet FILE] [--criteo FILE.tsv] > docs/benchmarks/units.tsv

CACHE is that of public_tables.py. Each number column is multiplied by a power of ten, drawn evenly between 1e-6 and
1e6, in the rows that train and in those that test. Both trainings name the columns of numbers (--numeric), so only the
units differ. vw gets numbers as name:value, and learns with --loss_function logistic and no other flag. --criteo is
a log in Criteo's form, as scripts/data/criteo_like.py --tsv writes it; the last fifth of its rows tests.
"""
import argparse
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import pandas
from public_tables import IDS, TABLES, fetch, loss, split

MODELS = ["lr", "fm", "deepfm"]


def numbers_of(name, table):
    return [c for c in table if c != "label" and pandas.api.types.is_numeric_dtype(table[c]) and c not in IDS.get(name, [])]


def scaled(table, numbers, seed):
    drawn = random.Random(seed)
    table = table.copy()
    for column in numbers:
        table[column] = table[column].astype(float) * 10 ** drawn.uniform(-6, 6)
    return table


def write_vw(table, numbers, file):
    plain = [name.replace(":", "_").replace("|", "_").replace(" ", "_") for name in table]
    with open(file, "w") as out:
        for row in table.itertuples(index=False):
            words = []
            for column, name, value in zip(table, plain, row):
                if column == "label" or value != value:
                    continue
                text = str(value).replace(":", "_").replace("|", "_").replace(" ", "_")
                words.append(f"{name}:{value:.9g}" if column in numbers else f"{name}={text}")
            print(1 if row[0] == 1 else -1, "|", *words, file=out)


def vw_loss(folder, train, test, numbers):
    files = [folder / "train.vw", folder / "test.vw"]
    write_vw(train, numbers, files[0])
    write_vw(test, numbers, files[1])
    model, said = folder / "model.vw", folder / "said"
    vw = [sys.executable, "-m", "vowpalwabbit", "--quiet", "--loss_function", "logistic"]
    subprocess.run([*vw, "-d", files[0], "-f", model], check=True)
    subprocess.run([*vw, "-t", "-i", model, "-d", files[1], "--link", "logistic", "-p", said], check=True)
    p = numpy.clip(numpy.loadtxt(said), 1e-7, 1 - 1e-7)
    y = test.label.to_numpy()
    return float(-numpy.mean(y * numpy.log(p) + (1 - y) * numpy.log(1 - p)))


def losses(gannet, name, train, test, numbers):
    """The losses of all models, and of vw."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        parts = [folder / "train.csv", folder / "test.csv"]
        for table, part in zip((train, test), parts):
            table.to_csv(part, index=False, float_format="%.9g")
        numeric = ["--numeric", ",".join(numbers)]
        found = [loss(gannet, parts, f"--model {model}", numeric) for model in MODELS]
        return [*found, vw_loss(folder, train, test, numbers)]


def criteo(file):
    """Rows of Criteo's own form: a label, 13 counts, 26 categories."""
    names = ["label", *[f"count{i}" for i in range(1, 14)], *[f"category{i}" for i in range(1, 27)]]
    return pandas.read_csv(file, sep="\t", names=names, dtype={name: str for name in names[14:]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gannet", default="target/release/gannet")
    parser.add_argument("--criteo", type=Path)
    args = parser.parse_args()
    if not (args.folder / "csv").exists():
        fetch(args.folder)
    names = [f"{model}{units}" for model in (*MODELS, "vw") for units in ("", " other units")]
    print("table", "numbers", *names, sep="\t")
    tables = [(name, *map(pandas.read_csv, split(args.folder, name))) for name in TABLES]
    if args.criteo:
        table = criteo(args.criteo)
        cut = int(len(table) * 0.8)
        tables.append(("criteo", table[:cut], table[cut:]))
    for name, train, test in tables:
        numbers = numbers_of(name, train)
        if len(numbers) < 2:
            continue
        same = losses(args.gannet, name, train, test, numbers)
        other = losses(args.gannet, name, *(scaled(part, numbers, name) for part in (train, test)), numbers)
        pairs = [f"{x:.4f}" for pair in zip(same, other) for x in pair]
        print(name, len(numbers), *pairs, sep="\t", flush=True)


if __name__ == "__main__":
    sys.exit(main())
