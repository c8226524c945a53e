"""The flights of data/, as click models take them: a number for each value of each column."""

import csv
import gzip
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[2] / "data" / "flights.csv.gz"
COLUMNS = ("month", "weekday", "hour", "origin", "carrier", "dest", "flight", "tailnum")
# Every fourth flight is for the test.
TEST_STEP = 4


def flights(rows, columns=COLUMNS):
    """`rows` flights, spread over the year. Returns training and test parts of (ids by column, labels), and the number
    of values of each column. Ids begin at 1: 0 is for padding."""
    with gzip.open(FILE, "rt") as file:
        table = list(csv.DictReader(file))
    table = table[:: max(1, len(table) // rows)][:rows]
    ids, sizes = {}, {}
    for column in columns:
        values, ids[column] = np.unique([row[column] for row in table], return_inverse=True)
        ids[column] = ids[column].astype(np.int64) + 1
        sizes[column] = len(values) + 1
    labels = np.array([float(row["label"]) for row in table], np.float32)
    tests = np.arange(len(table)) % TEST_STEP == 0
    train, test = (({column: ids[column][part] for column in columns}, labels[part]) for part in (~tests, tests))
    return train, test, sizes
