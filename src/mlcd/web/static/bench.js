// Bench: each run of a result, what its search cost against its regret.

import { ask, usd } from "./ui.js";
import { asMoney, scatter } from "./charts.js";

const { results } = await ask("/api/bench");
for (const place of document.querySelectorAll("[data-bench]")) {
  const result = results[Number(place.dataset.bench)];
  const groups = new Map();
  for (const each of result.points) {
    if (!groups.has(each.strategy)) groups.set(each.strategy, []);
    groups.get(each.strategy).push({ x: Math.max(each.search_usd, 1e-6), y: each.ratio, label: `${each.strategy} on ${each.workload}: search ${usd(each.search_usd)}, ratio ${each.ratio.toFixed(2)}` });
  }
  scatter(place, [...groups].map(([name, points]) => ({ name, points })), { text: { x: asMoney, y: (value) => value.toFixed(value < 10 ? 1 : 0), xName: "cost of the search", yName: "total / best possible" } });
}
