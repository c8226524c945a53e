"""`gannet export`: onnxruntime agrees with `gannet predict` on the same examples."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gannet

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

FILL = -1
ROWS = 3000
NUMERIC = ["small", "skewed"]
TARGETS = ["click", "level", "amount", "count"]


def run(*words: Any) -> str:
    done = subprocess.run([gannet.command(), *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two categories, a small number, a skewed one with missing values, and labels of several kinds."""
    random = np.random.default_rng(5)
    city, shop = random.integers(0, 40, ROWS), random.integers(0, 7, ROWS)
    small, skewed = random.normal(0, 1e-3, ROWS), np.exp(random.normal(3, 2, ROWS))
    margin = np.sin(city) + np.cos(shop * city) + 800 * small + 0.3 * np.log(skewed)
    path = tmp_path_factory.mktemp("onnx") / "table.csv"
    with open(path, "w") as out:
        print("click,level,amount,count,city,shop,small,skewed", file=out)
        for i in range(ROWS):
            size = "" if i % 11 == 0 else f"{skewed[i]:.4f}"
            level = min(2, max(0, int(margin[i])))
            count = random.poisson(np.exp(np.clip(margin[i], -2, 2)))
            print(
                f"{int(margin[i] > 1)},{level},{margin[i]:.5f},{count},c{city[i]},s{shop[i]},{small[i]:.7f},{size}",
                file=out,
            )
    return path


def examples(path: Path, label: str, crosses: tuple[str, ...] = ()) -> dict[str, Any]:
    """The inputs of a graph for all examples of a table."""
    kind = "binary" if label == "click" else "number"
    others = [name for name in TARGETS if name != label]
    data = gannet.Dataset(
        str(path), label=label, labels=kind, numeric=NUMERIC, ignore=others, cross=list(crosses), fields=True
    )
    ids, values, fields = [], [], []
    for batch in data.batches(500):
        at = batch.offsets
        for i in range(len(batch)):
            ids.append(batch.keys[at[i] : at[i + 1]].view(np.int64))
            values.append(batch.values[at[i] : at[i + 1]])
            fields.append(batch.fields[at[i] : at[i + 1]].view(np.int64))
    width = max(map(len, ids)) + 2
    filled: dict[str, Any] = {
        "ids": np.full((len(ids), width), FILL, np.int64),
        "values": np.zeros((len(ids), width), np.float32),
        "fields": np.full((len(ids), width), FILL, np.int64),
    }
    for name, rows in (("ids", ids), ("values", values), ("fields", fields)):
        for i, row in enumerate(rows):
            filled[name][i, : len(row)] = row
    return filled


