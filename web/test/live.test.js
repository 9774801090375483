import assert from "node:assert/strict";
import { test } from "node:test";

import { Ring } from "../src/tasks/live/microphone.js";

test("a ring keeps the newest samples, and counts those that nobody took", () => {
  const ring = new Ring(4);
  ring.push(Float32Array.of(1, 2, 3));
  assert.deepEqual(ring.take(), { samples: Float32Array.of(1, 2, 3), lost: 0 });
  assert.ok(ring.isEmpty);
  ring.push(Float32Array.of(4, 5, 6));
  ring.push(Float32Array.of(7, 8, 9));
  assert.deepEqual(ring.take(), { samples: Float32Array.of(6, 7, 8, 9), lost: 2 });
  ring.push(Float32Array.of(10));
  assert.deepEqual(ring.take(), { samples: Float32Array.of(10), lost: 0 });
});
