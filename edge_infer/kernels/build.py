"""Build the kernels: WebAssembly modules and shared libraries for each CPU (`make kernels`).

    pip install ziglang==0.17.1 && python -m edge_infer.kernels.build [FOLDER]

Those of compiled models are `kernels.wasm` and `linux_*.so`, of `source/*.c`. Those of text generation are
`generation.wasm`, `generation-threads.wasm` and `generation_linux_*.so`, of `source/generation/*.c`, those of the
search in an index `vectors.wasm` and `vectors_linux_*.so`, of `source/vectors/*.c`; the page's package has copies of
these modules. `dot.wasm` has the int8 convolution once more, for processors with a dot product of bytes: the linker
puts it into the file of a model.

The compiler is `zig cc`, which builds for every target on any host. The libraries use no C library, so one file serves
glibc and musl alike. The same sources and the same compiler give the same bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from edge_infer.kernels import decoder_words
from edge_infer.kernels.declarations import ABI, KERNELS
from edge_infer.platform.atomic_write import write_file

_HERE = Path(__file__).resolve().parent
SOURCE, BUILT = _HERE / "source", _HERE / "built"

#: By file the target, and what it adds to the options.
TARGETS: dict[str, tuple[str, ...]] = {
    "kernels.wasm": ("-target", "wasm32-freestanding", "-mcpu=generic+simd128", "-Wl,--no-entry",
                     "-Wl,-z,stack-size=16384", "-Wl,--export=__heap_base"),
    "dot.wasm": ("-target", "wasm32-freestanding", "-mcpu=generic+simd128+relaxed_simd", "-Wl,--no-entry",
                 "-Wl,-z,stack-size=64", "-Wl,--import-memory"),
    "linux_x86_64.so": ("-target", "x86_64-linux-none", "-mcpu=x86_64"),
    "linux_x86_64_v3.so": ("-target", "x86_64-linux-none", "-mcpu=x86_64_v3"),
    "linux_aarch64.so": ("-target", "aarch64-linux-none", "-mcpu=generic"),
    "linux_armv7.so": ("-target", "arm-linux-none", "-mcpu=cortex_a7"),
    "generation.wasm": ("-target", "wasm32-freestanding", "-mcpu=generic+simd128", "-Wl,--no-entry",
                        "-Wl,-z,stack-size=32768", "-Wl,--export=__heap_base"),
    "generation-threads.wasm": ("-target", "wasm32-freestanding", "-mcpu=generic+simd128+atomics+bulk_memory",
                                "-Wl,--no-entry", "-Wl,-z,stack-size=32768", "-Wl,--export=__heap_base",
                                "-Wl,--export=__stack_pointer", "-Wl,--import-memory", "-Wl,--shared-memory",
                                "-Wl,--max-memory=4294901760"),
    "generation_linux_x86_64.so": ("-target", "x86_64-linux-none", "-mcpu=x86_64"),
    "generation_linux_x86_64_v3.so": ("-target", "x86_64-linux-none", "-mcpu=x86_64_v3"),
    "generation_linux_x86_64_vnni.so": ("-target", "x86_64-linux-none", "-mcpu=x86_64_v4+avx512vnni"),
    "generation_linux_aarch64.so": ("-target", "aarch64-linux-none", "-mcpu=generic"),
    "generation_linux_armv7.so": ("-target", "arm-linux-none", "-mcpu=cortex_a7"),
    "vectors.wasm": ("-target", "wasm32-freestanding", "-mcpu=generic+simd128", "-Wl,--no-entry",
                     "-Wl,-z,stack-size=4096", "-Wl,--export=__heap_base"),
    "vectors_linux_x86_64.so": ("-target", "x86_64-linux-none", "-mcpu=x86_64"),
    "vectors_linux_x86_64_v3.so": ("-target", "x86_64-linux-none", "-mcpu=x86_64_v3"),
    "vectors_linux_x86_64_vnni.so": ("-target", "x86_64-linux-none", "-mcpu=x86_64_v4+avx512vnni"),
    "vectors_linux_aarch64.so": ("-target", "aarch64-linux-none", "-mcpu=generic"),
    "vectors_linux_armv7.so": ("-target", "arm-linux-none", "-mcpu=cortex_a7"),
}  # fmt: skip
#: Vectors are written by hand: the compiler's own made the float depthwise convolution three times slower.
_OPTIONS = (
    *("-std=c11", "-O3", "-ffreestanding", "-fno-builtin", "-nostdlib", "-fvisibility=hidden", "-ffp-contract=off"),
    *("-fno-vectorize", "-fno-slp-vectorize", "-fno-stack-protector", "-fno-sanitize=all", "-fno-math-errno"),
    *("-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions", "-s", "-g0"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-psabi"),
)


class Library(NamedTuple):
    """What a library is made of.

    Attributes:
        source: The folder of its sources.
        exports: The functions that its module exports.
        page: The folder of the page's package that has copies of its modules; None where none has.
        shared: The functions that a module for threads exports too.
    """

    source: Path
    exports: tuple[str, ...]
    page: Path | None = None
    shared: tuple[str, ...] = ()


_PAGE = _HERE.parents[1] / "web" / "src"
#: By what a file's name begins with; the rest are of compiled models.
LIBRARIES: dict[str, Library] = {
    "generation": Library(
        SOURCE / "generation",
        (
            *("decoder_version", "decoder_check", "decoder_check_rows", "decoder_cache_bytes", "decoder_scratch_bytes"),
            *("decoder_run", "decoder_copy", "decoder_top"),
        ),
        _PAGE / "generation",
        (
            *("decoder_run_shared", "decoder_team_bytes", "decoder_team_begin", "decoder_team_present"),
            *("decoder_team_end", "decoder_join"),
        ),
    ),
    "vectors": Library(
        SOURCE / "vectors",
        ("vectors_abi", "vectors_scan", "vectors_differ", "vectors_select"),
        _PAGE / "vectors",
    ),
    "dot": Library(SOURCE / "dot", ("convolution_int8", "is_exact")),
    "": Library(SOURCE, (*KERNELS,)),
}


def library_of(name: str) -> Library:
    """Return what a file of `TARGETS` is made of."""
    return next(library for prefix, library in LIBRARIES.items() if name.startswith(prefix))


def arguments_header() -> str:
    """Return the C structs of the kernels' arguments, made of `declarations.KERNELS`."""
    lines = ["/* Made by edge_infer/kernels/build.py from declarations.py. */", "#pragma once", "#include <stdint.h>"]
    lines.append(f"#define KERNELS_ABI {ABI}")
    for name, kernel in KERNELS.items():
        whole = ", ".join((*kernel.tensors, *kernel.integers))
        floats = f" float {', '.join(kernel.floats)};" if kernel.floats else ""
        lines.append(f"struct {name}_arguments {{ int32_t {whole};{floats} }};")
    return "\n".join(lines) + "\n"


