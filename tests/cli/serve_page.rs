//! Tests of the page of `fpprof serve` in a real browser: it draws, responds to input, keeps its state in its address,
//! and never runs names as markup or script.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what helps a test fails by panicking")]

#[path = "../../reports/tests/support/browser.rs"]
#[expect(dead_code, reason = "every test binary uses a part of it")]
mod browser;

use crate::serve::store;
use crate::support::fpprof;
use crate::support::serving::{Serving, write_stacks};
use browser::Browser;
use fpprof_unwind::{Root, StopReason};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const COMPLETE: StopReason = StopReason::Complete(Root::Start);

struct Page {
    browser: Browser,
    serving: Serving,
}

impl Page {
    fn open(store: &Path, state: &str, width: u32) -> Self {
        let serving = Serving::start(store);
        let mut page = Self { browser: Browser::start(width, 900), serving };
        page.go(state);
        page
    }

    /// Opens the page in this state.
    fn go(&mut self, state: &str) {
        self.browser.open_address("about:blank");
        self.browser.open_address(&format!("http://{}/#{state}", self.serving.address));
        self.settle();
    }

    /// Waits until the page has finished drawing.
    fn settle(&mut self) {
        self.browser.wait_for("document.documentElement?.dataset.ready === 'yes'");
    }

    /// Names of the drawn frames.
    fn names(&mut self, graph: &str) -> Vec<String> {
        let names = format!(
            "[...document.querySelectorAll('#{graph} g.frame')].filter(g => +g.getAttribute('width') > 0)\
             .map(g => g.getAttribute('name'))"
        );
        let names = self.browser.eval(&names);
        names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    fn choose(&mut self, select: &str, value: &str) {
        let chosen = self.browser.eval(&format!(
            "(() => {{ const s = document.getElementById('{select}'); s.value = {}; \
             s.dispatchEvent(new Event('change')); return s.value; }})()",
            json!(value)
        ));
        assert_eq!(chosen, json!(value), "{select}");
        self.settle();
    }

    fn view(&mut self, name: &str) {
        self.browser.click(&format!("document.getElementById('tab-{name}')"));
        self.settle();
    }

    fn text(&mut self, id: &str) -> String {
        self.browser.eval(&format!("document.getElementById('{id}').textContent")).as_str().unwrap().to_owned()
    }

    /// Checks that there was no error, no violation of the policy, and no request to another server.
    fn assert_quiet(&mut self) {
        self.browser.eval("1");
        assert!(self.browser.errors.is_empty(), "{:#?}", self.browser.errors);
        let own = format!("http://{}/", self.serving.address);
        // The browser's own icon in a date field is a `data:` URL.
        let harmless = [own.as_str(), "about:blank", "data:"];
        let foreign = |address: &&String| !harmless.iter().any(|start| address.starts_with(start));
        assert_eq!(self.browser.requests.iter().find(foreign), None);
    }
}

fn small() -> (tempfile::TempDir, Page) {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let page = Page::open(dir.path(), "", 1280);
    (dir, page)
}

/// Check that a click zooms, that the address records it and restores it, and that the zoom can be undone.
#[test]
fn a_link_shows_the_same_again() {
    let (_dir, mut page) = small();
    assert!(page.names("flame").contains(&"sort".to_owned()));
    page.browser.click("document.querySelector('#flame g.frame[name=nginx] rect')");
    assert!(!page.names("flame").contains(&"sort".to_owned()));
    let state = page.browser.eval("location.hash.slice(1)").as_str().unwrap().to_owned();
    assert!(state.contains("zoom=nginx") && state.contains("from="), "{state}");
    page.go(&state);
    let names = page.names("flame");
    assert!(names.contains(&"copy".to_owned()) && !names.contains(&"sort".to_owned()), "{names:?}");
    page.browser.click("document.querySelector('button[data-reset=zoom]')");
    assert!(page.names("flame").contains(&"sort".to_owned()));
    page.assert_quiet();
}

/// Check that all time is kept in the address, too, and that a time in words is understood.
#[test]
fn ranges_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    write_stacks(dir.path(), 59, "web-1", &[("cfi", &[("late", "_start;late", COMPLETE, 1000)])]);
    std::fs::remove_file(dir.path().join("stacks/day=2026-11-26/120000.000000Z-web-1.parquet")).unwrap();
    write_stacks(dir.path(), 0, "web-1", &[("cfi", &[("early", "_start;early", COMPLETE, 7)])]);
    let mut page = Page::open(dir.path(), "", 1280);
    // The page looks for the end of the store first.
    for (range, words) in [("15min", "1,000 samples"), ("all", "1,212 samples")] {
        page.choose("range", range);
        page.browser.wait_for(&format!("document.getElementById('status').textContent.includes('{words}')"));
    }
    let state = page.browser.eval("location.hash.slice(1)").as_str().unwrap().to_owned();
    page.go(&state);
    assert!(page.text("status").contains("1,212 samples"), "{}", page.text("status"));
    page.view("compare");
    page.choose("before", "day");
    assert!(page.text("difference-title").contains("has no earlier one"), "{}", page.text("difference-title"));
    page.go("view=compare&before=period&from=2026-11-26T12:01:00Z&to=2026-11-26T12:02:00Z");
    let title = page.text("difference-title").replace("\u{a0}", " ");
    assert!(title.starts_with("7 samples before, 205 samples after"), "{title}");
    let from = page.browser.eval("document.getElementById('from').value");
    assert_eq!(from, json!("2026-11-26T12:01"), "without seconds that are zero");
    page.assert_quiet();
}

