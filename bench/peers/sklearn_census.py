#!/usr/bin/env python3
"""Runs scikit-learn's logistic regression on census-income, to compare with `gannet train`.

    python scripts/data/fetch_census.py CACHE/census
    python -m venv CACHE/ml && CACHE/ml/bin/pip install numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1
    CACHE/ml/bin/python bench/peers/sklearn_census.py CACHE/census > census.json

C = 1, lbfgs, the official split. The seven numeric columns are read in three ways: as categories, standardised, or as
standardised log(1 + x). The other 33 are always categories. Prints JSON: auc and log loss of the test rows.
"""
import csv
import json
import pathlib
import sys
import time

import numpy as np
import sklearn
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "data"))
from fetch_census import NUMERIC  # noqa: E402


def load(path):
    with open(path, newline="") as f:
        header, *rows = csv.reader(f)
    return header, np.array(rows, dtype=object)


def features(header, train, test, numeric):
    at = [i for i, c in enumerate(header) if c in NUMERIC]
    categories = [i for i in range(1, len(header)) if numeric == "categories" or i not in at]
    encoder = OneHotEncoder(handle_unknown="ignore").fit(train[:, categories])
    parts = [[encoder.transform(x[:, categories])] for x in (train, test)]
    if numeric != "categories":
        numbers = [x[:, at].astype(float) for x in (train, test)]
        numbers = [np.log1p(x) for x in numbers] if numeric == "log" else numbers
        scaler = StandardScaler().fit(numbers[0])
        for part, x in zip(parts, numbers):
            part.append(csr_matrix(scaler.transform(x)))
    return [hstack(part).tocsr() for part in parts]


def fit(header, train, test, numeric):
    start = time.monotonic()
    x, x_test = features(header, train, test, numeric)
    y, y_test = train[:, 0].astype(int), test[:, 0].astype(int)
    model = LogisticRegression(C=1.0, max_iter=3000).fit(x, y)
    p = model.predict_proba(x_test)[:, 1]
    return {"features": x.shape[1], "test_auc": round(float(roc_auc_score(y_test, p)), 5),
            "test_logloss": round(float(log_loss(y_test, p)), 5), "iterations": int(model.n_iter_[0]),
            "seconds": round(time.monotonic() - start, 1), "sklearn": sklearn.__version__}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: sklearn_census.py DIR, where fetch_census.py wrote")
    directory = pathlib.Path(sys.argv[1])
    header, train = load(directory / "census-train.csv")
    _, test = load(directory / "census-test.csv")
    print(json.dumps({n: fit(header, train, test, n) for n in ("categories", "standardised", "log")}, indent=1))


if __name__ == "__main__":
    main()
