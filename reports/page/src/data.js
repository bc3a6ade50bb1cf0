// The data of the page: decoding, filtering by process and thread, and trees of what is left.

/** How a frame was found, as the page's data numbers it; the last two are no frames but why a stack ended early. */
export const ORIGINS = ["leaf", "cfi", "fp", "kernel", "heuristic", "nocall", "inlined", "truncated", "broken"];
const FIRST_END = ORIGINS.indexOf("truncated");
/** Whether the other strategy has a frame too. */
export const MARKS = ["same", "missing", "wrong", "beyond"];

/** Reads the page's data, which stands in a script element that is not executed. */
export function read() {
  return JSON.parse(document.getElementById("data").textContent);
}

/** What is shown: a process name or one process, and one of its threads. */
export class Filter {
  constructor(data) {
    this.data = data;
    this.process = "";
    this.thread = "";
  }

  /** Whether a process passes. */
  hasProcess(index) {
    if (this.process === "") return true;
    const [kind, value] = split(this.process);
    return kind === "pid" ? index === Number(value) : this.data.processes[index].name === value;
  }

  /** Whether a thread passes. */
  hasThread(index) {
    const [process, tid] = this.data.threads[index];
    if (!this.hasProcess(process)) return false;
    return this.thread === "" || this.thread === `${process}:${tid}`;
  }

  /** The curve that fits best: that of the process name, or of all. */
  curve() {
    const name = this.processName();
    return this.data.curves.find((curve) => curve.name === name) ?? null;
  }

  /** The process name; empty for all. */
  processName() {
    if (this.process === "") return "";
    const [kind, value] = split(this.process);
    return kind === "pid" ? this.data.processes[Number(value)].name : value;
  }
}

function split(text) {
  const at = text.indexOf(":");
  return [text.slice(0, at), text.slice(at + 1)];
}

/** Numbers of the rows that pass. */
export function rowsOf(data, filter) {
  const passes = data.threads.map((_, index) => filter.hasThread(index));
  const rows = [];
  data.rows.thread.forEach((thread, row) => { if (passes[thread]) rows.push(row); });
  return rows;
}

/**
 * The tree of the filtered rows. `side` is "reference", "other", or "both"; in a node, `value` is its width in samples,
 * `n` are the samples of each side through it, `marks` and `origins` count samples by what the page's data says of the
 * frame.
 */
export function tree(data, rows, side) {
  const sides = side === "both" ? ["reference", "other"] : [side];
  const all = node("all", "", null);
  for (const [name, group] of byProcess(data, rows)) {
    const process = node(name, "", all);
    process.isProcess = true;
    all.children.push(process);
    sides.forEach((which) => add(data, group, which, process));
  }
  for (const process of all.children) {
    ["reference", "other"].forEach((which) => { all.n[which] += process.n[which]; });
  }
  finish(all, side);
  return all;
}

function node(name, module, parent) {
  return {
    name, module, parent, children: [], byLabel: new Map(), value: 0, n: { reference: 0, other: 0 },
    marks: [0, 0, 0, 0], origins: ORIGINS.map(() => 0), isProcess: false, end: "",
  };
}

function byProcess(data, rows) {
  const groups = new Map();
  for (const row of rows) {
    const name = data.processes[data.threads[data.rows.thread[row]][0]].name;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  return groups;
}

/** Adds the stacks of one side under the node of their process. */
function add(data, rows, which, process) {
  const { parent, label, kind } = data.nodes;
  const samples = new Map();
  for (const row of rows) {
    const n = data.rows.samples[row];
    process.n[which] += n;
    for (let at = data.rows[which][row]; at >= 0; at = parent[at]) samples.set(at, (samples.get(at) ?? 0) + n);
  }
  // Parents have smaller numbers than their children.
  const order = [...samples.keys()].sort((a, b) => a - b);
  const shown = new Map();
  for (const at of order) {
    const n = samples.get(at);
    const above = parent[at] < 0 ? process : shown.get(parent[at]);
    let own = above.byLabel.get(label[at]);
    if (!own) {
      own = node(data.names[data.labels.name[label[at]]], data.modules[data.labels.module[label[at]]], above);
      above.byLabel.set(label[at], own);
      above.children.push(own);
    }
    own.n[which] += n;
    const origin = kind[at] & 15;
    own.origins[origin] += n;
    if (origin >= FIRST_END) own.end = ORIGINS[origin];
    own.marks[kind[at] >> 4] += n;
    shown.set(at, own);
  }
}

/** Sets widths, orders children by name, stacks that end early last, and drops what is only needed while building. */
function finish(root, side) {
  const todo = [root];
  while (todo.length) {
    const at = todo.pop();
    at.value = side === "both" ? (at.n.reference + at.n.other) / 2 : at.n[side];
    at.byLabel = null;
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    at.children.sort((a, b) => order(a.end !== "", b.end !== "") || order(a.name, b.name));
    todo.push(...at.children);
  }
}

/** The relations of the filtered rows: samples by name. */
export function relations(data, rows) {
  const counts = new Map();
  for (const row of rows) {
    const name = data.relations[data.rows.relation[row]] ?? "";
    if (name) counts.set(name, (counts.get(name) ?? 0) + data.rows.samples[row]);
  }
  return counts;
}

/** Samples of the slices that pass, by slice and end: `{ms, end, n}` for one side, 0 or 1. */
export function slicesOf(data, filter, side) {
  const { number, process, counts } = data.slices;
  const ends = ["complete", "truncated", "broken"];
  const sums = new Map();
  number.forEach((slice, index) => {
    if (!filter.hasProcess(process[index])) return;
    const sum = sums.get(slice) ?? [0, 0, 0];
    ends.forEach((_, end) => { sum[end] += counts[index * 6 + side * 3 + end]; });
    sums.set(slice, sum);
  });
  const width = data.slices.slice_ms;
  const out = [];
  for (const [slice, sum] of sums) {
    ends.forEach((end, index) => {
      if (sum[index]) out.push({ from: slice * width, to: (slice + 1) * width, end, n: sum[index] });
    });
  }
  return out;
}
