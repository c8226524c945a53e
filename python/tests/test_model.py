"""`gannet.load`: a model that the command wrote says what the command says, of every kind and for all kinds of data."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import gannet
from processes import line_of, run_python
from rows import hashed, run_command, write_svm

CITIES = ["Kiel", "Ulm", "Bonn", None, "a<b>&c"]
KINDS: list[Any] = [
    ("lr", "clicked"),
    ("lr --optimizer lbfgs --cross city,n", "clicked"),
    ("lr --scale standard --no-intercept", "clicked"),
    ("linear --loss logistic --l2 0.001", "clicked"),
    ("linear --loss hinge", "clicked"),
    ("linear --loss poisson", "count"),
    ("linear --loss quantile:0.9", "amount"),
    ("linear", "amount"),
    ("softmax --classes 3", "class"),
    ("fm --factors 3", "clicked"),
    ("fm --factors 3 --loss squared", "amount"),
    ("ffm --factors 2", "clicked"),
    ("ffm --factors 2 --loss hinge --row-type bf16", "clicked"),
    ("deepfm --factors 2 --hidden 4,3", "clicked"),
    ("deepfm --factors 2 --hidden 4 --loss squared", "amount"),
    ("mf --factors 2 --categorical city,device", "amount"),
]


def table(count: int = 300, seed: int = 1) -> pd.DataFrame:
    """Texts, numbers, missing values of both, and four labels."""
    random = np.random.default_rng(seed)
    city, age, n = random.integers(0, 5, count), random.normal(40, 12, count).round(1), random.integers(0, 9, count)
    score = np.array([0.5, -1, 0, 0.3, 1])[city] + (age - 40) / 20 + 0.1 * n + random.normal(0, 0.5, count)
    age[random.random(count) < 0.2] = np.nan
    labels = {
        "clicked": (score > 0.5).astype(int),
        "amount": score.round(3),
        "count": random.poisson(np.exp(score / 2)),
        "class": np.clip(score + 1, 0, 2).astype(int),
    }
    device = np.array(["phone", "desktop"])[random.integers(0, 2, count)]
    features = {"city": [CITIES[c] for c in city], "device": device, "age": age, "n": n}
    return pd.DataFrame({**labels, **features})


def trained(folder: Path, frame: pd.DataFrame, flags: str, label: str) -> gannet.Model:
    """The model `folder/model` of the command, trained on `folder/data.csv`."""
    own = frame.drop(columns=[name for name in ("clicked", "amount", "count", "class") if name != label])
    own.to_csv(folder / "data.csv", index=False)
    own.to_parquet(folder / "data.parquet", index=False)
    passes = [] if "lbfgs" in flags else ["--epochs", "2"]
    run_command(folder, "train", "data.csv", "--label", label, "--model", *flags.split(), *passes, "--out", "model")
    return gannet.load(folder / "model")


def lines_of(model: gannet.Model, data: Any) -> list[str]:
    """What `gannet predict` prints for this data, by the model's own numbers."""
    if model.loss == "hinge":
        return ["%.6f" % margin for margin in model.decision_function(data)]
    if model.classes is None:
        return ["%.6f" % number for number in model.predict(data)]
    chances = model.predict_proba(data)
    assert chances.dtype == np.float32
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-6)
    if model.kind == "softmax":
        best = model.predict(data)
        return ["%d %.6f" % (label, row[label]) for label, row in zip(best, chances)]
    return ["%.6f" % chance for chance in chances[:, 1]]


def said(folder: Path, *data: str) -> list[str]:
    return run_command(folder, "predict", "--model", "model", *data).splitlines()


@pytest.mark.parametrize("flags, label", KINDS, ids=[flags.replace(" ", "") for flags, _ in KINDS])
def test_every_kind_says_what_the_command_says(tmp_path: Path, flags: str, label: str) -> None:
    frame = table()
    model = trained(tmp_path, frame, flags, label)
    assert model.kind == flags.split()[0] and model.ended is None
    expected = said(tmp_path, "data.csv")
    assert len(set(expected)) > 3
    bare = frame[["city", "device", "age", "n"]].assign(other="no column of the model")
    kinds = {
        "CSV": tmp_path / "data.csv",
        "Parquet": [str(tmp_path / "data.parquet")],
        "pandas": frame,
        "without labels": bare,
        "polars": pl.from_pandas(bare),
        "a Dataset of a file": gannet.Dataset(tmp_path / "data.csv", label=label, labels=None),
        "a Dataset of a table": gannet.Dataset(bare, labels=None, ignore=["city"]),
    }
    for kind, data in kinds.items():
        assert lines_of(model, data) == expected, kind
    explained = model.explain(bare)
    margins = model.decision_function(bare)
    if model.kind == "softmax":
        assert [one.output for one in explained] == list(margins.argmax(axis=1))
        margins = margins.max(axis=1)
    np.testing.assert_allclose([one.margin for one in explained], margins, rtol=1e-5, atol=1e-5)
    by_command = [json.loads(line) for line in said(tmp_path, "--explain", "data.csv")]
    for ours, theirs in zip(explained, by_command):
        rest = {name: value for name, value in theirs["contributions"].items() if name[0] != "("}
        assert ours.contributions == pytest.approx(rest, rel=1e-12)
        assert ours.margin == pytest.approx(theirs["margin"], rel=1e-9, abs=1e-12)
    for data, words in [(None, []), (bare, ["data.csv"])]:
        report = json.loads(run_command(tmp_path, "inspect", "model", *words, "--json", "--top", "5"))
        for weight, shown in zip(model.weights(5, data), report["features"], strict=True):
            assert (weight.name, weight.key) == (shown["name"], shown["key"])
            assert weight.weight == pytest.approx(shown["weight"], rel=1e-9)
            assert weight.factors == pytest.approx(shown.get("factors", 0.0), rel=1e-9)
            assert (weight.output, weight.per_unit) == (shown.get("class"), pytest.approx(shown.get("per_unit")))
        assert model.intercept == (None if "intercept" not in report else pytest.approx(report["intercept"]))
        assert model.rows == report["rows"]


