// Runs of a folder, live: a table of all, and a page for each with curves that grow while it trains.

const EVERY = 2000; // milliseconds

class Runs {
  constructor(data) {
    this.data = data;
    this.chosen = new Set();
    this.drawn = "";
    this.order = {};
    window.addEventListener("hashchange", () => this.refresh());
    document.addEventListener("keydown", (event) => { if (!isTyping(event) && event.key === "t") switchTheme(); });
    this.follow();
  }

  // The next question waits for the answer: many long logs take longer to read than `EVERY`.
  async follow() {
    await this.refresh();
    setTimeout(() => this.follow(), EVERY);
  }

  get name() {
    return readHash().run || "";
  }

  address(path, values) {
    const query = new URLSearchParams(values);
    if (this.data.token) query.set("token", this.data.token);
    return `${path}?${query}`;
  }

  async refresh() {
    const name = this.name;
    try {
      const answer = await fetch(this.address(name ? "api/run" : "api/runs", name ? { run: name } : {}));
      const text = await answer.text();
      if (name !== this.name) return; // somebody went on meanwhile
      const key = `${name}\n${[...this.chosen]}\n${text}`;
      if (key === this.drawn) return;
      this.drawn = key;
      const found = JSON.parse(text);
      if (!answer.ok) this.show(el("p", { class: "notes" }, found.error), this.command(`attune watch ${this.data.folder}`));
      else if (name) this.showRun(found);
      else this.showRuns(found);
    } catch (error) {
      this.drawn = "";
      this.show(el("p", { class: "notes" }, `The server does not answer: ${error.message}. Start it again with the command below.`), this.command(this.data.command));
    }
  }

  show(...content) {
    const focused = focusedPlace();
    replaceContent(document.getElementById("page"), el("header", {},
      el("div", { class: "title" }, el("h1", {}, this.name ? el("a", { href: "#", class: "back" }, "Runs") : "Runs", this.name ? ` / ${this.name}` : ""), el("p", { class: "muted" }, this.data.folder)),
      el("div", { class: "controls" }, themeButton())), ...content);
    if (focused) focusables().filter((node) => focusName(node) === focused.name)[focused.nth]?.focus({ preventScroll: true });
  }

  command(text) {
    return el("div", { class: "command" }, el("span", { class: "muted" }, "the same in a terminal"), el("code", {}, text), copyButton(() => text));
  }

  showRuns(runs) {
    for (const name of this.chosen) if (!runs.some((run) => run.name === name)) this.chosen.delete(name);
    const table = smallTable([
      { title: "run", value: (run) => run.name, numeric: false, show: (run) => [this.choice(run), el("a", { href: `#run=${encodeURIComponent(run.name)}` }, run.name)] },
      { title: "state", value: (run) => run.state, numeric: false, show: (run) => el("span", { class: `state ${run.state.split(",")[0]}` }, run.state) },
      { title: "step", value: (run) => run.step, show: (run) => (run.steps ? `${count(run.step)} / ${count(run.steps)}` : count(run.step)) },
      { title: "left", value: (run) => run.eta_seconds ?? -1, show: (run) => duration(run.eta_seconds) },
      { title: "loss", value: (run) => run.figures.loss ?? null, show: (run) => (run.figures.loss === undefined ? "" : number(run.figures.loss, 3)) },
      { title: "best", value: (run) => run.best, numeric: false },
      { title: "changed", value: (run) => run.updated, show: (run) => (run.updated ? new Date(1000 * run.updated).toLocaleString() : "") },
      { title: "", value: (run) => Number(run.report), numeric: false, show: (run) => (run.report || run.best ? el("a", { href: this.address("report", { run: run.name }) }, "report") : "") },
    ], runs, { sort: 6, most: 200, state: this.order, label: "Runs", empty: "No run yet. Train one, and it appears here." });
    const compared = [...this.chosen];
    const compare = compared.length < 2 ? el("p", { class: "muted" }, "Mark two runs or more to compare them.")
      : el("p", {}, el("a", { href: this.address("compare", compared.map((name) => ["run", name])) }, `Compare ${compared.join(", ")}`));
    this.show(section("runs", "All runs", plural(runs.length, "run"), table, compare),
      this.command(compared.length > 1 ? `attune compare ${compared.map((name) => `${this.data.folder}/${name}`).join(" ")} --out compare.html` : `attune watch ${this.data.folder}`));
  }

  choice(run) {
    const box = el("input", { type: "checkbox", id: `mark-${run.name}`, "aria-label": `Mark ${run.name} for a comparison`, onchange: () => { box.checked ? this.chosen.add(run.name) : this.chosen.delete(run.name); this.refresh(); } });
    box.checked = this.chosen.has(run.name);
    return box;
  }

  showRun(run) {
    const facts = [["state", run.state], ["step", run.steps ? `${count(run.step)} of ${count(run.steps)}` : count(run.step)], ["time left", duration(run.eta_seconds)], ["best", run.best],
      ["speed", run.figures.audio_seconds_per_second ? `${number(run.figures.audio_seconds_per_second, 0)} × real time` : ""], ["memory", run.figures.memory_gib ? `${number(run.figures.memory_gib, 1)} GiB` : ""], ["message", run.message]];
    const part = run.steps ? run.step / run.steps : 0;
    this.show(
      section("state", "Now", "", el("div", { class: "card" }, el("span", { class: "bar", role: "progressbar", "aria-valuenow": Math.round(100 * part), "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "Steps taken" }, el("span", { class: "fill", style: { width: `${100 * part}%` } })),
        el("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat())),
        el("p", {}, el("a", { href: this.address("report", { run: run.name }) }, "Open the report"))),
      section("curves", "Curves", "they grow while it trains", run.curves.length ? el("div", { class: "charts" }, run.curves.map((each) => lineChart(each.title, [each]))) : el("p", { class: "muted" }, "Nothing is logged yet.")),
      run.samples.length ? section("samples", "Last examples", `step ${run.samples_step}`, el("table", {}, el("thead", {}, el("tr", {}, ["utterance", "reference", "hypothesis"].map((title) => el("th", {}, title)))), el("tbody", {}, run.samples.map((each) => el("tr", {}, el("td", {}, each.id), el("td", {}, each.reference), el("td", {}, each.hypothesis)))))) : null,
      this.command(`attune watch ${run.folder}`), this.command(`attune report ${run.folder}`));
  }
}

// Where the keyboard is, so that it is there still when everything is drawn again.

function focusables() {
  return [...document.querySelectorAll("#page a, #page button, #page input, #page [tabindex]")];
}

function focusName(node) {
  const title = node.closest("figure")?.querySelector("figcaption")?.firstChild.textContent;
  return [node.tagName, node.id, node.getAttribute("href"), title ?? node.textContent].join(" ");
}

function focusedPlace() {
  const nodes = focusables();
  const at = nodes.indexOf(document.activeElement);
  if (at < 0) return null;
  const name = focusName(nodes[at]);
  return { name, nth: nodes.slice(0, at).filter((node) => focusName(node) === name).length };
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${Math.round(seconds)} s`;
}

readData().then((data) => { window.page = new Runs(data); });
