// The page of a store: filters, views, and the state kept in the page's address.

import { number } from "../words.js";
import { ask, Refused } from "./api.js";
import { byId, make } from "./dom.js";
import { changed, FACETS, go, LABEL, OWN, query, secondsOf, state } from "./state.js";
import { VIEWS } from "./views.js";

/** Lengths of ranges in seconds, up to the end of the last interval. */
const RANGES = { "15min": 900, "1h": 3600, "6h": 21600, "1d": 86400, "7d": 604800 };
/** Input fields that hold a time. */
const TIMES = ["from", "to", "before.from", "before.to"];
let store = null;
let last = null;
let asking = new AbortController();

const viewOf = (now) => (Object.hasOwn(VIEWS, now.get("view")) ? now.get("view") : "flame");

function say(id, words) {
  byId(id).textContent = words;
  byId(id).hidden = words === "";
}

/** The range of the last `seconds` of the store; all of it without, which the address says, too. */
function rangeOf(seconds) {
  if (!store.span || !seconds) return { from: null, to: null, range: "all" };
  const end = Math.floor(store.span[1]) + 1;
  return { from: String(end - seconds), to: String(end), range: null };
}

/** Queries the server for the state in the address, and shows the answer. */
async function refresh() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const now = state();
  const view = viewOf(now);
  showInputs(now, view);
  document.documentElement.dataset.ready = "no";
  byId("status").textContent = "Reading …";
  try {
    const facets = await ask("facets", query(), signal);
    fill(facets);
    const { question, parameters, show, isPlain } = VIEWS[view];
    const choice = facets.choice ?? { event: "", strategy: "", weight_unit: "" };
    const isWeighed = choice.weights_differ || choice.weight_unit === "blocked_ns";
    // The other side of a comparison may need weights: the server decides.
    const usual = question === "compare" ? null : isWeighed ? "weight" : "samples";
    const unit = now.get("unit") ?? usual;
    const fixed = facets.choice && !isPlain ? { event: choice.event, strategy: choice.strategy, unit } : {};
    const answer = await ask(question, query({ ...fixed, ...parameters?.(now) }), signal);
    // Figures take the width of their container, which has one only while it is visible.
    last = () => show(answer, choice);
    last();
    say("problem", "");
    status(answer, facets, choice);
  } catch (error) {
    if (error.name === "AbortError") return;
    say("problem", error.message);
    byId("status").textContent = "";
    if (!(error instanceof Refused)) throw error;
  }
  document.documentElement.dataset.ready = "yes";
}

function status({ files }, facets, choice) {
  const one = facets.combinations.find((two) => two.event === choice.event && two.strategy === choice.strategy);
  const parts = [one ? `${number(one.samples)} samples of ${choice.event} by ${choice.strategy}` : "No samples here"];
  if (facets.others) parts.push(`${number(facets.others)} more not unwound with ${choice.strategy}`);
  if (files.read !== 1) parts.push(`${number(files.read)} files`);
  byId("status").textContent = parts.join(" · ");
  const { count, first } = files.unread;
  const named = first.slice(0, 3).join("; ") + (count > 3 ? "; …" : "");
  say("unread", count ? `${number(count)} files cannot be read, and what is in them is not counted: ${named}` : "");
}

/** Shows the view, and sets its controls from the state. */
function showInputs(now, view) {
  document.querySelectorAll("[role=tab]").forEach((tab) => {
    tab.setAttribute("aria-selected", String(tab.dataset.view === view));
    tab.tabIndex = tab.dataset.view === view ? 0 : -1;
  });
  document.querySelectorAll("[role=tabpanel]").forEach((panel) => { panel.hidden = panel.id !== `view-${view}`; });
  for (const name of TIMES) {
    const seconds = secondsOf(now.get(name));
    byId(name).value = seconds === null ? "" : new Date(seconds * 1000).toISOString().slice(0, 19);
    byId(name).parentElement.hidden = name.startsWith("before.") ? now.get("before") !== "custom" : !store.span;
  }
  byId("range").parentElement.hidden = !store.span;
  byId("before").parentElement.hidden = !store.span;
  const range = Object.keys(RANGES).find((one) => rangeOf(RANGES[one]).from === now.get("from") && rangeOf(RANGES[one]).to === now.get("to"));
  byId("range").value = range ?? (now.has("from") || now.has("to") ? "custom" : "all");
  document.querySelectorAll("input[data-state]").forEach((input) => {
    if (document.activeElement !== input) input.value = now.get(input.dataset.state) ?? "";
  });
  byId("before").value = now.get("before") ?? "";
}

/** Fills a list of names; the first option means any. A chosen name stays in the list even if it has no samples now. */
function options(select, any, names, chosen) {
  const all = chosen !== null && !names.some(([name]) => name === chosen) ? [[chosen, 0], ...names] : names;
  const option = (value, text) => make("option", { value, textContent: text });
  select.replaceChildren(option("", any), ...all.map(([name, n]) => option(`=${name}`, `${name || "(none)"} (${number(n)})`)));
  select.value = chosen === null ? "" : `=${chosen}`;
}

