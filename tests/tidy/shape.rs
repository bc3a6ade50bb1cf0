//! Metrics of the code: lines by crate, cycles between files, copies, and the longest files.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};

/// Minimum number of lines that count as a copy.
const COPY: usize = 10;
/// Number of longest files that are listed.
const LONGEST: usize = 10;

/// File contents by path.
pub(crate) type Files = BTreeMap<String, String>;
/// Lines of a file with their numbers.
type Lines<'a> = [(usize, &'a str)];
/// Names that a file uses from other files, by file.
type Dependencies<'a> = BTreeMap<&'a str, BTreeSet<String>>;

/// The output of `just shape`.
pub(crate) struct Shape {
    lines: BTreeMap<String, [usize; 2]>,
    pub(crate) cycles: Vec<String>,
    pub(crate) copies: Vec<String>,
    longest: Vec<String>,
}

impl Shape {
    /// Computes the metrics of these files, which belong to the crates in these directories.
    pub(crate) fn of(files: &Files, crates: &[&str]) -> Self {
        let mut lines: BTreeMap<String, [usize; 2]> = BTreeMap::new();
        for (path, text) in files {
            let owner = crates.iter().filter(|folder| path.starts_with(**folder)).max_by_key(|folder| folder.len());
            let (all, own) = (code(path, text).count(), code(path, without_tests(path, text)).count());
            for name in [owner.map_or("fpprof", |folder| folder.trim_end_matches('/')), "all"] {
                let [code, tests] = lines.entry(name.to_owned()).or_default();
                (*code, *tests) = (*code + own, *tests + all - own);
            }
        }
        let mut longest: Vec<_> = files.iter().map(|(path, text)| (text.lines().count(), path)).collect();
        longest.sort_unstable_by(|a, b| b.cmp(a));
        longest.retain(|(_, path)| !is_test(path));
        let longest = longest.iter().take(LONGEST).map(|(n, path)| format!("{n} {path}")).collect();
        Self { lines, cycles: cycles(files), copies: copies(files), longest }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:28} {:>8} {:>8}", "blanks and comments apart", "code", "tests")?;
        for (name, [code, tests]) in &self.lines {
            writeln!(f, "{name:28} {code:8} {tests:8}")?;
        }
        let copies = format!("copies of {COPY} lines and more");
        for (what, list) in [("cycles", &self.cycles), (copies.as_str(), &self.copies)] {
            writeln!(f, "\n{what}: {}", list.len())?;
            list.iter().try_for_each(|one| writeln!(f, "{one}"))?;
        }
        writeln!(f, "\nlongest files, tests apart")?;
        self.longest.iter().try_for_each(|one| writeln!(f, "{one}"))
    }
}

/// Whether a file has only tests.
pub(crate) fn is_test(path: &str) -> bool {
    path.contains("tests/") || path.ends_with("tests.rs")
}

/// A file's text without its tests, which are at the end.
fn without_tests<'a>(path: &str, text: &'a str) -> &'a str {
    if is_test(path) { "" } else { text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text) }
}

/// Lines that are neither blank nor comments, with their numbers.
fn code<'a>(path: &str, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_script = path.ends_with(".sh") || path.ends_with(".py");
    let comments: &[&str] = if is_script { &["#"] } else { &["//", "/*", "* ", "*/"] };
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !["", "*"].contains(line) && !comments.iter().any(|mark| line.starts_with(mark)))
}

/// Runs of lines that occur in two places.
fn copies(files: &Files) -> Vec<String> {
    let files: Vec<_> = files.iter().map(|(path, text)| (path, code(path, text).collect::<Vec<_>>())).collect();
    let mut seen: HashMap<Vec<&str>, (&String, &Lines<'_>)> = HashMap::new();
    let mut copies = Vec::new();
    for (path, lines) in &files {
        let mut rest = lines.as_slice();
        while let (Some(&(at, _)), Some(window)) = (rest.first(), rest.get(..COPY)) {
            let n = match seen.get(&texts(window)) {
                Some((other, before)) => {
                    let n = rest.iter().zip(*before).take_while(|((_, here), (_, there))| here == there).count();
                    let (there, _) = before.first().copied().unwrap_or_default();
                    copies.push(format!("{n} lines at {path}:{at} as at {other}:{there}"));
                    n
                }
                None => {
                    seen.insert(texts(window), (path, rest));
                    1
                }
            };
            rest = rest.get(n..).unwrap_or_default();
        }
    }
    copies
}

fn texts<'a>(window: &Lines<'a>) -> Vec<&'a str> {
    window.iter().map(|(_, text)| *text).collect()
}

/// Cycles between the files of a crate's own code, with the names they use from one another.
///
/// A file depends on what it names by a path, wherever a `pub use` takes it from. Declaring a module is no dependency.
fn cycles(files: &Files) -> Vec<String> {
    let sources = files.iter().filter(|(path, _)| path.ends_with(".rs") && path.contains("src/") && !is_test(path));
    let mut modules = BTreeMap::new();
    for (path, text) in sources {
        let tokens = without_tests(path, text).parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut module = Module::default();
        module.read(tokens);
        // `main.rs` comes after `lib.rs`, and nothing depends on it.
        modules.entry(module_name(path)).or_insert(module);
    }
    let dependencies: BTreeMap<&str, Dependencies<'_>> =
        modules.iter().map(|(name, module)| (&**name, module.dependencies(name, &modules))).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        dependencies.keys().map(|name| (*name, reached_from(name, &dependencies))).collect();
    let reaches = |a: &str, b: &str| reached.get(a).is_some_and(|all| all.contains(b));
    let is_cycle = |a: &str, b: &str| reaches(a, b) && reaches(b, a);
    let found: BTreeSet<Vec<&str>> = (dependencies.keys().filter(|name| is_cycle(name, name)))
        .map(|name| dependencies.keys().filter(|other| is_cycle(name, other)).copied().collect())
        .collect();
    found.iter().map(|cycle| describe(cycle, &dependencies)).collect()
}

