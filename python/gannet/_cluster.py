"""A cluster on this machine: server processes, and workers that are threads of this process."""

from __future__ import annotations

import collections
import os
import queue
import signal
import socket
import subprocess
import threading
import weakref
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Callable, Optional, TypeVar

from ._arguments import path, whole
from ._client import Client, connect
from ._command import command
from ._errors import GannetError, InputError, MachineError
from ._export import PathLike

T = TypeVar("T")

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_LINES_KEPT = 100

_clusters: weakref.WeakSet[LocalCluster] = weakref.WeakSet()


class LocalCluster:
    """Servers of a job on this machine, for tests, notebooks and small trainings.

    Each server is a process `gannet train --job-name=ps` with a free port on loopback. It ends when this process ends,
    also if this process is killed with SIGKILL.

        with gannet.LocalCluster(servers=2, workers=2) as cluster:
            cluster.run(lambda rank, client: client.table("clicks", 1).stats())

    Args:
        servers: How many servers.
        workers: How many workers `run` starts.
        data_dir: A folder for the servers' rows. A server that was killed finds them again. Without it the rows are in
            the memory of the servers, and die with them. A folder that has rows belongs to the same number of servers.

    Raises:
        InputError: An argument cannot be used.
        MachineError: A server did not start. The message has what it printed.
    """

    def __init__(self, servers: int = 2, workers: int = 2, data_dir: Optional[PathLike] = None) -> None:
        servers, workers = whole("servers", servers, 1, 2**32 - 1), whole("workers", workers, 1, 2**32 - 1)
        folders = _folders(data_dir, servers)
        self._pid = os.getpid()
        self._closed = False
        self._workers = workers
        self._data_dir = None if data_dir is None else Path(data_dir).absolute()
        self._claims, self._addresses = _claim_ports(servers)
        self._starter = _Starter()
        cores = len(os.sched_getaffinity(0))
        hosts = ",".join(self._addresses)
        names = ",".join(f"worker-{index}:0" for index in range(workers))
        self._servers = []
        for index in range(servers):
            words = [
                *(command(), "train", "--job-name=ps", f"--task-index={index}"),
                *(f"--ps-hosts={hosts}", f"--worker-hosts={names}", f"--threads={max(1, cores // servers)}"),
            ]
            if folders:
                words.append(f"--data-dir={folders[index]}")
            self._servers.append(_Server(index, self._addresses[index], words))
        _clusters.add(self)
        try:
            for server in self._servers:
                server.start(self._starter)
            for server in self._servers:
                server.wait_until_it_listens()
        except BaseException:
            self.close()
            raise

    @property
    def servers(self) -> list[str]:
        """The address of each server, for `gannet.connect`."""
        return list(self._addresses)

    @property
    def workers(self) -> int:
        """How many workers `run` starts."""
        return self._workers

    def run(self, fn: Callable[[int, Client], T], *, timeout: float = 60.0, transport: str = "auto") -> list[T]:
        """Calls `fn(rank, client)` in a thread for each worker, and returns what the calls return, by rank.

        Each worker has a client of its own, which is closed when its call ends. The workers are threads, so `fn` may be
        any function and may use the variables around it. They share the GIL: waits and numpy run side by side, Python
        code does not. For workers that are processes, start them by spawn, and connect in each of them.

        Args:
            fn: The work of one worker.
            timeout: See `gannet.connect`.
            transport: See `gannet.connect`.

        Raises:
            Exception: What the first worker (by rank) that failed has raised, when all workers have ended. A worker
                that has failed leaves those that keep step, so the others do not wait for it.
        """
        self._check()
        outcomes: list[Future[T]] = [Future() for _ in range(self._workers)]
        clients: list[Client] = []

        def work(rank: int) -> None:
            try:
                with connect(self._addresses, timeout=timeout, transport=transport) as client:
                    clients.append(client)
                    result = fn(rank, client)
                outcomes[rank].set_result(result)
            except BaseException as error:
                outcomes[rank].set_exception(error)

        threads = [
            threading.Thread(target=work, args=(rank,), name=f"gannet-worker-{rank}", daemon=True)
            for rank in range(self._workers)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            # Ctrl-C: the next call of each worker fails.
            for client in list(clients):
                client._close_at_last(0.5)
            raise
        return [outcome.result() for outcome in outcomes]

    def kill_server(self, index: int) -> None:
        """Kills a server with SIGKILL, and waits for its end. It does nothing if the server does not run."""
        self._check()
        self._server(index).kill()

    def start_server(self, index: int) -> None:
        """Starts a server that does not run, at its old address, and waits until it listens.

        With `data_dir` it has its rows again, and the workers go on. Without, its rows are gone: calls of clients that
        had them raise `RowsGoneError`.

        Raises:
            InputError: The server runs.
            MachineError: It did not start. The message has what it printed.
        """
        self._check()
        server = self._server(index)
        if server.is_running():
            raise InputError(f"server {index} runs as process {server.pid}: kill it before you start it again")
        server.start(self._starter)
        server.wait_until_it_listens()

    def status(self) -> dict[str, Any]:
        """The state of the cluster.

        Returns:
            `servers`: for each server its `index`, `address`, `pid`, whether it is `running`, its `exit_code` if it has
            ended (negative: the signal), and how often it was started (`starts`). Also `workers` and `data_dir`.
        """
        return {
            "servers": [server.status() for server in self._servers],
            "workers": self._workers,
            "data_dir": None if self._data_dir is None else str(self._data_dir),
        }

    def close(self) -> None:
        """Stops the servers in an orderly way, and kills those that do not stop within 10 s. It may be called twice."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        for server in self._servers:
            server.ask_to_stop()
        for server in self._servers:
            server.wait_or_kill(_STOP_SECONDS)
        self._starter.end()
        for claim in self._claims:
            claim.close()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else ",".join(self._addresses)
        return f"<gannet.LocalCluster {state}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> LocalCluster:
        # scikit-learn's clone copies the parameters of an estimator. The servers stay the same.
        return self

    def _check(self) -> None:
        if self._closed:
            raise InputError("this cluster is closed: make another LocalCluster")
        if self._pid != os.getpid():
            raise InputError("this cluster belongs to the process that started it, and this is a fork of it")

    def _server(self, index: int) -> _Server:
        index = whole("server", index, 0, 2**32 - 1)
        if index >= len(self._servers):
            raise InputError(f"server {index}: there are {len(self._servers)}, counted from 0")
        return self._servers[index]


class _Server:
    """One server process. Its standard input is a pipe of this process: a line asks it to stop, and the end of the pipe
    says that this process has died (cli/src/launched.rs)."""

    def __init__(self, index: int, address: str, words: list[str]) -> None:
        self.index, self.address, self.words = index, address, words
        self.process: Optional[subprocess.Popen[str]] = None
        self.starts = 0
        self.lines: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self.listens = threading.Event()

    @property
    def pid(self) -> Optional[int]:
        return self.process.pid if self.process else None

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, starter: _Starter) -> None:
        self.listens = threading.Event()
        self.lines.clear()
        self.process = starter.start(self.words)
        self.starts += 1
        output = self.process.stdout
        assert output is not None
        threading.Thread(
            target=self._read, args=(output, self.listens), name=f"gannet-ps-{self.index}", daemon=True
        ).start()

    def _read(self, output: IO[str], listens: threading.Event) -> None:
        for line in output:
            self.lines.append(line)
            if " listening on " in line:
                listens.set()
        # It has ended. Who waits for it looks why.
        listens.set()

    def wait_until_it_listens(self) -> None:
        if not self.listens.wait(_START_SECONDS):
            self.kill()
            raise MachineError(f"server {self.index} at {self.address} did not listen within {_START_SECONDS:.0f} s")
        if any(" listening on " in line for line in list(self.lines)):
            return
        assert self.process is not None
        code = self.process.wait()
        raise MachineError(
            f"server {self.index} at {self.address} ended with exit code {code} before it listened: "
            + "".join(self.lines).strip()
        )

    def status(self) -> dict[str, Any]:
        running = self.is_running()
        code = self.process.returncode if self.process else None
        return {
            "index": self.index,
            "address": self.address,
            "running": running,
            "pid": self.pid if running else None,
            "exit_code": code,
            "starts": self.starts,
        }

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._close_pipes()

    def ask_to_stop(self) -> None:
        if not self.is_running():
            return
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write("stop\n")
            self.process.stdin.flush()
            # It may have been stopped by SIGSTOP.
            self.process.send_signal(signal.SIGCONT)
        except OSError:
            # It has ended.
            pass

    def wait_or_kill(self, seconds: float) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass


class _Starter:
    """Starts processes on a thread of its own, which lives as long as the cluster. The system kills a server when the
    thread that started it ends, and the thread that makes a cluster may end earlier."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Optional[tuple[list[str], Future[subprocess.Popen[str]]]]]
        self._asked = queue.SimpleQueue()
        threading.Thread(target=self._run, name="gannet-starter", daemon=True).start()

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        started: Future[subprocess.Popen[str]] = Future()
        self._asked.put((words, started))
        try:
            return started.result()
        except OSError as error:
            raise MachineError(f"starting {words[0]}: {error}") from error

    def end(self) -> None:
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            words, started = asked
            try:
                started.set_result(_start(words))
            except BaseException as error:
                started.set_exception(error)


def _folders(data_dir: Optional[PathLike], servers: int) -> list[Path]:
    """Makes the folder of each server, or none without `data_dir`."""
    given = path("data_dir", data_dir)
    if given is None:
        return []
    folders = [Path(given).absolute() / f"ps-{index}" for index in range(servers)]
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"data_dir {given}: {error.filename} is a file; the path of a folder is wanted") from error
    return folders


