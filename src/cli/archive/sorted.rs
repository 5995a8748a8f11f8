//! What an archive names by numbers, with the lines, sorted in a file: memory does not grow with the archive.
use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    fs::File,
    io::{self, BufWriter, Write},
    iter,
    ops::Range,
    os::unix::fs::FileExt,
};

/// The rows that are in memory at once: 16 MiB of them.
const MOST: usize = 1 << 20;
/// The bytes of a row in the file.
const ROW_BYTES: usize = 16;

/// A number, and the line that names it.
pub type Row = (i64, u64);

/// Rows on their way into order.
pub struct Sorting {
    most: usize,
    open: Vec<Row>,
    /// The file has no name, and is made once there are more rows than memory takes.
    file: Option<File>,
    /// Where in the file the runs are, in rows. Each run is in order.
    runs: Vec<Range<u64>>,
}

impl Sorting {
    pub fn new() -> Sorting {
        Sorting::of(MOST)
    }

    fn of(most: usize) -> Sorting {
        Sorting { most, open: Vec::new(), file: None, runs: Vec::new() }
    }

    pub fn add(&mut self, number: i64, line: u64) -> io::Result<()> {
        if self.open.len() >= self.most {
            self.write()?;
        }
        self.open.push((number, line));
        Ok(())
    }

    /// Writes what is in memory as the next run.
    fn write(&mut self) -> io::Result<()> {
        self.open.sort_unstable();
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile()?,
        };
        let mut out = BufWriter::new(self.file.insert(file));
        for (number, line) in &self.open {
            out.write_all(&number.to_be_bytes())?;
            out.write_all(&line.to_be_bytes())?;
        }
        out.flush()?;
        let begin = self.runs.last().map_or(0, |run| run.end);
        self.runs.push(begin..begin + self.open.len() as u64);
        self.open.clear();
        Ok(())
    }

    pub fn sorted(mut self) -> io::Result<Sorted> {
        if self.file.is_some() {
            self.write()?;
            self.open = Vec::new();
        }
        self.open.sort_unstable();
        let Sorting { most, open, file, runs } = self;
        Ok(Sorted { most, open, file, runs })
    }
}

/// Rows in order. Few are in memory, and many in a file.
pub struct Sorted {
    most: usize,
    open: Vec<Row>,
    file: Option<File>,
    runs: Vec<Range<u64>>,
}

impl Sorted {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.runs.is_empty()
    }

    pub fn rows(&self) -> io::Result<Rows<'_>> {
        let runs = self.runs.iter().map(|run| Run { left: run.clone(), read: Vec::new().into_iter() }).collect();
        let mut rows = Rows { of: self, open: 0, runs, heap: BinaryHeap::new() };
        for at in 0..rows.runs.len() {
            rows.take_from(at)?;
        }
        Ok(rows)
    }

    /// The same rows in one run, in which few reads find a number.
    pub fn merged(self) -> io::Result<Sorted> {
        if self.runs.len() < 2 {
            return Ok(self);
        }
        let mut out = BufWriter::new(tempfile::tempfile()?);
        let (mut rows, mut count) = (self.rows()?, 0);
        while let Some((number, line)) = rows.next()? {
            out.write_all(&number.to_be_bytes())?;
            out.write_all(&line.to_be_bytes())?;
            count += 1;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Sorted { most: self.most, open: Vec::new(), file: Some(file), runs: iter::once(0..count).collect() })
    }

    /// Whether a row has this number.
    pub fn has(&self, number: i64) -> io::Result<bool> {
        if self.open.binary_search_by_key(&number, |row| row.0).is_ok() {
            return Ok(true);
        }
        let Some(file) = &self.file else { return Ok(false) };
        for run in &self.runs {
            let (mut start, mut end) = (run.start, run.end);
            while start < end {
                let (middle, mut bytes) = (start + (end - start) / 2, [0; 8]);
                file.read_exact_at(&mut bytes, middle * ROW_BYTES as u64)?;
                match i64::from_be_bytes(bytes).cmp(&number) {
                    Ordering::Equal => return Ok(true),
                    Ordering::Less => start = middle + 1,
                    Ordering::Greater => end = middle,
                }
            }
        }
        Ok(false)
    }

    /// The first line that names what an earlier line names.
    pub fn repeated(&self) -> io::Result<Option<Row>> {
        let (mut rows, mut last, mut first) = (self.rows()?, None, None);
        while let Some(row) = rows.next()? {
            if last == Some(row.0) {
                first = earlier(first, row);
            }
            last = Some(row.0);
        }
        Ok(first)
    }

    /// The first line that names what `there` does not name.
    pub fn missing(&self, there: &Sorted) -> io::Result<Option<Row>> {
        let mut first = None;
        self.compare(there, |row, is_there| {
            if !is_there {
                first = earlier(first, row);
            }
            Ok(())
        })?;
        Ok(first)
    }

    /// The lines that name what `there` names too, in their order.
    pub fn lines(&self, there: &Sorted) -> io::Result<Sorted> {
        let mut lines = Sorting::of(self.most);
        self.compare(there, |row, is_there| match is_there {
            true => lines.add(0, row.1),
            false => Ok(()),
        })?;
        lines.sorted()
    }

    /// Calls with each row, and whether `there` names its number too.
    fn compare(&self, there: &Sorted, mut each: impl FnMut(Row, bool) -> io::Result<()>) -> io::Result<()> {
        let (mut rows, mut there) = (self.rows()?, there.rows()?);
        let mut known = there.next()?;
        while let Some(row) = rows.next()? {
            while known.is_some_and(|known| known.0 < row.0) {
                known = there.next()?;
            }
            each(row, known.is_some_and(|known| known.0 == row.0))?;
        }
        Ok(())
    }
}

