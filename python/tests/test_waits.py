"""Ctrl-C, forks, servers that stall, and what is left when a process dies."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from processes import line_of, run_python, stop

import gannet

ADD = "optimizer=gannet.Add(), init=gannet.Zero()"

# A process with a cluster of one server and a table, whose server is stopped.
STOPPED = f"""
import os, signal, sys, threading, time
import numpy as np
import gannet
# A process that was started in the background may ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
cluster = gannet.LocalCluster(servers=1)
client = gannet.connect(cluster.servers, timeout=60, transport={{transport!r}})
table = client.table("stopped", 4, {ADD})
table.push([1], np.ones((1, 4), np.float32))
client.flush()
server = cluster.status()["servers"][0]["pid"]
sys.path.insert(0, {str(Path(__file__).parent)!r})
from processes import stop
stop(server)
print(server, flush=True)
"""

WAITS = {
    "pull": "table.pull(np.arange(100_000))",
    "result": "table.begin_pull(np.arange(100_000)).result()",
    "flush": "table.push([1], np.ones((1, 4), np.float32)); client.flush()",
    "push": "[table.push([1], np.ones((1, 4), np.float32)) for _ in range(10)]",
    "stats": "table.stats()",
    "items": "table.items()",
    "save": "client.save('saved')",
    "table": "client.table('other', 1)",
    "connect": "gannet.connect(cluster.servers, timeout=60)",
    "close": "table.push([1], np.ones((1, 4), np.float32)); client.close()",
    "run": "cluster.run(lambda rank, client: client.table('other', 1))",
}


@pytest.mark.parametrize("wait, transport", [*((wait, "shm") for wait in WAITS), ("pull", "tcp"), ("flush", "tcp")])
def test_ctrl_c_ends_a_wait_and_then_the_process(tmp_path: Path, wait: str, transport: str) -> None:
    code = STOPPED.format(transport=transport) + f"""
