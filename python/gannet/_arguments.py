"""Checks of arguments that are numbers, texts and paths. An error names the argument."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Optional

import numpy as np

from ._errors import InputError
from ._export import PathLike


def whole(name: str, given: Any, least: int, most: int) -> int:
    """A whole number from `least` to `most`: an int, or what stands for one, such as those of numpy."""
    wanted = f"from {least} to {most}" if most < 2**32 - 1 else f"of {least} or more"
    try:
        number = None if isinstance(given, (bool, np.bool_)) else operator.index(given)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise InputError(f"{name} is {given!r}; a whole number {wanted} is wanted")
    return number


def seconds(name: str, given: Any) -> float:
    """A number of seconds above 0."""
    number = real(name, given)
    if not number > 0:
        raise InputError(f"{name} is {given!r}; a number of seconds above 0 is wanted")
    return number


def real(name: str, given: Any) -> float:
    """A finite number: a float, or what stands for one."""
    try:
        number = math.nan if isinstance(given, (str, bytes, bool, np.bool_)) else float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} is {given!r}; a finite number is wanted")
    return number


def text(name: str, given: Any, such_as: str) -> str:
    """A string."""
    if not isinstance(given, str):
        raise TypeError(f"{name} is {given!r}; a string such as {such_as!r} is wanted")
    return given


def choice(name: str, given: Any, names: tuple[str, ...]) -> str:
    """One of some names."""
    if given not in names:
        raise InputError(f"{name} is {given!r}; {' or '.join(map(repr, names))} is wanted")
    return str(given)


def path(name: str, given: Optional[PathLike]) -> Optional[str]:
    """A path, if there is one."""
    if given is None:
        return None
    try:
        return os.fsdecode(given)
    except TypeError:
        raise TypeError(f"{name} is a {type(given).__name__}; the path of a file is wanted") from None
