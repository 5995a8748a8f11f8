//! `svc facts`.
use super::{
    CliError, finite,
    output::{Output, one_line, say},
};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use svc_client::{
    Client, Json, OptionalJson, Remote,
    wire::{
        FactPath, FactQuery, FactResponse, FactType, Invalidation, NewFact, OnOverlap, PageQuery, Supersession, ValidAt,
    },
};

#[derive(Args)]
pub struct FactsArguments {
    #[command(subcommand)]
    command: FactsCommand,
}

#[derive(Subcommand)]
enum FactsCommand {
    /// Asserts a fact about a document.
    Add(AddArguments),
    /// Lists facts as they hold and are believed now, or at other times.
    List(ListArguments),
    /// Puts another object in the place of a fact's; the old fact stays readable.
    Replace(ReplaceArguments),
    /// Ends the belief in a fact; the fact stays readable.
    End(EndArguments),
    /// Shows every form that a statement had, oldest first.
    History {
        /// The fact's id.
        id: i64,
    },
}

/// What a fact leads to, when it holds, and what states it.
#[derive(Args)]
struct ObjectArguments {
    /// The document that it leads to.
    #[arg(long, value_name = "ID", conflicts_with = "value", required_unless_present = "value")]
    to: Option<i64>,
    /// The literal that it leads to, in place of a document.
    #[arg(long, value_name = "TEXT")]
    value: Option<String>,
    /// The literal's datatype, such as xsd:decimal [default: xsd:string].
    #[arg(long, value_name = "IRI", requires = "value")]
    datatype: Option<String>,
    /// The literal's language, such as en.
    #[arg(long, requires = "value", conflicts_with = "datatype")]
    language: Option<String>,
    #[command(flatten)]
    time: TimeArguments,
    /// The document that states it.
    #[arg(long, value_name = "ID")]
    source: Option<i64>,
    /// The words of the source that state it.
    #[arg(long, value_name = "WORDS", requires = "source")]
    quote: Option<String>,
    /// How sure it is that the source states it, 0 to 1.
    #[arg(long, requires = "source", value_parser = finite)]
    confidence: Option<f64>,
}

#[derive(Args)]
struct TimeArguments {
    /// Since when, as in 2021-02-03T04:05:06Z [default: open].
    #[arg(long, value_name = "TIME")]
    from: Option<DateTime<Utc>>,
    /// Until when.
    #[arg(long, value_name = "TIME")]
    until: Option<DateTime<Utc>>,
}

#[derive(Args)]
struct AddArguments {
    /// The document that the fact is about.
    subject: i64,
    /// The predicate, as namespace:name, a name of the namespace `default`, or an IRI.
    predicate: String,
    #[command(flatten)]
    object: ObjectArguments,
    /// Whether the fact may go stale: atemporal, static or dynamic [default: dynamic].
    #[arg(long = "type", value_name = "TYPE")]
    fact_type: Option<FactType>,
    /// Unites the fact's time with that of the same statement, where it is believed already.
    #[arg(long)]
    merge: bool,
}

#[derive(Args)]
struct ListArguments {
    /// The document that the facts are about.
    subject: Option<i64>,
    /// Only facts with this predicate.
    #[arg(long)]
    predicate: Option<String>,
    /// Only facts that lead to this document.
    #[arg(long, value_name = "ID")]
    to: Option<i64>,
    /// Only facts with this literal, to the letter.
    #[arg(long, value_name = "TEXT")]
    value: Option<String>,
    /// Only facts of this type: atemporal, static or dynamic.
    #[arg(long = "type", value_name = "TYPE")]
    fact_type: Option<FactType>,
    /// Only facts that this document states.
    #[arg(long, value_name = "ID")]
    source: Option<i64>,
    /// Only facts about this document and what is under it.
    #[arg(long, value_name = "ID")]
    under: Option<i64>,
    /// Only facts that hold at this time; any for all times [default: now].
    #[arg(long, value_name = "TIME", value_parser = valid_at)]
    at: Option<ValidAt>,
    /// What the store believed at this time [default: now].
    #[arg(long, value_name = "TIME")]
    known: Option<DateTime<Utc>>,
    /// What the store has ceased to believe.
    #[arg(long)]
    invalidated: bool,
    /// Leaves out what rules derived.
    #[arg(long)]
    asserted: bool,
    /// Only what rules derived.
    #[arg(long, conflicts_with = "asserted")]
    derived: bool,
}

#[derive(Args)]
struct ReplaceArguments {
    /// The fact's id.
    id: i64,
    #[command(flatten)]
    object: ObjectArguments,
}

#[derive(Args)]
struct EndArguments {
    /// The fact's id.
    id: i64,
    #[command(flatten)]
    time: TimeArguments,
    /// Why [default: withdrawn].
    #[arg(long)]
    reason: Option<String>,
}

fn valid_at(text: &str) -> Result<ValidAt, String> {
    match text {
        "any" => Ok(ValidAt::Any),
        text => {
            text.parse().map(ValidAt::At).map_err(|_| "takes any, or a time such as 2021-02-03T04:05:06Z".to_owned())
        }
    }
}

