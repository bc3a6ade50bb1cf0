// What is shown, as it stands behind the # of the page's address: a link shows the same again.

/** Parameters that choose samples. */
export const FILTERS = ["from", "to", "host", "service", "container", "pod", "process", "event", "strategy"];
/** Those of them that are chosen from names. */
export const FACETS = FILTERS.slice(2);
/** What the left side of a comparison may have of its own. */
export const OWN = ["host", "service", "container", "process", "strategy"];

/** The state, a `URLSearchParams`. */
export function state() {
  return new URLSearchParams(location.hash.slice(1));
}

/** The state with changes: a value, or `null` for none. */
export function changed(changes) {
  const next = state();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) next.delete(name);
    else next.set(name, value);
  }
  return next;
}

/** Makes it the state. With `quietly` the browser's way back does not stop here. */
export function go(next, quietly) {
  const hash = `#${next}`;
  if (hash === (location.hash || "#")) return;
  history[quietly ? "replaceState" : "pushState"](null, "", hash);
}

/** The filters as parameters of a question, with more. */
export function query(more = {}) {
  const now = state();
  const pairs = FILTERS.filter((name) => now.has(name)).map((name) => [name, now.get(name)]);
  const all = { ...Object.fromEntries(pairs), ...more };
  return new URLSearchParams(Object.entries(all).filter(([, value]) => value !== null));
}
