#!/usr/bin/env python3
"""Compares objective, seconds and passes of `gannet train --optimizer lbfgs`, scikit-learn and `vw --bfgs` in one run.

    python -m venv CACHE/ml && CACHE/ml/bin/pip install numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 vowpalwabbit==9.11.9
    python3 scripts/data/fetch_census.py CACHE/census && python3 bench/peers/sklearn_flights.py --no-fit --split CACHE/flights
    cargo build --release
    CACHE/ml/bin/python bench/peers/lbfgs.py CACHE/census/census-train.csv CACHE/flights/flights-train.csv

Every column except the first is a category in all systems.
L2: the objective is `sum of log losses + l2/2 |w|^2`, with an intercept that has no penalty. vw cannot exclude its
intercept from the penalty, so it runs without one, and gannet runs once more without one beside it.
L1: the objective has `+ l1 |w|_1` and no intercept, because liblinear would penalise it.
scikit-learn runs with its default tolerance and with a tight one. The lowest objective of all is the reference;
`excess` is the relative distance of a system from it.
seconds: scikit-learn's fit; gannet's training and, separately, its reading; vw's whole run with its cache in a file
(the driver of `python -m vowpalwabbit`, without the start of Python).
cpu_seconds: of all threads. For scikit-learn the fit, for vw the run, for gannet all processes, with servers and
reading.
`--quick` leaves out liblinear with a tight tolerance; `--only` runs only the named tasks. It prints JSON.
"""
import argparse
import csv
import json
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 3600
VW = """
import json, sys, time
import vowpalwabbit
start, cpu = time.perf_counter(), time.process_time()
vw = vowpalwabbit.Workspace(arg_list=sys.argv[1:])
print(json.dumps({"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}))
"""


