//! The page of a recording in a real browser: it draws, reacts to input, and runs only its own script.
#![expect(clippy::unwrap_used, reason = "what helps a test fails by panicking")]

mod support;

use fpprof_analysis::Analysis;
use fpprof_analysis::detail::{Mark, NodeKind};
use fpprof_analysis::folded::Origin;
use fpprof_reports::{audit, experiment, flags, flamegraph, page};
use serde_json::{Value, json};
use std::path::PathBuf;
use support::browser::Browser;
use support::{detail, profile, tables, written};

/// The frames drawn on one side: name, width in pixels, whether a search matches them.
const FRAMES: &str = "side => [...document.querySelectorAll(`#flame-${side} g.frame`)].map(g => \
     [g.getAttribute('name'), g.__data__.x1 - g.__data__.x0, !!g.__data__.highlight, +g.getAttribute('width')])";

struct Page {
    browser: Browser,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Page {
    fn open(analysis: &Analysis) -> Self {
        Self::open_at(analysis, 1280, 900)
    }

    fn open_at(analysis: &Analysis, width: u32, height: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("page.html");
        let mut page = Self { browser: Browser::start(width, height), file, _dir: dir };
        page.load(analysis);
        page
    }

    /// Writes the page of another analysis, and opens it.
    fn load(&mut self, analysis: &Analysis) {
        std::fs::write(&self.file, written(|out| page::html(analysis, out))).unwrap();
        self.browser.open(&self.file);
    }

    fn names(&mut self, side: &str) -> Vec<String> {
        let frames = self.browser.eval(&format!("({FRAMES})('{side}')"));
        let frames = frames.as_array().unwrap();
        frames.iter().filter(|frame| frame[3].as_f64() > Some(0.0)).map(|f| f[0].as_str().unwrap().to_owned()).collect()
    }

    fn width(&mut self, side: &str, name: &str) -> f64 {
        let frames = self.browser.eval(&format!("({FRAMES})('{side}')"));
        let frame = frames.as_array().unwrap().iter().find(|frame| frame[0] == json!(name));
        frame.unwrap_or_else(|| panic!("no frame {name} on the {side}"))[3].as_f64().unwrap()
    }

    fn choose(&mut self, select: &str, text: &str) {
        let chosen = self.browser.eval(&format!(
            "(() => {{ const s = document.getElementById('{select}'); \
             const o = [...s.options].find(o => o.text.startsWith('{text}')); if (!o) return [...s.options].map(o => o.text); \
             s.value = o.value; s.dispatchEvent(new Event('change')); return true; }})()"
        ));
        assert_eq!(chosen, json!(true), "{select} has no {text}");
    }

    fn text(&mut self, id: &str) -> String {
        let text = self.browser.eval(&format!("document.getElementById('{id}').textContent"));
        text.as_str().unwrap().to_owned()
    }

    /// Checks that nothing failed, nothing was blocked by the policy, and only the file itself was requested.
    fn assert_quiet(&mut self) {
        self.browser.eval("1");
        assert!(self.browser.errors.is_empty(), "{:#?}", self.browser.errors);
        let own = format!("file://{}", self.file.display());
        assert_eq!(self.browser.requests, [own]);
    }
}

fn frame(side: &str, name: &str) -> String {
    format!("document.querySelector('#flame-{side} g.frame[name=\"{name}\"] rect')")
}

/// Check that the page draws its curves, its losses by time and both flame graphs, without an error or a request.
#[test]
fn draws_everything_offline() {
    let mut page = Page::open(&detail::analysis());
    for figure in ["what-if", "depth", "timeline"] {
        let drawn =
            page.browser.eval(&format!("document.querySelectorAll('#{figure} svg path, #{figure} svg rect').length"));
        assert!(drawn.as_u64() > Some(3), "{figure}: {drawn}");
    }
    assert!(page.names("left").contains(&"copy_user".to_owned()));
    assert!(!page.names("left").contains(&"worker_main".to_owned()), "frame pointers never saw it");
    assert!(page.names("right").contains(&"worker_main".to_owned()));
    assert_eq!(page.text("title-left"), "fp");
    assert_eq!(page.text("title-right"), "dwarf");
    let lanes = page.browser.eval("document.querySelector('#timeline').textContent");
    assert!(lanes.as_str().unwrap().contains("CPU 1"), "losses stand in lanes by CPU: {lanes}");
    page.assert_quiet();
}

/// Check that a click zooms both graphs to the frame, and that the zoom can be undone.
#[test]
fn click_zooms_and_reset_undoes() {
    let mut page = Page::open(&detail::analysis());
    let before = page.width("right", "nbd_send");
    page.browser.click(&frame("right", "fio"));
    let zoomed = page.width("right", "nbd_send");
    assert!(zoomed > before * 1.5, "{before} → {zoomed}");
    assert!(!page.names("left").contains(&"nbdkit".to_owned()), "the graph beside follows");
    page.browser.click("document.getElementById('reset')");
    assert!((page.width("right", "nbd_send") - before).abs() < 1.0);
    page.assert_quiet();
}

/// Check that `/` focuses the search, that it marks matches in both graphs and shows their share.
#[test]
fn search_highlights() {
    let mut page = Page::open(&detail::analysis());
    page.browser.key("/");
    assert_eq!(page.browser.eval("document.activeElement.id"), json!("search"));
    page.browser.type_text("COPY_u");
    let found = |frames: &Value| -> Vec<String> {
        let found = frames.as_array().unwrap().iter().filter(|frame| frame[2] == json!(true));
        found.map(|frame| frame[0].as_str().unwrap().to_owned()).collect()
    };
    for side in ["left", "right"] {
        let frames = page.browser.eval(&format!("({FRAMES})('{side}')"));
        let found = found(&frames);
        assert!(!found.is_empty() && found.iter().all(|name| name == "copy_user"), "{side}: {found:?}");
    }
    let words = page.text("found");
    assert!(words.contains("48.8\u{a0}% of the samples"), "{words}");
    page.assert_quiet();
}

/// Check that filters by process and thread apply to graphs and figures.
#[test]
fn filters_by_process_and_thread() {
    let mut page = Page::open(&detail::analysis());
    let curve = "document.querySelector('#what-if svg').getAttribute('aria-label') ?? \
                 document.querySelector('#what-if [aria-label]').getAttribute('aria-label')";
    let all = page.browser.eval(curve);
    page.choose("filter-process", "nbdkit");
    assert!(page.names("right").contains(&"serve".to_owned()));
    assert!(!page.names("right").contains(&"fio".to_owned()));
    assert_ne!(page.browser.eval(curve), all, "the curve is that of the process");
    page.choose("filter-process", "fio");
    page.choose("filter-thread", "worker");
    let names = page.names("right");
    assert!(names.contains(&"worker_main".to_owned()) && !names.contains(&"nbd_send".to_owned()), "{names:?}");
    page.choose("filter-process", "all");
    page.browser.click("document.querySelector('button.only[data-process=\"1\"]')");
    assert!(!page.names("right").contains(&"fio".to_owned()), "the button of a process filters too");
    page.assert_quiet();
}

/// Check that the graphs can be navigated, zoomed and left with the keyboard alone.
#[test]
fn keyboard_walks_and_zooms() {
    let mut page = Page::open(&detail::analysis());
    page.browser.eval("document.getElementById('flame-right').focus()");
    let before = page.width("right", "fio");
    page.browser.key("ArrowDown");
    assert!(page.text("flame-details").starts_with("fio"), "the widest child: {}", page.text("flame-details"));
    page.browser.key("ArrowRight");
    assert!(page.text("flame-details").starts_with("nbdkit"));
    page.browser.key("ArrowLeft");
    page.browser.key("Enter");
    assert!(page.width("right", "fio") > before * 1.5);
    page.browser.key("Escape");
    assert!((page.width("right", "fio") - before).abs() < 1.0);
    page.assert_quiet();
}

/// Check that the colours of difference and agreement show how the two strategies differ.
#[test]
fn difference_and_agreement_are_coloured() {
    let mut page = Page::open(&detail::analysis());
    let fill =
        |page: &mut Page, name: &str| page.browser.eval(&format!("{}.getAttribute('fill')", frame("left", name)));
    page.choose("view", "difference");
    assert_eq!(fill(&mut page, "worker_main"), json!("var(--diff-reference-3)"));
    page.choose("view", "dwarf");
    page.choose("color", "agreement");
    assert_eq!(fill(&mut page, "worker_main"), json!("var(--missing-2)"));
    assert_eq!(fill(&mut page, "nbd_send"), json!("var(--same)"));
    let painted = page.browser.eval(&format!("getComputedStyle({}).fill", frame("left", "worker_main")));
    assert!(painted.as_str().unwrap().starts_with("rgb("), "the variable is a colour: {painted}");
    page.assert_quiet();
}

/// Check that text and background have enough contrast in dark mode, light mode and print, and that print is light.
#[test]
fn dark_light_and_paper() {
    let mut page = Page::open(&detail::analysis());
    let colors = "[getComputedStyle(document.body).color, getComputedStyle(document.querySelector('.card')).backgroundColor]\
                  .map(text => text.match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3)";
    let mut ink_and_ground = |medium: &str, scheme: &str| {
        page.browser.medium(medium, scheme);
        let colors = page.browser.eval(colors);
        (colors[0].as_f64().unwrap(), colors[1].as_f64().unwrap())
    };
    let (ink, ground) = ink_and_ground("screen", "dark");
    assert!(ink > 180.0 && ground < 60.0, "dark: {ink} on {ground}");
    for (medium, scheme) in [("screen", "light"), ("print", "dark")] {
        let (ink, ground) = ink_and_ground(medium, scheme);
        assert!(ink < 60.0 && ground > 220.0, "{medium}, {scheme}: {ink} on {ground}");
    }
    page.assert_quiet();
}

/// Names that would run a script.
const RUNNING: [&str; 8] = [
    "</script><script>window.ran = 1</script>",
    "<!--<script>",
    "<img src=x onerror=\"window.ran = 2\">",
    "\"><svg onload='window.ran = 3'>",
    "javascript:window.ran=4",
    "]]></style><script>window.ran = 5</script>",
    "__proto__",
    "constructor",
];

/// Check that names run nothing in the pages of `compare`, `audit` and `flags` either, which have no script: the policy
/// blocks nothing, since nothing was tried.
#[test]
fn hostile_names_run_nothing_in_tables() {
    let mut page = Page::open(&detail::analysis());
    for name in RUNNING {
        let mut compared = support::experiment::experiment();
        compared.command = vec![name.to_owned()];
        compared.notes = vec![name.to_owned()];
        name.clone_into(&mut compared.environment.machine);
        compared.rows.iter_mut().for_each(|row| name.clone_into(&mut row.mode));
        let pages = [
            written(|out| experiment::html(&compared, out)),
            written(|out| audit::html(&tables::survey(name), &tables::audited(name), out)),
            written(|out| flags::html(&tables::evaluation(name), out)),
        ];
        for bytes in pages {
            std::fs::write(&page.file, bytes).unwrap();
            page.browser.open_without_script(&page.file);
            let shown = page.browser.eval("document.body.textContent").as_str().unwrap().to_owned();
            assert!(shown.contains(name), "{name} is shown");
            page.browser.eval(
                "document.querySelectorAll('body *').forEach(e => ['mouseover', 'click', 'focus', 'load', 'error'].forEach(t => \
                 e.tagName === 'A' || e.dispatchEvent(new Event(t, {bubbles: true}))))",
            );
            assert_eq!(page.browser.eval("window.ran ?? null"), Value::Null, "{name}");
            assert_eq!(page.browser.eval("document.querySelectorAll('script, img').length"), json!(0), "{name}");
            page.assert_quiet();
        }
    }
}

/// Check that names with markup or scripts are shown literally and run nothing, whatever the user does.
#[test]
fn hostile_names_run_nothing() {
    let mut page = Page::open(&detail::analysis());
    for name in RUNNING {
        page.load(&detail::analysis_with(name, name));
        assert!(page.names("right").contains(&name.to_owned()), "{name}");
        page.browser.eval(
            "document.querySelectorAll('g.frame').forEach(g => g.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})))",
        );
        for side in ["left", "right"] {
            page.browser.eval(&format!(
                "[...document.querySelectorAll('#flame-{side} g.frame')].at(-1).dispatchEvent(new MouseEvent('click'))"
            ));
        }
        page.browser.eval(
            "document.querySelectorAll('select').forEach(s => [...s.options].forEach(o => { \
            s.value = o.value; s.dispatchEvent(new Event('change')); }))",
        );
        assert_eq!(page.browser.eval("window.ran ?? null"), Value::Null, "{name}");
        assert_eq!(page.browser.eval("document.querySelectorAll('img, main script').length"), json!(0), "{name}");
        page.assert_quiet();
    }
}

/// Check that a script other than the page's own would be blocked: its policy is in force.
#[test]
fn foreign_scripts_are_refused() {
    let mut page = Page::open(&detail::analysis());
    page.browser.eval(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); })()",
    );
    assert_eq!(page.browser.eval("window.ran ?? null"), Value::Null);
    let refused = "fetch('https://example.invalid/').then(() => 'loaded', () => 'refused')";
    assert_eq!(page.browser.eval(refused), json!("refused"));
    assert!(page.browser.errors.iter().any(|error| error.contains("Content Security Policy")));
}

