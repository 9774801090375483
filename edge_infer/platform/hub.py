"""Addresses of the Hugging Face Hub: `hf:owner/name`, with a revision and a file where they are wanted."""

from __future__ import annotations

from edge_infer.errors import InputError

_PREFIX = "hf:"
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_EXPECTED = "hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME/FILE"


def is_hub(source: object) -> bool:
    """Tell whether a model's source is an address of the Hub."""
    return isinstance(source, str) and source.startswith(_PREFIX)


class HubAddress:
    """A repository of models, or a file in it.

    Args:
        text: `hf:owner/name[@revision][/path/of/a/file]`. A revision is a branch, a tag, a commit, or `refs/pr/N`.

    Attributes:
        name: `owner/name`.
        revision: The revision; `main` unless the address names one.
        path: The file in it; empty where the address names none.

    Raises:
        InputError: It is not an address.
    """

    __slots__ = ("name", "path", "revision", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        rest = text.removeprefix(_PREFIX).removeprefix("//")
        owner, _, rest = rest.partition("/")
        first, slash, path = rest.partition("/")
        name, at, revision = first.partition("@")
        if revision == "refs" and path.startswith(("pr/", "convert/")):
            kind, number, path = (*path.split("/", 2), "")[:3]
            revision, slash = f"refs/{kind}/{number}", "/" if path else ""
        parts = path.split("/") if path else []
        fits = is_part(owner) and is_part(name) and (not at or all(is_part(one) for one in revision.split("/")))
        if not fits or (slash and not path) or not all(is_part(one, also=" +,()=") for one in parts):
            raise InputError(f"`{text}` is not an address of the Hugging Face Hub, expected {_EXPECTED}", got=text)
        self.name = f"{owner}/{name}"
        self.revision = revision or "main"
        self.path = path


def is_part(text: str, also: str = "") -> bool:
    """Tell whether a text can stand between two slashes of an address or of a path in a repository."""
    return 0 < len(text) <= 255 and text.strip(".") != "" and all(one in _LETTERS or one in also for one in text)
