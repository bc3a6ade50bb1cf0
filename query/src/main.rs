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
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
            eprintln!("fpprof query: {error:#}");
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
    let (schema, rows) = runtime.block_on(answer(&tables, &sql))?;
    print(args.format, &schema, &rows, &mut io::stdout().lock())
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

/// The answer to a query, from the files at one moment.
async fn answer(tables: &[(&str, PathBuf)], sql: &str) -> anyhow::Result<(SchemaRef, Vec<RecordBatch>)> {
    for _ in 1..ATTEMPTS {
        match attempt(tables, sql).await {
            Err(error) if is_file_gone(&error) => {}
            answer => return answer.map_err(flat),
        }
    }
    attempt(tables, sql).await.map_err(flat)
}

async fn attempt(tables: &[(&str, PathBuf)], sql: &str) -> Result<(SchemaRef, Vec<RecordBatch>), DataFusionError> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_information_schema(true));
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
    Ok((schema, rows.collect().await?))
}

/// The error without its causes: its text has theirs already.
fn flat(error: DataFusionError) -> anyhow::Error {
    anyhow::Error::msg(error.strip_backtrace())
}

/// Whether a file that was listed is gone: its rows are in a merged one.
fn is_file_gone(error: &DataFusionError) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.to_string().contains("No such file or directory") {
            return true;
        }
        next = error.source();
    }
    false
}

fn has<E: std::error::Error + 'static>(error: &anyhow::Error, is_it: impl Fn(&E) -> bool) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<E>().is_some_and(&is_it))
}

/// Text without the characters that control a terminal or the direction of text, which the names in a table that somebody else
/// made may have; line breaks stay.
fn shown(text: &str) -> String {
    let controls = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if controls(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
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
            let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(out);
            rows.iter().try_for_each(|rows| writer.write(rows))?;
            writer.finish()?;
        }
    }
    Ok(())
}
