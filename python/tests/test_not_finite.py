"""Rows of pushes that the servers drop: nobody loses them silently."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gannet

NAN = np.array([[1.0], [np.nan]], np.float32)
BEYOND = r"1 row of a push was NaN, infinite or beyond the table's row type"


def test_a_dropped_row_was_silent_and_warns_once(client: gannet.Client, name: str) -> None:
    table, other = client.table(name, 1), client.table(f"{name[:50]}-other", 1)
    with pytest.warns(RuntimeWarning, match=BEYOND) as said:
        table.push([1, 2], NAN)  # it warns if its answer is there before it returns
        client.flush()
    assert said[0].filename == __file__, "the warning names the caller's line"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.push([1, 2], NAN)
        client.flush()
        assert (table.stats().not_finite, other.stats().not_finite) == (2, 0)
    assert client.counters()["not_finite"] == 2
    assert np.isfinite(table.pull([1, 2])).all()


def test_a_dropped_row_is_found_by_whichever_call_comes_next(client: gannet.Client, name: str) -> None:
    table = client.table(name, 1)
    with pytest.warns(RuntimeWarning, match=BEYOND):
        table.push([1, 2], NAN)
        while client.counters()["applied"] == 0:
            pass


def test_a_dropped_row_at_the_end_of_a_block_warns(cluster: gannet.LocalCluster, name: str) -> None:
    with pytest.warns(RuntimeWarning, match=BEYOND):
        with gannet.connect(cluster.servers) as client:
            client.table(name, 1).push([1, 2], NAN)


@pytest.mark.parametrize("kind", ["keys", "keyset", "keyset-lent"])
def test_a_dropped_row_raises_if_asked(cluster: gannet.LocalCluster, name: str, kind: str) -> None:
    with gannet.connect(cluster.servers, not_finite="raise") as client:
        table = client.table(name.replace("[", "-"), 1)
        for _ in range(2):
            grads = NAN.copy()
            keys = [1, 2] if kind == "keys" else table.keyset([1, 2])
            with pytest.raises(gannet.InputError, match=BEYOND):
                # The push raises if its answer is there before it returns, and otherwise the flush.
                table.push(keys, grads, copy=kind != "keyset-lent")
                client.flush()
        client.flush()
        table.push([1, 2], np.ones((2, 1), np.float32))
        assert table.stats().not_finite == 2
        with pytest.raises(gannet.InputError, match=BEYOND):
            table.push([1, 2], NAN)
            client.close()


def test_dropped_rows_are_only_counted_if_asked(cluster: gannet.LocalCluster, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gannet.connect(cluster.servers, not_finite="count") as client:
            table = client.table(name, 1)
            table.push([1, 2], NAN)
            assert table.stats().not_finite == 1


def test_another_word_is_refused(cluster: gannet.LocalCluster) -> None:
    with pytest.raises(gannet.InputError, match="not_finite is 'ignore'; 'warn' or 'raise' or 'count' is wanted"):
        gannet.connect(cluster.servers, not_finite="ignore")