/** Fills the lists of the labels, whose names only the store knows. A label without values here has none, unless one is chosen. */
function fillLabels(labels) {
  const now = state();
  const named = Object.keys(labels).filter((label) => labels[label].some(({ name }) => name !== ""));
  const chosen = [...now.keys()].filter((name) => name.startsWith(LABEL)).map((name) => name.slice(LABEL.length));
  const all = [...new Set([...named, ...chosen])].sort();
  const known = [...byId("labels").children].map((child) => child.dataset.label);
  if (all.join("\n") !== known.join("\n")) {
    byId("labels").replaceChildren(...all.map((label) => {
      const select = make("select", { id: LABEL + label });
      select.addEventListener("change", () => change({ [LABEL + label]: chosenIn(select), zoom: null }));
      const element = make("label", {}, `${label} `, select);
      element.dataset.label = label;
      return element;
    }));
  }
  for (const label of all) {
    const values = (Object.hasOwn(labels, label) ? labels[label] : []).map(({ name, samples }) => [name, samples]);
    options(byId(LABEL + label), "any", values, now.get(LABEL + label));
  }
}

function fill({ facets, labels, combinations, choice }) {
  fillLabels(labels);
  const now = state();
  const names = (facet) => (facets[facet] ?? []).map(({ name, samples }) => [name, samples]);
  const lists = Object.fromEntries(FACETS.map((facet) => [facet, names(facet)]));
  const chosen = (facet) => now.get(facet) ?? null;
  const events = new Map();
  combinations.forEach(({ event, samples }) => events.set(event, Math.max(samples, events.get(event) ?? 0)));
  lists.event = [...events];
  const event = choice?.event ?? "";
  lists.strategy = combinations.filter((one) => one.event === event).map(({ strategy, samples }) => [strategy, samples]);
  for (const facet of FACETS) {
    const isFixed = facet === "event" || facet === "strategy";
    const any = isFixed ? `automatic: ${choice?.[facet] ?? "none"}` : "any";
    options(byId(facet), any, lists[facet], chosen(facet));
    const isUseless = !isFixed && chosen(facet) === null && lists[facet].every(([name]) => name === "");
    byId(facet).parentElement.hidden = isUseless;
  }
  for (const facet of OWN) {
    options(byId(`before.${facet}`), "as after", lists[facet], now.get(`before.${facet}`));
    byId(`before.${facet}`).parentElement.hidden = byId(facet).parentElement.hidden;
  }
  byId("unit").value = now.get("unit") ?? "";
}

/** Changes the state, as a step in the browser's history. */
function change(changes) {
  go(changed(changes));
  refresh();
}

/** The name chosen in a list of [`options`]; `null` for any. */
const chosenIn = (select) => (select.value === "" ? null : select.value.slice(1));

function listen() {
  for (const facet of FACETS) byId(facet).addEventListener("change", ({ target }) => change({ [facet]: chosenIn(target), zoom: null }));
  for (const facet of OWN) {
    byId(`before.${facet}`).addEventListener("change", ({ target }) => change({ [`before.${facet}`]: chosenIn(target) }));
  }
  for (const name of ["unit", "before"]) byId(name).addEventListener("change", ({ target }) => change({ [name]: target.value || null }));
  byId("range").addEventListener("change", async ({ target }) => {
    if (target.value === "custom") return byId("from").focus();
    // The agent may have stored more meanwhile. If the server does not answer, the next question shows it.
    await look().catch(() => {});
    change({ ...rangeOf(RANGES[target.value]), zoom: null });
  });
  for (const name of TIMES) {
    byId(name).addEventListener("change", ({ target }) => {
      const seconds = secondsOf(target.value && `${target.value}Z`);
      const next = changed({ [name]: seconds === null ? null : String(seconds) });
      change({ [name]: next.get(name), range: next.has("from") || next.has("to") ? null : "all" });
    });
  }
  document.querySelectorAll("[role=tab]").forEach((tab) => tab.addEventListener("click", () => change({ view: tab.dataset.view })));
  byId("tabs").addEventListener("keydown", ({ key }) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (!step) return;
    const tabs = [...document.querySelectorAll("[role=tab]")].filter((tab) => !tab.hidden);
    const at = tabs.findIndex((tab) => tab.dataset.view === viewOf(state()));
    const next = tabs[(at + step + tabs.length) % tabs.length];
    change({ view: next.dataset.view });
    next.focus();
  });
  document.querySelectorAll("input[data-state]").forEach((input) => input.addEventListener("input", () => {
    go(changed({ [input.dataset.state]: input.value || null }), true);
    if (last) VIEWS[viewOf(state())].search?.();
  }));
  document.querySelectorAll("button[data-reset]").forEach((button) => button.addEventListener("click", () => {
    go(changed({ [button.dataset.reset]: null }), true);
    last?.();
  }));
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const field = document.querySelector("[role=tabpanel]:not([hidden]) input[data-state]");
    if (!field) return;
    event.preventDefault();
    field.focus();
  });
  window.addEventListener("popstate", refresh);
}

/** Redraws at the new width once resizing has stopped. */
function redrawWhenResized() {
  let width = document.body.clientWidth;
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (document.body.clientWidth === width) return;
      width = document.body.clientWidth;
      last?.();
    }, 150);
  });
}

/** Reads the store's name and span; for this empty range the server reads no file. */
async function look() {
  ({ store } = await ask("facets", "from=0&to=1"));
}

export async function begin() {
  document.documentElement.classList.add("alive");
  try {
    await look();
  } catch (error) {
    say("problem", error.message);
    return;
  }
  document.querySelector("[data-view=cost]").hidden = !store.has_counters;
  if (!["from", "to", "range"].some((name) => state().has(name)) && store.span) go(changed(rangeOf(RANGES["1h"])), true);
  listen();
  redrawWhenResized();
  await refresh();
}
