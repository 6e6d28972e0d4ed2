// Systems side by side: what differs, whether it is chance, and every utterance that one of them has better.

class Comparison {
  constructor(data) {
    this.data = data;
    this.address = new AddressState({ set: "0", pair: "0", q: "", show: "all", by: "", group: "", sort: "", id: "" }, () => this.open());
    this.open();
    listenToKeys(() => this.browser);
  }

  get state() {
    return this.address.values;
  }

  open() {
    this.set = this.data.sets[Number(this.state.set)] || this.data.sets[0];
    this.pair = this.set.pairs[Number(this.state.pair)] || this.set.pairs[0];
    const place = (name) => this.set.systems.findIndex((each) => each.name === name);
    [this.first, this.second] = [place(this.pair.first), place(this.pair.second)];
    this.haystack = null;
    this.render();
  }

  render() {
    replaceContent(document.getElementById("page"), this.header(), this.scores(), this.speed(), this.slices(), this.words(), this.utterances(),
      el("footer", {}, el("div", { class: "command" }, el("code", {}, this.data.command), copyButton(() => this.data.command)),
        keysNote(this.data.made)));
    this.browser.refresh({ keepsRow: true });
  }

  header() {
    const choose = (name, labels) => chooser(name, labels.map((label, place) => [String(place), label]), this.state[name], (value) => { this.address.change({ [name]: value, id: "" }); this.open(); });
    return el("header", {},
      el("div", { class: "title" }, el("h1", {}, this.set.systems.map((each) => each.name).join(" vs. ")), el("p", { class: "muted" }, `${this.set.set} · ${plural(this.set.utterances, this.rowName())} in common${this.set.left_out ? `, ${count(this.set.left_out)} left out` : ""}`)),
      el("div", { class: "controls" }, choose("set", this.data.sets.map((each, place) => (place ? `retained: ${each.set}` : each.set))),
        choose("pair", this.set.pairs.map((each) => `${each.second} − ${each.first}`)), copyButton(() => location.href, "copy link"), themeButton()));
  }

