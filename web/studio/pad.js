/** The pad to draw on, and the sample digits, which it draws by itself. */

/** @typedef {[number, number]} Point In hundredths of the pad's side. */

/** Points drawn by hand lie on a grid of 512 by 512, so that three letters of an address say one exactly. */
const [GRID, STEPS] = [512, 4];
/** How far beside the pad the grid begins, in hundredths: a stroke may leave the pad. */
const MARGIN = 14;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/** The shortest line that is drawn, in hundredths: three pixels on the screen. */
const SHORTEST = 0.9;

/** The side of the drawing, in pixels, whatever its size on the screen. */
const PIXELS = 448;
/** A stroke's width, as a part of the pad: with it digits are recognised from 0.4 of the pad's height upwards. */
const STROKE = 0.09;
/** How long a sample digit takes to be drawn. */
const SAMPLE_MS = 420;
/** Into how many straight lines a curve between two points of a stroke is cut. */
const CURVE_STEPS = 12;

/** The strokes of each digit; a stroke is smoothed through its points. @type {Point[][][]} */
const SAMPLES = [
  [[[52, 15], [37, 20], [29, 36], [28, 56], [35, 76], [50, 85], [64, 78], [71, 60], [71, 40], [64, 22], [52, 15]]],
  [[[37, 30], [54, 15]], [[54, 15], [54, 85]]],
  [[[29, 32], [36, 19], [51, 15], [65, 22], [67, 37], [56, 53], [42, 68], [28, 84]], [[28, 84], [73, 84]]],
  [[[29, 21], [45, 14], [62, 19], [66, 32], [57, 44], [44, 48]], [[44, 48], [62, 53], [69, 66], [61, 80], [45, 86], [28, 79]]],
  [[[46, 14], [28, 58]], [[28, 58], [74, 58]], [[61, 36], [59, 86]]],
  [[[68, 15], [36, 16]], [[36, 16], [33, 46]], [[33, 46], [48, 40], [64, 46], [69, 62], [61, 79], [45, 86], [28, 80]]],
  [[[61, 14], [45, 27], [33, 48], [31, 67], [40, 82], [56, 85], [68, 74], [66, 58], [53, 51], [39, 57], [32, 68]]],
  [[[27, 16], [72, 16]], [[72, 16], [58, 46], [45, 86]], [[40, 52], [68, 52]]],
  [[[50, 48], [36, 38], [37, 21], [51, 14], [64, 22], [63, 37], [50, 48], [35, 60], [34, 76], [50, 86], [66, 77], [65, 61], [50, 48]]],
  [[[66, 37], [56, 49], [41, 47], [33, 34], [38, 20], [53, 14], [65, 22], [67, 38], [64, 62], [54, 86]]],
];

