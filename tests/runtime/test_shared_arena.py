"""One arena for the sessions of a process: its memory is one, and so is its bound."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from onnx import helper

import edge_infer
from edge_infer import OnnxRuntimeOptions
from edge_infer.backends.onnxruntime import arena
from edge_infer.errors import InputError, ManifestError
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

MIB = 2**20


@pytest.fixture
def growing(write_model: WriteModel) -> Path:
    """Return a model whose output has as many elements as its input says."""
    nodes = [helper.make_node("Expand", ["x", "n"], ["y"])]
    return write_model(zoo.model(nodes, [zoo.value("x", [1]), zoo.value("n", [1], "int64")], [zoo.value("y", ["m"])]))


def run(code: str, model: Path) -> str:
    """Run code beside two sessions that share 64 MiB of host memory; return what it prints."""
    head = f"""
import numpy as np
import edge_infer
from edge_infer import OnnxRuntimeOptions
def load(limit=64):
    options = OnnxRuntimeOptions(provider="cpu", shared_arena=True, memory_limit_mb=limit)
    return edge_infer.load({str(model)!r}, options=options)
def feed(mib):
    return {{"x": np.ones(1, np.float32), "n": np.array([mib * 2**18])}}
first, second = load(), load()
"""
    done = subprocess.run([sys.executable, "-c", head + code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_what_one_session_holds_the_other_cannot_have(growing: Path) -> None:
    code = """
kept = first.run(feed(40), keep=["y"])["y"]
try:
    second.run(feed(40))
except edge_infer.OutOfMemory as error:
    print(error.hint)
kept.close()
print(second.run(feed(40))["y"].shape)
"""

    hint, shape = run(code, growing).splitlines()

    assert "a smaller batch" in hint
    assert shape == f"({40 * 2**18},)"


def test_a_session_without_it_keeps_an_arena_of_its_own(growing: Path) -> None:
    code = f"print(edge_infer.load({str(growing)!r}).run(feed(100))['y'].nbytes)"

    assert run(code, growing) == str(100 * MIB)


def test_one_device_has_one_bound(growing: Path) -> None:
    code = """
try:
    load(65)
except edge_infer.InputError as error:
    print(error)
"""

    message, hint = run(code, growing).splitlines()

    assert message == (
        "The shared arena of `cpu:0` was made with a bound of 64 MiB, with a bound of 65 MiB was asked for"
    )
    assert "the same `memory_limit_mb`" in hint


def test_the_arena_of_a_gpu_is_made_once_for_each_device_with_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: this records what the engine is asked for, and computes nothing."""
    made: list[tuple[Any, ...]] = []

    class Engine:
        class OrtAllocatorType:
            ORT_ARENA_ALLOCATOR = "arena"

        class OrtMemType:
            DEFAULT = "default"

        OrtMemoryInfo = staticmethod(lambda *arguments: arguments)
        OrtArenaCfg = staticmethod(lambda settings: settings)

        @staticmethod
        def create_and_register_allocator_v2(*arguments: Any) -> None:
            made.append(arguments)

    monkeypatch.setattr(arena, "_MADE", {})

    for index in (0, 1, 1, 0):
        arena.share(Engine, "cuda", index, 256 * MIB)

    assert made == [
        (
            "CUDAExecutionProvider",
            ("Cuda", "arena", index, "default"),
            {"device_id": str(index)},
            {"max_mem": 256 * MIB},
        )
        for index in (0, 1)
    ]
    with pytest.raises(InputError, match="`cuda:1` was made with a bound of 256 MiB, without a bound"):
        arena.share(Engine, "cuda", 1, 0)


def test_a_bundle_may_not_ask_for_it(tmp_path: Path, growing: Path) -> None:
    bundle = edge_infer.Bundle.open(growing)
    bundle.manifest.variants[0].options["onnxruntime"] = {"arena": "0"}

    with pytest.raises(ManifestError, match="sets `arena`, which only a program may"):
        edge_infer.load(bundle, backend="onnxruntime")


def test_the_setting_of_a_gpu_bounds_the_arena_and_not_the_provider() -> None:
    options = OnnxRuntimeOptions(provider="cuda", shared_arena=True, memory_limit_mb=512)

    assert options.settings() == {"provider": "cuda", "arena": str(512 * MIB)}
