#!/usr/bin/env python3
"""Runs scikit-learn's logistic regression on data/flights.csv.gz. `gannet train` must not be worse.

    python -m venv CACHE/ml && CACHE/ml/bin/pip install numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1
    CACHE/ml/bin/python bench/peers/sklearn_flights.py > flights.json

One-hot categories, C = 1, lbfgs; every fifth row (i % 5 == 0, counted from 0 after the header) is held out, and
categories seen only there are ignored. Once on the eight categorical columns, once with the date as a ninth.
Prints JSON: auc and log loss of the held-out rows.

    --split DIR   also writes DIR/flights-train.csv and DIR/flights-test.csv, the same split, for `gannet train`
"""
import argparse
import csv
import gzip
import json
import pathlib
import time

EIGHT = ["carrier", "flight", "tailnum", "origin", "dest", "hour", "month", "weekday"]
DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "flights.csv.gz"
HELD_OUT = 5


def split(directory, header, rows):
    directory.mkdir(parents=True, exist_ok=True)
    for name, keep in [("train", lambda i: i % HELD_OUT != 0), ("test", lambda i: i % HELD_OUT == 0)]:
        with open(directory / f"flights-{name}.csv", "w", newline="") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow(header)
            out.writerows(r for i, r in enumerate(rows) if keep(i))


def fit(header, rows, columns):
    # Imported here, so that --split --no-fit needs only the standard library.
    import numpy as np
    import sklearn
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.preprocessing import OneHotEncoder

    start = time.monotonic()
    at = [header.index(c) for c in columns]
    x = np.array([[r[i] for i in at] for r in rows], dtype=object)
    y = np.array([int(r[0]) for r in rows])
    test = np.arange(len(rows)) % HELD_OUT == 0
    encoder = OneHotEncoder(handle_unknown="ignore")
    model = LogisticRegression(C=1.0, max_iter=1000).fit(encoder.fit_transform(x[~test]), y[~test])
    p = model.predict_proba(encoder.transform(x[test]))[:, 1]
    return {
        "columns": columns, "train_rows": int((~test).sum()), "test_rows": int(test.sum()),
        "features": sum(len(c) for c in encoder.categories_), "test_auc": round(float(roc_auc_score(y[test], p)), 5),
        "test_logloss": round(float(log_loss(y[test], p)), 5), "iterations": int(model.n_iter_[0]),
        "seconds": round(time.monotonic() - start, 1), "sklearn": sklearn.__version__,
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--split", metavar="DIR", type=pathlib.Path)
    arguments.add_argument("--no-fit", action="store_true", help="with --split: do not run scikit-learn")
    options = arguments.parse_args()
    with gzip.open(DATA, "rt", newline="") as f:
        header, *rows = csv.reader(f)
    if options.split:
        split(options.split, header, rows)
    if not options.no_fit:
        print(json.dumps({"eight": fit(header, rows, EIGHT), "with_date": fit(header, rows, [*EIGHT, "date"])}, indent=1))


if __name__ == "__main__":
    main()
