//! Reads a whole archive before anything of it is sent, so that nothing is stored of one that is faulty somewhere.
use super::{
    BLOBS, CONTEXTS, Counts, DOCUMENTS, FACTS, FORMAT, GRANTS, INDEXES, LINKS, MANIFEST, MANIFEST_BYTES, Manifest,
    PREDICATES, TOKENS, at, blob, files, hash,
    searching::{ArchivedContext, ArchivedIndex},
    sorted::{Sorted, Sorting},
};
use crate::cli::{CliError, output::one_line};
use oxttl::{TurtleParser, turtle::ReaderTurtleParser};
use serde::{Deserialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::Path,
};
use svc_client::wire::{ArchivedDocument, ArchivedGrant, ArchivedLink, ArchivedTokens, NewPredicate};

/// The longest line. The service refuses a larger body in any case.
pub const LINE_BYTES: u64 = 64 << 20;
/// No document of a store lies deeper.
const DEEPEST: usize = 256;

/// An archive that is whole.
pub struct Checked {
    pub archive: String,
    /// Its form, which decides what files it has.
    pub format: u32,
    pub counts: Counts,
    /// The lines of the predicates that its facts use.
    pub predicates: Sorted,
    /// What the IRIs of the other store begin with; `None` without facts.
    pub base: Option<String>,
}

pub fn check(folder: &Path) -> Result<Checked, CliError> {
    let manifest = manifest(folder)?;
    for name in files(manifest.format) {
        let path = folder.join(name);
        let listed: Vec<_> = manifest.files.iter().filter(|file| file.name == *name).collect();
        let [listed] = listed[..] else {
            return Err(faulty(
                &folder.join(MANIFEST),
                None,
                &format!("lists {name} {} times, and not once", listed.len()),
            ));
        };
        // A link could lead anywhere.
        let metadata = fs::symlink_metadata(&path).map_err(at(&path))?;
        if !metadata.is_file() {
            return Err(faulty(&path, None, "is no plain file"));
        }
        if metadata.len() != listed.bytes {
            let reason = format!("has {} bytes, and the manifest says {}", metadata.len(), listed.bytes);
            return Err(faulty(&path, None, &reason));
        }
        if hash(&path).map_err(at(&path))?.1 != listed.sha256 {
            return Err(faulty(&path, None, "has not the hash of the manifest: it was changed or damaged"));
        }
    }
    let mut counts = Counts::default();
    let there = documents(folder, &mut counts)?;
    let mut named = Sorting::new();
    let links = folder.join(LINKS);
    each(&links, |link: &ArchivedLink| {
        counts.links += 1;
        counts.links_outside += u64::from(link.outside);
        let mut ends = [link.source, link.target].into_iter().filter(|_| !link.outside);
        ends.try_for_each(|id| named.add(id, counts.links)).map_err(unsorted)
    })?;
    all_there(&links, named, &there)?;
    let mut named = Sorting::new();
    let grants = folder.join(GRANTS);
    each(&grants, |grant: &ArchivedGrant| {
        counts.grants += 1;
        named.add(grant.document, counts.grants).map_err(unsorted)
    })?;
    all_there(&grants, named, &there)?;
    if manifest.format > 1 {
        searches(folder, &there, &mut counts)?;
    }
    let mut declared = Sorting::new();
    each(&folder.join(PREDICATES), |predicate: &NewPredicate| {
        counts.predicates += 1;
        match &predicate.iri {
            Some(iri) => declared.add(number(iri), counts.predicates).map_err(unsorted),
            None => Ok(()),
        }
    })?;
    if counts != manifest.counts {
        let reason = format!("counts other rows than there are: {:?}, and there are {counts:?}", manifest.counts);
        return Err(faulty(&folder.join(MANIFEST), None, &reason));
    }
    let facts_path = folder.join(FACTS);
    let (used, base) = facts(&facts_path)?;
    let predicates = declared.sorted().and_then(|declared| declared.lines(&used));
    let predicates = predicates.map_err(|error| faulty(&facts_path, None, &unsorted(error)))?;
    Ok(Checked { archive: manifest.archive, format: manifest.format, counts, predicates, base })
}

