"""A small ONNX model of the bundle, for what no step says: the steps `tensor.graph` and `post.graph` run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.errors import BackendError, ManifestError
from edge_infer.platform.hashing import sha256
from edge_infer.runtime.load import load
from edge_infer.tasks.prepared_steps import joined, row_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tasks.place import Place
    from edge_infer.tensors.tensor import Tensor, TensorSpec


class Graph:
    """A small model on an engine of this place.

    Args:
        place: What the bundle offers.
        file: The path of the ONNX file in the bundle.

    Raises:
        ManifestError: It is no ONNX file, or no engine here loads it.
        BundleError: The file is missing or damaged.
    """

    def __init__(self, place: Place, file: str) -> None:
        self._file = file
        if not file.endswith(".onnx"):
            raise ManifestError(f"pipeline: the graph `{file}` is no .onnx file", hint="save it as ONNX", field=file)
        data = place.read(file)
        entry = FileEntry(file, len(data), sha256(data))
        manifest = Manifest("graph", "0", (), (), [Variant("onnx/graph", "onnx", "", file)], [entry])
        try:
            self._session = load(Bundle.of_files(manifest, {file: data}), arrays="tensor")
        except BackendError as error:
            raise ManifestError(
                f"pipeline: the graph `{file}` cannot be loaded: {error.message}", hint=error.hint, field=file
            ) from error

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """The specs of its inputs."""
        return self._session.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """The specs of its outputs."""
        return self._session.outputs

    def run(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run it on one raw input's tensors.

        Args:
            tensors: A tensor for each of its inputs. One that lacks the first dimension gets it, of 1; outputs whose
                spec begins with the same dimension lose it again. Whatever else begins with 1, such as the list of the
                boxes that were found, stays.

        Raises:
            InputError: A tensor does not fit.
            ExecutionError: The engine failed.
        """
        feeds = {spec.name: joined([tensors[spec.name]], spec, 0) for spec in self.inputs}
        outputs: dict[str, Tensor] = self._session.run(feeds)
        added = {spec.shape[0] for spec in self.inputs if len(feeds[spec.name].shape) > len(tensors[spec.name].shape)}
        alike = {spec.name for spec in self.outputs if spec.shape and spec.shape[0] in added}
        return {name: row_of(one, 0) if name in alike and one.shape[0] == 1 else one for name, one in outputs.items()}

    def close(self) -> None:
        """Give the engine's memory back."""
        self._session.close()
