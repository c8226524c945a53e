"""The estimators beside the command: on the same examples both have the same weights, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gannet
from gannet.sklearn import DeepFMClassifier, FMClassifier, FTRLClassifier, LinearRegressor
from rows import hashed, scored, trained_by_the_command

# The weights of a regression: an estimator, the flags of the command, and the rule of the saved table.
WEIGHTS: list[Any] = [
    pytest.param(
        FTRLClassifier(alpha=0.2, beta=0.5, l1=0.1, l2=1.0, epochs=2),
        "--alpha 0.2 --beta 0.5 --l1 0.1 --l2 1 --epochs 2",
        gannet.Ftrl(0.2, 0.5, 0.1, 1.0),
        id="ftrl",
    ),
    pytest.param(
        FTRLClassifier(solver="lbfgs", l2=0.3), "--optimizer lbfgs --l2 0.3", gannet.Add(), id="lbfgs"
    ),
    pytest.param(
        FTRLClassifier(solver="lbfgs", l1=0.7, l2=0.1, max_iter=20, tol=0.0, fit_intercept=False),
        "--optimizer lbfgs --l1 0.7 --l2 0.1 --max-iter 20 --tolerance 0 --no-intercept",
        gannet.Add(),
        id="lbfgs-l1",
    ),
    pytest.param(
        LinearRegressor(l2=0.01, epochs=3),
        "--model linear --l2 0.01 --epochs 3",
        gannet.Adagrad(0.5, 1e-8, 1.0),
        id="linear",
    ),
    pytest.param(
        LinearRegressor(optimizer="ftrl", alpha=0.1, l1=0.5, batch_size=100),
        "--model linear --optimizer ftrl --alpha 0.1 --l1 0.5 --batch 100",
        gannet.Ftrl(0.1, 1.0, 0.5, 0.0),
        id="linear-ftrl",
    ),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator, flags, rule", WEIGHTS)
def test_it_has_the_weights_of_the_command(
    tmp_path: Path, cluster: gannet.LocalCluster, name: str, estimator: Any, flags: str, rule: gannet.Optimizer
) -> None:
    regression = isinstance(estimator, LinearRegressor)
    rows, labels = scored(3000, 1) if regression else hashed(3000, 1)
    if regression:
        # What the command reads: the nearest decimal of a float32.
        labels = np.array([float("%.6g" % label) for label in labels])
    _, predicted = trained_by_the_command(tmp_path, rows, labels, flags)
    model = estimator.fit(rows, labels)
    # Servers read the command's model, so that its weights can be pulled.
    (tmp_path / "model").rename(tmp_path / name)
    with gannet.connect(cluster.servers) as client:
        table = client.table(name, 1, optimizer=rule, init=gannet.Zero())
        assert client.load(tmp_path)[name] > 100
        weights = table.pull(np.arange(1000))[:, 0]
        intercept = table.pull(np.array([2**64 - 1], np.uint64))[0, 0]
    np.testing.assert_array_equal(np.float32(model.coef_).ravel(), weights)
    np.testing.assert_array_equal(np.float32(model.intercept_), [intercept])
    ours = model.predict(rows) if regression else model.predict_proba(rows)[:, 1]
    np.testing.assert_allclose(ours, predicted, rtol=2e-6 if regression else 0, atol=2e-6)


@pytest.mark.parametrize(
    "estimator, flags",
    [
        (FMClassifier(epochs=3, l2=0.001), "--model fm --epochs 3 --l2 0.001"),
        (
            FMClassifier(optimizer="ftrl", alpha=0.1, l1=0.1, factors=3, deviation=0.2, batch_size=64),
            "--model fm --optimizer ftrl --alpha 0.1 --l1 0.1 --factors 3 --deviation 0.2 --batch 64",
        ),
        (
            FMClassifier(optimizer="sgd", fit_intercept=False),
            "--model fm --optimizer sgd --alpha 0.05 --no-intercept",
        ),
        (
            DeepFMClassifier(epochs=2, factors=4, hidden=[16, 8, 4]),
            "--model deepfm --epochs 2 --factors 4 --hidden 16,8,4",
        ),
    ],
    ids=["adagrad", "ftrl", "sgd", "deepfm"],
)
def test_a_factorization_machine_predicts_as_the_command_does(tmp_path: Path, estimator: Any, flags: str) -> None:
    rows, labels = hashed(3000, 1)
    report, predicted = trained_by_the_command(tmp_path, rows, labels, flags)
    chances = estimator.fit(rows, labels).predict_proba(rows)[:, 1]
    # The command computes in float32, and prints six digits.
    np.testing.assert_allclose(chances, predicted, rtol=0, atol=3e-6)
    loss = -np.mean(np.log(np.where(labels == 1, chances, 1 - chances)))
    assert loss < report["logloss"]
