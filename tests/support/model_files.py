"""The types of the fixtures that write a model or a bundle to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class WriteModel(Protocol):
    def __call__(self, data: bytes, name: str = "model.onnx") -> Path: ...


class WriteBundle(Protocol):
    def __call__(
        self,
        variants: Mapping[str, bytes],
        *,
        extra: Mapping[str, bytes] | None = None,
        examples: str | None = None,
        labels: str | None = None,
    ) -> Path: ...
