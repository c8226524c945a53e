"""Training steps a second: gannet.torch.Embedding beside torch.nn.Embedding, with sparse and with dense gradients.

    python python/bench/torch_steps.py [--rows 1000000,10000000,50000000] [--rounds 5] [--seconds 3]

One embedding of dim 16 and 39 ids an example, drawn with a skew as click data have it, then a small network. Each
competitor trains for some seconds in each round, in turn. It prints the median of the rounds. The servers of gannet are
two processes of this machine.
"""

import argparse
import gc
import statistics
import time

import gannet
import numpy as np
import torch
from torch import nn

import gannet.torch

FIELDS, DIM, BATCH = 39, 16, 1024


def batches(rows, count=64):
    """Ids with a density of about 1/x."""
    random = np.random.default_rng(7)
    for _ in range(count):
        ids = np.exp(random.uniform(0, np.log(rows), (BATCH, FIELDS))).astype(np.int64) - 1
        yield torch.from_numpy(ids), torch.from_numpy(random.integers(0, 2, (BATCH, 1)).astype(np.float32))


class Model(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(FIELDS * DIM, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids):
        return self.network(self.embedding(ids))


def steps_in(model, optimizer, data, seconds):
    """Steps a second."""
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        ids, labels = data[steps % len(data)]
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(ids), labels).backward()
        optimizer.step()
        steps += 1
    return steps / (time.perf_counter() - begin)


def competitors(rows, client):
    """Names, and models with their optimizers. One is in memory at a time."""
    def own(sparse):
        model = Model(nn.Embedding(rows, DIM, sparse=sparse))
        return model, torch.optim.Adagrad(model.parameters(), lr=0.01)

    def ours():
        rule = gannet.Adagrad(lr=0.01, eps=1e-10, initial_accumulator=0.0)
        model = Model(gannet.torch.Embedding(client, f"rows-{rows}", DIM, optimizer=rule))
        return model, torch.optim.Adagrad(model.parameters(), lr=0.01)

    return {
        "gannet.torch": ours,
        "nn.Embedding(sparse=True)": lambda: own(True),
        "nn.Embedding, dense": lambda: own(False),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000000,10000000,50000000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--transport", default="auto")
    given = parser.parse_args()
    print(f"{BATCH} examples a step, {FIELDS} ids an example, dim {DIM}, Adagrad; torch {torch.__version__}")
    with gannet.LocalCluster(servers=2) as cluster:
        with gannet.connect(cluster.servers, transport=given.transport) as client:
            print(f"gannet over {client.transport}, two servers")
            for rows in map(int, given.rows.split(",")):
                compare(rows, client, list(batches(rows)), given)


def compare(rows, client, data, given):
    rates = {name: [] for name in competitors(rows, client)}
    for _ in range(given.rounds):
        for name, make in competitors(rows, client).items():
            model, optimizer = make()
            steps_in(model, optimizer, data, 0.5)
            rates[name].append(steps_in(model, optimizer, data, given.seconds))
            del model, optimizer
            gc.collect()
    for name, of_rounds in rates.items():
        spread = f"{min(of_rounds):.2f} to {max(of_rounds):.2f}"
        print(f"{rows:>11,} rows  {name:<27} {statistics.median(of_rounds):8.2f} steps/s  ({spread})", flush=True)


if __name__ == "__main__":
    main()
