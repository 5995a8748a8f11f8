//! `svc import` of an archive: checks it whole, then sends it. Running it again sends what is missing.
#[cfg(test)]
mod tests;

use super::{
    Counts, DOCUMENTS, FACTS, GRANTS, LINKS, PREDICATES, TOKENS, blob,
    checking::{Checked, LINE_BYTES, Lines, check, faulty, no_turtle, parser, read, unsorted},
};
use crate::cli::{
    CliError, INTERRUPTED, VALUES,
    output::{Output, say},
    patience::Presence,
    values,
};
use indicatif::ProgressBar;
use oxrdf::{NamedOrBlankNode, Triple};
use serde::Serialize;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::ExitCode,
};
use svc_client::{
    Client, Code, Failure, FileUpload, Json, Meta, RdfSyntax, RdfText, Remote,
    wire::{
        ArchiveGrants, ArchiveIds, ArchiveLinks, ArchivePart, ArchiveTokens, ArchivedDocument, ArchivedFile,
        ArchivedGrant, ArchivedLink, ArchivedTokens, DocumentPath, ImportedArchive, ImportedBytesQuery,
        ImportedDocument, ImportedFacts, ImportedFactsQuery, ImportedRows, ImportedTokens, NewPredicate,
    },
};

/// The most documents and bytes of lines in one call. A call is one transaction, so a small one is soon over.
const ROWS: usize = 200;
const BYTES: usize = 4 << 20;
/// A call of other rows ends with the row by which it has so many bytes or values, because a row alone may bring 1 MiB or 100,000 values.
const ROW_BYTES: usize = 128 << 10;
const ROW_VALUES: usize = 64 << 10;
/// The most triples of facts in one call.
const TRIPLES: usize = 1_000;

/// What became of an archive.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    documents: u64,
    /// Those that an earlier import had stored.
    existing: u64,
    vectors: u64,
    /// Documents that are embedded anew.
    queued: u64,
    /// Containers that have no vector until their files are reprocessed.
    without_vector: u64,
    /// Documents that were in flight when they were exported, and are failed.
    in_flight: u64,
    iris_taken: u64,
    files: u64,
    /// Files whose bytes another document holds where the same callers read them.
    same_bytes: u64,
    links: ImportedRows,
    facts: ImportedFacts,
    predicates: u64,
    /// Predicates that this store has already, as it has them.
    predicates_existing: u64,
    /// Predicates without some of what the archive says of them, because this store does not take that.
    predicates_reduced: u64,
    grants: ImportedRows,
    /// Whether grants were left out, because they are the owner's to give.
    grants_left_out: bool,
    tokens: ImportedTokens,
    pub(super) indexes: ImportedRows,
    /// Members of indexes that the archive has not, or that are not here.
    pub(super) index_members_outside: u64,
    pub(super) contexts: ImportedRows,
    /// Whether search indexes and contexts were left out, because they are the owner's to make.
    pub(super) searches_left_out: bool,
}

