/** The button of the theme, on dashboard and fleet. A classic script: the fleet's page holds its text, known by its digest. */
(() => {
  const THEMES = ["auto", "light", "dark"];
  // The studio keeps its theme under the same key: a choice in one holds in all.
  const KEY = "edge-infer-theme";
  const root = document.documentElement;
  const button = /** @type {HTMLElement} */ (document.getElementById("theme"));

  /** @param {string} name */
  function paint(name) {
    if (name === "light" || name === "dark") root.dataset.theme = name;
    else delete root.dataset.theme;
    button.textContent = `Theme: ${root.dataset.theme ?? "auto"}`;
  }

  let kept = null;
  try {
    kept = localStorage.getItem(KEY);
  } catch {
    // Storage is denied: the theme is the system's.
  }
  paint(kept ?? "auto");
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
    paint(next);
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // Not kept.
    }
  });
})();
