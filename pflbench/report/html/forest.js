// The forest beside a table: for each row a dot with its 95 % interval, and a diamond for the paper's number with its own.
"use strict";
const FOREST = { wide: 340, label: 118, step: 19, head: 20, foot: 22 };

// The suite's rows with a number in a column, in the table's order or the highest first; others would stretch the axis.
function trees(sheet, column) {
  const rows = [...sectionOf(sheet.key).querySelectorAll("tbody:not(.outside) tr[data-row]")].filter((row) => !row.hidden).map((row) => +row.dataset.row);
  const found = [...new Set(rows)].map((row) => ({ row, title: sheet.rows[row][1], cell: place(sheet, `${row},${column}`) }))
    .filter(({ cell }) => cell?.forest);
  return view.order === "mean" ? found.sort((a, b) => b.cell.forest[0] - a.cell.forest[0]) : found;
}

function tree({ row, title, cell }, column, y, x) {
  const [mean, low, high, paper, from, to, margin] = cell.forest;
  const span = (name, a, b) => a === null || a === undefined ? [] : [element("line", { class: name, x1: x(a), x2: x(b), y1: y, y2: y })];
  const shapes = [];
  if (paper !== undefined) {
    const at = x(paper), r = 4.5;
    shapes.push(element("rect", { class: "band", x: x(paper - margin), width: x(paper + margin) - x(paper - margin), y: y - 8, height: 16 }),
      ...span("theirs", from, to), element("polyline", { class: "diamond", points: `${at - r},${y} ${at},${y - r} ${at + r},${y} ${at},${y + r} ${at - r},${y}` }));
  }
  shapes.push(...span("mine", low, high), element("circle", { class: "dot", cx: x(mean), cy: y, r: 4 }));
  const short = title.length > 17 ? title.slice(0, 16) + "…" : title;
  const said = `${title}: ours ${cell.ours}${cell.paper ? `, the paper ${cell.paper}` : ""}${cell.verdict ? `, ${cell.verdict}` : ""}`;
  return element("g", { class: "tree", onclick: () => change({ cell: `${row},${column}` }) }, element("title", {}, said),
    element("rect", { class: "catch", x: 0, y: y - FOREST.step / 2, width: FOREST.wide, height: FOREST.step }),
    element("text", { x: FOREST.label - 8, y: y + 4, "text-anchor": "end" }, short), ...shapes);
}

function forestOf(sheet, column) {
  const found = trees(sheet, column);
  if (found.length < 2) return undefined;
  const numbers = found.flatMap(({ cell }) => {
    const [mean, low, high, paper, from, to] = cell.forest;
    return [mean, paper, ...(high - low < 40 ? [low, high] : []), from, to].filter((one) => one !== null && one !== undefined);
  });
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const at = scale(numbers, FOREST.label, FOREST.wide - 8);
  const x = (value) => Math.min(FOREST.wide, Math.max(FOREST.label - 4, at(value)));
  const bottom = FOREST.head + FOREST.step * found.length;
  const name = sheet.columns[column][1];
  const marks = [least, most].map((one, i) => element("text", { x: x(one), y: bottom + 14, "text-anchor": i ? "end" : "start" }, one.toFixed(1)));
  const axis = element("line", { class: "axis", x1: FOREST.label - 4, x2: FOREST.wide, y1: bottom, y2: bottom });
  const best = found.reduce((a, b) => (b.cell.forest[0] > a.cell.forest[0] ? b : a));
  const said = `${name}: ${found.length} rows from ${least.toFixed(1)} to ${most.toFixed(1)} %; the highest is ${best.title}.`;
  return element("figure", {}, element("figcaption", {}, name),
    element("svg", { viewBox: `0 0 ${FOREST.wide} ${bottom + FOREST.foot}`, role: "img", "aria-label": said, class: "picture" }, axis, ...marks,
      ...found.map((one, i) => tree(one, column, FOREST.head + FOREST.step * (i + 0.5) - 6, x))));
}

function drawForest(section, sheet) {
  const at = section.querySelector(".forest");
  if (!at) return;
  const empty = emptyOnes(sheet);
  const plain = !view.versus && view.clients === "mean" && view.show !== "cost";
  const columns = sheet.columns.map((_, i) => i).filter((i) => !view.columns.includes(sheet.columns[i][0]) && !empty.columns.has(i));
  const figures = plain ? columns.map((i) => forestOf(sheet, i)).filter(Boolean) : [];
  at.hidden = !figures.length;
  if (!figures.length) return at.replaceChildren();
  const order = select("Order", view.order, Object.entries(ORDERS), (picked) => change({ order: picked }));
  at.replaceChildren(element("p", { class: "key" }, "● ours and ◇ the paper's, with 95 % intervals; gray: the margin within which a difference is small. ", order), element("div", { class: "facets" }, ...figures));
}
