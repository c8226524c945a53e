"""Models that `gannet serve` serves to clients of the Open Inference Protocol, and what `gannet predict` says of them."""

import gzip
import itertools
import os
import subprocess
from pathlib import Path

import numpy as np

FLIGHTS = Path(__file__).parents[2] / "data" / "flights.csv.gz"
NUMBERS = ["month", "hour"]
TEXTS = ["origin", "carrier", "flight", "dest", "tailnum"]
# As they are in the file: a score is a sum in the order of the columns.
COLUMNS = NUMBERS + TEXTS
ROWS = 3000
ALL = slice(0, ROWS)
# Two features of each example of the model `sparse`, and -1 for none.
SPARSE_IDS = np.array([[i % 11, 20 + i % 5, -1] for i in range(200)], np.int64)
SPARSE_VALUES = np.array([[1, 0.5, 0]] * 200, np.float32)


def gannet(*arguments):
    done = subprocess.run([os.environ["GANNET"], *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


class Server:
    """A server of three models: `flights` (a probability), `classes` (a class and the probability of each), and `sparse`
    (a probability of features by number)."""

    def __init__(self, folder):
        self.file = folder / "flights.csv"
        with gzip.open(FLIGHTS, "rt") as lines:
            self.file.write_text("".join(itertools.islice(lines, ROWS + 1)))
        header, *rows = (line.split(",") for line in self.file.read_text().splitlines())
        self.columns = dict(zip(header, zip(*rows, strict=True), strict=True))
        self.sparse_file = folder / "sparse.svm"
        ids = enumerate(SPARSE_IDS.tolist())
        self.sparse_file.write_text("".join(f"{at % 3 // 2} {a}:1 {b}:0.5\n" for at, (a, b, _) in ids))
        columns = ["--label", "label", "--categorical", ",".join(TEXTS), "--numeric", ",".join(NUMBERS)]
        models = {
            "flights": [self.file, *columns],
            "classes": [self.file, *columns, "--model", "softmax", "--classes", "2"],
            "sparse": [self.sparse_file],
        }
        command = [os.environ["GANNET"], "serve", "--listen", "127.0.0.1:0"]
        for name, arguments in models.items():
            gannet("train", "--out", folder / name, *arguments)
            command += ["--model", f"{name}={folder / name}"]
        self.folder = folder
        self.predicted = self.predict("flights", self.file)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split("://")[-1].strip()

    def predict(self, model, file):
        """The lines that `gannet predict` prints."""
        return gannet("predict", "--model", self.folder / model, file)

    def column(self, name):
        values = self.columns[name]
        return np.array(values, np.float64) if name in NUMBERS else np.array(values, np.object_)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def inputs_of(triton, server, rows=ALL, types=None, **given):
    """The columns of flights as inputs of Triton's client, which is the module `triton`. `types`: other types of
    columns."""
    inputs = []
    for name in COLUMNS:
        values = server.column(name)[rows]
        kind = "BYTES" if name in TEXTS else "FP64"
        if types and name in types:
            kind, dtype = types[name]
            values = values.astype(dtype)
        inputs.append(triton.InferInput(name, list(values.shape), kind))
        inputs[-1].set_data_from_numpy(values, **given)
    return inputs


def printed(values):
    return [f"{value:.6f}" for value in values]


def printed_classes(classes, chances):
    return [f"{of} {chance[of]:.6f}" for of, chance in zip(classes, chances, strict=True)]