fn earlier(first: Option<Row>, row: Row) -> Option<Row> {
    Some(first.filter(|first| first.1 <= row.1).unwrap_or(row))
}

/// Reads rows in order.
pub struct Rows<'a> {
    of: &'a Sorted,
    /// How many of those in memory were read.
    open: usize,
    runs: Vec<Run>,
    /// The next row of each run.
    heap: BinaryHeap<Reverse<(Row, usize)>>,
}

/// A run of the file.
struct Run {
    /// What was not yet read from the file.
    left: Range<u64>,
    read: std::vec::IntoIter<Row>,
}

impl Rows<'_> {
    pub fn next(&mut self) -> io::Result<Option<Row>> {
        if self.runs.is_empty() {
            self.open += 1;
            return Ok(self.of.open.get(self.open - 1).copied());
        }
        let Some(Reverse((row, at))) = self.heap.pop() else { return Ok(None) };
        self.take_from(at)?;
        Ok(Some(row))
    }

    /// Puts the next row of a run among those that are compared.
    fn take_from(&mut self, at: usize) -> io::Result<()> {
        // All runs together take as much memory as one took while it was filled.
        let most = (self.of.most / self.runs.len()).max(1);
        let run = &mut self.runs[at];
        if run.read.as_slice().is_empty() && !run.left.is_empty() {
            let rows = most.min(usize::try_from(run.left.end - run.left.start).unwrap_or(most));
            let mut bytes = vec![0; rows * ROW_BYTES];
            if let Some(file) = &self.of.file {
                file.read_exact_at(&mut bytes, run.left.start * ROW_BYTES as u64)?;
            }
            run.left.start += rows as u64;
            let half = |row: &[u8], from: usize| std::array::from_fn(|byte| row[from + byte]);
            let read = bytes.chunks_exact(ROW_BYTES);
            let read = read.map(|row| (i64::from_be_bytes(half(row, 0)), u64::from_be_bytes(half(row, 8))));
            run.read = read.collect::<Vec<Row>>().into_iter();
        }
        self.heap.extend(run.read.next().map(|row| Reverse((row, at))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in lines 1, 2, 3 and so on, of which four are in memory at once.
    fn sorted(numbers: &[i64]) -> Sorted {
        let mut sorting = Sorting::of(4);
        for (number, line) in numbers.iter().zip(1..) {
            sorting.add(*number, line).unwrap();
            assert!(sorting.open.len() <= 4);
        }
        sorting.sorted().unwrap()
    }

    fn all(sorted: &Sorted) -> Vec<Row> {
        let (mut rows, mut all) = (sorted.rows().unwrap(), Vec::new());
        while let Some(row) = rows.next().unwrap() {
            let read: usize = rows.runs.iter().map(|run| run.read.len()).sum();
            assert!(read <= 4.max(rows.runs.len()), "{read} rows are in memory");
            all.push(row);
        }
        all
    }

    #[test]
    fn rows_are_in_order_however_many_runs_they_take() {
        for count in [0, 1, 3, 4, 5, 8, 9, 40, 1000_i64] {
            let numbers: Vec<i64> = (0..count).map(|at| (at * 7919) % 1009 - 500).collect();
            let mut expected: Vec<Row> = numbers.iter().copied().zip(1..).collect();
            expected.sort_unstable();
            let sorted = sorted(&numbers);
            assert!(sorted.open.len() <= 4 && sorted.is_empty() == (count == 0), "{count}");
            assert_eq!(all(&sorted), expected, "{count}");
            // They can be read again.
            assert_eq!(all(&sorted), expected, "{count}");
            for number in -510..520 {
                assert_eq!(sorted.has(number).unwrap(), numbers.contains(&number), "{number} of {count}");
            }
            let merged = sorted.merged().unwrap();
            assert!(merged.runs.len() <= 1 && merged.open.len() <= 4, "{count}");
            assert_eq!(all(&merged), expected, "{count}");
            for number in -510..520 {
                assert_eq!(merged.has(number).unwrap(), numbers.contains(&number), "{number} of {count}");
            }
        }
    }

    #[test]
    fn the_first_line_at_fault_is_found_whatever_its_number() {
        let numbers = [i64::MAX, 9, 1, i64::MIN, 5, 9, 3, 1, 0, 9, i64::MAX];
        assert_eq!(sorted(&numbers).repeated().unwrap(), Some((9, 6)));
        assert_eq!(sorted(&[3, 1, 2, 8, 7, 5]).repeated().unwrap(), None);
        let there = sorted(&numbers);
        assert_eq!(sorted(&[1, 9, 0, 8, i64::MIN, 2, 8]).missing(&there).unwrap(), Some((8, 4)));
        assert_eq!(sorted(&[1, 9, 0, 5, i64::MIN, 3, 3, i64::MAX]).missing(&there).unwrap(), None);
        assert_eq!(sorted(&[4]).missing(&sorted(&[])).unwrap(), Some((4, 1)));
    }

    #[test]
    fn lines_that_name_what_is_used_stand_in_their_order() {
        let used = sorted(&[70, 30, 30, 10, 20, 50, 30]);
        let lines = sorted(&[50, 40, 30, 60, 20, 10, 70, 80]).lines(&used).unwrap();
        assert_eq!(all(&lines), [1, 3, 5, 6, 7].map(|line| (0, line)));
    }
}
