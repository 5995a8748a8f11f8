//! Makes a span of each statement of the database that is a part of a trace. The driver logs a statement when it is over, where it was awaited.
use super::{SENDING, statement};
use opentelemetry::{
    Context, KeyValue,
    trace::{Span, SpanBuilder, SpanKind, TraceContextExt, Tracer},
};
use std::{
    fmt,
    time::{Duration, SystemTime},
};
use tracing::{Event, Level, Metadata, Subscriber, field};
use tracing_subscriber::layer;

/// Where the driver logs statements.
const TARGET: &str = "sqlx::query";

/// Listens to the driver.
pub struct Statements;

impl Statements {
    /// Whether this is about a statement.
    pub fn heeds(metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET && *metadata.level() <= Level::DEBUG
    }
}

impl<S: Subscriber> layer::Layer<S> for Statements {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        let (Some(sending), context) = (SENDING.get(), Context::current()) else { return };
        // What belongs to no trace (polls, upkeep) would drown those that do.
        if event.metadata().target() != TARGET || !context.span().span_context().is_sampled() {
            return;
        }
        let mut logged = Logged::default();
        event.record(&mut logged);
        let text =
            statement::without_values(if logged.statement.is_empty() { &logged.summary } else { &logged.statement });
        let end = SystemTime::now();
        let took = Duration::try_from_secs_f64(logged.seconds).unwrap_or_default();
        let rows = i64::try_from(logged.returned).unwrap_or(i64::MAX);
        let builder = SpanBuilder::from_name(statement::name(&text))
            .with_kind(SpanKind::Client)
            .with_start_time(end.checked_sub(took).unwrap_or(end))
            .with_attributes([
                KeyValue::new("db.system.name", "postgresql"),
                KeyValue::new("db.query.text", text),
                KeyValue::new("db.response.returned_rows", rows),
            ]);
        sending.tracer.build_with_context(builder, &context).end_with_timestamp(end);
    }
}

/// What the driver says: a short statement is in the summary, a longer one in a field of its own.
#[derive(Default)]
struct Logged {
    summary: String,
    statement: String,
    returned: u64,
    seconds: f64,
}

impl field::Visit for Logged {
    fn record_str(&mut self, field: &field::Field, value: &str) {
        match field.name() {
            "summary" => value.clone_into(&mut self.summary),
            "db.statement" => value.clone_into(&mut self.statement),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &field::Field, value: u64) {
        if field.name() == "rows_returned" {
            self.returned = value;
        }
    }

    fn record_f64(&mut self, field: &field::Field, value: f64) {
        if field.name() == "elapsed_secs" {
            self.seconds = value;
        }
    }

    fn record_debug(&mut self, _: &field::Field, _: &dyn fmt::Debug) {}
}