/// Check that of 100,000 frames only visible ones are drawn, and that they can be zoomed, searched and switched to
/// another view.
#[test]
fn a_hundred_thousand_frames_are_usable() {
    let mut page = Page::open(&detail::large(100_000));
    let load = page.browser.eval("performance.now()").as_f64().unwrap();
    let drawn = page.browser.eval("document.querySelectorAll('g.frame').length").as_u64().unwrap();
    let timed = |page: &mut Page, what: &str| {
        let ms = page
            .browser
            .eval(&format!("(() => {{ const t = performance.now(); {what}; return performance.now() - t; }})()"));
        ms.as_f64().unwrap()
    };
    let zoom = timed(
        &mut page,
        "document.querySelector('#flame-right g.frame[name=\"nbdkit\"]').dispatchEvent(new MouseEvent('click'))",
    );
    let search = timed(
        &mut page,
        "const s = document.getElementById('search'); s.value = 'function_39'; s.dispatchEvent(new Event('input'))",
    );
    let view = timed(
        &mut page,
        "const v = document.getElementById('view'); v.value = 'reference'; v.dispatchEvent(new Event('change'))",
    );
    let bytes = std::fs::metadata(&page.file).unwrap().len();
    println!("100,000 frames: page of {bytes} bytes, {drawn} of them wide enough to be drawn");
    println!("load {load:.0} ms, zoom {zoom:.0} ms, search {search:.0} ms, view {view:.0} ms");
    assert!(page.text("found").contains("frames"), "{}", page.text("found"));
    // Usability means that nothing invisible is drawn; times would depend on the machine's load.
    assert!((500..30_000).contains(&drawn), "{drawn} frames were drawn");
    assert!(bytes < 10_000_000, "{bytes}");
    page.assert_quiet();
}

