//! Reads tables: the needed columns of the rows that pass a filter.
//!
//! Names are read as indexes into a dictionary, as the file stores them, so that each name is examined once rather than
//! per row. The filter's columns are read first; of the others, only the parts for rows that pass.

use super::error::StoreError;
use super::filter::{Facet, Filter};
use crate::parquet::SCHEMA_VERSION;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, BooleanArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicateFn, ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowFilter,
};
use parquet::file::reader::ChunkReader;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rows per record batch.
const BATCH_ROWS: usize = 8192;
/// The bit in [`Rows::refusals`] for a time out of range, beside those of the columns.
pub(super) const TIME_BIT: u16 = 1 << 7;
/// The bit for labels.
pub(super) const LABELS_BIT: u16 = 1 << 8;

/// The column of labels, which filters need only if they name one.
pub(super) const LABELS: &str = "labels";

/// A batch of rows of a table.
#[derive(Debug, Clone)]
pub struct Rows(RecordBatch);

/// Whether to go on reading; asked every few thousand rows.
pub type GoesOn = Arc<dyn Fn() -> bool + Send + Sync>;

/// Reads these columns of the rows that pass the filter; of all rows without one. Fails as a whole: no rows of a
/// damaged file are returned.
///
/// # Errors
/// If the file is damaged, or is not a table of this version of fpprof; if `goes_on` says no.
pub fn read<R: ChunkReader + 'static>(
    file: R,
    columns: &[&str],
    filter: Option<&Arc<Filter>>,
    goes_on: &GoesOn,
) -> Result<Vec<Rows>, StoreError> {
    let plain = metadata(&file)?;
    let options = ArrowReaderOptions::new().with_schema(with_dictionaries(plain.schema()));
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options)?;
    let schema = metadata.parquet_schema();
    let wanted = ProjectionMask::columns(schema, columns.iter().copied());
    let has_labels = filter.is_some_and(|filter| !filter.labels.is_empty());
    let named = Facet::ALL.map(Facet::name).into_iter().chain(["time"]).chain(has_labels.then_some(LABELS));
    let mask = ProjectionMask::columns(schema, named);
    let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_batch_size(BATCH_ROWS)
        .with_projection(wanted);
    if let Some(filter) = filter.map(Arc::clone) {
        let goes_on = Arc::clone(goes_on);
        let passes = ArrowPredicateFn::new(mask, move |batch| {
            if !goes_on() {
                return Err(ArrowError::ExternalError(StoreError::Stopped.into()));
            }
            let refused = Rows(batch).refusals(&filter).map_err(|error| ArrowError::ExternalError(error.into()))?;
            Ok(BooleanArray::from_iter(refused.into_iter().map(|bits| Some(bits == 0))))
        });
        builder = builder.with_row_filter(RowFilter::new(vec![Box::new(passes)]));
    }
    let stopped = |error: StoreError| if goes_on() { error } else { StoreError::Stopped };
    let reader = builder.build().map_err(|error| stopped(error.into()))?;
    reader
        .map(
            |batch| {
                if goes_on() {
                    batch.map(Rows).map_err(|error| stopped(error.into()))
                } else {
                    Err(StoreError::Stopped)
                }
            },
        )
        .collect()
}

/// The metadata of a table of this version.
pub(super) fn metadata(file: &impl ChunkReader) -> Result<ArrowReaderMetadata, StoreError> {
    // The Parquet schema is sufficient; the Arrow schema stored beside it is only more input that may be damaged.
    let plain = ArrowReaderMetadata::load(file, ArrowReaderOptions::new().with_skip_arrow_metadata(true))?;
    let version = plain.metadata().file_metadata().key_value_metadata().into_iter().flatten();
    let version = version.filter(|pair| pair.key == "fpprof.schema").find_map(|pair| pair.value.as_deref());
    if version != Some(SCHEMA_VERSION) {
        return Err(StoreError::Version(version.unwrap_or("none").to_owned()));
    }
    Ok(plain)
}

/// Returns the schema with strings replaced by dictionaries.
fn with_dictionaries(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| Arc::new(with_dictionary(field)));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn with_dictionary(field: &Field) -> Field {
    let data_type = match field.data_type() {
        DataType::Utf8 => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        DataType::List(element) => DataType::List(Arc::new(with_dictionary(element))),
        other => other.clone(),
    };
    field.clone().with_data_type(data_type)
}

impl Rows {
    fn column(&self, name: &'static str) -> Result<&Arc<dyn Array>, StoreError> {
        let column = self.0.column_by_name(name).filter(|column| column.null_count() == 0);
        column.ok_or(StoreError::Column(name))
    }

