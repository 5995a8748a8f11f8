//! Knows which statements of `src/store/` ran in this process. A recorder sees each statement that this process sends
//! and removes it from the texts of the source. A statement that is composed of several texts has run when all of its
//! texts were seen.
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tracing::{Event, Metadata, Subscriber, field, instrument::WithSubscriber, span};

/// Words that tell SQL from other texts: the messages of the project contain none of them. sqlx does not log a COPY.
const WORDS: &[&str] =
    &["SELECT", "FROM", "WHERE", "UPDATE", "INSERT", "DELETE", "BEGIN", "SET", "LOCK", "CREATE", "ALTER", "DROP"];

#[derive(Default)]
struct Record {
    /// The texts of the source that no statement has contained yet, with their files.
    unseen: Vec<(String, PathBuf)>,
    /// Hashes of the statements that were looked at.
    seen: HashSet<u64>,
}

static RECORD: OnceLock<Mutex<Record>> = OnceLock::new();
/// When the last statement was sent.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Receives what sqlx logs, which is every statement, and counts the statements and the rows that came back.
#[derive(Default)]
struct Recorder {
    statements: Arc<AtomicUsize>,
    rows: Arc<AtomicUsize>,
}

/// Starts to record the statements of this process.
pub fn record() {
    let mut unseen = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store"), &mut unseen);
    assert!(unseen.len() > 100, "the source has more statements than {}", unseen.len());
    RECORD.get_or_init(|| Mutex::new(Record { unseen, seen: HashSet::new() }));
    tracing::subscriber::set_global_default(Recorder::default()).expect("nobody else listens");
}

/// What a future comes to, and how many statements it sent.
pub async fn counted<T>(work: impl Future<Output = T>) -> (T, usize) {
    let statements = Arc::new(AtomicUsize::new(0));
    let done = work.with_subscriber(Recorder { statements: Arc::clone(&statements), ..Recorder::default() }).await;
    (done, statements.load(Ordering::Relaxed))
}

/// What a future comes to, and how many rows its statements brought back.
pub async fn with_rows<T>(work: impl Future<Output = T>) -> (T, usize) {
    let rows = Arc::new(AtomicUsize::new(0));
    let done = work.with_subscriber(Recorder { rows: Arc::clone(&rows), ..Recorder::default() }).await;
    (done, rows.load(Ordering::Relaxed))
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, event: &Event<'_>) {
        let mut statement = Statement::default();
        event.record(&mut statement);
        *LAST.lock().unwrap() = Some(Instant::now());
        if !statement.asks_whether_it_writes {
            self.statements.fetch_add(1, Ordering::Relaxed);
            event.record(&mut Rows(&self.rows));
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Reads the statement from a log event: a short one is in the summary, a longer one in a field of its own.
#[derive(Default)]
struct Statement {
    /// Connections are asked for a minute whether their servers take writes, once a server of any test in this process took none.
    asks_whether_it_writes: bool,
}

impl field::Visit for Statement {
    fn record_str(&mut self, field: &field::Field, value: &str) {
        if matches!(field.name(), "summary" | "db.statement") {
            self.asks_whether_it_writes |= value.contains("pg_is_in_recovery(), current_setting");
            strike_out(value);
        }
    }

    fn record_debug(&mut self, _: &field::Field, _: &dyn std::fmt::Debug) {}
}

/// Adds up the rows of log events.
struct Rows<'a>(&'a AtomicUsize);

impl field::Visit for Rows<'_> {
    fn record_u64(&mut self, field: &field::Field, value: u64) {
        if field.name() == "rows_returned" {
            self.0.fetch_add(usize::try_from(value).unwrap(), Ordering::Relaxed);
        }
    }

    fn record_debug(&mut self, _: &field::Field, _: &dyn std::fmt::Debug) {}
}

fn strike_out(statement: &str) {
    let mut hasher = DefaultHasher::new();
    statement.hash(&mut hasher);
    let Some(record) = RECORD.get() else { return };
    let mut record = record.lock().unwrap();
    if record.unseen.is_empty() || !record.seen.insert(hasher.finish()) {
        return;
    }
    let statement = plain(statement);
    record.unseen.retain(|(text, _)| !statement.contains(text));
}

/// Replaces each run of white space by one space.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn collect(folder: &Path, found: &mut Vec<(String, PathBuf)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            let source = std::fs::read_to_string(&path).unwrap();
            let source = source.split("#[cfg(test)]").next().unwrap();
            for text in literals(source) {
                let is_sql = |text: &String| {
                    text.split(|c: char| !c.is_ascii_alphabetic()).any(|word| WORDS.contains(&word))
                        && !text.starts_with("COPY")
                };
                found.extend(fixed(&text).filter(is_sql).map(|text| (text, path.clone())));
            }
        }
    }
}

/// The quoted texts of a source, except those in comments and attributes.
fn literals(source: &str) -> Vec<String> {
    let (mut literals, mut rest) = (Vec::new(), source);
    while let Some(at) = rest.find(['"', '/', '#', '\'']) {
        let (before, from) = rest.split_at(at);
        let is_raw = before.ends_with('r');
        rest = if from.starts_with("//") {
            from.find('\n').map_or("", |end| &from[end..])
        } else if from.starts_with("#[error") {
            from.find(")]").map_or("", |end| &from[end..])
        } else if let Some(rest) = from.strip_prefix("'\"'") {
            rest
        } else if let Some(text) = from.strip_prefix('"') {
            let mut escaped = false;
            let end = text.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped && !is_raw;
                ends
            });
            let end = end.expect("a text ends");
            literals.push(text[..end].replace("\\\n", "").replace("\\\"", "\"").replace("\\\\", "\\"));
            &text[end + 1..]
        } else {
            &from[1..]
        };
    }
    literals
}

/// The parts of a text between its placeholders.
fn fixed(text: &str) -> impl Iterator<Item = String> {
    text.split('{').map(|part| plain(part.split_once('}').map_or(part, |(_, after)| after)))
}

/// How long ago this process sent its last statement.
pub fn quiet_for() -> Duration {
    LAST.lock().unwrap().map_or(Duration::ZERO, |last| last.elapsed())
}

/// The texts of the source that no statement has contained yet, a line for each, with its file and its beginning.
pub fn unseen() -> Vec<String> {
    let Some(record) = RECORD.get() else { return Vec::new() };
    let line = |(text, path): &(String, PathBuf)| {
        let path = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(path);
        format!("{}: {}", path.display(), text.chars().take(200).collect::<String>())
    };
    record.lock().unwrap().unseen.iter().map(line).collect()
}
