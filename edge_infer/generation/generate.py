"""Public `generate` and `generate_async`: load a model that generates text."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import BundleError, InputError, UnsupportedError
from edge_infer.generation.decoder import MAX_SLOTS, MAX_THREADS, Decoder
from edge_infer.generation.definition import definition_of
from edge_infer.generation.generator import Generator
from edge_infer.generation.template import is_of_page
from edge_infer.platform.host import at_once, in_browser, run_in_thread
from edge_infer.tasks.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import os

    from edge_infer.bundle.manifest import Manifest
    from edge_infer.bundle.variant import Variant

#: Positions of a slot where nobody says: a model's own context may need gigabytes.
DEFAULT_CONTEXT = 4096
_SMALLEST_FIRST = ("int4", "mixed", "int8", "fp16", "fp32")


def generate(
    bundle: str | os.PathLike[str] | Bundle,
    *,
    variant: str | None = None,
    slots: int = 1,
    context: int | None = None,
    threads: int | None = None,
) -> Generator:
    """Load a model that generates text.

    Args:
        bundle: A bundle with `generate` in its manifest: a folder, a `.zip` or a URL.
        variant: The weights to use, such as `decoder/int8`; None for the smallest.
        slots: How many generations run at once; further ones wait.
        context: Tokens of prompt and answer together; None for the model's own, at most 4096. Each slot's cache takes
            memory for all of them.
        threads: Threads that compute; None for as many as are faster just now, up to the processors that this process
            may use. The number changes no token. A page has threads where it is cross-origin isolated.

    Raises:
        BundleError: There is no bundle, or a file of it is damaged.
        UnsupportedError: The bundle generates no text.
        InputError: A number is out of range.
        OutOfMemory: There is no memory for the slots.

    >>> generator = generate("smol.bundle")
    >>> for piece in generator.stream("Hello", seed=1, max_tokens=8):
    ...     print(piece, end="")
    """
    return at_once(_opened(bundle, variant, slots, context, threads))


async def generate_async(
    bundle: str | os.PathLike[str] | Bundle,
    *,
    variant: str | None = None,
    slots: int = 1,
    context: int | None = None,
    threads: int | None = None,
) -> Generator:
    """Load a model that generates text as `generate` does, without blocking; in a page it starts the kernels first."""
    if not in_browser():
        return await run_in_thread(
            lambda: generate(bundle, variant=variant, slots=slots, context=context, threads=threads)
        )
    from edge_infer.backends.web.decoder import start

    await start()
    return await _opened(bundle, variant, slots, context, threads, may_wait=True)


async def _opened(
    bundle: str | os.PathLike[str] | Bundle,
    variant: str | None,
    slots: int,
    context: int | None,
    threads: int | None,
    *,
    may_wait: bool = False,
) -> Generator:
    """Load a model; nothing is awaited unless this may wait."""
    if isinstance(bundle, Bundle):
        made = bundle
    else:
        made = await Bundle.open_async(bundle) if may_wait else Bundle.open(bundle)

    async def read(path: str) -> bytes:
        return await made.read_async(path) if may_wait else made.read(path)

    definition = definition_of(made.manifest)
    chosen = _variant(made.manifest, variant)
    longest = context if context is not None else min(definition.context, DEFAULT_CONTEXT)
    numbers: tuple[tuple[str, object, int], ...] = (
        ("slots", slots, MAX_SLOTS),
        ("context", longest, definition.context),
        ("threads", threads, MAX_THREADS),
    )
    for name, value, most in numbers:
        if name == "threads" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InputError(f"`{name}` is {value!r}, expected 1 to {most}", option=name)
    tokenizer = Tokenizer.from_bytes(await read(definition.tokenizer))
    template = None
    if definition.chat_template is not None:
        template = _text(await read(definition.chat_template), definition.chat_template)
        if may_wait and is_of_page():
            from edge_infer.backends.web.template import start

            await start()
    data = await read(chosen.file) if may_wait and made.file_path(chosen.file) is None else None
    decoder = open_decoder(made, chosen, slots=slots, context=longest, threads=threads, data=data)
    if decoder.config.vocab_size != definition.vocab_size:
        decoder.close()
        raise BundleError(
            f"`{chosen.file}` has {decoder.config.vocab_size} tokens, the manifest says {definition.vocab_size}",
            hint="convert the model again",
        )
    return Generator(decoder, tokenizer, definition, template=template, label=made.label, variant=chosen.id)


def _variant(manifest: Manifest, wanted: str | None) -> Variant:
    if wanted is not None:
        chosen = manifest.variant(wanted)
        if chosen.format != "decoder":
            raise UnsupportedError(
                f"variant `{wanted}` is {chosen.format}, which generates no text",
                hint=f"edge-infer info {manifest.name}",
            )
        return chosen
    known = [one for one in manifest.variants if one.format == "decoder"]
    if not known:
        raise UnsupportedError(f"`{manifest.name}` has no variant that generates text", hint="edge_infer.load(...)")
    return min(known, key=lambda one: _SMALLEST_FIRST.index(one.precision))


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"`{path}` is not UTF-8 at byte {error.start}") from error


def open_decoder(
    bundle: Bundle, variant: Variant, *, slots: int, context: int, threads: int | None = None, data: bytes | None = None
) -> Decoder:
    """Open the weights of a variant, checked against the manifest.

    Args:
        bundle: Where they are.
        variant: Which.
        slots: Sequences that the cache holds.
        context: Positions kept for each.
        threads: Threads that compute; None for as many as are faster.
        data: The weight file, where it was read already.

    Raises:
        BundleError: They are damaged.
        BackendError: They cannot run here.
    """
    path = bundle.file_path(variant.file) if data is None else None
    if path is not None:
        return Decoder.open(path, slots=slots, context=context, threads=threads)
    # The kernels map a file: the bytes of a zip or a URL become one, which goes away with its mapping.
    with tempfile.TemporaryDirectory(prefix="edge-infer-") as folder:
        file = Path(folder) / "weights.safetensors"
        file.write_bytes(bundle.read(variant.file) if data is None else data)
        return Decoder.open(file, slots=slots, context=context, threads=threads)
