// The drawer of a place: what its number is, what it rests on, and how to compute it again.
"use strict";
const drawer = document.getElementById("drawer");

function part(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}

function facts(pairs) {
  const list = element("dl", {});
  for (const [name, value] of pairs) {
    if (value !== undefined && value !== null && value !== "") list.append(element("dt", {}, name), element("dd", {}, value));
  }
  return list;
}

function command(text) {
  const copy = element("button", { type: "button", onclick: () => toClipboard(text, copy) }, "Copy");
  return element("p", { class: "command" }, element("code", {}, text), " ", copy);
}

async function toClipboard(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it, and copy";
  }
}

function reportCommand(sheet) {
  const more = [["read", view.read, "last"], ["versus", view.versus, ""]].filter(([, value, usual]) => value !== usual);
  return `pflbench report${sheet.options}${more.map(([name, value]) => ` --${name} ${quoted(value)}`).join("")}${sheet.folder}`;
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

// A scale from numbers to the width of a picture.
function scale(numbers, from, to) {
  const low = Math.min(...numbers), high = Math.max(...numbers);
  const room = (high - low || 1) * 0.08;
  return (x) => from + ((x - low + room) / (high - low + 2 * room)) * (to - from);
}

function picture(height, said, ...children) {
  return element("svg", { viewBox: `0 0 440 ${height}`, role: "img", "aria-label": said, class: "picture" }, ...children);
}

function seedsDrawn(cell) {
  const seeds = cell.seeds.filter((one) => one[1] !== null);
  if (!seeds.length) return undefined;
  const printed = number(cell.paper);
  const numbers = [...seeds.map((one) => one[1]), ...(printed === null ? [] : [printed])];
  const x = scale(numbers, 20, 420);
  const dots = seeds.map(([seed, mean]) => element("circle", { cx: x(mean), cy: 24, r: 5, class: "dot" },
    element("title", {}, `seed ${seed}: ${mean}`)));
  const paper = printed === null ? [] : [
    element("line", { x1: x(printed), x2: x(printed), y1: 8, y2: 40, class: "paper" }),
    element("text", { x: Math.min(Math.max(x(printed), 65), 375), y: 54, "text-anchor": "middle" }, `paper ${cell.paper}`)];
  const said = seeds.map(([seed, mean]) => `seed ${seed}: ${mean}`).join(", ");
  return part("Seeds", picture(60, said, element("line", { x1: 10, x2: 430, y1: 24, y2: 24, class: "axis" }), ...dots, ...paper),
    element("p", {}, said + "."));
}

// The lines of a place against rounds or a cost: for each seed where its points are, and what they are.
function linesOf(cell, cost) {
  if (!cell?.curve || (cost !== "rounds" && !cell.paces[cost])) return [];
  return cell.curve.map(([seed, at, means], i) => {
    const pace = cost === "rounds" ? 1 : cell.paces[cost][i];
    return { seed, points: at.map((round, j) => [round * pace, means[j]]) };
  });
}

// The curve of a place over those of the other rows of its column.
function curveDrawn(cell, sheet, row, column) {
  const own = linesOf(cell, "rounds");
  if (!own.length) return undefined;
  const others = sheet.rows.flatMap(([, title], i) => (i === row ? [] : linesOf(place(sheet, `${i},${column}`), "rounds").map((one) => ({ title, ...one }))));
  const points = [...own, ...others].flatMap((one) => one.points), mine = own.flatMap((one) => one.points);
  const x = scale([0, ...points.map(([at]) => at)], 40, 430), y = scale(points.map(([, mean]) => mean), 140, 10);
  const line = (name, one, said) => element("polyline", { class: name,
    points: one.points.map(([at, mean]) => `${x(at).toFixed(1)},${y(mean).toFixed(1)}`).join(" ") }, element("title", {}, said));
  const high = Math.max(...points.map(([, mean]) => mean)), low = Math.min(...points.map(([, mean]) => mean));
  const ends = [Math.min(...mine.map(([, mean]) => mean)), Math.max(...mine.map(([, mean]) => mean))];
  const first = Math.min(...mine.map(([at]) => at)), last = Math.max(...mine.map(([at]) => at));
  const said = `Accuracy from round ${first} to round ${last}, between ${ends[0]} and ${ends[1]} %`
    + (others.length ? "; in gray the other rows of the column." : ".");
  return part("Over rounds", picture(165, said, ...others.map((one) => line("other", one, `${one.title}, seed ${one.seed}`)),
    ...own.map((one) => line("curve", one, `seed ${one.seed}`)),
    element("text", { x: 34, y: y(high) + 4, "text-anchor": "end" }, String(high)),
    element("text", { x: 34, y: y(low) + 4, "text-anchor": "end" }, String(low)),
    element("text", { x: x(first), y: 160, "text-anchor": "middle" }, String(first)),
    element("text", { x: x(last) - 6, y: 160, "text-anchor": "middle" }, `round ${last}`)), element("p", {}, said));
}

function clientsDrawn(cell) {
  if (!cell.clients) return undefined;
  const { quantiles, counts, number, spread } = cell.clients;
  const most = Math.max(...counts), wide = 400 / counts.length, step = 100 / counts.length;
  const bars = counts.map((count, i) => element("rect", { class: "bar", x: 20 + i * wide, width: wide - 1,
    y: 80 - (70 * count) / most, height: (70 * count) / most }, element("title", {}, `${i * step} to ${(i + 1) * step} %: ${count}`)));
  const ends = [0, 50, 100].map((at) => element("text", { x: 20 + 4 * at, y: 95, "text-anchor": "middle" }, `${at} %`));
  const said = `How many clients of all seeds have which accuracy; ${number} clients in a seed.`;
  return part("Clients", picture(100, said, ...bars, ...ends), element("p", {}, said),
    facts([...["worst 10 %", "deviation", "smallest 10 %", "training clients", "held-out clients"].map((name, i) => [name, spread[i]]), ...DATA.quantiles.map((name, i) => [name, quantiles[i]])]));
}

function givenListed(cell) {
  const given = (pooled(cell.given) || []).map(pooled);
  if (!given.length) return undefined;
  const body = element("tbody", {}, ...given.map(([name, value, source]) => element("tr", { class: source },
    element("th", { scope: "row" }, name), element("td", {}, value), element("td", {}, source || "not said"))));
  const head = element("thead", {}, element("tr", {}, ...["name", "value", "source"].map((name) => element("th", { scope: "col" }, name))));
  return part("Hyperparameters and settings", element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Hyperparameters and settings" },
    element("table", {}, head, body)));
}

