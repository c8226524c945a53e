#!/usr/bin/env python3
"""What a training loses when every process is killed with SIGKILL, and is then started again as its manual says.

    python -m venv CACHE/tf && CACHE/tf/bin/pip install tensorflow-cpu==2.21.0 vowpalwabbit==9.11.9
    cargo build --release
    CACHE/tf/bin/python bench/peers/killed.py [--rounds 3] [--systems gannet,tensorflow,vw]

The data is 60,000 lines with 12 features each, in three passes, for logistic regression with FTRL.

gannet: one ps and two workers, --checkpoint with --checkpoint-secs 1. Everything is in memory, so the kill takes the
tables. The scheduler's state says how many records are in the model. TensorFlow: one ps and two workers (tf.compat.v1,
replica_device_setter, MonitoredTrainingSession with save_checkpoint_secs=1), each with one half of the data in batches
of 32. A variable with an element for each record counts, in the same step, how often the record was trained; it is in
the checkpoints too. vw: one process with --save_resume. Lines `save_FILE` in its data save the model after each
pass. Killed, it is started again with -i and the newest model, on the data of the passes that are left.

Each round kills at a random moment after the first save. It prints one JSON object a round.
"""
import argparse
import glob
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES, PASSES, FIELDS, BATCH, KEYS = 60_000, 3, 12, 32, 12_000
TIMEOUT = 600

TENSORFLOW = """
import sys, time
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
ps, hosts, job, index, folder, data = sys.argv[1], sys.argv[2].split(","), sys.argv[3], int(sys.argv[4]), *sys.argv[5:7]
lines, passes, fields, batch, keys = map(int, sys.argv[7:12])
cluster = tf.train.ClusterSpec({"ps": [ps], "worker": hosts})
server = tf.distribute.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()
with tf1.device(tf1.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
    step = tf1.train.get_or_create_global_step()
    ids, labels = tf1.placeholder(tf.int32, [None, fields]), tf1.placeholder(tf.float32, [None])
    records = tf1.placeholder(tf.int32, [None])
    weights = tf1.get_variable("weights", [keys], initializer=tf1.zeros_initializer())
    counts = tf1.get_variable("counts", [lines], tf.int32, tf1.zeros_initializer(), trainable=False, use_resource=False)
    margins = tf.reduce_sum(tf.gather(weights, ids), 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=margins))
    learn = tf1.train.FtrlOptimizer(0.1).minimize(loss, global_step=step)
    with tf.control_dependencies([learn]):
        train = tf1.scatter_add(counts, records, tf.ones_like(records)).op
rows = np.loadtxt(data, dtype=np.int64)
own = np.arange(index, lines, len(hosts))
config = tf1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
with tf1.train.MonitoredTrainingSession(master=server.target, is_chief=index == 0, config=config, checkpoint_dir=folder,
                                        save_checkpoint_secs=1, save_summaries_steps=None,
                                        log_step_count_steps=None) as session:
    print("STEP", session.run(step), flush=True)
    for _ in range(passes):
        for at in range(0, len(own), batch):
            some = own[at:at + batch]
            session.run(train, {ids: rows[some, 1:], labels: rows[some, 0], records: some})
            print("DONE", len(some), flush=True)
    # The first worker saves, so it stays until the other one has ended.
    last = -1
    while index == 0 and last != (last := session.run(step)):
        time.sleep(3)
"""


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def write_data(folder):
    """The same examples in three formats: libsvm, vw's, and numbers in columns."""
    draw = random.Random(7)
    weight = [draw.uniform(-0.7, 0.7) for _ in range(KEYS)]
    with open(folder / "train.svm", "w") as svm, open(folder / "train.vw", "w") as vw, \
            open(folder / "train.txt", "w") as text:
        for _ in range(LINES):
            ids = [field * 1000 + int(draw.random() ** 3 * 400) for field in range(FIELDS)]
            label = draw.random() < 1 / (1 + 2.718281828 ** -(sum(weight[id] for id in ids) - 0.8))
            svm.write(f"{int(label)} " + " ".join(f"{id + 1}:1" for id in ids) + "\n")
            vw.write(f"{1 if label else -1} | " + " ".join(map(str, ids)) + "\n")
            text.write(f"{int(label)} " + " ".join(map(str, ids)) + "\n")


