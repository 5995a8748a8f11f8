//! The journal of `svc bulk`: a line before a file is sent, one when it has arrived, and one for its outcome.
//!
//! It is only written at its end, so a process that is killed loses at most a part of the last line. A crash of the machine may lose more:
//! those files are sent again, under the same message ids.
use crate::cli::CliError;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The longest line: a path has 4,096 bytes, and each may be written as six.
const LINE_BYTES: usize = 64 << 10;

/// What the first line of a journal begins with.
const BEGINNING: &[u8] = br#"{"is":"journal""#;
/// What helps where a journal cannot be used.
const OTHER: &str = "name another journal with --journal";

/// Tells a file as it was when it was sent, and where it was to be put.
pub type Key = u128;

#[derive(Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Journal {
        v: u32,
        /// Where the files go.
        to: String,
        /// The queue for their outcomes.
        answers: String,
    },
    File {
        n: usize,
        path: String,
        key: String,
        sha256: String,
        message_id: String,
    },
    Sent {
        n: usize,
    },
    /// What had arrived until then is to be sent anew, because its outcomes are not kept any more, or because the user wants it.
    Lost,
    Outcome {
        n: usize,
        outcome: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        document_id: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It may have arrived or not.
    Written,
    /// It has arrived, and its outcome is not known.
    Sent,
    Stored,
    Rejected,
    /// It was sent again under another number.
    Abandoned,
}

/// What became of a file.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `accepted`, `duplicate` or `rejected`.
    pub word: String,
    pub document_id: Option<i64>,
    pub code: Option<String>,
    pub detail: Option<String>,
}

/// A file that the journal knows.
pub struct Entry {
    pub path: String,
    pub message_id: String,
}

pub struct Journal {
    file: File,
    path: PathBuf,
    end: u64,
    /// One byte for each file, whatever its name.
    states: Vec<State>,
    waiting: usize,
    pub answers: String,
}

/// What need not be sent again, sorted.
#[derive(Default)]
pub struct Known(Vec<Key>);

impl Known {
    pub fn of(mut keys: Vec<Key>) -> Known {
        keys.sort_unstable();
        Known(keys)
    }

    pub fn has(&self, key: Key) -> bool {
        self.0.binary_search(&key).is_ok()
    }
}

