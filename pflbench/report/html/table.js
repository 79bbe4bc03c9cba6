// One table: its controls, and its places as the view shows them. Nothing here computes; it chooses, sorts and hides.
"use strict";

function select(label, value, options, pick) {
  const made = element("select", { onchange: (event) => pick(event.target.value) });
  for (const [key, text] of options) made.append(element("option", { value: key }, text));
  made.value = value;
  return element("label", {}, label + " ", made);
}

// The line of tools: view, versus, and more. One thing is shown at a time, so a choice ends the others.
function controls(sheet) {
  const rivals = Object.entries(sheet.readings[view.read].rivals).map(([row, [title]]) => [row, title]);
  const views = [...SHOWS.map((show) => [`show:${show}`, SHOWN[show]]), ...Object.entries(CLIENTS).slice(1).map(([key, text]) => [`clients:${key}`, `${text} of the clients`])];
  const now = view.clients !== "mean" ? `clients:${view.clients}` : `show:${view.show}`;
  return [
    select("View", now, views, (picked) => {
      const [key, value] = picked.split(":");
      change({ ...USUAL, read: view.read, [key]: value });
    }),
    rivals.length > 0 && select("Versus", view.versus, [["", "nobody"], ...rivals], (versus) => change({ ...USUAL, read: view.read, versus })),
    more(sheet),
  ].filter(Boolean);
}

// What is chosen more rarely: the rounds that are read, and boxes that hide rows and columns.
function more(sheet) {
  const readings = Object.keys(sheet.readings);
  const box = (name, key, text) => {
    const input = element("input", { type: "checkbox", onchange: (event) => {
      const left = view[name].filter((one) => one !== key);
      change({ [name]: event.target.checked ? left : [...left, key] }, true);
    } });
    input.checked = !view[name].includes(key);
    return element("label", { "data-hides": name + ":" + key }, input, " " + text);
  };
  const list = (title, name, some) => element("fieldset", {}, element("legend", {}, title),
    ...some.map(([key, text]) => box(name, key, text)));
  const empty = element("input", { type: "checkbox", onchange: (event) => {
    change({ empty: event.target.checked ? "shown" : "hidden" });
  } });
  empty.checked = view.empty === "shown";
  const filter = element("input", { type: "search", size: "14", oninput: (event) => change({ filter: event.target.value }, true) });
  filter.value = view.filter;
  const rounds = readings.length > 1 && select("Rounds", view.read, readings.map((one) => [one, READINGS[one]]),
    (read) => change({ read, versus: sheet.readings[read].rivals[view.versus] ? view.versus : "" }));
  return element("details", { class: "hide" }, element("summary", {}, "More"), element("div", {},
    element("p", {}, ...[rounds, rounds && " ", element("label", {}, "Rows with ", filter)].filter(Boolean)),
    element("p", {}, element("label", {}, empty, " also those without results"), " ",
      element("button", { type: "button", onclick: () => change({ rows: [], columns: [] }) }, "Hide nothing")),
    list("Rows", "rows", sheet.rows), list("Columns", "columns", sheet.columns)));
}

// The rows and columns without a result, by number; in the paper's view, and where all are, none counts as empty.
// What stands beside a column's own numbers (its key ends in ~1, ~2) is empty where the column is.
function emptyOnes(sheet) {
  const [first] = Object.values(sheet.readings);
  const rows = new Set(sheet.rows.keys()), columns = new Set(sheet.columns.keys()), filled = new Set();
  const places = Object.entries(first.cells).map(([key, cell]) => [...key.split(",").map(Number), cell]);
  const head = (column) => sheet.columns[column][0].split("~")[0];
  for (const [row, column, cell] of places) {
    if (!cell.done) continue;
    rows.delete(row);
    filled.add(head(column));
  }
  for (const [, column] of places) if (filled.has(head(column))) columns.delete(column);
  const all = view.empty === "shown" || view.show === "paper" || rows.size === sheet.rows.length;
  return all ? { rows: new Set(), columns: new Set() } : { rows, columns };
}

