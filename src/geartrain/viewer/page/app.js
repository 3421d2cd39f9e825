// The address says what is shown: #run=NAME&tab=TAB&… ; without a run, the list of all.

import { byId, h, note, say } from "./dom.js";
import { showCompare } from "./compare.js";
import { showEpisodes } from "./episodes.js";
import { showLineage, showResults, showSettings } from "./results.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";

const TABS = {
  curves: ["Curves", showRun],
  episodes: ["Episodes", showEpisodes],
  results: ["Results", showResults],
  lineage: ["Lineage", showLineage],
  settings: ["Settings", showSettings],
  compare: ["Compare", showCompare],
};

export const hash = (fields) => `#${new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== "" && value !== null && value !== undefined))}`;

let view = null; // {end(), changed(fields)?} of what is shown
let shown = {};

function frame(fields) {
  const run = fields.get("run");
  byId("where").textContent = run === null ? "" : `· ${run}`;
  const tabs = byId("tabs");
  tabs.hidden = run === null;
  tabs.replaceChildren(...(run === null ? [] : Object.entries(TABS).map(([name, [label]]) =>
    h("a", { href: hash({ run, tab: name, other: name === "compare" ? fields.get("other") : null }), "aria-current": name === fields.get("tab") ? "page" : null }, label))));
}

async function show() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const run = fields.get("run");
  if (run !== null && !(fields.get("tab") in TABS)) fields.set("tab", fields.has("other") ? "compare" : "curves");
  const now = { run, tab: fields.get("tab") };
  frame(fields);
  if (view?.changed && now.run === shown.run && now.tab === shown.tab) { view.changed(fields); return; }
  const moved = shown.tab !== undefined;
  view?.end?.();
  view = null;
  shown = now;
  const place = byId("content");
  place.replaceChildren();
  try {
    const [, open] = run === null ? [null, showRuns] : TABS[now.tab];
    const opened = await open(place, fields);
    if (shown === now) view = opened; else opened?.end?.();
  } catch (error) {
    if (shown === now) place.replaceChildren(note(`This could not be shown: ${error.message}.`, true));
  }
  if (moved) { say(document.title); place.focus({ preventScroll: true }); scrollTo(0, 0); }
}

export function heading(title, lead = "", inTab = title) {
  byId("title").textContent = title.replaceAll(" %", "\u00a0%");
  byId("lead").replaceChildren(...[lead].flat());
  document.title = `${inTab} · geartrain`;
}

// Ask again and again while somebody looks; `every()` says after how many milliseconds.
export function repeatedly(what, every) {
  let [timer, over] = [null, false];
  const next = () => { if (!over) timer = setTimeout(turn, every()); };
  const turn = async () => {
    if (document.hidden) { timer = null; return; }
    try { await what(); } catch (error) { say(`The server does not answer: ${error.message}`); }
    next();
  };
  const woken = () => { if (!document.hidden && timer === null) turn(); };
  document.addEventListener("visibilitychange", woken);
  next();
  return () => { over = true; clearTimeout(timer); document.removeEventListener("visibilitychange", woken); };
}

byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("content").focus(); });
addEventListener("hashchange", show);
show();
