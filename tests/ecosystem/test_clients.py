"""Clients of the Open Inference Protocol over REST ask `gannet serve` and get what `gannet predict` prints: Triton's, and
that of KServe. They have an environment of their own (clients.txt), without the package gannet.

    GANNET=target/debug/gannet ENVIRONMENT/bin/python -m pytest --noconftest tests/ecosystem/test_clients.py
"""

import asyncio

import httpx
import kserve
import numpy as np
import pytest
import tritonclient.http as triton
from kserve.protocol.infer_type import RequestedOutput
from served_models import COLUMNS, NUMBERS, ROWS, TEXTS, Server, inputs_of, printed, printed_classes
from tritonclient.utils import InferenceServerException


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("serving"))
    yield server
    server.stop()


@pytest.fixture
def client(server):
    client = triton.InferenceServerClient(server.address)
    yield client
    client.close()


def of_triton(server, binary=True, **given):
    return inputs_of(triton, server, binary_data=binary, **given)


def test_triton_sees_the_server(server, client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("flights") and not client.is_model_ready("none")
    assert client.get_server_metadata()["name"] == "gannet"
    about = client.get_model_metadata("flights")
    inputs = {tensor["name"]: (tensor["datatype"], tensor["shape"]) for tensor in about["inputs"]}
    assert inputs == {**dict.fromkeys(TEXTS, ("BYTES", [-1])), **dict.fromkeys(NUMBERS, ("FP64", [-1]))}
    assert about["outputs"] == [{"name": "probability", "datatype": "FP32", "shape": [-1]}]
    (version,) = about["versions"]
    assert client.is_model_ready("flights", version) and not client.is_model_ready("flights", "9")
    assert client.get_model_metadata("flights", version) == about


@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
@pytest.mark.parametrize("outputs", [None, True, False])
@pytest.mark.parametrize("inputs", [True, False])
def test_triton_gets_what_predict_prints(server, client, inputs, outputs, packed):
    wanted = outputs if outputs is None else [triton.InferRequestedOutput("probability", binary_data=outputs)]
    answer = client.infer(
        "flights",
        of_triton(server, binary=inputs),
        outputs=wanted,
        request_id="7",
        request_compression_algorithm=packed,
        response_compression_algorithm=packed,
    )
    assert printed(answer.as_numpy("probability")) == server.predicted
    assert answer.get_response()["id"] == "7"


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("kind", [("INT64", np.int64), ("UINT8", np.uint8), ("FP32", np.float32)])
def test_types_of_numbers_do_not_matter(server, client, kind, binary):
    inputs = of_triton(server, binary=binary, types=dict.fromkeys(NUMBERS, kind))
    assert printed(client.infer("flights", inputs).as_numpy("probability")) == server.predicted


def test_the_order_of_columns_does_not_matter(server, client):
    found = client.infer("flights", of_triton(server)[::-1]).as_numpy("probability")
    assert np.allclose(found, np.array(server.predicted, float), rtol=0, atol=2e-6)


def test_a_version_is_asked_for(server, client):
    (version,) = client.get_model_metadata("flights")["versions"]
    rows = slice(0, 5)
    answer = client.infer("flights", of_triton(server, rows=rows), model_version=version)
    assert printed(answer.as_numpy("probability")) == server.predicted[rows]
    assert answer.get_response()["model_version"] == version
    with pytest.raises(InferenceServerException, match='model "flights" has no version "9"') as error:
        client.infer("flights", of_triton(server, rows=rows), model_version="9")
    assert error.value.status() == "404"


@pytest.mark.parametrize("binary", [True, False])
def test_two_outputs(server, client, binary):
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("class", "probabilities")]
    for outputs in (wanted, wanted[::-1]):
        answer = client.infer("classes", of_triton(server, binary=binary), outputs=outputs)
        classes, chances = answer.as_numpy("class"), answer.as_numpy("probabilities")
        assert classes.dtype == np.int64 and chances.shape == (ROWS, 2)
        assert printed_classes(classes, chances) == server.predict("classes", server.file)
    answer = client.infer("classes", of_triton(server), outputs=wanted[:1])
    assert answer.as_numpy("probabilities") is None and np.array_equal(answer.as_numpy("class"), classes)


def test_requests_at_once_have_their_own_answers(server):
    with triton.InferenceServerClient(server.address, concurrency=8) as client:
        parts = [slice(at, at + 100) for at in range(0, ROWS, 100)]
        asked = [client.async_infer("flights", of_triton(server, rows=part)) for part in parts]
        found = [printed(request.get_result().as_numpy("probability")) for request in asked]
    assert sum(found, []) == server.predicted


def test_values_that_are_not_known(server, client, tmp_path):
    """An empty text and NaN are cells without a value in the file."""
    rows = slice(0, 50)
    columns = {name: server.column(name)[rows] for name in COLUMNS}
    columns["tailnum"][::2] = ""
    columns["hour"][::3] = np.nan
    lines = [",".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(",".join("" if value != value else str(value) for value in row))
    file = tmp_path / "holes.csv"
    file.write_text("\n".join(lines) + "\n")
    inputs = [
        triton.InferInput(name, [50], "BYTES" if name in TEXTS else "FP64").set_data_from_numpy(values)
        for name, values in columns.items()
    ]
    found = client.infer("flights", inputs).as_numpy("probability")
    assert printed(found) == server.predict("flights", file)


def test_triton_raises_what_is_wrong(server, client):
    rows = slice(0, 3)
    good = of_triton(server, rows=rows)
    with pytest.raises(InferenceServerException, match=r'inputs are missing: \["tailnum"\]') as error:
        client.infer("flights", good[:-1])
    assert error.value.status() == "400"
    with pytest.raises(InferenceServerException, match='input "tailnum" has the shape'):
        client.infer("flights", good[:-1] + of_triton(server, rows=slice(0, 2))[-1:])
    with pytest.raises(InferenceServerException, match='"margin"; its outputs are'):
        client.infer("flights", good, outputs=[triton.InferRequestedOutput("margin")])
    with pytest.raises(InferenceServerException, match='there is no model "none"'):
        client.infer("none", good)
    assert printed(client.infer("flights", good).as_numpy("probability")) == server.predicted[rows]


def of_kserve(server, binary, outputs=None):
    inputs = []
    for name in COLUMNS:
        values = server.column(name)
        kind = "BYTES" if name in TEXTS else "FP64"
        inputs.append(kserve.InferInput(name, list(values.shape), kind))
        inputs[-1].set_data_from_numpy(values, binary_data=binary)
    return kserve.InferRequest("flights", inputs, request_outputs=outputs)


@pytest.mark.parametrize("binary", [True, False])
def test_kserve_gets_what_predict_prints(server, binary):
    async def ask():
        config = kserve.RESTConfig(protocol="v2")
        async with kserve.InferenceRESTClient(config) as client:
            base = f"http://{server.address}"
            assert await client.is_server_live(base) and await client.is_server_ready(base)
            assert await client.is_model_ready(base, "flights")
            assert not await client.is_model_ready(base, "none")
            wanted = [RequestedOutput("probability", {"binary_data": binary})]
            for outputs in (None, wanted):
                request = of_kserve(server, binary, outputs)
                answer = await client.infer(base, request, model_name="flights")
                assert printed(answer.outputs[0].as_numpy()) == server.predicted
                assert answer.model_name == "flights"
            request.inputs.pop()
            with pytest.raises(httpx.HTTPStatusError, match=r'inputs are missing: \["tailnum"\]'):
                await client.infer(base, request, model_name="flights")

    asyncio.run(ask())
