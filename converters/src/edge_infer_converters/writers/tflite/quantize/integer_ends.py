"""Integer inputs and outputs for a graph of integers whose ends are floats."""

from __future__ import annotations

from edge_infer.errors import ConversionError
from edge_infer_converters.writers.tflite.graph import Graph
from edge_infer_converters.writers.tflite.quantize.regions import is_activation


def with_integer_ends(graph: Graph) -> Graph:
    """Return a copy of a graph whose float inputs and outputs are the integers beside them.

    An input becomes what its QUANTIZE makes of it, an output what its DEQUANTIZE reads.

    Raises:
        ConversionError: One is read, or made, as float.
    """
    made = Graph(list(graph.inputs), list(graph.outputs), list(graph.operators))
    for place, tensor in enumerate(graph.inputs):
        if not is_activation(tensor):
            continue
        readers = [one for one in made.operators if any(tensor is read for read in one.inputs)]
        if len(readers) != 1 or readers[0].code != "QUANTIZE":
            raise ConversionError(
                f"Input `{tensor.name}` is not quantized in the model", hint="--tflite-io float", tensor=tensor.name
            )
        readers[0].outputs[0].name = tensor.name
        made.inputs[place] = readers[0].outputs[0]
        made.operators.remove(readers[0])
    for place, tensor in enumerate(graph.outputs):
        if not is_activation(tensor):
            continue
        maker = next(one for one in made.operators if any(tensor is given for given in one.outputs))
        source = maker.inputs[0]
        if maker.code != "DEQUANTIZE" or source is None or any(source is one for one in made.inputs):
            raise ConversionError(
                f"Output `{tensor.name}` is not quantized in the model", hint="--tflite-io float", tensor=tensor.name
            )
        source.name = tensor.name
        made.outputs[place] = source
        if not any(tensor is read for one in made.operators for read in one.inputs):
            made.operators.remove(maker)
    return made
