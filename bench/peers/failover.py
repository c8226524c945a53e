#!/usr/bin/env python3
"""What a job does when one of its servers gets SIGKILL: gannet, ps-lite and TensorFlow's ParameterServerStrategy side
by side. Needs Python 3.9 or later, and of it only the standard library.

    cargo build --release -p gannet-cli && python3 bench/peers/failover.py gannet
    python3 bench/peers/failover.py ps-lite [--source REPOSITORY]
    python3 bench/peers/failover.py tensorflow

ps-lite is cloned and compiled, and TensorFlow is installed into an environment of its own, in a temporary folder or in
--folder, which keeps them. ps-lite needs git, g++ and Debian's libzmq3-dev, libprotobuf-dev and protobuf-compiler.
GANNET=PATH in the environment names another gannet.

The work is the same for all: logistic regression on data/flights.csv.gz, written as libsvm with shuffled ids; plain SGD
with the sum of a batch's gradients; two servers, two asynchronous workers, PASSES passes in batches of BATCH. In the
pass after a third of them one server gets SIGKILL: server 0 in even runs, server 1 in odd ones. Run 0 kills it after a
quarter of that pass, run 1 after a half, run 2 after three quarters. The faults are
- none: nobody is killed.
- kill: the server stays dead.
- restart: it is started again after 3 s, with the same command.
- replace (tensorflow): it stays dead, and a new ps at another address takes its place in the cluster of a new chief.
With TensorFlow a supervisor starts the chief again whenever it has ended with an error, as its tutorial advises.

Each run prints a JSON object. A job trains on if it ends with a model. Then `stall` is the longest time after the kill
in which its count of records did not change, and `caught_up` the time from the kill until the count of the kill was
reached again. Otherwise `stuck` is how long the count had not changed when the job had failed, or was ended: it is
ended after --wait seconds without a change. `began` is false if it trained nothing for BEGIN_LIMIT seconds; nobody is
killed then, and the table leaves the run out. `counted`: the share of the records of all passes that the model has at
the end, as the system counts them; of ps-lite for each server. `loss`: the log loss of the model on the data.
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "failover"))
from job import GANNET, ROOT, Job, Loopback, free_port  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PASSES, BATCH, RATE, SERVERS, WORKERS = 30, 1024, 0.0005, 2, 2
PS_LITE, PS_LITE_COMMIT, TENSORFLOW = "https://github.com/dmlc/ps-lite", "15b8adf", "tensorflow-cpu==2.21.0"
AWAY = 3.0
# How long a job may take to begin, and a run in all.
BEGIN_LIMIT, RUN_LIMIT = 60, 1800


def write_data(path):
    """Writes the flights as libsvm. The ids, from 1 on, are shuffled. Returns the records, and how many ids there are
    with the intercept."""
    with gzip.open(ROOT / "data" / "flights.csv.gz", "rt") as file:
        next(file)
        rows = [line.rstrip("\n").split(",") for line in file]
    values = sorted({(column, value) for row in rows for column, value in enumerate(row) if column})
    ids = list(range(1, len(values) + 1))
    random.Random(1).shuffle(ids)
    id_of = dict(zip(values, ids))
    with open(path, "w") as out:
        for row in rows:
            own = sorted(id_of[column, value] for column, value in enumerate(row) if column)
            out.write(f"{row[0]} " + " ".join(f"{at}:1" for at in own) + "\n")
    return len(rows), len(values) + 1


class Count:
    """How many records are trained, and when that grew."""

    def __init__(self):
        self.lock, self.grown, self.most = threading.Lock(), [], 0
        self.own = {}

    def add(self, who, records):
        """`records`: all that `who` has trained."""
        with self.lock:
            self.own[who] = records
            total = sum(self.own.values())
            if total != self.most:
                self.most = total
                self.grown.append((time.monotonic(), total))

    def idle(self):
        with self.lock:
            return time.monotonic() - self.grown[-1][0]

    def after(self, since, reached):
        """The longest time without growth after `since`; and when, after that time, the count was `reached` again."""
        with self.lock:
            grown = [(since, 0)] + [one for one in self.grown if one[0] > since]
        stalls = [(after - before, after) for (before, _), (after, _) in zip(grown, grown[1:])]
        stall, end = max(stalls, default=(None, None))
        return stall, next((at - since for at, total in grown[1:] if at >= end and total >= reached), None)


class Process:
    """A process whose lines on standard output are read as they come."""

    def __init__(self, name, command, folder, heard, env=None):
        self.name, self.lines = name, []
        self.error = folder / f"{name}.log"
        with open(self.error, "a") as log:
            self.child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=log,
                                          text=True, env={**os.environ, **(env or {})})
        self.reader = threading.Thread(target=self.read, args=(heard,), daemon=True)
        self.reader.start()

    def read(self, heard):
        for line in self.child.stdout:
            self.lines.append(line.rstrip("\n"))
            heard(self.name, line.split())

    def said(self, word):
        """The rest of the newest line that begins with a word. None: there is none."""
        found = [line.split()[1:] for line in list(self.lines) if line.split()[:1] == [word]]
        return found[-1] if found else None

    def is_alive(self):
        return self.child.poll() is None

    def kill(self):
        self.child.kill()
        self.child.wait()

    def end(self):
        if self.is_alive():
            self.child.kill()
        self.child.wait()
        self.reader.join()
        self.child.stdout.close()


def told(path, lines=2):
    """The checks and operations that failed, or else the last lines of a log. Traces of a stack are left out."""
    text = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    text = [line for line in text if line and not line.startswith(("[bt]", "Stack trace"))]
    failed = [line for line in text if "Check failed" in line or "errors_impl." in line]
    return [line[:400] for line in (failed or text)[-lines:]]


def until(what, ready, seconds):
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} after {seconds} s")
        time.sleep(0.02)


class Run:
    """A job of any system: what is common to all. A system starts it, kills a server, and says when it is over."""

    def __init__(self, setup, variant, fault, number):
        self.setup, self.variant, self.fault, self.victim = setup, variant, fault, number % SERVERS
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=setup.folder))
        self.count = Count()
        self.total, self.timer = setup.records * PASSES, None
        self.mark = setup.records * (PASSES // 3 + (number % 3 + 1) / 4)
        self.result = {"variant": variant, "fault": fault, "run": number}

    def happen(self):
        try:
            self.start()
            if not self.begins():
                self.result["began"] = False
                self.report()
                return self.result
            if self.fault != "none":
                self.disturb()
            self.wait()
        finally:
            if self.timer:
                self.timer.cancel()
                self.timer.join()
            self.end()
            self.result["load"] = os.getloadavg()[0]
            shutil.rmtree(self.folder)
        return self.result

    def begins(self):
        """Whether the job has trained something after a while."""
        end = time.monotonic() + BEGIN_LIMIT
        while not self.count.most and time.monotonic() < end:
            time.sleep(0.02)
        return bool(self.count.most)

    def trained(self):
        """The records of all passes that are trained."""
        return self.count.most

    def disturb(self):
        until(f"{self.mark:.0f} records", lambda: self.trained() >= self.mark, RUN_LIMIT)
        self.result["killed_at"], self.reached = self.trained(), self.count.most
        self.killed = time.monotonic()
        self.kill_server()
        if self.fault in ("restart", "replace"):
            self.timer = threading.Timer(AWAY, self.again)
            self.timer.start()

    def wait(self):
        """Until the job is over, or has not grown for too long."""
        end = time.monotonic() + RUN_LIMIT
        while not self.is_over():
            if self.count.idle() > self.setup.wait or time.monotonic() > end:
                self.result["hung"] = True
                break
            time.sleep(0.02)
        over, idle = time.monotonic(), self.count.idle()
        self.result["seconds"] = over - self.count.grown[0][0]
        self.report()
        if self.fault != "none":
            self.result["seconds_after_the_kill"] = over - self.killed
            if "loss" in self.result:
                self.result["stall"], self.result["caught_up"] = self.count.after(self.killed, self.reached)
            else:
                self.result["stuck"] = idle


class GannetRun(Run):
    """`backups`: each server has a backup. `memory`: no backups. `folder`: no backups, and --data-dir."""

    def start(self):
        self.watch = threading.Thread(target=self.look, daemon=True)
        backups = 1 if self.variant == "backups" else None
        self.job = Job(Loopback(), self.folder, SERVERS, backups, workers=WORKERS)
        self.over = threading.Event()
        if backups:
            self.job.start_coordinator()
        for index in range(SERVERS):
            self.again(index)
        if backups:
            self.job.until_backed(1)
        how = ["--optimizer", "sgd", "--alpha", str(RATE), "--push", "gradient", "--reduce", "sum"]
        how += ["--out", str(self.folder / "model")]
        for index in range(WORKERS):
            self.job.start_worker(index, str(self.setup.data), "asp", PASSES, *how, batch=BATCH)
        self.watch.start()

    def look(self):
        """Counts the rows whose pushes are acknowledged, because they grow with each batch."""
        while not self.over.is_set():
            for index in range(WORKERS):
                rows = self.job.pushed(index)
                if rows is not None:
                    self.count.add(index, rows)
            time.sleep(0.02)

    def again(self, index=None):
        index = self.victim if index is None else index
        more = ["--data-dir", str(self.folder / f"rows{index}")] if self.variant == "folder" else []
        self.job.start_server(index, *more)

    def trained(self):
        return (self.job.status().get("job") or {}).get("examples") or 0

    def kill_server(self):
        self.job.process(f"ps{self.victim}").kill()

    def is_over(self):
        return not any(self.job.is_alive(f"worker{index}") for index in range(WORKERS))

    def report(self):
        self.result["codes"] = [self.job.process(f"worker{index}").poll() for index in range(WORKERS)]
        if any(self.result["codes"]):
            self.result["told"] = [told(self.folder / f"worker{index}.log") for index in range(WORKERS)]
        if self.result["codes"] == [0] * WORKERS:
            self.result["counted"] = self.trained() / self.total
            args = [GANNET, "predict", "--model", self.folder / "model", self.setup.data, "--json"]
            asked = subprocess.run(args, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
            self.result["loss"] = json.loads(asked.stdout)["logloss"]

    def end(self):
        self.over.set()
        if self.watch.is_alive():
            self.watch.join()
        self.job.end()


class PsLiteRun(Run):
    """The variants are the environment of all processes."""

    VARIANTS = {
        "default": {},
        "heartbeats": {"PS_HEARTBEAT_INTERVAL": "1", "PS_HEARTBEAT_TIMEOUT": "2"},
        "heartbeats and resends": {"PS_HEARTBEAT_INTERVAL": "1", "PS_HEARTBEAT_TIMEOUT": "2", "PS_RESEND": "1",
                                   "PS_RESEND_TIMEOUT": "1000"},
    }

    def start(self):
        self.env = {"DMLC_NUM_SERVER": str(SERVERS), "DMLC_NUM_WORKER": str(WORKERS), "DMLC_NODE_HOST": "127.0.0.1",
                    "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(free_port())}
        self.env.update(self.VARIANTS[self.variant])
        self.processes = {}
        self.begin("scheduler", 0)
        for index in range(SERVERS):
            self.begin("server", index)
        for index in range(WORKERS):
            self.begin("worker", index)

    def begin(self, role, index):
        command = [self.setup.program, self.setup.data, PASSES, BATCH, RATE, self.setup.keys]
        name = f"{role}{index}"
        self.processes.setdefault(name, []).append(
            Process(name, command, self.folder, self.heard, {**self.env, "DMLC_ROLE": role}))

    def heard(self, name, words):
        if words[0] == "DONE":
            self.count.add(name, int(words[1]))

    def kill_server(self):
        self.processes[f"server{self.victim}"][-1].kill()

    def again(self):
        self.begin("server", self.victim)

    def workers(self):
        return [self.processes[f"worker{index}"][-1] for index in range(WORKERS)]

    def is_over(self):
        """A worker that waits for one that has died waits for ever, so the job is over when one has failed."""
        codes = [worker.child.poll() for worker in self.workers()]
        return None not in codes or any(codes)

    def report(self):
        # Another worker may be about to end, and a line about to be read.
        for worker in self.workers():
            worker.reader.join(2)
        self.result["codes"] = {name: [each.child.poll() for each in started]
                                for name, started in self.processes.items()}
        logs = {name: told(started[-1].error) for name, started in self.processes.items()}
        self.result["told"] = {name: lines for name, lines in logs.items() if lines}
        self.result["started"] = [each.said("STARTED") for each in self.processes[f"server{self.victim}"]]
        for worker in self.workers():
            if counted := worker.said("COUNTED"):
                self.result["counted"] = [int(count) / self.total for count in counted]
                self.result["loss"] = float(worker.said("LOSS")[0])

    def end(self):
        for started in self.processes.values():
            for process in started:
                process.end()


class TensorFlowRun(Run):
    """A supervisor starts the chief again whenever it has failed."""

    def start(self):
        counts = {"chief": 1, "worker": WORKERS, "ps": SERVERS}
        names = [f"{job}{index}" for job, count in counts.items() for index in range(count)]
        self.hosts = {name: f"127.0.0.1:{free_port()}" for name in names}
        self.processes, self.chiefs = {}, []
        for name in names[1:]:
            self.begin(name)
        servers = lambda: all(self.processes[name][-1].said("STARTED") is not None for name in names[1:])
        until("servers", servers, BEGIN_LIMIT)
        self.begin("chief0")

    def begin(self, name):
        job, index = name[:-1], int(name[-1])
        cluster = {kind: [host for at, host in sorted(self.hosts.items()) if at[:-1] == kind]
                   for kind in ("chief", "worker", "ps")}
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        command = [self.setup.python, HERE / "failover_tf.py", self.setup.data, PASSES, BATCH, RATE,
                   self.setup.keys, self.folder / "checkpoints"]
        process = Process(name, command, self.folder, self.heard, {"TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "1"})
        self.processes.setdefault(name, []).append(process)

    def heard(self, name, words):
        if words and words[0] == "DONE":
            self.count.add("chief", int(words[1]))
        elif words and words[0] == "START" and self.chiefs:
            self.result["restored"] = int(words[1])

    def kill_server(self):
        self.processes[f"ps{self.victim}"][-1].kill()

    def again(self):
        if self.fault == "replace":
            self.hosts[f"ps{self.victim}"] = f"127.0.0.1:{free_port()}"
        self.begin(f"ps{self.victim}")

    def is_over(self):
        chief = self.processes["chief0"][-1]
        code = chief.child.poll()
        if not code:
            return code == 0
        self.chiefs.append({"seconds_after_the_kill": time.monotonic() - self.killed, "code": code,
                            "told": told(chief.error)})
        # A supervisor that replaces the ps starts the chief again when it has the new one.
        if self.fault == "replace":
            self.timer.join()
        self.begin("chief0")
        return False

    def report(self):
        chief = self.processes["chief0"][-1]
        self.result |= {"chiefs": self.chiefs, "codes": {name: [each.child.poll() for each in started]
                                                         for name, started in self.processes.items()}}
        if self.result.get("hung"):
            self.result["told"] = {name: told(started[-1].error) for name, started in self.processes.items()}
        if "restored" in self.result:
            self.result["trained_again"] = self.result["killed_at"] - self.result["restored"]
        if counted := chief.said("COUNTED"):
            self.result |= {"counted": int(counted[0]) / self.total, "loss": float(chief.said("LOSS")[0])}

    def end(self):
        for started in self.processes.values():
            for process in started:
                process.end()


class Setup:
    """The data, and what is built or installed."""

    def __init__(self, args, folder):
        self.folder, self.wait = pathlib.Path(folder), args.wait
        self.data = self.folder / "flights.svm"
        self.records, self.keys = write_data(self.data)
        {"gannet": self.gannet, "ps-lite": self.ps_lite, "tensorflow": self.tensorflow}[args.system](args)

    def gannet(self, _args):
        if not GANNET.exists():
            sys.exit(f"{GANNET} is missing: cargo build --release -p gannet-cli, or name one with GANNET=PATH")
        self.call([GANNET, "--version"])

    def ps_lite(self, args):
        missing = [name for name in ("git", "g++", "protoc") if not shutil.which(name)]
        if missing or not pathlib.Path("/usr/include/zmq.h").exists():
            sys.exit("ps-lite needs git, g++ and zmq: apt-get install git g++ libzmq3-dev libprotobuf-dev "
                     "protobuf-compiler")
        source, self.program = self.folder / "ps-lite", self.folder / "peers_failover_pslite"
        if not source.exists():
            self.call(["git", "clone", "--quiet", args.source, source])
        self.call(["git", "-C", source, "checkout", "--quiet", PS_LITE_COMMIT])
        self.call(["protoc", "--cpp_out=.", "meta.proto"], source / "src")
        files = [source / "src" / name for name in ("van.cc", "customer.cc", "postoffice.cc", "meta.pb.cc")]
        self.call(["g++", "-O2", "-std=c++17", "-w", f"-I{source}/include", f"-I{source}/src",
                   HERE / "failover_pslite.cc", *files, "-lzmq", "-lprotobuf", "-lpthread", "-o", self.program])

    def tensorflow(self, _args):
        self.python = self.folder / "tensorflow" / "bin" / "python"
        if not self.python.exists():
            self.call([sys.executable, "-m", "venv", self.folder / "tensorflow"])
        self.call([self.python, "-m", "pip", "install", "--quiet", TENSORFLOW])

    @staticmethod
    def call(command, folder=None):
        subprocess.run([str(word) for word in command], cwd=folder, check=True)


SYSTEMS = {
    "gannet": (GannetRun, [("backups", "none kill restart"), ("memory", "none kill restart"), ("folder", "restart")]),
    "ps-lite": (PsLiteRun, [("default", "none kill restart"), ("heartbeats", "kill restart"),
                            ("heartbeats and resends", "none kill restart")]),
    "tensorflow": (TensorFlowRun, [("checkpoints", "none kill restart replace")]),
}


def spread(values, digits):
    """The median, with the lowest and the highest value."""
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    shown = [f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values))]
    return shown[0] if len(values) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def table(results):
    results = [result for result in results if result.get("began", True)]
    print("| variant | fault | runs | trained on | hung | stall, s | caught up, s | stuck, s | counted | loss |")
    print("|---" * 10 + "|")
    for variant, fault in dict.fromkeys((result["variant"], result["fault"]) for result in results):
        own = [result for result in results if (result["variant"], result["fault"]) == (variant, fault)]
        of = lambda name, digits: spread([result.get(name) for result in own], digits)
        shares = [result.get("counted") for result in own]
        shares = [" + ".join(f"{100 * one:.2f}%" for one in (share if isinstance(share, list) else [share]))
                  for share in shares if share is not None]
        print(f"| {variant} | {fault} | {len(own)} | {sum('loss' in result for result in own)} "
              f"| {sum(result.get('hung', False) for result in own)} | {of('stall', 2)} | {of('caught_up', 1)} "
              f"| {of('stuck', 1)} | {', '.join(shares) or '-'} | {of('loss', 6)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--runs", type=int, default=3, help="of each variant and fault")
    parser.add_argument("--wait", type=float, default=120, help="seconds until a job that does not grow is ended")
    parser.add_argument("--variants", help="only these, with commas between them")
    parser.add_argument("--faults", help="only these, with commas between them")
    parser.add_argument("--folder", help="keep here what is built and installed")
    parser.add_argument("--source", default=PS_LITE, help="the repository of ps-lite")
    args = parser.parse_args()
    # So that the processes of a run end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run, variants = SYSTEMS[args.system]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.folder or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        setup, results = Setup(args, folder), []
        for number in range(args.runs):
            for variant, faults in variants:
                for fault in faults.split():
                    wanted = variant in (args.variants or variant).split(",")
                    if wanted and fault in (args.faults or fault).split(","):
                        results.append(run(setup, variant, fault, number).happen())
                        print(json.dumps(results[-1]), flush=True)
        table(results)


if __name__ == "__main__":
    main()
