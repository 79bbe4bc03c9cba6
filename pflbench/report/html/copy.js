// Texts to copy: as `pflbench report` writes them, made in Python and packed; here they are only put together.
"use strict";
const copies = document.getElementById("copies");
let unpacked;

async function texts() {
  if (!unpacked) {
    const packed = Uint8Array.from(atob(document.getElementById("texts").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked = await new Response(stream).json();
  }
  return unpacked;
}

// The text of a table in a format, in the view's reading and against its rival; undefined where it is not told.
async function copied(sheet, format) {
  const { lines, tables } = await texts();
  const said = (numbers) => numbers.map((number) => lines[number]);
  if (format === "bibtex") return tables[sheet.key].bibtex && said(tables[sheet.key].bibtex).join("\n");
  const all = tables[sheet.key][view.read];
  const alone = all[""][format], held = view.versus ? all[view.versus][format] : [];
  if (!alone || !held) return undefined;
  if (format !== "csv") return said(alone).join("\n") + said(held).join("\n");
  const [cells, more] = alone.map(said), versus = said(held);
  return cells.map((cell, i) => [cell, versus[i], more[i]].filter(Boolean).join(",") + "\n").join("");
}

async function toClipboard(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it, and copy";
  }
}

function reportCommand(sheet, format) {
  const more = [["read", view.read, "last"], ["versus", view.versus, ""]].filter(([, value, usual]) => value !== usual);
  const options = more.map(([name, value]) => ` --${name} ${quoted(value)}`).join("");
  return `pflbench report${sheet.options}${options} --format ${format}${sheet.folder}`;
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

async function copying(sheet) {
  const body = copies.querySelector(".body");
  copies.querySelector("h2").textContent = "Copy or cite";
  const area = element("textarea", { readonly: true, rows: 16, "aria-label": "The text" });
  const note = element("p", {});
  let text = "";
  const pick = async (format) => {
    text = (await copied(sheet, format)) ?? "";
    area.value = text;
    const empty = emptyOnes(sheet);
    const hidden = view.rows.length || view.columns.length || view.filter || empty.rows.size || empty.columns.size;
    const told = format === "bibtex" ? `As \`pflbench cite ${sheet.suite}\` prints it: the papers of the table, its methods and datasets, and pflbench.`
      : `As \`${reportCommand(sheet, format)}\` prints it` + (hidden ? ": the whole table, also what is hidden here." : ".");
    note.textContent = text ? told : `It names a folder of somebody's machine: print it by \`${reportCommand(sheet, format)}\`.`;
    for (const one of formats.children) one.setAttribute("aria-pressed", String(one.dataset.format === format));
    copy.textContent = "Copy";
  };
  const formats = element("div", { role: "group", "aria-label": "Format", class: "switch" },
    ...["markdown", "latex", "csv", "bibtex"].map((format) => element("button", { type: "button", "data-format": format,
      onclick: () => pick(format) }, { markdown: "Markdown", latex: "LaTeX", csv: "CSV", bibtex: "BibTeX" }[format])));
  const copy = element("button", { type: "button", onclick: () => toClipboard(text, copy) }, "Copy");
  const unlike = view.clients !== "mean" || view.show === "cost" || view.equal !== "rounds" ? [element("p", {}, "These are of the clients' mean accuracy, not of what is shown now.")] : [];
  body.replaceChildren(formats, note, ...unlike, area, element("p", {}, copy));
  copies.showModal();
  await pick("markdown");
}
