// The table of all utterances. Only the rows on the screen exist, so that a hundred thousand scroll like ten.

const ROW = 58; // pixels, as the style sheet has it
const SPARE = 8; // rows above and below the screen

// columns: {key, title, value(row), show(row) → node, numeric}. rows: numbers of rows, filtered and sorted elsewhere.
class UtteranceTable {
  constructor({ columns, label, onsort, onselect }) {
    this.columns = columns;
    this.rows = [];
    this.selected = -1; // a place in `rows`
    this.onselect = onselect;
    this.heads = columns.map((column) => {
      const button = el("button", { class: "head", type: "button", onclick: () => onsort(column.key) }, column.title);
      return el("div", { role: "columnheader", class: `cell ${column.key}`, "aria-sort": "none" }, button);
    });
    this.body = el("div", { class: "rows", role: "rowgroup" });
    this.view = el("div", { class: "scroller", tabindex: "0", role: "rowgroup", "aria-label": `${label}: arrows select, Enter plays` }, this.body);
    this.node = el("div", { class: "utterances", role: "grid", "aria-label": label, "aria-readonly": "true" },
      el("div", { class: "heads", role: "row" }, ...this.heads), this.view);
    this.view.addEventListener("scroll", () => this.draw());
    this.view.addEventListener("keydown", (event) => this.onKey(event));
    // A table that was replaced by one of another set is observed once more.
    new ResizeObserver(() => { if (this.view.isConnected) this.draw(); }).observe(this.view);
  }

  show(rows, { sort, descending }) {
    this.rows = rows;
    this.heads.forEach((head, place) => head.setAttribute("aria-sort", this.columns[place].key !== sort ? "none" : descending ? "descending" : "ascending"));
    this.node.setAttribute("aria-rowcount", rows.length + 1);
    this.body.style.height = `${rows.length * ROW}px`;
    this.view.scrollTop = 0;
    this.draw();
  }

  draw() {
    const tall = this.view.clientHeight || 480;
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((this.view.scrollTop + tall) / ROW) + SPARE);
    const nodes = [];
    for (let place = first; place < last; place++) nodes.push(this.line(place));
    this.body.replaceChildren(...nodes);
  }

  line(place) {
    const row = this.rows[place];
    const isChosen = place === this.selected;
    return el("div", { class: `row${isChosen ? " chosen" : ""}`, role: "row", "aria-rowindex": place + 2, "aria-selected": String(isChosen), style: { top: `${place * ROW}px` }, onclick: () => this.select(place) },
      this.columns.map((column) => el("div", { role: "gridcell", class: `cell ${column.key}${column.numeric ? " number" : ""}`, dir: column.key === "text" ? "auto" : null }, column.show(row))));
  }

  select(place, { quiet = false } = {}) {
    if (!this.rows.length) return;
    this.selected = Math.max(0, Math.min(this.rows.length - 1, place));
    const top = this.selected * ROW;
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    else if (top + ROW > this.view.scrollTop + this.view.clientHeight) this.view.scrollTop = top + ROW - this.view.clientHeight;
    this.draw();
    if (!quiet) this.onselect(this.rows[this.selected]);
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.view.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) this.select(this.selected + moves[event.key]);
    else if (event.key === "Home") this.select(0);
    else if (event.key === "End") this.select(this.rows.length - 1);
    else return;
    event.preventDefault();
  }
}

// A text and the code of what was made of it (`3 ~cat -2 +the`) as pairs of words; null stands for no word.
function alignedPairs(reference, code) {
  const words = reference ? reference.split(" ") : [];
  const pairs = [];
  let place = 0;
  for (const part of code ? code.split(" ") : []) {
    const rest = part.slice(1);
    if (part[0] === "+") pairs.push([null, rest]);
    else if (part[0] === "~") pairs.push([words[place++], rest]);
    else if (part[0] === "-") for (let left = Number(rest); left > 0; left--) pairs.push([words[place++], null]);
    else for (let left = Number(part); left > 0; left--, place++) pairs.push([words[place], words[place]]);
  }
  for (; place < words.length; place++) pairs.push([words[place], words[place]]);
  return pairs;
}

