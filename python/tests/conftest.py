"""Clusters and clients for tests."""

from __future__ import annotations

import os
from typing import Iterator

import pytest

import gannet

# Logs of servers that a test kills are of no use.
os.environ.setdefault("GANNET_LOG", "error")


@pytest.fixture(scope="module")
def cluster() -> Iterator[gannet.LocalCluster]:
    """Two servers. The tests of a module share them, and each test has tables of its own."""
    with gannet.LocalCluster(servers=2, workers=2) as cluster:
        yield cluster


@pytest.fixture(params=["shm", "tcp"])
def client(request: pytest.FixtureRequest, cluster: gannet.LocalCluster) -> Iterator[gannet.Client]:
    """A client over each transport."""
    with gannet.connect(cluster.servers, transport=request.param, timeout=20) as client:
        assert client.transport == request.param
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a table that no other test has."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:60]
