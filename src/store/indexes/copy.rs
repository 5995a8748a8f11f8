//! The binary form of COPY, which is far cheaper than parameters for thousands of rows.

use sqlx::{PgConnection, Result, postgres::PgCopyIn};

const CHUNK: usize = 1 << 20;

/// A COPY under way. If it is dropped unfinished, the server discards its rows.
pub(super) struct Copy<'c> {
    copy: PgCopyIn<&'c mut PgConnection>,
    buffer: Vec<u8>,
}

impl<'c> Copy<'c> {
    /// Begins a COPY; `statement` is `COPY ... FROM STDIN (FORMAT binary)`.
    pub(super) async fn new(conn: &'c mut PgConnection, statement: &'static str) -> Result<Self> {
        let copy = conn.copy_in_raw(statement).await?;
        let mut buffer = b"PGCOPY\n\xff\r\n\0".to_vec();
        buffer.extend_from_slice(&[0; 8]);
        Ok(Self { copy, buffer })
    }

    pub(super) fn row(&mut self, fields: i16) {
        self.buffer.extend_from_slice(&fields.to_be_bytes());
    }

    pub(super) fn field(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
        self.buffer.extend_from_slice(bytes);
    }

    /// Sends what has gathered if it is large; call this between rows.
    pub(super) async fn flush(&mut self) -> Result<()> {
        if self.buffer.len() >= CHUNK {
            self.copy.send(self.buffer.as_slice()).await?;
            self.buffer.clear();
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<()> {
        self.buffer.extend_from_slice(&(-1i16).to_be_bytes());
        self.copy.send(self.buffer.as_slice()).await?;
        self.copy.finish().await?;
        Ok(())
    }
}