/// Describes a cycle in words.
fn describe(cycle: &[&str], dependencies: &BTreeMap<&str, Dependencies<'_>>) -> String {
    let mut words = format!("{} files:", cycle.len());
    for from in cycle {
        for (to, names) in dependencies.get(from).into_iter().flatten().filter(|(to, _)| cycle.contains(to)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            // Writing to a String cannot fail.
            let _ = write!(words, "\n  {from} takes from {to}: {}", names.join(", "));
        }
    }
    words
}

/// All files that a file depends on, directly or not.
fn reached_from<'a>(name: &str, dependencies: &BTreeMap<&'a str, Dependencies<'a>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let direct = |name: &str| dependencies.get(name).into_iter().flatten().map(|(to, _)| *to);
    let mut next: Vec<&str> = direct(name).collect();
    while let Some(name) = next.pop() {
        if reached.insert(name) {
            next.extend(direct(name));
        }
    }
    reached
}

/// A file's module path, in the form of its child modules' directory: `unwind/src/arch` for `unwind/src/arch/mod.rs`,
/// `unwind/src` for its `lib.rs`.
fn module_name(path: &str) -> String {
    let name = path.trim_end_matches(".rs");
    ["/mod", "/lib", "/main"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned()
}

/// The names that a file uses.
#[derive(Default)]
struct Module {
    /// The names that `use` imports, each with its path.
    uses: HashMap<String, Vec<String>>,
    /// All paths of more than one name.
    paths: Vec<Vec<String>>,
}

impl Module {
    fn read(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter();
        let (mut path, mut n_colons) = (Vec::new(), 0);
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) if word == "use" => {
                    let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';');
                    self.read_use(tokens.by_ref().take_while(|token| !is_end(token)).collect(), &[]);
                }
                TokenTree::Ident(word) => {
                    if n_colons != 2 {
                        self.paths.push(std::mem::take(&mut path));
                    }
                    path.push(word.to_string());
                    n_colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => n_colons += 1,
                TokenTree::Group(group) => {
                    self.read(group.stream());
                    n_colons = 0;
                }
                _ => n_colons = 0,
            }
        }
        self.paths.push(path);
        self.paths.retain(|path| path.len() > 1);
    }

    /// Reads the part of `use a::{b, c as d};` after `before`, which is `use` at first, then `use a::`.
    fn read_use(&mut self, tree: TokenStream, before: &[String]) {
        let (mut path, mut alias) = (before.to_vec(), None);
        for token in tree {
            match token {
                TokenTree::Ident(word) if word == "as" => alias = Some(String::new()),
                TokenTree::Ident(word) if alias.is_some() => alias = Some(word.to_string()),
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    self.read_use(group.stream(), &path);
                    path.clear();
                }
                TokenTree::Punct(mark) if mark.as_char() == ',' => {
                    self.bring_in(std::mem::replace(&mut path, before.to_vec()), alias.take());
                }
                _ => {}
            }
        }
        self.bring_in(path, alias);
    }

    fn bring_in(&mut self, mut path: Vec<String>, alias: Option<String>) {
        path.pop_if(|last| last == "self");
        if let Some(name) = alias.or_else(|| path.last().cloned()) {
            self.uses.insert(name, path.clone());
            self.paths.push(path);
        }
    }

    /// The names that this module uses from others.
    fn dependencies<'a>(&self, name: &str, modules: &'a BTreeMap<String, Self>) -> Dependencies<'a> {
        let mut dependencies = Dependencies::new();
        for (owner, what) in
            self.paths.iter().filter_map(|path| resolve(path, name, modules, 0)).filter(|(owner, _)| *owner != name)
        {
            dependencies.entry(owner).or_default().insert(what);
        }
        dependencies
    }
}

/// The module that defines what a path names, and the name; `None` for a module, and in other crates.
fn resolve<'a>(
    path: &[String],
    from: &str,
    modules: &'a BTreeMap<String, Module>,
    depth: u8,
) -> Option<(&'a str, String)> {
    let mut at = from.to_owned();
    for (n, name) in path.iter().enumerate() {
        let (module_name, module) = modules.get_key_value(&at)?;
        let child = format!("{at}/{name}");
        // A function may have the same name as its file.
        let is_last = n + 1 == path.len();
        match name.as_str() {
            "crate" => at.truncate(at.find("src")? + "src".len()),
            "self" => {}
            "super" => at.truncate(at.rfind('/')?),
            _ if modules.contains_key(&child) && !(is_last && module.uses.contains_key(name)) => at = child,
            _ => match module.uses.get(name) {
                Some(whole) if depth < 8 => {
                    let whole: Vec<String> = whole.iter().chain(path.iter().skip(n + 1)).cloned().collect();
                    return resolve(&whole, &at, modules, depth + 1);
                }
                _ => return (n > 0).then(|| (module_name.as_str(), name.clone())),
            },
        }
    }
    None
}
