//! A collector of a test: it takes what OTLP sends over HTTP, as the test says, and reads it by the definitions of OpenTelemetry.
use axum::{Router, body::Bytes, extract::State};
use http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{AnyValue, KeyValue, any_value},
    metrics::v1::{Metric, metric, number_data_point},
    resource::v1::Resource,
};
use prost::Message;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// What the collector does with what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Takes,
    /// Answers that it cannot.
    Fails,
    /// Never answers.
    Silent,
}

/// A span as it came, with everything as text.
#[derive(Clone, Debug)]
pub struct Span {
    pub service: String,
    pub trace: String,
    pub id: String,
    /// Empty for the first of a trace.
    pub parent: String,
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    pub took_nanos: i128,
    /// Everything that the span says, for who looks for what it must not say.
    pub whole: String,
}

#[derive(Default)]
struct Got {
    spans: Vec<Span>,
    /// The last value of each metric by service, name and labels; of a histogram how many values it has.
    metrics: BTreeMap<(String, String, String), f64>,
    headers: Vec<HeaderMap>,
    calls: usize,
}

struct Shared {
    mood: Mutex<Mood>,
    got: Mutex<Got>,
}

pub struct Collector {
    /// The address for SVC_OTLP_ENDPOINT.
    pub base: String,
    shared: Arc<Shared>,
}

impl Collector {
    pub async fn start(mood: Mood) -> Collector {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { mood: Mutex::new(mood), got: Mutex::default() });
        let router = Router::new().fallback(take).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Collector { base, shared }
    }

    pub fn set(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// How often it was called, whatever it did.
    pub fn calls(&self) -> usize {
        self.shared.got.lock().unwrap().calls
    }

    pub fn spans(&self) -> Vec<Span> {
        self.shared.got.lock().unwrap().spans.clone()
    }

    /// The headers of each call that was taken.
    pub fn headers(&self) -> Vec<HeaderMap> {
        self.shared.got.lock().unwrap().headers.clone()
    }

    /// The sum of the values of a metric, over all labels that contain this.
    pub fn metric(&self, service: &str, name: &str, label: &str) -> Option<f64> {
        let got = self.shared.got.lock().unwrap();
        let of = got
            .metrics
            .iter()
            .filter(|((of, called, labels), _)| of == service && called == name && labels.contains(label));
        of.map(|(_, value)| *value).reduce(|sum, value| sum + value)
    }
}

async fn take(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    shared.got.lock().unwrap().calls += 1;
    let mood = *shared.mood.lock().unwrap();
    match mood {
        Mood::Takes => {}
        Mood::Fails => return StatusCode::SERVICE_UNAVAILABLE,
        Mood::Silent => std::future::pending().await,
    }
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let mut got = shared.got.lock().unwrap();
    got.headers.push(headers);
    match uri.path() {
        "/v1/traces" => spans(&mut got, ExportTraceServiceRequest::decode(body).unwrap()),
        "/v1/metrics" => metrics(&mut got, ExportMetricsServiceRequest::decode(body).unwrap()),
        other => panic!("{other} is no address of OTLP"),
    }
    StatusCode::OK
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    pairs.iter().map(|pair| (pair.key.clone(), text(pair.value.as_ref()))).collect()
}

fn service(resource: Option<&Resource>) -> String {
    attributes(&resource.unwrap().attributes)["service.name"].clone()
}

fn spans(got: &mut Got, request: ExportTraceServiceRequest) {
    for group in request.resource_spans {
        let service = service(group.resource.as_ref());
        for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            got.spans.push(Span {
                service: service.clone(),
                trace: hex::encode(&span.trace_id),
                id: hex::encode(&span.span_id),
                parent: hex::encode(&span.parent_span_id),
                name: span.name.clone(),
                attributes: attributes(&span.attributes),
                took_nanos: i128::from(span.end_time_unix_nano) - i128::from(span.start_time_unix_nano),
                whole: format!("{span:?}"),
            });
        }
    }
}

fn metrics(got: &mut Got, request: ExportMetricsServiceRequest) {
    for group in request.resource_metrics {
        let service = service(group.resource.as_ref());
        for metric in group.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
            for (labels, value) in points(&metric) {
                got.metrics.insert((service.clone(), metric.name.clone(), labels), value);
            }
        }
    }
}

fn points(metric: &Metric) -> Vec<(String, f64)> {
    let labels = |pairs: &[KeyValue]| format!("{:?}", attributes(pairs));
    let number = |value: &Option<number_data_point::Value>| match value {
        Some(number_data_point::Value::AsDouble(value)) => *value,
        Some(number_data_point::Value::AsInt(value)) => *value as f64,
        None => f64::NAN,
    };
    let numbers = |points: &[opentelemetry_proto::tonic::metrics::v1::NumberDataPoint]| {
        points.iter().map(|point| (labels(&point.attributes), number(&point.value))).collect()
    };
    match metric.data.as_ref().unwrap() {
        metric::Data::Gauge(gauge) => numbers(&gauge.data_points),
        metric::Data::Sum(sum) => numbers(&sum.data_points),
        metric::Data::Histogram(histogram) => {
            histogram.data_points.iter().map(|point| (labels(&point.attributes), point.count as f64)).collect()
        }
        other => panic!("{other:?}"),
    }
}
