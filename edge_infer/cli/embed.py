"""`edge-infer embed`: vectors of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import options, output
from edge_infer.errors import InputError
from edge_infer.formats.safetensors import write_tensors
from edge_infer.platform.atomic_write import write_file
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument("source")
@click.argument("texts", nargs=-1)
@click.option(
    "--file", "files", multiple=True, metavar="FILE", help="A file with a text in each line; may be repeated."
)
@click.option("--prefix", default="", metavar="TEXT", help="What is put in front of each text.")
@click.option(
    "--output", "-o", "target", metavar="FILE", help="Write vectors [n, dimension] to .safetensors, or lines to .jsonl."
)
@options.model_choice
def embed(
    source: str,
    texts: Sequence[str],
    files: Sequence[str],
    prefix: str,
    target: str | None,
    device: str,
    backend: str | None,
    variant: str | None,
) -> None:
    """Make vectors of TEXTS by a bundle for feature-extraction; unless -o is given, print a line of JSON for each.

    Texts are sorted by length and run together, so that little is filled up. The variant with float weights is taken
    unless --variant is given.
    """
    from edge_infer.vectors.embedder import Embedder, float_variant

    given = [*texts]
    for file in files:
        try:
            given += [line for line in Path(file).read_text("utf-8").splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            raise InputError(f"`{file}` is not UTF-8: {error.reason}", hint="save it as UTF-8") from error
    if not given:
        raise InputError("there is no text", hint="edge-infer embed minilm.bundle 'a text', or --file FILE")
    if target is not None and not target.endswith((".safetensors", ".jsonl")):
        raise InputError(f"`{target}` is neither .safetensors nor .jsonl", hint="-o vectors.safetensors")
    bundle = Bundle.open(source)
    chosen = variant or float_variant(bundle)
    choice = {"device": device, "backend": backend, **({"variant": chosen} if chosen else {})}
    with Embedder(bundle, "", prefix, **choice) as embedder, output.progress("Embedding", len(given)) as advance:
        vectors = embedder.documents(given, advance)
    if target is not None and target.endswith(".safetensors"):
        data = b"".join(bytes(one.data()) for one in vectors)
        tensor = Tensor(data, vectors[0].dtype, (len(vectors), *vectors[0].shape))
        write_file(Path(target), write_tensors({"vectors": tensor}))
    else:
        lines = [
            json.dumps({"text": text, "vector": output.finite(vector.tolist())}, ensure_ascii=False, allow_nan=False)
            for text, vector in zip(given, vectors, strict=True)
        ]
        if target is None:
            output.data("\n".join(lines))
        else:
            write_file(Path(target), ("\n".join(lines) + "\n").encode())
    said = f", wrote {target}, {output.size(Path(target).stat().st_size)}" if target else ""
    output.talk(f"Embedded {len(given):,} texts to {vectors[0].size} numbers each{said}")
