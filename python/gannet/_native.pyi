"""The native module. Use the package `gannet`, which checks arguments and documents the calls."""

from os import PathLike
from typing import Any, Callable, Optional, TypedDict, Union

import numpy as np
from numpy.typing import NDArray

__version__: str
FIELD_FACTORS_MAX: int
SURVEYED_EXAMPLES: int

_Path = Union[str, PathLike[str]]
_Described = tuple[str, list[float]]

class Connecting(TypedDict):
    servers: list[str]
    coordinator: Optional[str]
    run: Optional[str]
    rank: Optional[int]
    timeout: float
    transport: str
    token_file: Optional[_Path]
    tls_ca: Optional[_Path]
    tls_name: Optional[str]
    tls_cert: Optional[_Path]
    tls_key: Optional[_Path]
    insecure: bool

class Description(TypedDict):
    name: str
    dim: int
    rule: _Described
    init: _Described
    shards: int
    seed: int
    admit_pushes: int
    admit_probability: float
    row_type: str

class EvictionTexts(TypedDict):
    evict_after: Optional[str]
    evict_below: Optional[float]
    capacity: Optional[str]
    evict_floor: Optional[int]

class Joining(TypedDict):
    rank: int
    workers: int
    mode: str
    bound: int
    mean: bool
    worker_timeout: float

class Client:
    def __new__(cls, asked: Connecting, not_finite: str) -> Client: ...
    @property
    def transport(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def interrupted(self) -> bool: ...
    def table(self, description: Description, eviction: EvictionTexts) -> Table: ...
    def flush(self) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def join(self, tables: list[Table], joining: Joining) -> int: ...
    def tick(self) -> int: ...
    def leave(self) -> None: ...
    def close(self, seconds: Optional[float] = None) -> bool: ...

class Table:
    def begin_pull(self, keys: NDArray[np.uint64]) -> Pull: ...
    def push(self, keys: NDArray[np.uint64], grads: NDArray[np.float32], mean: bool) -> None: ...
    def keyset(self, keys: NDArray[np.uint64]) -> KeySet: ...
    def begin_pull_set(self, keys: KeySet) -> Pull: ...
    def push_set(self, keys: KeySet, grads: NDArray[np.float32], copy: bool) -> None: ...
    def assign(self, keys: NDArray[np.uint64], weights: NDArray[np.float32]) -> None: ...
    def items(self) -> tuple[NDArray[np.uint64], NDArray[np.float32]]: ...
    def stats(self) -> tuple[int, int, int, int]: ...
    def save(self, folder: _Path) -> int: ...
    def load(self, folder: _Path) -> int: ...

class KeySet:
    def keys(self) -> NDArray[np.uint64]: ...
    def inverse(self) -> NDArray[np.int64]: ...
    def __len__(self) -> int: ...

class Pull:
    def finish(self) -> NDArray[np.float32]: ...
    def finish_into(self, out: NDArray[np.float32]) -> None: ...

class ReadSettings(TypedDict):
    label: Optional[str]
    categorical: list[str]
    numeric: list[str]
    both: list[str]
    ignore: list[str]
    offset: Optional[str]
    importance: Optional[str]
    format: str
    delimiter: Optional[str]
    header: Optional[list[str]]
    labels: str
    positive: Optional[str]
    skip_bad_lines: int
    cross: list[str]
    fields: bool

# Epoch, labels, offsets, keys, values, importances, bases, fields.
_Arrays = tuple[
    int,
    NDArray[np.float32],
    NDArray[np.int64],
    NDArray[np.uint64],
    NDArray[np.float32],
    NDArray[np.float32],
    NDArray[np.float32],
    NDArray[np.uint64],
]

def text_keys(column: str, texts: list[str]) -> NDArray[np.uint64]: ...
def field_key(name: str) -> int: ...

class Dataset:
    @staticmethod
    def of_files(names: list[str], reading: ReadSettings) -> Dataset: ...
    @staticmethod
    def of_matrix(
        indptr: NDArray[np.uint64],
        keys: NDArray[np.uint64],
        values: NDArray[np.float32],
        labels: NDArray[np.float32],
        importances: NDArray[np.float32],
    ) -> Dataset: ...
    @staticmethod
    def of_table(object: object, look: Optional[object], name: str, reading: ReadSettings) -> Dataset: ...
    @staticmethod
    def types_of_table(object: object, name: str, label: str, rows: int) -> tuple[list[str], list[str]]: ...
    @property
    def format(self) -> str: ...
    @property
    def columns(self) -> Optional[tuple[Optional[str], list[str], list[str], list[str]]]: ...
    def batches(self, size: int, epochs: int, intercept: bool, rank: int, workers: int) -> Batches: ...

# Name, weight, key, length of the factors, class, weight per unit.
_Learned = tuple[str, float, int, float, int, Optional[float]]

class Model:
    def __new__(cls, folder: _Path) -> Model: ...
    @property
    def kind(self) -> str: ...
    @property
    def predicts(self) -> str: ...
    @property
    def outputs(self) -> int: ...
    @property
    def settings(self) -> list[tuple[str, str]]: ...
    @property
    def rows(self) -> int: ...
    @property
    def format(self) -> str: ...
    @property
    def intercept(self) -> Optional[float]: ...
    @property
    def ended(self) -> Optional[str]: ...
    @property
    def labels(self) -> Optional[tuple[str, Optional[str]]]: ...
    @property
    def columns(self) -> Optional[tuple[Optional[str], list[str], list[str], list[str]]]: ...
    def table(self, object: object, look: Optional[object], name: str) -> Dataset: ...
    def score(self, dataset: Dataset, predicts: bool) -> tuple[NDArray[np.float32], Optional[str]]: ...
    def explain(
        self, dataset: Dataset
    ) -> tuple[
        NDArray[np.int64],
        NDArray[np.float64],
        NDArray[np.int64],
        NDArray[np.uint64],
        NDArray[np.float64],
        dict[int, str],
        Optional[str],
    ]: ...
    def onnx(self) -> bytes: ...
    def weights(self, most: int, dataset: Optional[Dataset]) -> list[_Learned]: ...

class Batches:
    def next(self) -> tuple[Optional[_Arrays], Optional[str]]: ...
    def close(self) -> None: ...

def end_readings(seconds: float) -> None: ...
def wait_for_pushes(seconds: float) -> None: ...

class Learning(TypedDict):
    model: str
    rule: _Described
    l2: float
    factors: int
    deviation: float
    seed: int
    hidden: list[int]
    fields: int

class Examples(TypedDict):
    indptr: NDArray[np.signedinteger[Any]]
    indices: NDArray[np.integer[Any]]
    data: NDArray[np.float64]
    labels: NDArray[np.float32]
    importances: NDArray[np.float32]
    has_columns: bool
    fields: NDArray[np.uint64]

_Rows = tuple[NDArray[np.uint64], NDArray[np.float32]]
_Features = tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]

