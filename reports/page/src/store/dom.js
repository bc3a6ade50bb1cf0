// Elements, made without markup: names may be anybody's.

export const byId = (id) => document.getElementById(id);

/** An element with text or children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/**
 * A table whose columns can be sorted. A column is `{ title, value, cell, numeric, className }`:
 * what it is sorted by, and what is shown.
 * `sort` is a column's number, below 0 in the other direction; `onSort` is told another.
 */
export function table(columns, rows, { sort, onSort }) {
  const column = columns[Math.abs(sort) - 1] ?? columns[0];
  const direction = (column.numeric ? -1 : 1) * Math.sign(sort || 1);
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const sorted = rows.map((row) => [column.value(row), row]).sort((a, b) => direction * order(a[0], b[0]));
  const heads = columns.map((one, index) => {
    const is = one === column;
    const button = make("button", { type: "button", className: "sort", textContent: one.title });
    button.addEventListener("click", () => onSort(is ? -sort : index + 1));
    const head = make("th", { scope: "col", className: one.numeric ? "n" : "" }, button);
    if (is) head.setAttribute("aria-sort", direction < 0 ? "descending" : "ascending");
    return head;
  });
  const body = sorted.map(([, row]) => make("tr", {}, ...columns.map((one) => {
    return make("td", { className: one.className ?? (one.numeric ? "n" : "name") }, one.cell(row));
  })));
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
}
