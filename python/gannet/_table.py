"""Tables, and pulls on their way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Optional, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native
from ._arrays import Keys, Rows, as_keys, as_out, as_rows
from ._errors import InputError
from ._export import PathLike, write

if TYPE_CHECKING:
    from ._client import Client


@dataclass(frozen=True)
class TableStats:
    """Sizes of a table over all servers.

    Attributes:
        rows: Rows, which are keys that were pushed to.
        bytes: Bytes that the rows and their index take.
        shards: Shards.
        not_finite: Rows of this client's pushes that the servers dropped, because a value was NaN, infinite or beyond
            the table's row type.
    """

    rows: int
    bytes: int
    shards: int
    not_finite: int = 0


class Table:
    """A table: rows of `dim` float32 weights, each under a 64-bit key. `Client.table` opens one.

    Keys are one-dimensional integer arrays, or what numpy makes one of. A key may repeat. A negative int64 stands for
    the key with the same 64 bits, and is read back as that uint64. Contiguous uint64 and int64 arrays are not copied
    before the call looks at them; other integers are.
    """

    def __init__(self, client: Client, native: _native.Table, name: str, dim: int) -> None:
        self._client = client
        self._native = native
        self.name = name
        """The table's name."""
        self.dim = dim
        """Weights of a row."""

    @property
    def client(self) -> Client:
        """The client that opened the table."""
        return self._client

    def keyset(self, keys: ArrayLike) -> KeySet:
        """Finds each key once. Several calls can then use the keys without looking for repeats again.

        Args:
            keys: Integers (n,).
        """
        return KeySet(self._native.keyset(as_keys(keys)))

    def pull(self, keys: Union[ArrayLike, KeySet], out: Optional[Rows] = None) -> Rows:
        """Reads the row of each key. A key without a row reads as its initial values.

        A pull sees every earlier push of this client.

        Args:
            keys: Integers (n,). Each key is requested once, also if it repeats. Or a `KeySet` of this table: n is then
                the length of its `keys`.
            out: A C-contiguous float32 array (n, dim) to write to. Without it the array that is returned has one of the
                client's buffers as its memory (`flags.owndata` is false). The client uses the buffer again when the
                array is freed. It keeps at most 16 buffers and 256 MiB.

        Returns:
            `out`, or a new float32 array (n, dim).

        Raises:
            TypeError, ValueError: The arrays are of a wrong type or shape.
            InputError: The `KeySet` is of another table.
            PeerError: A server is lost, or refused.
        """
        return self.begin_pull(keys).result(out)

    def begin_pull(self, keys: Union[ArrayLike, KeySet]) -> Pull:
        """Begins a pull, and returns at once. `Pull.result` waits for the rows.

        The rows have every push that this client made before. If a server dies before it has answered, the pull is
        asked again, and may see later pushes in some of its rows, too.

        Args:
            keys: Integers (n,), or a `KeySet` of this table.
        """
        if isinstance(keys, KeySet):
            return Pull(self._native.begin_pull_set(keys._native), len(keys), self.dim)
        wanted = as_keys(keys)
        return Pull(self._native.begin_pull(wanted), len(wanted), self.dim)

    def push(
        self, keys: Union[ArrayLike, KeySet], grads: ArrayLike, reduce: str = "sum", *, copy: bool = True
    ) -> None:
        """Sends a gradient for each key. The servers update the rows, each push exactly once.

        The call returns when the push is on its way, and `grads` may be changed then, unless `copy` is false.
        `Client.flush` and `Client.close` wait until it is applied. A refusal is raised by the next call of the client.
        A row with a value that is NaN, infinite or beyond the table's row type is dropped. `gannet.connect` says what
        the client does then (`not_finite`).

        Args:
            keys: Integers (n,). Or a `KeySet` of this table: n is then the length of its `keys`.
            grads: float32 (n, dim). An array that is not contiguous is copied once more.
            reduce: What happens to the gradients of a key that repeats: `"sum"` or `"mean"`. It is sent once.
            copy: False sends the gradients of a `KeySet` from the memory of `grads`, if that is a numpy array and
                contiguous. The call makes the array read-only, for good. Its memory must not change in any other way
                until `Client.flush` has returned: through another view, `ndarray.resize` without `refcheck`, or the end
                of a shared or mapped file below it. The servers could get old gradients in one part and new ones in
                another. The client holds the array until a later call. All other gradients are copied: those of plain keys, into the order of the shards, and those of
                other objects, such as subclasses of arrays.

        Raises:
            TypeError, ValueError: The arrays are of a wrong type or shape.
            PeerError: A server is lost, or an earlier push was refused.
            InputError: Rows of an earlier push were dropped, and the client was made with `not_finite="raise"`.
        """
        if reduce not in ("sum", "mean"):
            raise InputError(f"reduce is {reduce!r}; 'sum' or 'mean' is wanted")
        if isinstance(keys, KeySet):
            rows = as_rows(grads, len(keys), self.dim)
            # A view of another object, whose memory stays writeable, is copied as well.
            self._native.push_set(keys._native, rows, bool(copy) or rows is not grads)
            return
        wanted = as_keys(keys)
        self._native.push(wanted, as_rows(grads, len(wanted), self.dim), reduce == "mean")

    def assign(self, keys: ArrayLike, rows: ArrayLike) -> None:
        """Stores a row for each key, whatever the optimizer: these weights. The optimizer's state begins anew.

        A stored row replaces an older one of the same key. The call returns when the rows are on their way, as `push`
        does.

        Args:
            keys: Integers (n,), each once.
            rows: float32 (n, dim).

        Raises:
            TypeError, ValueError: The arrays are of a wrong type or shape.
            InputError: A key is there twice, or this client keeps step with others in synchronous steps. A value is not
                finite, or beyond the range of the table's row type.
            PeerError: A server is lost.
        """
        wanted = as_keys(keys)
        self._native.assign(wanted, as_rows(rows, len(wanted), self.dim, "rows"))

    def items(self) -> tuple[Keys, Rows]:
        """Reads all rows of the table.

        Returns:
            `keys`, uint64 (n,), in no particular order, and `rows`, float32 (n, dim). They take 8 + 4 * dim bytes a
            row. Pushes that other clients make meanwhile may be in them or not.

        Raises:
            PeerError: A server is lost.
        """
        return self._native.items()

    def stats(self) -> TableStats:
        """The size of the table over all servers. All pushes of this client are counted."""
        return TableStats(*self._native.stats())

    def export(self, path: PathLike, format: str = "npz") -> int:
        """Writes all rows to a file with two arrays: `keys` (uint64, n) and `values` (float32, n x dim).

        Args:
            path: The file. An older one is replaced as a whole.
            format: `"npz"` or `"safetensors"`.

        Returns:
            The number of rows.
        """
        if format not in ("npz", "safetensors"):
            raise InputError(f"format is {format!r}; 'npz' or 'safetensors' is wanted")
        keys, rows = self.items()
        write(path, format, keys, rows)
        return len(keys)

    def __repr__(self) -> str:
        return f"<gannet.Table {self.name!r}, dim {self.dim}>"


