"""LiteRT, natively: `.tflite` files by ai-edge-litert, or by tflite-runtime on older devices.

Both offer the same `Interpreter`, which is not thread-safe: the session runs one call at a time. Names come from the
model's signature, which keeps those of the source model; without one from its tensors.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Availability, Backend
from edge_infer.backends.litert.model import LiteRTModel, LiteRTWithInnerValues
from edge_infer.errors import BackendUnavailable, InputError, UnsupportedModel, listed
from edge_infer.formats.tflite_check import is_whole
from edge_infer.formats.tflite_tables import interface_fault
from edge_infer.platform.host import available_cpus
from edge_infer.platform.installed import installed_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.bundle.variant import Variant

# The successor first. tflite-runtime has wheels for 32-bit ARM and Python up to 3.11 only.
_PACKAGES = (("ai_edge_litert", "ai-edge-litert"), ("tflite_runtime", "tflite-runtime"))
#: The key of the delegates, as JSON. Keys that begin so are a program's alone: no bundle may name a library.
DELEGATES = "user.delegates"
# More threads than a Raspberry Pi has cores help no model that fits there.
_MAX_THREADS = 4


class LiteRTBackend(Backend):
    """The adapter of the `ai-edge-litert` and `tflite-runtime` packages."""

    name = "litert"
    formats = ("tflite",)
    is_exact = True
    takes_threads = True

    def availability(self) -> Availability:
        """Say whether one of the packages is installed; imports neither."""
        if sys.platform == "emscripten":
            return Availability(False, reason="has no build for Pyodide; use an onnx variant there")
        if _installed() is None:
            return Availability(False, reason="not installed", hint="pip install 'edge-infer[tflite]'")
        return Availability(True, ("cpu",))

    def version(self) -> str:
        """Return the version of the package that is used, and its name where it is the older one."""
        found = _installed()
        if found is None:
            return ""
        module, distribution = found
        number = installed_version(module, distribution)
        return number if module == _PACKAGES[0][0] else f"{number} ({distribution})"

    def prepare(self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]) -> LiteRTModel:
        """Load a model; see `Backend.prepare`. The options are those of `LiteRTOptions`, `interface` and `inner`.

        `interface` is `float` for a file with integer inputs and outputs, as microcontrollers want them: its own scales
        turn floats into these integers and back, so that it can be measured and used like any other. `inner` is `given`
        where the values between operators are outputs too, integers as the floats that they stand for; LiteRT's own
        kernels compute them, as XNNPACK keeps such values to itself.
        """
        del device
        known_options = ("intra_op_threads", "interface", "inner", "strict", DELEGATES)
        unknown = [key for key in options if key not in known_options]
        if unknown:
            raise InputError(f"litert takes no option {listed(unknown)}, as `{variant.id}` has", variant=variant.id)
        for key, known in (("interface", "float"), ("inner", "given")):
            if options.get(key, known) != known:
                raise InputError(
                    f"litert knows the {key} `{known}`, `{variant.id}` has `{options[key]}`", variant=variant.id
                )
        threads = int(options.get("intra_op_threads", 0)) or min(_MAX_THREADS, available_cpus())
        found = _installed()
        try:
            module = import_module(f"{found[0] if found else ''}.interpreter")
            interpreter_class = module.Interpreter
        except (ImportError, ValueError, AttributeError) as error:
            # tflite-runtime is built for numpy 1: with numpy 2 its import fails with an AttributeError.
            raise BackendUnavailable(
                f"LiteRT cannot be imported: {error}",
                hint="pip install 'numpy<2'"
                if found and found[0] == "tflite_runtime"
                else "pip install ai-edge-litert",
            ) from error
        content = model if isinstance(model, bytes) else Path(model).read_bytes()
        if found == _PACKAGES[1] and not is_whole(content):
            raise UnsupportedModel(
                f"litert cannot load `{variant.file}`: its {len(content)} bytes are not a whole TFLite file",
                hint="the file is cut short or no TFLite model: fetch or convert it again",
            )
        fault = interface_fault(content)
        if fault:
            raise UnsupportedModel(
                f"litert cannot load `{variant.file}`: {fault}", hint="the file is damaged: fetch or convert it again"
            )
        delegates = json.loads(options.get(DELEGATES, "[]"))
        if delegates:
            interpreter_class = partial(_delegating, module, delegates)
        if "inner" in options:
            interpreter_class = partial(
                interpreter_class,
                experimental_preserve_all_tensors=True,
                experimental_op_resolver_type=module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            )
        model_class = LiteRTWithInnerValues if "inner" in options else LiteRTModel
        made = model_class(interpreter_class, content, variant, threads, is_float="interface" in options)
        libraries = (Path(library).name for library, _ in delegates)
        made.placement = made.placement._replace(providers=(*libraries, *made.placement.providers))
        return made


def _installed() -> tuple[str, str] | None:
    """Return the module and distribution to use, or None where neither is installed."""
    for module, distribution in _PACKAGES:
        if find_spec(module) is not None:
            return module, distribution
    return None


def _delegating(module: Any, delegates: Sequence[tuple[str, Mapping[str, str]]], **wishes: Any) -> Any:
    """Make an interpreter with delegates of its own: an accelerator's serves one.

    Raises:
        BackendUnavailable: One does not load.
    """
    import ctypes

    loaded = []
    for library, settings in delegates:
        try:
            ctypes.PyDLL(library)  # first, because LiteRT's class for a missing library raises again in its destructor
            loaded.append(module.load_delegate(library, settings))
        except (OSError, ValueError, RuntimeError, AttributeError) as error:
            text = " ".join(str(error).split())
            raise BackendUnavailable(
                f"The delegate `{library}` does not load: {text}",
                hint="install its library, attach its device, and name the library or its path",
            ) from error
    return module.Interpreter(experimental_delegates=loaded, **wishes)
