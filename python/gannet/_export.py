"""Files of a table's rows: two arrays, `keys` (uint64, n) and `values` (float32, n x dim), as the command
`gannet checkpoint export` writes them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO, Callable, Union

import numpy as np

from ._arrays import Keys, Rows
from ._errors import InputError

PathLike = Union[str, "os.PathLike[str]"]


def write(path: PathLike, format: str, keys: Keys, values: Rows) -> None:
    """Writes the file. It replaces an older one as a whole, when it is complete. A link stays one: the file behind it
    is replaced. A pipe or a device gets the bytes."""
    if format not in ("npz", "safetensors"):
        raise InputError(f"format is {format!r}; 'npz' or 'safetensors' is wanted")
    replace(path, lambda file: _write_arrays(file, format, keys, values))


def replace(path: PathLike, fill: Callable[[BinaryIO], object]) -> None:
    """Writes what `fill` writes, as `write` says of files, links, pipes and devices."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with tempfile.TemporaryFile() as whole, open(target, "wb") as special:
            fill(whole)
            whole.seek(0)
            shutil.copyfileobj(whole, special)
        return
    new = target.with_name(f"{target.name}.{os.getpid()}.new")
    # A file of the user that has this name stays: this raises FileExistsError.
    with open(new, "xb") as file:
        try:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(new, target)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


def _write_arrays(file: BinaryIO, format: str, keys: Keys, values: Rows) -> None:
    if format == "npz":
        np.savez(file, keys=keys, values=values)
    else:
        _write_safetensors(file, keys, values)


def _write_safetensors(file: BinaryIO, keys: Keys, values: Rows) -> None:
    # The format: the length of a JSON header, the header, and the bytes of the arrays (little-endian).
    split, end = keys.nbytes, keys.nbytes + values.nbytes
    header = json.dumps(
        {
            "keys": {"dtype": "U64", "shape": list(keys.shape), "data_offsets": [0, split]},
            "values": {"dtype": "F32", "shape": list(values.shape), "data_offsets": [split, end]},
        },
        separators=(",", ":"),
    ).encode()
    header += b" " * (-len(header) % 8)
    file.write(len(header).to_bytes(8, "little"))
    file.write(header)
    file.write(np.ascontiguousarray(keys, "<u8").data)
    file.write(np.ascontiguousarray(values, "<f4").data)
