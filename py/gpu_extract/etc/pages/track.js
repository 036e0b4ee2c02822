"use strict";
// The chart of a history: relative run time of each component against commit date. The data stand in #data.
const data = JSON.parse(document.getElementById("data").textContent);
const svgSpace = "http://www.w3.org/2000/svg";
const palette = ["#2166ac", "#d95f02", "#1b7837", "#7b3294", "#c51b7d", "#7f5f00", "#008080", "#b2182b", "#4d4d4d", "#66a61e",
  "#5e3c99", "#a6761d", "#e7298a", "#01665e", "#8c510a"];
const chart = document.getElementById("chart");
const state = { series: 0, component: null, commit: null };
const size = { width: 1080, height: 440, left: 62, right: 44, top: 14, bottom: 40 };

function make(name, attributes, parent, text) {
  const node = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function day(seconds) { return new Date(1000 * seconds).toISOString().slice(0, 10); }
function colour(series, name) { return palette[series.components.findIndex((c) => c.name === name) % palette.length]; }

// The components that are drawn: one alone where it was chosen, else all but those too small to matter.
function drawn(series) {
  return series.components.filter((c) => state.component === null ? !c.small : c.name === state.component);
}

function scales(series) {
  const shown = drawn(series).flatMap((c) => c.points).filter((p) => p.ratio !== null);
  const dates = series.commits.map((c) => c.date);
  const first = Math.min(...dates), last = Math.max(...dates);
  const room = Math.max((last - first) * 0.02, 3600);
  const low = Math.min(0.95, ...shown.map((p) => p.ratio)), high = Math.max(1.05, ...shown.map((p) => p.ratio));
  const margin = 0.15 * (high - low);
  const x0 = first - room, x1 = last + room, y0 = Math.max(low - margin, 0), y1 = high + margin;
  return {
    x0, x1, y0, y1,
    x: (t) => size.left + (t - x0) / (x1 - x0) * (size.width - size.left - size.right),
    y: (v) => size.height - size.bottom - (v - y0) / (y1 - y0) * (size.height - size.top - size.bottom),
  };
}

function step(range, count) {
  const rough = range / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  return [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough);
}

function axes(scale) {
  const dy = step(scale.y1 - scale.y0, 6);
  for (let v = Math.ceil(scale.y0 / dy) * dy; v <= scale.y1; v += dy) {
    const one = Math.abs(v - 1) < 1e-9;
    make("line", { x1: size.left, x2: size.width - size.right, y1: scale.y(v), y2: scale.y(v), class: one ? "one" : "grid" }, chart);
    make("text", { x: size.left - 6, y: scale.y(v) + 4, "text-anchor": "end" }, chart, v.toFixed(dy < 0.1 ? 2 : 1));
  }
  for (let k = 0; k <= 6; k++) {
    const t = scale.x0 + (scale.x1 - scale.x0) * k / 6;
    make("line", { x1: scale.x(t), x2: scale.x(t), y1: size.height - size.bottom, y2: size.height - size.bottom + 5, class: "tick" }, chart);
    make("text", { x: scale.x(t), y: size.height - size.bottom + 18, "text-anchor": "middle" }, chart,
      scale.x1 - scale.x0 < 5 * 86400 ? new Date(1000 * t).toISOString().slice(5, 16).replace("T", " ") : day(t));
  }
  make("text", { x: size.width / 2, y: size.height - 4, "text-anchor": "middle" }, chart, "commit date (UTC)");
  make("text", { x: 12, y: size.height / 2, transform: `rotate(-90 12 ${size.height / 2})`, "text-anchor": "middle" }, chart,
    "relative to the baseline commit");
}

function line(series, component, scale) {
  const known = component.points.filter((p) => p.ratio !== null);
  const at = (p) => scale.x(series.commits[p.commit].date);
  const hue = colour(series, component.name);
  make("polyline", { points: known.map((p) => `${at(p)},${scale.y(p.ratio)}`).join(" "), fill: "none", stroke: hue, "stroke-width": component.main ? 2 : 1.1 }, chart);
  for (const p of known) {
    const inside = (v) => Math.min(Math.max(scale.y(v), size.top), size.height - size.bottom);
    make("line", { x1: at(p), x2: at(p), y1: inside(p.low), y2: inside(p.high), stroke: hue, opacity: 0.45 }, chart);
    const commit = series.commits[p.commit];
    const dot = make("circle", { cx: at(p), cy: scale.y(p.ratio), r: component.main ? 5 : 4, fill: hue, class: "point", tabindex: 0,
      "data-commit": commit.hash, "data-component": component.name }, chart);
    make("title", {}, dot, `${component.name}, ${commit.hash.slice(0, 10)}, ${day(commit.date)}: ${p.ratio.toFixed(3)}`);
    dot.addEventListener("click", () => choose(commit.hash, component.name));
    dot.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(commit.hash, component.name); });
    if (commit.hash === state.commit) make("circle", { cx: at(p), cy: scale.y(p.ratio), r: 9, class: "ring" }, chart);
  }
  for (const change of component.changes) {
    const p = known.find((q) => q.commit === change.commit);
    if (!p) continue;
    const x = at(p), y = Math.max(scale.y(p.ratio) - 16, size.top), up = change.ratio > 1;
    const mark = make("path", { d: up ? `M${x - 7},${y + 8}L${x + 7},${y + 8}L${x},${y - 4}Z` : `M${x - 7},${y - 4}L${x + 7},${y - 4}L${x},${y + 8}Z`,
      class: up ? "slower" : "faster", "data-commit": series.commits[change.commit].hash, "data-component": component.name }, chart);
    make("title", {}, mark, `${component.name}: ${change.ratio.toFixed(3)} times from this commit on, t = ${change.t.toFixed(1)}, p = ${change.p.toExponential(1)}`);
  }
}