function pairKind([wanted, found]) {
  return wanted === null ? "insertion" : found === null ? "deletion" : wanted === found ? "same" : "substitution";
}

function hypothesisOf(reference, code) {
  return alignedPairs(reference, code).map(([, found]) => found).filter((word) => word !== null).join(" ");
}

// Reference above hypothesis, word under word, in the direction of what it is in. `most` words around the first error, for a line of the table.
function alignment(pairs, most = Infinity) {
  const firstError = pairs.findIndex((pair) => pair[0] !== pair[1]);
  const from = most < pairs.length ? Math.max(0, Math.min(firstError - 3, pairs.length - most)) : 0;
  const shown = pairs.slice(from, from + most).map((pair) => {
    const kind = pairKind(pair);
    const wanted = el("span", { class: "wanted" }, pair[0] ?? "·");
    const found = el("span", { class: "found" }, kind === "same" ? "" : pair[1] ?? "·");
    return el("span", { class: `pair ${kind}`, title: kind === "same" ? null : kind }, wanted, found);
  });
  const before = from > 0 ? [el("span", { class: "pair more" }, el("span", { class: "wanted" }, "…"))] : [];
  const after = from + most < pairs.length ? [el("span", { class: "pair more" }, el("span", { class: "wanted" }, "…"))] : [];
  return el("span", { class: "alignment" }, ...before, ...shown, ...after);
}

// Several hypotheses under one reference, word under word: rows of [reference, first, second …].
function jointColumns(alignments) {
  const columns = [];
  const places = alignments.map(() => 0);
  const isInsertion = (pairs, place) => place < pairs.length && pairs[place][0] === null;
  for (;;) {
    while (alignments.some((pairs, system) => isInsertion(pairs, places[system]))) {
      columns.push([null, ...alignments.map((pairs, system) => (isInsertion(pairs, places[system]) ? pairs[places[system]++][1] : null))]);
    }
    if (places[0] >= alignments[0].length) return columns;
    columns.push([alignments[0][places[0]][0], ...alignments.map((pairs, system) => pairs[places[system]++][1])]);
  }
}

function jointAlignment(alignments, most) {
  const columns = jointColumns(alignments);
  const firstError = columns.findIndex((column) => column.some((word) => word !== column[0]));
  const from = most < columns.length ? Math.max(0, Math.min(firstError - 3, columns.length - most)) : 0;
  return el("span", { class: "alignment joint" }, columns.slice(from, from + most).map(([wanted, ...found]) => el("span", { class: "pair" }, el("span", { class: "wanted" }, wanted ?? "·"),
    found.map((word) => el("span", { class: `found ${wanted === null && word === null ? "" : pairKind([wanted, word])}` }, word === wanted ? "" : word ?? "·")))));
}

// Columns of few different texts: the texts, and the number of each row's.
function nameOf(column, row) {
  return column && column.codes[row] >= 0 ? column.names[column.codes[row]] : null;
}

// Whether a row is in a slice, by the name that the slice has. An address may name one that is not here any more.
function groupTest(set, kind, group) {
  const values = { duration: set.seconds, SNR: set.snr }[kind];
  if (values) {
    const [a, b] = (group.match(/-?[\d.]+/g) || []).map(Number);
    if (group.startsWith("<")) return (row) => values[row] !== null && values[row] < a;
    if (group.startsWith("≥")) return (row) => values[row] !== null && values[row] >= a;
    return (row) => values[row] !== null && values[row] >= a && values[row] < b;
  }
  const coded = { speaker: set.speakers, "data set": set.sets, language: set.languages }[kind] || set.labels[kind];
  const code = coded ? coded.names.indexOf(group) : -1;
  return (row) => code >= 0 && coded.codes[row] === code;
}