def kill(processes):
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.wait()


def until(what, holds):
    end = time.monotonic() + TIMEOUT
    while not (value := holds()):
        if time.monotonic() > end:
            sys.exit(f"{what}: not after {TIMEOUT} s")
        time.sleep(0.02)
    return value


def start(command, log):
    return subprocess.Popen(list(map(str, command)), stdout=open(log, "w"), stderr=subprocess.STDOUT)


class Gannet:
    def __init__(self, folder):
        self.folder, self.ps = folder, free_address()
        self.gannet = ROOT / "target" / "release" / "gannet"

    def start(self, name):
        common = ["--ps-hosts", self.ps, "--worker-hosts", "w:0,w:1", "--checkpoint", self.folder / "checkpoints"]
        ps = [self.gannet, "train", "--job-name", "ps", "--task-index", "0", *common]
        self.processes = [start(ps, self.folder / f"{name}-ps")]
        for index in range(2):
            flags = ["--checkpoint-secs", "1", "--epochs", 8 * PASSES, "--batch", BATCH, "--tasks", "on", "--json"]
            worker = [self.gannet, "train", self.folder / "train.svm", "--job-name", "worker", "--task-index", index]
            self.processes.append(start([*worker, *common, *flags], self.folder / f"{name}-{index}"))

    def examples(self):
        done = subprocess.run([self.gannet, "status", "--ps-hosts", self.ps, "--json"], capture_output=True, text=True)
        return json.loads(done.stdout)["job"]["examples"] if done.returncode == 0 and done.stdout else 0

    def round(self, wait):
        self.start("first")
        until("a checkpoint", lambda: glob.glob(f"{self.folder}/checkpoints/*/MANIFEST"))
        time.sleep(wait)
        before = self.examples()
        kill(self.processes)
        self.start("again")
        restored = until("the scheduler's state", self.examples)
        trained = 0
        for index, worker in enumerate(self.processes[1:]):
            if worker.wait(TIMEOUT) != 0:
                sys.exit((self.folder / f"again-{index}").read_text())
            trained += json.loads((self.folder / f"again-{index}").read_text().splitlines()[-1])["examples"]
        records = self.examples()
        kill(self.processes[:1])
        total = 8 * PASSES * LINES
        return {"records": total, "in_the_model": records, "trained_before_the_kill": before,
                "restored_at_most": restored, "trained_after_it": trained,
                "kept_from_the_checkpoint": total - trained, "by_hand": "nothing: the same commands"}


