// Systems side by side: what differs, whether it is chance, and every utterance that one of them has better.

class Comparison {
  constructor(data) {
    this.data = data;
    this.state = { set: "0", pair: "0", q: "", show: "all", by: "", group: "", sort: "", id: "", ...readHash() };
    this.open();
    document.addEventListener("keydown", (event) => this.onKey(event));
    window.addEventListener("hashchange", () => { this.state = { ...this.state, ...readHash() }; this.open(); });
  }

  open() {
    this.set = this.data.sets[Number(this.state.set)] || this.data.sets[0];
    this.pair = this.set.pairs[Number(this.state.pair)] || this.set.pairs[0];
    const place = (name) => this.set.systems.findIndex((each) => each.name === name);
    [this.first, this.second] = [place(this.pair.first), place(this.pair.second)];
    this.haystack = null;
    this.render();
  }

  change(values) {
    Object.assign(this.state, values);
    writeHash(this.state);
  }

  render() {
    replaceContent(document.getElementById("page"), this.header(), this.scores(), this.speed(), this.slices(), this.words(), this.utterances(),
      el("footer", {}, el("div", { class: "command" }, el("code", {}, this.data.command), copyButton(() => this.data.command)),
        el("p", { class: "muted" }, `Made by attune on ${this.data.made}. Keys: / search, ↑ ↓ choose, Enter play, t light or dark, Esc clear.`)));
    this.refresh({ keepsRow: true });
  }

  header() {
    const choose = (name, options, value) => options.length < 2 ? null : el("label", {}, el("span", { class: "visually-hidden" }, name),
      el("select", { id: name, onchange: (event) => { this.change({ [name]: event.target.value, id: "" }); this.open(); } }, options.map((label, place) => el("option", { value: String(place), selected: String(place) === value }, label))));
    return el("header", {},
      el("div", { class: "title" }, el("h1", {}, this.set.systems.map((each) => each.name).join(" vs. ")), el("p", { class: "muted" }, `${this.set.set} · ${plural(this.set.utterances, "utterance")} in common${this.set.left_out ? `, ${count(this.set.left_out)} left out` : ""}`)),
      el("div", { class: "controls" }, choose("set", this.data.sets.map((each, place) => (place ? `retained: ${each.set}` : each.set)), this.state.set),
        choose("pair", this.set.pairs.map((each) => `${each.second} − ${each.first}`), this.state.pair), copyButton(() => location.href, "copy link"), themeButton()));
  }

  scores() {
    const { systems, pairs, label } = this.set;
    const isGood = this.set.kind === "labels";
    const most = Math.max(100 * isGood, ...systems.map((each) => each.high ?? each.value), 1);
    const cards = systems.map((each, place) => el("div", { class: `card metric${place === this.second ? " first" : ""}` }, el("p", { class: "label" }, each.name),
      el("p", { class: "value" }, number(each.value), el("small", {}, ` % ${label}`)), intervalBar(each.value, each.low, each.high, most, isGood ? "good" : ""),
      el("p", { class: "muted" }, `95 % interval ${number(each.low)} – ${number(each.high)}`)));
    const tests = Object.keys(this.pair.p);
    const table = smallTable([
      { title: "second − first", value: (row) => row.second, show: (row) => `${row.second} − ${row.first}`, numeric: false },
      { title: `difference in ${label}`, value: (row) => row.difference, show: (row) => signed(row.difference) },
      { title: "95 % interval", value: (row) => row.low, show: (row) => `${signed(row.low)} – ${signed(row.high)}` },
      ...tests.map((name) => ({ title: `p, ${this.data.tests[name]}`, value: (row) => row.p_holm[name], show: (row) => pText(row.p_holm[name]) })),
      { title: "won", value: (row) => row.won, show: (row) => count(row.won) }, { title: "lost", value: (row) => row.lost, show: (row) => count(row.lost) },
      { title: "", value: (row) => Number(row.significant), show: (row) => el("span", { class: row.significant ? (row.difference < 0) === !isGood ? "won" : "lost" : "muted" }, row.significant ? "significant" : "may be chance") },
    ], pairs, { sort: 1, descending: false, label: "Differences" });
    return section("scores", "Scores", pairs.length > 1 ? `p values corrected by Holm for ${pairs.length} pairs` : "", el("div", { class: "cards" }, cards), table);
  }

