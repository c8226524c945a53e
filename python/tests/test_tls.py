"""Servers that speak TLS and ask for a token, or for a certificate of the worker."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

import gannet

ONE = np.ones((1, 1), np.float32)


@contextmanager
def server(*flags: Any) -> Iterator[str]:
    """A server with these flags. Yields its address."""
    words = [gannet.command(), "server", "--listen=127.0.0.1:0", "--transport=tcp", *map(str, flags)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        listens = (re.search(r"listening on (\S+:\d+)", line) for line in process.stdout)
        found = next((match for match in listens if match), None)
        assert found is not None, f"the server ended with exit code {process.wait(10)}"
        yield found[1].rstrip(",.;")
    finally:
        process.kill()
        process.communicate()


def identity(authority: trustme.CA, folder: Path, name: str) -> tuple[Path, Path]:
    """The certificate of a host, and its private key."""
    issued, files = authority.issue_cert(name), (folder / f"{name}.pem", folder / f"{name}.key")
    issued.cert_chain_pems[0].write_to_path(files[0])
    issued.private_key_pem.write_to_path(files[1])
    files[1].chmod(0o600)
    return files


def counted(address: str, **security: Any) -> float:
    """Adds one to a counter, and reads it."""
    with gannet.connect(address, timeout=5.0, **security) as client:
        assert client.transport.startswith("tcp")
        table = client.table("secured", 1, optimizer=gannet.Add(), init=gannet.Zero())
        table.push([7], ONE)
        return float(table.pull([7])[0, 0])


def test_a_client_trusts_the_authority_that_it_is_given(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    for name, of in (("ca", authority), ("other", other)):
        of.cert_pem.write_to_path(tmp_path / f"{name}.pem")
    cert, key = identity(authority, tmp_path, "127.0.0.1")
    token, wrong = tmp_path / "job.token", tmp_path / "wrong.token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    wrong.write_text("fedcba9876543210fedcba9876543210\n")
    for file in (token, wrong):
        file.chmod(0o600)
    trusted = {"tls_ca": tmp_path / "ca.pem", "token_file": token}
    with server(f"--tls-cert={cert}", f"--tls-key={key}", f"--token-file={token}") as address:
        assert counted(address, **trusted) == 1
        refused: list[tuple[dict[str, Any], str]] = [
            ({**trusted, "tls_ca": tmp_path / "other.pem"}, "give tls_ca= the certificate of the authority"),
            ({**trusted, "tls_name": "ps.example.org"}, "give tls_name= with one of its names"),
            ({**trusted, "token_file": wrong}, "token"),
            ({"tls_ca": tmp_path / "ca.pem"}, "token_file="),
            ({"token_file": token}, "the server speaks TLS: give tls_ca=FILE"),
            ({}, "the server speaks TLS: give tls_ca=FILE"),
        ]
        for security, text in refused:
            with pytest.raises(gannet.PeerError, match=text):
                counted(address, **security)
        # None of them has counted.
        assert counted(address, **trusted) == 2


def test_a_server_may_ask_for_the_certificate_of_a_client(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    cert, key = identity(authority, tmp_path, "ps.example.org")
    own_cert, own_key = identity(authority, tmp_path, "worker.example.org")
    foreign_cert, foreign_key = identity(trustme.CA(), tmp_path, "foreign.example.org")
    trusted = {"tls_ca": ca, "tls_name": "ps.example.org"}
    with server(f"--tls-cert={cert}", f"--tls-key={key}", f"--tls-client-ca={ca}") as address:
        assert counted(address, tls_cert=own_cert, tls_key=own_key, **trusted) == 1
        refused: list[tuple[dict[str, Any], str]] = [
            ({}, "it requires a certificate: give tls_cert= and tls_key="),
            ({"tls_cert": foreign_cert, "tls_key": foreign_key}, "it does not trust our tls_cert="),
        ]
        for security, text in refused:
            with pytest.raises(gannet.PeerError, match=text):
                counted(address, **security, **trusted)
        assert counted(address, tls_cert=own_cert, tls_key=own_key, **trusted) == 2
