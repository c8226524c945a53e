"""FTRLClassifier as scikit-learn wants it, and beside the command: both predict the same."""

import json
import pickle
import subprocess

import gannet
import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.feature_extraction import FeatureHasher
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from gannet.sklearn import FTRLClassifier


# SGDClassifier fails these two as well: examples that are learned one after the other depend on their order, so a
# weight is not the same as a repeated example.
ONLINE = {"check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"}


@pytest.mark.parametrize(
    "estimator, check",
    list(estimator_checks_generator(FTRLClassifier(epochs=20), legacy=True)),
    ids=lambda value: getattr(getattr(value, "func", None), "__name__", None),
)
def test_it_is_an_estimator_of_scikit_learn(estimator, check):
    if check.func.__name__ in ONLINE:
        pytest.xfail("online learning")
    check(estimator)


def hashed(count, seed):
    """Examples with 8 of 1,000 features, and labels that depend on them."""
    random = np.random.default_rng(seed)
    truth = np.random.default_rng(7).normal(size=1000)
    columns = np.sort(random.permuted(np.tile(np.arange(1000), (count, 1)), axis=1)[:, :8], axis=1)
    labels = (truth[columns].sum(axis=1) + random.normal(size=count) > 0).astype(int)
    values = np.ones(count * 8)
    return sparse.csr_matrix((values, columns.ravel(), np.arange(0, count * 8 + 1, 8)), (count, 1000)), labels


def test_it_predicts_as_the_command_does(tmp_path):
    rows, labels = hashed(3000, 1)
    with open(tmp_path / "rows.svm", "w") as file:
        for i in range(rows.shape[0]):
            columns = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
            file.write("%d %s\n" % (labels[i], " ".join("%d:1" % column for column in columns)))
    flags = "--alpha 0.2 --beta 0.5 --l1 0.1 --l2 1 --epochs 2 --json --out model"
    done = subprocess.run(
        [gannet.command(), "train", "rows.svm", *flags.split()], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    model = FTRLClassifier(alpha=0.2, beta=0.5, l1=0.1, l2=1.0, epochs=2).fit(rows, labels)
    predicted = subprocess.run(
        [gannet.command(), "predict", "--model", "model", "rows.svm"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert predicted.returncode == 0, predicted.stderr
    scores = np.array(predicted.stdout.split(), float)
    chances = model.predict_proba(rows)[:, 1]
    assert scores.shape == chances.shape
    np.testing.assert_allclose(scores, chances, rtol=0, atol=2e-6)
    assert json.loads(done.stdout)["rows"] >= (model.coef_ != 0).sum()


def test_it_goes_on_where_it_stopped():
    rows, labels = hashed(2000, 2)
    whole = FTRLClassifier().fit(rows, labels)
    parts = FTRLClassifier()
    for part in range(0, 2000, 300):
        parts.partial_fit(rows[part : part + 300], labels[part : part + 300], classes=[0, 1])
        parts = pickle.loads(pickle.dumps(parts))
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    np.testing.assert_array_equal(parts.intercept_, whole.intercept_)
    again = FTRLClassifier(warm_start=True).fit(rows, labels).fit(rows, labels)
    np.testing.assert_array_equal(again.coef_, FTRLClassifier(epochs=2).fit(rows, labels).coef_)


def test_l1_makes_weights_exactly_zero_and_weights_count():
    rows, labels = hashed(2000, 3)
    sparse_model = FTRLClassifier(l1=5.0).fit(rows, labels)
    dense_model = FTRLClassifier().fit(rows, labels)
    assert 0 < (sparse_model.coef_ != 0).sum() < (dense_model.coef_ != 0).sum()
    weightless = np.where(np.arange(2000) < 1000, 1.0, 0.0)
    half = FTRLClassifier().fit(rows[:1000], labels[:1000])
    np.testing.assert_array_equal(FTRLClassifier().fit(rows, labels, weightless).coef_, half.coef_)


def test_it_works_in_pipelines_and_searches():
    rows, labels = hashed(600, 4)
    words = [{"w%d" % column: 1.0 for column in row.indices} for row in rows]
    pipeline = make_pipeline(FeatureHasher(n_features=2**18), FTRLClassifier(epochs=5))
    search = GridSearchCV(pipeline, {"ftrlclassifier__alpha": [0.001, 0.3]}, cv=3).fit(words, labels)
    assert search.best_params_ == {"ftrlclassifier__alpha": 0.3}
    dense, classes = make_classification(400, 10, n_informative=8, n_classes=3, random_state=1)
    names = np.array(["a", "b", "c"])[classes]
    model = FTRLClassifier(epochs=10, class_weight="balanced", random_state=1).fit(dense, names)
    assert model.score(dense, names) > 0.6
    np.testing.assert_allclose(model.predict_proba(dense).sum(axis=1), 1)


def test_bad_parameters_are_named():
    rows, labels = hashed(50, 5)
    with pytest.raises(ValueError, match="alpha=0"):
        FTRLClassifier(alpha=0).fit(rows, labels)
    with pytest.raises(ValueError, match="have one class|class"):
        FTRLClassifier().fit(rows, np.zeros(50))
    with pytest.raises(ValueError, match="first call"):
        FTRLClassifier().partial_fit(rows, labels)
