/** The components that every page of the studio is made of: each is a function that returns an element. */

/** @typedef {Node | string | null | undefined | false} Kid */
/** @typedef {Record<string, unknown>} Properties */

/**
 * Make an element: `h("p.quiet", { onclick }, "text", child)`.
 *
 * @param {string} name The tag and classes, as in a selector; `div` where the tag is left out.
 * @param {...(Properties | Kid | Kid[])} rest Properties first, where there are any; then the children.
 * @returns {HTMLElement}
 */
export function h(name, ...rest) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  if (element instanceof HTMLButtonElement) element.type = "button";
  for (const [i, one] of rest.entries()) {
    if (i === 0 && isProperties(one)) setAll(element, one);
    else element.append(.../** @type {(Node | string)[]} */ ([one].flat().filter((kid) => kid || kid === "")));
  }
  return element;
}

/** @param {unknown} value @returns {value is Properties} */
function isProperties(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Node);
}

/** @param {HTMLElement} element @param {Properties} properties */
function setAll(element, properties) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === false || value === null) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else if (key.startsWith("--")) element.style.setProperty(key, String(value));
    else if (key in element && typeof value !== "string") Object.assign(element, { [key]: value });
    else element.setAttribute(key, value === true ? "" : String(value));
  }
}

/** Tell readers of the screen. @param {string} text */
export function say(text) {
  const place = document.getElementById("say");
  if (place) place.textContent = text;
}

/** @param {number} count @returns {string} */
export function bytes(count) {
  if (count < 1e3) return `${count} B`;
  return count < 1e6 ? `${Math.round(count / 1e3)} kB` : `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)} MB`;
}

/** @param {number} count @returns {string} */
export function milliseconds(count) {
  if (count >= 1000) return `${(count / 1000).toFixed(2)} s`;
  return count >= 10 ? `${Math.round(count)} ms` : `${count.toFixed(count < 1 ? 2 : 1)} ms`;
}

/**
 * A choice of a few: native radio buttons in one frame.
 *
 * @param {string} label
 * @param {string} name The name of the group.
 * @param {{id: string, text: string, refused?: string}[]} options Those with a reason to be refused stay visible.
 * @param {(id: string) => void} choose
 * @returns {HTMLElement & {show: (id: string) => void}}
 */
export function pick(label, name, options, choose) {
  const inputs = new Map();
  const root = h("fieldset.pick", h("legend", label), h(
    "",
    options.map(({ id, text, refused }) => {
      const input = h("input", { type: "radio", name, value: id, disabled: Boolean(refused), onchange: () => choose(id) });
      inputs.set(id, input);
      return h("label", { title: refused || undefined }, input, text);
    }),
  ));
  const show = (/** @type {string} */ id) => inputs.has(id) && (inputs.get(id).checked = true);
  return Object.assign(root, { show });
}

/**
 * Named values with a bar each, the best one marked.
 *
 * @param {{text: string, value: number, shown?: string}[]} rows Values of 0 to 1.
 * @returns {HTMLElement}
 */
export function bars(rows) {
  const best = Math.max(...rows.map(({ value }) => value));
  return h("ul.bars", rows.map(({ text, value, shown }) =>
    h(value === best ? "li.best" : "li", { "--v": Math.min(1, Math.max(0, value)) }, h("span", text), h("span.num", shown ?? value.toFixed(3)), h("i"))));
}

/** @param {[string, string][]} rows @returns {HTMLElement} */
export function facts(rows) {
  return h("dl.cost", rows.map(([name, value]) => h("", h("dt", name), h("dd", value))));
}

/**
 * What is wrong and what to do.
 *
 * @param {"bad" | "warn" | "ok" | ""} kind
 * @param {string} title
 * @param {string} text Commands stand between backticks.
 * @param {...HTMLElement} actions
 * @returns {HTMLElement}
 */
export function notice(kind, title, text, ...actions) {
  const parts = text.split("`").map((part, i) => (i % 2 ? h("code", part) : part));
  return h(`.notice${kind && `.${kind}`}`, { role: kind === "bad" ? "alert" : "note" }, h("b", title), text && h("p", parts), actions.length > 0 && h(".row", actions));
}

