// What a run came to: gate, evaluation, lineage, settings.

import { heading } from "./app.js";
import { ask, h, note, percent, section, table } from "./dom.js";

const rate = (value) => `${percent(value.estimate, 1)} [${(100 * value.low).toFixed(1)}, ${(100 * value.high).toFixed(1)}]`;
export const points = (value) => `${value.estimate < 0 ? "−" : "+"}${Math.abs(100 * value.estimate).toFixed(1)} [${(100 * value.low).toFixed(1)}, ${(100 * value.high).toFixed(1)}]`;
export const side = (value) => value > 0 ? "good" : "";

export async function showResults(place, fields) {
  const found = await ask("results", { run: fields.get("run") });
  heading(found.title || "Results", "Before is the supervised start, after is the policy that reinforcement learning made of it.", `Results of ${fields.get("run")}`);
  const { verdict, evaluation } = found;
  const parts = [];
  if (found.withdrawn) parts.push(note(found.withdrawn.text, true));
  parts.push(verdict ? section(`Gate: ${verdict.promoted ? "promoted" : "not promoted"}`, "A model is promoted only if every check holds.",
    table("Checks of the gate", ["Check", "Outcome", "Reason"], verdict.checks.map((check) =>
      [check.name.replaceAll("_", " "), { value: check.passed ? "passed" : "failed", class: check.passed ? "good" : "bad" }, check.reason]))) : section("Gate", null, note("Not there yet: the stage promotion has not run.")));
  parts.push(evaluation.length ? section("Success before and after", "Rates with their intervals; the gain is paired, task by task, in points.",
    table("Success by split", ["Split", "Decoding", "Tasks", "Before", "After", "Gain, points"], evaluation.map((row) =>
      [row.split, row.decoding, row.tasks, rate(row.before), rate(row.after), { value: points(row.gain), class: row.gain.low > 0 ? "good" : row.gain.high < 0 ? "bad" : "" }]), { numbers: [2, 3, 4, 5] }))
    : section("Evaluation", null, note("Not there yet: the stage evaluation has not run.")));
  const probes = Object.entries(found.probes);
  if (probes.length) parts.push(section("Reward-hacking probes", "Policies that do no work, played through the real verifier. None may pass.",
    table("Probes", ["Probe", "Episodes", "Passed the verifier"], probes.map(([name, probe]) => [name, probe.episodes, { value: probe.successes, class: probe.successes ? "bad" : "good" }]), { numbers: [1, 2] })));
  place.replaceChildren(...parts);
  return {};
}

export async function showLineage(place, fields) {
  const found = await ask("lineage", { run: fields.get("run") });
  heading("Lineage", found.of ? `What the output of ${found.of.replace("_", " ")} was made from.` : "", `Lineage of ${fields.get("run")}`);
  if (!found.nodes.length) { place.replaceChildren(note(found.note ?? "No stage is finished yet.")); return {}; }
  // drawn by the server, which escapes every name; parsed as XML, where nothing runs
  const drawing = document.importNode(new DOMParser().parseFromString(found.drawing.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '), "image/svg+xml").documentElement, true);
  const width = drawing.viewBox.baseVal.width;
  drawing.style.setProperty("min-width", `${Math.min(width, 960)}px`);
  drawing.style.setProperty("max-width", `${width}px`);
  place.replaceChildren(section("From left to right", null,
    h("div", { class: "key" }, [["from-outside", "from outside"], ["dataset", "dataset"], ["model", "model"], ["promoted", "promoted"]].map(([kind, text]) => h("span", {}, h("i", { class: kind }), text))),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Drawing of the lineage" }, drawing)),
  section("Every node", null, table("Nodes", ["Name", "What", "Digest or id", "State", "Time", "Licence"],
    found.nodes.map((node) => [node.name, node.type || "run", { value: node.digest || node.id, class: "digest" }, node.promoted ? "promoted" : node.state, (node.time ?? "").slice(0, 19).replace("T", " "), node.licence]))));
  return {};
}

export function flat(value, before = "") {
  return Object.entries(value).flatMap(([name, inner]) => inner !== null && typeof inner === "object" && !Array.isArray(inner) && Object.keys(inner).length
    ? flat(inner, `${before}${name}.`) : [[`${before}${name}`, inner]]);
}

export const shown = (value) => value === undefined || value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);

export async function showSettings(place, fields) {
  const found = await ask("results", { run: fields.get("run") });
  heading("Settings", "What the stages ran with; of a stage that has not run, what params.yaml says.", `Settings of ${fields.get("run")}`);
  const sections = Object.entries(found.settings);
  const single = sections.filter(([, value]) => value === null || typeof value !== "object");
  place.replaceChildren(...(single.length ? [section("Shared", null, table("Shared settings", ["Setting", "Value"], single.map(([name, value]) => [name, shown(value)])))] : []),
    ...sections.filter(([, value]) => value !== null && typeof value === "object").map(([name, value]) =>
      section(name, null, table(`Settings of ${name}`, ["Setting", "Value"], flat(value).map(([key, inner]) => [key, { value: shown(inner), class: "mono" }])))));
  return {};
}
