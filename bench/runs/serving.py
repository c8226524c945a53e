#!/usr/bin/env python3
"""Predictions a second and latencies of `gannet serve` on one core, beside FastAPI and vw's daemon on the same core.

    apt-get install wrk; cargo build --release -p gannet-cli
    python3 -m venv CACHE/serving
    CACHE/serving/bin/pip install fastapi==0.165.0 uvicorn==0.54.0 uvloop==0.23.0 httptools==0.9.0 orjson==3.13.0 \\
        vowpalwabbit==9.11.9
    CACHE/serving/bin/python bench/runs/serving.py CACHE/serving-data > docs/benchmarks/serving.tsv

The model is logistic regression on nine columns of the shipped flights. A server has core 0 (taskset, --threads 1), and
its clients core 1. Each round asks all servers in turn. There are 64 different requests. FastAPI is
bench/peers/serving.py under uvicorn with uvloop and httptools: Gannet's weights in Python's dicts. vw's daemon reads
lines over a socket, without HTTP. It has a process for each connection, so it is not asked over 256. A client in Python
asks it, because wrk speaks HTTP only. It is started for each measurement: its processes go on for seconds after their
connections end. Gannet and FastAPI run all the time. The CPU time is that of the server, from /proc. Answers are
compared before the first round.
"""
import argparse
import csv
import gzip
import json
import os
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "hour", "month", "weekday", "date"]
CONNECTIONS = [1, 16, 256]
CONNECTIONS_VW = [1, 16]
BATCHES = [1, 100]
FORMS = ["plain, JSON", "Open Inference, JSON", "Open Inference, binary"]
REQUESTS = 64
VW = """
import sys, vowpalwabbit
from vowpalwabbit import pyvw
pyvw.pylibvw.vw.run_parser(vowpalwabbit.Workspace(arg_list=sys.argv[1:]))
"""


def vw_line(row):
    return " ".join(["|", *(f"{name}={row[name]}" for name in COLUMNS)]) + "\n"


