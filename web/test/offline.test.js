import assert from "node:assert/strict";
import { test } from "node:test";

import { commonFolder } from "../src/offline.js";

test("a service worker serves the innermost folder of the page and the engine", () => {
  const cases = [
    ["https://a.org/app/page.html", "https://a.org/app/lib/", "https://a.org/app/"],
    ["https://a.org/app/page.html", "https://a.org/", "https://a.org/"],
    ["https://a.org/app/", "https://a.org/apple/", "https://a.org/"],
    ["https://a.org/x/app/page.html", "https://a.org/x/app/", "https://a.org/x/app/"],
    ["https://a.org/x/page.html", "https://cdn.org/x/", "https://a.org/"],
  ];
  for (const [page, root, scope] of cases) assert.equal(commonFolder(page, root), scope);
});
