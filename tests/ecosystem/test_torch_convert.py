"""What convert does with models of all kinds, and with models that come back."""

import copy
import time

import gannet
import pytest
import torch
from torch import nn

import gannet.torch

SGD = gannet.Sgd(lr=1.0)


def convert(model, client, name, **more):
    return gannet.torch.convert(model, client, optimizer=SGD, name=name, **more)


class ByName(nn.Module):
    """Calls an embedding by other names than the module has it under."""

    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(8, 2)
        self.by_name = {"user": self.user}
        self.in_a_list = [(self.user,)]
        self.call = lambda ids: self.user(ids)
        held = self.user
        self.closed_over = lambda ids: held(ids)


@pytest.mark.parametrize("way", ["user", "by_name", "in_a_list", "call", "closed_over"])
def test_all_names_of_an_embedding_are_converted(client, name, way):
    model = ByName()
    own = model.user
    convert(model, client, name, init=gannet.Zero())
    calls = {
        "user": lambda ids: model.user(ids),
        "by_name": lambda ids: model.by_name["user"](ids),
        "in_a_list": lambda ids: model.in_a_list[0][0](ids),
        "call": lambda ids: model.call(ids),
        "closed_over": lambda ids: model.closed_over(ids),
    }
    calls[way](torch.tensor([3])).sum().backward()
    assert model.user(torch.tensor([3])).tolist() == [[-1, -1]]
    assert own.weight is None, "its memory is free"


def test_rows_of_two_conversions_are_apart(client, name):
    model = nn.ModuleDict({"a": nn.Embedding(8, 2), "b": nn.Embedding(8, 2)})
    convert(model, client, name, skip=["b"], init=gannet.Zero())
    convert(model, client, name, init=gannet.Zero())
    assert [model[key].position for key in "ab"] == [0, 1]
    model["a"](torch.tensor([1])).sum().backward()
    assert model["b"](torch.tensor([1])).tolist() == [[0, 0]]
    around = nn.ModuleDict({"c": nn.Embedding(8, 2), "inner": model})
    convert(around, client, name, init=gannet.Zero())
    assert around["c"].position == 2
    # Nothing is left to convert.
    assert convert(around, client, name, init=gannet.Zero())["c"].position == 2


def test_an_embedding_of_another_model_that_was_converted(client, name):
    shared = nn.Embedding(8, 2)
    convert(nn.Sequential(shared), client, name)
    with pytest.raises(gannet.InputError, match="0 was converted before, as a part of another model"):
        convert(nn.Sequential(shared), client, f"{name}-second")


def test_frozen_rows_are_kept_or_refused(client, name):
    rows = torch.randn(5, 3)
    model = nn.Sequential(nn.Embedding.from_pretrained(rows.clone()))
    with pytest.raises(gannet.InputError, match="0 is frozen, and weights='fresh' would not take its rows over"):
        convert(model, client, name)
    convert(model, client, name, weights="keep")
    assert model[0].frozen and not model[0](torch.tensor([1])).requires_grad
    assert torch.equal(model[0](torch.arange(5)), rows)


def test_kept_rows_are_gone_on_with_as_fresh(client, name):
    def made():
        torch.manual_seed(4)
        return nn.Sequential(nn.Embedding(6, 2, padding_idx=0), nn.Linear(2, 1))

    first = made()
    with torch.no_grad():
        first[0].weight[0] = 3.0
    convert(first, client, name, weights="keep")
    first(torch.tensor([0, 1, 2])).sum().backward()
    ids, state = torch.arange(6), first.state_dict()
    # Another process begins with the table's rows, and with the state.
    second = convert(made(), client, name)
    second.load_state_dict(state)
    assert torch.equal(first[0](ids), second[0](ids))
    assert second[0](ids)[0].tolist() == [3, 3]


def test_a_state_without_its_rows_warns(client, name):
    model = convert(nn.Sequential(nn.Embedding(6, 2)), client, name)
    model(torch.tensor([1])).sum().backward()
    state = model.state_dict()
    state["0._extra_state"] = {**state["0._extra_state"], "table": f"{name}-empty.2"}
    empty = convert(nn.Sequential(nn.Embedding(6, 2)), client, f"{name}-empty")
    with pytest.warns(UserWarning, match="the state is from push 1, and table .* has no rows: Client.load"):
        empty.load_state_dict(state)


