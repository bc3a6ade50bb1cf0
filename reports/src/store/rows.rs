//! Reading a table: the rows that pass a filter, and of those the columns that are needed.
//!
//! Names are read as the file has them, as numbers into a dictionary, so that each is looked at once and not once for each row.
//! The columns of a filter are read first; of the others only what belongs to rows that pass.

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
use std::sync::Arc;

/// Rows that are decoded together.
const BATCH_ROWS: usize = 8192;
/// The bit of a row whose time is out of range, beside those of the columns.
pub(super) const TIME_BIT: u8 = 1 << 7;

/// Some rows of a table.
#[derive(Debug, Clone)]
pub struct Rows(RecordBatch);

/// Reads these columns of the rows that pass; all rows without a filter. Either all of them are there, or it fails: a damaged
/// file counts as a whole.
///
/// # Errors
/// If the file is damaged, or no table of ours.
pub fn read<R: ChunkReader + 'static>(
    file: R,
    columns: &[&str],
    filter: Option<&Arc<Filter>>,
) -> Result<Vec<Rows>, StoreError> {
    // Parquet's own schema says it all; what Arrow adds to it is one more thing that may be damaged.
    let plain = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new().with_skip_arrow_metadata(true))?;
    let version = plain.metadata().file_metadata().key_value_metadata().into_iter().flatten();
    let version = version.filter(|pair| pair.key == "fpprof.schema").find_map(|pair| pair.value.as_deref());
    if version != Some(SCHEMA_VERSION) {
        return Err(StoreError::Version(version.unwrap_or("none").to_owned()));
    }
    let options = ArrowReaderOptions::new().with_schema(with_dictionaries(plain.schema()));
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options)?;
    let schema = metadata.parquet_schema();
    let wanted = ProjectionMask::columns(schema, columns.iter().copied());
    let named = Facet::ALL.map(Facet::name).into_iter().chain(["time"]);
    let mask = ProjectionMask::columns(schema, named);
    let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_batch_size(BATCH_ROWS)
        .with_projection(wanted);
    if let Some(filter) = filter.map(Arc::clone) {
        let passes = ArrowPredicateFn::new(mask, move |batch| {
            let refused = Rows(batch).refusals(&filter).map_err(|error| ArrowError::ExternalError(error.into()))?;
            Ok(BooleanArray::from_iter(refused.into_iter().map(|bits| Some(bits == 0))))
        });
        builder = builder.with_row_filter(RowFilter::new(vec![Box::new(passes)]));
    }
    builder.build()?.map(|batch| Ok(Rows(batch?))).collect()
}

/// The same columns, with dictionaries in place of names.
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

    /// A column of names.
    pub(super) fn words(&self, name: &'static str) -> Result<Words<'_>, StoreError> {
        Words::of(self.column(name)?, name)
    }

    /// A column of numbers.
    pub(super) fn numbers(&self, name: &'static str) -> Result<&[i64], StoreError> {
        let column = self.column(name)?.as_primitive_opt::<Int64Type>();
        Ok(column.ok_or(StoreError::Column(name))?.values())
    }

    /// A column of counts, which are not negative.
    pub(super) fn counts(&self, name: &'static str) -> Result<Vec<u64>, StoreError> {
        let counts = self.numbers(name)?.iter().map(|&n| u64::try_from(n).map_err(|_| StoreError::Column(name)));
        counts.collect()
    }

    /// When the intervals of the rows began, microseconds since 1970.
    pub(super) fn times(&self) -> Result<&[i64], StoreError> {
        let column = self.column("time")?.as_primitive_opt::<TimestampMicrosecondType>();
        Ok(column.ok_or(StoreError::Column("time"))?.values())
    }

    /// A column of lists of names.
    pub(super) fn lists(&self, name: &'static str) -> Result<Lists<'_>, StoreError> {
        let column = self.column(name)?.as_list_opt::<i32>().ok_or(StoreError::Column(name))?;
        Ok(Lists { ends: column.value_offsets(), words: Words::of(column.values(), name)? })
    }

    /// Which columns refuse each row, as [`Facet::bit`], and [`TIME_BIT`]; 0 of a row that passes.
    pub(super) fn refusals(&self, filter: &Filter) -> Result<Vec<u8>, StoreError> {
        let time_bit = |&time: &i64| if filter.has_time(time) { 0 } else { TIME_BIT };
        let mut refused: Vec<u8> = self.times()?.iter().map(time_bit).collect();
        for &facet in filter.names.keys() {
            let words = self.words(facet.name())?;
            let is_refused: Vec<bool> = words.values().map(|name| !filter.has_name(facet, name)).collect();
            for (bits, number) in refused.iter_mut().zip(words.numbers()) {
                if is_refused.get(number).copied().unwrap_or(true) {
                    *bits |= facet.bit();
                }
            }
        }
        Ok(refused)
    }
}

/// A column of names: numbers into a dictionary.
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

    /// The dictionary.
    pub(super) fn values(self) -> impl ExactSizeIterator<Item = &'a str> {
        (0..self.values.len()).map(move |number| self.values.value(number))
    }

    /// Each row's number in it.
    pub(super) fn numbers(self) -> impl ExactSizeIterator<Item = usize> + 'a {
        self.numbers.iter().map(|&number| usize::try_from(number).unwrap_or(usize::MAX))
    }

    /// A name of it.
    pub(super) fn value(self, number: usize) -> &'a str {
        // The reader has checked that the numbers are within the dictionary.
        if number < self.values.len() { self.values.value(number) } else { "" }
    }

    /// Each row's name.
    pub(super) fn names(self) -> impl ExactSizeIterator<Item = &'a str> {
        self.numbers().map(move |number| self.value(number))
    }
}

/// A column of lists of names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lists<'a> {
    ends: &'a [i32],
    /// Of all lists, one behind the other.
    pub(super) words: Words<'a>,
}

impl<'a> Lists<'a> {
    /// Where the list of each row is among all names.
    pub(super) fn ranges(self) -> impl Iterator<Item = std::ops::Range<usize>> + 'a {
        let index = |end: i32| usize::try_from(end).unwrap_or(0);
        self.ends.iter().zip(self.ends.iter().skip(1)).map(move |(&from, &to)| index(from)..index(to))
    }
}
