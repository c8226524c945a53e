"""LocalCluster, save and load, export, and workers that keep step."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import gannet

COUNTERS: dict[str, Any] = {"optimizer": gannet.Add(), "init": gannet.Zero()}
ONE = np.ones((1, 1), np.float32)


def test_a_server_that_was_killed_has_its_rows_again(tmp_path: Path) -> None:
    with gannet.LocalCluster(servers=2, data_dir=tmp_path) as cluster:
        with gannet.connect(cluster.servers) as client:
            table = client.table("kept", 2, **COUNTERS)
            keys = np.arange(1000)
            table.push(keys, np.ones((1000, 2), np.float32))
            client.flush()
            cluster.kill_server(1)
            status = cluster.status()
            assert [server["running"] for server in status["servers"]] == [True, False]
            assert status["servers"][1]["exit_code"] == -9 and status["servers"][1]["pid"] is None
            cluster.start_server(1)
            assert cluster.status()["servers"][1]["starts"] == 2
            table.push(keys, np.ones((1000, 2), np.float32))
            assert (table.pull(keys) == 2).all()
            with pytest.raises(gannet.InputError, match="server 1 runs"):
                cluster.start_server(1)
            with pytest.raises(gannet.InputError, match="server 2: there are 2"):
                cluster.kill_server(2)
    # A later cluster on the same folder has them, too.
    with gannet.LocalCluster(servers=2, data_dir=tmp_path) as cluster, gannet.connect(cluster.servers) as client:
        assert (client.table("kept", 2, **COUNTERS).pull(keys) == 2).all()


def test_rows_without_a_folder_die_with_their_server() -> None:
    with gannet.LocalCluster(servers=2) as cluster:
        client = gannet.connect(cluster.servers)
        table = client.table("gone", 1, **COUNTERS)
        table.push(np.arange(100), np.ones((100, 1), np.float32))
        client.flush()
        cluster.kill_server(0)
        cluster.start_server(0)
        with pytest.raises(gannet.RowsGoneError, match="gone") as caught:
            table.pull(np.arange(100))
        assert caught.value.exit_code == 3 and isinstance(caught.value, gannet.PeerError)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "ps-0").write_text("a file, not a folder")
    for folder in (tmp_path, tmp_path / "ps-0"):
        with pytest.raises(gannet.InputError, match="data_dir .*ps-0.* is a file; the path of a folder is wanted"):
            gannet.LocalCluster(servers=1, data_dir=folder)
    with pytest.raises(TypeError, match="data_dir is a int"):
        gannet.LocalCluster(servers=1, data_dir=7)  # type: ignore[arg-type]
    with gannet.LocalCluster(servers=1, data_dir=tmp_path / "a") as cluster:
        # The folder is in use.
        with pytest.raises(gannet.MachineError, match=r"server 0 at .* ended with exit code .* before it listened: .+"):
            gannet.LocalCluster(servers=1, data_dir=tmp_path / "a")
        with gannet.connect(cluster.servers):
            pass


@pytest.mark.parametrize("arguments", [{"servers": 0}, {"workers": 0}, {"servers": True}, {"workers": 1.5}])
def test_wrong_numbers(arguments: dict[str, Any]) -> None:
    with pytest.raises(gannet.InputError, match="a whole number of 1 or more is wanted"):
        gannet.LocalCluster(**arguments)


def test_a_closed_cluster() -> None:
    cluster = gannet.LocalCluster(servers=1)
    cluster.close()
    cluster.close()
    assert not cluster.status()["servers"][0]["running"]
    assert cluster.status()["servers"][0]["exit_code"] == 0
    with pytest.raises(gannet.InputError, match="closed"):
        cluster.run(lambda rank, client: None)


def test_run_returns_by_rank_and_raises_the_first_failure(cluster: gannet.LocalCluster) -> None:
    def work(rank: int, client: gannet.Client) -> tuple[int, int]:
        table = client.table("run", 1, **COUNTERS)
        for _ in range(100):
            table.push([1], ONE)
        return rank, threading.get_ident()

    (first, one), (second, other) = cluster.run(work)
    assert (first, second) == (0, 1) and one != other
    with gannet.connect(cluster.servers) as client:
        assert client.table("run", 1, **COUNTERS).pull([1])[0, 0] == 200

    def fail(rank: int, client: gannet.Client) -> None:
        raise KeyError(rank)

    with pytest.raises(KeyError, match="0"):
        cluster.run(fail)


def test_a_synchronous_step_is_the_mean_of_the_workers(cluster: gannet.LocalCluster) -> None:
    steps = 20

    def work(rank: int, client: gannet.Client) -> list[float]:
        table = client.table("bsp", 1, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero())
        assert client.join(rank, 2, "bsp") == 0
        seen = []
        for step in range(steps):
            seen.append(float(table.pull([5])[0, 0]))
            table.push([5], np.full((1, 1), 1.0 + 2 * rank, np.float32))
            with pytest.raises(gannet.InputError, match="tick"):
                client.flush()
            assert client.tick() == step + 1
        seen.append(float(table.pull([5])[0, 0]))
        client.leave()
        return seen

    want = [-2.0 * step for step in range(steps + 1)]
    assert cluster.run(work) == [want, want]


def test_steps_are_added_with_merge_sum(cluster: gannet.LocalCluster) -> None:
    def work(rank: int, client: gannet.Client) -> float:
        table = client.table("bsp-sum", 1, **COUNTERS)
        other = client.table("bsp-sum-2", 1, **COUNTERS)
        client.join(rank, 2, merge="sum")
        for _ in range(10):
            table.push([5], ONE)
            client.tick()
        return float(table.pull([5])[0, 0] + other.pull([5])[0, 0])

    assert cluster.run(work) == [20.0, 20.0]


def test_a_pull_misses_at_most_the_bound(cluster: gannet.LocalCluster) -> None:
    steps, bound = 30, 2

    def work(rank: int, client: gannet.Client) -> bool:
        table = client.table("ssp", 2, **COUNTERS)
        client.join(rank, 2, f"ssp:{bound}")
        fine = True
        for step in range(steps):
            counts = table.pull([5])[0]
            fine &= counts[rank] == step and counts[1 - rank] >= step - bound
            table.push([5], np.eye(2, dtype=np.float32)[[rank]])
            client.tick()
        client.leave()
        return bool(fine)

    assert cluster.run(work) == [True, True]


def test_a_worker_that_fails_does_not_hold_up_the_others(cluster: gannet.LocalCluster) -> None:
    def work(rank: int, client: gannet.Client) -> int:
        table = client.table("fails", 1, **COUNTERS)
        client.join(rank, 2)
        for step in range(10):
            table.push([5], ONE)
            client.tick()
            table.pull([5])
            if rank == 0 and step == 3:
                raise ValueError("a failure of worker 0")
        return 1

    with pytest.raises(ValueError, match="a failure of worker 0"):
        cluster.run(work)


@pytest.mark.parametrize("format", ["npz", "safetensors"])
def test_an_export_is_read_back(cluster: gannet.LocalCluster, tmp_path: Path, format: str) -> None:
    with gannet.connect(cluster.servers) as client:
        table = client.table(f"export-{format}", 3, optimizer=gannet.Adagrad())
        keys = np.array([3, 2**63, 17], np.uint64)
        table.push(keys, np.arange(9, dtype=np.float32).reshape(3, 3))
        path = tmp_path / f"rows.{format}"
        assert table.export(path, format=format) == 3
        assert table.export(path, format=format) == 3
        read = np.load(path) if format == "npz" else safetensors.numpy.load_file(path)
        assert sorted(read.keys()) == ["keys", "values"]
        assert read["keys"].dtype == np.uint64 and read["values"].dtype == np.float32
        assert sorted(read["keys"].tolist()) == sorted(keys.tolist())
        np.testing.assert_array_equal(read["values"], table.pull(read["keys"]))
        empty = client.table(f"empty-{format}", 3)
        assert empty.export(path, format=format) == 0
        read = np.load(path) if format == "npz" else safetensors.numpy.load_file(path)
        assert read["values"].shape == (0, 3)
    assert [path.name for path in tmp_path.iterdir()] == [f"rows.{format}"]


def test_a_save_leaves_the_files_of_the_user(cluster: gannet.LocalCluster, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    names = ["rows-january.csv", "rows-000001-0000", "notes.txt", "previous/thesis.txt", "rows-000005-0001", "LOCK"]
    files: dict[Path, str] = {}
    with gannet.connect(cluster.servers) as client:
        table = client.table("kept", 1, **COUNTERS)
        for round in range(12):
            name = str(random.choice(names))
            for path in [tmp_path / "kept" / name, tmp_path / name]:
                path.parent.mkdir(exist_ok=True, parents=True)
                if not path.exists():
                    path.write_text(f"the user's {name} of round {round}")
                    files[path] = path.read_text()
            table.push([round], ONE)
            assert client.save(tmp_path) == {"kept": round + 1}
            for path, text in files.items():
                assert path.read_text() == text, path


@pytest.mark.parametrize("format", ["npz", "safetensors"])
def test_an_export_replaced_a_pipe_and_a_link(cluster: gannet.LocalCluster, tmp_path: Path, format: str) -> None:
    with gannet.connect(cluster.servers) as client:
        table = client.table(f"special-{format}", 1, **COUNTERS)
        table.push([1, 2, 3], np.ones((3, 1), np.float32))
        plain, pipe, link, behind = (tmp_path / name for name in ["plain", "pipe", "link", "behind"])
        table.export(plain, format=format)
        os.mkfifo(pipe)
        read: list[bytes] = []
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
        reader.start()
        table.export(pipe, format=format)
        reader.join(60)
        assert pipe.is_fifo() and read == [plain.read_bytes()]
        behind.write_text("old")
        link.symlink_to(behind)
        table.export(link, format=format)
        assert link.is_symlink() and behind.read_bytes() == plain.read_bytes()
        # A file of the user stays, whatever its name.
        own = tmp_path / f"plain.{os.getpid()}.new"
        own.write_text("of the user")
        with pytest.raises(FileExistsError):
            table.export(plain, format=format)
        assert own.read_text() == "of the user"


def test_a_save_keeps_the_optimizer_state(tmp_path: Path) -> None:
    grads = np.ones((500, 2), np.float32)
    keys = np.arange(500)

    def tables(client: gannet.Client) -> tuple[gannet.Table, gannet.Table]:
        return client.table("a", 2, optimizer=gannet.Adam(lr=0.1)), client.table("b", 2, optimizer=gannet.Ftrl())

    with gannet.LocalCluster(servers=2) as cluster, gannet.connect(cluster.servers) as client:
        for table in tables(client):
            table.push(keys, grads)
        assert client.save(tmp_path) == {"a": 500, "b": 500}
        for table in tables(client):
            table.push(keys, grads)
        want = [table.pull(keys) for table in tables(client)]
    # Another number of servers.
    with gannet.LocalCluster(servers=1) as cluster, gannet.connect(cluster.servers) as client:
        both = tables(client)
        assert client.load(tmp_path) == {"a": 500, "b": 500}
        for table, rows in zip(both, want):
            table.push(keys, grads)
            np.testing.assert_array_equal(table.pull(keys), rows)
        client.table("c", 1)
        with pytest.raises(gannet.GannetError) as caught:
            client.load(tmp_path)
        assert str(tmp_path / "c") in str(caught.value)
        shutil.copytree(tmp_path / "b", tmp_path / "c")
        with pytest.raises(gannet.InputError, match="its rows are .* but the rows of table"):
            client.load(tmp_path)


def test_a_worker_with_the_rank_of_another_ends_that_one(cluster: gannet.LocalCluster) -> None:
    with gannet.connect(cluster.servers) as unnamed:
        older = gannet.connect(cluster.servers, rank=7)
        older.table("ranks", 1, **COUNTERS).push([1], ONE)
        older.flush()
        with gannet.connect(cluster.servers, rank=7) as newer:
            table = newer.table("ranks", 1, **COUNTERS)
            table.push([1], ONE)
            newer.flush()
            with pytest.raises(gannet.PeerError, match="taken its place"):
                older.table("ranks", 1, **COUNTERS).push([1], ONE)
                older.flush()
            # Clients without a rank do not disturb each other.
            unnamed.table("ranks", 1, **COUNTERS).push([1], ONE)
            unnamed.flush()
            assert table.pull([1])[0, 0] == 3


def test_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    with gannet.LocalCluster(servers=1) as cluster:
        with pytest.raises(gannet.InputError, match="chmod|others|owner"):
            token.chmod(0o644)
            gannet.connect(cluster.servers, token_file=token)
        token.chmod(0o600)
        # The server has no token, so it cannot prove that it is the one.
        with pytest.raises(gannet.PeerError, match="token"):
            gannet.connect(cluster.servers, token_file=token, timeout=5)
