/** Counters of other tabs: they add up, and what is damaged changes nothing. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Counters } from "../src/monitor/counters.js";

const feature = { name: "a", edges: [], values: [1, 2], low: 0, high: 0 };
const made = () => new Counters({ digest: "d", features: [feature], groups: [], directions: [], rows: 1 });

test("counters of the same reference add up", () => {
  const counters = made();
  counters.merge({ version: 1, reference: "d", rows: 2, counts: { a: [1, 1, 0, 0] } });
  counters.merge(counters.toJSON());

  assert.deepEqual(counters.toJSON(), { version: 1, reference: "d", rows: 4, counts: { a: [2, 2, 0, 0] } });
});

test("counters that are damaged or of another reference change nothing", () => {
  const counters = made();
  for (const change of [{ reference: "e" }, { counts: undefined }, { counts: {} }, { rows: -1 }, { counts: { a: ["1", 0, 0, 0] } }, { counts: { a: [0.5, 0, 0, 0] } }]) {
    const other = /** @type {any} */ ({ version: 1, reference: "d", rows: 1, counts: { a: [1, 0, 0, 0] }, ...change });
    assert.throws(() => counters.merge(other), { code: "input_error" }, JSON.stringify(change));
  }

  assert.deepEqual(counters.toJSON(), made().toJSON());
});
