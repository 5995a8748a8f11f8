//! The names at the root of a compound file, read in bounded steps where an upload is received. What reads the file itself
//! runs in a child process.

use std::io::{self, Read, Seek, SeekFrom};

const HEADER_BYTES: usize = 512;
const ENTRY_BYTES: usize = 128;
/// A directory with more entries than this is not looked at further.
const MOST_BYTES: usize = 1 << 20;
/// How many sectors list the sectors of the allocation table, beyond those that the header lists: enough for 256 MiB.
const MOST_LISTS: u32 = 64;
/// The header lists so many sectors of the allocation table itself.
const IN_HEADER: u32 = 109;
const NOTHING: u32 = u32::MAX;

struct Directory<'a, R> {
    source: &'a mut R,
    header: [u8; HEADER_BYTES],
    /// The bytes of a sector.
    sector: u64,
}

/// The names of what stands at the root, in lower case; none if the file is damaged there.
pub(super) fn names<R: Read + Seek>(source: &mut R) -> io::Result<Vec<String>> {
    source.seek(SeekFrom::Start(0))?;
    let mut header = [0; HEADER_BYTES];
    if !fill(source, &mut header)? {
        return Ok(Vec::new());
    }
    let sector = match header[0x1E] {
        shift @ (9 | 12) => 1 << shift,
        _ => return Ok(Vec::new()),
    };
    let entries = Directory { source, header, sector }.entries()?;
    Ok(of_root(&entries))
}

impl<R: Read + Seek> Directory<'_, R> {
    /// The bytes of all entries.
    fn entries(&mut self) -> io::Result<Vec<u8>> {
        let (mut entries, mut sector) = (Vec::new(), number(&self.header, 0x30));
        let mut bytes = vec![0; self.sector as usize];
        while entries.len() < MOST_BYTES && self.read(sector, 0, &mut bytes)? {
            entries.extend_from_slice(&bytes);
            let Some(next) = self.next(sector)? else { break };
            sector = next;
        }
        Ok(entries)
    }

    /// The sector that follows another one in its chain.
    fn next(&mut self, sector: u32) -> io::Result<Option<u32>> {
        let a_sector = (self.sector / 4) as u32;
        let Some(table) = self.table_sector(sector / a_sector)? else { return Ok(None) };
        self.number_at(table, sector % a_sector)
    }

    /// The sector with this part of the allocation table.
    fn table_sector(&mut self, part: u32) -> io::Result<Option<u32>> {
        if part < IN_HEADER {
            return Ok(Some(number(&self.header, 0x4C + part as usize * 4)));
        }
        // The last number of a list is the sector of the next one.
        let a_list = (self.sector / 4) as u32 - 1;
        let (part, mut list) = (part - IN_HEADER, number(&self.header, 0x44));
        if part / a_list > MOST_LISTS {
            return Ok(None);
        }
        for _ in 0..part / a_list {
            let Some(next) = self.number_at(list, a_list)? else { return Ok(None) };
            list = next;
        }
        self.number_at(list, part % a_list)
    }

    fn number_at(&mut self, sector: u32, index: u32) -> io::Result<Option<u32>> {
        let mut bytes = [0; 4];
        Ok(self.read(sector, u64::from(index) * 4, &mut bytes)?.then(|| u32::from_le_bytes(bytes)))
    }

    /// Reads within a sector, or says that the file has none of that number.
    fn read(&mut self, sector: u32, at: u64, bytes: &mut [u8]) -> io::Result<bool> {
        // The header takes the place of the first sector.
        self.source.seek(SeekFrom::Start((u64::from(sector) + 1) * self.sector + at))?;
        fill(self.source, bytes)
    }
}

/// The names of the entries below the root, which form a tree.
fn of_root(entries: &[u8]) -> Vec<String> {
    let entry = |index: u32| entries.chunks_exact(ENTRY_BYTES).nth(index as usize);
    let mut names = Vec::new();
    let mut open: Vec<u32> = entry(0).map(|root| number(root, 76)).into_iter().collect();
    // An entry that is below itself is met no more often than there are entries.
    let mut left = entries.len() / ENTRY_BYTES;
    while let (Some(index), 1..) = (open.pop(), left) {
        let Some(entry) = entry(index) else { continue };
        left -= 1;
        let units = entry[..64].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let name: String = char::decode_utf16(units.take_while(|unit| *unit != 0)).map_while(Result::ok).collect();
        names.push(name.to_lowercase());
        open.extend([number(entry, 68), number(entry, 72)]);
    }
    names
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(NOTHING, |number| u32::from_le_bytes([number[0], number[1], number[2], number[3]]))
}

fn fill<R: Read>(source: &mut R, bytes: &mut [u8]) -> io::Result<bool> {
    match source.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, links: [u32; 3]) -> Vec<u8> {
        let mut letters: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        letters.resize(68, 0);
        let links: Vec<u8> = links.iter().flat_map(|link| link.to_le_bytes()).collect();
        [letters, links, vec![0; ENTRY_BYTES - 80]].concat()
    }

    #[test]
    fn every_branch_of_the_tree_is_met_once() {
        const N: u32 = NOTHING;
        let entries = |links: [[u32; 3]; 4]| {
            ["Root Entry", "Workbook", "Summary", "Details"]
                .iter()
                .zip(links)
                .flat_map(|(name, links)| entry(name, links))
                .collect::<Vec<u8>>()
        };
        assert_eq!(of_root(&entries([[N, N, 2], [N, N, N], [1, 3, N], [N, N, N]])), ["summary", "details", "workbook"]);
        // What is below an entry of the root is not at the root.
        assert_eq!(of_root(&entries([[N, N, 3], [N, N, N], [N, N, N], [N, N, 1]])), ["details"]);
        let cyclic = of_root(&entries([[N, N, 1], [2, 2, N], [1, 1, N], [N, N, N]]));
        assert!(cyclic.len() <= 4, "{cyclic:?}");
    }
}
