#!/usr/bin/env python3
"""Writes three million flights of npm's vega-datasets 3.2.1 as CSV for `gannet train`, and runs scikit-learn on them.

    python -m venv CACHE/ml && CACHE/ml/bin/pip install numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 pyarrow
    (cd CACHE && npm pack vega-datasets@3.2.1)
    CACHE/ml/bin/python bench/peers/flights_3m.py CACHE/vega-datasets-3.2.1.tgz CACHE/flights-3m [--fit]

The label is delay > 15 minutes. The columns are all categories: origin, destination, hour, weekday, month, date. Every
fifth row (i % 5 == 0, in the order of the file, which is the order of departure) is held out. The script writes
DIR/train.csv and DIR/test.csv. With --fit it prints JSON: the AUC and log loss of scikit-learn's logistic regression
(one-hot, C = 1, lbfgs) on the held-out rows, and its seconds.
"""
import argparse
import io
import json
import pathlib
import tarfile
import time

MEMBER = "package/data/flights-3m.parquet"
ROWS = 3_000_000
LATE_MINUTES = 15
HELD_OUT = 5
COLUMNS = ["origin", "destination", "hour", "weekday", "month", "date"]


def table(tgz):
    """The flights as columns of strings, and the labels."""
    import numpy as np
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with tarfile.open(tgz) as tar:
        flights = pq.read_table(io.BytesIO(tar.extractfile(MEMBER).read()))
    if flights.num_rows != ROWS:
        raise SystemExit(f"{tgz}: {flights.num_rows} flights where {ROWS} were expected; is it vega-datasets 3.2.1?")
    when = flights["date"]
    columns = {
        "origin": flights["origin"], "destination": flights["destination"], "hour": pc.hour(when),
        "weekday": pc.day_of_week(when), "month": pc.month(when), "date": pc.strftime(when, "%Y-%m-%d"),
    }
    late = np.asarray(pc.greater(flights["delay"], LATE_MINUTES)).astype(int)
    return {name: np.asarray(values).astype(str) for name, values in columns.items()}, late


def write(directory, columns, late, held_out):
    directory.mkdir(parents=True, exist_ok=True)
    for name, keep in [("train", ~held_out), ("test", held_out)]:
        with open(directory / f"{name}.csv", "w") as f:
            f.write(",".join(["label", *COLUMNS]) + "\n")
            rows = zip(late[keep].astype(str), *(columns[c][keep] for c in COLUMNS))
            f.writelines(",".join(row) + "\n" for row in rows)


def fit(columns, late, held_out):
    import numpy as np
    import sklearn
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.preprocessing import OneHotEncoder

    start = time.monotonic()
    x = np.stack([columns[c] for c in COLUMNS], axis=1)
    encoder = OneHotEncoder(handle_unknown="ignore")
    model = LogisticRegression(C=1.0, max_iter=1000).fit(encoder.fit_transform(x[~held_out]), late[~held_out])
    p = model.predict_proba(encoder.transform(x[held_out]))[:, 1]
    return {
        "train_rows": int((~held_out).sum()), "test_rows": int(held_out.sum()),
        "features": sum(len(c) for c in encoder.categories_), "late": round(float(late.mean()), 4),
        "test_auc": round(float(roc_auc_score(late[held_out], p)), 5),
        "test_logloss": round(float(log_loss(late[held_out], p)), 5), "iterations": int(model.n_iter_[0]),
        "seconds": round(time.monotonic() - start, 1), "sklearn": sklearn.__version__,
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("package", type=pathlib.Path, help="vega-datasets-3.2.1.tgz")
    arguments.add_argument("directory", type=pathlib.Path)
    arguments.add_argument("--fit", action="store_true", help="scikit-learn too (minutes, 4 GB)")
    options = arguments.parse_args()
    if not options.package.is_file():
        raise SystemExit(f"{options.package}: no such file; get it with: npm pack vega-datasets@3.2.1")
    import numpy as np

    columns, late = table(options.package)
    held_out = np.arange(ROWS) % HELD_OUT == 0
    write(options.directory, columns, late, held_out)
    if options.fit:
        print(json.dumps(fit(columns, late, held_out), indent=1))


if __name__ == "__main__":
    main()
