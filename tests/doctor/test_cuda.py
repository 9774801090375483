"""The CUDA part of `edge-infer doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.platform.cuda import Driver, Machine
from edge_infer.tools.doctor.cuda import examine_cuda

if TYPE_CHECKING:
    from pathlib import Path


class Planted(Machine):
    def __init__(self, driver: Driver | None, packages: set[str], missing: str = "") -> None:
        self._driver, self._packages, self._missing = driver, packages, missing

    def distributions(self) -> set[str]:
        return self._packages

    def driver(self) -> Driver:
        if self._driver is None:
            raise OSError("libcuda.so.1: cannot open shared object file")
        return self._driver

    def load(self, library: str) -> None:
        if self._missing:
            raise OSError(f"{self._missing}: cannot open shared object file, which {library} needs")


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    (tmp_path / "libonnxruntime_providers_cuda.so").touch()
    (tmp_path / "build_and_package_info.py").write_text("cuda_version = '13.0'\n")
    return tmp_path


def test_a_machine_without_gpu_and_without_its_package_is_not_talked_to_about_cuda(libraries: Path) -> None:
    assert examine_cuda(libraries, Planted(None, {"onnxruntime"})) == []


def test_the_gpu_s_package_without_a_driver_is_a_problem(libraries: Path) -> None:
    [finding] = examine_cuda(libraries, Planted(None, {"onnxruntime-gpu"}))

    assert (finding.check, finding.level) == ("cuda.driver", "problem")
    assert "nvidia-smi" in finding.hint


def test_a_gpu_that_the_installed_package_cannot_use_is_a_warning_with_the_remedy(tmp_path: Path) -> None:
    driver, package = examine_cuda(tmp_path, Planted(Driver((13, 0), ("NVIDIA A10",)), {"onnxruntime"}))

    assert (driver.level, driver.what) == ("ok", "runs CUDA 13.0 at most: NVIDIA A10")
    assert (package.level, package.hint) == (
        "warning",
        "pip uninstall -y onnxruntime && pip install 'edge-infer[cuda]'",
    )


def test_a_library_that_is_missing_is_named(libraries: Path) -> None:
    machine = Planted(Driver((13, 0), ("NVIDIA A10",)), {"onnxruntime-gpu"}, missing="libcublasLt.so.13")

    assert examine_cuda(libraries, machine)[-1].what == "CUDA 13 is not installed: libcublasLt.so.13 is missing"


def test_a_gpu_that_works_says_so(libraries: Path) -> None:
    findings = examine_cuda(libraries, Planted(Driver((13, 1), ("NVIDIA A10",)), {"onnxruntime-gpu"}))

    assert [finding.level for finding in findings] == ["ok", "ok"]
