"""gannet.torch beside torch.nn: the same outputs, and the same rows after the same steps."""

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import gannet
import numpy as np
import pytest
import torch
from failing import Fails
from torch import nn

import gannet.torch

ROWS, DIM = 40, 6
CLOSE = {"rtol": 1e-6, "atol": 1e-6}

OPTIMIZERS = {
    "sgd": (gannet.Sgd(lr=0.3), lambda weights: torch.optim.SGD(weights, lr=0.3)),
    "adagrad": (
        gannet.Adagrad(lr=0.2, eps=1e-10, initial_accumulator=0.0),
        lambda weights: torch.optim.Adagrad(weights, lr=0.2),
    ),
    "momentum": (
        gannet.Momentum(lr=0.1, momentum=0.8),
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.8),
    ),
}


def rows_of(embedding, count=ROWS):
    ids = torch.arange(count)
    with torch.no_grad():
        if isinstance(embedding, (nn.Embedding, gannet.torch.Embedding)):
            return embedding(ids)
        return embedding(ids.reshape(-1, 1))


def pair(client, name, optimizer, own):
    """A model with an embedding of its own, and one with the same rows on the servers."""
    with torch.no_grad():
        own.weight *= 0.3
    model = nn.ModuleDict({"own": own})
    theirs = copy.deepcopy(model)
    rule, _ = OPTIMIZERS[optimizer]
    ours = gannet.torch.convert(copy.deepcopy(model), client, optimizer=rule, weights="keep", name=name)
    return theirs["own"], ours["own"]


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("padding", [None, 0, -1])
@pytest.mark.parametrize("by_freq", [False, True])
def test_an_embedding_learns_as_torchs_does(client, name, optimizer, padding, by_freq):
    torch.manual_seed(3)
    own = nn.Embedding(ROWS, DIM, padding_idx=padding, scale_grad_by_freq=by_freq)
    theirs, ours = pair(client, name, optimizer, own)
    step = OPTIMIZERS[optimizer][1](theirs.parameters())
    for _ in range(12):
        # Repeats within a call, and two calls before one backward pass.
        ids = [torch.randint(0, ROWS, (5, 3)), torch.randint(0, ROWS, (9,), dtype=torch.int32)]
        if padding is not None:
            ids[0][0, 0] = padding % ROWS
        factors = [torch.randn(*some.shape, DIM) for some in ids]
        outputs = []
        for embedding in (theirs, ours):
            found = [embedding(some) for some in ids]
            sum((row * factor).sin().sum() for row, factor in zip(found, factors)).backward()
            outputs.append(torch.cat([row.detach().flatten() for row in found]))
        step.step()
        step.zero_grad()
        torch.testing.assert_close(outputs[0], outputs[1], **CLOSE)
    torch.testing.assert_close(rows_of(theirs), rows_of(ours), **CLOSE)
    touched = ours.table.stats().rows
    assert touched == ROWS - (padding is not None), "the padding has no row"


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "momentum"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", ["matrix", "offsets", "last offset"])
@pytest.mark.parametrize("padding", [None, 4])
def test_a_bag_learns_as_torchs_does(client, name, optimizer, mode, shape, padding):
    if optimizer == "momentum" and (mode, shape, padding) != ("sum", "matrix", None):
        pytest.skip("one case is enough for this rule")
    torch.manual_seed(5)
    own = nn.EmbeddingBag(
        ROWS, DIM, mode=mode, padding_idx=padding, include_last_offset=shape == "last offset"
    )
    theirs, ours = pair(client, name, optimizer, own)
    step = OPTIMIZERS[optimizer][1](theirs.parameters())
    for _ in range(10):
        if shape == "matrix":
            ids, offsets = torch.randint(0, ROWS, (6, 4)), None
        else:
            ids = torch.randint(0, ROWS, (20,))
            # An empty bag is among them.
            offsets = torch.tensor([0, 3, 3, 11] + [20] * (shape == "last offset"))
        if optimizer == "momentum":
            # Torch's momentum moves rows without a gradient as well, so each row has one.
            ids = torch.randperm(ROWS).reshape(-1, 4)
        weights = torch.rand(ids.shape) if mode == "sum" else None
        outputs = []
        for embedding in (theirs, ours):
            found = embedding(ids, offsets, per_sample_weights=weights)
            outputs.append(found.detach())
            (found * torch.linspace(-1, 1, DIM)).sin().sum().backward()
        torch.testing.assert_close(outputs[0], outputs[1], **CLOSE)
        step.step()
        step.zero_grad()
    torch.testing.assert_close(rows_of(theirs), rows_of(ours), **CLOSE)


def test_a_row_is_pushed_once_in_a_backward_pass(client, name):
    embedding = gannet.torch.Embedding(client, name, 2, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero())
    before = client.counters()["applied"]
    sum(embedding(torch.tensor([1, 2, 2])).sum() for _ in range(3)).backward()
    client.flush()
    assert client.counters()["applied"] - before == 2
    assert embedding.pushes == 1
    assert embedding(torch.tensor([1, 2, 3])).tolist() == [[-3, -3], [-6, -6], [0, 0]]


