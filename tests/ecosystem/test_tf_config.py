"""TensorFlow's own resolver and gannet read the same cluster from TF_CONFIG.

`scripts/test_ecosystem.sh` runs it. GANNET is the path of the command.
"""

import json
import os
import socket
import subprocess

import pytest
import tensorflow as tf

TFConfigClusterResolver = tf.distribute.cluster_resolver.TFConfigClusterResolver

GANNET = os.environ["GANNET"]
LINES = 500


def free_address():
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % port.getsockname()[1]


def resolved(config, monkeypatch):
    """What TensorFlow reads: servers, workers with the chief first, and this task's role and index among them."""
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    resolver = TFConfigClusterResolver()
    cluster = resolver.cluster_spec().as_dict()
    chief = cluster.get("chief", [])
    workers = chief + cluster.get("worker", [])
    role, index = resolver.task_type, resolver.task_id
    if role == "chief":
        role = "worker"
    elif role == "worker":
        index += len(chief)
    return cluster["ps"], workers, role, index


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "train.svm"
    path.write_text("".join("%d %d:1 %d:1\n" % (i % 2, 1 + i % 7, 10 + i % 3) for i in range(LINES)))
    return path


@pytest.mark.parametrize("chief", [True, False])
def test_a_job_runs_in_the_cluster_that_tensorflow_reads(tmp_path, data, monkeypatch, chief):
    servers, workers = [free_address(), free_address()], ["w0:1", "w1:1"]
    cluster = {"ps": servers, "worker": workers[1:] if chief else workers}
    if chief:
        cluster["chief"] = workers[:1]
    tasks = [("ps", 0), ("ps", 1)] + ([("chief", 0), ("worker", 0)] if chief else [("worker", 0), ("worker", 1)])
    started = []
    try:
        for role, index in tasks:
            config = {"cluster": cluster, "task": {"type": role, "index": index}}
            seen = resolved(config, monkeypatch)
            assert seen[:2] == (servers, workers)
            words = [GANNET, "train", str(data), "--tasks", "off", "--json"]
            process = subprocess.Popen(
                words,
                env=dict(os.environ, TF_CONFIG=json.dumps(config)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=open(tmp_path / ("%s-%d.err" % (role, index)), "wb"),
                text=True,
            )
            started.append((seen, process))
            if seen[2] == "ps":
                # "gannet server listening on HOST:PORT, ..."
                line = process.stdout.readline()
                assert servers[seen[3]] in line, line
        reports = {}
        for (_, _, role, index), process in started:
            if role == "worker":
                out, _ = process.communicate(timeout=120)
                assert process.returncode == 0, out
                reports[index] = json.loads(out)
        assert sorted(reports) == [0, 1]
        assert sum(report["examples"] for report in reports.values()) == LINES
    finally:
        for _, process in started:
            process.kill()
            process.wait()


def test_both_refuse_a_configuration_that_is_no_json(data, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{not json")
    with pytest.raises(ValueError):
        TFConfigClusterResolver().cluster_spec()
    done = subprocess.run([GANNET, "train", str(data)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "TF_CONFIG" in done.stderr
