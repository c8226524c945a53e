"""Clients: connections to the servers of a job."""

from __future__ import annotations

import numbers
import os
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Optional, Union

from . import _native
from ._arguments import choice, path, real, seconds, text, whole
from ._errors import InputError
from ._export import PathLike
from ._optim import Adagrad, Init, Normal, Optimizer
from ._table import Table

_SECONDS_AFTER_CTRL_C = 1.0
_SECONDS_FOR_FORGOTTEN = 600.0
# The most workers that keep step.
_WORKERS_MAX = 4096

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def connect(
    servers: Union[str, Iterable[str]],
    *,
    token_file: Optional[PathLike] = None,
    tls_ca: Optional[PathLike] = None,
    coordinator: Optional[str] = None,
    run: Optional[str] = None,
    transport: str = "auto",
    timeout: float = 60.0,
    rank: Optional[int] = None,
    tls_name: Optional[str] = None,
    tls_cert: Optional[PathLike] = None,
    tls_key: Optional[PathLike] = None,
    insecure: bool = False,
    not_finite: str = "warn",
) -> Client:
    """Connects to the servers of a job.

    Args:
        servers: The address of each server, `"HOST:PORT"`, in any order. A string may hold several, with commas.
        token_file: The file with the token that the servers share with their workers.
        tls_ca: Speak TLS, and trust servers whose certificate an authority in this file (PEM) has signed.
        coordinator: The `--coordinator` of the servers: `"HOST:PORT"` of a `gannet scheduler`, or
            `"etcd://HOST:PORT,..."`. The client asks it where a place is when its server has died, and goes on there.
            `servers` are then the `--ps-hosts` of the job, also when other servers have their places.
        run: The `--run` of the servers, under which the coordinator knows them. Default: `"default"`, as theirs.
        transport: `"auto"` (shared memory on this host, else TCP), `"tcp"` or `"shm"`.
        timeout: Seconds that a server may be away, or leave a request unanswered, before a call fails.
        rank: This worker's number, from 0, for a worker that keeps its number when it is started again. No other
            worker of these servers may have it: a new worker ends an older one with the same number. Without it, each
            client gets a number that no other has.
        tls_name: The name in the servers' certificates, if it is not the host in `servers`.
        tls_cert: The certificate of this worker (PEM), for servers that ask for one.
        tls_key: Its private key (PEM).
        insecure: Allow servers on other machines without a token or without TLS.
        not_finite: What happens when the servers have dropped rows of pushes, because a value was NaN, infinite or
            beyond the table's row type. `"warn"`: the first call that finds such rows warns. `"raise"`: each call that
            finds new ones raises `InputError`. `"count"`: they are counted, in `Table.stats` and `Client.counters`, as
            always.

    Returns:
        A connected client. Close it, or use it in a `with` statement: that waits for all pushes.

    Raises:
        InputError: An argument or a file cannot be used.
        PeerError: A server could not be reached for `timeout` seconds, or it refused.
    """
    asked = connecting(
        servers,
        coordinator=coordinator,
        run=run,
        rank=rank,
        timeout=timeout,
        transport=transport,
        token_file=token_file,
        tls_ca=tls_ca,
        tls_name=tls_name,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
    )
    about_rows = choice("not_finite", not_finite, ("warn", "raise", "count"))
    return Client(_native.Client(asked, about_rows), asked["servers"])


