//! A manifest of `svc bulk`: a file with a line of JSON for each file to send, which says of it what a message of the bulk feed can say.
use super::walk::{Candidate, Found, Origin};
use crate::{
    cli::import::BOM,
    feed::{
        broker::ENVELOPE,
        message::{self, Line, Source, Upload},
        producer::Target,
    },
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;
use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
};
use tokio::sync::mpsc::Sender;

/// How long a line may be besides the base64 of its file.
const LINE_BYTES: u64 = 128 << 10;
/// The longest name and media type; the broker takes no longer type.
const TEXT_BYTES: usize = 255;

/// What the command knows when it reads a line.
#[derive(Clone)]
pub struct Reading {
    /// Where files go whose line says nothing else.
    pub target: Target,
    /// How many bytes a file in a line may have.
    pub most: u64,
    /// Whether rows become messages. Of what a row says of the bytes at an address, only a message tells the service.
    pub by_broker: bool,
}

/// What a line says of its file, besides where it is.
pub struct Row {
    /// The manifest and the number of the line.
    pub at: String,
    pub target: Target,
    /// All that changes what becomes of the file, as a text of which its id and its key are made.
    pub whereto: Arc<str>,
    pub filename: Option<String>,
    pub declared_mime: Option<String>,
    /// In hexadecimal digits.
    pub sha256: Option<String>,
    pub byte_size: Option<u64>,
}

/// Whether a path that the user named is a manifest and no file to send.
pub fn is_manifest(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("jsonl"))
}

/// Finds what a manifest names; false if nobody listens any more.
pub fn find(manifest: &Path, reading: &Reading, found: &Sender<Found>) -> bool {
    let unreadable = |number: Option<usize>, reason: String| {
        let line = number.map(|number| format!(":{number}")).unwrap_or_default();
        Found::Unreadable { path: format!("{}{line}", manifest.display()), reason }
    };
    let mut lines = match File::open(manifest) {
        Ok(file) => BufReader::new(file),
        Err(error) => return found.blocking_send(unreadable(None, error.to_string())).is_ok(),
    };
    let most = LINE_BYTES + reading.most.div_ceil(3) * 4;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        match lines.by_ref().take(most).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) if line.len() as u64 == most && line.last() != Some(&b'\n') => {
                let reason = format!("this line is longer than {most} bytes: put its file on disk and name its path");
                if found.blocking_send(unreadable(Some(number), reason)).is_err() {
                    return false;
                }
                // The rest of it is no line of its own.
                if let Err(error) = lines.skip_until(b'\n') {
                    return found.blocking_send(unreadable(None, error.to_string())).is_ok();
                }
                continue;
            }
            Ok(_) => {}
            Err(error) => return found.blocking_send(unreadable(None, error.to_string())).is_ok(),
        }
        let line = match number {
            1 => line.strip_prefix(BOM).unwrap_or(&line[..]),
            _ => &line[..],
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let told = match row(manifest, number, line, reading) {
            Ok(candidate) => Found::File(candidate),
            Err(reason) => unreadable(Some(number), reason),
        };
        if found.blocking_send(told).is_err() {
            return false;
        }
    }
    true
}

