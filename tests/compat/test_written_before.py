"""Bundles, stores, devices and measured times that older versions wrote are read and continued by this one."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import cli
from edge_infer.runtime import measurements
from edge_infer.runtime.loader import trial
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository

HERE = Path(__file__).parent
VARIANTS = ["onnx/fp32", "onnx/fp16", "onnx/int8", "tflite/fp32", "tflite/int8"]
#: After the newest signature of the stores.
LATER = datetime.datetime(2100, 2, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=sorted(path.name for path in HERE.iterdir() if (path / "store").is_dir()))
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what one commit wrote."""
    copy = shutil.copytree(HERE / str(request.param), tmp_path / "written")
    for key in (copy / "keys").iterdir():
        key.chmod(0o600)  # git keeps no such mode, and publish asks for it
    return copy


@pytest.mark.parametrize("name", ["dense-1", "dense-1.zip"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_a_bundle_gives_its_golden_outputs(written: Path, name: str, variant: str) -> None:
    bundle = Bundle.open(written / name)
    ((inputs, outputs), *_) = bundle.examples()

    with edge_infer.load(written / name, variant=variant, arrays="numpy") as session:
        found = session.run(inputs)

    wanted = np.asarray(outputs["y"].tolist(), np.float32)
    near = 1e-5 if "fp32" in variant else 0.05
    np.testing.assert_allclose(found["y"], wanted, atol=near)


@pytest.mark.parametrize("name", ["dense-1", "dense-1.zip"])
def test_a_bundle_is_verified(written: Path, name: str) -> None:
    result = CliRunner().invoke(cli, ["verify", str(written / name), "--json"])

    assert result.exit_code == 0, result.output


def test_a_device_without_a_version_pulls_the_newest_one_whole(written: Path, tmp_path: Path) -> None:
    pulled = pull(str(written / "store"), "dense", DeviceStore(tmp_path / "new"), trial)

    assert (pulled.version, pulled.method) == ("2", "full")


def test_a_device_is_updated_by_the_delta_pack_and_rolled_back(written: Path) -> None:
    device = DeviceStore(written / "device")
    before = device.record().active
    assert before is not None
    assert before.version == "1"

    pulled = pull(str(written / "store"), "dense", device, trial)

    assert (pulled.version, pulled.method) == ("2", "delta")
    assert device.verify() == []
    device.rollback()
    assert device.record().active == before


def test_a_publisher_continues_the_store(written: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(written / "dense-1", tmp_path / "dense-3")
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "version": "3"}), "utf-8")

    published = publish(bundle, Repository(written / "store", now=LATER), written / "keys")

    assert published.revision.sequence == 3
    pulled = pull(str(written / "store"), "dense", DeviceStore(written / "device"), trial)
    assert pulled.version == "3"


def test_measured_times_count_on_the_machine_that_they_were_measured_on(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = (written / "cache/measured").iterdir()
    document = json.loads(path.read_text("utf-8"))
    monkeypatch.setenv("EDGE_INFER_CACHE", str(written / "cache"))
    monkeypatch.setattr(measurements, "machine", lambda: document["machine"])

    rows = measurements.remembered("dense", document["revision"])

    assert [row._asdict() for row in rows] == [{"vs_rule": None, **row} for row in document["rows"]]
    assert document["revision"] == Bundle.open(written / "dense-1").revision
