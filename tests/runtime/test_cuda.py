"""Whether CUDA can work here: every fault is planted, none of the computation is faked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import CudaUnavailable
from edge_infer.platform import cuda
from edge_infer.platform.cuda import Driver, Machine

if TYPE_CHECKING:
    from pathlib import Path

H200 = Driver((13, 0), ("NVIDIA H200",))


class Planted(Machine):
    """A machine whose driver, packages and libraries are what a test says."""

    def __init__(
        self,
        driver: Driver | Exception = H200,
        packages: tuple[str, ...] = ("onnxruntime-gpu",),
        missing: str = "",
        present: tuple[str, ...] = (),
        said: str = "",
    ) -> None:
        self._driver, self._packages, self._present = driver, packages, present
        self._said = f"{missing}: cannot open shared object file: No such file or directory" if missing else said

    def distributions(self) -> set[str]:
        return set(self._packages)

    def driver(self) -> Driver:
        if isinstance(self._driver, Exception):
            raise self._driver
        return self._driver

    def load(self, library: str) -> None:
        if library in self._present:
            return
        if self._said:
            raise OSError(self._said)


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """ONNX Runtime's folder as the wheel for CUDA 13 has it."""
    (tmp_path / "libonnxruntime_providers_cuda.so").touch()
    (tmp_path / "libonnxruntime_providers_tensorrt.so").touch()
    (tmp_path / "build_and_package_info.py").write_text("package_name = 'onnxruntime-gpu'\ncuda_version = '13.0'\n")
    return tmp_path


def fault(libraries: Path, machine: Machine, *, index: int = 0, provider: str = "cuda") -> CudaUnavailable:
    with pytest.raises(CudaUnavailable) as caught:
        cuda.check(libraries, index, provider=provider, machine=machine)
    return caught.value


def test_a_machine_that_has_all_passes(libraries: Path) -> None:
    cuda.check(libraries, 0, machine=Planted())


def test_a_wheel_without_cuda_says_which_package_to_install_instead(tmp_path: Path) -> None:
    said = fault(tmp_path, Planted(packages=("onnxruntime",)))

    assert said.fault == "no-build"
    assert said.hint == "pip uninstall -y onnxruntime && pip install 'edge-infer[cuda]'"


def test_two_distributions_that_overwrote_each_other_are_named(tmp_path: Path) -> None:
    said = fault(tmp_path, Planted(packages=("onnxruntime", "onnxruntime-gpu")))

    assert said.fault == "two-packages"
    assert said.hint.startswith("pip uninstall -y onnxruntime onnxruntime-gpu && ")


