//! Rows of a store as one profile, for the formats of other tools.

use super::error::StoreError;
use super::facets::Choice;
use super::rows::Rows;
use crate::profile::row;
use fpprof_analysis::filter::Filter;
use fpprof_analysis::folded::{Folded, FoldedStack, FrameLabel, Origin, Unit};
use fpprof_analysis::profile::{
    Function, Grouping, Profile, ProfileEvent, ProfileFrame, ProfileModule, ProfileOrigin, ProfileSample, ProfileStack,
    ProfileThread, Weight,
};
use fpprof_unwind::StopReason;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most distinct stacks, threads, and pairs of both: some gigabytes.
const MAX: usize = 2_000_000;
/// User code whose module is in brackets. Any other such module is the kernel, or one of its modules.
const USER_CODE: [&str; 5] = ["[jit]", "[vdso]", "[vsyscall]", "[uprobes]", "[stack]"];

/// Adds up rows as a profile.
///
/// Tables have neither addresses nor thread ids, and do not say which functions are inlined: each function of a stack
/// becomes a frame of its own at address 0, thread ids are 0, and modules have their base name as path.
#[derive(Debug)]
pub struct StoreProfile {
    choice: Choice,
    only: Filter,
    hosts: BTreeSet<String>,
    start_us: i64,
    end_us: i64,
    modules: Numbered<String>,
    /// Functions by name and module.
    functions: Numbered<(String, String)>,
    stacks: Numbered<(Vec<u32>, StopReason)>,
    threads: Numbered<Thread>,
    /// Samples and weights by thread and stack.
    sums: BTreeMap<(u32, u32), (u64, u64)>,
}

/// A process, a thread's name, a control group and labels.
type Thread = (u32, String, String, String, Vec<(String, String)>);

/// Values in order of first use.
#[derive(Debug)]
struct Numbered<T>(FxHashMap<T, u32>);

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<T: std::hash::Hash + Eq> Numbered<T> {
    fn number(&mut self, value: T) -> Result<u32, StoreError> {
        let next = u32::try_from(self.0.len()).ok().filter(|&next| (next as usize) < MAX);
        match (self.0.get(&value), next) {
            (Some(&known), _) => Ok(known),
            (None, Some(next)) => Ok(*self.0.entry(value).or_insert(next)),
            (None, None) => Err(StoreError::TooMany(MAX)),
        }
    }

    fn into_values(self) -> Vec<T> {
        let mut values: Vec<(T, u32)> = self.0.into_iter().collect();
        values.sort_unstable_by_key(|&(_, number)| number);
        values.into_iter().map(|(value, _)| value).collect()
    }
}

impl StoreProfile {
    /// The columns that [`Self::add`] needs.
    pub const COLUMNS: [&str; 14] = [
        "time",
        "duration_us",
        "host",
        "pid",
        "process",
        "thread",
        "cgroup",
        "labels",
        "samples",
        "weight",
        "stack",
        "stack_end",
        "functions",
        "modules",
    ];

    /// Starts with no rows. Rows must be of the event and the strategy of `choice`; of those, `only` selects by process,
    /// name of the thread, and control group.
    #[must_use]
    pub fn new(choice: Choice, only: Filter) -> Self {
        Self {
            choice,
            only,
            hosts: BTreeSet::new(),
            start_us: i64::MAX,
            end_us: i64::MIN,
            modules: Numbered::default(),
            functions: Numbered::default(),
            stacks: Numbered::default(),
            threads: Numbered::default(),
            sums: BTreeMap::new(),
        }
    }

    /// Adds rows.
    ///
    /// # Errors
    /// If a column is missing or has unknown values, or if there are too many stacks.
    pub fn add(&mut self, rows: &Rows) -> Result<(), StoreError> {
        let (times, durations) = (rows.times()?, rows.numbers("duration_us")?);
        let [hosts, processes, threads] = [rows.words("host")?, rows.words("process")?, rows.words("thread")?];
        let [cgroups, classes, ends] = [rows.words("cgroup")?, rows.words("stack")?, rows.words("stack_end")?];
        let (functions, modules) = (rows.lists("functions")?, rows.lists("modules")?);
        if !functions.ranges().eq(modules.ranges()) {
            return Err(StoreError::Column("modules"));
        }
        let (pids, samples, weights) = (rows.counts("pid")?, rows.counts("samples")?, rows.counts("weight")?);
        let places: Vec<(usize, usize)> = functions.words.numbers().zip(modules.words.numbers()).collect();
        let labels = rows.labels()?;
        // The functions of this batch by their places in its dictionaries: most rows share them.
        let mut known = FxHashMap::default();
        let whose = processes.names().zip(threads.names()).zip(cgroups.names()).zip(pids);
        let sums = samples.into_iter().zip(weights);
        let stacks = functions.ranges().zip(classes.names().zip(ends.names()));
        let when = times.iter().zip(durations).zip(hosts.names());
        for (number, (((whose, sum), (range, end)), when)) in whose.zip(sums).zip(stacks).zip(when).enumerate() {
            let (((process, thread), cgroup), pid) = whose;
            let pid = u32::try_from(pid).map_err(|_| StoreError::Column("pid"))?;
            if !self.only.has_some_of(pid, thread, cgroup) {
                continue;
            }
            let ((&start_us, &duration_us), host) = when;
            self.start_us = self.start_us.min(start_us);
            self.end_us = self.end_us.max(start_us.saturating_add(duration_us));
            if !self.hosts.contains(host) {
                self.hosts.insert(host.to_owned());
            }
            let labels = labels.into_iter().flat_map(|labels| labels.of(number));
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let thread = (pid, process.to_owned(), thread.to_owned(), cgroup.to_owned(), labels);
            let stop = StopReason::from_names(end.0, end.1).ok_or(StoreError::Column("stack_end"))?;
            let frames = places.get(range).into_iter().flatten().map(|&place| {
                if let Some(&known) = known.get(&place) {
                    return Ok(known);
                }
                let function = (functions.words.value(place.0).to_owned(), modules.words.value(place.1).to_owned());
                let number = self.functions.number(function)?;
                known.insert(place, number);
                Ok::<u32, StoreError>(number)
            });
            let frames = frames.collect::<Result<_, _>>()?;
            let key = (self.threads.number(thread)?, self.stacks.number((frames, stop))?);
            if self.sums.len() >= MAX && !self.sums.contains_key(&key) {
                return Err(StoreError::TooMany(MAX));
            }
            let known = self.sums.entry(key).or_default();
            *known = (known.0.saturating_add(sum.0), known.1.saturating_add(sum.1));
        }
        Ok(())
    }

