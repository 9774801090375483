"""Roll-outs in steps: who takes a version, that nobody goes back, and that pages decide as devices do."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import InputError, NotReleasedError, StoreError
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer.sync.stage import WHOLE, parse_share, place_of
from tests.support.sync.javascript import in_javascript
from tests.support.sync.publisher import Publisher, take, write_version

if TYPE_CHECKING:
    from pathlib import Path


def quick(path: Path) -> None:
    assert path.is_dir()


def publish_staged(publisher: Publisher, version: int, share: int) -> None:
    bundle = write_version(publisher.bundles / str(version), version)
    publish(bundle, Repository(publisher.folder), publisher.keys, share=share)


def named(place_below: int, at_least: int = 0, sequence: int = 2) -> str:
    """Find a device's name that stands there in the roll-out."""
    return next(
        name
        for name in (f"device{i}" for i in range(100_000))
        if at_least <= place_of(name, "linear", sequence) < place_below
    )


def device(tmp_path: Path, name: str) -> DeviceStore:
    made = DeviceStore(tmp_path / name)
    made.rename(name)
    return made


def test_only_the_first_devices_take_a_version_until_its_share_grows(publisher: Publisher, tmp_path: Path) -> None:
    first, second, last = (device(tmp_path, named(*place)) for place in ((1000,), (5000, 1000), (WHOLE, 5000)))
    publisher.publish(1)
    for one in (first, second, last):
        take(publisher.folder, one, quick)
    publish_staged(publisher, 2, parse_share("canary:10%"))

    def versions() -> list[str]:
        return [take(publisher.folder, one, quick).version for one in (first, second, last)]

    assert versions() == ["2", "1", "1"]
    Repository(publisher.folder).stage("linear", parse_share("50%"), publisher.keys)
    assert versions() == ["2", "2", "1"]
    Repository(publisher.folder).stage("linear", parse_share("halt"), publisher.keys)
    assert versions() == ["2", "2", "1"], "who has it keeps it"
    Repository(publisher.folder).stage("linear", parse_share("all"), publisher.keys)
    assert versions() == ["2", "2", "2"]


def test_a_new_device_outside_the_share_installs_the_version_before(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1)
    publish_staged(publisher, 2, 1000)
    publish_staged(publisher, 3, 1000)  # the second was never for all

    outside = device(tmp_path, named(WHOLE, 1000, sequence=3))
    pulled = take(publisher.folder, outside, quick)

    assert (pulled.version, pulled.stage) == ("1", 0)
    inside = device(tmp_path, named(1000, sequence=3))
    assert (take(publisher.folder, inside, quick).version, take(publisher.folder, inside, quick).stage) == ("3", 1)


def test_devices_outside_get_a_delta_when_their_turn_comes(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1)
    outside = device(tmp_path, named(WHOLE, 9990, sequence=6))
    take(publisher.folder, outside, quick)
    for version in (2, 3, 4, 5, 6):
        publish_staged(publisher, version, 1)
    Repository(publisher.folder).stage("linear", WHOLE, publisher.keys)

    pulled = take(publisher.folder, outside, quick)

    assert (pulled.version, pulled.method) == ("6", "delta")


def test_where_nothing_is_released_it_says_so(publisher: Publisher, tmp_path: Path) -> None:
    publish_staged(publisher, 1, 0)

    with pytest.raises(NotReleasedError, match="No version of `linear` is released"):
        take(publisher.folder, DeviceStore(tmp_path / "device"), quick)


def test_a_halted_step_is_not_taken_and_the_next_one_is(publisher: Publisher, tmp_path: Path) -> None:
    one = device(tmp_path, named(1000))
    publisher.publish(1)
    take(publisher.folder, one, quick)
    publish_staged(publisher, 2, 1000)
    asked = []

    def is_halted(sequence: int, stage: int) -> bool:
        asked.append((sequence, stage))
        return stage == 1

    with pytest.raises(NotReleasedError, match="is halted"):
        pull(str(publisher.folder), "linear", one, quick, is_halted=is_halted)
    active = one.record().active
    assert active is not None
    assert active.version == "1"
    Repository(publisher.folder).stage("linear", 2000, publisher.keys)
    assert pull(str(publisher.folder), "linear", one, quick, is_halted=is_halted).version == "2"
    assert asked == [(2, 1), (2, 2)]


@pytest.mark.parametrize("why", ["advice", "full disk"])
def test_a_device_that_saw_a_version_and_did_not_take_it_goes_by_the_halt(
    publisher: Publisher, tmp_path: Path, why: str
) -> None:
    one = device(tmp_path, named(1000))
    publisher.publish(1)
    take(publisher.folder, one, quick)
    publish_staged(publisher, 2, 1000)

    def full(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises((NotReleasedError, OSError)):
        pull(
            str(publisher.folder),
            "linear",
            one,
            full if why == "full disk" else quick,
            is_halted=lambda *_step: why == "advice",
        )
    Repository(publisher.folder).stage("linear", parse_share("halt"), publisher.keys)

    assert take(publisher.folder, one, quick).version == "1"


def test_a_version_that_was_published_again_is_kept_at_a_halt(publisher: Publisher, tmp_path: Path) -> None:
    one = device(tmp_path, named(1000, sequence=3))
    publisher.publish(1)
    take(publisher.folder, one, quick)
    publisher.publish(2)
    publish_staged(publisher, 1, 1000)

    assert not take(publisher.folder, one, quick).changed
    Repository(publisher.folder).stage("linear", parse_share("halt"), publisher.keys)
    assert (take(publisher.folder, one, quick).version, one.record().previous) == ("1", None)


def test_a_version_for_all_cannot_be_staged_any_more(publisher: Publisher) -> None:
    publisher.publish(1)

    with pytest.raises(StoreError, match="released to all devices already"):
        Repository(publisher.folder).stage("linear", 1000, publisher.keys)
    with pytest.raises(StoreError, match="no model `other`"):
        Repository(publisher.folder).stage("other", 1000, publisher.keys)


@pytest.mark.parametrize("text", ["", "10", "-1%", "101%", "ten%", "nan%", "inf%", "canary:", "half"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a share"):
        parse_share(text)


def test_places_are_spread_evenly_and_a_share_that_grows_keeps_its_devices() -> None:
    places = [place_of(f"device{i}", "digits", 7) for i in range(4000)]

    assert all(0 <= place < WHOLE for place in places)
    for share in (100, 1000, 5000):
        assert abs(sum(place < share for place in places) / 4000 - share / WHOLE) < 0.03


def test_pages_decide_as_devices_do(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1)
    publish_staged(publisher, 2, 3000)
    root = (publisher.folder / "tuf/1.root.json").read_text()

    for name in [*(f"page{i}" for i in range(3)), named(3001, 2999)]:
        taken = take(publisher.folder, device(tmp_path, name), quick)
        found = in_javascript(publisher.folder, root=root, device=name)
        assert (found["version"], found["stage"]) == (taken.version, taken.stage), name


def test_a_store_forgets_versions_that_no_delta_is_made_from(publisher: Publisher, tmp_path: Path) -> None:
    for version in range(1, 8):
        publisher.publish(version)
    late = device(tmp_path, "late")
    repository = Repository(publisher.folder)
    assert len(list((publisher.folder / "revisions").iterdir())) == 7

    freed = repository.collect()

    assert freed > 0
    assert repository.collect() == 0
    assert len(list((publisher.folder / "revisions").iterdir())) == 3
    assert take(publisher.folder, late, quick).version == "7"
    publisher.publish(8)
    assert take(publisher.folder, late, quick).method == "delta"