function drawTable(section, sheet) {
  const bar = section.querySelector(".controls");
  const open = bar.querySelector("details.hide")?.open;
  const active = bar.contains(document.activeElement) && [...bar.querySelectorAll("button, select, input, summary")];
  const at = active ? active.indexOf(document.activeElement) : -1;
  if (at < 0 || active[at].type !== "search") {
    bar.replaceChildren(...controls(sheet));
    if (open) bar.querySelector("details.hide").open = true;
    if (at >= 0) bar.querySelectorAll("button, select, input, summary")[at]?.focus();
  }
  const said = sheet.readings[view.read];
  section.querySelector("h2").textContent = said.title;
  section.querySelector(".footer ul")?.replaceChildren(...said.footer.map((line) => element("li", {}, line)));
  section.querySelector(".status").textContent = status(sheet) + " A number opens what it rests on.";
  for (const table of section.querySelectorAll("table")) {
    drawCells(table, sheet);
    sort(table, sheet);
    hide(table, sheet);
  }
  drawForest(section, sheet);
  drawCurves(section, sheet);
}

// Marks the tables that are wider than the screen, which say so.
function sideways() {
  for (const table of document.querySelectorAll("section:not([hidden]) .scroll:not([hidden])")) {
    table.classList.remove("wide");
    table.classList.toggle("wide", table.scrollWidth > table.clientWidth + 1);
  }
}

// What the table shows now, in a sentence, also for those who hear it.
function status(sheet) {
  const rival = sheet.readings[view.read].rivals[view.versus];
  if (rival) return `Each cell minus ${rival[0]}, in points. ${pooled(rival[1])}`;
  if (view.show === "paper") return "The paper's numbers.";
  if (view.show === "difference") return "Our runs minus the paper's numbers, in points; in parentheses the 95 % interval. Verdicts: " + DATA.rule + ".";
  if (view.show === "cost") return "What a round costs: " + DATA.counted;
  if (view.clients !== "mean") return `The ${CLIENTS[view.clients]} of each seed's clients, averaged over seeds.`;
  const { rows, columns } = emptyOnes(sheet), some = [];
  if (rows.size) some.push([...rows].map((row) => sheet.rows[row][1]).join(", "));
  if (columns.size) some.push(`${columns.size} column${columns.size > 1 ? "s" : ""}`);
  const without = some.length ? ` Without results, not shown: ${some.join("; ")}.` : "";
  const bold = Object.values(sheet.readings[view.read].cells).some((cell) => cell.best)
    ? "Bold: the highest of its column; in italics where seeds are missing."
    : "Nothing is bold: no column has two numbers.";
  return `Our runs. ${bold} (3/5): so many seeds are done. `
    + "✓ agrees with the paper, ≈ is close, ? is inconclusive, ✗ differs. "
    + "ᵍ rests on a guess, ᵗ on values that we tuned." + without;
}

// Whether the table shows our runs' means as they are: only then does anything stand beside a column's numbers.
function isPlain() {
  return !view.versus && view.show === "ours" && view.clients === "mean";
}

function drawCells(table, sheet) {
  for (const place_ of table.querySelectorAll("td[data-cell]")) {
    const key = place_.dataset.cell;
    const text = shown(sheet, key);
    const at = place_.querySelector("button") || place_;
    if (at.textContent !== text) at.textContent = text;
    const cell = place(sheet, key) || {};
    const best = Boolean(isPlain() && cell.best);
    place_.classList.toggle("best", best);
    place_.classList.toggle("leads", best && cell.done[0] < cell.done[1]);
    const held = view.versus ? against(sheet, key) : undefined;
    if (held) {
      place_.dataset.below = pooled(held[2]);
      place_.title = pooled(held[1]);
    } else {
      delete place_.dataset.below;
      place_.removeAttribute("title");
    }
    place_.classList.toggle("cost", view.show === "cost" && !view.versus);
    const judged = view.show === "difference" && !view.versus && cell.verdict;
    if (judged) place_.dataset.verdict = judged;
    else delete place_.dataset.verdict;
    for (const name of ["agrees", "close", "differs", "inconclusive"]) {
      place_.classList.toggle(name, judged === name);
      place_.classList.toggle(`is-${name}`, isPlain() && cell.verdict === name);
    }
  }
}