  speed() {
    const known = this.set.systems.filter((each) => each.speed);
    if (known.length < 2) return null;
    const points = known.map((each) => ({ x: each.speed, y: each.value, size: 6, name: each.name, title: `${each.name}: ${number(each.value)} %, ${number(each.speed, 0)} × real time`, class: "chosen" }));
    return section("speed", `${this.set.label} against speed`, "as measured when each was scored", el("figure", { class: "card" }, scatter(points, { x: "× real time", y: `${this.set.label}, %`, logX: true, labels: true, width: 900, height: 300 })));
  }

  slices() {
    const rows = this.set.slices;
    if (!rows.length) return null;
    const [first, last] = [this.set.systems[0].name, this.set.systems[this.set.systems.length - 1].name];
    return section("slices", "Slices", `${last} − ${first}, the largest differences first`, smallTable([
      { title: "slice", value: (row) => `${row[0]}: ${row[1]}`, numeric: false },
      { title: "utterances", value: (row) => row[2], show: (row) => count(row[2]) },
      { title: first, value: (row) => row[3], show: (row) => number(row[3]) }, { title: last, value: (row) => row[4], show: (row) => number(row[4]) },
      { title: "difference", value: (row) => Math.abs(row[5]), show: (row) => signed(row[5]) },
      { title: "95 % interval", value: (row) => row[6], show: (row) => `${signed(row[6])} – ${signed(row[7])}` },
      { title: "p, Holm", value: (row) => row[8], show: (row) => el("span", { class: row[9] ? (row[5] < 0) === (this.set.kind === "text") ? "won" : "lost" : "muted" }, pText(row[8])) },
    ], rows, { sort: 4, label: "Slices where the systems differ", onpick: (row) => this.filter({ by: row[0], group: row[1] }) }));
  }

  words() {
    const { vocabulary } = this.set;
    if (!vocabulary.length) return null;
    const part = (row, system) => (100 * row[2 + system]) / row[1];
    const points = vocabulary.map((row) => ({ word: row[0], x: part(row, this.first), y: part(row, this.second), size: Math.min(10, 2 + Math.sqrt(row[1]) / 3), class: part(row, this.second) < part(row, this.first) ? "worse" : "", title: `${row[0]}, ${plural(row[1], "time")}: ${number(part(row, this.first), 0)} % and ${number(part(row, this.second), 0)} % right` }));
    const table = smallTable([
      { title: "word", value: (row) => row[0], numeric: false }, { title: "times", value: (row) => row[1], show: (row) => count(row[1]) },
      { title: this.pair.first, value: (row) => part(row, this.first), show: (row) => number(part(row, this.first), 0) }, { title: this.pair.second, value: (row) => part(row, this.second), show: (row) => number(part(row, this.second), 0) },
      { title: "words won", value: (row) => row[2 + this.second] - row[2 + this.first], show: (row) => signed(row[2 + this.second] - row[2 + this.first], 0) },
    ], vocabulary, { sort: 4, label: "Words", onpick: (row) => this.filter({ q: row[0] }) });
    return section("words", "Words", "accuracy of each frequent word, in %; larger points are more frequent", el("div", { class: "two" },
      el("figure", { class: "card" }, scatter(points, { x: `${this.pair.first}, % right`, y: `${this.pair.second}, % right`, diagonal: true, low: -4, high: 104, onpick: (point) => this.filter({ q: point.word }) })), table));
  }

