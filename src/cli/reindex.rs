//! `svc reindex`: the form of the table of vectors and of its indexes. It works on the database itself, which has to run.
use super::{
    CliError, INTERRUPTED,
    output::{Output, say},
};
use crate::{
    app::{Backend, asked_to_stop},
    settings::{Settings, VectorIndex},
    store::{
        reindex::{self, Step, Wanted},
        vectors::Index,
    },
};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

/// How many vectors are copied in one transaction.
const BATCH: i64 = 1_000;

#[derive(Args)]
pub struct ReindexArguments {
    /// Brings the vectors into the form that SVC_VECTOR_PARTITIONS and SVC_VECTOR_INDEX want, while services and workers run. It may be stopped
    /// at any time, and goes on where it was with the same command.
    #[arg(long)]
    vectors: bool,
    /// How many documents are searched for, exactly and by bits, before an index of bits takes the place of one of halves.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    sample: i32,
    /// The least share of what exact searches find that an index of bits has to find; with less it is given up.
    #[arg(long, default_value = "0.95", value_parser = share)]
    least_recall: f64,
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "takes a share from 0 to 1, such as 0.95".to_owned())
}

pub async fn reindex(settings: Settings, output: Output, arguments: ReindexArguments) -> Result<ExitCode, CliError> {
    if !arguments.vectors {
        return Err(CliError::Other("name what is to be brought into another form: svc reindex --vectors".to_owned()));
    }
    let wanted = Wanted {
        parts: settings.vector_partitions,
        index: match settings.vector_index {
            VectorIndex::Halfvec => Index::Halves,
            VectorIndex::Bit => Index::Bits,
        },
        batch: BATCH,
        sample: arguments.sample,
        least_recall: arguments.least_recall,
    };
    let backend = Backend::join(&settings).await?;
    let work = async {
        backend.check_schema().await?;
        let mut told = Ok(());
        let tell = |step: Step| {
            if let Err(error) = tell(output, &step) {
                told = Err(error);
            }
        };
        reindex::vectors(&backend.pool, &wanted, tell).await?;
        told?;
        match output {
            Output::Json => Output::line(&json!({"step": "done", "parts": wanted.parts}))?,
            Output::Table => say!("the vectors are in the form that the settings want"),
        }
        Ok(ExitCode::SUCCESS)
    };
    let ended = tokio::select! {
        ended = work => ended,
        () = asked_to_stop() => {
            crate::cli::output::tell!("stopped: what was done stays done, and the same command goes on from here");
            Ok(ExitCode::from(INTERRUPTED))
        }
    };
    backend.stop().await;
    ended
}

fn tell(output: Output, step: &Step) -> Result<(), CliError> {
    match (output, step) {
        (Output::Json, Step::Copied { vectors, of }) => {
            Output::line(&json!({"step": "copied", "vectors": vectors, "of": of}))?;
        }
        (Output::Json, Step::Building { index }) => Output::line(&json!({"step": "building", "index": index}))?,
        (Output::Json, Step::Exchanged { parts }) => Output::line(&json!({"step": "exchanged", "parts": parts}))?,
        (Output::Json, Step::Measured { model, searches, recall }) => {
            Output::line(&json!({"step": "measured", "model": model, "searches": searches, "recall": recall}))?;
        }
        (Output::Json, Step::Dropped { index }) => Output::line(&json!({"step": "dropped", "index": index}))?,
        (Output::Table, Step::Copied { vectors, of }) => say!("copied {vectors} vectors of about {of}"),
        (Output::Table, Step::Building { index }) => say!("builds the index {index}, which takes a while"),
        (Output::Table, Step::Exchanged { parts: 1 }) => say!("the vectors are in one table"),
        (Output::Table, Step::Exchanged { parts }) => say!("the vectors are in {parts} parts"),
        (Output::Table, Step::Measured { model, searches, recall }) => {
            let share = recall * 100.0;
            say!("for {model}, by {searches} searches: bits find {share:.1} % of the ten nearest");
        }
        (Output::Table, Step::Dropped { index }) => say!("dropped the index {index}"),
    }
    Ok(())
}
