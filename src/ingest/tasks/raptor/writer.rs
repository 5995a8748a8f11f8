//! Summaries that a language model writes in the place of sentences that were chosen. Every answer is kept, so the same texts are not paid twice.
use super::{
    super::{
        Classify, OrTaskFailure,
        asking::{Asked, Asking},
        summary::{self, MOST_WORDS, PROMPT},
    },
    tokens,
};
use crate::{
    embedding::Model,
    ingest::{
        Tools,
        raptor::{Method, NewSummary, Node, Summary},
    },
    llm::LlmError,
};
use serde_json::Value;
use sqlx::PgConnection;
use svc_actors::{Grant, TaskFailure};
use svc_client::wire::RaptorRequest;

pub(super) struct Writer<'a> {
    tools: &'a Tools,
    asking: Asking<'a>,
    model: Model,
    /// Sentences will do where there turns out to be no language model.
    may_lack: bool,
    /// Why nothing more is asked: there is no language model.
    lacks: Option<String>,
}

impl<'a> Writer<'a> {
    /// `None` where sentences are chosen: the request says so, or there is no language model and it asks for none.
    pub async fn new(
        tools: &'a Tools,
        grant: &'a Grant,
        model: &Model,
        request: &RaptorRequest,
    ) -> Result<Option<Writer<'a>>, TaskFailure> {
        if request.by_model == Some(false) {
            return Ok(None);
        }
        let may_lack = request.by_model.is_none();
        match tools.language_model.must_answer().await {
            Ok(()) => {
                let asking = Asking::new(tools, grant, None);
                Ok(Some(Writer { tools, asking, model: model.clone(), may_lack, lacks: None }))
            }
            Err(LlmError::NotConfigured(_)) if may_lack => Ok(None),
            Err(error) => Err(error.classify()),
        }
    }

    /// Writes a summary of texts that do not fit it. Where the model has nothing of use to say, the chosen sentences stay, with the reason.
    pub async fn write(&mut self, new: &mut NewSummary, nodes: &[Node]) -> Result<(), TaskFailure> {
        if new.summary.method != Method::Extracted {
            return Ok(());
        }
        if self.lacks.is_some() {
            new.not_written.clone_from(&self.lacks);
            return Ok(());
        }
        let texts: Vec<&str> = new.members.iter().map(|(member, _)| nodes[*member].text.as_str()).collect();
        let text = texts.join("\n\n");
        if text.len() > summary::most_bytes(self.tools) {
            new.not_written = Some("the texts are longer than SVC_LLM_CONTEXT_TOKENS".to_owned());
            return Ok(());
        }
        let words = (new.room * 3 / 4).clamp(8, MOST_WORDS);
        let answer = match summary::ask(self.tools, &mut self.asking, &text, words).await? {
            Asked::Answer(answer) => answer.answer,
            Asked::Error(
                error @ (LlmError::TooLong(_)
                | LlmError::Broken(_)
                | LlmError::OnlyReasoning
                // This text is refused, and not every call.
                | LlmError::Refused { status: 0, .. }),
            ) => {
                new.not_written = Some(error.to_string());
                return Ok(());
            }
            // Whatever is at the address by default is no language model.
            Asked::Error(error @ LlmError::NotConfigured(_)) if self.may_lack => {
                self.lacks = Some(error.to_string());
                new.not_written.clone_from(&self.lacks);
                return Ok(());
            }
            Asked::Error(error) => return Err(error.classify()),
            // A worker with batches takes no task of this type.
            Asked::Later => return Ok(()),
        };
        let told = summary::fit(&self.model, answer, new.room).await?.text;
        if told.trim().is_empty() {
            new.not_written = Some("the language model said nothing".to_owned());
            return Ok(());
        }
        let model = self.model.clone();
        let (text, tokens) = tokio::task::spawn_blocking(move || {
            let tokens = tokens(&model, &told);
            (told, tokens)
        })
        .await
        .classified()?;
        new.summary = Summary { text, method: Method::Written, tokens };
        Ok(())
    }

    /// Forgets the answers that the tree did not take, and tells what the questions took, as evidence.
    pub async fn keep(self, conn: &mut PgConnection) -> Result<Value, TaskFailure> {
        self.asking.keep_only(conn).await?;
        Ok(self.asking.took(PROMPT))
    }
}
