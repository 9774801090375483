"""Convert a folder or a GGUF file of a model that generates text: read it, encode its weights, write the bundle."""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.variant import Variant
from edge_infer.errors import AccuracyError, EdgeInferError, InputError
from edge_infer.generation import vectors
from edge_infer.generation.config import BLOCK
from edge_infer.generation.weight_file import Encoded, write_weight_file
from edge_infer.platform import allocator
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.bundle_writer import BundleWriter, checked_name, checked_version
from edge_infer_converters.conversion import DecoderConversion, DecoderVariant
from edge_infer_converters.generation_options import check_options
from edge_infer_converters.measure import generation_vectors
from edge_infer_converters.measure.variant_quality import describe_machine
from edge_infer_converters.report.reporter import step
from edge_infer_converters.search.calibrated_blocks import CalibratedBlocks
from edge_infer_converters.search.mixed_decoder import most_trials, search
from edge_infer_converters.search.perplexity import Judge, read_windows
from edge_infer_converters.sources.decoder.origin import Origin
from edge_infer_converters.writers.decoder.spool import Spool

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from edge_infer.generation.weight_file import Encoding
    from edge_infer_converters.recipe import Recipe
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.search.perplexity import Measured
    from edge_infer_converters.sources.decoder.describe import Described
    from edge_infer_converters.sources.decoder.tensors import SourceTensor
    from edge_infer_converters.sources.decoder.tokens import Tokens

TASK = "text-generation"
#: The preferred first.
PRECISIONS: dict[str, Encoding] = {"int4": "int4", "int8": "int8", "fp16": "f16", "fp32": "f32"}
MIXED = "mixed"
_USUAL = ("int4", "int8")
_TRIAL = "trial.safetensors"


def convert(
    place: Path,
    output: str | os.PathLike[str],
    recipe: Recipe,
    *,
    name: str | None,
    version: str,
    given: Mapping[str, object],
    force: bool,
    reporter: Reporter,
    source: Mapping[str, str] | None = None,
    license: str | None = None,  # noqa: A002  the manifest's word
) -> DecoderConversion:
    """Convert a folder or a file.

    Args:
        place: The folder of the Hugging Face Hub, or a GGUF file.
        output: The bundle to write.
        recipe: What to make: its precisions, and nothing else.
        name: The model's name; that of the folder or the file where it is None.
        version: The model's version.
        given: Further options by their flag; those that are not None are refused, but for the task of generation and
            `--calibration`, a text.
        force: Whether to replace a bundle that is there.
        reporter: The receiver of progress and warnings.
        source: Where the model came from, for the manifest.
        license: The licence of the weights, for the manifest.

    Raises:
        ConversionError: The folder is damaged, or its parts do not fit together.
        UnsupportedModel: The model, or its tokenizer, has a feature that is not supported.
        InputError: An option does not apply to decoders.
        BundleError: The output exists or cannot be written.
        AccuracyError: Nothing keeps `--max-loss`, or the model itself has no perplexity that could be compared.
    """
    words = (MIXED, *PRECISIONS)
    asked = check_options("A model that generates text", recipe, given, (TASK,), words, measures=True)
    text, most = given.get("--calibration"), recipe.budget.max_loss
    _check_budget(asked, has_text=text is not None, most=most)
    with ExitStack() as stack:
        writer = stack.enter_context(BundleWriter(output, force=force, source=source, license=license))
        origin = stack.enter_context(Origin(place))
        described, tokens, tensors, nbytes, forget_pages = origin.contents
        config, precisions = described.config, asked or (_usual(tensors) if most is None else (MIXED,))
        windows = None if text is None else read_windows(Path(str(text)), tokens, config.context)
        for note in described.notes:
            reporter.warn(note, "")
        for note, hint in tokens.notes:
            reporter.warn(note, hint)
        parameters = sum(math.prod(one.shape) for one in tensors)
        said = f"{nbytes / 1e6:.1f} MB, {config.architecture}, {parameters / 1e6:.1f} M parameters"
        reporter.talk(step("Read", place.resolve().name, f"{said}, {config.layers} layers, context {config.context}"))
        _say_requantized(tensors, precisions, reporter)
        spool = stack.enter_context(Spool(writer.folder))
        with reporter.progress(f"Encoding {', '.join(precisions)}", parameters) as advance:
            for tensor in tensors:
                wanted = [one for precision in precisions for one in _encodings_of(tensor, precision)]
                wanted += ["f32"] if windows is not None else []
                spool.add(tensor, list(dict.fromkeys(wanted)), advance)
                forget_pages()
        if windows is not None:
            _calibrate(described, tensors, spool, windows.read, reporter, forget_pages)
            allocator.return_free_memory()  # fp32 is mapped next, which takes as much as all weights
        for path, data in tokens.files.items():
            writer.add(path, data)
        weights = _Weights(writer, described, tensors, spool, reporter)
        if windows is not None:
            weights.judge_by(windows.measured)
        variants = [one for precision in precisions if (one := weights.variant(precision, most)) is not None]
        if not variants:
            raise AccuracyError(
                f"No variant of {', '.join(precisions)} keeps a loss of {most:.2%}",
                hint=f"--precision {MIXED},fp16, or a larger --max-loss",
                expected=most,
            )
        model = (checked_name(name, origin.name), checked_version(version))
        _write_manifest(writer, model, variants, tokens)  # the decoder is opened by it
        try:
            writer.add(vectors.NAME, generation_vectors.make(writer.folder))
            tokens.generate["vectors"] = vectors.NAME
        except EdgeInferError as error:
            reporter.warn(f"Nothing proves the generation: {error.message}", error.hint)
        revision = _write_manifest(writer, model, variants, tokens)
        result = DecoderConversion(
            writer.path,
            model[0],
            revision,
            writer.size,
            (),
            {},
            "nothing: a decoder's weights are encoded without data" if windows is None else f"4 bits and loss: {text}",
            decoders=tuple(variants),
            architecture=config.architecture,
            parameters=parameters,
            has_chat="chat_template" in tokens.generate,
        )
        writer.write_quality(_quality(result))
        writer.commit()
    return result


