// Brings the page to life: filters, figures, flame graphs. Without it the page still says its verdict in words and
// tables.

import { Filter, read, rowsOf, tree } from "./data.js";
import { depth, timeline, whatIf } from "./charts.js";
import { Flame, path } from "./flame.js";
import { number, share } from "./words.js";

const byId = (id) => document.getElementById(id);
let data, filter, state, names, graphs;

function graph(id) {
  const say = (text) => { byId("flame-details").textContent = text; };
  return new Flame(byId(id), { names, onHover: say, onZoom: follow });
}

/** Zooms the graph beside to the same frame. */
function follow(from, d) {
  if (state.view !== "beside") return;
  const other = from === graphs.left ? graphs.right : graphs.left;
  other.zoomToPath(path(d));
  other.shrink();
}

function option(value, text) {
  const element = document.createElement("option");
  element.value = value;
  element.textContent = text;
  return element;
}

/** All; each name of several processes; each process. */
function fillProcesses() {
  const select = byId("filter-process");
  const byName = new Map();
  data.processes.forEach((process, index) => {
    const entry = byName.get(process.name) ?? { samples: 0, members: [] };
    entry.samples += process.samples;
    entry.members.push(index);
    byName.set(process.name, entry);
  });
  const all = data.processes.reduce((sum, process) => sum + process.samples, 0);
  select.replaceChildren(option("", `all processes (${number(all)} samples)`));
  for (const [name, { samples, members }] of byName) {
    if (members.length > 1) select.append(option(`name:${name}`, `${name}: all ${members.length} (${number(samples)})`));
    members.forEach((index) => {
      const process = data.processes[index];
      select.append(option(`pid:${index}`, `${name} ${process.pid} (${number(process.samples)})`));
    });
  }
}

function fillThreads() {
  const samples = new Map();
  data.rows.thread.forEach((thread, row) => samples.set(thread, (samples.get(thread) ?? 0) + data.rows.samples[row]));
  const threads = new Map();
  data.threads.forEach(([process, tid, comm], index) => {
    if (!filter.hasProcess(process)) return;
    const key = `${process}:${tid}`;
    const entry = threads.get(key) ?? { tid, comm, n: 0 };
    entry.n += samples.get(index) ?? 0;
    threads.set(key, entry);
  });
  const sorted = [...threads].sort((a, b) => b[1].n - a[1].n);
  const options = sorted.map(([key, { tid, comm, n }]) => option(key, `${comm} ${tid} (${number(n)})`));
  byId("filter-thread").replaceChildren(option("", `all threads (${threads.size})`), ...options);
  filter.thread = "";
}

/** A recording without copied stacks has no figures of their sizes. */
function drawCharts() {
  for (const [id, draw] of [["what-if", whatIf], ["depth", depth], ["timeline", timeline]]) {
    const figure = byId(id);
    if (figure) draw(figure, data, filter);
  }
}

function drawFlames() {
  const rows = rowsOf(data, filter);
  const box = byId("flames");
  const sides = { beside: ["other", "reference"], other: ["other"], reference: ["reference"], both: ["both"] }[state.view];
  box.className = sides.length > 1 ? "flames two" : "flames";
  const [left, right] = sides;
  show(graphs.left, "left", left, rows);
  byId("panel-right").hidden = !right;
  if (right) show(graphs.right, "right", right, rows);
  else graphs.right.clear();
  legend();
  search();
}

function show(flame, place, side, rows) {
  const title = side === "both" ? `${names.other} against ${names.reference}` : names[side];
  byId(`title-${place}`).textContent = title;
  const root = tree(data, rows, side);
  flame.draw(root, side, state.color);
}

function legend() {
  const kinds = state.view === "both" ? "diff" : state.color;
  document.querySelectorAll("#legend > span").forEach((item) => { item.hidden = !item.classList.contains(kinds); });
  byId("color").disabled = state.view === "both";
}

function search() {
  const shown = state.view === "beside" ? [graphs.left, graphs.right] : [graphs.left];
  const found = shown.map((flame) => [flame, flame.search(state.term)]);
  const words = found.filter(([, result]) => result).map(([flame, { frames, sum, total }]) =>
    `${names[flame.side] ?? "both"}: ${number(frames)} frames, ${share(sum, total)} of the samples`);
  byId("found").textContent = words.join(" · ");
}

function selectProcess(value) {
  byId("filter-process").value = value;
  filter.process = byId("filter-process").value;
  fillThreads();
  drawCharts();
  drawFlames();
}

function listen() {
  byId("filter-process").addEventListener("change", (event) => selectProcess(event.target.value));
  byId("filter-thread").addEventListener("change", (event) => {
    filter.thread = event.target.value;
    drawFlames();
  });
  byId("view").addEventListener("change", (event) => {
    state.view = event.target.value;
    drawFlames();
  });
  byId("color").addEventListener("change", (event) => {
    state.color = event.target.value;
    drawFlames();
  });
  byId("search").addEventListener("input", (event) => {
    state.term = event.target.value.trim();
    search();
  });
  byId("reset").addEventListener("click", () => {
    graphs.left.reset();
    graphs.right.reset();
  });
  document.querySelectorAll("button.only").forEach((button) => button.addEventListener("click", () => {
    const { name } = data.processes[Number(button.dataset.process)];
    const members = data.processes.filter((process) => process.name === name);
    selectProcess(members.length > 1 ? `name:${name}` : `pid:${button.dataset.process}`);
    byId("flame").scrollIntoView();
  }));
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    byId("search").focus();
  });
}

/** Draws again at the new width once resizing has come to rest. */
function redrawWhenResized() {
  let width = document.body.clientWidth;
  let waiting = 0;
  const redraw = () => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    drawCharts();
    drawFlames();
  };
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  });
}

export function begin() {
  data = read();
  filter = new Filter(data);
  state = { view: data.other ? "beside" : "reference", color: "origin", term: "" };
  names = { reference: data.reference, other: data.other ?? "" };
  graphs = { left: graph("flame-left"), right: graph("flame-right") };
  document.documentElement.classList.add("alive");
  fillProcesses();
  fillThreads();
  listen();
  drawCharts();
  drawFlames();
  redrawWhenResized();
  document.documentElement.dataset.ready = "yes";
}
