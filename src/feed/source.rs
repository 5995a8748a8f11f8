//! From what a message names to a file of our own, whose hash is what the message says.
use super::message::{Source, Upload, fits};
use crate::{
    error::{OrFail, disk_is_full, storage_full},
    ingest::entries::pages,
    service::Service,
    spool::{Spool, Spooled},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};
use svc_client::{Code, Failure};
use svc_ids::PrincipalId;

/// How much of a file is copied at a time.
const PIECE: usize = 256 << 10;

/// A file as it arrived.
pub(super) struct Arrived {
    pub file: Spooled,
    /// What the source itself calls the file, and says that it is.
    pub filename: Option<String>,
    pub declared_mime: Option<String>,
}

/// Why a file did not arrive.
pub(super) enum Missing {
    /// It will never arrive like this.
    Refused(Failure),
    /// It may arrive later.
    Later(Failure),
}

impl From<Failure> for Missing {
    fn from(failure: Failure) -> Missing {
        Missing::Refused(failure)
    }
}

/// Copies the file that a message brings or names, and compares it with what the message says of it.
pub(super) async fn arrive(
    service: &Service,
    principal: Option<PrincipalId>,
    upload: &Upload,
    body: &Bytes,
) -> Result<Arrived, Missing> {
    let limit = service.settings.bulk_inline_bytes;
    let folder = service.spool.folder().to_owned();
    let mut arrived = match &upload.source {
        Source::Body => {
            let body = body.clone();
            Arrived::unnamed(blocking(move || written(&folder, &body)).await?)
        }
        Source::Inline(text) => {
            // What does not fit is refused before it is unpacked.
            fits(text.len() as u64 / 4 * 3, limit + 2, limit)?;
            let bytes = STANDARD.decode(text).map_err(|_| Failure::field("source", "inline_base64 is no base64"))?;
            fits(bytes.len() as u64, limit, limit)?;
            Arrived::unnamed(blocking(move || written(&folder, &bytes)).await?)
        }
        Source::Path(path) => {
            let (root, path) = (service.settings.bulk_root.clone(), path.clone());
            if root.as_os_str().is_empty() {
                let failure = Failure::new(Code::NotConfigured, "a message may name no path here");
                return Err(failure.with("setting", "SVC_BULK_ROOT").into());
            }
            let most = service.settings.max_upload_bytes;
            let name = path.clone();
            let copied =
                tokio::task::spawn_blocking(move || beneath(&root, &path).and_then(|file| copy(file, most, &folder)));
            let file = copied.await.map_err(|error| Failure::new(Code::Internal, error))??;
            Arrived { filename: Some(name), ..Arrived::unnamed(file) }
        }
        Source::Url(url) => {
            let _place = service.admission.fetch(principal).await?;
            let fetched = pages::file(service, url).await.map_err(|failure| match failure.code {
                Code::FetchFailed | Code::Unavailable | Code::TimedOut => Missing::Later(failure),
                _ => Missing::Refused(failure),
            })?;
            let filename = Some(pages::file_name(&fetched.url, &fetched.media_type));
            Arrived { file: fetched.file, filename, declared_mime: Some(fetched.media_type) }
        }
    };
    if let Some(said) = upload.byte_size.filter(|said| *said != arrived.file.byte_size) {
        let is = arrived.file.byte_size;
        return Err(Failure::field("byte_size", format!("the message says {said}, and the file has {is} bytes")).into());
    }
    if let Some(said) = upload.sha256.as_ref().filter(|said| **said != arrived.file.content_hash) {
        let is = &arrived.file.content_hash;
        return Err(Failure::field("sha256", format!("the message says {said}, and the file has {is}")).into());
    }
    arrived.filename = upload.filename.clone().or(arrived.filename);
    arrived.declared_mime = upload.declared_mime.clone().or(arrived.declared_mime);
    Ok(arrived)
}

impl Arrived {
    fn unnamed(file: Spooled) -> Arrived {
        Arrived { file, filename: None, declared_mime: None }
    }
}

fn written(folder: &Path, bytes: &[u8]) -> io::Result<Spooled> {
    let mut spool = Spool::new(folder)?;
    spool.write(bytes)?;
    spool.finish()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::new(Code::Internal, error))?.or_fail()
}

