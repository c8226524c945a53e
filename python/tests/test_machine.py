"""A state machine of a client against a dict, while servers are killed and started again."""

from __future__ import annotations

import tempfile
import threading
from typing import Any, Optional

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import gannet

DIM = 3
# Few keys, so that they repeat, and some at the ends of the range.
KEYS = st.one_of(st.integers(0, 30), st.sampled_from([2**63, 2**64 - 1, 2**32]))
BATCHES = st.lists(st.tuples(KEYS, st.integers(-4, 4)), min_size=0, max_size=40)


class Machine(RuleBasedStateMachine):
    """Counts are whole numbers, so float32 sums are exact. A lost or repeated push shows in the next pull."""

    cluster: gannet.LocalCluster
    transport: str
    tables = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.tables += 1
        self.client = gannet.connect(self.cluster.servers, transport=self.transport, timeout=30)
        self.table = self.open()
        self.model: dict[int, np.ndarray[Any, Any]] = {}
        self.pulls: list[tuple[gannet.Pull, np.ndarray[Any, Any]]] = []
        self.saved: Optional[tuple[tempfile.TemporaryDirectory[str], dict[int, np.ndarray[Any, Any]]]] = None

    def open(self) -> gannet.Table:
        # Sgd with a rate of 1 and whole gradients: w -= g.
        return self.client.table(
            f"machine-{self.transport}-{Machine.tables}", DIM, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero()
        )

    def row(self, key: int) -> np.ndarray[Any, Any]:
        return self.model.get(key, np.zeros(DIM, np.float32))

    def rows(self, keys: list[int]) -> np.ndarray[Any, Any]:
        return np.array([self.row(key) for key in keys], np.float32).reshape(len(keys), DIM)

    @rule(batch=BATCHES)
    def push(self, batch: list[tuple[int, int]]) -> None:
        grads = np.array([[value, 2 * value, 1] for _, value in batch], np.float32).reshape(len(batch), DIM)
        self.table.push(np.array([key for key, _ in batch], np.uint64), grads)
        for (key, _), grad in zip(batch, grads):
            self.model[key] = self.row(key) - grad

    @rule(keys=st.lists(KEYS, max_size=10, unique=True), value=st.integers(-4, 4), times=st.integers(1, 4))
    def push_means(self, keys: list[int], value: int, times: int) -> None:
        grads = np.full((len(keys) * times, DIM), value, np.float32)
        self.table.push(np.array(keys * times, np.uint64), grads, reduce="mean")
        for key in keys:
            self.model[key] = self.row(key) - np.float32(value)

    @rule(keys=st.lists(KEYS, max_size=40))
    def pull(self, keys: list[int]) -> None:
        np.testing.assert_array_equal(self.table.pull(np.array(keys, np.uint64)), self.rows(keys))

    @rule(keys=st.lists(KEYS, max_size=40), value=st.integers(-4, 4), pushes=st.integers(0, 2), copy=st.booleans())
    def use_a_keyset(self, keys: list[int], value: int, pushes: int, copy: bool) -> None:
        keyset = self.table.keyset(np.array(keys, np.uint64))
        assert len(keyset) == len(set(keys))
        for _ in range(pushes):
            self.table.push(keyset, np.full((len(keyset), DIM), value, np.float32), copy=copy)
            for key in set(keys):
                self.model[key] = self.row(key) - np.float32(value)
        np.testing.assert_array_equal(self.table.pull(keyset), self.rows(keyset.keys.tolist()))
        np.testing.assert_array_equal(self.table.pull(keyset)[keyset.inverse], self.rows(keys))

    @rule(keys=st.lists(KEYS, max_size=20, unique=True), value=st.integers(-9, 9))
    def assign(self, keys: list[int], value: int) -> None:
        self.table.assign(np.array(keys, np.uint64), np.full((len(keys), DIM), value, np.float32))
        self.model.update({key: np.full(DIM, value, np.float32) for key in keys})

    @rule(keys=st.lists(KEYS, max_size=40))
    def begin_pull(self, keys: list[int]) -> None:
        self.pulls.append((self.table.begin_pull(np.array(keys, np.uint64)), self.rows(keys)))

    @rule(keys=st.lists(KEYS, max_size=40))
    def begin_pull_of_a_keyset(self, keys: list[int]) -> None:
        keyset = self.table.keyset(np.array(keys, np.uint64))
        self.pulls.append((self.table.begin_pull(keyset), self.rows(keyset.keys.tolist())))

    @precondition(lambda self: self.pulls)
    @rule(data=st.data())
    def finish_pull(self, data: st.DataObject) -> None:
        pull, want = self.pulls.pop(data.draw(st.integers(0, len(self.pulls) - 1)))
        rows = pull.result()
        # A pull that was on its way when its server died is sent again, and may then see later pushes.
        if not self.killed_since_begin:
            np.testing.assert_array_equal(rows, want)

    killed_since_begin = False

    @rule(server=st.integers(0, 1))
    def kill_and_start(self, server: int) -> None:
        self.killed_since_begin = bool(self.pulls)
        self.cluster.kill_server(server)
        self.cluster.start_server(server)

    @rule(server=st.integers(0, 1), batch=BATCHES, keys=st.lists(KEYS, max_size=20, unique=True))
    def push_to_a_dead_server(self, server: int, batch: list[tuple[int, int]], keys: list[int]) -> None:
        self.killed_since_begin = bool(self.pulls)
        self.cluster.kill_server(server)
        # The pushes are on their way, or wait for an earlier one, until the server is back. The second one is sent from
        # an array that nothing else holds.
        start = threading.Timer(0.1, self.cluster.start_server, (server,))
        start.start()
        try:
            self.push(batch)
            keyset = self.table.keyset(np.array(keys, np.uint64))
            self.table.push(keyset, np.full((len(keyset), DIM), 3, np.float32), copy=False)
            for key in keys:
                self.model[key] = self.row(key) - np.float32(3)
        finally:
            start.join()

    @precondition(lambda self: not self.pulls)
    @rule()
    def connect_again(self) -> None:
        self.client.close()
        self.client = gannet.connect(self.cluster.servers, transport=self.transport, timeout=30)
        self.table = self.open()

    @rule()
    def items(self) -> None:
        keys, rows = self.table.items()
        assert len(set(keys.tolist())) == len(keys)
        assert dict(zip(keys.tolist(), map(tuple, rows.tolist()))) == {
            key: tuple(row.tolist()) for key, row in self.model.items()
        }
        assert self.table.stats().rows == len(self.model)

    @rule()
    def save(self) -> None:
        folder = tempfile.TemporaryDirectory()
        assert self.client.save(folder.name) == {self.table.name: len(self.model)}
        self.saved = folder, dict(self.model)

    @precondition(lambda self: self.saved)
    @rule()
    def load(self) -> None:
        assert self.saved is not None
        folder, model = self.saved
        assert self.client.load(folder.name) == {self.table.name: len(model)}
        self.model.update(model)

    @invariant()
    def nothing_was_dropped(self) -> None:
        counters = self.client.counters()
        assert counters["not_finite"] == 0 and counters["not_admitted"] == 0

    def teardown(self) -> None:
        for pull, _ in self.pulls:
            pull.result()
        self.pull(list(self.model))
        self.items()
        self.client.close()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_client_equals_a_dict(transport: str) -> None:
    with tempfile.TemporaryDirectory() as folder, gannet.LocalCluster(servers=2, data_dir=folder) as cluster:
        Machine.cluster, Machine.transport = cluster, transport
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=15,
                stateful_step_count=25,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
