//! `svc bulk dead`: what the bulk feed gave up.
use crate::{
    cli::{
        CliError, SOME_FAILED,
        output::{Output, count, one_line, say},
    },
    feed::dead::Dead,
    settings::Settings,
};
use clap::{Args, Subcommand};
use std::{collections::BTreeSet, process::ExitCode};
use svc_client::wire::DeadLetter;

#[derive(Args)]
pub struct DeadArguments {
    #[command(subcommand)]
    command: Option<DeadCommand>,
}

impl DeadArguments {
    /// Whether all messages stay where they are.
    pub fn only_looks(&self) -> bool {
        !matches!(self.command, Some(DeadCommand::Replay(_) | DeadCommand::Drop(_)))
    }
}

#[derive(Subcommand)]
enum DeadCommand {
    /// Lists the messages that were given up, with the reason.
    List {
        /// Only those with this code of docs/errors.md.
        #[arg(long, value_name = "CODE")]
        code: Option<String>,
    },
    /// Shows one message that was given up.
    Show {
        /// Its message id.
        id: String,
    },
    /// Has messages tried once more, as those who published them.
    Replay(Chosen),
    /// Removes messages for good.
    Drop(Chosen),
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Chosen {
    /// The ids of messages.
    ids: Vec<String>,
    /// All with this code of docs/errors.md.
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// All that are there.
    #[arg(long)]
    all: bool,
}

impl Chosen {
    fn has(&self, about: &DeadLetter) -> bool {
        self.all
            || self.code.as_ref().is_some_and(|code| about.code.as_ref() == Some(code))
            || about.message_id.as_ref().is_some_and(|id| self.ids.contains(id))
    }
}

pub async fn dead(settings: &Settings, output: Output, arguments: DeadArguments) -> Result<ExitCode, CliError> {
    if settings.amqp_url.is_blank() {
        let says = "there is no bulk feed here: set SVC_AMQP_URL to the address that the service has";
        return Err(CliError::Other(says.to_owned()));
    }
    let mut dead = Dead::open(settings).await.map_err(other)?;
    let done = match arguments.command.unwrap_or(DeadCommand::List { code: None }) {
        DeadCommand::List { code } => list(&mut dead, output, code.as_deref()).await,
        DeadCommand::Show { id } => show(&mut dead, output, &id).await,
        DeadCommand::Replay(chosen) => take(&mut dead, output, &chosen, true).await,
        DeadCommand::Drop(chosen) => take(&mut dead, output, &chosen, false).await,
    };
    dead.close().await;
    done
}

fn other(error: impl std::fmt::Display) -> CliError {
    CliError::Other(error.to_string())
}

fn row(about: &DeadLetter) -> Result<(), CliError> {
    let text = |text: &Option<String>, most| one_line(text.as_deref().unwrap_or("-"), most);
    let (id, code, user) = (text(&about.message_id, 70), text(&about.code, 40), text(&about.user, 40));
    say!("{id}  {code}  {user}  {}  {}", text(&about.filename, 60), text(&about.detail, 200));
    Ok(())
}

async fn list(dead: &mut Dead, output: Output, code: Option<&str>) -> Result<ExitCode, CliError> {
    let mut listed = 0;
    while let Some(letter) = dead.next().await.map_err(other)? {
        if code.is_some_and(|code| letter.about.code.as_deref() != Some(code)) {
            continue;
        }
        listed += 1;
        match output {
            Output::Json => Output::line(&letter.about)?,
            Output::Table => row(&letter.about)?,
        }
    }
    if output == Output::Table {
        say!("{}", count(listed, "dead message", "dead messages"));
    }
    Ok(ExitCode::SUCCESS)
}

fn missing(id: &str) -> CliError {
    CliError::Other(format!("there is no dead message `{}`: svc bulk dead list shows all", one_line(id, 200)))
}

async fn show(dead: &mut Dead, output: Output, id: &str) -> Result<ExitCode, CliError> {
    while let Some(letter) = dead.next().await.map_err(other)? {
        if letter.about.message_id.as_deref() != Some(id) {
            continue;
        }
        let shown = serde_json::to_value(&letter.about).map_err(other)?;
        match output {
            Output::Json => Output::line(&shown)?,
            Output::Table => {
                for (name, value) in shown.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    say!("{name}: {}", one_line(&text, 500));
                }
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    Err(missing(id))
}

/// Sends messages once more or removes them, one after another.
async fn take(dead: &mut Dead, output: Output, chosen: &Chosen, again: bool) -> Result<ExitCode, CliError> {
    let (mut taken, mut failed) = (0, 0);
    let mut unseen: BTreeSet<&String> = chosen.ids.iter().collect();
    while let Some(letter) = dead.next().await.map_err(other)? {
        if !chosen.has(&letter.about) {
            continue;
        }
        let id = letter.about.message_id.clone().unwrap_or_default();
        unseen.remove(&id);
        let done = if again { dead.replay(letter).await } else { dead.drop(letter).await };
        match done {
            Ok(()) => taken += 1,
            Err(error) if error.is_of_message() => {
                failed += 1;
                crate::cli::output::tell!("{} stays: {}", one_line(&id, 200), one_line(&error.to_string(), 400));
            }
            Err(error) => return Err(other(format!("{taken} are done, and the others stay: {error}"))),
        }
    }
    match output {
        Output::Json => {
            Output::line(&serde_json::json!({if again { "replayed" } else { "dropped" }: taken, "failed": failed}))?
        }
        Output::Table => {
            say!("{} {}", count(taken, "message", "messages"), if again { "sent once more" } else { "dropped" });
        }
    }
    match unseen.first() {
        Some(id) => Err(missing(id)),
        None if failed > 0 => Ok(ExitCode::from(SOME_FAILED)),
        None => Ok(ExitCode::SUCCESS),
    }
}
