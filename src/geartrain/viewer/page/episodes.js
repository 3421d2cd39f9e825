// The episodes of a training: a filtered list, and one of them with the credit of every turn.

import { hash, heading } from "./app.js";
import { ask, h, note, number, percent, say, section, signed } from "./dom.js";

const PAGE = 50;
const FILTERS = ["iteration", "family", "success", "trained", "task", "sort", "order"];
const yes = (value) => h("span", { class: value ? "good" : "bad" }, value ? "success" : "failure");

function field(label, control) {
  return h("label", {}, h("span", {}, label), control);
}

function choice(name, options, value) {
  const control = h("select", { name }, options.map(([key, text]) => h("option", { value: key }, text)));
  control.value = value ?? "";
  return control;
}

// A bar from the middle: right and blue made more likely, left and orange less.
function creditBar(value, top) {
  const share = value === null ? 0 : Math.min(1, Math.abs(value) / top);
  return h("span", { class: `credit ${!value ? "none" : value > 0 ? "reward" : "blame"}`, role: "img", "aria-label": `credit ${signed(value)}` },
    h("i", { style: { width: `${50 * share}%` } }));
}

function turnItem(turn, place, top) {
  const kind = !turn.credit ? "none" : turn.credit > 0 ? "reward" : "blame";
  const strength = turn.credit === null ? 0 : Math.min(1, Math.abs(turn.credit) / top);
  const grains = Object.entries(turn.grains);
  return h("li", { class: kind, id: `turn-${place + 1}`, style: { "--strength": strength.toFixed(3) } },
    h("div", { class: "turn-head" }, h("span", {}, creditBar(turn.credit, top),
      turn.credit === null ? "not trained on" : `credit ${signed(turn.credit)} · weight ${number(turn.weight)}`)),
    h("pre", { class: "action" }, turn.action),
    h("pre", { class: turn.error ? "observation failed" : "observation", tabindex: "0", role: "group", "aria-label": turn.error ? `error: ${turn.error}` : "result" }, turn.result),
    h("p", { class: "grains" },
      `reward of the step ${signed(turn.reward)}, of its tokens ${signed(turn.token_reward)} · ${turn.tokens} tokens, entropy ${number(turn.entropy)}`,
      grains.length ? ` · grains: ${grains.map(([name, value]) => `${name} ${signed(value)}`).join(", ")}` : "",
      turn.subgoals.length ? ` · reached: ${turn.subgoals.join(", ")}` : ""));
}

function siblingLink(one, fields, open) {
  const target = hash({ ...fields, place: one.place });
  return h("a", { href: target, class: "sibling", "aria-current": one.place === open.place ? "true" : null,
    "aria-label": `sibling ${one.sibling}, ${one.success ? "success" : "failure"}, advantage ${signed(one.advantage)}` },
  h("b", {}, one.sibling), " ", yes(one.success), " ", signed(one.advantage));
}

