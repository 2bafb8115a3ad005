// What all pages share: requests to the API, and amounts as text.

export const headers = { "X-Mlcd-Ui": "1", "Content-Type": "application/json" };

/** The JSON answer of the API. Throws an Error with the API's own sentence. */
export async function ask(path, body) {
  const sent = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(path, { credentials: "same-origin", ...sent });
  const value = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(value.error || `the server answered ${answer.status}`);
  return value;
}

/** "$1,234.56" as the server writes it: cents, or more digits below a dollar. */
export function usd(value) {
  if (value === null || value === undefined) return "no limit";
  const size = Math.abs(value);
  const digits = size === 0 || size >= 1 ? 2 : Math.min(6, Math.max(2, 1 - Math.floor(Math.log10(size))));
  const text = size.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: digits });
  return `${value < 0 ? "-" : ""}$${text}`;
}

/** "12.5 ms", "1.50 s": a latency as the server writes it. */
export function latency(seconds) {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : `${Number(seconds.toPrecision(3))} s`;
}

/** "4 h 16 min" as the server writes it: two units at most. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const two = (all, many, of, one) => `${Math.floor(all / of)} ${many}${all % of ? ` ${all % of} ${one}` : ""}`;
  if (seconds < 10) return seconds >= 0.05 || seconds === 0 ? `${seconds.toFixed(1)} s` : `${(seconds * 1000).toFixed(1)} ms`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(whole, "min", 60, "s");
  const minutes = Math.round(seconds / 60);
  return minutes < 48 * 60 ? two(minutes, "h", 60, "min") : two(Math.round(seconds / 3600), "d", 24, "h");
}

/** Cells at the end of a row: [text, class, its column's name on a narrow screen]. */
export function cells(row, texts) {
  for (const [text, css, label] of texts) {
    const cell = row.insertCell();
    cell.textContent = text;
    if (css) cell.className = css;
    if (label) cell.dataset.l = label;
  }
}

const compare = document.querySelector("[data-compare]");
if (compare) {
  const button = compare.querySelector("[data-compare-button]");
  const chosen = () => compare.querySelectorAll("input[name=run]:checked").length;
  const update = () => { button.disabled = chosen() < 2; };
  compare.addEventListener("change", update);
  update();
}
