"""Logistic regression on a data set, with a numpy training loop over a parameter server.

The data is a CSV file, or the same columns as a table of pyarrow. A feature has the same key in both.

    python dataset.py                      # data/flights.csv.gz: which flights are late?
    python dataset.py --table              # the same, read by pyarrow first
    python dataset.py my.csv --label bought --numeric price,age

Two workers share the batches. Each prints the log loss of its examples, measured before it learned them.
"""

import argparse
from pathlib import Path

import numpy as np

import gannet

FLIGHTS = Path(__file__).resolve().parents[2] / "data/flights.csv.gz"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="?", type=Path, default=FLIGHTS, help="a CSV file with a header")
    parser.add_argument("--label", help="the label's column; its values are 0 and 1")
    parser.add_argument("--numeric", default="", help="columns of numbers, with commas; the others are categories")
    parser.add_argument("--table", action="store_true", help="read the file with pyarrow, and train on its table")
    parser.add_argument("--batch", type=int, default=512, help="examples of a step")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the data")
    return parser.parse_args()


def dataset(flags: argparse.Namespace) -> gannet.Dataset:
    columns = {"label": flags.label, "numeric": [name for name in flags.numeric.split(",") if name]}
    if not flags.table:
        return gannet.Dataset(flags.csv, **columns)
    import pyarrow
    import pyarrow.csv

    # Texts stay texts: a category 01 is not 1.
    names = gannet.Dataset(flags.csv, **columns).columns.categorical
    types = {name: pyarrow.string() for name in names}
    options = pyarrow.csv.ConvertOptions(column_types=types)
    return gannet.Dataset(pyarrow.csv.read_csv(flags.csv, convert_options=options), **columns)


def learn(table: gannet.Table, batch: gannet.Batch) -> float:
    """Learns a batch. Returns the sum of its log losses before."""
    weights = table.pull(batch.keys)[:, 0]
    scores = np.bincount(batch.examples, weights=weights * batch.values, minlength=len(batch))
    chances = 1 / (1 + np.exp(-scores))
    errors = (chances - batch.labels) / len(batch)
    grads = errors[batch.examples] * batch.values
    table.push(batch.keys, grads.astype(np.float32)[:, None])  # the gradients of a key are added
    losses = -np.log(np.where(batch.labels == 1, chances, 1 - chances).clip(1e-12))
    return float(losses.sum())


def main() -> None:
    flags = parse()
    data = dataset(flags)
    print(data)

    def work(rank: int, client: gannet.Client) -> None:
        table = client.table("weights", dim=1, optimizer=gannet.Adagrad(lr=0.5), init=gannet.Zero())
        batches = data.batches(flags.batch, epochs=flags.epochs, intercept=True, rank=rank, workers=2)
        loss = examples = 0.0
        for step, batch in enumerate(batches, 1):
            loss += learn(table, batch)
            examples += len(batch)
            if step % 100 == 0:
                print(f"worker {rank}, step {step}: log loss {loss / examples:.4f}", flush=True)
        print(f"worker {rank}: log loss {loss / examples:.4f} over {examples:.0f} examples", flush=True)

    with gannet.LocalCluster(servers=2, workers=2) as cluster:
        cluster.run(work)
        with gannet.connect(cluster.servers) as client:
            weights = client.table("weights", dim=1, optimizer=gannet.Adagrad(lr=0.5), init=gannet.Zero())
            print(f"{weights.stats().rows} weights")


if __name__ == "__main__":
    main()
