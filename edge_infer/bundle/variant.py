"""A variant of a bundle: one encoding of the model, and the state that it carries through a stream."""

from __future__ import annotations

from edge_infer.bundle.fields import choice_of, file_of, list_of, matches, member_of, object_of, specs_of, text_of
from edge_infer.errors import ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from typing import Any

    from edge_infer.tensors.tensor import TensorSpec

FORMATS = ("onnx", "tflite", "compiled", "decoder")
PRECISIONS = ("fp32", "fp16", "int8", "int4", "mixed")
TARGETS = ("web", "pi", "cuda", "mcu", "any")
_RESERVED = ("generate", "stream")
_PARITY = ("sqnr_db", "max_err", "top1", "equal", "steps", "lost_slices")
_VARIANT_ID = r"[a-z0-9]+/[a-z0-9][a-z0-9._-]{0,63}"


class State:
    """The state that a variant carries from step to step of a stream.

    Args:
        output: The output that becomes an input of the next step; empty for hidden state, which only the engine sees.
        input: That input.
    """

    __slots__ = ("input", "output")

    def __init__(self, output: str = "", input: str = "") -> None:  # noqa: A002
        self.output = output
        self.input = input

    @property
    def is_hidden(self) -> bool:
        """Whether no input and output shows it: variables of a TFLite file."""
        return not self.output

    def __repr__(self) -> str:
        return "State()" if self.is_hidden else f"State({self.output!r}, {self.input!r})"

    def to_json(self) -> dict[str, str]:
        """Describe this state as the manifest does."""
        return {"kind": "hidden"} if self.is_hidden else {"kind": "pair", "out": self.output, "in": self.input}


class Variant:
    """One encoding of the model.

    Args:
        id: Unique in the bundle, format first: `onnx/int8`.
        format: `onnx`, `tflite` or `compiled`, which `load` runs, or `decoder`, which `generate` runs.
        precision: What the weights are stored in.
        file: The path of the model file.
        external: The paths of files that the model file refers to by name (ONNX external data).
        targets: The kinds of place it was made for; none where it is only taken by its id.
        options: Per backend, the engine settings that parity needs, as the engine spells them.
        inputs: Its input specs where they differ from the bundle's, else None.
        outputs: Likewise its output specs.
        state: What a stream carries from step to step.
        parity: By output, how far from the source it may be; see `edge_infer.parity.verdict`.
    """

    __slots__ = (
        *("external", "file", "format", "id", "inputs", "options", "outputs", "parity", "precision", "state"),
        "targets",
    )

    def __init__(
        self,
        id: str,  # noqa: A002
        format: str,  # noqa: A002
        precision: str,
        file: str,
        *,
        external: Sequence[str] = (),
        targets: Sequence[str] = ("any",),
        options: Mapping[str, Mapping[str, str]] | None = None,
        inputs: Sequence[TensorSpec] | None = None,
        outputs: Sequence[TensorSpec] | None = None,
        state: Sequence[State] = (),
        parity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self.id = id
        self.format = format
        self.precision = precision
        self.file = file
        self.external = tuple(external)
        self.targets = tuple(targets)
        self.options = {backend: dict(settings) for backend, settings in (options or {}).items()}
        self.inputs = None if inputs is None else tuple(inputs)
        self.outputs = None if outputs is None else tuple(outputs)
        self.state = tuple(state)
        self.parity = {output: dict(figures) for output, figures in (parity or {}).items()}

    def __repr__(self) -> str:
        return f"Variant({self.id!r}, {self.file!r})"

    def to_json(self) -> dict[str, Any]:
        """Describe this variant as the manifest does."""
        entry: dict[str, Any] = {
            "id": self.id,
            "format": self.format,
            "precision": self.precision,
            "file": self.file,
            "targets": list(self.targets),
        }
        if self.external:
            entry["external"] = list(self.external)
        if self.options:
            entry["options"] = self.options
        if self.inputs is not None:
            entry["inputs"] = [spec.to_json() for spec in self.inputs]
        if self.outputs is not None:
            entry["outputs"] = [spec.to_json() for spec in self.outputs]
        if self.state:
            entry["state"] = [state.to_json() for state in self.state]
        if self.parity:
            entry["parity"] = self.parity
        return entry


def parse_variant(entry: Any, where: str, files: Container[str]) -> Variant:
    """Parse an entry of the manifest's `variants`.

    Args:
        entry: The JSON.
        where: What to call it in errors.
        files: The paths of the bundle's files.

    Raises:
        ManifestError: It is not a variant, names a file that is not among these, or has a field of a later version.
    """
    entry = object_of(entry, where)
    for field in _RESERVED:
        if field in entry:
            raise ManifestError(
                f"{where}: the field `{field}` is reserved for a later version of edge-infer",
                hint="pip install --upgrade edge-infer",
                is_newer=True,
                field=field,
            )
    id_ = text_of(entry, "id", where)
    if not matches(_VARIANT_ID, id_):
        raise ManifestError(f"{where}: `id` is {id_!r}, expected something like `onnx/int8`", got=id_)
    options = object_of(entry.get("options", {}), f"{where}.options")
    for backend, settings in options.items():
        for key, value in object_of(settings, f"{where}.options.{backend}").items():
            if not isinstance(value, str):
                raise ManifestError(f"{where}.options.{backend}.{key} is {value!r}, expected a string", got=value)
    external = list_of(entry, "external", where, optional=True)
    for path in external:
        if not isinstance(path, str) or path not in files:
            raise ManifestError(f"{where}: external file {path!r} is not in `files`", got=path)
    return Variant(
        id_,
        choice_of(entry, "format", where, FORMATS),
        choice_of(entry, "precision", where, PRECISIONS),
        file_of(entry, "file", where, files) or "",
        external=external,
        targets=[member_of(one, "targets", where, TARGETS) for one in list_of(entry, "targets", where)]
        if "targets" in entry
        else ["any"],
        options=options,
        inputs=specs_of(entry["inputs"], f"{where}.inputs") if "inputs" in entry else None,
        outputs=specs_of(entry["outputs"], f"{where}.outputs") if "outputs" in entry else None,
        state=[_parse_state(state, f"{where}.state") for state in list_of(entry, "state", where, optional=True)],
        parity=_parse_parity(entry.get("parity", {}), f"{where}.parity"),
    )


def _parse_parity(entry: Any, where: str) -> dict[str, dict[str, float]]:
    for output, figures in object_of(entry, where).items():
        for key, value in object_of(figures, f"{where}.{output}").items():
            if key in _PARITY and (isinstance(value, bool) or not isinstance(value, (int, float)) or value != value):
                raise ManifestError(f"{where}.{output}.{key} is {value!r}, expected a number", got=value)
    return {output: {key: figures[key] for key in _PARITY if key in figures} for output, figures in entry.items()}


def _parse_state(entry: Any, where: str) -> State:
    entry = object_of(entry, where)
    if choice_of(entry, "kind", where, ("hidden", "pair")) == "hidden":
        return State()
    return State(text_of(entry, "out", where), text_of(entry, "in", where))
