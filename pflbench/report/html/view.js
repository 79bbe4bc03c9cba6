// The view: what is open and how it is shown. The address's fragment holds it, so a link is a view.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const SHEETS = new Map(DATA.tables.map((one) => [one.key, one]));
const PAGES = [...document.querySelectorAll("[data-page]")].map((one) => one.dataset.page);
const SHOWS = ["ours", "paper", "difference", "cost"];
const SHOWN = { ours: "our runs", paper: "paper", difference: "difference", cost: "cost" };
const READINGS = { last: "as the suite says", "last-10": "last ten rounds", best: "best round (optimistic)" };
const CLIENTS = { mean: "mean", worst: "worst 10 %", median: "median" };
const ORDERS = { mean: "highest first", paper: "as in the table" };
const USUAL = { show: "ours", read: "last", clients: "mean", versus: "" };
const DEFAULTS = { page: "", table: "", ...USUAL, sort: "", filter: "", order: "mean", axis: "rounds", off: [],
  empty: "hidden", rows: [], columns: [], cell: "" };
let view = { ...DEFAULTS };

function pooled(number) {
  return number === undefined ? undefined : DATA.pool[number];
}

// Reads a fragment. What is not known, or not of the table, counts as not said.
function parsed(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const found = { ...DEFAULTS };
  const page = given.get("page");
  if (PAGES.includes(page)) return { ...found, page };
  if (DATA.opens && ![...given.keys()].length) return { ...found, page: DATA.opens };
  const sheet = SHEETS.get(given.get("table")) || SHEETS.get(DATA.first);
  if (!sheet) return found;
  found.table = sheet.key;
  if (![...given.keys()].length) {
    found.read = DATA.read in sheet.readings ? DATA.read : "last";
    found.versus = sheet.readings[found.read].rivals[DATA.versus[sheet.key]] ? DATA.versus[sheet.key] : "";
  }
  const among = (key, known) => { if (known.includes(given.get(key))) found[key] = given.get(key); };
  among("show", SHOWS);
  among("read", Object.keys(sheet.readings));
  among("clients", Object.keys(CLIENTS));
  among("versus", Object.keys(sheet.readings[found.read].rivals));
  among("empty", ["hidden", "shown"]);
  among("order", Object.keys(ORDERS));
  among("axis", Object.keys(AXES));
  const keys = sheet.columns.map((one) => one[0]);
  const sort = (given.get("sort") || "").match(/^(.*):(up|down)$/s);
  if (sort && (sort[1] === "" || keys.includes(sort[1]))) found.sort = sort[0];
  found.filter = (given.get("filter") || "").slice(0, 200);
  const ids = sheet.rows.map((one) => one[0]);
  found.off = given.getAll("off").filter((id) => ids.includes(id));
  found.rows = given.getAll("row").filter((id) => ids.includes(id));
  found.columns = given.getAll("column").filter((key) => keys.includes(key));
  const cell = given.get("cell");
  if (cell && Object.hasOwn(sheet.readings[Object.keys(sheet.readings)[0]].cells, cell)) found.cell = cell;
  return found;
}

// The fragment of a view: only what is not as it is without one.
function written(of) {
  const said = new URLSearchParams();
  for (const [key, value] of Object.entries(of)) {
    const name = { rows: "row", columns: "column" }[key] || key;
    if (Array.isArray(value)) value.forEach((one) => said.append(name, one));
    else if (value !== DEFAULTS[key]) said.set(name, value);
  }
  return "#" + said.toString();
}

// Another view; what it draws is for `draw` of main.js.
function change(changes, replace = false) {
  view = { ...view, ...changes };
  const address = written(view);
  if (address === location.hash) return draw();
  history[replace ? "replaceState" : "pushState"](null, "", address);
  draw();
}

// A place of the table in the view's reading: the first reading has what others do not say anew; null: it has nothing.
function place(sheet, key) {
  const [first] = Object.values(sheet.readings), own = sheet.readings[view.read];
  const known = Object.hasOwn(first.cells, key) ? first.cells[key] : undefined;
  if (own === first || !Object.hasOwn(own.cells, key)) return known;
  return Object.fromEntries(Object.entries({ ...known, ...own.cells[key] }).filter(([, said]) => said !== null));
}

// A place minus that of the rival: its text, the number to sort by, and what it rests on.
function against(sheet, key) {
  const own = sheet.readings[view.read].versus[view.versus] || {};
  const [first] = Object.values(sheet.readings);
  return own[key] || (first.versus[view.versus] || {})[key];
}

// What a place shows in this view.
function shown(sheet, key) {
  const cell = place(sheet, key);
  if (!cell) return "–";
  if (view.versus) {
    const rival = sheet.rows[+key.split(",")[0]][0] === view.versus;
    return against(sheet, key)?.[0] ?? (rival && cell.done ? "0" : "–");
  }
  if (view.show !== "ours") return cell[{ paper: "paper", difference: "diff", cost: "cost" }[view.show]] ?? "–";
  return cell[{ mean: "ours", worst: "worst", median: "median" }[view.clients]] ?? "–";
}

// The number that a text begins with, to sort by and to draw at; null where it has none.
function number(text) {
  const found = text?.replace(/,(?=\d{3})/g, "").match(/^[+-]?\d+(\.\d+)?(?![\d./])/);
  return found ? Number(found[0]) : null;
}

// An element with attributes and children; texts are always texts, never markup.
function element(name, attributes = {}, ...children) {
  const svg = ["svg", "circle", "line", "rect", "polyline", "text", "title", "g"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((one) => one !== undefined && one !== null));
  return made;
}