impl Journal {
    /// Opens the journal, or makes it. `to`: where the files go. Also returns the key of each file in it.
    pub fn open(path: &Path, to: &str) -> Result<(Journal, Vec<Key>), CliError> {
        let of = |error: std::io::Error| CliError::Other(format!("{}: {error}", path.display()));
        let wrong = |what: String| CliError::Other(format!("{}: {what}", path.display()));
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).mode(0o600).open(path).map_err(of)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| wrong(format!("another `svc bulk` writes this journal: wait for its end, or {OTHER}")))?;
        let mut journal = Journal::of(file, path);
        let keys = journal.load(to)?;
        // A part of a line is of a write that was cut off.
        journal.file.set_len(journal.end).map_err(of)?;
        if journal.end == 0 {
            let answers = journal.answers.clone();
            journal.write(&Line::Journal { v: 1, to: to.to_owned(), answers })?;
        }
        Ok((journal, keys))
    }

    /// Looks into a journal, if there is one: what need not be sent again, and what tells its file from others.
    pub fn look(path: &Path, to: &str) -> Result<(Known, Option<(u64, u64)>), CliError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Known::default(), None)),
            Err(error) => return Err(CliError::Other(format!("{}: {error}", path.display()))),
        };
        let mut journal = Journal::of(file, path);
        let keys = journal.load(to)?;
        let identity = journal.identity()?;
        Ok((journal.known(keys), Some(identity)))
    }

    fn of(file: File, path: &Path) -> Journal {
        let answers = format!("-bulk.{:032x}", rand::random::<u128>());
        Journal { file, path: path.to_owned(), end: 0, states: Vec::new(), waiting: 0, answers }
    }

    /// Reads what was written earlier; returns the key of each file in it.
    fn load(&mut self, to: &str) -> Result<Vec<Key>, CliError> {
        let path = self.path.clone();
        let of = |error: std::io::Error| CliError::Other(format!("{}: {error}", path.display()));
        let wrong = |what: String| CliError::Other(format!("{}: {what}", path.display()));
        let mut keys = Vec::new();
        let mut reader = BufReader::with_capacity(1 << 16, self.file.try_clone().map_err(of)?);
        let (mut line, mut number) = (Vec::new(), 0_usize);
        loop {
            line.clear();
            let read = reader.by_ref().take(LINE_BYTES as u64).read_until(b'\n', &mut line).map_err(of)?;
            if line.last() != Some(&b'\n') && read < LINE_BYTES {
                // The file of somebody else stays as it is.
                let begun = &line[..line.len().min(BEGINNING.len())];
                if number == 0 && !BEGINNING.starts_with(begun) {
                    return Err(wrong(format!("this is no journal of `svc bulk`: {OTHER}")));
                }
                break;
            }
            number += 1;
            let read: Option<Line> = serde_json::from_slice(&line).ok();
            match (number, read) {
                (1, Some(Line::Journal { v: 1, to: said, answers })) if said == to => self.answers = answers,
                (1, Some(Line::Journal { v: 1, to: said, .. })) => {
                    return Err(wrong(format!("this journal is of uploads to {said}, not to {to}: {OTHER}")));
                }
                (1, _) => return Err(wrong(format!("this is no journal of `svc bulk`: {OTHER}"))),
                (_, Some(line)) if self.take(&line, &mut keys) => {}
                _ => return Err(wrong(format!("line {number} cannot be read: mend it, or {OTHER}"))),
            }
            self.end += line.len() as u64;
        }
        Ok(keys)
    }

    /// Takes a line that was written earlier; false if it does not fit those before it.
    fn take(&mut self, line: &Line, keys: &mut Vec<Key>) -> bool {
        match line {
            Line::File { n, key, .. } if *n == self.states.len() => {
                let Ok(key) = Key::from_str_radix(key, 16) else { return false };
                keys.push(key);
                self.states.push(State::Written);
                true
            }
            Line::Sent { n } if *n < self.states.len() => {
                self.set(*n, State::Sent);
                true
            }
            Line::Lost => {
                self.give_up();
                true
            }
            Line::Outcome { n, outcome, .. } if *n < self.states.len() => {
                self.set(*n, if outcome == "rejected" { State::Rejected } else { State::Stored });
                true
            }
            _ => false,
        }
    }

    fn set(&mut self, n: usize, state: State) {
        self.waiting -= usize::from(self.states[n] == State::Sent);
        self.states[n] = state;
        self.waiting += usize::from(state == State::Sent);
    }

    /// Gives up the numbers that wait for an outcome.
    fn give_up(&mut self) {
        for n in 0..self.states.len() {
            if self.states[n] == State::Sent {
                self.set(n, State::Abandoned);
            }
        }
    }

    /// Notes that what waits for an outcome is to be sent anew, which stores it no second time, and returns how many files that are. Later runs go by
    /// it too, however this one ends.
    pub fn lost(&mut self) -> Result<usize, CliError> {
        let lost = self.waiting;
        if lost > 0 {
            self.write(&Line::Lost)?;
            self.give_up();
        }
        Ok(lost)
    }

    /// Closes what earlier runs left open, and returns what need not be sent again.
    pub fn known(&mut self, mut keys: Vec<Key>) -> Known {
        for n in 0..self.states.len() {
            if self.states[n] == State::Written {
                self.set(n, State::Abandoned);
            }
        }
        let mut states = self.states.iter();
        keys.retain(|_| matches!(states.next(), Some(State::Sent | State::Stored)));
        Known::of(keys)
    }

    fn write(&mut self, line: &Line) -> Result<u64, CliError> {
        let of = |error: std::io::Error| CliError::Other(format!("{}: {error}", self.path.display()));
        let mut text = serde_json::to_vec(line).map_err(|error| CliError::Other(error.to_string()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(of)?;
        let at = self.end;
        self.end += text.len() as u64;
        Ok(at)
    }

    /// Notes a file that is about to be sent; returns its number, and a mark by which [`Self::find`] finds it.
    pub fn file(&mut self, entry: &Entry, key: Key, sha256: &str) -> Result<(usize, String), CliError> {
        let n = self.states.len();
        let Entry { path, message_id } = entry;
        let (path, message_id, sha256) = (path.clone(), message_id.clone(), sha256.to_owned());
        let at = self.write(&Line::File { n, path, key: format!("{key:032x}"), sha256, message_id })?;
        self.states.push(State::Written);
        Ok((n, format!("{n}:{at}")))
    }

    /// The file of a mark. Whatever is no mark of this journal finds none.
    pub fn find(&self, mark: &str) -> Option<(usize, Entry)> {
        let (n, at) = mark.split_once(':')?;
        let (number, at): (usize, u64) = (n.parse().ok()?, at.parse().ok()?);
        self.states.get(number)?;
        let mut line = vec![0; LINE_BYTES.min(usize::try_from(self.end.checked_sub(at)?).ok()?)];
        self.file.read_exact_at(&mut line, at).ok()?;
        let line = line.split(|byte| *byte == b'\n').next()?;
        match serde_json::from_slice(line).ok()? {
            Line::File { n, path, message_id, .. } if n == number => Some((n, Entry { path, message_id })),
            _ => None,
        }
    }

    /// Notes that a file has arrived.
    pub fn sent(&mut self, n: usize) -> Result<(), CliError> {
        if self.states[n] == State::Written {
            self.write(&Line::Sent { n })?;
            self.set(n, State::Sent);
        }
        Ok(())
    }

    /// Notes what became of a file; returns false if that is known, or is asked under another number.
    pub fn ended(&mut self, n: usize, outcome: &Outcome) -> Result<bool, CliError> {
        if !matches!(self.states[n], State::Written | State::Sent) {
            return Ok(false);
        }
        let Outcome { word, document_id, code, detail } = outcome.clone();
        let is_rejected = word == "rejected";
        self.write(&Line::Outcome { n, outcome: word, document_id, code, detail })?;
        self.set(n, if is_rejected { State::Rejected } else { State::Stored });
        Ok(true)
    }

    /// Gives up a number whose file is sent again; returns false if its outcome is known, so that it need not be.
    pub fn abandon(&mut self, n: usize) -> bool {
        let is_open = self.states[n] == State::Written;
        if is_open {
            self.set(n, State::Abandoned);
        }
        is_open
    }

    /// How many files have arrived whose outcome is not known.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// What tells this file from all others.
    pub fn identity(&self) -> std::io::Result<(u64, u64)> {
        self.file.metadata().map(|facts| (facts.dev(), facts.ino()))
    }
}

impl Drop for Journal {
    /// Gives the journal free at once: a process that is being started holds a copy of its descriptor for a moment longer.
    fn drop(&mut self) {
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            tracing::debug!(error = %error, "the journal is free once its file is closed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(word: &str) -> Outcome {
        Outcome { word: word.to_owned(), document_id: Some(7), code: None, detail: None }
    }

    fn open(path: &Path) -> (Journal, Vec<Key>) {
        Journal::open(path, "here").expect("a journal")
    }

    #[test]
    fn the_file_of_somebody_else_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.json");
        for foreign in ["{\"key\": 1}", "{\"is\":\"something\"}", "token", "{\"key\": 1}\n"] {
            std::fs::write(&path, foreign).expect("written");
            assert!(Journal::open(&path, "here").is_err(), "{foreign}");
            assert!(Journal::look(&path, "here").is_err(), "{foreign}");
            assert_eq!(std::fs::read_to_string(&path).expect("read"), foreign);
        }
    }

    #[test]
    fn a_journal_goes_on_wherever_it_was_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let (mut journal, keys) = open(&path);
        let answers = journal.answers.clone();
        assert!(keys.is_empty());
        let mut marks = Vec::new();
        for key in 0..5 {
            let entry = Entry { path: format!("a\n\u{1b}\"{key}"), message_id: format!("id {key}") };
            marks.push(journal.file(&entry, key, "00").expect("written").1);
        }
        for n in [1, 2, 3] {
            journal.sent(n).expect("written");
        }
        assert!(journal.ended(2, &outcome("accepted")).expect("written"));
        assert!(!journal.ended(2, &outcome("rejected")).expect("known"), "the first outcome stands");
        assert!(journal.ended(3, &outcome("rejected")).expect("written"));
        assert_eq!(journal.waiting(), 1);
        let (n, entry) = journal.find(&marks[4]).expect("a file");
        assert_eq!((n, entry.path.as_str(), entry.message_id.as_str()), (4, "a\n\u{1b}\"4", "id 4"));
        for foreign in ["", "4", "4:1", "5:0", "4:99999999", "-1:0", "0:0"] {
            assert!(journal.find(foreign).is_none(), "{foreign:?}");
        }
        assert!(Journal::open(&path, "here").is_err(), "one writes at a time");
        drop(journal);
        let whole = std::fs::read(&path).expect("read");
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("written");
            let (mut journal, keys) = open(&path);
            journal.known(keys);
            let entry = Entry { path: "next".to_owned(), message_id: "next".to_owned() };
            journal.file(&entry, 9, "00").expect("written");
            drop(journal);
            drop(open(&path));
        }
        std::fs::write(&path, &whole).expect("written");
        let (mut journal, keys) = open(&path);
        assert_eq!((journal.waiting(), &journal.answers), (1, &answers));
        let known = journal.known(keys);
        assert_eq!([0, 1, 2, 3, 4].map(|key| known.has(key)), [false, true, true, false, false]);
        drop(journal);
        let (mut journal, _) = open(&path);
        assert_eq!((journal.lost().expect("written"), journal.waiting()), (1, 0));
        // A run that is killed at once leaves it so.
        drop(journal);
        let (mut journal, keys) = open(&path);
        let known = journal.known(keys);
        assert!(!known.has(1) && known.has(2) && journal.waiting() == 0, "outcomes that are gone are asked for again");
        assert_eq!(journal.lost().expect("nothing to write"), 0);
    }

    #[test]
    fn what_is_no_journal_of_this_place_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        drop(open(&path));
        let elsewhere = Journal::open(&path, "there").map(drop).expect_err("another place");
        assert!(elsewhere.to_string().contains("--journal"), "{elsewhere}");
        let text = "a letter\n".repeat(9);
        std::fs::write(&path, &text).expect("written");
        assert!(Journal::open(&path, "here").is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
        let damaged = "{\"is\":\"journal\",\"v\":1,\"to\":\"here\",\"answers\":\"x\"}\n{\"is\":\"sent\",\"n\":5}\n";
        std::fs::write(&path, damaged).expect("written");
        let refused = Journal::open(&path, "here").map(drop).expect_err("damaged");
        assert!(refused.to_string().contains("line 2"), "{refused}");
    }
}
