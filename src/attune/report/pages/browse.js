// What pages with a table of utterances share: the state in the address, search, filters, sorting, the chosen one, keys.

// What is shown is in the address. `open` draws it all anew.
class AddressState {
  constructor(defaults, open) {
    this.values = { ...defaults, ...readHash() };
    window.addEventListener("hashchange", () => { this.values = { ...defaults, ...readHash() }; open(); });
  }

  change(values) {
    Object.assign(this.values, values);
    writeHash(this.values);
  }
}

function chooser(name, options, value, onchange) {
  if (options.length < 2) return null;
  return el("label", {}, el("span", { class: "visually-hidden" }, name),
    el("select", { id: name, onchange: (event) => onchange(event.target.value) }, options.map(([key, label]) => el("option", { value: key, selected: key === value }, label))));
}

function factList(facts) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== "–");
  return el("dl", { class: "facts" }, known.map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]).flat());
}

function keysNote(made) {
  return el("p", { class: "muted" }, `Made by attune on ${made}. Keys: / search, ↑ ↓ choose, Enter play, t light or dark, Esc clear.`);
}

// address: an AddressState. ids: of all rows. defaultSort: a column's key, "-" before it for descending.
// matching() → rows, detail(row) → nodes, status(rows) → text after the count, onrefresh(rows).
class UtteranceBrowser {
  constructor({ address, ids, unit = "utterance", columns, defaultSort, matching, detail, status = () => "", onrefresh = () => {} }) {
    Object.assign(this, { address, ids, unit, defaultSort, matching, detail, status, onrefresh });
    this.table = new UtteranceTable({ columns, label: "Utterances", onsort: (key) => this.sortBy(key), onselect: (row) => { address.change({ id: ids[row] }); this.show(row); } });
    this.pane = el("aside", { class: "detail", "aria-label": `The chosen ${unit}`, "aria-live": "polite" });
    this.found = el("span", { class: "muted", role: "status" });
    this.search = el("input", { type: "search", id: "search", placeholder: "search texts and ids  ( / )", "aria-label": "Search texts and ids", value: address.values.q, oninput: (event) => this.filter({ q: event.target.value }, { jump: false }) });
    this.node = el("div", { class: "master" }, this.table.node, this.pane);
  }

  filter(values, { jump = true } = {}) {
    this.address.change({ ...values, id: "" });
    if (this.search.value !== this.address.values.q) this.search.value = this.address.values.q;
    this.refresh();
    if (jump) document.getElementById("utterances").scrollIntoView({ behavior: "smooth" });
  }

  sorting() {
    const chosen = this.address.values.sort || this.defaultSort;
    const column = this.table.columns.find((each) => each.key === chosen.replace("-", "")) || this.table.columns[0];
    return { column, descending: chosen.startsWith("-") };
  }

  // Figures begin with the largest, texts with the first.
  sortBy(key) {
    const { column, descending } = this.sorting();
    const first = this.table.columns.find((each) => each.key === key).numeric;
    this.address.change({ sort: (column.key === key ? !descending : first) ? `-${key}` : key });
    this.refresh();
  }

  refresh({ keepsRow = false } = {}) {
    const { column, descending } = this.sorting();
    const rows = this.matching();
    const values = rows.map(column.value);
    const sign = descending ? -1 : 1;
    const compare = typeof values[0] === "string"
      ? (a, b) => sign * (values[a] < values[b] ? -1 : values[a] > values[b] ? 1 : 0) || a - b
      : (a, b) => sign * ((values[a] ?? -Infinity) - (values[b] ?? -Infinity)) || a - b;
    const sorted = rows.map((_, place) => place).sort(compare).map((place) => rows[place]);
    this.table.show(sorted, { sort: column.key, descending });
    this.found.textContent = `${count(rows.length)} of ${plural(this.ids.length, this.unit)}${this.status(rows)}`;
    const { id } = this.address.values;
    const chosen = keepsRow && id ? Math.max(0, sorted.indexOf(this.ids.indexOf(id))) : 0;
    if (sorted.length) { this.table.select(chosen, { quiet: true }); this.show(sorted[chosen]); }
    else replaceContent(this.pane, el("p", { class: "muted" }, `No ${this.unit} fits.`));
    this.onrefresh(sorted);
  }

  show(row) {
    replaceContent(this.pane, this.detail(row));
  }

  onKey(event) {
    if (event.key === "Escape") { if (event.target !== this.search || !this.search.value) this.search.blur(); this.filter({ q: "" }, { jump: false }); return; }
    if (event.key === "ArrowDown" && event.target === this.search) { event.preventDefault(); this.table.view.focus(); return; }
    if (isTyping(event)) return;
    if (event.key === "/") { event.preventDefault(); this.search.focus(); }
    else if ((event.key === "Enter" || event.key === " ") && event.target === this.table.view) {
      const audio = this.pane.querySelector("audio");
      if (audio) { event.preventDefault(); audio.paused ? audio.play().catch(() => {}) : audio.pause(); }
    }
  }
}

// `browser()` is the one on the page, if there is one.
function listenToKeys(browser) {
  document.addEventListener("keydown", (event) => {
    if (event.key === "t" && !isTyping(event)) switchTheme();
    else browser()?.onKey(event);
  });
}