  gain(row) {
    return this.set.wrong[this.first][row] - this.set.wrong[this.second][row];
  }

  aligned(row, system, most) {
    const [reference, found] = [this.set.references[row], this.set.found[system][row]];
    if (this.set.kind === "text") return alignment(alignedPairs(reference, found), most);
    return el("span", { class: `plain ${reference === found ? "right" : "wrong"}` }, reference === found ? reference : `${reference} → ${found}`);
  }

  together(row) {
    const { references, found, kind } = this.set;
    const pair = [this.first, this.second];
    if (kind === "text") return jointAlignment(pair.map((system) => alignedPairs(references[row], found[system][row])), 22);
    return el("span", { class: "plain" }, [references[row], ...pair.map((system) => found[system][row])].join(" · "));
  }

  utterances() {
    const { set } = this;
    const columns = [
      { key: "id", title: "utterance", value: (row) => set.ids[row], show: (row) => el("span", { class: "id" }, set.ids[row]) },
      { key: "gain", title: "won", numeric: true, value: (row) => this.gain(row), show: (row) => el("span", { class: this.gain(row) > 0 ? "won" : this.gain(row) < 0 ? "lost" : "muted" }, signed(this.gain(row), 0)) },
      ...[this.first, this.second].map((system, place) => ({ key: `system${place}`, title: set.systems[system].name, numeric: true, value: (row) => set.wrong[system][row], show: (row) => (set.kind === "text" ? `${set.wrong[system][row]} / ${set.sizes[row]}` : set.wrong[system][row] ? "wrong" : "right") })),
      { key: "text", title: `reference, ${this.pair.first}, ${this.pair.second}`, value: (row) => set.references[row], show: (row) => this.together(row) },
    ];
    this.table = new UtteranceTable({ columns, label: "Utterances", onsort: (key) => this.sortBy(key), onselect: (row) => { this.change({ id: set.ids[row] }); this.showDetail(row); } });
    this.detail = el("aside", { class: "detail", "aria-label": "The chosen utterance", "aria-live": "polite" });
    this.found = el("span", { class: "muted", role: "status" });
    this.search = el("input", { type: "search", id: "search", placeholder: "search texts and ids  ( / )", "aria-label": "Search texts and ids", value: this.state.q, oninput: (event) => this.filter({ q: event.target.value }, { jump: false }) });
    this.kinds = ["all", "won", "lost", "different"].map((kind) => el("button", { type: "button", class: "tab", "data-kind": kind, onclick: () => this.filter({ show: kind }, { jump: false }) }, kind));
    return section("utterances", "Utterances", `won: ${this.pair.second} has fewer errors than ${this.pair.first}`,
      el("div", { class: "toolbar" }, this.search, ...this.kinds, el("button", { type: "button", class: "quiet", onclick: () => { this.change({ q: "", show: "all", by: "", group: "", id: "" }); this.render(); } }, "clear"), this.found),
      el("div", { class: "master" }, this.table.node, this.detail));
  }

  filter(values, { jump = true } = {}) {
    this.change({ ...values, id: "" });
    if (this.search.value !== this.state.q) this.search.value = this.state.q;
    this.refresh();
    if (jump) document.getElementById("utterances").scrollIntoView({ behavior: "smooth" });
  }

  sortBy(key) {
    const now = this.state.sort || "-gain";
    this.change({ sort: now === `-${key}` ? key : `-${key}` });
    this.refresh();
  }

