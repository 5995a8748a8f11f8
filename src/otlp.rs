//! Sends traces and metrics to a collector by OTLP over HTTP, where `SVC_OTLP_ENDPOINT` is set.
//!
//! A trace begins with a request, or goes on from that of its caller (`traceparent`). Each task keeps the trace of what queued it, so that one
//! trace leads from an upload to its last task, through every process. Each statement of the database is a span. Nobody waits for the
//! collector: what it does not take in time is dropped.
mod instruments;
mod sender;
mod spans;
mod statement;
mod statements;

use crate::settings::{Secret, Settings};
use http::{HeaderName, HeaderValue};
pub use instruments::Mirrored;
use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider},
    trace::TracerProvider,
};
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider},
};
use sender::Sender;
pub use spans::{Attribute, HEADERS, Span, carried, traceparent};
pub use statements::Statements;
use std::{collections::HashMap, sync::OnceLock, time::Duration};

/// The time between two sendings of metrics, and the longest time that a span waits for others.
const EVERY: Duration = Duration::from_secs(10);
const SPANS_EVERY: Duration = Duration::from_secs(2);
/// How many spans wait for the collector; further ones are dropped.
const SPANS: usize = 8192;
const SPANS_TOGETHER: usize = 512;
/// How long the end of the process waits for what has not been sent.
const LAST: Duration = Duration::from_secs(3);

/// What this process sends with; empty if it sends nothing.
static SENDING: OnceLock<Sending> = OnceLock::new();

struct Sending {
    tracer: SdkTracer,
    meter: Meter,
}

/// Why nothing can be sent. No text holds a value of a header.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    #[error(
        "SVC_OTLP_HEADERS takes name=value, more of them after commas, with names and values of HTTP headers; the part {0} is none"
    )]
    Header(usize),
    #[error("SVC_OTLP_ENDPOINT cannot be used: {0}")]
    Endpoint(String),
}

/// The sending of traces and metrics.
pub struct Exporter {
    spans: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

/// Begins to send what this process does under this name; `None` if the settings name no collector. It must be called on a runtime, before the
/// first metric is recorded.
pub fn start(settings: &Settings, program: &'static str) -> Result<Option<Exporter>, OtlpError> {
    if settings.otlp_endpoint.is_empty() {
        return Ok(None);
    }
    let headers = headers(&settings.otlp_headers)?;
    let sender = Sender::new().map_err(|error| OtlpError::Endpoint(error.to_string()))?;
    let unusable = |error: opentelemetry_otlp::ExporterBuildError| OtlpError::Endpoint(error.to_string());
    let resource = Resource::builder_empty()
        .with_service_name(program)
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", settings.worker_id.clone()),
        ])
        .build();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(sender.clone())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/traces", settings.otlp_endpoint))
        .with_headers(headers.clone())
        .build()
        .map_err(unusable)?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(SPANS)
        .with_max_export_batch_size(SPANS_TOGETHER)
        .with_scheduled_delay(SPANS_EVERY)
        .build();
    let spans = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
        // Who calls decides for its own traces.
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.otlp_traces_share))))
        .with_resource(resource.clone())
        .build();
    let exporter = MetricExporter::builder()
        .with_http()
        .with_http_client(sender)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/metrics", settings.otlp_endpoint))
        .with_headers(headers)
        .build()
        .map_err(unusable)?;
    let reader = PeriodicReader::builder(exporter).with_interval(EVERY).build();
    let metrics = SdkMeterProvider::builder().with_reader(reader).with_resource(resource).build();
    // A second start in one process changes nothing.
    let _ = SENDING.set(Sending { tracer: spans.tracer("svc"), meter: metrics.meter("svc") });
    Ok(Some(Exporter { spans, metrics }))
}

impl Exporter {
    /// Sends what is left, unless the collector takes too long for it.
    pub async fn stop(self) {
        let stop = move || {
            // What went wrong has been logged.
            let _ = self.spans.shutdown_with_timeout(LAST);
            let _ = self.metrics.shutdown_with_timeout(LAST);
        };
        let _ = tokio::time::timeout(LAST * 2, tokio::task::spawn_blocking(stop)).await;
    }
}

/// What metrics are recorded with, if this process sends them.
pub fn meter() -> Option<&'static Meter> {
    SENDING.get().map(|sending| &sending.meter)
}

/// The headers of the setting, which usually hold a key.
fn headers(setting: &Secret) -> Result<HashMap<String, String>, OtlpError> {
    let parts = setting.expose().split(',').map(str::trim).enumerate().filter(|(_, part)| !part.is_empty());
    let header = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let name: HeaderName = name.trim().parse().ok()?;
        let value: HeaderValue = value.trim().parse().ok()?;
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    parts.map(|(at, part)| header(part).ok_or(OtlpError::Header(at + 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_a_bad_one_is_named_by_its_place_alone() {
        let read = |text: &str| headers(&Secret::from(text.to_owned()));
        let given = read(" Authorization = Bearer abc== , x-scope=7,").expect("headers");
        assert_eq!(
            given,
            HashMap::from([("authorization".into(), "Bearer abc==".into()), ("x-scope".into(), "7".into())])
        );
        assert!(read("").expect("none").is_empty());
        for bad in ["x=1,hush", "x=1,a b=hush", "x=1,name=hush\u{7}"] {
            let said = read(bad).expect_err("no header").to_string();
            assert!(said.contains("part 2") && !said.contains("hush"), "{said}");
        }
    }
}
