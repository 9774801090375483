"""Weights that are encrypted in the store and on the device: who has the key reads them, nobody else does."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.keys import ENVIRONMENT, Key, KeyRing, write_key
from edge_infer.bundle.sealed import CHUNK, SealedFile, clear_size, opened, seal, sealed_size
from edge_infer.errors import DeltaError, EncryptedError, FetchError, IntegrityError, StoreError, TrialError
from edge_infer.platform.fetch import fetch
from edge_infer.runtime.live import LiveSession
from edge_infer.runtime.loader import trial
from edge_infer.runtime.options import LoadOptions
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.sync.client import Pulled, pull
from edge_infer.sync.device import DeviceStore
from tests.support import warm_command
from tests.support.mutations import with_last_byte_changed
from tests.support.sync.publisher import SIZE, weights, write_version

if TYPE_CHECKING:
    from tests.support.sync.host import Host
    from tests.support.sync.publisher import Publisher

KEY = Key(bytes(range(32)))
RING = KeyRing((KEY,))
WEB = Path(__file__).parents[2] / "web"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    write_key(tmp_path / "weights.key")
    return tmp_path / "weights.key"


def take(store: Path | str, device: DeviceStore, key: Path | None) -> Pulled:
    check = partial(trial, asked=LoadOptions(key=key))
    return pull(str(store), "linear", device, check, key=key)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


# -- the format --


@given(st.one_of(st.integers(0, 300), st.sampled_from([CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7])))
def test_what_is_sealed_opens_and_has_the_promised_size(size: int) -> None:
    clear = np.random.default_rng(size).bytes(size)
    sealed = seal(clear, KEY)
    assert len(sealed) == sealed_size(size)
    assert clear_size(len(sealed)) == size
    assert opened(sealed, RING, "x") == clear
    assert seal(clear, KEY) == sealed, "the same bytes for the same content"
    assert size < 16 or clear[:16] not in sealed


def test_a_size_that_no_sealed_file_has_is_told() -> None:
    possible = {sealed_size(size) for size in range(100)}
    assert all((clear_size(size) >= 0) == (size in possible) for size in range(sealed_size(99)))
    assert clear_size(sealed_size(CHUNK) + 1) == -1


def test_a_sealed_file_is_read_at_any_offset() -> None:
    clear = np.random.default_rng(1).bytes(3 * CHUNK + 11)
    with SealedFile(io.BytesIO(seal(clear, KEY)), RING, "x") as file:
        for offset in (0, CHUNK - 3, 3 * CHUNK, CHUNK, 3 * CHUNK + 11):
            file.seek(offset)
            assert file.read(CHUNK + 5) == clear[offset : offset + CHUNK + 5]


def test_keys_and_files_of_other_chunks_give_other_nonces() -> None:
    chunk = bytes(CHUNK)
    other = Key(bytes(32))
    nonces = [
        sealed[at : at + 12]
        for sealed in (seal(chunk * 2, KEY), seal(chunk * 3, KEY), seal(chunk * 2, other))
        for at in range(16, len(sealed), CHUNK + 28)
    ]
    assert len(set(nonces)) == len(nonces) == 7


@pytest.mark.parametrize("damage", ["flip", "tag", "swap", "drop", "head", "empty", "clear"])
def test_a_changed_sealed_file_does_not_open(damage: str) -> None:
    clear = np.random.default_rng(1).bytes(2 * CHUNK + 9)
    data = bytearray(seal(clear, KEY))
    step = CHUNK + 28
    if damage == "flip":
        data[16 + step + 400] ^= 1
    elif damage == "tag":
        del data[-1]
    elif damage == "swap":
        data[16 : 16 + step], data[16 + step : 16 + 2 * step] = data[16 + step : 16 + 2 * step], data[16 : 16 + step]
    elif damage == "drop":
        del data[16 : 16 + step]
    elif damage == "head":
        data[0] ^= 1
    elif damage == "empty":
        data.clear()
    else:
        data[:] = clear
    with pytest.raises(IntegrityError):
        opened(bytes(data), RING, "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "no key in"),
        (b"# only words\n", "no key in"),
        (b"ab" * 31, "Line 1 .* 62 characters, expected 64"),
        (b"# one\n" + b"ab" * 33, "Line 2 .* 66 characters"),
        (b"zz" * 32, "hexadecimal"),
        (b"-----BEGIN PRIVATE KEY-----\n", "Line 1"),
    ],
)
def test_a_key_file_that_is_none_is_refused_without_showing_it(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(EncryptedError, match=said) as caught:
        KeyRing.of(path)
    assert "abab" not in str(caught.value)


@pytest.mark.parametrize("text", ["ab" * 32, f"# one\n{'ab' * 32}\n", " " + "AB" * 32])
def test_the_text_of_a_key_in_place_of_its_path_is_not_shown(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a page `key` is the text; an error with it would be in logs."""
    monkeypatch.setenv("EDGE_INFER_KEY_FILE", text)
    for source in (text, None):
        with pytest.raises(EncryptedError, match="path of its file") as caught:
            KeyRing.of(source)
        assert "abab" not in f"{caught.value} {caught.value.hint}".lower()
    assert len(KeyRing.of(text.encode()).keys) == 1


