// New run: the job file is checked as it is typed, then the dry run says what the search may take.

import { ask, duration, usd } from "./ui.js";

const form = document.getElementById("new");
const job = document.getElementById("job");
const said = document.getElementById("said");
const expected = document.getElementById("expected");
const start = document.getElementById("start");
const failed = document.getElementById("failed");
const maySpend = form.dataset.allowSpend === "yes";
let turn = 0;
let line = 0;

function numbers() {
  const count = job.value.split("\n").length;
  const place = document.getElementById("numbers");
  place.replaceChildren(...Array.from({ length: count }, (_, at) => {
    const each = document.createElement("span");
    each.textContent = `${at + 1}\n`;
    if (at + 1 === line) each.className = "bad";
    return each;
  }));
  place.scrollTop = job.scrollTop;
}

function rows(pairs) {
  const list = document.createElement("dl");
  list.className = "facts";
  for (const [name, text] of pairs) {
    const term = document.createElement("dt");
    const value = document.createElement("dd");
    term.textContent = name;
    value.textContent = text;
    list.append(term, value);
  }
  return list;
}

const span = ([low, high], text) => (low === high ? text(low) : `${text(low)} to ${text(high)}`);

function showDryRun(found) {
  const pairs = [];
  if (found.configurations !== undefined) pairs.push(["to choose from", `${found.configurations} configurations; a trial of ${found.configurations_within_limits} of them fits the limits`]);
  if (found.trial_planned_usd) pairs.push(["a trial, planned", span(found.trial_planned_usd, usd)]);
  if (found.trial_worst_usd) pairs.push(["a trial, at worst", span(found.trial_worst_usd, usd)]);
  for (const each of found.expected || []) {
    pairs.push([`if the best takes ${duration(each.run_seconds)}`, each.finished
      ? `the search takes ${span(each.search_seconds, duration)} and costs ${span(each.search_usd, usd)}; with the training ${span(each.total_usd, usd)}`
      : "the training would not fit the limits"]);
  }
  for (const each of found.first_trials || []) pairs.push(["first trial", `${Object.values(each.config).reverse().join(" x ")}, at most ${usd(each.authorised_usd)}: ${each.reason}`]);
  if (found.expected_seconds !== undefined) pairs.push(["load tests take", duration(found.expected_seconds)]);
  if (found.first_fleet) pairs.push(["first epoch", `${found.first_fleet.functions} functions of ${found.first_fleet.memory_mb} MB`]);
  for (const note of found.notes || []) pairs.push(["note", note]);
  expected.replaceChildren(rows(pairs));
}

// Why no run of this job would start anything; "" of one that would: the words of the dry run, which ends with code 3.
function nothingFits(found) {
  if (found.configurations_within_limits !== 0 && found.first_fleet !== null) return "";
  return `Nothing fits: ${[found.stopped, ...(found.ways_out || [])].filter(Boolean).join("; ")}.`;
}

function say(text, how, at = 0) {
  line = at;
  numbers();
  said.textContent = text;
  said.className = `flat ${how}`;
  job.setAttribute("aria-invalid", how === "bad" ? "true" : "false");
}

function later(text = "The dry run says so once the job file is valid.") {
  const place = document.createElement("p");
  place.className = "flat dim";
  place.textContent = text;
  expected.replaceChildren(place);
}

let waiting = null;
async function check() {
  const mine = ++turn;
  clearTimeout(waiting);
  failed.textContent = "";
  start.disabled = true;
  try {
    const found = await ask("/api/check", { job: job.value });
    if (mine !== turn) return;
    if (found.error) {
      say(found.error, "bad", found.line ?? 0);
      later();
      return;
    }
    const may = found.free || maySpend;
    const told = `A job for mlcd ${found.kind}: ${found.name} on ${found.infra}.` + (may ? "" : " It charges real money: start it from a terminal, or start this page with --allow-spend.");
    say(`${told} The dry run is under way ...`, "dim");
    later("The dry run is under way ...");
    waiting = setTimeout(async () => {
      try {
        const dry = await ask("/api/dry-run", { job: job.value });
        if (mine !== turn) return;
        const nothing = nothingFits(dry);
        say(nothing || told, nothing ? "amber" : "good");
        showDryRun(dry);
        start.disabled = !may || nothing !== "";
      } catch (error) {
        if (mine !== turn) return;
        say(error.message, "bad", Number(/^job\.yaml:(\d+):/.exec(error.message)?.[1] ?? 0));
        later();
      }
    }, 700);
  } catch (error) {
    if (mine === turn) say(error.message, "bad");
  }
}

let typing = null;
job.addEventListener("input", () => { numbers(); start.disabled = true; clearTimeout(typing); typing = setTimeout(check, 250); });
job.addEventListener("scroll", numbers);
job.addEventListener("keydown", (event) => {
  if (event.key === "Tab" && !event.shiftKey && job.selectionStart !== job.selectionEnd) {
    event.preventDefault();
    job.setRangeText("  ", job.selectionStart, job.selectionEnd, "end");
  }
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  start.disabled = true;
  start.textContent = "Starting ...";
  try {
    const begun = await ask("/api/runs", { job: job.value, seed: Number(document.getElementById("seed").value) || 0 });
    location.assign(`/runs/${encodeURIComponent(begun.run_id)}`);
  } catch (error) {
    failed.textContent = error.message;
    start.textContent = "Start the run";
    start.disabled = false;
  }
});

const choice = document.getElementById("template");
ask("/api/templates").then(({ templates }) => {
  const texts = new Map(templates.map((each) => [each.name, each.text]));
  choice.addEventListener("change", () => { job.value = texts.get(choice.value) ?? ""; check(); });
  if (!job.value) job.value = texts.get(choice.value) ?? "";
  check();
}).catch((error) => { said.textContent = error.message; });
