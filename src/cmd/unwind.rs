//! `fpprof unwind`: unwinds the stacks of a core, or one given by registers and stack bytes.

use super::cfi::number;
use crate::debuginfod::local_files;
use crate::exit::{DONE, FAILED, Usage};
use crate::output;
use crate::unwinding::Unwinding;
use crate::worker::{Files, Modules, open_input};
use anyhow::Context as _;
use fpprof_analysis::core_dump::{
    Bare, Core, CoreOptions, LoadedFile, UnwoundCore, arch_name, register_by_name, unwind_bare, unwind_core,
};
use fpprof_analysis::modules::{ElfFile, FileModules, Missing, Opened, Resolver as _};
use fpprof_reports::{json, unwinding};
use fpprof_unwind::Regs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The most bytes read of a stack.
const MAX_STACK_BYTES: u64 = 64 << 20;

/// Unwind the threads of a core dump, or a stack given by registers and bytes
///
/// Shows how each frame was found and why each stack ends. Exits with 1 if a stack is broken or has no frames.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "fpprof unwind [OPTIONS] --core FILE
       fpprof unwind [OPTIONS] --elf FILE[@BIAS]... --regs NAME=VALUE,... --stack ADDRESS:FILE",
    after_help = "Reads core dumps of x86-64, i386 and aarch64. Uses the files that the core dump names, or those
below --sysroot, if their build ids match.

Examples:
  fpprof unwind --core core.1234
  fpprof unwind --core core --exe ./build/server --sysroot /srv/images/prod --json
  fpprof unwind --elf ./server@0x555555554000 --regs rip=0x55555555513d,rsp=0x7ffe1000,rbp=0 --stack 0x7ffe1000:stack.bin"
)]
pub(crate) struct Args {
    /// The core dump
    #[arg(long, value_name = "FILE", required_unless_present = "elf", conflicts_with_all = ["elf", "regs", "stack"])]
    core: Option<PathBuf>,
    /// The executable, if it is no longer where the core dump says
    #[arg(long, value_name = "FILE", conflicts_with_all = ["elf", "regs", "stack"])]
    exe: Option<PathBuf>,
    /// Look for files below DIR only
    #[arg(long, value_name = "DIR", conflicts_with_all = ["elf", "regs", "stack"])]
    sysroot: Option<PathBuf>,
    /// A loaded file, and its load bias (address in memory minus address in the file)
    #[arg(long, value_name = "FILE[@BIAS]", requires_all = ["regs", "stack"])]
    elf: Vec<String>,
    /// Registers by name, such as rip=0x401136,rsp=0x7ffe1000
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    regs: Vec<String>,
    /// Address of the first byte of the stack, and the file with its bytes
    #[arg(long, value_name = "ADDRESS:FILE")]
    stack: Option<String>,
    #[command(flatten)]
    unwinding: Unwinding,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The files it may read. The files that a core names are opened by name.
    pub(crate) fn files(&self) -> Files {
        let elf = self.elf.iter().filter_map(|text| Some(loaded_file(text).ok()?.path));
        let stack = self.stack.as_deref().and_then(|text| Some(PathBuf::from(text.split_once(':')?.1)));
        Files { inputs: self.core.clone().into_iter().chain(elf).chain(stack).collect(), ..Files::default() }
    }
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the core or a file cannot be used.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let unwinding = args.unwinding.options();
    let unwound = match &args.core {
        Some(core) => from_core(args, core, unwinding)?,
        None => from_bare(args, unwinding)?,
    };
    output::write_whole(Path::new("-"), |mut out| match args.json {
        true => json::value(&unwound, &mut out),
        false => unwinding::stacks(&unwound, &output::style(), &mut out),
    })?;
    let is_bad = unwound.threads.iter().any(|thread| thread.status == "broken" || thread.frames.is_empty());
    Ok(if is_bad { FAILED } else { DONE })
}