/** A square to draw on with mouse, finger or pen. */
export class Pad {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {() => void} onChange Called when ink was added or wiped off.
   */
  constructor(canvas, onChange) {
    canvas.width = canvas.height = PIXELS;
    this.canvas = canvas;
    this.onChange = onChange;
    this.ink = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
    this.isEmpty = true;
    /** The digit that was drawn by itself and nothing else, else -1. */
    this.sample = -1;
    /** What was drawn by hand. @type {Point[][]} */
    this.strokes = [];
    /** @type {Map<number, Point[]>} The stroke of each pointer that is down was last. */
    this.pointers = new Map();
    this.animation = 0;
    /** Draws what an animation has left. */
    this.finish = () => {};
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.follow(event));
    for (const type of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(type, (event) => this.pointers.delete(/** @type {PointerEvent} */ (event).pointerId));
    }
  }

  /** @param {PointerEvent} event */
  begin(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    this.stop();
    this.finish();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.stroke([this.pointOf(event)]));
    this.onChange();
  }

  /** @param {PointerEvent} event */
  follow(event) {
    const stroke = this.pointers.get(event.pointerId);
    if (!stroke) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const one of events.length > 0 ? events : [event]) {
      const [point, last] = [this.pointOf(one), stroke[stroke.length - 1]];
      if (Math.hypot(point[0] - last[0], point[1] - last[1]) < SHORTEST) continue;
      this.line(last, point);
      stroke.push(point);
    }
    this.onChange();
  }

  /** Draw a stroke, and keep it. @param {Point[]} points @returns {Point[]} */
  stroke(points) {
    points.forEach((point, i) => this.line(points[Math.max(0, i - 1)], point));
    this.strokes.push(points);
    return points;
  }

  /** @returns {string} What was drawn, for an address: a sample's digit, then each stroke; empty where there is nothing. */
  pack() {
    if (this.isEmpty) return "";
    const letters = (/** @type {Point} */ point) => {
      const [x, y] = point.map((value) => Math.round((value + MARGIN) * STEPS));
      const number = x * GRID + y;
      return LETTERS[number >> 12] + LETTERS[(number >> 6) & 63] + LETTERS[number & 63];
    };
    return [this.sample < 0 ? "" : this.sample, ...this.strokes.map((stroke) => stroke.map(letters).join(""))].join(".");
  }

  /** Draw what an address has. @param {string} text Of `pack`; what is not is left out. */
  unpack(text) {
    const [sample, ...strokes] = text.split(".");
    this.wipe();
    if (SAMPLES[Number(sample || -1)]) this.draw(Number(sample), false);
    for (const stroke of strokes) {
      const points = (stroke.match(/[\w-]{3}/g) ?? []).map((three) => {
        const number = [...three].reduce((all, letter) => all * 64 + LETTERS.indexOf(letter), 0);
        return /** @type {Point} */ ([number >> 9, number % GRID].map((value) => value / STEPS - MARGIN));
      });
      if (points.length) this.stroke(points);
    }
    this.onChange();
  }

  /**
   * @param {PointerEvent} event
   * @returns {Point}
   */
  pointOf(event) {
    const box = this.canvas.getBoundingClientRect();
    const onGrid = (/** @type {number} */ part) => Math.min(GRID - 1, Math.max(0, Math.round((part * 100 + MARGIN) * STEPS))) / STEPS - MARGIN;
    return [onGrid((event.clientX - box.left) / box.width), onGrid((event.clientY - box.top) / box.height)];
  }

  /** @param {Point} from @param {Point} to */
  line(from, to) {
    const { ink } = this;
    const scale = PIXELS / 100;
    ink.lineCap = ink.lineJoin = "round";
    ink.lineWidth = PIXELS * STROKE;
    ink.beginPath();
    ink.moveTo(from[0] * scale, from[1] * scale);
    ink.lineTo(to[0] * scale, to[1] * scale);
    ink.stroke();
    this.isEmpty = false;
  }

  /** Wipe the ink off. */
  clear() {
    this.stop();
    this.wipe();
    this.onChange();
  }

  wipe() {
    this.ink.clearRect(0, 0, PIXELS, PIXELS);
    this.isEmpty = true;
    this.sample = -1;
    this.strokes = [];
    this.finish = () => {};
  }

  stop() {
    cancelAnimationFrame(this.animation);
  }

  /**
   * Draw a digit, as quickly as a person might; at once where motion is not wanted.
   *
   * @param {number} digit
   * @param {boolean} [isSlow]
   */
  draw(digit, isSlow = !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    this.stop();
    this.wipe();
    this.sample = digit;
    const lines = SAMPLES[digit].flatMap((stroke) => {
      const points = smooth(stroke);
      return points.slice(1).map((point, i) => /** @type {[Point, Point]} */ ([points[i], point]));
    });
    let drawn = 0;
    const upTo = (/** @type {number} */ count) => {
      for (; drawn < Math.min(count, lines.length); drawn++) this.line(...lines[drawn]);
      this.onChange();
    };
    this.finish = () => upTo(lines.length);
    if (!isSlow) return this.finish();
    const start = performance.now();
    const step = (/** @type {number} */ now) => {
      upTo(Math.ceil((lines.length * Math.max(0, now - start)) / SAMPLE_MS));
      if (drawn < lines.length) this.animation = requestAnimationFrame(step);
    };
    this.animation = requestAnimationFrame(step);
  }

  /** @returns {{pixels: Uint8Array, width: number, height: number}} The ink of each pixel, 0 to 255. */
  read() {
    const { data } = this.ink.getImageData(0, 0, PIXELS, PIXELS);
    const pixels = new Uint8Array(PIXELS * PIXELS);
    for (let i = 0; i < pixels.length; i++) pixels[i] = data[4 * i + 3];
    return { pixels, width: PIXELS, height: PIXELS };
  }
}

/**
 * Lay a curve through points (Catmull and Rom's spline).
 *
 * @param {Point[]} points
 * @returns {Point[]}
 */
function smooth(points) {
  if (points.length < 3) return points;
  /** @type {Point[]} */
  const curve = [points[0]];
  const at = (/** @type {number} */ i) => points[Math.min(points.length - 1, Math.max(0, i))];
  for (let i = 0; i + 1 < points.length; i++) {
    const [p0, p1, p2, p3] = [at(i - 1), at(i), at(i + 1), at(i + 2)];
    for (let step = 1; step <= CURVE_STEPS; step++) {
      const t = step / CURVE_STEPS;
      const mix = (/** @type {0 | 1} */ axis) =>
        0.5 *
        (2 * p1[axis] +
          (p2[axis] - p0[axis]) * t +
          (2 * p0[axis] - 5 * p1[axis] + 4 * p2[axis] - p3[axis]) * t * t +
          (3 * p1[axis] - p0[axis] - 3 * p2[axis] + p3[axis]) * t * t * t);
      curve.push([mix(0), mix(1)]);
    }
  }
  return curve;
}
