use super::{
    block::{self, BLOCK, Columns, Meta, Posting},
    score::Curve,
};

/// A list of postings of one term, ascending by document.
pub struct Postings {
    pub(crate) metas: Vec<Meta>,
    body: Body,
}

enum Body {
    /// The bytes of sealed rows, one after the other.
    Packed(Vec<u8>),
    /// Decoded postings of the tail; `Meta::offset` is an index.
    Plain(Vec<Posting>),
}

impl Postings {
    /// Makes a list of stored rows, in any order.
    pub fn sealed(mut rows: Vec<(i32, Vec<u8>)>) -> Result<Self, &'static str> {
        rows.sort_unstable_by_key(|row| row.0);
        let mut bytes = Vec::with_capacity(rows.iter().map(|row| row.1.len()).sum());
        let mut metas = vec![];
        for (_, row) in rows {
            block::parse_row(&row, bytes.len(), &mut metas)?;
            bytes.extend_from_slice(&row);
        }
        Ok(Self { metas, body: Body::Packed(bytes) })
    }

    /// Makes a list of tail postings, in any order. Their bounds are computed for `curve`, with which they will be
    /// scored.
    pub fn tail(mut postings: Vec<Posting>, curve: &Curve) -> Self {
        postings.sort_unstable_by_key(|posting| posting.doc);
        let metas = postings
            .chunks(BLOCK)
            .enumerate()
            .map(|(i, chunk)| Meta {
                first: chunk[0].doc,
                last: chunk[chunk.len() - 1].doc,
                ub: chunk.iter().map(|posting| curve.saturation(posting.tf, posting.length)).fold(0f32, f32::max),
                n: chunk.len() as u16,
                offset: (i * BLOCK) as u32,
                len: 0,
            })
            .collect();
        Self { metas, body: Body::Plain(postings) }
    }

    /// The number of postings.
    pub fn count(&self) -> usize {
        self.metas.iter().map(|meta| usize::from(meta.n)).sum()
    }

    /// The bytes that the list takes in memory.
    pub fn bytes(&self) -> usize {
        let body = match &self.body {
            Body::Packed(bytes) => bytes.len(),
            Body::Plain(postings) => size_of_val(postings.as_slice()),
        };
        body + size_of_val(self.metas.as_slice())
    }

    #[inline]
    pub(crate) fn load(&self, block: usize, columns: &mut Columns) {
        let meta = &self.metas[block];
        match &self.body {
            Body::Packed(bytes) => block::decode(bytes, meta, columns),
            Body::Plain(postings) => {
                let start = meta.offset as usize;
                for (i, posting) in postings[start..start + usize::from(meta.n)].iter().enumerate() {
                    columns.docs[i] = posting.doc;
                    columns.tfs[i] = posting.tf;
                    columns.lengths[i] = posting.length;
                }
            }
        }
    }
}
