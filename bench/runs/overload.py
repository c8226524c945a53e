#!/usr/bin/env python3
"""`gannet serve` on one core when it is asked for more than it can do: statuses, latencies of good answers, and memory.

    CACHE/serving/bin/python bench/runs/overload.py CACHE/serving-data > docs/benchmarks/serving_overload.tsv

bench/runs/serving.py says what CACHE/serving needs. Requests of 1,000 examples wait for the thread. They come at once,
twice and four times the rate that 16 connections reach, over 256 connections. A connection takes the next request when
its turn has come. Requests of one example do not wait for each other. wrk asks over many connections as often as it
can, and the latencies are those of eight other connections, which ask 250 times a second.
"""
import os
import socket
import sys
import threading
import time

from serving import FORMS, REQUESTS, gannet, request_of, settings, write_requests, wrk


class Clients(threading.Thread):
    """Threads with a connection each. They ask when their turn is (`every` seconds apart, all together), or at once."""

    def __init__(self, port, requests, connections, seconds, every=0.0):
        super().__init__()
        self.port, self.requests, self.every, self.seconds = port, requests, every, seconds
        self.lock, self.turn = threading.Lock(), 0
        self.answers = {}
        self.threads = [threading.Thread(target=self.ask) for _ in range(connections)]

    def run(self):
        self.begin = time.perf_counter()
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()

    def ask(self):
        stream = None
        while True:
            with self.lock:
                turn, self.turn = self.turn, self.turn + 1
            at = self.begin + turn * self.every if self.every else time.perf_counter()
            if at > self.begin + self.seconds:
                return
            time.sleep(max(0.0, at - time.perf_counter()))
            start = time.perf_counter()
            try:
                stream = stream or socket.create_connection(("127.0.0.1", self.port), 30)
                status, stays = self.answer(stream, self.requests[turn % len(self.requests)])
            except OSError as error:
                status, stays = type(error).__name__, False
            with self.lock:
                self.answers.setdefault(status, []).append(time.perf_counter() - start)
            if not stays:
                if stream:
                    stream.close()
                stream = None

    def answer(self, stream, request):
        """Asks. A server that refuses may do so before it has all of the request."""
        broken = None
        try:
            stream.sendall(request)
        except OSError as error:
            broken = error
        said = b""
        while b"\r\n\r\n" not in said:
            part = stream.recv(1 << 16)
            if not part:
                raise broken or ConnectionResetError()
            said += part
        head, body = said.split(b"\r\n\r\n", 1)
        head = head.lower()
        left = int(head.split(b"content-length:")[1].split()[0]) - len(body)
        while left > 0:
            left -= len(stream.recv(1 << 16)) or left
        return int(head.split()[1]), broken is None and b"connection: close" not in head


def overloaded(o, rows):
    os.sched_setaffinity(0, {1})
    large = [request_of(FORMS[0], rows[at * 100 :][:1000]) for at in range(16)]
    found = []

    def tell(case, offered, server, before, answers, seconds):
        good = sorted(answers.pop(200, [0]))
        rates = {status: len(times) / seconds for status, times in answers.items()}
        others = ", ".join(f"{rate:,.0f} {status}" for status, rate in sorted(rates.items(), key=str))
        late = [good[int(len(good) * share)] * 1e3 for share in (0.5, 0.99)] + [good[-1] * 1e3]
        cells = [case, offered, f"{len(good) / seconds:,.0f}", others or "none", ", ".join(f"{t:.3g}" for t in late)]
        found.append([*cells, f"{before:.0f}, {server.memory('VmHWM'):.0f}"])

    def most(server, requests, connections):
        clients = Clients(server.port, requests, connections, o.seconds)
        clients.run()
        return len(clients.answers[200]) / o.seconds

    server = gannet(o, 26603, "--requests", "64")
    try:
        before, rate = server.memory(), most(server, large, 16)
        for times in (1, 2, 4):
            clients = Clients(server.port, large, 256, o.seconds * 4, 1 / (times * rate))
            clients.run()
            offered = f"{times * rate:,.0f} a second ({times} times what it can do)"
            case = "1,000 examples, --requests 64, 256 connections"
            tell(case, offered, server, before, clients.answers, o.seconds * 4)
    finally:
        server.stop()
    folder = write_requests(o, FORMS[0], rows, 1)
    small = [request_of(FORMS[0], rows[at : at + 1]) for at in range(REQUESTS)]
    for connections in (256, 1000, 2000):
        server = gannet(o, 26604, "--requests", "64")
        try:
            before = server.memory()
            # These have their connections before the others come.
            probe = Clients(server.port, small, 8, o.seconds * 4, 0.004)
            probe.start()
            time.sleep(0.3)
            said = wrk(o, server, folder, connections, o.seconds * 3, ["count"])
            probe.join()
            case = f"1 example, --requests 64, {connections:,} connections that ask at once"
            statuses = {int(status): count / said["seconds"] for status, count in said["statuses"].items()}
            others = ", ".join(f"{count:,.0f} {status}" for status, count in sorted(statuses.items()) if status != 200)
            if said["broken"]:
                others += f"; {said['broken'] / said['seconds']:,.0f} broken"
            tell(case, "all that it can do", server, before, probe.answers, o.seconds * 4)
            found[-1][2:4] = [f"{statuses.get(200, 0):,.0f}", others or "none"]
        finally:
            server.stop()
    late = "p50, p99, most of answers 200, ms"
    print("requests", "offered", "answers 200 a second", "others a second", late, "RSS before, most, MB", sep="\t")
    for cells in found:
        print(*cells, sep="\t")


if __name__ == "__main__":
    overloaded(*settings(__doc__))
