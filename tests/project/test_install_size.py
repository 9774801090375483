"""What installing the converters costs: the distributions that they need, and no TensorFlow among them."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed_by(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """List a distribution and all that it requires, by name."""
    found: set[str] = set()
    waiting = [(name, extras)]
    while waiting:
        one, wanted = waiting.pop()
        if canonicalize_name(one) in found:
            continue
        found.add(canonicalize_name(one))
        for text in distribution(one).requires or ():
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in (wanted or {""})]
            if requirement.marker is None or any(requirement.marker.evaluate(one) for one in environments):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


def size_of(name: str) -> int:
    files = (Path(str(file.locate())) for file in distribution(name).files or () if not file.match("*.pyc"))
    return sum(path.stat().st_size for path in files if path.is_file())


def test_the_converters_install_in_less_than_225_mb() -> None:
    """Everything but the interpreter: TensorFlow's converters take 536 MB to 2.4 GB."""
    names = needed_by("edge-infer-converters")

    assert {"onnx", "onnxruntime", "ai-edge-litert", "flatbuffers", "numpy"} <= names
    sizes = {name: size_of(name) / 1e6 for name in names}
    assert sum(sizes.values()) < 225, sizes


def test_no_tensorflow_and_no_quantizer_is_needed() -> None:
    foreign = {"tensorflow", "tensorflow-cpu", "tf-keras", "onnx2tf", "litert-quantizer", "ai-edge-quantizer", "torch"}

    assert not foreign & needed_by("edge-infer-converters")
