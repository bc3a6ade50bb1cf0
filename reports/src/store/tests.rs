//! Compares answers with sums computed by hand.

use super::tree::Tree;
use super::{
    Choice, Chosen, Cost, Facet, Facets, FacetsAnswer, Filter, FunctionCount, GoesOn, Nodes, Quality, Stacks,
    StoreError, StoreProfile, Unit, Wanted, compared, flamegraph, folded, functions, merge, read,
};
use crate::escape::shown;
use crate::parquet::counters::{Counter, Counters};
use crate::parquet::{counters, stacks};
use crate::stored::{self, NOON_US, Rows};
use bytes::Bytes;
use fpprof_analysis::folded::Origin;
use fpprof_analysis::profile::Profile;
use fpprof_unwind::{BrokenReason, Root, StopReason};
use std::sync::Arc;
use std::time::Duration;

const COMPLETE: StopReason = StopReason::Complete(Root::Start);
const BROKEN: StopReason = StopReason::Broken(BrokenReason::RaNotExec);

fn profile(strategy: &str, rows: Rows<'_>) -> Profile {
    stored::profile(NOON_US, "web-1", strategy, rows)
}

/// The same 100 samples under two strategies.
fn both() -> Vec<Profile> {
    let whole = profile(
        "cfi",
        &[
            ("nginx", "_start;main;serve;copy", COMPLETE, 60),
            ("nginx", "_start;main;main;serve", COMPLETE, 10),
            ("db", "_start;main;sort", COMPLETE, 30),
        ],
    );
    let broken = profile(
        "fp",
        &[("nginx", "serve;copy", BROKEN, 60), ("nginx", "serve", BROKEN, 10), ("db", "sort", BROKEN, 30)],
    );
    vec![whole, broken]
}

fn go_on() -> GoesOn {
    Arc::new(|| true)
}

fn table(profiles: &[Profile]) -> Bytes {
    let mut bytes = Vec::new();
    stacks::write(profiles, &mut bytes).expect("written");
    bytes.into()
}

fn filter(names: &[(Facet, &str)]) -> Arc<Filter> {
    Arc::new(names.iter().fold(Filter::default(), |filter, &(facet, name)| filter.with(facet, name)))
}

fn added(profiles: &[Profile], wanted: Wanted, sides: &[Arc<Filter>]) -> Stacks {
    let mut stacks = Stacks::new(wanted).expect("a few names");
    for (side, filter) in sides.iter().enumerate() {
        for rows in read(table(profiles), &stacks.columns(), Some(filter), &go_on()).expect("a table") {
            stacks.add(side, &rows).expect("added");
        }
    }
    stacks
}

fn all() -> Wanted {
    Wanted { tree: true, functions: true, ..Wanted::default() }
}

/// The path of each node, as names from the root on, with its samples.
fn paths(nodes: &Nodes, samples: &[u64]) -> Vec<(String, u64)> {
    let mut paths: Vec<String> = Vec::new();
    for (&parent, &name) in nodes.parent.iter().zip(&nodes.name) {
        let name = &nodes.names[name as usize];
        let above = usize::try_from(parent).ok().map(|parent| format!("{};", paths[parent]));
        paths.push(format!("{}{name}", above.unwrap_or_default()));
    }
    paths.into_iter().zip(samples.iter().copied()).collect()
}

/// Check the nodes of a flame graph and their sums, and that only one strategy is counted.
#[test]
fn flame_graphs_are_of_one_strategy() {
    let graph = flamegraph(added(&both(), all(), &[filter(&[(Facet::Strategy, "cfi")])]));
    let expected = [
        ("all", 100),
        ("all;db", 30),
        ("all;db;_start", 30),
        ("all;db;_start;main", 30),
        ("all;db;_start;main;sort", 30),
        ("all;nginx", 70),
        ("all;nginx;_start", 70),
        ("all;nginx;_start;main", 70),
        ("all;nginx;_start;main;main", 10),
        ("all;nginx;_start;main;main;serve", 10),
        ("all;nginx;_start;main;serve", 60),
        ("all;nginx;_start;main;serve;copy", 60),
    ];
    let mut found = paths(&graph.nodes, &graph.samples);
    found.sort();
    assert_eq!(found, expected.map(|(path, n)| (path.to_owned(), n)));
    assert_eq!((graph.total, graph.left_out), (100, 0));
    assert_eq!(graph.stacks.get("complete"), Some(&100));
    let broken = flamegraph(added(&both(), all(), &[filter(&[(Facet::Strategy, "fp"), (Facet::Process, "db")])]));
    let found = paths(&broken.nodes, &broken.samples);
    assert_eq!(found.last(), Some(&("all;db;[broken: ra_not_exec];sort".to_owned(), 30)));
    assert_eq!(broken.nodes.kind, [0, 1, 4, 2]);
}