def connecting(
    servers: Union[str, Iterable[str]],
    *,
    token_file: Optional[PathLike] = None,
    tls_ca: Optional[PathLike] = None,
    coordinator: Optional[str] = None,
    run: Optional[str] = None,
    transport: str = "auto",
    timeout: float = 60.0,
    rank: Optional[int] = None,
    tls_name: Optional[str] = None,
    tls_cert: Optional[PathLike] = None,
    tls_key: Optional[PathLike] = None,
    insecure: bool = False,
) -> _native.Connecting:
    """The arguments of `connect`, as the native module takes them."""
    if not isinstance(servers, Iterable):
        raise TypeError(f"servers is a {type(servers).__name__}; 'HOST:PORT,...' or a list of such strings is wanted")
    hosts = servers.split(",") if isinstance(servers, str) else list(servers)
    for host in hosts:
        if not isinstance(host, str):
            raise TypeError(f"servers has a {type(host).__name__}; strings 'HOST:PORT' are wanted")
    return {
        "servers": [host.strip() for host in hosts],
        "coordinator": None if coordinator is None else text("coordinator", coordinator, "127.0.0.1:7700"),
        "run": None if run is None else text("run", run, "default"),
        "rank": None if rank is None else whole("rank", rank, 0, 2**32 - 1),
        "timeout": real("timeout", timeout),
        "transport": text("transport", transport, "auto"),
        "token_file": path("token_file", token_file),
        "tls_ca": path("tls_ca", tls_ca),
        "tls_name": None if tls_name is None else text("tls_name", tls_name, "ps.example.org"),
        "tls_cert": path("tls_cert", tls_cert),
        "tls_key": path("tls_key", tls_key),
        "insecure": bool(insecure),
    }


