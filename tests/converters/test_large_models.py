"""Large models are not copied where that can be avoided: sessions, files and shapes are the same."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.variant import Variant
from edge_infer.errors import ConversionError, InputError, IntegrityError, UnsupportedError
from edge_infer.tools.page_export.folder import write_site
from edge_infer_converters import convert, convert_run
from edge_infer_converters.bundle_writer import BundleWriter
from edge_infer_converters.passes.graphs import infer_shapes_in, nbytes_of, without_weights
from edge_infer_converters.passes.sessions import session_of
from edge_infer_converters.recipe import Recipe
from edge_infer_converters.sources import onnx_file
from edge_infer_converters.sources.onnx import load
from edge_infer_converters.sources.options import SourceOptions
from edge_infer_converters.writers import onnx as onnx_writer
from tests.support import limited, real_models, zoo
from tests.support.converters.engines import random_feeds, run_onnx
from tests.support.converters.reporter import Told

if TYPE_CHECKING:
    from pathlib import Path


#: How many times a model may be in memory.
MOST_OF_A_MODEL = 2.4


def large_model() -> onnx.ModelProto:
    """A multiplication by 20 MB of weights, with all kinds of fields around."""
    weight = np.random.default_rng(0).normal(0, 0.1, (2048, 2560)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Reshape", ["z", "shape"], ["y"])]
    weights: dict[str, np.ndarray] = {"w": weight, "shape": np.array([1, 2, 1280], np.int64)}
    model = onnx.load_from_string(
        zoo.model(nodes, [zoo.value("x", [1, 2048])], [zoo.value("y", [1, 2, 1280])], weights)
    )
    model.producer_name, model.graph.doc_string, model.doc_string = "test", "graph", "model"
    model.metadata_props.add(key="a", value="b")
    return model


def test_a_large_model_is_written_in_pieces_as_protobuf_writes_it() -> None:
    model = large_model()

    assert onnx_writer.write(model) == model.SerializeToString(deterministic=True)
    assert nbytes_of(model) == model.ByteSize()


@pytest.mark.long
def test_a_conversion_takes_little_more_memory_than_its_model(tmp_path: Path) -> None:
    """A tower of matrices: 2.0 times their bytes; 2.8 where the passes copy them, 4.8 where protobuf counts them."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(0, 0.02, (2048, 2048)).astype(np.float32) for i in range(8)}
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(8)]
    np.savez(tmp_path / "x.npz", x0=rng.normal(0, 1, (2, 2048)).astype(np.float32))  # more take time, and no memory

    def peak(count: int) -> int:
        data = zoo.model(
            nodes[:count],
            [zoo.value("x0", [1, 2048])],
            [zoo.value(f"x{count}", [1, 2048])],
            {name: weights[name] for name in list(weights)[:count]},
        )
        (tmp_path / "tower.onnx").write_bytes(data)
        wanted = ("--format", "onnx", "--precision", "fp32,fp16,int8-dynamic", "--eval", "x.npz", "--force")
        command = ("convert", "tower.onnx", "-o", "tower.bundle", *wanted)
        done = limited.run((*real_models.EDGE_INFER, *command), seconds=300, cwd=tmp_path)
        assert done.code == 0, done.err
        return done.peak_bytes

    grown = peak(8) - peak(2)

    assert grown / (6 * 4 * 2048 * 2048) < MOST_OF_A_MODEL


def write_tower(folder: Path, count: int) -> Path:
    """Write a chain of products, 64 MB each in one file of weights, which is sparse: a diagonal takes little room."""
    width, nbytes = 4096, 4 * 4096 * 4096
    rng = np.random.default_rng(0)
    weights, nodes = [], []
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(count * nbytes)
        for i in range(count):
            for row, value in enumerate(rng.uniform(0.9, 1.1, width).astype(np.float32)):
                file.seek(i * nbytes + 4 * (row * width + row))
                file.write(value.tobytes())
            tensor = onnx.TensorProto(name=f"w{i}", data_type=onnx.TensorProto.FLOAT, dims=[width, width])
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, said in (("location", "weights.bin"), ("offset", str(i * nbytes)), ("length", str(nbytes))):
                tensor.external_data.add(key=key, value=said)
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]))
    first, last = ([zoo.value(name, ["batch", width])] for name in ("x0", f"x{count}"))
    graph = helper.make_graph(nodes, "tower", first, last, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "tower.onnx").write_bytes(model.SerializeToString())
    return folder / "tower.onnx"


