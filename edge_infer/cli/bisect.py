"""`edge-infer verify --bisect`: run a model in two ways, node by node, until they differ."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.backends.registry import backend_names, get_backend
from edge_infer.bundle.manifest import MANIFEST_NAME, FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.cli import output
from edge_infer.errors import InputError, UnsupportedModel, listed
from edge_infer.formats.safetensors import write_examples
from edge_infer.runtime.load import load
from edge_infer.runtime.selection import exact_engine
from edge_infer.tensors.tensor import Tensor
from edge_infer.verify import bisection
from edge_infer.verify.graphs import graph_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.formats.safetensors import Example
    from edge_infer.verify.bisection import Finding, Runs, Tap

#: More examples than this change nothing: a node that differs does so on each.
MAX_EXAMPLES = 4
#: How many values are given out at once: the first difference ends the search, and memory is limited.
CHUNK = 64


class Way(NamedTuple):
    """A way to run a model: which variant, on which engine and device; `cpu` in a page is `wasm`."""

    variant: Variant
    backend: str
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.variant.id} on {self.backend}" + ("" if self.device == "cpu" else f", {self.device}")


class Bisection(NamedTuple):
    """The result of comparing two ways.

    Attributes:
        way: The one that is judged.
        against: The one that is right.
        compared: How many inner values were compared, until the first difference.
        finding: That difference, or None.
    """

    way: Way
    against: Way
    compared: int
    finding: Finding | None

    def to_json(self) -> dict[str, Any]:
        """Describe this for machines."""
        found = self.finding
        first = None
        if found is not None:
            first = {
                "node": found.tap.node,
                "operator": found.tap.operator,
                "output": found.tap.name,
                "output_in_variant": found.tap.other,
                "sqnr_db": found.parity.sqnr_db,
                "max_err": found.parity.max_err,
                "reason": found.reason,
                "inputs": dict(found.inputs),
            }
        return {
            "variant": self.way.variant.id,
            "backend": self.way.backend,
            "device": self.way.device,
            "against": {
                "variant": self.against.variant.id,
                "backend": self.against.backend,
                "device": self.against.device,
            },
            "compared": self.compared,
            "first_difference": first,
        }


def judged_way(variant: Variant, backend: str, device: str) -> Way:
    """Return the way that a verdict is of: where nobody asked for a device, that which the engine takes by itself."""
    if get_backend(backend).page_devices:
        device = "cpu" if device in ("auto", "wasm") else device
    elif device == "auto":
        device = next(iter(get_backend(backend).availability().devices), "cpu")
    return Way(variant, backend, device)


def other_way(bundle: Bundle, way: Way, against: str | None) -> Way:
    """Find out what to compare with; it runs on the processor, whose numbers are the right ones.

    Args:
        bundle: The bundle.
        way: What is judged.
        against: A backend's name: the same variant there. A variant's id: that on the exact engine. None: the same
            variant on the exact engine if `way` is another engine, else the fp32 variant, else the reference engine.

    Raises:
        InputError: There is no such backend or variant.
        UnsupportedModel: Nothing in the bundle says what is right inside this variant.
    """
    ids = [variant.id for variant in bundle.manifest.variants]
    if way.variant.format == "compiled":
        return _source_way(bundle, way, against)
    if against is None:
        exact, plain = exact_engine(way.variant.format), f"{way.variant.format}/fp32"
        if way.backend != exact:
            return Way(way.variant, exact)
        if way.variant.precision != "fp32" and plain in ids:
            return Way(bundle.manifest.variant(plain), exact)
        for name in backend_names():
            if get_backend(name).is_reference and way.variant.format in get_backend(name).formats:
                return Way(way.variant, name)
        raise UnsupportedModel(
            f"Nothing says what is right inside `{way.variant.id}`: it is the fp32 variant on its exact engine",
            hint="--against another variant of its format",
        )
    if against in ids:
        variant = bundle.manifest.variant(against)
        found = Way(variant, exact_engine(variant.format))
    elif against in backend_names():
        found = Way(way.variant, against)
    else:
        raise InputError(
            f"--against `{against}` is neither an engine nor a variant of `{bundle.manifest.name}`",
            hint=f"one of {listed([*backend_names(), *ids])}",
            got=against,
        )
    return found


def _source_way(bundle: Bundle, way: Way, against: str | None) -> Way:
    """Return the TFLite variant that a compiled one was made of, on its exact engine."""
    wanted = f"tflite/{way.variant.id.partition('/')[2]}"
    if wanted not in [variant.id for variant in bundle.manifest.variants] or against not in (
        None,
        wanted,
        exact_engine("tflite"),
    ):
        raise UnsupportedModel(
            f"`{way.variant.id}` is compared with the TFLite variant that it was made of, `{wanted}`",
            hint="edge-infer convert MODEL --format tflite --format compiled -o model.bundle",
        )
    return Way(bundle.manifest.variant(wanted), exact_engine("tflite"))


def bisect(bundle: Bundle, way: Way, against: Way, examples: Sequence[Example]) -> Bisection:
    """Find the first node whose output differs.

    Raises:
        InputError: The two are the same.
        UnsupportedModel: The two are of two formats, or have nothing in common; or a page is to run TFLite.
        BackendError: An engine failed.
    """
    if way == against:
        raise InputError(f"{way} cannot be compared with itself", hint="--against another engine or variant")
    format_ = way.variant.format
    if format_ == "compiled":
        return _bisect_compiled(bundle, way, against, examples)
    if against.variant.format != format_:
        raise UnsupportedModel(
            f"`{way.variant.id}` and `{against.variant.id}` are files of two formats, whose nodes differ",
            hint=f"--against a variant of {format_}",
        )
    for one in (way, against):
        if format_ == "tflite" and one.backend != exact_engine(format_):
            raise UnsupportedModel(
                f"{one.backend} does not give inner values of TFLite files out",
                hint=f"--backend {exact_engine(format_)}",
            )
    right, judged = (_bytes(bundle, one.variant) for one in (against, way))
    graph = graph_of(right, format_)
    taps = bisection.taps_of(graph, None if judged == right else graph_of(judged, format_))
    # A page takes seconds to start: it gives everything out at once.
    is_in_page = any(get_backend(one.backend).page_devices for one in (way, against))
    with tempfile.TemporaryDirectory() as folder:
        runner = _Runner(Path(folder), way, against, right, judged, list(examples[:MAX_EXAMPLES]))
        finding, compared = bisection.first_difference(
            taps,
            _lower(way, against),
            runner.run,
            is_same_file=way.variant.id == against.variant.id,
            chunk=len(taps) if is_in_page else CHUNK,
        )
    return Bisection(way, against, compared, finding)


def _bisect_compiled(bundle: Bundle, way: Way, against: Way, examples: Sequence[Example]) -> Bisection:
    """Compare the calls of a compiled model with the operators of the TFLite file that it was made of."""
    from edge_infer.verify.programs import InnerValues

    if way.backend != "compiled":
        raise UnsupportedModel(
            f"{way.backend} does not give inner values of compiled models out", hint="--backend compiled"
        )
    source = _bytes(bundle, against.variant)
    inner = InnerValues(_bytes(bundle, way.variant), source)
    known = {*inner.names}
    taps = [tap for tap in bisection.taps_of(graph_of(source, "tflite")) if tap.name in known]
    samples: list[Example] = list(examples[:MAX_EXAMPLES])
    if inner.is_row:
        samples = [({name: _first(value) for name, value in feeds.items()}, {}) for feeds, _ in samples]
    with tempfile.TemporaryDirectory() as folder:
        runner = _Runner(Path(folder), way, against, source, b"", samples)

        def run(part: Sequence[Tap]) -> tuple[Runs, Runs]:
            wanted = [tap.name for tap in part]
            right = runner.run_one(against, source, wanted)
            judged = [inner.run(feeds) for feeds, _ in samples]
            return right, [{name: one[name] for name in wanted} for one in judged]

        finding, compared = bisection.first_difference(
            taps, _lower(way, against), run, is_same_file=way.variant.precision != "fp32", chunk=CHUNK
        )
    return Bisection(way, against, compared, finding)


def _first(value: Tensor) -> Tensor:
    """Return the first sample of a batch."""
    count = value.shape[0]
    data = bytes(value.data())[: value.dtype.nbytes(value.shape) // count]
    return Tensor(data, value.dtype, (1, *value.shape[1:]))


def show(bisections: Sequence[Bisection]) -> None:
    """Print what was found."""
    rows = []
    for one in bisections:
        found = one.finding
        if found is None:
            rows.append((str(one.way), str(one.against), "none differs", "", "", "", f"{one.compared} compared"))
            continue
        inputs = ", ".join(f"{name} {_decibels(value)}" for name, value in found.inputs.items())
        where = (found.tap.operator, found.tap.node, found.tap.name, _decibels(found.parity.sqnr_db))
        rows.append((str(one.way), str(one.against), *where, inputs or "the model's"))
    output.table(["variant", "against", "operator", "first node", "output", "sqnr", "its inputs"], rows)


class _Runner:
    """Runs both ways on the same inputs, inner values given out, each from a bundle made for the purpose."""

    def __init__(
        self, folder: Path, way: Way, against: Way, right: bytes, judged: bytes, examples: list[Example]
    ) -> None:
        self._folder = folder
        self._ways = ((against, right), (way, judged))
        self._examples = examples
        self._count = 0

    def run(self, taps: Sequence[Tap]) -> tuple[Runs, Runs]:
        (first, right), (second, judged) = self._ways
        return (
            self.run_one(first, right, [tap.name for tap in taps]),
            self.run_one(second, judged, [tap.other for tap in taps]),
        )

    def run_one(self, way: Way, model: bytes, names: Sequence[str]) -> Runs:
        """Run one way, with these inner values given out."""
        self._count += 1
        options = dict(way.variant.options)
        if way.variant.format == "tflite":
            options[way.backend] = {**options.get(way.backend, {}), "inner": "given"}
        else:
            model = bisection.give_out(model, names)
        folder = self._folder / f"tapped{self._count}.bundle"
        _write_bundle(folder, way.variant, options, model, self._examples)
        if get_backend(way.backend).page_devices:
            return _in_page(folder, way)
        with load(
            folder, backend=way.backend, variant=way.variant.id, device=way.device, strict=True, arrays="tensor"
        ) as session:
            return [session.run(inputs, list(dict.fromkeys(names))) for inputs, _ in self._examples]


def _in_page(folder: Path, way: Way) -> Runs:
    from edge_infer.server.app import create_app
    from edge_infer.server.http.in_thread import ServerThread
    from edge_infer.tools.browser.page import PagePython

    app = create_app({folder.stem: folder})
    with ServerThread(app) as server, PagePython(server.url, webgpu=way.device == "webgpu") as page:
        return page.run_examples(f"{server.url}/models/{folder.stem}", way.backend, way.variant.id, way.device)[1]


def _write_bundle(
    folder: Path, variant: Variant, options: Mapping[str, Mapping[str, str]], model: bytes, examples: list[Example]
) -> None:
    files = {variant.file: model, "examples/golden.safetensors": write_examples(examples)}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    entries = [FileEntry(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()]
    plain = Variant(variant.id, variant.format, variant.precision, variant.file, options=options)
    manifest = Manifest("tapped", "1", (), (), [plain], entries, examples="examples/golden.safetensors")
    (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())


def _bytes(bundle: Bundle, variant: Variant) -> bytes:
    model = bundle.model(variant)
    return model if isinstance(model, bytes) else Path(model).read_bytes()


def _lower(way: Way, against: Way) -> str:
    order = ("fp32", "fp16")
    found = [one.variant.precision for one in (way, against)]
    return max(found, key=lambda precision: order.index(precision) if precision in order else len(order))


def _decibels(value: float) -> str:
    return "exact" if value == float("inf") else f"{value:.1f} dB"
