"""Frames for the tests of estimators, and what the command makes of the same rows in a CSV file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from rows import run_command


def visits(count: int, seed: int) -> tuple[Any, Any]:
    """A frame with all kinds of columns, some values of which are missing, and scores that depend on them."""
    random = np.random.default_rng(seed)
    city = random.choice(np.array(["Kiel", "Ulm", "Bonn", None], object), count, p=[0.4, 0.3, 0.2, 0.1])
    kind = random.choice(["old", "new", "odd"], count)
    age = np.round(random.normal(40, 10, count), 2)
    age[random.random(count) < 0.1] = np.nan
    pages = random.poisson(5, count)
    money = np.round(random.lognormal(5, 2, count), 3)
    code = random.choice(["007", "012", "113"], count)
    flag = random.random(count) < 0.3
    scores = (city == "Kiel") + 0.3 * pages + 0.02 * np.nan_to_num(age) + (kind == "odd") * flag + 0.3 * np.log(money)
    kinds = pd.Categorical(kind)
    frame = pd.DataFrame(
        {"city": city, "kind": kinds, "age": age, "pages": pages, "money": money, "code": code, "flag": flag}
    )
    return frame, np.asarray(scores, float) - 4.5 + random.normal(size=count)


def write_rows(path: Path, frame: Any, labels: Any) -> None:
    """Writes a frame for the command, with the column `target` of labels."""
    table = pa.Table.from_pandas(frame, preserve_index=False).add_column(0, "target", pa.array(labels))
    plain = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.columns]
    pa.csv.write_csv(pa.table(plain, table.column_names), path)


def trained_on_rows(folder: Path, frame: Any, labels: Any, flags: str) -> tuple[dict[str, Any], Any]:
    """Trains a model in `folder/model` on a CSV file. Returns the report, and the predictions for the same rows."""
    write_rows(folder / "rows.csv", frame, labels)
    words = ["rows.csv", "--label", "target", *flags.split(), "--json", "--out", "model"]
    report = json.loads(run_command(folder, "train", *words))
    return report, np.array(run_command(folder, "predict", "--model", "model", "rows.csv").split(), float)
