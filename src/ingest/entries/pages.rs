//! Web pages and PDF files that the server fetches.
use super::{Made, prepared_page};
use crate::{
    access::Caller,
    admission::Admission,
    core::Core,
    error::OrFail,
    fetch::{self, FetchError, Limits, Request, Url},
    ingest::upload::recognise,
    reader,
    spool::{self, Spool, Spooled},
    store::evidence::Evidence,
};
use chrono::Utc;
use http::{HeaderValue, header};
use serde_json::{Map, Value, json};
use std::{borrow::Cow, path::Path, time::Duration};
use svc_client::{Code, Failure};
use svc_formats::{
    Detection, Format, PageSource, WebPage,
    isolated::{Answer, Request as Reading, Step},
};

/// The most processor time for reading a page, which takes less than a second unless it is hostile.
const READING: Duration = Duration::from_secs(30);
/// How much is gathered before it is written to the spool.
const PIECE: usize = 256 << 10;

/// Fetches a page and reads its main content.
pub(super) async fn page(
    core: &Core,
    admission: &Admission,
    caller: &Caller,
    url: &str,
    accepts: &[&str],
) -> Result<Made, Failure> {
    let fetched = fetch(core, parse(url)?, accepts).await?;
    let page = read(core, admission, caller, &fetched).await?;
    let WebPage { extraction, title, byline, site_name, lang, published_time, .. } = page;
    let (file, recognised) = recognise(fetched.file, None).await?;
    let facts = [
        ("title", &title),
        ("byline", &byline),
        ("site_name", &site_name),
        ("lang", &lang),
        ("published_time", &published_time),
    ];
    let facts: Map<String, Value> =
        facts.into_iter().filter_map(|(name, fact)| Some((name.to_owned(), json!(fact.as_ref()?)))).collect();
    Ok(Made {
        title: title.or_else(|| name(&fetched.url)),
        file,
        // The bytes are HTML because their server says so; a piece of a page may have no mark that tells it.
        detection: Detection { format: Some(Format::Html), mime: Some(fetched.media_type.clone()), by: recognised.by },
        declared_mime: Some(fetched.media_type),
        prepared: Some(prepared_page(extraction)),
        evidence: vec![(Evidence::Fetched, fetched.facts), (Evidence::Page, facts.into())],
    })
}

/// Fetches a PDF file, which the tasks read as they read an uploaded one.
pub(super) async fn pdf(core: &Core, url: &str, accepts: &[&str]) -> Result<Made, Failure> {
    pdf_at(core, parse(url)?, accepts).await
}

pub(super) async fn pdf_at(core: &Core, url: Url, accepts: &[&str]) -> Result<Made, Failure> {
    let fetched = fetch(core, url, accepts).await?;
    let (file, detection) = recognise(fetched.file, None).await?;
    if detection.format != Some(Format::Pdf) {
        return Err(unusable(&fetched.url, "it says that it sends a PDF file, and sends something else"));
    }
    Ok(Made {
        title: name(&fetched.url),
        file,
        detection,
        declared_mime: Some(fetched.media_type),
        prepared: None,
        evidence: vec![(Evidence::Fetched, fetched.facts)],
    })
}

pub(super) fn parse(url: &str) -> Result<Url, Failure> {
    fetch::parse(url).map_err(failed)
}

/// Reads a page in a process of its own.
pub(super) async fn read(
    core: &Core,
    admission: &Admission,
    caller: &Caller,
    fetched: &Fetched,
) -> Result<WebPage, Failure> {
    let _permit = admission.reader(caller.principal_id()).await?;
    let mut limits = reader::limits(&core.settings);
    limits.cpu_time = limits.cpu_time.min(READING);
    limits.wall_time = limits.wall_time.min(2 * READING);
    let source = PageSource { url: fetched.url.to_string(), charset: fetched.charset.clone() };
    let reading = Reading::new(Step::WebPage(source), limits);
    let input = spool::reopen(&fetched.file.file).or_fail()?;
    match core.reader.read(input, &reading).await {
        Ok((Answer::WebPage(page), _)) => Ok(*page),
        Ok(_) => Err(Failure::new(Code::Internal, "the reader gave another answer than it was asked for")),
        Err(error) if error.is_permanent() => {
            let detail = format!("the page of {} cannot be read: {error}", host(&fetched.url));
            Err(Failure::field("url", detail))
        }
        Err(_) => Err(Failure::new(Code::Unavailable, "the page could not be read now; nothing was stored")
            .with("remedy", "send the request again")
            .with("retry_after", 2)),
    }
}

