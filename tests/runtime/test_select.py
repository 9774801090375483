"""Which variant and engine are taken, by rule."""

from __future__ import annotations

import pytest

from edge_infer.errors import BackendUnavailable
from edge_infer.manifest import FileEntry, Manifest, Variant
from edge_infer.select import choices


def manifest(*variants: tuple[str, tuple[str, ...]]) -> Manifest:
    made = []
    for id_, targets in variants:
        format_, _, precision = id_.partition("/")
        made.append(Variant(id_, format_, precision, "file", targets=targets))
    return Manifest("m", "1", (), (), made, [FileEntry("file", 0, "0" * 64)])


DIGITS = manifest(
    ("onnx/fp32", ("any",)), ("onnx/fp16", ("cuda", "web")), ("onnx/int8", ("any",)), ("tflite/fp32", ("any",))
)


def picked(manifest: Manifest, **wishes: str) -> list[str]:
    return [f"{c.variant.id} by {c.backend} on {c.device}" for c in choices(manifest, **wishes)]


def test_on_a_cpu_int8_comes_first_then_fp32_then_the_other_engine() -> None:
    assert picked(DIGITS) == [
        "onnx/int8 by onnxruntime on cpu",
        "onnx/fp32 by onnxruntime on cpu",
        "tflite/fp32 by litert on cpu",
    ]


def test_a_variant_made_for_other_places_is_taken_only_when_asked_for() -> None:
    assert "onnx/fp16 by onnxruntime on cpu" not in picked(DIGITS)
    assert picked(DIGITS, variant="onnx/fp16") == ["onnx/fp16 by onnxruntime on cpu"]


def test_where_no_variant_was_made_for_this_place_all_are_tried() -> None:
    assert picked(manifest(("onnx/fp16", ("web",)))) == ["onnx/fp16 by onnxruntime on cpu"]


def test_the_slow_reference_is_taken_only_when_asked_for() -> None:
    assert not any("reference" in choice for choice in picked(DIGITS))
    assert picked(DIGITS, backend="reference")[0] == "onnx/int8 by reference on cpu"


def test_a_backend_takes_the_variants_that_it_reads() -> None:
    assert picked(DIGITS, backend="litert") == ["tflite/fp32 by litert on cpu"]


def test_an_engine_of_the_page_says_why_it_is_not_here() -> None:
    with pytest.raises(BackendUnavailable, match="ort-web: only inside Pyodide"):
        picked(DIGITS, backend="ort-web")


def test_a_device_that_no_engine_has_names_what_each_has() -> None:
    with pytest.raises(BackendUnavailable, match=r"onnxruntime: runs on cpu.* only; litert: runs on cpu only"):
        picked(DIGITS, device="webgpu")
