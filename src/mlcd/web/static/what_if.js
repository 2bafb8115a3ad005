// What if: the sliders ask the server, which decides with the engine's own functions.

import { ask, cells, duration, usd } from "./ui.js";
import { asMoney, asTime, scatter, timeTicks } from "./charts.js";
import { Slider } from "./sliders.js";

const root = document.getElementById("what-if");
const run = encodeURIComponent(root.dataset.run);
const field = (name) => document.getElementById(name);
const out = (name) => root.querySelector(`[data-out="${name}"]`);
const budget = new Slider("budget", { from: root.dataset.budget, most: root.dataset.mostUsd, least: 1, text: usd });
const deadline = new Slider("deadline", { from: root.dataset.deadline, most: root.dataset.mostSeconds, least: 60, text: duration });
const known = JSON.parse(root.dataset.types); // the types of the job, whose place is their look
const PALETTE = 6;
let turn = 0;

function showWeight() {
  const weight = Number(field("weight").value);
  const words = field("no-weight").checked ? "the goal's own rule" : `${weight}% time, ${100 - weight}% money`;
  out("weight").textContent = words;
  field("weight").setAttribute("aria-valuetext", words);
  field("weight").classList.toggle("off", field("no-weight").checked);
}

function query(nextTrial) {
  const given = new URLSearchParams({ next_trial: nextTrial ? "yes" : "no" });
  if (budget.value !== null) given.set("budget_usd", budget.value.toFixed(6));
  if (deadline.value !== null) given.set("deadline_seconds", deadline.value.toFixed(3));
  if (!field("no-weight").checked) given.set("time_weight", (Number(field("weight").value) / 100).toFixed(2));
  return `/api/runs/${run}/what-if?${given}`;
}

/** A row of the budgets; the one that holds now is marked. */
function stepRow(steps, each, found) {
  const row = steps.insertRow();
  const next = found.steps[found.steps.indexOf(each) + 1];
  const limit = found.budget_usd ?? Infinity;
  if (each.budget_usd <= limit && !(next && next.budget_usd <= limit)) row.className = "chosen";
  return row;
}

/** Which limit it could break, at its upper bound. */
function misfit(option, limits) {
  const over = [];
  if (limits.y !== null && option.worst_usd > limits.y) over.push(`${usd(option.worst_usd - limits.y)} over the budget`);
  if (limits.x !== null && option.worst_seconds > limits.x) over.push(`${duration(option.worst_seconds - limits.x)} late`);
  return over.length ? `could be ${over.join(" and ")}` : "does not fit";
}

function show(found) {
  const left = (limit, spent) => (limit === null ? null : limit - spent);
  const limits = { x: left(found.deadline_seconds, found.spent_seconds), y: left(found.budget_usd, found.spent_usd) };
  root.dataset.choice = found.choice ?? "";
  out("choice").textContent = found.choice ?? "nothing fits";
  out("text").textContent = found.text;
  out("total_seconds").textContent = found.total_seconds === null ? "-" : duration(found.total_seconds);
  out("total_usd").textContent = found.total_usd === null ? "-" : usd(found.total_usd);
  const split = (text, spent, expected) => (found.choice === null ? "" : `search ${text(spent)}, training ${text(expected)} expected`);
  out("split_seconds").textContent = split(duration, found.spent_seconds, found.choice_seconds);
  out("split_usd").textContent = split(usd, found.spent_usd, found.choice_usd);
  const options = document.createElement("tbody");
  for (const each of found.options) {
    const row = options.insertRow();
    if (each.text === found.choice) row.className = "chosen";
    const note = [each.text === found.choice ? "chosen" : "", each.on_front ? "on the front" : "", each.text === found.knee ? "knee" : ""];
    cells(row, [[each.text, "c"], [duration(each.seconds), "n", "time"], [usd(each.usd), "n", "cost"], [`${duration(each.worst_seconds)}, ${usd(each.worst_usd)}`, "n", "at most"], [each.fits ? "fits" : misfit(each, limits), "why"], [note.filter(Boolean).join(", "), "why"]]);
  }
  out("options").replaceChildren(...options.rows);
  const steps = document.createElement("tbody");
  for (const each of found.steps) cells(stepRow(steps, each, found), [[usd(each.budget_usd), "", "from"], [each.text, "c"], [duration(each.seconds), "n", "time"], [usd(each.usd), "n", "cost"], [usd(each.worst_usd), "n", "at most"]]);
  out("steps").replaceChildren(...steps.rows);
  document.getElementById("more-budget").hidden = !found.steps.length;
  for (const button of root.querySelectorAll("[data-more]")) button.disabled = budget.value === null;
  const types = new Map();
  for (const each of found.options) {
    const name = each.config.instance;
    const label = `${each.text}: ${duration(each.seconds)}, ${usd(each.usd)}${each.fits ? "" : "; does not fit"}`;
    if (!types.has(name)) types.set(name, []);
    types.get(name).push({ x: each.seconds, y: each.usd, label, name: each.text, faded: !each.fits, ring: each.text === found.choice, front: each.on_front });
  }
  const order = known.length <= PALETTE ? known : known.filter((name) => types.has(name));
  const groups = [...types].map(([name, points]) => ({ name, points, look: order.indexOf(name) })).sort((a, b) => a.look - b.look);
  scatter(document.getElementById("front"), groups, { limits, text: { x: asTime, xTicks: timeTicks, y: asMoney, xName: "training time", yName: "training cost" } });
}

function showNext(found) {
  const next = found.next_trial;
  out("next").textContent = next
    ? `Next: ${next.text}, at most ${usd(next.usd)} and ${duration(next.seconds)}. ${next.reason}.`
    : `None: ${found.stopped}.`;
  root.dataset.settled = String(turn);
}

let waiting = null;
async function decide() {
  showWeight();
  const mine = ++turn;
  clearTimeout(waiting);
  try {
    const found = await ask(query(false));
    if (mine !== turn) return;
    show(found);
    out("next").textContent = "asking the strategy ...";
    waiting = setTimeout(async () => {
      try {
        const whole = await ask(query(true));
        if (mine === turn) showNext(whole);
      } catch (error) { if (mine === turn) out("next").textContent = error.message; }
    }, 250);
  } catch (error) {
    if (mine === turn) out("text").textContent = error.message;
  }
}

function reset() {
  budget.reset();
  deadline.reset();
  field("weight").value = "50";
  field("no-weight").checked = true;
  decide();
}

for (const each of [budget, deadline]) each.onChange(decide);
field("weight").addEventListener("input", () => { field("no-weight").checked = false; decide(); });
field("no-weight").addEventListener("change", decide);
for (const button of root.querySelectorAll("[data-more]")) button.addEventListener("click", () => {
  if (budget.value === null) return; // no limit: there is nothing to add to, and no number to take from
  budget.set(Math.max(0.01, budget.value + Number(button.dataset.more)));
  decide();
});
root.querySelector("form").addEventListener("reset", (event) => { event.preventDefault(); reset(); });
reset();
