"""Pull a large model by delta into a folder, and print the speed and the peak memory of the pull alone.

The store is made by a child process, so that its memory is not counted.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

PARTS = 64  # megabytes of one tensor


def write_version(folder: Path, version: int, megabytes: int) -> Path:
    import sync_models as models

    from edge_infer.bundle.manifest import FileEntry, Manifest
    from edge_infer.bundle.variant import Variant

    (folder / "onnx").mkdir(parents=True)
    entries = []
    for number in range(0, megabytes, PARTS):
        data = models.large(PARTS, number, 1e-5 if version > 1 else 0.0)
        path = f"onnx/part{number}.safetensors"
        (folder / path).write_bytes(data)
        entries.append(FileEntry(path, len(data), hashlib.sha256(data).hexdigest()))
    variants = [Variant("onnx/fp32", "onnx", "fp32", entries[0].path)]
    (folder / "manifest.json").write_bytes(Manifest("large", str(version), [], [], variants, entries).to_bytes())
    return folder


def make_store(folder: Path, megabytes: int) -> None:
    from edge_infer.sync.publish import publish
    from edge_infer.sync.repository import Repository

    store, keys = Repository(folder / "store"), folder / "keys"
    store.create(keys)
    for version in (1, 2):
        publish(write_version(folder / str(version), version, megabytes), store, keys)
        if version == 1:
            from edge_infer.sync.client import pull
            from edge_infer.sync.device import DeviceStore

            pull(str(store.folder), "large", DeviceStore(folder / "device"), lambda _path: None)


def main() -> None:
    if len(sys.argv) > 2:
        make_store(Path(sys.argv[2]), int(sys.argv[1]))
        return
    import subprocess

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([sys.executable, __file__, sys.argv[1], place], check=True)
        from edge_infer.sync.client import pull
        from edge_infer.sync.device import DeviceStore

        start = time.process_time()
        done = pull(str(folder / "store"), "large", DeviceStore(folder / "device"), lambda _path: None)
        seconds = time.process_time() - start
        assert done.method == "delta", done
        size = sum(path.stat().st_size for path in (folder / "2/onnx").iterdir())
    # Not getrusage: its peak is that of the process that started this one, where that was larger.
    status = Path("/proc/self/status").read_text().splitlines()
    memory_mb = next(int(line.split()[1]) / 1000 for line in status if line.startswith("VmHWM"))
    print(
        json.dumps(
            {
                "mb_s": round(size / 1e6 / seconds, 1),
                "memory_mb": round(memory_mb),
                "moved": done.bytes_moved,
                "full": done.bytes_full,
            }
        )
    )


if __name__ == "__main__":
    main()