try:
    print("waits", flush=True)
    {WAITS[wait]}
    print("no wait", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = run_python(tmp_path, code)
    server = int(line_of(process))
    try:
        assert line_of(process) == "waits"
        time.sleep(0.7)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert line_of(process) == "interrupted"
        # Long before the time limit of the wait.
        assert time.monotonic() - begin < 20
        # The process ends soon, also with pushes on their way and a server that does not stop.
        process.wait(timeout=20)
    finally:
        process.kill()
        process.communicate()
        end(server)


def end(pid: int) -> None:
    """A server must be gone. It fails the test if it is not, and does not leave it there."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"server {pid} has outlived its cluster")


@pytest.mark.parametrize("stopped", [False, True])
def test_no_server_outlives_a_killed_process(tmp_path: Path, stopped: bool) -> None:
    process = run_python(
        tmp_path,
        """
        import threading, time
        import gannet
        made = []
        # The thread that makes the cluster ends before the process.
        thread = threading.Thread(target=lambda: made.append(gannet.LocalCluster(servers=2)))
        thread.start()
        thread.join()
        time.sleep(0.3)
        print(*[server["pid"] for server in made[0].status()["servers"]], flush=True)
        time.sleep(60)
        """,
    )
    servers = [int(pid) for pid in line_of(process).split()]
    for pid in servers:
        os.kill(pid, 0)
        if stopped:
            stop(pid)
    process.kill()
    process.communicate()
    for pid in servers:
        end(pid)


def test_a_cluster_that_nobody_closes_ends_with_the_process(tmp_path: Path) -> None:
    process = run_python(
        tmp_path,
        f"""
        import numpy as np
        import gannet
        cluster = gannet.LocalCluster(servers=2, data_dir={str(tmp_path / "rows")!r})
        client = gannet.connect(cluster.servers)
        table = client.table("last", 1, {ADD})
        for _ in range(100):
            table.push(np.arange(10_000), np.ones((10_000, 1), np.float32))
        print(*[server["pid"] for server in cluster.status()["servers"]], flush=True)
        """,
    )
    servers = [int(pid) for pid in line_of(process).split()]
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors == ""
    for pid in servers:
        end(pid)
    # The pushes that were on their way have arrived.
    with gannet.LocalCluster(servers=2, data_dir=tmp_path / "rows") as cluster:
        with gannet.connect(cluster.servers) as client:
            table = client.table("last", 1, optimizer=gannet.Add(), init=gannet.Zero())
            assert (table.pull(np.arange(10_000)) == 100).all()


def test_a_client_that_was_forgotten_sends_its_pushes(tmp_path: Path) -> None:
    process = run_python(
        tmp_path,
        f"""
        import numpy as np
        import gannet
        with gannet.LocalCluster(servers=1) as cluster:
            def forget():
                table = gannet.connect(cluster.servers).table("forgotten", 1, {ADD})
                for _ in range(20):
                    table.push(np.arange(10_000), np.ones((10_000, 1), np.float32))
            forget()
            with gannet.connect(cluster.servers) as client:
                table = client.table("forgotten", 1, {ADD})
                while not (table.pull(np.arange(10_000)) == 20).all():
                    pass
        """,
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors == ""


FORKED = f"""
import os, sys
import numpy as np
import gannet
cluster = gannet.LocalCluster(servers=1)
client = gannet.connect(cluster.servers)
table = client.table("forked", 1, {ADD})
pull = table.begin_pull([1])
table.push([1], np.ones((1, 1), np.float32))
child = os.fork()
if child == 0:
    for call in (
        lambda: table.pull([1]),
        lambda: table.push([1], np.ones((1, 1), np.float32)),
        lambda: table.begin_pull([1]),
        lambda: pull.result(),
        lambda: client.flush(),
        lambda: client.table("other", 1),
        lambda: table.stats(),
    ):
        try:
            call()
        except gannet.ForkError as error:
            assert "spawn" in str(error) and "gannet.connect" in str(error), error
            assert error.exit_code == 2
        else:
            sys.exit("a call in a fork was not refused")
    # A connection of its own works.
    with gannet.connect(cluster.servers) as own:
        own.table("forked", 1, {ADD}).push([1], np.ones((1, 1), np.float32))
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert table.pull([1])[0, 0] == 2
assert pull.result()[0, 0] == 0
client.close()
print("done", flush=True)
"""


def test_a_fork_is_refused_and_hurts_nobody(tmp_path: Path) -> None:
    process = run_python(tmp_path, FORKED)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output == "done\n"
    assert errors == "" or "DeprecationWarning" in errors and sys.version_info >= (3, 12)


FORKED_WHILE_ARRAYS_END = f"""
import os, signal, sys, threading
import numpy as np
import gannet
cluster = gannet.LocalCluster(servers=1)
client = gannet.connect(cluster.servers, transport="shm")
table = client.table("forked", 1, {ADD})
keyset, ends, pushes = table.keyset([1]), threading.Event(), 0
def push():
    global pushes
    while not ends.is_set():
        table.push(keyset, np.ones((1, 1), np.float32), copy=False)
        pushes += 1
thread = threading.Thread(target=push)
thread.start()
for _ in range(150):
    child = os.fork()
    if child == 0:
        # A lock that the client's thread had held would stop this process.
        signal.alarm(20)
        try:
            table.pull([1])
        except gannet.ForkError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
ends.set()
thread.join()
assert table.pull([1])[0, 0] == pushes
client.close()
print("done", flush=True)
"""


def test_a_fork_while_lent_arrays_are_given_back(tmp_path: Path) -> None:
    process = run_python(tmp_path, FORKED_WHILE_ARRAYS_END)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output == "done\n"


def test_a_server_that_stalls_is_named_after_the_timeout() -> None:
    with gannet.LocalCluster(servers=1) as cluster:
        client = gannet.connect(cluster.servers, timeout=1.0)
        table = client.table("stalls", 1, optimizer=gannet.Add())
        stop(cluster.status()["servers"][0]["pid"])
        begin = time.monotonic()
        with pytest.raises(gannet.PeerError, match="has not answered for .* s .timeout=.") as caught:
            table.pull(np.arange(10_000))
        assert 0.9 < time.monotonic() - begin < 10
        assert caught.value.exit_code == 3
        assert caught.value.peer is not None and caught.value.peer.startswith(cluster.servers[0])


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(gannet.PeerError, match="127.0.0.1:1") as caught:
        gannet.connect("127.0.0.1:1", timeout=0.3)
    assert caught.value.exit_code == 3 and caught.value.peer is not None


def test_other_threads_run_while_one_waits() -> None:
    with gannet.LocalCluster(servers=1) as cluster, gannet.connect(cluster.servers, timeout=3) as client:
        table = client.table("waits", 1, optimizer=gannet.Add())
        server = cluster.status()["servers"][0]["pid"]
        stop(server)
        pull = table.begin_pull(np.arange(10))
        import threading

        counted = [0]
        ends = threading.Event()

        def count() -> None:
            while not ends.is_set():
                counted[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        threading.Timer(0.5, os.kill, (server, signal.SIGCONT)).start()
        before = counted[0]
        pull.result()
        after = counted[0]
        ends.set()
        thread.join()
        assert after - before > 1000
