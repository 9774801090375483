"""The built kernels are those of the sources, and a library that does not fit is refused."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import pytest

from edge_infer.errors import BackendUnavailable
from edge_infer.formats import wasm
from edge_infer.kernels import build, decoder_words, generation, library


def test_the_structs_are_those_of_the_declarations() -> None:
    assert (build.SOURCE / "arguments.h").read_text("utf-8") == build.arguments_header()
    assert (build.SOURCE / "generation" / "program.h").read_text("utf-8") == decoder_words.header()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_built_files_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    build.build(tmp_path)

    assert {path.name for path in build.BUILT.iterdir()} == {*build.TARGETS}
    changed = [name for name in build.TARGETS if (tmp_path / name).read_bytes() != (build.BUILT / name).read_bytes()]
    assert changed == []


def test_a_file_is_built_whole_or_not_at_all(tmp_path: Path) -> None:
    file, loaded = tmp_path / "vectors.wasm", tmp_path / "loaded"
    file.write_bytes(b"of old")
    loaded.hardlink_to(file)
    made_of = build.LIBRARIES["vectors"]

    with pytest.raises(subprocess.CalledProcessError):
        build.compile_to(file, ("-target", "no-such-machine"), made_of)
    assert file.read_bytes() == b"of old"

    build.compile_to(file, build.TARGETS[file.name], made_of)
    assert file.read_bytes() == (build.BUILT / file.name).read_bytes()
    assert loaded.read_bytes() == b"of old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loaded", "vectors.wasm"]


@pytest.mark.parametrize("name", ["linux_x86_64.so", "linux_x86_64_v3.so"])
def test_a_library_runs_calls_in_their_order(name: str) -> None:
    kernels = library.Library(build.BUILT / name)
    memory = ctypes.create_string_buffer(256 + 16)
    image = -(-ctypes.addressof(memory) // 16) * 16
    rows = struct.pack("<4i", 128, 9, 7, 1) + struct.pack("<3i", 128, 160, 9)
    ctypes.memmove(image, rows, len(rows))

    kernels.run(image, [("fill", 0), ("flip_sign", 16)])

    assert ctypes.string_at(image + 128, 11) == b"\x07" * 9 + b"\0\0"
    assert ctypes.string_at(image + 160, 11) == b"\x87" * 9 + b"\0\0"


def test_every_kernel_is_in_every_file() -> None:
    for name in build.TARGETS:
        content = (build.BUILT / name).read_bytes()
        exports = build.library_of(name).exports
        assert [kernel for kernel in exports if kernel.encode() not in content] == [], name


def test_the_page_has_the_built_modules() -> None:
    for name in build.TARGETS:
        copy = build.library_of(name).page
        if copy and name.endswith(".wasm"):
            assert (copy / name).read_bytes() == (build.BUILT / name).read_bytes()


def test_the_module_of_the_search_is_small() -> None:
    assert (build.BUILT / "vectors.wasm").stat().st_size <= 4000


def test_the_built_files_of_compiled_models_are_small() -> None:
    assert (build.BUILT / "kernels.wasm").stat().st_size <= 40_000
    for path in build.BUILT.glob("linux_*.so"):
        assert path.stat().st_size <= 120_000, path.name


def test_the_kernel_for_a_dot_product_has_no_memory_of_its_own() -> None:
    content = (build.BUILT / "dot.wasm").read_bytes()
    sections = dict(wasm.sections(content))

    assert len(content) <= 2750
    assert sections[2][0] == 1, "the memory of the model is all that it imports"
    assert 4 not in sections and wasm.DATA not in sections, "tables and data"
    # The one global is the address of the stack: a function that has one begins with `global.get 0`, `i32.const`.
    assert b"\x23\x00\x41" not in sections[10]


def test_the_built_files_of_text_generation_are_small() -> None:
    for path in build.BUILT.glob("generation*"):
        assert path.stat().st_size <= (50_000 if path.suffix == ".wasm" else 120_000), path.name


@pytest.mark.parametrize("name", ["x86_64", "x86_64_v3"])
def test_kernels_of_another_version_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "VERSION", decoder_words.VERSION + 1)

    with pytest.raises(BackendUnavailable, match="of version 1, expected 2"):
        generation.GenerationLibrary(build.BUILT / f"generation_linux_{name}.so")


def test_a_file_that_is_not_a_library_of_text_generation_is_refused() -> None:
    with pytest.raises(BackendUnavailable, match="do not load"):
        generation.GenerationLibrary(build.BUILT / "linux_x86_64.so")


def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "linux_x86_64.so"
    broken.write_bytes(b"\x7fELF")

    with pytest.raises(BackendUnavailable, match="do not load"):
        library.Library(broken)


def of_another(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """Be on another CPU, with no library loaded yet."""
    monkeypatch.setattr(library, "_machine", lambda: machine)
    monkeypatch.setattr(library, "_LOADED", [])


def test_a_system_without_kernels_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    of_another(monkeypatch, "s390x")

    with pytest.raises(BackendUnavailable, match="on s390x"):
        library.native_library()


def test_a_32_bit_python_on_a_64_bit_arm_kernel_takes_the_32_bit_library(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    of_another(monkeypatch, "aarch64")
    monkeypatch.setattr(ctypes, "sizeof", lambda _: 4)
    monkeypatch.setattr(library, "Library", lambda path: taken.append(Path(path).name))

    library.native_library()

    assert taken == ["linux_armv7.so"]


def test_an_armv7_cpu_without_division_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("Features : half thumb fastmult vfp edsp neon vfpv3 tls vfpd32\n")
    of_another(monkeypatch, "armv7l")
    monkeypatch.setattr(ctypes, "sizeof", lambda _: 4)
    monkeypatch.setattr(library, "_CPUINFO", str(cpuinfo))

    with pytest.raises(BackendUnavailable, match="lacks `idiva`, `vfpv4`"):
        library.native_library()


@pytest.mark.parametrize(
    ("features", "name"), [("avx2 avx512f avx512_vnni", "x86_64_vnni"), ("avx2", "x86_64_v3"), ("", "x86_64")]
)
def test_the_library_of_text_generation_is_that_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch, features: str, name: str
) -> None:
    taken: list[str] = []
    of_another(monkeypatch, "x86_64")
    monkeypatch.setattr(library, "read_features", lambda: (*features.split(),))
    monkeypatch.setattr(generation, "GenerationLibrary", lambda path: taken.append(Path(path).name))
    generation.generation_library.cache_clear()

    generation.generation_library()
    generation.generation_library.cache_clear()

    assert taken == [f"generation_linux_{name}.so"]