def test_crosses_have_names(tmp_path: Path) -> None:
    model = trained(tmp_path, table(), "lr --cross city,n --cross device,city", "clicked")
    names = {weight.name for weight in model.weights(1000, table())}
    assert any(name.startswith("city=Kiel * n") or name.endswith("* city=Kiel") for name in names), names
    assert not any(name.isdigit() for name in names)


def test_matrices_are_libsvm(tmp_path: Path) -> None:
    rows, labels = hashed(400, 1)
    write_svm(tmp_path / "data.svm", rows, labels)
    for flags in ("lr", "fm --factors 2", "softmax --classes 2"):
        run_command(tmp_path, "train", "data.svm", "--model", *flags.split(), "--out", "model")
        model, expected = gannet.load(tmp_path / "model"), said(tmp_path, "data.svm")
        for data in (tmp_path / "data.svm", rows, sparse.coo_array(rows), rows.toarray(), rows.toarray().astype(int)):
            assert lines_of(model, data) == expected, (flags, type(data))
        dataset = gannet.Dataset(rows, label=labels)
        assert lines_of(model, dataset) == expected
        shutil.rmtree(tmp_path / "model")
    # Names of features are their ids.
    assert model.weights(3, rows) == model.weights(3)
    assert set(model.explain(rows)[0].contributions) == {*map(str, rows.indices[:8]), "intercept"}
    with pytest.raises(gannet.InputError, match="data is a table, and the model was trained on libsvm"):
        model.predict(table())
    with pytest.raises(gannet.InputError, match=r"array object \(3,\); numbers \(n, features\) are wanted"):
        model.predict(np.array([None, 1, "x"], object))


def test_examples_of_another_shape_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.svm").write_text("3 1:1 7:1\n2 2:1 7:1\n4 1:1 8:1\n")
    run_command(tmp_path, "train", "data.svm", "--model", "mf", "--out", "model")
    model = gannet.load(tmp_path / "model")
    for call in (model.predict, model.explain):
        with pytest.raises(gannet.InputError, match="example 2 of the pass: matrix factorization needs two features"):
            call(np.array([[0, 1, 0, 1], [0, 1, 1, 1]]))


