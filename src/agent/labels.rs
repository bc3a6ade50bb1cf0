//! Labels of processes, by the rules of the configuration.
//!
//! Values are chosen by the profiled processes, so their length and number are limited.

use anyhow::{Context as _, bail, ensure};
use fpprof_analysis::profile::{Profile, ProfileSample, ProfileThread};
use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The most rules.
const MAX_RULES: usize = 16;
/// The most bytes of a value.
const MAX_VALUE_BYTES: usize = 256;
/// The most values of a label in a table and event.
const MAX_VALUES: usize = 1000;
/// The most bytes of the name of a label or an environment variable.
const MAX_NAME_BYTES: usize = 64;

/// Where a label's value comes from: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabelRule {
    name: String,
    /// Name of an environment variable.
    environment: Option<String>,
    /// Regular expression on the path of the control group; the value is its group.
    cgroup: Option<String>,
}

/// Samples whose label was left out, by label and cause.
pub(super) type LeftOut = BTreeMap<String, BTreeMap<String, u64>>;

/// A rule that can be applied.
struct Rule<'r> {
    name: &'r str,
    source: Source<'r>,
}

enum Source<'r> {
    Environment(&'r str),
    Cgroup(Regex),
}

/// Checks the rules of a configuration.
///
/// # Errors
/// If one is invalid; the error names it.
pub(super) fn check(rules: &[LabelRule]) -> anyhow::Result<()> {
    ensure!(rules.len() <= MAX_RULES, "label: {} rules are more than {MAX_RULES}", rules.len());
    let names: BTreeSet<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    ensure!(names.len() == rules.len(), "label: each name can be given once");
    rules.iter().try_for_each(|rule| Rule::new(rule).map(drop))
}

/// The names of the labels, as the end of a sentence.
pub(super) fn summary(rules: &[LabelRule]) -> String {
    let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(", with labels {}", names.join(", ")) }
}

/// Names of the environment variables that the rules need.
pub(super) fn variables(rules: &[LabelRule]) -> Vec<String> {
    let names: BTreeSet<&String> = rules.iter().filter_map(|rule| rule.environment.as_ref()).collect();
    names.into_iter().cloned().collect()
}

/// Adds the labels of the rules to the processes of a profile; returns what was left out.
///
/// # Errors
/// If a rule is invalid.
pub(super) fn add(rules: &[LabelRule], profile: &mut Profile) -> anyhow::Result<LeftOut> {
    add_to(rules, &mut profile.threads, &profile.samples)
}

fn add_to(rules: &[LabelRule], threads: &mut [ProfileThread], of_threads: &[ProfileSample]) -> anyhow::Result<LeftOut> {
    let mut samples = vec![0_u64; threads.len()];
    for sample in of_threads {
        if let Some(sum) = samples.get_mut(sample.thread as usize) {
            *sum = sum.saturating_add(sample.samples);
        }
    }
    let mut rules = rules.iter().map(Rule::new).collect::<Result<Vec<_>, _>>()?;
    rules.sort_by_key(|rule| rule.name);
    let mut left_out = LeftOut::new();
    for rule in &rules {
        let values: Vec<_> = threads.iter().map(|thread| rule.value(&thread.cgroup, &thread.environment)).collect();
        let kept = most_sampled(&values, &samples);
        for ((value, thread), &samples) in values.iter().zip(&mut *threads).zip(&samples) {
            let cause = match value {
                Ok(None) => continue,
                Ok(Some(value)) if kept.contains(value.as_str()) => {
                    thread.labels.push((rule.name.to_owned(), value.clone()));
                    continue;
                }
                Ok(Some(_)) => "too_many_values",
                Err(cause) => cause,
            };
            *left_out.entry(rule.name.to_owned()).or_default().entry(cause.to_owned()).or_default() += samples;
        }
    }
    Ok(left_out)
}

/// The values with the most samples, [`MAX_VALUES`] at most.
fn most_sampled<'v>(values: &'v [Result<Option<String>, &str>], samples: &[u64]) -> BTreeSet<&'v str> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (value, &samples) in values.iter().zip(samples) {
        if let Ok(Some(value)) = value {
            *sums.entry(value).or_default() += samples;
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|&(_, samples)| Reverse(samples));
    sums.into_iter().take(MAX_VALUES).map(|(value, _)| value).collect()
}

