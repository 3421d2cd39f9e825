// A run: its stages, its alarms, its curves, live.

import { hash, heading, repeatedly } from "./app.js";
import { Charts, merge } from "./chart.js";
import { ago, ask, duration, h, note, say } from "./dom.js";
import { WORDS, pill } from "./runs.js";

const named = (stage) => stage.name.replace("_", " ");

function stageItem(stage) {
  const at = stage.progress;
  const working = stage.state === "running";
  const open = working && at?.total;
  return h("li", { class: stage.state, "aria-current": working ? "step" : null, title: stage.reason || null },
    h("b", {}, named(stage)), pill(stage.state),
    h("span", { class: "time" }, duration(stage.seconds), stage.attempts > 1 ? ` · attempt ${stage.attempts}` : ""),
    open ? h("progress", { max: at.total, value: at.done, "aria-label": `${at.label}: ${at.done} of ${at.total}` }) : null,
    working && at ? h("span", { class: "time" }, `${at.label} ${at.done}${at.total ? `/${at.total}` : ""}`,
      at.left === null ? "" : ` · ${duration(at.left)} left`, at.status ? ` · ${at.status}` : "") : null);
}

function state(stages) {
  for (const wanted of ["running", "failed", "killed", "interrupted"]) {
    const stage = stages.find((one) => one.state === wanted);
    if (stage) return stage;
  }
  return null;
}

export async function showRun(place, fields) {
  const run = fields.get("run");
  const stages = h("ol", { class: "stages", "aria-label": "Stages of the pipeline" });
  const alarms = h("div", { role: "region", "aria-label": "Alarms" });
  const empty = note("No iteration of policy optimisation yet; its curves appear here as they grow.");
  let [charts, curves, answer, before] = [null, {}, null, null];

  const tell = () => {
    const at = state(answer.stages);
    const words = at ? `${named(at)} is ${WORDS[at.state]}` : answer.stages.every((one) => one.state === "done") ? "All stages are done" : "Waiting for the next stage";
    const checkpoint = answer.checkpoint && at?.state === "running" ? ` · checkpoint ${ago(answer.checkpoint, answer.now)}` : "";
    heading(answer.title, `${words}${answer.recipe ? ` · recipe ${answer.recipe}` : ""} · last heard of ${ago(answer.updated, answer.now)}${checkpoint}`);
    stages.replaceChildren(...answer.stages.map(stageItem));
    const failed = answer.stages.filter((one) => one.reason);
    alarms.replaceChildren(...failed.map((one) => note(`Stage ${named(one)} ${WORDS[one.state]}: ${one.reason}`, true)),
      ...answer.alarms.map((text) => note(`Alarm: ${text}`, true)));
    const told = [words, ...answer.alarms].join(". ");
    if (before !== null && told !== before) say(told);
    before = told;
  };

  const refresh = async () => {
    const fresh = await ask("run", answer ? { run, after: answer.seen, of: answer.of } : { run });
    if (fresh.fresh) curves = {};
    merge(curves, fresh.curves);
    const news = !answer || fresh.fresh || fresh.seen !== answer.seen;
    answer = { ...fresh, layout: fresh.layout ?? answer.layout };
    if (!charts) {
      charts = new Charts(answer.layout, { onIteration: (at) => hash({ run, tab: "episodes", iteration: at }) });
      place.replaceChildren(stages, alarms, empty, ...charts.elements);
    }
    tell();
    empty.hidden = answer.seen > 0;
    if (news) charts.show([{ curves, name: "", dashed: false }]);
  };

  await refresh();
  performance.mark("curves-drawn");
  const stop = repeatedly(refresh, () => answer.stages.some((one) => one.state === "running") ? 2000 : 10000);
  return { end: () => { stop(); charts.end(); } };
}