/// Check that a narrow screen needs no horizontal scrolling.
#[test]
fn narrow_screens_need_no_scrolling_sideways() {
    let mut page = Page::open_at(&detail::analysis(), 400, 800);
    let overflow = page.browser.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert!(overflow.as_i64() <= Some(0), "{overflow} pixels too wide");
    page.assert_quiet();
}

/// Check that stacks that do not reach their root are separate from those that do, under a node that says why.
#[test]
fn stacks_that_end_early_stand_apart() {
    let mut page = Page::open(&detail::analysis());
    let broken = "[broken: ra_not_exec]";
    assert!(!page.names("right").contains(&broken.to_owned()));
    // All but 1,300 of 12,300 samples, whose frame pointers reach their root.
    let (all, part) = (page.width("left", "all"), page.width("left", broken));
    assert!(page.names("left").iter().filter(|name| *name == broken).count() == 2 && part < all);
    let place = |name: &str| format!("document.querySelector('#flame-left g.frame[name=\"{name}\"]').__data__");
    let under = page.browser.eval(&format!("{}.ancestors().map(d => d.data.name)", place("copy_user")));
    assert_eq!(under.as_array().unwrap()[1], json!(broken), "{under}");
    let whole = page.browser.eval(&format!("{}.ancestors().some(d => d.data.end)", place("nbd_send")));
    assert_eq!(whole, json!(false));
    let fill = format!("getComputedStyle({}).fill", frame("left", broken));
    let of_style = "(() => { const e = document.createElement('i'); e.style.color = 'var(--broken)'; \
                    document.body.append(e); return getComputedStyle(e).color; })()";
    assert_eq!(page.browser.eval(&fill), page.browser.eval(of_style));
    page.assert_quiet();
}

