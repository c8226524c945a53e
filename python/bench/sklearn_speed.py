"""Training speed and log loss of gannet.sklearn beside scikit-learn and Vowpal Wabbit, on one matrix.

The examples are clicks of one-hot columns: `--fields` fields with values of Zipf's law, hashed into `--features`
features of value 1. A logistic model makes the labels. All learners get the same rows, and are scored on rows that
none has seen. They take turns for `--rounds` rounds. A line has the median of the rows of the matrix over the seconds
of a fit, the lowest and highest in brackets, the passes or iterations of the fit, and the log loss on the other rows.

    pip install scikit-learn==1.9.1 vowpalwabbit==9.11.9
    python bench/sklearn_speed.py

Vowpal Wabbit gets the rows as lines of text. "vw, file" reads a file of them without a cache, from Python. "vw, lines"
is a call of `learn` for each line, which Python parses into an example first. Without the package both are left out.
Online learners make one pass. No learner is tuned: all other numbers are defaults. Solvers end by their own default
tolerance, or after 100 iterations.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Callable

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss

import gannet
from gannet.sklearn import FMClassifier, FTRLClassifier

try:
    import vowpalwabbit
except ImportError:
    vowpalwabbit = None

# A fit returns its passes or iterations, and what predicts.
Fit = Callable[[], tuple[int, Callable[[], Any]]]


def clicks(args: argparse.Namespace, count: int, seed: int) -> tuple[Any, Any]:
    """A matrix and its labels. The truth is the same for every seed."""
    truth = np.random.default_rng(1)
    weights = truth.normal(0, 0.7, args.features)
    offsets = truth.integers(0, 2**31, args.fields)
    random = np.random.default_rng(seed)
    columns = np.empty((count, args.fields), np.int64)
    for field in range(args.fields):
        values = random.zipf(1.3, count) % 100_000
        columns[:, field] = (values * 2654435761 + offsets[field]) % args.features
    columns.sort(axis=1)
    labels = random.random(count) < 1 / (1 + np.exp(2 - weights[columns].sum(axis=1)))
    data = np.ones(columns.size)
    bounds = np.arange(0, columns.size + 1, args.fields)
    X = sparse.csr_matrix((data, columns.ravel(), bounds), (count, args.features))
    X.sum_duplicates()
    return X, labels.astype(int)


def text_of(X: Any, labels: Any) -> list[str]:
    """Lines for Vowpal Wabbit."""
    bounds = zip(labels, X.indptr, X.indptr[1:])
    return [
        f"{1 if label else -1} | "
        + " ".join(f"{key}:{value:g}" if value != 1 else str(key) for key, value in zip(X.indices[a:b], X.data[a:b]))
        for label, a, b in bounds
    ]


def estimator(model: Any, X: Any, y: Any, test: Any) -> Fit:
    def fit() -> tuple[int, Callable[[], Any]]:
        fitted = model.fit(X, y)
        return int(np.max(fitted.n_iter_)), lambda: fitted.predict_proba(test)[:, 1]

    return fit


def vw(args: argparse.Namespace, lines: list[str], test: list[str], file: Path | None) -> Fit:
    bits = max(18, (args.features - 1).bit_length())
    flags = f"--ftrl --ftrl_alpha 0.1 --ftrl_beta 1 --loss_function logistic --link logistic -b {bits} --quiet"

    def fit() -> tuple[int, Callable[[], Any]]:
        if file is not None:
            # It reads the file when it is made.
            space = vowpalwabbit.Workspace(f"{flags} -d {file}")
        else:
            space = vowpalwabbit.Workspace(flags)
            for line in lines:
                space.learn(line)
        return 1, lambda: [space.predict(line) for line in test]

    return fit


def learners(args: argparse.Namespace, folder: Path) -> dict[str, Fit]:
    X, y = clicks(args, args.rows, 2)
    test, _ = clicks(args, args.test_rows, 3)
    made: dict[str, Fit] = {
        "FTRLClassifier()": estimator(FTRLClassifier(), X, y, test),
        "SGDClassifier(log_loss)": estimator(
            SGDClassifier(loss="log_loss", max_iter=1, tol=None), X, y, test
        ),
    }
    if vowpalwabbit is not None:
        lines = text_of(X, y)
        test_lines = ["|" + line.split("|")[1] for line in text_of(test, np.zeros(test.shape[0]))]
        file = folder / "rows.vw"
        file.write_text("\n".join(lines) + "\n")
        made["vw --ftrl, file"] = vw(args, lines, test_lines, file)
        made["vw --ftrl, lines"] = vw(args, lines, test_lines, None)
    made |= {
        "FMClassifier()": estimator(FMClassifier(), X, y, test),
        "FTRLClassifier(lbfgs, l2=1)": estimator(FTRLClassifier(solver="lbfgs", l2=1.0), X, y, test),
        "LogisticRegression(lbfgs, C=1)": estimator(LogisticRegression(C=1.0), X, y, test),
        "LogisticRegression(saga, C=1)": estimator(LogisticRegression(C=1.0, solver="saga"), X, y, test),
        "FTRLClassifier(lbfgs, l1=1)": estimator(FTRLClassifier(solver="lbfgs", l1=1.0), X, y, test),
        "LogisticRegression(liblinear, l1, C=1)": estimator(
            LogisticRegression(C=1.0, l1_ratio=1.0, solver="liblinear"), X, y, test
        ),
    }
    if args.servers:
        served = FTRLClassifier(batch_size=4096, servers=args.cluster.servers)
        made[f"FTRLClassifier(batch_size=4096, servers=...), {args.servers} server"] = estimator(served, X, y, test)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--test-rows", type=int, default=50_000)
    parser.add_argument("--fields", type=int, default=20)
    parser.add_argument("--features", type=int, default=1 << 18)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--servers", type=int, default=1, help="servers on this machine; 0 for none")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.cluster = gannet.LocalCluster(servers=args.servers) if args.servers else None
    with tempfile.TemporaryDirectory() as folder:
        made = learners(args, Path(folder))
        _, truth = clicks(args, args.test_rows, 3)
        rates: dict[str, list[float]] = {name: [] for name in made}
        passes: dict[str, int] = {}
        losses: dict[str, float] = {}
        for _ in range(args.rounds):
            for name, fit in made.items():
                begin = time.perf_counter()
                passes[name], predict = fit()
                rates[name].append(args.rows / (time.perf_counter() - begin))
                losses[name] = log_loss(truth, np.asarray(predict(), float))
    print(f"| learner | thousand rows/s | passes or iterations | log loss of {args.test_rows:,} other rows |")
    print("|---|---|---|---|")
    for name, of_rounds in rates.items():
        low, middle, high = min(of_rounds), statistics.median(of_rounds), max(of_rounds)
        print(f"| {name} | {middle / 1e3:.1f} ({low / 1e3:.1f}-{high / 1e3:.1f}) | {passes[name]} | {losses[name]:.5f} |")
    if args.cluster:
        args.cluster.close()


if __name__ == "__main__":
    main()
