/** Tell which roles a targets role delegates a path to: by patterns, by prefixes of its hash, or to numbered bins. */

import { sha256 } from "../fetch/sha256.js";

/** @typedef {import("./signatures.js").Key} Key */
/** @typedef {import("./signatures.js").Role} Role */
/** @typedef {{name: string, terminating: boolean, role: Role, keys: Record<string, Key>}} Delegated */

/**
 * @param {any} signed Verified targets metadata.
 * @param {string} path
 * @returns {Promise<Delegated[]>} In the order in which they count.
 * @throws {TypeError} The delegations are malformed.
 */
export async function delegatedFor(signed, path) {
  const { delegations } = signed;
  if (delegations === undefined || delegations === null) return [];
  const { keys, roles, succinct_roles: bins } = delegations;
  if (typeof keys !== "object" || keys === null || Array.isArray(keys)) throw new TypeError("delegations have no keys");
  if ((roles === undefined) === (bins === undefined)) throw new TypeError("delegations have either roles or succinct roles");
  const hash = await sha256(new TextEncoder().encode(path));
  if (bins !== undefined) {
    const { bit_length: bits, name_prefix: prefix } = bins;
    if (!(Number.isSafeInteger(bits) && bits >= 1 && bits <= 32) || typeof prefix !== "string") throw new TypeError("succinct roles are malformed");
    const bin = Math.floor(Number.parseInt(hash.slice(0, 8), 16) / 2 ** (32 - bits));
    const digits = (2 ** bits - 1).toString(16).length;
    return [{ name: `${prefix}-${bin.toString(16).padStart(digits, "0")}`, terminating: true, role: checked(bins), keys }];
  }
  const found = [];
  const names = new Set(["root", "timestamp", "snapshot", "targets"]);
  for (const role of roles) {
    const { name, terminating, paths, path_hash_prefixes: prefixes } = role;
    if (typeof name !== "string" || name === "" || names.has(name)) throw new TypeError("a delegated role has no name of its own");
    if (typeof terminating !== "boolean" || (paths === undefined) === (prefixes === undefined)) throw new TypeError(`delegated role ${name} is malformed`);
    names.add(name);
    const isFor = paths ? paths.some((/** @type {string} */ one) => matches(one, path)) : prefixes.some((/** @type {string} */ one) => hash.startsWith(one));
    if (isFor) found.push({ name, terminating, role: checked(role), keys });
  }
  return found;
}

/**
 * @param {any} role
 * @returns {Role}
 * @throws {TypeError} It has no keys, one twice, or no threshold.
 */
export function checked(role) {
  const { keyids, threshold } = role;
  const isRight = Array.isArray(keyids) && keyids.every((one) => typeof one === "string") && new Set(keyids).size === keyids.length;
  if (!isRight || !Number.isSafeInteger(threshold) || threshold < 1) throw new TypeError("a role is malformed, or names a key twice");
  return role;
}

/**
 * Match a path with a pattern, piece by piece: `*`, `?`, `[abc]` and `[!abc]` stand for letters of one piece, as in the
 * specification (4.5) and Python's fnmatch.
 *
 * @param {string} pattern
 * @param {string} path
 */
export function matches(pattern, path) {
  const [wanted, got] = [pattern.split("/"), path.split("/")];
  return wanted.length === got.length && wanted.every((piece, i) => expression(piece).test(got[i]));
}

/** @param {string} piece */
function expression(piece) {
  let source = "";
  for (const [word] of piece.matchAll(/\*+|\?|\[(?:!.|[^!])[^\]]*\]|[^]/gsu)) {
    if (word[0] === "*") source += ".*";
    else if (word === "?") source += ".";
    else if (word.length > 1 && word[0] === "[") source += inBrackets(word.slice(1, -1));
    else source += word.replace(/[\\^$.*+?()[\]{}|/]/, "\\$&");
  }
  try {
    return new RegExp(`^${source}$`, "su");
  } catch {
    return /(?!)/; // a range from a later letter to an earlier one has none
  }
}

/** @param {string} letters */
function inBrackets(letters) {
  const isNot = letters.startsWith("!");
  const [first, ...rest] = [...(isNot ? letters.slice(1) : letters)];
  const escaped = [first, ...rest].map((one) => (one === "-" ? one : one.replace(/[\\\]^[]/, "\\$&"))).join("");
  return `[${isNot ? "^" : ""}${escaped.replace(/^-|-$/g, "\\-")}]`;
}
