// Bundles the script and the styles of the pages into one file each, and the licences of everything in them into another.
// usage: node build.mjs [FOLDER]     default: ../assets
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../assets");
mkdirSync(out, { recursive: true });

const common = {
  absWorkingDir: here, bundle: true, write: false, minify: true, metafile: true, charset: "ascii", legalComments: "none",
  target: "es2022", logLevel: "warning",
};
const used = new Set();

function note({ metafile }, name) {
  const inputs = Object.entries(metafile.outputs[name].inputs);
  inputs.filter(([, { bytesInOutput }]) => bytesInOutput > 0).forEach(([path]) => used.add(path));
}

// One script for the page of a recording and for that of a store. The library's own style is loaded by the style sheets,
// so that the script brings none.
const script = await build({
  ...common, entryPoints: ["src/entry.js"], format: "iife", loader: { ".css": "empty" }, outfile: "page.js",
});
const js = script.outputFiles[0].text.trimEnd();
if (/<\/script|<!--/i.test(js)) throw new Error("the script would end its own element");
writeFileSync(join(out, "page.js"), js);
writeFileSync(join(out, "page.js.sha256"), createHash("sha256").update(js).digest("base64"));
note(script, "page.js");
for (const [name, sheet] of [["page", "src/style"], ["store", "src/store/style"]]) {
  const style = await build({ ...common, entryPoints: [`${sheet}.css`], outfile: `${name}.css` });
  writeFileSync(join(out, `${name}.css`), style.outputFiles[0].text.trimEnd());
  note(style, `${name}.css`);
}

const packages = new Set([...used].map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean));
const texts = [...packages].sort().map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${relative(here, folder)} has no licence text`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});
const head = "What is bundled in the script and styles, beside fpprof's own code, and its licences.\n";
writeFileSync(join(out, "LICENSES.txt"), [head, ...texts].join(`\n${"-".repeat(80)}\n\n`));
