"""The place of each part of the package: a page, a bare device, or a host only.

The page's archive (`server/static/page_archive.py`) and the folder of `edge-infer slim` (`tools/slim/folder.py`) hold
the files that `runs_in` names. `tests/project/test_rooms.py` compares the list with the package and its imports.
"""

from __future__ import annotations

from typing import Literal

Place = Literal["page", "device"]

_EVERYWHERE: tuple[Place, ...] = ("page", "device")

#: Every entry of the package's folder, and where it runs besides a host, which runs all of them.
ROOMS: dict[str, tuple[Place, ...]] = {
    "__init__.py": _EVERYWHERE,
    "__main__.py": (),
    "backends": _EVERYWHERE,
    "bundle": _EVERYWHERE,
    "chains": ("page",),
    "cli": (),
    "compat": ("page",),
    "errors.py": _EVERYWHERE,
    "formats": _EVERYWHERE,
    "generation": ("page",),
    "kernels": ("page",),
    "monitor": ("page",),
    "parity": _EVERYWHERE,
    "platform": _EVERYWHERE,
    "py.typed": (),
    "rooms.py": (),
    "runtime": _EVERYWHERE,
    "server": (),
    "sync": (),
    "tasks": _EVERYWHERE,
    "tensors": _EVERYWHERE,
    "tools": (),
    "vectors": ("page",),
    "verify": (),
}