def children_cpu():
    """CPU seconds of the processes that were started and have been waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def last_json(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(str(c) for c in command)}\nexit {done.returncode}: {done.stderr[-2000:]}")
    return json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{"):])[0]


def objective(x, y, w, b, l1, l2):
    m = x @ w + b
    return float(np.sum(np.logaddexp(0, m) - y * m) + l2 / 2 * (w @ w) + l1 * np.abs(w).sum())


def sklearn_fit(x, y, l1, l2, intercept, tol):
    if l1:
        model = LogisticRegression(C=1 / l1, l1_ratio=1, solver="liblinear", fit_intercept=False, max_iter=10_000, tol=tol,
                                   random_state=0)
    else:
        model = LogisticRegression(C=1 / l2, fit_intercept=intercept, max_iter=100_000, tol=tol)
    start, cpu = time.perf_counter(), time.process_time()
    model.fit(x, y)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    w, b = model.coef_[0], float(np.ravel(model.intercept_)[0]) if intercept else 0.0
    return {"objective": objective(x, y, w, b, l1, l2), "seconds": seconds, "cpu_seconds": cpu, "iterations": int(np.ravel(model.n_iter_)[0]),
            "nonzero": int(np.count_nonzero(w))}


def gannet_embedded(o, path, flags):
    return pick(last_json([o.gannet, "train", path, *flags]))


def pick(answer):
    names = ("objective", "seconds", "load_seconds", "iterations", "passes", "tries", "nonzero", "transport")
    return {name: answer[name] for name in names}


def gannet_job(o, path, flags, servers, workers):
    """The job's servers begin empty and end with it."""
    processes = []
    try:
        hosts = []
        for _ in range(servers):
            p = subprocess.Popen([str(o.gannet), "server", "--listen", "127.0.0.1:0", "--threads", "1"], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            processes.append(p)
            hosts.append(p.stdout.readline().split()[4])
        workers_at = ",".join(f"127.0.0.1:{9 + i}" for i in range(workers))
        job = ["--ps-hosts", ",".join(hosts), "--worker-hosts", workers_at, "--job-name", "worker", "--transport", "tcp"]
        command = [str(o.gannet), "train", str(path), *map(str, flags), *job]
        for index in range(1, workers):
            processes.append(subprocess.Popen([*command, "--task-index", str(index)], stdout=subprocess.DEVNULL,
                                              stderr=subprocess.DEVNULL))
        return pick(last_json([*command, "--task-index", "0"]))
    finally:
        for p in processes:
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
        for p in processes:
            p.wait(30)


def vw_fit(directory, path, x, y, l2, passes):
    """vw --bfgs without a constant. Without a namespace, vw uses numeric keys as indexes of weights. The weights are
    read back to compute the objective."""
    data, model = directory / f"{path.stem}.vw", directory / f"{path.stem}.txt"
    if not data.exists():
        with open(data, "w") as out:
            for i, label in enumerate(y):
                keys = " ".join(map(str, x.indices[x.indptr[i]:x.indptr[i + 1]]))
                out.write(f"{1 if label else -1} | {keys}\n")
    (directory / f"{path.stem}.vw.cache").unlink(missing_ok=True)
    answer = last_json([sys.executable, "-c", VW, "-d", data, "--bfgs", "--loss_function", "logistic", "--l2", l2,
                        "--passes", passes, "--termination", 1e-10, "-b", int(x.shape[1]).bit_length(), "--noconstant", "--cache_file",
                        f"{data}.cache", "--readable_model", model, "--predict_only_model", "--holdout_off", "--quiet"])
    w = np.zeros(x.shape[1])
    for line in open(model):
        at, _, value = line.strip().partition(":")
        if at.isdigit() and int(at) < len(w):
            w[int(at)] = float(value.split()[0])
    return {"objective": objective(x, y, w, 0.0, 0, l2), "seconds": answer["seconds"], "cpu_seconds": answer["cpu_seconds"], "passes_at_most": passes}


def run(o, path, directory):
    with open(path, newline="") as f:
        header, *rows = csv.reader(f)
    a = np.array(rows, dtype=object)
    y = a[:, 0].astype(int)
    x = OneHotEncoder().fit_transform(a[:, 1:]).tocsr()
    base = ["--optimizer", "lbfgs", "--tolerance", "1e-6", "--max-iter", "10000", "--json", "--categorical", ",".join(header[1:])]
    out, cpu = {}, children_cpu()

    def record(task, name, answer):
        nonlocal cpu
        before, cpu = cpu, children_cpu()
        answer.setdefault("cpu_seconds", cpu - before)
        out.setdefault(task, {})[name] = answer
        print(f"{path.name} {task} {name}: {answer}", file=sys.stderr, flush=True)

    for name, flags, l1, l2, intercept in [("l2", ["--l2", "1"], 0, 1.0, True),
                                           ("l2_no_intercept", ["--l2", "1", "--no-intercept"], 0, 1.0, False),
                                           ("l1_no_intercept", ["--l1", "1", "--no-intercept"], 1.0, 0, False)]:
        if o.only and name not in o.only:
            continue
        flags = base + flags
        record(name, "gannet", gannet_embedded(o, path, flags))
        if name != "l2_no_intercept":
            record(name, "gannet_1_server", gannet_job(o, path, flags, 1, 1))
            record(name, "gannet_3_servers", gannet_job(o, path, flags, 3, 2))
            record(name, "sklearn_default", sklearn_fit(x, y, l1, l2, intercept, 1e-4))
            if not (o.quick and l1):
                record(name, "sklearn_tight", sklearn_fit(x, y, l1, l2, intercept, 1e-7 if l1 else 1e-10))
        else:
            record(name, "vw", vw_fit(directory, path, x, y, l2, o.vw_passes))
        least = min(answer["objective"] for answer in out[name].values())
        for answer in out[name].values():
            answer["excess"] = answer["objective"] / least - 1
    return {"rows": len(y), "features": x.shape[1], **out}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("data", nargs="+", type=pathlib.Path, help="CSV files, the label first")
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    a.add_argument("--vw-passes", type=int, default=500, help="vw --passes")
    a.add_argument("--quick", action="store_true")
    a.add_argument("--only", nargs="*", choices=["l2", "l2_no_intercept", "l1_no_intercept"], help="run only these tasks")
    o = a.parse_args()
    if not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release, or --gannet PATH")
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps({path.name: run(o, path, pathlib.Path(directory)) for path in o.data}, indent=1))


if __name__ == "__main__":
    main()