def encoding_of(tensor: SourceTensor, precision: str) -> Encoding:
    """Return how a variant of a precision stores a tensor.

    Vectors stay float32 and learned positions float16, which are few. The embedding and the head have 8 bits where
    others have 4: they are rows that are looked up, and the last sum before a token is chosen. A matrix whose columns
    blocks do not divide stays float16. A tensor whose file has it in blocks of 4 bits keeps those where others have 4.
    """
    if precision == "fp32" or len(tensor.shape) == 1:
        return "f32"
    if precision == "fp16" or tensor.name == "positions" or tensor.shape[1] % BLOCK:
        return "f16"
    if precision == "int4" and tensor.native == "int4":
        return "int4"
    return "int8" if tensor.name in ("embedding", "head") else PRECISIONS[precision]


def _usual(tensors: Sequence[SourceTensor]) -> tuple[str, ...]:
    """Return what is made unless told otherwise: of a file that is quantized already only what it has."""
    most = max(tensors, key=lambda one: sum(math.prod(each.shape) for each in tensors if each.native == one.native))
    return _USUAL if most.native is None else (most.native,)


def _say_requantized(tensors: Sequence[SourceTensor], precisions: Sequence[str], reporter: Reporter) -> None:
    """Say which tensors are quantized a second time, and so lose more than the file did."""
    lost = [one for one in tensors if one.native == "int8" and encoding_of(one, "int4") == "int4"]
    if lost and "int4" in precisions:
        reporter.warn(
            f"int4: {len(lost)} tensors such as `{lost[0].name}`, which have 8 bits in the file, are quantized anew, "
            "and lose more",
            "--precision int8 takes their blocks over",
        )


def _check_budget(asked: Collection[str], *, has_text: bool, most: float | None) -> None:
    """Refuse a budget without a text, and a search without a budget."""
    if most is not None and not has_text:
        raise InputError("--max-loss needs a text to measure perplexity on", hint="--calibration FILE.txt")
    if MIXED in asked and most is None:
        raise InputError(
            "`mixed` is searched within a budget of perplexity", hint="--calibration FILE.txt --max-loss 1%"
        )


def _encodings_of(tensor: SourceTensor, precision: str) -> tuple[Encoding, ...]:
    """Return how a variant may store a tensor."""
    if precision != MIXED:
        return (encoding_of(tensor, precision),)
    return tuple(dict.fromkeys(_mixed(tensor, small) for small in ((), (tensor.name,))))


def _mixed(tensor: SourceTensor, small: Collection[str]) -> Encoding:
    """Return how a tensor is stored where some have 4 bits; here the embedding and the head may too."""
    usual = encoding_of(tensor, "int8")
    return "int4" if usual == "int8" and tensor.name in small else usual


def _calibrate(
    described: Described,
    tensors: Sequence[SourceTensor],
    spool: Spool,
    windows: Sequence[Sequence[int]],
    reporter: Reporter,
    forget_pages: Callable[[], None],
) -> None:
    """Choose the blocks of 4 bits of the layers by what a text puts into them; those of the file stay."""
    names = {name for name, encoding in spool.places if encoding == "int4" and name.startswith("layers.")}
    names -= {one.name for one in tensors if one.native == "int4"}
    if not names or not windows:
        return
    source = {one.name: one for one in tensors}
    with reporter.progress("Calibrating int4", len(names)) as advance:
        for name, rows in CalibratedBlocks(described.config, source, described.rotations, windows, names):
            spool.replace(name, "int4", rows)
            forget_pages()
            advance(1)
    said = f"{len(names)} matrices by {sum(map(len, windows))} tokens"
    reporter.talk(step("Calibrated", "int4", said))


