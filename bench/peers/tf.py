#!/usr/bin/env python3
"""Compares TensorFlow's parameter server (tf.compat.v1) with `gannet bench`: both do the same canonical work, in turn
in one run.

    python -m venv CACHE/tf && CACHE/tf/bin/pip install tensorflow-cpu==2.21.0
    cargo build --release
    CACHE/tf/bin/python bench/peers/tf.py [--rounds 3] [--dims 1,16,64] [--rows 4000000] [--batch 65536] [--seconds 3]

TensorFlow: one ps process and one worker process on loopback (grpc). The table is one variable of ROWS x dim on the ps,
indexed directly: it has no look-up by key, no inserts and no exactly-once. A pull is tf.gather on the ps for the
worker's keys; the rows are copied to the worker. A push is scatter_sub of keys and gradients that the worker holds.
The batches are constants in the worker's memory, so no data is sent for them. FLIGHT threads run the session.
gannet: `gannet bench` (look-ups by key in hash-partitioned shards, windows of exactly-once), with its limit measured in
the same run. It prints JSON: M keys a second of each, as medians of the rounds, and the median of each round's ratio.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 900
FLIGHT = 4
BATCHES = 16

PS = """
import sys
import tensorflow as tf
cluster = tf.train.ClusterSpec({"ps": [sys.argv[1]], "worker": [sys.argv[2]]})
tf.distribute.Server(cluster, job_name="ps", task_index=0).join()
"""

WORKER = """
import json, sys, threading, time
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
ps, worker, rows, dim, batch, seconds, flight, batches = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), float(sys.argv[6]), *map(int, sys.argv[7:9])
cluster = tf.train.ClusterSpec({"ps": [ps], "worker": [worker]})
server = tf.distribute.Server(cluster, job_name="worker", task_index=0)
random = np.random.default_rng(1)
keys = [random.choice(rows, batch, replace=False).astype(np.int64) for _ in range(batches)]
with tf1.device("/job:ps/task:0"):
    table = tf1.get_variable("table", [rows, dim], initializer=tf1.zeros_initializer(), use_resource=True)
pulls, pushes = [], []
for k in keys:
    with tf1.device("/job:worker/task:0"):
        k = tf1.constant(k)
        gradient = tf1.fill([batch, dim], 1e-6)
    with tf1.device("/job:ps/task:0"):
        pulled = tf1.gather(table, k)
        pushes.append(tf1.raw_ops.ResourceScatterSub(resource=table.handle, indices=k, updates=gradient))
    with tf1.device("/job:worker/task:0"):
        pulls.append(tf1.identity(pulled).op)
config = tf1.ConfigProto(graph_options=tf1.GraphOptions(optimizer_options=tf1.OptimizerOptions(opt_level=tf1.OptimizerOptions.L0)))
config.graph_options.rewrite_options.constant_folding = 2
with tf1.Session(server.target, config=config) as session:
    session.run(tf1.global_variables_initializer())
    def rate(ops):
        calls = [session.make_callable(op) for op in ops]
        for call in calls: call()
        done, stop = [0] * flight, time.perf_counter() + seconds
        def run(n):
            i = n
            while time.perf_counter() < stop:
                calls[i % len(calls)]()
                done[n] += 1
                i += flight
        start = time.perf_counter()
        threads = [threading.Thread(target=run, args=(n,)) for n in range(flight)]
        for t in threads: t.start()
        for t in threads: t.join()
        return sum(done) * batch / (time.perf_counter() - start)
    print(json.dumps({"pull": rate(pulls), "push": rate(pushes)}), flush=True)
import os
os._exit(0)
"""


def port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tensorflow(o, dim):
    ps, worker = (f"127.0.0.1:{port()}" for _ in range(2))
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    server = subprocess.Popen([sys.executable, "-c", PS, ps, worker], env=quiet, stderr=subprocess.DEVNULL)
    try:
        line = [sys.executable, "-c", WORKER, ps, worker, o.rows, dim, o.batch, o.seconds, FLIGHT, BATCHES]
        done = subprocess.run([str(c) for c in line], env=quiet, capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode != 0:
            raise SystemExit(f"tensorflow's worker: exit {done.returncode}: {done.stderr[-3000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def gannet(o, dim):
    command = [o.gannet, "bench", "--json", "--dims", dim, "--rows", o.rows, "--batch", o.batch, "--seconds", o.seconds]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        raise SystemExit(f"gannet bench: exit {done.returncode}: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout)
    tcp, limit = answer["tcp"][f"dim{dim}"], answer["limit"][f"dim{dim}"]
    return {"pull": tcp["pull_keys_per_s"], "push": tcp["push_keys_per_s"],
            "limit": {"pull": limit["tcp_pull_keys_per_s"], "push": limit["tcp_push_keys_per_s"]}}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gannet", default=ROOT / "target" / "release" / "gannet")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--dims", default="1,16,64")
    arguments.add_argument("--rows", type=int, default=4_000_000)
    arguments.add_argument("--batch", type=int, default=65_536)
    arguments.add_argument("--seconds", type=float, default=3)
    o = arguments.parse_args()
    answer = {"load": os.getloadavg()[0], "started": time.strftime("%Y-%m-%d %H:%M:%S")}
    for dim in map(int, o.dims.split(",")):
        rounds = [(tensorflow(o, dim), gannet(o, dim)) for _ in range(o.rounds)]
        median = lambda f: round(statistics.median(f(t, g) for t, g in rounds), 3)
        answer[f"dim{dim}"] = {
            what: {
                "tensorflow_M_keys_per_s": median(lambda t, g: t[what] / 1e6),
                "gannet_M_keys_per_s": median(lambda t, g: g[what] / 1e6),
                "ratio": median(lambda t, g: g[what] / t[what]),
                "ratios": [round(g[what] / t[what], 2) for t, g in rounds],
                "share_of_limit": median(lambda t, g: g[what] / g["limit"][what]),
            }
            for what in ("pull", "push")
        }
        print(f"dim {dim}: {json.dumps(answer[f'dim{dim}'])}", file=sys.stderr)
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