/// Checks what only searches go by, which archives of the first form have not.
fn searches(folder: &Path, there: &Sorted, counts: &mut Counts) -> Result<(), CliError> {
    let (path, mut named) = (folder.join(TOKENS), Sorting::new());
    each(&path, |tokens: &ArchivedTokens| {
        tokens.check().map_err(|(field, reason)| format!("{field}: {reason}"))?;
        counts.tokens += 1;
        named.add(tokens.document, counts.tokens).map_err(unsorted)
    })?;
    let named = all_there(&path, named, there)?;
    once(&path, &named)?;
    let (path, mut named) = (folder.join(INDEXES), Sorting::new());
    each(&path, |index: &ArchivedIndex| {
        let members = index.members.as_deref().unwrap_or_default();
        counts.indexes += 1;
        counts.members += members.len() as u64;
        counts.members_outside = counts.members_outside.saturating_add(index.outside);
        members.iter().try_for_each(|id| named.add(*id, counts.indexes)).map_err(unsorted)
    })?;
    all_there(&path, named, there)?;
    let (path, mut named) = (folder.join(CONTEXTS), Sorting::new());
    each(&path, |context: &ArchivedContext| {
        counts.contexts += 1;
        counts.contexts_outside += u64::from(context.outside);
        let ids = if context.outside { Vec::new() } else { context.documents() };
        ids.into_iter().try_for_each(|id| named.add(id, counts.contexts)).map_err(unsorted)
    })?;
    all_there(&path, named, there).map(|_| ())
}

/// Checks that every document that a file names is in the archive.
fn all_there(path: &Path, named: Sorting, there: &Sorted) -> Result<Sorted, CliError> {
    let at_fault = |error| faulty(path, None, &unsorted(error));
    let named = named.sorted().map_err(at_fault)?;
    match named.missing(there).map_err(at_fault)? {
        Some((id, line)) => Err(faulty_at(path, line, &format!("names the document {id}, which the archive has not"))),
        None => Ok(named),
    }
}

/// Checks that no two lines have an id.
fn once(path: &Path, ids: &Sorted) -> Result<(), CliError> {
    match ids.repeated().map_err(|error| faulty(path, None, &unsorted(error)))? {
        Some((id, line)) => Err(faulty_at(path, line, &format!("has the id {id}, which an earlier line has"))),
        None => Ok(()),
    }
}

/// Why what an archive names could not be put in order.
pub fn unsorted(error: io::Error) -> String {
    let folder = std::env::temp_dir();
    format!("cannot be sorted in {}: {error}; TMPDIR names a folder with more room", folder.display())
}

/// A number that stands for an IRI.
fn number(iri: &str) -> i64 {
    let hash = Sha256::digest(iri);
    i64::from_be_bytes(std::array::from_fn(|at| hash[at]))
}

fn manifest(folder: &Path) -> Result<Manifest, CliError> {
    let path = folder.join(MANIFEST);
    let mut text = String::new();
    let metadata = fs::symlink_metadata(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            faulty(folder, None, "has no manifest.json: it is no archive of `svc export`, or one that is not finished")
        }
        _ => at(&path)(error),
    })?;
    if !metadata.is_file() {
        return Err(faulty(&path, None, "is no plain file"));
    }
    if fs::symlink_metadata(folder.join(BLOBS)).is_ok_and(|metadata| !metadata.is_dir()) {
        return Err(faulty(&folder.join(BLOBS), None, "is no folder"));
    }
    let file = File::open(&path).map_err(at(&path))?;
    file.take(MANIFEST_BYTES).read_to_string(&mut text).map_err(at(&path))?;
    // The number comes first, because another form may have other fields.
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| faulty(&path, None, &format!("is damaged: {error}")))?;
    match value["format"].as_u64() {
        Some(format) if (1..=u64::from(FORMAT)).contains(&format) => {}
        format => {
            let format = format.map_or_else(|| "none".to_owned(), |format| format.to_string());
            let reason =
                format!("says the form {format}, and this version knows 1 to {FORMAT}: use the release that made it");
            return Err(faulty(&path, None, &reason));
        }
    }
    let manifest: Manifest =
        serde_json::from_value(value).map_err(|error| faulty(&path, None, &format!("is damaged: {error}")))?;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if !(8..=64).contains(&manifest.archive.len()) || !manifest.archive.bytes().all(is_word) {
        return Err(faulty(&path, None, "has a name of the archive that no export gives"));
    }
    let known = files(manifest.format);
    if let Some(other) = manifest.files.iter().find(|file| !known.contains(&file.name.as_str())) {
        let reason = format!("lists the file {}, which no archive has", one_line(&other.name, 100));
        return Err(faulty(&path, None, &reason));
    }
    Ok(manifest)
}

