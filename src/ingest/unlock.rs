//! A file that comes with its password is read before it is stored, because the password is stored nowhere; the tasks
//! find what was read.
use crate::{
    access::Caller,
    admission::Admission,
    core::Core,
    error::OrFail,
    ingest::{
        requeue::requeue,
        tasks::{
            split_extraction,
            types::{PROBE, TaskTypes},
        },
    },
    reader::limits_of_request,
    spool,
    store::{self, evidence::Evidence, places::Place},
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use std::fs::File;
use svc_client::{Code, Failure, wire::TaskStatus};
use svc_formats::{
    Extraction, Format, FormatError, Pattern, Patterns, Secret,
    isolated::{Answer, Request, Step},
};

/// What was read of a file before it was stored: with its password, or because its text is made by the request.
pub struct Opened {
    patterns: Patterns,
    extraction: Extraction,
}

/// What was measured before the file was stored; the probe takes it over.
#[derive(Serialize, Deserialize)]
pub struct Unlocked {
    pub patterns: Patterns,
}

/// Reads an encrypted file with its password. Returns `None` if the file is not encrypted or its format takes no
/// password; the tasks will report that. Returns 422 for a wrong password, and for what is wrong with the file beyond its
/// encryption, which the tasks could not find out.
pub async fn unlock(
    core: &Core,
    admission: &Admission,
    caller: &Caller,
    file: &File,
    format: Format,
    password: Secret,
) -> Result<Option<Opened>, Failure> {
    let _permit = admission.reader(caller.principal_id()).await?;
    let mut request = Request::new(Step::Probe, limits_of_request(&core.settings));
    request.password = Some(password);
    let patterns = match read(core, file, &request).await {
        Ok(Answer::Probed { patterns: Ok(patterns), .. }) if patterns.holds(Pattern::IsEncrypted) => patterns,
        Ok(Answer::Probed { patterns: Err(error), .. }) | Err(error) => {
            return refused(core, file, request, error).await;
        }
        Ok(_) => return Ok(None),
    };
    request.step = Step::Extract(format);
    match read(core, file, &request).await {
        Ok(Answer::Extracted(extraction)) => Ok(Some(Opened { patterns, extraction })),
        Ok(_) => Ok(None),
        Err(error) => refused(core, file, request, error).await,
    }
}

async fn read(core: &Core, file: &File, request: &Request) -> Result<Answer, FormatError> {
    core.reader.read(spool::reopen(file)?, request).await.map(|(answer, _)| answer)
}

async fn refused(
    core: &Core,
    file: &File,
    request: Request,
    mut error: FormatError,
) -> Result<Option<Opened>, Failure> {
    // An archive is only refused as unsupported if none of its locked members can be read.
    let is_of_content = matches!(
        error,
        FormatError::Corrupt { .. }
            | FormatError::LimitExceeded { .. }
            | FormatError::Crashed { .. }
            | FormatError::Unsupported { format: Format::Zip, .. }
    );
    if is_of_content {
        match is_closed(core, file, request).await {
            Ok(true) => {
                return Err(Failure::field("file", format!("read with its password, {error}; nothing was stored")));
            }
            Ok(false) => {}
            Err(unknown) => error = unknown,
        }
    }
    match error {
        FormatError::Encrypted { .. } => {
            Err(Failure::new(Code::WrongPassword, "the password does not open the file; nothing was stored")
                .with("field", "extract.password")
                .with("remedy", "send the file with its password"))
        }
        error if error.is_permanent() => Ok(None),
        _ => {
            Err(Failure::new(Code::Unavailable, "the file could not be read with its password now; nothing was stored")
                .with("remedy", "upload it again")
                .with("retry_after", 2))
        }
    }
}

/// Whether a file tells nothing without its password but that it needs one, or is an archive with members that need one.
///
/// # Errors
/// The reader could not work, so that nobody knows.
async fn is_closed(core: &Core, file: &File, request: Request) -> Result<bool, FormatError> {
    let request = Request { step: Step::Probe, password: None, ..request };
    match read(core, file, &request).await {
        Ok(Answer::Probed { patterns: Ok(patterns), archive, .. }) => {
            let is_shut = patterns.holds(Pattern::IsEncrypted) && patterns.get(Pattern::HasTextLayer).is_none();
            Ok(is_shut || archive.is_some_and(|archive| archive.encrypted > 0))
        }
        Err(error) if !error.is_permanent() => Err(error),
        _ => Ok(false),
    }
}

impl Opened {
    pub fn new(patterns: Patterns, extraction: Extraction) -> Opened {
        Opened { patterns, extraction }
    }

    /// What was measured.
    pub fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// Stores what was read for a node that was stored without the password, unless it was read anyway. If its probe
    /// failed, the probe runs again; returns whether it does.
    pub async fn hand_in(&self, conn: &mut PgConnection, types: &TaskTypes, file: &Place) -> Result<bool, Failure> {
        let id = file.id();
        // Locks are taken in one order: the file's, which `requeue` needs, comes before that of the probe's row.
        store::locks::files_around(conn, id).await.or_fail()?;
        let Some((probe, status)) = store::admin::newest(conn, id, PROBE.name).await.or_fail()? else {
            return Ok(false);
        };
        if status == TaskStatus::Completed {
            return Ok(false);
        }
        self.store(conn, file).await?;
        requeue(conn, types, probe, id, id.as_root()).await
    }

    /// Stores what was read with a password, for the tasks of the node.
    pub async fn store(&self, conn: &mut PgConnection, file: &Place) -> Result<(), Failure> {
        self.store_as(conn, file, Evidence::Unlocked).await
    }

    /// Stores what was read, for the tasks of the node; `name` says why it was read by a request.
    pub async fn store_as(&self, conn: &mut PgConnection, file: &Place, name: Evidence) -> Result<(), Failure> {
        let id = file.id();
        let (text, layout) =
            split_extraction(self.extraction.clone()).map_err(|error| Failure::new(Code::Internal, error))?;
        store::evidence::store_extraction(conn, id, &text, &layout).await.or_fail()?;
        let unlocked = serde_json::to_value(Unlocked { patterns: self.patterns.clone() })
            .map_err(|error| Failure::new(Code::Internal, error))?;
        store::evidence::record(conn, id, name, &unlocked).await.or_fail()
    }
}
