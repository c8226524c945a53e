"""Normalized features: units of measurement do not matter, and weights are for values as they are."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import gannet
from gannet.sklearn import FMClassifier, FTRLClassifier, LinearRegressor
from rows import hashed

ESTIMATORS: list[Any] = [FTRLClassifier(), FMClassifier(), LinearRegressor()]
IDS = ["ftrl", "fm", "linear"]


def numbers(count: int, units: Any = (1.0, 1.0, 1.0, 1.0)) -> tuple[Any, Any]:
    """Numbers of very different sizes, of which the second has a signal, and the last is mostly missing."""
    random = np.random.default_rng(3)
    signal = random.random(count)
    rows = [random.integers(500_000, 540_000, count), signal * 1e-4, random.integers(0, 2000, count)]
    rows.append(random.exponential(300.0, count) * (random.random(count) < 0.3))
    return np.column_stack(rows) * units, (random.random(count) < signal).astype(int)


def scores(model: Any, rows: Any) -> Any:
    return model.predict(rows) if isinstance(model, LinearRegressor) else model.decision_function(rows)


def test_a_raw_table_is_learned_as_well_as_by_others() -> None:
    rows, labels = load_breast_cancer(return_X_y=True)
    rows, others, labels, theirs = train_test_split(rows, labels, test_size=0.3, random_state=0)
    for model, most in [(FTRLClassifier(), 0.2), (FTRLClassifier(epochs=5), 0.15), (FMClassifier(), 0.3)]:
        loss = log_loss(theirs, model.fit(rows, labels).predict_proba(others))
        assert loss < most, (model, loss)
        raw = log_loss(theirs, model.set_params(normalize=False).fit(rows, labels).predict_proba(others))
        assert raw > 1.5 * loss, (model, loss, raw)


@pytest.mark.parametrize("model", ESTIMATORS, ids=IDS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_units_change_nothing(model: Any, form: Any) -> None:
    rows, labels = numbers(3000)
    first = scores(model.fit(form(rows), labels), form(rows))
    assert first.std() > 0.05
    for units in ([1e-6, 1e6, 1e3, 1e5], [3e4, 1e-3, 7e-6, 1e-6]):
        others, _ = numbers(3000, units)
        np.testing.assert_allclose(scores(model.fit(form(others), labels), form(others)), first, rtol=0, atol=1e-3)


@pytest.mark.parametrize("model", ESTIMATORS, ids=IDS)
def test_it_learns_what_it_predicts(model: Any) -> None:
    """The scores of values as they are equal those of normalized values, also where a value is missing or 0."""
    rows, labels = numbers(3000)
    rows[:5, 0] = rows[5:10, 1] = 0
    model.fit(rows, labels)
    sizes = model._sizes
    normalized = sizes.of(sparse.csr_matrix(rows)).toarray()
    assert abs(normalized).max() <= 16 and abs(normalized[100:, :3]).max() < 3
    margin = normalized @ np.atleast_2d(model._coef).T
    if isinstance(model, FMClassifier):
        sums, squares = normalized @ model._factors[0], (normalized**2) @ (model._factors[0] ** 2)
        margin[:, 0] += 0.5 * ((sums**2).sum(axis=1) - squares.sum(axis=1))
    apart = scores(model, rows) - margin[:, 0]
    # The same intercept for all, but for examples with a value beyond the bound.
    within = np.abs((rows - sizes.center) * sizes.factor).max(axis=1) <= 16
    assert within.sum() > 2900
    np.testing.assert_allclose(apart[within], np.median(apart), rtol=0, atol=1e-6)


@pytest.mark.parametrize("model", [FTRLClassifier(), FMClassifier()], ids=IDS[:2])
def test_one_hot_data_is_learned_as_it_is(model: Any) -> None:
    rows, labels = hashed(2000, 1)
    normalized = model.fit(rows, labels).coef_
    np.testing.assert_array_equal(model.set_params(normalize=False).fit(rows, labels).coef_, normalized)
    model.set_params(normalize=True)


@pytest.mark.parametrize("model", ESTIMATORS, ids=IDS)
def test_the_first_examples_say_how_large_values_are(model: Any) -> None:
    rows, labels = numbers(2000)
    model.fit(rows[:1000], labels[:1000])
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, copy):
        one.partial_fit(rows[1000:] * [1.0, 10.0, 1.0, 1.0], labels[1000:])
    np.testing.assert_array_equal(copy.coef_, model.coef_)
    assert model._sizes.center[0] == rows[:1000, 0].mean()
    with pytest.raises(ValueError, match="normalize is False, and was True"):
        model.set_params(normalize=False).partial_fit(rows, labels)
    model.set_params(normalize=True)


def test_servers_change_nothing(cluster: gannet.LocalCluster) -> None:
    rows, labels = numbers(2000)
    alone = FTRLClassifier().fit(rows, labels)
    served = FTRLClassifier(servers=cluster).fit(rows, labels)
    np.testing.assert_allclose(served.coef_, alone.coef_, rtol=1e-5)
