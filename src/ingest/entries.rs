//! The entries of `POST /ingest`. One table says what each takes; the list of pipelines, the check of a request and the
//! work on it derive from it.
use crate::{
    access::Caller,
    core::Core,
    error::OrFail,
    ingest::{
        options::Requested,
        tasks::types::TaskTypes,
        unlock::Opened,
        upload::{Incoming, Intake, arrive, recognise},
    },
    spool::{Spool, Spooled},
    store::evidence::Evidence,
    usetype::Usetype,
};
use serde_json::{Value, json};
use std::io;
use svc_client::{
    Code, Failure,
    constraint::as_title,
    wire::{Entry, EntrySource, NewIngestion, Pipeline, Turn, UploadQuery, UploadResponse},
};
use svc_formats::{DetectedBy, Detection, Extraction, Format, Pattern, Patterns};
use svc_ids::DocumentId;

mod arxiv;
pub(crate) mod exports;
pub(crate) mod pages;
mod turns;
pub(super) use turns::mark as mark_turns;

/// An entry: what it takes, and what it makes.
struct Row {
    entry: Entry,
    /// The usetype of the file node.
    usetype: Usetype,
    about: &'static str,
    sources: &'static [EntrySource],
    /// The media types of a fetched answer.
    accepts: &'static [&'static str],
}

const HTML: &[&str] = &["text/html", "application/xhtml+xml"];
const PDF: &[&str] = &["application/pdf", "application/x-pdf"];

static ROWS: &[Row] = &[
    Row {
        entry: Entry::Markdown,
        usetype: Usetype::Markdown,
        about: "Takes a text in Markdown; its headings become sections.",
        sources: &[EntrySource::Content],
        accepts: &[],
    },
    Row {
        entry: Entry::Raw,
        usetype: Usetype::Raw,
        about: "Takes a plain text and cuts it into chunks, whatever it looks like.",
        sources: &[EntrySource::Content],
        accepts: &[],
    },
    Row {
        entry: Entry::Conversation,
        usetype: Usetype::Conversation,
        about: "Takes a conversation as turns, as an export in JSON or JSON lines, or as Markdown; each turn becomes a section with its speaker and time.",
        sources: &[EntrySource::Turns, EntrySource::Content],
        accepts: &[],
    },
    Row {
        entry: Entry::Transcript,
        usetype: Usetype::Transcript,
        about: "Takes what was said and when, as turns, as subtitles (WebVTT, SubRip), or as Markdown; each turn becomes a section with its speaker and time.",
        sources: &[EntrySource::Turns, EntrySource::Content],
        accepts: &[],
    },
    Row {
        entry: Entry::WikiUrl,
        usetype: Usetype::WikiUrl,
        about: "Fetches a web page and reads its main content as Markdown with its links.",
        sources: &[EntrySource::Url],
        accepts: HTML,
    },
    Row {
        entry: Entry::WikiArxiv,
        usetype: Usetype::WikiArxiv,
        about: "Fetches a paper of arXiv: its PDF, and its title, authors and abstract as evidence.",
        sources: &[EntrySource::Id, EntrySource::Url],
        accepts: PDF,
    },
    Row {
        entry: Entry::WikiPdf,
        usetype: Usetype::WikiPdf,
        about: "Fetches a PDF file.",
        sources: &[EntrySource::Url],
        accepts: PDF,
    },
];

/// What `GET /ingest/pipelines` shows.
pub fn pipelines(types: &TaskTypes) -> Result<Vec<Pipeline>, Failure> {
    let options = Requested::read(None, types.groups())?.options.to_value();
    let pipeline = |row: &Row| Pipeline {
        entry: row.entry,
        usetype: row.usetype.as_str().to_owned(),
        about: row.about.to_owned(),
        sources: row.sources.to_vec(),
        fetched: !row.accepts.is_empty(),
        accepts: row.accepts.iter().map(|media_type| (*media_type).to_owned()).collect(),
        options: options.clone(),
    };
    Ok(ROWS.iter().map(pipeline).collect())
}

