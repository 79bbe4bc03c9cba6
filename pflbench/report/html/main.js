// Starts the page: everything on it can be read without it.
"use strict";

function draw() {
  const sheet = SHEETS.get(view.table);
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = (section.dataset.table || section.dataset.page) !== (view.page || view.table);
  }
  for (const link of document.querySelectorAll("nav a")) {
    const open = (link.dataset.open || link.dataset.turn) === (view.page || view.table);
    if (open) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (sheet) drawTable(sectionOf(sheet.key), sheet);
  const open = document.querySelector("main > section:not([hidden]) h2");
  document.title = open ? `${open.textContent} · pflbench` : "pflbench";
  sideways();
  drawDrawer(sheet);
}

function sectionOf(key) {
  return [...document.querySelectorAll("section[data-table]")].find((one) => one.dataset.table === key);
}

function follow() {
  view = parsed(location.hash);
  document.querySelector(".rail").open = matchMedia("(min-width: 70rem)").matches;
  draw();
}

for (const [key, sheet] of SHEETS) {
  const section = sectionOf(key);
  adopt(section, sheet);
  section.querySelector(".curves").addEventListener("toggle", () => { if (view.table === key) drawCurves(section, sheet); });
  section.addEventListener("click", (event) => {
    const cell = event.target.closest("td[data-cell] button");
    if (cell) change({ cell: cell.closest("td").dataset.cell });
  });
}
for (const close of document.querySelectorAll("dialog .close")) {
  close.addEventListener("click", () => close.closest("dialog").close());
}
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && event.target.closest(".tools details[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});
window.addEventListener("resize", sideways);
window.addEventListener("hashchange", follow);
window.addEventListener("popstate", follow);
document.documentElement.classList.add("live");
follow();