def test_what_pushes_nothing(client, name):
    embedding = gannet.torch.Embedding(client, name, 2, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero())
    ids = torch.tensor([1, 2])
    with torch.no_grad():
        assert not embedding(ids).requires_grad
    with torch.inference_mode():
        assert not embedding(ids).requires_grad
    factor = torch.ones(1, requires_grad=True)
    torch.autograd.grad((embedding(ids) * factor).sum(), factor)
    embedding.requires_grad_(False)
    (embedding(ids) * factor).sum().backward()
    embedding.requires_grad_(True)

    # One look-up has its gradient before the other one fails.
    with pytest.raises(RuntimeError, match="half a pass"):
        (Fails.apply(factor) * 2 + embedding(ids).sum()).backward()
    client.flush()
    assert (embedding.table.stats().rows, embedding.pushes) == (0, 0)
    embedding(ids).sum().backward()
    assert embedding.table.stats().rows == 2
    assert embedding(ids).tolist() == [[-1, -1], [-1, -1]], "nothing of the failed pass is in it"


def test_keys_are_ids_and_positions(client, name):
    def at(position):
        return gannet.torch.Embedding(
            client, name, 1, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero(), position=position
        )

    for position, id in ((0, 7), (1, 7), (65_535, 2**48 - 1)):
        at(position)(torch.tensor([id])).sum().backward()
    keys, rows = at(0).table.items()
    assert sorted(keys.tolist()) == [7, 1 << 48 | 7, 2**64 - 1]
    assert (rows == -1).all()
    for wrong in (-1, 2**48):
        with pytest.raises(IndexError, match=f"id {wrong} .* position 1"):
            at(1)(torch.tensor([3, wrong]))
    with pytest.raises(gannet.InputError, match="position is 65536"):
        at(65_536)
    # Without a position all 64 bits are the key.
    plain = gannet.torch.Embedding(client, name + "-64", 1, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero())
    plain(torch.tensor([-1])).sum().backward()
    assert plain.table.items()[0].tolist() == [2**64 - 1]
    with pytest.raises(TypeError, match="float32"):
        plain(torch.tensor([1.0]))
    assert plain(torch.empty(0, 3, dtype=torch.int64)).shape == (0, 3, 1)


