"""Finds the command `gannet`, which is part of the wheel."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Iterator

from ._errors import MachineError


def _places() -> Iterator[Path]:
    try:
        files = importlib.metadata.files("gannet") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "gannet" and file.parent.name in ("bin", "scripts", "Scripts"):
            yield Path(str(file.locate()))
    yield Path(sysconfig.get_path("scripts")) / "gannet"


def command() -> str:
    """The path of the command: `GANNET_COMMAND` if it is set, else that of the wheel, else the first one on PATH.

    Raises:
        MachineError: There is none.
    """
    named = os.environ.get("GANNET_COMMAND")
    if named:
        return named
    for place in _places():
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    found = shutil.which("gannet")
    if found is None:
        raise MachineError(
            "the command gannet is not there: install gannet from its wheel, or set GANNET_COMMAND to its path"
        )
    return found
