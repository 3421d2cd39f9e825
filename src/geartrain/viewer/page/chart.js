// Small line charts, drawn here: SVG paths over a common x, values in words beside them.

import { h, s, number, percent } from "./dom.js";

const ROOM = { left: 46, right: 10, top: 8, bottom: 22 };

// About `count` round values from low to high, and never one alone: it says nothing of how large a change is.
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) {
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  }
  return found.length < 2 && count < 50 ? ticks(low, high, 2 * count) : found;
}

function range(sets, keys) {
  let [low, high, first, last] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const { curves } of sets) {
    for (const key of keys) {
      const curve = curves[key];
      if (!curve) continue;
      for (const y of curve[1]) { if (y < low) low = y; if (y > high) high = y; }
      first = Math.min(first, curve[0][0]);
      last = Math.max(last, curve[0][curve[0].length - 1]);
    }
  }
  if (high - low < 1e-3 * Math.max(Math.abs(low), Math.abs(high), 1e-9)) {
    const room = 0.1 * Math.abs(high) || 1;
    return { low: low >= 0 ? Math.max(0, low - room) : low - room, high: high + room, first, last: last === first ? first + 1 : last };
  }
  const room = 0.06 * (high - low);
  return { low: low >= 0 ? Math.max(0, low - room) : low - room, high: high + room, first, last: last === first ? first + 1 : last };
}

// The place of the last x that is not above the one asked for.
function placeOf(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle - 1;
  }
  return low;
}

export class Chart {
  // panel: {title, meaning, series: [{key, label, colour}]}; onCursor(x) is told where a pointer is.
  constructor(panel, { height = 150, shares = false, onCursor = () => {} } = {}) {
    this.panel = panel;
    this.height = height;
    this.shares = shares;
    this.sets = [];
    this.cursor = null;
    this.svg = s("svg", { class: "chart", role: "img", height, "aria-label": panel.title });
    this.legend = h("ul", { class: "legend" });
    this.element = h("figure", { class: "panel" },
      h("figcaption", {}, h("h3", {}, panel.title), h("p", {}, panel.meaning)), this.legend, this.svg);
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.scale) return;
      const { first, last, width } = this.scale;
      const share = (event.clientX - this.svg.getBoundingClientRect().left - ROOM.left) / (width - ROOM.left - ROOM.right);
      onCursor(Math.round(first + Math.min(1, Math.max(0, share)) * (last - first)));
    });
    this.svg.addEventListener("pointerleave", () => onCursor(null));
  }

  get keys() { return this.panel.series.map((one) => one.key); }

  has(sets) { return sets.some(({ curves }) => this.keys.some((key) => curves[key])); }

  // sets: [{curves: {key: [xs, ys]}, name, dashed}]
  show(sets, width) {
    this.sets = sets;
    this.draw(width);
  }

  draw(given) {
    const width = Math.max(220, given || 320);
    const { low, high, first, last } = range(this.sets, this.keys);
    const x = (value) => ROOM.left + (value - first) / (last - first) * (width - ROOM.left - ROOM.right);
    const y = (value) => this.height - ROOM.bottom - (value - low) / (high - low) * (this.height - ROOM.top - ROOM.bottom);
    this.scale = { first, last, width, x, y };
    const text = (value) => this.shares ? percent(value) : number(value);
    const parts = [];
    for (const value of ticks(low, high, 3)) {
      parts.push(s("line", { class: "grid", x1: ROOM.left, x2: width - ROOM.right, y1: y(value), y2: y(value) }),
        s("text", { class: "tick", x: ROOM.left - 7, y: y(value) + 4, "text-anchor": "end" }, text(value)));
    }
    for (const value of ticks(first, last, Math.max(2, Math.min(6, Math.floor(width / 90)))).filter(Number.isInteger)) {
      parts.push(s("text", { class: "tick", x: x(value), y: this.height - 5, "text-anchor": "middle" }, String(value)));
    }
    for (const { curves, dashed } of this.sets) {
      for (const series of this.panel.series) {
        const curve = curves[series.key];
        if (!curve) continue;
        const path = curve[0].map((at, place) => `${place ? "L" : "M"}${x(at).toFixed(1)} ${y(curve[1][place]).toFixed(1)}`).join("");
        parts.push(s("path", { class: `line ${series.colour}${dashed ? " dashed" : ""}`, d: path }));
        if (curve[0].length === 1 || (series.after && curve[0].length < 60)) {
          parts.push(...curve[0].map((at, place) => s("circle", { class: `dot ${series.colour}`, cx: x(at), cy: y(curve[1][place]), r: 2.6 })));
        }
      }
    }
    this.mark = s("line", { class: "cursor", y1: ROOM.top, y2: this.height - ROOM.bottom, visibility: "hidden" });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("aria-label", this.inWords());
    this.svg.replaceChildren(...parts, this.mark);
    this.point(this.cursor);
  }

  // Show the values at an x; null: the last ones.
  point(at) {
    this.cursor = at;
    if (!this.scale || this.element.hidden) return;
    const shown = at !== null && at >= this.scale.first && at <= this.scale.last;
    this.mark.setAttribute("visibility", shown ? "visible" : "hidden");
    if (shown) { this.mark.setAttribute("x1", this.scale.x(at)); this.mark.setAttribute("x2", this.scale.x(at)); }
    const items = [];
    for (const { curves, name, dashed } of this.sets) {
      for (const series of this.panel.series) {
        const curve = curves[series.key];
        if (!curve) continue;
        const value = curve[1][at === null ? curve[1].length - 1 : placeOf(curve[0], at)];
        items.push(h("li", {}, h("i", { class: `${series.colour}${dashed ? " dashed" : ""}` }),
          [series.label, name].filter(Boolean).join(", "), " ", h("b", {}, this.shares ? percent(value) : number(value))));
      }
    }
    this.legend.replaceChildren(...items);
  }

  inWords() {
    const parts = [];
    for (const { curves, name } of this.sets) {
      for (const series of this.panel.series) {
        const curve = curves[series.key];
        if (!curve) continue;
        const ys = curve[1];
        let [low, high] = [ys[0], ys[0]];
        for (const value of ys) { if (value < low) low = value; if (value > high) high = value; }
        const last = ys.length - 1;
        parts.push(`${[series.label, name].filter(Boolean).join(", ")} from ${number(ys[0])} at ${curve[0][0]} to ${number(ys[last])} at ${curve[0][last]}, between ${number(low)} and ${number(high)}`.trim());
      }
    }
    return `${this.panel.title}: ${parts.join("; ")}`;
  }
}

