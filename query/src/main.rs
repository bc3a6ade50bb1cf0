//! SQL on the stores of `fpprof agent` and `fpprof record --live`, by DataFusion.
//!
//! `fpprof query` runs this program.

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, ValueEnum};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::arrow::util::pretty::pretty_format_batches_with_schema;
use datafusion::common::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::TryStreamExt as _;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// How often a query begins anew because the agent merged files that were listed.
const ATTEMPTS: usize = 5;

/// Query a store in SQL
///
/// The tables are `stacks`, with a row for each process, stack and strategy of an interval, and `counters`, with the balance of
/// ticks and the cost. Both have the column `day` (such as '2026-11-26'): a condition on it skips the files of other days.
/// Each sample has a row for each strategy it was unwound with, and with `off-cpu` waits have rows of their own: choose one
/// strategy and one event, or sums are wrong. `DESCRIBE stacks` lists the columns. The SQL is DataFusion's: <https://datafusion.apache.org/user-guide/sql/>
#[derive(Debug, Parser)]
#[command(
    name = "fpprof query",
    bin_name = "fpprof query",
    version,
    after_help = "Examples:
  fpprof query 'DESCRIBE stacks'
  fpprof query \"SELECT counter, cause, sum(value) FROM counters WHERE event <> '' GROUP BY 1, 2 ORDER BY 1, 2\"

  # The share of stacks that frame pointers break, by service and hour
  fpprof query \"SELECT service, date_trunc('hour', time) AS hour,
      round(100.0 * sum(samples) FILTER (WHERE stack = 'broken') / sum(samples), 1) AS broken_percent
    FROM stacks WHERE strategy = 'fp' GROUP BY 1, 2 ORDER BY 1, 2\"

  # The functions on most stacks of a service, each stack counted once
  fpprof query --store fpprof.store --format csv \"SELECT function, sum(samples) AS samples
    FROM (SELECT samples, unnest(array_distinct(functions)) AS function
      FROM stacks WHERE strategy <> 'fp' AND service = 'nginx.service')
    GROUP BY 1 ORDER BY 2 DESC LIMIT 20\""
)]
struct Args {
    /// The query; `-` reads it from stdin
    #[arg(value_name = "SQL", allow_hyphen_values = true)]
    sql: String,
    /// Directory of a store, or a file of `fpprof export --format parquet`, which is then the table `stacks`
    #[arg(short, long, value_name = "PATH", default_value = "/var/lib/fpprof")]
    store: PathBuf,
    /// How rows are printed
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The most memory, half for the query and half for its answer; sorts and groups that need more use temporary files
    ///
    /// [default: half of the memory that is available]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    max_memory: Option<u64>,
}

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns
    Table,
    /// Comma-separated values, with a header
    Csv,
    /// An object for each row, on a line of its own
    Json,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the rows has seen enough.
        Err(error) if has(&error, |error: &io::Error| error.kind() == ErrorKind::BrokenPipe) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpprof query: {}", shown(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let sql = match args.sql.as_str() {
        "-" => {
            let mut sql = String::new();
            io::stdin().read_to_string(&mut sql).context("stdin")?;
            sql
        }
        sql => sql.to_owned(),
    };
    let tables = tables(&args.store)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let most = match args.max_memory {
        Some(megabytes) => usize::try_from(megabytes.saturating_mul(1_000_000)).unwrap_or(usize::MAX),
        None => available_memory().context("/proc/meminfo: no MemAvailable: pass --max-memory")? / 2,
    };
    let (schema, rows) = runtime.block_on(answer(&tables, &sql, most))?;
    print(args.format, &schema, &rows, &mut io::stdout().lock())
}

/// The memory that programs can get without swapping, in bytes.
fn available_memory() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
}

/// The tables there are, by name.
fn tables(store: &Path) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let what = || store.display().to_string();
    if !store.metadata().with_context(what)?.is_dir() {
        return Ok(vec![("stacks", store.to_owned())]);
    }
    let tables: Vec<_> = ["stacks", "counters"].map(|name| (name, store.join(name))).into();
    for (_, path) in &tables {
        ensure!(
            path.is_dir(),
            "{}: no store: `fpprof agent` and `fpprof record --live` make one; give its directory with --store",
            store.display()
        );
    }
    // An agent that has just begun has none.
    let has_files = |path: &Path| {
        let days = path.read_dir().into_iter().flatten().flatten();
        days.filter_map(|day| day.path().read_dir().ok())
            .flatten()
            .flatten()
            .any(|file| file.path().extension().is_some_and(|extension| extension == "parquet"))
    };
    let tables: Vec<_> = tables.into_iter().filter(|(_, path)| has_files(path)).collect();
    ensure!(!tables.is_empty(), "{}: the store is empty: its first interval has not ended", store.display());
    Ok(tables)
}

/// The answer to a query, from the files at one moment, in at most `most` bytes of memory.
async fn answer(tables: &[(&str, PathBuf)], sql: &str, most: usize) -> anyhow::Result<(SchemaRef, Vec<RecordBatch>)> {
    let words = |error: DataFusionError| match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => anyhow::anyhow!(
            "the query and its answer need more than {} MB of memory: choose fewer days, group, or add LIMIT; or pass a larger --max-memory",
            most / 1_000_000
        ),
        _ => flat(error),
    };
    for _ in 0..ATTEMPTS {
        let before = files(tables)?;
        match attempt(tables, sql, most, &before).await {
            // A file may go away before it is read, too.
            Err(_) if !before.is_subset(&files(tables)?) => {}
            Ok(None) => {}
            Ok(Some(answer)) => return Ok(answer),
            Err(error) => return Err(words(error)),
        }
    }
    bail!("the files of the store changed while they were read, {ATTEMPTS} times: try again")
}

