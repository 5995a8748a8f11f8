//! `svc export`: writes an archive, and goes on where it was stopped, also by a kill.
#[cfg(test)]
mod tests;

use super::{
    BLOBS, CONTEXTS, Counts, DOCUMENTS, FACTS, FILES, FORMAT, GRANTS, INDEXES, LINKS, Listed, MANIFEST, Manifest,
    PREDICATES, TOKENS, at, blob,
    checking::{disagreement, faulty, fits, unsorted},
    hash, put,
    sorted::Sorted,
};
use crate::{
    cli::{
        CliError, INTERRUPTED,
        bytes::download,
        destination::Named,
        output::{Output, count, say},
        patience::{patient, unless_silent},
    },
    disk,
    usetype::Usetype,
};
use chrono::Utc;
use clap::Args;
use futures_util::TryStreamExt;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
};
use svc_client::{
    Client, Code, Remote,
    wire::{ArchiveQuery, NewPredicate, PredicateQuery, PredicateResponse, TurtleQuery},
};

/// The usetype of files.
const FILE: &str = Usetype::File.as_str();
/// The rows of a page.
const ROWS: u32 = 500;
/// How often all documents are read if some move meanwhile.
const READINGS: usize = 3;
/// How far an export has come. It goes with the end of the export.
const PROGRESS: &str = "progress.json";

#[derive(Args)]
pub struct ExportArguments {
    /// The folder for the archive, which must be empty or not there yet.
    folder: PathBuf,
    /// Only this document and what is under it.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
}

/// A part of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Documents,
    Tokens,
    Links,
    Grants,
    Indexes,
    Contexts,
    Predicates,
    Facts,
}

