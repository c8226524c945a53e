#!/usr/bin/env python3
"""What a user meets at brokers of Kafka: TLS and passwords, packed messages, and brokers that are away for long.

    scripts/growing/broker_checks.py --gannet target/debug/gannet --tansu PATH

It needs the Python package confluent-kafka, and openssl. Each check prints one line. The first that fails ends the
script, which prints why and keeps its folder.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from rounds import Kafka, free_port

HERE = os.path.dirname(os.path.abspath(__file__))


def certificates(folder):
    """A certificate for 127.0.0.1, its key, and the CA that signed it; and a CA that did not."""
    path = lambda name: os.path.join(folder, name)
    openssl = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True)
    for name in ("ca", "other"):
        subject = ["-subj", f"/CN={name}", "-days", "2", "-nodes"]
        openssl("req", "-x509", "-newkey", "rsa:2048", "-keyout", path(name + ".key"), "-out", path(name + ".pem"), *subject)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", path("key"), "-out", path("csr"), "-subj", "/CN=broker")
    with open(path("names"), "w") as names:
        names.write("subjectAltName=IP:127.0.0.1\n")
    signed = ["-CA", path("ca.pem"), "-CAkey", path("ca.key"), "-CAcreateserial", "-days", "2", "-extfile", path("names")]
    openssl("x509", "-req", "-in", path("csr"), "-out", path("cert"), *signed)
    return path("cert"), path("key"), path("ca.pem"), path("other.pem")


class Check:
    """The command, with a folder for its files."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def train(self, *words, limit=60):
        line = [self.options.gannet, "train", *words, "--format", "libsvm", "--until-end", "--json"]
        try:
            return subprocess.run(line, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired as late:
            raise SystemExit(f"{line}: not over after {limit} s: {late.stderr}") from late

    def config(self, **properties):
        path = os.path.join(self.folder, f"properties-{time.time_ns()}")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            for name, value in properties.items():
                file.write(f"{name.replace('_', '.')}={value}\n")
        return path

    def examples(self, done, want):
        if done.returncode or json.loads(done.stdout)["examples"] != want:
            raise SystemExit(f"not {want} examples: {done}")

    def refused(self, done, code, *words):
        if done.returncode != code or any(word not in done.stderr for word in words):
            raise SystemExit(f"not code {code} with {words}: {done}")
        if done.stderr.count("\n") > 6:
            raise SystemExit(f"too many lines: {done.stderr}")


def lines(first, count):
    return [f"1 {at}:1" for at in range(first, first + count)]


def secured(check, start_broker):
    """TLS and SASL: the right ones, and all ways to have them wrong."""
    cert, key, ca, other = certificates(check.folder)
    port, inner = free_port(), free_port()
    broker = start_broker(f"tcp://127.0.0.1:{inner}", f"tcp://127.0.0.1:{port}")
    words = [sys.executable, os.path.join(HERE, "secure_peer.py"), str(port), str(inner), "--cert", cert, "--key", key]
    peer = subprocess.Popen([*words, "--user", "alice:rabbit-hole"])
    try:
        right = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "ssl_ca_location": ca}
        right |= {"sasl_username": "alice", "sasl_password": "rabbit-hole"}
        from confluent_kafka import Producer

        given = {name.replace("_", "."): value for name, value in right.items()}
        Kafka.make_topic({"bootstrap.servers": f"127.0.0.1:{port}", **given})
        given |= {"bootstrap.servers": f"127.0.0.1:{port}", "batch.num.messages": 1, "log_level": 0}
        producer = Producer(given)
        for at, line in enumerate(lines(0, 60)):
            producer.produce("clicks", line, partition=at % 3)
        assert producer.flush(60) == 0, "the messages are not sent"
        url = f"kafka://127.0.0.1:{port}/clicks"
        check.examples(check.train(url, "--kafka-config", check.config(**right)), 60)
        wrong = check.config(**{**right, "sasl_password": "white-queen"})
        done = check.train(url, "--kafka-config", wrong)
        check.refused(done, 2, "uthentication", "--kafka-config")
        assert "white-queen" not in done.stderr + done.stdout, done
        exposed = check.config(**right)
        os.chmod(exposed, 0o644)
        check.refused(check.train(url, "--kafka-config", exposed), 2, "chmod 600")
        check.refused(check.train(url, "--kafka-config", check.config(group_id="mine")), 2, "group.id cannot be set")
        # These wait: a broker may get another certificate.
        for config in (check.config(**{**right, "ssl_ca_location": other}), None):
            more = ["--kafka-config", config] if config else []
            line = [check.options.gannet, "train", url, "--format", "libsvm", "--until-end", *more]
            process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
            time.sleep(15)
            assert process.poll() is None, process.stderr.read()
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=30)[1]
            want = "certificate verify failed" if config else "name it in --kafka-config"
            assert want in said and said.count("\n") < 8, said
    finally:
        peer.kill()
        broker.kill()
    print("TLS and passwords: trained with the right ones; wrong ones are refused or waited for, by name", flush=True)


