// The report of one run or several: summary, curves, parts, errors, every utterance, and where it all comes from.

const ERRORS = ["insertions", "deletions", "substitutions"];

class Report {
  constructor(data) {
    this.data = data;
    this.address = new AddressState({ run: "0", set: "", q: "", flag: "", by: "", group: "", from: "", to: "", errors: "", sort: "", id: "" }, () => this.open());
    this.open();
    listenToKeys(() => this.browser);
  }

  get state() {
    return this.address.values;
  }

  open() {
    this.run = this.data.runs[Number(this.state.run)] || this.data.runs[0];
    const names = this.run.sets.map((each) => each.name);
    if (!names.includes(this.state.set)) this.state.set = names.includes("test") ? "test" : names[0] || "";
    this.set = this.run.sets.find((each) => each.name === this.state.set) || null;
    this.haystack = null;
    this.browser = null;
    this.render();
  }

  render() {
    const { run, set } = this;
    const parts = [set ? this.summary() : this.nothing(),
      this.curves(), set ? this.slices() : null, set ? this.errors() : null, set ? this.taskPart() : null,
      set ? this.utterances() : null, set ? this.normalizer() : null, this.origin()];
    replaceContent(document.getElementById("page"), this.header(parts),
      run.notes.length ? el("div", { class: "notes" }, run.notes.map((note) => el("p", {}, note))) : null, parts, this.footer());
    if (set) this.browser.refresh({ keepsRow: true });
  }

  // Evaluations during training keep scores and no predictions.
  nothing() {
    return el("p", { class: "muted" }, "No predictions yet. Decode a set, then make the report again: ", el("code", {}, "attune evaluate RUN --on dev"), " · ", el("code", {}, "attune report RUN"));
  }

  header(parts) {
    const links = parts.filter((part) => part && ["summary", "curves", "slices", "errors", "utterances", "origin"].includes(part.id)).map((part) => [part.id, part.getAttribute("aria-label")]);
    const runs = this.data.runs.map((each, place) => [String(place), each.name]);
    const sets = this.run.sets.map((each) => [each.name, `${each.name} · ${plural(each.ids.length, "utterance")}`]);
    return el("header", {},
      el("div", { class: "title" }, el("h1", {}, this.run.name), el("p", { class: "muted" }, [this.run.task, this.run.model, this.run.state, this.run.best].filter(Boolean).join(" · "))),
      el("nav", { "aria-label": "Sections" }, links.map(([id, title]) => el("a", { href: `#${id}`, onclick: (event) => { event.preventDefault(); document.getElementById(id)?.scrollIntoView({ behavior: "smooth" }); } }, title))),
      el("div", { class: "controls" },
        chooser("run", runs, this.state.run, (value) => { this.reset(); this.address.change({ run: value, set: "" }); this.open(); }),
        chooser("set", sets, this.state.set, (value) => { this.reset(); this.address.change({ set: value }); this.open(); }),
        copyButton(() => location.href, "copy link"), themeButton()));
  }

  reset() {
    this.address.change({ q: "", flag: "", by: "", group: "", from: "", to: "", errors: "", id: "" });
  }

  summary() {
    const { metrics, conditions, counts } = this.set;
    const cards = metrics.map((metric, place) => {
      const most = metric.unit === "%" ? Math.max(100, metric.high ?? metric.value) : Math.max(metric.high ?? metric.value, 1e-9) * 1.15;
      const interval = metric.low === null || metric.low === undefined ? "" : `95 % interval ${number(metric.low)} – ${number(metric.high)}`;
      return el("div", { class: `card metric${place ? "" : " first"}` },
        el("p", { class: "label" }, metric.label), el("p", { class: "value" }, number(metric.value), el("small", {}, ` ${metric.unit || ""}`)),
        metric.value === undefined ? null : intervalBar(metric.value, metric.low, metric.high, most, metric.higher_is_better ? "good" : ""), el("p", { class: "muted" }, interval || "no interval"));
    });
    const errors = this.set.kind !== "text" ? null : stackedBar(ERRORS.map((name) => ({ name, class: name.slice(0, -1), value: sum(this.set[name]) })));
    const facts = [...Object.entries(conditions), ...Object.entries(counts).map(([name, value]) => [name.replaceAll("_", " "), count(value)])];
    return section("summary", "Summary", `${this.set.name}, ${plural(this.set.ids.length, "utterance")}${this.hours()}`,
      el("div", { class: "cards" }, cards), errors,
      el("details", {}, el("summary", {}, "Counts and conditions"), factList(facts)));
  }