def _start(words: list[str]) -> subprocess.Popen[str]:
    # In a session of its own, so that Ctrl-C reaches this process alone.
    return subprocess.Popen(
        words,
        env={**os.environ, "GANNET_LAUNCHER": str(os.getpid())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _claim_ports(count: int) -> tuple[list[socket.socket], list[str]]:
    """Free ports on loopback, below those that the system chooses for connections. So no connection takes the port of a
    server that is started again. A socket with a name claims each port, as `gannet launch` does."""
    try:
        first_chosen = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first_chosen = 32_768
    first = 10_000
    claims: list[socket.socket] = []
    addresses: list[str] = []
    total = max(first_chosen - first, 1)
    begin = os.getpid() * 97
    for step in range(total):
        if len(addresses) == count:
            break
        port = first + (begin + step) % total
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0gannet-launch-port-{port}")
            claim.listen()
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        claims.append(claim)
        addresses.append(f"127.0.0.1:{port}")
    if len(addresses) < count:
        for claim in claims:
            claim.close()
        raise MachineError(f"{count} free ports are needed, and this machine has {len(addresses)}")
    # The first address keeps the counter of clients, and all clients must agree on it.
    return claims, sorted(addresses)


def close_all() -> None:
    """Stops the clusters that nobody has closed, when the interpreter ends."""
    for cluster in list(_clusters):
        try:
            cluster.close()
        except (GannetError, OSError):
            pass