/// Opens what a path names under a folder to read it, and nothing outside it: neither `..` nor a link leads out.
pub fn open_beneath(folder: &File, path: &Path) -> io::Result<File> {
    // A pipe would keep its reader waiting for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(folder, path, flags, Mode::empty(), within)?.into())
}

/// Opens a plain file under SVC_BULK_ROOT.
fn beneath(root: &Path, path: &str) -> Result<File, Missing> {
    let refused = |reason: &str| Missing::Refused(Failure::field("source", format!("path: {reason}")));
    if path.is_empty() || path.contains('\0') || Path::new(path).is_absolute() {
        return Err(refused("takes the path of a file relative to SVC_BULK_ROOT"));
    }
    let away = |error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "the folder of SVC_BULK_ROOT cannot be used");
        Missing::Later(
            Failure::new(Code::Unavailable, "the folder of SVC_BULK_ROOT cannot be read now")
                .with("setting", "SVC_BULK_ROOT"),
        )
    };
    let folder = File::open(root).map_err(|error| away(&error))?;
    let opened = open_beneath(&folder, Path::new(path)).map_err(|error| match error {
        error if error.kind() == io::ErrorKind::NotFound => Missing::Later(
            Failure::field("source", "path: there is no such file under SVC_BULK_ROOT")
                .with("remedy", "put the file there before the message"),
        ),
        error => refusal(&error).map_or_else(|| away(&error), refused),
    })?;
    match opened.metadata() {
        Ok(facts) if facts.is_file() => Ok(opened),
        _ => Err(refused("is not a plain file")),
    }
}

/// Why what cannot be opened will never be; `None` if it may be later: a drive of the network that is away says so in many ways.
fn refusal(error: &io::Error) -> Option<&'static str> {
    match Errno::from_raw_os_error(error.raw_os_error()?) {
        Errno::XDEV => Some("leads out of SVC_BULK_ROOT"),
        Errno::LOOP => Some("goes through a link, which is not followed"),
        Errno::ACCESS | Errno::PERM => Some("the service may not read this file"),
        Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL | Errno::NXIO | Errno::NODEV => {
            Some("is not the path of a file")
        }
        _ => None,
    }
}

/// Copies a file, which may grow meanwhile.
fn copy(mut file: File, most: u64, folder: &Path) -> Result<Spooled, Missing> {
    let broken = |error: io::Error| match disk_is_full(&error) {
        true => Missing::Refused(storage_full()),
        false => Missing::Later(Failure::new(Code::Unavailable, "a file under SVC_BULK_ROOT could not be copied now")),
    };
    let mut spool = Spool::new(folder).map_err(broken)?;
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return spool.finish().map_err(broken),
            Ok(read) => spool.write(&piece[..read]).map_err(broken)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error)),
        }
        if spool.byte_size() > most {
            let failure = Failure::new(Code::TooLarge, format!("the file is larger than {most} bytes"));
            return Err(failure.with("limit", most).with("setting", "SVC_MAX_UPLOAD_BYTES").into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_the_folder_is_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("in")).expect("made");
        std::fs::write(root.join("in/file"), "inside").expect("written");
        std::fs::write(folder.path().join("secret"), "outside").expect("written");
        symlink("../secret", root.join("link")).expect("linked");
        symlink("in", root.join("folder-link")).expect("linked");
        rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .expect("a pipe");
        let absolute = folder.path().join("secret").display().to_string();
        for refused in
            ["../secret", "in/../../secret", "link", "folder-link/file", &absolute, "", "in", ".", "pipe", "a\0b"]
        {
            assert!(matches!(beneath(&root, refused), Err(Missing::Refused(_))), "{refused:?}");
        }
        assert!(matches!(beneath(&root, "in/later"), Err(Missing::Later(_))));
        let mut text = String::new();
        for path in ["in/file", "in/./file", "./in/../in/file"] {
            text.clear();
            let Ok(mut file) = beneath(&root, path) else { panic!("{path} is inside") };
            file.read_to_string(&mut text).expect("read");
            assert_eq!(text, "inside");
        }
        assert!(matches!(beneath(&folder.path().join("none"), "x"), Err(Missing::Later(_))));
        for refused in ["in/file/x", &"x".repeat(300)] {
            assert!(matches!(beneath(&root, refused), Err(Missing::Refused(_))), "{refused:?}");
        }
        for away in [Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::HOSTDOWN, Errno::MFILE, Errno::AGAIN] {
            assert_eq!(refusal(&away.into()), None, "{away}");
        }
    }
}