def outputs_of(file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    may_be_left_out = [of.name for of in session.get_overridable_initializers()]
    wanted = {of.name: inputs[of.name] for of in session.get_inputs()}
    wanted.update({name: inputs[name] for name in may_be_left_out if name in inputs})
    return dict(zip([of.name for of in session.get_outputs()], session.run(None, wanted)))


MODELS = [
    ("lr", "click", []),
    ("lr", "click", ["--optimizer", "lbfgs"]),
    ("lr", "click", ["--normalize", "off", "--scale", "log"]),
    ("lr", "click", ["--no-intercept"]),
    ("linear", "amount", []),
    ("linear", "count", ["--loss", "poisson"]),
    ("linear", "amount", ["--loss", "quantile:0.8"]),
    ("softmax", "level", ["--classes", "3"]),
    ("fm", "click", ["--epochs", "2"]),
    ("fm", "click", ["--factors", "5", "--loss", "hinge"]),
    ("fm", "amount", ["--loss", "squared"]),
    ("ffm", "click", ["--factors", "3"]),
    ("ffm", "click", ["--cross", "city,shop"]),
    ("deepfm", "click", ["--hidden", "9,7"]),
    ("deepfm", "click", ["--hidden", "8", "--cross", "city,shop"]),
]


@pytest.mark.parametrize("kind, label, flags", MODELS, ids=lambda of: " ".join(of) if isinstance(of, list) else of)
def test_onnxruntime_says_what_predict_says(
    table: Path, tmp_path: Path, kind: str, label: str, flags: list[str]
) -> None:
    others = [name for name in TARGETS if name != label]
    model, file = tmp_path / "model", tmp_path / "model.onnx"
    columns = ["--ignore", ",".join(others), "--label", label, "--numeric", ",".join(NUMERIC)]
    run("train", table, "--model", kind, "--out", model, *columns, *flags)
    run("export", model, file)
    gannet.load(model).to_onnx(tmp_path / "python.onnx")
    assert (tmp_path / "python.onnx").read_bytes() == file.read_bytes()
    onnx.checker.check_model(str(file), full_check=True)
    scaled = "--scale" in flags
    inputs = examples(table, label, tuple(flags[i + 1] for i, flag in enumerate(flags) if flag == "--cross"))
    if scaled:
        values = inputs["values"]
        # 1: a category, or that a number is missing.
        logarithms = np.sign(values) * np.log1p(np.abs(values))
        inputs["values"] = np.where(values == 1, values, logarithms).astype(np.float32)
    got = outputs_of(file, inputs)
    said = [line.split() for line in run("predict", "--model", model, table, "--label", label).splitlines()]
    name = {"click": "margin" if "hinge" in flags else "probability", "level": "probabilities"}.get(label, "prediction")
    if name == "probabilities":
        assert [int(line[0]) for line in said] == list(got["class"])
        np.testing.assert_allclose(got[name].max(axis=1), [float(line[1]) for line in said], atol=2e-6)
        np.testing.assert_allclose(got[name].sum(axis=1), 1, atol=1e-5)
    else:
        # The command prints six digits behind the point.
        np.testing.assert_allclose(got[name], [float(line[0]) for line in said], atol=2e-6, rtol=2e-6)
    assert np.ptp(got[name]) > 0.05
    nothing = outputs_of(file, {name: of[:0] for name, of in inputs.items()})
    assert all(len(of) == 0 for of in nothing.values())


def filled(rows: list[list[float]], fill: float, type: Any) -> Any:
    """Rows of one length."""
    width = max(map(len, rows)) + 1
    return np.array([row + [fill] * (width - len(row)) for row in rows], type)


@pytest.mark.parametrize("kind", ["lr", "fm", "deepfm", "mf"])
def test_ids_of_libsvm_are_inputs(tmp_path: Path, kind: str) -> None:
    random = np.random.default_rng(3)
    ids, values, data = [], [], tmp_path / "data.svm"
    with open(data, "w") as out:
        for _ in range(800):
            user, item, x = int(random.integers(0, 30)), int(random.integers(100, 120)), float(random.normal(0, 50))
            label = float((user * item) % 5) if kind == "mf" else int((user + item) % 3 + x / 40 > 1)
            ids.append([user, item] if kind == "mf" else [user, item, 500])
            values.append([1.0, 1.0] if kind == "mf" else [1.0, 1.0, round(x, 3)])
            print(label, *(f"{i}:{v}" for i, v in zip(ids[-1], values[-1])), file=out)
    model, file = tmp_path / "model", tmp_path / "model.onnx"
    run("train", data, "--model", kind, "--out", model, "--epochs", "3")
    file.write_bytes(subprocess.run([gannet.command(), "export", model, "-"], capture_output=True, check=True).stdout)
    got = outputs_of(file, {"ids": filled(ids, FILL, np.int64), "values": filled(values, 0, np.float32)})
    said = [float(line) for line in run("predict", "--model", model, data).splitlines()]
    result = got["prediction" if kind == "mf" else "probability"]
    np.testing.assert_allclose(result, said, atol=2e-6, rtol=2e-6)
    # What no example had has no part in a prediction, whatever its value.
    strange = [[10**6 + i, -(2**62) - i] for i in range(len(ids))]
    again = outputs_of(
        file,
        {
            "ids": filled([of + more for of, more in zip(ids, strange)], FILL, np.int64),
            "values": filled([of + [7.5, -3.0] for of in values], 0, np.float32),
        },
    )
    np.testing.assert_array_equal(again["prediction" if kind == "mf" else "probability"], result)


def test_the_offset_of_an_example_is_an_input(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    data = tmp_path / "data.csv"
    exposure = random.uniform(-1, 2, 1500)
    kinds = random.integers(0, 9, 1500)
    counts = random.poisson(np.exp(exposure + 0.2 * kinds - 1))
    with open(data, "w") as out:
        print("count,kind,exposure", file=out)
        for row in zip(counts, kinds, exposure):
            print("%d,k%d,%.6f" % row, file=out)
    model, file = tmp_path / "model", tmp_path / "model.onnx"
    flags = ["--model", "linear", "--loss", "poisson", "--label", "count", "--offset", "exposure"]
    run("train", data, *flags, "--out", model)
    run("export", model, file)
    ids = np.array([gannet.keys("kind", [f"k{kind}" for kind in kinds])]).reshape(-1, 1).view(np.int64)
    inputs = {"ids": ids, "values": np.ones(ids.shape, np.float32), "offset": exposure.round(6).astype(np.float32)}
    got = outputs_of(file, inputs)["prediction"]
    without = outputs_of(file, {name: inputs[name] for name in ("ids", "values")})["prediction"]
    np.testing.assert_allclose(without * np.exp(exposure.round(6)), got, rtol=1e-5)
    said = [float(line) for line in run("predict", "--model", model, data, "--label", "count").splitlines()]
    np.testing.assert_allclose(got, said, atol=3e-6, rtol=3e-6)


def test_the_base_of_vw_is_an_input(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    data, model, file = tmp_path / "data.vw", tmp_path / "model", tmp_path / "model.onnx"
    bases = random.normal(0, 2, 400).round(3)
    with open(data, "w") as out:
        for base in bases:
            word = random.integers(0, 5)
            print(1 if word + base > 2 else -1, 1, f"{base} tag|u w{word}", file=out)
    run("train", data, "--model", "fm", "--out", model)
    run("export", model, file)
    (batch,) = gannet.Dataset(str(data)).batches(400)
    ids = batch.keys.view(np.int64).reshape(400, -1)
    got = outputs_of(file, {"ids": ids, "values": np.ones(ids.shape, np.float32), "offset": batch.bases})
    said = [float(line) for line in run("predict", "--model", model, data).splitlines()]
    np.testing.assert_allclose(got["probability"], said, atol=2e-6)
