"""Servers and clients for tests of gannet.torch. scripts/test_ecosystem.sh installs the wheel."""

import itertools
import os

import gannet
import pytest

os.environ.setdefault("GANNET_LOG", "error")


@pytest.fixture(scope="module")
def cluster():
    with gannet.LocalCluster(servers=2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with gannet.connect(cluster.servers, timeout=20) as client:
        yield client


_numbers = itertools.count()


@pytest.fixture
def name():
    """The name of a table that no other test has."""
    return f"test-{next(_numbers)}"
