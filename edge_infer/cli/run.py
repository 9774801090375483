"""`edge-infer run`: run a model on files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import MANIFEST_NAME
from edge_infer.cli import options, output
from edge_infer.cli.run_chain import answer_chain
from edge_infer.cli.run_pipeline import Live, answer, answer_live
from edge_infer.errors import InputError
from edge_infer.formats import safetensors
from edge_infer.formats.input_files import read_inputs
from edge_infer.platform.atomic_write import write_file
from edge_infer.platform.fetch import is_url
from edge_infer.runtime.load import load
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from edge_infer.runtime.session import Session
    from edge_infer.tensors.tensor import Tensor

_WRITABLE = ".npz, .json or .safetensors"
_SHOWN = 5
_ARGUMENT = "What the pipeline takes, such as top_k=3 or threshold=0.6; may be repeated."


@click.command()
@click.argument("source")
@click.argument("raw", nargs=-1)
@options.inputs
@click.option("--example", type=int, metavar="N", help="Run on the bundle's golden example N, from 0.")
@click.option("--output", "-o", "target", metavar="FILE", help=f"Write the outputs to a file: {_WRITABLE}.")
@click.option("--argument", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help=_ARGUMENT)
@click.option("--save", metavar="FILE", help="Write the picture with what was found in it; for one image.")
@click.option("--camera", type=int, metavar="N", help="Answer each picture of a camera; 0 is the first.")
@click.option(
    "--microphone", is_flag=True, help="Answer what the microphone hears; `-` as RAW reads 16-bit samples of a pipe."
)
@click.option("--task", metavar="NAME", help="The task that the bundle must have.")
@options.model_choice
@options.as_json
def run(
    source: str,
    raw: tuple[str, ...],
    inputs: tuple[str, ...],
    example: int | None,
    target: str | None,
    arguments: tuple[str, ...],
    save: str | None,
    camera: int | None,
    microphone: bool,
    task: str | None,
    device: str,
    backend: str | None,
    variant: str | None,
    as_json: bool,
) -> None:
    """Run a model and show its outputs, or its answers to raw data.

    SOURCE is a bundle (folder, .zip or URL), or a .onnx or .tflite file. RAW are images, sounds, folders of them, or
    texts, for a bundle with a pipeline: each is answered, with --json a line for each. `-` reads 16-bit samples of a
    pipe. A chain answers in JSON; where it takes several inputs, RAW are NAME=VALUE.

    \b
    edge-infer run faces.bundle photo.jpg --save found.png
    edge-infer run photos.bundle holiday/ --argument top_k=1 --json
    edge-infer run silero.bundle --microphone --json
    edge-infer run digits.bundle --example 0
    edge-infer run digits.bundle --input image=seven.npy -o logits.npz
    edge-infer run digits.bundle --input seven.png
    edge-infer run faces-and-moods.bundle photo.jpg
    """  # noqa: D301  click reads the \b
    if target is not None and Path(target).suffix not in (".npz", ".json", ".safetensors"):
        raise click.UsageError(f"`{target}` has no known suffix; write to {_WRITABLE}")
    choice = {"device": device, "backend": backend, "variant": variant}
    chained = _chain_of(source)
    if chained is not None:
        given = {"--input": inputs, "--example": example is not None, "--output": target, "--argument": arguments}
        given |= {"--save": save, "--camera": camera is not None, "--microphone": microphone, "--task": task}
        given["--variant"] = variant
        refused = [flag for flag, value in given.items() if value]
        answer_chain(chained, raw, refused, as_json_lines=as_json, device=device, backend=backend)
        return
    if camera is not None or microphone or raw == ("-",):
        if inputs or example is not None or target or save or (camera is not None) + microphone + bool(raw) > 1:
            raise click.UsageError("--camera, --microphone and `-` stand alone: edge-infer run BUNDLE --camera 0")
        answer_live(source, Live(camera, bool(raw)), arguments, task, as_json_lines=as_json, **choice)
        return
    if raw:
        if inputs or example is not None or target is not None:
            raise click.UsageError("--input, --example and --output are for tensors; give RAW or them")
        answer(source, raw, arguments, save, task, as_json_lines=as_json, **choice)
        return
    if arguments or save is not None or task is not None:
        raise click.UsageError("--argument, --save and --task are for raw data: edge-infer run BUNDLE FILE")
    with load(source, device=device, backend=backend, variant=variant, arrays="tensor") as session:
        results = session.run(_feeds(session, inputs, example))
        if target is not None:
            _write(Path(target), results)
        if as_json:
            report = session.report()._asdict()
            output.data_json({"report": report, "outputs": {name: _as_json(value) for name, value in results.items()}})
        else:
            for name, value in results.items():
                _show(name, value, session.bundle.labels())
        output.talk(f"Ran {session!r}" + (f", wrote {target}" if target is not None else ""))


def _chain_of(source: str) -> Bundle | None:
    """Return the bundle of a chain; None of any other source."""
    if not (is_url(source) or source.endswith(".zip") or Path(source, MANIFEST_NAME).is_file()):
        return None
    if "/v2/models/" in source or source.startswith("edge+"):
        return None
    bundle = Bundle.open(source)
    return bundle if bundle.manifest.chain is not None else None


def _feeds(session: Session, inputs: tuple[str, ...], example: int | None) -> dict[str, Any]:
    if example is not None:
        if inputs:
            raise click.UsageError("--example and --input exclude each other")
        examples = session.bundle.examples()
        if not 0 <= example < len(examples):
            raise InputError(
                f"There is no golden example {example}: `{session.bundle.manifest.name}` has {len(examples)}",
                hint="--example 0" if examples else "give --input NAME=FILE",
            )
        return dict(examples[example][0])
    return read_inputs(inputs, session.inputs)


def _write(path: Path, results: dict[str, Tensor]) -> None:
    if path.suffix == ".json":
        document = output.finite({name: value.tolist() for name, value in results.items()})
        data = json.dumps(document, allow_nan=False).encode()
    elif path.suffix == ".safetensors":
        data = safetensors.write_tensors(results)
    else:
        from edge_infer.cli.npz import write_npz
        from edge_infer.tensors.arrays import EXTENDED, to_numpy

        arrays: dict[str, Any] = {}
        for name, value in results.items():
            if value.dtype in EXTENDED:
                raise InputError(
                    f"Output `{name}` is {value.dtype}, which numpy lacks",
                    hint=f"-o {path.with_suffix('.safetensors')}",
                    output=name,
                )
            array = to_numpy(value)
            arrays[name] = array.astype(str) if value.dtype is DType.STRING else array  # objects would be pickled
        data = write_npz(arrays)
    write_file(path, data)


def _as_json(tensor: Tensor) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "data": tensor.tolist()}


def _show(name: str, tensor: Tensor, labels: list[str]) -> None:
    """Print an output: the best classes where it has labels, else its first values."""
    output.data(f"{name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]")
    values = tensor.reshape(-1).tolist()
    if labels and len(values) == len(labels):
        best = sorted(range(len(values)), key=lambda i: -values[i])[:_SHOWN]
        output.table(["class", "label", "value"], [(i, labels[i], f"{values[i]:.4f}") for i in best], right=["value"])
        return
    shown = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values[: 2 * _SHOWN])
    output.data(f"  {shown}{', ...' if len(values) > 2 * _SHOWN else ''}")
