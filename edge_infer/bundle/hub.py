"""Bring a model of the Hugging Face Hub here: a bundle, or a model file with what stands beside it."""

from __future__ import annotations

import os

from edge_infer.bundle.manifest import MANIFEST_NAME, Manifest
from edge_infer.bundle.model_files import MODEL_FILES
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.platform.hub import HubAddress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: What a file of ONNX is followed by where its weights lie beside it.
_EXTERNAL = ("_data", ".data")
_BESIDE = (".json", ".txt", ".jinja")


class HubModel:
    """A model of the Hub that is here.

    Attributes:
        folder: The folder with its files.
        file: The path of the model's file; empty for a bundle.
        name: `owner/name`.
        commit: The commit that the files are of.
    """

    __slots__ = ("commit", "file", "folder", "name")

    def __init__(self, folder: str, file: str, name: str, commit: str) -> None:
        self.folder = folder
        self.file = file
        self.name = name
        self.commit = commit

    @property
    def source(self) -> dict[str, str]:
        """What the manifest of a bundle that is made of it says."""
        return {"hub": self.name, "revision": self.commit}


def bring(address: str) -> HubModel:
    """Bring a model here that an engine runs.

    Args:
        address: `hf:owner/name[@revision]`, or with the file that is meant.

    Raises:
        InputError: It is not an address, or there is no such repository, revision or file.
        UnsupportedError: The repository has neither a bundle nor an ONNX file.
        FetchError: The Hub does not answer.
        IntegrityError: A file has another size or hash than the Hub says.
        ManifestError: The manifest of its bundle is wrong.
    """
    place, taken = HubAddress(address), ""

    def choose(names: Sequence[str], folder: str) -> list[str]:
        nonlocal taken
        if place.path:
            taken = named(place, names)
        elif MANIFEST_NAME in names:
            return [MANIFEST_NAME, *_files_of_bundle(folder, names)]
        else:
            taken = next((one for one in MODEL_FILES if one in names), "")
        if not taken:
            raise UnsupportedError(
                f"`{address}` has neither a bundle ({MANIFEST_NAME}) nor onnx/model.onnx",
                hint=f"edge-infer convert {address} -o {place.name.rpartition('/')[2]}.bundle",
            )
        return with_beside(taken, names)

    folder, commit = fetched(address, choose)
    return HubModel(folder, os.path.join(folder, *taken.split("/")) if taken else "", place.name, commit)


def fetched(address: str, choose: Callable[[Sequence[str], str], Sequence[str]]) -> tuple[str, str]:
    """Bring files of a repository here, into the cache of the Hub's own tools.

    Args:
        address: The address.
        choose: Returns the files that are wanted of those that the repository has. It is asked again, with the folder
            of those that are here, until it wants no other.

    Returns:
        The folder with the files, and the commit that they are of.

    Raises:
        InputError: It is not an address, or there is no such repository or revision.
        FetchError: The Hub does not answer, or not with what it promised.
        IntegrityError: A file has another size or hash than the Hub says.
    """
    from edge_infer.platform.hub_client import HubRepository

    repository = HubRepository(HubAddress(address))
    here: set[str] = set()
    while wanted := [one for one in choose(sorted(repository.files), repository.folder) if one not in here]:
        repository.download(wanted)
        here.update(wanted)
    return repository.folder, repository.commit


def named(place: HubAddress, names: Sequence[str]) -> str:
    """Return the file that an address names.

    Raises:
        InputError: The repository does not have it.
    """
    if place.path not in names:
        from edge_infer.errors import did_you_mean

        hint = did_you_mean(place.path, list(names)) or f"hf:{place.name} takes what fits"
        raise InputError(f"`{place.name}` has no file `{place.path}`", hint=hint, got=place.path)
    return place.path


def with_beside(file: str, names: Sequence[str]) -> list[str]:
    """Return a model's file, the files of its weights, and the small ones that say what it is for."""
    weights = [one for one in names if one.startswith(tuple(f"{file}{end}" for end in _EXTERNAL))]
    return [file, *weights, *(one for one in names if "/" not in one and one.endswith(_BESIDE))]


def _files_of_bundle(folder: str, names: Sequence[str]) -> list[str]:
    """Return what the manifest names, once it is here; the bundle says itself where one is missing."""
    try:
        with open(os.path.join(folder, MANIFEST_NAME), "rb") as file:
            data = file.read()
    except OSError:
        return []
    found = Manifest.from_bytes(data)
    return [one for one in (*found.files, "quality.json") if one in names]