/// Check that functions of one name in different files are distinguished by a zoom that is restored.
#[test]
fn frames_of_one_name_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let rows = [("db", "_start in a;x", COMPLETE, 30), ("db", "_start in b;y", COMPLETE, 10)];
    write_stacks(dir.path(), 0, "web-1", &[("cfi", &rows)]);
    let mut page = Page::open(dir.path(), "", 1280);
    for (own, other) in [("x", "y"), ("y", "x")] {
        page.go("");
        page.browser.click(&format!("document.querySelector('#flame g.frame[name={own}] rect')"));
        let state = page.browser.eval("location.hash.slice(1)").as_str().unwrap().to_owned();
        page.go(&state);
        let names = page.names("flame");
        assert!(names.contains(&own.to_owned()) && !names.contains(&other.to_owned()), "{state}: {names:?}");
    }
    page.go("zoom=db%0A_start");
    assert!(page.names("flame").contains(&"_start".to_owned()), "names alone");
    page.assert_quiet();
}

/// Check that parameters which nobody's page writes give the server's words or the default, and no empty page.
#[test]
fn strange_addresses_are_answered() {
    let (_dir, mut page) = small();
    page.go("from=1e14&to=2e14");
    assert!(page.text("problem").contains("from"), "{}", page.text("problem"));
    // The browser notes an answer with status 400 as an error.
    page.browser.errors.clear();
    for state in ["label.constructor=x", "label.__proto__=x"] {
        page.go(state);
        assert!(page.text("status").starts_with("0 samples"), "{state}: {}", page.text("status"));
    }
    page.go("view=constructor");
    assert!(page.names("flame").contains(&"sort".to_owned()));
    page.go("view=compare&before=toString&from=1795694400&to=1795694520");
    assert!(page.text("difference-title").contains("Both sides are the same"), "{}", page.text("difference-title"));
    // A search before its view was ever drawn.
    page.go("view=functions");
    page.browser.eval(
        "(() => { const f = document.querySelector('input[data-state=search]'); f.value = 'copy'; \
                       f.dispatchEvent(new Event('input')); })()",
    );
    page.view("flame");
    assert!(page.text("flame-found").contains("1 frames, 26.2"), "{}", page.text("flame-found"));
    page.assert_quiet();
}

/// Check that `/` focuses the search, that it marks matches, and that filters restrict the frames.
#[test]
fn search_and_filters() {
    let (_dir, mut page) = small();
    page.browser.key("/");
    page.browser.type_text("COPY");
    assert!(page.text("flame-found").contains("1 frames, 26.2"), "{}", page.text("flame-found"));
    page.go("search=copy&zoom=nginx");
    assert!(page.text("flame-found").contains("1 frames, 26.2"), "of all, also zoomed: {}", page.text("flame-found"));
    page.choose("process", "=db");
    let names = page.names("flame");
    assert!(names.contains(&"sort".to_owned()) && !names.contains(&"copy".to_owned()), "{names:?}");
    assert!(page.text("status").contains("210 samples of cpu-clock by cfi"), "{}", page.text("status"));
    page.choose("process", "");
    page.choose("label.team", "=web");
    let names = page.names("flame");
    assert!(names.contains(&"copy".to_owned()) && !names.contains(&"sort".to_owned()), "{names:?}");
    assert!(page.text("status").contains("90 samples of cpu-clock by cfi"), "{}", page.text("status"));
    let labels = page.browser.eval("[...document.querySelectorAll('#labels select')].map(s => s.value)");
    assert_eq!(labels, json!(["=web", ""]), "team and zone");
    page.choose("label.team", "");
    page.choose("process", "=db");
    page.choose("strategy", "=fp");
    assert!(page.names("flame").contains(&"[broken: ra_not_exec]".to_owned()));
    page.choose("process", "=nginx");
    assert!(page.text("status").contains("70 samples"), "{}", page.text("status"));
    page.browser.eval("history.back()");
    page.browser.wait_for("document.getElementById('status').textContent.includes('230 samples')");
    page.assert_quiet();
}

