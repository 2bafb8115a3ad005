// The list of runs stays up to date by itself: sooner while one of them is running. What is selected stays selected.

const BUSY_MS = 2000;
const QUIET_MS = 10000;
const list = () => document.querySelector("[data-runs]");

async function refresh() {
  const old = list();
  if (!document.hidden && !old.contains(document.activeElement)) {
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      const made = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-runs]");
      if (answer.ok && made && made.className !== old.className) { location.reload(); return; } // the first run, or none any more
      if (answer.ok && made && made.innerHTML !== old.dataset.seen && !old.contains(document.activeElement)) {
        const chosen = new Set([...old.querySelectorAll("input:checked")].map((each) => each.value));
        old.dataset.seen = made.innerHTML;
        for (const each of made.querySelectorAll("input[name=run]")) each.checked = chosen.has(each.value);
        old.replaceChildren(...made.childNodes);
        old.dispatchEvent(new Event("change", { bubbles: true }));
      }
    } catch { /* the server is away: asked again */ }
  }
  setTimeout(refresh, list().querySelector(".state.running") ? BUSY_MS : QUIET_MS);
}

setTimeout(refresh, list().querySelector(".state.running") ? BUSY_MS : QUIET_MS);
