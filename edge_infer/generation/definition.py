"""What a bundle says about the generation of text: the field `generate` of its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ManifestError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.bundle.manifest import Manifest

_KIND = "decoder/1"


@dataclass(frozen=True, slots=True)
class GenerateDefinition:
    """The field `generate`, checked (docs/concepts/bundle.md).

    Args:
        architecture: The family's name, for people.
        context: The longest sequence that the model was made for.
        vocab_size: Tokens of the model.
        tokenizer: The path of `tokenizer.json` in the bundle.
        chat_template: The path of the template of messages; None for a model that takes prompts alone.
        bos: The token that begins a text; None for none.
        add_bos: Whether a prompt begins with it.
        eos: The tokens that end an answer.
        special_tokens: Texts that templates name, such as `eos_token`.
        defaults: Options that the model's makers advise.
        vectors: The path of prompts with the tokens that must come out; None for none.
    """

    architecture: str
    context: int
    vocab_size: int
    tokenizer: str
    chat_template: str | None
    bos: int | None
    add_bos: bool
    eos: tuple[int, ...]
    special_tokens: Mapping[str, str]
    defaults: Mapping[str, Any]
    vectors: str | None


def definition_of(manifest: Manifest) -> GenerateDefinition:
    """Read what a bundle says.

    Raises:
        UnsupportedError: It says nothing, or is of another kind.
        ManifestError: A field is missing or of another type.
    """
    entry = manifest.generate
    if entry is None:
        raise UnsupportedError(
            f"`{manifest.name}` generates no text: its manifest has no `generate`", hint="edge_infer.load(...)"
        )
    if entry.get("kind") != _KIND:
        is_pair = str(entry.get("kind")).startswith("encoder-decoder/")
        raise UnsupportedError(
            f"`{manifest.name}` generates by `{entry.get('kind')}`, this version knows `{_KIND}`",
            hint=f'pipeline("{manifest.task}", ...)' if is_pair else "pip install --upgrade edge-infer",
        )
    eos = entry.get("eos", [])
    eos = [eos] if isinstance(eos, int) else eos
    if not isinstance(eos, list) or not all(type(one) is int for one in eos):
        raise ManifestError("manifest: `generate.eos` must be a list of whole numbers")
    return GenerateDefinition(
        architecture=_field(entry, "architecture", str, ""),
        context=_field(entry, "context", int),
        vocab_size=_field(entry, "vocab_size", int),
        tokenizer=_field(entry, "tokenizer", str),
        chat_template=_field(entry, "chat_template", str, None),
        bos=_field(entry, "bos", int, None),
        add_bos=_field(entry, "add_bos", bool, False),
        eos=tuple(eos),
        special_tokens=_field(entry, "special_tokens", dict, {}),
        defaults=_field(entry, "defaults", dict, {}),
        vectors=_field(entry, "vectors", str, None),
    )


_REQUIRED = object()


def _field(entry: Mapping[str, Any], name: str, kind: type, default: Any = _REQUIRED) -> Any:
    value = entry.get(name)
    if value is None and default is not _REQUIRED:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ManifestError(f"manifest: `generate.{name}` is {value!r}, expected {kind.__name__}")
    return value
