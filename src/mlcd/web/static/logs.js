// Logs of a run's nodes: the newest is shown, or the one that is chosen, and followed while the run goes on.

import { ask } from "./ui.js";

const MOST_LINES = 5000;
const root = document.getElementById("run");
const run = encodeURIComponent(root.dataset.run);
const place = document.getElementById("logs");
const choice = document.getElementById("log");
const text = document.getElementById("log-text");
let offset = 0;
let current = "";
let timer = null;
/** Whether the reader has chosen a log; until then, it is the newest, or the newest that is not empty once the run has ended. */
let chosen = false;

async function read() {
  clearTimeout(timer);
  if (choice.value === "") return;
  if (current !== choice.value) { current = choice.value; offset = 0; text.replaceChildren(); }
  let live = true;
  try {
    const found = await ask(`/api/runs/${run}/logs/${current}?offset=${offset}`);
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 8;
    offset = found.next_offset;
    live = found.live;
    if (found.lines.length) {
      text.append(document.createTextNode(found.lines.join("\n") + "\n"));
      while (text.childNodes.length > 1 && text.textContent.length > 200 * MOST_LINES) text.firstChild.remove();
      if (atEnd) text.scrollTop = text.scrollHeight;
      timer = setTimeout(read, 50);
      return;
    }
    if (!live && !chosen && offset === 0 && choice.selectedIndex > 0) {
      choice.selectedIndex -= 1;
      timer = setTimeout(read, 0);
      return;
    }
  } catch { /* the server is away: asked again */ }
  timer = setTimeout(read, live ? 1000 : 5000);
}

/** The list of logs; called when the run has changed. */
export async function listLogs() {
  try {
    const { logs } = await ask(`/api/runs/${run}/logs`);
    place.hidden = logs.length === 0;
    if (choice.options.length === logs.length) return;
    const wanted = chosen ? choice.value : String(logs.at(-1).number);
    choice.replaceChildren(...logs.map((each) => new Option(`${each.title}, node ${each.node}`, String(each.number))));
    choice.value = wanted;
    read();
  } catch { /* the events say what is wrong */ }
}

choice.addEventListener("change", () => { chosen = true; read(); });