def test_the_scale_of_mixed_precision_is_divided_out(client, name):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    embedding = gannet.torch.Embedding(
        client, name, 2, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero(), grad_scaler=scaler
    )
    dense = nn.Linear(2, 1)
    step = torch.optim.SGD(dense.parameters(), lr=0.1)
    ids = torch.tensor([5])

    def backward(factor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (dense(embedding(ids)).float() * 0 + embedding(ids).sum() * factor).sum()
        scaler.scale(loss).backward()
        scaler.step(step)
        scaler.update()
        step.zero_grad()

    backward(1.0)
    assert scaler.get_scale() == 2048
    backward(0.5)
    assert embedding(ids).tolist() == [[-1.5, -1.5]]
    # GradScaler leaves a step with infinite gradients out, and so do the rows.
    backward(float("inf"))
    assert embedding(ids).tolist() == [[-1.5, -1.5]]
    assert embedding.pushes == 2


def test_a_state_names_the_rows_and_holds_none(client, name, tmp_path):
    def model():
        made = nn.Sequential(nn.Embedding(ROWS, 4), nn.Linear(4, 1))
        return gannet.torch.convert(made, client, optimizer=gannet.Sgd(lr=1.0), name=name)

    trained = model()
    for _ in range(3):
        trained(torch.tensor([1, 2])).sum().backward()
    state = trained.state_dict()
    assert state["0._extra_state"] == {"table": f"{name}.4", "position": 0, "dim": 4, "pushes": 3}
    assert sum(value.numel() for value in state.values() if isinstance(value, torch.Tensor)) == 5
    torch.save(state, tmp_path / "model.pt")
    loaded = model()
    loaded.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert loaded[0].pushes == 3
    ids = torch.tensor([[1, 2], [3, 4]])
    assert torch.equal(loaded(ids), trained(ids))

    trained(ids).sum().backward()
    with pytest.warns(UserWarning, match="stay as they are, after 4 pushes, and the state is from push 3"):
        trained.load_state_dict(state)
    other = nn.Sequential(nn.Embedding(ROWS, 4), nn.Linear(4, 1))
    gannet.torch.convert(other, client, optimizer=gannet.Sgd(lr=1.0), name=f"{name}-other")
    with pytest.raises(gannet.InputError, match="the state's table is"):
        other.load_state_dict(state)
    with pytest.raises(TypeError, match="save model.state_dict"):
        pickle.dumps(trained)
    twin = copy.deepcopy(trained)
    assert twin[0].table is trained[0].table and twin[1].weight is not trained[1].weight


def test_rows_are_saved_and_loaded_beside_the_state(client, name, tmp_path):
    model = nn.Sequential(nn.Embedding(ROWS, 4))
    gannet.torch.convert(model, client, optimizer=gannet.Adagrad(lr=0.5), name=name)
    ids = torch.arange(ROWS)
    model(ids).sum().backward()
    saved, state = model(ids).detach(), model.state_dict()
    client.save(tmp_path)
    model(ids).sum().backward()
    assert not torch.equal(model(ids), saved)
    client.load(tmp_path)
    with pytest.warns(UserWarning):
        model.load_state_dict(state)
    assert torch.equal(model(ids), saved)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.words.weight


def test_what_cannot_be_converted_is_named(client, name):
    def convert(model, **more):
        return gannet.torch.convert(model, client, optimizer=gannet.Sgd(), name=name, **more)

    with pytest.raises(gannet.InputError, match=r"out\.weight is the weight of words.*skip=\['words'\]"):
        convert(Tied())
    assert isinstance(convert(Tied(), skip=["words"]).words, nn.Embedding)
    limited = nn.Sequential(nn.Embedding(10, 4), nn.Embedding(10, 4, max_norm=1.0))
    with pytest.raises(gannet.InputError, match="1 has max_norm=1.0"):
        convert(limited)
    assert isinstance(limited[0], nn.Embedding), "the model is as it was"
    with pytest.raises(gannet.InputError, match=r"\['nothing'\]"):
        convert(Tied(), skip=["nothing"])
    with pytest.raises(gannet.InputError, match="weights is 'new'"):
        convert(Tied(), weights="new")
    with pytest.raises(gannet.InputError, match="itself an embedding"):
        convert(nn.Embedding(3, 3))

    shared = nn.Embedding(10, 4)
    model = nn.ModuleDict({"a": shared, "b": shared, "c": nn.Embedding(10, 4), "d": nn.EmbeddingBag(10, 3)})
    model["c"].weight = shared.weight
    convert(model)
    assert model["a"] is model["b"]
    assert [model[key].position for key in "acd"] == [0, 0, 1]
    assert [model[key].table.name for key in "acd"] == [f"{name}.4", f"{name}.4", f"{name}.3"]
    with pytest.raises(AttributeError, match="has no weight"):
        model["a"].weight
    with pytest.raises(IndexError, match="id 10 .* 0 to 9 are possible"):
        model["a"](torch.tensor([10]))


def test_rows_are_not_replaced_by_keep(client, name):
    model = nn.Sequential(nn.Embedding(10, 4))
    kept = gannet.torch.convert(copy.deepcopy(model), client, optimizer=gannet.Sgd(), weights="keep", name=name)
    with pytest.raises(gannet.InputError, match="has 10 rows, and weights='keep' would replace them"):
        gannet.torch.convert(copy.deepcopy(model), client, optimizer=gannet.Sgd(), weights="keep", name=name)
    assert torch.equal(rows_of(kept[0], 10), model[0].weight)


def test_kept_rows_of_a_padding_that_is_not_zero(client, name):
    own = nn.Embedding.from_pretrained(torch.randn(5, 3), padding_idx=2, freeze=False)
    theirs, ours = pair(client, name, "sgd", own)
    assert torch.equal(rows_of(theirs, 5), rows_of(ours, 5))
    frozen = nn.Embedding.from_pretrained(torch.randn(5, 3))
    _, ours = pair(client, name + "-frozen", "sgd", frozen)
    assert not ours(torch.tensor([1])).requires_grad


class Penalty(nn.Module):
    """Keeps weights in lists, as deepctr-torch does."""

    def __init__(self):
        super().__init__()
        self.embedding, self.linear = nn.Embedding(10, 2), nn.Linear(2, 1)
        self.regularization = [
            ([("embedding.weight", self.embedding.weight)], 0.0, 1e-5),
            ([self.linear.weight, self.embedding.weight], 0.0, 1e-5),
        ]


def test_a_penalty_loses_the_weights_that_are_on_servers(client, name):
    model = Penalty()
    with pytest.warns(UserWarning, match="^regularization had weights of embeddings"):
        gannet.torch.convert(model, client, optimizer=gannet.Sgd(), name=name)
    assert model.regularization[0] == ([], 0.0, 1e-5)
    assert len(model.regularization[1][0]) == 1 and model.regularization[1][0][0] is model.linear.weight


def test_assigned_rows(client, name):
    embedding = gannet.torch.Embedding(client, name, 3, optimizer=gannet.Ftrl(alpha=0.5))
    rows = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
    embedding.assign(np.arange(20), rows)
    np.testing.assert_allclose(rows_of(embedding, 20).numpy(), rows, rtol=1e-6)
    with pytest.raises(gannet.InputError, match="more than once"):
        embedding.assign([1, 1], rows[:2])


def test_a_compiled_model_trains(client, name):
    model = nn.Sequential(nn.Embedding(ROWS, 4), nn.Linear(4, 1))
    gannet.torch.convert(model, client, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero(), name=name)
    compiled = torch.compile(model, backend="eager")
    before = compiled(torch.tensor([1, 2])).sum()
    before.backward()
    assert model[0].table.stats().rows == 2


def test_the_lines_of_the_documentation_run(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    lines += "\n    assert loss < 0.6, loss\n"
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "rows"]
