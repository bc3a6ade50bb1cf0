//! The rules of functions, as walks in the kernel get them; also of rows that only a debug file has, which the recorder does not
//! look for.

use fpprof_unwind::{ModuleId, Modules, Unwinder};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Rules of the functions that walks have come to.
#[derive(Debug, Default)]
pub(super) struct WalkRules {
    unwinder: Unwinder,
    /// By module: the first address of a range, the address behind it, and its rule.
    by_module: FxHashMap<ModuleId, BTreeMap<u64, (u64, u64)>>,
}

impl WalkRules {
    /// The rule of an address of a module; `None` if it has none.
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
