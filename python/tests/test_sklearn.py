"""The estimators of gannet.sklearn as scikit-learn wants them."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from gannet.sklearn import DeepFMClassifier, FMClassifier, FMRegressor, FTRLClassifier, LinearRegressor
from gannet.sklearn import LogisticRegression as OurLogisticRegression
from processes import line_of, run_python, stop
from rows import hashed

# SGDClassifier and SGDRegressor fail these two as well: examples that are learned one after the other depend on their
# order, so a weight is not the same as a repeated example.
ONLINE = {"check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"}

CHECKED = [
    FTRLClassifier(epochs=20),
    FTRLClassifier(solver="lbfgs"),
    FMClassifier(epochs=20),
    DeepFMClassifier(epochs=20),
    FMRegressor(epochs=20),
    LinearRegressor(epochs=20),
    OurLogisticRegression(),
]


def all_checks() -> list[Any]:
    named = []
    for estimator in CHECKED:
        for copy, check in estimator_checks_generator(estimator, legacy=True):
            named.append(pytest.param(copy, check, id=f"{estimator!r}-{check.func.__name__}"))
    return named


@pytest.mark.parametrize("estimator, check", all_checks())
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_it_is_an_estimator_of_scikit_learn(estimator: Any, check: Any) -> None:
    online = getattr(estimator, "solver", "ftrl") == "ftrl" and hasattr(estimator, "epochs")
    if online and check.func.__name__ in ONLINE:
        pytest.xfail("online learning")
    check(estimator)


def same(one: Any, other: Any) -> None:
    for name in ("coef_", "weights_", "intercept_", "factors_"):
        assert hasattr(one, name) == hasattr(other, name)
        if hasattr(one, name):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for ours, theirs in zip(sum(getattr(one, "layers_", []), []), sum(getattr(other, "layers_", []), []), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "estimator", [FTRLClassifier(), FMClassifier(), DeepFMClassifier(), LinearRegressor()], ids=repr
)
def test_it_goes_on_where_it_stopped(estimator: Any) -> None:
    rows, labels = hashed(1792, 2)
    whole = clone(estimator).fit(rows, labels)
    parts = clone(estimator)
    first = {} if isinstance(estimator, LinearRegressor) else {"classes": [0, 1]}
    # Batches of 256, as in one fit.
    for part in range(0, 1792, 256):
        parts.partial_fit(rows[part : part + 256], labels[part : part + 256], **first)
        parts = pickle.loads(pickle.dumps(parts))
    same(parts, whole)
    again = clone(estimator).set_params(warm_start=True).fit(rows, labels).fit(rows, labels)
    same(again, clone(estimator).set_params(epochs=2).fit(rows, labels))
    with pytest.raises(ValueError, match="1000 features"):
        again.fit(rows[:, :10], labels)


def test_l1_makes_weights_exactly_zero_and_weights_count() -> None:
    rows, labels = hashed(2000, 3)
    sparse_model = FTRLClassifier(l1=5.0).fit(rows, labels)
    dense_model = FTRLClassifier().fit(rows, labels)
    assert 0 < (sparse_model.coef_ != 0).sum() < (dense_model.coef_ != 0).sum()
    weightless = np.where(np.arange(2000) < 1000, 1.0, 0.0)
    half = FTRLClassifier().fit(rows[:1000], labels[:1000])
    np.testing.assert_array_equal(FTRLClassifier().fit(rows, labels, weightless).coef_, half.coef_)


def test_lbfgs_finds_the_minimum_that_scikit_learn_finds() -> None:
    rows, labels = hashed(2000, 4)
    ours = FTRLClassifier(solver="lbfgs", l2=2.0, tol=1e-9).fit(rows, labels)
    theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=2000).fit(rows, labels)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=0, atol=1e-6)
    # liblinear penalizes its intercept.
    sparse_one = FTRLClassifier(solver="lbfgs", l1=2.0, tol=1e-9, max_iter=2000, fit_intercept=False).fit(rows, labels)
    theirs = LogisticRegression(C=0.5, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-8, max_iter=2000)
    theirs.fit(rows, labels)
    np.testing.assert_allclose(sparse_one.coef_, theirs.coef_, rtol=0, atol=1e-4)
    assert 100 < (sparse_one.coef_ == 0).sum() == (theirs.coef_ == 0).sum()
    assert sparse_one.intercept_ == [0.0]


def test_a_weight_is_a_repeated_example_also_with_l1() -> None:
    # With l1 the objective's digits are used up before the weights have 9 digits, which scikit-learn's check wants.
    rows, labels = hashed(500, 8)
    often = np.random.default_rng(8).integers(0, 4, 500)
    model = FTRLClassifier(solver="lbfgs", l1=0.5, tol=1e-9, max_iter=2000)
    weighted = clone(model).fit(rows, labels, often).coef_
    repeated = clone(model).fit(rows[np.repeat(np.arange(500), often)], np.repeat(labels, often)).coef_
    np.testing.assert_allclose(weighted, repeated, rtol=0, atol=1e-5)


def test_lbfgs_says_when_it_has_not_converged_and_goes_on() -> None:
    rows, labels = hashed(1000, 5)
    model = FTRLClassifier(solver="lbfgs", l2=1.0, max_iter=2, tol=1e-8, warm_start=True)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        model.fit(rows, labels)
    model.set_params(max_iter=200).fit(rows, labels)
    begun_anew = FTRLClassifier(solver="lbfgs", l2=1.0, max_iter=200, tol=1e-8).fit(rows, labels)
    assert model.n_iter_ < begun_anew.n_iter_
    np.testing.assert_allclose(model.coef_, begun_anew.coef_, rtol=0, atol=1e-6)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit
    assert "learns the whole data at once; use solver='ftrl'" in str(caught.value.__cause__)


def test_a_factorization_machine_learns_pairs() -> None:
    # The label is whether two features agree, which no weight of one of them says.
    random = np.random.default_rng(6)
    one, other = random.integers(0, 2, (2, 3000))
    features = np.column_stack([one == 0, one == 1, other == 0, other == 1]).astype(float)
    pairs = FMClassifier(alpha=0.1, epochs=20, random_state=3).fit(features, one == other)
    assert pairs.score(features, one == other) == 1.0
    assert FTRLClassifier(epochs=20).fit(features, one == other).score(features, one == other) < 0.8
    same(pairs, FMClassifier(alpha=0.1, epochs=20, random_state=3).fit(features, one == other))
    assert (pairs.factors_ != FMClassifier(alpha=0.1, epochs=20).fit(features, one == other).factors_).any()


def test_a_linear_regression_finds_the_line() -> None:
    random = np.random.default_rng(7)
    x = random.normal(size=(4000, 2))
    y = x @ [2.0, -1.0] + 10 + random.normal(0, 0.1, 4000)
    model = LinearRegressor(epochs=5).fit(x, y)
    np.testing.assert_allclose(model.coef_, [2, -1], atol=0.05)
    np.testing.assert_allclose(model.intercept_, [10], atol=0.05)
    assert model.score(x, y) > 0.99


def searched() -> list[Any]:
    return [
        ("ftrlclassifier", FTRLClassifier(epochs=5), {"alpha": [0.001, 0.3]}, 0.3),
        ("ftrlclassifier", FTRLClassifier(solver="lbfgs"), {"l2": [1.0, 1e6]}, 1.0),
        ("fmclassifier", FMClassifier(epochs=5, factors=2), {"alpha": [1e-5, 0.1]}, 0.1),
        ("linearregressor", LinearRegressor(epochs=5), {"alpha": [1e-5, 0.1]}, 0.1),
    ]


@pytest.mark.parametrize("step, estimator, grid, best", searched(), ids=lambda value: repr(value)[:40])
def test_it_works_in_pipelines_and_searches(step: str, estimator: Any, grid: dict[str, Any], best: float) -> None:
    rows, labels = hashed(600, 4)
    words = [{"w%d" % column: 1.0 for column in row.indices} for row in rows]
    pipeline = make_pipeline(FeatureHasher(n_features=2**16), estimator)
    (name, values), = grid.items()
    search = GridSearchCV(pipeline, {f"{step}__{name}": values}, cv=3).fit(words, labels)
    assert search.best_params_ == {f"{step}__{name}": best}


@pytest.mark.parametrize(
    "estimator",
    [
        FTRLClassifier(epochs=10),
        FTRLClassifier(solver="lbfgs", l2=0.1),
        FMClassifier(epochs=10),
        DeepFMClassifier(epochs=10),
    ],
    ids=repr,
)
def test_more_classes(estimator: Any) -> None:
    dense, classes = make_classification(400, 10, n_informative=8, n_classes=3, random_state=1)
    names = np.array(["a", "b", "c"])[classes]
    model = estimator.set_params(class_weight="balanced", random_state=1).fit(dense, names)
    assert model.score(dense, names) > 0.6
    np.testing.assert_allclose(model.predict_proba(dense).sum(axis=1), 1)
    assert model.coef_.shape == (3, 10)


def test_bad_parameters_are_named() -> None:
    rows, labels = hashed(50, 5)
    wrong = [
        (FTRLClassifier(alpha=0), "alpha=0"),
        (FTRLClassifier(solver="sag"), "solver is 'sag'; 'ftrl' or 'lbfgs'"),
        (FTRLClassifier(solver="lbfgs", tol=-1), "tol=-1"),
        (FMClassifier(l1=1.0), "l1=1.0: optimizer='adagrad' has no l1"),
        (FMClassifier(factors=0), "factors is 0"),
        (DeepFMClassifier(hidden=()), r"hidden is \(\)"),
        (DeepFMClassifier(hidden=(8, 0)), "hidden is 0"),
        (LinearRegressor(optimizer="lbfgs"), "optimizer is 'lbfgs'; one of 'adagrad', 'ftrl', 'sgd'"),
    ]
    for estimator, text in wrong:
        with pytest.raises(ValueError, match=text):
            estimator.fit(rows, labels)
    with pytest.raises(ValueError, match="have one class"):
        FTRLClassifier().fit(rows, np.zeros(50))
    with pytest.raises(ValueError, match="first call"):
        FTRLClassifier().partial_fit(rows, labels)
    for solver in ("ftrl", "lbfgs"):
        with pytest.raises(ValueError, match="not a finite number"):
            FTRLClassifier(solver=solver).fit(rows * 1e39, labels)


FITS = [
    # It has learned a few examples before.
    "FTRLClassifier(warm_start=True).fit(rows[:100], labels[:100]).set_params(epochs=10**9)",
    "FTRLClassifier(solver='lbfgs', l2=1e-9, tol=0, max_iter=10**9)",
    "FMClassifier(epochs=10**9)",
    "LinearRegressor(epochs=10**9)",
    "FTRLClassifier(epochs=10**9, servers=cluster)",
    # Its server stops.
    "FTRLClassifier(epochs=10**9, servers=cluster)",
]

ENDLESS = f"""
import signal
import numpy as np
import gannet
from gannet.sklearn import FMClassifier, FTRLClassifier, LinearRegressor
from scipy import sparse

