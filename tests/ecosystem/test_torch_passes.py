"""Backward passes in all their forms: a row has one step in each, and none in a pass that fails."""

import subprocess
import sys
import textwrap
import threading

import gannet
import pytest
import torch
from failing import Fails
from torch import nn
from torch.utils.checkpoint import checkpoint

import gannet.torch

ADAGRAD = gannet.Adagrad(lr=0.5, eps=1e-10, initial_accumulator=0.0)


def embedding(client, name, **more):
    options = {"optimizer": gannet.Sgd(lr=1.0), "init": gannet.Zero(), **more}
    return gannet.torch.Embedding(client, name, 2, **options)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_parts_of_one_pass(client, name, reentrant):
    ours = embedding(client, name, optimizer=ADAGRAD)
    own = nn.Embedding(4, 2)
    nn.init.zeros_(own.weight)
    ids, factor = torch.tensor([0, 1, 1]), torch.ones(1, requires_grad=True)
    step = torch.optim.Adagrad(own.parameters(), lr=0.5)
    for each in (ours, own):
        parts = [checkpoint(lambda x: (each(ids) * x).sum(), factor, use_reentrant=reentrant) for _ in range(2)]
        (sum(parts) + each(ids[:1]).sum()).backward()
    step.step()
    torch.testing.assert_close(ours(torch.arange(2)), own(torch.arange(2)))
    assert ours.pushes == 1
    # The outer pass fails behind both checkpoints.
    before = ours(torch.arange(2)).tolist()
    wrong = Fails.apply(factor)
    parts = [checkpoint(lambda x: (ours(ids) * x).sum(), wrong, use_reentrant=reentrant) for _ in range(2)]
    with pytest.raises(RuntimeError, match="half a pass"):
        sum(parts).backward()
    assert (ours(torch.arange(2)).tolist(), ours.pushes) == (before, 1)


def test_checkpoints_in_synchronous_steps(client, name):
    ours = embedding(client, name)
    client.join(0, 1, "bsp")
    factor = torch.ones(1, requires_grad=True)
    for _ in range(3):
        parts = [checkpoint(lambda x: (ours(torch.tensor([1])) * x).sum(), factor, use_reentrant=True) for _ in "ab"]
        sum(parts).backward()
        client.tick()
    assert ours(torch.tensor([1])).tolist() == [[-6, -6]]


@pytest.mark.parametrize("how", ["embedding", "model", "parameters", "between"])
def test_a_frozen_model_has_frozen_rows(client, name, how):
    ours = embedding(client, name)
    model = nn.Sequential(ours, nn.Linear(2, 1))
    loss = model(torch.tensor([1])).sum() if how == "between" else None
    if how == "embedding":
        ours.requires_grad_(False)
    elif how == "parameters":
        for parameter in ours.parameters():
            parameter.requires_grad = False
    else:
        model.requires_grad_(False)
    if loss is None:
        factor = torch.ones(1, requires_grad=True)
        loss = (model(torch.tensor([1])) * factor).sum()
    assert ours.frozen
    loss.backward()
    client.flush()
    assert (ours.table.stats().rows, ours.pushes) == (0, 0)
    model.requires_grad_(True)
    model(torch.tensor([1])).sum().backward()
    assert ours.table.stats().rows == 1


def test_each_backward_of_a_graph_is_a_step(client, name):
    ours = embedding(client, name)
    loss = ours(torch.tensor([1])).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert ours(torch.tensor([1])).tolist() == [[-2, -2]]
    # A gradient penalty: the inner gradients push nothing.
    rows = ours(torch.tensor([1]))
    (gradients,) = torch.autograd.grad((rows**3).sum(), rows, create_graph=True)
    gradients.pow(2).sum().backward()
    assert ours.pushes == 3


def test_many_threads_lose_nothing(client, name):
    ours = embedding(client, name)

    def work():
        for _ in range(50):
            ours(torch.tensor([1, 2])).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ours(torch.tensor([1, 2])).tolist() == [[-300, -300]] * 2
    assert ours.pushes == 300


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_of_another_dtype(client, name, dtype):
    ours = embedding(client, name)
    model = nn.Sequential(ours, nn.Linear(2, 1)).to(dtype)
    model(torch.tensor([1])).sum().backward()
    rows = ours(torch.tensor([1]))
    assert rows.dtype == dtype
    torch.testing.assert_close(rows[0], -model[1].weight[0].detach())
    made = nn.Sequential(nn.Embedding(4, 2, dtype=dtype))
    kept = made[0].weight.detach().clone()
    gannet.torch.convert(made, client, optimizer=gannet.Sgd(), weights="keep", name=f"{name}-kept")
    torch.testing.assert_close(made(torch.arange(4)), kept, rtol=1e-6, atol=0)


def test_an_error_says_what_is_pushed(client, name, monkeypatch):
    first, second = (embedding(client, f"{name}-{each}") for each in "ab")
    monkeypatch.setattr(second.table, "push", lambda *_, **__: (_ for _ in ()).throw(gannet.PeerError("no server")))
    ids = torch.tensor([1])
    with pytest.raises(gannet.PeerError, match=f"no server. The rows of this pass in '{name}-a' are pushed"):
        (second(ids).sum() + first(ids).sum()).backward()
    monkeypatch.undo()
    assert (first(ids).tolist(), second(ids).tolist()) == ([[-1, -1]], [[0, 0]])
    (first(ids) + second(ids)).sum().backward()
    assert (first(ids).tolist(), second(ids).tolist()) == ([[-2, -2]], [[-1, -1]])


@pytest.mark.parametrize("padding_idx", [None, 3])
def test_gradients_may_be_changed_after_the_pass(client, name, padding_idx):
    # The rows of a pass are sent from where they are, while the program goes on.
    ours, ids = embedding(client, name, padding_idx=padding_idx), torch.arange(20_000)
    for _ in range(12):
        rows = ours(ids)
        twice = rows * 2
        rows.retain_grad(), twice.retain_grad()
        twice.sum().backward()
        for changed in (rows, twice):
            changed.grad.fill_(float("nan"))
    want = torch.full((len(ids), rows.shape[1]), -24.0)
    if padding_idx is not None:
        want[padding_idx] = 0
    torch.testing.assert_close(ours(ids).detach(), want, rtol=0, atol=0)


def test_ctrl_c_ends_a_backward_pass(tmp_path):
    code = """
        import os, signal, sys, threading
        import gannet, torch, gannet.torch
        with gannet.LocalCluster(servers=1) as cluster:
            client = gannet.connect(cluster.servers, timeout=120)
            ours = gannet.torch.Embedding(client, "t", 2, optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero())
            ours(torch.tensor([1])).sum().backward()
            client.flush()
            os.kill(cluster.status()["servers"][0]["pid"], signal.SIGSTOP)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                while True:
                    ours(torch.tensor([1])).sum().backward()
            except KeyboardInterrupt:
                print("interrupted")
            os.kill(cluster.status()["servers"][0]["pid"], signal.SIGCONT)
            print(ours(torch.tensor([1])).tolist()[0][0] <= -1)
            client.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split() == ["interrupted", "True"], done.stderr
    assert done.returncode == 0, done.stderr
