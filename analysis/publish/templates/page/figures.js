"use strict";
// Figures that can be explored. Everything is read from the figure itself: the rows from its CSV link, the points from its SVG.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const HIDDEN = new Set(["x", "y", "low", "high"]);
  const NAMES = { psnr: "PSNR", top1: "top-1", lact_lm: "LaCT-LM", lact_nvs: "LaCT-NVS", vittt: "ViTTT", v1: "Variant 1", v2: "Variant 2",
    v3: "Variant 3", v4: "Variant 4", v5: "Variant 5", v6: "Variant 6" };
  const named = (text) => NAMES[text] ?? text.replace(/_/g, " ");

  const parseCsv = (text) => {
    const rows = [[]];
    let cell = "", quoted = false;
    for (let i = 0; i < text.length; i += 1) {
      const c = text[i];
      if (quoted) {
        if (c !== '"') cell += c;
        else if (text[i + 1] === '"') { cell += c; i += 1; }
        else quoted = false;
      } else if (c === '"') quoted = true;
      else if (c === "," || c === "\n") {
        rows[rows.length - 1].push(cell);
        cell = "";
        if (c === "\n") rows.push([]);
      } else cell += c;
    }
    return rows.filter((row) => row.length > 1 || row[0]);
  };
  const decode = (link) => {
    const [head, ...rows] = parseCsv(decodeURIComponent(link.href.slice(link.href.indexOf(",") + 1)));
    return { head, rows };
  };
  const tidy = (text) => (/^-?\d*\.?\d+(e[-+]?\d+)?$/i.test(text) && !/^-?\d+$/.test(text) ? String(Number(Number(text).toPrecision(4))) : text);
  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_|_$/g, "");

  // Where a group was drawn: its markers; without markers the corners of its line; the top of a bar.
  const drawnAt = (group, count) => {
    const marks = [...group.querySelectorAll("use")].map((use) => [use.x.baseVal.value, use.y.baseVal.value]);
    const path = group.querySelector("path[d]");
    if (marks.length || !path) return marks;
    if (count > 1) return [...path.getAttribute("d").matchAll(/[ML]\s*(-?[\d.]+)\s+(-?[\d.]+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
    const box = path.getBBox();
    return [[box.x + box.width / 2, box.y]];
  };
  // [group][k] = {x, y, row} in the coordinates of the SVG
  const readPoints = (figure) => {
    const groups = [];
    for (const group of figure.querySelectorAll('svg g[id*="-rows-"]')) {
      const [start, stop] = group.id.match(/-rows-(\d+)-(\d+)$/).slice(1).map(Number);
      const places = drawnAt(group, stop - start);
      if (places.length !== stop - start) continue; // a point that could not be drawn: nothing can be assigned safely
      groups.push(places.map(([x, y], k) => ({ x, y, row: start + k })));
    }
    return groups;
  };

  class Figure {
    constructor(figure) {
      this.figure = figure;
      this.box = figure.querySelector(".drawing");
      this.svg = this.box.querySelector("svg");
      this.link = figure.querySelector("a[download$='.csv']");
      this.groups = readPoints(figure);
      this.rings = document.createElementNS(SVG, "g");
      this.rings.setAttribute("class", "rings");
      this.svg.append(this.rings);
    }
    get table() {
      this.read ??= decode(this.link);
      return this.read;
    }
    describe(row) {
      const { head, rows } = this.table;
      if (!rows[row]) return []; // the figure was saved with another table
      return head.map((name, i) => {
        const text = rows[row][i];
        if (HIDDEN.has(name) || !text) return "";
        return text.startsWith(`${name} `) ? text : `${name} ${named(tidy(text))}`;
      }).filter(Boolean);
    }
    ring(points) {
      this.rings.replaceChildren(...points.map(({ x, y }) => {
        const circle = document.createElementNS(SVG, "circle");
        for (const [name, value] of Object.entries({ cx: x, cy: y, r: 4.5 })) circle.setAttribute(name, value);
        return circle;
      }));
    }
  }

  const addTips = (one) => {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    tip.hidden = true;
    one.box.after(tip);
    let place = null; // [group, index] of the point that is shown
    const hide = () => { tip.hidden = true; place = null; one.ring([]); };
    const show = (g, k) => {
      place = [g, k];
      const point = one.groups[g][k];
      one.ring([point]);
      tip.textContent = one.describe(point.row).join(", ");
      tip.hidden = false;
      const at = new DOMPoint(point.x, point.y).matrixTransform(one.svg.getScreenCTM());
      const frame = one.figure.getBoundingClientRect();
      const left = Math.min(Math.max(at.x - frame.left + 12, 0), Math.max(frame.width - tip.offsetWidth, 0));
      tip.style.left = `${left}px`;
      tip.style.top = `${at.y - frame.top - tip.offsetHeight - 10}px`;
    };
    one.box.addEventListener("pointermove", (event) => {
      const matrix = one.svg.getScreenCTM();
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      const reach = (event.pointerType === "touch" ? 18 : 9) / matrix.a;
      let best = reach * reach, found = null;
      one.groups.forEach((points, g) => points.forEach((p, k) => {
        const d = (p.x - at.x) ** 2 + (p.y - at.y) ** 2;
        if (d < best) { best = d; found = [g, k]; }
      }));
      if (found) show(...found); else if (!tip.hidden) hide();
    });
    one.box.addEventListener("pointerleave", hide);
    one.box.addEventListener("blur", hide);
    one.box.tabIndex = 0;
    one.box.setAttribute("role", "application");
    one.box.setAttribute("aria-description", "Left and right move through the points, up and down to another group, Escape leaves.");
    one.box.addEventListener("keydown", (event) => {
      const [g, k] = place ?? [0, -1];
      const last = one.groups[g].length - 1, step = event.shiftKey ? 25 : 1;
      const across = (to) => [to, Math.min(Math.max(k, 0), one.groups[to].length - 1)];
      const moves = {
        ArrowRight: () => [g, Math.min(k + step, last)],
        ArrowLeft: () => [g, Math.max(k - step, 0)],
        ArrowDown: () => across((g + 1) % one.groups.length),
        ArrowUp: () => across((g + one.groups.length - 1) % one.groups.length),
        Home: () => [g, 0],
        End: () => [g, last],
      };
      if (event.key === "Escape") hide();
      else if (moves[event.key]) { event.preventDefault(); show(...moves[event.key]()); }
    });
  };

  const addSlider = (one, name) => {
    const { head, rows } = one.table;
    const column = head.findIndex((title) => slug(title) === name);
    if (column < 0) return;
    const values = [...new Set(rows.map((row) => row[column]))].sort((a, b) => a - b);
    const box = document.createElement("div");
    box.className = "explore";
    box.innerHTML = '<label><span></span> <input type="range" min="0" step="1"></label><output></output>';
    const [title, input, output] = [box.querySelector("span"), box.querySelector("input"), box.querySelector("output")];
    title.textContent = head[column];
    input.max = values.length - 1;
    input.value = Math.max(values.indexOf("1"), 0);
    const at = (row, title) => { const i = head.indexOf(title); return i < 0 ? "" : row[i]; };
    const line = (row) => {
      const words = head.map((title, i) => (i === column || isNaN(row[i]) === false || !row[i] ? "" : named(row[i]))).filter(Boolean);
      const span = at(row, "low") && at(row, "high") ? ` [${tidy(at(row, "low"))}, ${tidy(at(row, "high"))}]` : "";
      return `${words.join(", ")}: ${tidy(at(row, "value"))}${span}`;
    };
    const show = () => {
      const value = values[input.value];
      const chosen = rows.map((row, i) => [row, i]).filter(([row]) => row[column] === value);
      const wanted = new Set(chosen.map(([, i]) => i));
      one.ring(one.groups.flat().filter((point) => wanted.has(point.row)));
      input.setAttribute("aria-valuetext", `${head[column]} ${value}`);
      output.replaceChildren(...[`${head[column]} = ${value}`, ...chosen.map(([row]) => line(row))].map((text, i) => {
        const part = document.createElement(i ? "span" : "b");
        part.textContent = text;
        return part;
      }));
    };
    input.addEventListener("input", show);
    one.box.addEventListener("pointerleave", show);
    one.box.addEventListener("blur", show);
    one.box.after(box);
    show();
  };

  const addDownloads = (one) => {
    const offer = (kind, make) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "link";
      button.textContent = kind.toUpperCase();
      button.setAttribute("aria-label", `Download the figure as ${kind.toUpperCase()}`);
      button.addEventListener("click", async () => {
        const address = URL.createObjectURL(await make());
        const link = document.createElement("a");
        link.href = address;
        link.download = one.link.download.replace(/csv$/, kind);
        link.click();
        setTimeout(() => URL.revokeObjectURL(address), 10_000);
      });
      one.link.after(" ", button);
    };
    const vector = () => {
      const copy = one.svg.cloneNode(true);
      copy.querySelector(".rings").remove();
      copy.setAttribute("xmlns", SVG);
      copy.setAttribute("xmlns:xlink", "http://www.w3.org/1999/xlink");
      const text = new XMLSerializer().serializeToString(copy).replace(/var\(--\w+,\s*(#[0-9a-f]+)\)/gi, "$1");
      return new Blob([text], { type: "image/svg+xml" });
    };
    offer("png", async () => {
      const address = URL.createObjectURL(vector());
      const image = new Image();
      image.src = address;
      await image.decode();
      const canvas = document.createElement("canvas");
      const box = one.svg.viewBox.baseVal, scale = 200 / 72;
      [canvas.width, canvas.height] = [box.width * scale, box.height * scale];
      const pen = canvas.getContext("2d");
      pen.fillStyle = "#fff";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(image, 0, 0, canvas.width, canvas.height);
      URL.revokeObjectURL(address);
      return new Promise((done) => { canvas.toBlob(done, "image/png"); });
    });
    offer("svg", async () => vector());
  };

  for (const figure of document.querySelectorAll("figure[id^='fig-']")) {
    if (!figure.querySelector(".drawing svg") || !figure.querySelector("a[download$='.csv']")) continue;
    const one = new Figure(figure);
    addDownloads(one);
    if (one.groups.length) addTips(one);
    const slider = figure.querySelector('svg g[id*="-slider-"]');
    if (slider) addSlider(one, slider.id.split("-slider-")[1]);
  }
  // Paper shows what is folded here.
  addEventListener("beforeprint", () => document.querySelectorAll("details.measured, details.why").forEach((fold) => { fold.open = true; }));
})();