function draw() {
  const series = data.series[state.series];
  chart.replaceChildren();
  chart.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
  const scale = scales(series);
  axes(scale);
  for (const component of [...drawn(series)].reverse()) line(series, component, scale);
  const legend = document.getElementById("legend");
  legend.replaceChildren();
  for (const component of series.components) {
    const button = document.createElement("button");
    button.dataset.component = component.name;
    button.className = state.component === component.name ? "alone" : component.small ? "small" : "";
    const box = document.createElement("i");
    box.style.background = colour(series, component.name);
    button.append(box, component.name);
    button.addEventListener("click", () => isolate(component.name));
    legend.appendChild(button);
  }
  document.getElementById("baseline").textContent =
    `1.0 is commit ${series.baseline.slice(0, 10)}; red triangles: slower from that commit on, beyond noise; green: faster`;
}

// A click on a component shows it alone, a second one shows all again.
function isolate(name) {
  state.component = state.component === name ? null : name;
  draw();
}

function row(table, cells, tag) {
  const line = table.insertRow();
  cells.forEach((text, n) => {
    const cell = document.createElement(tag || "td");
    cell.textContent = text;
    if (n === 0) cell.className = "l";
    line.appendChild(cell);
  });
}

function choose(hash, name) {
  state.commit = hash;
  const series = data.series[state.series];
  const number = series.commits.findIndex((c) => c.hash === hash), commit = series.commits[number];
  const panel = document.getElementById("detail");
  panel.replaceChildren();
  panel.dataset.commit = hash;
  const title = document.createElement("h2");
  title.textContent = `${hash.slice(0, 12)}: ${commit.subject || "(no subject)"}`;
  const when = document.createElement("p");
  when.textContent = `${new Date(1000 * commit.date).toISOString().replace("T", " ").slice(0, 16)} UTC, ${commit.repeats} repeats; clicked: ${name}`;
  panel.append(title, when);
  if (commit.report) {
    const link = document.createElement("a");
    link.href = commit.report;
    link.textContent = "full report of this commit";
    link.id = "report";
    panel.appendChild(link);
  }
  const table = document.createElement("table");
  row(table, ["component", "median", "lowest", "highest", "relative"], "th");
  for (const component of series.components) {
    const p = component.points.find((q) => q.commit === number);
    if (!p) continue;
    const unit = component.name.startsWith("%") ? " %" : component.unit;
    row(table, [component.name, p.value.toPrecision(4) + unit, p.least.toPrecision(4) + unit, p.most.toPrecision(4) + unit,
      p.ratio === null ? "-" : p.ratio.toFixed(3)]);
  }
  panel.appendChild(table);
  draw();
}

const picker = document.getElementById("series");
data.series.forEach((series, n) => picker.add(new Option(series.name, n)));
picker.hidden = data.series.length < 2;
picker.addEventListener("change", () => {
  Object.assign(state, { series: Number(picker.value), component: null, commit: null });
  document.getElementById("detail").replaceChildren();
  draw();
});
draw();