def packed(check, kafka):
    from confluent_kafka import Producer

    for codec in ("gzip", "snappy", "lz4", "zstd"):
        topic = f"packed-{codec}"
        Kafka.make_topic({"bootstrap.servers": kafka.addr}, topic)
        settings = {"bootstrap.servers": kafka.addr, "compression.type": codec, "linger.ms": 100, "log_level": 0}
        for first, count in ((0, 50), (50, 1)):
            producer = Producer(settings)
            for line in lines(first, count):
                producer.produce(topic, line, partition=0)
            assert producer.flush(60) == 0, f"{codec}: the messages are not sent"
        check.examples(check.train(f"kafka://{kafka.addr}/{topic}"), 51)
    print("messages packed by gzip, snappy, lz4 and zstd are trained", flush=True)


def away(check, kafka):
    """Brokers that are away for longer than a worker's limit, at the start of a job and in the middle of it."""
    words = ["launch", "--servers", "1", "--workers", "2", "--data-dir", os.path.join(check.folder, "rows"), "--", "train"]
    words += [*kafka.words(), "--worker-timeout", "2", "--no-intercept", "--l1", "0", "--out", os.path.join(check.folder, "model")]
    log = os.path.join(check.folder, "launch.log")
    kafka.broker.send_signal(signal.SIGSTOP)
    job = subprocess.Popen([check.options.gannet, *words], stdout=open(log, "w"), stderr=subprocess.STDOUT)
    sent = 0
    for _ in range(2):
        time.sleep(25)
        assert job.poll() is None, f"the job ended while the brokers were away: see {log}"
        kafka.broker.send_signal(signal.SIGCONT)
        time.sleep(3)
        kafka.add(lines(sent, 300))
        sent += 300
        time.sleep(5)
        kafka.add(lines(sent, 300))
        sent += 300
        kafka.broker.send_signal(signal.SIGSTOP)
    kafka.broker.send_signal(signal.SIGCONT)
    time.sleep(15)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) == 130, f"the job ended with {job.returncode}: see {log}"
    said = open(log).read()
    assert "started again" not in said, f"a worker gave up: see {log}"
    data = os.path.join(check.folder, "all.svm")
    with open(data, "w") as file:
        file.writelines(line + "\n" for line in lines(0, sent))
    model = os.path.join(check.folder, "model")
    scores = subprocess.run([check.options.gannet, "predict", data, "--model", model], capture_output=True, text=True).stdout
    scores = scores.split()
    assert len(scores) == sent and len(set(scores)) == 1 and float(scores[0]) > 0.5, f"{sorted(set(scores))[:5]}: see {log}"
    print(f"a launched job trained {sent} messages once each, with brokers away for 25 s twice", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", default="target/release/gannet")
    parser.add_argument("--tansu", default="tansu")
    options = parser.parse_args()
    options.store = None
    folder = tempfile.mkdtemp(prefix="gannet-brokers-")
    print(f"files are in {folder}", flush=True)
    check = Check(options, folder)

    def start_broker(listener, advertised):
        words = [options.tansu, "broker", "--silent", "--listener-url", listener, "--advertised-listener-url", advertised]
        log = open(os.path.join(folder, "inner.log"), "w")
        return subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)

    secured(check, start_broker)
    kafka = Kafka(options, folder)
    try:
        packed(check, kafka)
        away(check, kafka)
    finally:
        kafka.end()
    subprocess.run(["rm", "-rf", folder], check=True)


if __name__ == "__main__":
    main()