  refresh({ keepsRow = false } = {}) {
    const chosen = this.state.sort || "-gain";
    const column = this.table.columns.find((each) => each.key === chosen.replace("-", "")) || this.table.columns[1];
    const sign = chosen.startsWith("-") ? -1 : 1;
    const rows = this.matching().map((row) => [column.value(row), row]).sort(([a, x], [b, y]) => sign * (a < b ? -1 : a > b ? 1 : 0) || x - y).map(([, row]) => row);
    this.table.show(rows, { sort: column.key, descending: sign < 0 });
    this.kinds.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.kind === this.state.show)));
    this.found.textContent = `${count(rows.length)} of ${plural(this.set.ids.length, "utterance")}${this.state.group ? ` · ${this.state.by}: ${this.state.group}` : ""}`;
    const place = keepsRow && this.state.id ? Math.max(0, rows.indexOf(this.set.ids.indexOf(this.state.id))) : 0;
    if (rows.length) { this.table.select(place, { quiet: true }); this.showDetail(rows[place]); }
    else replaceContent(this.detail, el("p", { class: "muted" }, "No utterance fits."));
  }

  matching() {
    const { set, state } = this;
    const wanted = state.q.trim().toLowerCase();
    const output = (row, system) => (set.kind === "text" ? hypothesisOf(set.references[row], set.found[system][row]) : set.found[system][row]);
    if (wanted && !this.haystack) this.haystack = set.ids.map((id, row) => `${id}\n${set.references[row]}\n${output(row, this.first)}\n${output(row, this.second)}`.toLowerCase());
    const fits = { all: () => true, won: (row) => this.gain(row) > 0, lost: (row) => this.gain(row) < 0, different: (row) => set.found[this.first][row] !== set.found[this.second][row] }[state.show] || (() => true);
    const isInGroup = state.group ? groupTest(set, state.by, state.group) : () => true;
    return set.ids.map((_, row) => row).filter((row) => fits(row) && isInGroup(row) && (!wanted || this.haystack[row].includes(wanted)));
  }

  showDetail(row) {
    const { set } = this;
    const link = linkTo(set.places[row] ? null : set.audio[row], this.data.folder, set.starts[row], set.seconds[row]);
    const both = set.systems.map((system, place) => el("div", { class: "card" }, el("h4", {}, `${system.name}: ${set.kind === "text" ? plural(set.wrong[place][row], "error") : set.wrong[place][row] ? "wrong" : "right"}`), el("div", { class: "aligned" }, this.aligned(row, place, Infinity))));
    this.keepInSync(both);
    replaceContent(this.detail, el("h3", {}, set.ids[row]), player(set.sounds[row], link, `Recording of ${set.ids[row]}`), el("div", { class: "side" }, both),
      el("dl", { class: "facts" }, [["seconds", number(set.seconds[row])], ["speaker", nameOf(set.speakers, row)], ["language", nameOf(set.languages, row)], ["audio", set.audio[row]]].filter(([, value]) => value && value !== "–").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat()));
  }

  // Pointing at a reference word marks the same word in every system.
  keepInSync(cards) {
    const words = cards.map((card) => {
      let place = 0;
      return [...card.querySelectorAll(".pair")].map((pair) => [pair.classList.contains("insertion") ? -1 : place++, pair]);
    });
    const mark = (place) => words.flat().forEach(([own, pair]) => pair.classList.toggle("pointed", place >= 0 && own === place));
    words.flat().forEach(([place, pair]) => { pair.addEventListener("pointerenter", () => mark(place)); pair.addEventListener("pointerleave", () => mark(-1)); });
  }

  onKey(event) {
    if (event.key === "Escape") { this.search.blur(); this.filter({ q: "" }, { jump: false }); return; }
    if (isTyping(event)) return;
    if (event.key === "/") { event.preventDefault(); this.search.focus(); }
    else if (event.key === "t") switchTheme();
    else if (event.key === "Enter" && event.target === this.table.view) {
      const audio = this.detail.querySelector("audio");
      if (audio) { event.preventDefault(); audio.paused ? audio.play().catch(() => {}) : audio.pause(); }
    }
  }
}

function signed(value, digits = 2) {
  return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${number(Math.abs(value), digits)}`;
}

function pText(p) {
  return p < 0.001 ? "< 0.001" : number(p, 3);
}

readData().then((data) => { window.page = new Comparison(data); });
