//! The request headers that operations use: what a call says besides its path, query and body.
use crate::operation::{Call, Operation, Outcome, Transport};
use http::{HeaderMap, HeaderName, header};

/// A request header that operations use.
#[derive(Clone, Debug)]
pub struct MetaHeader {
    pub name: HeaderName,
    /// The description that the contract gives.
    pub about: &'static str,
}

macro_rules! meta { ($( $field:ident: $name:expr, $about:literal; )*) => {
    /// The metadata of a call. An operation ignores the headers that its reply does not use; but one that changes something and compares no
    /// versions refuses `If-Match`, unless that is `*`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Meta { $( #[doc = $about] pub $field: Option<String>, )* }

    impl Meta {
        /// Every header that an operation may use.
        pub fn headers() -> Vec<MetaHeader> {
            vec![$( MetaHeader { name: $name, about: $about } ),*]
        }

        /// Reads the metadata of a request. Bytes that are not UTF-8 are replaced, so that such a value still counts as given and
        /// matches nothing.
        pub fn read(headers: &HeaderMap) -> Meta {
            Meta { $( $field: joined(headers, &$name), )* }
        }

        /// The headers that are set, as they are sent.
        pub(crate) fn pairs(&self) -> Vec<(HeaderName, &str)> {
            let pairs = [$( ($name, self.$field.as_deref()) ),*];
            pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
        }
    }
} }

meta! {
    accept: header::ACCEPT, "The media types that the caller accepts.";
    if_none_match: header::IF_NONE_MATCH, "Entity tags of the versions that the caller has, or `*`; if one of them is current, the answer is 304 without a body.";
    if_match: header::IF_MATCH, "Entity tags of the versions that the caller wants to change, or `*` for any; if none of them is current, the answer is 412 and nothing is changed.";
    range: header::RANGE, "The range of bytes to send, for example `bytes=0-1023` or `bytes=-500`; a request for several ranges is answered with the whole file.";
    if_range: header::IF_RANGE, "An entity tag; if it is not current, `Range` is ignored and the answer is the whole file.";
    last_event_id: HeaderName::from_static("last-event-id"), "The id of the last event that the caller received; earlier events are not sent again.";
    idempotency_key: HeaderName::from_static("idempotency-key"), "Identifies the call, so that a repeated call takes effect only once.";
}

/// All values of a header as one list, as RFC 9110 joins them.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values: Vec<_> = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

impl Meta {
    /// Whether the caller has the version that the entity tag names, by RFC 9110's weak comparison.
    pub fn knows(&self, etag: &str) -> bool {
        self.if_none_match
            .as_deref()
            .is_some_and(|list| list.trim() == "*" || tags(list).any(|(_, tag)| tag == opaque(etag)))
    }

    /// Whether the caller wants to change the version that the entity tag names, by RFC 9110's strong comparison.
    pub fn may_change(&self, etag: &str) -> bool {
        self.if_match
            .as_deref()
            .is_none_or(|list| list.trim() == "*" || tags(list).any(|(is_weak, tag)| !is_weak && tag == etag))
    }

    /// Whether the answer may be a range of the version that the entity tag names, by RFC 9110's strong comparison.
    pub fn may_send_range(&self, etag: &str) -> bool {
        self.if_range.as_deref().is_none_or(|tag| tag.trim() == etag && !etag.starts_with("W/"))
    }

    /// Whether the caller names `media_type` and gives it at least the quality of `default`.
    pub fn prefers(&self, media_type: &str, default: &str) -> bool {
        let Some(accept) = self.accept.as_deref() else { return false };
        let quality = |wanted: &str| {
            let any_subtype = format!("{}/*", wanted.split('/').next().unwrap_or_default());
            // The most specific range decides.
            [wanted, any_subtype.as_str(), "*/*"].into_iter().find_map(|name| quality_of(accept, name)).unwrap_or(0.0)
        };
        quality_of(accept, media_type).is_some_and(|wanted| wanted > 0.0 && wanted >= quality(default))
    }
}

/// The quality that an `Accept` header gives to exactly this media range.
fn quality_of(accept: &str, range: &str) -> Option<f32> {
    accept.split(',').find_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        parts.next().filter(|name| name.eq_ignore_ascii_case(range))?;
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        Some(quality.map_or(1.0, |quality| quality.parse().unwrap_or(0.0)))
    })
}

