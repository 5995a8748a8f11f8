//! `svc events`.
use super::{
    CliError, SILENT_FOR,
    follow::may_pass,
    output::{Output, one_line, say},
};
use clap::Args;
use futures_util::StreamExt;
use std::{pin::pin, process::ExitCode, time::Duration};
use svc_client::{
    Client, Event, EventStream, Failure, Meta, Remote,
    wire::{EventQuery, EventResponse},
};

/// The time before a stream that broke off is opened again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long a stream may take to say where it begins; one that is held up by a proxy says nothing.
const BEGUN: Duration = Duration::from_secs(5);
/// How many times in a row a stream may fail to open.
const AWAY: u32 = 150;

#[derive(Args)]
pub struct EventsArguments {
    /// Where to begin: after the event with this number, or `now`; `0` begins with the first event.
    #[arg(long, value_name = "NUMBER", default_value = "now")]
    since: String,
    /// Only these kinds, with commas between them; `ingest.*` stands for all whose name begins so.
    #[arg(long, value_name = "KINDS")]
    kinds: Option<String>,
    /// Only what happens at or under this document, and what moves away from under it.
    #[arg(long, value_name = "ID")]
    root: Option<i64>,
    /// Also the nodes of files, as they settle.
    #[arg(long)]
    nodes: bool,
}

pub async fn events(client: &Client<Remote>, output: Output, arguments: EventsArguments) -> Result<ExitCode, CliError> {
    let EventsArguments { since, kinds, root, nodes } = arguments;
    let query = EventQuery { kinds, root, nodes, since: Some(since) };
    let mut following = Following::begin(client, query).await?;
    // One listener for all events, because one that is made anew for each hears nothing of a Ctrl-C between two.
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            event = following.next() => show(output, &event?)?,
            _ = &mut interrupted => break,
        }
    }
    match &following.last {
        Some(last) => {
            crate::cli::output::tell!("the events are kept: `svc events --since {last}` goes on after this one")
        }
        None => crate::cli::output::tell!("nothing happened meanwhile"),
    }
    Ok(ExitCode::SUCCESS)
}

fn show(output: Output, event: &EventResponse) -> Result<(), CliError> {
    match output {
        Output::Json => Output::line(event)?,
        Output::Table => {
            let document = event.document_id.map_or("-".to_owned(), |id| id.to_string());
            let (at, data) = (event.at.format("%F %T"), one_line(&event.data.to_string(), 200));
            say!("{:>8}  {at}  {:<18}  {document:>10}  {data}", event.seq, event.kind);
        }
    }
    Ok(())
}

/// Events without an end. A stream that breaks off is opened again where it was.
pub struct Following<'a> {
    client: &'a Client<Remote>,
    query: EventQuery,
    stream: Option<EventStream<EventResponse>>,
    last: Option<String>,
}

impl Following<'_> {
    /// Begins to follow; from here on no event is missed.
    pub async fn begin(client: &Client<Remote>, query: EventQuery) -> Result<Following<'_>, Failure> {
        let mut stream = client.follow_events(query.clone()).await?;
        if let Ok(begun) = tokio::time::timeout(BEGUN, stream.begun()).await {
            begun?;
        }
        let last = stream.last_id().map(str::to_owned);
        Ok(Following { client, query, stream: Some(stream), last })
    }

    /// The next event.
    pub async fn next(&mut self) -> Result<EventResponse, Failure> {
        let mut away = 0;
        loop {
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => match self.open().await {
                    Ok(stream) => self.stream.insert(stream),
                    Err(failure) if may_pass(&failure) && away < AWAY => {
                        away += 1;
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                    Err(failure) => return Err(failure),
                },
            };
            // A proxy that holds the stream up passes nothing on, not even the signs of life, so a silent stream is opened again.
            match tokio::time::timeout(SILENT_FOR, stream.next()).await {
                Ok(Some(Ok(Event { data, .. }))) => {
                    self.last = stream.last_id().map(str::to_owned);
                    return Ok(data);
                }
                Ok(Some(Err(failure))) if !may_pass(&failure) => return Err(failure),
                Ok(Some(Err(_)) | None) => {
                    self.left_off();
                    tokio::time::sleep(AGAIN).await;
                }
                Err(_) => self.left_off(),
            }
        }
    }

    /// Gives up a stream that broke off, and remembers where.
    fn left_off(&mut self) {
        let stream = self.stream.take();
        if let Some(last) = stream.as_ref().and_then(EventStream::last_id) {
            self.last = Some(last.to_owned());
        }
    }

    async fn open(&self) -> Result<EventStream<EventResponse>, Failure> {
        let meta = Meta { last_event_id: self.last.clone(), ..Meta::default() };
        self.client.given(meta).follow_events(self.query.clone()).await
    }
}
