//! The metrics of the process, for the collector as well as for `/metrics`.
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use opentelemetry::{KeyValue, metrics::Meter};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A recorder that records everything with an instrument of OpenTelemetry of the same name too.
pub struct Mirrored<R> {
    inner: R,
    meter: &'static Meter,
    /// The upper ends of the buckets of histograms.
    buckets: Vec<f64>,
    descriptions: Mutex<HashMap<String, String>>,
    // A caller asks for its instrument with each value that it records.
    counters: Kept<Counter>,
    gauges: Kept<Gauge>,
    histograms: Kept<Histogram>,
}

type Kept<T> = Mutex<HashMap<Key, T>>;

/// The instrument of this key, which is made once.
fn kept<T: Clone>(instruments: &Kept<T>, key: &Key, make: impl FnOnce() -> T) -> T {
    let mut instruments = instruments.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = instruments.get(key) {
        return known.clone();
    }
    instruments.entry(key.clone()).or_insert(make()).clone()
}

impl<R> Mirrored<R> {
    pub fn new(inner: R, meter: &'static Meter, buckets: &[f64]) -> Mirrored<R> {
        Mirrored {
            inner,
            meter,
            buckets: buckets.to_vec(),
            descriptions: Mutex::default(),
            counters: Mutex::default(),
            gauges: Mutex::default(),
            histograms: Mutex::default(),
        }
    }

    fn describe(&self, name: &KeyName, description: &SharedString) {
        let mut known = self.descriptions.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.as_str().to_owned(), description.to_string());
    }

    fn description(&self, key: &Key) -> String {
        let known = self.descriptions.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key.name()).cloned().unwrap_or_default()
    }
}

fn attributes(key: &Key) -> Vec<KeyValue> {
    key.labels().map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned())).collect()
}

impl<R: Recorder> Recorder for Mirrored<R> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&name, &description);
        self.inner.describe_counter(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&name, &description);
        self.inner.describe_gauge(name, unit, description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&name, &description);
        self.inner.describe_histogram(name, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        kept(&self.counters, key, || {
            let builder = self.meter.u64_counter(key.name().to_owned()).with_description(self.description(key));
            let (inner, instrument) = (self.inner.register_counter(key, metadata), builder.build());
            Counter::from_arc(Arc::new(BothCounters { inner, instrument, attributes: attributes(key) }))
        })
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        kept(&self.gauges, key, || {
            let builder = self.meter.f64_gauge(key.name().to_owned()).with_description(self.description(key));
            let (inner, instrument) = (self.inner.register_gauge(key, metadata), builder.build());
            let value = AtomicU64::new(0.0_f64.to_bits());
            Gauge::from_arc(Arc::new(BothGauges { inner, instrument, attributes: attributes(key), value }))
        })
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        kept(&self.histograms, key, || {
            let builder = self.meter.f64_histogram(key.name().to_owned()).with_description(self.description(key));
            let instrument = builder.with_boundaries(self.buckets.clone()).build();
            let inner = self.inner.register_histogram(key, metadata);
            Histogram::from_arc(Arc::new(BothHistograms { inner, instrument, attributes: attributes(key) }))
        })
    }
}

struct BothCounters {
    inner: Counter,
    instrument: opentelemetry::metrics::Counter<u64>,
    attributes: Vec<KeyValue>,
}

impl CounterFn for BothCounters {
    fn increment(&self, value: u64) {
        self.inner.increment(value);
        self.instrument.add(value, &self.attributes);
    }

    fn absolute(&self, value: u64) {
        // Nothing here counts elsewhere than in its counter.
        self.inner.absolute(value);
    }
}

struct BothGauges {
    inner: Gauge,
    instrument: opentelemetry::metrics::Gauge<f64>,
    attributes: Vec<KeyValue>,
    /// What it shows, which is kept here because whoever changes it may know only by how much.
    value: AtomicU64,
}

impl BothGauges {
    fn change(&self, change: impl Fn(f64) -> f64) {
        let apply = |bits| Some(change(f64::from_bits(bits)).to_bits());
        let before = self.value.fetch_update(Ordering::Relaxed, Ordering::Relaxed, apply);
        let before = before.unwrap_or_else(|bits| bits);
        self.instrument.record(change(f64::from_bits(before)), &self.attributes);
    }
}

impl GaugeFn for BothGauges {
    fn increment(&self, value: f64) {
        self.inner.increment(value);
        self.change(|before| before + value);
    }

    fn decrement(&self, value: f64) {
        self.inner.decrement(value);
        self.change(|before| before - value);
    }

    fn set(&self, value: f64) {
        self.inner.set(value);
        self.change(|_| value);
    }
}

struct BothHistograms {
    inner: Histogram,
    instrument: opentelemetry::metrics::Histogram<f64>,
    attributes: Vec<KeyValue>,
}

impl HistogramFn for BothHistograms {
    fn record(&self, value: f64) {
        self.inner.record(value);
        self.instrument.record(value, &self.attributes);
    }
}
