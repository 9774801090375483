"""`InferenceSession` and `IOBinding` over the page's engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from edge_infer.backends.web.ort import OrtWebBackend
from edge_infer.compat.ort_errors import NativeErrors, ort_error
from edge_infer.compat.ort_options import RunOptions, SessionOptions
from edge_infer.compat.ort_values import OrtValue, as_tensor, check_device, node_arg, presented, type_name
from edge_infer.errors import InputError
from edge_infer.formats.onnx import ModelMetadata, external_locations, read_metadata
from edge_infer.tensors.arrays import InputChecker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer.compat.ort_values import NodeArg
    from edge_infer.tensors.tensor import Array, TensorSpec

PROVIDER = "CPUExecutionProvider"
_NO_CALL = "the engine's interface has no such call"
_ABSENT = {
    "create_ortvalue_from_shape_and_type": "use OrtValue.ortvalue_from_shape_and_type",
    "end_profiling": "the engine has no file system to write a profile to",
    "get_overridable_initializers": _NO_CALL,
    "get_profiling_start_time_ns": "the engine has no file system to write a profile to",
    "get_provider_graph_assignment_info": _NO_CALL,
    "get_tuning_results": _NO_CALL,
    "release_captured_graph": "graphs are captured on GPUs only",
    "run_async": "a run blocks Python's only thread; use run",
    "run_with_ortvaluevector": "use run_with_ort_values",
    "set_ep_dynamic_options": _NO_CALL,
    "set_tuning_results": _NO_CALL,
}


class InferenceSession:
    """A loaded model.

    Args:
        path_or_bytes: A file of Python's file system, or the bytes of an `.onnx` or `.ort` file.
        sess_options: How to load it.
        providers: The native names; in a page all but `CPUExecutionProvider` are warned about and passed over.
        provider_options: As natively; the one provider has none.
        **kwargs: Other arguments of the native class, none of which can work in a page.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[str, Any]]] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        del provider_options
        if kwargs.pop("disabled_optimizers", None) or kwargs:
            named = ", ".join(kwargs) or "disabled_optimizers"
            raise NotImplementedError(f"InferenceSession's `{named}` cannot work in a page: {_NO_CALL}")
        self._options = sess_options or SessionOptions()
        self.set_providers(providers)
        model, external = _read(path_or_bytes)
        with NativeErrors():
            self._model = OrtWebBackend().open(
                model, self._options.for_engine(), {**external, **self._options.external()}
            )
        self._warn_of_threads()
        self._modelmeta = _metadata(model)
        self._inputs = {spec.name: spec for spec in self._model.inputs}
        self._output_names = [spec.name for spec in self._model.outputs]
        self._check = InputChecker(self._model.inputs)

    # -- what it is --

    def get_inputs(self) -> list[NodeArg]:
        """Describe the inputs."""
        return [node_arg(spec) for spec in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Describe the outputs."""
        return [node_arg(spec) for spec in self._model.outputs]

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the model's author wrote into it."""
        if self._modelmeta is None:
            raise NotImplementedError(
                "Only an `.onnx` file tells its metadata in a page: the engine keeps it to itself"
            )
        return self._modelmeta

    def get_providers(self) -> list[str]:
        """Return the one provider that there is."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the providers' options: there are none."""
        return {PROVIDER: {}}

    def get_session_options(self) -> SessionOptions:
        """Return the options that the session was made with."""
        return self._options

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, dict[str, Any]]] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Warn, as natively, of providers that are not there; a session always runs on the one that is."""
        del provider_options
        for provider in providers or ():
            name = provider if isinstance(provider, str) else provider[0]
            if name != PROVIDER:
                warn(
                    f"Specified provider '{name}' is not in available provider names.Available providers: '{PROVIDER}'",
                    UserWarning,
                    stacklevel=3,
                )

    def disable_fallback(self) -> None:
        """Do nothing: with one provider there is nothing to fall back to."""

    def enable_fallback(self) -> None:
        """Do nothing: with one provider there is nothing to fall back to."""

    # -- running --

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: The outputs to compute; None or empty for all.
            input_feed: A value for each input: a numpy array, a Tensor, another buffer, nested lists or an OrtValue.
            run_options: As natively; nothing of it can be other than the default.

        Returns:
            The outputs in order: numpy arrays where numpy can be imported, else `edge_infer.Tensor`s.
        """
        del run_options
        names = self._known_outputs(output_names)
        results = self._run(self._feeds(input_feed), names)
        return [presented(results[name]) for name in names]

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[OrtValue]:
        """Run the model as `run` does; the outputs stay in the engine's memory."""
        del run_options
        names = self._known_outputs(output_names)
        results = self._run(self._feeds(input_dict_ort_values), names, keep=names)
        return [OrtValue(results[name]) for name in names]

    def io_binding(self) -> IOBinding:
        """Make a binding: inputs and outputs that are set once and used by many runs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what was bound; the binding holds the outputs."""
        del run_options
        iobinding.run()

    def run_bound(
        self, feeds: Mapping[str, Any], names: Sequence[str], into: Mapping[str, OrtValue]
    ) -> dict[str, OrtValue]:
        """Run with outputs that stay in the engine, or are written where they are told to."""
        keep = [name for name in names if name not in into]
        targets = {name: value.tensor() for name, value in into.items()}
        results = self._run(self._feeds(feeds), names, targets, keep)
        return {name: into[name] if name in into else OrtValue(results[name]) for name in names}

    def _run(
        self, feeds: Mapping[str, Any], names: Sequence[str], into: Mapping[str, Any] | None = None, keep: Any = ()
    ) -> dict[str, Array]:
        with NativeErrors():
            return self._model.run(feeds, names, into or {}, keep)

    def _known_outputs(self, names: Sequence[str] | None) -> list[str]:
        for name in names or ():
            if name not in self._output_names:
                raise ort_error(2, f"Invalid output name:{name}")
        return list(names or self._output_names)

    def _feeds(self, feed: Mapping[str, Any]) -> dict[str, Array]:
        missing = [name for name in self._inputs if name not in feed]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")
        for name in feed:
            if name not in self._inputs:
                raise ort_error(2, f"Invalid input name: {name}")
        values = {name: value.tensor() if isinstance(value, OrtValue) else value for name, value in feed.items()}
        try:
            return self._check(values)
        except InputError as error:
            raise _native(error, self._inputs) from error

    def _warn_of_threads(self) -> None:
        wanted, there = int(self._options.intra_op_num_threads), self._model.placement.threads
        if wanted not in (0, there):
            warn(
                f"intra_op_num_threads is {wanted}, and the page's engine has {there}: it got them when it started, "
                "by loadPython({threads})",
                RuntimeWarning,
                stacklevel=3,
            )

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name in _ABSENT:
            raise NotImplementedError(f"InferenceSession's `{name}` cannot work in a page: {_ABSENT[name]}")
        raise AttributeError(f"'InferenceSession' object has no attribute {name!r}")

    def __del__(self) -> None:
        model = self.__dict__.get("_model")
        if model is not None:
            model.close()


