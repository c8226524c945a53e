"""Triton's client over gRPC asks `gannet serve`, built with the feature grpc, and gets what `gannet predict` prints.

    GANNET=target/debug/gannet ENVIRONMENT/bin/python -m pytest --noconftest tests/ecosystem/test_grpc_client.py
"""

import queue

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http
from served_models import (
    NUMBERS,
    ROWS,
    SPARSE_IDS,
    SPARSE_VALUES,
    TEXTS,
    Server,
    inputs_of,
    printed,
    printed_classes,
)
from tritonclient.utils import InferenceServerException

SECONDS = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("grpc"))
    yield server
    server.stop()


@pytest.fixture
def client(server):
    client = triton.InferenceServerClient(server.address)
    yield client
    client.close()


def infer(client, inputs, model="flights", **given):
    return client.infer(model, inputs, client_timeout=SECONDS, **given)


def refused(code, words):
    """Expects an error with this status of gRPC."""
    return pytest.raises(InferenceServerException, match=rf"\[StatusCode\.{code}\] .*{words}")


def test_it_says_what_it_serves(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("flights") and not client.is_model_ready("none")
    assert client.get_server_metadata(as_json=True)["name"] == "gannet"
    about = client.get_model_metadata("flights")
    assert about.name == "flights"
    inputs = {tensor.name: (tensor.datatype, list(tensor.shape)) for tensor in about.inputs}
    assert inputs == {**dict.fromkeys(TEXTS, ("BYTES", [-1])), **dict.fromkeys(NUMBERS, ("FP64", [-1]))}
    (output,) = about.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("probability", "FP32", [-1])
    (version,) = about.versions
    assert client.is_model_ready("flights", version) and not client.is_model_ready("flights", "9")
    assert client.get_model_metadata("flights", version) == about


@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_columns_get_what_predict_prints(server, client, packed):
    wanted = [triton.InferRequestedOutput("probability")]
    for outputs in (None, wanted):
        inputs = inputs_of(triton, server)
        answer = infer(client, inputs, outputs=outputs, request_id="7", compression_algorithm=packed)
        assert printed(answer.as_numpy("probability")) == server.predicted
        assert answer.get_response().id == "7"


@pytest.mark.parametrize("model", ["flights", "classes"])
def test_answers_have_the_bits_of_those_over_http(server, client, model):
    with tritonclient.http.InferenceServerClient(server.address) as other:
        of_http = other.infer(model, inputs_of(tritonclient.http, server))
    of_grpc = infer(client, inputs_of(triton, server), model)
    names = [output.name for output in of_grpc.get_response().outputs]
    assert names == [output["name"] for output in of_http.get_response()["outputs"]]
    for name in names:
        found, wanted = of_grpc.as_numpy(name), of_http.as_numpy(name)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("kind", [("INT64", np.int64), ("UINT8", np.uint8), ("FP32", np.float32)])
def test_types_of_numbers_do_not_matter(server, client, kind):
    inputs = inputs_of(triton, server, types=dict.fromkeys(NUMBERS, kind))
    assert printed(infer(client, inputs).as_numpy("probability")) == server.predicted


def test_two_outputs(server, client):
    wanted = [triton.InferRequestedOutput(name) for name in ("class", "probabilities")]
    for outputs in (wanted, wanted[::-1]):
        answer = infer(client, inputs_of(triton, server), "classes", outputs=outputs)
        classes, chances = answer.as_numpy("class"), answer.as_numpy("probabilities")
        assert classes.dtype == np.int64 and chances.shape == (ROWS, 2)
        assert printed_classes(classes, chances) == server.predict("classes", server.file)
    answer = infer(client, inputs_of(triton, server), "classes", outputs=wanted[:1])
    assert answer.as_numpy("probabilities") is None and np.array_equal(answer.as_numpy("class"), classes)


def test_keys_and_lines_get_what_predict_prints(server, client):
    ids = triton.InferInput("ids", list(SPARSE_IDS.shape), "INT64").set_data_from_numpy(SPARSE_IDS)
    values = triton.InferInput("values", list(SPARSE_VALUES.shape), "FP32").set_data_from_numpy(SPARSE_VALUES)
    lines = np.array(server.sparse_file.read_text().splitlines(), np.object_)
    line = triton.InferInput("line", [len(lines)], "BYTES").set_data_from_numpy(lines)
    for inputs in ([ids, values], [values, ids], [line]):
        found = infer(client, inputs, "sparse").as_numpy("probability")
        assert printed(found) == server.predict("sparse", server.sparse_file)


def test_calls_at_once_have_their_own_answers(server, client):
    parts, answers = [slice(at, at + 100) for at in range(0, ROWS, 100)], queue.Queue()
    for at, part in enumerate(parts):

        def ended(result, error, at=at):
            answers.put((at, result, error))

        client.async_infer("flights", inputs_of(triton, server, part), ended, client_timeout=SECONDS)
    for _ in parts:
        at, result, error = answers.get(timeout=SECONDS)
        assert error is None
        assert printed(result.as_numpy("probability")) == server.predicted[parts[at]]


def test_an_error_has_its_status(server, client):
    few = inputs_of(triton, server, slice(0, 3))
    with refused("INVALID_ARGUMENT", r'inputs are missing: \["tailnum"\]'):
        infer(client, few[:-1])
    with refused("INVALID_ARGUMENT", 'input "tailnum" has the shape'):
        infer(client, few[:-1] + inputs_of(triton, server, slice(0, 2))[-1:])
    with refused("INVALID_ARGUMENT", '"margin"; its outputs are'):
        infer(client, few, outputs=[triton.InferRequestedOutput("margin")])
    with refused("NOT_FOUND", 'there is no model "none"'):
        infer(client, few, "none")
    with refused("NOT_FOUND", 'model "flights" has no version "9"'):
        infer(client, few, model_version="9")
    with refused("NOT_FOUND", 'there is no model "none"'):
        client.get_model_metadata("none")
    assert printed(infer(client, few).as_numpy("probability")) == server.predicted[:3]


def test_a_shape_must_have_the_elements(server, client):
    inputs = inputs_of(triton, server, slice(0, 3))
    inputs[0].set_shape([4])
    with refused("INVALID_ARGUMENT", 'input "month"'):
        infer(client, inputs)


def test_calls_that_are_not_there_are_unimplemented(server, client):
    for ask in (
        client.get_model_repository_index,
        client.get_inference_statistics,
        client.get_system_shared_memory_status,
        lambda: client.get_model_config("flights"),
        lambda: client.unload_model("flights"),
    ):
        with refused("UNIMPLEMENTED", "the service has no call"):
            ask()
    # Another service.
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=SECONDS)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_stream_is_unimplemented_at_once(client):
    """The answer waits neither for a message nor for the end of the stream, nor for `--request-time`."""
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    result, error = answers.get(timeout=SECONDS)
    client.stop_stream()
    assert result is None
    assert error.status() == "StatusCode.UNIMPLEMENTED"
    assert error.message() == "the service has no call ModelStreamInfer"
    assert client.is_server_live()