// Charts of a layout: the first is drawn at once, the others when there is time, those in view before the rest. A slider
// and the pointer move one cursor through all of them.
export class Charts {
  constructor(layout, { onIteration = null } = {}) {
    this.sets = [];
    this.waiting = [];
    this.slider = h("input", { type: "range", min: 0, max: 0, step: 1, value: 0, id: "cursor",
      oninput: () => this.point(Number(this.slider.value), true) });
    this.reading = h("output", { for: "cursor" }, "latest");
    this.link = onIteration ? h("a", { href: "#" }, "episodes") : null;
    this.onIteration = onIteration;
    this.groups = layout.map((group, place) => {
      const charts = group.panels.map((panel) => new Chart(panel, {
        height: place ? 150 : 260, shares: !place, onCursor: (x) => this.point(x),
      }));
      const element = h("section", { class: place ? null : "first" }, h("h2", {}, group.title),
        place ? null : h("p", { class: "cursor-line" }, h("label", { for: "cursor" }, "Values at iteration "), this.reading, this.slider, this.link),
        h("div", { class: place ? "panels charts" : "charts wide" }, charts.map((chart) => chart.element)));
      return { charts, element };
    });
    this.resize = new ResizeObserver(() => this.all((chart) => { if (!chart.element.hidden && chart.scale && chart.scale.width !== Math.max(220, chart.element.clientWidth)) chart.draw(chart.element.clientWidth); }));
    this.resize.observe(this.groups[0].element);
  }

  get elements() { return this.groups.map((group) => group.element); }

  all(what) { for (const { charts } of this.groups) charts.forEach(what); }

  show(sets) {
    this.sets = sets;
    this.waiting = [];
    for (const { charts, element } of this.groups) {
      for (const chart of charts) chart.element.hidden = !chart.has(sets);
      element.hidden = charts.every((chart) => chart.element.hidden);
    }
    // all places are read before anything is drawn: else the browser lays the page out once per chart
    const places = this.groups.flatMap(({ charts }) => charts).filter((chart) => !chart.element.hidden)
      .map((chart) => [chart, chart.element.getBoundingClientRect()]);
    const inView = ([, { top, bottom }]) => bottom > 0 && top < innerHeight;
    const [first, ...rest] = [...places.filter(inView), ...places.filter((one) => !inView(one))].map(([chart, { width }]) => [chart, width]);
    if (first) first[0].show(sets, first[1]);
    this.waiting = rest;
    const last = Math.max(0, ...sets.flatMap(({ curves }) => Object.values(curves).map(([xs]) => xs[xs.length - 1])));
    const following = this.slider.value === this.slider.max;
    this.slider.max = last;
    if (following) this.slider.value = last;
    this.tellLink(following ? last : Number(this.slider.value));
    requestIdleCallback(() => this.drawRest(), { timeout: 50 });
  }

  drawRest() {
    const [chart, width] = this.waiting.shift() ?? [];
    if (!chart) return;
    chart.show(this.sets, width);
    requestIdleCallback(() => this.drawRest(), { timeout: 50 });
  }

  point(x, slid = false) {
    const at = x ?? (this.slider.value === this.slider.max ? null : Number(this.slider.value));
    this.reading.textContent = at === null ? "latest" : String(at);
    this.all((chart) => chart.point(at));
    if (slid) this.tellLink(at);
  }

  tellLink(at) { if (this.link) this.link.setAttribute("href", this.onIteration(at)); }

  end() { this.waiting = []; this.resize.disconnect(); }
}

// Put new points behind, or in place of, those that are known.
export function merge(known, fresh) {
  for (const [key, [xs, ys]] of Object.entries(fresh)) {
    const curve = known[key] ??= [[], []];
    xs.forEach((x, place) => {
      const last = curve[0].length - 1;
      if (last < 0 || x > curve[0][last]) { curve[0].push(x); curve[1].push(ys[place]); return; }
      const at = placeOf(curve[0], x);
      if (curve[0][at] === x) curve[1][at] = ys[place];
    });
  }
}