  hours() {
    const total = sum(this.set.seconds);
    return total ? `, ${total >= 3600 ? `${number(total / 3600, 1)} h` : `${number(total / 60, 1)} min`}` : "";
  }

  curves() {
    const { curves } = this.run;
    if (!curves.length) return section("curves", "Curves", "", el("p", { class: "muted" }, "The log has no figures to draw."));
    return section("curves", "Curves", "over the steps of training", el("div", { class: "charts" }, curves.map((each) => lineChart(each.title, [each]))));
  }

  slices() {
    const kinds = Object.keys(this.set.slices);
    if (!kinds.length) return null;
    const body = el("div");
    const unit = this.rateName();
    const show = (kind) => {
      buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === kind)));
      const rows = this.set.slices[kind];
      const most = Math.max(...rows.map((row) => row[4] ?? row[2]), 1);
      const isOrdered = kind === "duration" || kind === "SNR";
      const place = (row) => Number((row[0].match(/[\d.]+/) || ["0"])[0]) + (row[0].startsWith("<") ? -1 : 0);
      replaceContent(body, smallTable([
        { title: kind, value: isOrdered ? place : (row) => row[0], numeric: false, show: (row) => row[0] },
        { title: "utterances", value: (row) => row[1], show: (row) => count(row[1]) },
        { title: unit, value: (row) => row[2], show: (row) => number(row[2]) },
        { title: "95 % interval", value: (row) => row[3], show: (row) => `${number(row[3])} – ${number(row[4])}` },
        { title: "", value: (row) => row[2], show: (row) => intervalBar(row[2], row[3], row[4], most, this.set.kind === "labels" ? "good" : "") },
      ], rows, { sort: isOrdered ? 0 : 2, descending: !isOrdered && this.set.kind !== "labels", label: `Scores by ${kind}`, onpick: (row) => this.filter({ by: kind, group: row[0] }) }));
    };
    const buttons = kinds.map((kind) => el("button", { type: "button", class: "tab", onclick: () => show(kind) }, kind));
    show(kinds[0]);
    return section("slices", "Slices", "choose one to see its utterances", el("div", { class: "tabs", role: "group", "aria-label": "Kind of slice" }, buttons), body);
  }

  rateName() {
    if (this.set.kind === "labels") return "accuracy, %";
    return this.set.metrics.some((each) => each.name === "per") ? "PER, %" : "WER, %";
  }

  errors() {
    const { set } = this;
    if (set.kind === "labels") {
      const { names, counts, different } = set.matrix;
      const note = different > names.length ? `the ${names.length} most frequent of ${different} labels` : plural(names.length, "label");
      return section("errors", "Confusions", note, confusionMatrix(names, counts, (wanted, found) => this.filter({ errors: `${wanted} → ${found}` })));
    }
    if (set.kind !== "text") return null;
    const shown = ([wanted, found]) => el("span", { class: "confusion" }, el("span", { class: wanted === null ? "none" : "" }, wanted ?? "inserted"), " → ", el("span", { class: found === null ? "none" : "" }, found ?? "deleted"));
    const name = ([wanted, found]) => `${wanted ?? ""} → ${found ?? ""}`;
    const confusions = smallTable([
      { title: "reference → hypothesis", value: name, show: shown, numeric: false },
      { title: "times", value: (row) => row[2], show: (row) => count(row[2]) },
    ], set.confusions, { sort: 1, label: "Most confused words", onpick: (row) => this.filter({ errors: name(row) }), empty: "No word is confused." });
    const words = el("div");
    const draw = (text) => replaceContent(words, smallTable([
      { title: "word", value: (row) => row[0], numeric: false },
      { title: "times", value: (row) => row[1], show: (row) => count(row[1]) },
      { title: "wrong", value: (row) => row[1] - row[2], show: (row) => count(row[1] - row[2]) },
      { title: "accuracy, %", value: (row) => row[2] / row[1], show: (row) => number((100 * row[2]) / row[1], 1) },
    ], set.vocabulary.filter((row) => row[0].includes(text)), { sort: 2, label: "Accuracy of each word", onpick: (row) => this.filter({ q: row[0] }) }));
    const find = el("input", { type: "search", placeholder: "find a word", "aria-label": "Find a word", oninput: (event) => draw(event.target.value.trim()) });
    draw("");
    return section("errors", "Errors", `${plural(set.differentWords, "different word")}`,
      el("div", { class: "two" }, el("div", {}, el("h3", {}, "Most confused"), confusions), el("div", {}, el("h3", {}, "Each word", find), words)));
  }

  taskPart() {
    if (!this.set.trials) return null;
    const { det, eer, histogram: bars } = this.set.trials;
    return section("errors", "Trials", `equal error rate ${number(eer)} %`, el("div", { class: "two" },
      el("figure", { class: "card" }, el("figcaption", {}, "DET curve"), detCurve(det, eer)), el("figure", { class: "card" }, el("figcaption", {}, "Scores"), histogram(bars))));
  }

  // Utterances: what is filtered, sorted and chosen is in the address.

  rate(row) {
    const { set } = this;
    if (this.isAbsent(row)) return null;
    if (set.kind === "text") return set.words[row] ? (100 * this.errorCount(row)) / set.words[row] : this.errorCount(row) ? 100 : 0;
    if (set.kind === "labels") return set.texts[row][0] === set.texts[row][1] ? 0 : 100;
    return set.values.length ? set.values[row] : null;
  }

  // Without a prediction, a text has no code.
  isAbsent(row) {
    return this.set.kind === "text" && this.set.texts[row][1] === null;
  }

  errorCount(row) {
    const { insertions, deletions, substitutions } = this.set;
    return insertions[row] + deletions[row] + substitutions[row];
  }

  columns() {
    const { set } = this;
    const isText = set.kind === "text";
    const values = !isText && set.kind !== "labels" && set.values.length;
    return [
      { key: "id", title: "utterance", value: (row) => set.ids[row], show: (row) => el("span", { class: "id" }, set.ids[row], this.flagMarks(row)) },
      { key: "seconds", title: "seconds", numeric: true, value: (row) => set.seconds[row], show: (row) => number(set.seconds[row], 1) },
      isText ? { key: "errors", title: "errors", numeric: true, value: (row) => (this.isAbsent(row) ? null : this.errorCount(row)), show: (row) => (this.isAbsent(row) ? "–" : `${this.errorCount(row)} / ${set.words[row]}`) } : null,
      isText || set.kind === "labels" || values ? { key: "rate", title: isText ? this.rateName() : values ? set.metrics[0].label : "error, %", numeric: true, value: (row) => this.rate(row), show: (row) => number(this.rate(row), values ? 2 : 0) } : null,
      { key: "text", title: isText ? "reference over hypothesis" : set.kind === "trials" ? "reference" : "reference → predicted", value: (row) => String(set.texts[row][0]), show: (row) => this.shortText(row) },
    ].filter(Boolean);
  }

  flagMarks(row) {
    const names = this.flagNames(row);
    return names.length ? el("span", { class: "marks" }, names.map((name) => el("span", { class: `mark ${name}`, title: this.set.flags.names[name] }, name))) : null;
  }

  flagNames(row) {
    const { flags } = this.set;
    return flags ? Object.keys(flags.names).filter((_, place) => flags.bits[row] & (1 << place)) : [];
  }

  aligned(row, most) {
    const [reference, code] = this.set.texts[row];
    return this.isAbsent(row) ? el("span", { class: "plain" }, `${reference} `, el("span", { class: "muted" }, "no prediction")) : alignment(alignedPairs(reference, code), most);
  }

  shortText(row) {
    const text = this.set.texts[row];
    if (this.set.kind === "text") return this.aligned(row, 24);
    if (this.set.kind === "trials") return el("span", { class: "plain" }, String(text[0] ?? "–"));
    if (this.set.timelines) return el("span", { class: "plain" }, this.set.timelines[row].map((each) => plural(each.length, "segment")).join(" → "));
    const isRight = this.set.kind === "labels" && text[0] === text[1];
    return el("span", { class: `plain ${this.set.kind === "labels" ? (isRight ? "right" : "wrong") : ""}` }, String(text[0] ?? "–"), isRight ? "" : ` → ${text[1] ?? "–"}`);
  }

  utterances() {
    const sorts = { text: "-errors", labels: "-rate" };
    this.browser = new UtteranceBrowser({
      address: this.address, ids: this.set.ids, columns: this.columns(), defaultSort: sorts[this.set.kind] || "id", matching: () => this.matching(), detail: (row) => this.details(row),
      status: (rows) => this.foundRate(rows), onrefresh: (rows) => { this.drawChips(); this.print(rows); },
    });
    this.chips = el("div", { class: "chips" });
    const bound = (name, label) => el("input", { type: "number", id: name, placeholder: label, "aria-label": label, value: this.state[name], oninput: (event) => this.filter({ [name]: event.target.value }, { jump: false }) });
    const hasRate = this.set.kind === "text";
    this.printed = el("div", { class: "printed" });
    return section("utterances", "Utterances", "",
      el("div", { class: "toolbar" }, this.browser.search, hasRate ? [bound("from", "least error %"), bound("to", "most error %")] : null,
        el("button", { type: "button", class: "quiet", onclick: () => { this.reset(); this.render(); } }, "clear"),
        el("button", { type: "button", id: "export", onclick: () => this.exportManifest() }, "export as manifest"), this.browser.found),
      this.chips, this.browser.node, this.printed);
  }

  filter(values, options) {
    this.browser.filter(values, options);
  }

  foundRate(rows) {
    if (this.set.kind !== "text" || !rows.length) return "";
    const errors = rows.reduce((total, row) => total + this.errorCount(row), 0);
    const words = rows.reduce((total, row) => total + this.set.words[row], 0);
    return words ? ` · ${this.rateName().split(",")[0]} ${number((100 * errors) / words)} %` : "";
  }

  matching() {
    const { set, state } = this;
    const wanted = state.q.trim().toLowerCase();
    if (wanted && !this.haystack) this.haystack = set.texts.map((text, row) => `${set.ids[row]}\n${text[0]}\n${set.kind === "text" ? this.hypothesis(row) ?? "" : text[1]}`.toLowerCase());
    const flagBit = set.flags && state.flag ? 1 << Object.keys(set.flags.names).indexOf(state.flag) : 0;
    const [from, to] = [state.from, state.to].map((each) => (each === "" ? null : Number(each)));
    const isInGroup = state.by && state.group ? groupTest(set, state.by, state.group) : null;
    const hasPair = state.errors ? this.pairTest(state.errors) : null;
    const rows = [];
    for (let row = 0; row < set.ids.length; row++) {
      if (wanted && !this.haystack[row].includes(wanted)) continue;
      if (flagBit && !(set.flags.bits[row] & flagBit)) continue;
      if ((from !== null || to !== null) && this.isAbsent(row)) continue;
      if (from !== null && this.rate(row) < from) continue;
      if (to !== null && this.rate(row) > to) continue;
      if (isInGroup && !isInGroup(row)) continue;
      if (hasPair && !hasPair(row)) continue;
      rows.push(row);
    }
    return rows;
  }

  hypothesis(row) {
    const [reference, code] = this.set.texts[row];
    return this.isAbsent(row) ? null : hypothesisOf(reference, code);
  }

  pairTest(name) {
    if (this.set.kind === "labels") return (row) => this.set.texts[row].join(" → ") === name; // a label may have arrows
    const [wanted, found] = name.split(" → ");
    const mark = wanted === "" ? `+${found}` : `~${found}`;
    return (row) => {
      const [reference, code] = this.set.texts[row];
      if (!code || (found && !code.includes(mark)) || (wanted && !reference.includes(wanted))) return false;
      return alignedPairs(reference, code).some((pair) => (pair[0] ?? "") === wanted && (pair[1] ?? "") === found && pair[0] !== pair[1]);
    };
  }

  drawChips() {
    const { set, state } = this;
    const flags = set.flags ? Object.keys(set.flags.names).map((name, place) => [name, set.flags.bits.reduce((many, bits) => many + ((bits >> place) & 1), 0)]) : [];
    const chips = flags.filter(([, many]) => many).map(([name, many]) => el("button", { type: "button", class: `chip ${name}`, title: set.flags.names[name], "aria-pressed": String(state.flag === name), onclick: () => this.filter({ flag: state.flag === name ? "" : name }, { jump: false }) }, `${name} ${count(many)}`));
    const active = (label, values) => el("button", { type: "button", class: "chip active", title: "Remove this filter", onclick: () => this.filter(values, { jump: false }) }, `${label} ×`);
    if (state.group) chips.push(active(`${state.by}: ${state.group}`, { by: "", group: "" }));
    if (state.errors) chips.push(active(state.errors, { errors: "" }));
    replaceContent(this.chips, chips);
  }

  details(row) {
    const { set } = this;
    const text = set.texts[row];
    const link = linkTo(set.places[row] ? null : set.audio[row], this.run.folder, set.starts[row], set.seconds[row]);
    const facts = [["seconds", number(set.seconds[row])], ["speaker", nameOf(set.speakers, row)], ["language", nameOf(set.languages, row)], ["data set", nameOf(set.sets, row)],
      ["SNR", set.snr[row] === null || set.snr[row] === undefined ? null : `${number(set.snr[row], 1)} dB`], ["score", set.scores[row] === null ? null : number(set.scores[row], 3)], ["audio", set.audio[row]]];
    const made = set.made && set.made[row];
    return [
      el("h3", {}, set.ids[row], this.flagMarks(row)),
      player(set.sounds[row], link, `Recording of ${set.ids[row]}`, set.seconds[row]),
      made ? [el("h4", {}, "Made by the model"), player(made, null, `Output for ${set.ids[row]}`)] : null,
      set.timelines ? timeline(set.timelines[row][0], set.timelines[row][1], set.seconds[row]) : null,
      set.kind === "text" ? this.textDetail(row, text) : set.timelines || set.kind === "trials" ? null : el("p", { class: "plain" }, `${text[0] ?? "–"} → ${text[1] ?? "–"}`),
      factList(facts)].flat();
  }

  textDetail(row, [reference, , rawReference, raw]) {
    const flags = this.flagNames(row).map((name) => el("p", { class: "muted" }, this.set.flags.names[name]));
    const written = rawReference || raw ? [el("h4", {}, "As written"), el("p", { class: "written" }, el("b", {}, "ref "), rawReference || reference), el("p", { class: "written" }, el("b", {}, "hyp "), raw || (this.hypothesis(row) ?? "no prediction"))] : [];
    return [el("div", { class: "aligned", dir: "auto" }, this.aligned(row)), this.isAbsent(row) ? null : el("p", { class: "muted" }, `${plural(this.errorCount(row), "error")} in ${plural(this.set.words[row], "word")}: ${ERRORS.map((name) => plural(this.set[name][row], name.slice(0, -1))).join(", ")}`), ...flags, ...written];
  }

  exportManifest() {
    const { set } = this;
    const lines = this.browser.table.rows.map((row) => {
      const text = set.texts[row];
      const labels = Object.entries(set.labels).map(([name, column]) => [name, nameOf(column, row)]).filter(([, value]) => value !== null);
      const fields = { id: set.ids[row], audio: set.audio[row], ...(set.places[row] || {}), start: set.starts[row], seconds: set.seconds[row], text: set.kind === "text" ? text[2] || text[0] : null,
        speaker: nameOf(set.speakers, row), language: nameOf(set.languages, row), labels: labels.length ? Object.fromEntries(labels) : null, ...(set.fields[row] || {}),
        ...(set.kind === "text" ? { hypothesis: text[3] || this.hypothesis(row) } : { reference: text[0], predicted: text[1] }) };
      return JSON.stringify(Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined && value !== "")));
    });
    download(`${this.run.name}-${set.name}-${lines.length}.jsonl`, lines.join("\n") + "\n");
  }

  // What a printer gets of the table: the first rows as they are sorted.
  print(rows) {
    const shown = (row) => (this.set.kind === "text" ? this.aligned(row) : this.shortText(row));
    replaceContent(this.printed, rows.slice(0, 40).map((row) => el("div", {}, el("b", {}, this.set.ids[row]), el("div", { dir: "auto" }, shown(row)))));
  }

  normalizer() {
    const { conditions, metrics, texts, kind } = this.set;
    const raw = metrics.filter((each) => each.name.startsWith("raw_"));
    if (kind !== "text" || !conditions.normalizer || !raw.length) return null;
    const rows = raw.map((each) => [each.name.slice(4).toUpperCase(), each.value, metrics.find((other) => other.name === each.name.slice(4))?.value]);
    const changed = texts.filter((text) => text[2]).length;
    const example = texts.find((text) => text[2]);
    return section("normalizer", "Normalizer", conditions.normalizer,
      smallTable([{ title: "score", value: (row) => row[0], numeric: false }, { title: "before, %", value: (row) => row[1], show: (row) => number(row[1]) }, { title: "after, %", value: (row) => row[2], show: (row) => number(row[2]) }], rows, { sort: 1, label: "Scores before and after the normalizer" }),
      el("p", { class: "muted" }, `${plural(changed, "reference")} of ${count(texts.length)} changed by it.`),
      example ? el("p", { class: "written" }, el("b", {}, "before"), example[2]) : null, example ? el("p", { class: "written" }, el("b", {}, "after"), example[0]) : null);
  }

  origin() {
    const { recipe, command, environment, sources } = this.run;
    const flat = Object.entries(environment).flatMap(([name, value]) => (value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : [[name, Array.isArray(value) ? value.join(", ") || "none" : value]]));
    return section("origin", "Origin", "what made this run",
      command ? el("div", { class: "block" }, el("h3", {}, "Command", copyButton(() => command)), el("pre", { tabindex: "0" }, command)) : null,
      el("div", { class: "two" },
        el("div", { class: "block" }, el("h3", {}, "Recipe", copyButton(() => recipe)), el("pre", { tabindex: "0" }, recipe)),
        el("div", {}, el("h3", {}, "Environment"), el("dl", { class: "facts" }, flat.map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value ?? "–"))]).flat()))),
      sources.length ? [el("h3", {}, "Sources"), smallTable([{ title: "source", value: (row) => row.source, numeric: false }, { title: "revision", value: (row) => row.revision, numeric: false }, { title: "files", value: (row) => row.files }, { title: "MB", value: (row) => row.bytes, show: (row) => number(row.bytes / 1e6, 1) }], sources, { sort: 0, descending: false, label: "Sources" })] : null);
  }

  footer() {
    return el("footer", {}, keysNote(this.data.made));
  }
}

function sum(values) {
  return values.reduce((total, each) => total + (each || 0), 0);
}

readData().then((data) => { window.page = new Report(data); });
