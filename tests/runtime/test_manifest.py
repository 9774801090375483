"""The manifest: parsed strictly, written the same way each time, described by its schema."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edge_infer import BackendUnavailable, Manifest, ManifestError
from edge_infer.bundle.manifest import MAX_MANIFEST_BYTES, PART_SIZE
from edge_infer.runtime.selection import choices

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/manifest.schema.json").read_text("utf-8"))
DIGEST = "ab" * 32


def document() -> dict[str, Any]:
    return {
        "schema_version": "1.0",
        "name": "digits",
        "version": "1",
        "inputs": [{"name": "image", "dtype": "float32", "shape": ["batch", 1, 8, 8]}],
        "outputs": [{"name": "logits", "dtype": "float32", "shape": ["batch", 10]}],
        "variants": [
            {
                "id": "onnx/int8",
                "format": "onnx",
                "precision": "int8",
                "file": "onnx/model_int8.onnx",
                "targets": ["any"],
                "options": {"onnxruntime": {"session.x64quantprecision": "1"}},
                "state": [{"kind": "hidden"}, {"kind": "pair", "out": "h_out", "in": "h_in"}],
                "parity": {"logits": {"sqnr_db": 28.61, "max_err": 0.12, "top1": 0.97}, "mask": {}},
            }
        ],
        "files": [
            {"path": "labels.json", "size": 12, "sha256": DIGEST},
            {"path": "onnx/model_int8.onnx", "size": PART_SIZE + 1, "sha256": DIGEST, "parts": [DIGEST, DIGEST]},
        ],
        "labels": "labels.json",
    }


def parse(changed: dict[str, Any]) -> Manifest:
    return Manifest.from_bytes(json.dumps(changed).encode())


def test_a_manifest_says_what_was_written() -> None:
    manifest = parse(document())

    assert manifest.to_json() == document()
    assert Manifest.from_bytes(manifest.to_bytes()).to_bytes() == manifest.to_bytes()
    assert manifest.variant("onnx/int8").options == {"onnxruntime": {"session.x64quantprecision": "1"}}


def test_the_schema_accepts_what_the_parser_accepts() -> None:
    jsonschema.validate(document(), SCHEMA)


def of_decoder() -> dict[str, Any]:
    """Return the manifest of a bundle that generates text."""
    files = ["chat_template.jinja", "decoder/model_int4.safetensors", "generation_vectors.json", "tokenizer.json"]
    return {
        "schema_version": "1.0",
        "name": "tiny",
        "version": "1",
        "inputs": [{"name": "input_ids", "dtype": "int32", "shape": ["tokens"]}],
        "outputs": [{"name": "logits", "dtype": "float32", "shape": [300]}],
        "variants": [
            {
                "id": "decoder/int4",
                "format": "decoder",
                "precision": "int4",
                "file": "decoder/model_int4.safetensors",
                "targets": ["any"],
            }
        ],
        "files": [{"path": path, "size": 1, "sha256": DIGEST} for path in files],
        "task": "text-generation",
        "generate": {
            "kind": "decoder/1",
            "architecture": "llama",
            "context": 64,
            "vocab_size": 300,
            "tokenizer": "tokenizer.json",
            "chat_template": "chat_template.jinja",
            "bos": 1,
            "eos": [2],
            "add_bos": False,
            "special_tokens": {"eos_token": "</s>"},
            "defaults": {"temperature": 0.7},
            "vectors": "generation_vectors.json",
        },
    }


def test_a_manifest_says_how_text_is_generated() -> None:
    assert parse(of_decoder()).to_json() == of_decoder()
    jsonschema.validate(of_decoder(), SCHEMA)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", None, "`kind` is nothing, expected text"),
        ("tokenizer", "other.json", "which is not in `files`"),
        ("chat_template", 3, "`chat_template` is a number"),
        ("vectors", "../vectors.json", "which is not in `files`"),
    ],
)
def test_a_generation_that_lies_is_refused(field: str, value: Any, message: str) -> None:
    changed = of_decoder()
    changed["generate"][field] = value

    with pytest.raises(ManifestError, match=message):
        parse(changed)


def test_no_session_runs_a_decoder() -> None:
    with pytest.raises(BackendUnavailable, match="`tiny` generates text") as caught:
        next(choices(parse(of_decoder())))

    assert "edge_infer.generate(...)" in caught.value.hint


def test_unknown_fields_and_minor_versions_are_ignored() -> None:
    changed = document() | {"schema_version": "1.7", "colour": "green"}

    assert parse(changed).name == "digits"


def broken(path: str, value: Any) -> dict[str, Any]:
    """Return the document with the value at a dotted path replaced, or removed where the value is `...`."""
    changed = copy.deepcopy(document())
    place: Any = changed
    *parents, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    for key in parents:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return changed


LIES = [
    ("schema_version", "2.0", "this edge-infer reads 1.x"),
    ("schema_version", ..., "`schema_version` is nothing"),
    ("name", "../digits", "`name` is '../digits'"),
    ("name", 7, "`name` is a number, expected text"),
    ("version", "", "`version`"),
    ("variants", [], "`variants` is empty"),
    ("variants", {}, "`variants` is an object, expected a list"),
    ("variants.0", "onnx/int8", "variants\\[0\\] is text, expected an object"),
    ("variants.0.id", "int8", "expected something like `onnx/int8`"),
    ("variants.0.format", "pickle", "choose from `onnx`, `tflite`"),
    ("variants.0.precision", "fp8", "choose from `fp32`"),
    ("variants.0.file", "onnx/other.onnx", "which is not in `files`"),
    ("variants.0.targets", ["moon"], "choose from `web`"),
    ("variants.0.options", {"onnxruntime": {"a": 1}}, "expected a string"),
    ("variants.0.options", {"onnxruntime": []}, "expected an object"),
    ("variants.0.external", ["onnx/data"], "is not in `files`"),
    ("variants.0.parity", [], "expected an object"),
    ("variants.0.parity", {"y": 28.6}, "expected an object"),
    ("variants.0.parity", {"y": {"sqnr_db": "28.6"}}, "expected a number"),
    ("variants.0.parity", {"y": {"steps": True}}, "expected a number"),
    ("variants.0.generate", {}, "reserved for a later version"),
    ("variants.0.state", [{"kind": "warm"}], "choose from `hidden`"),
    ("variants.0.state", [{"kind": "pair", "out": "h"}], "`in` is nothing, expected text"),
    ("pipeline", [], "a list, expected an object"),
    ("generate", "decoder", "text, expected an object"),
    ("task", 3, "`task` is a number, expected text"),
    ("chain", [], "`chain` is a list, expected an object"),
    ("inputs.0.dtype", "complex64", "choose from `float32`"),
    ("inputs.0.shape", [-1], "neither a number nor a symbol"),
    ("inputs.0.shape", [True], "neither a number nor a symbol"),
    ("inputs.0.shape", 3, "`shape` is a number, expected a list"),
    ("files.0.path", "/etc/passwd", "leaves the bundle"),
    ("files.0.path", "../secret", "leaves the bundle"),
    ("files.0.path", "a/../../secret", "leaves the bundle"),
    ("files.0.path", "a\\..\\b", "leaves the bundle"),
    ("files.0.path", "C:/windows", "leaves the bundle"),
    ("files.0.path", "a//b", "is not plain"),
    ("files.0.path", "a\0b", "is not plain"),
    ("files.0.path", "manifest.json", "cannot be named"),
    ("files.0.path", "onnx/model_int8.onnx", "is named twice"),
    ("files.0.size", -1, "expected a number of bytes"),
    ("files.0.size", True, "expected a number of bytes"),
    ("files.0.size", 1e3, "expected a number of bytes"),
    ("files.0.sha256", "AB" * 32, "is not a sha256"),
    ("files.0.sha256", "ab", "is not a sha256"),
    ("files.1.parts", [DIGEST], "1 part hashes for 1048577 bytes, expected 2"),
    ("labels", "missing.json", "which is not in `files`"),
    ("examples", 7, "`examples` is a number"),
]


@pytest.mark.parametrize(("path", "value", "message"), LIES, ids=[f"{path}={value!r}"[:40] for path, value, _ in LIES])
def test_a_manifest_that_lies_is_refused_and_the_field_named(path: str, value: Any, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        parse(broken(path, value))


def test_two_variants_of_one_id_are_refused() -> None:
    changed = document()
    changed["variants"] *= 2

    with pytest.raises(ManifestError, match="id `onnx/int8` is used twice"):
        parse(changed)


def test_two_inputs_of_one_name_are_refused() -> None:
    changed = document()
    changed["inputs"] *= 2

    with pytest.raises(ManifestError, match="the name `image` is used twice"):
        parse(changed)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[1]", b'"text"', b"[" * 100_000])
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_bytes(data)


def test_a_manifest_of_100_mb_is_refused_unread() -> None:
    with pytest.raises(ManifestError, match=f"expected at most {MAX_MANIFEST_BYTES}"):
        Manifest.from_bytes(b"[" + b"0," * 50_000_000 + b"0]")
