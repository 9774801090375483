"""A folder that models are dropped into: what is whole and right becomes current, at once or not at all."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.formats.safetensors import write_examples
from edge_infer.server.execution.repository import ServedModel
from edge_infer.tensors.arrays import to_tensor
from edge_infer.tools.device.drop_folder import DropFolder
from tests.support import zoo
from tests.support.mutations import with_last_byte_changed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteBundle, WriteModel


@pytest.fixture
def drop(tmp_path: Path) -> DropFolder:
    return DropFolder(tmp_path / "drop")


class Make(Protocol):
    def __call__(self, seed: int = 0, *, wrong: bool = False) -> Path: ...


@pytest.fixture
def make(tmp_path: Path, write_bundle: WriteBundle, write_model: WriteModel) -> Make:
    """Write a bundle whose golden examples come out, or do not."""

    def write(seed: int = 0, *, wrong: bool = False) -> Path:
        shutil.rmtree(tmp_path / "model.bundle", ignore_errors=True)
        model = zoo.mlp(seed)
        x = np.ones((1, 64), np.float32)
        with edge_infer.load(write_model(model)) as session:
            logits = session.run({"x": x})["logits"] + (1 if wrong else 0)
        golden = write_examples([({"x": to_tensor(x)}, {"logits": to_tensor(logits)})])
        return write_bundle(
            {"onnx/fp32": model}, extra={"examples/golden.safetensors": golden}, examples="examples/golden.safetensors"
        )

    return write


def put(drop: DropFolder, source: Path, name: str) -> Path:
    target = drop.folder / "incoming" / name
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return target


def test_a_bundle_is_taken_at_the_second_look_and_becomes_current(drop: DropFolder, make: Make) -> None:
    put(drop, make(), "a.bundle")

    assert drop.look() == []
    (taken,) = drop.look()

    assert taken.is_current
    assert drop.current.resolve() == taken.path
    assert list((drop.folder / "incoming").iterdir()) == []
    with edge_infer.load(drop.current) as session:
        assert session.run({"x": np.zeros((1, 64), np.float32)})["logits"].shape == (1, 10)


def test_a_zipped_bundle_is_unpacked(drop: DropFolder, tmp_path: Path, make: Make) -> None:
    shutil.make_archive(str(tmp_path / "packed"), "zip", make())
    put(drop, tmp_path / "packed.zip", "packed.zip")
    drop.look()

    (taken,) = drop.look()

    assert taken.path.is_dir()
    with edge_infer.load(drop.current, self_test=True) as session:
        assert session.bundle.revision == taken.revision


def test_a_copy_that_still_grows_is_left_alone(drop: DropFolder, tmp_path: Path, make: Make) -> None:
    shutil.make_archive(str(tmp_path / "packed"), "zip", make())
    whole = (tmp_path / "packed.zip").read_bytes()
    target = drop.folder / "incoming/a.zip"
    for length in (100, 1000, len(whole)):
        target.write_bytes(whole[:length])
        assert drop.look() == []

    (taken,) = drop.look()

    assert taken.is_current


def test_a_broken_bundle_is_refused_with_the_reason_and_the_old_one_stays(drop: DropFolder, make: Make) -> None:
    put(drop, make(), "a.bundle")
    drop.look()
    (good,) = drop.look()
    (drop.folder / "incoming/b.zip").write_bytes(b"PK\3\4 half a zip")
    drop.look()

    (refused,) = drop.look()

    assert not refused.is_current
    assert drop.current.resolve() == good.path
    assert (drop.folder / "refused/b.zip").is_file()
    assert "is not a zip" in (drop.folder / "refused/b.zip.txt").read_text()


def test_a_model_file_is_refused_because_it_cannot_prove_itself(drop: DropFolder, write_model: WriteModel) -> None:
    put(drop, write_model(zoo.mlp()), "a.onnx")
    drop.look()

    (refused,) = drop.look()

    assert "expected a bundle" in refused.reason
    assert "edge-infer convert a.onnx -o a.bundle" in (drop.folder / "refused/a.onnx.txt").read_text()


def test_a_bundle_that_does_not_give_its_golden_outputs_is_refused(drop: DropFolder, make: Make) -> None:
    put(drop, make(wrong=True), "digits.bundle")
    drop.look()

    (refused,) = drop.look()

    assert "Self-test failed" in refused.reason
    assert not drop.current.exists()


def test_a_changed_byte_is_refused(drop: DropFolder, make: Make) -> None:
    target = put(drop, make(), "digits.bundle")
    path = target / "examples/golden.safetensors"
    path.write_bytes(with_last_byte_changed(path.read_bytes()))
    drop.look()

    (refused,) = drop.look()

    assert "sha256" in refused.reason


def test_the_current_version_and_the_one_before_it_are_kept(drop: DropFolder, tmp_path: Path, make: Make) -> None:
    revisions = []
    for seed in range(4):
        put(drop, make(seed), "digits.bundle")
        drop.look()
        (taken,) = drop.look()
        revisions.append(taken.revision)

    assert {path.name for path in (drop.folder / "versions").iterdir()} == set(revisions[-2:])
    assert drop.current.resolve().name == revisions[-1]


def test_a_server_on_the_link_serves_the_new_version_without_a_restart(drop: DropFolder, make: Make) -> None:
    put(drop, make(0), "a.bundle")
    drop.look()
    drop.look()
    served = ServedModel("model", drop.current)
    before = served.loaded().session.bundle.revision
    put(drop, make(1), "b.bundle")
    drop.look()

    (taken,) = drop.look()

    assert served.loaded().session.bundle.revision == taken.revision != before
    served.close()


def test_dropping_the_same_version_again_changes_nothing(drop: DropFolder, make: Make) -> None:
    for _ in range(2):
        put(drop, make(), "a.bundle")
        drop.look()
        (taken,) = drop.look()

    assert taken.is_current
    assert len(list((drop.folder / "versions").iterdir())) == 1


def test_what_is_no_model_and_what_is_hidden(drop: DropFolder, tmp_path: Path) -> None:
    (drop.folder / "incoming/readme.txt").write_text("hello")
    (drop.folder / "incoming/.a.onnx.x7Gh2").write_bytes(b"half")
    drop.look()

    (refused,) = drop.look()

    assert refused.name == "readme.txt"
    assert (drop.folder / "incoming/.a.onnx.x7Gh2").exists()


@pytest.mark.parametrize("where", ["", "onnx/model_fp32.onnx"], ids=["the folder", "a file in it"])
def test_of_a_link_what_it_leads_to_is_copied(drop: DropFolder, tmp_path: Path, make: Make, where: str) -> None:
    stick = make().rename(tmp_path / "stick")
    dropped = drop.folder / "incoming" / "d.bundle"
    if where:
        shutil.copytree(stick, dropped)
        (dropped / where).rename(dropped / "real.onnx")
        (dropped / where).symlink_to(dropped / "real.onnx")
    else:
        dropped.symlink_to(stick)
    drop.look()

    (taken,) = drop.look()
    shutil.rmtree(stick)

    assert taken.is_current
    assert not dropped.exists()
    assert not any(path.is_symlink() for path in (taken.path, *taken.path.rglob("*")))
    edge_infer.load(drop.current, self_test=True).close()


def test_a_link_inside_a_dropped_bundle_that_leaves_it_is_refused(drop: DropFolder, tmp_path: Path, make: Make) -> None:
    target = put(drop, make(), "digits.bundle")
    secret = tmp_path / "secret"
    model = target / "onnx/model_fp32.onnx"
    shutil.move(model, secret)
    model.symlink_to(secret)
    drop.look()

    (refused,) = drop.look()

    assert "leaves the bundle" in refused.reason


def test_the_command_takes_what_is_there_once_and_exits_with_1_where_something_was_refused(
    drop: DropFolder, make: Make
) -> None:
    put(drop, make(), "a.bundle")
    done = CliRunner().invoke(cli, ["device", "watch-folder", str(drop.folder), "--once"])
    (drop.folder / "incoming/b.onnx").write_bytes(b"no model")
    again = CliRunner().invoke(cli, ["device", "watch-folder", str(drop.folder), "--once"])

    assert (done.exit_code, again.exit_code) == (0, 1)
    assert str(drop.current.resolve()) in done.stdout
    assert "b.onnx was refused" in again.stderr


# -- health --


def test_the_health_names_the_version_in_a_drop_folder_and_when_it_came(drop: DropFolder, make: Make) -> None:
    put(drop, make(), "digits.bundle")
    drop.look()
    (taken,) = drop.look()

    done = CliRunner().invoke(cli, ["device", "status", str(drop.folder)])

    said = json.loads(done.stdout)
    (model,) = said["models"]
    assert done.exit_code == 0, said["problems"]
    assert (model["model"], model["version"], model["revision"]) == ("model", "1", taken.revision)
    assert model["updated"] == pytest.approx(said["time"], abs=600)
    assert said["uptime_s"] > 0
    assert said["healthy"] is True


def test_a_folder_without_a_model_is_a_problem_in_the_health(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    done = CliRunner().invoke(cli, ["device", "status", str(tmp_path / "empty"), str(tmp_path / "missing")])

    said = json.loads(done.stdout)
    assert done.exit_code == 1
    assert said["healthy"] is False
    assert len(said["problems"]) == 2


def test_heat_and_power_of_a_raspberry_pi_are_in_its_health(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    firmware = tmp_path / "sys/devices/platform/soc/soc:firmware"
    zone.mkdir(parents=True)
    firmware.mkdir(parents=True)
    (zone / "temp").write_text("61234\n")
    (firmware / "get_throttled").write_text("50005\n")

    said = json.loads(CliRunner().invoke(cli, ["device", "status", "--root", str(tmp_path)]).stdout)

    assert (said["temperature_c"], said["throttled"]) == (61.234, 0x50005)
    assert any("voltage" in problem for problem in said["problems"])


def test_a_link_in_a_circle_is_refused_and_holds_nothing_up(drop: DropFolder, make: Make) -> None:
    drop.look()
    loop = drop.folder / "incoming" / "a-loop"
    loop.symlink_to(loop)
    put(drop, make(), "b.bundle")

    drop.look()
    taken = {one.name: one.reason for one in drop.look()}

    assert "circle" in taken["a-loop"]
    assert taken["b.bundle"] == ""
