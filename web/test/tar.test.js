// The archives that Python's tarfile writes, read by the page.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { filesOf } from "../src/engines/tar.js";

const WRITE = `
import io, sys, tarfile
made = io.BytesIO()
with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
    for path, data in (("a/empty.py", b""), ("a/é.py", b"x" * 513), ("long/" * 30 + "name.py", b"y" * 512)):
        entry = tarfile.TarInfo(path)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
sys.stdout.buffer.write(made.getvalue())
`;
const ARCHIVE = new Uint8Array(execFileSync("python3", ["-c", WRITE]));

test("each file comes with its path and its bytes, long paths and empty files too", () => {
  const found = [...filesOf(ARCHIVE)].map(([path, bytes]) => [path, new TextDecoder().decode(bytes)]);

  assert.deepEqual(found, [
    ["a/empty.py", ""],
    ["a/é.py", "x".repeat(513)],
    [`${"long/".repeat(30)}name.py`, "y".repeat(512)],
  ]);
});

test("an archive that was cut is refused", () => {
  assert.throws(() => [...filesOf(ARCHIVE.subarray(0, 1500))], /ends within/);
});
