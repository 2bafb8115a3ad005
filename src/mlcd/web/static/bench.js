// Bench: each run of a result, what its search cost against its regret.

import { ask, usd } from "./ui.js";
import { asMoney, scatter } from "./charts.js";

/** Every point as a row, made when the table is opened. */
function fill(body, points) {
  if (body.rows.length) return;
  for (const each of points) {
    const row = body.insertRow();
    for (const text of [each.strategy, each.workload, usd(each.search_usd), each.ratio.toFixed(2)]) row.insertCell().textContent = text;
    for (const at of [2, 3]) row.cells[at].className = "n";
  }
}

const { results } = await ask("/api/bench");
for (const place of document.querySelectorAll("[data-bench]")) {
  const result = results[Number(place.dataset.bench)];
  const groups = new Map();
  for (const each of result.points) {
    if (!groups.has(each.strategy)) groups.set(each.strategy, []);
    groups.get(each.strategy).push({ x: Math.max(each.search_usd, 1e-6), y: each.ratio, label: `${each.strategy} on ${each.workload}: search ${usd(each.search_usd)}, ratio ${each.ratio.toFixed(2)}` });
  }
  scatter(place, [...groups].map(([name, points]) => ({ name, points })), { text: { x: asMoney, y: (value) => value.toFixed(value < 10 ? 1 : 0), xName: "cost of the search", yName: "total / best possible" } });
  const table = place.parentElement.querySelector("details.data");
  table.addEventListener("toggle", () => fill(table.querySelector("tbody"), result.points));
}
