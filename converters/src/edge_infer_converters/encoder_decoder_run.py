"""Convert a Hugging Face folder of a model with an encoder and a decoder: Whisper, or one of T5's class."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edge_infer.bundle.variant import State, Variant
from edge_infer.errors import BundleError, ConversionError, EdgeInferError, UnsupportedModel, listed
from edge_infer.generation import vectors
from edge_infer.generation.encoder_decoder import KIND
from edge_infer.generation.speech import Speech
from edge_infer.tasks.text.definition import MAX_FILE_BYTES
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.bundle_writer import BundleWriter, checked_name, checked_version
from edge_infer_converters.conversion import DecoderConversion, DecoderVariant
from edge_infer_converters.generation_options import check_options
from edge_infer_converters.measure import generation_vectors
from edge_infer_converters.measure.variant_quality import describe_machine
from edge_infer_converters.passes.fp16 import to_fp16
from edge_infer_converters.passes.int8_dynamic import to_dynamic_int8
from edge_infer_converters.report.reporter import step
from edge_infer_converters.sources.decoder.files import optional_object, read_bytes, read_object
from edge_infer_converters.sources.decoder.shards import Shards
from edge_infer_converters.sources.decoder.tokens import TOKENIZER_NAME, read_tokenizer
from edge_infer_converters.sources.encoder_decoder.speech import speech_fields
from edge_infer_converters.sources.encoder_decoder.t5 import t5
from edge_infer_converters.sources.encoder_decoder.whisper import whisper
from edge_infer_converters.writers.plan import ENGINE_OPTIONS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edge_infer.tasks.text.tokenizer import Tokenizer
    from edge_infer_converters.recipe import Recipe
    from edge_infer_converters.report.reporter import Reporter
    from edge_infer_converters.sources.encoder_decoder.pair import Pair

#: By `model_type`, all those of `find.FAMILIES`, what writes the two graphs.
_WRITERS: dict[str, Callable[..., Pair]] = {"whisper": whisper, "t5": t5, "mt5": t5}
SPEECH, TEXT = "automatic-speech-recognition", "text2text-generation"
_TEXT_TASKS = (TEXT, "summarization", "translation")
#: The preferred first.
_MAKERS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "fp32": lambda model: model,
    "int8": to_dynamic_int8,
    "fp16": to_fp16,
}
_USUAL = ("fp32", "int8")
# What protobuf can hold, less what a graph needs beside its weights.
_MOST_BYTES = 2**31 - 2**20


def convert(
    folder: Path,
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
    """Convert a folder.

    Args:
        folder: The folder of the Hugging Face Hub.
        output: The bundle to write.
        recipe: What to make: its precisions, and nothing else.
        name: The model's name; the folder's where it is None.
        version: The model's version.
        given: Further options by their flag; those that are not None are refused, but for a task that fits.
        force: Whether to replace a bundle that is there.
        reporter: The receiver of progress and warnings.
        source: Where the model came from, for the manifest.
        license: The licence of the weights, for the manifest.

    Raises:
        ConversionError: The folder is damaged, or its parts do not fit together.
        UnsupportedModel: The model, or its tokenizer, has a feature that is not supported.
        InputError: An option does not apply.
        BundleError: The output exists or cannot be written.
    """
    document = read_object(folder / "config.json")
    kind = str(document["model_type"])
    tasks = (SPEECH,) if kind == "whisper" else _TEXT_TASKS
    precisions = check_options(f"A {kind}", recipe, given, tasks, _MAKERS) or _USUAL
    task = str(given.get("--task") or tasks[0])
    with ExitStack() as stack:
        writer = stack.enter_context(BundleWriter(output, force=force, source=source, license=license))
        shards = stack.enter_context(Shards(folder))
        if shards.nbytes > _MOST_BYTES:
            raise UnsupportedModel(
                f"The weights have {shards.nbytes / 1e9:.1f} GB: graphs of more than 2 GB are not written",
                hint="take a smaller model of the family",
            )
        parameters = sum(int(np.prod(one.shape)) for one in shards.tensors.values())
        said = f"{shards.nbytes / 1e6:.1f} MB, {kind}, {parameters / 1e6:.1f} M parameters"
        reporter.talk(step("Read", folder.resolve().name, said))
        pair = _WRITERS[kind](document, shards.tensors)
        data, tokenizer = _tokenizer(folder, pair.vocab_size, reporter)
        generate = _generate(folder, document, kind, task, pair, tokenizer)
        writer.add(TOKENIZER_NAME, data)
        made: list[DecoderVariant] = []
        for precision in precisions:
            decoder, encoder = _write(writer, pair, precision)
            made += [decoder, encoder]
            generate["encoders"][decoder.variant.id] = encoder.variant.id
            size = (decoder.nbytes + encoder.nbytes) / 1e6
            reporter.talk(step("Converted", f"{decoder.variant.id:<13}", f"{size:.1f} MB with its encoder"))
        # Decoders first: `load` takes one of them.
        made.sort(key=lambda one: one.variant.id not in generate["encoders"])
        model = (checked_name(name, folder.resolve().name), checked_version(version))
        inputs, outputs = _specs(pair.decoder)
        written = [one.variant for one in made]
        revision = writer.write_manifest(*model, inputs, outputs, written, task=task, generate=generate)
        try:
            writer.add(vectors.NAME, generation_vectors.make_sequences(writer.folder))
            generate["vectors"] = vectors.NAME
            revision = writer.write_manifest(*model, inputs, outputs, written, task=task, generate=generate)
        except EdgeInferError as error:
            reporter.warn(f"Nothing proves the generation: {error.message}", error.hint)
        result = DecoderConversion(
            *(writer.path, model[0], revision, writer.size, (), {}),
            "nothing: the weights are encoded without data",
            decoders=tuple(made),
            architecture=kind,
            parameters=parameters,
        )
        variants = {one.variant.id: {"size": one.nbytes} for one in made}
        writer.write_quality({"revision": revision, "machine": describe_machine(), "variants": variants})
        writer.commit()
    return result


def _tokenizer(folder: Path, vocab_size: int, reporter: Reporter) -> tuple[bytes, Tokenizer]:
    path = folder / TOKENIZER_NAME
    if not path.is_file():
        raise ConversionError(
            f"`{folder}` has no {TOKENIZER_NAME}",
            hint="save it with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )
    data = read_bytes(path, MAX_FILE_BYTES)
    tokenizer, outside = read_tokenizer(data, str(path), vocab_size)
    if outside:
        reporter.warn(f"The model has no weights for the special tokens {listed(outside)}: texts do without them", "")
    return data, tokenizer


def _generate(
    folder: Path, document: Mapping[str, Any], kind: str, task: str, pair: Pair, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Return the manifest's `generate`, its encoders left to be named."""
    advice = optional_object(folder / "generation_config.json")
    start = advice.get("decoder_start_token_id", document.get("decoder_start_token_id"))
    ends = advice.get("eos_token_id", document.get("eos_token_id"))
    eos = ends if isinstance(ends, list) else [ends]
    for field, values in (("decoder_start_token_id", [start]), ("eos_token_id", eos)):
        for one in values:
            if type(one) is not int or not 0 <= one < pair.vocab_size:
                raise ConversionError(
                    f"`{field}` is {one!r}, expected a number below the {pair.vocab_size} tokens of the model",
                    hint="correct it in config.json or generation_config.json",
                    field=field,
                )
    generate: dict[str, Any] = {
        "kind": KIND,
        "architecture": kind,
        "vocab_size": pair.vocab_size,
        "context": pair.context,
        "tokenizer": TOKENIZER_NAME,
        "encoders": {},
        "start": start,
        "eos": eos,
    }
    if task == SPEECH:
        generate["speech"] = speech_fields(folder, document, tokenizer)
        try:
            Speech(generate["speech"], pair.vocab_size, generate["start"])
        except BundleError as error:
            raise ConversionError(f"generation_config.json: {error.message}", hint="download it again") from error
    advised = document.get("task_specific_params")
    prefix = advised.get(task, {}) if isinstance(advised, dict) else {}
    if isinstance(prefix, dict) and isinstance(prefix.get("prefix"), str):
        generate["prefix"] = prefix["prefix"]
    return generate


