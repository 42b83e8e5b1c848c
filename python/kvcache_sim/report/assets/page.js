"use strict";
// Charts: compiled Vega specifications wait in one JSON element. Each is drawn as wide as its place: axes, legends
// and titles take what they take, so the plot's width is what remains, found in a few rounds.
const specifications = JSON.parse(document.getElementById("specifications").textContent);
const ROUNDS = 4;
async function fit(element, view, columns) {
  const room = Math.floor(element.clientWidth);
  if (room < 1) return;
  const state = view.getState({ signals: (name) => name === "child_width" || name === "width", data: () => false }).signals;
  const name = "child_width" in state ? "child_width" : "width";
  view.signal("page_width", room);
  for (let round = 0; round < ROUNDS; round++) {
    await view.resize().runAsync();
    const drawn = element.querySelector("svg").getAttribute("width");
    const change = Math.floor((room - drawn) / columns);
    if (change === 0) return;
    view.signal(name, Math.max(40, view.signal(name) + change));
  }
  await view.resize().runAsync();
}
async function draw(element) {
  const { vega: specification, columns } = specifications[element.dataset.chart];
  const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false };
  const { view } = await vegaEmbed(element, specification, options);
  await fit(element, view, columns);
  return { element, view, columns };
}
const charts = [...document.querySelectorAll(".chart")];
const views = Promise.all(charts.map(draw));
window.chartsDrawn = views.then((drawn) => drawn.length);
let waiting;
async function fitAll() {
  for (const { element, view, columns } of await views) await fit(element, view, columns);
}
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { window.chartsFitted = fitAll(); }, 100);
});

// Tables: a heading's button sorts by its column, the button below copies the table as CSV.
function key(cell) {
  const text = cell.dataset.value ?? cell.textContent;
  const number = Number(text);
  return text !== "" && !Number.isNaN(number) ? number : text;
}
for (const heading of document.querySelectorAll("th")) {
  heading.querySelector("button").addEventListener("click", () => {
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