    /// The profile.
    #[must_use]
    pub fn finish(mut self) -> Profile {
        let functions = self.functions.into_values().into_iter();
        let found_by = if self.choice.strategy == "fp" { Origin::FramePointer } else { Origin::Cfi };
        let frames = functions.map(|(name, module)| frame(name, module, found_by, &mut self.modules)).collect();
        let modules = self.modules.into_values().into_iter().map(|name| ProfileModule {
            path: name.clone(),
            name,
            build_id: None,
            base: 0,
            code: 0..0,
            file_offset: 0,
        });
        let threads = self.threads.into_values().into_iter().map(|(pid, process, comm, cgroup, labels)| {
            ProfileThread { pid, process, comm, cgroup, labels, ..ProfileThread::default() }
        });
        let stacks = self.stacks.into_values().into_iter().map(|(frames, stop)| ProfileStack { frames, stop });
        let samples = self.sums.into_iter().map(|((thread, stack), (samples, weight))| ProfileSample {
            time_ns: 0,
            cpu: 0,
            event: 0,
            thread,
            stack,
            samples,
            weight,
        });
        let Choice { event: name, strategy, weight_unit, weights_differ } = self.choice;
        let weight = match weight_unit.as_str() {
            "cpu_ns" => Weight::CpuNs,
            "blocked_ns" => Weight::BlockedNs,
            _ => Weight::Occurrences,
        };
        let has_rows = self.start_us <= self.end_us;
        let duration_us = if has_rows { self.end_us.saturating_sub(self.start_us) } else { 0 };
        let start_us = u64::try_from(self.start_us).ok().filter(|_| has_rows).unwrap_or(0);
        let hosts: Vec<String> = self.hosts.into_iter().collect();
        Profile {
            recorded: ProfileOrigin {
                recorder: "fpprof".to_owned(),
                start_ns: 0,
                start_unix_ns: start_us.saturating_mul(1000),
                host: hosts.join(", "),
                kernel: String::new(),
                arch: String::new(),
                cpu_model: String::new(),
                distribution: String::new(),
            },
            strategy,
            events: vec![ProfileEvent { name, weight, period: None, interval: None }],
            unit: match weight {
                Weight::BlockedNs => Unit::BlockedNs,
                Weight::CpuNs if weights_differ => Unit::CpuNs,
                _ => Unit::Samples,
            },
            grouping: Grouping::Summed,
            duration: Duration::from_micros(u64::try_from(duration_us).unwrap_or(0)),
            modules: modules.collect(),
            frames,
            stacks: stacks.collect(),
            threads: threads.collect(),
            samples: samples.collect(),
        }
    }
}

/// A frame; one of user space was found by the strategy's usual way.
fn frame(name: String, module: String, found_by: Origin, modules: &mut Numbered<String>) -> ProfileFrame {
    let is_file = !module.is_empty() && !module.starts_with('[');
    let is_kernel = module.starts_with('[') && !USER_CODE.contains(&&*module);
    // There are fewer modules than functions, whose number is limited.
    let number = is_file.then(|| modules.number(module.clone()).ok()).flatten();
    let origin = if is_kernel { Origin::Kernel } else { found_by };
    ProfileFrame { module: number, address: 0, origin, functions: vec![Function { name, module, line: None }] }
}

/// The stacks of a profile by names of threads, as in folded stacks of a recording.
#[must_use]
pub fn folded(profile: &Profile) -> Folded {
    let labels = profile.frames.iter().map(|frame| {
        let text = |of: fn(&Function) -> &String| frame.functions.first().map(of).cloned().unwrap_or_default();
        FrameLabel { name: text(|it| &it.name), module: text(|it| &it.module), origin: frame.origin }
    });
    let stacks = profile.samples.iter().filter_map(|sample| {
        let (thread, stack) = (row(&profile.threads, sample.thread)?, row(&profile.stacks, sample.stack)?);
        Some(FoldedStack {
            comm: thread.comm.clone(),
            pid: thread.pid,
            frames: stack.frames.iter().rev().copied().collect(),
            stop: stack.stop,
            samples: sample.samples,
            weight: sample.weight,
        })
    });
    Folded { frames: labels.collect(), stacks: stacks.collect(), unit: profile.unit }
}