def make(o):
    """Trains the models. Returns rows of the table."""
    o.folder.mkdir(parents=True, exist_ok=True)
    table = o.folder / "flights.csv"
    table.write_bytes(gzip.open(ROOT / "data" / "flights.csv.gz").read())
    train = [o.gannet, "train", table, "--label", "label", "--categorical", ",".join(COLUMNS)]
    subprocess.run([*train, "--out", o.folder / "model"], check=True, capture_output=True)
    inspect = [o.gannet, "inspect", o.folder / "model", table, "--json", "--top", "1000000"]
    said = json.loads(subprocess.run(inspect, check=True, capture_output=True).stdout)
    (o.folder / "weights.json").write_text(json.dumps(said))
    rows = list(csv.DictReader(table.open()))
    with open(o.folder / "flights.vw", "w") as out:
        for row in rows:
            out.write(("1 " if row["label"] == "1" else "-1 ") + vw_line(row))
    for row in rows:
        del row["label"]
    train = ["--quiet", "--loss_function", "logistic", "-d", o.folder / "flights.vw", "-f", o.folder / "model.vw"]
    subprocess.run([sys.executable, "-m", "vowpalwabbit", *map(str, train)], check=True)
    return rows[:: len(rows) // 30_000]


def request_of(form, rows):
    """A request of HTTP."""
    head, path = "Content-Type: application/json\r\n", "/v2/models/default/infer"
    named = [(name, "BYTES", [row[name] for row in rows]) for name in COLUMNS]
    if form == FORMS[0]:
        path, body = "/v1/predict", json.dumps(rows).encode()
    elif form == FORMS[1]:
        inputs = [{"name": n, "datatype": t, "shape": [len(rows)], "data": data} for n, t, data in named]
        body = json.dumps({"inputs": inputs}).encode()
    else:
        packed = [b"".join(struct.pack("<I", len(text)) + text.encode() for text in data) for _, _, data in named]
        inputs = [
            {"name": n, "datatype": t, "shape": [len(rows)], "parameters": {"binary_data_size": len(data)}}
            for (n, t, _), data in zip(named, packed)
        ]
        text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        head = f"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {len(text)}\r\n"
        body = text + b"".join(packed)
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Server:
    """A process on core 0."""

    def __init__(self, command, port, nice, environment=None):
        environment = {**os.environ, **(environment or {})}
        prefix = ["nice", "-n", str(nice), "taskset", "-c", "0"]
        self.port = port
        self.process = subprocess.Popen(
            [*prefix, *map(str, command)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                time.sleep(0.05)
        self.process.kill()
        sys.exit(f"{command}: does not listen")

    def processes(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [str(self.process.pid), *children]

    def cpu(self):
        """Seconds of CPU so far."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in self.processes()]
        return sum(int(f[11]) + int(f[12]) for f in fields) / os.sysconf("SC_CLK_TCK")

    def memory(self, which="VmRSS"):
        """MB that it has, or had at most (VmHWM)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024

    def stop(self):
        # vw's first process starts another one for each that ends, so it goes first.
        for pid in self.processes():
            os.kill(int(pid), signal.SIGKILL)
        self.process.wait(30)


def gannet(o, port, *flags):
    model = ["--model", o.folder / "model"]
    return Server([o.gannet, "serve", "--listen", f"127.0.0.1:{port}", *model, "--threads", "1", *flags], port, o.nice)


def fastapi(o, port):
    command = [sys.executable, "-m", "uvicorn", "serving:app", "--app-dir", ROOT / "bench" / "peers", "--port", port]
    fast = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error", "--backlog", "4096"]
    return Server([*command, *fast], port, o.nice, {"GANNET_WEIGHTS": str(o.folder / "weights.json")})


def vw(o, port, processes):
    flags = ["--daemon", "--foreground", "--port", port, "--num_children", processes, "-t", "-i", o.folder / "model.vw"]
    return Server([sys.executable, "-c", VW, *flags, "--link", "logistic", "--quiet"], port, o.nice)


def wrk(o, server, folder, connections, seconds, count=()):
    """What wrk measures on core 1."""
    command = ["nice", "-n", o.nice, "taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
    command += ["--timeout", "10s", "-s", ROOT / "bench" / "runs" / "serving.lua", f"http://127.0.0.1:{server.port}"]
    command += ["--", folder, REQUESTS, *count]
    out = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    return json.loads(out[out.index('{"answers"'):])


def timed(server, ask):
    """What `ask` measures, and the CPU time of the server meanwhile."""
    before = server.cpu()
    return {**ask(), "cpu": server.cpu() - before}


def ask_vw(o, texts, batch, connections, seconds):
    """The same of vw's daemon."""
    server = vw(o, 26610, connections)
    try:
        # The connection that found it has an end first.
        time.sleep(1)
        return timed(server, lambda: ask_lines(server, texts, batch, connections, seconds))
    finally:
        server.stop()


def ask_lines(server, texts, batch, connections, seconds):
    """What `wrk` measures, of a server that says a line for each line."""
    chosen = selectors.EpollSelector()
    streams = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(connections)]
    took, number, end = [], 0, time.perf_counter() + seconds
    state = {}
    for stream in streams:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        chosen.register(stream, selectors.EVENT_READ)
        state[stream] = [0, time.perf_counter()]
        stream.sendall(texts[number % REQUESTS])
        number += 1
    while (now := time.perf_counter()) < end:
        for key, _ in chosen.select(1):
            stream = key.fileobj
            of = state[stream]
            of[0] += stream.recv(1 << 16).count(b"\n")
            if of[0] == batch:
                now = time.perf_counter()
                took.append(now - of[1])
                of[:] = [0, now]
                stream.sendall(texts[number % REQUESTS])
                number += 1
    for stream in streams:
        stream.close()
    took.sort()
    at = lambda share: took[int(len(took) * share)]
    return {"answers": len(took), "seconds": seconds, "p50": at(0.5), "p99": at(0.99), "broken": 0, "refused": 0}


def write_requests(o, form, rows, batch):
    folder = o.folder / f"{form.replace(', ', '-').replace(' ', '-')}-{batch}"
    folder.mkdir(exist_ok=True)
    for number in range(REQUESTS):
        part = rows[number * batch % (len(rows) - batch) :][:batch]
        (folder / str(number)).write_bytes(request_of(form, part))
    return folder


def same_answers(servers, rows):
    """FastAPI says what Gannet says."""
    said = []
    for name in ("gannet serve", "FastAPI"):
        body = json.dumps(rows[:1000]).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{servers[name].port}/v1/predict", body)
        said.append([float(line) for line in urllib.request.urlopen(request).read().split()])
    if len(said[0]) != 1000 or max(abs(a - b) for a, b in zip(*said)) > 2e-6:
        sys.exit("FastAPI says other probabilities than gannet")


def shown(values, form):
    middle, low, high = (form.format(of(values)) for of in (statistics.median, min, max))
    return f"{middle} ({low}-{high})"


def compare(o, rows):
    servers = {}
    try:
        servers["gannet serve"] = gannet(o, 26601)
        servers["FastAPI"] = fastapi(o, 26602)
        same_answers(servers, rows)
        runs = {}
        for form in FORMS:
            for batch in BATCHES:
                folder = write_requests(o, form, rows, batch)
                for name in ("gannet serve", "FastAPI") if form == FORMS[0] else ("gannet serve",):
                    for count in CONNECTIONS:
                        ask = lambda s=servers[name], f=folder, c=count: timed(s, lambda: wrk(o, s, f, c, o.seconds))
                        runs[name, form, batch, count] = ask
        for batch in BATCHES:
            texts = ["".join(map(vw_line, rows[at * batch % (len(rows) - batch) :][:batch])) for at in range(REQUESTS)]
            texts = [text.encode() for text in texts]
            for count in CONNECTIONS_VW:
                ask = lambda t=texts, b=batch, c=count: ask_vw(o, t, b, c, o.seconds)
                runs["vw --daemon", "lines, no HTTP", batch, count] = ask
        found = {key: [] for key in runs}
        for number in range(o.rounds):
            for key, ask in runs.items():
                result = ask()
                found[key].append(result)
                print(number, *key, result, file=sys.stderr, flush=True)
                if result["refused"] or result["broken"]:
                    sys.exit("answers are missing")
    finally:
        for server in servers.values():
            server.stop()
    names = [f"{what}, {count} connections" for count in CONNECTIONS for what in ("predictions/s", "p50, p99 ms")]
    names = [name.replace(" 1 connections", " 1 connection") for name in names]
    print("server", "form", "examples a request", *names, "CPU us a prediction, 16 connections", sep="\t")
    for of in sorted({key[:3] for key in found}, key=lambda of: (of[2], list(found).index((*of, 1)))):
        cells = []
        for count in CONNECTIONS:
            results = found.get((*of, count))
            if not results:
                cells += ["", ""]
                continue
            cells.append(shown([of[2] * run["answers"] / run["seconds"] for run in results], "{:,.0f}"))
            times = [statistics.median(run[p] for run in results) * 1e3 for p in ("p50", "p99")]
            cells.append(", ".join(f"{t:.3g}" for t in times))
        cells.append(shown([run["cpu"] / run["answers"] / of[2] * 1e6 for run in found[*of, 16]], "{:.2f}"))
        print(*of, *cells, sep="\t")


def settings(text):
    """The arguments of the command line, with the rows of the table."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gannet", type=Path, default=ROOT / "target" / "release" / "gannet")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each measurement")
    parser.add_argument("--nice", type=int, default=0, help="niceness of servers and wrk; below 0 beside other work")
    o = parser.parse_args()
    return o, make(o)


if __name__ == "__main__":
    compare(*settings(__doc__))
