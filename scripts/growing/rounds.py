#!/usr/bin/env python3
"""Trains a source that grows, kills processes of the job, and checks that each line was trained exactly once.

Each line has a feature of its own, and all have the same label. A feature is learned once from the same weight, so all
scores of the model are equal; a line that was trained twice has a higher score, and one that was lost has 0.5. A round
also goes back to a checkpoint, if its seed says so.

    scripts/growing/rounds.py --gannet target/release/gannet --rounds 20
    scripts/growing/rounds.py --source kafka --tansu PATH     (with the Python package confluent-kafka)
    scripts/growing/rounds.py --source kafka --tansu PATH --kill-broker     (and moto[server])

With `--kill-broker` the broker keeps its messages in an object store, is killed, and comes back.

`--seed 7` runs one round again. The folder of a round that fails is kept.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

WORKERS = 3
LINES = 200  # in a file, or in a turn of the producer


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Folder:
    """A folder to which files are added under another name first."""

    def __init__(self, _options, place):
        self.path = os.path.join(place, "in")
        os.mkdir(self.path)
        self.files = 0

    def words(self):
        return ["--follow", self.path]

    def add(self, lines):
        name = os.path.join(self.path, f"{self.files:05}.svm")
        with open(name + ".part", "w") as part:
            part.writelines(line + "\n" for line in lines)
        os.rename(name + ".part", name)
        self.files += 1

    def hurt(self, _random):
        return "the folder stays"

    def end(self):
        pass


class ObjectStore:
    """Moto, with a bucket for the messages of brokers."""

    URL = "s3://messages/"

    def __init__(self):
        port = free_port()
        program = os.path.join(os.path.dirname(sys.executable), "moto_server")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], **quiet)
        keys = {"AWS_ACCESS_KEY_ID": "one", "AWS_SECRET_ACCESS_KEY": "two", "AWS_DEFAULT_REGION": "us-east-1"}
        self.env = keys | {"AWS_ENDPOINT": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}
        start = time.time()
        while True:
            try:
                bucket = urllib.request.Request(f"http://127.0.0.1:{port}/messages", method="PUT")
                urllib.request.urlopen(bucket, timeout=10).read()
                return
            except OSError as error:
                if time.time() - start > 60:
                    raise RuntimeError(f"the object store does not come: {error}") from error
                time.sleep(0.2)

    def end(self):
        self.process.kill()
        self.process.wait()


class Kafka:
    """A topic of three partitions at a broker of its own."""

    def __init__(self, options, place):
        from confluent_kafka import Producer

        self.options, self.place = options, place
        self.addr = f"127.0.0.1:{free_port()}"
        self.start()
        self.make_topic({"bootstrap.servers": self.addr})
        # Tansu tells the first offset of the last batch as that of the last message, so a batch has one message. In a
        # storage, whose times are seconds, the last batch of a turn has one, a second after the others. An idempotent
        # producer sends nothing twice.
        settings = {"bootstrap.servers": self.addr, "enable.idempotence": True, "log_level": 0}
        self.one_by_one = Producer({**settings, "batch.num.messages": 1})
        self.together = Producer({**settings, "linger.ms": 50}) if options.store else self.one_by_one
        self.sent = 0

    @staticmethod
    def make_topic(settings, name="clicks"):
        """Waits for the broker, and makes a topic."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin, start = AdminClient(settings), time.time()
        while True:
            try:
                topic = NewTopic(name, num_partitions=3, replication_factor=1)
                return admin.create_topics([topic], operation_timeout=5)[name].result(5)
            except Exception as error:
                if time.time() - start > 60:
                    raise RuntimeError(f"the broker does not come: {error}") from error
                time.sleep(0.2)

    def start(self):
        url = f"tcp://{self.addr}"
        log = open(os.path.join(self.place, "broker.log"), "a")
        words = [self.options.tansu, "broker", "--silent", "--listener-url", url, "--advertised-listener-url", url]
        env, store = dict(os.environ), self.options.store
        if store:
            # What a cluster keeps is apart from that of others.
            words += ["--storage-engine", store.URL, "--cluster-id", os.path.basename(self.place)]
            env |= store.env
        self.broker = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.place, env=env)

    def words(self):
        return [f"kafka://{self.addr}/clicks?group=rounds", "--format", "libsvm"]

    def add(self, lines):
        for some, producer in (lines[:-3], self.together), (lines[-3:], self.one_by_one):
            for line in some:
                producer.produce("clicks", line, partition=self.sent % 3)
                self.sent += 1
            if producer.flush(60) > 0:
                raise RuntimeError("the broker takes no messages")
            if producer is not self.one_by_one:
                time.sleep(1.1)

    def hurt(self, chance):
        """The broker is away for a while. It is killed if its messages are in a storage, not in its memory."""
        seconds = chance.uniform(0.2, 2)
        if self.options.store:
            seconds *= chance.choice([1, 1, 8])
            self.end()
            time.sleep(seconds)
            self.start()
            return f"the broker was killed and away for {seconds:.1f} s"
        self.broker.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.broker.send_signal(signal.SIGCONT)
        return f"the broker was away for {seconds:.1f} s"

    def end(self):
        self.broker.kill()
        self.broker.wait()