class IOBinding:
    """Inputs and outputs of a session that are set once; made by `InferenceSession.io_binding`."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        #: Where each output goes: into a value, or (None) to wherever the engine puts it.
        self._outputs: dict[str, OrtValue | None] = {}
        self._results: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Feed an array; it is copied to the engine at each run."""
        self._check_name(name, self._session.get_inputs())
        self._inputs[name] = as_tensor(arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Feed a tensor of the engine's memory, without a copy."""
        self._check_name(name, self._session.get_inputs())
        self._inputs[name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output; the engine makes room for it."""
        check_device(device_type, device_id)
        if buffer_ptr is not None:
            raise NotImplementedError(f"`{name}` cannot be bound to an address in a page: {_POINTER}")
        self._check_name(name, self._session.get_outputs())
        del element_type, shape
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Let an output be written into a tensor of the engine's memory."""
        self._check_name(name, self._session.get_outputs())
        self._outputs[name] = ortvalue

    def bind_input(self, name: str, *_: Any, **__: Any) -> None:
        """Not in a page."""
        raise NotImplementedError(f"`{name}` cannot be bound to an address in a page: {_POINTER}")

    def run(self) -> None:
        """Run the session on what is bound; see `InferenceSession.run_with_iobinding`."""
        into = {name: value for name, value in self._outputs.items() if value is not None}
        self._results = self._session.run_bound(self._inputs, list(self._outputs), into)

    def get_outputs(self) -> list[OrtValue]:
        """Return the last run's outputs, in the order in which they were bound."""
        return list(self._results.values())

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copy the last run's outputs out of the engine."""
        return [value.numpy() for value in self._results.values()]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs = {}

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs, self._results = {}, {}

    def synchronize_inputs(self) -> None:
        """Do nothing: a copy is done when its call returns."""

    def synchronize_outputs(self) -> None:
        """Do nothing: a run is done when its call returns."""

    def _check_name(self, name: str, known: Sequence[NodeArg]) -> None:
        if all(one.name != name for one in known):
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")


_POINTER = "the engine has a memory of its own, which Python cannot address; bind an OrtValue"


def _read(source: str | bytes | os.PathLike[str]) -> tuple[bytes, dict[str, bytes]]:
    """Return a model's bytes, and the files beside it that it refers to."""
    if isinstance(source, bytes):
        return source, {}
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"Unable to load from type '{type(source)}'")
    path = Path(source)
    if not path.is_file():
        raise ort_error(3, f"Load model from {path} failed:Load model {path} failed. File doesn't exist")
    model = path.read_bytes()
    try:
        names = external_locations(model)
    except ValueError:
        names = []  # the engine says what is wrong with it
    folder = path.parent.resolve()
    inside = [name for name in names if (folder / name).resolve().is_relative_to(folder) and (folder / name).is_file()]
    return model, {name: (folder / name).read_bytes() for name in inside}


def _metadata(model: bytes) -> ModelMetadata | None:
    """Read the metadata; None where this is another format, `.ort`."""
    try:
        return read_metadata(model)
    except ValueError:
        return None


def _native(error: InputError, specs: Mapping[str, TensorSpec]) -> Exception:
    """Say of an input that does not fit what the native package says."""
    name, expected, got = (error.details.get(key) for key in ("input", "expected", "got"))
    if isinstance(expected, str) and isinstance(got, str):
        try:
            actual = type_name(got)
        except ValueError:
            actual = got
        return ort_error(
            2, f"Unexpected input data type. Actual: ({actual}) , expected: ({type_name(specs[str(name)].dtype)})"
        )
    if not isinstance(expected, list) or not isinstance(got, list):
        return ort_error(2, error.message)
    please = "Please fix either the inputs/outputs or the model."
    if len(expected) != len(got):
        return ort_error(2, f"Invalid rank for input: {name} Got: {len(got)} Expected: {len(expected)} {please}")
    wrong = [
        f" index: {axis} Got: {size} Expected: {want}\n"
        for axis, (size, want) in enumerate(zip(got, expected, strict=True))
        if isinstance(want, int) and size != want
    ]
    return ort_error(
        2, f"Got invalid dimensions for input: {name} for the following indices\n{''.join(wrong)} {please}"
    )
