"""From an ONNX model to the bytes of a TFLite file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.inliner

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.carried_scales import to_float_weights
from edge_infer_converters.passes.fold_batch_norm import fold_batch_norm
from edge_infer_converters.passes.fold_shuffles import fold_shuffles_in
from edge_infer_converters.passes.quantized_operators import has_quantizers, to_quantizers
from edge_infer_converters.passes.quantized_weights import store_quantized_weights
from edge_infer_converters.writers.tflite import flatbuffer, metadata
from edge_infer_converters.writers.tflite.decompose import join_gelu, write_out_functions
from edge_infer_converters.writers.tflite.lowering import lower
from edge_infer_converters.writers.tflite.narrowing import narrow
from edge_infer_converters.writers.tflite.node import BatchDependent
from edge_infer_converters.writers.tflite.peephole import tidy
from edge_infer_converters.writers.tflite.quantize.activations import to_integers
from edge_infer_converters.writers.tflite.quantize.biases import Biases
from edge_infer_converters.writers.tflite.quantize.carried import to_carried_integers
from edge_infer_converters.writers.tflite.quantize.fast_activations import with_fast_activations
from edge_infer_converters.writers.tflite.quantize.integer_ends import with_integer_ends
from edge_infer_converters.writers.tflite.quantize.ranges import measure
from edge_infer_converters.writers.tflite.quantize.schemes import INT8, INT8X16
from edge_infer_converters.writers.tflite.quantize.weights import CHOICES, store_weights
from edge_infer_converters.writers.tflite.rules import RULES
from edge_infer_converters.writers.tflite.specialise import specialise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.passes.carried_scales import Scales
    from edge_infer_converters.writers.tflite.graph import Graph
    from edge_infer_converters.writers.tflite.quantize.schemes import Scheme

#: What a float graph can be written as: `int8` and `int8x16` compute with integers, the others only store weights in
#: fewer bits.
WORDS = ("fp32", "fp16", "int8", "int8x16", "int8-dynamic", "int4", "mixed")
_SCHEMES = {"int8": INT8, "int8x16": INT8X16}
_TABLES_IN_INT8 = {"table": "int8", "matrix": "fp32", "filter": "fp32"}


@dataclass(frozen=True, slots=True)
class TFLiteModel:
    """A written model.

    Attributes:
        data: The bytes of the `.tflite` file.
        is_batch_fixed: Whether a free batch had to be set to 1.
        operators: The TFLite operators in the order in which they run.
        note: What to say of its precision, empty for float.
    """

    data: bytes
    is_batch_fixed: bool
    operators: tuple[str, ...]
    note: str = ""


class FloatGraph:
    """A TFLite graph in float32, to be written in one precision or several.

    Args:
        graph: The graph; writing it changes nothing of it.
        name: What to call it.
        is_batch_fixed: Whether a free batch had to be set to 1.
        entries: Metadata to write: the bytes of each entry.
        files: Files to put behind the model.
        scales: Of a model that computes with quantized numbers, the scales of its constants by `carried_scales.key_of`;
            else None.

    Attributes:
        keep_names: Whether tensors between inputs and outputs keep their names; they weigh, and nothing reads them.
    """

    def __init__(
        self,
        graph: Graph,
        name: str = "model",
        *,
        is_batch_fixed: bool = False,
        entries: Mapping[str, bytes] | None = None,
        files: Mapping[str, bytes] | None = None,
        scales: Mapping[str, Scales] | None = None,
    ) -> None:
        self.graph = graph
        self.scales = scales
        self.name = name
        self.entries = dict(entries or {})
        self.files = dict(files or {})
        self.keep_names = False
        self.is_batch_fixed = is_batch_fixed

    @cached_property
    def nbytes(self) -> int:
        """The size of the file in float32."""
        return len(self.write().data)

    @classmethod
    def of_onnx(
        cls, model: onnx.ModelProto, name: str = "model", *, for_page: bool = True, fixed_batch: bool = False
    ) -> FloatGraph:
        """Turn an ONNX model into TFLite operators with the same tensor names, shapes and axis order.

        A free first dimension stays free (`interpreter.resize_tensor_input`), or is set to 1 where the model stores
        numbers that depend on it.

        Args:
            model: A float32 model; other free dimensions must be fixed first.
            name: What to call the graph.
            for_page: Whether LiteRT.js must read the file. Else a long LSTM becomes TFLite's own operator, which keeps
                its state in a variable tensor; LiteRT.js 2.5.3 refuses these.
            fixed_batch: Whether to set a free batch to 1 in any case.

        Raises:
            UnsupportedOperator: Operators, or settings of them, that have no rule: all of them, with the nodes' names.
            ConversionError: A dimension other than an input's first is free.
        """
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        scales: dict[str, Scales] | None = None
        with np.errstate(all="ignore"):  # broken weights give what they give, as in the engine
            if has_quantizers(model):
                model, scales = to_float_weights(store_quantized_weights(to_quantizers(model)))
            folded = fold_batch_norm(model)
            fold_shuffles_in(folded)
            prepared = write_out_functions(folded, RULES)
            graph, is_batch_fixed = _lowered(prepared, for_page, fixed_batch)
        tidy(graph, reorders=scales is None)
        return cls(graph, name, is_batch_fixed=is_batch_fixed, scales=scales)

    def describe(self, name: str, version: str, labels: Sequence[str] = ()) -> None:
        """Let every file say what it is: metadata as TensorFlow Lite Support defines them.

        Args:
            name: The model's name.
            version: The publisher's word for this state of it.
            labels: The classes along the last axis of the first output, or none.
        """
        ends = [[tensor.name for tensor in tensors] for tensors in (self.graph.inputs, self.graph.outputs)]
        self.entries[metadata.ENTRY] = metadata.describe(name, version, *ends, has_labels=bool(labels))
        if labels:
            self.files[metadata.LABELS_FILE] = "".join(f"{label}\n" for label in labels).encode()

    def write(
        self,
        word: str = "fp32",
        calls: Sequence[Mapping[str, np.ndarray]] = (),
        *,
        integer_interface: bool = False,
        method: str = "minmax",
        corrects: bool = True,
    ) -> TFLiteModel:
        """Write the graph in a precision.

        Args:
            word: One of `WORDS`; a quantized model is written in `int8` only, with its own scales.
            calls: For `int8` and `int8x16`, inputs for single calls that give values their ranges.
            integer_interface: For these, whether float inputs and outputs become integers too.
            method: For `int8` and `int8x16`, how ranges are found, one of `passes.ranges.METHODS`.
            corrects: Whether their biases learn from the calls by how much rounded weights shift each operator.

        Raises:
            ConversionError: Nothing of the model can be stored so, or it does not run on the inputs.
        """
        graph, note = self.graph, ""
        with np.errstate(all="ignore"):
            if self.scales is not None:
                if word != "int8":
                    raise ConversionError(f"The model is quantized already: it is not written in {word} again")
                graph = to_carried_integers(graph, self.scales)
                graph = with_integer_ends(graph) if integer_interface else graph
                note = f"{_share(graph, INT8)[0]} with the scales that it came with"
            elif word in _SCHEMES:
                if not calls:
                    raise ConversionError(
                        f"{word} needs inputs that give its values their ranges: pass some as `calls`"
                    )
                scheme = _SCHEMES[word]
                if scheme is INT8:
                    graph = with_fast_activations(graph, scheme, to_the_end=integer_interface)
                biases = Biases(graph, scheme)
                ranges = measure(graph, calls, method, biases.see if corrects else None)
                graph = biases.corrected()
                graph = to_integers(graph, ranges, scheme, integer_interface=integer_interface)
                note = _integer_note(graph, scheme)
                graph, _ = store_weights(graph, _TABLES_IN_INT8)  # what no arithmetic in integers reads
            elif word != "fp32":
                graph, counts = store_weights(self.graph, CHOICES[word])
                if not any(counts[encoding] for encoding in (("fp16",) if word == "fp16" else ("int8", "int4"))):
                    raise ConversionError("The model has no weights that are worth storing in fewer bits")
                note = _counted(counts)
        return self._written(graph, note)

    def write_each(self, choice: Mapping[int, str], *, elsewhere: str = "fp16") -> TFLiteModel:
        """Write the graph with an encoding for each constant.

        Args:
            choice: The encoding of single constants, by their `id`; see `quantize.weights.weights_of`.
            elsewhere: The encoding of the others.
        """
        kinds = dict.fromkeys(CHOICES["fp16"], elsewhere)
        with np.errstate(all="ignore"):
            graph, counts = store_weights(self.graph, kinds, choice)
        return self._written(graph, _counted(counts))

    def _written(self, graph: Graph, note: str) -> TFLiteModel:
        codes = tuple(operator.code for operator in graph.operators)
        data = flatbuffer.write(graph, self.name, keep_names=self.keep_names, metadata=self.entries)
        return TFLiteModel(metadata.with_files(data, self.files), self.is_batch_fixed, codes, note)


def write(model: onnx.ModelProto, name: str = "model", *, keep_names: bool = False) -> TFLiteModel:
    """Write an ONNX model as TFLite in float32; see `FloatGraph.of_onnx`."""
    graph = FloatGraph.of_onnx(model, name)
    graph.keep_names = keep_names
    return graph.write()


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} weight{'s' * (count > 1)} in {encoding}" for encoding, count in sorted(counts.items()))


def _integer_note(graph: Graph, scheme: Scheme) -> str:
    """Say how much of a quantized graph computes in integers.

    Raises:
        ConversionError: Nothing does.
    """
    note, count = _share(graph, scheme)
    if not count:
        raise ConversionError(
            "The model has no operator with weights that int8 can hold (Conv, Gemm, MatMul)", hint="--precision fp16"
        )
    return note


def _share(graph: Graph, scheme: Scheme) -> tuple[str, int]:
    computing = [operator for operator in graph.operators if operator.code not in ("QUANTIZE", "DEQUANTIZE")]
    integer = [one for one in computing if any(tensor.dtype == scheme.dtype for tensor in one.outputs)]
    return f"{len(integer)} of {len(computing)} operators in {scheme.name}", len(integer)


def _lowered(model: onnx.ModelProto, for_page: bool, fixed_batch: bool) -> tuple[Graph, bool]:
    """Return the graph, and whether its batch had to be fixed."""
    if not fixed_batch:
        with suppress(BatchDependent):  # and let go of what was found before the next one is: the error refers to it
            return lower(join_gelu(narrow(specialise(model))), RULES, for_page=for_page), False
    fixed = narrow(specialise(model, fixed_batch=True))
    return lower(join_gelu(fixed), RULES, for_page=for_page), True
