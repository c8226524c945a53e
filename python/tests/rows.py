"""Examples for the tests of estimators, and what the command makes of the same examples."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import gannet


def hashed(count: int, seed: int) -> tuple[Any, Any]:
    """Examples with 8 of 1,000 features, and labels that depend on them."""
    rows, scores = scored(count, seed)
    return rows, (scores > 0).astype(int)


def scored(count: int, seed: int) -> tuple[Any, Any]:
    """Examples with 8 of 1,000 features, and noisy sums of a number for each of their features."""
    random = np.random.default_rng(seed)
    truth = np.random.default_rng(7).normal(size=1000)
    columns = np.sort(random.permuted(np.tile(np.arange(1000), (count, 1)), axis=1)[:, :8], axis=1)
    scores = truth[columns].sum(axis=1) + random.normal(size=count)
    values = np.ones(count * 8)
    return sparse.csr_matrix((values, columns.ravel(), np.arange(0, count * 8 + 1, 8)), (count, 1000)), scores


def write_svm(path: Path, rows: Any, labels: Any) -> None:
    """Writes examples of value 1 for the command."""
    with open(path, "w") as file:
        for i in range(rows.shape[0]):
            columns = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
            file.write("%r %s\n" % (float(labels[i]), " ".join("%d:1" % column for column in columns)))


def run_command(folder: Path, *words: str) -> str:
    """What the command prints."""
    done = subprocess.run([gannet.command(), *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained_by_the_command(folder: Path, rows: Any, labels: Any, flags: str) -> tuple[dict[str, Any], Any]:
    """Trains a model in `folder/model`. Returns the report, and the predictions for the same examples."""
    write_svm(folder / "rows.svm", rows, labels)
    report = json.loads(run_command(folder, "train", "rows.svm", *flags.split(), "--json", "--out", "model"))
    return report, np.array(run_command(folder, "predict", "--model", "model", "rows.svm").split(), float)