/// Check that functions are sorted by the chosen column, and that a click leads to callers and callees.
#[test]
fn functions_are_walked() {
    let (_dir, mut page) = small();
    page.view("functions");
    let first = "document.querySelector('#functions-table tbody td').textContent";
    assert_eq!(page.browser.eval(first), json!("sort"), "by samples of their own");
    page.browser.click("[...document.querySelectorAll('#functions-table button.sort')][4]");
    assert_eq!(page.browser.eval(first), json!("_start"), "by samples on the stack");
    page.browser
        .click("[...document.querySelectorAll('#functions-table button.link')].find(b => b.textContent === 'main')");
    page.browser.wait_for("document.getElementById('neighbours-name').textContent === 'main'");
    page.settle();
    assert!(page.text("callers").contains("_start"));
    assert!(page.text("callees").contains("sort") && page.text("callees").contains("serve"));
    page.assert_quiet();
}

/// Check that two strategies are compared, that the difference is coloured, and that the other views are drawn.
#[test]
fn comparison_quality_and_cost() {
    let (_dir, mut page) = small();
    page.view("compare");
    page.choose("before", "custom");
    page.choose("before.to", "2026-11-26T12:00:30");
    let title = page.text("difference-title").replace("\u{a0}", " ");
    assert!(title.starts_with("100 samples before, 305 samples after"), "{title}");
    page.choose("before", "");
    page.choose("before.strategy", "=fp");
    let fill = "document.querySelector('#difference g.frame[name=_start] rect').getAttribute('fill')";
    assert_eq!(page.browser.eval(fill), json!("var(--diff-other-3)"));
    assert!(page.text("changes-table").contains("+100.00"), "{}", page.text("changes-table"));
    page.view("quality");
    assert!(page.browser.eval("document.querySelectorAll('#stacks-over-time svg rect').length").as_u64() >= Some(4));
    assert!(page.text("ends-table").contains("ra_not_exec"));
    page.view("cost");
    assert!(page.text("cost-cpu").contains("noted no cost"), "{}", page.text("cost-cpu"));
    page.assert_quiet();
}

/// Check that names containing markup or script are shown literally and run nothing, in every view and list.
#[test]
fn hostile_names_run_nothing() {
    let names = [
        "<img src=x onerror=\"window.ran = 1\">",
        "</script><script>window.ran = 2</script>",
        "__proto__",
        "\"><svg onload='window.ran=3'>",
    ];
    let dir = tempfile::tempdir().unwrap();
    for (minute, name) in (0..).zip(names) {
        let stack = format!("_start;{name};{name}2");
        let rows = [(name, stack.as_str(), COMPLETE, 10)];
        write_stacks(dir.path(), minute, "web-1", &[("cfi", &rows), (name, &[(name, name, COMPLETE, 1)])]);
    }
    let deep = vec!["deeper"; 5000].join(";");
    write_stacks(dir.path(), 5, "web-1", &[("cfi", &[("deep", &deep, COMPLETE, 5)])]);
    let mut page = Page::open(dir.path(), "", 1280);
    for name in names {
        page.choose("process", &format!("={name}"));
        for view in ["flame", "functions", "compare", "quality"] {
            page.view(view);
            page.browser.eval(
                "document.querySelectorAll('main *').forEach(e => ['mouseover', 'focus', 'load', 'error'].forEach(t => \
                 e.dispatchEvent(new Event(t, {bubbles: true}))))",
            );
        }
        page.view("flame");
        assert!(page.names("flame").contains(&name.to_owned()), "{name}");
        assert_eq!(page.browser.eval("window.ran ?? null"), Value::Null, "{name}");
        assert_eq!(page.browser.eval("document.querySelectorAll('img, main script').length"), json!(0), "{name}");
    }
    page.assert_quiet();
}

