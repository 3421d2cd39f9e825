// Building the page. Texts of models and tools go in as text nodes, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);
export const byId = (id) => document.getElementById(id);

export function section(title, why, ...children) {
  return h("section", {}, h("h2", {}, title), why ? h("p", { class: "why" }, why) : null, ...children);
}

// A table with a caption for screen readers; a cell is a text, an element, or {value, ...attributes}.
export function table(caption, head, rows, { numbers = [], kind = "" } = {}) {
  const cell = (value, place, tag, scope) => {
    const given = value !== null && typeof value === "object" && !(value instanceof Node) && !Array.isArray(value);
    const { value: inner, ...more } = given ? value : { value };
    const names = [numbers.includes(place) ? "number" : "", more.class ?? ""].filter(Boolean).join(" ");
    return h(tag, { ...more, class: names || null, scope }, inner ?? "");
  };
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: kind || null }, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, head.map((text, place) => cell(text, place, "th", "col")))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value, place) =>
        place ? cell(value, place, "td") : cell(value, place, "th", "row")))))));
}

export function note(text, failed = false) {
  return h("p", { class: failed ? "note failed" : "note" }, text);
}

// Told to screen readers; nothing is said twice in a row.
export function say(text) {
  const place = byId("said");
  if (place.textContent !== text) place.textContent = text;
}

export async function ask(question, fields) {
  const query = new URLSearchParams(Object.entries(fields ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const answer = await fetch(`api/${question}?${query}`);
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error ?? `the server answered ${answer.status}`);
  return value;
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1).replace("e+", "e");
  return Number(value.toPrecision(digits)).toString();
}

export const signed = (value) => value === null || value === undefined ? "–" : (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
export const percent = (value, digits = 0) => value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 100 ? `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`
    : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export function ago(time, now = Date.now() / 1000) {
  const gone = now - time;
  if (!time) return "never";
  if (gone < 5) return "now";
  if (gone < 90) return `${Math.round(gone)} s ago`;
  if (gone < 5400) return `${Math.round(gone / 60)} min ago`;
  return gone < 129600 ? `${Math.round(gone / 3600)} h ago` : `${Math.round(gone / 86400)} days ago`;
}
