// Formats amounts in the unit of an answer.

import { number } from "../words.js";

/** Formats nanoseconds, such as 1.23 s. */
export function duration(ns) {
  const units = [["ns", 1e3], ["µs", 1e3], ["ms", 1e3], ["s", 60], ["min", 60], ["h", Infinity]];
  let value = ns;
  if (ns === 0) return "0";
  for (const [unit, next] of units) {
    if (value < next) return `${Number(value.toPrecision(3))}\u00a0${unit}`;
    value /= next;
  }
  return "";
}

/** Formatters for a unit: `amount` appends its name, `plain` does not. The unit is `samples` or `weight`. */
export function amounts(unit, weightUnit) {
  if (unit === "weight" && weightUnit.endsWith("_ns")) return { amount: duration, plain: duration };
  const noun = unit === "weight" ? weightUnit : "samples";
  return { amount: (n) => `${number(n)}\u00a0${noun}`, plain: number };
}
