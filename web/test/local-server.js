// A server on this machine for one file of tests; it ends with them.

import { once } from "node:events";
import { createServer } from "node:http";
import { after } from "node:test";

/**
 * @param {import("node:http").RequestListener} answer
 * @returns {Promise<string>} Its origin.
 */
export async function serve(answer) {
  const server = createServer((request, response) => {
    // A kept connection has a timer in `fetch`. A test that mocks timers would not let it be cleared, and it fires later.
    response.shouldKeepAlive = false;
    answer(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return `http://127.0.0.1:${port}`;
}
