// Quality and cost over time, drawn with Observable Plot.

import * as Plot from "@observablehq/plot";
import { common, ENDS, nothing, put } from "../charts.js";
import { bytes, number } from "../words.js";

const TIP = { fill: "var(--card)", stroke: "var(--line)" };
const date = (s) => new Date(s * 1000);
const clock = (s) => `${date(s).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** A time axis in UTC, whose labels are as detailed as the range needs. */
function axis(figure, rows, bucket) {
  const seconds = rows.map((row) => row.time);
  const [from, to] = [Math.min(...seconds), Math.max(...seconds) + bucket];
  const [begin, end] = to - from > 172800 ? [5, 16] : to - from > 1200 ? [11, 16] : [11, 19];
  const room = Math.max(2, Math.floor((figure.clientWidth || 900) / (end - begin > 5 ? 150 : 110)));
  const tickFormat = (time) => time.toISOString().slice(begin, end).replace("T", " ");
  return { type: "utc", domain: [date(from), date(to)], label: "UTC", grid: true, ticks: room, tickFormat };
}

/** Stacked bars, as wide as a bucket. */
function bars(rows, bucket, options) {
  return Plot.rectY(rows, {
    x1: (row) => date(row.time), x2: (row) => date(row.time + bucket), insetLeft: 0.5, insetRight: 0.5, tip: TIP, ...options,
  });
}

/** Stacks by how they end, one chart for each strategy. */
export function stacks(figure, answer) {
  const rows = answer.stacks;
  if (!rows.length) return nothing(figure, "There are no samples here.");
  const strategies = [...new Set(rows.map((row) => row.strategy))];
  const classes = [...ENDS.domain, "no_stack"];
  const color = { domain: classes, range: [...ENDS.range, "var(--soft)"] };
  const plot = Plot.plot(common(figure, {
    height: 60 + 110 * strategies.length, x: axis(figure, rows, answer.stacks_bucket_s),
    y: { label: "samples", grid: true, ticks: 4 }, fy: { domain: strategies, label: null }, color,
    marks: [
      bars(rows, answer.stacks_bucket_s, {
        y: "samples", fy: "strategy", fill: "stack", order: classes,
        title: (row) => `${clock(row.time)}\n${row.strategy}: ${number(row.samples)} ${row.stack}`,
      }),
      Plot.ruleY([0], { stroke: "var(--soft)" }),
    ],
  }));
  put(figure, plot, "Samples over time, by strategy and by how their stacks end");
}

/** Ticks without a stored sample, by cause. */
export function losses(figure, answer, counters) {
  const wanted = answer.ticks.filter((row) => counters.includes(row.counter) && row.value > 0);
  const words = counters.join(", ").replace(/, ([^,]*)$/, " or $1");
  if (!wanted.length) return nothing(figure, answer.ticks.length ? `None was ${words} here.` : "No ticks are counted here.");
  const rows = wanted.map((row) => ({ ...row, what: row.cause ? `${row.counter}: ${row.cause}` : row.counter }));
  const plot = Plot.plot(common(figure, {
    height: 170, x: axis(figure, answer.ticks, answer.ticks_bucket_s), y: { label: "ticks", grid: true, ticks: 4 },
    color: { legend: true, scheme: "observable10" },
    marks: [
      bars(rows, answer.ticks_bucket_s, {
        y: "value", fill: "what", title: (row) => `${clock(row.time)}\n${number(row.value)} ${row.what}`,
      }),
      Plot.ruleY([0], { stroke: "var(--soft)" }),
    ],
  }));
  put(figure, plot, `Ticks over time that were ${words}`);
}

const COSTS = {
  cpu: { label: "per cent of one CPU", value: (row) => row.cpu_percent, text: (value) => `${value.toFixed(2)} %` },
  rss: { label: "resident memory, MB", value: (row) => row.rss_bytes / 1e6, text: (value) => bytes(value * 1e6) },
  rate: { label: "samples per second on each CPU", value: (row) => row.rate_hz, text: (value) => `${value} Hz` },
};

/** One measure of the agents' cost, a line for each machine. */
export function cost(figure, answer, what) {
  const { label, value, text } = COSTS[what];
  const rows = answer.points.filter((row) => value(row) !== null);
  if (!rows.length) return nothing(figure, "The agent has noted no cost here.");
  const hosts = new Set(rows.map((row) => row.host));
  const plot = Plot.plot(common(figure, {
    height: 190, x: axis(figure, rows, answer.bucket_s), y: { label, grid: true, zero: true, ticks: 5 },
    color: { legend: hosts.size > 1, scheme: "observable10" },
    marks: [
      Plot.ruleY([0], { stroke: "var(--soft)" }),
      Plot.lineY(rows, { x: (row) => date(row.time), y: value, stroke: "host", strokeWidth: 1.8, curve: "step-after" }),
      Plot.dot(rows, {
        x: (row) => date(row.time), y: value, fill: "host", r: rows.length > 300 ? 0 : 2.2, tip: TIP,
        title: (row) => `${clock(row.time)}\n${row.host}: ${text(value(row))}`,
      }),
    ],
  }));
  put(figure, plot, `${label} over time`);
}
