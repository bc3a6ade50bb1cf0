// Figures in words, as the tables of the page write them.

const count = new Intl.NumberFormat("en-US");

/** 1234567 → 1,234,567. */
export function number(n) {
  return count.format(Math.round(n * 10) / 10);
}

/** 5321 → 5.32 kB. */
export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let value = n;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${Number(value.toPrecision(3))}\u00a0${units[at]}`;
}

/** Bytes of stack, in the unit that chunk sizes are typed in: 4096 → 4K. */
export function chunk(n) {
  if (n < 1024) return `${Math.round(n)}\u00a0B`;
  return `${Number((n / 1024).toPrecision(3))}K`;
}

/** A share of a whole that never claims too much. */
export function share(part, whole) {
  if (!whole) return "–";
  if (part === 0 || part === whole) return part ? "100\u00a0%" : "0\u00a0%";
  const percent = (100 * part) / whole;
  if (percent < 0.05) return "<0.1\u00a0%";
  return `${Math.min(percent, 99.9).toFixed(1)}\u00a0%`;
}
