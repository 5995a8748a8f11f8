//! Sends replies over HTTP.
use axum::{
    Json as JsonResponse,
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;
use svc_client::{
    Accepted, Conditional, Created, Event, Events, Failure, FileBytes, Guarded, Json, Located, MediaType, NoContent,
    PROBLEM, Reply, Sent, Text, TextStream, Validated, Version, Versioned, Wire,
};

/// A stream of events sends a sign of life at least this often, so that proxies and clients keep it open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a browser waits before it reopens a stream that has ended.
const RETRY: &str = "retry: 2000\n\n";
/// The characters that need no escape in a parameter value of RFC 8187.
const ATTR_CHAR: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The most bytes of a file's name in UTF-8. File systems take 255, and escaped it must fit into a header that proxies pass on, with
/// all others.
const NAME: usize = 200;
/// The most characters of an ending that a shortened name keeps.
const ENDING: usize = 10;

/// Makes a response of a value.
pub trait Encode: Reply {
    fn encode(value: Self::Value) -> Response;
}

impl<T: Wire> Encode for Json<T> {
    fn encode(value: T) -> Response {
        JsonResponse(value).into_response()
    }
}
impl<T: Wire> Encode for Accepted<T> {
    fn encode(value: T) -> Response {
        (StatusCode::ACCEPTED, JsonResponse(value)).into_response()
    }
}
impl<T: Wire + Located> Encode for Created<T> {
    fn encode(value: T) -> Response {
        let location = HeaderValue::from_str(&value.location());
        let mut response = (StatusCode::CREATED, JsonResponse(value)).into_response();
        if let Ok(location) = location {
            response.headers_mut().insert(header::LOCATION, location);
        }
        response
    }
}
impl Encode for NoContent {
    fn encode((): ()) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}
impl<M: MediaType> Encode for Text<M> {
    fn encode(value: String) -> Response {
        let mut response = ([(header::CONTENT_TYPE, M::NAME)], value).into_response();
        if let Some(policy) = M::POLICY {
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        }
        response
    }
}
impl<M: MediaType> Encode for TextStream<M> {
    fn encode(pieces: Self::Value) -> Response {
        ([(header::CONTENT_TYPE, M::NAME)], Body::from_stream(pieces)).into_response()
    }
}

impl<R: Encode> Encode for Conditional<R> {
    fn encode(value: Self::Value) -> Response {
        let (mut response, etag) = match value {
            Validated::NotModified { etag } => (StatusCode::NOT_MODIFIED.into_response(), etag),
            Validated::Modified { etag, value } => (R::encode(value), etag),
        };
        set(response.headers_mut(), header::ETAG, &etag);
        // Only the caller may store the answer, and must ask again before each use.
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        response
    }
}

impl<R: Encode> Encode for Guarded<R> {
    fn encode(value: Self::Value) -> Response {
        R::encode(value)
    }
}

impl<R: Encode> Encode for Versioned<R> {
    fn encode(Version { etag, value }: Self::Value) -> Response {
        let mut response = R::encode(value);
        set(response.headers_mut(), header::ETAG, &etag);
        response
    }
}

impl Encode for FileBytes {
    fn encode(file: Self::Value) -> Response {
        let status = if file.part.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let sent = file.part.clone().unwrap_or(0..file.size);
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(sent.end.saturating_sub(sent.start)));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        set(&mut headers, header::CONTENT_TYPE, &file.media_type);
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
        if let Some(name) = &file.file_name {
            set(&mut headers, header::CONTENT_DISPOSITION, &attachment(name));
        }
        if file.part.is_some() {
            let last = sent.end.saturating_sub(1);
            set(&mut headers, header::CONTENT_RANGE, &format!("bytes {}-{last}/{}", sent.start, file.size));
        }
        (status, headers, Body::from_stream(file.bytes)).into_response()
    }
}

