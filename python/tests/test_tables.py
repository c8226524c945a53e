"""Pulls, pushes, items, stats: against plain numpy."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gannet

COUNTERS = {"optimizer": gannet.Add(), "init": gannet.Zero()}


def test_repeated_keys_are_pulled_once_and_scattered_back(client: gannet.Client, name: str) -> None:
    table = client.table(name, 3, **COUNTERS)
    table.push(np.array([5, 6], np.uint64), np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    rows = table.pull(np.array([6, 5, 9, 6], np.uint64))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, [[4, 5, 6], [1, 2, 3], [0, 0, 0], [4, 5, 6]])


@pytest.mark.parametrize("dim", [1, 2, 4, 8, 16, 17, 32, 64])
def test_many_keys_of_each_dimension(client: gannet.Client, name: str, dim: int) -> None:
    table = client.table(name, dim, **COUNTERS)
    random = np.random.default_rng(dim)
    keys = random.integers(0, 2**64, 3000, dtype=np.uint64)
    grads = random.integers(-9, 9, (3000, dim)).astype(np.float32)
    table.push(keys, grads)
    np.testing.assert_array_equal(table.pull(keys), grads)
    order = random.permutation(3000)
    np.testing.assert_array_equal(table.pull(keys[order]), grads[order])


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_repeated_key_is_one_update(client: gannet.Client, name: str, reduce: str) -> None:
    # With AdaGrad two updates of 1 differ from one update of 2.
    rule = gannet.Adagrad(lr=0.5, eps=0.0, initial_accumulator=1.0)
    table = client.table(name, 1, optimizer=rule, init=gannet.Zero())
    table.push(np.array([7, 7, 8], np.uint64), np.array([[1], [3], [2]], np.float32), reduce=reduce)
    total = 4.0 if reduce == "sum" else 2.0
    want = [[-0.5 * total / np.sqrt(1 + total**2)], [-0.5 * 2 / np.sqrt(5)]]
    np.testing.assert_allclose(table.pull(np.array([7, 8])), want, rtol=1e-6)
    client.flush()
    assert client.counters()["applied"] == 2


def test_keys_of_each_integer_type_are_the_same_keys(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, **COUNTERS)
    for dtype in (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64):
        table.push(np.array([1, 100], dtype), np.ones((2, 1), np.float32))
    table.push([1, 100], np.ones((2, 1), np.float32))
    np.testing.assert_array_equal(table.pull([100, 1]), [[7], [7]])


def test_a_negative_key_is_its_bits(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, **COUNTERS)
    table.push(np.array([-1, -(2**63)], np.int64), np.array([[1], [2]], np.float32))
    table.push(np.array([-1], np.int8), np.array([[4]], np.float32))
    keys, rows = table.items()
    assert keys.dtype == np.uint64
    assert dict(zip(keys.tolist(), rows[:, 0].tolist())) == {2**64 - 1: 5.0, 2**63: 2.0}
    assert set(keys.view(np.int64).tolist()) == {-1, -(2**63)}


@pytest.mark.parametrize("dim", [1, 5, 16])
def test_a_keyset_has_each_key_once(client: gannet.Client, name: str, dim: int) -> None:
    table, random = client.table(name, dim, **COUNTERS), np.random.default_rng(dim)
    keys = random.integers(0, 900, 3000, dtype=np.uint64)
    keyset = table.keyset(keys)
    assert sorted(keyset.keys.tolist()) == np.unique(keys).tolist()
    np.testing.assert_array_equal(keyset.keys[keyset.inverse], keys)
    grads = random.integers(-9, 9, (len(keyset), dim)).astype(np.float32)
    table.push(keyset, grads)
    table.push(keyset.keys, grads)
    out = np.empty((len(keyset), dim), np.float32)
    assert table.pull(keyset, out=out) is out
    np.testing.assert_array_equal(out, 2 * grads)
    np.testing.assert_array_equal(table.pull(keys), 2 * grads[keyset.inverse])


def test_rows_are_pushed_from_where_they_are(client: gannet.Client, name: str) -> None:
    table, random = client.table(name, 16, **COUNTERS), np.random.default_rng(3)
    keyset = table.keyset(random.choice(1 << 40, 30_000, replace=False))
    want = np.zeros((len(keyset), 16), np.float32)
    # More than may be on their way, and nothing else holds the arrays. Some are views of larger ones, and some have the
    # memory of pulled rows.
    for step in range(12):
        grads = random.integers(-9, 9, want.shape).astype(np.float32)
        want += grads
        if step % 3 == 1:
            grads = np.concatenate([grads, grads])[: len(grads)]
        elif step % 3 == 2:
            pulled = table.pull(keyset)
            pulled[:] = grads
            grads = pulled
        table.push(keyset, grads, copy=step % 4 == 3)
        assert grads.flags.writeable == (step % 4 == 3)
        del grads
        # Memory that is freed too early would be used again here.
        np.full(want.shape, 1e9, np.float32)
    client.flush()
    np.testing.assert_array_equal(table.pull(keyset), want)


def test_lent_rows_stay_as_they_are(client: gannet.Client, name: str, tmp_path: Path) -> None:
    table, other = client.table(name, 2, **COUNTERS), client.table(name + "-other", 2, **COUNTERS)
    keyset, grads = table.keyset([3, 4]), np.ones((2, 2), np.float32)
    # Nothing was pushed, so the arrays may be changed. numpy never makes the rows of a pull writeable again.
    for array in (grads, other.pull([3, 4])):
        for copy in (False, True):
            with pytest.raises(gannet.InputError, match="made for another table"):
                other.push(keyset, array, copy=copy)
        array[0] = 5
    for _ in range(2):
        table.push(keyset, grads, copy=False)
    with pytest.raises(ValueError, match="read-only"):
        grads += 1
    # The references end with a call after the end of the push. On a busy machine that may be the call itself.
    lent, others = np.ones((2, 2), np.float32), other.keyset([3, 4])
    free = sys.getrefcount(lent)
    for _ in range(1000):
        other.push(others, lent, copy=False)
        if sys.getrefcount(lent) > free:
            break
    with pytest.raises(ValueError, match="cannot resize"):
        lent.resize((1, 1))
    # Plain keys are copied into the order of the shards. Rows that are not contiguous are copied, and so are those of
    # other objects: only a view of them would be read-only.
    plain, wide = np.ones((2, 2), np.float32), np.ones((2, 4), np.float32)
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", 0, (2, 2))
    mapped[:] = 1
    table.push(keyset.keys, plain, copy=False)
    table.push(keyset, wide[:, ::2], copy=False)
    for rows in (mapped, np.ones((2, 2), np.float32).view(np.matrix)):
        table.push(keyset, rows, copy=False)
        rows += 1
    plain += 1
    wide += 1
    client.flush()
    grads.flags.writeable = True
    grads += 1
    np.testing.assert_array_equal(table.pull(keyset), [[14, 14], [6, 6]])


def test_a_keyset_of_no_keys(client: gannet.Client, name: str) -> None:
    table = client.table(name, 2, **COUNTERS)
    keyset = table.keyset([])
    assert (len(keyset), keyset.inverse.tolist()) == (0, [])
    table.push(keyset, np.empty((0, 2), np.float32))
    assert table.pull(keyset).shape == (0, 2)


def test_a_keyset_is_of_its_table(client: gannet.Client, cluster: gannet.LocalCluster, name: str) -> None:
    table, other = client.table(name, 1, **COUNTERS), client.table(name + "-other", 1, **COUNTERS)
    with gannet.connect(cluster.servers, transport=client.transport) as second:
        same = second.table(name, 1, **COUNTERS)
        for keyset in (other.keyset([1]), same.keyset([1])):
            with pytest.raises(gannet.InputError, match="made for another table"):
                table.pull(keyset)
            with pytest.raises(gannet.InputError, match="made for another table"):
                table.push(keyset, np.ones((1, 1), np.float32))
    with pytest.raises(ValueError, match=r"grads have shape \(1, 1\); \(2, 1\)"):
        table.push(table.keyset([1, 2, 1]), np.ones((1, 1), np.float32))
    assert table.stats().rows == 0


@pytest.mark.parametrize(
    "rule",
    [gannet.Sgd(lr=1.0), gannet.Adagrad(), gannet.Adam(), gannet.AMSGrad(), gannet.RMSprop(), gannet.Momentum()],
)
def test_assigned_rows_begin_as_new_ones(client: gannet.Client, name: str, rule: gannet.Optimizer) -> None:
    # The rows of one table begin as 2; those of the other one are made to be 2 after some pushes.
    fresh = client.table(name, 3, optimizer=rule, init=gannet.Uniform(2.0, 2.0000002))
    table = client.table(name + "-assigned", 3, optimizer=rule)
    keys, grads = np.arange(50), np.linspace(-1, 1, 150, dtype=np.float32).reshape(50, 3)
    for _ in range(3):
        table.push(keys, grads)
    table.assign(keys, fresh.pull(keys))
    for _ in range(2):
        fresh.push(keys, grads)
        table.push(keys, grads)
    np.testing.assert_array_equal(table.pull(keys), fresh.pull(keys))


def test_what_cannot_be_assigned(client: gannet.Client, name: str) -> None:
    table = client.table(name, 2, **COUNTERS)
    with pytest.raises(gannet.InputError, match="1 keys are there more than once"):
        table.assign([1, 2, 1], np.ones((3, 2), np.float32))
    with pytest.raises(TypeError, match="rows have dtype float64"):
        table.assign([1], np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"rows have shape \(1, 2\); \(2, 2\)"):
        table.assign([1, 2], np.ones((1, 2), np.float32))
    table.assign([], np.empty((0, 2), np.float32))
    assert table.stats().rows == 0
    client.join(0, 1, "bsp")
    with pytest.raises(gannet.InputError, match="synchronous step"):
        table.assign([1], np.ones((1, 2), np.float32))


def test_no_keys(client: gannet.Client, name: str) -> None:
    table = client.table(name, 4, **COUNTERS)
    assert table.pull([]).shape == (0, 4)
    table.push([], np.empty((0, 4), np.float32))
    assert table.begin_pull(np.empty(0, np.int32)).result().shape == (0, 4)
    assert table.stats().rows == 0
    keys, rows = table.items()
    assert keys.shape == (0,) and rows.shape == (0, 4)


def test_out_is_written_and_returned(client: gannet.Client, name: str) -> None:
    table = client.table(name, 2, **COUNTERS)
    table.push([3], np.array([[1, 2]], np.float32))
    whole = np.full((4, 2), 9, np.float32)
    out = whole[1:3]
    assert table.pull([3, 4], out=out) is out
    np.testing.assert_array_equal(whole, [[9, 9], [1, 2], [0, 0], [9, 9]])
    assert table.begin_pull([4, 3]).result(out=out) is out
    np.testing.assert_array_equal(whole, [[9, 9], [0, 0], [1, 2], [9, 9]])


@pytest.mark.parametrize("as_keyset", [False, True])
def test_pulled_arrays_belong_to_their_holder(
    cluster: gannet.LocalCluster, name: str, as_keyset: bool
) -> None:
    with gannet.connect(cluster.servers) as client:
        table = client.table(name, 2, **COUNTERS)
        keys = np.arange(500, dtype=np.uint64)
        asked = table.keyset(keys) if as_keyset else keys
        one = np.ones((500, 2), np.float32)
        held: list[np.ndarray] = []
        for count in range(1, 30):
            table.push(asked, one)
            rows = table.pull(asked)
            rows += 1000
            # A view keeps the memory of its array. Every third array is freed, and its memory used again.
            if count % 3:
                held.append(rows[100:300])
        pulled = [count for count in range(1, 30) if count % 3]
    for rows, count in zip(held, pulled):
        assert (rows == 1000 + count).all()


def test_arrays_that_are_not_contiguous_are_taken(client: gannet.Client, name: str) -> None:
    table = client.table(name, 2, **COUNTERS)
    keys = np.arange(20, dtype=np.int64)[::2]
    grads = np.arange(40, dtype=np.float32).reshape(2, 20).T[::2]
    table.push(keys, grads)
    np.testing.assert_array_equal(table.pull(keys[::-1]), grads[::-1])


def test_changing_arrays_after_a_push_changes_nothing(client: gannet.Client, name: str) -> None:
    table = client.table(name, 16, **COUNTERS)
    keys, grads = np.arange(5000, dtype=np.uint64), np.ones((5000, 16), np.float32)
    for _ in range(10):
        table.push(keys, grads)
        keys += np.uint64(5000)
        grads += 1
    every = np.arange(50_000, dtype=np.uint64)
    np.testing.assert_array_equal(table.pull(every)[:, 3], np.repeat(np.arange(1, 11), 5000))


def test_several_pulls_are_on_their_way(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, **COUNTERS)
    table.push(np.arange(100), np.arange(100, dtype=np.float32)[:, None])
    pulls = [table.begin_pull(np.arange(at, at + 10)) for at in range(0, 90, 10)]
    # One that nobody finishes does not disturb the others.
    table.begin_pull(np.arange(100))
    for number, pull in reversed(list(enumerate(pulls))):
        np.testing.assert_array_equal(pull.result()[:, 0], np.arange(number * 10, number * 10 + 10))
    with pytest.raises(gannet.InputError, match="finished before"):
        pulls[0].result()


def test_a_pull_sees_pushes_before_it_and_none_after(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, **COUNTERS)
    one = np.ones((1, 1), np.float32)
    for count in range(50):
        table.push([1], one)
        pull = table.begin_pull([1])
        assert table.pull([1])[0, 0] == count + 1
        assert pull.result()[0, 0] == count + 1


def test_items_are_the_pulled_rows(client: gannet.Client, name: str) -> None:
    for suffix, rule in (("a", gannet.Adagrad()), ("f", gannet.Ftrl()), ("m", gannet.Adam())):
        table = client.table(f"{name[:50]}-{suffix}", 5, optimizer=rule, init=gannet.Normal(0, 0.1))
        random = np.random.default_rng(3)
        keys = random.choice(10_000, 2000, replace=False).astype(np.uint64)
        for _ in range(3):
            table.push(keys, random.normal(size=(2000, 5)).astype(np.float32))
        found, rows = table.items()
        assert sorted(found.tolist()) == sorted(keys.tolist())
        np.testing.assert_array_equal(rows, table.pull(found))
        stats = table.stats()
        assert stats.rows == 2000 and 2 <= stats.shards <= 64 and stats.bytes >= 2000 * 5 * 4


@pytest.mark.parametrize(("dim", "row_type"), [(2, "bf16"), (7, "f16"), (64, "bf16")])
@pytest.mark.parametrize(
    "rule",
    [gannet.Sgd(lr=0.1), gannet.Adagrad(), gannet.RowAdagrad(), gannet.Adam(), gannet.RMSprop(), gannet.Momentum()],
    ids=lambda rule: type(rule).__name__,
)
def test_rows_of_16_bits_are_rows_of_float32_rounded(
    client: gannet.Client, rule: gannet.Optimizer, dim: int, row_type: str, tmp_path: Path
) -> None:
    init, base = gannet.Uniform(0.5, 1.0), f"{row_type}-{type(rule).__name__}-{dim}-{client.transport}"
    wide = client.table(f"{base}-w", dim, optimizer=rule, init=init)
    small = client.table(f"{base}-s", dim, optimizer=rule, init=init, row_type=row_type)
    keys, random = np.arange(3000), np.random.default_rng(5)
    # The nearest bf16 of a row that begins: half of the distance between two is at most a 256th of it.
    part, cut = {"bf16": (256, 0xFFFF), "f16": (2048, 0x1FFF)}[row_type]
    np.testing.assert_allclose(small.pull(keys), wide.pull(keys), rtol=1 / part)
    for _ in range(4):
        grads = random.normal(size=(3000, dim)).astype(np.float32)
        wide.push(keys, grads)
        small.push(keys, grads)
        rows = small.pull(keys)
        # Below 2^-14 an f16 has fewer binary digits.
        assert not (rows.view(np.uint32)[np.abs(rows) >= 2.0**-14] & cut).any()
    # Rounded by chance: each row is off by some 1/256 (f16: 1/2048), and the mean of all by far less.
    errors = rows - wide.pull(keys)
    assert np.abs(errors).max() < 0.1 and abs(errors.mean()) < 0.002
    found, items = small.items()
    np.testing.assert_array_equal(items, small.pull(found))
    assert small.stats().rows == 3000
    client.save(tmp_path / "rows")
    small.push(keys, np.ones((3000, dim), np.float32))
    client.load(tmp_path / "rows")
    np.testing.assert_array_equal(small.pull(keys), rows)
    small.assign(keys[:10], wide.pull(keys[:10]))
    np.testing.assert_allclose(small.pull(keys[:10]), wide.pull(keys[:10]), rtol=1 / part, atol=2.0**-25)


@pytest.mark.parametrize("row_type", ["bf16", "f16"])
def test_what_16_bits_cannot_store(client: gannet.Client, name: str, row_type: str) -> None:
    with pytest.raises(gannet.InputError, match=f"a row has one weight, so {row_type} would save nothing"):
        client.table(name, 1, row_type=row_type)
    for rule in (gannet.Ftrl(), gannet.GroupFtrl(), gannet.Add()):
        with pytest.raises(gannet.InputError, match=f"takes no weights in {row_type}"):
            client.table(name, 4, optimizer=rule, row_type=row_type)
    with pytest.raises(gannet.InputError, match="row_type is 'f8'; 'f32' or 'bf16' or 'f16' is wanted"):
        client.table(name, 4, row_type="f8")
    client.table(name, 4, row_type=row_type)
    with pytest.raises(gannet.PeerError, match=rf"its rule is packed \({row_type}, adagrad"):
        client.table(name, 4)


def test_weights_beyond_f16_are_refused(client: gannet.Client, name: str) -> None:
    with pytest.raises(gannet.InputError, match="beyond the largest f16"):
        client.table(name, 4, row_type="f16", init=gannet.Uniform(0, 1e5))
    table = client.table(name, 4, row_type="f16", optimizer=gannet.Sgd(lr=1.0), init=gannet.Zero())
    largest = np.full((1, 4), 65_504.0, np.float32)
    table.assign([1], largest)
    np.testing.assert_array_equal(table.pull([1]), largest)
    for value in (65_505.0, -65_505.0, np.nan, np.inf):
        beyond = np.zeros((2, 4), np.float32)
        beyond[1, 3] = value
        with pytest.raises(gannet.InputError, match="the row of key 2 has the value .* up to 6.5504e4"):
            table.assign([1, 2], beyond)
    # A push that would take a row there leaves it as it is, and is counted.
    before = client.counters()["not_finite"]
    # The push warns if its answer is there before it returns, and otherwise the flush.
    with pytest.warns(RuntimeWarning, match="2 rows of pushes were NaN"):
        table.push([1, 2], np.array([[1.0, 2.0, 3.0, -1.0], [-65_505.0] * 4], np.float32))
        client.flush()
    assert client.counters()["not_finite"] == before + 2
    np.testing.assert_array_equal(table.pull([1, 2]), [[65_504.0] * 4, [0.0] * 4])


def test_assigned_values_are_finite(client: gannet.Client, name: str) -> None:
    table = client.table(name, 2)
    with pytest.raises(gannet.InputError, match="the row of key 7 has the value NaN: rows of type \"f32\""):
        table.assign([7], np.array([[np.nan, 0.0]], np.float32))


def test_initial_values(client: gannet.Client, name: str) -> None:
    keys = np.arange(5000)
    normal = client.table(f"{name[:40]}-n", 4, init=gannet.Normal(1, 0.5)).pull(keys)
    assert abs(normal.mean() - 1) < 0.02 and abs(normal.std() - 0.5) < 0.02
    uniform = client.table(f"{name[:40]}-u", 4, init=gannet.Uniform(-1, 3)).pull(keys)
    assert abs(uniform.mean() - 1) < 0.05 and uniform.min() >= -1 and uniform.max() < 3
    assert not client.table(f"{name[:40]}-z", 4, init=gannet.Zero()).pull(keys).any()
    other = client.table(f"{name[:40]}-s", 4, init=gannet.Normal(1, 0.5), seed=1).pull(keys)
    assert (other != normal).any()


def test_admission(client: gannet.Client, name: str) -> None:
    one = np.ones((1, 1), np.float32)
    third = client.table(f"{name[:40]}-n", 1, admit=3, **COUNTERS)
    for _ in range(5):
        third.push([7], one)
    assert third.pull([7])[0, 0] == 3
    some = client.table(f"{name[:40]}-p", 1, admit=0.25, **COUNTERS)
    some.push(np.arange(4000), np.ones((4000, 1), np.float32))
    assert 800 < some.stats().rows < 1200
    assert client.counters()["not_admitted"] == 2 + 4000 - some.stats().rows


def test_values_that_are_not_finite_are_dropped_and_counted(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, **COUNTERS)
    table.push([1, 2, 3], np.array([[1], [np.nan], [np.inf]], np.float32))
    np.testing.assert_array_equal(table.pull([1, 2, 3]), [[1], [0], [0]])
    client.flush()
    assert client.counters()["not_finite"] == 2


# Each rule against a calculation in double precision.
RULES = {
    gannet.Sgd(lr=0.5): lambda g, n: [-0.5 * g * n],
    gannet.Add(): lambda g, n: [g * n],
    gannet.Momentum(lr=0.1, momentum=0.5): lambda g, n: [
        -0.1 * sum(sum(g * 0.5**past for past in range(step)) for step in range(1, n + 1))
    ],
    gannet.Adagrad(lr=0.1, eps=0.0, initial_accumulator=2.0): lambda g, n: [
        -sum(0.1 * g / np.sqrt(2 + step * g * g) for step in range(1, n + 1))
    ],
    gannet.RowAdagrad(lr=0.1, eps=0.0, initial_accumulator=2.0): lambda g, n: [
        -sum(0.1 * g / np.sqrt(2 + step * g * g) for step in range(1, n + 1))
    ],
    gannet.RMSprop(lr=0.1, rho=0.5, eps=1e-12): lambda g, n: [
        -sum(0.1 * g / np.sqrt(g * g * (1 - 0.5**step)) for step in range(1, n + 1))
    ],
    # A constant gradient: the corrected moments are g and g^2 at each step.
    gannet.Adam(lr=0.1, eps=1e-12): lambda g, n: [-0.1 * np.sign(g) * n],
    gannet.AMSGrad(lr=0.1, eps=1e-12, beta2=0.0): lambda g, n: [-0.1 * np.sign(g) * n],
    gannet.Ftrl(alpha=0.5, beta=1.0, l1=100.0): lambda g, n: [0.0],
    gannet.GroupFtrl(alpha=0.5, beta=1.0, l21=100.0): lambda g, n: [0.0],
}


@pytest.mark.parametrize("rule", list(RULES), ids=lambda rule: type(rule).__name__)
def test_each_rule_does_what_its_formula_says(client: gannet.Client, name: str, rule: gannet.Optimizer) -> None:
    table = client.table(name, 1, optimizer=rule, init=gannet.Zero())
    for gradient in (2.0, -0.5):
        key = [int(gradient * 10) + 100]
        for _ in range(4):
            table.push(key, np.array([[gradient]], np.float32))
        np.testing.assert_allclose(table.pull(key)[0], RULES[rule](gradient, 4), rtol=1e-4)


def test_ftrl_with_its_numbers_in_their_places(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1, optimizer=gannet.Ftrl(alpha=0.2, beta=3.0, l1=0.5, l2=0.25), init=gannet.Zero())
    table.push([1], np.array([[2.0]], np.float32))
    # z = 2, n = 4.
    want = -(2 - 0.5) / ((3 + 2) / 0.2 + 0.25)
    np.testing.assert_allclose(table.pull([1])[0, 0], want, rtol=1e-6)


def test_rules_are_frozen_and_comparable() -> None:
    assert gannet.Adagrad(lr=0.05) == gannet.Adagrad() and gannet.Adagrad(lr=0.1) != gannet.Adagrad()
    assert gannet.Adam() != gannet.AMSGrad()
    assert repr(gannet.Normal(0, 1e-4)) == "Normal(mean=0, std=0.0001)"
    with pytest.raises(AttributeError):
        gannet.Sgd().lr = 1.0  # type: ignore[misc]


def test_a_table_is_opened_again_only_as_it_is(client: gannet.Client, name: str) -> None:
    table = client.table(name, 2, **COUNTERS)
    assert client.table(name, 2, **COUNTERS) is table
    with pytest.raises(gannet.PeerError, match="dimension is 2, but 3") as caught:
        client.table(name, 3, **COUNTERS)
    assert caught.value.exit_code == 3 and caught.value.peer is not None
    assert caught.value.peer.startswith("127.0.0.1:")
    assert client.tables[name] is table


def test_threads_share_a_client(client: gannet.Client, name: str) -> None:
    table = client.table(name, 8, **COUNTERS)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = np.arange(number * 1000, number * 1000 + 500)
            every = np.arange(7000, 7100)
            for round in range(1, 41):
                table.push(mine, np.ones((500, 8), np.float32))
                table.push(every, np.ones((100, 8), np.float32))
                pull = table.begin_pull(mine)
                assert (table.pull(mine) >= round).all()
                assert (pull.result() == round).all()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (table.pull(np.arange(7000, 7100)) == 160).all()


def test_pushes_arrive_when_nobody_closes_the_client(cluster: gannet.LocalCluster, name: str) -> None:
    client = gannet.connect(cluster.servers)
    table = client.table(name, 1, **COUNTERS)
    table.push(np.arange(1000), np.ones((1000, 1), np.float32))
    client.close()
    with pytest.raises(gannet.InputError, match="closed"):
        table.pull([1])
    with gannet.connect(cluster.servers) as other:
        assert (other.table(name, 1, **COUNTERS).pull(np.arange(1000)) == 1).all()
