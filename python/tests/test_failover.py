"""Servers that are backups of each other: a client goes on when the owner of a place has died."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

import numpy as np
import pytest

import gannet
from gannet._cluster import _claim_ports, _Server, _Starter
from gannet._command import command

COUNTERS: dict[str, Any] = {"optimizer": gannet.Add(), "init": gannet.Zero()}
ONES = np.ones((500, 2), np.float32)
SECONDS = 60.0


class Job:
    """A coordinator, and three servers with a backup each."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._starter = _Starter()
        self._claims, addresses = _claim_ports(4)
        self.coordinator, self.servers = addresses[0], addresses[1:]
        self._processes = [_Server(0, self.coordinator, [command(), "scheduler", f"--listen={self.coordinator}"])]
        hosts = ",".join(self.servers)
        for index, address in enumerate(self.servers):
            words = [
                *(command(), "train", "--job-name=ps", f"--task-index={index}", f"--ps-hosts={hosts}"),
                *("--worker-hosts=a:0", "--threads=2", f"--run={run}", f"--coordinator={self.coordinator}"),
                *("--backups=1", "--lease=1"),
            ]
            self._processes.append(_Server(index, address, words))

    def __enter__(self) -> Job:
        for process in self._processes:
            process.start(self._starter)
        for process in self._processes:
            process.wait_until_it_listens()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        for process in self._processes:
            process.kill()
        self._starter.end()
        for claim in self._claims:
            claim.close()

    def places(self) -> list[dict[str, Any]]:
        """What the coordinator knows of each place."""
        words = [command(), "status", f"--coordinator={self.coordinator}", f"--run={self.run}", "--json"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        known = json.loads(done.stdout)["places"] if done.stdout else None
        return [place or {} for place in known or []]

    def wait_for_backups(self) -> None:
        end = time.monotonic() + SECONDS
        while not (places := self.places()) or not all(place.get("backups") for place in places):
            assert time.monotonic() < end, places
            time.sleep(0.1)

    def kill_owner(self, place: int) -> str:
        owner: str = self.places()[place]["owner"]
        next(process for process in self._processes if process.address == owner).kill()
        return owner


def test_a_client_could_not_follow_a_failover() -> None:
    with Job("monday") as job:
        keys = np.arange(500)
        # The order does not matter.
        servers = job.servers[::-1]
        asked: dict[str, Any] = {"coordinator": job.coordinator, "run": "monday", "timeout": SECONDS}
        with gannet.connect(servers, **asked) as client:
            table = client.table("counts", 2, **COUNTERS)
            pushed = 0
            for place in (0, 2):
                job.wait_for_backups()
                for step in range(100):
                    table.push(keys, ONES)
                    pushed += 1
                    if step == 50:
                        dead = job.kill_owner(place)
                client.flush()
                assert (table.pull(keys) == pushed).all()
                assert job.places()[place]["owner"] != dead
            assert client.counters()["links_lost"] > 0
        # A client that comes later finds the owners, too.
        with gannet.connect(servers, **asked) as client:
            assert (client.table("counts", 2, **COUNTERS).pull(keys) == pushed).all()


def test_arguments_about_a_coordinator_are_checked() -> None:
    servers = "127.0.0.1:1"
    with pytest.raises(gannet.InputError, match="coordinator is '?\"nowhere\"?'?: HOST:PORT of a `gannet scheduler`"):
        gannet.connect(servers, coordinator="nowhere")
    with pytest.raises(gannet.InputError, match="run is \"monday\".*give the coordinator, too"):
        gannet.connect(servers, run="monday")
    with pytest.raises(gannet.InputError, match="run is \"a/b\""):
        gannet.connect(servers, coordinator="127.0.0.1:2", run="a/b")
    with pytest.raises(gannet.InputError, match="server 10.0.0.1:2: beyond loopback"):
        gannet.connect(servers, coordinator="10.0.0.1:2")
    with pytest.raises(gannet.InputError, match="member 10.0.0.1:2 of etcd: beyond loopback TLS"):
        gannet.connect(servers, coordinator="etcd://10.0.0.1:2")
    with pytest.raises(gannet.InputError, match="etcds://...: give tls_ca"):
        gannet.connect(servers, coordinator="etcds://127.0.0.1:2")
    with pytest.raises(gannet.PeerError, match="127.0.0.1:1 "):
        gannet.connect(servers, coordinator="127.0.0.1:2", timeout=0.5)
