"""What the page's client keeps of a store's metadata: each role once it is verified, with keys of every kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, Root, Timestamp

from edge_infer.sync.device import DeviceStore
from edge_infer.sync.keys import load_keys
from edge_infer.sync.repository import Repository
from tests.support.sync.javascript import in_javascript
from tests.support.sync.publisher import Publisher, take

if TYPE_CHECKING:
    from pathlib import Path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_new_root_is_kept_though_what_follows_fails(publisher: Publisher) -> None:
    publisher.publish(1)
    root = (publisher.folder / "tuf/1.root.json").read_text()
    kept = in_javascript(publisher.folder, root=root)["kept"]
    Repository(publisher.folder).rotate("targets", publisher.keys)
    publisher.publish(2)
    (publisher.folder / "tuf/timestamp.json").unlink()

    failed = in_javascript(publisher.folder, root=root, kept=kept)

    assert failed["code"] == "fetch_error"
    assert json.loads(failed["kept"]["root"])["signed"]["version"] == 2
    assert failed["kept"]["targets"] == kept["targets"]


def test_a_root_that_was_given_is_kept_only_once_the_store_is_signed_by_it(
    publisher: Publisher, tmp_path: Path
) -> None:
    publisher.publish(1)
    Repository(tmp_path / "other").create(tmp_path / "other keys")

    failed = in_javascript(publisher.folder, root=(tmp_path / "other/tuf/1.root.json").read_text())

    assert (failed["code"], failed["kept"]) == ("signature_error", {})


def test_the_first_content_of_a_version_counts(publisher: Publisher) -> None:
    publisher.publish(1)
    root = (publisher.folder / "tuf/1.root.json").read_text()
    first = in_javascript(publisher.folder, root=root)
    path = publisher.folder / "tuf/timestamp.json"
    other: Metadata[Timestamp] = Metadata.from_bytes(path.read_bytes())
    other.signed.snapshot_meta.version = 100
    other.sign(load_keys(publisher.keys, "timestamp")[0])
    path.write_bytes(other.to_bytes())

    again = in_javascript(publisher.folder, root=root, kept=first["kept"])

    assert again["version"] == "1"
    assert again["kept"] == first["kept"]


def test_a_first_root_that_does_not_sign_itself_is_refused(publisher: Publisher) -> None:
    publisher.publish(1)
    root = json.loads((publisher.folder / "tuf/1.root.json").read_text())
    root["signatures"][0]["sig"] = "00" * 64

    assert in_javascript(publisher.folder, root=json.dumps(root))["code"] == "signature_error"


def test_a_key_that_signs_twice_is_refused(publisher: Publisher) -> None:
    publisher.publish(1)
    path = publisher.folder / "tuf/timestamp.json"
    timestamp = json.loads(path.read_text())
    timestamp["signatures"] *= 2
    path.write_text(json.dumps(timestamp))

    root = (publisher.folder / "tuf/1.root.json").read_text()
    assert "twice" in in_javascript(publisher.folder, root=root)["message"]


def test_a_length_that_is_no_number_bounds_nothing_and_is_refused(publisher: Publisher) -> None:
    publisher.publish(1)
    path = publisher.folder / "tuf/timestamp.json"
    timestamp: Metadata[Timestamp] = Metadata.from_bytes(path.read_bytes())
    timestamp.signed.snapshot_meta.length = "x"  # type: ignore[assignment]
    timestamp.sign(load_keys(publisher.keys, "timestamp")[0])
    path.write_bytes(timestamp.to_bytes())

    root = (publisher.folder / "tuf/1.root.json").read_text()
    assert "named with the length x" in in_javascript(publisher.folder, root=root)["message"]


def test_devices_and_pages_check_keys_of_ed25519_ecdsa_and_rsa(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1)
    folder = publisher.folder / "tuf"
    first = (folder / "1.root.json").read_text()
    signers = [CryptoSigner.generate_ecdsa(), CryptoSigner.generate_rsa(size=2048)]
    root: Metadata[Root] = Metadata.from_bytes(first.encode())
    for signer in signers:
        root.signed.add_key(signer.public_key, "timestamp")
    root.signed.roles["timestamp"].threshold = 3
    root.signed.version = 2
    root.sign(load_keys(publisher.keys, "root")[0])
    (folder / "2.root.json").write_bytes(root.to_bytes())
    timestamp: Metadata[Timestamp] = Metadata.from_bytes((folder / "timestamp.json").read_bytes())
    for signer in signers:
        timestamp.sign(signer, append=True)
    (folder / "timestamp.json").write_bytes(timestamp.to_bytes())

    assert take(publisher.folder, DeviceStore(tmp_path / "device"), lambda _: None).version == "1"
    assert in_javascript(publisher.folder, root=first)["version"] == "1"

    for signer in signers:
        sig = timestamp.signatures[signer.public_key.keyid].signature
        change(folder / "timestamp.json", sig, sig[:-2] + ("00" if sig[-2:] != "00" else "01"))
        assert in_javascript(publisher.folder, root=first)["code"] == "signature_error"
        (folder / "timestamp.json").write_bytes(timestamp.to_bytes())
