"""Stores in a bucket and in a registry: real servers on this machine, real clients, nothing doubled but the cloud."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from edge_infer.errors import FetchError, StoreError
from edge_infer.runtime.loader import trial
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.oci import OciStore
from edge_infer.sync.publish import publish
from edge_infer.sync.publisher import published
from edge_infer.sync.remote import FsspecStore, open_place
from tests.support.sync.publisher import write_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of moto's S3 server, over HTTP."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    for name, value in {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "DEFAULT_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    name = "weights-" + tmp_path.name.lower().replace("_", "-")[-40:].strip("-")
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    client.close()
    yield f"s3://{name}/models"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry of Debian's docker-registry."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.fail("docker-registry is not installed: tests/setup.sh")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (tmp_path / "registry.yml").write_text(json.dumps(settings))
    process = subprocess.Popen(
        [program, "serve", str(tmp_path / "registry.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline, pause = time.monotonic() + 30, Event()
        while True:
            try:
                urlopen(f"http://127.0.0.1:{port}/v2/").close()
                break
            except (URLError, ConnectionError):
                if time.monotonic() > deadline or process.poll() is not None:
                    pytest.fail("docker-registry does not answer")
                pause.wait(0.05)
        yield f"oci://127.0.0.1:{port}/models/digits:store"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(params=["bucket", "registry"])
def location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "cache"))
    found: str = request.getfixturevalue(request.param)
    return found


def put_version(location: str, tmp_path: Path, version: int) -> Any:
    with published(location) as repository:
        if version == 1:
            repository.create(tmp_path / "keys")
        return publish(write_version(tmp_path / str(version), version), repository, tmp_path / "keys")


def test_a_store_elsewhere_is_published_into_and_pulled_from(location: str, tmp_path: Path) -> None:
    put_version(location, tmp_path, 1)
    device = DeviceStore(tmp_path / "device")
    first = pull(location, "linear", device, trial)
    shutil.rmtree(tmp_path / "cache")  # another machine publishes
    put_version(location, tmp_path, 2)
    second = pull(location, "linear", device, trial)

    assert [(one.version, one.method) for one in (first, second)] == [("1", "full"), ("2", "delta")]


def test_only_what_is_new_is_uploaded(location: str, tmp_path: Path) -> None:
    put_version(location, tmp_path, 1)
    before = open_place(location).names()
    place = type(open_place(location))
    sent: list[str] = []
    original: Any = place.put

    def spy(self: Any, folder: Path, paths: list[str]) -> None:
        sent.extend(paths)
        original(self, folder, paths)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "put", spy)
        with published(location) as repository:
            repository.refresh(tmp_path / "keys")

    assert sorted(sent) == ["tuf/3.snapshot.json", "tuf/timestamp.json"]
    assert set(open_place(location).names()) == {*before, "tuf/3.snapshot.json"}


def test_an_upload_that_is_cut_leaves_the_old_state_and_is_made_good(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_version(location, tmp_path, 1)
    place = type(open_place(location))
    original: Any = place.put

    def cut(self: Any, folder: Path, paths: list[str]) -> None:
        if isinstance(self, FsspecStore):
            original(self, folder, [path for path in paths if path != "tuf/timestamp.json"])
        raise FetchError("the line broke", status=0)

    with monkeypatch.context() as patch, pytest.raises(FetchError, match="the line broke"):
        patch.setattr(place, "put", cut)
        put_version(location, tmp_path, 2)
    device = DeviceStore(tmp_path / "device")
    assert pull(location, "linear", device, trial).version == "1"

    put_version(location, tmp_path, 2)

    assert pull(location, "linear", device, trial).version == "2"


def test_a_store_that_somebody_else_changed_meanwhile_is_not_overwritten(location: str, tmp_path: Path) -> None:
    put_version(location, tmp_path, 1)

    with pytest.raises(StoreError, match="changed by somebody else"), published(location) as repository:
        repository.refresh(tmp_path / "keys")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDGE_INFER_CACHE", str(tmp_path / "another cache"))
            put_version(location, tmp_path, 2)

    assert pull(location, "linear", DeviceStore(tmp_path / "device"), trial).version == "2"


def test_a_place_without_a_store_says_so(location: str, tmp_path: Path) -> None:
    with pytest.raises((FetchError, StoreError)), published(location) as repository:
        repository.refresh(tmp_path / "keys")
    with pytest.raises(FetchError):
        pull(location, "linear", DeviceStore(tmp_path / "device"), trial)


def test_a_registry_that_is_down_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="cannot be reached"):
        OciStore("oci://127.0.0.1:1/store").names()


@pytest.mark.parametrize(
    "location", ["oci://", "oci://host", "oci://host/Upper", "oci://host/a:b:c", "oci://host/../x"]
)
def test_what_is_no_place_in_a_registry_is_refused(location: str) -> None:
    with pytest.raises(StoreError, match="is not a place in a registry"):
        OciStore(location)


def test_a_bucket_without_credentials_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import s3fs

    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("SHARED_CREDENTIALS_FILE", "CONFIG_FILE"):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    s3fs.S3FileSystem.clear_instance_cache()
    place = FsspecStore("s3://nobodys/models")

    with pytest.raises(FetchError, match="credentials"):
        place.names()
    with pytest.raises(FetchError, match="credentials"):
        place.read("tuf/timestamp.json", 100)
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        open_place("nowhere://bucket/store")


@pytest.mark.parametrize(
    ("realm", "may"),
    [
        ("https://auth.example.com/token", True),
        ("https://registry.example.com/token", True),
        ("http://auth.example.com/token", False),
        ("https://evil.test/token", False),
        ("https://example.com.evil.test/token", False),
    ],
)
def test_a_login_goes_to_the_registry_s_own_token_server_alone(realm: str, may: bool) -> None:
    store = OciStore("oci://registry.example.com/models")

    assert store._may_know(realm) is may
