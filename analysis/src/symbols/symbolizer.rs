//! Symbolises all frames of an analysis.

use super::jitdump::{JitCode, JitCodes};
use super::kernel::{KernelMissing, KernelSymbols};
use super::module::names_of;
use super::names::{Detail, Name, Names};
use super::perf_map::PerfMap;
use crate::address_space::{FileIx, Timeline};
use crate::modules::{GoMissing, Location, Missing, ModuleTable, Resolver};
use fpprof_recording::compiled::Compiled;
use fpprof_recording::model::{KERNEL_SYMBOLS_PATH, Meta};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Names of the addresses on the stacks.
#[derive(Debug, Default)]
pub struct Symbolizer {
    modules: FxHashMap<FileIx, Result<FxHashMap<u64, Names>, Missing>>,
    kernel: Option<Result<KernelSymbols, KernelMissing>>,
    compiled: FxHashMap<u32, PerfMap>,
    dumped: Arc<JitCodes>,
    warnings: Vec<String>,
}

/// A unit of parallel work.
#[derive(Debug, Clone, Copy)]
enum Task<'a> {
    Kernel,
    Module(FileIx, &'a [u64]),
}

/// The result of a task.
enum Done {
    Kernel(Result<KernelSymbols, KernelMissing>),
    Module(FileIx, Result<FxHashMap<u64, Names>, Missing>, Vec<&'static str>),
}

impl Symbolizer {
    /// Looks up `wanted`: SVMAs by module, each ascending; and kernel addresses, if there are any, in the kernel's
    /// table. Modules are handled in parallel, which does not affect the result.
    pub fn new(
        modules: &ModuleTable<'_>,
        wanted: &BTreeMap<FileIx, Vec<u64>>,
        kernel_table: Option<&(dyn Fn() -> Result<KernelSymbols, KernelMissing> + Sync)>,
        detail: Detail,
        n_threads: NonZeroUsize,
    ) -> Self {
        let mut tasks: Vec<Task<'_>> = wanted.iter().map(|(&file, svmas)| Task::Module(file, svmas)).collect();
        // Longest work first: the kernel's table, then modules with many addresses.
        tasks.sort_by_key(|task| match task {
            Task::Kernel => 0,
            Task::Module(_, svmas) => usize::MAX.wrapping_sub(svmas.len()),
        });
        tasks.splice(0..0, kernel_table.map(|_| Task::Kernel));
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(tasks.len()));
        std::thread::scope(|scope| {
            for _ in 0..n_threads.get().min(tasks.len()) {
                scope.spawn(|| {
                    while let Some(&task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = perform(task, modules, kernel_table, detail);
                        done.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                    }
                });
            }
        });
        let mut symbolizer = Self::default();
        for result in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
            symbolizer.take(result, modules);
        }
        symbolizer.warnings.sort_unstable();
        symbolizer
    }

    /// Adds the names of JIT-compiled code that the recording contains.
    #[must_use]
    pub fn with_compiled(mut self, timeline: &Timeline) -> Self {
        self.dumped = Arc::clone(timeline.jit_codes());
        self.warnings.extend_from_slice(self.dumped.warnings());
        self.warnings.sort_unstable();
        let mut tables: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for module in timeline.embedded() {
            if let Some(Compiled::PerfMap(pid)) = Compiled::of_path(&module.path) {
                // Recorded in pieces, as the table grew.
                tables.entry(pid).or_default().extend_from_slice(&module.bytes);
            }
        }
        self.compiled.extend(tables.into_iter().map(|(pid, table)| (pid, PerfMap::read(table))));
        self
    }

    /// The name of code in a process's dump.
    #[must_use]
    pub fn dumped(&self, code: JitCode) -> Option<String> {
        self.dumped.name(code)
    }

    /// The name of JIT-compiled code of process `pid`, at an AVMA, from its table.
    #[must_use]
    pub fn compiled(&self, pid: u32, address: u64) -> Option<String> {
        self.compiled.get(&pid)?.find(address)
    }

    /// Names at an SVMA of a module that was in `wanted`.
    ///
    /// # Errors
    /// Why the module is missing.
    pub fn user(&self, file: FileIx, svma: u64) -> Result<&[Name], Missing> {
        match self.modules.get(&file) {
            Some(Ok(names)) => Ok(names.get(&svma).map_or(&[], |names| &names.0)),
            Some(Err(missing)) => Err(*missing),
            None => Ok(&[]),
        }
    }

    /// The function at an SVMA, not functions inlined into it: only the function has a frame.
    #[must_use]
    pub fn function(&self, file: FileIx, svma: u64) -> Option<&str> {
        Some(self.user(file, svma).ok()?.first()?.function.as_str())
    }

    /// The kernel's functions, if they were requested and are known.
    #[must_use]
    pub fn kernel(&self) -> Option<&KernelSymbols> {
        self.kernel.as_ref()?.as_ref().ok()
    }

    /// What could not be looked up, as text, sorted.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn take(&mut self, done: Done, modules: &ModuleTable<'_>) {
        match done {
            Done::Kernel(kernel) => {
                if let Err(missing) = &kernel {
                    self.warnings.push(format!("kernel frames have no function names: {}", missing.text()));
                }
                self.kernel = Some(kernel);
            }
            Done::Module(file, names, missing) => {
                self.warnings.extend(elsewhere(modules, file));
                let path = modules.file(file).map_or(&[][..], |file| &file.path);
                let path = String::from_utf8_lossy(path);
                self.warnings.extend(missing.iter().map(|missing| format!("{path}: {missing}")));
                self.modules.insert(file, names);
            }
        }
    }
}

