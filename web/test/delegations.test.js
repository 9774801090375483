/** Which roles a path is delegated to. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { delegatedFor, matches } from "../src/sync/delegations.js";

test("a pattern stands for letters of one piece of a path", () => {
  for (const [pattern, path, isFor] of /** @type {[string, string, boolean][]} */ ([
    ["*", "digits", true],
    ["*", "team/digits", false],
    ["team/*", "team/digits", true],
    ["foo-?.tgz", "foo-1.tgz", true],
    ["foo-?.tgz", "foo-10.tgz", false],
    ["a.b", "axb", false],
    ["v[0-9]", "v7", true],
    ["v[!0-9]", "v7", false],
    ["v[]]", "v]", true],
    ["v[", "v[", true],
    ["v[]", "v[]", true],
    ["v[!]", "v[!]", true],
    ["v[!]]", "va", true],
    ["v[!]]", "v]", false],
    ["v[9-0]", "v5", false],
    ["v[a^]", "v^", true],
    ["*.{md}", "x.{md}", true],
    ["A", "a", false],
  ])) {
    assert.equal(matches(pattern, path), isFor, `${pattern} ${path}`);
  }
});

test("prefixes of the hash and numbered bins choose a role", async () => {
  const rest = { keyids: ["k"], threshold: 1 };
  const { createHash } = await import("node:crypto");
  const hash = createHash("sha256").update("digits").digest("hex");
  const roles = [
    { name: "other", terminating: false, path_hash_prefixes: [hash[0] === "0" ? "1" : "0"], ...rest },
    { name: "right", terminating: true, path_hash_prefixes: [hash.slice(0, 3)], ...rest },
  ];
  assert.deepEqual((await delegatedFor({ delegations: { keys: {}, roles } }, "digits")).map(({ name }) => name), ["right"]);
  const bins = { bit_length: 10, name_prefix: "bin", ...rest };
  const [bin] = await delegatedFor({ delegations: { keys: {}, succinct_roles: bins } }, "digits");
  assert.equal(bin.name, `bin-${(Number.parseInt(hash.slice(0, 8), 16) >>> 22).toString(16).padStart(3, "0")}`);
});

test("malformed delegations are refused", async () => {
  const role = { name: "a", terminating: false, paths: ["*"], keyids: ["k"], threshold: 1 };
  for (const roles of [
    [{ ...role, keyids: ["k", "k"] }],
    [{ ...role, threshold: 0 }],
    [{ ...role, name: "root" }],
    [role, role],
    [{ ...role, paths: undefined }],
    [{ ...role, terminating: 1 }],
    7,
    undefined,
  ]) {
    await assert.rejects(delegatedFor({ delegations: { keys: {}, roles } }, "m"), TypeError, JSON.stringify(roles));
  }
});