impl<'r> Rule<'r> {
    fn new(LabelRule { name, environment, cgroup }: &'r LabelRule) -> anyhow::Result<Self> {
        let is_name = |name: &str, others: &[char]| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || others.contains(&c);
            !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_plain)
        };
        ensure!(
            is_name(name, &['_', '.', '-', '/']),
            "label.name: `{name}`: choose 1 to {MAX_NAME_BYTES} letters, digits and `_.-/`"
        );
        let source = match (environment, cgroup) {
            (Some(variable), None) => {
                ensure!(
                    is_name(variable, &['_', '.', '-']),
                    "label `{name}`: environment: `{variable}` is not the name of a variable"
                );
                Source::Environment(variable)
            }
            (None, Some(pattern)) => {
                let regex = Regex::new(pattern).with_context(|| format!("label `{name}`: cgroup: `{pattern}`"))?;
                ensure!(
                    regex.captures_len() == 2,
                    "label `{name}`: cgroup: mark the value by one group in parentheses; others are written (?:...)"
                );
                Source::Cgroup(regex)
            }
            _ => bail!("label `{name}`: give its source, either `environment` or `cgroup`"),
        };
        Ok(Self { name, source })
    }

    /// The value for a process; an error with the cause if it must be left out.
    fn value(&self, cgroup: &str, environment: &[u8]) -> Result<Option<String>, &'static str> {
        let value = match &self.source {
            Source::Cgroup(regex) => {
                let group = regex.captures(cgroup).and_then(|captures| captures.get(1));
                group.map(|group| group.as_str().to_owned())
            }
            Source::Environment(name) => {
                let mut variables = environment.split(|&byte| byte == 0);
                let value = variables.find_map(|variable| {
                    variable.strip_prefix(name.as_bytes()).filter(|rest| matches!(rest.first(), None | Some(b'=')))
                });
                match value {
                    Some([]) => return Err("unread"),
                    value => {
                        value.and_then(|value| value.get(1..)).map(|value| String::from_utf8_lossy(value).into_owned())
                    }
                }
            }
        };
        match value.filter(|value| !value.is_empty()) {
            Some(value) if value.len() > MAX_VALUE_BYTES => Err("too_long"),
            value => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<LabelRule> {
        #[derive(Deserialize)]
        struct Rules {
            label: Vec<LabelRule>,
        }
        toml::from_str::<Rules>(text).expect("rules").label
    }

    fn labelled(rules: &[LabelRule], processes: &[(&str, &str)]) -> (Vec<Vec<(String, String)>>, LeftOut) {
        let thread = |&(cgroup, environment): &(&str, &str)| ProfileThread {
            cgroup: cgroup.to_owned(),
            environment: environment.as_bytes().to_vec(),
            ..ProfileThread::default()
        };
        let sample = |thread| ProfileSample {
            time_ns: 0,
            cpu: 0,
            event: 0,
            thread,
            stack: 0,
            samples: 1 + u64::from(thread),
            weight: 0,
        };
        let n = u32::try_from(processes.len()).expect("a few");
        let mut threads: Vec<_> = processes.iter().map(thread).collect();
        let left_out = add_to(rules, &mut threads, &(0..n).map(sample).collect::<Vec<_>>()).expect("rules");
        (threads.into_iter().map(|thread| thread.labels).collect(), left_out)
    }

    const RULES: &str = "[[label]]\nname = \"team\"\nenvironment = \"TEAM\"\n\
                         [[label]]\nname = \"app\"\ncgroup = '/app-([a-z]+)\\.slice'\n";

    /// Check that labels come from the named variable and from the control group, sorted by name; that an empty or missing value
    /// is no label; and that one that is too long or was not read is counted.
    #[test]
    fn rules_give_labels() {
        let long = format!("TEAM={}\0", "x".repeat(MAX_VALUE_BYTES + 1));
        let processes = [
            ("/app-shop.slice/a", "TEAMS=no\0TEAM=web\0"),
            ("/app-.slice", "TEAM=\0"),
            ("/other", ""),
            ("", "TEAM\0"),
            ("/app-shop.slice", &long),
        ];
        let (labels, left_out) = labelled(&rules(RULES), &processes);
        let text =
            |pairs: &[(&str, &str)]| -> Vec<_> { pairs.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect() };
        let expected = [&[("app", "shop"), ("team", "web")][..], &[], &[], &[], &[("app", "shop")]];
        assert_eq!(labels, expected.map(text));
        let causes = BTreeMap::from([("too_long".to_owned(), 5), ("unread".to_owned(), 4)]);
        assert_eq!(left_out, BTreeMap::from([("team".to_owned(), causes)]));
    }

    /// Check that of too many values, those with the most samples are kept, and that the samples of the rest are counted.
    #[test]
    fn values_are_few() {
        let values: Vec<String> = (0..MAX_VALUES + 2).map(|n| format!("TEAM={n}\0")).collect();
        let processes: Vec<_> = values.iter().map(|value| ("/", value.as_str())).collect();
        let (labels, left_out) = labelled(&rules(RULES), &processes);
        // The first two have one and two samples.
        assert!(labels[..2].iter().all(Vec::is_empty) && labels[2..].iter().all(|labels| labels.len() == 1));
        assert_eq!(left_out["team"]["too_many_values"], 3);
    }

    /// Check that an invalid rule is named.
    #[test]
    fn mistakes_are_named() {
        let one = |text: &str| format!("[[label]]\n{text}\n");
        let many: String = (0..=MAX_RULES).map(|n| one(&format!("name = \"n{n}\"\nenvironment = \"A\""))).collect();
        for (text, message) in [
            (one("name = \"a b\"\nenvironment = \"A\""), "label.name: `a b`"),
            (one("name = \"a\"\nenvironment = \"A=B\""), "not the name of a variable"),
            (one("name = \"a\"\ncgroup = \"a\""), "mark the value by one group"),
            (one("name = \"a\"\ncgroup = \"(a\""), "label `a`: cgroup: `(a`"),
            (one("name = \"a\""), "give its source"),
            (one("name = \"a\"\nenvironment = \"A\"").repeat(2), "each name can be given once"),
            (many, "17 rules are more than 16"),
        ] {
            let error = format!("{:#}", check(&rules(&text)).expect_err(&text));
            assert!(error.contains(message), "{text}: {error}");
        }
        check(&rules(RULES)).expect("valid rules");
        assert_eq!(variables(&rules(RULES)), ["TEAM"]);
    }
}