/// Check that the page of a recording without copied stacks, which has no figures of chunk sizes, is drawn and usable
/// too.
#[test]
fn frame_pointers_alone_are_drawn() {
    let mut analysis = detail::analysis();
    (analysis.chunk_sizes, analysis.default_strategy) = (None, "fp".to_owned());
    let stacks = &mut analysis.detail.as_mut().unwrap().stacks;
    (stacks.reference, stacks.other) = ("fp".to_owned(), None);
    let mut page = Page::open(&analysis);
    assert!(page.names("left").contains(&"nbd_send".to_owned()));
    page.choose("filter-process", "nbdkit");
    assert!(!page.names("left").contains(&"nbd_send".to_owned()));
    page.assert_quiet();
}

/// Check that a return address that does not follow a call has its own colour on the page and in the picture, with a
/// legend in both, and that the page counts such stacks.
#[test]
fn returns_without_a_call_are_marked() {
    let mut analysis = detail::analysis();
    let stacks = &mut analysis.detail.as_mut().unwrap().stacks;
    let label = stacks.labels.iter().position(|(name, _)| name == "nbd_send").unwrap();
    for node in stacks.nodes.iter_mut().filter(|node| node.label as usize == label) {
        node.kind = NodeKind::Frame { origin: Origin::WithoutCall, mark: Mark::Same };
    }
    analysis.summary.no_call_before.insert("dwarf".to_owned(), 1_234);
    let mut page = Page::open(&analysis);
    let fill = page.browser.eval(&format!("{}.getAttribute('fill')", frame("left", "nbd_send")));
    assert!(fill.as_str().unwrap().starts_with("var(--nocall-"), "{fill}");
    let painted = page.browser.eval(&format!("getComputedStyle({}).fill", frame("left", "nbd_send")));
    assert!(painted.as_str().unwrap().starts_with("rgb("), "the variable is a colour: {painted}");
    assert!(page.text("legend").contains("no call before it"));
    let counted =
        page.browser.eval("document.body.textContent.includes('(1,234): a return address does not follow a call')");
    assert_eq!(counted, json!(true));
    page.assert_quiet();

    let mut folded = profile::dwarf();
    folded
        .frames
        .iter_mut()
        .filter(|frame| frame.name == "nbd_queue")
        .for_each(|frame| frame.origin = Origin::WithoutCall);
    let (event, strategy) = ("cpu-clock".to_owned(), "dwarf".to_owned());
    let options = flamegraph::Options { title: "a title".to_owned(), event, strategy, width: None };
    let picture = |folded| {
        let mut svg = Vec::new();
        flamegraph::svg(folded, &options, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    };
    assert!(
        picture(&folded).contains("no call before it") && !picture(&profile::dwarf()).contains("no call before it")
    );
}

/// A flame graph and a difference, with names of maximum length.
fn pictures() -> [Vec<u8>; 2] {
    let long = "/a/rather/long/path/to/a/recording/of/something.fpprof --comm 'a name' --time 10..200".to_owned();
    let mut graph = Vec::new();
    let (event, strategy) = ("cpu-clock".to_owned(), "dwarf@65536".to_owned());
    let options = flamegraph::Options { title: long.clone(), event, strategy, width: None };
    flamegraph::svg(&profile::dwarf(), &options, &mut graph).unwrap();
    let (before, after) = (profile::frame_pointers(), profile::dwarf());
    let side = |folded| flamegraph::Side { label: &long, folded };
    let mut difference = Vec::new();
    flamegraph::svg_difference(side(&before), side(&after), false, &mut difference).unwrap();
    [graph, difference]
}

/// Check that the header of a flame graph is within the window and above the frames, and does not overlap the buttons,
/// on a phone and on a large screen.
#[test]
fn lines_above_a_flame_graph_fit_the_window() {
    let dir = tempfile::tempdir().unwrap();
    for (name, svg) in ["graph.svg", "difference.svg"].into_iter().zip(pictures()) {
        let file = dir.path().join(name);
        std::fs::write(&file, svg).unwrap();
        for width in [390, 760, 1200] {
            let mut browser = Browser::start(width, 900);
            browser.open_without_script(&file);
            let place = "id => { const r = document.getElementById(id).getBoundingClientRect(); \
                         return [r.left, r.top, r.right, r.bottom]; }";
            let mut of = |id: &str| {
                let place = browser.eval(&format!("({place})('{id}')"));
                [0, 1, 2, 3].map(|side| place[side].as_f64().unwrap())
            };
            let [title, text, search, frames] = ["title", "subtitle", "search", "frames"].map(&mut of);
            for (what, [left, top, right, _]) in [("title", title), ("subtitle", text), ("search", search)] {
                assert!(left >= 0.0 && right <= f64::from(width) && top >= 0.0, "{name}: {what} at {width} pixels");
            }
            let apart = |[_, _, _, above]: [f64; 4], [_, below, _, _]: [f64; 4]| above <= below;
            let beside = search[0] >= title[2] && search[0] >= text[2];
            assert!(apart(title, text), "{name} at {width}: {title:?} {text:?}");
            assert!(apart(text, frames) && apart(search, frames), "{name} at {width}: {text:?} {search:?} {frames:?}");
            assert!(beside || apart(text, search), "{name} at {width}: {title:?} {text:?} {search:?}");
        }
    }
}

/// Check that the share that a search finds in a flame graph is of what is shown, by clicks and by address; that text which is no
/// pattern is found; and that an address with a frame that is not there shows the whole.
#[test]
fn searches_cover_what_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("graph.svg");
    let [graph, _] = pictures();
    std::fs::write(&file, graph).unwrap();
    let mut browser = Browser::start(1200, 900);
    browser.open_without_script(&file);
    let matched = "document.getElementById('matched').textContent";
    let fio = "[...document.querySelectorAll('#frames > g')].find(g => g.textContent.startsWith('fio (5,200'))";
    browser.eval("search('memcpy')");
    assert_eq!(browser.eval(matched), "Matched: 2.7%", "300 of 10,920");
    browser.click(fio);
    assert_eq!(browser.eval(matched), "Matched: 5.8%", "300 of 5,200");
    let address = browser.eval("location.href");
    browser.click("document.getElementById('unzoom')");
    assert_eq!(browser.eval(matched), "Matched: 2.7%");
    browser.open_address(address.as_str().unwrap());
    browser.wait_for(&format!("{matched} == 'Matched: 5.8%'"));
    browser.open_address(&format!("file://{}?s=%5Btruncated&x=1&y=1", file.display()));
    browser.wait_for(&format!("{matched} == 'Matched: 2.4%'"));
}