/// Checks the documents: each once, after its parent, and with the bytes of its file beside it.
fn documents(folder: &Path, counts: &mut Counts) -> Result<Sorted, CliError> {
    let (path, mut ids) = (folder.join(DOCUMENTS), Sorting::new());
    // The documents that the next one may lie under, with their levels in the archive. Everything under a document comes before what is not,
    // so that this is short; but what is under a detached document ends only where a document comes that is under another one.
    let mut above: Vec<(i64, usize)> = Vec::new();
    each(&path, |document: &ArchivedDocument| {
        document.check().map_err(|(field, reason)| format!("{field}: {reason}"))?;
        counts.documents += 1;
        ids.add(document.id, counts.documents).map_err(unsorted)?;
        let level = match document.parent {
            Some(parent) => {
                let Some(at) = above.iter().rposition(|(id, _)| *id == parent) else {
                    return Err(format!("has the parent {parent}, which does not come before it or is not above it"));
                };
                above.truncate(at + 1);
                above[at].1 + 1
            }
            None if document.detached => 0,
            None => {
                above.clear();
                0
            }
        };
        if level == DEEPEST {
            return Err(format!("lies under {DEEPEST} documents: no store has one that deep"));
        }
        above.push((document.id, level));
        counts.vectors += u64::from(document.vector.is_some());
        let Some(file) = &document.file else { return Ok(()) };
        counts.files += 1;
        counts.file_bytes += file.byte_size.unsigned_abs();
        // The hash is one by its form, so that this path does not leave the folder.
        let path = blob(folder, &file.content_hash);
        let metadata = fs::symlink_metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if !metadata.is_file() || metadata.len() != file.byte_size.unsigned_abs() {
            return Err(format!("{} is no plain file of {} bytes", path.display(), file.byte_size));
        }
        let (_, found) = hash(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        match format!("sha256:{found}") == file.content_hash {
            true => Ok(()),
            false => Err(format!("{BLOBS}/{found} stands there under another hash: it was changed or damaged")),
        }
    })?;
    let ids = ids.sorted().map_err(|error| faulty(&path, None, &unsorted(error)))?;
    once(&path, &ids)?;
    Ok(ids)
}

/// The ids of the documents of a file, in order; or that of a document of which its lines do not agree.
pub fn disagreement(path: &Path) -> Result<Result<Sorted, i64>, CliError> {
    #[derive(Deserialize)]
    struct Named {
        id: i64,
        parent: Option<i64>,
        guard: Option<i64>,
        #[serde(default)]
        private: bool,
    }
    let at_fault = |error| faulty(path, None, &unsorted(error));
    let mut lines = Lines::open(path)?;
    let (mut ids, mut private, mut above, mut guards) =
        (Sorting::new(), Sorting::new(), Sorting::new(), Sorting::new());
    while let Some((number, line)) = lines.next()? {
        let named: Named = read(path, number, &line)?;
        let line = number as u64;
        ids.add(named.id, line).map_err(at_fault)?;
        for (sorting, id) in
            [(&mut private, named.private.then_some(named.id)), (&mut above, named.parent), (&mut guards, named.guard)]
        {
            id.map_or(Ok(()), |id| sorting.add(id, line)).map_err(at_fault)?;
        }
    }
    let ids = ids.sorted().map_err(at_fault)?;
    let private = private.sorted().map_err(at_fault)?;
    let twice = ids.repeated().map_err(at_fault)?;
    let gone = above.sorted().and_then(|above| above.missing(&ids)).map_err(at_fault)?;
    let closed = guards.sorted().and_then(|guards| guards.missing(&private)).map_err(at_fault)?;
    match twice.or(gone).or(closed) {
        Some((id, _)) => Ok(Err(id)),
        // Each row of the other files looks for its documents there.
        None => ids.merged().map(Ok).map_err(at_fault),
    }
}

/// Reads the rows of a file, one a line.
fn each<T: DeserializeOwned>(path: &Path, mut row: impl FnMut(&T) -> Result<(), String>) -> Result<(), CliError> {
    let mut lines = Lines::open(path)?;
    while let Some((number, line)) = lines.next()? {
        let value: T = read(path, number, &line)?;
        row(&value).map_err(|reason| faulty(path, Some(number), &reason))?;
    }
    Ok(())
}

/// A row of a line.
pub fn read<T: DeserializeOwned>(path: &Path, number: usize, line: &[u8]) -> Result<T, CliError> {
    serde_json::from_slice(line).map_err(|error| faulty(path, Some(number), &error.to_string()))
}

/// The lines of a file, numbered from 1.
pub struct Lines<'a> {
    path: &'a Path,
    input: BufReader<File>,
    number: usize,
}