/// Check that weights are added up on request, and that filters of several columns combine.
#[test]
fn weights_and_filters() {
    let wanted = Wanted { unit: Unit::Weight, ..all() };
    let service = [(Facet::Strategy, "cfi"), (Facet::Service, "nginx.service"), (Facet::Host, "web-1")];
    assert_eq!(flamegraph(added(&both(), wanted.clone(), &[filter(&service)])).total, 700);
    let elsewhere = [(Facet::Strategy, "cfi"), (Facet::Host, "web-2")];
    assert_eq!(flamegraph(added(&both(), wanted.clone(), &[filter(&elsewhere)])).total, 0);
    let noon = i64::try_from(NOON_US).expect("a time");
    for (from_us, to_us, total) in [(Some(noon), None, 1000), (Some(noon + 1), None, 0), (None, Some(noon), 0)] {
        let range = Filter { from_us, to_us, ..Filter::default() }.with(Facet::Strategy, "cfi");
        assert_eq!(flamegraph(added(&both(), wanted.clone(), &[Arc::new(range)])).total, total);
    }
}

/// Check that a recursive function counts once per stack, and that its callers and callees are right.
#[test]
fn functions_have_callers_and_callees() {
    let chosen = Some(Chosen { name: "main".to_owned(), module: None });
    let answer = functions(&added(&both(), Wanted { chosen, ..all() }, &[filter(&[(Facet::Strategy, "cfi")])]));
    let counts: Vec<_> =
        answer.functions.iter().map(|one| (one.name.as_deref().unwrap_or(""), one.own, one.total)).collect();
    assert_eq!(counts, [("_start", 0, 100), ("main", 0, 100), ("serve", 10, 70), ("copy", 60, 60), ("sort", 30, 30)]);
    let of = |list: &[FunctionCount]| -> Vec<(Option<String>, u64)> {
        list.iter().map(|one| (one.name.clone(), one.total)).collect()
    };
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(of(&answer.callers), [(name("_start"), 100), (name("main"), 10)]);
    assert_eq!(of(&answer.callees), [(name("serve"), 70), (name("sort"), 30), (name("main"), 10)]);
}

/// Check that a chosen function is listed however rare it is, and found by the name that is shown of it if that is cut.
#[test]
fn chosen_functions_are_listed() {
    let long = "x".repeat(1500);
    let rare = format!("_start;main;{long}");
    let common: Vec<String> = (0..1200).map(|n| format!("_start;main;f{n}")).collect();
    let stacks = common.iter().map(|stack| ("nginx", stack.as_str(), COMPLETE, 2));
    let stacks: Vec<_> = stacks.chain([("nginx", rare.as_str(), COMPLETE, 1)]).collect();
    let name = shown(&long).into_owned();
    assert!(name.len() < long.len());
    let wanted = Wanted { chosen: Some(Chosen { name: name.clone(), module: None }), ..all() };
    let answer = functions(&added(&[profile("cfi", &stacks)], wanted, &[filter(&[])]));
    let found: Vec<_> = answer.functions.iter().filter(|one| one.name.as_ref() == Some(&name)).collect();
    assert_eq!(found.iter().map(|one| one.total).collect::<Vec<_>>(), [1]);
    assert_eq!((answer.functions.len(), answer.left_out), (1001, 202));
    assert_eq!(answer.callers.first().map(|one| one.total), Some(1));
}

/// Check that stored samples of no single event are shown if one event is counted, and left out if there are several; what is
/// discarded is always shown.
#[test]
fn ticks_of_no_event_are_not_those_of_any() {
    let shown = |events: &[&str], wanted: &str| {
        let mut quality = Quality::new(filter(&[(Facet::Event, "off-cpu")]));
        let counter = |name, event: &str, value| Counter { name, event: event.to_owned(), cause: String::new(), value };
        let mut counted = vec![counter("stored", "", 7), counter("discarded", "", 5)];
        counted.extend(events.iter().flat_map(|event| [counter("fired", event, 9), counter("stored", event, 8)]));
        let counted = Counters {
            start_unix_us: NOON_US,
            duration: Duration::from_secs(60),
            host: "web-1".to_owned(),
            counters: counted,
        };
        let mut bytes = Vec::new();
        counters::write(&counted, &mut bytes).expect("written");
        for rows in read(Bytes::from(bytes), &Quality::COUNTERS, None, &go_on()).expect("a table") {
            quality.add_counters(&rows).expect("added");
        }
        quality.finish().ticks.iter().filter(|one| one.counter == wanted).map(|one| one.value).sum::<i64>()
    };
    let both = &["cpu-clock", "off-cpu"];
    assert_eq!((shown(&["off-cpu"], "stored"), shown(both, "stored")), (15, 8));
    assert_eq!((shown(&["off-cpu"], "discarded"), shown(both, "discarded")), (5, 5));
}

/// Check that pruning keeps the totals, that no node is kept without its caller, and that pruning while the tree is
/// built loses no sample.
#[test]
fn pruned_trees_keep_their_totals() {
    let mut random = 1_u32;
    let mut next = move |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    let paths: Vec<(Vec<u32>, usize, u64)> = (0..20_000)
        .map(|_| ((0..1 + next(9)).map(|_| 2 + next(40)).collect(), next(2) as usize, u64::from(next(50))))
        .collect();
    let sum = |side| paths.iter().filter(|(_, of, _)| *of == side).map(|(_, _, n)| n).sum::<u64>();
    for while_built in [usize::MAX, 5000] {
        let mut tree = Tree::new(0, 1).with_max(while_built);
        paths.iter().for_each(|(path, side, n)| tree.add(path.iter().copied(), *side, *n));
        for max in [1000, 10, 1] {
            tree.prune(max);
            let (nodes, totals) = (tree.nodes(), tree.totals());
            assert_eq!(totals[0], [sum(0), sum(1)]);
            assert!(nodes.len() <= 2 * max, "{} of {max}", nodes.len());
            assert!(nodes.iter().enumerate().skip(1).all(|(number, node)| (node.caller as usize) < number));
            let left_out: u64 = nodes.iter().filter(|node| node.label == 1).map(|node| node.own[0] + node.own[1]).sum();
            assert!(left_out > 0 && tree.n_pruned() > 0);
        }
    }
}

/// Check that stacks deeper than any recorded one are cut, and that their samples are kept.
#[test]
fn very_deep_stacks_are_cut() {
    let deep = vec!["f"; 5000].join(";");
    let graph = flamegraph(added(&[profile("cfi", &[("deep", &deep, COMPLETE, 3)])], all(), &[filter(&[])]));
    assert_eq!((graph.total, graph.samples.last()), (3, Some(&3)));
    assert_eq!((graph.nodes.kind.len(), graph.nodes.kind.last()), (2002, Some(&5)));
}

/// Check that names are counted under the filters of the other columns and under one strategy, which is frame pointers
/// only if there is no other.
#[test]
fn facets_do_not_hide_the_alternatives() {
    let facets = |names: &[(Facet, &str)]| {
        let mut facets = Facets::new(filter(names));
        for rows in read(table(&both()), &Facets::COLUMNS, None, &go_on()).expect("a table") {
            facets.add(&rows).expect("added");
        }
        facets.finish()
    };
    let answer = facets(&[(Facet::Process, "db")]);
    let choice = answer.choice.as_ref().expect("a choice");
    assert_eq!((choice.event.as_str(), choice.strategy.as_str()), ("cpu-clock", "cfi"));
    let of = |answer: &FacetsAnswer, facet| -> Vec<(String, u64)> {
        let list = answer.facets.get(&facet).cloned().unwrap_or_default();
        list.into_iter().map(|named| (named.name, named.samples)).collect()
    };
    assert_eq!(of(&answer, Facet::Process), [("nginx".to_owned(), 70), ("db".to_owned(), 30)]);
    assert_eq!(of(&answer, Facet::Service), [("db.service".to_owned(), 30)]);
    assert_eq!(of(&answer, Facet::Pod), [(String::new(), 30)]);
    assert_eq!(answer.combinations.iter().map(|one| one.samples).collect::<Vec<_>>(), [30, 30]);
    let noon = NOON_US as f64 / 1e6;
    assert_eq!(answer.span, Some([noon, noon + 60.0]));
    assert_eq!(facets(&[(Facet::Strategy, "fp")]).choice.expect("a choice").strategy, "fp");
}

/// Check that a comparison has both sides' shares, intervals only for independent samples, and no change between equal
/// sides.
#[test]
fn comparisons_are_of_shares() {
    let sides = ["nginx", "db"].map(|process| filter(&[(Facet::Strategy, "cfi"), (Facet::Process, process)]));
    let answer = compared(added(&both(), all(), &sides), true);
    assert_eq!(answer.total, [70, 30]);
    let sort = answer.functions.iter().find(|function| function.name == "sort").expect("a function");
    assert_eq!((sort.own.before, sort.own.after, sort.own.points), (0, 30, 100.0));
    assert!(sort.own.interval.is_some() && sort.own.differs());
    let main = answer.functions.iter().find(|function| function.name == "main").expect("a function");
    assert_eq!(main.total.points, 0.0);
    let [before, after] = [&answer.before, &answer.after].map(|samples| samples.first().copied());
    assert_eq!((before, after), (Some(70), Some(30)));
    let same = [filter(&[(Facet::Strategy, "cfi")]), filter(&[(Facet::Strategy, "cfi")])];
    let answer = compared(added(&both(), all(), &same), false);
    assert!(answer.functions.iter().all(|function| !function.total.differs() && function.own.interval.is_none()));
}

/// Check that stacks and ticks are counted by bucket, separately for each strategy, and that an agent's cost is per
/// machine, in per cent of one CPU.
#[test]
fn series_add_up() {
    let any = filter(&[]);
    let (mut quality, mut cost) = (Quality::new(Arc::clone(&any)), Cost::new(Arc::clone(&any)));
    for rows in read(table(&both()), &Quality::STACKS, Some(&any), &go_on()).expect("a table") {
        quality.add_stacks(&rows).expect("added");
    }
    for n in 0..3 {
        let counter = |name, event: &str, cause: &str, value| Counter {
            name,
            event: event.to_owned(),
            cause: cause.to_owned(),
            value,
        };
        let counted = Counters {
            start_unix_us: NOON_US + n * 60_000_000,
            duration: Duration::from_secs(60),
            host: "web-1".to_owned(),
            counters: vec![
                counter("fired", "cpu-clock", "", 100),
                counter("lost", "cpu-clock", "ring_full", 3),
                counter("cpu_ns", "", "", 600_000_000),
                counter("rss_bytes", "", "", 50 + i64::try_from(n).expect("small")),
                counter("rate_hz", "", "", 19),
            ],
        };
        let mut bytes = Vec::new();
        counters::write(&counted, &mut bytes).expect("written");
        let bytes = Bytes::from(bytes);
        for rows in read(bytes.clone(), &Quality::COUNTERS, None, &go_on()).expect("a table") {
            quality.add_counters(&rows).expect("added");
        }
        read(bytes, &Cost::COUNTERS, None, &go_on())
            .expect("a table")
            .iter()
            .for_each(|rows| cost.add(rows).expect("added"));
    }
    let quality = quality.finish();
    assert_eq!((quality.stacks_bucket_s, quality.ticks_bucket_s), (60.0, 60.0));
    let stacks: Vec<_> =
        quality.stacks.iter().map(|one| (one.strategy.as_str(), one.stack.as_str(), one.samples)).collect();
    assert_eq!(stacks, [("cfi", "complete", 100), ("fp", "broken", 100)]);
    assert_eq!(quality.ends["fp"]["broken"]["ra_not_exec"], 100);
    let lost: Vec<_> = quality.ticks.iter().filter(|one| one.cause == "ring_full").map(|one| one.value).collect();
    assert_eq!(lost, [3, 3, 3]);
    let cost = cost.finish();
    assert_eq!(cost.points.len(), 3);
    let last = cost.points.last().expect("a point");
    assert_eq!((last.cpu_percent, last.rss_bytes, last.rate_hz), (1.0, 52, Some(19)));
}

/// Check that files that are not tables, or are damaged, are refused.
#[test]
fn damaged_tables_are_refused() {
    let whole = table(&both());
    assert!(read(Bytes::from_static(b"PAR1 nothing"), &["host"], None, &go_on()).is_err());
    assert!(read(whole.slice(..whole.len() - 1), &["host"], None, &go_on()).is_err());
    let mut counters = Vec::new();
    let none = Counters { start_unix_us: 0, duration: Duration::ZERO, host: String::new(), counters: Vec::new() };
    counters::write(&none, &mut counters).expect("written");
    let refused = read(Bytes::from(counters), &["value"], Some(&filter(&[(Facet::Strategy, "fp")])), &go_on());
    assert!(refused.is_ok_and(|rows| rows.is_empty()), "no rows, so no column is missed");
}

/// Check that frames of a store are shown as those of its strategy.
#[test]
fn frames_are_of_their_strategy() {
    for (strategy, origin) in [("cfi", Origin::Cfi), ("fp", Origin::FramePointer)] {
        let choice = Choice {
            event: "cpu-clock".to_owned(),
            strategy: strategy.to_owned(),
            weight_unit: "cpu_ns".to_owned(),
            weights_differ: false,
        };
        let mut stored = StoreProfile::new(choice, fpprof_analysis::filter::Filter::default());
        let of_strategy = profile(strategy, &[("nginx", "_start;main", COMPLETE, 1)]);
        for rows in read(table(&[of_strategy]), &StoreProfile::COLUMNS, None, &go_on()).expect("a table") {
            stored.add(&rows).expect("added");
        }
        let frames = folded(&stored.finish()).frames;
        assert!(frames.len() == 2 && frames.iter().all(|frame| frame.origin == origin), "{strategy}: {frames:?}");
    }
}

/// Check that shares are those of CPU time if samples stand for different amounts of it, and otherwise those of samples.
#[test]
fn rates_may_change() {
    let of = |process: &str, samples: u64, weight| {
        let mut profile = profile("cfi", &[(process, "_start;main", COMPLETE, samples)]);
        profile.samples.iter_mut().for_each(|sample| sample.weight = weight);
        profile
    };
    for (weight, is_other_rate, amounts) in [(301, false, [60, 30]), (3000, true, [600, 3000])] {
        let profiles = [of("nginx", 60, 600), of("db", 30, weight)];
        let filter = filter(&[]);
        let mut facets = Facets::new(Arc::clone(&filter));
        for profile in &profiles {
            for rows in read(table(std::slice::from_ref(profile)), &Facets::COLUMNS, None, &go_on()).expect("a table") {
                facets.add(&rows).expect("added");
            }
        }
        let choice = facets.finish().choice.expect("samples");
        assert_eq!(choice.weights_differ, is_other_rate);
        let mut stored = StoreProfile::new(choice, fpprof_analysis::filter::Filter::default());
        for rows in read(table(&profiles), &StoreProfile::COLUMNS, None, &go_on()).expect("a table") {
            stored.add(&rows).expect("added");
        }
        let folded = folded(&stored.finish());
        let amount = |name: &str| {
            let stack = folded.stacks.iter().find(|stack| stack.comm == name).expect("a stack of each process");
            folded.amount(stack)
        };
        assert_eq!(["nginx", "db"].map(amount), amounts);
    }
}

/// Check that samples without the chosen strategy are counted: those of other machines, and of other times.
#[test]
fn samples_without_the_strategy_are_counted() {
    let of = |host: &str, strategy: &str, samples| {
        stored::profile(NOON_US, host, strategy, &[("nginx", "_start;main", COMPLETE, samples)])
    };
    let mixed = [of("c", "cfi", 30), of("c", "fp", 40), of("c", "dwarf", 5)];
    let whole = [of("a", "cfi", 100), of("a", "fp", 100), of("b", "dwarf", 60), of("b", "fp", 60)];
    let profiles = [&whole[..], &mixed].concat();
    let others = |names: &[(Facet, &str)]| {
        let filter = filter(names);
        let mut facets = Facets::new(Arc::clone(&filter));
        for profile in &profiles {
            for rows in read(table(std::slice::from_ref(profile)), &Facets::COLUMNS, None, &go_on()).expect("a table") {
                facets.add(&rows).expect("added");
            }
        }
        let answer = facets.finish();
        (answer.choice.expect("samples").strategy, answer.others)
    };
    assert_eq!(others(&[]), ("cfi".to_owned(), 70));
    assert_eq!(others(&[(Facet::Host, "a")]), ("cfi".to_owned(), 0));
    assert_eq!(others(&[(Facet::Strategy, "fp")]), ("fp".to_owned(), 0));
}

/// Check that labels select rows, that the empty value stands for rows without a label, and that the facets obey them.
#[test]
fn labels_select() {
    let total = |values: &[&str]| {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        let of_team = Filter { labels: [("team".to_owned(), values)].into(), ..Filter::default() };
        let filter = Arc::new(of_team.with(Facet::Strategy, "cfi"));
        let mut facets = Facets::new(Arc::clone(&filter));
        for rows in read(table(&both()), &Facets::COLUMNS, None, &go_on()).expect("a table") {
            facets.add(&rows).expect("added");
        }
        let mut answer = facets.finish();
        let teams: Vec<(&str, u64)> =
            answer.labels.get("team").into_iter().flatten().map(|named| (named.name.as_str(), named.samples)).collect();
        assert_eq!(teams, [("web", 70), ("", 30)], "a filter does not hide the alternatives");
        let processes = answer.facets.remove(&Facet::Process).unwrap_or_default();
        let of_facets: u64 = processes.iter().map(|named| named.samples).sum();
        let total = added(&both(), all(), &[filter]).total[0];
        assert_eq!(of_facets, total);
        total
    };
    assert_eq!([&["web"][..], &[""], &["web", ""], &["none"]].map(total), [70, 30, 100, 0]);
}

/// Check that merged tables have the rows of all, and that a damaged one, one of another kind, or reading that is told to stop is an
/// error.
#[test]
fn merged_tables_have_all_rows() {
    let mut merged = Vec::new();
    merge(vec![table(&both()), table(&both()), table(&both()[..1])], &mut merged).expect("merged");
    let total = |strategy: &str| {
        let filter = filter(&[(Facet::Strategy, strategy)]);
        let rows = read(Bytes::from(merged.clone()), &["samples"], Some(&filter), &go_on()).expect("a table");
        rows.iter().flat_map(|rows| rows.counts("samples").expect("samples")).sum::<u64>()
    };
    assert_eq!(["cfi", "fp"].map(total), [300, 200]);
    let mut counted = Vec::new();
    let one = Counters { start_unix_us: 0, duration: Duration::ZERO, host: String::new(), counters: Vec::new() };
    counters::write(&one, &mut counted).expect("written");
    let cut = Bytes::from(table(&both())[..500].to_vec());
    for (tables, index) in [(vec![table(&both()), cut], 1), (vec![counted.into(), table(&both())], 0)] {
        assert_eq!(merge(tables, &mut Vec::new()).err().and_then(|error| error.table), Some(index));
    }
    let stopped: GoesOn = Arc::new(|| false);
    for filter in [None, Some(&filter(&[]))] {
        let error = read(table(&both()), &["samples"], filter, &stopped).expect_err("it is stopped");
        assert!(matches!(error, StoreError::Stopped), "{error}");
    }
}
