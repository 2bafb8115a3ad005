// The parts of a run's page: what the reader sees is drawn first and kept up to date, the rest when nothing else is to do.

const root = document.getElementById("run");
const run = encodeURIComponent(root.dataset.run);
const NEAR = 400;
const WIDTHS = [["narrow", 480], ["half", 720], ["wide", 1000], ["full", Infinity]];
const QUIET_MS = 3000;
let rows = Number(root.dataset.rows);
let wanted = rows;
let settled = true;
let told = 0;
let busy = false;
let timer = null;
let changed = () => {};

const every = () => [...root.querySelectorAll("[data-part]")];
const lazy = () => [...root.querySelectorAll("[data-group] > [data-part]")];

const parsed = (text) => new DOMParser().parseFromString(text, "text/html");

/** Whether the reader is in this part: it is replaced later. */
const holdsFocus = (part) => part.contains(document.activeElement) && document.activeElement !== part;

function width(part) {
  const room = part.clientWidth - 32;
  return WIDTHS.find(([, most]) => room < most)[0];
}

function isNear(part) {
  const { top, bottom } = part.getBoundingClientRect();
  return bottom > -NEAR && top < innerHeight + NEAR;
}

const isNew = (part) => part.dataset.later !== undefined;
const isOld = (part) => isNew(part) || Number(part.dataset.of) < wanted || (part.dataset.width !== width(part) && part.querySelector("figure") !== null);

/** Put a new content in place; an open table stays open. */
function replace(old, part) {
  const opened = old.querySelector("details[open]");
  old.replaceChildren(...part.cloneNode(true).childNodes);
  const table = old.querySelector("details");
  if (opened && table) table.open = true;
}

/** Put the parts of an answer in place; `sizes` has the width that each was asked for. */
function put(made, of, sizes) {
  const known = new Map(every().map((each) => [each.dataset.part, each]));
  for (const part of made.querySelectorAll("[data-part]")) {
    const old = known.get(part.dataset.part);
    if (isNew(part)) continue;
    const place = old || part;
    if (old && old.innerHTML !== part.innerHTML) {
      if (holdsFocus(old)) continue;
      replace(old, part);
    }
    delete place.dataset.later;
    place.classList.remove("later");
    place.dataset.of = String(of);
    place.dataset.width = sizes.get(part.dataset.part) ?? "";
  }
  for (const group of made.querySelectorAll("[data-group]")) {
    const here = root.querySelector("[data-group]");
    const parts = [...group.children].map((each) => known.get(each.dataset.part) || each);
    if (parts.length !== here.children.length || parts.some((each, at) => each !== here.children[at])) {
      here.replaceChildren(...parts);
      parts.forEach((each) => seen.observe(each));
    }
  }
}

/** Bring up to date what the reader sees; then, one by one, the rest. One request at a time. */
export async function refresh() {
  clearTimeout(timer);
  if (busy) return;
  const old = lazy().filter(isOld).filter((each) => !holdsFocus(each));
  const near = old.filter(isNear);
  const rest = old.filter((each) => isNew(each) || settled || performance.now() - told > QUIET_MS);
  const asked = near.length || rows < wanted ? near : rest.slice(0, 1);
  if (!asked.length && rows >= wanted) {
    if (old.length) timer = setTimeout(refresh, QUIET_MS);
    else root.dataset.drawn = String(rows);
    return;
  }
  busy = true;
  const goal = wanted;
  const sizes = new Map(asked.map((each) => [each.dataset.part, width(each)]));
  try {
    const query = new URLSearchParams({ parts: [...sizes].map((each) => each.join(":")).join(",") });
    const answer = await fetch(`/runs/${run}/live?${query}`, { credentials: "same-origin" });
    if (answer.ok) {
      put(parsed(await answer.text()), goal, sizes);
      rows = Math.max(rows, goal);
      changed();
    }
    timer = setTimeout(refresh, answer.ok ? 50 : 2000);
  } catch {
    timer = setTimeout(refresh, 2000); // the server is away: the events say so
  }
  busy = false;
}

/** So much is recorded of the run now; `live`: more may follow. */
export function upTo(count, live) {
  if (count < wanted) { rows = 0; lazy().forEach((each) => { each.dataset.of = "0"; }); }
  if (count !== wanted) { delete root.dataset.drawn; told = performance.now(); }
  wanted = count;
  settled = !live;
  refresh();
}

/** `then` is called whenever the page shows something new. */
export function onChange(then) { changed = then; }

const seen = new IntersectionObserver(() => refresh(), { rootMargin: `${NEAR}px` });
lazy().forEach((each) => seen.observe(each));
addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(refresh, 200); });

// A picture's table is fetched when it is opened. The event does not bubble.
root.addEventListener("toggle", async (event) => {
  const { target } = event;
  const place = target.querySelector?.("[data-rows]");
  if (!place || !target.open) return;
  const answer = await fetch(`/runs/${run}/tables/${target.dataset.table}`, { credentials: "same-origin" });
  if (answer.ok) place.replaceChildren(...parsed(await answer.text()).body.childNodes);
}, true);