impl Stage {
    fn file(self) -> &'static str {
        match self {
            Stage::Documents => DOCUMENTS,
            Stage::Tokens => TOKENS,
            Stage::Links => LINKS,
            Stage::Grants => GRANTS,
            Stage::Indexes => INDEXES,
            Stage::Contexts => CONTEXTS,
            Stage::Predicates => PREDICATES,
            Stage::Facts => FACTS,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Progress {
    archive: String,
    version: String,
    pub(super) root: Option<i64>,
    /// The service and the caller: another one has other ids, or sees something else.
    source: String,
    stage: Stage,
    /// Where the next page begins.
    pub(super) cursor: Option<String>,
    /// The bytes of the file of the stage that are whole.
    length: u64,
    pub(super) counts: Counts,
    /// Files whose bytes the store has only for another document with the same ones, or not at all.
    without_bytes: u64,
}

pub async fn export(client: &Client<Remote>, output: Output, arguments: ExportArguments) -> Result<ExitCode, CliError> {
    let bar = ProgressBar::no_length();
    let done = tokio::select! {
        done = run(client, &arguments, &bar) => Some(done),
        _ = tokio::signal::ctrl_c() => None,
    };
    bar.finish_and_clear();
    let Some(manifest) = done.transpose()? else {
        crate::cli::output::tell!("stopped; run the same command again to go on");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    match output {
        Output::Json => Output::line(&manifest)?,
        Output::Table => {
            let Counts { documents, vectors, files, file_bytes, links, links_outside, grants, .. } = manifest.counts;
            let Counts { tokens, indexes, members_outside, contexts, contexts_outside, .. } = manifest.counts;
            let documents = count(usize::try_from(documents).unwrap_or(usize::MAX), "document", "documents");
            say!(
                "{documents}, {vectors} with a vector, {files} with {file_bytes} bytes, {links} links, {grants} grants"
            );
            say!("{tokens} documents with token vectors, {indexes} search indexes, {contexts} search contexts");
            if links_outside > 0 {
                say!("{links_outside} links have an end outside of the archive, so that an import leaves them out");
            }
            if members_outside > 0 || contexts_outside > 0 {
                say!(
                    "{members_outside} members of indexes are outside of the archive, and so is what {contexts_outside} contexts name; an import leaves them out"
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn run(client: &Client<Remote>, arguments: &ExportArguments, bar: &ProgressBar) -> Result<Manifest, CliError> {
    let caller = patient(async || client.read_caller().await).await?;
    let who = caller.principal.map_or_else(|| "owner".to_owned(), |principal| principal.id.to_string());
    let source = format!("{} as {who}", client.0.base());
    let mut export = Export::begin(&arguments.folder, arguments.under, source)?;
    loop {
        export.take_up()?;
        if export.progress.stage != Stage::Documents && !export.know_documents().await? {
            export.read_again()?;
            continue;
        }
        match export.progress.stage {
            Stage::Documents => export.documents(client, bar).await?,
            Stage::Tokens => export.tokens(client).await?,
            Stage::Links => export.links(client).await?,
            Stage::Grants => export.grants(client).await?,
            Stage::Indexes => export.indexes(client).await?,
            Stage::Contexts => export.contexts(client).await?,
            Stage::Predicates => export.predicates(client).await?,
            Stage::Facts => {
                export.facts(client).await?;
                if export.progress.without_bytes > 0 {
                    crate::cli::output::tell!(
                        "{} files have no bytes of their own: another document holds the same, or they were imported without; their text is in the archive",
                        export.progress.without_bytes
                    );
                }
                return export.finish();
            }
        }
    }
}

/// An archive on its way, under the name of its folder and `.part`.
pub(super) struct Export {
    part: PathBuf,
    folder: PathBuf,
    pub(super) progress: Progress,
    /// The documents of which one came twice in each reading.
    moved: Vec<i64>,
    /// The documents of the archive, once all of them are there.
    documents: Option<Sorted>,
    out: File,
    /// Keeps a second export away.
    _held: File,
}

impl Export {
    fn begin(folder: &Path, root: Option<i64>, source: String) -> Result<Export, CliError> {
        // Without the slash that a shell puts behind a folder, so that the archive on its way stands beside the folder and not in it.
        let folder: PathBuf = std::path::absolute(folder).map_err(at(folder))?.components().collect();
        // The archive gets this name at the end, after hours.
        if let Some((what, remedy)) = disk::in_the_way(&folder) {
            let path = folder.display();
            return Err(CliError::Other(format!("{path} {what}, which a folder cannot take the place of: {remedy}")));
        }
        let is_empty = match fs::read_dir(&folder) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(at(&folder)(error)),
        };
        if !is_empty {
            let path = folder.display();
            return Err(CliError::Other(format!("{path} is not empty: name a folder that is empty or not there yet")));
        }
        let mut name = folder.clone().into_os_string();
        name.push(".part");
        let part = PathBuf::from(name);
        let made = DirBuilder::new().mode(0o700).create(&part);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(&part)(error)),
            Err(_) => {
                // Whoever may write beside the archive could have put it there, to have all texts.
                let there = fs::symlink_metadata(&part).map_err(at(&part))?;
                let is_own = there.uid() == rustix::process::geteuid().as_raw() && there.mode() & 0o077 == 0;
                if !(there.is_dir() && is_own) {
                    return Err(broken(&part, "it is no folder that this user alone may enter"));
                }
            }
            Ok(()) => {}
        }
        let lock = part.join("lock");
        let held = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock);
        let held = held.map_err(at(&lock))?;
        held.try_lock().map_err(|_| {
            CliError::Other(format!("another export is being written to {}: wait for its end", folder.display()))
        })?;
        let progress = match fs::read(part.join(PROGRESS)) {
            Ok(text) => {
                let progress: Progress = serde_json::from_slice(&text).map_err(|error| broken(&part, error))?;
                if progress.root != root || progress.version != env!("CARGO_PKG_VERSION") || progress.source != source {
                    return Err(broken(&part, "it is of another document, release, service or caller"));
                }
                progress
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Progress {
                archive: uuid::Uuid::new_v4().simple().to_string(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                root,
                source,
                stage: Stage::Documents,
                cursor: None,
                length: 0,
                counts: Counts::default(),
                without_bytes: 0,
            },
            Err(error) => return Err(at(&part.join(PROGRESS))(error)),
        };
        let blobs = part.join(BLOBS);
        match DirBuilder::new().mode(0o700).create(&blobs) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(&blobs)(error)),
            _ => {}
        }
        let out = held.try_clone().map_err(at(&lock))?;
        Ok(Export { part, folder, progress, moved: Vec::new(), documents: None, out, _held: held })
    }

    /// Opens the file of the stage where its whole rows end.
    fn take_up(&mut self) -> Result<(), CliError> {
        let path = self.part.join(self.progress.stage.file());
        let open = || {
            let mut file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            file.set_len(self.progress.length)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        self.out = open().map_err(at(&path))?;
        Ok(())
    }

    /// Finds out which documents the archive has. Returns false if its pages do not agree: if it has a document twice, because that moved between two
    /// pages, as ingestion moves the parts of a file into segments; if a document was closed, and what came under it later is closed by it alone; or if
    /// a document lacks its parent, which its caller might not read before.
    async fn know_documents(&mut self) -> Result<bool, CliError> {
        if self.documents.is_some() {
            return Ok(true);
        }
        let path = self.part.join(DOCUMENTS);
        let look = move || disagreement(&path);
        let looked = tokio::task::spawn_blocking(look).await.map_err(|error| CliError::Other(error.to_string()))?;
        match looked? {
            Ok(documents) => {
                self.documents = Some(documents);
                Ok(true)
            }
            Err(id) => {
                self.moved.push(id);
                Ok(false)
            }
        }
    }

    /// Has everything read once more. The bytes of files stay, since they have their hashes for names.
    fn read_again(&mut self) -> Result<(), CliError> {
        if self.moved.len() >= READINGS {
            let moved: Vec<String> = self.moved.iter().map(i64::to_string).collect();
            return Err(CliError::Other(format!(
                "documents moved, or were closed or opened, each time while all were read, such as {}; run the same command again when nothing is \
                 being moved, closed or ingested",
                moved.join(", ")
            )));
        }
        crate::cli::output::tell!(
            "document {} moved, or was closed or opened, while all were read; they are read again",
            self.moved[self.moved.len() - 1]
        );
        self.progress.counts = Counts::default();
        self.progress.without_bytes = 0;
        (self.progress.cursor, self.progress.length) = (None, 0);
        self.proceed(None, Stage::Documents)
    }

    /// Whether the archive has a document. What came after its documents were read is outside of it.
    pub(super) fn has(&self, id: i64) -> Result<bool, CliError> {
        let path = self.part.join(DOCUMENTS);
        let found = self.documents.as_ref().map_or(Ok(false), |documents| documents.has(id));
        found.map_err(|error| faulty(&path, None, &unsorted(error)))
    }

    /// The rows whose documents the archive has.
    fn kept<T>(&self, rows: Vec<T>, document: impl Fn(&T) -> i64) -> Result<Vec<T>, CliError> {
        let mut kept = Vec::with_capacity(rows.len());
        for row in rows {
            if self.has(document(&row))? {
                kept.push(row);
            }
        }
        Ok(kept)
    }

    /// Writes rows, which are whole once this returns.
    pub(super) fn write<T: Serialize>(
        &mut self,
        rows: &[T],
        next: Option<String>,
        then: Stage,
    ) -> Result<(), CliError> {
        let path = self.part.join(self.progress.stage.file());
        let mut text = Vec::new();
        for row in rows {
            let begin = text.len();
            serde_json::to_writer(&mut text, row).map_err(|error| CliError::Other(error.to_string()))?;
            text.push(b'\n');
            fits(&path, &text[begin..])?;
        }
        self.out.write_all(&text).and_then(|()| self.out.sync_all()).map_err(at(&path))?;
        self.progress.length += text.len() as u64;
        self.proceed(next, then)
    }

    /// Keeps how far it has come; without a next page the next stage begins.
    fn proceed(&mut self, next: Option<String>, then: Stage) -> Result<(), CliError> {
        if next.is_none() {
            (self.progress.stage, self.progress.length) = (then, 0);
        }
        self.progress.cursor = next;
        let path = self.part.join(PROGRESS);
        put(&path, &self.progress).map_err(at(&path))
    }

    fn query(&self) -> ArchiveQuery {
        ArchiveQuery { parent_id: self.progress.root, cursor: self.progress.cursor.clone(), limit: Some(ROWS) }
    }

    async fn documents(&mut self, client: &Client<Remote>, bar: &ProgressBar) -> Result<(), CliError> {
        loop {
            let query = self.query();
            let page = patient(async || client.export_documents(query.clone()).await).await;
            if let (Err(failure), Some(root)) = (&page, self.progress.root)
                && failure.members.get("field").is_some_and(|field| field == "cursor")
            {
                // The document that the archive is of moved, and with it the place where the next page begins.
                self.moved.push(root);
                return self.read_again();
            }
            let mut page = page?;
            for document in &mut page.documents {
                // An import refuses the whole archive for it, and by then the store may be gone.
                document.check().map_err(|(field, reason)| {
                    CliError::Other(format!(
                        "document {} cannot go into an archive, because its `{field}` {reason}: change or delete it, and run the same command again",
                        document.id
                    ))
                })?;
                if let Some(file) = &document.file {
                    let (id, hash) = (document.id, file.content_hash.clone());
                    if self.fetch(client, id, &hash).await? {
                        self.progress.counts.files += 1;
                        self.progress.counts.file_bytes += file.byte_size.unsigned_abs();
                    } else {
                        // It was deleted meanwhile.
                        document.file = None;
                    }
                }
                self.progress.without_bytes += u64::from(document.usetype == FILE && document.file.is_none());
                self.progress.counts.vectors += u64::from(document.vector.is_some());
            }
            self.progress.counts.documents += page.documents.len() as u64;
            bar.set_position(self.progress.counts.documents);
            let is_last = page.next_cursor.is_none();
            self.write(&page.documents, page.next_cursor, Stage::Tokens)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Fetches the bytes of a file, unless they are there; false if the document is gone.
    async fn fetch(&self, client: &Client<Remote>, id: i64, content_hash: &str) -> Result<bool, CliError> {
        // The hash is one by its form, so that this path does not leave the folder.
        let path = blob(&self.part, content_hash);
        if path.exists() {
            return Ok(true);
        }
        let fresh = self.part.join("bytes.new");
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
        let file = file.map_err(at(&fresh))?;
        match download(client, id, &mut Named::new(fresh.display(), &file)).await {
            Ok(_) => {}
            Err(CliError::Call(failure)) if failure.code == Code::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        file.sync_all().map_err(at(&fresh))?;
        let of = fresh.clone();
        let found = tokio::task::spawn_blocking(move || hash(&of)).await;
        let (_, found) = found.map_err(|error| CliError::Other(error.to_string()))?.map_err(at(&fresh))?;
        if format!("sha256:{found}") != content_hash {
            return Err(CliError::Other(format!(
                "the bytes of the file {id} have not the hash that they were stored with"
            )));
        }
        fs::rename(&fresh, &path).map_err(at(&path))?;
        Ok(true)
    }

    async fn tokens(&mut self, client: &Client<Remote>) -> Result<(), CliError> {
        loop {
            let query = self.query();
            let page = patient(async || client.export_tokens(query.clone()).await).await?;
            let rows = self.kept(page.tokens, |tokens| tokens.document)?;
            self.progress.counts.tokens += rows.len() as u64;
            let is_last = page.next_cursor.is_none();
            self.write(&rows, page.next_cursor, Stage::Links)?;
            if is_last {
                return Ok(());
            }
        }
    }

    async fn links(&mut self, client: &Client<Remote>) -> Result<(), CliError> {
        loop {
            let query = self.query();
            let mut page = patient(async || client.export_links(query.clone()).await).await?;
            for link in &mut page.links {
                link.outside = link.outside || !self.has(link.source)? || !self.has(link.target)?;
            }
            self.progress.counts.links += page.links.len() as u64;
            self.progress.counts.links_outside += page.links.iter().filter(|link| link.outside).count() as u64;
            let is_last = page.next_cursor.is_none();
            self.write(&page.links, page.next_cursor, Stage::Grants)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Grants are the owner's to see.
    async fn grants(&mut self, client: &Client<Remote>) -> Result<(), CliError> {
        loop {
            let query = self.query();
            let page = match patient(async || client.export_grants(query.clone()).await).await {
                Err(failure) if failure.code == Code::Forbidden => {
                    return self.write::<()>(&[], None, Stage::Indexes);
                }
                page => page?,
            };
            let rows = self.kept(page.grants, |grant| grant.document)?;
            self.progress.counts.grants += rows.len() as u64;
            let is_last = page.next_cursor.is_none();
            self.write(&rows, page.next_cursor, Stage::Indexes)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Only what all may read, because a predicate that is created is shown to all. Others come with their facts.
    async fn predicates(&mut self, client: &Client<Remote>) -> Result<(), CliError> {
        loop {
            let query = PredicateQuery {
                cursor: self.progress.cursor.clone(),
                limit: Some(ROWS),
                open: true,
                ..PredicateQuery::default()
            };
            let page = patient(async || client.list_predicates(query.clone()).await).await?;
            let rows: Vec<NewPredicate> = page.predicates.into_iter().map(without_ids).collect();
            self.progress.counts.predicates += rows.len() as u64;
            let is_last = page.next_cursor.is_none();
            self.write(&rows, page.next_cursor, Stage::Facts)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// All facts are of one moment, so that this begins anew if it was stopped.
    async fn facts(&mut self, client: &Client<Remote>) -> Result<(), CliError> {
        let path = self.part.join(FACTS);
        let query = TurtleQuery { parent_id: self.progress.root, history: true, ..TurtleQuery::default() };
        let mut pieces = patient(async || client.export_turtle(query.clone()).await).await?;
        while let Some(piece) = unless_silent(pieces.try_next()).await? {
            self.out.write_all(&piece).map_err(at(&path))?;
        }
        self.out.sync_all().map_err(at(&path))
    }

    /// Writes the manifest and gives the archive its name.
    fn finish(self) -> Result<Manifest, CliError> {
        let Export { part, folder, progress, out, .. } = self;
        drop(out);
        let mut files = Vec::new();
        for name in FILES {
            let path = part.join(name);
            let (bytes, sha256) = hash(&path).map_err(at(&path))?;
            files.push(Listed { name: name.to_owned(), bytes, sha256 });
        }
        let manifest = Manifest {
            format: FORMAT,
            archive: progress.archive,
            version: progress.version,
            exported_at: Utc::now(),
            root: progress.root,
            files,
            counts: progress.counts,
        };
        let path = part.join(MANIFEST);
        put(&path, &manifest).map_err(at(&path))?;
        for folder in [part.join(BLOBS), part.clone()] {
            File::open(&folder).and_then(|folder| folder.sync_all()).map_err(at(&folder))?;
        }
        fs::rename(&part, &folder).map_err(at(&folder))?;
        // Another export that found these gone before would begin in the finished archive.
        for name in [PROGRESS, "lock", "bytes.new"] {
            match fs::remove_file(folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&folder.join(name))(error)),
                _ => {}
            }
        }
        if let Some(parent) = folder.parent() {
            File::open(parent).and_then(|folder| folder.sync_all()).map_err(at(parent))?;
        }
        Ok(manifest)
    }
}

fn broken(part: &Path, reason: impl std::fmt::Display) -> CliError {
    CliError::Other(format!("{} is no export that goes on here ({reason}): remove it", part.display()))
}

/// A predicate as another store may create it. What it says of other predicates names them by their ids here.
fn without_ids(predicate: PredicateResponse) -> NewPredicate {
    NewPredicate {
        name: predicate.name,
        namespace: Some(predicate.namespace),
        iri: Some(predicate.iri),
        label: predicate.label,
        description: predicate.description,
        functional: predicate.functional,
        inverse_functional: predicate.inverse_functional,
        symmetric: predicate.symmetric,
        asymmetric: predicate.asymmetric,
        transitive: predicate.transitive,
        irreflexive: predicate.irreflexive,
        ..NewPredicate::default()
    }
}
