// Copies of a table as it is shown: its visible rows and columns in the view, a caption of two lines, and notes.
"use strict";
const copies = document.getElementById("copies");
const GLYPHS = { agrees: "✓", close: "≈", inconclusive: "?", differs: "✗" };
const LATEX = JSON.parse(document.getElementById("latex").textContent); // source of characters that are not their own
const WIDEST = 8; // columns of a LaTeX tabular, unless a group has more

// A text in one line: notes in comments end with their line.
function flat(text) {
  return text.replace(/\s+/g, " ").trim();
}

// The visible part of a block: the words above each column, level by level, and the rows' titles and cells.
function visible(table) {
  const there = (row) => [...row.cells].filter((cell) => !cell.hidden);
  const heads = [...table.tHead.rows].map((row) => there(row).flatMap((cell) => Array(cell.colSpan).fill(flat(cell.textContent))));
  return { heads, rows: [...table.querySelectorAll("tr[data-row]")].filter((row) => !row.hidden).map(there) };
}

// Text of a cell with its glyph and the words below it.
function textOf(cell) {
  const glyph = Object.keys(GLYPHS).find((name) => cell.classList.contains(`is-${name}`));
  return [flat(cell.textContent) + (glyph ? ` ${GLYPHS[glyph]}` : ""), cell.dataset.below, cell.dataset.verdict].filter(Boolean).join("; ");
}

function caption(sheet) {
  const rival = sheet.readings[view.read].rivals[view.versus];
  const plain = view.show === "ours" && !rival, lacks = /\(\d+\/\d+\)/.test(sectionOf(sheet.key).querySelector(".blocks").textContent);
  const words = { ours: "our runs, accuracy in %", paper: "the paper's numbers, accuracy in %", cost: "cost of a round",
    difference: "our runs minus the paper's numbers, in points, with 95 % interval and verdict" }[view.show];
  const what = rival ? `each cell minus ${rival[0]}, in points, with 95 % interval`
    : view.equal !== "rounds" ? `accuracy in % at equal ${view.equal}`
    : view.clients !== "mean" ? `${CLIENTS[view.clients]} of the clients, accuracy in %` : words;
  return [`${flat(sheet.readings[view.read].title)}.`, what[0].toUpperCase() + what.slice(1) + (plain && lacks ? ". (3/5): seeds done of all." : ".")];
}

// Notes of a copy; with full provenance also the footer, the command, and our number, the paper's and the runs of each cell.
function notes(sheet, section, full) {
  const said = [status(sheet), ...[...section.querySelectorAll(".warnings li")].map((one) => one.textContent)];
  if (!full) return said.map(flat);
  const keys = [...section.querySelectorAll("tr[data-row]:not([hidden]) td[data-cell]:not([hidden])")].map((one) => one.dataset.cell);
  const cells = keys.map((key) => [key.split(","), place(sheet, key)]).filter(([, cell]) => cell?.seeds).map(([[row, column], cell]) =>
    [`${sheet.rows[row][1]}, ${sheet.columns[column][1]}: ${cell.ours}`, cell.paper && `paper ${cell.paper}`, cell.diff && `difference ${cell.diff}`,
      cell.verdict, ...cell.seeds.map(([seed, mean, ids]) => `seed ${seed}: ${mean} (${ids})`)].filter(Boolean).join("; "));
  return [...said, ...sheet.readings[view.read].footer, `Numbers: ${reportCommand(sheet)}`, ...cells].map(flat);
}

