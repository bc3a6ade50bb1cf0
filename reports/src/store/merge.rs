//! Merges tables of one kind.

use super::error::StoreError;
use super::rows::metadata;
use crate::parquet::{properties, stacks};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::file::reader::ChunkReader;
use std::io::Write;
use std::sync::Arc;

/// Rows that are read at a time.
const BATCH_ROWS: usize = 1024;
/// The most encoded bytes that are kept in memory: beyond them, a group of rows is written.
const GROUP_BYTES: usize = 16 << 20;

/// Why tables could not be merged.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct MergeError {
    /// Index of the table that cannot be read; `None` if the output cannot be written.
    pub table: Option<usize>,
    /// Why.
    #[source]
    pub error: StoreError,
}

/// Writes the rows of several tables, in this order, as one file with the columns of the last. A table of a version
/// without labels gets empty ones.
///
/// # Errors
/// If a table is damaged, or of another kind or version; what was written is then no table.
pub fn merge<R: ChunkReader + 'static>(tables: Vec<R>, out: &mut (impl Write + Send)) -> Result<(), MergeError> {
    let of_output = |error: StoreError| MergeError { table: None, error };
    let known = tables.iter().map(metadata).enumerate();
    let known = known.map(|(n, metadata)| metadata.map_err(|error| MergeError { table: Some(n), error }));
    let known: Vec<ArrowReaderMetadata> = known.collect::<Result<_, _>>()?;
    let Some(schema) = known.last().map(|last| Arc::clone(last.schema())) else { return Ok(()) };
    for (n, metadata) in known.iter().enumerate() {
        let empty = RecordBatch::new_empty(Arc::clone(metadata.schema()));
        with_columns(&schema, &empty).map_err(|error| MergeError { table: Some(n), error })?;
    }
    let writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties()));
    let mut writer = writer.map_err(|error| of_output(error.into()))?;
    for (n, (table, metadata)) in tables.into_iter().zip(known).enumerate() {
        let of_table = |error: StoreError| MergeError { table: Some(n), error };
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(table, metadata).with_batch_size(BATCH_ROWS);
        for batch in reader.build().map_err(|error| of_table(error.into()))? {
            let batch = batch.map_err(StoreError::from).and_then(|batch| with_columns(&schema, &batch));
            writer.write(&batch.map_err(of_table)?).map_err(|error| of_output(error.into()))?;
            if writer.in_progress_size() > GROUP_BYTES {
                writer.flush().map_err(|error| of_output(error.into()))?;
            }
        }
    }
    writer.close().map_err(|error| of_output(error.into()))?;
    Ok(())
}

fn with_columns(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, StoreError> {
    let column = |name: &str, data_type: &DataType| -> Result<ArrayRef, StoreError> {
        match batch.column_by_name(name) {
            Some(column) => Ok(Arc::clone(column)),
            None => stacks::no_labels(batch.num_rows())
                .filter(|labels| labels.data_type() == data_type)
                .ok_or(StoreError::Column("labels")),
        }
    };
    let columns = schema.fields().iter().map(|field| column(field.name(), field.data_type()));
    if batch.schema().fields().iter().any(|field| schema.field_with_name(field.name()).is_err()) {
        return Err(StoreError::Column("labels"));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)?)
}
