// A small chart over the last two minutes: an area or lines, drawn again each second, read by pointing at it.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 92;

/**
 * @typedef {object} Series
 * @property {string} kind `area`, `line`, `second` or `refused`.
 * @property {(number | null)[]} values One for each second, the newest last; null where nothing is known.
 */

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 */
function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}

/** The next number above that reads well: 1, 2 or 5 times a power of ten. @param {number} value */
export function niceAbove(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= value) ?? 10;
  return step * power;
}

export class Chart {
  /**
   * @param {string} title
   * @param {(value: number) => string} format
   * @param {number} points How many seconds are shown.
   * @param {number} [most] The top of the scale; it follows the values where it is left out.
   */
  constructor(title, format, points, most) {
    this.format = format;
    this.points = points;
    this.most = most;
    /** @type {Series[]} */
    this.series = [];
    /** @type {number | null} */
    this.cursor = null;
    this.root = document.createElement("figure");
    this.root.innerHTML = `<figcaption><span></span><span class="now"></span></figcaption>`;
    const [label, now] = this.root.querySelectorAll("span");
    label.textContent = title;
    this.now = now;
    this.svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
    this.scale = document.createElement("div");
    this.scale.className = "scale";
    this.scale.innerHTML = `<span>2 min ago</span><span></span><span>now</span>`;
    this.root.append(this.svg, this.scale);
    this.svg.addEventListener("pointermove", (event) => this.#point(/** @type {PointerEvent} */ (event)));
    this.svg.addEventListener("pointerleave", () => {
      this.cursor = null;
      this.#draw();
    });
  }

  /** @param {Series[]} series @param {string} now What stands beside the title, as HTML of our own making. */
  show(series, now) {
    this.series = series;
    this.nowText = now;
    this.#draw();
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const box = this.svg.getBoundingClientRect();
    this.cursor = Math.round(((event.clientX - box.left) / box.width) * (this.points - 1));
    this.#draw();
  }

  #draw() {
    const values = this.series.flatMap(({ values }) => values.filter((value) => value !== null));
    const top = this.most ?? niceAbove(Math.max(0, .../** @type {number[]} */ (values)));
    /** @param {number} i */
    const x = (i) => (i / (this.points - 1)) * WIDTH;
    /** @param {number} value */
    const y = (value) => HEIGHT - (Math.min(value, top) / top) * HEIGHT;
    const parts = [0, 0.5, 1].map((part) => element("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part }));
    for (const { kind, values } of this.series) {
      const first = this.points - values.length;
      if (kind === "refused") {
        values.forEach((value, i) => {
          if (value) parts.push(element("rect", { class: "refused", x: x(first + i) - 1, width: 2, y: y(value), height: HEIGHT - y(value) }));
        });
        continue;
      }
      // Where nothing is known the line breaks off and begins anew.
      let line = "";
      let area = "";
      let before = -1;
      values.forEach((value, i) => {
        if (value === null) {
          before = -1;
          return;
        }
        const here = `${x(first + i).toFixed(1)} ${y(value).toFixed(1)}`;
        line += before < 0 ? `M${here}h0.1` : `L${here}`;
        if (before >= 0) {
          const last = /** @type {number} */ (values[before]);
          area += `M${x(first + before).toFixed(1)} ${HEIGHT}V${y(last).toFixed(1)}L${here}V${HEIGHT}Z`;
        }
        before = i;
      });
      if (kind === "area") parts.push(element("path", { class: "area", d: area }));
      parts.push(element("path", { class: kind === "second" ? "line second" : "line", d: line }));
    }
    const middle = this.scale.children[1];
    this.now.innerHTML = this.nowText ?? "";
    middle.textContent = `scale to ${this.format(top)}`;
    if (this.cursor !== null) {
      parts.push(element("line", { class: "cursor", x1: x(this.cursor), x2: x(this.cursor), y1: 0, y2: HEIGHT }));
      const texts = this.series.map(({ values }) => values[/** @type {number} */ (this.cursor) - (this.points - values.length)]);
      const shown = texts.map((value) => (value === null || value === undefined ? "–" : this.format(value)));
      middle.textContent = `${this.points - 1 - this.cursor} s ago: ${shown.join(" / ")}`;
    }
    this.svg.replaceChildren(...parts);
  }
}
