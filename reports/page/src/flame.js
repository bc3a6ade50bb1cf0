// Flame graphs, drawn with d3-flame-graph: one for each side, or one of their difference. Roots are at the top, so that
// graphs beside each other begin at the same line.

import flamegraph from "d3-flame-graph";
import { select } from "d3-selection";
import { MARKS, ORIGINS } from "./data.js";
import { number, share } from "./words.js";

/** Frames narrower than this many pixels are not drawn; they are still found by the search and shown when zoomed. */
const NARROWEST_PX = 1;
const ROW_PX = 18;

/** One flame graph within an element. */
export class Flame {
  /** `options.onSelect(graph, node)` is called when a frame is chosen by mouse or keyboard. */
  constructor(element, options) {
    this.element = element;
    this.options = options;
    this.chart = null;
    this.chosen = null;
    this.zoomed = null;
    element.tabIndex = 0;
    element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Draws a tree. */
  draw(root, side, color) {
    this.clear();
    this.side = side;
    this.color = color;
    this.root = root;
    if (!root.value) {
      this.element.textContent = "No samples pass the filter.";
      return;
    }
    const label = (d) => this.label(d.data);
    this.chart = flamegraph()
      .width(Math.max(280, this.element.clientWidth))
      .cellHeight(ROW_PX)
      .inverted(true)
      .transitionDuration(0)
      .minFrameSize(NARROWEST_PX)
      .getName((d) => d.data.name)
      .getValue((d) => d.value)
      .setLabelHandler(label)
      .setDetailsHandler((text) => { if (text) this.options.onHover(text); })
      .setSearchHandler((found) => { this.found = this.matches(found); })
      .setSearchMatch((d, term) => `${d.data.name}\n${d.data.module}`.toLowerCase().includes(term))
      .setColorMapper((d) => (d.highlight ? "var(--hit)" : this.fill(d.data)))
      .onClick((d) => this.clicked(d));
    select(this.element).datum(root).call(this.chart);
    this.zoomed = this.top();
    this.shrink();
  }

  /** The whole graph's node. */
  top() {
    return select(this.element).datum();
  }

  clear() {
    this.element.replaceChildren();
    this.chosen = null;
    this.zoomed = null;
    this.found = null;
    this.chart = null;
  }

  clicked(d) {
    this.zoomed = d;
    this.choose(d);
    this.shrink();
    this.options.onZoom(this, d);
  }

  /** Leaves no empty room below the deepest drawn frame. */
  shrink() {
    let deepest = 0;
    select(this.element).selectAll("g.frame").each((d) => { deepest = Math.max(deepest, d.depth); });
    select(this.element).select("svg").attr("height", (deepest + 1) * ROW_PX + 2);
  }

  /** The colour of a frame. */
  fill(data) {
    return fill(data, this.color, this.side);
  }

  /** What a frame is, in words. */
  label(data) {
    const total = this.root.value;
    const module = data.module ? ` (${data.module})` : "";
    if (this.side === "both") {
      const { reference, other } = data.n;
      return `${data.name}${module} – ${number(reference)} samples by ${this.options.names.reference}, ` +
        `${number(other)} by ${this.options.names.other}`;
    }
    const n = data.n[this.side];
    const found = data.isProcess || !data.parent ? "" : ` · ${words(data)}`;
    return `${data.name}${module} – ${number(n)} samples, ${share(n, total)}${found}`;
  }

  /** Highlights what matches; says how much of the samples that is. */
  search(term) {
    if (!this.chart) return null;
    const wasSearching = this.found !== null;
    this.found = null;
    if (term !== "") this.chart.search(term.toLowerCase());
    else if (wasSearching) this.chart.clear();
    return this.found;
  }

  /** How much of the tree the found frames are, whatever it is zoomed to: zooming changes the nodes, but not their data. */
  matches(found) {
    const all = new Set(found);
    const outermost = found.filter((d) => !d.ancestors().slice(1).some((caller) => all.has(caller))).map((d) => d.data);
    const sum = outermost.reduce((total, data) => total + data.value, 0);
    return { frames: found.length, outermost, sum, total: this.root.value };
  }

  /** Zooms to the frame with this path of names; the nearest caller that is there. */
  zoomToPath(path) {
    if (!this.chart) return;
    let at = this.top();
    for (const data of path) {
      const next = at.children?.find((child) => child.data.name === data.name && child.data.module === data.module);
      if (!next) break;
      at = next;
    }
    if (at === this.zoomed) return;
    this.zoomed = at;
    const own = this.options.onZoom;
    this.options.onZoom = () => {};
    this.chart.zoomTo(at);
    this.options.onZoom = own;
  }

  reset() {
    if (this.chart) this.chart.resetZoom();
  }

  /** Marks a frame as the one that the keyboard stands on. */
  choose(d) {
    this.chosen = d;
    select(this.element).selectAll("g.frame").classed("chosen", (other) => other === d);
    this.options.onHover(this.label(d.data));
  }

  key(event) {
    if (!this.chart || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.chosen ?? this.zoomed ?? this.top();
    const widest = (children) => children?.reduce((best, next) => (next.value > best.value ? next : best));
    const beside = (step) => {
      const row = (at.parent?.children ?? []).filter((d) => d.value > 0);
      return row[row.indexOf(at) + step];
    };
    const steps = {
      ArrowDown: () => this.go(widest(at.children)),
      ArrowUp: () => this.go(at.parent),
      ArrowLeft: () => this.go(beside(-1)),
      ArrowRight: () => this.go(beside(1)),
      Enter: () => this.chart.zoomTo(at),
      " ": () => this.chart.zoomTo(at),
      Escape: () => this.reset(),
      Home: () => this.go(this.top()),
    };
    if (!steps[event.key]) return;
    event.preventDefault();
    steps[event.key]();
  }

  go(d) {
    if (d) this.choose(d);
  }
}

/** The names from the root to a node, the root itself left out. */
export function path(d) {
  return d.ancestors().reverse().slice(1).map((node) => node.data);
}

const ORIGIN_WORDS = {
  leaf: "the sampled instruction", cfi: "found by call frame information", fp: "found by frame pointer", kernel: "kernel",
  heuristic: "found by a heuristic", nocall: "a return address without a call before it", inlined: "inlined",
  truncated: "their other frames cannot be seen", broken: "what was found cannot be right",
};
const MARK_WORDS = { missing: "missing in the other", wrong: "wrong", beyond: "beyond the other's end" };

function words(data) {
  const total = sum(data.origins);
  const found = ORIGINS.map((origin, index) => [ORIGIN_WORDS[origin], data.origins[index]]).filter(([, n]) => n);
  const marks = MARKS.slice(1).map((mark, index) => [MARK_WORDS[mark], data.marks[index + 1]]).filter(([, n]) => n);
  const list = (parts) => parts.map(([word, n]) => (n === total ? word : `${word} in ${number(n)}`)).join(", ");
  return marks.length ? `${list(found)} · ${list(marks)}` : list(found);
}

function sum(list) {
  return list.reduce((a, b) => a + b, 0);
}

function fill(data, color, side) {
  if (!data.parent || data.isProcess) return "var(--process)";
  if (data.end && side !== "both") return `var(--${data.end})`;
  if (side === "both") return `var(--diff-${difference(data.n)})`;
  if (color === "agreement") return agreement(data);
  return `var(--${kind(data)}-${shade(data.name)})`;
}

/** From -3, only the reference, to 3, only the other. */
export function difference({ reference, other }) {
  const all = reference + other;
  const tilt = all ? (other - reference) / all : 0;
  const step = Math.abs(tilt) < 0.02 ? 0 : Math.min(3, Math.ceil(Math.abs(tilt) * 3));
  return step === 0 ? "0" : `${tilt > 0 ? "other" : "reference"}-${step}`;
}

/** The commonest way it was found. The sampled instruction takes the colour of the side's other frames. */
function kind(data) {
  let best = 0;
  data.origins.forEach((n, index) => { if (n > data.origins[best]) best = index; });
  return ORIGINS[best];
}

function agreement(data) {
  const total = sum(data.marks);
  const alone = total - data.marks[0];
  if (alone === 0) return "var(--same)";
  let worst = 1;
  data.marks.forEach((n, index) => { if (index > 0 && n > data.marks[worst]) worst = index; });
  return `var(--${MARKS[worst]}-${alone === total ? 2 : alone * 2 > total ? 1 : 0})`;
}

/** Tells neighbours apart. */
export function shade(name) {
  let hash = 0;
  for (let i = 0; i < name.length; i += 1) hash = (Math.imul(hash, 31) + name.charCodeAt(i)) >>> 0;
  return hash % 3;
}