/// The opaque part of an entity tag.
fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// The entity tags of a list, each with whether it is weak, and without the prefix that says so. A tag may contain a comma.
fn tags(list: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let from = rest.find('"')?;
        let length = rest[from + 1..].find('"')? + 2;
        let tag = (rest[..from].ends_with("W/"), &rest[from..from + length]);
        rest = &rest[from + length..];
        Some(tag)
    })
}

/// A transport that sends the same metadata with every call; see [`Client::given`](crate::Client::given).
#[derive(Clone)]
pub struct Given<'a, T> {
    pub(crate) inner: &'a T,
    pub(crate) meta: Meta,
}

impl<O: Operation, T: Transport<O> + Sync> Transport<O> for Given<'_, T> {
    fn send(&self, call: Call<O>) -> impl Future<Output = Outcome<O>> + Send {
        self.inner.send(Call { meta: self.meta.clone(), ..call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knows(list: &str, etag: &str) -> bool {
        Meta { if_none_match: Some(list.to_owned()), ..Meta::default() }.knows(etag)
    }

    #[test]
    fn a_change_is_of_a_version_that_is_exactly_named() {
        let may_change = |list: &str| Meta { if_match: Some(list.to_owned()), ..Meta::default() }.may_change(r#""a""#);
        for current in [r#""a""#, r#""x", "a""#, r#"W/"x", "a""#, "*"] {
            assert!(may_change(current), "{current}");
        }
        for other in [r#"W/"a""#, r#""b""#, "a", ""] {
            assert!(!may_change(other), "{other}");
        }
        assert!(Meta::default().may_change(r#""a""#), "nobody asked");
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_MATCH, http::HeaderValue::from_bytes(b"\"\xe9\"").expect("a value"));
        assert!(!Meta::read(&headers).may_change(r#""a""#), "the caller asked for some version");
    }

    #[test]
    fn a_list_of_entity_tags_is_compared_weakly() {
        for known in [r#""a""#, r#"W/"a""#, r#""x", "a""#, r#""x,y","a""#, "*", " * ", r#""a", "#] {
            assert!(knows(known, r#""a""#), "{known}");
        }
        for other in [r#""b""#, "a", "", r#""a"#, r#""x*""#, r#""A""#, r#""b,a""#] {
            assert!(!knows(other, r#""a""#), "{other}");
        }
        assert!(!Meta::default().knows(r#""a""#));
        let headers = [(header::IF_NONE_MATCH, r#""x""#), (header::IF_NONE_MATCH, r#""a""#)];
        let headers: HeaderMap = headers.into_iter().fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value.parse().expect("a value"));
            headers
        });
        assert!(Meta::read(&headers).knows(r#""a""#), "several header lines form one list");
    }

    #[test]
    fn if_range_is_compared_strongly() {
        let may =
            |tag: &str, etag: &str| Meta { if_range: Some(tag.to_owned()), ..Meta::default() }.may_send_range(etag);
        assert!(may(r#""a""#, r#""a""#) && Meta::default().may_send_range(r#""a""#));
        for other in [r#"W/"a""#, r#""b""#, "Sat, 29 Oct 1994 19:43:31 GMT", "*", ""] {
            assert!(!may(other, r#""a""#), "{other}");
        }
        assert!(!may(r#"W/"a""#, r#"W/"a""#), "a weak tag does not identify bytes");
    }

    #[test]
    fn another_media_type_must_be_named_and_preferred() {
        let prefers = |accept: &str| {
            Meta { accept: Some(accept.to_owned()), ..Meta::default() }.prefers("text/event-stream", "application/json")
        };
        for events in [
            "text/event-stream",
            "TEXT/event-stream; charset=utf-8",
            "application/json;q=0.5, text/event-stream",
            "text/event-stream, */*;q=0.1",
        ] {
            assert!(prefers(events), "{events}");
        }
        for json in [
            "",
            "*/*",
            "text/*",
            "application/json",
            "application/json, text/event-stream;q=0.9",
            "text/event-stream;q=0",
        ] {
            assert!(!prefers(json), "{json}");
        }
        assert!(!Meta::default().prefers("text/event-stream", "application/json"));
    }
}
