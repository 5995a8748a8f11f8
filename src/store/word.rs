//! Reads a word of the database as the value that it stands for.
use sqlx::{
    Decode, Postgres, Type,
    error::BoxDynError,
    postgres::{PgHasArrayType, PgTypeInfo, PgValueRef},
};
use std::{error::Error, str::FromStr};

/// A column that holds a word of a closed set. Another word is an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<T> Type<Postgres> for Word<T> {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }

    fn compatible(column: &PgTypeInfo) -> bool {
        <str as Type<Postgres>>::compatible(column)
    }
}

impl<T> PgHasArrayType for Word<T> {
    fn array_type_info() -> PgTypeInfo {
        <&str as PgHasArrayType>::array_type_info()
    }

    fn array_compatible(column: &PgTypeInfo) -> bool {
        <&str as PgHasArrayType>::array_compatible(column)
    }
}

impl<'r, T: FromStr<Err: Error + Send + Sync + 'static>> Decode<'r, Postgres> for Word<T> {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Word(<&str as Decode<Postgres>>::decode(value)?.parse()?))
    }
}