  scores() {
    const { systems, pairs, label, isGood } = this.set;
    const highest = Math.max(...systems.map((each) => each.high ?? each.value), 1e-9);
    const most = this.set.unit === "%" ? Math.max(100 * isGood, highest) : 1.15 * highest;
    const cards = systems.map((each, place) => el("div", { class: `card metric${place === this.second ? " first" : ""}` }, el("p", { class: "label" }, each.name),
      el("p", { class: "value" }, number(each.value), el("small", {}, ` ${this.set.unit} ${label}`)), intervalBar(each.value, each.low, each.high, most, isGood ? "good" : ""),
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
    const points = known.map((each) => ({ x: each.speed, y: each.value, size: 6, name: each.name, title: `${each.name}: ${withUnit(each.value, this.set.unit)}, ${number(each.speed, 0)} × real time`, class: "chosen" }));
    return section("speed", `${this.set.label} against speed`, "as measured when each was scored", el("figure", { class: "card" }, scatter(points, { x: "× real time", y: [this.set.label, this.set.unit].filter(Boolean).join(", "), logX: true, labels: true, width: 900, height: 300 })));
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
      { title: "p, Holm", value: (row) => row[8], show: (row) => el("span", { class: row[9] ? (row[5] < 0) === !this.set.isGood ? "won" : "lost" : "muted" }, pText(row[8])) },
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

  rowName() {
    return this.set.kind === "trials" ? "trial" : "utterance";
  }

  // What a system makes of a row, in a word.
  verdict(row, system) {
    const { kind, wrong, sizes, found } = this.set;
    if (kind === "values") return found[system][row];
    if (kind === "text") return `${wrong[system][row]} / ${sizes[row]}`;
    return wrong[system][row] ? "wrong" : "right";
  }

  aligned(row, system, most) {
    const { kind, references, found, wrong } = this.set;
    if (kind === "text") return alignment(alignedPairs(references[row], found[system][row]), most);
    const isRight = kind !== "values" && !wrong[system][row];
    const shown = kind === "labels" && !isRight ? `${references[row]} → ${found[system][row]}` : found[system][row];
    return el("span", { class: `plain ${kind === "values" ? "" : isRight ? "right" : "wrong"}` }, shown);
  }

  together(row, most = 22) {
    const { references, found, kind } = this.set;
    const pair = [this.first, this.second];
    if (kind === "text") return jointAlignment(pair.map((system) => alignedPairs(references[row], found[system][row])), most);
    return el("span", { class: "plain" }, [references[row], ...pair.map((system) => found[system][row])].filter(Boolean).join(" · "));
  }

  utterances() {
    const { set } = this;
    const digits = set.kind === "values" ? 2 : 0;
    const mark = (row) => (this.gain(row) > 0 ? "won" : this.gain(row) < 0 ? "lost" : "muted");
    const columns = [
      { key: "id", title: this.rowName(), value: (row) => set.ids[row], show: (row) => el("span", { class: "id" }, set.ids[row]) },
      { key: "gain", title: "won", numeric: true, value: (row) => this.gain(row), show: (row) => el("span", { class: mark(row) }, signed(this.gain(row), digits)) },
      ...[this.first, this.second].map((system, place) => ({ key: `system${place}`, title: set.systems[system].name, numeric: true, value: (row) => set.wrong[system][row], show: (row) => this.verdict(row, system) })),
      set.kind === "values" ? null : { key: "text", title: `reference, ${this.pair.first}, ${this.pair.second}`, value: (row) => set.references[row], show: (row) => this.together(row) },
    ].filter(Boolean);
    this.kinds = ["all", "won", "lost", "different"].map((kind) => el("button", { type: "button", class: "tab", "data-kind": kind, onclick: () => this.filter({ show: kind }, { jump: false }) }, kind));
    this.browser = new UtteranceBrowser({
      address: this.address, ids: set.ids, unit: this.rowName(), columns, defaultSort: "-gain", matching: () => this.matching(), detail: (row) => this.details(row),
      status: () => (this.state.group ? ` · ${this.state.by}: ${this.state.group}` : ""),
      onrefresh: (rows) => { this.kinds.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.kind === this.state.show))); this.print(rows); },
    });
    this.printed = el("div", { class: "printed" });
    const meaning = { text: "has fewer errors than", values: "has a better score than" }[set.kind] || "is right, unlike";
    return section("utterances", set.kind === "trials" ? "Trials" : "Utterances", `won: ${this.pair.second} ${meaning} ${this.pair.first}`,
      el("div", { class: "toolbar" }, this.browser.search, ...this.kinds, el("button", { type: "button", class: "quiet", onclick: () => { this.address.change({ q: "", show: "all", by: "", group: "", id: "" }); this.render(); } }, "clear"), this.browser.found),
      this.browser.node, this.printed);
  }

  // What a printer gets of the table: the first rows as they are sorted.
  print(rows) {
    replaceContent(this.printed, rows.slice(0, 40).map((row) => el("div", {}, el("b", {}, this.set.ids[row]), ` ${signed(this.gain(row), this.set.kind === "values" ? 2 : 0)}`, el("div", { dir: "auto" }, this.together(row, Infinity)))));
  }

  filter(values, options) {
    this.browser.filter(values, options);
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

  details(row) {
    const { set } = this;
    const link = linkTo(set.places[row] ? null : set.audio[row], this.data.folder, set.starts[row], set.seconds[row]);
    const verdict = (place) => (set.kind === "text" ? plural(set.wrong[place][row], "error") : this.verdict(row, place));
    const both = set.systems.map((system, place) => el("div", { class: "card" }, el("h4", {}, `${system.name}: ${verdict(place)}`), set.kind === "values" ? null : el("div", { class: "aligned", dir: "auto" }, this.aligned(row, place, Infinity))));
    this.keepInSync(both);
    return [el("h3", {}, set.ids[row]), set.kind === "trials" ? el("p", { class: "muted" }, set.references[row]) : player(set.sounds[row], link, `Recording of ${set.ids[row]}`, set.seconds[row]), el("div", { class: "side" }, both),
      factList([["seconds", number(set.seconds[row])], ["speaker", nameOf(set.speakers, row)], ["language", nameOf(set.languages, row)], ["audio", set.audio[row]]])];
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
}

function signed(value, digits = 2) {
  return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${number(Math.abs(value), digits)}`;
}

function pText(p) {
  return p < 0.001 ? "< 0.001" : number(p, 3);
}

readData().then((data) => { window.page = new Comparison(data); });