class KeySet:
    """Keys of a table for several calls. `Table.keyset` makes one.

    `rows[keyset.inverse]` are the rows of the keys as they were given, if `rows = table.pull(keyset)`.
    """

    def __init__(self, native: _native.KeySet) -> None:
        self._native = native

    @cached_property
    def keys(self) -> Keys:
        """Each key once, uint64 (m,), in the order of the rows of pulls and pushes."""
        return self._native.keys()

    @cached_property
    def inverse(self) -> NDArray[np.int64]:
        """For each given key its place in `keys`, int64 (n,)."""
        return self._native.inverse()

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return f"<gannet.KeySet of {len(self)} keys>"


class Pull:
    """A pull on its way. `Table.begin_pull` makes one."""

    def __init__(self, native: _native.Pull, count: int, dim: int) -> None:
        self._native = native
        self._shape = (count, dim)

    def result(self, out: Optional[Rows] = None) -> Rows:
        """Waits for the rows. It can be called once.

        Args:
            out: A C-contiguous float32 array (n, dim) to write to.

        Returns:
            `out`, or a new float32 array (n, dim).

        Raises:
            PeerError: A server is lost, or refused.
            InputError: The rows were returned before.
        """
        if out is None:
            return self._native.finish()
        self._native.finish_into(as_out(out, *self._shape))
        return out