/// What an address answered.
pub(crate) struct Fetched {
    pub file: Spooled,
    /// The address that answered, after redirects.
    pub url: Url,
    pub media_type: String,
    /// The encoding that the server declared.
    charset: Option<String>,
    /// The evidence of the fetch.
    pub facts: Value,
}

/// Fetches a file of any media type.
pub(crate) async fn file(core: &Core, url: &str) -> Result<Fetched, Failure> {
    fetch(core, parse(url)?, &[]).await
}

/// Fetches an address whose answer is of one of these media types, or of any if none is named.
pub(super) async fn fetch(core: &Core, url: Url, accepts: &[&str]) -> Result<Fetched, Failure> {
    let accept = HeaderValue::try_from(if accepts.is_empty() { "*/*".to_owned() } else { accepts.join(", ") })
        .map_err(|error| Failure::new(Code::Internal, error))?;
    let request = Request::get(url.clone(), Limits::of(&core.settings)).with(header::ACCEPT, accept);
    let mut answer = core.fetcher.send(request).await.map_err(failed)?;
    let status = answer.status.as_u16();
    if !answer.status.is_success() {
        let failure = unusable(&answer.url, &format!("it answers with status {status}"));
        return Err(failure
            .with("upstream_status", status)
            .with("remedy", "check the address; only what anyone may read is fetched"));
    }
    let media_type = answer.media_type().unwrap_or_default();
    if !accepts.is_empty() && !accepts.contains(&media_type.as_str()) {
        let is = if media_type.is_empty() { "no media type" } else { media_type.as_str() };
        let takes = accepts.join(" or ");
        return Err(unusable(&answer.url, &format!("it sends {is}, and the entry takes {takes}"))
            .with("remedy", "take the entry for what the address holds: wiki:url for pages, wiki:pdf for PDF files"));
    }
    let folder = core.spool.folder().to_owned();
    let mut spool = blocking(move || Spool::new(&folder)).await?;
    let mut gathered = Vec::new();
    while let Some(piece) = answer.piece().await.map_err(failed)? {
        gathered.extend_from_slice(&piece);
        if gathered.len() >= PIECE {
            let piece = std::mem::take(&mut gathered);
            spool = blocking(move || spool.write(&piece).map(|()| spool)).await?;
        }
    }
    let file = blocking(move || spool.write(&gathered).and_then(|()| spool.finish())).await?;
    let facts = json!({
        "url": url.as_str(),
        "final_url": answer.url.as_str(),
        "status": status,
        "media_type": media_type,
        "etag": answer.header(header::ETAG),
        "last_modified": answer.header(header::LAST_MODIFIED),
        "fetched_at": Utc::now(),
        "bytes": file.byte_size,
    });
    let charset = answer.header(header::CONTENT_TYPE).and_then(charset);
    Ok(Fetched { file, url: answer.url, media_type, charset, facts })
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::new(Code::Internal, error))?.or_fail()
}

/// The parameter `charset` of a `Content-Type`.
fn charset(content_type: &str) -> Option<String> {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let (_, charset) = parameters.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(charset.trim().trim_matches('"').chars().take(40).collect())
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

/// The last part of the path of an address.
fn last_part(url: &Url) -> Option<Cow<'_, str>> {
    let last = url.path_segments()?.rfind(|part| !part.is_empty())?;
    Some(percent_encoding::percent_decode_str(last).decode_utf8_lossy())
}

