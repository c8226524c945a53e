"""Wrong arguments: each error says what was given and what is wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gannet


@pytest.fixture(scope="module")
def table(cluster: gannet.LocalCluster) -> Any:
    with gannet.connect(cluster.servers) as client:
        yield client.table("inputs", 4, optimizer=gannet.Sgd(lr=1.0))


GOOD = np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    "keys, error, words",
    [
        ([[1, 2]], ValueError, r"keys have shape \(1, 2\); .*\(n,\)"),
        (np.uint64(7), ValueError, r"keys have shape \(\)"),
        ([1.5, 2.0], TypeError, "keys have dtype float64; integers"),
        (["a", "b"], TypeError, "keys have dtype <U1; integers"),
        ([True, False], TypeError, "keys have dtype bool; integers"),
        ([None, 1], TypeError, "keys have dtype object; integers"),
        ([2**64, 1], TypeError, "keys have dtype"),
    ],
)
def test_keys(table: gannet.Table, keys: Any, error: type[Exception], words: str) -> None:
    for call in (lambda: table.pull(keys), lambda: table.push(keys, GOOD), lambda: table.begin_pull(keys)):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize(
    "grads, error, words",
    [
        (np.ones((2, 4)), TypeError, "grads have dtype float64; float32 is wanted"),
        ([[1] * 4] * 2, TypeError, "grads have dtype int64; float32 is wanted"),
        (np.ones((2, 5), np.float32), ValueError, r"grads have shape \(2, 5\); \(2, 4\) is wanted"),
        (np.ones((3, 4), np.float32), ValueError, r"grads have shape \(3, 4\); \(2, 4\) is wanted"),
        (np.ones(8, np.float32), ValueError, r"grads have shape \(8,\); \(2, 4\) is wanted"),
    ],
)
def test_grads(table: gannet.Table, grads: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        table.push([1, 2], grads)


def read_only() -> Any:
    array = np.ones((2, 4), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "out, error, words",
    [
        (np.ones((2, 4)), TypeError, "out has dtype float64; float32 is wanted"),
        ([[1.0] * 4] * 2, TypeError, "out is a list; a numpy array is wanted"),
        (np.ones((2, 3), np.float32), ValueError, r"out has shape \(2, 3\); \(2, 4\) is wanted"),
        (np.ones((4, 2), np.float32).T, ValueError, "out is not contiguous"),
        (np.ones((2, 8), np.float32)[:, ::2], ValueError, "out is not contiguous"),
        (read_only(), ValueError, "out is read-only"),
    ],
)
def test_out(table: gannet.Table, out: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        table.pull([1, 2], out=out)
    pull = table.begin_pull([1, 2])
    with pytest.raises(error, match=words):
        pull.result(out=out)
    # The pull is not lost by it.
    assert pull.result().shape == (2, 4)


def test_reduce(table: gannet.Table) -> None:
    with pytest.raises(gannet.InputError, match="reduce is 'max'; 'sum' or 'mean' is wanted"):
        table.push([1, 2], GOOD, reduce="max")


def test_a_wrong_call_pushes_nothing(table: gannet.Table) -> None:
    before = table.pull([1, 2])
    with pytest.raises(TypeError):
        table.push([1, 2], np.ones((2, 4)))
    np.testing.assert_array_equal(table.pull([1, 2]), before)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"dim": 0}, ValueError, "dim is 0; a whole number from 1 to 4096"),
        ({"dim": 4097}, ValueError, "dim is 4097"),
        ({"dim": 2.5}, ValueError, "dim is 2.5"),
        ({"shards": 48}, ValueError, "48"),
        ({"name": "a/b"}, ValueError, "a/b"),
        ({"name": ""}, ValueError, "name"),
        ({"optimizer": "adam"}, TypeError, "optimizer is 'adam'; one like gannet.Adagrad"),
        ({"optimizer": gannet.Sgd(lr=-1.0)}, ValueError, "lr"),
        ({"optimizer": gannet.Adam(beta1=1.5)}, ValueError, "beta1"),
        ({"init": 0}, TypeError, "init is 0; one like gannet.Normal"),
        ({"init": gannet.Normal(0, -1)}, ValueError, "initial"),
        ({"admit": 1}, ValueError, "admit is 1; None, a whole number from 2 to 256"),
        ({"admit": 1.5}, ValueError, "admit is 1.5"),
        ({"admit": True}, ValueError, "admit is True"),
        ({"dim": "4"}, ValueError, "dim is '4'; a whole number from 1 to 4096"),
        ({"shards": True}, ValueError, "shards is True; a whole number"),
        ({"seed": -1}, ValueError, "seed is -1; a whole number of 0 or more"),
        ({"seed": "x"}, ValueError, "seed is 'x'; a whole number"),
        ({"name": 7}, TypeError, "name is 7; a string"),
    ],
)
def test_table(table: gannet.Table, arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    described = {"name": "wrong", "dim": 4, **arguments}
    with pytest.raises(error, match=words) as caught:
        table.client.table(**described)
    if isinstance(caught.value, gannet.GannetError):
        assert caught.value.exit_code == 2


def test_numbers_of_numpy_are_numbers(table: gannet.Table) -> None:
    made = table.client.table("of-numpy", np.int64(2), shards=np.uint8(4), seed=np.int32(1), admit=np.int16(2))
    assert made.pull([1]).shape == (1, 2) and made.stats().shards == 4
    with gannet.connect(table.client.servers, rank=np.int64(7), timeout=np.float32(20)) as client:
        assert client.transport == "shm"


def test_spaces_in_a_list_of_servers(cluster: gannet.LocalCluster) -> None:
    with gannet.connect(", ".join(cluster.servers)) as client:
        assert list(client.servers) == cluster.servers


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"servers": []}, ValueError, "servers is empty"),
        ({"servers": ["localhost"]}, ValueError, 'server "localhost": "HOST:PORT" is wanted'),
        ({"servers": [7700]}, TypeError, "servers has a int; strings"),
        ({"servers": ["127.0.0.1:1", "127.0.0.1:1"]}, ValueError, "twice"),
        ({"servers": ["10.1.2.3:7700"]}, ValueError, "beyond loopback .* a token and TLS are needed"),
        ({"transport": "rdma"}, ValueError, 'transport is "rdma"; "auto", "tcp" or "shm" is wanted'),
        ({"timeout": 0}, ValueError, "timeout is 0; more than 0 s"),
        ({"timeout": "x"}, ValueError, "timeout is 'x'; a finite number"),
        ({"servers": 7}, TypeError, "servers is a int"),
        ({"rank": 2.5}, ValueError, "rank is 2.5; a whole number"),
        ({"rank": -1}, ValueError, "rank is -1; a whole number of 0 or more"),
        ({"transport": 5}, TypeError, "transport is 5; a string"),
        ({"tls_name": 5}, TypeError, "tls_name is 5; a string"),
        ({"token_file": 5}, TypeError, "token_file is a int; the path of a file"),
        ({"token_file": "/nowhere/token"}, ValueError, "^token_file=/nowhere/token"),
        ({"tls_ca": "/nowhere/ca.pem"}, ValueError, "^tls_ca=/nowhere/ca.pem"),
        ({"tls_ca": "/nowhere/my--tls-ca.pem"}, ValueError, "^tls_ca=/nowhere/my--tls-ca.pem"),
        ({"tls_cert": "c"}, ValueError, "tls_cert and tls_key belong together"),
        ({"tls_name": "ps"}, ValueError, "needs tls_ca"),
    ],
)
def test_connect(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        gannet.connect(**{"servers": "127.0.0.1:1", "timeout": 1.0, **arguments})


@pytest.mark.parametrize("sync", ["bsp:2", "ssp", "ssp:", "ssp:-1", "ssp:x", ""])
def test_sync(table: gannet.Table, sync: str) -> None:
    with pytest.raises(gannet.InputError, match="sync is .* is wanted"):
        table.client.join(0, 1, sync)


def test_join(table: gannet.Table) -> None:
    client = table.client
    for call, words in (
        (lambda: client.join(0, 1, merge="max"), "merge is 'max'"),
        (lambda: client.join(5, 2), "worker 5 of 2: rank counts from 0, so it must be below workers"),
        (lambda: client.join(0, 4097), "workers is 4097; a whole number from 1 to 4096"),
        (lambda: client.join("a", 2), "rank is 'a'; a whole number"),
        (lambda: client.join(0, 1, worker_timeout=-1), "worker_timeout is -1"),
        (lambda: client.join(0, 1, worker_timeout=0), "worker_timeout is 0; a number of seconds above 0"),
        (lambda: client.tick(), "has not joined"),
    ):
        with pytest.raises(gannet.InputError, match=words):
            call()


def test_export(table: gannet.Table, tmp_path: Any) -> None:
    with pytest.raises(gannet.InputError, match="format is 'csv'; 'npz' or 'safetensors' is wanted"):
        table.export(tmp_path / "rows", format="csv")
    with pytest.raises(OSError):
        table.export(tmp_path / "no" / "folder" / "rows.npz")
    assert list(tmp_path.iterdir()) == []
