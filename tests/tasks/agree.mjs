/** Compare answers in Node: `node agree.mjs FILE`, a JSON list of [expected, got, least]; what differs is printed as JSON. */

import { readFileSync } from "node:fs";

import { difference } from "../../web/src/tasks/agreement.js";

const cases = JSON.parse(readFileSync(process.argv[2], "utf8"));
console.log(JSON.stringify(cases.map((/** @type {any} */ [expected, got, least]) => difference(expected, got, least))));