#: Files and folders of those rooms that do not run in a place of their room, and the reason.
EXCEPTIONS: dict[str, tuple[tuple[Place, ...], str]] = {
    "backends/litert": (("page",), "LiteRT for Python has no build for Pyodide; a page has LiteRT.js"),
    "backends/onnxruntime": (("page",), "a native library; a page has onnxruntime-web"),
    "backends/reference": (_EVERYWHERE, "needs numpy; the wheel has it for pages with numpy"),
    "backends/remote/websocket.py": (("page",), "a socket of its own; a page has no sockets"),
    "backends/compiled.py": (
        _EVERYWHERE,
        "native kernels, which a slim folder leaves out; a page runs the file itself",
    ),
    "backends/web": (("device",), "engines of a page"),
    "bundle/hub.py": (("page",), "a page takes bundles, and fetches nothing of the Hub"),
    "formats/onnx_model.py": (_EVERYWHERE, "read by the reference engine, which is not there"),
    "formats/program.py": (_EVERYWHERE, "read with the kernels, which are not there"),
    "formats/wasm.py": (_EVERYWHERE, "read with the kernels, which are not there"),
    "chains/build.py": (("page",), "writes bundles for commands"),
    "chains/vectors.py": (("page",), "read when a chain is built and verified, on a host"),
    "bundle/quality.py": (("device",), "read where variants are compared; a slim folder has one"),
    "bundle/keys.py": (("page",), "opens sealed files, see bundle/sealed.py"),
    "bundle/sealed.py": (("page",), "needs the package cryptography, which a page does not bring"),
    "formats/input_files.py": (_EVERYWHERE, "read by commands and converters"),
    "formats/spans.py": (("page",), "read when a delta of a model is written, on a host"),
    "formats/tflite.py": (_EVERYWHERE, "read by tools and converters; LiteRT.js reads the file in a page"),
    "formats/tflite_sparsity.py": (_EVERYWHERE, "part of formats/tflite.py"),
    "formats/tflite_check.py": (("page",), "checks a file before the native LiteRT reads it"),
    "generation/native.py": (("page",), "native kernels; a page runs the same as WebAssembly"),
    "generation/team.py": (("page",), "threads of the native kernels"),
    "generation/template_limits.py": (("page",), "needs the package jinja2, which a page does not bring"),
    "kernels/build.py": (("page",), "compiles the kernels"),
    "kernels/search_library.py": (("page",), "native kernels"),
    "kernels/built": (("page",), "native libraries; `web/src/generation` has the module of text generation"),
    "kernels/declarations.py": (("page",), "arguments of kernels, which compiled models hold themselves"),
    "kernels/extents.py": (("page",), "checks calls before native kernels run them"),
    "kernels/generation.py": (("page",), "loads native libraries"),
    "kernels/library.py": (("page",), "loads native libraries"),
    "kernels/source": (("page",), "sources of the kernels"),
    "monitor/making.py": (("page",), "makes references on a host, with numpy"),
    "monitor/report.py": (("page",), "writes a page for people, on a host"),
    "parity/quantization_steps.py": (_EVERYWHERE, "compares integer variants in `edge-infer verify`"),
    "platform/allocator.py": (_EVERYWHERE, "for commands only"),
    "platform/cuda.py": (("page",), "loads NVIDIA's libraries"),
    "platform/guarded.py": (_EVERYWHERE, "for commands only"),
    "platform/hub.py": (("page",), "a page takes bundles, and no addresses of the Hub"),
    "platform/hub_client.py": (("page",), "a page takes bundles, and fetches nothing of the Hub"),
    "platform/posix.py": (("page",), "locks, signals and users of a native system"),
    "platform/systemd.py": (("page",), "writes to systemd's socket"),
    "runtime/live.py": (_EVERYWHERE, "follows a store, which needs the room `sync`"),
    "runtime/tuning.py": (("device",), "compares variants; a slim folder has one"),
    "tasks/tabular/batch.py": (("device",), "batches of tables, which a bare device does not read"),
    "tasks/tabular/expression.py": (("device",), "writes features where models are made"),
    "tasks/tabular/features.py": (("device",), "fits features to tables where models are made"),
    "tasks/tabular/frames.py": (("device",), "tables of other libraries"),
    "tasks/tabular/statistics.py": (("device",), "counts tables where models are made"),
    "tasks/sources/asked.py": (_EVERYWHERE, "read by converters"),
    "tasks/sources/image_metadata.py": (_EVERYWHERE, "read by converters"),
    "tasks/answers.py": (("page",), "writes answers for commands, the server and slim folders"),
    "tasks/vector_making.py": (_EVERYWHERE, "makes vectors where models are made"),
    "tasks/live/camera.py": (("page",), "reads cameras of a native system; a page has its own"),
    "tasks/image/png.py": (("page",), "writes masks for the server and slim folders"),
    "tasks/tabular/numpy_operators.py": (("page",), "needs numpy; the wheel has it for pages with numpy"),
    "vectors/clusters.py": (("page",), "needs numpy; the wheel has it for pages with numpy"),
    "vectors/documents.py": (("page",), "read by commands"),
    "vectors/filling.py": (("page",), "for commands only"),
    "vectors/native.py": (("page",), "native kernels"),
    "vectors/numeric.py": (("page",), "needs numpy; the wheel has it for pages with numpy"),
    "vectors/published.py": (("page",), "publishes indexes, and tries what was pulled, on a host"),
    "vectors/recall.py": (("page",), "for commands only"),
}

#: What a slim folder with a compiled model has besides: the kernels of its platform, and what reads the model.
FOR_COMPILED: tuple[str, ...] = (
    "backends/compiled.py",
    "formats/program.py",
    "formats/wasm.py",
    "kernels/__init__.py",
    "kernels/declarations.py",
    "kernels/extents.py",
    "kernels/library.py",
)

#: Rooms of a page that its first archive leaves out, so that a page which runs tensors does not pay for them. They are
#: in the second one, which Python fetches when it first imports one of them, and in the wheel.
LATER: tuple[str, ...] = ("chains", "compat", "generation", "kernels", "monitor", "parity", "tasks", "vectors")


def runs_in(path: str, place: Place) -> bool:
    """Whether a file runs in a place; a file of an unlisted room does not.

    Args:
        path: The file's path in the package, such as `runtime/load.py`.
        place: `page` or `device`.
    """
    if place not in ROOMS.get(path.partition("/")[0], ()):
        return False
    return not any(
        place in places and (path == part or path.startswith(f"{part}/")) for part, (places, _) in EXCEPTIONS.items()
    )
