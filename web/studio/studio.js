/** The shell of the studio: the header, the theme, and the page that the address names. */

import { entries, HAS_SERVER, modelOf } from "./catalog.js";
import { gallery } from "./gallery.js";
import { h, notice, trouble } from "./parts.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const root = document.documentElement;
const THEMES = ["auto", "light", "dark"];

/** Leaves the page that is shown. */
let leave = () => {};
let turn = 0;

startTheme(/** @type {HTMLButtonElement} */ (document.getElementById("theme")));
const isolation = /** @type {HTMLElement} */ (document.getElementById("isolation"));
isolation.textContent = globalThis.crossOriginIsolated
  ? "This page is cross-origin isolated: engines may use threads."
  : "This page is not cross-origin isolated: engines use one thread. The headers COOP and COEP allow more.";
for (const name of ["dashboard", "docs"]) if (!HAS_SERVER) document.getElementById(`link-${name}`)?.remove();
  else document.getElementById(`link-${name}`)?.setAttribute("href", new URL(`../${name}`, import.meta.url).href);
addEventListener("hashchange", async () => {
  await show();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
});
show();

/** Show what the address names: the gallery, or a model's page. */
async function show() {
  const mine = ++turn;
  leave();
  leave = () => {};
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  try {
    if (path === "inspect") {
      const { inspectPage } = await import("./inspect/page.js");
      if (mine !== turn) return;
      mark("#/inspect");
      document.title = "Inspect · edge-infer";
      const page = inspectPage();
      leave = page.leave;
      main.replaceChildren(...page.parts);
      return;
    }
    const list = await entries();
    const name = path.startsWith("models/") ? decodeURIComponent(path.slice("models/".length)) : "";
    // A single model has no gallery to be chosen from.
    const entry = path === "" && list.length === 1 ? list[0] : list.find((one) => one.name === name);
    if (mine !== turn) return;
    mark(entry ? "" : "#/");
    document.title = `${entry?.name ?? "Models"} · edge-infer`;
    if (entry) {
      const { modelPage } = await import("./model.js");
      const page = await modelPage(await modelOf(entry), new URLSearchParams(query));
      if (mine !== turn) return page.leave();
      leave = page.leave;
      main.replaceChildren(...page.parts);
      page.start();
    } else if (path === "") {
      const page = gallery(list);
      leave = page.leave;
      main.replaceChildren(...page.parts);
    } else {
      main.replaceChildren(h("h1", "No such model"), notice("warn", `This server has no model called ${name || path}.`, "Choose one of those that it has.", h("a.btn", { href: "#/" }, "Show the models")));
    }
  } catch (error) {
    if (mine !== turn) return;
    const again = h("button", { onclick: () => show() }, "Try again");
    main.replaceChildren(h("h1", "This does not open"), trouble(error, again));
  }
}

/** @param {string} href The link of the header that is shown now. */
function mark(href) {
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.getAttribute("href") === href) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** @param {HTMLButtonElement} button Goes through the themes; the choice is kept where storage is allowed. */
function startTheme(button) {
  const paint = (/** @type {string} */ name) => {
    if (name === "light" || name === "dark") root.dataset.theme = name;
    else delete root.dataset.theme;
    button.textContent = `Theme: ${root.dataset.theme ?? "auto"}`;
  };
  let kept = "auto";
  try {
    kept = localStorage.getItem("edge-infer-theme") ?? "auto";
  } catch {
    // Storage is denied: the theme is the system's.
  }
  paint(kept);
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
    paint(next);
    try {
      localStorage.setItem("edge-infer-theme", next);
    } catch {
      // Not kept.
    }
  });
}