pub async fn import(
    client: &Client<Remote>,
    output: Output,
    folder: &Path,
    parent: Option<i64>,
) -> Result<ExitCode, CliError> {
    let path = folder.to_path_buf();
    let checked = tokio::task::spawn_blocking(move || check(&path));
    let checked = checked.await.map_err(|error| CliError::Other(error.to_string()))??;
    let of = ImportedArchive { archive: checked.archive.clone(), parent_id: parent };
    let bar = ProgressBar::new(checked.counts.documents);
    let (folder, summary, presence) = (folder.to_path_buf(), Summary::default(), Presence::default());
    let mut importing = Importing { client, folder, of, checked, summary, bar, presence };
    let done = tokio::select! {
        done = importing.run() => Some(done),
        _ = tokio::signal::ctrl_c() => None,
    };
    importing.bar.finish_and_clear();
    let again = "run the same command again to go on: what is stored is not stored twice";
    match done {
        None => {
            crate::cli::output::tell!("stopped after {} documents; {again}", importing.summary.documents);
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Some(Err(error)) => {
            crate::cli::output::tell!(
                "{} documents are stored; once the reason below is mended, {again}",
                importing.summary.documents
            );
            return Err(error);
        }
        Some(Ok(())) => {}
    }
    match output {
        Output::Json => Output::line(&importing.summary)?,
        Output::Table => shown(&importing.summary, &importing.checked.counts)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(summary: &Summary, counts: &Counts) -> Result<(), CliError> {
    let Summary { documents, existing, vectors, queued, without_vector, in_flight, .. } = summary;
    say!("{documents} documents, {existing} of them stored before; {vectors} vectors taken over");
    for (number, what) in [
        (*queued, "documents are embedded anew, because their vectors are of another model or missing"),
        (*without_vector, "containers have no vector of this model: `svc reprocess` of their files makes it"),
        (*in_flight, "documents were in flight when they were exported, and are failed: reprocess their files"),
        (summary.iris_taken, "IRIs stay with documents that have them already"),
        (
            summary.same_bytes,
            "files are stored here already, where the same callers read them; their copies have no bytes, and the same import brings these once the others are gone",
        ),
    ] {
        if number > 0 {
            say!("{number} {what}");
        }
    }
    say!("{} files, {} links, {} predicates", summary.files, summary.links.created, summary.predicates);
    if summary.predicates_reduced > 0 {
        say!("{} predicates lack what this store does not take of them", summary.predicates_reduced);
    }
    let ImportedFacts { created, merged, existing, outside, left_out } = summary.facts;
    say!(
        "{} facts: {existing} known before; {left_out} were no longer believed or derived",
        created + merged + existing
    );
    if summary.links.outside > 0 || outside > 0 {
        say!(
            "{} links and {outside} facts are left out, because an end is not here or a fact is about what you may not change",
            summary.links.outside
        );
    }
    let ImportedTokens { created, existing, left_out, .. } = summary.tokens;
    say!("{} documents with token vectors", created + existing);
    if left_out > 0 {
        say!(
            "the token vectors of {left_out} documents are of another model, width or text: an index that keeps such, or `svc reprocess`, makes them"
        );
    }
    let (indexes, contexts) = (&summary.indexes, &summary.contexts);
    match summary.searches_left_out {
        true => say!("search indexes and contexts are the owner's to make, and are left out"),
        false => say!("{} search indexes, {} search contexts", indexes.created, contexts.created),
    }
    if summary.index_members_outside > 0 {
        say!("{} members of search indexes are not here, and are left out", summary.index_members_outside);
    }
    if indexes.existing + contexts.existing > 0 {
        say!(
            "{} indexes and {} contexts stay as they are here, because their names are taken",
            indexes.existing,
            contexts.existing
        );
    }
    if indexes.outside + contexts.outside > 0 {
        say!(
            "{} indexes and {} contexts are of documents or indexes that are not here, and are left out",
            indexes.outside,
            contexts.outside
        );
    }
    match summary.grants_left_out {
        true => say!("{} grants are the owner's to give, and are left out", counts.grants),
        false => {
            say!("{} grants; {} name a principal that is not here", summary.grants.created, summary.grants.outside)
        }
    }
    Ok(())
}

pub(super) struct Importing<'a> {
    pub(super) client: &'a Client<Remote>,
    pub(super) folder: PathBuf,
    of: ImportedArchive,
    checked: Checked,
    pub(super) summary: Summary,
    bar: ProgressBar,
    /// The service may be gone for a moment, and the archive is not checked once more for that.
    pub(super) presence: Presence,
}

impl Importing<'_> {
    async fn run(&mut self) -> Result<(), CliError> {
        self.documents().await?;
        let is_of_the_first_form = self.checked.format == 1;
        if !is_of_the_first_form {
            self.tokens().await?;
        }
        self.links().await?;
        self.predicates().await?;
        self.facts().await?;
        self.grants().await?;
        if !is_of_the_first_form {
            // An index that keeps token vectors makes those that are not here by now.
            self.indexes().await?;
            self.contexts().await?;
        }
        Ok(())
    }

    async fn documents(&mut self) -> Result<(), CliError> {
        let path = self.folder.join(DOCUMENTS);
        let mut lines = Lines::open(&path)?;
        let (mut batch, mut bytes, mut held) = (Vec::new(), 0, 0);
        while let Some((number, line)) = lines.next()? {
            let of_line = values(&line);
            let is_full = batch.len() == ROWS || bytes + line.len() > BYTES || held + of_line > VALUES;
            if !batch.is_empty() && is_full {
                self.send(&path, std::mem::take(&mut batch)).await?;
                (bytes, held) = (0, 0);
            }
            bytes += line.len();
            held += of_line;
            batch.push((number, read(&path, number, &line)?));
        }
        match batch.is_empty() {
            true => Ok(()),
            false => self.send(&path, batch).await,
        }
    }

    /// Stores documents that are missing, and the bytes of those that are files.
    async fn send(&mut self, path: &Path, batch: Vec<(usize, ArchivedDocument)>) -> Result<(), CliError> {
        let client = self.client;
        let ids: Vec<i64> = batch.iter().map(|(_, document)| document.id).collect();
        let known = self.found(&ids).await?;
        let files: Vec<(usize, i64, ArchivedFile)> = batch
            .iter()
            .filter_map(|(number, document)| Some((*number, document.id, document.file.clone()?)))
            .collect();
        let total = batch.len() as u64;
        let missing: Vec<(usize, ArchivedDocument)> =
            batch.into_iter().filter(|(_, document)| !known.contains_key(&document.id)).collect();
        let mut ids = known.clone();
        let mut open = vec![missing];
        while let Some(mut part) = open.pop().filter(|part| !part.is_empty()) {
            let documents: Vec<ArchivedDocument> = part.iter().map(|(_, document)| document.clone()).collect();
            let call = async || {
                let part = ArchivePart { documents: documents.clone() };
                client.import_documents(self.of.clone(), Json(part)).await
            };
            let done = self.presence.patient_again(call).await;
            let failure = match done {
                Ok(done) => {
                    self.summary.vectors += u64::from(done.vectors);
                    self.summary.queued += u64::from(done.queued);
                    self.summary.without_vector += u64::from(done.without_vector);
                    self.summary.in_flight += u64::from(done.in_flight);
                    self.summary.iris_taken += done.iris_taken.len() as u64;
                    ids.extend(done.documents.iter().map(|made| (made.id, made.document_id)));
                    continue;
                }
                Err(failure) => failure,
            };
            let index = failure.members.get("index").and_then(|index| usize::try_from(index.as_u64()?).ok());
            match index.or((part.len() == 1).then_some(0)) {
                // One of them is at fault, and the service cannot say which.
                None if matches!(failure.code, Code::InvalidField | Code::TooLarge) => {
                    let second = part.split_off(part.len() / 2);
                    open.extend([second, part]);
                }
                index => {
                    let line = index.and_then(|index| part.get(index)).map(|(number, _)| *number);
                    return Err(refused(path, line, failure));
                }
            }
        }
        self.summary.documents += total;
        self.summary.existing += known.len() as u64;
        for (number, old, file) in files {
            let Some(id) = ids.get(&old).copied() else {
                return Err(faulty(path, Some(number), "is not stored"));
            };
            // What was stored before may have got its bytes, or not.
            if !known.contains_key(&old) || !self.has_bytes(id).await? {
                self.upload(id, &file).await.map_err(|failure| match failure {
                    CliError::Call(failure) => refused(path, Some(number), failure),
                    other => other,
                })?;
            }
        }
        self.bar.set_position(self.summary.documents);
        Ok(())
    }

    /// The documents of these ids that are stored.
    pub(super) async fn found(&self, ids: &[i64]) -> Result<HashMap<i64, i64>, CliError> {
        let call = async || self.client.find_imported(self.of.clone(), Json(ArchiveIds { ids: ids.to_vec() })).await;
        let found = self.presence.patient_again(call).await?.documents;
        Ok(found.into_iter().map(|ImportedDocument { id, document_id, .. }| (id, document_id)).collect())
    }

    async fn has_bytes(&self, id: i64) -> Result<bool, CliError> {
        // The answer to a caller that knows every version has no body, so the service reads none of the bytes.
        let known = Meta { if_none_match: Some("*".to_owned()), ..Meta::default() };
        let call = async || self.client.given(known.clone()).read_bytes(DocumentPath { id }).await;
        match self.presence.patient_again(call).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code == Code::NotFound => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn upload(&mut self, id: i64, file: &ArchivedFile) -> Result<(), CliError> {
        let path = blob(&self.folder, &file.content_hash);
        let query = ImportedBytesQuery {
            mime_type: file.mime_type.clone(),
            detected_by: file.detected_by,
            format: file.format.clone(),
        };
        let call = async || {
            let upload = FileUpload::from_path(&path, Some(file.options.clone())).await;
            let upload = upload.map_err(|error| Failure::field("file", format!("{}: {error}", path.display())))?;
            let upload = FileUpload { declared_mime: file.declared_mime.clone(), ..upload };
            self.client.import_bytes(DocumentPath { id }, query.clone(), upload).await
        };
        match self.presence.patient_again(call).await?.same_as {
            Some(_) => self.summary.same_bytes += 1,
            None => self.summary.files += 1,
        }
        Ok(())
    }

    async fn tokens(&mut self) -> Result<(), CliError> {
        let path = self.folder.join(TOKENS);
        let mut lines = Lines::open(&path)?;
        let (mut batch, mut bytes, mut first): (Vec<ArchivedTokens>, usize, usize) = (Vec::new(), 0, 1);
        while let Some((number, line)) = lines.next()? {
            if batch.len() == ROWS || (!batch.is_empty() && bytes + line.len() > BYTES) {
                self.send_tokens(&path, first, std::mem::take(&mut batch)).await?;
                (bytes, first) = (0, number);
            }
            bytes += line.len();
            batch.push(read(&path, number, &line)?);
        }
        match batch.is_empty() {
            true => Ok(()),
            false => self.send_tokens(&path, first, batch).await,
        }
    }

    async fn send_tokens(&mut self, path: &Path, first: usize, tokens: Vec<ArchivedTokens>) -> Result<(), CliError> {
        let part = ArchiveTokens { tokens };
        let call = async || self.client.import_tokens(self.of.clone(), Json(part.clone())).await;
        let done = self.presence.patient_again(call).await.map_err(|failure| {
            let index = failure.members.get("index").and_then(|index| usize::try_from(index.as_u64()?).ok());
            refused(path, Some(first + index.unwrap_or_default()), failure)
        })?;
        let tokens = &mut self.summary.tokens;
        tokens.created += done.created;
        tokens.existing += done.existing;
        tokens.outside += done.outside;
        tokens.left_out += done.left_out;
        Ok(())
    }

    async fn links(&mut self) -> Result<(), CliError> {
        let path = self.folder.join(LINKS);
        let mut lines = Lines::open(&path)?;
        loop {
            let (batch, first) = rows::<ArchivedLink>(&path, &mut lines)?;
            if batch.is_empty() {
                return Ok(());
            }
            // Those with an end outside are not sent: the other end is a document of the other store.
            let (outside, links): (Vec<ArchivedLink>, Vec<ArchivedLink>) =
                batch.into_iter().partition(|link| link.outside);
            self.summary.links.outside += u32::try_from(outside.len()).unwrap_or(u32::MAX);
            if links.is_empty() {
                continue;
            }
            let call =
                async || self.client.import_links(self.of.clone(), Json(ArchiveLinks { links: links.clone() })).await;
            let done =
                self.presence.patient_again(call).await.map_err(|failure| refused(&path, Some(first), failure))?;
            add(&mut self.summary.links, done);
        }
    }

    async fn grants(&mut self) -> Result<(), CliError> {
        let path = self.folder.join(GRANTS);
        let mut lines = Lines::open(&path)?;
        loop {
            let (grants, first) = rows::<ArchivedGrant>(&path, &mut lines)?;
            if grants.is_empty() {
                return Ok(());
            }
            let call = async || {
                self.client.import_grants(self.of.clone(), Json(ArchiveGrants { grants: grants.clone() })).await
            };
            match self.presence.patient_again(call).await {
                Ok(done) => add(&mut self.summary.grants, done),
                Err(failure) if failure.code == Code::Forbidden => {
                    self.summary.grants_left_out = true;
                    return Ok(());
                }
                Err(failure) => return Err(refused(&path, Some(first), failure)),
            }
        }
    }

    /// Makes the predicates of the facts that this store has not.
    async fn predicates(&mut self) -> Result<(), CliError> {
        let path = self.folder.join(PREDICATES);
        let own = self.checked.base.as_deref().map(|base| format!("{base}predicate/"));
        let at_fault = |error| faulty(&path, None, &unsorted(error));
        let (mut lines, mut used) = (Lines::open(&path)?, self.checked.predicates.rows().map_err(at_fault)?);
        let mut next = used.next().map_err(at_fault)?;
        while let Some((number, line)) = lines.next()? {
            if next.is_none_or(|(_, used)| used != number as u64) {
                continue;
            }
            next = used.next().map_err(at_fault)?;
            let predicate: NewPredicate = read(&path, number, &line)?;
            let iri = predicate.iri.clone().filter(|iri| own.as_ref().is_none_or(|own| !iri.starts_with(own)));
            let mut predicate = NewPredicate { iri, ..predicate };
            // Two ontologies may have said what no fact could fulfil.
            let mut is_reduced = predicate.symmetric && predicate.asymmetric;
            if is_reduced {
                (predicate.symmetric, predicate.asymmetric) = (false, false);
            }
            let NewPredicate { name, namespace, iri, label, description, .. } = predicate.clone();
            let bare = NewPredicate { name, namespace, iri, ..NewPredicate::default() };
            let mut made = self.create(&predicate).await;
            if made.as_ref().is_err_and(|failure| failure.code == Code::Forbidden) {
                // What holds of a predicate is the owner's to say.
                made = self.create(&NewPredicate { label, description, ..bare.clone() }).await;
            }
            if made.as_ref().is_err_and(|failure| failure.code == Code::InvalidField) {
                is_reduced = true;
                made = self.create(&bare).await;
            }
            match made {
                Ok(_) => {
                    self.summary.predicates += 1;
                    self.summary.predicates_reduced += u64::from(is_reduced);
                }
                Err(failure) if failure.code == Code::Conflict => self.summary.predicates_existing += 1,
                // Its facts bring it along, and it is seen by these alone.
                Err(failure) if failure.code == Code::Forbidden => {}
                Err(failure) if failure.code == Code::InvalidField => self.summary.predicates_reduced += 1,
                Err(failure) => return Err(refused(&path, Some(number), failure)),
            }
        }
        Ok(())
    }

    async fn create(&self, new: &NewPredicate) -> Result<(), Failure> {
        self.presence.patient_again(async || self.client.create_predicate(Json(new.clone())).await.map(|_| ())).await
    }

    /// Sends what describes the facts. A fact may stand there as a triple too, which says less.
    async fn facts(&mut self) -> Result<(), CliError> {
        let Some(base) = self.checked.base.clone() else { return Ok(()) };
        let path = self.folder.join(FACTS);
        let statement = format!("{base}triple/");
        let (mut facts, mut bytes, mut triples, mut last) = (Vec::<String>::new(), 0, 0, None::<String>);
        for triple in parser(&path)? {
            let triple: Triple = triple.map_err(|error| no_turtle(&path, &error))?;
            let NamedOrBlankNode::NamedNode(subject) = &triple.subject else { continue };
            if !subject.as_str().starts_with(&statement) {
                continue;
            }
            // What describes a fact stays together.
            let is_next = last.as_deref() != Some(subject.as_str());
            if is_next && (triples >= TRIPLES || bytes >= BYTES / 4) {
                self.assert(&path, &base, std::mem::take(&mut facts)).await?;
                (bytes, triples) = (0, 0);
            }
            if is_next {
                last = Some(subject.as_str().to_owned());
                facts.push(String::new());
            }
            if bytes as u64 > LINE_BYTES {
                let reason = format!("says more than {} MiB of {subject}", LINE_BYTES >> 20);
                return Err(faulty(&path, None, &reason));
            }
            let line = format!("{triple} .\n");
            bytes += line.len();
            triples += 1;
            if let Some(fact) = facts.last_mut() {
                fact.push_str(&line);
            }
        }
        match facts.is_empty() {
            true => Ok(()),
            false => self.assert(&path, &base, facts).await,
        }
    }

    /// Asserts facts, each of which is described by a text. What is too large for one call comes in two.
    async fn assert(&mut self, path: &Path, base: &str, facts: Vec<String>) -> Result<(), CliError> {
        let query = ImportedFactsQuery {
            archive: self.of.archive.clone(),
            parent_id: self.of.parent_id,
            base: base.to_owned(),
        };
        let mut open = vec![facts];
        while let Some(mut part) = open.pop() {
            let text = part.concat();
            let call = async || {
                let text = RdfText { syntax: RdfSyntax::NTriples, text: text.clone() };
                self.client.import_facts(query.clone(), text).await
            };
            match self.presence.patient_again(call).await {
                Ok(done) => self.add_facts(done),
                Err(failure) if failure.code == Code::TooLarge && part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    open.extend([second, part]);
                }
                Err(failure) => return Err(refused(path, None, failure)),
            }
        }
        Ok(())
    }

    fn add_facts(&mut self, done: ImportedFacts) {
        let facts = &mut self.summary.facts;
        facts.created += done.created;
        facts.merged += done.merged;
        facts.existing += done.existing;
        facts.outside += done.outside;
        facts.left_out += done.left_out;
    }
}

/// The next rows of a file, with the number of the first line.
fn rows<T: serde::de::DeserializeOwned>(path: &Path, lines: &mut Lines<'_>) -> Result<(Vec<T>, usize), CliError> {
    let (mut rows, mut first, mut bytes, mut held) = (Vec::new(), 0, 0, 0);
    while rows.len() < ROWS && bytes < ROW_BYTES && held < ROW_VALUES {
        let Some((number, line)) = lines.next()? else { break };
        if rows.is_empty() {
            first = number;
        }
        bytes += line.len();
        held += values(&line);
        rows.push(read(path, number, &line)?);
    }
    Ok((rows, first))
}

fn add(to: &mut ImportedRows, rows: ImportedRows) {
    to.created += rows.created;
    to.existing += rows.existing;
    to.outside += rows.outside;
}

/// What the service refuses, with the place in the archive.
pub(super) fn refused(path: &Path, line: Option<usize>, failure: Failure) -> CliError {
    match failure.code {
        // These are not of what the archive holds.
        Code::Unauthenticated
        | Code::Unreachable
        | Code::Unavailable
        | Code::TooManyRequests
        | Code::TimedOut
        | Code::StorageFull
        | Code::Internal => failure.into(),
        _ => faulty(path, line, &failure.to_string()),
    }
}