/**
 * What an error says, with its hint.
 *
 * @param {unknown} thrown
 * @param {...HTMLElement} actions
 * @returns {HTMLElement}
 */
export function trouble(thrown, ...actions) {
  const { message = String(thrown), hint = "" } = /** @type {{message?: string, hint?: string}} */ (thrown ?? {});
  return notice("bad", message.replaceAll("`", ""), hint, ...actions);
}

/**
 * How far a download has come.
 *
 * @param {string} label
 * @returns {HTMLElement & {set: (loaded: number, total: number, text?: string, said?: string) => void}}
 */
export function progress(label) {
  const bar = /** @type {HTMLProgressElement} */ (h("progress", { "aria-label": label }));
  const [name, amount] = [h("span", label), h("span.quiet")];
  const set = (/** @type {number} */ loaded, /** @type {number} */ total, text = label, said = `${bytes(loaded)} of ${bytes(total)}`) => {
    name.textContent = text;
    if (total > 0) [bar.max, bar.value] = [total, Math.min(loaded, total)];
    amount.textContent = total > 0 ? said : "";
  };
  return Object.assign(h(".load", h(".row.apart", name, amount), bar), { set });
}

const MARKS = { pass: "✓", fail: "✕", unknown: "–" };

/** @param {"pass" | "fail" | "unknown"} verdict @returns {HTMLElement} */
export function badge(verdict) {
  return h(`span.badge.${verdict}`, `${MARKS[verdict]} ${verdict === "unknown" ? "not run" : verdict}`);
}

/** @param {string} title @param {string} text @param {...HTMLElement} kids @returns {HTMLElement} */
export function section(title, text, ...kids) {
  const id = `section-${title.toLowerCase().replace(/\W+/g, "-")}`;
  return h("section.section", { "aria-labelledby": id }, h("header", h("h2", { id }, title), text && h("p", text)), kids);
}

/**
 * A table that becomes blocks where it is narrow; its roles are said, as `display` takes them away.
 *
 * @param {(string | HTMLElement)[]} heads
 * @param {HTMLElement[]} rows
 * @returns {HTMLElement}
 */
export function table(heads, rows) {
  const root = h("table.stack", h("thead", h("tr", heads.map((text) => h("th", { scope: "col" }, text)))), h("tbody", rows));
  const roles = { "thead, tbody": "rowgroup", tr: "row", td: "cell", th: "columnheader", "tbody th": "rowheader" };
  for (const [selector, role] of Object.entries(roles)) for (const one of root.querySelectorAll(selector)) one.setAttribute("role", role);
  root.setAttribute("role", "table");
  return root;
}

/**
 * Let an element take files: by drop, paste or dialog.
 *
 * @param {HTMLElement} element
 * @param {string} accept Media types, as of an input of files.
 * @param {(file: File, all: File[]) => void} take
 * @param {(folder: FileSystemDirectoryEntry) => void} [takeFolder] What takes a folder that is dropped.
 * @param {boolean} [multiple] Whether several may be chosen at once.
 * @returns {() => void} Opens the dialog.
 */
export function takesFiles(element, accept, take, takeFolder, multiple = false) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "file", accept, multiple, hidden: true, "aria-label": "Choose a file" }));
  const takeAll = (/** @type {FileList | undefined | null} */ files) => files?.[0] && take(files[0], [...files]);
  input.addEventListener("change", () => {
    takeAll(input.files);
    input.value = ""; // the same one may be chosen again
  });
  element.addEventListener("dragover", (event) => (event.preventDefault(), element.classList.add("over")));
  element.addEventListener("dragleave", () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    element.classList.remove("over");
    const entry = takeFolder && event.dataTransfer?.items[0]?.webkitGetAsEntry?.();
    if (takeFolder && entry && entry.isDirectory) takeFolder(/** @type {FileSystemDirectoryEntry} */ (entry));
    else takeAll(event.dataTransfer?.files);
  });
  const paste = (/** @type {ClipboardEvent} */ event) => {
    if (!element.isConnected) return removeEventListener("paste", paste);
    takeAll(event.clipboardData?.files);
  };
  addEventListener("paste", paste);
  element.append(input);
  return () => input.click();
}
