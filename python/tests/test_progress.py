"""Progress bars of fits."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest
import tqdm.auto
from scipy import sparse

import gannet
from gannet.sklearn import FMClassifier, FTRLClassifier, LinearRegressor

ROWS = 60_000


class Recorder:
    """Stands in for tqdm."""

    made: list[Recorder] = []
    fails = False

    def __init__(self, **options: Any) -> None:
        self.options, self.n, self.steps, self.closed = options, 0, list[int](), False
        Recorder.made.append(self)

    def update(self, step: int) -> None:
        if self.fails:
            raise RuntimeError("the bar has failed")
        self.n += step
        self.steps.append(step)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def bars(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    monkeypatch.setattr(tqdm.auto, "tqdm", Recorder)
    monkeypatch.setattr(Recorder, "fails", False)
    Recorder.made.clear()
    yield Recorder.made
    gannet.show_progress(None)


def data(classes: int = 2) -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    columns = random.integers(0, 5000, (ROWS, 8))
    X = sparse.csr_matrix((np.ones(ROWS * 8), columns.ravel(), np.arange(0, ROWS * 8 + 1, 8)), (ROWS, 5000))
    return X, columns[:, 0] % classes


@pytest.mark.parametrize(
    "model, classes, total",
    [
        (FTRLClassifier(epochs=60), 2, 60 * ROWS),
        (FTRLClassifier(epochs=30, random_state=1), 3, 30 * 3 * ROWS),
        (FTRLClassifier(solver="lbfgs", l2=0.001, max_iter=60, tol=0), 2, 60),
        (FMClassifier(epochs=40), 2, 40 * ROWS),
        (LinearRegressor(epochs=60), 2, 60 * ROWS),
    ],
)
@pytest.mark.filterwarnings("ignore:lbfgs ended at max_iter")
def test_a_bar_ends_at_its_total(bars: list[Recorder], model: Any, classes: int, total: int) -> None:
    gannet.show_progress(True)
    model.fit(*data(classes))
    (bar,) = bars
    assert (bar.options["total"], bar.n, bar.closed) == (total, total, True)
    assert bar.options["desc"] == type(model).__name__
    assert min(bar.steps) >= 0
    # It moved meanwhile, and not only at the end of each part. Two classes are one part. A part takes ten times as long
    # as the time between two reports, or more.
    assert len(bar.steps) > (1 if classes == 2 else classes) and max(bar.steps) < total


@pytest.mark.parametrize("shown", [None, False])
def test_no_bar_outside_of_a_notebook(bars: list[Recorder], shown: Any) -> None:
    gannet.show_progress(shown)
    FTRLClassifier().fit(*data())
    assert bars == []


def test_a_bar_that_fails_ends_the_fit(bars: list[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    gannet.show_progress(True)
    monkeypatch.setattr(Recorder, "fails", True)
    model = FTRLClassifier(epochs=10_000)
    with pytest.raises(RuntimeError, match="the bar has failed"):
        model.fit(*data())
    assert bars[0].closed
    monkeypatch.setattr(Recorder, "fails", False)
    model.set_params(epochs=1).fit(*data())
    np.testing.assert_array_equal(model.coef_, FTRLClassifier().fit(*data()).coef_)
