//! `fpprof serve`: the page for a store or a recording.

use crate::exit::{DONE, FAILED};
use crate::output::print_message;
use crate::recordings::{Source, print_warnings};
use crate::serve::{self, AccessArgs, Listen, Pipes, listen};
use crate::worker::{self, is_privileged};
use anyhow::{Context as _, bail, ensure};
use fpprof_analysis::profile::{Grouping, Profiles};
use fpprof_recording::model::Measure;
use fpprof_reports::parquet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Most bytes of a recording's table, which a process writes that hostile files may have taken over.
const MAX_TABLE_BYTES: u64 = 1 << 30;
/// What a Parquet file begins with.
const PARQUET: &[u8; 4] = b"PAR1";

/// Show a store or a recording as a page: flame graphs, functions, comparisons, lost samples, cost
///
/// The page has filters for times, machines, services, containers, processes, labels and strategies, and its address says
/// what it shows. The same answers are at /api as JSON, with the parameters of the page. It is served to this machine; to
/// others only with --token-file, --tls-cert and --tls-key; SIGHUP reads these files again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof serve                         # the store of `fpprof agent`, at http://127.0.0.1:7475/
  fpprof serve run.fpprof              # one recording, or a table of `fpprof export`
  fpprof serve --listen 127.0.0.1:8080 /srv/profiles
  fpprof serve --listen unix:/run/fpprof.sock           # for this user alone
  ssh -t -L 7475:127.0.0.1:7475 HOST fpprof serve       # the page of another machine
  fpprof serve --listen 0.0.0.0:7475 --token-file token --tls-cert cert.pem --tls-key key.pem   # for other machines
  curl 'http://127.0.0.1:7475/api/functions?service=nginx.service&from=2026-11-26T14:00:00Z'")]
pub(crate) struct Args {
    /// The directory of a store, a recording, or a table of `export --format parquet`
    #[arg(value_name = "STORE|RECORDING", default_value = "/var/lib/fpprof")]
    path: PathBuf,
    /// Address and port (port 0: any free port), or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7475", value_parser = listen)]
    listen: Listen,
    #[command(flatten)]
    access: AccessArgs,
}

/// Runs the subcommand; gives the exit status.
///
/// # Errors
/// If there is no store or recording, the address is taken, or what it needs is missing or cannot be used.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let path = &args.path;
    if worker::is_worker() {
        return worker::run(&files(path), || {
            write_table(path, &mut io::stdout().lock())?;
            Ok(DONE)
        });
    }
    let access = args.access.read(&args.listen, Pipes::Allowed)?;
    if !path.exists() {
        bail!(
            "{}: not found; pass a recording, or the directory of a store, which `fpprof agent` and `fpprof record --live` write",
            path.display()
        );
    }
    let files = if path.is_dir() { serve::Files::store(path).map(Some) } else { one(path) };
    match files.with_context(|| path.display().to_string())? {
        Some(files) => serve::run(files, &args.listen, &args.access, access),
        None => Ok(FAILED),
    }
}

/// The table of one file: as it is, or made of a recording. `None` if the analysis failed, which was printed.
fn one(path: &Path) -> anyhow::Result<Option<serve::Files>> {
    let mut file = File::open(path)?;
    let mut magic = [0; 4];
    if file.read_exact(&mut magic).is_ok() && &magic == PARQUET {
        return Ok(Some(serve::Files::One(file, path.to_owned())));
    }
    let mut table = worker::memory_file("fpprof-table")?;
    print_message(&format!("fpprof: analysing {}", path.display()));
    if !is_privileged() {
        write_table(path, &mut table)?;
    } else if !in_process(path, &table)? {
        return Ok(None);
    }
    table.rewind()?;
    Ok(Some(serve::Files::One(table, path.to_owned())))
}

/// Analyses a recording in a process without privileges; returns whether it succeeded. That process prints its errors.
fn in_process(path: &Path, table: &File) -> anyhow::Result<bool> {
    let stdout = table.try_clone().context("cannot hand over a file")?;
    let arguments = ["serve".into(), "--".into(), path.as_os_str().to_owned()];
    let (mut child, socket) = worker::start(arguments, |command| _ = command.stdout(Stdio::from(stdout)))?;
    let served = worker::serve(&socket, &files(path), &mut || None);
    drop(socket);
    let status = child.wait().context("cannot wait for the process without privileges")?;
    served.context("cannot answer the process without privileges")?;
    match status.code() {
        Some(_) => Ok(status.success()),
        None => bail!("the process that analyses it ended with {status}"),
    }
}

fn files(path: &Path) -> worker::Files {
    worker::Files { max_file_bytes: Some(MAX_TABLE_BYTES), ..worker::Files::new([path], []) }
}

/// Writes the stacks of a recording under all its strategies. Waits are analysed apart: they are in no sum with samples.
fn write_table(path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let mut source = Source::here(path);
    let events = source.open()?.meta().events.clone();
    let waits = events.into_iter().find(|event| matches!(event.measure, Measure::Blocked { .. }));
    let mut profiles = Vec::new();
    for event in std::iter::once(None).chain(waits.map(|event| Some(event.name))) {
        source.event = event;
        let analysis = source.analyse_for(&[], |options| options.profiles = Profiles::OfEach(Grouping::Summed))?;
        print_warnings(&analysis.summary);
        profiles.extend(analysis.profiles);
    }
    ensure!(!profiles.is_empty(), "it has no stacks");
    Ok(parquet::stacks::write(&profiles, out)?)
}