/// Check that a flame graph follows dark mode, and that its header and its frames stay readable.
#[test]
fn flame_graphs_are_dark_for_who_prefers_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut browser = Browser::start(1200, 900);
    for (name, svg) in ["graph.svg", "difference.svg"].into_iter().zip(pictures()) {
        let file = dir.path().join(name);
        std::fs::write(&file, svg).unwrap();
        browser.open_without_script(&file);
        let luminance = "css => { const [r, g, b] = css.match(/[0-9]+/g).map(c => c / 255).map(c => \
             c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; }";
        let contrasts = format!(
            "(() => {{ const luminance = {luminance}, of = (element, what) => luminance(getComputedStyle(element)[what]), \
             contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), \
             ground = of(document.querySelector('#background stop'), 'stopColor'); return [ground, \
             Math.min(...['title', 'subtitle', 'details', 'matched', 'search', 'unzoom'].map(id => \
             contrast(of(document.getElementById(id), 'fill'), ground))), \
             Math.min(...[...document.querySelectorAll('#frames > g')].map(g => \
             contrast(of(g.querySelector('text'), 'fill'), of(g.querySelector('rect'), 'fill'))))]; }})()"
        );
        for (scheme, is_dark) in [("light", false), ("dark", true)] {
            browser.medium("screen", scheme);
            let found = browser.eval(&contrasts);
            let [ground, lines, frames] = [0, 1, 2].map(|at: usize| found[at].as_f64().unwrap());
            assert_eq!(ground < 0.1, is_dark, "{name}, {scheme}: {ground}");
            assert!(lines >= 4.5 && frames >= 4.5, "{name}, {scheme}: {lines:.1} and {frames:.1}");
        }
    }
}
