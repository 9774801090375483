"""What every test may use, and the header that says which engines this run has."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from edge_infer.backends.registry import backend_names, get_backend
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the 32-bit Pi runs no test with it
    pass
else:
    # A busy machine is not a fault of the code: no example has a time limit.
    settings.register_profile(
        "here",
        parent=settings.get_profile(settings.get_current_profile_name()),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("here")

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.model_files import WriteBundle, WriteModel


def pytest_configure(config: pytest.Config) -> None:
    """Keep bytecode beside pytest's own files where none is to be written beside the sources.

    The tests start hundreds of processes, and `edge-infer convert` compiles for 1.5 s where nothing is kept.
    """
    cache = getattr(config, "cache", None)  # `-p no:cacheprovider` has none
    if cache is not None and os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(cache.mkdir("bytecode")))
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder


def pytest_report_header() -> list[str]:
    lines = []
    for name in backend_names():
        backend = get_backend(name)
        state = backend.availability()
        said = f"{backend.version()} on {', '.join(state.devices)}" if state.ready else f"no: {state.reason}"
        lines.append(f"backend {name}: {said}")
    return lines


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a developer has measured on this machine decides nothing here, and tests leave nothing behind."""
    os.environ["EDGE_INFER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def write_model(tmp_path: Path) -> WriteModel:
    """Write model bytes to a file and return its path."""

    def write(data: bytes, name: str = "model.onnx") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.fixture
def write_bundle(tmp_path: Path) -> WriteBundle:
    """Write a bundle folder from variants (id to model bytes) and other files, and return its path."""

    def write(
        variants: Mapping[str, bytes],
        *,
        extra: Mapping[str, bytes] | None = None,
        examples: str | None = None,
        labels: str | None = None,
    ) -> Path:
        import hashlib

        folder = tmp_path / "model.bundle"
        files = dict(extra or {})
        listed = []
        for id_, data in variants.items():
            format_, _, precision = id_.partition("/")
            path = f"{format_}/model_{precision}.{format_}"
            files[path] = data
            listed.append(Variant(id_, format_, precision, path))
        for path, data in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        entries = [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()]
        manifest = Manifest("model", "1", (), (), listed, entries, examples=examples, labels=labels)
        (folder / "manifest.json").write_bytes(manifest.to_bytes())
        return folder

    return write
