"""Files of a table's rows: two arrays, `keys` (uint64, n) and `values` (float32, n x dim), as the command
`gannet checkpoint export` writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO, Union

import numpy as np

from ._arrays import Keys, Rows
from ._errors import InputError

PathLike = Union[str, "os.PathLike[str]"]


def write(path: PathLike, format: str, keys: Keys, values: Rows) -> None:
    """Writes the file. It replaces an older one as a whole, when it is complete."""
    if format not in ("npz", "safetensors"):
        raise InputError(f"format is {format!r}; 'npz' or 'safetensors' is wanted")
    target = Path(path)
    new = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        with open(new, "wb") as file:
            if format == "npz":
                np.savez(file, keys=keys, values=values)
            else:
                _write_safetensors(file, keys, values)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


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
