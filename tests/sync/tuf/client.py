"""The devices' client as a client of the TUF conformance suite, which starts it for each case."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from urllib.parse import quote


def main() -> None:
    """Do what the suite asks for; an error ends the process with status 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--metadata-dir", type=Path, required=True)
    parser.add_argument("--metadata-url", default="")
    parser.add_argument("--target-name", action="append", default=[])
    parser.add_argument("--target-dir", type=Path)
    parser.add_argument("--target-base-url", default="")
    parser.add_argument("command", choices=["init", "refresh", "download"])
    parser.add_argument("root", type=Path, nargs="?")
    given = parser.parse_args()
    if given.command == "init":
        shutil.copyfile(given.root, given.metadata_dir / "root.json")
        return
    # securesystemslib loads it for its signers, where it is installed: more than half of each start.
    sys.modules["boto3"] = None  # type: ignore[assignment]
    from edge_infer.sync.source import open_source
    from edge_infer.sync.trust import Floor, refreshed

    kept = given.metadata_dir.with_name("floor")
    floor = Floor(*json.loads(kept.read_text())) if kept.exists() else Floor()
    updater, seen, _ = refreshed(open_source(given.metadata_url), given.metadata_dir, None, floor, prefix="")
    kept.write_text(json.dumps(floor.raised(seen)))
    for path in given.target_name if given.command == "download" else []:
        target = updater.get_targetinfo(path)
        if target is None:
            sys.exit(f"nobody has {path} who may")
        file = given.target_dir / quote(path, safe="")
        if updater.find_cached_target(target, str(file)) is not None:
            continue
        digest = next(iter(target.hashes.values()))
        folder, _, name = path.rpartition("/")
        url = quote(f"{folder}/{digest}.{name}".lstrip("/"))
        data = open_source(given.target_base_url).read(url, target.length)
        target.verify_length_and_hashes(data)
        file.write_bytes(data)


if __name__ == "__main__":
    main()