/// The one source of a request.
enum Given {
    Content(String),
    Turns(Vec<Turn>),
    Url(String),
    Id(String),
}

impl Given {
    fn source(&self) -> EntrySource {
        match self {
            Given::Content(_) => EntrySource::Content,
            Given::Turns(_) => EntrySource::Turns,
            Given::Url(_) => EntrySource::Url,
            Given::Id(_) => EntrySource::Id,
        }
    }
}

impl Row {
    /// The source of a request: exactly one of those that the entry takes.
    fn given(&self, new: &mut NewIngestion) -> Result<Given, Failure> {
        let mut given = [
            new.content.take().map(Given::Content),
            new.turns.take().map(Given::Turns),
            new.url.take().map(Given::Url),
            new.id.take().map(Given::Id),
        ]
        .into_iter()
        .flatten();
        let takes: Vec<_> = self.sources.iter().map(|source| format!("`{source}`")).collect();
        let one = if takes.len() == 1 { "only" } else { "exactly one of" };
        let takes = format!("the entry `{}` takes {one} {}", self.entry, takes.join(" and "));
        match (given.next(), given.next()) {
            (None, _) => Err(Failure::field(self.sources.first().map_or("entry", |source| source.as_str()), takes)),
            (Some(_), Some(second)) => Err(Failure::field(second.source().as_str(), takes)),
            (Some(one), None) if !self.sources.contains(&one.source()) => {
                Err(Failure::field(one.source().as_str(), takes))
            }
            (Some(one), None) => Ok(one),
        }
    }
}

/// A file that was made of what an entry took.
struct Made {
    /// What the content calls itself.
    title: Option<String>,
    file: Spooled,
    detection: Detection,
    declared_mime: Option<String>,
    /// The text, if the request itself made it of the bytes.
    prepared: Option<Opened>,
    evidence: Vec<(Evidence, Value)>,
}

/// Stores what an entry takes, as an upload stores a file; returns before it is ingested.
pub async fn ingest(
    core: &Core,
    intake: Intake<'_>,
    caller: &Caller,
    mut new: NewIngestion,
) -> Result<UploadResponse, Failure> {
    let Some(row) = ROWS.iter().find(|row| row.entry == new.entry) else {
        return Err(Failure::new(Code::Internal, format!("the entry `{}` has no row", new.entry)));
    };
    let requested = Requested::read(new.options.take(), intake.types.groups())?;
    let given = row.given(&mut new)?;
    let source = given.source();
    // Fetching takes long, so what would be refused after it is refused before it.
    if let Some(id) = new.parent_id {
        let mut conn = core.pool.acquire().await.or_fail()?;
        caller.writes(&mut conn, DocumentId(id)).await.or_fail()??;
    }
    let fetching = match row.accepts {
        [] => None,
        _ => Some(intake.admission.fetch(caller.principal_id()).await?),
    };
    let mut made = match given {
        Given::Content(text) if row.entry == Entry::Raw => plain(core, text).await?,
        Given::Content(text) if row.sources.contains(&EntrySource::Turns) => {
            let event_time = new.event_time;
            let read = tokio::task::spawn_blocking(move || (exports::turns(&text, event_time), text));
            match read.await.map_err(|error| Failure::new(Code::Internal, error))? {
                (Some(turns), _) => turns::made(core, turns?).await?,
                (None, text) => markdown(core, text).await?,
            }
        }
        Given::Content(text) => markdown(core, text).await?,
        Given::Turns(turns) => turns::made(core, turns).await?,
        Given::Id(id) => arxiv::made(core, intake.admission, caller, &id, EntrySource::Id, row.accepts).await?,
        Given::Url(url) if row.entry == Entry::WikiArxiv => {
            arxiv::made(core, intake.admission, caller, &url, EntrySource::Url, row.accepts).await?
        }
        Given::Url(url) if row.entry == Entry::WikiPdf => pages::pdf(core, &url, row.accepts).await?,
        Given::Url(url) => pages::page(core, intake.admission, caller, &url, row.accepts).await?,
    };
    drop(fetching);
    let _place = intake.admission.upload(caller.principal_id()).await?;
    made.evidence.push((Evidence::Entry, json!({"entry": row.entry, "source": source})));
    let NewIngestion { parent_id, private, event_time, .. } = new;
    let query = UploadQuery { parent_id, private, priority: 0, event_time };
    let called = made.title.as_deref().map(as_title).filter(|title| !title.is_empty());
    let incoming = Incoming {
        title: new.title.or(called).unwrap_or_else(|| "untitled".to_owned()),
        declared_mime: made.declared_mime,
        file: made.file,
        detection: made.detection,
        usetype: row.usetype,
        requested,
        prepared: made.prepared,
        evidence: made.evidence,
        receipt: None,
    };
    arrive(core, intake, caller, query, incoming).await
}

