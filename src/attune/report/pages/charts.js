// Charts as SVG, drawn for the width they have. Colors come from the style sheet, so that both themes fit.

function niceTicks(low, high, wanted = 4) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  return ticks;
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

// Lines over the steps: series are {name, steps, values}; the nearest point is shown under the pointer or the arrows.
function lineChart(title, series, { width = 360, height = 190 } = {}) {
  const inner = { left: 46, right: 10, top: 10, bottom: 24 };
  const drawn = series.map((each) => ({ ...each, points: each.steps.map((step, place) => [step, each.values[place]]) }));
  const [firstStep, lastStep] = extent(drawn.flatMap((each) => each.steps));
  let [low, high] = extent(drawn.flatMap((each) => each.values));
  if (low === high) [low, high] = [low - Math.abs(low) * 0.1 - 1e-9, high + Math.abs(high) * 0.1 + 1e-9];
  const x = (step) => inner.left + ((step - firstStep) / Math.max(lastStep - firstStep, 1)) * (width - inner.left - inner.right);
  const y = (value) => height - inner.bottom - ((value - low) / (high - low)) * (height - inner.top - inner.bottom);
  const grid = niceTicks(low, high).map((tick) => [
    svg("line", { class: "grid", x1: inner.left, x2: width - inner.right, y1: y(tick), y2: y(tick) }),
    svg("text", { class: "tick", x: inner.left - 6, y: y(tick) + 3.5, "text-anchor": "end" }, short(tick)),
  ]);
  const steps = niceTicks(firstStep, lastStep).map((tick) => svg("text", { class: "tick", x: x(tick), y: height - 7, "text-anchor": "middle" }, short(tick)));
  const lines = drawn.map((each, place) => svg("polyline", { class: `line series-${place % 6}`, points: each.points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
  const dots = drawn.flatMap((each, place) => each.points.length > 40 ? [] : each.points.map(([step, value]) => svg("circle", { class: `dot series-${place % 6}`, cx: x(step), cy: y(value), r: 2.2 })));
  const cursor = svg("line", { class: "cursor", y1: inner.top, y2: height - inner.bottom, visibility: "hidden" });
  const last = drawn[0].points[drawn[0].points.length - 1];
  const readout = el("span", { class: "readout", "aria-live": "polite" }, short(last[1]));
  let at = drawn[0].points.length - 1;
  function show(place) {
    at = Math.max(0, Math.min(drawn[0].points.length - 1, place));
    const [step] = drawn[0].points[at];
    cursor.setAttribute("x1", x(step));
    cursor.setAttribute("x2", x(step));
    cursor.setAttribute("visibility", "visible");
    const values = drawn.map((each) => {
      const nearest = each.points.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best));
      return drawn.length > 1 ? `${each.name} ${short(nearest[1])}` : short(nearest[1]);
    });
    readout.textContent = `${values.join(", ")} at step ${count(step)}`;
  }
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": `${title}, from step ${firstStep} to ${lastStep}, last value ${short(last[1])}` }, ...grid.flat(), ...steps, ...lines, ...dots, cursor);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const step = firstStep + (((event.clientX - box.left) / box.width) * width - inner.left) / (width - inner.left - inner.right) * (lastStep - firstStep);
    let nearest = 0;
    drawn[0].points.forEach(([each], place) => { if (Math.abs(each - step) < Math.abs(drawn[0].points[nearest][0] - step)) nearest = place; });
    show(nearest);
  });
  picture.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) { show(at + move); event.preventDefault(); event.stopPropagation(); }
  });
  const legend = drawn.length > 1 ? el("div", { class: "legend" }, drawn.map((each, place) => el("span", { class: `series-${place % 6}` }, each.name))) : null;
  return el("figure", { class: "card" }, el("figcaption", {}, title, readout), picture, legend);
}

// A bar with its interval: where the value is between 0 and `most`.
function intervalBar(value, low, high, most, better = "") {
  const part = (each) => `${(100 * Math.max(0, Math.min(each, most)) / (most || 1)).toFixed(2)}%`;
  const whisker = low === null || low === undefined ? null
    : el("span", { class: "whisker", style: { left: part(low), width: `calc(${part(high)} - ${part(low)})` } });
  return el("span", { class: `bar ${better}`, "aria-hidden": "true" }, el("span", { class: "fill", style: { width: part(value) } }), whisker);
}

function stackedBar(parts) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  return el("div", { class: "stack" },
    el("div", { class: "stack-bar", role: "img", "aria-label": parts.map((part) => `${part.name} ${part.value}`).join(", ") },
      parts.map((part) => el("span", { class: part.class, style: { width: `${(100 * part.value) / total}%` } }))),
    el("div", { class: "legend" }, parts.map((part) => el("span", { class: part.class }, `${part.name} ${count(part.value)} · ${number((100 * part.value) / total, 0)} %`))));
}

