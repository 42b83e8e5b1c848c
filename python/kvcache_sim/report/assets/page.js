"use strict";
// Charts: compiled Vega specifications wait in one JSON element.
const specifications = JSON.parse(document.getElementById("specifications").textContent);
function draw(element) {
  const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false };
  return vegaEmbed(element, specifications[element.dataset.chart], options);
}
const charts = [...document.querySelectorAll(".chart")];
window.chartsDrawn = Promise.all(charts.map(draw)).then((views) => views.length);

// Tables: a click on a heading sorts by it, the button copies the table as CSV.
function key(cell) {
  const text = cell.dataset.value ?? cell.textContent;
  const number = Number(text);
  return text !== "" && !Number.isNaN(number) ? number : text;
}
for (const heading of document.querySelectorAll("th")) {
  heading.addEventListener("click", () => {
    const table = heading.closest("table"), column = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const x = key(a.cells[column]), y = key(b.cells[column]);
      const order = typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1;
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  });
}
function asCsv(table) {
  const field = (cell) => {
    const text = cell.dataset.value ?? cell.textContent;
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [...table.rows].map((row) => [...row.cells].map(field).join(",")).join("\n") + "\n";
}
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const text = asCsv(document.getElementById(button.dataset.table));
    button.dataset.copied = text;
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
    catch { button.textContent = "select and copy by hand: no clipboard here"; }
  });
}
