//! Rules of functions for walks in the kernel. Unlike the recorder's, they include rows that only a debug file has.

use fpprof_unwind::{ModuleId, Modules, Unwinder};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A cache of the rules of functions on the walks.
#[derive(Debug, Default)]
pub(super) struct WalkRules {
    unwinder: Unwinder,
    /// By module: start of a range, its end, and its rule.
    by_module: FxHashMap<ModuleId, BTreeMap<u64, (u64, u64)>>,
}

impl WalkRules {
    /// The rule of an address in a module; `None` if it has none.
    pub(super) fn find(&mut self, modules: &(impl Modules + ?Sized), id: ModuleId, svma: u64) -> Option<u64> {
        let rules = self.by_module.entry(id).or_default();
        let known = |rules: &BTreeMap<u64, (u64, u64)>| {
            let (_, &(end, rule)) = rules.range(..=svma).next_back()?;
            (svma < end).then_some(rule)
        };
        known(rules).or_else(|| {
            self.unwinder.function_rules(modules, id, svma, |range, rule| {
                rules.insert(range.start, (range.end, rule));
            });
            known(rules)
        })
    }
}
