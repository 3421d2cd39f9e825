// All workspaces below the folder that is served.

import { hash, heading, repeatedly } from "./app.js";
import { ago, ask, h, percent, section, table } from "./dom.js";

export const WORDS = { done: "done", running: "running", failed: "failed", interrupted: "stopped", killed: "killed", waiting: "not run", idle: "idle" };

export const pill = (state) => h("span", { class: `pill ${state}` }, WORDS[state] ?? state);

function row(run) {
  const progress = run.progress?.total ? ` ${run.progress.done}/${run.progress.total}` : "";
  const gain = run.gain ? ` (${run.gain.estimate < 0 ? "−" : "+"}${Math.abs(100 * run.gain.estimate).toFixed(1)})` : "";
  return [
    h("a", { href: hash({ run: run.name }) }, run.title),
    h("span", {}, pill(run.state), run.stage ? ` ${run.stage.replace("_", " ")}${progress}` : ` ${run.done} of ${run.stages} stages`),
    run.recipe,
    run.test === null ? { value: "–", class: "nothing" } : `${percent(run.test)}${gain}`,
    run.promoted === null ? { value: "–", class: "nothing" } : { value: run.promoted ? "promoted" : "not promoted", class: run.promoted ? "good" : "bad" },
    ago(run.updated),
  ];
}

export async function showRuns(place) {
  let stop = null;
  let running = false;
  const refresh = async () => {
    const { runs } = await ask("runs");
    running = runs.some((run) => run.running);
    const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    heading(runs.length === 1 ? "One run" : `${runs.length} runs`, "Every workspace below the folder that is served; what is at work comes first.", "Runs");
    place.replaceChildren(section("Runs", null, table("Runs",
      ["Run", "State", "Method", "Test, sampled (gain, points)", "Gate", "Last heard of"], runs.map(row), { numbers: [3], kind: "stacked" })));
    if (focused) place.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  };
  await refresh();
  stop = repeatedly(refresh, () => running ? 2000 : 10000);
  return { end: stop };
}
