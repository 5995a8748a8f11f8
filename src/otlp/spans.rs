//! The spans of requests and tasks, and the trace that they belong to.
use super::SENDING;
use futures_util::future::Either;
use http::{HeaderMap, HeaderName};
use opentelemetry::{
    Context, KeyValue,
    trace::{FutureExt, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceState, Tracer},
};
use std::{future::Future, str::FromStr};

/// The headers of W3C in which a caller names its trace.
pub const HEADERS: [HeaderName; 2] = [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];
/// The length of a `traceparent` of the version that is written here.
const LENGTH: usize = 55;

/// A span that lasts until it is told to end, or until its last copy is dropped. It is nothing if nothing is sent.
#[derive(Clone)]
pub struct Span(Option<Context>);

/// What a span shows. None of it comes from a document, and none is a secret.
pub type Attribute = KeyValue;

impl Span {
    /// Begins the span of a request: in the trace of its caller, or as the first of a trace.
    pub fn of_request(name: &'static str, headers: &HeaderMap, attributes: impl FnOnce() -> Vec<Attribute>) -> Span {
        let parent = || headers.get(&HEADERS[0])?.to_str().ok();
        Span::begin(name, SpanKind::Server, parent, attributes)
    }

    /// Begins the span of what was queued, a task or a message: in the trace of what queued it.
    pub fn of_queued(name: &str, traceparent: Option<&str>, attributes: impl FnOnce() -> Vec<Attribute>) -> Span {
        Span::begin(name, SpanKind::Consumer, || traceparent, attributes)
    }

    /// The span that this is called in.
    pub fn current() -> Span {
        Span(SENDING.get().map(|_| Context::current()))
    }

    /// A span that is not sent, and neither is anything in it.
    pub fn none() -> Span {
        Span(None)
    }

    fn begin<'a>(
        name: &str,
        kind: SpanKind,
        parent: impl FnOnce() -> Option<&'a str>,
        attributes: impl FnOnce() -> Vec<Attribute>,
    ) -> Span {
        let Some(sending) = SENDING.get() else { return Span(None) };
        let parent = match parent().and_then(read) {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder = SpanBuilder::from_name(name.to_owned()).with_kind(kind).with_attributes(attributes());
        let span = sending.tracer.build_with_context(builder, &parent);
        Span(Some(parent.with_span(span)))
    }

    /// Does something as a part of this span.
    pub fn carry<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        match &self.0 {
            Some(context) => Either::Left(work.with_context(context.clone())),
            None => Either::Right(work),
        }
    }

    /// Ends the span with what came of it; `failure` is a stable word.
    pub fn end(&self, attributes: impl IntoIterator<Item = Attribute>, failure: Option<&str>) {
        let Some(context) = &self.0 else { return };
        let span = context.span();
        for attribute in attributes {
            span.set_attribute(attribute);
        }
        if let Some(code) = failure {
            span.set_attribute(KeyValue::new("error.type", code.to_owned()));
            span.set_status(Status::error(code.to_owned()));
        }
        span.end();
    }
}

/// Does something as a part of what this is called in, also elsewhere and later.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> + use<F> {
    Span::current().carry(work)
}

/// The trace that this is called in, as it is stored with a task; `None` if there is none.
pub fn traceparent() -> Option<String> {
    SENDING.get()?;
    let context = Context::current();
    let span = context.span();
    let of = span.span_context();
    let write = || format!("00-{}-{}-{:02x}", of.trace_id(), of.span_id(), of.trace_flags().to_u8());
    of.is_valid().then(write)
}

/// Reads a `traceparent`; `None` if it has another form, of which callers are not told: W3C has a new trace begin then.
fn read(text: &str) -> Option<SpanContext> {
    let text = text.trim();
    let is_plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte) || byte == b'-';
    if !text.bytes().all(is_plain) {
        return None;
    }
    let (version, is_longer) = (text.get(..2)?, text.len() > LENGTH);
    // A later version may have more after what this one has.
    if version == "ff" || text.len() < LENGTH || (is_longer && (version == "00" || text.as_bytes()[LENGTH] != b'-')) {
        return None;
    }
    let mut parts = text[..LENGTH].split('-');
    let [_, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    if parts.next().is_some() || (trace.len(), span.len(), flags.len()) != (32, 16, 2) {
        return None;
    }
    let trace = opentelemetry::TraceId::from_hex(trace).ok()?;
    let span = opentelemetry::SpanId::from_hex(span).ok()?;
    // Only the flag of this version counts.
    let flags = opentelemetry::TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & 1);
    let state = TraceState::from_str("").ok()?;
    Some(SpanContext::new(trace, span, flags, true, state)).filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_traceparent_is_read_by_the_rules_of_w3c() {
        let good = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let read_good = read(&good).expect("a context");
        assert_eq!(
            (read_good.trace_id().to_string().as_str(), read_good.is_sampled(), read_good.is_remote()),
            (TRACE, true, true)
        );
        assert!(!read(&good.replace("-01", "-00")).expect("a context").is_sampled());
        assert!(read(&format!("cc-{TRACE}-00f067aa0ba902b7-01-what-ever")).is_none(), "the rest has other letters");
        assert!(read(&format!("cc-{TRACE}-00f067aa0ba902b7-01-abc")).expect("a later version").is_sampled());
        for bad in [
            String::new(),
            "00".to_owned(),
            good.to_uppercase(),
            format!("ff{}", &good[2..]),
            format!("{good}-00"),
            format!("cc{}x", &good[2..]),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
            good.replace('-', "_"),
            "é".repeat(40),
            "-".repeat(55),
        ] {
            assert!(read(&bad).is_none(), "{bad}");
        }
    }
}
