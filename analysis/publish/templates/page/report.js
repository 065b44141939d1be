"use strict";
(() => {
  const root = document.documentElement;
  const store = {
    get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("theme", value); } catch { /* a file may not store */ } },
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const themeButton = document.getElementById("toggle-theme");
  const showTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };
  if (["dark", "light"].includes(store.get())) root.dataset.theme = store.get();
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    store.set(root.dataset.theme);
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  const codeButton = document.getElementById("toggle-code");
  codeButton.addEventListener("click", () => {
    const open = codeButton.getAttribute("aria-pressed") !== "true";
    document.querySelectorAll("details.code").forEach((block) => { block.open = open; });
    codeButton.setAttribute("aria-pressed", String(open));
    codeButton.textContent = open ? "Hide code" : "Show code";
  });
  document.querySelector(".tools").hidden = false;

  // A contents list beside the text stays open; above the text it starts closed.
  const wide = matchMedia("(min-width: 74rem)");
  const contents = document.querySelector(".contents details");
  const place = () => { contents.open = wide.matches; };
  wide.addEventListener("change", place);
  place();

  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [decodeURIComponent(a.hash.slice(1)), a]));
  const marks = [...document.querySelectorAll("main h1[id], main h2[id]")].filter((h) => links.has(h.id));
  const follow = () => {
    const passed = marks.filter((h) => h.getBoundingClientRect().top < innerHeight * 0.25);
    const current = links.get((passed.pop() ?? marks[0])?.id);
    links.forEach((a) => a.removeAttribute("aria-current"));
    document.querySelectorAll(".contents li.open").forEach((li) => li.classList.remove("open"));
    if (!current) return;
    current.setAttribute("aria-current", "true");
    current.closest(".contents ol > li").classList.add("open");
  };
  addEventListener("scroll", () => requestAnimationFrame(follow), { passive: true });
  follow();

  // Tables: numbers to the right; a click on a column head sorts, a second one reverses.
  const number = (text) => {
    const found = text.replace(/\u2212/g, "-").match(/^\s*[-+]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?/i);
    return found ? parseFloat(found[0].replace(/,/g, "")) : NaN;
  };
  document.querySelectorAll("main table").forEach((table) => {
    const heads = table.tHead && table.tHead.rows.length === 1 ? [...table.tHead.rows[0].cells] : [];
    const body = table.tBodies[0];
    const regular = body && [...body.rows].every((row) => row.cells.length === heads.length && [...row.cells].every((c) => c.rowSpan === 1 && c.colSpan === 1));
    if (!regular || !heads.length || body.rows.length < 2 || table.classList.contains("unsorted")) return;
    heads.forEach((head, column) => {
      if (!head.textContent.trim()) return;
      head.setAttribute("aria-sort", "none");
      head.tabIndex = 0;
      const sort = () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => { if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const text = (row) => row.cells[column].textContent.trim();
        const compare = (a, b) => {
          const [x, y] = [number(text(a)), number(text(b))];
          if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
          const order = isNaN(x) ? text(a).localeCompare(text(b)) : x - y;
          return up ? order : -order;
        };
        body.append(...[...body.rows].sort(compare));
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
      });
    });
  });
})();
