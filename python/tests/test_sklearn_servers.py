"""Estimators whose tables are on servers: the same bits as in this process, and what becomes of the tables."""

from __future__ import annotations

import gc
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import gannet
from gannet.sklearn import FMClassifier, FTRLClassifier, LinearRegressor
from processes import run_python
from rows import hashed
from test_sklearn import same

ESTIMATORS = [
    FTRLClassifier(l1=0.1, l2=0.5, epochs=2),
    FTRLClassifier(solver="lbfgs", l2=0.5, max_iter=50),
    FTRLClassifier(solver="lbfgs", l1=0.5, l2=0.1, max_iter=50),
    FMClassifier(epochs=2, l2=0.001),
    LinearRegressor(epochs=2),
]


def rows_of(cluster: gannet.LocalCluster, name: str, optimizer: gannet.Optimizer) -> int:
    """The rows of a table of weights. It makes the table if it is not there."""
    with gannet.connect(cluster.servers) as client:
        return client.table(name, 1, optimizer=optimizer, init=gannet.Zero()).stats().rows


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_servers_learn_the_same_bits(cluster: gannet.LocalCluster, estimator: Any, transport: str) -> None:
    rows, labels = hashed(2000, 1)
    servers = {"servers": cluster.servers, "transport": transport}
    served = clone(estimator).set_params(servers=servers).fit(rows, labels, np.tile([1.0, 0.5], 1000))
    same(served, clone(estimator).fit(rows, labels, np.tile([1.0, 0.5], 1000)))


@pytest.mark.parametrize("estimator", [FTRLClassifier(), FMClassifier(), LinearRegressor()], ids=repr)
def test_copies_go_on_with_rows_of_their_own(cluster: gannet.LocalCluster, estimator: Any) -> None:
    rows, labels = hashed(1024, 2)
    first: dict[str, Any] = {} if isinstance(estimator, LinearRegressor) else {"classes": [0, 1]}
    local, served = clone(estimator), clone(estimator).set_params(servers=cluster)
    for part in (slice(0, 512), slice(512, 1024)):
        local.partial_fit(rows[part], labels[part], **first)
        served.partial_fit(rows[part], labels[part], **first)
        before = served.tables_
        copy = pickle.loads(pickle.dumps(served))
        copy.partial_fit(rows[:100], labels[:100])
        assert not set(copy.tables_) & set(before)
        same(served, local)
    same(copy, local.partial_fit(rows[:100], labels[:100]))


def test_a_fork_goes_on_with_rows_of_its_own(tmp_path: Path) -> None:
    code = """
import os
import numpy as np
import gannet
from gannet.sklearn import FMClassifier
random = np.random.default_rng(1)
X, y = random.normal(size=(500, 5)), random.integers(0, 2, 500)
with gannet.LocalCluster(servers=1) as cluster:
    for servers in (None, cluster):
        model = FMClassifier(servers=servers).fit(X, y)
        child = os.fork()
        if child == 0:
            model.partial_fit(X, y)
            os._exit(7 if np.array_equal(model.coef_, FMClassifier(epochs=2).fit(X, y).coef_) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        model.partial_fit(X, y)
        print(np.array_equal(model.coef_, FMClassifier(epochs=2).fit(X, y).coef_), flush=True)
"""
    output, errors = run_python(tmp_path, code).communicate(timeout=60)
    assert output.split() == ["7", "True"] * 2, errors


def test_a_fork_in_the_middle_of_a_fit_is_refused(tmp_path: Path) -> None:
    code = """
import os, signal, threading, time
import numpy as np
import gannet
from gannet.sklearn import FMClassifier
random = np.random.default_rng(1)
X, y = random.normal(size=(500, 5)), random.integers(0, 2, 500)
model = FMClassifier(epochs=1).fit(X, y)
fits = threading.Thread(target=model.set_params(epochs=10**6, warm_start=True).fit, args=(X, y), daemon=True)
fits.start()
# The thread may not have begun when the first forks are made. Those learn.
code = 1
for _ in range(200):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            model.partial_fit(X, y)
        except gannet.ForkError as error:
            os._exit(7 if "another thread was learning" in str(error) else 2)
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 1:
        break
    time.sleep(0.05)
print(code, flush=True)
os._exit(0)
"""
    output, errors = run_python(tmp_path, code).communicate(timeout=60)
    assert output.split() == ["7"], errors


def test_a_fresh_fit_begins_anew_and_drops_the_old_rows(cluster: gannet.LocalCluster) -> None:
    rows, labels = hashed(1000, 3)
    model = FTRLClassifier(servers=",".join(cluster.servers)).fit(rows, labels)
    first, coef = model.tables_[0], model.coef_.copy()
    assert rows_of(cluster, first, gannet.Ftrl()) == (coef != 0).sum() + 1
    model.fit(rows, labels)
    assert model.tables_[0] != first
    assert rows_of(cluster, first, gannet.Ftrl()) == 0
    np.testing.assert_array_equal(model.coef_, coef)
    # With warm_start it goes on.
    again = model.set_params(warm_start=True).fit(rows, labels)
    same(again, FTRLClassifier(epochs=2).fit(rows, labels))
    kept = model.tables_[0]
    del model, again
    gc.collect()
    for _ in range(200):
        if rows_of(cluster, kept, gannet.Ftrl()) == 0:
            break
        time.sleep(0.05)
    assert rows_of(cluster, kept, gannet.Ftrl()) == 0