class Normalization:
    def __new__(cls, odds: bool) -> Normalization: ...
    @staticmethod
    def of(
        keys: NDArray[np.uint64],
        centers: NDArray[np.float32],
        factors: NDArray[np.float32],
        units: NDArray[np.float32],
    ) -> Normalization: ...
    def settle(self, examples: Examples, batch: int) -> None: ...
    @property
    def start(self) -> float: ...
    def values(self, keys: NDArray[np.uint64], given: NDArray[np.float32]) -> NDArray[np.float32]: ...
    def features(self) -> _Features: ...

class KeyPlaces:
    def __new__(cls, keys: NDArray[np.uint64]) -> KeyPlaces: ...
    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]: ...
    def with_new(self, keys: NDArray[np.uint64]) -> tuple[KeyPlaces, NDArray[np.int64], NDArray[np.int64]]: ...

class Lbfgs(TypedDict):
    l1: float
    l2: float
    intercept: bool
    max_iter: int
    tol: float

class Trainer:
    def __new__(cls, learning: Learning, servers: Optional[Connecting], name: str) -> Trainer: ...
    def train(
        self,
        examples: Examples,
        wanted: NDArray[np.uint64],
        *,
        epochs: int,
        batch: int,
        intercept: bool,
        normalization: Optional[Normalization],
        progress: Optional[Callable[[int], None]],
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]], int]: ...
    def rows(self) -> list[_Rows]: ...
    def restore(self, tables: list[_Rows]) -> None: ...

def train_lbfgs(
    examples: Examples,
    asked: Lbfgs,
    begin: tuple[NDArray[np.uint64], NDArray[np.float32]],
    wanted: NDArray[np.uint64],
    servers: Optional[Connecting],
    name: str,
    normalization: Optional[Normalization],
    progress: Optional[Callable[[int], None]],
) -> tuple[NDArray[np.float64], int, bool, float]: ...
def drop_tables(servers: Connecting, name: str, tables: list[str]) -> None: ...
