"""Estimators that learn frames: the weights that the command has on a CSV file, and what scikit-learn does with them."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import gannet
from frames import trained_on_rows, visits
from gannet.sklearn import (
    DeepFMClassifier,
    FMClassifier,
    FMRegressor,
    FTRLClassifier,
    LinearRegressor,
    LogisticRegression,
)
from rows import run_command

# An estimator, and the flags of the command.
OF_THE_COMMAND: list[Any] = [
    pytest.param(FTRLClassifier(epochs=2), "--epochs 2", id="ftrl"),
    pytest.param(
        FTRLClassifier(normalize=False, fit_intercept=False, l1=0.1),
        "--normalize off --no-intercept --l1 0.1",
        id="as-it-is",
    ),
    pytest.param(LogisticRegression(), "--optimizer lbfgs", id="lbfgs"),
    pytest.param(FTRLClassifier(solver="lbfgs", l2=0.3), "--optimizer lbfgs --l2 0.3", id="lbfgs-l2"),
    pytest.param(FMClassifier(epochs=2), "--model fm --epochs 2", id="fm"),
    pytest.param(FMRegressor(factors=4), "--model fm --loss squared --factors 4", id="numbers"),
    pytest.param(LinearRegressor(), "--model linear", id="linear"),
    pytest.param(DeepFMClassifier(), "--model deepfm", id="deepfm"),
    pytest.param(
        DeepFMClassifier(epochs=3, factors=4, hidden=(16, 8, 4), l2=0.01),
        "--model deepfm --epochs 3 --factors 4 --hidden 16,8,4 --l2 0.01",
        id="deep",
    ),
]


def labels_for(estimator: Any, scores: Any) -> Any:
    """Labels that this estimator learns."""
    return np.round(scores, 3) if isinstance(estimator, (FMRegressor, LinearRegressor)) else (scores > 0).astype(int)


def predictions(model: Any, frame: Any) -> Any:
    return model.predict_proba(frame)[:, 1] if hasattr(model, "predict_proba") else model.predict(frame)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator, flags", OF_THE_COMMAND)
@pytest.mark.parametrize("rare", [False, True])
def test_it_has_the_weights_of_the_command(tmp_path: Path, estimator: Any, flags: str, rare: bool) -> None:
    # With rare labels the intercept starts at their log odds.
    frame, scores = visits(3000, 1)
    labels = labels_for(estimator, scores - 3.5 if rare else scores)
    _, predicted = trained_on_rows(tmp_path, frame, labels, flags)
    model = clone(estimator).fit(frame, labels)
    np.testing.assert_allclose(predictions(model, frame), predicted, rtol=5e-6, atol=3e-6)
    seen = json.loads(run_command(tmp_path, "inspect", "model", "--json", "--top", "1000"))
    theirs = {feature["key"]: feature for feature in seen["features"]}
    # Those of L-BFGS have more digits here. Weights of 0 are not listed.
    ours = dict(zip(model.feature_keys_.tolist(), np.float32(model.weights_).ravel().tolist()))
    assert {key: weight for key, weight in ours.items() if weight} == {
        key: feature["weight"] for key, feature in theirs.items() if feature["weight"]
    }
    assert len(theirs) > 20
    if hasattr(model, "factors_"):
        # Those of a network learn through its layers.
        lengths = np.linalg.norm(model.factors_, axis=-1).ravel()
        expected = [theirs[key]["factors"] for key in model.feature_keys_.tolist()]
        np.testing.assert_allclose(lengths, expected, rtol=1e-6)


def test_all_kinds_of_frames_are_one(tmp_path: Path) -> None:
    frame, scores = visits(1000, 3)
    labels = scores > 0
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for model in (FTRLClassifier(), DeepFMClassifier()):
        of_pandas = clone(model).fit(frame, labels)
        for other in (polars.from_pandas(frame), table):
            of_other = clone(model).fit(other, labels)
            np.testing.assert_array_equal(of_other.predict_proba(frame), of_pandas.predict_proba(other))
            np.testing.assert_array_equal(of_other.weights_, of_pandas.weights_)
        assert list(of_pandas.feature_names_in_) == list(frame.columns)
        assert of_pandas.n_features_in_ == 7
    # The weight of a category is that of its key.
    keys = gannet.keys("city", ["Kiel", "Bonn", None])
    places = [list(of_pandas.feature_keys_).index(key) for key in keys]
    assert of_pandas.weights_[0, places[0]] > of_pandas.weights_[0, places[1]]


def test_columns_come_in_any_order_and_none_may_be_missing() -> None:
    frame, scores = visits(1000, 4)
    model = FMClassifier().fit(frame, scores > 0)
    expected = model.predict_proba(frame)
    mixed = frame.assign(more=1)[[*frame.columns[::-1], "more"]]
    np.testing.assert_array_equal(model.predict_proba(mixed), expected)
    np.testing.assert_array_equal(model.predict_proba(polars.from_pandas(mixed)), expected)
    again = clone(model).set_params(warm_start=True).fit(frame, scores > 0)
    np.testing.assert_array_equal(again.fit(mixed, scores > 0).weights_, again.partial_fit(frame, scores > 0).weights_)
    with pytest.raises(ValueError, match="lacks columns .*: 'age', 'city'$|lacks columns .*: 'city', 'age'"):
        model.predict(frame.drop(columns=["age", "city"]))
    with pytest.raises(ValueError, match="learned a frame with the columns city, kind, age, pages, money and 2 more"):
        model.predict(np.zeros((3, 7)))
    with pytest.raises(AttributeError, match="weights_ has their weights"):
        model.coef_


def test_what_is_not_known_has_no_weight() -> None:
    frame, scores = visits(1000, 5)
    model = FMClassifier().fit(frame, scores > 0)
    strange = frame.assign(city="Rome", kind="none")
    margins = model.decision_function(strange)
    without = copy.deepcopy(model)
    cities, kinds = gannet.keys("city", ["Kiel", "Ulm", "Bonn", None]), gannet.keys("kind", ["old", "new", "odd"])
    keys = np.concatenate([cities, kinds])
    places = np.isin(model.feature_keys_, keys)
    assert places.sum() == 7
    without.weights_[:, places] = 0
    without.factors_[:, places] = 0
    np.testing.assert_allclose(margins, without.decision_function(frame), rtol=0, atol=1e-12)
    # They get weights when they are learned.
    before = len(model.feature_keys_)
    model.partial_fit(strange, scores > 0)
    assert len(model.feature_keys_) == before + 2 and model.weights_.shape == (1, before + 2)


@pytest.mark.parametrize(
    "estimator", [FTRLClassifier(), FMClassifier(), DeepFMClassifier(), LinearRegressor(), FMRegressor()], ids=repr
)
def test_it_goes_on_where_it_stopped(estimator: Any) -> None:
    frame, scores = visits(1024, 6)
    labels = labels_for(estimator, scores)
    first = {"classes": [0, 1]} if hasattr(estimator, "predict_proba") else {}
    parts = clone(estimator).partial_fit(frame, labels, **first)
    parts = pickle.loads(pickle.dumps(parts)).partial_fit(frame, labels)
    whole = clone(estimator).set_params(epochs=2).fit(frame, labels)
    warm = clone(estimator).set_params(warm_start=True).fit(frame, labels)
    if hasattr(warm, "hidden"):
        # The same units in another list.
        warm.set_params(hidden=np.array(warm.hidden))
    for other in (parts, copy.deepcopy(warm).fit(frame, labels)):
        np.testing.assert_array_equal(other.weights_, whole.weights_)
        np.testing.assert_array_equal(other.predict(frame), whole.predict(frame))


def test_it_works_as_scikit_learn_wants() -> None:
    frame, scores = visits(600, 7)
    labels = np.where(scores > 0, "yes", "no")
    search = GridSearchCV(FTRLClassifier(epochs=3), {"alpha": [1e-4, 0.3]}, cv=3).fit(frame, labels)
    assert search.best_params_ == {"alpha": 0.3} and search.best_score_ > 0.75
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows.assign(late=rows.pages > 5)), FMClassifier(epochs=3))
    assert cross_val_score(pipeline, polars.from_pandas(frame).to_pandas(), labels, cv=3).mean() > 0.75
    assert cross_val_score(LogisticRegression(), polars.from_pandas(frame), labels, cv=3).mean() > 0.75
    for estimator in (FTRLClassifier(), FMClassifier(), DeepFMClassifier()):
        early = clone(estimator).set_params(epochs=50, early_stopping=True, n_iter_no_change=2, random_state=1)
        early.fit(frame, labels, sample_weight=np.where(labels == "yes", 2.0, 1.0))
        assert early.n_iter_ < 50 and early.best_validation_score_ > 0.6
        shorter = clone(early).set_params(epochs=early.n_iter_ - 2)
        shorter.fit(frame, labels, sample_weight=np.where(labels == "yes", 2.0, 1.0))
        np.testing.assert_array_equal(shorter.weights_, early.weights_)


def test_weights_of_examples_count() -> None:
    frame, scores = visits(1000, 8)
    labels = scores > 0
    first = np.where(np.arange(1000) < 500, 1.0, 0.0)
    # Without normalization, which looks at all rows.
    model = FTRLClassifier(normalize=False)
    weights = clone(model).fit(frame, labels, first)
    half = clone(model).fit(frame[:500], labels[:500])
    common = np.isin(weights.feature_keys_, half.feature_keys_)
    np.testing.assert_array_equal(weights.weights_[:, common], half.weights_)
    assert not weights.weights_[:, ~common].any()
    given = clone(model).set_params(class_weight={True: 3.0, False: 1.0}).fit(frame, labels)
    np.testing.assert_array_equal(given.weights_, clone(model).fit(frame, labels, 1.0 + 2.0 * labels).weights_)


@pytest.mark.parametrize("estimator", [FTRLClassifier(), FTRLClassifier(solver="lbfgs", l2=0.1), DeepFMClassifier()])
def test_more_classes_are_a_problem_each(estimator: Any) -> None:
    frame, scores = visits(1000, 9)
    names = np.array(["a", "b", "c"])[np.digitize(scores, [-3.5, 0.5])]
    model = clone(estimator).fit(frame, names)
    assert model.weights_.shape == (3, len(model.feature_keys_)) and model.intercept_.shape == (3,)
    for problem, label in enumerate("abc"):
        alone = clone(estimator).fit(frame, names == label)
        np.testing.assert_array_equal(alone.weights_[0], model.weights_[problem])
        np.testing.assert_array_equal(alone.decision_function(frame), model.decision_function(frame)[:, problem])


def test_servers_have_the_same_bits(cluster: gannet.LocalCluster) -> None:
    frame, scores = visits(500, 10)
    for estimator in (FTRLClassifier(), DeepFMClassifier(), LogisticRegression()):
        here = clone(estimator).fit(frame, scores > 0)
        there = clone(estimator).set_params(servers=cluster).fit(frame, scores > 0)
        np.testing.assert_array_equal(there.weights_, here.weights_)
        np.testing.assert_array_equal(there.predict_proba(frame), here.predict_proba(frame))
        if isinstance(estimator, DeepFMClassifier):
            run = there.tables_[0].rpartition(".")[0]
            assert there.tables_ == [f"{run}.{table}" for table in ("deepfm", "deepfm.1", "deepfm.2", "deepfm.3")]
        if hasattr(estimator, "partial_fit"):
            again = pickle.loads(pickle.dumps(there)).partial_fit(frame, scores > 0)
            np.testing.assert_array_equal(again.weights_, here.partial_fit(frame, scores > 0).weights_)


def test_a_frame_of_floats_is_a_matrix() -> None:
    floats = load_iris(as_frame=True).data
    labels = load_iris().target > 0
    model = FTRLClassifier().fit(floats, labels)
    np.testing.assert_array_equal(model.coef_, FTRLClassifier().fit(floats.to_numpy(), labels).coef_)
    with pytest.raises(ValueError, match="same order"):
        model.predict(floats[floats.columns[::-1]])
    np.testing.assert_array_equal(FTRLClassifier().fit(polars.from_pandas(floats), labels).coef_, model.coef_)
    # A missing value, or a column that is named, makes columns with features of it.
    for given, frame in (
        ({}, floats.mask(floats > 5)),
        ({"numeric_features": list(floats.columns)}, floats),
        ({}, polars.from_pandas(floats.mask(floats > 5))),
    ):
        table = FTRLClassifier(**given).fit(frame, labels)
        assert not hasattr(table, "coef_") and table.weights_.shape[1] >= 4
        table.predict(frame)


def test_columns_are_what_one_says() -> None:
    frame, scores = visits(500, 11)
    labels = scores > 0
    values = {"pages": frame["pages"].unique(), "code": ["007", "012", "113"]}
    weights = {column: gannet.keys(column, of_column) for column, of_column in values.items()}

    def has(model: Any, column: str) -> int:
        return int(np.isin(weights[column], model.feature_keys_).sum())

    both = FTRLClassifier().fit(frame, labels)
    assert has(both, "code") == 3
    category = FTRLClassifier(categorical_features=["pages"]).fit(frame, labels)
    assert has(category, "pages") == len(weights["pages"]) and has(category, "code") == 3
    number = FTRLClassifier(numeric_features=["pages", "code"]).fit(frame, labels)
    assert has(number, "pages") == has(number, "code") == 0
    for wrong, text in (
        ({"categorical_features": ["age"]}, "'age', a column of floats"),
        ({"categorical_features": ["Age"]}, "names 'Age', and the frame has no such column"),
        ({"categorical_features": ["pages"], "numeric_features": ["pages"]}, "'pages' is in categorical_features and"),
        ({"numeric_features": "pages"}, "a list of names of columns is wanted"),
        ({"numeric_features": ["city"]}, "expected a number.*column \"city\""),
    ):
        with pytest.raises(ValueError, match=text):
            FTRLClassifier(**wrong).fit(frame, labels)
    with pytest.raises(ValueError, match="has type Struct.*drop it"):
        FTRLClassifier().fit(polars.DataFrame({"a": [{"x": 1}] * 4}), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="X is a ndarray"):
        FTRLClassifier(numeric_features=["pages"]).fit(np.zeros((4, 2)), [0, 1, 0, 1])


def test_a_column_may_be_called_label_or_have_no_name() -> None:
    frame, scores = visits(300, 12)
    named = FTRLClassifier().fit(frame.rename(columns={"city": "label"}), scores > 0)
    assert named.weights_.shape == FTRLClassifier().fit(frame, scores > 0).weights_.shape
    numbered = frame.set_axis(range(7), axis=1)
    model = FTRLClassifier().fit(numbered, scores > 0)
    assert not hasattr(model, "feature_names_in_") and model.n_features_in_ == 7
    assert model.score(numbered[numbered.columns[::-1]], scores > 0) == model.score(numbered, scores > 0)


def test_a_refused_frame_changes_nothing() -> None:
    frame, scores = visits(300, 13)
    model = FTRLClassifier().fit(frame, scores > 0)
    before = model.predict_proba(frame)
    new = frame.assign(city="Rome")
    for refused in (lambda: model.partial_fit(new, scores), lambda: model.fit(new, np.zeros(300))):
        with pytest.raises(ValueError):
            refused()
        np.testing.assert_array_equal(model.predict_proba(frame), before)
        assert not np.isin(gannet.keys("city", ["Rome"]), model.feature_keys_)[0]
    # A matrix replaces a frame as a whole, and a frame a matrix.
    matrix = FTRLClassifier().fit(np.eye(4), [0, 1, 0, 1])
    model.fit(np.eye(4), [0, 1, 0, 1])
    np.testing.assert_array_equal(model.coef_, matrix.coef_)
    assert not hasattr(model, "weights_") and not hasattr(model, "feature_keys_")
    np.testing.assert_array_equal(model.fit(frame, scores > 0).predict_proba(frame), before)
    assert not hasattr(model, "coef_")


def test_types_are_those_of_the_command(tmp_path: Path) -> None:
    """Texts of numbers, few numbers, codes, and numbers of which some are missing: all as in the CSV file."""
    random = np.random.default_rng(14)
    frame = pd.DataFrame(
        {
            "text": random.choice(["1.5", "2.5", "3.5", "4"], 800),
            "few": random.integers(0, 2, 800),
            "mostly": random.choice(["1", "2", "3", "4", "5", "6", "7", "8", "9", "x"], 800, p=[0.11] * 9 + [0.01]),
            "some": pd.array(random.integers(0, 50, 800), "Int64"),
            "day": random.choice(["2026-11-27", "2026-11-28"], 800),
        }
    )
    frame.loc[::9, "some"] = pd.NA
    labels = (frame["few"] + random.normal(size=800) > 0.5).astype(int)
    _, predicted = trained_on_rows(tmp_path, frame, labels, "")
    model = FTRLClassifier().fit(frame, labels)
    np.testing.assert_allclose(predictions(model, frame), predicted, rtol=3e-6, atol=3e-6)
    assert set(gannet.keys("few", [0, 1])) <= set(model.feature_keys_)
    assert gannet.keys("text", ["1.5"])[0] not in model.feature_keys_
