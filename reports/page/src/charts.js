// Curves, depths and time, drawn with Observable Plot. Colours are variables of the style sheet, so that dark, light
// and paper need no drawing of their own.

import * as Plot from "@observablehq/plot";
import { slicesOf } from "./data.js";
import { bytes, chunk, number, share } from "./words.js";

/** Colours by how stacks end. */
export const ENDS = { domain: ["complete", "truncated", "broken"], range: ["var(--good)", "var(--warn)", "var(--bad)"] };

/** What all figures have. */
export function common(figure, more) {
  const width = Math.max(320, figure.clientWidth || 900);
  return { width, marginLeft: 52, marginRight: 64, marginBottom: 36, marginTop: 22, className: "plot", ...more };
}

/** Shows a drawing, with a label for those who do not see it. */
export function put(figure, plot, label) {
  const target = figure.querySelector(".plot-here");
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", label);
  target.replaceChildren(plot);
}

/** Says why there is no drawing. */
export function nothing(figure, words) {
  const p = document.createElement("p");
  p.className = "nothing";
  p.textContent = words;
  figure.querySelector(".plot-here").replaceChildren(p);
}

/** Powers of two within a range of bytes, as ticks. */
function ticks(figure, [from, to]) {
  const all = [];
  for (let size = 512; size <= to * 1.01; size *= 2) if (size >= from) all.push(size);
  const room = Math.max(2, Math.floor(figure.clientWidth / 75));
  const every = Math.ceil(all.length / room);
  return all.filter((_, index) => index % every === 0);
}

/** Completeness and cost by size of the chunk. */
export function whatIf(figure, data, filter) {
  const curve = filter.curve();
  if (!curve || !curve.points.length) return nothing(figure, "No stack was unwound from a copied chunk here.");
  const points = curve.points.map(([size, complete, mean]) => ({
    size, percent: (100 * complete) / curve.samples, complete, mean, minute: mean * data.samples_per_minute,
  }));
  const dearest = Math.max(...points.map((point) => point.mean), 1);
  const scaled = (mean) => (100 * mean) / dearest;
  const smallest = curve.smallest.filter(([, size]) => size !== null)
    .map(([percent, size]) => ({ percent, size: Math.max(size, 512), asked: size }));
  const others = filter.process === "" ? data.curves.filter((other) => other.name !== "" && other.points.length).slice(0, 6) : [];
  const domain = [512, points[points.length - 1].size];
  const plot = Plot.plot(common(figure, {
    height: 320,
    marginRight: 124,
    x: { type: "log", base: 2, domain, ticks: ticks(figure, domain), tickFormat: chunk, label: "chunk size", grid: true },
    y: { domain: [0, 100], label: "stacks complete, %", grid: true },
    marks: [
      Plot.axisY({ anchor: "left", label: "stacks complete, %" }),
      Plot.axisY([0, 25, 50, 75, 100], {
        anchor: "right", color: "var(--cost)", label: "copied a sample · a minute",
        tickFormat: (percent) => {
          const mean = (percent / 100) * dearest;
          return percent ? `${chunk(mean)} · ${bytes(mean * data.samples_per_minute)}` : "0";
        },
      }),
      Plot.areaY(points, { x: "size", y: (point) => scaled(point.mean), fill: "var(--cost)", fillOpacity: 0.1 }),
      Plot.lineY(points, { x: "size", y: (point) => scaled(point.mean), stroke: "var(--cost)", strokeDasharray: "4 3" }),
      others.map((other) => Plot.lineY(other.points, {
        x: (point) => point[0], y: (point) => (100 * point[1]) / other.samples, curve: "step-after",
        stroke: "var(--soft)", strokeOpacity: 0.75, strokeWidth: 1,
      })),
      Plot.text(others.map((other) => ({ other, at: other.points[Math.floor(other.points.length / 3)] })), {
        x: ({ at }) => at[0], y: ({ at, other }) => (100 * at[1]) / other.samples, text: ({ other }) => other.name,
        dy: -6, fill: "var(--soft)", stroke: "var(--card)",
      }),
      Plot.lineY(points, { x: "size", y: "percent", stroke: "var(--curve)", strokeWidth: 2.2, curve: "step-after" }),
      Plot.dot(smallest, { x: "size", y: "percent", fill: "var(--curve)", stroke: "var(--card)", r: 4.5 }),
      Plot.text(smallest.filter((point) => [50, 90, 99].includes(point.percent)), {
        x: "size", y: "percent", text: (point) => `${point.percent}\u00a0%: ${chunk(point.asked)}`,
        textAnchor: "end", dx: -8, dy: 13, fill: "var(--ink)", stroke: "var(--card)", strokeWidth: 4,
      }),
      Plot.tip(points, Plot.pointerX({
        x: "size", y: "percent", fill: "var(--card)", stroke: "var(--line)",
        title: (point) => [
          `chunks of ${chunk(Math.round(point.size))}`,
          `${share(point.complete, curve.samples)} complete (${number(point.complete)} of ${number(curve.samples)})`,
          `${chunk(point.mean)} copied a sample`,
          `${bytes(point.minute)} copied a minute`,
        ].join("\n"),
      })),
    ],
  }));
  const best = smallest.find((point) => point.percent === 99);
  put(figure, plot, best ? `99 % of the stacks are complete with chunks of ${chunk(best.asked)}` : "No size shown completes 99 % of the stacks");
}

