// What if: the sliders ask the server, which decides with the engine's own functions.

import { ask, duration, usd } from "./ui.js";
import { asMoney, asTime, scatter, timeTicks } from "./charts.js";

const root = document.getElementById("what-if");
const run = encodeURIComponent(root.dataset.run);
const field = (name) => document.getElementById(name);
const out = (name) => root.querySelector(`[data-out="${name}"]`);
const asked = { budget: number(root.dataset.budget), deadline: number(root.dataset.deadline) };
const most = { budget: 1000, deadline: 86400 };
let turn = 0;

function number(text) { return text === "" ? null : Number(text); }

/** Sliders are logarithmic: 0..1000 covers a 30th to the whole of `most`. */
const toValue = (name, place) => most[name] * 30 ** (place / 1000 - 1);
const toPlace = (name, value) => Math.round(1000 * (1 + Math.log(value / most[name]) / Math.log(30)));

const exact = { budget: null, deadline: null };
function value(name) {
  if (field(`no-${name}`).checked) return null;
  return exact[name] ?? toValue(name, Number(field(name).value));
}

function set(name, amount) {
  field(`no-${name}`).checked = amount === null;
  exact[name] = amount;
  if (amount !== null) field(name).value = String(toPlace(name, amount));
}

function labels() {
  const budget = value("budget");
  const deadline = value("deadline");
  const weight = Number(field("weight").value);
  out("budget").textContent = usd(budget);
  out("deadline").textContent = deadline === null ? "no limit" : duration(deadline);
  const words = field("no-weight").checked ? "the goal's own rule" : `${weight}% time, ${100 - weight}% money`;
  out("weight").textContent = words;
  field("weight").setAttribute("aria-valuetext", words);
  field("budget").setAttribute("aria-valuetext", usd(budget));
  field("deadline").setAttribute("aria-valuetext", deadline === null ? "no limit" : duration(deadline));
  for (const name of ["budget", "deadline", "weight"]) field(name).classList.toggle("off", field(`no-${name}`).checked);
}

function query(nextTrial) {
  const given = new URLSearchParams({ next_trial: nextTrial ? "yes" : "no" });
  const budget = value("budget");
  const deadline = value("deadline");
  if (budget !== null) given.set("budget_usd", budget.toFixed(6));
  if (deadline !== null) given.set("deadline_seconds", deadline.toFixed(3));
  if (!field("no-weight").checked) given.set("time_weight", (Number(field("weight").value) / 100).toFixed(2));
  return `/api/runs/${run}/what-if?${given}`;
}

function cells(row, texts) {
  for (const [text, css, label] of texts) {
    const cell = row.insertCell();
    cell.textContent = text;
    if (css) cell.className = css;
    if (label) cell.dataset.l = label;
  }
}

/** A row of the budgets; the one that holds now is marked. */
function stepRow(steps, each, found) {
  const row = steps.insertRow();
  const next = found.steps[found.steps.indexOf(each) + 1];
  const budget = found.budget_usd ?? Infinity;
  if (each.budget_usd <= budget && !(next && next.budget_usd <= budget)) row.className = "chosen";
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
  const options = document.createElement("tbody");
  for (const each of found.options) {
    const row = options.insertRow();
    if (each.text === found.choice) row.className = "chosen";
    const note = [each.text === found.choice ? "chosen" : "", each.on_front ? "on the front" : "", each.text === found.knee ? "knee" : ""];
    cells(row, [[each.text, "c"], [duration(each.seconds), "n", "time"], [usd(each.usd), "n", "cost"], [`${duration(each.worst_seconds)}, ${usd(each.worst_usd)}`, "n", "at most"], [each.fits ? "fits" : misfit(each, limits), "why"], [note.filter(Boolean).join(", "), "why"]]);
  }
  out("options").replaceChildren(...options.rows);
  const steps = document.createElement("tbody");
  for (const each of found.steps) cells(stepRow(steps, each, found), [[usd(each.budget_usd), "", "from"], [each.text, "c"], [duration(each.seconds), "n", "time"], [usd(each.usd), "n", "cost"]]);
  out("steps").replaceChildren(...steps.rows);
  const types = new Map();
  for (const each of found.options) {
    const name = each.config.instance;
    const label = `${each.text}: ${duration(each.seconds)}, ${usd(each.usd)}${each.fits ? "" : "; does not fit"}`;
    if (!types.has(name)) types.set(name, []);
    types.get(name).push({ x: each.seconds, y: each.usd, label, name: each.text, faded: !each.fits, ring: each.text === found.choice, front: each.on_front });
  }
  const groups = [...types].map(([name, points]) => ({ name, points }));
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
  labels();
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
  set("budget", asked.budget);
  set("deadline", asked.deadline);
  field("weight").value = "50";
  field("no-weight").checked = true;
  decide();
}

function begin() {
  most.budget = 1.5 * Math.max(asked.budget ?? 0, Number(root.dataset.mostUsd), 1);
  most.deadline = 1.5 * Math.max(asked.deadline ?? 0, Number(root.dataset.mostSeconds), 60);
  for (const name of ["budget", "deadline"]) {
    field(name).addEventListener("input", () => { exact[name] = null; field(`no-${name}`).checked = false; decide(); });
    field(`no-${name}`).addEventListener("change", () => { if (!field(`no-${name}`).checked && exact[name] === null) exact[name] = null; decide(); });
  }
  field("weight").addEventListener("input", () => { field("no-weight").checked = false; decide(); });
  field("no-weight").addEventListener("change", decide);
  for (const button of root.querySelectorAll("[data-more]")) button.addEventListener("click", () => {
    set("budget", Math.max(0.01, (value("budget") ?? Number(root.dataset.spentUsd)) + Number(button.dataset.more)));
    decide();
  });
  root.querySelector("form").addEventListener("reset", (event) => { event.preventDefault(); reset(); });
  reset();
}

begin();