// Points with a diagonal: each is {x, y, size, title}.
function scatter(points, { width = 460, height = 380, x: xTitle, y: yTitle, diagonal = false, low = null, high = null, onpick = null, logX = false, labels = false } = {}) {
  const inner = { left: 52, right: 14, top: 12, bottom: 40 };
  const scaleX = (value) => (logX ? Math.log10(value) : value);
  let [lowX, highX] = low === null ? extent(points.map((each) => scaleX(each.x))) : [low, high];
  let [lowY, highY] = low === null ? extent(points.map((each) => each.y)) : [low, high];
  if (low === null) {
    const padX = (highX - lowX) * 0.12 || 0.5;
    const padY = (highY - lowY) * 0.12 || 0.5;
    [lowX, highX, lowY, highY] = [lowX - padX, highX + padX, Math.max(0, lowY - padY), highY + padY];
  }
  const x = (value) => inner.left + ((scaleX(value) - lowX) / (highX - lowX)) * (width - inner.left - inner.right);
  const y = (value) => height - inner.bottom - ((value - lowY) / (highY - lowY)) * (height - inner.top - inner.bottom);
  const unscale = (value) => (logX ? 10 ** value : value);
  const grid = niceTicks(lowY, highY).map((tick) => [svg("line", { class: "grid", x1: inner.left, x2: width - inner.right, y1: y(tick), y2: y(tick) }), svg("text", { class: "tick", x: inner.left - 6, y: y(tick) + 4, "text-anchor": "end" }, short(tick))]);
  const below = niceTicks(lowX, highX).map((tick) => svg("text", { class: "tick", x: x(unscale(tick)), y: height - 22, "text-anchor": "middle" }, short(unscale(tick))));
  const marks = points.map((each) => {
    const mark = svg("circle", { class: `point ${each.class || ""}`, cx: x(each.x), cy: y(each.y), r: each.size || 3 }, svg("title", {}, each.title));
    if (onpick) mark.addEventListener("click", () => onpick(each));
    return mark;
  });
  const names = labels ? points.map((each) => svg("text", { class: "tick name", x: x(each.x), y: y(each.y) - 9, "text-anchor": "middle" }, each.name)) : [];
  const line = diagonal ? [svg("line", { class: "diagonal", x1: x(unscale(lowX)), y1: y(lowY), x2: x(unscale(highX)), y2: y(highY) })] : [];
  return svg("svg", { class: "chart scatter", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${yTitle} against ${xTitle}, ${points.length} points` },
    ...grid.flat(), ...below, ...line, ...marks, ...names,
    svg("text", { class: "axis", x: (width + inner.left) / 2, y: height - 5, "text-anchor": "middle" }, xTitle),
    svg("text", { class: "axis", transform: `translate(12 ${(height - inner.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yTitle));
}

// What is taken for what: a square for each pair, darker where there are more of the row.
function confusionMatrix(names, counts, onpick) {
  const cells = counts.map((row, wanted) => {
    const total = row.reduce((sum, each) => sum + each, 0) || 1;
    return el("tr", {}, el("th", { scope: "row" }, names[wanted]), row.map((each, found) => {
      const part = each / total;
      const kind = wanted === found ? "right" : "wrong";
      const cell = el("td", { class: each ? kind : "none", style: { "--part": part.toFixed(3) }, title: `${names[wanted]} → ${names[found]}: ${count(each)} (${number(100 * part, 1)} %)` });
      if (each) {
        const button = el("button", { type: "button", class: "cell", "aria-label": `${names[wanted]} taken for ${names[found]}, ${each} times` }, count(each));
        button.addEventListener("click", () => onpick(names[wanted], names[found]));
        cell.append(button);
      }
      return cell;
    }));
  });
  const head = el("tr", {}, el("td", { class: "corner" }, "reference ↓ predicted →"), names.map((name) => el("th", { scope: "col" }, el("span", {}, name))));
  return el("div", { class: "matrix", tabindex: "0", role: "region", "aria-label": "Confusion matrix" }, el("table", {}, el("thead", {}, head), el("tbody", {}, cells)));
}

// The quantile of the normal distribution, for the axes of a DET curve (Acklam's rational approximation).
function probit(p) {
  const a = [-39.69683028665376, 220.9460984245205, -275.9285104469687, 138.357751867269, -30.66479806614716, 2.506628277459239];
  const b = [-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572];
  const c = [-0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968, 2.938163982698783];
  const d = [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416];
  const over = (list, q) => list.reduce((sum, each) => sum * q + each, 0);
  if (p < 0.02425) { const q = Math.sqrt(-2 * Math.log(p)); return over(c, q) / (over(d, q) * q + 1); }
  if (p > 0.97575) return -probit(1 - p);
  const q = p - 0.5;
  const r = q * q;
  return (over(a, r) * q) / (over(b, r) * r + 1);
}

function detCurve(points, eer) {
  const rates = [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4];
  const [low, high] = [probit(0.0005), probit(0.6)];
  const [width, height, left, bottom] = [460, 420, 56, 44];
  const x = (rate) => left + ((probit(rate) - low) / (high - low)) * (width - left - 14);
  const y = (rate) => height - bottom - ((probit(rate) - low) / (high - low)) * (height - bottom - 14);
  const grid = rates.flatMap((rate) => [
    svg("line", { class: "grid", x1: x(rate), x2: x(rate), y1: y(0.0005), y2: y(0.6) }),
    svg("line", { class: "grid", y1: y(rate), y2: y(rate), x1: x(0.0005), x2: x(0.6) }),
    svg("text", { class: "tick", x: x(rate), y: height - bottom + 16, "text-anchor": "middle" }, `${100 * rate}`),
    svg("text", { class: "tick", x: left - 6, y: y(rate) + 4, "text-anchor": "end" }, `${100 * rate}`),
  ]);
  const inside = points.filter(([accepts, rejects]) => accepts > 0.0005 && rejects > 0.0005 && accepts < 0.6 && rejects < 0.6);
  const line = svg("polyline", { class: "line series-0", points: inside.map(([accepts, rejects]) => `${x(accepts).toFixed(1)},${y(rejects).toFixed(1)}`).join(" ") });
  const at = Math.min(0.59, Math.max(0.0006, eer / 100));
  return svg("svg", { class: "chart det", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `DET curve, equal error rate ${number(eer)} %` },
    ...grid, svg("line", { class: "diagonal", x1: x(0.0005), y1: y(0.0005), x2: x(0.6), y2: y(0.6) }), line,
    svg("circle", { class: "point chosen", cx: x(at), cy: y(at), r: 4.5 }, svg("title", {}, `EER ${number(eer)} %`)),
    svg("text", { class: "tick name", x: x(at) + (eer > 15 ? -9 : 9), y: y(at) + (eer > 15 ? 16 : -7), "text-anchor": eer > 15 ? "end" : "start" }, `EER ${number(eer)} %`),
    svg("text", { class: "axis", x: (width + left) / 2, y: height - 6, "text-anchor": "middle" }, "false accepts, %"),
    svg("text", { class: "axis", transform: `translate(13 ${(height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, "false rejects, %"));
}

function histogram({ edges, targets, impostors }) {
  const [width, height, left, bottom] = [460, 420, 14, 44];
  const share = (list) => { const total = list.reduce((a, b) => a + b, 0) || 1; return list.map((each) => each / total); };
  const both = [share(impostors), share(targets)];
  const highest = Math.max(...both.flat());
  const x = (value) => left + ((value - edges[0]) / (edges[edges.length - 1] - edges[0] || 1)) * (width - left - 14);
  const y = (value) => height - bottom - (value / highest) * (height - bottom - 30);
  const areas = both.map((list, place) => svg("path", { class: `area series-${place ? 0 : 1}`, d: `M${x(edges[0])},${y(0)}` + list.map((each, bin) => `L${x(edges[bin])},${y(each)}L${x(edges[bin + 1])},${y(each)}`).join("") + `L${x(edges[edges.length - 1])},${y(0)}Z` }));
  const ticks = niceTicks(edges[0], edges[edges.length - 1]).map((tick) => svg("text", { class: "tick", x: x(tick), y: height - bottom + 16, "text-anchor": "middle" }, short(tick)));
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Scores of target and impostor trials" }, ...areas, ...ticks,
    svg("text", { class: "axis", x: width / 2, y: height - 6, "text-anchor": "middle" }, "score of a trial"),
    svg("text", { class: "tick series-text-1", x: left + 6, y: 22 }, "impostors"), svg("text", { class: "tick series-text-0", x: width - 20, y: 22, "text-anchor": "end" }, "targets"));
}

// Who speaks when: a lane for each speaker of the reference and of the hypothesis, on one axis.
function timeline(wanted, found, seconds) {
  const lanes = (segments) => [...new Set(segments.map(([, , speaker]) => speaker))].sort();
  const rows = [...lanes(wanted).map((name) => ["reference", name, wanted]), ...lanes(found).map((name) => ["hypothesis", name, found])];
  const [width, lane, left] = [420, 24, 96];
  const height = rows.length * lane + 30;
  const end = Math.max(seconds || 0, ...wanted.map((each) => each[1]), ...found.map((each) => each[1]), 0.1);
  const brief = (name) => (name.length > 8 ? `…${name.slice(-7)}` : name); // speakers of a meeting often share a beginning
  const x = (time) => left + (time / end) * (width - left - 10);
  const parts = rows.flatMap(([kind, name, segments], row) => [
    svg("text", { class: "tick", x: left - 8, y: row * lane + 19, "text-anchor": "end" }, `${kind === "reference" ? "ref" : "hyp"} ${brief(name)}`, svg("title", {}, name)),
    svg("line", { class: "grid", x1: left, x2: width - 10, y1: row * lane + 26, y2: row * lane + 26 }),
    ...segments.filter((each) => each[2] === name).map(([from, to]) => svg("rect", { class: `segment ${kind}`, x: x(from), y: row * lane + 7, width: Math.max(1, x(to) - x(from)), height: lane - 8, rx: 3 }, svg("title", {}, `${name}: ${number(from)}–${number(to)} s`))),
  ]);
  const ticks = niceTicks(0, end, 6).map((tick) => svg("text", { class: "tick", x: x(tick), y: height - 4, "text-anchor": "middle" }, `${short(tick)} s`));
  return svg("svg", { class: "chart timeline", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Who speaks when: reference above hypothesis" }, ...parts, ...ticks);
}