def build(folder: Path = BUILT, names: tuple[str, ...] = (*TARGETS,)) -> None:
    """Build files of `TARGETS` into a folder.

    Args:
        folder: Where they are written.
        names: Which of them.

    Raises:
        subprocess.CalledProcessError: The compiler fails; it says why on stderr.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_file(SOURCE / "arguments.h", arguments_header().encode())
    write_file(SOURCE / "generation" / "program.h", decoder_words.header().encode())
    for name in names:
        library = library_of(name)
        compile_to(folder / name, TARGETS[name], library)
        if folder == BUILT and library.page and library.page.is_dir() and name.endswith(".wasm"):
            write_file(library.page / name, (folder / name).read_bytes())


def compile_to(path: Path, target: tuple[str, ...], library: Library) -> None:
    """Build one file, whole or not at all.

    Args:
        path: Of the file; it is a module where it ends in `.wasm`.
        target: The compiler's options for it.
        library: What it is made of.

    Raises:
        subprocess.CalledProcessError: The compiler fails; it says why on stderr.
    """
    if path.name.endswith(".wasm"):
        functions = library.exports + (library.shared if "-Wl,--shared-memory" in target else ())
        ends = [f"-Wl,--export={function}" for function in functions]
    else:
        ends = ["-shared", "-fPIC", "-Wl,--build-id=none", f"-Wl,-soname,{path.name}"]
    sources = sorted(source.name for source in library.source.glob("*.c"))
    # Written beside and renamed: a process that has the old file loaded keeps it.
    made = path.resolve().with_name(f".{path.name}.{os.getpid()}")
    command = [sys.executable, "-m", "ziglang", "cc", *target, *_OPTIONS, *ends, "-o", os.fspath(made)]
    try:
        subprocess.run([*command, *sources], check=True, cwd=library.source)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else BUILT)
