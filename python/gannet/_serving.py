"""Tables of estimators on servers: their names, and their end.

An estimator of `gannet.sklearn` draws a new name for each table when it begins afresh. So it never goes on from rows
that somebody else has left. It drops its tables when it begins again, when it is forgotten, and when the process ends.
"""

from __future__ import annotations

import inspect
import os
import secrets
import socket
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from . import _native
from ._client import connecting
from ._cluster import LocalCluster
from ._errors import GannetError, InputError

# How long the end of tables waits for a server that is away.
_SECONDS_TO_DROP = 5.0
_ARGUMENTS = inspect.signature(connecting).parameters


def asked_of(servers: Any) -> Optional[_native.Connecting]:
    """The parameter `servers` of an estimator, as the native module takes it. `None`: this process.

    Raises:
        InputError: It is none of those that an estimator accepts.
    """
    if servers is None:
        return None
    if isinstance(servers, LocalCluster):
        return connecting(servers.servers)
    if isinstance(servers, Mapping):
        arguments = dict(servers)
        if "rank" in arguments:
            raise InputError("servers has a rank, but each training is a worker of its own: leave the rank out")
        unknown = [name for name in arguments if name not in _ARGUMENTS]
        if unknown or "servers" not in arguments:
            what = f"has {unknown[0]!r}, which gannet.connect does not have" if unknown else "has no key 'servers'"
            raise InputError(f"servers {what}; a dict of the arguments of gannet.connect is wanted")
        if isinstance(arguments["servers"], LocalCluster):
            arguments["servers"] = arguments["servers"].servers
        try:
            return connecting(**arguments)
        except TypeError as error:
            raise InputError(f"servers: {error}") from error
    if isinstance(servers, (str, Iterable)):
        return connecting(servers)
    raise InputError(
        f"servers is a {type(servers).__name__}; 'HOST:PORT,...', a list of them, a gannet.LocalCluster, a dict of the "
        "arguments of gannet.connect, or None is wanted"
    )


def plain(servers: Any) -> Any:
    """The parameter `servers`, as a pickle may hold it."""
    if isinstance(servers, Mapping):
        return {name: plain(value) for name, value in servers.items()}
    return servers.servers if isinstance(servers, LocalCluster) else servers


class ServedTables:
    """The tables of an estimator, the same for each of its problems, until they are dropped."""

    def __init__(self, asked: _native.Connecting, names: list[str], tables: list[str]) -> None:
        self.asked = asked
        self.names = names
        self._tables = tables
        self._pid = os.getpid()
        weakref.finalize(self, _drop_behind, self._pid, asked, self.names, tables).atexit = False
        _served.add(self)

    @property
    def tables(self) -> list[str]:
        """The names at the servers."""
        return _full(self.names, self._tables)

    def drop(self) -> None:
        """Drops the tables. It warns if a server is away: then they stay there."""
        _served.discard(self)
        names = list(self.names)
        # What runs when this is forgotten has the same list.
        self.names.clear()
        if self._pid == os.getpid():
            _drop(self.asked, names, self._tables)


_served: weakref.WeakSet[ServedTables] = weakref.WeakSet()
_dropping: set[threading.Thread] = set()


def draw_names(count: int) -> list[str]:
    """New names, one for each problem of an estimator."""
    drawn = secrets.token_hex(6)
    return [f"sk-{drawn}-{problem}" for problem in range(count)]


def _full(names: list[str], tables: list[str]) -> list[str]:
    return [f"{name}.{table}" for name in names for table in tables]


def _drop(asked: _native.Connecting, names: list[str], tables: list[str]) -> None:
    patient: _native.Connecting = {**asked, "timeout": min(asked["timeout"], _SECONDS_TO_DROP)}
    try:
        for server in asked["servers"]:
            _refuse_if_gone(server)
        for name in names:
            _native.drop_tables(patient, name, tables)
    except (GannetError, ConnectionError) as error:
        left = ", ".join(_full(names, tables))
        warnings.warn(f"tables of an estimator may be left on the servers ({left}): {error}", ResourceWarning)


def _refuse_if_gone(server: str) -> None:
    """Fails if nothing listens at this address. So nobody waits for servers that have ended before the estimator."""
    host, port = server.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_DROP).close()
    except ConnectionRefusedError as error:
        raise ConnectionError(f"{server} does not listen") from error
    except OSError:
        # The worker says what it is.
        pass


def _drop_behind(pid: int, asked: _native.Connecting, names: list[str], tables: list[str]) -> None:
    """Drops the tables of an estimator that was forgotten. The collector of garbage must not wait for servers."""
    if pid != os.getpid() or not names:
        return
    thread = threading.Thread(target=_drop, args=(asked, list(names), tables), name="gannet-drop", daemon=True)
    _dropping.difference_update([ended for ended in list(_dropping) if not ended.is_alive()])
    _dropping.add(thread)
    thread.start()


def drop_all() -> None:
    """Drops the tables of all estimators, when the interpreter ends."""
    for served in list(_served):
        served.drop()
    for thread in list(_dropping):
        thread.join(_SECONDS_TO_DROP)