/// Check that a browser which has the token as a password draws the page, also when it asks for more.
#[test]
fn a_token_is_a_password() {
    const TOKEN: &str = "0123456789abcdef";
    let dir = tempfile::tempdir().unwrap();
    store(&dir.path().join("store"));
    let token = dir.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let mut command = fpprof();
    command.args(["serve", "--listen", "127.0.0.1:0", "--token-file"]).arg(&token).arg(dir.path().join("store"));
    let mut page = Page { browser: Browser::start(1280, 900), serving: Serving::started(&mut command) };
    let address = page.serving.address.clone();
    page.serving.address = format!("me:{TOKEN}@{address}");
    page.go("");
    assert!(page.names("flame").contains(&"sort".to_owned()));
    page.view("functions");
    page.serving.address = address;
    assert!(page.browser.requests.remove(0).contains(TOKEN), "what was opened; the rest goes without");
    page.assert_quiet();
}

/// Check that 200,000 distinct stacks can be shown: frames too small to see are pruned and counted, the totals include
/// them, and the page stays responsive.
#[test]
fn many_stacks_are_usable() {
    let dir = tempfile::tempdir().unwrap();
    for minute in 0..4_u64 {
        let stacks: Vec<String> = (0..50_000_u64)
            .map(|n| format!("_start;main;shard_{};worker_{};step_{minute}_{n}", n % 7, n % 1999))
            .collect();
        let rows: Vec<_> = stacks.iter().map(|stack| ("busy", stack.as_str(), COMPLETE, 1)).collect();
        write_stacks(dir.path(), minute, "web-1", &[("cfi", &rows)]);
    }
    let mut page = Page::open(dir.path(), "", 1280);
    let answer = page.serving.answer("flamegraph");
    let nodes = answer["samples"].as_array().unwrap().len();
    assert_eq!((&answer["total"], &answer["samples"][0]), (&json!(200_000), &json!(200_000)));
    assert!((20_000..=40_000).contains(&nodes) && answer["left_out"].as_u64() > Some(100_000), "{nodes}");
    assert!(page.text("flame-left-out").contains("are left out"));
    assert!(page.text("status").contains("200,000 samples"));
    let drawn = page.browser.eval("document.querySelectorAll('g.frame').length").as_u64().unwrap();
    assert!((10..5000).contains(&drawn), "{drawn} frames are drawn");
    page.browser.click("document.querySelector('#flame g.frame[name=shard_3] rect')");
    assert!(!page.names("flame").contains(&"shard_2".to_owned()));
    page.view("functions");
    assert!(
        page.text("functions-count").contains("1,000 functions, the first 300"),
        "{}",
        page.text("functions-count")
    );
    assert!(page.text("functions-table").contains("700 more are not shown"));
    page.view("compare");
    assert!(page.text("difference-title").contains("200,000"));
    page.assert_quiet();
    let memory = std::fs::read_to_string(format!("/proc/{}/status", page.serving.server.id())).unwrap();
    let peak = memory.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim_end_matches("kB").trim();
    println!("200,000 stacks: {nodes} frames, {drawn} of them drawn, at most {peak} kB of memory");
    assert!(peak.parse::<u64>().unwrap() < 500_000, "{peak} kB");
}

/// Check that nothing overflows a narrow screen in any view, and that text has enough contrast in light and dark mode.
#[test]
fn phones_and_dark_screens() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let mut page = Page::open(dir.path(), "", 400);
    for view in ["flame", "functions", "compare", "quality", "cost"] {
        page.view(view);
        let overflow = page.browser.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert!(overflow.as_i64() <= Some(0), "{view}: {overflow} pixels too wide");
    }
    let light = "['color', 'backgroundColor'].map(name => getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3)\
                 .reduce((sum, part) => sum + Number(part), 0) / 3)";
    for (scheme, is_dark) in [("dark", true), ("light", false)] {
        page.browser.medium("screen", scheme);
        let colors = page.browser.eval(light);
        let (ink, ground) = (colors[0].as_f64().unwrap(), colors[1].as_f64().unwrap());
        assert!((ink > ground) == is_dark && (ink - ground).abs() > 120.0, "{scheme}: {ink} on {ground}");
    }
    page.assert_quiet();
}