fn set(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// A `Content-Disposition` that makes a browser save the file under its name, whatever the name contains.
fn attachment(name: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    let name: String =
        name.chars().filter(|c| !hidden(*c)).map(|c| if matches!(c, '/' | '\\') { '_' } else { c }).collect();
    let name = shortened(&name);
    let plain: String = name
        .chars()
        .map(|c| if (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '%' | ';') { c } else { '_' })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", utf8_percent_encode(&name, ATTR_CHAR))
}

/// A name within its most bytes, with its ending.
fn shortened(name: &str) -> String {
    if name.len() <= NAME {
        return name.to_owned();
    }
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if ending.chars().count() <= ENDING => (stem, format!(".{ending}")),
        _ => (name, String::new()),
    };
    let most = NAME.saturating_sub(ending.len());
    format!("{}{ending}", &stem[..stem.floor_char_boundary(most)])
}

impl<T: Wire> Encode for Events<T> {
    fn encode(events: Self::Value) -> Response {
        let first = stream::iter([Ok(Bytes::from_static(RETRY.as_bytes()))]);
        let events = stream::unfold(Some(events.into_sent()), async |state| {
            let mut events = state?;
            Some(match tokio::time::timeout(KEEP_ALIVE, events.next()).await {
                Err(_) => (Ok::<_, std::convert::Infallible>(Bytes::from_static(b": keep-alive\n\n")), Some(events)),
                Ok(Some(Ok(Sent::Event(event)))) => (Ok(written(&event)), Some(events)),
                // A browser remembers an id that comes without data.
                Ok(Some(Ok(Sent::Position(id)))) => (Ok(Bytes::from(format!("id: {id}\n\n"))), Some(events)),
                Ok(Some(Err(failure))) => (Ok(problem(failure)), None),
                Ok(None) => return None,
            })
        });
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            // This asks proxies not to collect the answer before they pass it on.
            (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
        ];
        (headers, Body::from_stream(first.chain(events))).into_response()
    }
}

fn problem(failure: Failure) -> Bytes {
    written(&Event { id: None, name: PROBLEM.into(), data: failure })
}

/// An event as it is sent. JSON contains no unescaped line break, so the data is one line.
fn written<T: serde::Serialize>(event: &Event<T>) -> Bytes {
    let id = event.id.as_deref().map(|id| format!("id: {id}\n")).unwrap_or_default();
    let data = serde_json::to_string(&event.data).unwrap_or_default();
    Bytes::from(format!("{id}event: {}\ndata: {data}\n\n", event.name))
}

#[cfg(test)]
mod tests {
    use super::{NAME, attachment};
    use percent_encoding::percent_decode_str;

    #[test]
    fn a_name_of_a_file_cannot_leave_its_quotes_or_look_like_another() {
        for (name, header) in [
            ("plan.pdf", r#"attachment; filename="plan.pdf"; filename*=UTF-8''plan.pdf"#),
            ("naïve; x.txt", r#"attachment; filename="na_ve_ x.txt"; filename*=UTF-8''na%C3%AFve%3B%20x.txt"#),
            ("a\"b\r\nX: y", r#"attachment; filename="a_bX: y"; filename*=UTF-8''a%22bX%3A%20y"#),
            ("../x\\y%2e", r#"attachment; filename=".._x_y_2e"; filename*=UTF-8''.._x_y%252e"#),
            ("invoice\u{202e}fdp.exe", r#"attachment; filename="invoicefdp.exe"; filename*=UTF-8''invoicefdp.exe"#),
        ] {
            assert_eq!(attachment(name), header);
        }
    }

    #[test]
    fn a_long_name_of_a_file_fits_into_a_small_header_and_keeps_its_ending() {
        for character in ["a", " ", "鷺", "🪶"] {
            let (long, unended) = (character.repeat(1000), format!("heron.{}", character.repeat(1000)));
            for (name, ending) in [(format!("{long}.pdf"), ".pdf"), (format!("{long}.tar.gz"), ".gz"), (unended, "")] {
                let header = attachment(&name);
                assert!(header.len() < 1024, "{header}");
                let (_, sent) = header.split_once("filename*=UTF-8''").expect("the name");
                let sent = percent_decode_str(sent).decode_utf8().expect("whole characters");
                assert!(sent.len() <= NAME && sent.len() > NAME - 4, "{sent}");
                let stem = sent.strip_suffix(ending).expect("the ending");
                assert!(name.starts_with(stem), "{sent}");
                assert!(header.contains(&format!("{ending}\"; filename*")), "{header}");
            }
        }
    }
}