pub async fn facts(client: &Client<Remote>, output: Output, arguments: FactsArguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        FactsCommand::Add(AddArguments { subject, predicate, object, fact_type, merge }) => {
            let ObjectArguments { to, value, datatype, language, time, source, quote, confidence } = object;
            let new = NewFact {
                subject_id: Some(subject),
                predicate: Some(predicate),
                object_id: to,
                object_literal: value,
                object_datatype: datatype,
                object_language: language,
                valid_from: time.from,
                valid_until: time.until,
                fact_type,
                source_id: source,
                quote,
                confidence,
                on_overlap: merge.then_some(OnOverlap::Merge),
                ..NewFact::default()
            };
            let made = client.assert_fact(Json(new)).await?;
            match output {
                Output::Json => Output::line(&made)?,
                Output::Table => say!("fact {}: {}", made.fact.id, made.outcome),
            }
        }
        FactsCommand::List(arguments) => list(client, output, arguments).await?,
        FactsCommand::Replace(ReplaceArguments { id, object }) => {
            let ObjectArguments { to, value, datatype, language, time, source, quote, confidence } = object;
            let new = Supersession {
                object_id: to,
                object_literal: value,
                object_datatype: datatype,
                object_language: language,
                valid_from: time.from,
                valid_until: time.until,
                source_id: source,
                quote,
                confidence,
                ..Supersession::default()
            };
            let done = client.supersede_fact(FactPath { id }, Json(new)).await?;
            match output {
                Output::Json => Output::line(&done)?,
                Output::Table => {
                    let left: Vec<String> = done.remainders.iter().map(|fact| fact.id.to_string()).collect();
                    say!("fact {} in the place of {id}{}", done.fact.id, said_of(&left));
                }
            }
        }
        FactsCommand::End(EndArguments { id, time, reason }) => {
            let what = Invalidation { valid_from: time.from, valid_until: time.until, reason };
            let done = client.invalidate_fact(FactPath { id }, OptionalJson(Some(what))).await?;
            match output {
                Output::Json => Output::line(&done)?,
                Output::Table => {
                    let left: Vec<String> = done.remainders.iter().map(|fact| fact.id.to_string()).collect();
                    say!("fact {id} is no longer believed{}", said_of(&left));
                }
            }
        }
        FactsCommand::History { id } => {
            let mut query = PageQuery::default();
            let mut rows = Vec::new();
            loop {
                let page = client.read_fact_history(FactPath { id }, query.clone()).await?;
                rows.extend(page.facts);
                match page.next_cursor {
                    Some(cursor) => query.cursor = Some(cursor),
                    None => break,
                }
            }
            show(output, &rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is left of a fact.
fn said_of(left: &[String]) -> String {
    if left.is_empty() { String::new() } else { format!("; left of it: {}", left.join(", ")) }
}

async fn list(client: &Client<Remote>, output: Output, arguments: ListArguments) -> Result<(), CliError> {
    let ListArguments { subject, predicate, to, value, fact_type, source, under, at, known, .. } = arguments;
    let mut query = FactQuery {
        subject_id: subject,
        predicate,
        object_id: to,
        object_literal: value,
        source_id: source,
        parent_id: under,
        fact_type,
        valid_at: at,
        known_at: known,
        invalidated: arguments.invalidated,
        asserted_only: arguments.asserted,
        derived: arguments.derived.then_some(true),
        ..FactQuery::default()
    };
    let mut rows = Vec::new();
    loop {
        let page = client.list_facts(query.clone()).await?;
        // Every page is of the moment of the first.
        (query.valid_at, query.known_at, query.cursor) = (Some(page.valid_at), Some(page.known_at), page.next_cursor);
        match output {
            Output::Json => page.facts.iter().try_for_each(Output::line)?,
            Output::Table => rows.extend(page.facts),
        }
        if query.cursor.is_none() {
            break;
        }
    }
    if output == Output::Table {
        show(output, &rows)?;
    }
    Ok(())
}

fn show(output: Output, facts: &[FactResponse]) -> Result<(), CliError> {
    if output == Output::Json {
        facts.iter().try_for_each(Output::line)?;
        return Ok(());
    }
    let time = |time: Option<DateTime<Utc>>, open: &str| {
        time.map_or(open.to_owned(), |time| time.format("%Y-%m-%dT%H:%M:%SZ").to_string())
    };
    let rows: Vec<Vec<String>> = facts
        .iter()
        .map(|fact| {
            let object = match (fact.object_id, &fact.object_literal) {
                (Some(id), _) => id.to_string(),
                (None, literal) => format!("\"{}\"", one_line(literal.as_deref().unwrap_or_default(), 60)),
            };
            vec![
                fact.id.to_string(),
                fact.subject_id.to_string(),
                one_line(&fact.predicate, 40),
                object,
                time(fact.valid_from, "-"),
                time(fact.valid_until, "-"),
                time(Some(fact.recorded_at), "-"),
                fact.invalidation.as_deref().map_or(String::new(), |why| one_line(why, 40)),
            ]
        })
        .collect();
    Output::table(&["ID", "SUBJECT", "PREDICATE", "OBJECT", "FROM", "UNTIL", "RECORDED", "ENDED"], &rows)?;
    Ok(())
}