function episode(found, fields) {
  const credits = found.turns.map((turn) => Math.abs(turn.credit ?? 0));
  const top = Math.max(...credits, 1e-9);
  const channels = Object.entries(found.channels).map(([name, value]) => `${name} ${number(value)}`).join(", ");
  return [
    h("h2", { tabindex: "-1", id: "opened" }, `${found.task_id}, sibling ${found.sibling}`),
    h("p", { class: "why" }, `Iteration ${found.iteration} · ${found.family.replaceAll("_", " ")} · `, yes(found.success), ` · progress ${percent(found.progress)} · ended: ${found.end.replace("_", " ")}`),
    h("dl", { class: "facts" },
      ...[["Reward", number(found.reward)], ["By channel", channels || "–"], ["Advantage", found.advantage === null ? "not trained on" : signed(found.advantage)],
        ["Turns", found.turns.length], ["Invalid calls", found.invalid_calls], ["Tokens", found.tokens]].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("nav", { class: "siblings", "aria-label": "Siblings: the same task, the same start" }, found.siblings.map((one) => siblingLink(one, fields, found))),
    h("nav", { class: "strip", "aria-label": "Credit by turn" }, found.turns.map((turn, place) =>
      h("button", { type: "button", class: !turn.credit ? "none" : turn.credit > 0 ? "reward" : "blame", title: `turn ${place + 1}: ${signed(turn.credit)}`,
        style: { "--strength": Math.min(1, Math.abs(turn.credit ?? 0) / top).toFixed(3) },
        onclick: () => document.getElementById(`turn-${place + 1}`).scrollIntoView({ block: "center" }) }, place + 1))),
    h("p", { class: "key" }, h("span", {}, h("i", { class: "reward" }), "made more likely"), h("span", {}, h("i", { class: "blame" }), "made less likely")),
    found.prompt ? h("div", { class: "task" }, found.prompt) : null,
    h("ol", { class: "turns" }, found.turns.map((turn, place) => turnItem(turn, place, top))),
  ];
}

function rows(answer, fields, open) {
  return answer.rows.map((row) => {
    const here = row.iteration === open.iteration && row.place === open.place;
    const link = h("a", { href: hash({ ...fields, at: row.iteration, place: row.place }), "aria-current": here ? "true" : null, tabindex: "-1" }, row.task_id);
    return h("tr", { class: here ? "open" : null }, h("th", { scope: "row" }, link, h("small", {}, `${row.family.replaceAll("_", " ")} · sibling ${row.sibling}`)),
      h("td", { class: "number" }, row.iteration), h("td", {}, yes(row.success)), h("td", { class: "number" }, number(row.reward, 2)),
      h("td", { class: "number" }, signed(row.advantage)), h("td", { class: "number" }, row.turns));
  });
}

export async function showEpisodes(place, first) {
  const run = first.get("run");
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter episodes" });
  const body = h("tbody");
  const list = h("table", { class: "episodes" }, h("caption", { class: "unseen" }, "Episodes; arrow keys move, Enter opens"),
    h("thead", {}, h("tr", {}, ["Task", "Iteration", "Outcome", "Reward", "Advantage", "Turns"].map((text, at) =>
      h("th", { scope: "col", class: at === 0 || at === 2 ? null : "number" }, text)))), body);
  const counter = h("p", { class: "pages" });
  const detail = h("section", { class: "detail", "aria-label": "Episode" }, note("Choose an episode to see its turns and their credit."));
  let [answer, asked, opened] = [null, "", ""];

  const chosen = (fields) => ({ ...Object.fromEntries(FILTERS.map((name) => [name, fields.get(name) ?? ""])), offset: fields.get("offset") ?? "" });
  const address = (fields) => ({ run, tab: "episodes", ...chosen(fields), at: fields.get("at"), place: fields.get("place") });

  const controls = (fields) => {
    const [low, high] = answer.span;
    const families = answer.families.map((name) => [name, name.replaceAll("_", " ")]);
    const everywhere = fields.get("iteration") === "all";
    form.replaceChildren(
      field("Iteration", h("input", { name: "iteration", type: "number", min: low, max: high, value: everywhere ? null : answer.iteration, disabled: everywhere, list: null })),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "everywhere", checked: everywhere }), h("span", {}, "all iterations")),
      field("Family", choice("family", [["", "any"], ...families], fields.get("family"))),
      field("Outcome", choice("success", [["", "any"], ["yes", "success"], ["no", "failure"]], fields.get("success"))),
      field("Trained on", choice("trained", [["", "any"], ["yes", "yes"], ["no", "no"]], fields.get("trained"))),
      field("Sort by", choice("sort", [["", "iteration"], ["advantage", "advantage"], ["reward", "reward"], ["turns", "turns"], ["progress", "progress"]], fields.get("sort"))),
      field("Order", choice("order", [["", "falling"], ["up", "rising"]], fields.get("order"))),
      field("Task", h("input", { name: "task", type: "search", value: fields.get("task") ?? "", placeholder: "part of its id" })));
  };

  const changed = () => {
    const data = new FormData(form);
    const next = Object.fromEntries(FILTERS.map((name) => [name, data.get(name) ?? ""]));
    if (data.get("everywhere")) next.iteration = "all";
    location.hash = hash({ run, tab: "episodes", ...next });
  };
  form.addEventListener("change", changed);
  form.addEventListener("submit", (event) => { event.preventDefault(); changed(); });

  list.addEventListener("keydown", (event) => {
    const links = [...body.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -links.length, End: links.length }[event.key];
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    const to = Math.min(links.length - 1, Math.max(0, at + step));
    links.forEach((link, index) => { link.tabIndex = index === to ? 0 : -1; });
    links[to].focus();
  });

  const showList = async (fields) => {
    const wanted = chosen(fields);
    const key = JSON.stringify(wanted);
    if (key !== asked || !answer) {
      answer = await ask("episodes", { run, ...wanted, limit: PAGE });
      asked = key;
      if (!form.contains(document.activeElement) || !form.children.length) controls(fields);
      say(`${answer.total} episodes`);
    }
    const at = { iteration: Number(fields.get("at") ?? NaN), place: Number(fields.get("place") ?? NaN) };
    const focused = body.contains(document.activeElement);
    body.replaceChildren(...rows(answer, address(fields), at));
    const link = body.querySelector("a[aria-current]") ?? body.querySelector("a");
    if (link) { link.tabIndex = 0; if (focused) link.focus({ preventScroll: true }); }
    const offset = Number(fields.get("offset") || 0);
    const last = Math.min(answer.total, offset + PAGE);
    const page = (to, text, there) => h("a", { href: there ? hash({ ...address(fields), offset: to || "" }) : null, "aria-disabled": there ? null : "true" }, text);
    counter.replaceChildren(page(Math.max(0, offset - PAGE), "Previous", offset > 0),
      h("span", {}, answer.total ? `${offset + 1} to ${last} of ${answer.total}` : "none"), page(offset + PAGE, "Next", last < answer.total));
  };

  const showDetail = async (fields) => {
    const at = { iteration: fields.get("at") ?? String(answer.iteration ?? ""), place: fields.get("place") };
    if (at.place === null || at.iteration === "") return;
    const key = `${at.iteration} ${at.place}`;
    if (key === opened) return;
    opened = key;
    let content;
    try { content = episode(await ask("episode", { run, ...at }), { ...address(fields), at: at.iteration }); } catch (error) { content = [note(error.message, true)]; }
    if (opened !== key) return;
    detail.replaceChildren(...content.filter(Boolean));
    if (detail.getBoundingClientRect().top > innerHeight * 0.8) detail.scrollIntoView();
    say(detail.querySelector("h2")?.textContent ?? "");
  };

  const update = async (fields) => { await showList(fields); await showDetail(fields); };
  await update(first);
  heading("Episodes", answer.recorded ? `${answer.recorded} iterations are recorded. Each turn is tinted by its credit: the verified advantage times the weight that the method gave it.`
    : "", `Episodes of ${run}`);
  if (!answer.recorded) place.replaceChildren(note("No episodes are recorded here: the policy has not been trained yet, or policy.record_megabytes is 0."));
  else place.replaceChildren(form, h("div", { class: "browse" }, h("section", { class: "list", "aria-label": "List of episodes" }, h("div", { class: "scroll" }, list), counter), detail));
  performance.mark("episodes-shown");
  return { changed: (fields) => update(fields).catch((error) => say(error.message)) };
}