@pytest.mark.long
def test_weights_of_more_than_2_gb_are_read_one_at_a_time(tmp_path: Path) -> None:
    """The conversion takes at most 1.5 times the file and 500 MB, and every variant runs with its weights beside it."""
    path = write_tower(tmp_path, 33)
    nbytes = 33 * 4 * 4096 * 4096
    most = 1.5 * nbytes + 500e6
    np.savez(tmp_path / "x.npz", x0=np.random.default_rng(0).normal(0, 1, (2, 4096)).astype(np.float32))
    options = ("--precision", "fp32,fp16,int8-dynamic,int8", "--format", "onnx", "--eval", str(tmp_path / "x.npz"))
    command = ("convert", str(path), "-o", str(tmp_path / "tower.bundle"), *options)

    done = limited.run((*real_models.EDGE_INFER, *command), seconds=1500, memory_bytes=16 * 10**9)

    assert done.code == 0, done.err
    assert done.peak_bytes <= most
    assert "int8 is not made of a model with more than 2 GB" in done.err
    bundle = Bundle.open(tmp_path / "tower.bundle")
    assert [one.id for one in bundle.manifest.variants] == ["onnx/fp32", "onnx/fp16", "onnx/int8-dynamic"]
    plain, half, small = bundle.manifest.variants
    assert (plain.external, half.external) == (("onnx/model.onnx_data",), ("onnx/model_fp16.onnx_data",))
    assert small.external == ()
    checked = limited.run((*real_models.EDGE_INFER, "verify", str(tmp_path / "tower.bundle")), seconds=1500)
    assert checked.code == 0, checked.err
    assert checked.peak_bytes <= most


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layout": "nhwc"}, "would need all of them"),
        ({"opset": 18}, "would need all of them"),
        ({"bind": {"x0": 1.0}}, "would need all of them"),
    ],
)
def test_what_needs_all_weights_in_memory_is_refused_of_more_than_2_gb(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = write_tower(tmp_path, 1)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[:] = [4096, 2**18]
    model.graph.initializer[0].external_data[2].value = str(2**32)
    os.truncate(tmp_path / "weights.bin", 2**32)  # sparse: it takes no room
    path.write_bytes(model.SerializeToString())

    with pytest.raises(InputError, match=said):
        load(path, SourceOptions()._replace(**change))


def write_apart(folder: Path, data_type: int, data: bytes) -> Path:
    """Write a product by 256 x 256 weights of a type, in a file beside it."""
    weight = onnx.TensorProto(name="w", data_type=data_type, dims=[256, 256])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights.bin")
    (folder / "weights.bin").write_bytes(data)
    nodes = [
        helper.make_node("Cast", ["w"], ["v"], to=onnx.TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    first, last = ([zoo.value(name, ["batch", 256])] for name in ("x", "y"))
    graph = helper.make_graph(nodes, "apart", first, last, [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (folder / "apart.onnx").write_bytes(model.SerializeToString())
    return folder / "apart.onnx"


def test_bfloat16_is_read_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 100_000)
    halves = (np.eye(256, dtype=np.float32) * 3).view(np.uint32) >> 16

    model = load(write_apart(tmp_path, onnx.TensorProto.BFLOAT16, halves.astype(np.uint16).tobytes()))

    assert model.in_files is not None
    np.testing.assert_array_equal(
        model.reference().run({"x": np.ones((1, 256), np.float32)})["y"], np.full((1, 256), 3)
    )


@pytest.mark.parametrize(
    ("data_type", "said"),
    [(onnx.TensorProto.INT4, "weights of 4 bits"), (onnx.TensorProto.STRING, "type 8"), (99, "type 99")],
)
def test_types_that_are_not_read_apart_are_named(
    data_type: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 100_000)
    path = write_apart(tmp_path, data_type, bytes(2**17))
    monkeypatch.setattr("edge_infer_converters.passes.weights_in_files._LEAST_BYTES", 2**15)

    with pytest.raises(ConversionError, match=f"`w` of `apart.onnx` has .*{said}"):
        load(path)


@pytest.mark.parametrize(("told", "is_taken"), [("131072", True), ("0", True), ("65536", False), ("many", False)])
def test_a_length_that_is_not_that_of_the_dimensions_is_refused(
    told: str, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 100_000)
    path = write_apart(tmp_path, onnx.TensorProto.BFLOAT16, bytes(2**17))
    model = onnx.load(path, load_external_data=False)
    entries = {entry.key: entry for entry in model.graph.initializer[0].external_data}
    (entries.get("length") or model.graph.initializer[0].external_data.add(key="length")).value = told
    path.write_bytes(model.SerializeToString())

    if is_taken:
        assert load(path).in_files is not None
        return
    with pytest.raises(ConversionError, match=f"which take 131072 bytes; its file keeps {told} for it"):
        load(path)


def test_a_dry_run_leaves_out_what_needs_all_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 100_000)
    values = np.random.default_rng(0).normal(0, 0.05, (256, 256)).astype(np.float32)
    path = write_apart(tmp_path, onnx.TensorProto.FLOAT, values.tobytes())
    words = ("fp32", "fp16", "int8", "int8-dynamic", "int4", "mixed")

    foreseen = convert_run.foresee(path, None, Recipe(("onnx",), words))
    made = convert(path, tmp_path / "m.bundle", format="onnx", precision=words, keep_all=True)

    assert [one.id for one in foreseen.variants] == [one.variant.id for one in made.variants]
    assert foreseen.left_out == made.not_made
    assert "int4 is not made of a model with more than 2 GB" in foreseen.left_out["onnx/int4"]


def test_weights_beside_a_model_are_offered_to_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "MAX_BYTES", 100_000)
    monkeypatch.setattr("edge_infer_converters.writers.encode._ONE_FILE_BYTES", 100_000)
    values = np.random.default_rng(0).normal(0, 0.05, (256, 256)).astype(np.float32)
    path, told = write_apart(tmp_path, onnx.TensorProto.FLOAT, values.tobytes()), Told()

    made = convert(path, tmp_path / "m.bundle", format="onnx", precision="fp32,fp16")
    recipe = Recipe(("onnx",), ("fp32",), targets=("web",))
    convert_run.convert(path, tmp_path / "web.bundle", recipe, reporter=told)

    assert [one.variant.targets for one in made.variants] == [("any",), ("cuda",)]
    assert any("onnx/fp32: no page can read it" in one for one in told.warnings)
    with pytest.raises(UnsupportedError, match="No page can read"):
        write_site([tmp_path / "m.bundle"], tmp_path / "site", tmp_path)
    assert not (tmp_path / "site").exists()


def test_weights_beside_a_model_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)

    with BundleWriter(tmp_path / "m.bundle") as writer:
        (writer.folder / "weights.bin").write_bytes(bytes(12345))
        assert writer.adopt("weights.bin") == 12345

    assert 12345 in synced


def test_a_large_model_runs_with_its_weights_in_a_file() -> None:
    model = large_model()
    feeds = random_feeds(model.SerializeToString())

    (got,) = session_of(model, "large").run(None, feeds)

    np.testing.assert_allclose(got, run_onnx(model.SerializeToString(), feeds)["y"], rtol=1e-4, atol=1e-5)
    assert not model.graph.initializer[0].external_data, "the model itself stays as it is"


def test_shapes_are_inferred_without_the_weights() -> None:
    model = large_model()
    light, large = without_weights(model)

    infer_shapes_in(model)

    assert light.ByteSize() < 1000
    assert [tensor.name for tensor in large] == ["w"]
    assert light.doc_string == "model"
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.value_info
    }
    assert shapes == {"z": [1, 2560]}


def test_a_large_model_that_is_not_valid_is_refused(tmp_path: Path) -> None:
    model = large_model()
    model.graph.node[0].op_type = "MatMull"
    (tmp_path / "large.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(ConversionError, match="MatMull"):
        load(tmp_path / "large.onnx")


def test_an_engine_reads_a_large_checked_file_itself(tmp_path: Path) -> None:
    """The bundle's file stays on the disk; one that is changed, or refers to others, is refused."""
    weight = np.zeros((4096, 4096), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    data = zoo.model(nodes, [zoo.value("x", [1, 4096])], [zoo.value("y", [1, 4096])], {"w": weight})
    with BundleWriter(tmp_path / "big.bundle") as writer:
        writer.add("onnx/model.onnx", data)
        writer.write_manifest("big", "1", [], [], [Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx")])
        writer.commit()
    bundle = Bundle.open(tmp_path / "big.bundle")
    (variant,) = bundle.manifest.variants

    place = bundle.model(variant)

    assert place == str((tmp_path / "big.bundle/onnx/model.onnx").resolve())
    with (tmp_path / "big.bundle/onnx/model.onnx").open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"\1")
    with pytest.raises(IntegrityError, match="sha256"):
        bundle.model(variant)