/// The name of a fetched file: the last part of the path of its address, or its host. Of a media type whose formats only a name tells,
/// such as CSV, the name gets the ending unless it has one of these formats: it may be that of a script, or end in a number.
pub(crate) fn file_name(url: &Url, media_type: &str) -> String {
    const TABLES: &[&str] = &["csv", "tsv", "tab", "xls"];
    const MARKDOWN: &[&str] = &["md", "markdown"];
    let name = last_part(url).unwrap_or_else(|| host(url).into());
    let (ending, alike) = match media_type {
        "text/csv" => ("csv", TABLES),
        "text/tab-separated-values" => ("tsv", TABLES),
        "text/markdown" => ("md", MARKDOWN),
        _ => return name.into_owned(),
    };
    let is_told = name.rsplit_once('.').is_some_and(|(_, it)| alike.iter().any(|one| it.eq_ignore_ascii_case(one)));
    if is_told { name.into_owned() } else { format!("{name}.{ending}") }
}

/// What an address without a title is called: the last part of its path without its ending, or its host.
fn name(url: &Url) -> Option<String> {
    let Some(name) = last_part(url) else { return Some(host(url).to_owned()) };
    let stem = Path::new(&*name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(&name);
    let name: String = stem.chars().filter(|character| !character.is_control()).take(255).collect();
    (!name.trim().is_empty()).then_some(name)
}

/// 424 for an answer that cannot be used.
pub(super) fn unusable(url: &Url, reason: &str) -> Failure {
    failed(FetchError::Broken { host: host(url).to_owned(), reason: reason.to_owned() })
}

fn failed(error: FetchError) -> Failure {
    match &error {
        refused if refused.is_refusal() => Failure::field("url", error),
        FetchError::TooLarge { limit, .. } => {
            let limit = *limit;
            Failure::new(Code::TooLarge, error).with("limit", limit).with("setting", "SVC_FETCH_MAX_BYTES")
        }
        _ => Failure::new(Code::FetchFailed, error).with("remedy", "check the address, or try again later"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_called_by_its_last_part() {
        for (url, expected) in [
            ("https://example.org/files/Grey%20heron.pdf?x=1", "Grey heron"),
            ("https://example.org/wiki/Heron/", "Heron"),
            ("https://example.org", "example.org"),
            ("https://example.org/%00", "example.org"),
        ] {
            let url = fetch::parse(url).expect("an address");
            let name = name(&url).unwrap_or_else(|| host(&url).to_owned());
            assert_eq!(name, expected);
        }
    }

    #[test]
    fn a_fetched_file_keeps_its_ending_or_gets_that_of_its_media_type() {
        for (url, media_type, expected) in [
            ("https://example.org/files/Grey%20heron.csv?x=1", "text/csv", "Grey heron.csv"),
            ("https://example.org/notes/README.md", "text/plain", "README.md"),
            ("https://example.org/herons?as=csv", "text/csv", "herons.csv"),
            ("https://example.org/herons", "text/tab-separated-values", "herons.tsv"),
            ("https://example.org/herons/", "text/markdown", "herons.md"),
            ("https://example.org/herons", "text/html", "herons"),
            ("https://example.org", "text/html", "example.org"),
            ("https://example.org/export.php?table=herons", "text/csv", "export.php.csv"),
            ("https://example.org/herons/2024.11", "text/csv", "2024.11.csv"),
            ("https://example.org/?as=csv", "text/csv", "example.org.csv"),
            ("https://example.org/herons.TSV", "text/csv", "herons.TSV"),
            ("https://example.org/herons.csv", "application/octet-stream", "herons.csv"),
            ("https://example.org/page.aspx", "text/markdown", "page.aspx.md"),
        ] {
            assert_eq!(file_name(&fetch::parse(url).expect("an address"), media_type), expected);
        }
    }

    #[test]
    fn the_encoding_is_a_parameter_of_the_media_type() {
        for (content_type, expected) in [
            ("text/html; charset=UTF-8", Some("UTF-8")),
            ("text/html;a=b; Charset = \"latin1\"", Some("latin1")),
            ("text/html", None),
            ("charset=x", None),
        ] {
            assert_eq!(charset(content_type).as_deref(), expected, "{content_type}");
        }
    }
}
