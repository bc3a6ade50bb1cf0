//! Apache Parquet: tables that databases and query engines read directly, such as `DuckDB`, `ClickHouse` and Spark.
//!
//! You provide [`Profile`](fpprof_analysis::profile::Profile)s and counters. In turn you get the bytes of one file
//! each. Strings are plain, since not every engine supports Arrow's dictionaries, and times are in microseconds, since
//! Spark rejects nanoseconds. Each column is dictionary-encoded in the file nevertheless, so that a name is stored
//! once. A file's metadata has `fpprof.schema`, the version of its columns.
//!
//! # Sources
//! <https://parquet.apache.org/docs/file-format/>

pub mod counters;
pub mod stacks;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use std::io;
use std::sync::Arc;

/// Version of the columns; it increases when a column is removed or changes its meaning.
pub const SCHEMA_VERSION: &str = "1";

/// Encodes batches of rows, each batch column by column, as a file.
fn file(columns: Vec<Field>, batches: impl Iterator<Item = Vec<ArrayRef>>) -> io::Result<Vec<u8>> {
    let schema = Arc::new(Schema::new(columns));
    let writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties()));
    let mut writer = writer.map_err(io::Error::other)?;
    for columns in batches {
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(io::Error::other)?;
        writer.write(&batch).map_err(io::Error::other)?;
    }
    writer.into_inner().map_err(io::Error::other)
}

/// How all tables are written.
pub(crate) fn properties() -> WriterProperties {
    let version = KeyValue::new("fpprof.schema".to_owned(), SCHEMA_VERSION.to_owned());
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(vec![version]))
        .build()
}

fn time(name: &str) -> Field {
    Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())), false)
}

const UTC: &str = "UTC";

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

fn number(name: &str) -> Field {
    Field::new(name, DataType::Int64, false)
}

fn int(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