class TensorFlow:
    def __init__(self, folder):
        self.folder = folder
        (folder / "job.py").write_text(TENSORFLOW)

    def start(self, name):
        ps, hosts = free_address(), f"{free_address()},{free_address()}"
        roles = [("ps", 0), ("worker", 0), ("worker", 1)]
        numbers = [LINES, PASSES, FIELDS, BATCH, KEYS]
        self.processes = []
        for job, index in roles:
            command = [sys.executable, self.folder / "job.py", ps, hosts, job, index, self.folder / "saved"]
            log = self.folder / f"{name}-{job}{index}"
            self.processes.append(start([*command, self.folder / "train.txt", *numbers], log))
            if (job, index) == ("worker", 0):
                # A worker that comes before the first one is ready looks again only after 30 s.
                until("the first worker", lambda: "STEP" in log.read_text())

    def lines(self, name, index):
        return (self.folder / f"{name}-worker{index}").read_text().splitlines()

    def trained(self, name):
        return sum(int(line.split()[1]) for index in range(2) for line in self.lines(name, index)
                   if line.startswith("DONE"))

    def round(self, wait):
        self.start("first")
        until("a checkpoint after step 0", lambda: any("ckpt-0." not in at for at in
                                                       glob.glob(f"{self.folder}/saved/*.index")))
        time.sleep(wait)
        kill(self.processes)
        before = self.trained("first")
        self.start("again")
        for index, worker in enumerate(self.processes[1:]):
            if worker.wait(TIMEOUT) != 0:
                sys.exit("\n".join(self.lines("again", index)[-20:]))
        kill(self.processes[:1])
        resumed = next(int(line.split()[1]) for line in self.lines("again", 0) if line.startswith("STEP"))
        count = "import sys, tensorflow as tf; c = tf.train.load_variable(sys.argv[1], 'counts'); import json; " \
                f"print(json.dumps([int(c.sum()), int((c == {PASSES}).sum()), int((c > {PASSES}).sum()), " \
                f"int((c < {PASSES}).sum())]))"
        done = subprocess.run([sys.executable, "-c", count, self.folder / "saved"], capture_output=True, text=True)
        total, right, more, fewer = json.loads(done.stdout)
        return {"records": PASSES * LINES, "in_the_model": total, "trained_before_the_kill": before,
                "kept_from_the_checkpoint": resumed * BATCH, "lost_with_the_kill": before - resumed * BATCH,
                "trained_after_it": self.trained("again"), "lines_with_the_right_count": right,
                "lines_trained_too_often": more, "lines_trained_too_seldom": fewer,
                "by_hand": "nothing; the data is read from its beginning"}


class VowpalWabbit:
    PASSES = 10 * PASSES

    def __init__(self, folder):
        self.folder = folder
        self.data = (folder / "train.vw").read_text()

    def write(self, name, first):
        """The passes from number `first` on. After each pass, the line `save_FILE` saves a model."""
        path = self.folder / f"{name}.data"
        with open(path, "w") as file:
            for number in range(first, self.PASSES):
                file.write(f"{self.data}save_{self.folder}/{name}.{number + 1}\n")
        return path

    def start(self, name, first, begin=None):
        flags = ["-d", self.write(name, first), "--ftrl", "--loss_function", "logistic", "-b", "18", "--quiet"]
        flags += ["--save_resume", "-f", self.folder / name, *(["-i", begin] if begin else [])]
        return start([sys.executable, "-m", "vowpalwabbit", *flags], self.folder / f"{name}.log")

    def run(self, name, first, begin=None):
        if self.start(name, first, begin).wait(TIMEOUT) != 0:
            sys.exit((self.folder / f"{name}.log").read_text())
        return (self.folder / name).read_bytes()

    def saved(self):
        """The numbers of the saved models. The last one may be cut short."""
        return sorted(int(at.rsplit(".", 1)[1]) for at in glob.glob(f"{self.folder}/first.[0-9]*"))

    def round(self, wait):
        whole = self.run("whole", 0)
        process = self.start("first", 0)
        until("a model", self.saved)
        time.sleep(wait / 2)
        if process.poll() is not None:
            sys.exit("vw had ended before it was killed")
        kill([process])
        newest = self.saved()[-1]
        again = self.run("again", newest, self.folder / f"first.{newest}")
        # What stands before the weights says, among other things, how the program was called.
        differ = [at for at, (a, b) in enumerate(zip(whole, again)) if a != b]
        return {"passes": self.PASSES, "passes_in_the_newest_model": newest, "most_records_lost": LINES,
                "bytes_that_differ": len(differ), "of_them_above_byte_512": sum(at >= 512 for at in differ),
                "bytes": len(whole), "by_hand": "put saves into the data, choose a model, cut the data there"}


def main():
    systems = {"gannet": Gannet, "tensorflow": TensorFlow, "vw": VowpalWabbit}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", default=",".join(systems))
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    draw = random.Random(1)
    for _ in range(options.rounds):
        for name in options.systems.split(","):
            with tempfile.TemporaryDirectory() as at:
                write_data(pathlib.Path(at))
                shown = systems[name](pathlib.Path(at)).round(draw.uniform(0.1, 1.5))
            print(json.dumps({"system": name, **shown}), flush=True)


if __name__ == "__main__":
    main()
