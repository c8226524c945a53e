#!/usr/bin/env python3
"""Checkpoints of a large table: time, bytes, what training loses meanwhile, and restores.

    cargo build --release && cargo build --release -p gannet-bench --example table_load
    python3 bench/runs/checkpoint.py --dim 1 --rows 50000000 --folder DIR [--servers 1] [--out FILE.json]

DIR must be on the disk that is measured, and needs space for the data folders and about three checkpoints. Steps:
fill; `dd` with fsync; full checkpoint; touch 1 % of the rows by Zipf's law, increment; touch 1 % uniformly, increment;
train, with a full checkpoint in the middle; `pulls` and `pushes` of 64 keys during a checkpoint; restore onto as many
servers, onto twice and half as many, and with twice and half as many shards. Page caches are dropped before each
timed step, which needs root. It prints a JSON object for each step.
"""
import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GANNET = ROOT / "target" / "release" / "gannet"
LOAD = ROOT / "target" / "release" / "examples" / "table_load"
SHARDS = 64


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Servers:
    """Servers in memory, or with data folders."""

    def __init__(self, count, checkpoint, more=(), folder=None):
        self.metrics = [free_port() for _ in range(count)]
        self.hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(count))
        self.processes, self.started = [], time.monotonic()
        for i, metrics in enumerate(self.metrics):
            place = ["--listen", self.hosts.split(",")[i]]
            if "--restore" in more:
                place += ["--ps-hosts", self.hosts, "--task-index", str(i)]
            command = [GANNET, "server", *place, "--checkpoint", checkpoint]
            command += ["--metrics", f"127.0.0.1:{metrics}", "--threads", "2" if count == 1 else "1", *more]
            if folder:
                command += ["--data-dir", Path(folder) / f"server-{i}"]
            self.processes.append(subprocess.Popen([str(c) for c in command], stderr=sys.stderr))

    def ready(self):
        """Seconds until all servers listen."""
        for host in self.hosts.split(","):
            name, port = host.split(":")
            while True:
                assert all(p.poll() is None for p in self.processes), "a server ended"
                try:
                    socket.create_connection((name, int(port)), 1).close()
                    break
                except OSError:
                    time.sleep(0.01)
        return time.monotonic() - self.started

    def resident(self):
        """Bytes of memory of all servers, shared files included."""
        total = 0
        for process in self.processes:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            total += sum(int(l.split()[1]) * 1024 for l in lines if l.startswith("VmRSS"))
        return total

    def scrape(self, word):
        """Lines of the metrics that contain a word."""
        found = []
        for port in self.metrics:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            found += [l for l in text.splitlines() if word in l and not l.startswith("#")]
        return found

    def stop(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(timeout=300)


class Run:
    def __init__(self, options):
        self.o, self.all = options, []
        self.checkpoints = Path(options.folder) / "checkpoints"

    def say(self, step, **values):
        line = {"step": step, **values}
        self.all.append(line)
        print(json.dumps(line), flush=True)

    def load(self, servers, number, *work, wait=True):
        command = [str(c) for c in (LOAD, servers.hosts, self.o.dim, number, *work)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return json.loads(self.end(process)) if wait else process

    @staticmethod
    def end(process):
        out, _ = process.communicate()
        assert process.returncode == 0, process.args
        return out.strip().splitlines()[-1]

    def save(self, servers, *more):
        drop_caches()
        begun = time.monotonic()
        command = [GANNET, "checkpoint", "save", self.checkpoints, "--ps-hosts", servers.hosts, *more]
        out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        shown = subprocess.check_output([GANNET, "checkpoint", "ls", self.checkpoints, "--json"], text=True)
        newest = json.loads(shown)["checkpoints"][-1]
        said = out.stdout.strip() or out.stderr.strip()
        return {"seconds": round(seconds, 2), "rows": newest["rows"], "bytes": newest["bytes"], "said": said}

    def disk(self, size):
        """Bytes a second of dd, which writes with fsync and then reads."""
        path = Path(self.o.folder) / "dd"
        rates = []
        for what in ([f"if=/dev/urandom", f"of={path}", "conv=fsync"], [f"if={path}", "of=/dev/null"]):
            if "urandom" in what[0]:
                source = Path("/dev/shm/dd-source")
                subprocess.run(["dd", "if=/dev/urandom", f"of={source}", "bs=1M", f"count={size >> 20}"], check=True,
                               stderr=subprocess.DEVNULL)
                what[0] = f"if={source}"
            drop_caches()
            begun = time.monotonic()
            subprocess.run(["dd", *what, "bs=1M"], check=True, stderr=subprocess.DEVNULL)
            rates.append(size / (time.monotonic() - begun))
        path.unlink()
        Path("/dev/shm/dd-source").unlink()
        return rates

    def saves(self, servers, raw):
        write, read = self.disk(min(raw, 2 << 30))
        self.say("dd", write_MB_s=round(write / 1e6), read_MB_s=round(read / 1e6))
        before = servers.resident()
        for _ in range(self.o.repeat):
            full = self.save(servers)
            rate = raw / full["seconds"]
            self.say("full", **full, raw_MB_s=round(rate / 1e6), of_dd=round(rate / write, 2))
        self.say("memory", before=before, after=servers.resident(), ratio=round(servers.resident() / before, 3))
        for how in ("zipf", "uniform"):
            self.save(servers, "--increment")
            self.load(servers, 1, "touch", self.o.rows, self.o.rows // 100, how)
            one = self.save(servers, "--increment")
            self.say("increment", how=how, **one, bytes_of_full=round(one["bytes"] / full["bytes"], 4),
                     time_of_full=round(one["seconds"] / full["seconds"], 3))
        return read

    def during(self, servers):
        """What training and small requests see of a checkpoint."""
        for work in (("train", "zipf"), ("train", "uniform"), ("pulls",), ("pushes",)):
            loads = [self.load(servers, 2, work[0], self.o.rows, self.o.seconds, *work[1:], wait=False)]
            time.sleep(self.o.seconds / 3)
            begun = time.monotonic()
            memory, saved = servers.resident(), None
            saver = subprocess.Popen([str(GANNET), "checkpoint", "save", str(self.checkpoints), "--ps-hosts",
                                      servers.hosts], stderr=subprocess.DEVNULL)
            most = memory
            while saver.poll() is None:
                most = max(most, servers.resident())
                time.sleep(0.05)
            saved = time.monotonic() - begun
            result = json.loads(self.end(loads[0]))
            if work[0] == "train":
                halves = result["keys_by_half_second"]
                first = int(self.o.seconds / 3 * 2)
                inside = halves[first + 1:max(first + 2, first + int(saved * 2))]
                outside = halves[2:first] + halves[first + int(saved * 2) + 2:-1]
                mean = lambda v: sum(v) / max(len(v), 1) * 2 / 1e6
                result = {"before_M_keys_s": round(mean(outside), 2), "during_M_keys_s": round(mean(inside), 2),
                          "ratio": round(mean(inside) / mean(outside), 3), "memory_ratio": round(most / memory, 3)}
            self.say(f"{' '.join(work)} beside a checkpoint of {saved:.1f} s", **result)
        self.say("histograms", lines=servers.scrape("checkpoint") + servers.scrape("_cut_"))

    def restores(self, raw, read):
        n = self.o.servers
        shapes = [(n, SHARDS), (2 * n, SHARDS), (n, 2 * SHARDS), (n, SHARDS // 2)]
        for count, shards in shapes + ([(n // 2, SHARDS)] if n > 1 else []):
            drop_caches()
            more = ["--restore", self.checkpoints, "--shards", shards]
            servers = Servers(count, self.checkpoints, more)
            seconds = servers.ready()
            self.say("restore", servers=count, shards=shards, seconds=round(seconds, 2), memory=servers.resident(),
                     raw_MB_s=round(raw / seconds / 1e6), of_dd_read=round(raw / seconds / read, 3),
                     M_rows_s=round(self.o.rows / seconds / 1e6, 2))
            servers.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=1)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=24, help="of each load beside a checkpoint")
    parser.add_argument("--repeat", type=int, default=3, help="full checkpoints")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--data", action="store_true", help="keep the tables in data folders, not in memory")
    parser.add_argument("--out", help="write all steps to this file")
    options = parser.parse_args()
    run = Run(options)
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    run.checkpoints.mkdir(parents=True)
    # A row has a key and 2 floats for each weight, with FTRL and with AdaGrad.
    raw = options.rows * (8 + 8 * options.dim)
    servers = Servers(options.servers, run.checkpoints, folder=options.folder if options.data else None)
    servers.ready()
    try:
        filled = run.load(servers, 0, "fill", options.rows)
        run.say("fill", **filled, M_rows_s=round(options.rows / filled["seconds"] / 1e6, 2), raw_bytes=raw)
        read = run.saves(servers, raw)
        run.during(servers)
        kept = subprocess.check_output([GANNET, "checkpoint", "prune", run.checkpoints, "--keep", "1"], text=True)
        run.say("prune", said=kept.strip().splitlines()[-1])
    finally:
        servers.stop()
    run.restores(raw, read)
    if options.out:
        Path(options.out).write_text(json.dumps(run.all, indent=1))


if __name__ == "__main__":
    main()
