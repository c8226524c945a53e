"""What a table is made of: update rules and initial values. The formulas are in docs/optimizers.md."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import ClassVar


@dataclass(frozen=True)
class _Named:
    """A name and its numbers, as the server reads them."""

    _name: ClassVar[str]

    def _describe(self) -> tuple[str, list[float]]:
        return self._name, [float(number) for number in astuple(self)]


@dataclass(frozen=True)
class Optimizer(_Named):
    """The base of all update rules: what a server does to a row when a gradient `g` of it arrives."""


@dataclass(frozen=True)
class Add(Optimizer):
    """`w += g`: a row of counters or sums."""

    _name = "add"


@dataclass(frozen=True)
class Sgd(Optimizer):
    """`w -= lr * g`."""

    _name = "sgd"
    lr: float = 0.1


@dataclass(frozen=True)
class Momentum(Optimizer):
    """`m = momentum * m + g; w -= lr * m`, and with `nesterov` `w -= lr * (g + momentum * m)`."""

    _name = "momentum"
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """`s += g^2; w -= lr * g / (sqrt(s) + eps)`. `s` begins at `initial_accumulator`."""

    _name = "adagrad"
    lr: float = 0.05
    eps: float = 1e-8
    initial_accumulator: float = 0.1


@dataclass(frozen=True)
class RowAdagrad(Optimizer):
    """As `Adagrad`, with one sum a row: `s += mean(g^2)`. A row needs half the memory."""

    _name = "row-adagrad"
    lr: float = 0.05
    eps: float = 1e-8
    initial_accumulator: float = 0.1


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """`s = rho * s + (1 - rho) * g^2; w -= lr * g / sqrt(s + eps)`."""

    _name = "rmsprop"
    lr: float = 0.01
    rho: float = 0.9
    eps: float = 1e-8


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam, and with `decay` AdamW. A row steps only when it is pushed to, and counts its own steps."""

    _name = "adam"
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0


@dataclass(frozen=True)
class AMSGrad(Optimizer):
    """As `Adam`, with the largest second moment so far under the root."""

    _name = "amsgrad"
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """FTRL-Proximal: `alpha` and `beta` make the rate, `l1` sets small weights to 0, `l2` shrinks them.

    The row of key 2**64 - 1, the intercept's in models, has no such penalty.
    """

    _name = "ftrl"
    alpha: float = 0.1
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0


@dataclass(frozen=True)
class GroupFtrl(Optimizer):
    """As `Ftrl`, and `l21` sets whole rows to 0."""

    _name = "group-ftrl"
    alpha: float = 0.1
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0
    l21: float = 0.0


@dataclass(frozen=True)
class Init(_Named):
    """The base of all initial values: what a key without a row reads as."""


@dataclass(frozen=True)
class Zero(Init):
    """All weights are 0."""

    _name = "zero"


@dataclass(frozen=True)
class Normal(Init):
    """Normal with this mean and standard deviation. The values of a key depend on the table's seed and the key only."""

    _name = "normal"
    mean: float = 0.0
    std: float = 1e-4


@dataclass(frozen=True)
class Uniform(Init):
    """Uniform in `[low, high)`. The values of a key depend on the table's seed and the key only."""

    _name = "uniform"
    low: float = -1e-4
    high: float = 1e-4
