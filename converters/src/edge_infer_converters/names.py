"""What a model and its versions may be called: both stand in URLs, `/v2/models/NAME/versions/VERSION`."""

from __future__ import annotations

import re

from edge_infer.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


def checked_name(name: str | None, file_name: str) -> str:
    """Return the name that is asked for, or else one made of the file's.

    Raises:
        InputError: It has characters that names cannot have.
    """
    if name is None:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", file_name).strip("-._")[:128] or "model"
    if not _NAME.fullmatch(name):
        raise InputError(
            f"Name {name!r} does not fit, expected letters, digits, `.`, `_` and `-`", hint="--name my-model", got=name
        )
    return name


def checked_version(version: str) -> str:
    """Return the version that is asked for.

    Raises:
        InputError: It has characters that versions cannot have.
    """
    if not _VERSION.fullmatch(version):
        raise InputError(
            f"Version {version!r} does not fit, expected letters, digits, `.`, `_`, `+` and `-`",
            hint="--model-version 2",
            got=version,
        )
    return version
