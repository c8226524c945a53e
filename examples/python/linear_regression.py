"""Linear regression with a parameter server: y = 2x + 10 with noise, learned by several worker processes.

The flags are those of the well-known TensorFlow example. Start each line in a shell of its own:

    JOB="--ps_hosts=127.0.0.1:7700 --worker_hosts=127.0.0.1:7800,127.0.0.1:7801 --issync=0"
    python linear_regression.py $JOB --job_name=ps --task_index=0
    python linear_regression.py $JOB --job_name=worker --task_index=0
    python linear_regression.py $JOB --job_name=worker --task_index=1

With --issync=1 a step is the mean gradient of all workers. A ps runs until Ctrl-C.
"""

import argparse
import os

import numpy as np

import gannet

WEIGHT, BIAS = 0, 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ps_hosts", required=True, help="the addresses of all ps processes, with commas")
    parser.add_argument("--worker_hosts", required=True, help="a name for each worker, with commas")
    parser.add_argument("--job_name", required=True, choices=("ps", "worker"))
    parser.add_argument("--task_index", type=int, default=0, help="which ps or worker this process is, from 0")
    parser.add_argument("--issync", type=int, default=0, choices=(0, 1), help="1: a step waits for all workers")
    parser.add_argument("--steps", type=int, default=500, help="steps of each worker")
    parser.add_argument("--batch", type=int, default=32, help="examples of a step")
    return parser.parse_args()


def serve(flags: argparse.Namespace) -> None:
    """Becomes the command `gannet`, as a ps."""
    words = ["gannet", "train", "--job-name=ps", f"--task-index={flags.task_index}"]
    words += [f"--ps-hosts={flags.ps_hosts}", f"--worker-hosts={flags.worker_hosts}"]
    os.execv(gannet.command(), words)


def work(flags: argparse.Namespace) -> None:
    workers = len(flags.worker_hosts.split(","))
    random = np.random.default_rng(flags.task_index)
    with gannet.connect(flags.ps_hosts, rank=flags.task_index) as client:
        table = client.table("line", dim=1, optimizer=gannet.Sgd(lr=0.05), init=gannet.Zero())
        if flags.issync:
            client.join(flags.task_index, workers, "bsp")
        keys = np.array([WEIGHT, BIAS], np.uint64)
        line = np.empty((2, 1), np.float32)
        for step in range(flags.steps):
            x = random.normal(size=flags.batch)
            y = 2 * x + 10 + 0.3 * random.normal(size=flags.batch)
            weight, bias = table.pull(keys, out=line)[:, 0]
            error = weight * x + bias - y
            gradient = np.array([[np.mean(error * x)], [np.mean(error)]], np.float32)
            table.push(keys, gradient)
            if flags.issync:
                client.tick()
            if step % 100 == 0:
                print(f"worker {flags.task_index}, step {step}: loss {np.mean(error**2) / 2:.4f}", flush=True)
        client.leave()
        weight, bias = table.pull(keys)[:, 0]
        print(f"worker {flags.task_index}: y = {weight:.2f} x + {bias:.2f}", flush=True)


if __name__ == "__main__":
    flags = parse()
    serve(flags) if flags.job_name == "ps" else work(flags)