class Round:
    def __init__(self, options, seed):
        self.options, self.chance = options, random.Random(seed)
        self.place = tempfile.mkdtemp(prefix=f"gannet-round-{seed}-")
        self.addr = f"127.0.0.1:{free_port()}"
        self.workers, self.server, self.lines, self.restores = {}, None, 0, 0
        self.hosts = ",".join(f"w{at}:1" for at in range(WORKERS))
        self.source = (Kafka if options.source == "kafka" else Folder)(options, self.place)

    def start(self, name, words):
        log = open(os.path.join(self.place, f"{name}.log"), "a")
        return subprocess.Popen([self.options.gannet, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def folder(self, name):
        return os.path.join(self.place, name)

    def start_server(self, *more):
        words = ["train", "--job-name", "ps", "--ps-hosts", self.addr, "--worker-hosts", self.hosts, "--task-index", "0",
                 "--threads", "2", "--data-dir", self.folder(f"ps{self.restores}")]
        if self.options.checkpoints:
            words += ["--checkpoint", self.folder("saved")]
        self.server = self.start("server", [*words, *more])

    def worker_words(self, index, *more):
        job = ["--ps-hosts", self.addr, "--worker-hosts", self.hosts, "--job-name", "worker", "--task-index", str(index)]
        limits = ["--worker-timeout", "2", "--peer-timeout", "60", "--task-bytes", "1KiB", "--batch", "32"]
        saves = ["--checkpoint", self.folder("saved"), "--checkpoint-secs", "1"] if self.options.checkpoints else []
        return ["train", *self.source.words(), *job, *limits, *saves, "--no-intercept", "--l1", "0", "--json",
                "--out", self.folder("model"), *more]

    def start_worker(self, index, *more):
        self.workers[index] = self.start(f"worker-{index}", self.worker_words(index, *more))

    def add(self):
        lines = [f"1 {at}:1" for at in range(self.lines, self.lines + LINES)]
        self.lines += LINES
        self.source.add(lines)

    def kill(self, process):
        process.kill()
        process.wait()

    def event(self):
        what = self.chance.choice(["worker", "worker", "server", "source", "late"])
        if self.options.only_source:
            return self.source.hurt(self.chance)
        if self.options.checkpoints and self.chance.random() < 0.3 and os.path.isdir(self.folder("saved")):
            return self.restore()
        if what == "worker":
            index = self.chance.randrange(WORKERS)
            self.kill(self.workers[index])
            self.start_worker(index)
            return f"worker {index} was killed"
        if what == "server":
            self.kill(self.server)
            self.start_server()
            return "the server was killed"
        if what == "source":
            return self.source.hurt(self.chance)
        index = self.chance.randrange(WORKERS)
        self.workers[index].send_signal(signal.SIGTERM)
        self.workers[index].wait(60)
        self.start_worker(index)
        return f"worker {index} was stopped and came back"

    def restore(self):
        """All rows are lost. The job goes back to its newest checkpoint, in a new folder."""
        time.sleep(1.5)
        for process in [*self.workers.values(), self.server]:
            self.kill(process)
        self.restores += 1
        saved = sorted(name for name in os.listdir(self.folder("saved")) if os.path.isdir(self.folder(f"saved/{name}")))
        self.start_server()
        for index in range(WORKERS):
            self.start_worker(index)
        return f"the job went back to checkpoint {saved[-1] if saved else None}"

    def run(self):
        self.add()
        self.start_server()
        for index in range(WORKERS):
            self.start_worker(index)
        events = []
        for _ in range(self.options.events):
            time.sleep(self.chance.uniform(0.1, 1.0))
            self.add()
            events.append(self.event())
            for index, worker in self.workers.items():
                if worker.poll() not in (None, 0):
                    # It was given up while it slept or its server was away: somebody starts it again.
                    self.start_worker(index)
        self.add()
        for worker in self.workers.values():
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers.values():
            worker.wait(120)
        last = self.start("last", self.worker_words(0, "--until-end"))
        code = last.wait(240)
        if code != 0:
            raise RuntimeError(f"the last worker ended with {code}: see last.log")
        self.check()
        return events

    def check(self):
        data = self.folder("all.svm")
        with open(data, "w") as all_lines:
            all_lines.writelines(f"1 {at}:1\n" for at in range(self.lines))
        words = [self.options.gannet, "predict", data, "--model", self.folder("model")]
        scored = subprocess.run(words, check=True, capture_output=True, text=True)
        found = [float(line) for line in scored.stdout.splitlines()]
        wrong = [at for at, score in enumerate(found) if score != found[0] or score <= 0.5]
        if len(found) != self.lines or wrong:
            shown = [(at, found[at]) for at in wrong[:5]]
            raise RuntimeError(f"{len(wrong)} of {self.lines} lines were not trained once, such as {shown}")

    def end(self):
        for process in [*self.workers.values(), self.server]:
            if process is not None:
                self.kill(process)
        self.source.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", default="target/release/gannet")
    parser.add_argument("--source", choices=["folder", "kafka"], default="folder")
    parser.add_argument("--tansu", default="tansu")
    parser.add_argument("--kill-broker", action="store_true", help="its messages are then in an object store")
    parser.add_argument("--only-source", action="store_true", help="hurt nothing but the source")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--events", type=int, default=6)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--checkpoints", action="store_true", help="save checkpoints while the job runs")
    options = parser.parse_args()
    options.gannet = os.path.abspath(options.gannet)
    options.store = ObjectStore() if options.kill_broker else None
    try:
        run_all(options)
    finally:
        if options.store:
            options.store.end()


def run_all(options):
    seeds = range(options.rounds) if options.seed is None else [options.seed]
    for seed in seeds:
        one = Round(options, seed)
        try:
            events = one.run()
        except Exception as error:
            one.end()
            print(f"round {seed} failed in {one.place}: {error}", file=sys.stderr)
            sys.exit(1)
        one.end()
        shutil.rmtree(one.place)
        print(f"round {seed}: {one.lines} lines once; {'; '.join(events)}", flush=True)


if __name__ == "__main__":
    main()
