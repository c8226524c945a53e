"""The exceptions of this package. Each has the exit code that the command `gannet` ends with for the same error."""

from __future__ import annotations

from typing import ClassVar, Optional


class GannetError(Exception):
    """The base of all errors of Gannet.

    Attributes:
        exit_code: What the command ends with for such an error: 1 machine, 2 input, 3 peer.
        peer: The address and thread of the server that the error is about, such as `"127.0.0.1:7700#0"`. `None` if it
            is about none, or not known.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", *, peer: Optional[str] = None) -> None:
        super().__init__(message)
        self.peer = peer


class MachineError(GannetError):
    """An error of this machine: disk, memory, threads, or a process that cannot be started."""

    exit_code = 1


class InputError(GannetError, ValueError):
    """A bad argument, or input that cannot be used. It is also a `ValueError`."""

    exit_code = 2


class ForkError(InputError):
    """The process was forked after it had connected. Connect in the new process, or start processes by spawn."""


class PeerError(GannetError):
    """A server could not be reached, stalled, or refused."""

    exit_code = 3


class RowsGoneError(PeerError):
    """A server was started again without rows that it had before. No worker of the job can go on."""
