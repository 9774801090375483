// How many threads compute a decoder's batches: the choice between one and all, and a team that workers join late.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Team, ThreadChoice, threadsHere } from "../src/generation/team.js";

/** @param {ThreadChoice} choice @param {Record<number, number>} times @param {number} batches */
function settle(choice, times, batches) {
  return Array.from({ length: batches }, () => {
    const { threads } = choice;
    choice.add(times[threads]);
    return threads;
  });
}

const count = (/** @type {number[]} */ used, /** @type {number} */ threads) => used.filter((one) => one === threads).length;

test("the faster number of threads is used and tried again, as in Python", () => {
  const choice = new ThreadChoice(4);

  const idle = settle(choice, { 4: 1, 1: 2.5 }, 2000);
  assert.deepEqual([...new Set(idle.slice(0, 8))].sort(), [1, 4]);
  assert.ok(count(idle.slice(8), 1) <= 2000 / 50);

  const busy = settle(choice, { 4: 5, 1: 2.5 }, 2000);
  assert.ok(count(busy.slice(-800), 4) <= 800 / 25);

  const again = settle(choice, { 4: 1, 1: 2.5 }, 2000);
  assert.ok(count(again.slice(-800), 1) <= 800 / 25);
});

/** @param {boolean} isFixed @param {() => number} [together] What computes a batch of all. */
function teamOf(isFixed, together) {
  const calls = /** @type {string[]} */ ([]);
  const here = { present: 1 };
  const call = (/** @type {string} */ name) => () => (calls.push(name), 0);
  const kernels = {
    decoder_team_begin: call("begin"),
    decoder_team_present: () => here.present,
    decoder_team_end: call("end"),
    decoder_run: call("alone"),
    decoder_run_shared: together ?? call("together"),
  };
  return { calls, here, team: new Team(kernels, 64, 3, isFixed) };
}

test("before all workers have come one thread computes, and the report says so", () => {
  const { calls, here, team } = teamOf(false);

  team.run(1, []);
  here.present = 2;
  team.run(1, []);
  assert.equal(team.threads, 1);
  here.present = 3;
  assert.equal(team.threads, 3);
  team.run(1, []);

  assert.deepEqual(calls, ["begin", "alone", "alone", "together"]);
});

test("a fixed number counts those that have come", () => {
  const { calls, here, team } = teamOf(true);

  team.run(1, []);
  assert.equal(team.threads, 1);
  here.present = 3;
  assert.equal(team.threads, 3);
  assert.deepEqual(calls, ["begin", "together"]);
});

test("a worker that was ended ends the batch with an error, and one thread goes on", () => {
  const { calls, here, team } = teamOf(true, () => {
    throw new WebAssembly.RuntimeError("unreachable");
  });
  here.present = 3;

  assert.throws(() => team.run(1, []), { code: "execution_error" });
  assert.equal(team.threads, 1);
  team.run(1, []);

  assert.deepEqual(calls, ["begin", "end", "alone"]);
});

test("where a policy starts no workers one thread goes on, unless the number is fixed", () => {
  const refuse = () => {
    throw new TypeError("refused");
  };
  const [module, memory] = /** @type {any[]} */ ([{}, {}]);
  const { calls, team } = teamOf(false);

  team.start(refuse, module, memory, 0);
  team.run(1, []);

  assert.deepEqual(calls, ["begin", "end", "alone"]);
  assert.throws(() => teamOf(true).team.start(refuse, module, memory, 0), /refused/);
});

test("a place that shares no memory has one thread, and says why where more are wanted", () => {
  assert.equal(threadsHere(undefined), 1);
  assert.equal(threadsHere(1), 1);
  assert.throws(() => threadsHere(2), { code: "unsupported", message: /isolated/ });
});