signal.signal(signal.SIGINT, signal.default_int_handler)
random = np.random.default_rng(1)
columns = np.sort(random.integers(0, 50_000, (50_000, 50)))
rows = sparse.csr_matrix((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 50)), (50_000, 50_000))
labels = random.integers(0, 2, 50_000)
with gannet.LocalCluster(servers=1) as cluster:
    print(cluster.status()["servers"][0]["pid"], flush=True)
    for model in [{", ".join(FITS)}]:
        try:
            print("fits", flush=True)
            model.fit(rows, labels)
            print("no wait", flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        if hasattr(model, "coef_"):
            # It goes on, and knows what the fit has learned until Ctrl-C.
            model.partial_fit(rows[:100], labels[:100])
            print((model.coef_ != 0).sum() > 10_000, flush=True)
"""


def test_ctrl_c_ends_a_fit(tmp_path: Path) -> None:
    process = run_python(tmp_path, ENDLESS)
    try:
        server = int(line_of(process))
        for number in range(len(FITS)):
            assert line_of(process) == "fits"
            time.sleep(0.5)
            if number == len(FITS) - 1:
                stop(server)
            process.send_signal(signal.SIGINT)
            assert line_of(process) == "interrupted", FITS[number]
            if number == 0:
                assert line_of(process) == "True"
        # Also with a server that does not answer the process ends.
        process.wait(timeout=60)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("C, l1_ratio", [(1.0, 0.0), (0.1, 0.0), (0.5, 1.0), (0.5, 0.4), (np.inf, 0.0)])
def test_logistic_regression_finds_the_minimum_of_scikit_learn(C: float, l1_ratio: float) -> None:
    X, y = make_classification(400, 12, n_informative=6, n_redundant=0, flip_y=0.2, random_state=4)
    ours = OurLogisticRegression(C=C, l1_ratio=l1_ratio, tol=1e-8, max_iter=2000).fit(X, y)
    solver = "lbfgs" if l1_ratio == 0 else "saga"
    theirs = LogisticRegression(C=C, l1_ratio=l1_ratio, solver=solver, tol=1e-9, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-4)
    assert not hasattr(ours, "partial_fit")


def test_logistic_regression_refuses_what_means_nothing() -> None:
    X, y = make_classification(50, random_state=1)
    for wrong in (OurLogisticRegression(C=0), OurLogisticRegression(l1_ratio=2), OurLogisticRegression(tol=-1)):
        with pytest.raises(ValueError, match="is wanted|must be"):
            wrong.fit(X, y)


def test_a_machine_learns_numbers_of_pairs() -> None:
    random = np.random.RandomState(5)
    X = random.randn(4000, 6)
    y = 3 + X[:, 0] + 2 * X[:, 1] * X[:, 2]
    linear = LinearRegressor(epochs=5).fit(X[:3000], y[:3000]).score(X[3000:], y[3000:])
    machine = FMRegressor(alpha=0.3, deviation=0.1, epochs=20).fit(X[:3000], y[:3000])
    assert machine.score(X[3000:], y[3000:]) > 0.95 > 0.5 > linear
    again = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(again.predict(X), machine.predict(X))
    again.partial_fit(X, y)


def test_a_fit_ends_early_and_keeps_its_best_pass() -> None:
    random = np.random.RandomState(2)
    X = random.randn(600, 300)
    y = X[:, 0] + 2 * random.randn(600) > 0
    estimators: list[Any] = [
        FTRLClassifier(alpha=1.0, epochs=200, early_stopping=True, random_state=3, n_iter_no_change=3),
        FMClassifier(epochs=200, early_stopping=True, random_state=3, n_iter_no_change=3),
        DeepFMClassifier(epochs=200, early_stopping=True, random_state=3, n_iter_no_change=3),
    ]
    for estimator in estimators:
        model = clone(estimator).fit(X, y)
        assert 4 <= model.n_iter_ < 100
        # The score of the pass that was kept, on the examples that were held out.
        shorter = clone(estimator).set_params(epochs=model.n_iter_ - 3).fit(X, y)
        assert shorter.best_validation_score_ == model.best_validation_score_
        np.testing.assert_array_equal(shorter.coef_, model.coef_)
        again = clone(model).set_params(servers=None).fit(X, y)
        np.testing.assert_array_equal(again.coef_, model.coef_)
        model.partial_fit(X, y)
    for wrong in ({"validation_fraction": 1.0}, {"n_iter_no_change": 0}, {"tol": -1.0}):
        with pytest.raises(ValueError):
            clone(estimators[0]).set_params(**wrong).fit(X, y)
