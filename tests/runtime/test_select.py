"""Which variant and engine are taken, by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.backends import registry
from edge_infer.backends.base import Availability
from edge_infer.backends.registry import get_backend
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.errors import BackendUnavailable, CudaUnavailable
from edge_infer.platform import cuda
from edge_infer.runtime.measurements import Measurement
from edge_infer.runtime.options import LoadOptions
from edge_infer.runtime.selection import Choice, choices

if TYPE_CHECKING:
    from pathlib import Path


def manifest(*variants: tuple[str, tuple[str, ...]]) -> Manifest:
    made = []
    for id_, targets in variants:
        format_, _, precision = id_.partition("/")
        made.append(Variant(id_, format_, precision, "file", targets=targets))
    return Manifest("m", "1", (), (), made, [FileEntry("file", 0, "0" * 64)])


DIGITS = manifest(
    ("onnx/fp32", ("any",)), ("onnx/fp16", ("cuda", "web")), ("onnx/int8", ("any",)), ("tflite/fp32", ("any",))
)


def picked(
    manifest: Manifest, device: str = "auto", backend: str | None = None, variant: str | None = None
) -> list[str]:
    found = choices(manifest, LoadOptions(device, backend, variant))
    return [f"{c.variant.id} by {c.backend} on {c.device}" for c in found]


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


def test_on_a_cpu_float16_comes_after_every_engine_that_computes_in_the_variants_own_precision() -> None:
    both = manifest(("onnx/fp16", ("any",)), ("tflite/fp32", ("any",)))

    assert picked(both) == ["tflite/fp32 by litert on cpu", "onnx/fp16 by onnxruntime on cpu"]


# -- on CUDA: no GPU is needed to choose --


@pytest.mark.parametrize(
    ("installed", "fault", "hint"),
    [
        (set(), "not-installed", "pip install 'edge-infer[cuda]'"),
        ({"onnxruntime"}, "no-build", "pip uninstall -y onnxruntime && pip install 'edge-infer[cuda]'"),
        (
            {"onnxruntime", "onnxruntime-gpu"},
            "two-packages",
            "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'edge-infer[cuda]'",
        ),
    ],
)
def test_what_cuda_lacks_is_said_with_the_thing_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: set[str], fault: str, hint: str
) -> None:
    origin = str(tmp_path / "onnxruntime" / "__init__.py") if installed else None
    monkeypatch.setattr("edge_infer.backends.onnxruntime.backend.origin_of", lambda _: origin)
    monkeypatch.setattr("edge_infer.backends.onnxruntime.api.library_path", lambda: None)
    monkeypatch.setattr(cuda.Machine, "distributions", lambda _: installed)
    for device in ("cuda", "cuda:1"):
        with pytest.raises(CudaUnavailable) as caught:
            picked(DIGITS, device)
        assert (caught.value.fault, caught.value.hint) == (fault, hint)


def test_on_a_device_that_no_page_has_no_engine_of_a_page_is_named() -> None:
    with pytest.raises(BackendUnavailable, match="on device `cuda` here") as caught:
        picked(manifest(("tflite/fp32", ("any",))), "cuda")
    assert "web" not in str(caught.value)


@pytest.fixture
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let onnxruntime say that it works on CUDA too."""
    state = Availability(ready=True, devices=("cuda", "cpu"))
    monkeypatch.setattr(get_backend("onnxruntime"), "availability", lambda: state)


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let onnxruntime say that it works on the processor only."""
    state = Availability(ready=True, devices=("cpu",))
    monkeypatch.setattr(get_backend("onnxruntime"), "availability", lambda: state)


@pytest.mark.usefixtures("with_cuda")
def test_a_gpu_comes_first_and_takes_the_float16_that_was_made_for_it() -> None:
    assert picked(DIGITS)[0] == "onnx/fp16 by onnxruntime on cuda"
    assert picked(DIGITS, "cuda:1") == [
        f"onnx/{precision} by onnxruntime on cuda:1" for precision in ("fp16", "fp32", "int8")
    ]
    first = next(choices(DIGITS, LoadOptions("cuda")))
    assert first.why == "rule: fp16 stands first on cuda"


@pytest.mark.usefixtures("with_cuda")
def test_where_float16_was_left_out_or_made_for_other_places_a_gpu_takes_float32() -> None:
    """The converter leaves a variant out that does not keep the quality."""
    for variants in ([("onnx/int8", ("any",))], [("onnx/int8", ("any",)), ("onnx/fp16", ("web",))]):
        assert picked(manifest(("onnx/fp32", ("any",)), *variants), "cuda")[0] == "onnx/fp32 by onnxruntime on cuda"


@pytest.mark.usefixtures("with_cuda")
@pytest.mark.parametrize(
    ("verdict", "ms", "taken"),
    [("ok", 1.0, "onnx/fp16"), ("fail", 1.0, "onnx/fp32"), ("warn", 1.0, "onnx/fp32"), ("ok", 9.0, "onnx/fp32")],
)
def test_what_was_measured_on_the_gpu_overrules_the_rule(verdict: str, ms: float, taken: str) -> None:
    version = get_backend("onnxruntime").version()
    rows = [
        Measurement("onnx/fp16", "onnxruntime", version, "cuda", 0, ms, 0.02, 65.0, verdict),
        Measurement("onnx/fp32", "onnxruntime", version, "cuda", 0, 3.0, 0.02, 140.0, "ok"),
    ]

    first = next(choices(DIGITS, LoadOptions("cuda:1"), rows))

    assert (first.variant.id, first.device) == (taken, "cuda:1")


# -- by what was measured --


def row(
    variant: str, ms: float, *, threads: int = 1, sqnr_db: float | None = 100.0, verdict: str = "ok"
) -> Measurement:
    backend = {"onnx": "onnxruntime", "tflite": "litert"}[variant.partition("/")[0]]
    version = get_backend(backend).version()
    return Measurement(variant, backend, version, "cpu", threads, ms, 0.02, sqnr_db, verdict)


def reference_row(variant: str, ms: float) -> Measurement:
    return row(variant, ms)._replace(backend="reference", version=get_backend("reference").version(), threads=0)


MEASURED = [
    row("onnx/int8", 1.0, sqnr_db=38.0),
    row("tflite/fp32", 2.0),
    row("tflite/fp32", 1.5, threads=2),
    row("onnx/fp32", 3.0),
]


def first(
    rows: list[Measurement], budget_ms: float | None = None, *, backend: str | None = None, variant: str | None = None
) -> Choice:
    return next(choices(DIGITS, LoadOptions(backend=backend, variant=variant, latency_budget_ms=budget_ms), rows))


def test_the_fastest_measured_way_comes_before_the_rules_with_its_threads() -> None:
    slow_int8 = [one for one in MEASURED if one.variant != "onnx/int8"] + [row("onnx/int8", 9.0, sqnr_db=38.0)]

    choice = first(slow_int8)

    assert (choice.variant.id, choice.backend, choice.threads) == ("tflite/fp32", "litert", 2)
    assert choice.why == "measured: the fastest of 4 ways that keep the quality: 1.5 ms"


def test_a_variant_that_failed_its_golden_examples_is_not_taken_however_fast() -> None:
    rows = [*MEASURED, row("onnx/fp32", 0.1, verdict="fail"), row("onnx/fp32", 0.2, verdict="warn")]

    assert first(rows).variant.id == "onnx/int8"


def test_of_ways_that_are_as_fast_the_nearest_to_the_source_is_taken_then_that_with_fewer_threads() -> None:
    rows = [row("onnx/int8", 1.0, sqnr_db=38.0), row("onnx/fp32", 1.04, threads=2), row("onnx/fp32", 1.03)]

    choice = first(rows)

    assert (choice.variant.id, choice.threads) == ("onnx/fp32", 1)


def test_a_way_that_may_be_no_faster_does_not_take_the_place_of_the_rules_choice() -> None:
    rule = row("onnx/int8", 1.0, sqnr_db=38.0)._replace(vs_rule=1.0)
    unsure = row("tflite/fp32", 0.8)._replace(vs_rule=1.02)

    kept, taken = first([rule, unsure]), first([rule, unsure._replace(vs_rule=0.9)])

    assert (kept.variant.id, taken.variant.id) == ("onnx/int8", "tflite/fp32")
    assert "too noisy" in (kept.why or "")
    assert "the fastest of 2 ways" in (taken.why or "")


def test_within_a_budget_the_best_quality_is_taken_and_the_fastest_of_it() -> None:
    choice = first(MEASURED, 2.5)

    assert (choice.variant.id, choice.threads) == ("tflite/fp32", 2)
    assert choice.why == "budget: the best quality of 3 ways within 2.5 ms: 1.5 ms"
    assert first(MEASURED, 1.2).variant.id == "onnx/int8"


def test_a_budget_that_nothing_keeps_warns_and_takes_the_fastest() -> None:
    with pytest.warns(RuntimeWarning, match=r"at most 0.5 ms: `onnx/int8` by onnxruntime is the fastest with 1 ms"):
        choice = first(MEASURED, 0.5)

    assert choice.why == "budget: nothing within 0.5 ms, the fastest takes 1 ms"


def test_figures_of_another_version_of_the_engine_do_not_count() -> None:
    old = [one._replace(version="1.0") if one.backend == "onnxruntime" else one for one in MEASURED]

    assert first(old).variant.id == "tflite/fp32"
    assert first([one._replace(version="1.0") for one in MEASURED]).why == "rule: int8 stands first on cpu"


def test_a_wish_comes_before_what_was_measured() -> None:
    asked = first(MEASURED, variant="onnx/fp32")

    assert asked.variant.id == "onnx/fp32"
    assert asked.why == "asked for; measured: the fastest of 1 ways that keep the quality: 3 ms"
    assert first(MEASURED, backend="litert").backend == "litert"


def test_a_number_of_threads_that_the_manifest_names_is_not_measured_away() -> None:
    fixed = manifest(("onnx/int8", ("any",)))
    fixed.variants[0].options["onnxruntime"] = {"intra_op_threads": "1"}

    (choice,) = choices(fixed, measured=[row("onnx/int8", 1.0, threads=2)])

    assert choice.threads is None


def test_figures_of_the_slow_reference_count_only_when_it_is_asked_for() -> None:
    rows = [row("onnx/fp32", 3.0), reference_row("onnx/fp32", 0.5)]

    assert first(rows).backend == "onnxruntime"
    assert first(rows, backend="reference").why.startswith("measured")
    assert first([reference_row("onnx/fp32", 0.5)]).why == "rule: int8 stands first on cpu"


@pytest.mark.usefixtures("without_cuda")
def test_figures_of_a_gpu_that_is_gone_do_not_count() -> None:
    rows = [row("onnx/fp32", 3.0), row("onnx/fp16", 1.0)._replace(device="cuda")]

    assert (first(rows).variant.id, first(rows).device) == ("onnx/fp32", "cpu")
    with pytest.raises(BackendUnavailable, match=r"(?i)cuda"):
        next(choices(DIGITS, LoadOptions("cuda"), rows))


def test_a_variant_that_is_near_the_source_is_taken_where_the_better_figures_are_of_another_version() -> None:
    rows = [row("onnx/int8", 1.0, verdict="warn"), row("onnx/fp32", 3.0)._replace(version="1.0")]

    assert first(rows).why.startswith("measured: the fastest of 1 ways")


def test_what_failed_its_golden_examples_comes_last() -> None:
    failed = row("onnx/int8", 1.0, verdict="fail")

    *others, last = choices(DIGITS, measured=[failed])

    assert [(one.variant.id, one.has_failed) for one in others] == [("onnx/fp32", False), ("tflite/fp32", False)]
    assert (last.variant.id, last.has_failed) == ("onnx/int8", True)
    assert last.why == "last: its golden examples fail here"
    assert first([failed], variant="onnx/int8").has_failed


def test_what_failed_with_another_version_of_the_engine_or_with_another_engine_is_not_held_against_it() -> None:
    for failed in (
        row("onnx/int8", 1.0, verdict="fail")._replace(version="1.0"),
        reference_row("onnx/int8", 1.0)._replace(verdict="fail"),
    ):
        assert first([failed]).variant.id == "onnx/int8"


def test_where_the_measured_way_fails_the_rules_go_on_with_the_others() -> None:
    found = [f"{one.variant.id} by {one.backend}" for one in choices(DIGITS, measured=[row("onnx/fp32", 1.0)])]

    assert found == ["onnx/fp32 by onnxruntime", "onnx/int8 by onnxruntime", "tflite/fp32 by litert"]


def test_the_formats_that_the_registry_knows_are_those_of_the_engines() -> None:
    from edge_infer.backends import registry

    for name in registry.backend_names():
        known = registry._FORMATS.get(name)
        assert known is None or registry.get_backend(name).formats == (known,), name


def test_engines_behind_the_one_that_is_taken_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: dict[str, bool] = {}
    monkeypatch.setattr(registry, "_HERE", looked_for)

    assert next(registry.backend_names()) == "onnxruntime"
    assert len(looked_for) == 1
    assert "reference" in registry.backend_names()
