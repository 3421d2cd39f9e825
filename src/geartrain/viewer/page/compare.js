// Two runs over each other.

import { hash, heading } from "./app.js";
import { Charts } from "./chart.js";
import { ask, h, note, percent, section, table } from "./dom.js";
import { points, shown } from "./results.js";

export async function showCompare(place, fields) {
  const [run, other] = [fields.get("run"), fields.get("other")];
  const { runs } = await ask("runs");
  const choices = runs.filter((one) => one.name !== run);
  const choose = h("select", { id: "other", onchange: (event) => { location.hash = hash({ run, tab: "compare", other: event.target.value }); } },
    h("option", { value: "" }, "choose a run"), choices.map((one) => h("option", { value: one.name }, one.title)));
  choose.value = other ?? "";
  const bar = h("p", { class: "filters" }, h("label", { for: "other" }, h("span", {}, "Compare with"), choose));
  heading("Compare", "The first run is drawn in full lines, the other one dashed.", `Compare ${run}`);
  place.replaceChildren(bar);
  let charts = null;
  const view = { end: () => charts?.end(), changed: (next) => { if (next.get("other") !== other) location.reload(); } };
  if (!choices.length) { place.append(note("There is no other run below the folder that is served.")); return view; }
  if (!other) return view;
  const found = await ask("compare", { run, other });
  const [first, second] = found.sides;
  const rates = ({ estimate, low, high }) => `${percent(estimate, 1)} [${(100 * low).toFixed(1)}, ${(100 * high).toFixed(1)}]`;
  const rows = first.evaluation.map((row) => [row, second.evaluation.find((one) => one.split === row.split && one.decoding === row.decoding)]).filter(([, two]) => two);
  charts = new Charts(found.layout);
  place.append(
    section("Settings that differ", null, found.settings.length ? table("Settings that differ", ["Setting", first.title, second.title],
      found.settings.map((one) => [one.name, { value: shown(one.first), class: "mono" }, { value: shown(one.second), class: "mono" }])) : note("None: both ran with the same settings.")),
    section("Evaluation", found.same_tasks === false ? null : "The same tasks, each measured against its own start.",
      found.same_tasks === false ? note("They were measured on different task sets: their rates cannot be compared task by task.", true) : null,
      rows.length ? table("Evaluation of both", ["Split", "Decoding", `${first.title}, after`, `${second.title}, after`, `${first.title}, gain`, `${second.title}, gain`],
        rows.map(([one, two]) => [one.split, one.decoding, rates(one.after), rates(two.after), points(one.gain), points(two.gain)]), { numbers: [2, 3, 4, 5] })
        : note("At least one of them has no evaluation yet.")),
    ...charts.elements);
  charts.show([{ curves: first.curves, name: first.title, dashed: false }, { curves: second.curves, name: second.title, dashed: true }]);
  return view;
}