    /// Returns a column of names.
    pub(super) fn words(&self, name: &'static str) -> Result<Words<'_>, StoreError> {
        Words::of(self.column(name)?, name)
    }

    /// Returns a column of integers.
    pub(super) fn numbers(&self, name: &'static str) -> Result<&[i64], StoreError> {
        let column = self.column(name)?.as_primitive_opt::<Int64Type>();
        Ok(column.ok_or(StoreError::Column(name))?.values())
    }

    /// Returns a column of counts; an error if one is negative.
    pub(super) fn counts(&self, name: &'static str) -> Result<Vec<u64>, StoreError> {
        let counts = self.numbers(name)?.iter().map(|&n| u64::try_from(n).map_err(|_| StoreError::Column(name)));
        counts.collect()
    }

    /// Returns the start of each row's interval, microseconds since 1970.
    pub(super) fn times(&self) -> Result<&[i64], StoreError> {
        let column = self.column("time")?.as_primitive_opt::<TimestampMicrosecondType>();
        Ok(column.ok_or(StoreError::Column("time"))?.values())
    }

    /// Returns a column of lists of names.
    pub(super) fn lists(&self, name: &'static str) -> Result<Lists<'_>, StoreError> {
        let column = self.column(name)?.as_list_opt::<i32>().ok_or(StoreError::Column(name))?;
        Ok(Lists { ends: column.value_offsets(), words: Words::of(column.values(), name)? })
    }

    /// The columns that reject each row, as a set of [`Facet::bit`] and [`TIME_BIT`]; 0 for a row that passes.
    pub(super) fn refusals(&self, filter: &Filter) -> Result<Vec<u16>, StoreError> {
        let time_bit = |&time: &i64| if filter.has_time(time) { 0 } else { TIME_BIT };
        let mut refused: Vec<u16> = self.times()?.iter().map(time_bit).collect();
        for &facet in filter.names.keys() {
            let words = self.words(facet.name())?;
            let is_refused: Vec<bool> = words.values().map(|name| !filter.has_name(facet, name)).collect();
            for (bits, number) in refused.iter_mut().zip(words.numbers()) {
                if is_refused.get(number).copied().unwrap_or(true) {
                    *bits |= facet.bit();
                }
            }
        }
        if !filter.labels.is_empty() {
            self.refuse_labels(filter, &mut refused)?;
        }
        Ok(refused)
    }

    fn refuse_labels(&self, filter: &Filter, refused: &mut [u16]) -> Result<(), StoreError> {
        let labels = self.labels()?;
        for (row, bits) in refused.iter_mut().enumerate() {
            let has = |name: &str, wanted: &BTreeSet<String>| {
                let value = labels.and_then(|labels| labels.of(row).find(|label| label.0 == name));
                wanted.contains(value.map_or("", |label| label.1))
            };
            if !filter.labels.iter().all(|(name, wanted)| has(name, wanted)) {
                *bits |= LABELS_BIT;
            }
        }
        Ok(())
    }

    /// Returns the labels; `None` for a table of an earlier version, where no row has any.
    pub(super) fn labels(&self) -> Result<Option<RowLabels<'_>>, StoreError> {
        let Some(column) = self.0.column_by_name(LABELS) else { return Ok(None) };
        let labels = column.as_map_opt().and_then(|map| {
            let (names, values) = (map.keys().as_string_opt()?, map.values().as_string_opt()?);
            Some(RowLabels { ends: map.value_offsets(), names, values })
        });
        labels.map(Some).ok_or(StoreError::Column(LABELS))
    }
}

/// The column of labels.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowLabels<'a> {
    ends: &'a [i32],
    names: &'a StringArray,
    values: &'a StringArray,
}

impl<'a> RowLabels<'a> {
    /// The names and values of a row's labels.
    pub(super) fn of(self, row: usize) -> impl Iterator<Item = (&'a str, &'a str)> {
        let [from, to] =
            [row, row + 1].map(|row| self.ends.get(row).map_or(0, |&end| usize::try_from(end).unwrap_or(0)));
        (from..to).map(move |at| (self.names.value(at), self.values.value(at)))
    }
}

/// A column of names, as indexes into a dictionary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    numbers: &'a [i32],
    values: &'a StringArray,
}

impl<'a> Words<'a> {
    fn of(column: &'a Arc<dyn Array>, name: &'static str) -> Result<Self, StoreError> {
        let column = column.as_dictionary_opt::<Int32Type>().filter(|column| column.null_count() == 0);
        let column = column.ok_or(StoreError::Column(name))?;
        let values = column.values().as_string_opt::<i32>().ok_or(StoreError::Column(name))?;
        Ok(Self { numbers: column.keys().values(), values })
    }

    /// The names in the dictionary.
    pub(super) fn values(self) -> impl ExactSizeIterator<Item = &'a str> {
        (0..self.values.len()).map(move |number| self.values.value(number))
    }

    /// Each row's index into the dictionary.
    pub(super) fn numbers(self) -> impl ExactSizeIterator<Item = usize> + 'a {
        self.numbers.iter().map(|&number| usize::try_from(number).unwrap_or(usize::MAX))
    }

    /// The name at an index.
    pub(super) fn value(self, number: usize) -> &'a str {
        // The reader has already checked that indexes are within the dictionary.
        if number < self.values.len() { self.values.value(number) } else { "" }
    }

    /// The name of each row.
    pub(super) fn names(self) -> impl ExactSizeIterator<Item = &'a str> {
        self.numbers().map(move |number| self.value(number))
    }
}

/// A column of lists of names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lists<'a> {
    ends: &'a [i32],
    /// The names of all lists, concatenated.
    pub(super) words: Words<'a>,
}

impl<'a> Lists<'a> {
    /// The range of each row's list within `words`.
    pub(super) fn ranges(self) -> impl Iterator<Item = std::ops::Range<usize>> + 'a {
        let index = |end: i32| usize::try_from(end).unwrap_or(0);
        self.ends.iter().zip(self.ends.iter().skip(1)).map(move |(&from, &to)| index(from)..index(to))
    }
}