def _write(writer: BundleWriter, pair: Pair, precision: str) -> tuple[DecoderVariant, DecoderVariant]:
    """Write the graphs of a precision: the decoder's variant, and the encoder's."""
    end = "" if precision == "fp32" else f"_{precision}"
    state = [State(output, input_) for output, input_ in pair.state]
    options = ENGINE_OPTIONS if precision == "int8" else {}
    file = f"onnx/decoder_model{end}.onnx"
    decoder = Variant(f"onnx/{precision}", "onnx", precision, file, options=options, state=state)
    inputs, outputs = _specs(pair.encoder)
    encoder = Variant(
        f"onnx/encoder-{precision}",
        "onnx",
        precision,
        f"onnx/encoder_model{end}.onnx",
        options=options,
        inputs=inputs,
        outputs=outputs,
    )
    made = []
    for variant, graph in ((decoder, pair.decoder), (encoder, pair.encoder)):
        data = _MAKERS[precision](graph).SerializeToString()
        writer.add(variant.file, data)
        made.append(DecoderVariant(variant, len(data), 0.0))
    return made[0], made[1]


def _specs(model: onnx.ModelProto) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Return the inputs and outputs of a graph."""

    def spec(value: onnx.ValueInfoProto) -> TensorSpec:
        kind = value.type.tensor_type
        dims = [one.dim_param or one.dim_value for one in kind.shape.dim]
        return TensorSpec(value.name, "int64" if kind.elem_type == onnx.TensorProto.INT64 else "float32", dims)

    return [spec(one) for one in model.graph.input], [spec(one) for one in model.graph.output]