const WRITERS = {
  markdown(sheet, blocks, notes) {
    const escaped = (text) => text.replace(/&(?=#?\w+;)/g, "&amp;").replace(/<(?=[A-Za-z/!?])/g, "&lt;").replace(/\]\(/g, "]\\(");
    const line = (fields) => `| ${fields.join(" | ")} |`, field = (text) => escaped(text).replaceAll("|", "\\|");
    const shown = (cell) => {
      const text = field(textOf(cell));
      return cell.matches(".leads") ? `**_${text}_**` : cell.matches(".best") ? `**${text}**` : text;
    };
    const grids = blocks.map((block) => [pathsOf(block).map(field), pathsOf(block).map((_, i) => (i ? "---:" : ":---")),
      ...block.rows.map((row) => row.map(shown))].map(line).join("\n"));
    const [title, what] = caption(sheet).map(escaped);
    return [`### ${title}\n\n${what}`, ...grids, notes.map((note) => `- ${escaped(note)}`).join("\n")].join("\n\n") + "\n";
  },
  latex(sheet, blocks, notes) {
    const grids = blocks.flatMap(narrowed).map(tabular).join("\n  \\par\\medskip\n");
    return ["% Needs \\usepackage{booktabs} in the preamble.", ...notes.map((note) => `% ${note}`), "\\begin{table}", "  \\centering",
      `  \\caption{${caption(sheet).map(inLatex).join(" ")}}`, `  \\label{tab:${sheet.key.replace(/[^A-Za-z0-9]+/g, "-")}}`, grids, "\\end{table}", ""].join("\n");
  },
  csv(sheet, blocks, notes) {
    // A title that a spreadsheet would compute has a `'` in front; numbers may begin with their sign.
    const field = (text, cell) => {
      const safe = /^[=+\-@\t\r]/.test(text) && !(cell?.tagName === "TD" && number(text) !== null) ? `'${text}` : text;
      return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const lines = blocks.flatMap((block) => [pathsOf(block).map((text) => field(text)), ...block.rows.map((row) => row.map((cell) => field(textOf(cell), cell)))]);
    return [...notes.map((note) => `# ${note}`), ...lines.map((fields) => fields.join(","))].join("\n") + "\n";
  },
};

// One line of heads: of each column the words above it, each once.
function pathsOf({ heads }) {
  return heads.at(-1).map((_, i) => [...new Set(heads.map((level) => level[i]).filter(Boolean))].join(", "));
}

function inLatex(text) {
  const source = [...flat(text)].map((c, i, all) => ("-'`,".includes(c) && all[i - 1] === c ? "{}" : "") + (LATEX[c] ?? c)).join("");
  return /^[[*]/.test(source) ? "{}" + source : source;
}

// Blocks of at most so many columns each, cut where a group ends.
function narrowed({ heads, rows }) {
  const groups = heads.slice(0, -1).find((level) => new Set(level.slice(1)).size > 1) ?? heads.at(-1);
  const parts = [[]];
  for (let i = 1, end; i < groups.length; i = end) {
    for (end = i + 1; end < groups.length && heads.length > 1 && groups[end] === groups[i];) end += 1;
    if (parts.at(-1).length && parts.at(-1).length + end - i > WIDEST) parts.push([]);
    for (let j = i; j < end; j += 1) parts.at(-1).push(j);
  }
  return parts.map((part) => [0, ...part]).map((part) => ({ heads: heads.map((level) => part.map((i) => level[i])), rows: rows.map((row) => part.map((i) => row[i])) }));
}

function tabular({ heads, rows }) {
  const line = (fields) => `    ${fields.join(" & ")} \\\\`;
  const above = heads.slice(0, -1).flatMap((level) => {
    const fields = [""], rules = [];
    for (let i = 1, end; i < level.length; i = end) {
      for (end = i + 1; end < level.length && level[end] === level[i];) end += 1;
      fields.push(`\\multicolumn{${end - i}}{c}{${inLatex(level[i])}}`);
      if (level[i]) rules.push(`\\cmidrule(lr){${i + 1}-${end}}`);
    }
    return [line(fields), `    ${rules.join("")}`];
  });
  const shown = (cell) => {
    const text = inLatex(textOf(cell).replace(/(^|[ (])-(?=\d)/g, "$1−"));
    return cell.matches(".leads") ? `\\textbf{\\textit{${text}}}` : cell.matches(".best") ? `\\textbf{${text}}` : text;
  };
  return [`  \\begin{tabular}{l${"r".repeat(heads.at(-1).length - 1)}}`, "    \\toprule", ...above, line(heads.at(-1).map(inLatex)), "    \\midrule",
    ...rows.map((row) => line(row.map(shown))), "    \\bottomrule", "  \\end{tabular}"].join("\n");
}

// The text of a table in a format, as it is shown; `full`: with full provenance.
function copied(sheet, format, full = false) {
  if (format === "bibtex") return pooled(sheet.bibtex);
  const section = sectionOf(sheet.key);
  const blocks = [...section.querySelectorAll(".scroll:not([hidden]) > table")].map(visible);
  return WRITERS[format](sheet, blocks, format !== "csv" || full ? notes(sheet, section, full) : []);
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

function copying(sheet) {
  const area = element("textarea", { readonly: true, rows: 16, "aria-label": "The text" });
  const note = element("p", {});
  let format;
  const show = (picked, full) => {
    format = picked;
    area.value = copied(sheet, format, full);
    note.textContent = format === "bibtex" ? `As \`pflbench cite ${sheet.suite}\` prints it: the papers of the table, its methods and datasets, and pflbench.`
      : `Rows, columns and numbers as they are shown. The whole table: \`${reportCommand(sheet)} --format ${format}\`.`;
    for (const one of formats.children) one.setAttribute("aria-pressed", String(one.dataset.format === format));
    copies.querySelector("[data-full]").hidden = format === "bibtex";
  };
  const button = (text, click, more = {}) => element("button", { type: "button", onclick: (event) => click(event.currentTarget), ...more }, text);
  const formats = element("div", { role: "group", "aria-label": "Format", class: "switch" },
    ...Object.entries({ markdown: "Markdown", latex: "LaTeX", csv: "CSV", bibtex: "BibTeX" }).map(([name, text]) => button(text, () => show(name), { "data-format": name })));
  const copy = (full) => (pressed) => { show(format, full); return toClipboard(area.value, pressed); };
  copies.querySelector("h2").textContent = "Copy or cite";
  copies.querySelector(".body").replaceChildren(formats, note, area, element("p", { class: "controls" }, button("Copy", copy(false)),
    button("Copy with full provenance", copy(true), { "data-full": true }), button("Copy the link to this view", (pressed) => toClipboard(location.href, pressed))));
  show("markdown");
  copies.showModal();
}
