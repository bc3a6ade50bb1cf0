// The views: each has a query and shows its answer.

import { path } from "../flame.js";
import { number, share } from "../words.js";
import { amounts } from "./amounts.js";
import { byId, make, table } from "./dom.js";
import { StoreFlame, treeOf } from "./flames.js";
import { cost, losses, stacks } from "./series.js";
import { changed, go, OWN, secondsOf, state } from "./state.js";

/** The most rows shown of a table. */
const MAX_ROWS = 300;

const flames = {};

/** The flame graph of a view, created when first shown. */
function flame(id, parameter) {
  flames[id] ??= new StoreFlame(byId(id), {
    names: {},
    onHover: (text) => { byId(`${id}-details`).textContent = text; },
    onZoom: (from, d) => go(changed({ [parameter]: path(d).map(stepOf).join("\n") || null }), true),
  });
  return flames[id];
}

/** A step of a path in the address: functions of different files may have the same name and caller. */
const stepOf = ({ name, module }) => (module ? `${name}\t${module}` : name);

/** Zooms to the frame in the state, and marks matches of its search. */
function steer(graph, id, parameter) {
  const zoom = state().get(parameter);
  if (zoom) {
    let at = graph.top();
    const steps = zoom.split("\n").map((step) => {
      const child = (nameOf) => at?.children?.find((one) => nameOf(one.data) === step);
      // Older links have names alone.
      at = child(stepOf) ?? child(({ name }) => name);
      return at?.data;
    });
    graph.zoomToPath(steps.filter(Boolean));
    graph.shrink();
  }
  search(graph, id);
}

function search(graph, id) {
  // There is none before the view is first shown.
  const found = graph?.search((state().get("search") ?? "").trim());
  byId(`${id}-found`).textContent = found ? `${number(found.frames)} frames, ${graph.shares(found.outermost)}` : "";
}

function leftOut(id, n) {
  byId(`${id}-left-out`).textContent = n ? `The smallest ${number(n)} frames are left out; their samples are in the grey ones.` : "";
}

/** Each view: its query, the parameters besides the filters, and the function that shows the answer. */
export const VIEWS = {
  flame: {
    question: "flamegraph",
    show(answer, choice) {
      const { amount } = amounts(answer.unit, choice.weight_unit);
      const graph = flame("flame", "zoom");
      const root = treeOf(answer.nodes, [[answer.samples, answer.total]], amount);
      graph.show(root, { totals: [answer.total], amount, strategy: choice.strategy });
      leftOut("flame", answer.left_out);
      steer(graph, "flame", "zoom");
    },
    search: () => search(flames.flame, "flame"),
  },
  functions: {
    question: "functions",
    parameters: (now) => ({ function: now.get("function"), module: now.has("function") ? now.get("module") : null }),
    show: functions,
    search: null,
  },
  compare: { question: "compare", parameters: sides, show: compare, search: () => search(flames.difference, "difference") },
  quality: { question: "quality", isPlain: true, show: quality },
  cost: { question: "cost", isPlain: true, show: costs },
};

function button(text, changes) {
  const element = make("button", { type: "button", className: "link", textContent: text });
  element.addEventListener("click", () => {
    go(changed(changes));
    window.dispatchEvent(new PopStateEvent("popstate"));
  });
  return element;
}

/** Sorts by another column, without another query. */
function sorting(name, redraw) {
  return {
    sort: Number(state().get(name) ?? 0) || undefined,
    onSort(sort) {
      go(changed({ [name]: String(sort) }), true);
      redraw();
    },
  };
}

/** The column with a function's file. */
const FILE = { title: "file", className: "file", value: (one) => one.module.toLowerCase(), cell: (one) => one.module };

function choose(one) {
  return one.name === null ? "" : button(one.name, { function: one.name, module: one.module, view: "functions" });
}

