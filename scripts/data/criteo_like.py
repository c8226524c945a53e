#!/usr/bin/env python3
"""Writes DIR/criteo.svm and DIR/criteo.vw: the same synthetic examples, shaped like Criteo's display-advertising data.
With --tsv also DIR/criteo.tsv, in the form of Criteo's own files: the counts themselves, and categories of eight
hexadecimal digits (each id times an odd number, modulo 2^32).

    CACHE/ml/bin/python scripts/data/criteo_like.py DIR [--rows 500000] [--seed 1]        # needs numpy

39 features an example: 13 numbers (log(2 + count)) and 26 categories with the
cardinalities that are published for the Kaggle set, drawn by a truncated power law (rank^-EXPONENT). Labels come from
a hidden logistic model in which a share of the values have a weight; about a quarter are positive.

libsvm: `label id:value ...`, label 0 or 1; vw: `label | id:value id ...`, label -1 or 1. The ids are the same in both,
ascending in a row, one for each (field, value) that occurs: 1..13 are the numbers, then each field has its own range,
in which its values are in random order. With -b 22 all ids are below the slot of vw's intercept, so vw has no
collisions from 22 bits on. The same rows, seed and numpy give the same bytes.
"""
import argparse
import hashlib
import json
import pathlib

import numpy as np

CARDINALITIES = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306,
                 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]
NUMBERS = 13
EXPONENT = 1.15
POSITIVES = 0.25
INFORMATIVE = 0.3  # the share of categories that have a weight in the hidden model
WEIGHT_DEVIATION = 0.35
VW_CONSTANT = 11650396 & ((1 << 22) - 1)
CHUNK = 20_000


def ranks(rng, cardinality, rows):
    """0-based ranks by the continuous power law on [1, cardinality + 1), inverted and rounded down."""
    power = 1.0 - EXPONENT
    u = rng.random(rows)
    x = (1.0 + u * ((cardinality + 1.0) ** power - 1.0)) ** (1.0 / power)
    return np.minimum(x.astype(np.int64) - 1, cardinality - 1)


def features(rng, rows):
    """Numbers (rows x 13, three decimals), ids of the categories (rows x 26), and the hidden model's margin."""
    counts = np.floor(np.exp(rng.normal(1.0, 1.5, (rows, NUMBERS))))
    numbers = np.round(np.log(2.0 + counts), 3)  # never 0: vw drops a feature whose value is 0
    margin = (numbers - numbers.mean(axis=0)) @ rng.normal(0.0, 0.15, NUMBERS)
    ids = np.empty((rows, len(CARDINALITIES)), dtype=np.int64)
    first = NUMBERS + 1
    for field, cardinality in enumerate(CARDINALITIES):
        seen, at = np.unique(ranks(rng, cardinality, rows), return_inverse=True)
        weights = rng.normal(0.0, WEIGHT_DEVIATION, len(seen)) * (rng.random(len(seen)) < INFORMATIVE)
        margin += weights[at]
        ids[:, field] = first + rng.permutation(len(seen))[at]
        first += len(seen)
    if first > VW_CONSTANT:
        raise SystemExit(f"{first} ids reach the slot of vw's intercept, {VW_CONSTANT}: use fewer rows")
    return numbers, ids, margin, first - 1


def intercept(margin):
    """The constant that makes POSITIVES the mean probability, by bisection."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(-(margin + middle)))).mean() < POSITIVES else (low, middle)
    return low


def write(directory, labels, numbers, ids):
    """Writes both files, a chunk of rows at a time. Returns their sha256."""
    digests = {}
    prefix = [f"{j + 1}:" for j in range(NUMBERS)]
    for suffix, one, zero, bar, unit in [("svm", "1", "0", "", ":1"), ("vw", "1", "-1", "| ", "")]:
        digest = hashlib.sha256()
        with open(directory / f"criteo.{suffix}", "wb") as f:
            for at in range(0, len(labels), CHUNK):
                part = slice(at, at + CHUNK)
                columns = [[one + " " + bar if y else zero + " " + bar for y in labels[part].tolist()]]
                columns += [[f"{p}{v:g}" for v in numbers[part, j].tolist()] for j, p in enumerate(prefix)]
                columns += [[f"{i}{unit}" for i in ids[part, j].tolist()] for j in range(ids.shape[1])]
                text = "".join(row[0] + " ".join(row[1:]) + "\n" for row in zip(*columns)).encode()
                digest.update(text)
                f.write(text)
        digests[f"criteo.{suffix}"] = digest.hexdigest()
    return digests


def write_tsv(directory, labels, numbers, ids):
    """Writes criteo.tsv with the counts whose logarithms are the numbers. Returns its sha256."""
    digest = hashlib.sha256()
    with open(directory / "criteo.tsv", "wb") as f:
        for at in range(0, len(labels), CHUNK):
            part = slice(at, at + CHUNK)
            counts = np.maximum(np.rint(np.exp(numbers[part]) - 2.0), 0).astype(np.int64)
            hashed = (ids[part].astype(np.uint64) * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
            columns = [["1" if y else "0" for y in labels[part].tolist()]]
            columns += [[str(c) for c in counts[:, j].tolist()] for j in range(NUMBERS)]
            columns += [[f"{h:08x}" for h in hashed[:, j].tolist()] for j in range(ids.shape[1])]
            text = "".join("\t".join(row) + "\n" for row in zip(*columns)).encode()
            digest.update(text)
            f.write(text)
    return digest.hexdigest()


def unique_keys(ids, batch):
    """Distinct keys an example, the 13 numbers and the intercept counted, over the first batches."""
    batches = [ids[i:i + batch] for i in range(0, min(len(ids), 100_000), batch)]
    return round(sum(len(np.unique(b)) + NUMBERS + 1 for b in batches) / sum(len(b) for b in batches), 2)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("directory", type=pathlib.Path)
    arguments.add_argument("--rows", type=int, default=500_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--tsv", action="store_true")
    options = arguments.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.PCG64(options.seed))
    numbers, ids, margin, features_seen = features(rng, options.rows)
    p = 1 / (1 + np.exp(-(margin + intercept(margin))))
    labels = rng.random(options.rows) < p
    digests = write(options.directory, labels, numbers, ids)
    if options.tsv:
        digests["criteo.tsv"] = write_tsv(options.directory, labels, numbers, ids)
    print(json.dumps({
        "rows": options.rows, "seed": options.seed, "numpy": np.__version__, "features": features_seen,
        "positives": round(float(labels.mean()), 5),
        "best_logloss": round(float(-np.where(labels, np.log(p), np.log1p(-p)).mean()), 6),
        "unique_keys_per_example": {b: unique_keys(ids, b) for b in (64, 256, 1024, 4096)}, "sha256": digests,
    }, indent=1))


if __name__ == "__main__":
    main()
