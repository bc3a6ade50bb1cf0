// Flame graphs of the store: builds the tree from the answer's columns; labels and colours.

import { difference, Flame, shade } from "../flame.js";
import { share } from "../words.js";

const KINDS = ["all", "process", "frame", "truncated", "broken", "pruned"];

/** Builds the tree of an answer. `sides` are pairs of samples by node and their total: one selection, or before and after. */
export function treeOf(nodes, sides, amount) {
  const value = (at) => sides.reduce((sum, [samples, total]) => sum + (total ? samples[at] / total : 0), 0) / sides.length;
  const all = nodes.parent.map((parent, at) => ({
    name: nodes.names[nodes.name[at]], module: nodes.names[nodes.module[at]], kind: KINDS[nodes.kind[at]], parent: null,
    children: [], n: sides.map(([samples]) => samples[at]), value: sides.length === 1 ? sides[0][0][at] : value(at),
  }));
  all.forEach((node, at) => {
    if (node.kind === "pruned") node.name = `(pruned: ${node.n.map(amount).join(", ")})`;
    if (at === 0) return;
    node.parent = all[nodes.parent[at]];
    node.parent.children.push(node);
  });
  const ends = (node) => (["truncated", "broken"].includes(node.kind) ? 1 : node.kind === "pruned" ? 2 : 0);
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  all.forEach((node) => node.children.sort((a, b) => ends(a) - ends(b) || order(a.name, b.name)));
  return all[0];
}

/** A flame graph of one selection, or of two. */
export class StoreFlame extends Flame {
  /** `about` has the totals, the formatter of amounts, and the strategy. */
  show(root, about) {
    this.about = about;
    this.draw(root);
  }

  label(data) {
    const { totals, amount } = this.about;
    const shares = data.n.map((n, side) => `${amount(n)}, ${share(n, totals[side])}`);
    const module = data.module ? ` (${data.module})` : "";
    return `${data.name}${module} – ${shares.join(" before; ")}${shares.length > 1 ? " after" : ""}`;
  }

  /** The share that frames have of their side, or of each. */
  shares(frames) {
    const { totals } = this.about;
    const shares = totals.map((total, side) => share(frames.reduce((sum, { n }) => sum + n[side], 0), total));
    return shares.length > 1 ? `${shares.join(" before, ")} after` : shares[0];
  }

  fill(data) {
    if (data.kind === "pruned" || data.kind === "all") return "var(--diff-0)";
    if (data.n.length > 1) {
      const [reference, other] = data.n.map((n, side) => n / Math.max(1, this.about.totals[side]));
      return `var(--diff-${difference({ reference, other })})`;
    }
    if (data.kind !== "frame") return `var(--${data.kind})`;
    const family = data.module === "[kernel]" ? "kernel" : this.about.strategy === "fp" ? "fp" : "cfi";
    return `var(--${family}-${shade(data.name)})`;
  }
}
