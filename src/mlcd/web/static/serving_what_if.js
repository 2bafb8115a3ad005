// What if, of a server: another rate, other latency limits, decided anew by the server from the load tests.

import { asMoney, scatter } from "./charts.js";
import { Slider } from "./sliders.js";
import { ask, cells, latency, usd } from "./ui.js";

const root = document.getElementById("serving-what-if");
const run = encodeURIComponent(root.dataset.run);
const out = (name) => root.querySelector(`[data-out="${name}"]`);
const perSecond = (rate) => `${Number(rate.toPrecision(3)).toLocaleString("en-US")}/s`;
const rate = new Slider("rate", { from: root.dataset.rate, most: root.dataset.mostRate, least: 1e-3, text: perSecond, none: "as many as it can" });
const limits = [...root.querySelectorAll("input[data-limit]")].map((each) => ({
  name: each.dataset.limit,
  slider: new Slider(each.id, { from: each.dataset.seconds, most: each.dataset.most, least: 1e-4, text: latency }),
}));
let turn = 0;

function query() {
  const given = new URLSearchParams();
  if (rate.value !== null) given.set("rate", rate.value.toFixed(6));
  const held = limits.filter(({ slider }) => slider.value !== null);
  if (held.length) given.set("limits", held.map(({ name, slider }) => `${name}:${slider.value.toFixed(9)}`).join(","));
  return `/api/runs/${run}/serving-what-if?${given}`;
}

function show(found) {
  out("choice").textContent = found.choice ?? "nothing measured does";
  out("text").textContent = found.text;
  const chosen = found.options.find((each) => each.text === found.choice);
  out("rate").textContent = chosen ? perSecond(chosen.requests_per_second) : "-";
  out("price").textContent = chosen ? usd(chosen.usd_per_million) : "-";
  const options = document.createElement("tbody");
  for (const each of found.options) {
    const row = options.insertRow();
    if (each.text === found.choice) row.className = "chosen";
    const seen = each.seconds.map((seconds) => (seconds === null ? "-" : latency(seconds))).join(", ");
    cells(row, [[each.text, "c"], [perSecond(each.requests_per_second), "n", "rate"], [seen, "n", found.limits.join(", ")], [usd(each.usd_per_hour), "n", "an hour"], [usd(each.usd_per_million), "n", "a million"], [each.text === found.choice ? "chosen" : each.misses || "does too", "why"]]);
  }
  out("options").replaceChildren(...options.rows);
  const point = (each) => ({ x: each.requests_per_second, y: each.usd_per_hour, label: `${each.text}: ${perSecond(each.requests_per_second)}, ${usd(each.usd_per_hour)} an hour${each.misses ? `; ${each.misses}` : ""}`, name: each.text, faded: each.misses !== "", ring: each.text === found.choice });
  const groups = [["within the limits", found.options.filter((each) => !each.misses)], ["not within them", found.options.filter((each) => each.misses)]];
  scatter(document.getElementById("rates"), groups.map(([name, points]) => ({ name, points: points.map(point) })), { limits: { x: found.rate, y: null }, text: { x: perSecond, y: asMoney, xName: "requests a second", yName: "$ an hour" } });
  root.dataset.settled = String(turn);
}

async function decide() {
  const mine = ++turn;
  try {
    const found = await ask(query());
    if (mine === turn) show(found);
  } catch (error) {
    if (mine === turn) out("text").textContent = error.message;
  }
}

function reset() {
  for (const each of [rate, ...limits.map(({ slider }) => slider)]) each.reset();
  decide();
}

for (const each of [rate, ...limits.map(({ slider }) => slider)]) each.onChange(decide);
root.querySelector("form").addEventListener("reset", (event) => { event.preventDefault(); reset(); });
reset();
