/** Share what is on the screen: the address is copied, and stands there as a QR code for a phone. */

import { h, say } from "./parts.js";
import { qrCode } from "./qr.js";

const SVG = "http://www.w3.org/2000/svg";
/** The light border that readers need, in modules. */
const QUIET = 4;

/** @param {HTMLElement} place Where the code is shown. */
export async function share(place) {
  const address = location.href;
  const isCopied = await navigator.clipboard.writeText(address).then(() => true, () => false);
  const rows = qrCode(address);
  const isHere = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  place.replaceChildren(h(".share", rows && draw(rows), h("", h("p", isCopied ? "The link is copied: it opens this model with this setup." : "Copy this link: it opens this model with this setup."), h("p.mono.small", address),
    isHere && h("p.small.quiet", "This address is of this machine: a phone needs that of your network, `edge-infer serve --host 0.0.0.0`.".replaceAll("`", "")), h("button", { onclick: () => place.replaceChildren() }, "Close"))));
  say(isCopied ? "The link is copied." : "Copy the link.");
}

/** @param {boolean[][]} rows @returns {Element} */
function draw(rows) {
  const side = rows.length + 2 * QUIET;
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", rows.flatMap((row, y) => row.map((is, x) => (is ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : ""))).join(""));
  for (const [name, value] of Object.entries({ class: "qr", viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": "The link as a QR code", "shape-rendering": "crispEdges" })) svg.setAttribute(name, value);
  svg.append(path);
  return svg;
}
