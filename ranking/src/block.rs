//! The bytes of a row of postings: blocks of `[first u32, last u32, ub f32, n u16, len u16, payload]`, little-endian. A
//! full block packs 128 sorted document deltas, tf-1 and lengths; a partial one holds varints of (delta, tf, length).

use super::score::Curve;
use bitpacking::{BitPacker, BitPacker4x};

pub(crate) const BLOCK: usize = 128;
const HEADER: usize = 16;
const ROW_BLOCKS: usize = 16;
/// A row stays inside one page, because `data` is stored PLAIN.
const ROW_BYTES: usize = 7_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    pub doc: u32,
    pub tf: u32,
    pub length: u32,
}

/// What is known of a block without decoding it; `ub` is the largest saturation in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub first: u32,
    pub last: u32,
    pub ub: f32,
    pub n: u16,
    pub offset: u32,
    pub len: u16,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub first: u32,
    pub last: u32,
    pub n: u32,
    pub ub: f32,
    pub data: Vec<u8>,
}

/// The columns of one decoded block.
pub(crate) struct Columns {
    pub docs: [u32; BLOCK],
    pub tfs: [u32; BLOCK],
    pub lengths: [u32; BLOCK],
}

impl Columns {
    pub(crate) fn new() -> Self {
        Self { docs: [0; BLOCK], tfs: [0; BLOCK], lengths: [0; BLOCK] }
    }
}

/// Packs postings, strictly ascending by document, into rows of at most `max_blocks` blocks, and never more than 16.
pub fn encode_rows(postings: &[Posting], curve: &Curve, max_blocks: usize) -> Vec<Row> {
    let max_blocks = max_blocks.clamp(1, ROW_BLOCKS);
    let mut rows: Vec<Row> = vec![];
    let mut blocks = 0;
    let mut block = vec![];
    for chunk in postings.chunks(BLOCK) {
        let (first, last) = (chunk[0].doc, chunk[chunk.len() - 1].doc);
        let ub = chunk.iter().map(|posting| curve.saturation(posting.tf, posting.length)).fold(0f32, f32::max);
        block.clear();
        encode_payload(chunk, &mut block);
        let fits =
            rows.last().is_some_and(|row| blocks < max_blocks && row.data.len() + HEADER + block.len() <= ROW_BYTES);
        if !fits {
            rows.push(Row { first, last, n: 0, ub: 0.0, data: vec![] });
            blocks = 0;
        }
        if let Some(row) = rows.last_mut() {
            row.last = last;
            row.n += chunk.len() as u32;
            row.ub = row.ub.max(ub);
            row.data.extend_from_slice(&first.to_le_bytes());
            row.data.extend_from_slice(&last.to_le_bytes());
            row.data.extend_from_slice(&ub.to_le_bytes());
            row.data.extend_from_slice(&(chunk.len() as u16).to_le_bytes());
            row.data.extend_from_slice(&(block.len() as u16).to_le_bytes());
            row.data.extend_from_slice(&block);
            blocks += 1;
        }
    }
    rows
}

fn encode_payload(chunk: &[Posting], out: &mut Vec<u8>) {
    let first = chunk[0].doc;
    if chunk.len() < BLOCK {
        let mut previous = first;
        for posting in chunk {
            for mut value in [posting.doc - previous, posting.tf, posting.length] {
                while value >= 128 {
                    out.push(value as u8 | 128);
                    value >>= 7;
                }
                out.push(value as u8);
            }
            previous = posting.doc;
        }
        return;
    }
    let packer = BitPacker4x::new();
    let mut columns = Columns::new();
    for (i, posting) in chunk.iter().enumerate() {
        columns.docs[i] = posting.doc;
        columns.tfs[i] = posting.tf.saturating_sub(1);
        columns.lengths[i] = posting.length;
    }
    let bits = [
        packer.num_bits_sorted(first, &columns.docs),
        packer.num_bits(&columns.tfs),
        packer.num_bits(&columns.lengths),
    ];
    out.extend_from_slice(&bits);
    let [docs, tfs, lengths] = bits.map(|bits| 16 * usize::from(bits));
    out.resize(3 + docs + tfs + lengths, 0);
    packer.compress_sorted(first, &columns.docs, &mut out[3..], bits[0]);
    packer.compress(&columns.tfs, &mut out[3 + docs..], bits[1]);
    packer.compress(&columns.lengths, &mut out[3 + docs + tfs..], bits[2]);
}

