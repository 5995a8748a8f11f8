//! `svc reembed`: moves all vectors to another model.
use super::{
    CliError, INTERRUPTED,
    follow::may_pass,
    output::{Output, say},
};
use crate::app::asked_to_stop;
use clap::Args;
use std::{process::ExitCode, time::Duration};
use svc_client::{
    Client, Failure, Remote,
    wire::{ModelMove, ModelMoveResponse, ModelMoveState},
};

/// The time between two looks at how far it is.
const EVERY: Duration = Duration::from_secs(1);
/// So many looks in a row may find no service.
const AWAY: u32 = 300;
/// After so many looks in a row without a change somebody is told what a move needs.
const STILL: u32 = 30;

#[derive(Args)]
pub struct ReembedArguments {
    /// Shows how far the last move is, and begins none.
    #[arg(long, conflicts_with = "cancel")]
    state: bool,
    /// Calls the move off, and deletes what it made.
    #[arg(long)]
    cancel: bool,
    /// Begins the move and does not wait for its end.
    #[arg(long, conflicts_with_all = ["state", "cancel"])]
    no_wait: bool,
}

pub async fn reembed(
    client: &Client<Remote>,
    output: Output,
    arguments: ReembedArguments,
) -> Result<ExitCode, CliError> {
    if arguments.cancel {
        client.cancel_model_move().await?;
    }
    if arguments.state || arguments.cancel {
        tell(output, &client.read_model_move().await?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let begun = client.start_model_move().await?;
    tell(output, &begun)?;
    if arguments.no_wait {
        return Ok(ExitCode::SUCCESS);
    }
    let read = async || client.read_model_move().await;
    let hint = |text: &str| crate::cli::output::tell!("{text}");
    let followed = tokio::select! {
        followed = follow(read, begun, |now| tell(output, now), hint) => Some(followed?),
        () = asked_to_stop() => None,
    };
    match followed {
        Some(ModelMoveState::Done) => Ok(ExitCode::SUCCESS),
        Some(_) => Ok(ExitCode::FAILURE),
        None => {
            crate::cli::output::tell!(
                "the move goes on in the background: svc reembed --state shows how far it is, and svc reembed --cancel calls it off"
            );
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// Tells each change until the move is over, and once what may keep it from going on. Returns how it ended.
async fn follow(
    read: impl AsyncFn() -> Result<ModelMoveResponse, Failure>,
    mut known: ModelMoveResponse,
    tell: impl Fn(&ModelMoveResponse) -> Result<(), CliError>,
    hint: impl Fn(&str),
) -> Result<ModelMoveState, CliError> {
    let (mut away, mut still) = (0, 0);
    loop {
        match known.last.as_ref().map(|last| last.state) {
            Some(state @ (ModelMoveState::Done | ModelMoveState::Cancelled)) => return Ok(state),
            Some(ModelMoveState::Moving | ModelMoveState::Emptying | ModelMoveState::Cancelling) => {}
            None => return Err(CliError::Other("the service no longer knows of the move".to_owned())),
        }
        tokio::time::sleep(EVERY).await;
        let now = match read().await {
            // The move goes on while a process of the fleet starts anew.
            Err(failure) if may_pass(&failure) && away < AWAY => {
                away += 1;
                continue;
            }
            now => now?,
        };
        away = 0;
        still += 1;
        if now.last != known.last {
            still = 0;
            tell(&now)?;
        }
        if still == STILL
            && let Some(last) = &now.last
        {
            hint(&format!(
                "nothing has moved for {} s: a worker must have {} (SVC_EMBEDDING_COMING_MODEL); `svc status` says what tasks wait for",
                (EVERY * STILL).as_secs(),
                last.to_model
            ));
        }
        known = now;
    }
}

fn tell(output: Output, known: &ModelMoveResponse) -> Result<(), CliError> {
    match output {
        Output::Json => Output::line(known)?,
        Output::Table => match &known.last {
            None => say!("{} answers, and no move to another model was ever begun", known.model),
            Some(last) => say!("{}", line(&known.model, last)),
        },
    }
    Ok(())
}

/// What is said of a move.
fn line(model: &str, last: &ModelMove) -> String {
    let ModelMove { to_model, state, done, of, refused, .. } = last;
    let without = if *refused > 0 { format!(", {refused} get none") } else { String::new() };
    match state {
        ModelMoveState::Moving => format!("{done} of {of} vectors of {to_model} are made{without}; {model} answers"),
        ModelMoveState::Emptying => {
            format!("{to_model} answers{without}; the vectors of other models are being deleted")
        }
        ModelMoveState::Done => format!("{to_model} answers{without}; the move is done"),
        ModelMoveState::Cancelling => format!("the move to {to_model} was called off; what it made is being deleted"),
        ModelMoveState::Cancelled => format!("the move to {to_model} was called off; {model} answers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A move that has made 3 of 8 vectors.
    fn moving() -> ModelMove {
        ModelMove {
            from_model: "old@1".to_owned(),
            to_model: "new@2".to_owned(),
            state: ModelMoveState::Moving,
            done: 3,
            of: 8,
            refused: 1,
            passes: 0,
            tasks: 2,
            started_at: chrono::DateTime::UNIX_EPOCH,
            served_at: None,
            ended_at: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_move_that_stands_still_is_told_what_it_needs_once_until_it_goes_on() {
        let known =
            |last: ModelMove| ModelMoveResponse { model: "old@1".to_owned(), coming_model: None, last: Some(last) };
        let (looks, told) = (Cell::new(0), Cell::new(0));
        let hints = RefCell::new(Vec::new());
        let read = async || {
            looks.set(looks.get() + 1);
            Ok::<_, Failure>(known(match looks.get() {
                0..=100 => moving(),
                101..=150 => ModelMove { done: 4, ..moving() },
                _ => ModelMove { state: ModelMoveState::Done, ..moving() },
            }))
        };
        let tell = |_: &ModelMoveResponse| {
            told.set(told.get() + 1);
            Ok(())
        };
        let hint = |text: &str| hints.borrow_mut().push((looks.get(), text.to_owned()));
        let ended = follow(read, known(moving()), tell, hint).await.unwrap();
        assert_eq!((ended, told.get()), (ModelMoveState::Done, 2));
        let hints = hints.into_inner();
        assert_eq!(hints.iter().map(|(look, _)| *look).collect::<Vec<_>>(), [30, 131]);
        assert!(hints[0].1.contains("new@2") && hints[0].1.contains("svc status"), "{hints:?}");
    }

    #[test]
    fn a_line_says_how_far_it_is_and_who_answers() {
        let last = moving();
        assert_eq!(line("old@1", &last), "3 of 8 vectors of new@2 are made, 1 get none; old@1 answers");
        let over = ModelMove { state: ModelMoveState::Done, refused: 0, ..last };
        assert_eq!(line("new@2", &over), "new@2 answers; the move is done");
    }
}
