//! `svc conversation`.
use super::{
    CliError, INTERRUPTED,
    output::{Output, count, one_line, say},
    unless_interrupted,
};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use std::{
    io::{self, Read},
    path::PathBuf,
    process::ExitCode,
};
use svc_client::{
    Client, Json, Remote,
    wire::{NewConversation, Settled, WaitQuery},
};

/// The largest file that is read: the service takes no larger text.
const BYTES: u64 = 8 << 20;

#[derive(Args)]
pub struct ConversationArguments {
    #[command(subcommand)]
    command: ConversationCommand,
}

#[derive(Subcommand)]
enum ConversationCommand {
    /// Stores a conversation that a program exported: messages in JSON or as JSON lines, or subtitles in WebVTT or SubRip.
    Import(ImportArguments),
}

#[derive(Args)]
struct ImportArguments {
    /// The file; `-` reads standard input.
    file: PathBuf,
    /// What the conversation is called [default: by its first speakers].
    #[arg(long)]
    title: Option<String>,
    /// The document under which it is put.
    #[arg(long = "under", alias = "parent", value_name = "ID")]
    parent: Option<i64>,
    /// Lets only the owner, and callers with a grant, read it.
    #[arg(long)]
    private: bool,
    /// When it began, as in 2021-02-03T04:05:06Z; the times of subtitles count from then.
    #[arg(long, value_name = "TIME")]
    begun: Option<DateTime<Utc>>,
    /// Waits until it can be found.
    #[arg(long)]
    wait: bool,
}

fn read(path: &PathBuf) -> io::Result<String> {
    match path.as_os_str() == "-" {
        true => text(io::stdin()),
        false => text(std::fs::File::open(path)?),
    }
}

/// A text, of which no more is read than is taken.
fn text(source: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(BYTES + 1).read_to_end(&mut bytes)?;
    // This comes first, because a text that is cut off may end within a character.
    if bytes.len() as u64 > BYTES {
        return Err(io::Error::other(format!("it has more than {BYTES} bytes; import it in parts")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

pub async fn conversation(
    client: &Client<Remote>,
    output: Output,
    arguments: ConversationArguments,
) -> Result<ExitCode, CliError> {
    let ConversationCommand::Import(arguments) = arguments.command;
    let ImportArguments { file, title, parent, private, begun, wait } = arguments;
    let named = file.display().to_string();
    let text = tokio::task::spawn_blocking(move || read(&file)).await;
    let text = text.map_err(|error| CliError::Other(error.to_string()))?;
    let text = text.map_err(|error| CliError::Other(format!("{named}: {error}")))?;
    let new = NewConversation {
        content: Some(text),
        title,
        parent_id: parent,
        private,
        event_time: begun,
        ..NewConversation::default()
    };
    let answer = client.create_conversation(WaitQuery { wait, ..WaitQuery::default() }, Json(new));
    let goes_on = "once it has arrived, the conversation is ingested in the background: `svc status` shows the queue, and the same command \
                   again stores nothing twice";
    let Some(made) = unless_interrupted(answer, goes_on).await? else { return Ok(ExitCode::from(INTERRUPTED)) };
    match output {
        Output::Json => Output::line(&made)?,
        Output::Table => {
            let turns = count(made.turns as usize, "turn", "turns");
            let known = if made.was_existing { ", stored before" } else { "" };
            say!("{}  {}  {turns}, {}{known}", made.document_id, one_line(&made.title, 60), made.settled);
        }
    }
    Ok(if made.settled == Settled::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_said_to_be_that_also_where_it_is_cut_within_a_character() {
        let most = usize::try_from(BYTES).unwrap();
        for (source, says) in [
            ("é".repeat(most / 2 + 1).into_bytes(), "more than 8388608 bytes"),
            (vec![b'a'; most + 1], "more than 8388608 bytes"),
            (vec![0xff; 3], "not UTF-8"),
        ] {
            let said = text(source.as_slice()).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
        assert_eq!(text("é".repeat(most / 2).as_bytes()).unwrap().len(), most);
    }
}