/// Reads the block headers of one row's bytes and checks everything that [`decode`] relies on; offsets count from
/// `base`.
pub(crate) fn parse_row(data: &[u8], base: usize, out: &mut Vec<Meta>) -> Result<(), &'static str> {
    let mut at = 0;
    while at < data.len() {
        let header: &[u8; HEADER] = data[at..].first_chunk().ok_or("a block header is cut off")?;
        let word = |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
        let (first, last, ub) = (word(0), word(4), f32::from_bits(word(8)));
        let n = u16::from_le_bytes([header[12], header[13]]);
        let len = u16::from_le_bytes([header[14], header[15]]);
        at += HEADER;
        let payload = data.get(at..at + usize::from(len)).ok_or("a block is cut off")?;
        if n == 0 || usize::from(n) > BLOCK || first > last || !(0.0..=1.0).contains(&ub) {
            return Err("a block header is out of range");
        }
        if out.last().is_some_and(|previous: &Meta| previous.last >= first) {
            return Err("blocks overlap");
        }
        if usize::from(n) == BLOCK {
            let bits = payload.first_chunk::<3>().ok_or("a full block is cut off")?;
            let bytes: usize = bits.iter().map(|&bits| 16 * usize::from(bits)).sum();
            if bits.iter().any(|&bits| bits > 32) || payload.len() != 3 + bytes {
                return Err("a full block has the wrong size");
            }
        }
        let offset = u32::try_from(base + at).map_err(|_| "a list is too long")?;
        out.push(Meta { first, last, ub, n, offset, len });
        at += usize::from(len);
    }
    Ok(())
}

/// Decodes the block `meta` of `data` into the first `meta.n` entries of `columns`. Bytes that [`parse_row`] accepted
/// never panic here; a varint block that ends early repeats its last document.
pub(crate) fn decode(data: &[u8], meta: &Meta, columns: &mut Columns) {
    let start = meta.offset as usize;
    let payload = &data[start..start + usize::from(meta.len)];
    if usize::from(meta.n) == BLOCK {
        let packer = BitPacker4x::new();
        let [docs, tfs, _] = [payload[0], payload[1], payload[2]].map(|bits| 16 * usize::from(bits));
        packer.decompress_sorted(meta.first, &payload[3..], &mut columns.docs, payload[0]);
        packer.decompress(&payload[3 + docs..], &mut columns.tfs, payload[1]);
        packer.decompress(&payload[3 + docs + tfs..], &mut columns.lengths, payload[2]);
        for tf in &mut columns.tfs {
            *tf = tf.saturating_add(1);
        }
        return;
    }
    let mut bytes = payload.iter();
    let mut varint = || {
        let mut value = 0u32;
        for shift in (0..32).step_by(7) {
            let byte = bytes.next().copied().unwrap_or(0);
            value |= u32::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        value
    };
    let mut doc = meta.first;
    for i in 0..usize::from(meta.n) {
        doc = doc.saturating_add(varint());
        (columns.docs[i], columns.tfs[i], columns.lengths[i]) = (doc, varint(), varint());
    }
}

/// Appends every posting of a row's bytes to `out`.
pub fn decode_row(data: &[u8], out: &mut Vec<Posting>) -> Result<(), &'static str> {
    let mut metas = vec![];
    parse_row(data, 0, &mut metas)?;
    let mut columns = Columns::new();
    for meta in &metas {
        decode(data, meta, &mut columns);
        out.extend((0..usize::from(meta.n)).map(|i| Posting {
            doc: columns.docs[i],
            tf: columns.tfs[i],
            length: columns.lengths[i],
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameters;
    use proptest::prelude::*;

    fn curve() -> Curve {
        Curve::new(Parameters { k1: 1.2, b: 0.75 }, 100.0)
    }

    proptest! {
        #[test]
        fn rows_give_back_their_postings(
            steps in prop::collection::vec((1u32..200_000, 1u32..=32_767, 0u32..=2_000_000), 1..6_000)
        ) {
            let mut doc = 0;
            let postings: Vec<Posting> =
                steps.into_iter().map(|(step, tf, length)| { doc += step; Posting { doc, tf, length } }).collect();
            let rows = encode_rows(&postings, &curve(), 16);
            let mut back = vec![];
            for row in &rows {
                prop_assert!(row.data.len() <= ROW_BYTES);
                let before = back.len();
                decode_row(&row.data, &mut back).expect("own bytes");
                prop_assert_eq!((row.first, row.last), (back[before].doc, back[back.len() - 1].doc));
                prop_assert_eq!(row.n as usize, back.len() - before);
            }
            prop_assert_eq!(back, postings);
        }

        #[test]
        fn foreign_bytes_never_panic(
            mut data in prop::collection::vec(any::<u8>(), 0..600), n in 0u16..140, bits in prop::array::uniform3(0u8..40)
        ) {
            let _ = decode_row(&data, &mut vec![]);
            // This does the same under a header that is as right as possible.
            if data.len() > HEADER + 3 {
                let len = (data.len() - HEADER) as u16;
                data[0..4].copy_from_slice(&7u32.to_le_bytes());
                data[4..8].copy_from_slice(&9_000u32.to_le_bytes());
                data[8..12].copy_from_slice(&0.5f32.to_le_bytes());
                data[12..14].copy_from_slice(&n.to_le_bytes());
                data[14..16].copy_from_slice(&len.to_le_bytes());
                data[16..19].copy_from_slice(&bits);
                let _ = decode_row(&data, &mut vec![]);
                let size = 3 + bits.iter().map(|&bits| 16 * usize::from(bits)).sum::<usize>();
                data.resize(HEADER + size, 0xA5);
                data[12..14].copy_from_slice(&128u16.to_le_bytes());
                data[14..16].copy_from_slice(&(size as u16).to_le_bytes());
                let _ = decode_row(&data, &mut vec![]);
            }
        }
    }
}
