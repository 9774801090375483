"""Manifests that say something else than they did are refused by name, or are read and written again as they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import State, Variant
from edge_infer.errors import EdgeInferError, ManifestError
from edge_infer.tensors.tensor import TensorSpec
from tests.support.mutations import edited, mutated

if TYPE_CHECKING:
    from collections.abc import Sequence


def full() -> Manifest:
    """A manifest with every field."""
    names: Sequence[str] = ("a.onnx", "a.data", "b.tflite", "c.safetensors", "labels.json", "golden", "tokenizer.json")
    specs = [TensorSpec("x", "float32", ("batch", 3)), TensorSpec("h_in", "float32", (1, 4))]
    outputs = [TensorSpec("y", "float32", ("batch", 2)), TensorSpec("h_out", "float32", (1, 4))]
    return Manifest(
        "all",
        "1.2",
        specs,
        outputs,
        [
            Variant(
                "onnx/fp32",
                "onnx",
                "fp32",
                "a.onnx",
                external=["a.data"],
                targets=["any"],
                options={"onnxruntime": {"intra_op_threads": "1"}},
                state=[State("h_out", "h_in")],
                parity={"y": {"sqnr_db": 30.0, "max_err": 0.5}},
            ),
            Variant("tflite/int8", "tflite", "int8", "b.tflite", inputs=specs[:1], outputs=outputs[:1]),
            Variant("decoder/int4", "decoder", "int4", "c.safetensors"),
        ],
        [
            FileEntry(name, 5 * 2**20, f"{at:064x}", [f"{part:064x}" for part in range(5)])
            for at, name in enumerate(names)
        ],
        labels="labels.json",
        examples="golden",
        task="text-generation",
        pipeline={"version": 1, "steps": [{"step": "text.tokenize", "file": "tokenizer.json"}]},
        generate={"kind": "decoder/1", "tokenizer": "tokenizer.json", "eos": [2]},
    )


DOCUMENT: Any = json.loads(full().to_bytes())


def check(data: bytes) -> None:
    """Read a manifest, or see that it is refused; what is read says the same once it was written."""
    try:
        found = Manifest.from_bytes(data)
    except ManifestError as error:
        assert error.message
        return
    written = found.to_bytes()
    assert Manifest.from_bytes(written).to_bytes() == written


@settings(max_examples=200, deadline=None)
@given(mutated(DOCUMENT))
@example(DOCUMENT)
@example({**DOCUMENT, "pipeline": {"version": 1, "steps": [{"step": "post.labels", "text": "\ud800"}]}})
def test_a_manifest_that_says_something_else_is_refused_or_read_as_it_is(document: Any) -> None:
    check(json.dumps(document).encode())


@settings(max_examples=200, deadline=None)
@given(edited(full().to_bytes()))
def test_a_manifest_of_changed_bytes_is_refused_or_read_as_it_is(data: bytes) -> None:
    try:
        check(data)
    except EdgeInferError as error:  # any other kind than a `ManifestError` would name the wrong file
        raise AssertionError(data) from error
