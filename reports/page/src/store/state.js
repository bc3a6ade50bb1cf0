// The state of the page, kept in the fragment of its address, so that a link restores it.

/** Parameters that filter samples. */
export const FILTERS = ["from", "to", "host", "service", "container", "pod", "process", "event", "strategy"];
/** Filters chosen from a list of names. */
export const FACETS = FILTERS.slice(2);
/** Start of the parameters that filter by a label. */
export const LABEL = "label.";
/** Filters that the left side of a comparison may override. */
export const OWN = ["host", "service", "container", "process", "strategy"];

/** The latest time that a `Date` can have. */
const LATEST_SECONDS = 8.64e12;

/** The current state, a `URLSearchParams`. */
export function state() {
  return new URLSearchParams(location.hash.slice(1));
}

/** Seconds since 1970 of a time, in either form that the server accepts; `null` if it is none. */
export function secondsOf(text) {
  const number = text ? Number(text) : NaN;
  const seconds = text && Number.isNaN(number) ? Date.parse(text) / 1000 : number;
  return Math.abs(seconds) <= LATEST_SECONDS ? seconds : null;
}

/** Returns the state with changes; `null` removes a parameter. */
export function changed(changes) {
  const next = state();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) next.delete(name);
    else next.set(name, value);
  }
  return next;
}

/** Sets the state. With `quietly` no entry is added to the browser's history. */
export function go(next, quietly) {
  const hash = `#${next}`;
  if (hash === (location.hash || "#")) return;
  history[quietly ? "replaceState" : "pushState"](null, "", hash);
}

/** The filters as parameters of a query, with further ones. */
export function query(more = {}) {
  const now = state();
  const names = [...new Set(now.keys())].filter((name) => FILTERS.includes(name) || name.startsWith(LABEL));
  const pairs = names.map((name) => [name, now.get(name)]);
  const all = { ...Object.fromEntries(pairs), ...more };
  return new URLSearchParams(Object.entries(all).filter(([, value]) => value !== null));
}