def test_namespaces_and_fields(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    picks = [(int(u), int(i)) for u, i in random.integers(0, 6, (200, 2))]
    vw = ["%d |user u%d |item i%d price:%.2f" % (1 if u < i else -1, u, i, i / 3) for u, i in picks]
    ffm = ["%d 0:%d:1 1:%d:1" % (u < i, u, 10 + i) for u, i in picks]
    (tmp_path / "data.vw").write_text("\n".join(vw) + "\n")
    (tmp_path / "data.ffm").write_text("\n".join(ffm) + "\n")
    cases = [("data.vw", "lr -q ui"), ("data.vw", "deepfm --factors 2 --hidden 3"), ("data.ffm", "ffm --factors 2")]
    for file, flags in cases:
        run_command(tmp_path, "train", file, "--model", *flags.split(), "--out", "model")
        model = gannet.load(tmp_path / "model")
        assert lines_of(model, tmp_path / file) == said(tmp_path, file)
        names = {name for one in model.explain(tmp_path / file) for name in one.contributions}
        assert ("user^u1" if file == "data.vw" else "0:1") in names
        shutil.rmtree(tmp_path / "model")
    with pytest.raises(gannet.InputError, match="data is a matrix, .* trained on libffm"):
        model.predict(sparse.csr_matrix((2, 3)))
    with pytest.raises(gannet.InputError, match="data.vw is vw, and the model in .* was trained on libffm"):
        model.predict(tmp_path / "data.vw")


def test_labels_of_two_values(tmp_path: Path) -> None:
    frame = table()
    frame["clicked"] = np.where(frame["clicked"] == 1, "yes", "no")
    model = trained(tmp_path, frame, "lr --positive yes", "clicked")
    assert model.classes is not None and model.classes.tolist() == ["no", "yes"]
    predicted = model.predict(frame)
    assert predicted.tolist() == ["yes" if float(line) > 0.5 else "no" for line in said(tmp_path, "data.csv")]
    assert (predicted == frame["clicked"]).mean() > 0.7
    assert np.array_equal(predicted == "yes", model.decision_function(frame) > 0)
    # Labels are not read, however a frame spells them.
    for labels in (predicted == "yes", np.nan, 7):
        assert model.predict(frame.assign(clicked=labels)).tolist() == predicted.tolist()


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    model = trained(tmp_path, table(), "lr", "clicked")
    frame = table().drop(columns=["age", "clicked"])
    for data in (frame, pl.from_pandas(frame), gannet.Dataset(frame, labels=None)):
        with pytest.raises(gannet.InputError, match=r'no column "age" \(the model was trained on it\)'):
            model.predict_proba(data)
    frame.to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(gannet.InputError, match=r'other.csv: no column "age"'):
        model.predict_proba(tmp_path / "other.csv")
    with pytest.raises(TypeError, match="data is a int"):
        model.predict_proba(7)


def test_what_predicts_no_probabilities(tmp_path: Path) -> None:
    model = trained(tmp_path, table(), "linear", "amount")
    with pytest.raises(gannet.InputError, match=r"\(linear, loss squared\) predicts no probabilities, but numbers"):
        model.predict_proba(table())


def test_folders_without_a_whole_model(tmp_path: Path) -> None:
    with pytest.raises(gannet.GannetError, match="nothing"):
        gannet.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(gannet.InputError, match="empty"):
        gannet.load(tmp_path / "empty")
    trained(tmp_path, table(), "deepfm --factors 2 --hidden 3", "clicked")
    torn = tmp_path / "torn"
    for folder in [path for path in (tmp_path / "model").iterdir() if path.is_dir() and "previous" not in path.name]:
        shutil.copytree(tmp_path / "model", torn)
        shutil.rmtree(torn / folder.name)
        with pytest.raises(gannet.GannetError, match="torn"):
            gannet.load(torn)
        shutil.rmtree(torn)
    largest = max((tmp_path / "model").iterdir(), key=lambda path: path.stat().st_size if path.is_file() else 0)
    largest.write_bytes(largest.read_bytes()[:-9])
    with pytest.raises(gannet.InputError, match="model"):
        gannet.load(tmp_path / "model")
    rows, _ = hashed(50, 1)
    write_svm(tmp_path / "words.svm", rows, np.zeros(50))
    run_command(tmp_path, "train", "words.svm", "--model", "lda", "--topics", "2", "--out", "topics")
    with pytest.raises(gannet.InputError, match="holds lda of dim 2; gannet.load reads models that"):
        gannet.load(tmp_path / "topics")


def test_it_is_shown_pickled_and_shared(tmp_path: Path) -> None:
    frame = table().rename(columns={"device": "<device>"})
    model = trained(tmp_path, frame, "fm --factors 3", "clicked")
    assert repr(model).startswith(f"<gannet.Model fm in {str(tmp_path / 'model')!r}: loss logistic, factors 3, rows ")
    shown = model._repr_html_()
    assert "&lt;device&gt;" in shown and "<device>" not in shown
    expected = lines_of(model, frame)
    copy = pickle.loads(pickle.dumps(model))
    assert lines_of(copy, frame) == expected
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: lines_of(model, frame), range(12))) == [expected] * 12


def test_bad_lines_are_skipped_as_a_dataset_says(tmp_path: Path) -> None:
    model = trained(tmp_path, table(), "lr", "clicked")
    expected = said(tmp_path, "data.csv")
    with open(tmp_path / "data.csv", "a") as file:
        file.write("1,Kiel\n")
    with pytest.raises(gannet.InputError, match="data.csv"):
        model.predict(tmp_path / "data.csv")
    lenient = gannet.Dataset(tmp_path / "data.csv", labels=None, skip_bad_lines=1)
    with pytest.warns(UserWarning, match="bad lines were skipped: 1"):
        assert ["%.6f" % chance for chance in model.predict_proba(lenient)[:, 1]] == expected


def test_ctrl_c_ends_a_call(tmp_path: Path) -> None:
    trained(tmp_path, table(), "lr", "clicked")
    os.mkfifo(tmp_path / "waits.csv")
    code = """
        import signal, gannet
        signal.signal(signal.SIGINT, signal.default_int_handler)
        model = gannet.load("model")
        data = gannet.Dataset("waits.csv", format="csv", labels=None)
        print("ready", flush=True)
        try:
            model.predict(data)
        except KeyboardInterrupt:
            print(len(model.predict("data.csv")))
    """
    with run_python(tmp_path, code) as process:
        assert line_of(process) == "ready"
        # The call has begun: it has opened the pipe. Nothing more comes.
        with open(tmp_path / "waits.csv", "w") as pipe:
            pipe.write("city,device,age,n\n")
            pipe.flush()
            process.send_signal(signal.SIGINT)
            assert line_of(process) == "300"