class _Weights:
    """Writes the weight files of variants, and measures them where there is a text."""

    def __init__(
        self,
        writer: BundleWriter,
        described: Described,
        tensors: Sequence[SourceTensor],
        spool: Spool,
        reporter: Reporter,
    ) -> None:
        self._writer, self._described, self._tensors = writer, described, tensors
        self._spool, self._reporter = spool, reporter
        self._judge: Judge | None = None
        self._windows = 0

    def judge_by(self, windows: Sequence[Sequence[int]]) -> None:
        """Measure what fp32 foretells of a text, with which variants will be compared.

        Raises:
            AccuracyError: It foretells nothing.
        """
        self._windows = len(windows)
        with self._trial({one.name: "f32" for one in self._tensors}) as path, self._progress("fp32") as advance:
            self._judge = Judge(path, windows, advance)
        if math.isinf(self._judge.base):
            raise AccuracyError(
                "The model itself, in fp32, foretells nothing of the text: its perplexity is infinite",
                hint="leave --calibration out, or look for broken weights",
            )

    def variant(self, precision: str, most: float | None) -> DecoderVariant | None:
        """Write a variant; None for one that loses more than it may.

        Raises:
            AccuracyError: A search finds nothing within the budget.
        """
        if precision == MIXED:
            chosen = self._searched(most or 0.0)
        else:
            chosen = {one.name: encoding_of(one, precision) for one in self._tensors}
        file = f"decoder/model_{precision}.safetensors"
        path = self._writer.folder / file
        path.parent.mkdir(exist_ok=True)
        self._write(path, chosen)
        found: Measured | None = None
        if self._judge is not None:
            with self._progress(precision) as advance:
                found = self._judge.measure(path, done=advance)
        if most is not None and found is not None and not found.worst <= most:
            path.unlink()
            said = f"{precision} loses {found.worst:.2%} of perplexity, more than {most:.2%}: it is left out"
            self._reporter.warn(said, f"--precision {MIXED} finds the smallest within the budget")
            return None
        places = [self._spool.places[one] for one in chosen.items()]
        signal, error = sum(one.signal for one in places), sum(one.error for one in places)
        sqnr_db = math.inf if error == 0 else 10 * math.log10(signal / error) if signal else 0.0
        variant = Variant(f"decoder/{precision}", "decoder", precision, file)
        told = () if found is None else found
        made = DecoderVariant(variant, self._writer.adopt(file), sqnr_db, *told)
        detail = f"{made.nbytes / 1e6:.1f} MB, weights {_decibels(sqnr_db)}"
        if found is not None:
            detail += f", perplexity {found.perplexity:.4g} ({found.loss:+.2%}, divergence {found.divergence:.2g})"
        self._reporter.talk(step("Converted", f"{variant.id:<13}", detail))
        return made

    def _searched(self, most: float) -> dict[str, Encoding]:
        sizes = {one.name: math.prod(one.shape) // 2 for one in self._tensors if _mixed(one, (one.name,)) == "int4"}

        def chosen(small: Collection[str]) -> dict[str, Encoding]:
            return {one.name: _mixed(one, small) for one in self._tensors}

        def measure(small: frozenset[str], every: int) -> Measured:
            assert self._judge is not None
            with self._trial(chosen(small)) as path:
                return self._judge.measure(path, every=every)

        with self._reporter.progress("Searching the matrices that take 4 bits", most_trials(len(sizes))) as advance:
            small = search(sizes, measure, most, advance)
        self._reporter.talk(
            step("Searched", MIXED, f"{len(small)} of {len(sizes)} matrices in 4 bits, the others in 8")
        )
        return chosen(small)

    def _progress(self, precision: str) -> AbstractContextManager[Callable[[int], None]]:
        return self._reporter.progress(f"Measuring {precision} on the text", self._windows)

    @contextmanager
    def _trial(self, chosen: Mapping[str, Encoding]) -> Iterator[Path]:
        """Give weights in a file that does not stay."""
        path = self._writer.folder / _TRIAL
        try:
            self._write(path, chosen)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _write(self, path: Path, chosen: Mapping[str, Encoding]) -> None:
        rotations = [
            (f"rope.{kind}", Encoded("f32", one.shape, one.astype("<f4").tobytes()))
            for kind, one in self._described.rotations.items()
        ]
        tensors = [*rotations, *self._spool.encoded(chosen.items())]
        write_weight_file(path, self._described.config, tensors, self._spool.forget_pages)


def _write_manifest(
    writer: BundleWriter, model: tuple[str, str], variants: Sequence[DecoderVariant], tokens: Tokens
) -> str:
    """Write the manifest and return its sha256."""
    return writer.write_manifest(
        *model,
        [TensorSpec("input_ids", "int32", ["tokens"])],
        [TensorSpec("logits", "float32", [tokens.generate["vocab_size"]])],
        [one.variant for one in variants],
        task=TASK,
        generate=tokens.generate,
    )


def _decibels(value: float) -> str:
    return "exact" if math.isinf(value) else f"{value:.1f} dB"


def _quality(result: DecoderConversion) -> dict[str, Any]:
    """Describe what was measured: how near the weights are to those of the folder, not the model's answers."""
    return {
        "revision": result.revision,
        "machine": describe_machine(),
        "variants": {one.variant.id: one.to_json() for one in result.decoders},
    }