function functions(answer, choice) {
  const { amount, plain } = amounts(answer.unit, choice.weight_unit);
  const columns = [
    { title: "function", value: (one) => one.name.toLowerCase(), cell: choose },
    FILE,
    { title: "self", numeric: true, value: (one) => one.self, cell: (one) => plain(one.self) },
    { title: "self %", numeric: true, value: (one) => one.self, cell: (one) => share(one.self, answer.total) },
    { title: "total", numeric: true, value: (one) => one.total, cell: (one) => plain(one.total) },
    { title: "total %", numeric: true, value: (one) => one.total, cell: (one) => share(one.total, answer.total) },
  ];
  const draw = () => {
    const term = (state().get("find") ?? "").trim().toLowerCase();
    const found = answer.functions.filter((one) => `${one.name}\n${one.module}`.toLowerCase().includes(term));
    const options = sorting("sort", draw);
    byId("functions-table").replaceChildren(cut(columns, found, { sort: 3, ...defined(options) }));
    const more = answer.left_out ? ` The store has ${number(answer.left_out)} more, with fewer samples.` : "";
    const shown = found.length > MAX_ROWS ? `, the first ${number(MAX_ROWS)} are shown` : "";
    byId("functions-count").textContent = `${number(found.length)} functions${shown}.${more}`;
  };
  VIEWS.functions.search = draw;
  draw();
  neighbours(answer, amount, plain);
}

