// Catalog: sorts by a column, and finds words.

const table = document.getElementById("types");
const body = table.tBodies[0];
const rows = [...body.rows].map((row) => ({ row, texts: [...row.cells].map((cell) => cell.textContent), words: row.textContent.toLowerCase() }));

function key(text) {
  const value = Number(text);
  return text === "" ? null : Number.isNaN(value) ? text : value;
}

for (const button of table.querySelectorAll("[data-column]")) {
  button.addEventListener("click", () => {
    const column = Number(button.dataset.column);
    const head = button.closest("th");
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const each of table.querySelectorAll("th")) each.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.sort((a, b) => {
      const [x, y] = [key(a.texts[column]), key(b.texts[column])];
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return down ? -order : order;
    });
    body.replaceChildren(...rows.map((each) => each.row));
  });
}

document.getElementById("find").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const each of rows) each.row.hidden = !words.every((word) => each.words.includes(word));
});