def test_no_driver_is_told_from_a_driver_without_devices(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    absent = Planted(OSError("libcuda.so.1: cannot open shared object file"))

    assert fault(libraries, absent).fault == "no-driver"
    assert fault(libraries, Planted(Driver((13, 0), ()))).fault == "no-device"


def test_devices_that_the_environment_hides_are_not_blamed_on_the_driver(
    libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    said = fault(libraries, Planted(Driver((13, 0), ())))

    assert "CUDA_VISIBLE_DEVICES is `-1`" in said.message
    assert said.hint == "unset CUDA_VISIBLE_DEVICES"


def test_a_driver_too_old_for_the_wheel_names_both_versions(libraries: Path) -> None:
    said = fault(libraries, Planted(Driver((12, 4), ("NVIDIA A10",))))

    assert (said.fault, said.got, said.expected) == ("driver-too-old", 12, 13)


def test_a_newer_minor_version_of_the_wheel_is_no_fault(libraries: Path) -> None:
    (libraries / "build_and_package_info.py").write_text("cuda_version = '12.8'\n")

    cuda.check(libraries, 0, machine=Planted(Driver((12, 2), ("NVIDIA A10",))))


@pytest.mark.parametrize(
    ("number", "word", "hint"),
    [
        (803, "driver-mismatch", "restart the machine"),
        (802, "driver-not-ready", "systemctl status nvidia-fabricmanager"),
        (999, "driver-failed", "nvidia-smi; dmesg | grep NVRM"),
    ],
)
def test_each_refusal_of_the_driver_has_its_own_remedy(libraries: Path, number: int, word: str, hint: str) -> None:
    said = fault(libraries, Planted(cuda._refused_by_driver(number)))

    assert (said.fault, said.hint, said.number) == (word, hint, number)


def test_a_second_device_that_is_not_there_lists_those_that_are(
    libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    said = fault(libraries, Planted(), index=1)

    assert said.message == "There is no device `cuda:1`: cuda:0 is NVIDIA H200"
    assert said.allowed == ["cuda:0"]


@pytest.mark.parametrize(
    ("missing", "present", "word", "message"),
    [
        ("libcublasLt.so.13", (), "no-cuda", "CUDA 13 is not installed: libcublasLt.so.13 is missing"),
        ("libcudnn.so.9", (), "no-cudnn", "cuDNN 9 is not installed: libcudnn.so.9 is missing"),
        (
            "libcublasLt.so.13",
            ("libcublasLt.so.12",),
            "cuda-mismatch",
            "CUDA 12 is installed, this onnxruntime-gpu needs CUDA 13: libcublasLt.so.13 is missing",
        ),
        (
            "libcudnn.so.9",
            ("libcudnn.so.8",),
            "cudnn-mismatch",
            "cuDNN 8 is installed, this onnxruntime-gpu needs cuDNN 9: libcudnn.so.9 is missing",
        ),
    ],
)
def test_a_missing_library_is_told_from_one_of_another_version(
    libraries: Path, missing: str, present: tuple[str, ...], word: str, message: str
) -> None:
    said = fault(libraries, Planted(missing=missing, present=present))

    assert (said.fault, said.message) == (word, message)
    assert said.hint == "pip install 'onnxruntime-gpu[cuda,cudnn]'"


@pytest.mark.parametrize("missing", ["libcufft.so.12", "libcurand.so.10"])
def test_a_library_of_cuda_with_a_number_of_its_own_is_no_other_cuda(libraries: Path, missing: str) -> None:
    said = fault(libraries, Planted(missing=missing, present=("libcufft.so.11",)))

    assert (said.fault, said.message) == ("no-cuda", f"A part of CUDA 13 is not installed: {missing} is missing")
    (libraries / "build_and_package_info.py").unlink()
    assert fault(libraries, Planted(missing=missing)).message.startswith("A part of CUDA is not installed")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("/lib/libc.so.6: version `GLIBC_2.38' not found (required by /x/libonnxruntime.so.1)", "use a newer system"),
        ("/x/libonnxruntime_providers_cuda.so: undefined symbol: cublasLtGetVersion, version libcublasLt.so.13", "pip"),
        ("libcudnn.so.9: file too short", "pip install --force-reinstall"),
        ("/usr/lib/libcurand.so.10: wrong ELF class: ELFCLASS32", "pip install --force-reinstall"),
        ("libcudnn.so.9: cannot open shared object file: Permission denied", "pip install --force-reinstall"),
        ("libstdc++.so.6: cannot open shared object file: No such file or directory", "apt-file"),
        ("libgomp.so.1: cannot open shared object file: No such file or directory", "apt-file search libgomp.so.1"),
    ],
)
def test_what_is_there_and_does_not_load_is_told_in_the_loader_s_words(libraries: Path, said: str, hint: str) -> None:
    found = fault(libraries, Planted(said=said))

    assert (found.fault, found.message) == (
        "libraries-broken",
        f"ONNX Runtime's CUDA provider cannot be loaded: {said}",
    )
    assert found.hint.startswith(hint)


def test_tensorrt_that_is_not_installed_is_not_blamed_on_cuda(libraries: Path) -> None:
    said = fault(libraries, Planted(missing="libnvinfer.so.10"), provider="tensorrt")

    assert (said.fault, said.hint) == ("no-tensorrt", "pip install tensorrt-cu13")


def test_this_machine_answers_without_raising(libraries: Path) -> None:
    found = cuda.why_not(libraries)

    assert found is None or found.fault
