"""What an ONNX file says about itself, its metadata; the field numbers are those of onnx.proto."""

from __future__ import annotations

from typing import NamedTuple

from edge_infer.formats.onnx import fields, text_of

#: What the native package gives as the version of a model that states none.
NO_VERSION = 2**63 - 1


class ModelMetadata(NamedTuple):
    """What a model's author wrote into it; the attributes of `onnxruntime.ModelMetadata`."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = NO_VERSION
    custom_metadata_map: dict[str, str] = {}  # noqa: RUF012  never written to


def read_metadata(model: bytes) -> ModelMetadata:
    """Read a model's metadata.

    Raises:
        ValueError: The bytes are no ONNX model.
    """
    texts = {2: "", 4: "", 6: ""}
    version = NO_VERSION
    graph_name = graph_description = ""
    custom = {}
    for number, value in fields(memoryview(model)):
        if number in texts:
            texts[number] = text_of(value)
        elif number == 5 and isinstance(value, int):
            version = value
        elif number == 14 and isinstance(value, memoryview):
            entry = dict(fields(value))
            custom[text_of(entry.get(1, 0))] = text_of(entry.get(2, 0))
        elif number == 7 and isinstance(value, memoryview):
            for part, inner in fields(value):
                if part == 2:
                    graph_name = text_of(inner)
                elif part == 10:
                    graph_description = text_of(inner)
    return ModelMetadata(texts[2], graph_name, texts[4], texts[6], graph_description, version, custom)
