//! `fpprof cfi`: shows one row of call frame information.

use crate::exit::{DONE, FAILED, Usage};
use crate::output::{self, print_message};
use crate::worker::{Files, Modules};
use anyhow::Context as _;
use fpprof_analysis::cfi::{describe_coverage, explain};
use fpprof_analysis::modules::{FileModules, LoneModule};
use fpprof_reports::{json, unwinding};
use fpprof_unwind::Error;
use std::path::{Path, PathBuf};

/// Show and explain the call frame information (CFI) at an address of an ELF file
///
/// Shows the row that the unwinder would use: from `.eh_frame`, else from `.debug_frame` of the file or its debug file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof cfi --elf /bin/ls --pc 0x6a30
  fpprof cfi --elf /lib/x86_64-linux-gnu/libc.so.6 --pc qsort+4 --json")]
pub(crate) struct Args {
    /// The ELF file
    #[arg(long, value_name = "FILE")]
    elf: PathBuf,
    /// Address in the file (decimal, or hexadecimal with 0x), FUNCTION, or FUNCTION+OFFSET
    #[arg(long, value_name = "ADDRESS")]
    pc: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The files it may read.
    pub(crate) fn files(&self) -> Files {
        Files::new([self.elf.as_path()], [])
    }
}

/// Runs the subcommand; returns the exit status, which is a failure if no row covers the address.
///
/// # Errors
/// If the file cannot be read, or has no such function.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let context = || args.elf.display().to_string();
    let file = LoneModule::open(&Modules::new(FileModules::new()), &args.elf);
    let file = file.map_err(|missing| anyhow::anyhow!(missing.text())).with_context(context)?;
    let file = file.context("unsupported architecture; supported: x86-64, i386, aarch64").with_context(context)?;
    let svma = address(&file, &args.pc).with_context(context)?;
    match explain(&file, svma) {
        Ok(row) => {
            output::write_whole(Path::new("-"), |mut out| match args.json {
                true => json::value(&row, &mut out),
                false => unwinding::row(&row, &output::style(), &mut out),
            })?;
            Ok(DONE)
        }
        Err(error) => {
            let more =
                if let Error::NoRow(_) = error { format!(": {}", describe_coverage(&file)) } else { String::new() };
            print_message(&format!("fpprof: {}: {error}{more}", args.elf.display()));
            Ok(FAILED)
        }
    }
}

fn address(file: &LoneModule, text: &str) -> anyhow::Result<u64> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return number(text).ok_or_else(|| Usage(format!("`{text}` is not an address")).into());
    }
    // The offset follows the last plus: C++ names may contain others.
    let (name, offset) = match text.rsplit_once('+') {
        Some((name, offset)) if number(offset).is_some() => (name, number(offset).unwrap_or(0)),
        _ => (text, 0),
    };
    let function = file.function(name).with_context(|| format!("no function `{name}`"))?;
    function.svma.checked_add(offset).with_context(|| format!("address {text} is out of range"))
}

/// Parses a number, hexadecimal with `0x`, else decimal.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
