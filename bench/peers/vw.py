#!/usr/bin/env python3
"""Times `gannet train` and `vw --ftrl` on the same examples, in turn in one run. It prints medians as JSON.

    python -m venv CACHE/ml && CACHE/ml/bin/pip install numpy==2.4.6 vowpalwabbit==9.11.9
    CACHE/ml/bin/python scripts/data/criteo_like.py CACHE/criteo
    cargo build --release
    CACHE/ml/bin/python bench/peers/vw.py CACHE/criteo [--rounds 5] [--systems vw,embedded,tcp]

vw: the wheel has no binary; `python -m vowpalwabbit ARGS` runs the command line's own driver (its parse thread and
its learn thread) inside `Workspace(ARGS)`. Only that call is timed, in a process of its own: the start of Python, the
import and the tear-down do not count. There is no cache file. gannet: the `seconds` of its JSON. The wall time of each
process is reported too. embedded is one process; tcp is one ps and one worker process on loopback, and each round
starts with an empty ps. Each system predicts an example before it learns it; logloss is the mean over the pass.

Both take --alpha, --beta, --l1, --l2 and have an intercept (--no-intercept: neither has). Files are read once before
the first round, so that they come from the page cache.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 600
STOP = 20

VW = """
import json, sys, time
import vowpalwabbit
start = time.perf_counter()
vw = vowpalwabbit.Workspace(arg_list=sys.argv[1:])
seconds = time.perf_counter() - start
n = vw.get_weighted_examples()
print(json.dumps({"examples": n, "seconds": seconds, "logloss": vw.get_sum_loss() / n}))
"""


def json_of(command):
    """Runs a command that prints one JSON object last; adds the wall time of the process."""
    start = time.perf_counter()
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT)
    wall = time.perf_counter() - start
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(str(c) for c in command)}\nexit {done.returncode}: {done.stderr[-2000:]}")
    text = done.stdout[done.stdout.index("{"):]
    return {**json.JSONDecoder().raw_decode(text)[0], "wall_seconds": wall}


def vw(o):
    command = [sys.executable, "-c", VW, "-d", o.directory / "criteo.vw", "--ftrl", "--ftrl_alpha", o.alpha,
               "--ftrl_beta", o.beta, "--l1", o.l1, "--l2", o.l2, "--loss_function", "logistic", "-b", o.bits, "--quiet"]
    return json_of(command + (["--noconstant"] if o.no_intercept else []))


def gannet_options(o):
    command = [o.gannet, "train", o.directory / "criteo.svm", "--format", "libsvm", "--optimizer", "ftrl", "--alpha",
               o.alpha, "--beta", o.beta, "--l1", o.l1, "--l2", o.l2, "--json"]
    command += ["--batch", o.batch] if o.batch else []
    return command + (["--no-intercept"] if o.no_intercept else [])


def embedded(o):
    return json_of(gannet_options(o) + ["--threads", o.threads])


def free_ports(n):
    """Ports that were free a moment ago. The sockets are open together, so the ports differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def tcp(o):
    ps_port, worker_port = free_ports(2)
    hosts = ["--ps-hosts", f"127.0.0.1:{ps_port}", "--worker-hosts", f"127.0.0.1:{worker_port}", "--task-index", "0"]
    command = [str(c) for c in gannet_options(o) + hosts]
    with tempfile.TemporaryFile("w+") as log:
        ps = subprocess.Popen(command + ["--job-name", "ps"], stdout=log, stderr=log)
        try:
            answer = json_of(command + ["--job-name", "worker", "--tasks", "off"])
            if ps.poll() is not None:
                log.seek(0)
                raise SystemExit(f"the ps ended with {ps.returncode}: {log.read()[-2000:]}")
            return answer
        finally:
            if ps.poll() is None:
                ps.send_signal(signal.SIGTERM)
                try:
                    ps.wait(STOP)
                except subprocess.TimeoutExpired:
                    ps.kill()
                    ps.wait()


SYSTEMS = {"vw": vw, "embedded": embedded, "tcp": tcp}


def summary(rounds, base):
    """Medians of a system's rounds; the ratio to vw is the median of each round's ratio."""
    rates = [r["examples"] / r["seconds"] for r in rounds]
    losses = sorted({r["logloss"] for r in rounds})
    out = {
        "examples": rounds[0]["examples"], "examples_per_second": round(statistics.median(rates)),
        "rounds_examples_per_second": [round(r) for r in rates],
        "seconds": round(statistics.median(r["seconds"] for r in rounds), 4),
        "wall_seconds": round(statistics.median(r["wall_seconds"] for r in rounds), 4),
        "logloss": losses[-1], "logloss_lowest": losses[0],
    }
    if base:
        ratios = [rate / (b["examples"] / b["seconds"]) for rate, b in zip(rates, base)]
        out |= {"ratio_to_vw": round(statistics.median(ratios), 3), "ratios_to_vw": [round(r, 3) for r in ratios]}
    return out


def parse():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("directory", type=pathlib.Path, help="where criteo_like.py wrote")
    a.add_argument("--systems", default=",".join(SYSTEMS), help="of vw, embedded, tcp; in the order of a round")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--gannet", type=pathlib.Path, default=ROOT / "target" / "release" / "gannet")
    for name, value in [("alpha", 0.1), ("beta", 1.0), ("l1", 0.5), ("l2", 0.5)]:
        a.add_argument(f"--{name}", type=float, default=value)
    a.add_argument("--batch", type=int, help="examples a batch (default: gannet's own)")
    a.add_argument("--threads", type=int, default=2, help="of the embedded gannet")
    a.add_argument("--bits", type=int, default=22, help="vw -b: its weights are 2^bits")
    a.add_argument("--no-intercept", action="store_true")
    o = a.parse_args()
    o.systems = o.systems.split(",")
    if unknown := [s for s in o.systems if s not in SYSTEMS]:
        a.error(f"unknown system {unknown[0]}: one of {', '.join(SYSTEMS)}")
    if o.systems != ["vw"] and not o.gannet.is_file():
        a.error(f"{o.gannet}: no such file; cargo build --release, or --gannet PATH, or --systems vw")
    for name in ("criteo.vw", "criteo.svm"):
        path = o.directory / name
        if not path.is_file():
            a.error(f"{path}: no such file; write it with criteo_like.py")
        path.read_bytes()
    return o


def main():
    o = parse()
    rounds = {s: [] for s in o.systems}
    for i in range(o.rounds):
        for s in o.systems:
            answer = SYSTEMS[s](o)
            rounds[s].append(answer)
            rate = answer["examples"] / answer["seconds"]
            print(f"round {i + 1} {s}: {rate:.0f} examples/s, log loss {answer['logloss']:.6f}", file=sys.stderr)
    base = rounds.get("vw")
    if len({r["examples"] for answers in rounds.values() for r in answers}) != 1:
        raise SystemExit(f"the systems did not see the same number of examples: {rounds}")
    options = {k: getattr(o, k) for k in ("alpha", "beta", "l1", "l2", "batch", "threads", "bits", "rounds")}
    print(json.dumps({
        "options": {**options, "intercept": not o.no_intercept}, "cores": os.cpu_count(),
        "machine": platform.machine(), "vowpalwabbit": importlib.metadata.version("vowpalwabbit") if base else None,
        **{s: summary(r, base if s != "vw" else None) for s, r in rounds.items()},
    }, indent=1))


if __name__ == "__main__":
    main()
