// The page of a run: follows the server's events, and replaces the parts of the page that have changed.

import { ask, duration, usd } from "./ui.js";
import { listLogs } from "./logs.js";
import { onChange, refresh, upTo } from "./parts.js";
import { refreshWhyNot } from "./why_not.js";

const root = document.getElementById("run");
const run = encodeURIComponent(root.dataset.run);
const link = document.querySelector("[data-link]");

function say(text, kind) {
  link.textContent = text;
  link.className = `link ${kind}`;
}

function put(name, text) {
  for (const each of root.querySelectorAll(`[data-live="${name}"]`)) if (each.textContent !== text) each.textContent = text;
}

/** The gauge and the numbers beside it, from the event itself. */
function show(now) {
  for (const name of ["spent_usd", "committed_usd", "reserved_usd", "remaining_usd", "budget_usd"]) {
    put(name, usd(now[name]));
    for (const each of root.querySelectorAll(`[data-live="${name}"]`)) each.dataset.usd = now[name] ?? "";
  }
  put("trials", String(now.trials));
  if (now.best !== null) put("best", now.best);
  put("running", now.running.join(", "));
  put("elapsed_seconds", duration(now.elapsed_seconds) + (now.deadline_seconds ? ` of ${duration(now.deadline_seconds)}` : ""));
  for (const each of root.querySelectorAll('[data-live="state"]')) {
    each.textContent = now.state;
    each.className = `state ${now.state}`;
  }
  for (const each of root.querySelectorAll("[data-action=stop]")) each.hidden = !now.live || now.state !== "running";
  const waits = ["interrupted", "stopped", "searched"].includes(now.state);
  for (const each of root.querySelectorAll("[data-action=resume]")) each.hidden = now.live || !waits;
  gauge();
}

function amount(name) {
  const found = root.querySelector(`[data-live="${name}"]`);
  return found && found.dataset.usd !== "" ? Number(found.dataset.usd) : null;
}

function gauge() {
  const svg = root.querySelector("[data-gauge]");
  if (!svg) return;
  const parts = ["spent", "committed", "reserved"].map((name) => [name, amount(`${name}_usd`) || 0]);
  const total = Math.max(amount("budget_usd") || 0, parts.reduce((sum, [, value]) => sum + value, 0)) || 1;
  let left = 0;
  const drawn = [];
  for (const [name, value] of parts) {
    const shape = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    shape.setAttribute("class", name);
    shape.setAttribute("x", String((100 * left) / total));
    shape.setAttribute("width", String((100 * value) / total));
    shape.setAttribute("height", "6");
    drawn.push(shape);
    left += value;
  }
  svg.replaceChildren(...drawn);
}

function follow() {
  const events = new EventSource(`/api/runs/${run}/events`);
  events.addEventListener("open", () => say("live", "on"));
  events.addEventListener("now", (event) => {
    const now = JSON.parse(event.data);
    say("live", "on");
    show(now);
    root.dataset.seen = String(now.rows);
    upTo(now.rows, now.live && now.state === "running");
  });
  events.addEventListener("trouble", (event) => say(JSON.parse(event.data).error, "off"));
  events.addEventListener("gone", (event) => say(JSON.parse(event.data).error, "off"));
  events.addEventListener("error", () => {
    say("reconnecting", "off");
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 1000);
  });
}

root.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-action]");
  if (!button) return;
  const said = root.querySelector("[data-said]");
  button.disabled = true;
  said.textContent = button.dataset.action === "stop" ? "Stopping: what is running is ended and recorded." : "Resuming.";
  try {
    await ask(`/api/runs/${run}/${button.dataset.action}`, {});
  } catch (error) {
    said.textContent = error.message;
  }
  button.disabled = false;
});

for (const each of root.querySelectorAll("[data-action]")) each.disabled = false;
gauge();
onChange(() => { gauge(); listLogs(); refreshWhyNot(); });
refresh();
listLogs();
follow();
