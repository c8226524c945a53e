#!/usr/bin/env python3
"""Compares steps a second of linear regression (y = 2x + 10 with noise): TensorFlow's parameter server (tf.compat.v1)
and gannet take turns in one run.

    python -m venv CACHE/tf && CACHE/tf/bin/pip install tensorflow-cpu==2.21.0
    cargo build --release
    CACHE/tf/bin/python bench/peers/tf_steps.py [--rounds 3] [--modes async,sync] [--seconds 5] [--examples 200000]

Both have one ps process and two worker processes on loopback. A step is one example: the worker reads the two weights,
computes the gradient and sends it, and the ps applies it (gradient descent). sync: a step waits for both workers
(SyncReplicasOptimizer; gannet's --issync 1) and counts once. TensorFlow runs as in its scripts: replica_device_setter,
one session a worker, feed_dict. gannet runs `gannet train --model linear --batch 1` over EXAMPLES examples, half of
them for each worker. It prints JSON: steps a second of each, medians, each round's ratio, and both systems' weights.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 600
WORKERS = 2

TENSORFLOW = """
import json, sys, time
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
ps, hosts, job, index, mode, seconds = sys.argv[1], sys.argv[2].split(","), sys.argv[3], int(sys.argv[4]), sys.argv[5], float(sys.argv[6])
cluster = tf.train.ClusterSpec({"ps": [ps], "worker": hosts})
server = tf.distribute.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()
with tf1.device(tf1.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
    step = tf1.train.get_or_create_global_step()
    x, y = tf1.placeholder(tf.float32), tf1.placeholder(tf.float32)
    w, b = (tf1.get_variable(name, [], initializer=tf1.zeros_initializer()) for name in "wb")
    loss = tf1.square(y - (w * x + b)) / 2
    optimizer, hooks = tf1.train.GradientDescentOptimizer(0.01), []
    if mode == "sync":
        optimizer = tf1.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=len(hosts), total_num_replicas=len(hosts))
    train = optimizer.minimize(loss, global_step=step)
    if mode == "sync":
        hooks.append(optimizer.make_session_run_hook(index == 0))
chance = np.random.default_rng(index)
# A worker talks only to the ps: the other worker may end first.
config = tf1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
with tf1.train.MonitoredTrainingSession(master=server.target, is_chief=index == 0, hooks=hooks, config=config, save_checkpoint_secs=None,
                                        save_summaries_steps=None, log_step_count_steps=None) as session:
    def run():
        value = chance.normal()
        return session.run([train, step], {x: value, y: 2 * value + 10 + 0.33 * chance.normal()})[1]
    # Both workers run before the measurement begins.
    while run() < 100: pass
    before, start = run(), time.perf_counter()
    while time.perf_counter() < start + seconds: after = run()
    rate = (after - before) / (time.perf_counter() - start)
    print(json.dumps({"steps_per_second": rate, "weights": [float(v) for v in session.run([w, b], {x: 0.0, y: 0.0})]}), flush=True)
    # The other worker's last steps need this one.
    end = time.perf_counter() + 1
    while mode == "sync" and time.perf_counter() < end: run()
import os
os._exit(0)
"""


def ports(n):
    import socket

    sockets = [socket.socket() for _ in range(n)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def together(lines, server, wanted, env=None):
    """Runs the workers beside the server; the JSON of the first `wanted`."""
    running = [subprocess.Popen([str(c) for c in line], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for line in lines]
    try:
        answers = []
        for worker in running[:wanted]:
            out, err = worker.communicate(timeout=TIMEOUT)
            found = [line for line in out.splitlines() if line.startswith("{")]
            if not found:
                sys.exit(f"a worker: exit {worker.returncode}: {err[-2000:]}")
            answers.append(json.loads(found[-1]))
        return answers
    finally:
        for process in [*running, server]:
            process.kill()
            process.wait()


def tensorflow(o, mode):
    ps, *hosts = (f"127.0.0.1:{p}" for p in ports(1 + WORKERS))
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    line = lambda job, index: [sys.executable, "-c", TENSORFLOW, ps, ",".join(hosts), job, index, mode, o.seconds]
    server = subprocess.Popen([str(c) for c in line("ps", 0)], env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # The chief's global step counts the steps of both.
    answer = together([line("worker", i) for i in range(WORKERS)], server, 1, quiet)[0]
    return {"steps_per_second": answer["steps_per_second"], "weights": answer["weights"]}


def gannet(o, mode, data):
    server = subprocess.Popen([str(o.gannet), "server", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    host = server.stdout.readline().split()[4]
    line = lambda index: [o.gannet, "train", data, "--model", "linear", "--label", "y", "--numeric", "x", "--optimizer", "sgd", "--alpha", 0.01,
                          "--push", "gradient", "--batch", 1, "--ps-hosts", host, "--worker-hosts", "127.0.0.1:9,127.0.0.1:10", "--job-name",
                          "worker", "--tasks", "off", "--task-index", index, "--issync", int(mode == "sync"), "--transport", o.transport, "--json"]
    answers = together([line(i) for i in range(WORKERS)], server, WORKERS)
    steps = max(a["steps"] for a in answers) if mode == "sync" else sum(a["steps"] for a in answers)
    return {"steps_per_second": steps / max(a["seconds"] for a in answers),
            "weights": [answers[0]["weights"]["x"], answers[0]["weights"]["intercept"]]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gannet", default=ROOT / "target" / "release" / "gannet")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--modes", default="async")
    arguments.add_argument("--seconds", type=float, default=5)
    arguments.add_argument("--examples", type=int, default=200_000)
    arguments.add_argument("--transport", default="tcp")
    o = arguments.parse_args()
    answer = {"load": os.getloadavg()[0], "started": time.strftime("%Y-%m-%d %H:%M:%S"), "transport": o.transport}
    with tempfile.TemporaryDirectory() as folder:
        data, chance = pathlib.Path(folder) / "line.csv", random.Random(1)
        points = [chance.gauss(0, 1) for _ in range(o.examples)]
        data.write_text("y,x\n" + "".join(f"{2 * x + 10 + 0.33 * chance.gauss(0, 1):.5f},{x:.5f}\n" for x in points))
        for mode in o.modes.split(","):
            rounds = [(tensorflow(o, mode), gannet(o, mode, data)) for _ in range(o.rounds)]
            speed = lambda r: r["steps_per_second"]
            answer[mode] = {
                "tensorflow_steps_per_second": round(statistics.median(speed(t) for t, _ in rounds), 1),
                "gannet_steps_per_second": round(statistics.median(speed(g) for _, g in rounds), 1),
                "ratio": round(statistics.median(speed(g) / speed(t) for t, g in rounds), 1),
                "ratios": [round(speed(g) / speed(t), 1) for t, g in rounds],
                "weights": {"tensorflow": rounds[-1][0]["weights"], "gannet": rounds[-1][1]["weights"]},
            }
            print(f"{mode}: {json.dumps(answer[mode])}", file=sys.stderr)
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