fn from_core(args: &Args, path: &Path, unwinding: fpprof_unwind::Options) -> anyhow::Result<UnwoundCore> {
    let files = Modules::new(match &args.sysroot {
        Some(root) => local_files().with_root(root).from_another_machine(),
        None => local_files(),
    });
    let context = || path.display().to_string();
    let open = || open(&files, path).with_context(context);
    let core = Core::read(open()?).with_context(context)?;
    let executable = args.exe.as_deref().map(canonical).transpose()?;
    if let Some(executable) = &executable {
        open_elf(&files, executable)?;
    }
    let executable = executable.as_deref();
    let options = CoreOptions { resolver: &files, executable, root: args.sysroot.as_deref(), unwinding };
    Ok(unwind_core(&core, [open()?, open()?], &options))
}

fn from_bare(args: &Args, unwinding: fpprof_unwind::Options) -> anyhow::Result<UnwoundCore> {
    let files = Modules::new(FileModules::new());
    let loaded = args.elf.iter().map(|text| loaded_file(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let first = loaded.first().context("--elf needs a file")?;
    let arch = open_elf(&files, &first.path)?.image().arch;
    let arch = arch.with_context(|| {
        format!("{}: unsupported architecture; supported: x86-64, i386, aarch64", first.path.display())
    })?;
    let mut regs = Regs::new(arch);
    for text in &args.regs {
        let parsed = text.split_once('=').and_then(|(name, value)| Some((name, number(value)?)));
        let (name, value) =
            parsed.ok_or_else(|| Usage(format!("`{text}`: expected NAME=VALUE, such as rsp=0x7ffe1000")))?;
        let unknown = || {
            let names: Vec<_> = (0..40).filter_map(|number| arch.register_name(number)).collect();
            Usage(format!("{} has no register {name}; it has {}", arch_name(arch), names.join(", ")))
        };
        regs.set(register_by_name(arch, name).ok_or_else(unknown)?, value);
    }
    if regs.ip().is_none() || regs.sp().is_none() {
        let words = "--regs needs the instruction pointer and the stack pointer, such as pc=0x401136,sp=0x7ffe1000";
        return Err(Usage(words.to_owned()).into());
    }
    let stack = args.stack.as_deref().and_then(|text| text.split_once(':'));
    let stack = stack.and_then(|(address, path)| Some((number(address)?, Path::new(path))));
    let (stack_start, path) = stack.ok_or_else(|| Usage("--stack: expected ADDRESS:FILE".to_owned()))?;
    let bare = Bare { regs, stack_start, stack: bytes(path)?, files: loaded };
    let options = CoreOptions { resolver: &files, executable: None, root: None, unwinding };
    unwind_bare(&bare, &options).map_err(|(path, error)| anyhow::Error::new(error).context(path.display().to_string()))
}

/// The path without links; unchanged if directories cannot be accessed, as in a worker.
fn canonical(path: &Path) -> anyhow::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => std::path::absolute(path),
        found => found,
    }
    .with_context(|| path.display().to_string())
}

fn loaded_file(text: &str) -> anyhow::Result<LoadedFile> {
    let (path, bias) = match text.rsplit_once('@') {
        Some((path, bias)) if number(bias).is_some() => (path, number(bias).unwrap_or(0)),
        _ => (text, 0),
    };
    let path = canonical(Path::new(path))?;
    Ok(LoadedFile { path, bias })
}

fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let context = || path.display().to_string();
    let mut bytes = Vec::new();
    let file = open_input(path).with_context(context)?;
    file.take(MAX_STACK_BYTES.saturating_add(1)).read_to_end(&mut bytes).with_context(context)?;
    if bytes.len() as u64 > MAX_STACK_BYTES {
        anyhow::bail!("{}: the stack is larger than {MAX_STACK_BYTES} bytes", path.display());
    }
    Ok(bytes)
}

fn open(files: &Modules, path: &Path) -> anyhow::Result<Opened> {
    files.open(path).map_err(|missing: Missing| anyhow::anyhow!(missing.text()))
}

fn open_elf(files: &Modules, path: &Path) -> anyhow::Result<ElfFile> {
    let opened = open(files, path).with_context(|| path.display().to_string())?;
    ElfFile::new(opened).map_err(|missing| anyhow::anyhow!("{}: {}", path.display(), missing.text()))
}
