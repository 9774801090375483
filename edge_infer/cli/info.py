"""`edge-infer info`: show the contents of a bundle or a model file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import chain_info, decoder_info, options, output, pipeline_info, program_info, tflite_info
from edge_infer.errors import InputError
from edge_infer.formats.onnx import read_contents
from edge_infer.runtime.load import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.bundle.variant import Variant


@click.command()
@click.argument("source")
@click.option("--program", "with_calls", is_flag=True, help="Of compiled models: each call with its arguments.")
@options.as_json
def info(source: str, with_calls: bool, as_json: bool) -> None:
    """Show what a bundle or a model file holds: inputs, outputs, variants, sizes, measured quality, pipeline.

    SOURCE is a bundle (folder, .zip or URL), a .onnx, .tflite or .wasm file, or a folder of the Hugging Face Hub. The
    steps before and after the model are those of its manifest, or what its metadata and the files beside it say. Of a
    .onnx file it shows the opsets and the operators, of a .tflite file also what the weights are stored in, and an
    estimate of the memory that it needs beside them; of a compiled model, .wasm, the kernels that it calls; of a model
    that generates text its family, its sizes and the tokens that end an answer; of a chain its steps, what each reads
    and what it gives.
    """
    if source.endswith(".wasm") and Path(source).is_file():
        program_info.show(Path(source), with_calls=with_calls, as_json=as_json)
        return
    if with_calls and source.endswith((".onnx", ".ort", ".tflite")):
        raise InputError(f"`{source}` is not a compiled model", hint="edge-infer compile MODEL.tflite -o FOLDER")
    if with_calls:
        program_info.show_variants(Bundle.open(source), as_json=as_json)
        return
    if source.endswith(".tflite") and Path(source).is_file():
        tflite_info.show(Path(source), as_json=as_json)
        return
    bundle = pipeline_info.described_bundle(source) or Bundle.open(source)
    manifest = bundle.manifest
    if manifest.chain is not None:
        chain_info.show(bundle, as_json=as_json)
        return
    inputs, outputs = manifest.inputs, manifest.outputs
    if not inputs:
        with load(bundle) as session:
            inputs, outputs = session.inputs, session.outputs
    contents = None
    if source.endswith(".onnx") and Path(source).is_file():
        contents = read_contents(Path(source).read_bytes())  # the engine or the bundle has refused other files
    quality = _quality(source)
    rows: list[dict[str, Any]] = []
    for variant in manifest.variants:
        measured = quality.get(variant.id, {})
        rows.append(
            {
                "id": variant.id,
                "format": variant.format,
                "precision": variant.precision,
                "file": variant.file,
                "size": manifest.size_of(variant),
                "targets": list(variant.targets),
                "quality": measured,
            }
        )
    if as_json:
        output.data_json(
            {
                "name": manifest.name,
                "version": manifest.version,
                "revision": bundle.revision,
                "inputs": [spec.to_json() for spec in inputs],
                "outputs": [spec.to_json() for spec in outputs],
                "variants": rows,
                **({} if contents is None else contents._asdict()),
                "examples": len(bundle.examples()),
                "labels": bundle.labels(),
                **pipeline_info.to_json(bundle),
                **decoder_info.to_json(bundle),
                "files": [entry.to_json() for entry in manifest.files.values()],
            }
        )
        return
    output.data(f"{manifest.name} {manifest.version}  revision {bundle.revision[:12]}")
    for spec in inputs:
        output.data(f"input   {spec}")
    for spec in outputs:
        output.data(f"output  {spec}")
    for said in _states(manifest.variants):
        output.data(f"state   {said}")
    if bundle.labels():
        output.data(f"labels  {len(bundle.labels())}: {', '.join(bundle.labels()[:10])}")
    pipeline_info.show(bundle)
    decoder_info.show(bundle)
    if manifest.examples:
        count = len(bundle.examples())
        output.data(f"golden  {count} example{'s' if count != 1 else ''}")
    if contents is not None:
        output.data("opset   " + ", ".join(f"{domain} {version}" for domain, version in contents.opsets.items()))
        output.data("nodes   " + ", ".join(f"{name} {count}" for name, count in contents.operators.items()))
    output.data("")
    output.table(
        ["variant", "size", "targets", said := "sqnr dB" if manifest.generate is None else "weights dB", "file"],
        [
            (
                row["id"],
                output.size(row["size"]),
                ", ".join(row["targets"]) or "by id only",
                _sqnr(row["quality"]),
                row["file"],
            )
            for row in rows
        ],
        right=["size", said],
    )
    total = sum(entry.size for entry in manifest.files.values())
    output.talk(f"{len(manifest.files)} files, {output.size(total)}")


def _states(variants: Sequence[Variant]) -> list[str]:
    """Describe, each once, what streams of the variants carry from step to step."""
    found = [state for variant in variants for state in variant.state]
    return list(
        dict.fromkeys("hidden in the model" if one.is_hidden else f"{one.output} -> {one.input}" for one in found)
    )


def _quality(source: str) -> dict[str, Any]:
    """Return what the converter measured of each variant, where it lies beside the manifest."""
    path = Path(source) / "quality.json"
    if not path.is_file():
        return {}
    try:
        measured = json.loads(path.read_text("utf-8")).get("variants", {})
    except (ValueError, AttributeError) as error:
        output.warn(f"quality.json cannot be read: {error}", "edge-infer convert makes it again")
        return {}
    if not isinstance(measured, dict):
        return {}
    return {variant: figures for variant, figures in measured.items() if isinstance(figures, dict)}


def _sqnr(measured: dict[str, Any]) -> str:
    value = measured.get("sqnr_db", measured.get("weights_sqnr_db"))
    return f"{value:.1f}" if isinstance(value, (int, float)) else "-"
