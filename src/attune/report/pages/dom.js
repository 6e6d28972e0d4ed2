// Small helpers that every page uses. Text is only ever set as text: nothing of the data can become markup.

const SVG = "http://www.w3.org/2000/svg";

function setUp(node, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function el(tag, properties, ...children) {
  return setUp(document.createElement(tag), properties, children);
}

function svg(tag, properties, ...children) {
  return setUp(document.createElementNS(SVG, tag), properties, children);
}

function replaceContent(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  return bytes;
}

async function readData() {
  const packed = new Blob([bytesOf(document.getElementById("data").textContent.trim())]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// Numbers as people read them.

function number(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function count(value) {
  return value.toLocaleString("en");
}

function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  return String(Number(value.toPrecision(3)));
}

function withUnit(value, unit, digits = 2) {
  return unit ? `${number(value, digits)} ${unit}` : number(value, digits);
}

function plural(many, noun) {
  return `${count(many)} ${noun}${many === 1 ? "" : "s"}`;
}

// The address says what is shown, so that it can be sent to somebody: #set=test&q=apricot&sort=-errors

function readHash() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function writeHash(state) {
  const kept = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(kept).toString();
  try {
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  } catch {
    // A frame of a notebook has no address of its own.
  }
}

// Light and dark: as the system has it, until somebody chooses.

function themeButton() {
  const button = el("button", { class: "quiet", type: "button", id: "theme", "aria-label": "Switch between light and dark", title: "Light or dark (t)" }, "◐");
  button.addEventListener("click", switchTheme);
  return button;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  document.dispatchEvent(new Event("theme"));
}

function copyButton(text, label = "copy") {
  const button = el("button", { class: "quiet small", type: "button", "aria-label": "Copy to the clipboard" }, label);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "copied";
    } catch {
      button.textContent = "cannot copy";
    }
    setTimeout(() => (button.textContent = label), 1200);
  });
  return button;
}

function download(name, text, type = "application/x-ndjson") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function section(id, title, note, ...content) {
  const heading = el("h2", {}, title, note ? el("small", {}, note) : null);
  return el("section", { id, "aria-label": title }, heading, ...content);
}

function isTyping(event) {
  return ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey;
}

// A table of few rows, sortable by its heads. Columns: {title, value(row), show(row), numeric: false for texts}
// `state` has the order that somebody chose, for a table that is drawn again.

function smallTable(columns, rows, { sort = 0, descending = true, onpick = null, most = 12, label = "", empty = "Nothing.", state = {} } = {}) {
  state.sort ??= sort;
  state.descending ??= descending;
  state.most ??= most;
  const body = el("tbody");
  const heads = columns.map((column, place) => {
    const button = el("button", { class: "head", type: "button" }, column.title);
    button.addEventListener("click", () => {
      state.descending = state.sort === place ? !state.descending : column.numeric !== false;
      state.sort = place;
      draw();
    });
    return el("th", { scope: "col", class: column.numeric === false ? "" : "number" }, column.title ? button : null);
  });
  const more = el("button", { class: "quiet small", type: "button" });
  more.addEventListener("click", () => {
    state.most = state.most > most ? most : Infinity;
    draw();
  });
  function draw() {
    const { value } = columns[state.sort];
    const isText = rows.some((row) => typeof value(row) === "string");
    const compare = isText
      ? (a, b) => String(value(a)).localeCompare(String(value(b)))
      : (a, b) => (value(a) ?? -Infinity) - (value(b) ?? -Infinity);
    const sorted = [...rows].sort((a, b) => (state.descending ? -compare(a, b) : compare(a, b)));
    heads.forEach((head, place) => head.setAttribute("aria-sort", place !== state.sort ? "none" : state.descending ? "descending" : "ascending"));
    const shown = sorted.slice(0, Math.min(state.most, 500));
    replaceContent(body, shown.map((row) => {
      const cells = columns.map((column) => el("td", { class: column.numeric === false ? "" : "number" }, column.show ? column.show(row) : String(column.value(row))));
      if (onpick) {
        const [first, ...rest] = cells;
        const pick = el("button", { class: "pick", type: "button", title: "Show these utterances" });
        pick.append(...first.childNodes);
        pick.addEventListener("click", () => onpick(row));
        first.append(pick);
        return el("tr", {}, first, ...rest);
      }
      return el("tr", {}, ...cells);
    }));
    more.textContent = state.most > most ? "fewer" : `all ${count(rows.length)}`;
  }
  draw();
  if (!rows.length) return el("p", { class: "muted" }, empty);
  return el("div", { class: "small-table" }, el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, ...heads)), body), rows.length > most ? more : null);
}