class Client:
    """A connection to the servers of a job. `gannet.connect` makes one.

    Several threads may use one client. The client has a thread of its own that does what they ask, one call after
    another. A call that waits for a server lets the calls of other threads wait, too: give each thread a client if that
    matters. A client does not survive a fork: connect in the new process.

    Ctrl-C ends every wait with `KeyboardInterrupt`. What the call has sent stays sent.
    """

    def __init__(self, native: _native.Client, servers: list[str]) -> None:
        self._native = native
        self._pid = os.getpid()
        self._tables: dict[str, Table] = {}
        self.servers = tuple(servers)
        """The addresses of the servers."""
        _clients.add(self)

    @property
    def transport(self) -> str:
        """How the links move bytes: `"shm"`, `"tcp"`, or both with a comma."""
        return self._native.transport

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._native.closed

    @property
    def tables(self) -> dict[str, Table]:
        """The tables that this client has opened, by their names."""
        return dict(self._tables)

    def table(
        self,
        name: str,
        dim: int,
        *,
        optimizer: Optimizer = Adagrad(lr=0.05),
        init: Init = Normal(0, 1e-4),
        shards: int = 64,
        admit: Union[int, float, None] = None,
        seed: int = 0,
        row_type: str = "f32",
        evict_after: Union[int, str, None] = None,
        evict_below: Optional[float] = None,
        capacity: Union[int, str, None] = None,
        evict_floor: Optional[int] = None,
    ) -> Table:
        """Creates a table, or opens it if it exists with the same description.

        Args:
            name: 1 to 64 letters, digits, `_`, `.` or `-`.
            dim: Weights of a row, 1 to 4096.
            optimizer: What the servers do with gradients.
            init: What a key without a row reads as.
            shards: Parts of the table, a power of two up to 4096. It cannot change later. With 64, an existing table of
                at most 64 parts is opened as it is, and a new one gets as many as the servers' threads use.
            admit: Which push of a key makes its row. `None`: the first. A whole number n from 2 to 256: the n-th. A
                number between 0 and 1: each push with this probability. Earlier pushes of the key have no effect.
            seed: Chooses the initial values.
            row_type: How the servers store weights. `"f32"`; or `"f16"` (half precision, up to 65,504) or `"bf16"` (a
                float32 without its lower 16 bits), which take half the bytes. A step is computed in float32 and rounded
                by chance, so that small steps add up. `"f16"` rounds eight times as finely, down to 6e-5. The optimizer's
                state stays float32, and so do pulled rows and gradients. Not for rows of one weight, nor for `Add`, `Ftrl` and
                `GroupFtrl`.
            evict_after: The servers delete the row of a key that was not pushed for so long: a number of seconds, or a
                text such as `"90s"`, `"15m"`, `"12h"` or `"30d"`. The key then reads as its initial values.
            evict_below: The servers delete a row whose weights have a smaller Euclidean norm, once it was not pushed
                for a minute.
            capacity: The servers delete the rows that were pushed least recently while the table has more than so many
                rows, or bytes in a text with a unit such as `"4GiB"`.
            evict_floor: `evict_after` and `evict_below` leave at least so many rows, and half of the table in an hour.
                These four settings are no part of the table. The servers keep the last ones that a client told them. A
                client says them when it first opens the table, and one that says nothing of them changes nothing.

        Raises:
            InputError: The description is not valid, or the table is open with other settings of rows that die.
            PeerError: The table exists with another description, or a server is lost.
        """
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer is {optimizer!r}; one like gannet.Adagrad(lr=0.05) is wanted")
        if not isinstance(init, Init):
            raise TypeError(f"init is {init!r}; one like gannet.Normal(0, 1e-4) is wanted")
        dim, shards = whole("dim", dim, 1, 4096), whole("shards", shards, 1, 4096)
        pushes, probability = _admission(admit)
        described: _native.Description = {
            "name": text("name", name, "clicks"),
            "dim": dim,
            "rule": optimizer._describe(),
            "init": init._describe(),
            "shards": shards,
            "seed": whole("seed", seed, 0, 2**64 - 1),
            "admit_pushes": pushes,
            "admit_probability": probability,
            "row_type": choice("row_type", row_type, ("f32", "bf16", "f16")),
        }
        dying: _native.EvictionTexts = {
            "evict_after": _counted("evict_after", evict_after),
            "evict_below": None if evict_below is None else real("evict_below", evict_below),
            "capacity": _counted("capacity", capacity),
            "evict_floor": None if evict_floor is None else whole("evict_floor", evict_floor, 0, 2**64 - 1),
        }
        table = Table(self, self._native.table(described, dying), name, dim)
        return self._tables.setdefault(name, table)

    def flush(self) -> None:
        """Waits until the servers have acknowledged all pushes of this client.

        Raises:
            PeerError: A push was refused, or a server is lost.
            InputError: A synchronous step has begun: call `tick` first. Or rows of a push were dropped, and the client
                was made with `not_finite="raise"`.
        """
        self._native.flush()

    def counters(self) -> dict[str, int]:
        """What this client has done so far. Among others: `applied`, rows of pushes that were applied; `not_finite`,
        rows that were dropped because a value was NaN, infinite or beyond the row type; `not_admitted`, rows that `admit`
        did not make."""
        return self._native.counters()

    def join(
        self,
        rank: int,
        workers: int,
        sync: str = "bsp",
        *,
        merge: str = "mean",
        worker_timeout: float = 60.0,
    ) -> int:
        """Joins the workers that keep step over all tables that this client has opened so far.

        A worker ends each of its steps with `tick`. What a pull waits for is the same for all workers:
        `"bsp"`: until all earlier steps of all workers are applied. `"ssp:N"`: until no worker is more than N steps
        behind. `"asp"`: nothing.

        Args:
            rank: This worker, from 0.
            workers: How many workers there are.
            sync: `"bsp"`, `"ssp:N"` or `"asp"`.
            merge: With `"bsp"`: whether the pushes of several workers to a key in one step are averaged (`"mean"`) or
                added (`"sum"`).
            worker_timeout: Seconds after which a silent worker is dead, and the others go on without it.

        Returns:
            The step to begin at: that of the slowest worker.

        Raises:
            InputError: An argument cannot be used, or this client has joined before.
            PeerError: The others keep step in another way, or a server is lost.
        """
        if merge not in ("mean", "sum"):
            raise InputError(f"merge is {merge!r}; 'mean' or 'sum' is wanted")
        mode, bound = _sync(sync)
        rank, workers = whole("rank", rank, 0, 2**32 - 1), whole("workers", workers, 1, _WORKERS_MAX)
        if rank >= workers:
            raise InputError(f"worker {rank} of {workers}: rank counts from 0, so it must be below workers")
        patience = seconds("worker_timeout", worker_timeout)
        if not self._tables:
            raise InputError("this client has no table: open the tables first, then join")
        tables = [table._native for table in self._tables.values()]
        return self._native.join(
            tables,
            {
                "rank": rank,
                "workers": workers,
                "mode": mode,
                "bound": bound,
                "mean": merge == "mean",
                "worker_timeout": patience,
            },
        )

    def tick(self) -> int:
        """Ends this worker's step in all tables that it has joined. Returns the number of the next step.

        Raises:
            InputError: This client has not joined.
            PeerError: A push was refused, or a server is lost.
        """
        return self._native.tick()

    def leave(self) -> None:
        """Waits for all pushes, and leaves the workers that keep step. They wait for this one no longer."""
        self._native.leave()

    def save(self, dir: PathLike) -> dict[str, int]:
        """Writes all rows of each open table, with their optimizer state, into the folder `dir/NAME`.

        A table's folder is replaced as a whole, when it is complete. The rows of one table are in this process's memory
        meanwhile.

        Returns:
            The number of rows of each table.

        Raises:
            MachineError: The folder cannot be written.
            PeerError: A server is lost.
        """
        return {name: table._native.save(Path(dir) / name) for name, table in self._tables.items()}

    def load(self, dir: PathLike) -> dict[str, int]:
        """Stores the rows that `save` has written into the open tables. They replace rows of the same keys.

        Returns:
            The number of rows of each table.

        Raises:
            InputError: A folder is missing or damaged, or its rows do not fit the table.
            PeerError: A server is lost.
        """
        return {name: table._native.load(Path(dir) / name) for name, table in self._tables.items()}

    def close(self) -> None:
        """Waits until all pushes are acknowledged, leaves, and closes the connection. It may be called twice.

        Raises:
            PeerError: A push was refused, or a server is lost. The client is closed all the same.
        """
        self._native.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if error is None:
            self.close()
        else:
            # The block's error is the one to show.
            self._close_at_last(_SECONDS_AFTER_CTRL_C if isinstance(error, KeyboardInterrupt) else None)

    def _close_at_last(self, most: Optional[float]) -> None:
        if self._pid != os.getpid():
            return
        try:
            acknowledged = self._native.close(most)
            why = "a server has not answered after Ctrl-C"
        except Exception as error:
            acknowledged, why = False, str(error)
        if not acknowledged:
            names = ",".join(self.servers)
            print(f"gannet: the last pushes to {names} may be lost: {why}", file=sys.stderr)

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.transport
        return f"<gannet.Client of {','.join(self.servers)}, {state}>"