function departuresListed(cell) {
  const departs = (pooled(cell.departs) || []).map(pooled);
  if (!departs.length) return undefined;
  return part("Departures from the paper's text", element("ul", {}, ...departs.map(([what, told]) => element("li", {},
    element("strong", {}, what), ". " + told))));
}

function againListed(sheet, cell, row, column) {
  const runs = cell.seeds.flatMap(([seed, , ids]) => ids.split(" ").filter(Boolean).map((id) => [seed, id]));
  const rerun = runs.length ? [element("p", {}, `Compute the run of seed ${runs[0][0]} again and compare, writing nothing:`),
    command(`pflbench rerun ${runs[0][1]}${sheet.folder}`)] : [];
  const train = sheet.run + sheet.columns[column][2] + (cell.own ?? sheet.rows[row][2]);
  const run = cell.given === undefined ? [] : [
    element("p", {}, "Train all its runs anew, into a folder of their own:"), command(train + " --results again")];
  if (run.length && cell.done[0] < cell.done[1]) run.push(element("p", {}, "Train those that are missing:"), command(train + (cell.done[2] ? " --redo failed" : "") + sheet.folder));
  const ids = runs.map(([seed, id]) => `${id} (seed ${seed})`).join(", ");
  return part("Compute it again", ...rerun, ...run, element("p", {}, "Print this table:"), command(reportCommand(sheet)), element("details", {}, element("summary", {}, "Its runs"), element("p", { class: "ids" }, ids)));
}

function drawDrawer(sheet) {
  const cell = view.cell && sheet ? place(sheet, view.cell) : undefined;
  if (!cell || !cell.done) {
    if (drawer.open) drawer.close();
    return;
  }
  const [row, column] = view.cell.split(",").map(Number);
  const [method, stage, rests] = pooled(cell.about);
  const [why, suspect, best] = pooled(cell.why) || [];
  const [done, asked, failed] = cell.done;
  const held = view.versus ? against(sheet, view.cell) : undefined;
  const rival = sheet.readings[view.read].rivals[view.versus];
  drawer.querySelector("h2").textContent = `${sheet.rows[row][1]} · ${sheet.columns[column][1]}`;
  drawer.querySelector(".body").replaceChildren(...[
    element("p", { class: "where" }, sheet.readings[view.read].title),
    facts([
      ["our runs", cell.ours], ["paper", cell.paper], ["difference", cell.diff],
      ["verdict", cell.verdict && `${cell.verdict}: ${why}`],
      ["reference suspect", suspect], ["our best round", best],
      [`minus ${rival?.[0]}`, held && `${held[0]}, ${pooled(held[1])}`],
      ["seeds", `${done} of ${asked} done${failed ? `, ${failed} failed` : ""}`],
      ["a round costs", cell.cost],
      ["method", method], ["scored", stage],
      ["rests on", rests.map(([key, source]) => `${key} (${source})`).join(", ")],
    ]),
    seedsDrawn(cell), curveDrawn(cell, sheet, row, column), clientsDrawn(cell), againListed(sheet, cell, row, column), givenListed(cell), departuresListed(cell),
    part("Made with", facts(pooled(cell.made))),
  ].filter(Boolean));
  const opened = !drawer.open;
  if (opened) drawer.showModal();
  if (opened) drawer.scrollTop = 0;
}

drawer.addEventListener("close", () => { if (view.cell) change({ cell: "" }); });
drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });
