//! `report --json` against its schema: every written key is documented, and every documented key is written.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what helps a test fails by panicking")]

mod support;

use fpprof_analysis::kernel_walks::KernelWalks;
use fpprof_analysis::summary::{Filtered, Summary, Waits};
use fpprof_reports::json;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use support::{profile, written};

/// Paths in the schema, and whether each was seen in the output.
#[derive(Default)]
struct Seen(BTreeMap<String, bool>);

/// Follows `$ref`, and selects the matching alternative of `anyOf`: an object, or `null`.
fn resolved<'a>(root: &'a Value, schema: &'a Value, value: &Value) -> &'a Value {
    let follow = |schema: &'a Value| match schema["$ref"].as_str() {
        Some(path) => root.pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("no {path}")),
        None => schema,
    };
    let schema = follow(schema);
    let Some(all) = schema["anyOf"].as_array() else { return schema };
    let is_null = |schema: &&Value| schema["type"] == "null";
    all.iter().map(follow).find(|schema| is_null(schema) == value.is_null()).unwrap()
}

impl Seen {
    fn check(&mut self, root: &Value, schema: &Value, value: &Value, at: &str) {
        let schema = resolved(root, schema, value);
        if let Some(constant) = schema.get("const") {
            assert_eq!(value, constant, "{at}");
            return;
        }
        let types: BTreeSet<&str> = match &schema["type"] {
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            one => [one.as_str().unwrap_or_else(|| panic!("{at} has no type"))].into(),
        };
        let own = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(n) if n.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        assert!(types.contains(own) || own == "integer" && types.contains("number"), "{at} is a {own}, not {types:?}");
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.check(root, &schema["items"], item, at)),
            Value::Object(keys) => self.object(root, schema, keys, at),
            _ => {}
        }
    }

    fn object(&mut self, root: &Value, schema: &Value, keys: &Map<String, Value>, at: &str) {
        if let Some(each) = schema.get("additionalProperties") {
            if let Some(names) = schema["propertyNames"]["enum"].as_array() {
                assert!(keys.keys().all(|key| names.contains(&Value::from(key.as_str()))), "{at}: {keys:?}");
            }
            keys.values().for_each(|value| self.check(root, each, value, &format!("{at}.*")));
            return;
        }
        let known = schema["properties"].as_object().unwrap_or_else(|| panic!("{at} has no properties"));
        for name in known.keys() {
            self.0.entry(format!("{at}.{name}")).or_default();
        }
        for required in schema["required"].as_array().unwrap() {
            assert!(keys.contains_key(required.as_str().unwrap()), "{at} has no {required}");
        }
        for (name, value) in keys {
            let at = format!("{at}.{name}");
            let own = known.get(name).unwrap_or_else(|| panic!("{at} is in no schema"));
            let described = resolved(root, own, value);
            assert!(own.get("description").or_else(|| described.get("description")).is_some(), "{at} is not described");
            self.check(root, own, value, &at);
            self.0.insert(at, true);
        }
    }
}

fn parsed(summary: &Summary) -> Value {
    serde_json::from_slice(&written(|out| json::summary(summary, out))).unwrap()
}

/// A summary with all optional keys.
fn full() -> Summary {
    let mut summary = profile::summary();
    summary.no_call_before = profile::counts(&[("fp", 3)]);
    let waits = r#"{"threshold_ns":1000,"fired":9,"recorded":4,"blocked_ns":5,"lost":{"ring_full":1},"skipped":3,"dropped":1,
                    "short":2,"short_ns":7,"preempted":1}"#;
    summary.waits = Some(serde_json::from_str::<Waits>(waits).unwrap());
    let misses = profile::counts(&[("no_rule", 6)]);
    summary.kernel_walks = Some(KernelWalks { complete: 9, misses, verified: 2, different: 0 });
    summary.blocked_ns = Some(5);
    summary.environment.aggregated_s = Some(10.0);
    summary.filtered =
        Some(Filtered { filter: "--comm fio".to_owned(), samples: 2, duration_s: 1.0, blocked_ns: Some(3) });
    summary.processes[0].processes = Some(2);
    summary.strategies.get_mut("dwarf").unwrap().no_stack = profile::counts(&[("exiting", 4)]);
    summary.processes[0].strategies.clone_from(&summary.strategies);
    (summary.hottest[0].self_blocked_ns, summary.hottest[0].total_blocked_ns) = (Some(1), Some(2));
    summary
}

/// Check that a report has exactly the keys of the schema, with its types, that all documented keys are written, and
/// that the schema's version is the program's.
#[test]
fn report_has_the_keys_of_its_schema() {
    let schema: Value = serde_json::from_str(include_str!("../report.schema.json")).unwrap();
    assert_eq!(schema["properties"]["schema_version"]["const"], json::SCHEMA_VERSION);
    let golden: Value = serde_json::from_str(include_str!("golden/summary.json")).unwrap();
    let mut cut = profile::summary();
    cut.cost = None;
    let mut seen = Seen::default();
    for report in [golden, parsed(&cut), parsed(&full())] {
        seen.check(&schema, &schema, &report, "report");
    }
    let unseen: Vec<_> = seen.0.iter().filter(|(_, seen)| !**seen).map(|(place, _)| place).collect();
    assert!(unseen.is_empty(), "documented and never written: {unseen:?}");
}