impl<'a> Lines<'a> {
    pub fn open(path: &'a Path) -> Result<Lines<'a>, CliError> {
        Ok(Lines { path, input: BufReader::with_capacity(1 << 16, File::open(path).map_err(at(path))?), number: 0 })
    }

    pub fn next(&mut self) -> Result<Option<(usize, Vec<u8>)>, CliError> {
        let mut line = Vec::new();
        self.number += 1;
        let read = self.input.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line);
        read.map_err(at(self.path))?;
        match line.pop() {
            None => Ok(None),
            Some(b'\n') => Ok(Some((self.number, line))),
            Some(_) if line.len() as u64 + 1 == LINE_BYTES => {
                let reason = format!("is longer than {} MiB", LINE_BYTES >> 20);
                Err(faulty(self.path, Some(self.number), &reason))
            }
            Some(_) => Err(faulty(self.path, Some(self.number), "is cut off: it has no end")),
        }
    }
}

/// Refuses a row that no import would read.
pub fn fits(path: &Path, line: &[u8]) -> Result<(), CliError> {
    if line.len() as u64 <= LINE_BYTES {
        return Ok(());
    }
    let begin = one_line(&String::from_utf8_lossy(&line[..100]), 100);
    let reason = format!(
        "would have a line of more than {} MiB, which no import takes: change or delete what begins with {begin}, and run the same command again",
        LINE_BYTES >> 20
    );
    Err(faulty(path, None, &reason))
}

/// Names a file, and a line of it.
pub fn faulty(path: &Path, line: Option<usize>, reason: &str) -> CliError {
    let path = one_line(&path.display().to_string(), 400);
    CliError::Other(match line {
        Some(line) => format!("{path}, line {line}: {reason}"),
        None => format!("{path}: {reason}"),
    })
}

fn faulty_at(path: &Path, line: u64, reason: &str) -> CliError {
    faulty(path, Some(usize::try_from(line).unwrap_or(usize::MAX)), reason)
}

/// The parser of the facts of an archive.
pub fn parser(path: &Path) -> Result<ReaderTurtleParser<BufReader<File>>, CliError> {
    let file = File::open(path).map_err(at(path))?;
    Ok(TurtleParser::new().for_reader(BufReader::with_capacity(1 << 16, file)))
}

/// Where a text breaks the grammar.
pub fn no_turtle(path: &Path, error: &oxttl::TurtleParseError) -> CliError {
    match error {
        oxttl::TurtleParseError::Io(error) => faulty(path, None, &error.to_string()),
        oxttl::TurtleParseError::Syntax(error) => {
            let line = usize::try_from(error.location().start.line).unwrap_or(usize::MAX);
            faulty(path, Some(line.saturating_add(1)), error.message())
        }
    }
}

/// The predicates that facts use, and what the IRIs of the other store begin with.
fn facts(path: &Path) -> Result<(Sorted, Option<String>), CliError> {
    const PREDICATE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#predicate";
    let at_fault = |error| faulty(path, None, &unsorted(error));
    let (mut parser, mut used, mut triples) = (parser(path)?, Sorting::new(), 0);
    for triple in parser.by_ref() {
        let triple = triple.map_err(|error| no_turtle(path, &error))?;
        triples += 1;
        if triple.predicate.as_str() == PREDICATE
            && let oxrdf::Term::NamedNode(predicate) = &triple.object
        {
            used.add(number(predicate.as_str()), triples).map_err(at_fault)?;
        }
    }
    let base = parser.prefixes().find(|(prefix, _)| *prefix == "document");
    let base = base.and_then(|(_, iri)| iri.strip_suffix("document/")).map(str::to_owned);
    let used = used.sorted().map_err(at_fault)?;
    if base.is_none() && !used.is_empty() {
        return Err(faulty(path, None, "does not say by its prefix `document` how documents are named"));
    }
    Ok((used, base))
}