def test_hooks_are_taken_over(client, name):
    model, seen = nn.Sequential(nn.Embedding(6, 2)), []
    model[0].register_forward_hook(lambda module, given, output: seen.append(type(module).__module__))
    model[0].register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    convert(model, client, name, weights="keep")
    rows = model(torch.tensor([0]))
    assert seen == ["gannet.torch._embedding"]
    assert torch.equal(rows, torch.from_numpy(model[0].table.pull([1])))
    weighted = nn.Sequential(torch.nn.utils.weight_norm(nn.Embedding(6, 2)))
    with pytest.raises(gannet.InputError, match=r"0 makes its weight of other parameters \(weight_g, weight_v\)"):
        convert(weighted, client, f"{name}-norm")


def test_rows_that_are_not_finite_are_refused(client, name):
    model = nn.Sequential(nn.Embedding(6, 2))
    with torch.no_grad():
        model[0].weight[3, 1] = float("nan")
    with pytest.raises(gannet.InputError, match="not finite"):
        convert(model, client, name, weights="keep")
    assert isinstance(model[0], nn.Embedding)


def test_a_list_that_holds_itself(client, name):
    model = nn.Sequential(nn.Embedding(6, 2))
    model.around = [1]
    model.around.append(model.around)
    convert(model, client, name)
    assert isinstance(model[0], gannet.torch.Embedding)


def test_a_copy_has_hooks_and_a_parameter_of_its_own(client, name):
    model = convert(nn.Sequential(nn.Embedding(6, 2)), client, name)
    twin = copy.deepcopy(model)
    twin[0].register_forward_hook(lambda *_: 1 / 0)
    model(torch.tensor([1]))
    twin.requires_grad_(False)
    assert twin[0].frozen and not model[0].frozen


def test_weights_beyond_f16_are_refused(client, name):
    model = nn.Sequential(nn.Embedding(8, 4))
    with torch.no_grad():
        model[0].weight[3, 2] = -70000.0
    with pytest.raises(gannet.InputError, match="values beyond 65504, the largest f16"):
        convert(copy.deepcopy(model), client, name, weights="keep", row_type="f16")
    convert(model, client, f"{name}-wide", weights="keep", row_type="bf16")


def test_each_table_has_its_capacity(client, name):
    model = nn.ModuleDict({"deep": nn.Embedding(9000, 6), "wide": nn.Embedding(9000, 1)})
    convert(model, client, name, shards=8, capacity=1000)
    for ids in torch.arange(9000).split(3000):
        (model["deep"](ids).sum() + model["wide"](ids).sum()).backward()
    tables, end = {model["deep"].table, model["wide"].table}, time.monotonic() + 60
    while any(table.stats().rows > 1000 for table in tables):
        assert time.monotonic() < end, "a table has more rows than its capacity"
        time.sleep(0.02)
    assert all(table.stats().rows > 500 for table in tables)


def test_ids_to_assign_are_integers(client, name):
    ours = gannet.torch.Embedding(client, name, 2, optimizer=SGD)
    with pytest.raises(TypeError, match="ids have dtype float64"):
        ours.assign([1.5], [[0.0, 0.0]])


@pytest.mark.parametrize(("row_type", "cut", "part"), [("bf16", 0xFFFF, 256), ("f16", 0x1FFF, 2048)])
def test_rows_are_stored_in_16_bits(client, name, row_type, cut, part):
    model = nn.ModuleDict({"deep": nn.Embedding(64, 6), "wide": nn.Embedding(64, 1)})
    before = copy.deepcopy(model)
    convert(model, client, name, weights="keep", row_type=row_type)
    ids = torch.arange(64)
    with torch.no_grad():
        kept = model["deep"](ids)
        assert not (kept.view(torch.int32)[kept.abs() >= 2.0**-14] & cut).any(), f"rows are numbers of {row_type}"
        torch.testing.assert_close(kept, before["deep"](ids), rtol=1 / part, atol=2.0**-25)
        torch.testing.assert_close(model["wide"](ids), before["wide"](ids), rtol=0, atol=0)
    (model["deep"](ids).sum() + model["wide"](ids).sum()).backward()
    with torch.no_grad():
        torch.testing.assert_close(model["deep"](ids), kept - 1, rtol=1 / 128, atol=1 / 128)
        torch.testing.assert_close(model["wide"](ids), before["wide"](ids) - 1)
