"""Rows that die: the settings of tables, and what the servers make of them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import gannet

COUNTERS = {"optimizer": gannet.Add(), "init": gannet.Zero()}


def wait_until(holds: Callable[[], bool]) -> None:
    """Servers evict between requests."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it has not come within a minute"
        time.sleep(0.02)


def ones(count: int) -> Any:
    return np.ones((count, 1), np.float32)


def test_a_table_has_at_most_its_capacity(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, shards=8, capacity=1000, **COUNTERS)
    for step in range(20):
        table.push(np.arange(5000 * step, 5000 * (step + 1)), ones(5000))
    wait_until(lambda: table.stats().rows <= 1000)
    last = np.arange(10**6, 10**6 + 100)
    table.push(last, ones(100))
    wait_until(lambda: table.stats().rows <= 1000)
    np.testing.assert_array_equal(table.pull(last), ones(100))
    keys, rows = table.items()
    assert 500 < len(keys) <= 1000 and (rows == 1).all()
    # A dead row reads as before its first push.
    assert not table.pull(np.arange(5000)).any()


def test_a_capacity_may_be_bytes(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, shards=1, capacity="1MiB", **COUNTERS)
    for step in range(20):
        table.push(np.arange(5000 * step, 5000 * (step + 1)), ones(5000))
    # A row and its place in the index take 40 bytes.
    wait_until(lambda: table.stats().rows <= (1 << 20) // 40)
    assert table.stats().rows > 1000


def test_rows_die_of_age_and_a_floor_holds_them(client: gannet.Client) -> None:
    of_age = client.table(f"age-{client.transport}", 1, shards=1, evict_after=1, **COUNTERS)
    floor: dict[str, Any] = {"evict_after": "1s", "evict_below": 0.5, "evict_floor": 800}
    of_floor = client.table(f"floor-{client.transport}", 1, shards=1, **floor, **COUNTERS)
    for table in (of_floor, of_age):
        table.push(np.arange(1000), ones(1000))
    wait_until(lambda: of_age.stats().rows == 500 and of_floor.stats().rows == 800)
    # No rule takes more than half of a table within an hour.
    values, counts = np.unique(of_age.pull(np.arange(1000)), return_counts=True)
    assert dict(zip(values.tolist(), counts.tolist())) == {0.0: 500, 1.0: 500}


@pytest.mark.parametrize(
    "settings",
    [
        {"evict_after": "5y"},
        {"evict_after": "0"},
        {"evict_after": 0},
        {"evict_after": ""},
        {"evict_after": "101000d"},
        {"evict_below": 0},
        {"evict_below": -1.5},
        {"capacity": "0"},
        {"capacity": 0},
        {"capacity": "many"},
        {"capacity": "0GiB"},
        {"evict_floor": 10},
        {"capacity": 10, "evict_floor": 5},
        {"capacity": 5, "evict_floor": 10, "evict_after": "1d"},
    ],
)
def test_settings_are_refused_as_by_the_command(
    cluster: gannet.LocalCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    with gannet.connect(cluster.servers) as client, pytest.raises(gannet.InputError) as caught:
        client.table("refused", 1, **settings)
    argument, why = str(caught.value).split(": ", 1)
    assert argument.split(" is ")[0] in settings
    data = tmp_path / "a.svm"
    data.write_text("1 1:1\n0 2:1\n")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    done = subprocess.run([gannet.command(), "train", data, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and why in done.stderr


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"evict_after": 1.5}, "evict_after is 1.5; a whole number"),
        ({"evict_below": "small"}, "evict_below is 'small'; a finite number"),
        ({"capacity": -1}, "capacity is -1; a whole number"),
        ({"evict_floor": "3"}, "evict_floor is '3'; a whole number"),
    ],
)
def test_settings_of_another_type(cluster: gannet.LocalCluster, settings: dict[str, Any], words: str) -> None:
    with gannet.connect(cluster.servers) as client, pytest.raises(gannet.InputError, match=words):
        client.table("refused", 1, **settings)


def test_a_capacity_of_too_few_bytes(client: gannet.Client, name: str) -> None:
    with pytest.raises(gannet.GannetError, match="a capacity of 10240 bytes is too small for 4 shards: use at least"):
        client.table(name, 1, shards=4, capacity="10KiB", **COUNTERS)


def test_a_table_that_is_open_keeps_its_settings(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, shards=8, capacity=1000, **COUNTERS)
    assert client.table(name, 1, shards=8, capacity=1000, **COUNTERS) is table
    assert client.table(name, 1, shards=8, **COUNTERS) is table
    with pytest.raises(gannet.InputError, match="is open: say before that its rows may die"):
        client.table(name, 1, shards=8, capacity=2000, **COUNTERS)
    table.push(np.arange(9000), ones(9000))
    wait_until(lambda: table.stats().rows <= 1000)


def test_settings_of_a_call_that_failed_kill_no_rows(client: gannet.Client, name: str) -> None:
    with gannet.connect(client.servers) as other:
        other.table(name, 1, shards=8, **COUNTERS)
    with pytest.raises(gannet.PeerError):
        client.table(name, 2, shards=8, capacity=100, **COUNTERS)
    with pytest.raises(gannet.InputError, match="an earlier call, which failed, said that its rows may die"):
        client.table(name, 1, shards=8, **COUNTERS)
    table = client.table(name, 1, shards=8, capacity=1000, **COUNTERS)
    table.push(np.arange(800), ones(800))
    client.flush()
    assert table.stats().rows == 800
