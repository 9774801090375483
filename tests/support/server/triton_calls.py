"""Drive every call of `tritonclient.http` against a server; run by an interpreter of its own, whose packages conflict.

python triton_calls.py HOST:PORT
"""

import sys
from typing import Any

import ml_dtypes
import numpy as np
import tritonclient.http as triton  # type: ignore[import-not-found, unused-ignore]
from tritonclient.utils import InferenceServerException  # type: ignore[import-not-found, unused-ignore]


class Recorder:
    """A client that remembers which of its calls were made."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self.client, name)


def tensor(name: str, array: Any, datatype: str, *, binary: bool) -> Any:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def refused(function: Any, *arguments: Any, **options: Any) -> str:
    try:
        function(*arguments, **options)
    except InferenceServerException as error:
        return f"[{error.status()}] {error.message()}"
    raise AssertionError("it was not refused")


def control(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata()["name"] == "edge-infer"
    assert client.is_model_ready("tiny")
    assert client.is_model_ready("tiny", "1")
    assert not client.is_model_ready("none")
    metadata = client.get_model_metadata("tiny")
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}], metadata
    config = client.get_model_config("tiny", model_version="1")
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [3]}], config
    assert config["max_batch_size"] > 1
    index = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    assert index["tiny"] == "READY", index
    client.unload_model("tiny")
    assert "unloaded" in refused(client.get_model_config, "tiny")
    client.load_model("tiny")
    assert client.is_model_ready("tiny")
    assert "[400]" in refused(client.load_model, "tiny", config="{}")
    assert "[404]" in refused(client.get_model_metadata, "none")
    for call, arguments in (
        ("get_trace_settings", ()),
        ("update_trace_settings", ()),
        ("get_trace_settings", ("tiny",)),
        ("update_trace_settings", ("tiny", {"trace_level": ["OFF"]})),
        ("get_log_settings", ()),
        ("update_log_settings", ({"log_info": True},)),
        ("register_system_shared_memory", ("region", "/region", 16)),
        ("register_cuda_shared_memory", ("region", b"handle", 0, 16)),
    ):
        assert "[501]" in refused(getattr(client, call), *arguments), call
    assert client.get_system_shared_memory_status() == []
    assert client.get_cuda_shared_memory_status() == []
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()


def inference(client: Any) -> None:
    x = np.array([[1, 2.5, -3], [4, 5, 6]], np.float32)
    for binary_in in (True, False):
        for binary_out in (True, False):
            wanted = [triton.InferRequestedOutput("y", binary_data=binary_out)]
            result = client.infer("tiny", [tensor("x", x, "FP32", binary=binary_in)], outputs=wanted, request_id="7")
            np.testing.assert_array_equal(result.as_numpy("y"), x)
            assert result.get_response()["id"] == "7"
            assert result.get_output("y")["shape"] == [2, 3]
    one = [tensor("x", x, "FP32", binary=True)]
    np.testing.assert_array_equal(client.infer("tiny", one).as_numpy("y"), x)
    for algorithm in ("gzip", "deflate"):
        for response in (None, algorithm):
            result = client.infer(
                "tiny", one, request_compression_algorithm=algorithm, response_compression_algorithm=response
            )
            np.testing.assert_array_equal(result.as_numpy("y"), x)
    result = client.infer("tiny", one, model_version="1", priority=1, timeout=60_000_000, headers={"X-Request-Id": "a"})
    np.testing.assert_array_equal(result.as_numpy("y"), x)
    pending = [client.async_infer("tiny", one) for _ in range(16)]
    for request in pending:
        np.testing.assert_array_equal(request.get_result().as_numpy("y"), x)
    body, json_size = client.generate_request_body(one)
    assert json_size < len(body)
    texts = np.array([["a", "grüße", ""]], dtype=object)
    for binary in (True, False):
        result = client.infer(
            "text",
            [tensor("x", texts, "BYTES", binary=binary)],
            outputs=[triton.InferRequestedOutput("y", binary_data=binary)],
        )
        got = [t.decode() if isinstance(t, bytes) else t for t in result.as_numpy("y").reshape(-1)]
        assert got == ["a", "grüße", ""], got
    half = np.array([[1, 0.5, -2]], np.float16)
    np.testing.assert_array_equal(client.infer("half", [tensor("x", half, "FP16", binary=True)]).as_numpy("y"), half)
    truth = np.array([[True, False, True]])
    np.testing.assert_array_equal(client.infer("truth", [tensor("x", truth, "BOOL", binary=True)]).as_numpy("y"), truth)
    brain = np.array([[1, 0.5, -2]], ml_dtypes.bfloat16)
    result = client.infer("brain", [tensor("x", brain, "BF16", binary=True)])
    np.testing.assert_array_equal(result.as_numpy("y").astype(np.float32), brain.astype(np.float32))
    assert "[400]" in refused(client.infer, "tiny", one, sequence_id=5, sequence_start=True)
    assert "[400]" in refused(client.infer, "tiny", [tensor("x", half, "FP16", binary=True)])
    assert "[404]" in refused(client.infer, "none", one)
    (stats,) = client.get_inference_statistics("tiny")["model_stats"]
    assert stats["inference_stats"]["success"]["count"] >= 10
    assert client.get_inference_statistics()["model_stats"]


def main() -> None:
    client = Recorder(triton.InferenceServerClient(sys.argv[1], concurrency=4))
    control(client)
    inference(client)
    parsed = triton.InferenceServerClient.parse_response_body(
        b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[1.0]}]}'
    )
    assert parsed.as_numpy("y").tolist() == [1.0]
    client.called |= {"parse_response_body"}
    client.client.plugin()
    client.client.register_plugin(Plugin())
    client.client.unregister_plugin()
    client.called |= {"plugin", "register_plugin", "unregister_plugin"}
    client.close()
    calls = {name for name in dir(triton.InferenceServerClient) if not name.startswith("_")}
    assert calls <= client.called, calls - client.called
    print(f"{len(calls)} calls passed")


class Plugin(triton.InferenceServerClientPlugin):  # type: ignore[misc, name-defined, unused-ignore]
    """A plugin that does nothing."""

    def __call__(self, request: Any) -> None:
        pass


if __name__ == "__main__":
    main()