/// The file of a line, or why the line cannot be used.
fn row(manifest: &Path, number: usize, line: &[u8], reading: &Reading) -> Result<Candidate, String> {
    let Line { upload, says_private, says_priority } = message::line(line).map_err(|failure| failure.detail)?;
    let Upload { source, sha256, byte_size, filename, declared_mime, mut query, options } = upload;
    for (name, text) in [("filename", &filename), ("declared_mime", &declared_mime)] {
        let is_fit = |text: &String| !text.is_empty() && text.len() <= TEXT_BYTES && !text.contains('\0');
        if !text.as_ref().is_none_or(is_fit) {
            return Err(format!("{name} takes 1 to {TEXT_BYTES} bytes and no NUL"));
        }
    }
    if declared_mime.as_deref().is_some_and(message::is_envelope) {
        return Err(format!("declared_mime takes the media type of the file, not {ENVELOPE}"));
    }
    if options.as_ref().is_some_and(|options| options.pointer("/extract/password").is_some()) {
        return Err("options take no password here: use svc ingest --password-file".to_owned());
    }
    let defaults = &reading.target;
    query.parent_id = query.parent_id.or(defaults.query.parent_id);
    if !says_private {
        query.private = defaults.query.private;
    }
    if !says_priority {
        query.priority = defaults.query.priority;
    }
    let target = Target { query, options: options.or_else(|| defaults.options.clone()) };
    let whereto =
        json!({"query": target.query, "options": target.options, "filename": filename, "mime": declared_mime});
    let sha256 = sha256.map(|hash| hash.trim_start_matches("sha256:").to_owned());
    if matches!(source, Source::Url(_)) {
        if byte_size.is_some() {
            return Err("byte_size is not compared with what an address sends: leave it out".to_owned());
        }
        let unused = [("sha256", sha256.is_some()), ("declared_mime", declared_mime.is_some())];
        if let Some((name, _)) = unused.into_iter().find(|(_, is_said)| *is_said && !reading.by_broker) {
            let remedy = "leave it out, or send the row through a broker (SVC_AMQP_URL)";
            return Err(format!("over REST nothing is done with the {name} of an address: {remedy}"));
        }
    }
    let here = manifest.with_file_name(format!("{}:{number}", manifest.file_name().unwrap_or_default().display()));
    let at = here.display().to_string();
    let (origin, path) = match source {
        Source::Url(url) => {
            let is_web = url.starts_with("https://") || url.starts_with("http://");
            if !is_web || url.len() > 4096 {
                return Err("url takes an http or https address of up to 4096 bytes".to_owned());
            }
            let path = url.clone().into();
            (Origin::Url(url), path)
        }
        Source::Inline(text) => {
            let bytes = BASE64_STANDARD.decode(text).map_err(|error| format!("inline_base64 is no base64: {error}"))?;
            if bytes.len() as u64 > reading.most {
                return Err(format!("inline_base64 takes {} bytes (SVC_BULK_INLINE_BYTES): name a path", reading.most));
            }
            (Origin::Inline(bytes.into()), here)
        }
        // A path is one of this machine here, and leads from the manifest.
        Source::Path(path) if !path.is_empty() && !path.contains('\0') => {
            let path = manifest.parent().unwrap_or(Path::new("")).join(path);
            (Origin::File { root: None, relative: path.clone() }, path)
        }
        Source::Path(_) | Source::Body => return Err("path takes the path of a file".to_owned()),
    };
    let row = Row { at, target, whereto: whereto.to_string().into(), filename, declared_mime, sha256, byte_size };
    Ok(Candidate { origin, path, row: Some(Arc::new(row)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_client::wire::UploadQuery;

    fn found(text: &str, by_broker: bool) -> (Vec<Candidate>, Vec<(String, String)>) {
        found_for(Target::default(), text, by_broker)
    }

    fn found_for(target: Target, text: &str, by_broker: bool) -> (Vec<Candidate>, Vec<(String, String)>) {
        let folder = tempfile::tempdir().expect("a folder");
        let manifest = folder.path().join("files.jsonl");
        std::fs::write(&manifest, text).expect("written");
        let (sender, mut receiver) = tokio::sync::mpsc::channel(64);
        let reading = Reading { target, most: 100, by_broker };
        assert!(find(&manifest, &reading, &sender));
        drop(sender);
        let (mut files, mut bad) = (Vec::new(), Vec::new());
        while let Some(told) = receiver.blocking_recv() {
            match told {
                Found::File(candidate) => files.push(candidate),
                Found::Unreadable { path, reason } => bad.push((path, reason)),
                Found::Skipped => {}
            }
        }
        (files, bad)
    }

    #[test]
    fn a_bad_line_is_refused_by_its_number_and_the_others_stand() {
        let long = format!(r#"{{"source": {{"inline_base64": "{}"}}}}"#, "A".repeat(200_000));
        let text = [
            r#"{"source": {"path": "a.md"}, "filename": "b.md", "parent_id": 7, "private": true, "event_time": "2026-05-01T12:00:00Z"}"#,
            "",
            r#"{"source": {"path": "a.md"}, "nonsense": 1}"#,
            "{",
            r#"{"source": {"url": "ftp://example.org/x"}}"#,
            r#"{"source": {"inline_base64": "?"}}"#,
            r#"{"source": {"path": "a.md"}, "sha256": "12"}"#,
            r#"{"source": {"path": "a.md"}, "priority": 101}"#,
            r#"{"source": {"path": "a.md"}, "options": {"extract": {"password": "x"}}}"#,
            &long,
            r#"{"source": {"inline_base64": "aGk="}, "declared_mime": "text/plain"}"#,
            r#"{"source": {"path": "a.md"}, "filename": ""}"#,
            r#"{"source": {"path": "a.md"}, "declared_mime": "application/vnd.svc.Upload+json; charset=utf-8"}"#,
        ]
        .join("\n");
        let (files, bad) = found(&text, true);
        let numbers: Vec<&str> = bad.iter().filter_map(|(path, _)| path.rsplit(':').next()).collect();
        assert_eq!(numbers, ["3", "4", "5", "6", "7", "8", "9", "10", "12", "13"], "{bad:?}");
        assert_eq!(files.len(), 2);
        let row = files[0].row.as_ref().expect("a row");
        assert_eq!((row.target.query.parent_id, row.target.query.private), (Some(7), true));
        assert!(row.target.query.event_time.is_some() && files[0].path().ends_with("a.md"));
        assert_eq!((files[0].name().as_str(), files[1].name().as_str()), ("b.md", ""));
        assert!(matches!(&files[1].origin, Origin::Inline(bytes) if &bytes[..] == b"hi"));
    }

    #[test]
    fn a_line_may_say_less_than_the_options_of_the_command() {
        let query = UploadQuery { private: true, priority: 50, ..UploadQuery::default() };
        let text = [
            r#"{"source": {"path": "a.md"}, "private": false, "priority": 0}"#,
            r#"{"source": {"path": "b.md"}}"#,
            r#"{"source": {"path": "c.md"}, "priority": -3}"#,
        ];
        let (files, bad) = found_for(Target { query, options: None }, &text.join("\n"), true);
        let said: Vec<(bool, i32)> = files
            .iter()
            .map(|file| file.row.as_ref().map(|row| &row.target.query).expect("a row"))
            .map(|query| (query.private, query.priority))
            .collect();
        assert_eq!(said, [(false, 0), (true, 50), (true, -3)], "{bad:?}");
    }

    #[test]
    fn the_mark_that_some_editors_write_before_a_text_is_no_part_of_the_first_line() {
        let line = r#"{"source": {"path": "a.md"}}"#;
        let (files, bad) = found(&format!("\u{feff}{line}\n{line}\n\u{feff}{line}\n"), true);
        assert_eq!((files.len(), bad.len()), (2, 1), "{bad:?}");
        assert!(bad[0].0.ends_with(":3"), "{bad:?}");
    }

    #[test]
    fn what_a_row_says_of_an_address_is_taken_where_somebody_looks_at_it_and_else_refused_with_a_remedy() {
        let hash = "ab".repeat(32);
        for (name, said) in [("sha256", format!("\"{hash}\"")), ("declared_mime", "\"text/plain\"".to_owned())] {
            let text = format!(r#"{{"source": {{"url": "https://example.org/x"}}, "{name}": {said}}}"#);
            assert_eq!(found(&text, true).0.len(), 1);
            let (files, bad) = found(&text, false);
            let [(path, reason)] = &bad[..] else { panic!("{bad:?}") };
            assert!(files.is_empty() && path.ends_with("files.jsonl:1"), "{path}");
            assert!(
                reason.contains(name) && reason.contains("leave it out") && reason.contains("SVC_AMQP_URL"),
                "{reason}"
            );
        }
    }
}
