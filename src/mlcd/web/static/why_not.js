// "Why not ...?": what the run knows of an instance type, or of a configuration of a server.

import { ask } from "./ui.js";

const root = document.getElementById("run");
const run = encodeURIComponent(root.dataset.run);

async function answer(choice) {
  const place = document.getElementById("why-not-answers");
  const of = choice.value;
  let lines = [];
  if (of !== "") {
    try {
      const found = await ask(`/api/runs/${run}/why-not?of=${encodeURIComponent(of)}`);
      lines = found.answers.length ? found.answers : ["Nothing is recorded of it."];
    } catch (error) { lines = [error.message]; }
  }
  if (choice.value !== of) return;
  place.replaceChildren(...lines.map((text) => {
    const line = document.createElement("li");
    line.textContent = text;
    return line;
  }));
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