/// A warning about which file was used for one without a build ID to find it by.
fn elsewhere(modules: &ModuleTable<'_>, file: FileIx) -> Option<String> {
    let mapped = modules.file(file).filter(|mapped| mapped.identity.build_id.is_none())?;
    let Ok(Location::Path(used)) = modules.location(file) else { return None };
    let path = String::from_utf8_lossy(&mapped.path);
    let is_another = used.as_os_str().as_bytes() != mapped.path;
    is_another.then(|| format!("{path}: no build id is known of it; used {}", used.display()))
}

fn perform(
    task: Task<'_>,
    modules: &ModuleTable<'_>,
    kernel_table: Option<&(dyn Fn() -> Result<KernelSymbols, KernelMissing> + Sync)>,
    detail: Detail,
) -> Done {
    match task {
        Task::Kernel => Done::Kernel(kernel_table.map_or(Err(KernelMissing::Unreadable), |read| read())),
        Task::Module(file, svmas) => match names_of(modules, file, svmas, detail) {
            Ok(found) => {
                let names = svmas.iter().copied().zip(found.names).collect();
                let missing = [
                    (found.is_without_inlines, "too much debug information; inlined functions are missing"),
                    (found.is_without_symbols, "too many symbols; some function names are missing"),
                    (found.is_without_split, ".dwo files or the .dwp file not found; inlined functions are missing"),
                ];
                let missing = missing.into_iter().filter_map(|(is_so, words)| is_so.then_some(words));
                let missing = missing.chain(found.go_missing.map(GoMissing::text)).collect();
                Done::Module(file, Ok(names), missing)
            }
            Err(missing) => Done::Module(file, Err(missing), Vec::new()),
        },
    }
}

/// The kernel's functions at the `wanted` addresses, by the table in the recording, else by the one that perf kept of the
/// recorded kernel, else by that of the running kernel if it is the recorded one.
///
/// # Errors
/// Why there is none that would be right.
pub fn kernel_symbols(
    timeline: &Timeline,
    meta: &Meta,
    resolver: &dyn Resolver,
    is_this_machine: bool,
    wanted: &[u64],
) -> Result<KernelSymbols, KernelMissing> {
    if let Some(embedded) = timeline.embedded().iter().find(|module| module.path == KERNEL_SYMBOLS_PATH) {
        return KernelSymbols::read(&*embedded.bytes, wanted, None);
    }
    let symbol = meta.host.kernel_symbol.as_ref();
    let tables = symbol.and_then(|symbol| symbol.build_id).map(|build_id| resolver.kernel_tables(build_id));
    for table in tables.into_iter().flatten() {
        // perf keeps the first one it meets; after a restart the kernel may be at other addresses.
        if let Some(symbols) =
            resolver.open(&table).ok().and_then(|opened| KernelSymbols::read(opened.reader, wanted, symbol).ok())
        {
            return Ok(symbols);
        }
    }
    if !is_this_machine {
        return Err(KernelMissing::OtherKernel);
    }
    KernelSymbols::read(super::open_kernel_symbols(meta, resolver)?, wanted, symbol)
}
