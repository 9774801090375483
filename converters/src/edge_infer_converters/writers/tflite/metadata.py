"""Write the metadata of a TFLite file: name, version, tensors, and the class names as a file inside.

The format is that of TensorFlow Lite Support: a table in a buffer named `TFLITE_METADATA`, and files in a zip behind
the model (https://github.com/tensorflow/tflite-support/blob/master/tensorflow_lite_support/metadata/metadata_schema.fbs);
the numbers below are the fields' places there.
"""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import flatbuffers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The name of the buffer's entry.
ENTRY = "TFLITE_METADATA"
#: The file of the class names, one on each line.
LABELS_FILE = "labels.txt"
_IDENTIFIER = b"M001"
_PARSER_VERSION = "1.0.0"
_AXIS_LABELS = 2
_MODEL_NAME, _MODEL_VERSION, _MODEL_SUBGRAPHS, _MODEL_PARSER, _MODEL_FIELDS = 0, 2, 3, 7, 8
_GRAPH_INPUTS, _GRAPH_OUTPUTS, _GRAPH_FIELDS = 2, 3, 7
_TENSOR_NAME, _TENSOR_FILES, _TENSOR_FIELDS = 0, 6, 7
_FILE_NAME, _FILE_TYPE, _FILE_FIELDS = 0, 2, 4
# The same files give the same bytes.
_NO_DATE = (1980, 1, 1, 0, 0, 0)


def describe(
    name: str, version: str, inputs: Sequence[str], outputs: Sequence[str], *, has_labels: bool = False
) -> bytes:
    """Return the bytes of the metadata's table.

    Args:
        name: The model's name.
        version: The publisher's word for this state of it.
        inputs: The names of the inputs, in the order of the graph.
        outputs: Likewise of the outputs.
        has_labels: Whether `LABELS_FILE` names the classes along the last axis of the first output.
    """
    builder = flatbuffers.Builder(512)
    files = _vector(
        builder, [_table(builder, _FILE_FIELDS, {_FILE_NAME: builder.CreateString(LABELS_FILE)}, _AXIS_LABELS)]
    )
    given = [_table(builder, _TENSOR_FIELDS, {_TENSOR_NAME: builder.CreateString(one)}) for one in inputs]
    results = []
    for i, one in enumerate(outputs):
        fields = {_TENSOR_NAME: builder.CreateString(one)}
        if has_labels and i == 0:
            fields[_TENSOR_FILES] = files
        results.append(_table(builder, _TENSOR_FIELDS, fields))
    ends = {_GRAPH_INPUTS: _vector(builder, given), _GRAPH_OUTPUTS: _vector(builder, results)}
    graphs = _vector(builder, [_table(builder, _GRAPH_FIELDS, ends)])
    model = {
        _MODEL_NAME: builder.CreateString(name),
        _MODEL_VERSION: builder.CreateString(version),
        _MODEL_SUBGRAPHS: graphs,
        _MODEL_PARSER: builder.CreateString(_PARSER_VERSION),
    }
    builder.Finish(_table(builder, _MODEL_FIELDS, model), file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


def with_files(data: bytes, files: Mapping[str, bytes]) -> bytes:
    """Append files to a model as a zip, uncompressed; readers of the model do not look behind its end."""
    if not files:
        return data
    target = io.BytesIO(data)
    with zipfile.ZipFile(target, "a", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _NO_DATE), content)
    return target.getvalue()


def files_of(data: bytes) -> dict[str, bytes]:
    """Return the files behind a model; none where there is no zip, or a broken one."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [one for one in archive.infolist() if not one.is_dir()]
            if sum(one.file_size for one in entries) <= len(data):  # else it is packed, or one of lies
                found = {one.filename: archive.read(one) for one in entries}
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, OSError):
        return {}
    return found


def _table(builder: Any, fields: int, offsets: Mapping[int, int], file_type: int = 0) -> int:
    builder.StartObject(fields)
    for number, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(number, offset, 0)
    if file_type:
        builder.PrependInt8Slot(_FILE_TYPE, file_type, 0)
    end: int = builder.EndObject()
    return end


def _vector(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    end: int = builder.EndVector()
    return end
