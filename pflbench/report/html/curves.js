// Curves of a table: a panel for each column with a line for each row, over rounds, a cost, or fine-tuning steps.
"use strict";
const AXES = { rounds: "rounds", gradients: "gradients of a client", seconds: "seconds", bytes: "MB of a client", steps: "fine-tuning steps" };

// The mean line of a place over its seeds, at the rounds that all of them were scored in, and the seeds that it lacks.
function meanLine(cell, axis) {
  if (axis === "steps") return cell?.steps?.length ? { points: cell.steps[0].map((at, i) => [at, cell.steps[1][i]]), lacks: [] } : undefined;
  const lines = linesOf(cell, axis);
  if (!lines.length) return undefined;
  const walks = cell.curve.map(([, rounds, means]) => new Map(rounds.map((round, i) => [round, means[i]])));
  const shared = [...walks[0].keys()].filter((round) => walks.every((walk) => walk.has(round)));
  const pace = axis === "rounds" ? 1 : cell.paces[axis].reduce((a, b) => a + b, 0) / cell.paces[axis].length;
  const points = shared.map((round) => [round * pace, walks.reduce((sum, walk) => sum + walk.get(round), 0) / walks.length]);
  const there = cell.curve.map(([seed]) => seed);
  return points.length > 1 ? { points, lacks: cell.seeds.map(([seed]) => seed).filter((seed) => !there.includes(seed)) } : undefined;
}

function linesOfColumn(sheet, column, axis) {
  const rows = [...sectionOf(sheet.key).querySelectorAll("tbody:not(.outside) tr[data-row]")].map((row) => +row.dataset.row);
  return [...new Set(rows)].map((row) => ({ row, line: meanLine(place(sheet, `${row},${column}`), axis) })).filter(({ line }) => line);
}

function panelOf(sheet, column, axis) {
  const found = linesOfColumn(sheet, column, axis).filter(({ row }) => !view.off.includes(sheet.rows[row][0]));
  if (!found.length) return undefined;
  const points = found.flatMap(({ line }) => line.points);
  const x = scale([0, ...points.map(([at]) => at)], 44, 330), y = scale(points.map(([, mean]) => mean), 150, 8);
  const most = Math.max(...points.map(([at]) => at)), means = points.map(([, mean]) => mean);
  const drawn = found.map(({ row, line }) => {
    const [, title, , color, dashes] = sheet.rows[row];
    const said = `${title}: ${line.points.at(-1)[1].toFixed(1)} %` + (line.lacks.length ? `, without the curve of seed ${line.lacks.join(", ")}` : "");
    return element("polyline", { class: "method", stroke: color, "stroke-dasharray": dashes || null,
      points: line.points.map(([at, mean]) => `${x(at).toFixed(1)},${y(mean).toFixed(1)}`).join(" "),
      onclick: () => change({ cell: `${row},${column}` }) }, element("title", {}, said));
  });
  const ticks = [Math.min(...means), Math.max(...means)].map((mean) => element("text", { x: 38, y: y(mean) + 4, "text-anchor": "end" }, mean.toFixed(1)));
  const name = sheet.columns[column][1];
  const said = `${name} over ${AXES[axis]}: ` + found.map(({ row, line }) => `${sheet.rows[row][1]} ends at ${line.points.at(-1)[1].toFixed(1)} %`).join(", ") + ".";
  return element("figure", {}, element("figcaption", {}, name), element("svg", { viewBox: "0 0 340 172", role: "img", "aria-label": said, class: "picture" },
    element("line", { class: "axis", x1: 44, x2: 334, y1: 152, y2: 152 }), ...ticks, ...drawn,
    element("text", { x: x(most), y: 168, "text-anchor": "end" }, `${shortNumber(most)} ${AXES[axis]}`)));
}

function shortNumber(value) {
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
}

function drawCurves(section, sheet) {
  const at = section.querySelector(".curves"), body = at?.querySelector(".body");
  if (!at) return;
  const columns = sheet.columns.map((_, i) => i).filter((i) => !view.columns.includes(sheet.columns[i][0]));
  const axes = Object.keys(AXES).filter((axis) => columns.some((column) => linesOfColumn(sheet, column, axis).length));
  at.hidden = !axes.length;
  if (!axes.length || !at.open) return;
  const axis = axes.includes(view.axis) ? view.axis : axes[0];
  const rows = [...new Set(columns.flatMap((column) => linesOfColumn(sheet, column, axis).map(({ row }) => row)))].sort((a, b) => a - b);
  const toggles = rows.map((row) => {
    const [id, title, , color, dashes] = sheet.rows[row], off = view.off.includes(id);
    const sample = element("svg", { viewBox: "0 0 26 8", width: 26, height: 8, "aria-hidden": "true" },
      element("line", { x1: 1, x2: 25, y1: 4, y2: 4, class: "method", stroke: color, "stroke-dasharray": dashes || null }));
    return element("button", { type: "button", "aria-pressed": String(!off), "data-toggles": id,
      onclick: () => { change({ off: off ? view.off.filter((one) => one !== id) : [...view.off, id] }, true); body.querySelector(`[data-toggles="${CSS.escape(id)}"]`)?.focus(); } }, sample, " " + title);
  });
  const pick = select("Over", axis, axes.map((one) => [one, AXES[one]]), (picked) => { change({ axis: picked }); body.querySelector("select")?.focus(); });
  body.replaceChildren(element("p", {}, pick), element("div", { class: "toggles", role: "group", "aria-label": "Rows of the curves" }, ...toggles),
    element("div", { class: "facets" }, ...columns.map((column) => panelOf(sheet, column, axis)).filter(Boolean)));
}
