"""A job whose servers are backups of each other: its data, its processes, what they have counted, and how long they
stood still. bench/runs/failover.py and rounds.py share it. Standard library only."""

import json
import os
import pathlib
import random
import select
import socket
import subprocess
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Another binary may be named in the environment.
GANNET = pathlib.Path(os.environ.get("GANNET", ROOT / "target" / "release" / "gannet"))
LINES, FIELDS, KEYS = 200_000, 12, 50_000


def write_data(path, seed):
    """Writes lines of libsvm whose labels depend on their keys."""
    dice = random.Random(seed)
    weights = {key: dice.gauss(0, 1) for key in range(1, 200)}
    with open(path, "w") as out:
        for _ in range(LINES):
            keys = sorted({min(KEYS, int(dice.random() ** -1.1) + 3 * field) for field in range(FIELDS)})
            score = sum(weights.get(key, 0) for key in keys) / 3
            out.write(f"{int(score + dice.gauss(0, 1) > 0)} " + " ".join(f"{key}:1" for key in keys) + "\n")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Loopback:
    """All processes are on this machine."""

    # More flags of each process.
    flags = []

    def addr(self, _machine):
        return f"127.0.0.1:{free_port()}"

    def metrics(self, _machine):
        return ["--metrics", f"127.0.0.1:{free_port()}"]

    def command(self, _machine, args):
        return args


class Job:
    """The processes of a job. Each is on a machine of its own name: `ps0`, `worker1` and so on."""

    def __init__(self, machines, folder, servers, backups, lease=2.0, etcd=None, workers=2):
        """`backups`: of each server; None: the job has no coordinator. `etcd`: the coordinator is this cluster."""
        self.machines, self.folder, self.lease = machines, pathlib.Path(folder), lease
        self.workers, self.has_coordinator = workers, backups is not None
        self.processes, self.metrics = {}, {}
        self.hosts = sorted(machines.addr(f"ps{index}") for index in range(servers))
        self.coordinator = etcd or machines.addr("coordinator")
        self.flags = ["--ps-hosts", ",".join(self.hosts), "--worker-hosts", ",".join("a:1" for _ in range(workers))]
        if backups is not None:
            self.flags += ["--coordinator", self.coordinator, "--backups", str(backups)]

    def start(self, name, *args):
        """Starts a process. What it logs goes to a file with its name."""
        command = self.machines.command(name, [GANNET, *args, *self.machines.flags])
        with open(self.folder / f"{name}.log", "a") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes.setdefault(name, []).append(process)
        return process

    def listening(self, name, process):
        """Waits until a process has said that it listens."""
        said = select.select([process.stdout], [], [], 30)[0] and process.stdout.readline()
        if not said:
            raise TimeoutError(f"{name} does not listen: {self.folder / name}.log says why")

    def start_coordinator(self, *more):
        process = self.start("coordinator", "scheduler", "--listen", self.coordinator, *more)
        self.listening("coordinator", process)

    def start_server(self, index, *more):
        """Starts a server. Returns when it listens."""
        lease = ["--lease", str(self.lease)] if self.has_coordinator else []
        args = ["train", "--job-name", "ps", "--task-index", str(index), "--threads", "1", *self.flags, *lease, *more]
        self.listening(f"ps{index}", self.start(f"ps{index}", *args))

    def start_worker(self, index, data, mode, passes, *more, batch=256):
        args = ["train", data, "--job-name", "worker", "--task-index", str(index), *self.flags, "--json"]
        args += ["--tasks", "on", "--sync", mode, "--epochs", str(passes), "--batch", str(batch)]
        metrics = self.machines.metrics(f"worker{index}")
        self.metrics[index] = metrics[1]
        self.start(f"worker{index}", *args, "--peer-timeout", "60", *metrics, *more)

    def process(self, name):
        """The newest process of a name."""
        return self.processes[name][-1]

    def is_alive(self, name):
        return self.process(name).poll() is None

    def status(self):
        """What `gannet status` says. Empty if it says nothing."""
        args = [GANNET, "status", "--ps-hosts", ",".join(self.hosts), "--json", "--peer-timeout", "2"]
        args += ["--coordinator", self.coordinator] if self.has_coordinator else []
        with open(self.folder / "status.log", "a") as log:
            asked = subprocess.run(
                [*args, *self.machines.flags], stdout=subprocess.PIPE, stderr=log, text=True, timeout=60
            )
        return json.loads(asked.stdout or "{}")

    def places(self):
        """Who owns which place, as the coordinator knows it. Empty if it gives no answer."""
        return [place or {} for place in self.status().get("places") or []]

    def until(self, what, ready, seconds=60):
        """Waits. A wait that is too long is an error that names it."""
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                raise TimeoutError(f"no {what} after {seconds} s")
            time.sleep(0.1)

    def until_backed(self, backups):
        """Waits until each place has an owner that serves and this many backups."""
        def is_backed():
            places = self.places()
            serve = all(place.get("state") == "serves" for place in places)
            return len(places) == len(self.hosts) and serve and all(len(p["backups"]) >= backups for p in places)

        self.until(f"{backups} backups of each place", is_backed)

    def pushed(self, index):
        """Rows of a worker whose pushes are acknowledged. None: the worker gives no answer."""
        try:
            page = urllib.request.urlopen(f"http://{self.metrics[index]}/metrics", timeout=2).read().decode()
        except OSError:
            return None
        name = "gannet_worker_pushed_rows_total"
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))

    def until_ended(self, seconds=300):
        """Waits for the workers. Returns their exit codes and reports."""
        reports = []
        end = time.monotonic() + seconds
        for index in range(self.workers):
            worker = self.process(f"worker{index}")
            reports.append(worker.communicate(timeout=max(1, end - time.monotonic()))[0])
        codes = [self.process(f"worker{index}").returncode for index in range(self.workers)]
        return codes, [json.loads(report) for report in reports if report]

    def counted_all(self, records):
        """Whether every task is done, and the scheduler has counted this many records."""
        job = self.status().get("job") or {}
        return job.get("tasks_done") == job.get("tasks") and job.get("examples") == records

    def end(self):
        """Kills what is left."""
        started = [process for processes in self.processes.values() for process in processes]
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()


class Stalls(threading.Thread):
    """Measures times in which neither worker's acknowledged rows grow. It reads them every 20 ms."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job, self.over, self.times = job, threading.Event(), []
        self.start()

    def run(self):
        last, since = None, time.monotonic()
        while not self.over.is_set():
            now = [self.job.pushed(index) for index in range(self.job.workers)]
            if None in now:
                if not all(self.job.is_alive(f"worker{index}") for index in range(self.job.workers)):
                    return
                continue
            if now != last:
                self.times.append(time.monotonic() - since)
                last, since = now, time.monotonic()
            time.sleep(0.02)

    def longest(self):
        """The longest of them, in seconds. It ends the measurement."""
        self.over.set()
        self.join()
        return max(self.times[1:], default=None)


def seconds_of_cpu(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