def _admission(admit: Union[int, float, None]) -> tuple[int, float]:
    """Which push makes a row, or 0 and a probability."""
    if admit is None:
        return 1, 0.0
    if isinstance(admit, numbers.Integral) and 2 <= admit <= 256:
        return int(admit), 0.0
    if isinstance(admit, numbers.Real) and 0.0 < admit < 1.0:
        return 0, float(admit)
    raise InputError(
        f"admit is {admit!r}; None, a whole number from 2 to 256, or a number between 0 and 1 is wanted"
    )


def _counted(name: str, given: Union[int, str, None]) -> Optional[str]:
    """A whole number, or a text with a unit, as a flag of the command has it."""
    return given if given is None or isinstance(given, str) else str(whole(name, given, 0, 2**64 - 1))


def _sync(sync: str) -> tuple[str, int]:
    """A mode and its bound."""
    if not isinstance(sync, str):
        raise TypeError(f"sync is {sync!r}; 'bsp', 'ssp:N' (N steps) or 'asp' is wanted")
    if sync in ("asp", "bsp"):
        return sync, 0
    name, _, bound = sync.partition(":")
    if name == "ssp" and bound.isdecimal() and int(bound) < 1 << 32:
        return name, int(bound)
    raise InputError(f"sync is {sync!r}; 'bsp', 'ssp:N' (N steps) or 'asp' is wanted")


def close_all() -> None:
    """Closes the clients that nobody has closed, when the interpreter ends. It waits for their pushes."""
    for client in list(_clients):
        if not client.closed:
            client._close_at_last(_SECONDS_AFTER_CTRL_C if client._native.interrupted else None)
    # Clients that were collected before they were closed.
    _native.wait_for_pushes(_SECONDS_FOR_FORGOTTEN)
