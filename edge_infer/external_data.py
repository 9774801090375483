"""The files that an ONNX model keeps its weights in, besides its own."""

from __future__ import annotations


def external_locations(model: bytes) -> set[str]:
    """Find the files that an ONNX model refers to.

    They are the values of `location` among the key-value pairs of `TensorProto.external_data` (onnx.proto): the bytes
    of a pair are its key as field 1 and its value as field 2, each with a length.
    """
    mark = b"\x0a\x08location\x12"
    found = set()
    start = model.find(mark)
    while start != -1:
        at = start + len(mark)
        length, shift = 0, 0
        while at < len(model) and shift < 35:
            byte = model[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found.add(model[at : at + length].decode("utf-8", "replace"))
        start = model.find(mark, at)
    return found