/// A text that is read like an uploaded file in Markdown.
async fn markdown(core: &Core, text: String) -> Result<Made, Failure> {
    let title = first_line(&text);
    let (file, detection) = spooled(core, text).await?;
    let mime = Some("text/markdown".to_owned());
    Ok(Made { title, file, detection, declared_mime: mime, prepared: None, evidence: Vec::new() })
}

/// A text without structure.
async fn plain(core: &Core, text: String) -> Result<Made, Failure> {
    let extraction = Extraction { text: lines(&text), charset: Some("UTF-8".to_owned()), ..Extraction::default() };
    let title = first_line(&text);
    let (file, detection) = spooled_as_text(core, text).await?;
    let mime = Some("text/plain".to_owned());
    Ok(Made { title, file, detection, declared_mime: mime, prepared: Some(prepared(extraction)), evidence: Vec::new() })
}

/// The lines of a text, as extracted texts have them.
fn lines(text: &str) -> String {
    text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n").replace('\0', "")
}

/// A text that was made here, in the form in which the tasks take it over.
fn prepared(extraction: Extraction) -> Opened {
    Opened::new(shown(&extraction), extraction)
}

/// The same of a page, whose tables become nodes; those of a turn stay in what it says.
fn prepared_page(extraction: Extraction) -> Opened {
    let has_tables = !svc_formats::tables(&extraction).tables.is_empty();
    Opened::new(shown(&extraction).with(Pattern::HasTables, has_tables), extraction)
}

/// The patterns that a text shows.
fn shown(extraction: &Extraction) -> Patterns {
    Patterns::default()
        .with(Pattern::HasTextLayer, extraction.text.chars().any(|character| !character.is_whitespace()))
        .with(Pattern::HasHeadings, !extraction.headings.is_empty())
}

/// The first line that says something, without the marks of a heading, or the title that the front matter of a note names.
fn first_line(text: &str) -> Option<String> {
    let text = text.trim_start_matches('\u{feff}');
    let (matter, text) = match front_matter(text) {
        Some((matter, rest)) => (matter, rest),
        None => ("", text),
    };
    let named = matter.lines().find_map(|line| line.strip_prefix("title:"));
    let named = named.map(|title| title.trim().trim_matches(['"', '\'']).trim()).filter(|title| !title.is_empty());
    if let Some(title) = named {
        return Some(title.chars().filter(|character| !character.is_control()).take(TITLE_CHARACTERS).collect());
    }
    let line = text.lines().map(|line| line.trim().trim_start_matches('#').trim()).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|character| !character.is_control()).take(TITLE_CHARACTERS).collect())
}

/// What stands between the lines `---` at the beginning of a text, and the text behind them.
fn front_matter(text: &str) -> Option<(&str, &str)> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| line.trim_end() == "---")?;
    let mut end = first.len();
    for line in lines {
        if matches!(line.trim_end(), "---" | "...") {
            return Some((&text[first.len()..end], &text[end + line.len()..]));
        }
        end += line.len();
    }
    None
}

/// A longer first line is cut.
const TITLE_CHARACTERS: usize = 255;

