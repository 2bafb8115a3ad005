// "Why not ...?": what the run knows of an instance type, or of a configuration of a server.

import { ask } from "./ui.js";

const root = document.getElementById("run");
const run = encodeURIComponent(root.dataset.run);

let turn = 0;
let shown = ""; // what the answer on the page is about

function put(list, lines) {
  list.replaceChildren(...lines.map((text) => {
    const line = document.createElement("li");
    line.textContent = text;
    return line;
  }));
}

/** Only the last question is answered; until then "..." stands there, or the answer to the same question. */
async function answer(choice) {
  const place = document.getElementById("why-not-answers");
  const more = document.getElementById("why-not-more");
  const of = choice.value;
  const mine = ++turn;
  if (of !== shown) {
    shown = of;
    more.hidden = true;
    more.open = false;
    put(place, of === "" ? [] : ["..."]);
  }
  if (of === "") return;
  place.setAttribute("aria-busy", "true");
  let found;
  try {
    found = await ask(`/api/runs/${run}/why-not?of=${encodeURIComponent(of)}`);
  } catch (error) { found = { answers: [error.message], more: [] }; }
  if (mine !== turn) return;
  put(place, found.answers.length ? found.answers : ["Nothing is recorded of it."]);
  put(more.querySelector("ul"), found.more);
  more.hidden = !found.more.length;
  place.removeAttribute("aria-busy");
}

/** What is shown is asked again when the run has changed; a server's configurations come one by one. */
export async function refreshWhyNot() {
  const choice = document.getElementById("why-not");
  if (!choice) return;
  if (choice.dataset.kind === "serve" && document.activeElement !== choice) {
    const { subjects } = await ask(`/api/runs/${run}/why-not`).catch(() => ({ subjects: [] }));
    const known = new Set([...choice.options].map((each) => each.value));
    choice.append(...subjects.filter((each) => !known.has(each)).map((each) => new Option(each, each)));
    choice.closest(".ask").hidden = choice.options.length < 2;
  }
  if (choice.value !== "") answer(choice);
}

root.addEventListener("change", (event) => { if (event.target.id === "why-not") answer(event.target); });
