"""Chains that somebody has damaged, and descriptions that are none: refused by name, and nothing is left behind."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edge_infer
from edge_infer.chains.build import build_chain, read_description
from edge_infer.chains.definition import read_chain
from edge_infer.chains.vectors import read_vectors
from edge_infer.errors import EdgeInferError, InputError, ManifestError
from tests.support.chains import made
from tests.support.chains.definitions import CHAIN, DOCUMENTS

if TYPE_CHECKING:
    from pathlib import Path

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(found for key, one in inner for found in places(one, (*path, key)))]


@given(st.data())
def test_a_definition_with_anything_in_it_is_read_or_refused(data: st.DataObject) -> None:
    document = deepcopy(data.draw(st.sampled_from([CHAIN, *(one for one, _ in DOCUMENTS)])))
    for _ in range(data.draw(st.integers(1, 3))):
        found = places(document)
        if not found:
            break
        *path, last = data.draw(st.sampled_from(found))
        here = document
        for key in path:
            here = here[key]
        here[last] = data.draw(_JSON)
    try:
        read_chain(document)
    except ManifestError as error:
        assert error.message.startswith("chain") or "chain" in error.message


@given(_JSON)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_a_description_with_anything_in_it_leaves_nothing(tmp_path: Path, value: Any) -> None:
    for field in ("name", "inputs", "steps", "outputs", "examples"):
        with pytest.raises(EdgeInferError):
            build_chain({"inputs": {}, "steps": [], field: value}, tmp_path, tmp_path / "x.bundle")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.toml", b"\xff\xfe"),
        ("a.toml", b"steps = [" * 5000),
        ("a.json", b"[" * 100_000),
        ("a.json", b"[]"),
        ("a.json", b'{"steps": 1, "stepz": 2}'),
        ("a.toml", b" " * (2**20 + 1)),
        ("missing.toml", None),
    ],
)
def test_a_description_that_is_none_is_refused(tmp_path: Path, name: str, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError):
        read_description(tmp_path / name)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "cases": [1], "answers": [1]}', "[" * 50_000])
def test_vectors_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    class Held:
        def read(self, _path: str) -> bytes:
            return text.encode()

    with pytest.raises(ManifestError):
        read_vectors(Held(), "examples/chain.json")  # type: ignore[arg-type]


def test_a_link_or_a_path_that_leaves_the_chain_is_not_followed(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.grouped(tmp_path))
    model = bundle / "steps/group/onnx/model.onnx"
    outside = tmp_path / "outside.onnx"
    model.rename(outside)
    model.symlink_to(outside)
    with pytest.raises(EdgeInferError, match="leaves the bundle"):
        edge_infer.Chain.open(bundle)
    document = json.loads((bundle / "manifest.json").read_text())
    for folder in ("../groups.bundle", "/etc", "steps/../steps/group", "C:\\x", "steps/group/"):
        document["chain"]["steps"][1]["bundle"] = folder
        (bundle / "manifest.json").write_text(json.dumps(document))
        with pytest.raises(ManifestError, match="leaves the bundle or is not plain"):
            edge_infer.Chain.open(bundle)
