// Creates elements without parsing markup: names come from others and are not trusted.

export const byId = (id) => document.getElementById(id);

/** Creates an element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/**
 * Creates a table with sortable columns. A column is `{ title, value, cell, numeric, className }`:
 * `value` is its sort key, `cell` what is shown.
 * `sort` is a column's number from 1, negative to reverse; `onSort` is called with a new one.
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