function defined(options) {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** A table of the first rows in the given order, with the number of all others: also of `more` that the server left out. */
function cut(columns, rows, options, more = 0) {
  const whole = table(columns, rows, options);
  [...whole.tBodies[0].rows].slice(MAX_ROWS).forEach((row) => row.remove());
  const left = Math.max(0, rows.length - MAX_ROWS) + more;
  if (left) {
    const words = { colSpan: columns.length, textContent: `${number(left)} more are not shown.` };
    whole.createTFoot().insertRow().append(make("td", words));
  }
  return whole;
}

/** Shows callers and callees of the chosen function. */
function neighbours(answer, amount, plain) {
  const name = state().get("function");
  byId("neighbours").hidden = name === null;
  if (name === null) return;
  const own = answer.functions.find((one) => one.name === name && one.module === (state().get("module") ?? one.module));
  byId("neighbours-name").textContent = name;
  byId("neighbours-own").textContent = own
    ? `${own.module || "no file"} · self ${amount(own.self)}, total ${amount(own.total)}` : "It is in no sample here.";
  const lists = [["callers", "caller", "(the stack ends here)"], ["callees", "callee", "(itself)"]];
  for (const [list, title, end] of lists) {
    const columns = [
      { title, value: (one) => one.name ?? "", cell: (one) => (one.name === null ? end : choose(one)) },
      { title: "total", numeric: true, value: (one) => one.total, cell: (one) => plain(one.total) },
      { title: "share", numeric: true, value: (one) => one.total, cell: (one) => share(one.total, own?.total ?? 0) },
    ];
    const draw = (sort) => byId(list).replaceChildren(cut(columns, answer[list], { sort, onSort: draw }));
    draw(2);
  }
  byId("neighbours-links").replaceChildren(
    button("Show it in the flame graph", { view: "flame", search: name, zoom: null }),
    button("Close", { function: null, module: null }),
  );
}

/** How much earlier the left side's range is, in seconds; `null` for its own length. */
const EARLIER = { period: null, day: 86400, week: 7 * 86400 };

/** The parameters of the comparison's left side that differ from the right side's. */
function sides(now) {
  const own = OWN.filter((name) => now.has(`before.${name}`)).map((name) => [`before.${name}`, now.get(`before.${name}`)]);
  const [from, to] = ["from", "to"].map((name) => secondsOf(now.get(name)));
  const when = now.get("before");
  if (when === "custom") {
    ["before.from", "before.to"].filter((name) => now.has(name)).forEach((name) => own.push([name, now.get(name)]));
  } else if (Object.hasOwn(EARLIER, when) && from !== null && to !== null) {
    const shift = EARLIER[when] ?? to - from;
    own.push(["before.from", String(from - shift)], ["before.to", String(to - shift)]);
  }
  return Object.fromEntries(own);
}

function points({ points: change, interval }) {
  const text = (n) => `${n > 0 ? "+" : ""}${n.toFixed(2)}`;
  return interval ? `${text(change)} [${text(interval.low)}, ${text(interval.high)}]` : text(change);
}

/** A description of the comparison. */
function titleOf(before, after, amount) {
  if (!before || !after) return `There is nothing to compare: ${amount(before)} before, ${amount(after)} after.`;
  const differing = sides(state());
  const same = Object.keys(differing).length === 0;
  const words = same ? "Both sides are the same: choose above what differs. " : "";
  const isIgnored = Object.hasOwn(EARLIER, state().get("before")) && !("before.from" in differing);
  const open = isIgnored ? "A range without a beginning or an end has no earlier one: choose another above. " : "";
  return `${open || words}${amount(before)} before, ${amount(after)} after; widths and colours are of shares.`;
}

function compare(answer, choice) {
  const { amount } = amounts(answer.about.unit, choice.weight_unit);
  const graph = flame("difference", "zoom2");
  const [before, after] = answer.total;
  byId("difference-title").textContent = titleOf(before, after, amount);
  graph.show(treeOf(answer.nodes, [[answer.before, before], [answer.after, after]], amount), { totals: answer.total, amount });
  leftOut("difference", answer.left_out);
  steer(graph, "difference", "zoom2");
  const percent = (n) => `${n.toFixed(2)}\u00a0%`;
  const columns = [
    { title: "function", value: (one) => one.name.toLowerCase(), cell: choose },
    FILE,
    { title: "before", numeric: true, value: (one) => one.total.before, cell: (one) => percent(one.total.before_percent) },
    { title: "after", numeric: true, value: (one) => one.total.after, cell: (one) => percent(one.total.after_percent) },
    { title: "total, points", numeric: true, value: (one) => Math.abs(one.total.points), cell: (one) => points(one.total) },
    { title: "self, points", numeric: true, value: (one) => Math.abs(one.self.points), cell: (one) => points(one.self) },
  ];
  const draw = () => {
    const options = sorting("sort2", draw);
    byId("changes-table").replaceChildren(cut(columns, answer.functions, { sort: 5, ...defined(options) }, answer.functions_left_out));
  };
  draw();
}

function quality(answer) {
  stacks(byId("stacks-over-time"), answer);
  losses(byId("losses-over-time"), answer, ["lost", "dropped", "discarded"]);
  losses(byId("skipped-over-time"), answer, ["skipped"]);
  const ends = Object.entries(answer.ends).flatMap(([strategy, classes]) => {
    const rows = Object.entries(classes).flatMap(([stack, all]) => Object.entries(all).map(([end, n]) => ({ stack, end, n })));
    const total = rows.reduce((sum, row) => sum + row.n, 0);
    return rows.map((row) => ({ ...row, strategy, total }));
  });
  show("ends-table", ends, 4, [
    { title: "strategy", value: (row) => row.strategy, cell: (row) => row.strategy },
    { title: "stack", value: (row) => row.stack, cell: (row) => row.stack },
    { title: "end", value: (row) => row.end, cell: (row) => row.end },
    { title: "samples", numeric: true, value: (row) => row.n, cell: (row) => number(row.n) },
    { title: "share", numeric: true, value: (row) => row.n / row.total, cell: (row) => share(row.n, row.total) },
  ]);
  const sums = new Map();
  answer.ticks.forEach(({ counter, cause, value }) => {
    const key = `${counter}\n${cause}`;
    sums.set(key, (sums.get(key) ?? 0) + value);
  });
  show("ticks-table", [...sums].map(([key, n]) => [...key.split("\n"), n]), 3, [
    { title: "ticks", value: (row) => row[0], cell: (row) => row[0] },
    { title: "cause", value: (row) => row[1], cell: (row) => row[1] },
    { title: "number", numeric: true, value: (row) => row[2], cell: (row) => number(row[2]) },
  ]);
}

/** A table whose sort order is not kept in the address. */
function show(id, rows, first, columns) {
  const draw = (sort) => byId(id).replaceChildren(cut(columns, rows, { sort, onSort: draw }));
  draw(first);
}

function costs(answer) {
  ["cpu", "rss", "rate"].forEach((what) => cost(byId(`cost-${what}`), answer, what));
  byId("cost-left-out").textContent = answer.hosts_left_out
    ? `${number(answer.hosts_left_out)} more machines took less CPU time.` : "";
}