/// The files of the tables.
fn files(tables: &[(&str, PathBuf)]) -> io::Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for (_, table) in tables {
        if !table.is_dir() {
            files.insert(table.clone());
            continue;
        }
        for day in fs::read_dir(table)? {
            match fs::read_dir(day?.path()) {
                Ok(entries) => entries.for_each(|entry| files.extend(entry.ok().map(|entry| entry.path()))),
                // Not a directory, or removed meanwhile.
                Err(_) => {}
            }
        }
    }
    files.retain(|file| file.extension().is_none_or(|extension| extension != "partial"));
    Ok(files)
}

/// The answer; `None` if files went away while the engine listed them, since it leaves those out.
async fn attempt(
    tables: &[(&str, PathBuf)],
    sql: &str,
    most: usize,
    before: &BTreeSet<PathBuf>,
) -> Result<Option<(SchemaRef, Vec<RecordBatch>)>, DataFusionError> {
    let config = SessionConfig::new().with_information_schema(true);
    // The engine does not count what has left it, so the answer has a half of its own.
    let half = most / 2;
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(half, 1.0).build_arc()?;
    let context = SessionContext::new_with_config_rt(config, runtime);
    for (name, path) in tables {
        let options = ParquetReadOptions::default();
        let options = match path.is_dir() {
            true => options.table_partition_cols(vec![("day".to_owned(), DataType::Utf8)]),
            false => options.file_extension(path.extension().and_then(|extension| extension.to_str()).unwrap_or("")),
        };
        context.register_parquet(*name, path.to_string_lossy(), options).await?;
    }
    // A question changes nothing, and writes no files.
    let reads_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let rows = context.sql_with_options(sql, reads_only).await?;
    let schema = SchemaRef::new(rows.schema().as_arrow().clone());
    let tasks = Arc::new(rows.task_ctx());
    let plan = rows.create_physical_plan().await?;
    if !before.is_subset(&files(tables)?) {
        return Ok(None);
    }
    let (mut answer, mut stream, mut bytes) = (Vec::new(), execute_stream(plan, tasks)?, 0_usize);
    while let Some(rows) = stream.try_next().await? {
        bytes = bytes.saturating_add(rows.get_array_memory_size());
        if bytes > half {
            return Err(DataFusionError::ResourcesExhausted(String::new()));
        }
        answer.push(rows);
    }
    Ok(Some((schema, answer)))
}

/// The error without its causes: its text has theirs already.
fn flat(error: DataFusionError) -> anyhow::Error {
    anyhow::Error::msg(error.strip_backtrace())
}

fn has<E: std::error::Error + 'static>(error: &anyhow::Error, is_it: impl Fn(&E) -> bool) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<E>().is_some_and(&is_it))
}

/// Text without the characters that control a terminal or the direction of text, which the names in a table that somebody else
/// made may have; line breaks stay.
fn shown(text: &str) -> String {
    escaped(text, |c| c.escape_default().to_string())
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let controls = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if controls(c) { escaped.push_str(&escape(c)) } else { escaped.push(c) }
    }
    escaped
}

fn print(format: Format, schema: &SchemaRef, rows: &[RecordBatch], out: &mut impl Write) -> anyhow::Result<()> {
    match format {
        Format::Table => {
            writeln!(out, "{}", shown(&pretty_format_batches_with_schema(schema.clone(), rows)?.to_string()))?
        }
        Format::Csv => {
            if let Some(field) = schema.fields().iter().find(|field| field.data_type().is_nested()) {
                bail!("column {}: CSV has no lists and maps; choose --format json, or unnest() it", field.name());
            }
            // Into memory first: the writer's own errors do not tell that nobody reads any more.
            let mut writer = csv::Writer::new(Vec::new());
            // The header of an answer without rows.
            writer.write(&RecordBatch::new_empty(schema.clone()))?;
            rows.iter().try_for_each(|rows| writer.write(rows))?;
            let text = writer.into_inner();
            match io::stdout().is_terminal() {
                true => out.write_all(shown(&String::from_utf8_lossy(&text)).as_bytes())?,
                false => out.write_all(&text)?,
            }
        }
        Format::Json => {
            // Every row has every key.
            let write = |out: &mut dyn Write| -> anyhow::Result<()> {
                let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(out);
                rows.iter().try_for_each(|rows| writer.write(rows))?;
                Ok(writer.finish()?)
            };
            if !io::stdout().is_terminal() {
                return write(out);
            }
            let mut text = Vec::new();
            write(&mut text)?;
            out.write_all(escaped(&String::from_utf8_lossy(&text), |c| format!("\\u{:04x}", u32::from(c))).as_bytes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{escaped, shown};

    /// Check that what controls a terminal is escaped, and that JSON stays JSON.
    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("a\u{1b}]0;x\u{7}\nb\u{202e}"), "a\\u{1b}]0;x\\u{7}\nb\\u{202e}");
        assert_eq!(escaped("\"a\u{9b}\"\n", |c| format!("\\u{:04x}", u32::from(c))), "\"a\\u009b\"\n");
    }
}