/** How deep stacks really are. */
export function depth(figure, data, filter) {
  const curve = filter.curve();
  if (!curve || !curve.depths.length) return nothing(figure, "The end of no stack is known here.");
  const bars = curve.depths.map(([from, to, n]) => ({ from, to, n }));
  const domain = [Math.min(512, bars[0].from), Math.max(bars[bars.length - 1].to, 1024)];
  const plot = Plot.plot(common(figure, {
    height: 200,
    x: { type: "log", base: 2, domain, ticks: ticks(figure, domain), tickFormat: chunk, label: "bytes from the stack pointer to the end of the stack" },
    y: { label: "samples", grid: true },
    marks: [
      Plot.rectY(bars, {
        x1: "from", x2: "to", y: "n", fill: "var(--curve)", fillOpacity: 0.75, insetLeft: 0.5, insetRight: 0.5,
        tip: { fill: "var(--card)", stroke: "var(--line)" },
        title: (bar) => `${chunk(Math.round(bar.from))} to ${chunk(Math.round(bar.to))}\n${number(bar.n)} samples`,
      }),
      Plot.ruleY([0], { stroke: "var(--soft)" }),
      data.chunk_bytes ? Plot.ruleX([data.chunk_bytes], { stroke: "var(--bad)", strokeDasharray: "3 3" }) : null,
    ],
  }));
  put(figure, plot, "Distribution of the true depth of stacks");
}

/** Samples by time and end of their stack, and what was lost, by CPU. */
export function timeline(figure, data, filter) {
  const sides = data.other ? [data.other, data.reference] : [data.reference];
  const bars = sides.flatMap((strategy) => {
    const side = strategy === data.reference ? 0 : 1;
    return slicesOf(data, filter, side).map((slice) => ({ ...slice, strategy }));
  });
  const seconds = (ms) => ms / 1000;
  const x = { domain: [0, Math.max(seconds(data.slices.duration_ms), 1e-3)], label: "seconds since the start" };
  const plots = [Plot.plot(common(figure, {
    height: 64 + 86 * sides.length,
    x: { ...x, label: data.gaps.length ? null : x.label, grid: true },
    y: { label: "samples", grid: true, ticks: 4 },
    fy: { domain: sides, label: null },
    color: ENDS,
    marks: [
      Plot.rectY(bars, {
        x1: (bar) => seconds(bar.from), x2: (bar) => seconds(bar.to), y: "n", fy: "strategy", fill: "end",
        order: ENDS.domain, insetLeft: 0.25, insetRight: 0.25, tip: { fill: "var(--card)", stroke: "var(--line)" },
        title: (bar) => `${seconds(bar.from).toFixed(3)} s\n${bar.strategy}: ${number(bar.n)} ${bar.end}`,
      }),
      Plot.ruleY([0], { stroke: "var(--soft)" }),
    ],
  }))];
  if (data.gaps.length) plots.push(lost(figure, data, x, seconds));
  const box = document.createElement("div");
  box.append(...plots);
  put(figure, box, data.gaps.length ? "Samples by time, and where samples were lost" : "Samples by time; none was lost");
}

/** A lane for each CPU that lost samples; a gap without a cause is as wide as it is uncertain. */
function lost(figure, data, x, seconds) {
  const gaps = data.gaps.map(([cpu, from, to, n, cause]) => ({ cpu: `CPU ${cpu}`, from, to, n, cause }));
  const lanes = [...new Set(gaps.map((gap) => gap.cpu))];
  return Plot.plot(common(figure, {
    height: 46 + 22 * lanes.length,
    x,
    y: { domain: lanes, label: null, type: "band", tickSize: 0 },
    marks: [
      Plot.barX(gaps, {
        x1: (gap) => seconds(gap.from), x2: (gap) => seconds(gap.to), y: "cpu", fill: "var(--bad)", fillOpacity: 0.35,
      }),
      Plot.tickX(gaps, {
        x: (gap) => seconds(gap.to), y: "cpu", stroke: "var(--bad)", strokeWidth: 2,
        tip: { fill: "var(--card)", stroke: "var(--line)" },
        title: (gap) => `${number(gap.n)} lost on ${gap.cpu}: ${gap.cause ?? "cause unknown, between two samples"}\n${seconds(gap.from).toFixed(3)} s to ${seconds(gap.to).toFixed(3)} s`,
      }),
    ],
  }));
}