/// A text as a file. Text whose bytes are those of another format is refused, because the tasks would read it as such.
async fn spooled(core: &Core, text: String) -> Result<(Spooled, Detection), Failure> {
    let file = spool(core, move |spool| spool.write(text.as_bytes())).await?;
    let (file, detection) = recognise(file, None).await?;
    if detection.by == Some(DetectedBy::ContentSniff) {
        return Ok((file, detection));
    }
    let looks = detection.mime.as_deref().unwrap_or("binary data");
    Err(Failure::field("content", format!("is not a text, it looks like {looks}; upload it by POST /ingest/file")))
}

/// A text whose reading the request itself prepared, whatever its bytes look like.
async fn spooled_as_text(core: &Core, text: String) -> Result<(Spooled, Detection), Failure> {
    let (file, recognised) = spooled(core, text).await?;
    let mime = Some(Format::Text.mime().to_owned());
    Ok((file, Detection { format: Some(Format::Text), mime, by: recognised.by }))
}

async fn spool(
    core: &Core,
    fill: impl FnOnce(&mut Spool) -> io::Result<()> + Send + 'static,
) -> Result<Spooled, Failure> {
    let folder = core.spool.folder().to_owned();
    let work = move || {
        let mut spool = Spool::new(&folder)?;
        fill(&mut spool)?;
        spool.finish()
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::new(Code::Internal, error))?.or_fail()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_entry_has_one_row_and_is_shown_as_it_is_used() {
        let shown = pipelines(&TaskTypes::default()).expect("the defaults are valid");
        let shown: Vec<_> = shown.into_iter().map(|pipeline| pipeline.entry.as_str()).collect();
        assert_eq!(shown, Entry::WORDS);
        assert_eq!(shown.iter().collect::<BTreeSet<_>>().len(), 7);
        for (row, pipeline) in ROWS.iter().zip(pipelines(&TaskTypes::default()).expect("the defaults are valid")) {
            assert_eq!(pipeline.usetype, row.entry.as_str(), "a document says by its usetype how it came");
            let by_address = row.sources.iter().any(|source| matches!(source, EntrySource::Url | EntrySource::Id));
            assert_eq!((pipeline.fetched, pipeline.sources.is_empty()), (by_address, false));
        }
    }

    #[test]
    fn a_request_has_one_source_that_its_entry_takes() {
        for row in ROWS {
            for bits in 0..16u8 {
                let has = |bit: u8| bits & (1 << bit) != 0;
                let mut new = NewIngestion {
                    content: has(0).then(|| "x".to_owned()),
                    turns: has(1).then(Vec::new),
                    url: has(2).then(|| "x".to_owned()),
                    id: has(3).then(|| "x".to_owned()),
                    ..NewIngestion::of(row.entry)
                };
                let sources = [EntrySource::Content, EntrySource::Turns, EntrySource::Url, EntrySource::Id];
                let given: Vec<_> = (0..4).filter(|bit| has(*bit)).map(|bit| sources[usize::from(bit)]).collect();
                let fits = given.len() == 1 && row.sources.contains(&given[0]);
                match row.given(&mut new) {
                    Ok(one) => assert!(fits && given == [one.source()], "{} {given:?}", row.entry),
                    Err(failure) => {
                        assert!(!fits, "{} {given:?}: {failure}", row.entry);
                        assert!(failure.detail.contains(row.entry.as_str()) && failure.status == 422, "{failure}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_text_is_called_by_its_first_line() {
        for (text, title) in [
            ("\n\n  # The heron\n\ntext", Some("The heron")),
            ("plain\nsecond", Some("plain")),
            ("##\n\n \n", None),
            ("a\u{7}b", Some("ab")),
            ("---\ntitle: \"Herons\"\ntags: [birds]\n---\n# At the mill\n", Some("Herons")),
            ("---\r\ntags: [birds]\r\n---\r\n# At the mill\r\n", Some("At the mill")),
            ("---\nno end\n", Some("---")),
        ] {
            assert_eq!(first_line(text).as_deref(), title, "{text:?}");
        }
        assert_eq!(first_line(&"x".repeat(1000)).map(|title| title.len()), Some(255));
    }
}