def test_it_is_searched_on_servers(cluster: gannet.LocalCluster) -> None:
    rows, labels = hashed(900, 4)
    np.testing.assert_array_equal(
        cross_val_score(FTRLClassifier(servers=cluster), rows, labels, cv=3),
        cross_val_score(FTRLClassifier(), rows, labels, cv=3),
    )


def test_wrong_servers(cluster: gannet.LocalCluster, tmp_path: Path) -> None:
    rows, labels = hashed(50, 5)
    wrong: list[tuple[Any, str]] = [
        ("nowhere", "HOST:PORT"),
        (7, "servers is a int"),
        ({"servers": cluster.servers, "rank": 1}, "leave the rank out"),
        ({"servers": cluster.servers, "token": "t"}, "servers has 'token', which gannet.connect does not have"),
        ({"transport": "tcp"}, "servers has no key 'servers'; a dict of the arguments of gannet.connect"),
        ({"servers": cluster, "transport": 7}, "servers: transport is 7; a string"),
        ({"servers": cluster.servers, "token_file": tmp_path / "none"}, "none"),
        ({"servers": "10.0.0.1:7700"}, "token_file"),
    ]
    for solver in ("ftrl", "lbfgs"):
        for servers, text in wrong:
            with pytest.raises(ValueError, match=text):
                FTRLClassifier(solver=solver, servers=servers).fit(rows, labels)
    with pytest.raises(gannet.PeerError):
        FTRLClassifier(servers={"servers": "127.0.0.1:9", "timeout": 0.2}).fit(rows, labels)


@pytest.mark.parametrize("estimator", [FTRLClassifier(), FMClassifier(), LinearRegressor()], ids=repr)
def test_rows_that_are_gone_are_missed(estimator: Any) -> None:
    rows, labels = hashed(1000, 3)
    with gannet.LocalCluster(servers=2) as cluster:
        model = clone(estimator).set_params(servers=cluster, warm_start=True).fit(rows, labels)
        copy, coef = pickle.loads(pickle.dumps(model)), model.coef_.copy()
        copy.partial_fit(rows[:10], labels[:10])
        scores = model.predict(rows)
        cluster.kill_server(1)
        cluster.start_server(1)
        calls = (
            lambda: model.partial_fit(rows[:10], labels[:10]),
            lambda: model.fit(rows, labels),
            lambda: pickle.dumps(model),
            lambda: copy.partial_fit(rows[:10], labels[:10]),
        )
        # The second time as the first.
        for call in calls * 2:
            with pytest.raises(gannet.RowsGoneError, match="sk-.* gone|table .*sk-.* fit anew"):
                call()
        np.testing.assert_array_equal(model.coef_, coef)
        np.testing.assert_array_equal(model.predict(rows), scores)
        model.set_params(warm_start=False).fit(rows, labels)
        np.testing.assert_array_equal(model.coef_, coef)
        # All servers are new: none knows that there was a table.
        for server in (0, 1):
            cluster.kill_server(server)
            cluster.start_server(server)
        with pytest.raises(gannet.RowsGoneError, match="has 0 rows on the servers 127.0.0.1:.*; fit anew"):
            model.partial_fit(rows[:10], labels[:10])


def test_a_copy_whose_tables_could_not_be_made_keeps_its_rows(cluster: gannet.LocalCluster) -> None:
    rows, labels = hashed(600, 4)
    model = FTRLClassifier(servers=cluster).fit(rows[:512], labels[:512])
    copy = pickle.loads(pickle.dumps(model))
    asked = copy._begun_with
    copy._begun_with = (asked[0], {**asked[1], "servers": ["127.0.0.1:1"], "timeout": 0.2})
    with pytest.raises(gannet.PeerError), pytest.warns(ResourceWarning):
        copy.partial_fit(rows[512:], labels[512:])
    copy._begun_with = asked
    same(copy.partial_fit(rows[512:], labels[512:]), model.partial_fit(rows[512:], labels[512:]))


def restart(cluster: gannet.LocalCluster, is_there: Any, fit: threading.Thread) -> None:
    """Kills a server when the training has begun, and starts it again."""
    while not is_there():
        assert fit.is_alive(), "the training has ended before its table was seen"
        time.sleep(0.001)
    cluster.kill_server(1)
    assert fit.is_alive(), "the training has ended before the server"
    cluster.start_server(1)


@pytest.mark.parametrize(
    "estimator",
    [
        FTRLClassifier(epochs=300),
        FMClassifier(epochs=60, factors=2),
        FTRLClassifier(solver="lbfgs", l2=0.01, tol=0.0, max_iter=10_000),
    ],
    ids=["ftrl", "fm", "lbfgs"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_server_is_killed_during_a_fit(tmp_path: Path, estimator: Any) -> None:
    rows, labels = hashed(2000, 6)
    failures: list[BaseException] = []
    with gannet.LocalCluster(servers=2, data_dir=tmp_path / "rows") as cluster:
        served = clone(estimator).set_params(servers=cluster)

        def fit() -> None:
            try:
                served.fit(rows, labels)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=fit)
        thread.start()
        # The files of its tables are there.
        restart(cluster, lambda: list((tmp_path / "rows" / "ps-1").rglob("*sk-*")), thread)
        thread.join()
        assert not failures
        assert cluster.status()["servers"][1]["starts"] == 2
    if getattr(estimator, "solver", "") == "lbfgs":
        assert not list((tmp_path / "rows").rglob("*sk-*"))
        # A restarted server has its rows in another order, and sums over rows round in that order.
        np.testing.assert_allclose(served.coef_, clone(estimator).fit(rows, labels).coef_, rtol=0, atol=1e-4)
    else:
        same(served, clone(estimator).fit(rows, labels))