function sort(table, sheet) {
  const [, key, way] = view.sort.match(/^(.*):(up|down)$/s) || ["", null, ""];
  const column = sheet.columns.findIndex((one) => one[0] === key);
  for (const head of table.querySelectorAll("th[scope=col]")) {
    const own = head.dataset.column === undefined ? "" : sheet.columns[+head.dataset.column][0];
    const sorted = way && own === key;
    if (sorted) head.setAttribute("aria-sort", way === "up" ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  const value = (row) => (column < 0 ? null : number(shown(sheet, `${row.dataset.row},${column}`)));
  const title = (row) => row.querySelector("th").textContent;
  for (const body of table.tBodies) {
    const rows = [...body.querySelectorAll("tr[data-row]")].sort((a, b) => {
      const first = +a.dataset.row - +b.dataset.row;
      if (!way) return first;
      const sign = way === "up" ? 1 : -1;
      if (key === "") return sign * title(a).localeCompare(title(b), "en") || first;
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return (x === null) - (y === null) || first;
      return sign * (x - y) || first;
    });
    if (rows.some((row, i) => body.querySelectorAll("tr[data-row]")[i] !== row)) body.append(...rows);
  }
}

function hide(table, sheet) {
  const words = view.filter.toLowerCase(), empty = emptyOnes(sheet);
  for (const row of table.querySelectorAll("tr[data-row]")) {
    const [id, title] = sheet.rows[+row.dataset.row];
    row.hidden = view.rows.includes(id) || empty.rows.has(+row.dataset.row) || !title.toLowerCase().includes(words);
  }
  const hidden = new Set(view.columns), plain = isPlain();
  const heads = [...table.querySelectorAll("th[data-column]")];
  const gone = heads.map(({ dataset }) => hidden.has(sheet.columns[+dataset.column][0]) || empty.columns.has(+dataset.column)
    || (!plain && sheet.columns[+dataset.column][0].includes("~")));
  table.closest(".scroll").hidden = gone.every(Boolean);
  heads.forEach((head, i) => { head.hidden = gone[i]; });
  for (const row of table.querySelectorAll("tr[data-row]")) {
    [...row.querySelectorAll("td")].forEach((one, i) => { one.hidden = gone[i]; });
  }
  for (const divider of table.querySelectorAll(".divider")) {
    divider.hidden = [...divider.parentElement.querySelectorAll("tr[data-row]")].every((row) => row.hidden);
  }
  for (const level of table.querySelectorAll("thead tr:not(:last-child)")) {
    let at = 0;
    for (const head of [...level.children].slice(1)) {
      head.dataset.wide ??= head.colSpan;
      const left = gone.slice(at, at + +head.dataset.wide).filter((one) => !one).length;
      at += +head.dataset.wide;
      head.hidden = left === 0;
      if (left) head.colSpan = left;
    }
  }
}

// Buttons in the heads, by which a table is sorted: down, up, and back to the paper's order.
function sortable(table, sheet) {
  for (const head of table.querySelectorAll("th[scope=col]")) {
    const key = head.dataset.column === undefined ? "" : sheet.columns[+head.dataset.column][0];
    const next = () => {
      const ways = key === "" ? ["up", "down", ""] : ["down", "up", ""];
      const now = view.sort === `${key}:up` ? "up" : view.sort === `${key}:down` ? "down" : "";
      const way = ways[(ways.indexOf(now) + 1) % 3];
      change({ sort: way && `${key}:${way}` }, true);
    };
    head.replaceChildren(element("button", { type: "button", class: "sort", onclick: next }, head.textContent));
  }
}

// What stands in the page already, and not again in the data: the first reading's texts and its footer.
function adopt(section, sheet) {
  const [first] = Object.values(sheet.readings);
  for (const table of section.querySelectorAll("table")) {
    const columns = [...table.querySelectorAll("th[data-column]")].map((head) => head.dataset.column);
    for (const row of table.querySelectorAll("tr[data-row]")) {
      [...row.querySelectorAll("td")].forEach((one, i) => {
        one.dataset.cell = `${row.dataset.row},${columns[i]}`;
        if (Object.hasOwn(first.cells, one.dataset.cell)) first.cells[one.dataset.cell].ours = one.textContent;
      });
    }
    sortable(table, sheet);
  }
  first.footer = [...section.querySelectorAll(".footer li")].map((line) => line.textContent);
  for (const other of Object.values(sheet.readings).slice(1)) other.footer = other.footer.map(pooled);
}