def test_a_key_is_never_shown_and_its_file_is_the_owners(key_file: Path) -> None:
    secret = key_file.read_text().splitlines()[1]
    ring = KeyRing.of(key_file)
    shown = f"{ring!r} {ring.first!r} {LoadOptions(key=ring)!r}"
    assert secret not in shown
    assert ring.first.name in shown
    assert secret not in repr(LoadOptions(key=key_file.read_bytes()))
    with pytest.raises(EncryptedError, match="of the type int"):
        KeyRing.of(7)  # type: ignore[arg-type]
    assert secret[:16] != ring.first.name
    assert key_file.stat().st_mode & 0o777 == 0o600
    key_file.chmod(0o644)
    with pytest.raises(EncryptedError, match="read by others") as caught:
        KeyRing.of(key_file)
    assert caught.value.hint == f"chmod 600 {key_file}"


def test_a_new_key_goes_into_the_file_that_a_link_names_and_its_owner_stays(tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir()
    path, link = tmp_path / "mounted/key", tmp_path / "key"
    first = write_key(path)
    if os.geteuid() == 0:
        os.chown(path, 1234, 1234)
    before = path.stat()
    link.symlink_to("mounted/key")

    second = write_key(link)

    assert link.is_symlink()
    assert [key.name for key in KeyRing.of(path).keys] == [second.name, first.name]
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (before.st_uid, 0o600)
    assert [one.name for one in path.parent.iterdir()] == ["key"]


# -- store and device --


def test_neither_the_store_nor_the_device_holds_the_weights_in_clear(
    publisher: Publisher, key_file: Path, tmp_path: Path
) -> None:
    published = publisher.publish(1, encrypt_to=key_file)
    pulled = take(publisher.folder, DeviceStore(tmp_path / "device"), key_file)
    assert pulled.method == "full"
    secret = key_file.read_bytes().splitlines()[1]
    clear = weights(1).tobytes()[:64]
    for place in (publisher.folder, tmp_path / "device"):
        held = everything(place)
        assert clear not in held
        assert b'"inputs"' not in held, "the manifest is encrypted too"
        assert secret not in held
        assert bytes.fromhex(secret.decode()) not in held
        assert published.revision.key.encode() in held
    session = edge_infer.load(pulled.path, key=key_file)
    x = np.random.default_rng(0).normal(size=(1, SIZE)).astype("float32")
    assert np.allclose(session.run({"x": x})["y"], x @ weights(1), atol=1e-4)
    assert DeviceStore(tmp_path / "device").verify() == [], "without a key"


def test_a_delta_moves_what_changed_and_gives_the_bytes_of_a_full_pack(
    publisher: Publisher, key_file: Path, tmp_path: Path
) -> None:
    publisher.publish(1, encrypt_to=key_file)
    device = DeviceStore(tmp_path / "device")
    take(publisher.folder, device, key_file)
    second = publisher.publish(2, encrypt_to=key_file).revision
    by_delta = take(publisher.folder, device, key_file)
    fresh = take(publisher.folder, DeviceStore(tmp_path / "fresh"), key_file)
    assert (by_delta.method, fresh.method) == ("delta", "full")
    assert by_delta.bytes_moved == second.deltas[0].size < 0.6 * second.pack.size
    for file in second.files:
        assert (by_delta.path / file.path).read_bytes() == (fresh.path / file.path).read_bytes()
    device.rollback()
    assert edge_infer.load(device.active(), key=key_file).bundle.manifest.version == "1"


def test_what_did_not_change_is_not_published_anew(publisher: Publisher, key_file: Path) -> None:
    first = publisher.publish(1, encrypt_to=key_file).revision
    with pytest.raises(StoreError, match="newest"):
        publisher.publish(1, encrypt_to=key_file)
    second = publisher.publish(2, encrypt_to=key_file).revision
    of_first, of_second = ({file.path: file.sha256 for file in one.files} for one in (first, second))
    changed = [path for path in of_first if of_first[path] != of_second[path]]
    assert changed == ["examples/golden.bin", "manifest.json", "onnx/model.onnx"]
    assert second.size - first.size == 0


@pytest.mark.parametrize("given_key", ["none", "another"])
def test_without_the_right_key_the_old_version_runs_on(
    publisher: Publisher, key_file: Path, tmp_path: Path, host: Host, given_key: str
) -> None:
    publisher.publish(1)
    device = DeviceStore(tmp_path / "device")
    take(publisher.folder, device, None)
    version = publisher.publish(2, encrypt_to=key_file).revision
    wrong = None
    if given_key == "another":
        wrong = tmp_path / "other.key"
        write_key(wrong)
    asked = len(host.asked)
    with pytest.raises(EncryptedError, match=f"Version 2 .* encrypted for the key {version.key}") as caught:
        take(f"{host.url}", device, wrong)
    assert not [path for path, _ in host.asked[asked:] if path.startswith("packs/")], "nothing is fetched in vain"
    assert "--key KEYFILE" in caught.value.hint
    record = device.record()
    assert record.active is not None
    assert (record.active.version, record.refused) == ("1", ())
    assert take(publisher.folder, device, key_file).method == "delta", "from a base in clear"


def test_keys_are_replaced_by_a_new_one_in_front(publisher: Publisher, key_file: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.key"
    shutil.copy2(key_file, old)
    publisher.publish(1, encrypt_to=key_file)
    both, late = DeviceStore(tmp_path / "both"), DeviceStore(tmp_path / "late")
    take(publisher.folder, both, key_file)
    take(publisher.folder, late, key_file)
    write_key(key_file)
    publisher.publish(2, encrypt_to=key_file)
    assert take(publisher.folder, both, key_file).method == "delta"
    with pytest.raises(EncryptedError):
        take(publisher.folder, late, old)
    lines = key_file.read_text().splitlines()
    new = tmp_path / "new.key"
    new.write_text("\n".join(lines[:2]))
    new.chmod(0o600)
    assert take(publisher.folder, late, new).method == "full", "the base cannot be opened"
    write_key(new)
    published = publisher.publish(3, encrypt_to=new)
    assert [size is not None for _, size in published.deltas] == [True, False], "no key here opens the first version"


def test_a_publisher_says_it_before_weights_lie_in_clear_again(publisher: Publisher, key_file: Path) -> None:
    publisher.publish(1, encrypt_to=key_file)
    with pytest.raises(StoreError, match="in clear") as caught:
        publisher.publish(2)
    assert caught.value.hint == "--encrypt-to KEYFILE, or --in-clear"
    assert publisher.publish(2, in_clear=True).revision.key == ""


def test_a_damaged_file_on_the_device_is_told_and_repaired(
    publisher: Publisher, key_file: Path, tmp_path: Path
) -> None:
    publisher.publish(1, encrypt_to=key_file)
    device = DeviceStore(tmp_path / "device")
    pulled = take(publisher.folder, device, key_file)
    model = pulled.path / "onnx/model.onnx"
    model.chmod(0o644)
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    with pytest.raises(IntegrityError, match="does not open"):
        edge_infer.load(pulled.path, key=key_file)
    assert take(publisher.folder, device, key_file).method == "repair"
    edge_infer.load(pulled.path, key=key_file).close()


def test_a_file_in_clear_between_encrypted_ones_is_refused(
    publisher: Publisher, key_file: Path, tmp_path: Path
) -> None:
    publisher.publish(1, encrypt_to=key_file)
    pulled = take(publisher.folder, DeviceStore(tmp_path / "device"), key_file)
    folder = tmp_path / "copy"
    shutil.copytree(pulled.path, folder)
    (folder / "onnx/model.onnx").chmod(0o644)
    shutil.copy(publisher.bundles / "1/onnx/model.onnx", folder / "onnx/model.onnx")
    with pytest.raises(edge_infer.BundleError, match="lies in clear"):
        edge_infer.load(folder, key=key_file)


def test_a_wrong_version_is_refused_though_it_is_encrypted(
    publisher: Publisher, key_file: Path, tmp_path: Path
) -> None:
    publisher.publish(1, encrypt_to=key_file)
    device = DeviceStore(tmp_path / "device")
    take(publisher.folder, device, key_file)
    publisher.publish(2, wrong=True, encrypt_to=key_file)
    with pytest.raises(TrialError):
        take(publisher.folder, device, key_file)
    assert len(device.record().refused) == 1


def test_a_pack_that_was_signed_and_does_not_open_is_an_error_of_the_publisher(
    publisher: Publisher, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_infer.sync.publish._sealed", lambda data, key: with_last_byte_changed(seal(data, key)))
    publisher.publish(1, encrypt_to=key_file)
    with pytest.raises(DeltaError, match="does not open"):
        take(publisher.folder, DeviceStore(tmp_path / "device"), key_file)


def test_a_page_keeps_them_encrypted_and_gets_the_bytes_in_clear(
    publisher: Publisher, key_file: Path, host: Host
) -> None:
    publisher.publish(1, encrypt_to=key_file)
    shutil.copytree(publisher.folder, publisher.folder / "before")
    publisher.publish(2, encrypt_to=key_file)

    def pulled(key: str | None, first: str = "") -> dict[str, Any]:
        given = {"address": f"{host.url}/linear", "root": f"{WEB.as_uri()}/", "fault": "none", "first": first}
        words = ["node", str(Path(__file__).with_name("pull.mjs")), json.dumps(given | ({"key": key} if key else {}))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)[0]
        return found

    bundle = publisher.bundles / "2"
    clear = {
        path.relative_to(bundle).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in bundle.rglob("*")
        if path.is_file()
    }
    text = key_file.read_text()
    for first, method in (("", "full"), (f"{host.url}/before/linear", "delta")):
        found = pulled(text, first)
        assert (found["how"], found["method"], found["files"]) == ("through", method, clear)
        assert found["isSealed"]
    assert pulled(None)["how"] == "encrypted"
    assert pulled("00" * 32)["how"] == "encrypted"
    assert pulled("00" * 31)["how"] == "encrypted"
    assert pulled("00" * 32 + "\n" + text)["how"] == "through"


def test_an_address_and_a_live_session_take_the_key(
    publisher: Publisher, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    publisher.publish(1, encrypt_to=key_file)
    address = f"edge+{publisher.folder}/linear"
    with pytest.raises(EncryptedError, match="no key was given"):
        edge_infer.load(address)
    assert edge_infer.load(address, key=key_file).bundle.manifest.version == "1"
    assert edge_infer.load(address, key=key_file.read_bytes()).bundle.manifest.version == "1"
    device = tmp_path / "device"
    take(publisher.folder, DeviceStore(device), key_file)
    with LiveSession(device, key=key_file) as live:
        publisher.publish(2, encrypt_to=key_file)
        assert live.update(f"{publisher.folder}/linear").method == "delta"
        x = np.eye(1, SIZE, dtype="float32")
        assert np.allclose(live.run({"x": x})["y"], weights(2)[:1], atol=1e-5)
    monkeypatch.setenv(ENVIRONMENT, str(key_file))
    assert edge_infer.load(address).bundle.manifest.version == "2", "by the environment"
    assert Bundle.open(DeviceStore(device).active()).manifest.version == "2"


def test_a_server_runs_them_and_gives_none_of_their_files_away(
    publisher: Publisher, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish(1, encrypt_to=key_file)
    pulled = take(publisher.folder, DeviceStore(tmp_path / "device"), key_file)
    monkeypatch.setenv(ENVIRONMENT, str(key_file))
    with ServerThread(create_app({"linear": pulled.path})) as server:
        x = np.eye(1, SIZE, dtype="float32")
        answer = edge_infer.load(f"{server.url}/v2/models/linear").run({"x": x})["y"]
        assert np.allclose(answer, weights(1)[:1], atol=1e-5)
        for path in ("manifest.json", "onnx/model.onnx"):
            with pytest.raises(FetchError, match="status 404: The files of model `linear` are encrypted"):
                fetch(f"{server.url}/models/linear/{path}")


def test_the_commands_take_key_files(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = warm_command.run([str(word) for word in words], cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done

    bundle = write_version(tmp_path / "one", 1)
    made = typed("store", "keys", "encryption", "weights.key")
    said = typed("publish", bundle, publisher.folder, "--keys", publisher.keys, "--encrypt-to", "weights.key", "--json")
    name = json.loads(said.stdout)["key"]
    assert name in made.stderr
    pulled = typed("pull", f"{publisher.folder}/linear", "--into", "device", "--key", "weights.key", "--json")
    path = json.loads(pulled.stdout)["path"]
    assert f"encrypted for the key {name}" in typed("info", path, code=1).stderr
    monkeypatch.setenv(ENVIRONMENT, secret := (tmp_path / "weights.key").read_text().split()[-1])
    refused = typed("pull", f"{publisher.folder}/linear", "--into", "other", code=1).stderr
    refused += typed(
        "publish", bundle, publisher.folder, "--keys", publisher.keys, "--encrypt-to", secret, code=1
    ).stderr
    assert (refused.count("the path of its file"), secret in refused) == (2, False)
    monkeypatch.setenv(ENVIRONMENT, "weights.key")
    typed("verify", path)
    assert "is encrypted" in typed("publish", path, publisher.folder, "--keys", publisher.keys, code=1).stderr
    for words in (("export-page", path, "-o", "page"), ("slim", path, "-o", "slim")):
        assert "would lie in clear" in typed(*words, code=1).stderr
    assert {one.name for one in tmp_path.iterdir()}.isdisjoint({"page", "slim"})
    changed = write_version(tmp_path / "two", 2)
    assert "--in-clear" in typed("publish", changed, publisher.folder, "--keys", publisher.keys, code=1).stderr
