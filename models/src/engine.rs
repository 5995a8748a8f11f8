use crate::{
    Device, Embedding, ModelError, ModelInfo, ModelSettings, TokenVectors, VECTOR_WIDTH,
    architecture::EncoderConfig,
    encoder::Wanted,
    folder::{ModelFolder, PROMPTS},
    health::Watched,
    location::LONGEST_TEXT,
    passes::{self, Heard, IsGone},
    queue::{Lane, Work},
    ragged::Ragged,
    tokenizer::{OverLimit, TextTokenizer, Tokens},
    weights::Packs,
    worker::Threads,
};
use rayon::prelude::*;
use std::sync::Arc;

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod vector_tests;

/// A loaded model and its threads. It is a handle: cloning is cheap, and the threads end with the last clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    info: ModelInfo,
    tokenizer: TextTokenizer,
    device: Arc<Watched>,
    threads: Arc<Threads>,
    /// Whether this machine's threads are free for tokenising, because passes run on another processor. One thread would keep that one waiting.
    has_free_threads: bool,
    batch_size: usize,
    token_batch_size: usize,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("info", &self.shared.info).finish_non_exhaustive()
    }
}

impl Engine {
    /// Reads the model's files and starts its threads. This blocks for some tenths of a second for a small model.
    pub fn load(settings: &ModelSettings) -> Result<Self, ModelError> {
        settings.check()?;
        let kind: Device = settings.device.parse()?;
        let folder = ModelFolder::open(settings)?;
        let config_path = folder.path.join("config.json");
        // A cross-encoder has the same weights below its head, but they give no embeddings.
        if let Some(head) = folder.classifier {
            let what = format!("{head}, a classifier or reranker,");
            let supported = "supported: embedding models of architecture BERT, MPNet, NomicBERT and ModernBERT";
            return Err(ModelError::Unsupported { path: config_path, what, supported });
        }
        let config = EncoderConfig::from_json(folder.architecture, &folder.config, &config_path)?;
        let (native_width, max_positions) = (config.shape.hidden, config.shape.positions);
        if native_width > VECTOR_WIDTH {
            return Err(ModelError::TooWide { model: folder.name, native_width });
        }
        if let Some(width) = folder.catalog_width.filter(|&width| width != native_width) {
            let problem = format!("hidden_size is {native_width}, but model {} has {width}", folder.name);
            return Err(ModelError::Corrupt { path: config_path, problem });
        }
        let tokenizer = TextTokenizer::from_untrusted_json(&folder.tokenizer, config.shape.vocabulary)
            .map_err(|problem| ModelError::Corrupt { path: folder.path.join("tokenizer.json"), problem })?;
        if tokenizer.special_count() >= max_positions {
            let problem = format!("max_position_embeddings is {max_positions}, too few for any text");
            return Err(ModelError::Corrupt { path: config_path, problem });
        }
        let longest = folder.max_length.map_or(max_positions, |most| most.min(max_positions));
        if tokenizer.special_count() >= longest {
            let problem = format!("max_seq_length is {longest}, too few for any text");
            return Err(ModelError::Corrupt { path: folder.path.join(LONGEST_TEXT), problem });
        }
        for (of, prefix) in [("query", &folder.query_prefix), ("document", &folder.document_prefix)] {
            let tokens = tokenizer.count(prefix, "")?;
            if tokens >= longest {
                let problem =
                    format!("its prompt {of:?} leaves no room: it has {tokens} tokens, and a text may have {longest}");
                return Err(ModelError::Corrupt { path: folder.path.join(PROMPTS), problem });
            }
        }
        let weights = folder.path.join("model.safetensors");
        let packs = Packs::of(settings.models_dir.as_deref());
        let precision = kind.precision(settings.precision);
        let (path, model_config) = (weights.clone(), folder.config.clone());
        let open = move || {
            let (parts, digest) = Packs::load(packs.as_ref(), &path, &model_config, |file| config.load(file))?;
            Ok((kind.encoder(parts, precision)?, digest))
        };
        let (device, digest) = Watched::load(open, weights)?;
        let info = ModelInfo {
            identity: folder.identity(digest, precision),
            name: folder.name,
            architecture: folder.architecture,
            pooling: folder.pooling,
            native_width,
            width: VECTOR_WIDTH,
            max_positions,
            doc_window: settings.doc_window.min(longest),
            token_window: settings.token_window.min(longest),
            query_prefix: folder.query_prefix,
            document_prefix: folder.document_prefix,
            is_centred: folder.is_centred,
            device: kind.to_string(),
            precision,
            threads: kind.threads(settings.threads),
        };
        tracing::info!(
            model.identity = info.identity,
            model.device = info.device,
            model.threads = info.threads,
            "model loaded"
        );
        Self::start(info, tokenizer, device, kind, settings)
    }

    fn start(
        info: ModelInfo,
        tokenizer: TextTokenizer,
        device: Arc<Watched>,
        kind: Device,
        settings: &ModelSettings,
    ) -> Result<Self, ModelError> {
        let threads = Threads::start(info.threads, kind.pass_limit(), settings.queue_capacity)?;
        let shared = Shared {
            info,
            tokenizer,
            device,
            threads,
            has_free_threads: kind.is_graphics(),
            batch_size: settings.batch_size,
            token_batch_size: settings.token_batch_size,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether texts can be embedded now.
    ///
    /// # Errors
    /// The device is lost and is being opened again.
    pub fn ready(&self) -> Result<(), ModelError> {
        self.shared.device.encoder().map(drop)
    }

    /// Treats the device as lost, as several panics in a row would, so that a test sees what follows. The device reopens by itself.
    #[doc(hidden)]
    pub fn lose_device(&self, reason: &str) {
        self.shared.device.give_up(reason);
    }

    /// Describes what was loaded.
    pub fn info(&self) -> &ModelInfo {
        &self.shared.info
    }

    /// Returns one embedding per text, in the order of the texts. If a text has more than [`ModelInfo::doc_window`] tokens
    /// or its vector has no direction, the whole call is refused. Dropping the future cancels what has not begun.
    pub async fn embed_documents(&self, texts: Vec<String>) -> Result<Vec<Embedding>, ModelError> {
        self.embed_documents_heard(texts, &|_| ()).await
    }

    /// Embeds as [`Self::embed_documents`] does; `done` hears of the texts as they are done.
    pub async fn embed_documents_heard(
        &self,
        texts: Vec<String>,
        done: &Heard<'_>,
    ) -> Result<Vec<Embedding>, ModelError> {
        self.embed_documents_in(Lane::Document, texts, done).await
    }

    /// Embeds as [`Self::embed_documents`] does, for somebody who waits: after waiting queries, and before waiting documents.
    pub async fn embed_waited_for(&self, texts: Vec<String>) -> Result<Vec<Embedding>, ModelError> {
        self.embed_documents_in(Lane::Pair, texts, &|_| ()).await
    }

    /// Returns the vector of a query, which goes before all waiting pairs and documents.
    pub async fn embed_query(&self, text: String) -> Result<Vec<f32>, ModelError> {
        let vectors = self.embed_queries(vec![text]).await?;
        vectors.into_iter().next().ok_or(ModelError::Stopped)
    }

    /// Returns the vectors of queries, in their order. Each has a pass of its own, so that its vector does not depend on the others. If one
    /// has more tokens than the window, the whole call is refused.
    pub async fn embed_queries(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError> {
        let info = self.info();
        let tokens = self.tokenize(texts, &info.query_prefix, info.doc_window, false).await?;
        let embeddings = self.embed(&tokens, Lane::Query, 1, &|_| ()).await?;
        Ok(embeddings.into_iter().map(|embedding| embedding.vector).collect())
    }

    /// Returns the vectors of each text's tokens, in the order of the texts. If a text has more than
    /// [`ModelInfo::token_window`] tokens, the whole call is refused. The answer takes 4 bytes a component: 0.8 MB for
    /// 512 tokens of 384 components.
    pub async fn token_vectors(&self, texts: Vec<String>) -> Result<Vec<TokenVectors>, ModelError> {
        self.token_vectors_in(Lane::Document, &self.info().document_prefix, texts).await
    }

    /// Returns the vectors of a query's tokens. The query goes before all waiting pairs and documents.
    pub async fn query_token_vectors(&self, text: String) -> Result<TokenVectors, ModelError> {
        let vectors = self.token_vectors_in(Lane::Query, &self.info().query_prefix, vec![text]).await?;
        vectors.into_iter().next().ok_or(ModelError::Stopped)
    }

    /// Counts the tokens that the model would see of a document, including special tokens and the prefix. The time is
    /// linear in the text, so count long texts off the async threads.
    pub fn count_tokens(&self, text: &str) -> Result<usize, ModelError> {
        self.shared.tokenizer.count(&self.info().document_prefix, text)
    }

    /// Counts the text's own tokens, without special tokens and the prefix; these counts add up when texts are packed
    /// into a window.
    pub fn count_content_tokens(&self, text: &str) -> Result<usize, ModelError> {
        Ok(self.shared.tokenizer.count("", text)? - self.shared.tokenizer.special_count())
    }

    /// Whether the model knows no token of the text, or the text has none, so that its vector would be that of any other such text.
    pub fn is_unknown(&self, text: &str) -> Result<bool, ModelError> {
        self.shared.tokenizer.is_unknown(text)
    }

    /// The model's tokenizer.json, for [`crate::TokenCounter`].
    pub fn tokenizer_json(&self) -> &[u8] {
        self.shared.tokenizer.json()
    }

    /// The threads, which another model may share.
    pub(crate) fn threads(&self) -> Arc<Threads> {
        Arc::clone(&self.shared.threads)
    }

    /// How many passes wait for a thread of this model and of those that share its threads.
    pub fn queue_depth(&self) -> usize {
        self.shared.threads.queue.depth()
    }

    async fn embed_documents_in(
        &self,
        lane: Lane,
        texts: Vec<String>,
        done: &Heard<'_>,
    ) -> Result<Vec<Embedding>, ModelError> {
        let info = self.info();
        let tokens = self.tokenize(texts, &info.document_prefix, info.doc_window, false).await?;
        self.embed(&tokens, lane, self.shared.batch_size, done).await
    }

    async fn token_vectors_in(
        &self,
        lane: Lane,
        prefix: &str,
        texts: Vec<String>,
    ) -> Result<Vec<TokenVectors>, ModelError> {
        let info = self.info();
        let tokens = self.tokenize(texts, prefix, info.token_window, true).await?;
        let rows = self.run(&tokens, lane, Wanted::Rows, self.shared.token_batch_size, &|_| ()).await?;
        let width = info.native_width;
        let vectors = tokens.into_iter().zip(rows).map(|(tokens, mut values)| {
            values.truncate(tokens.content.end * width);
            values.drain(..tokens.content.start * width);
            TokenVectors::from_rows(tokens.ids[tokens.content].to_vec(), tokens.offsets, width, values)
        });
        vectors.collect()
    }

    async fn embed(
        &self,
        tokens: &[Tokens],
        lane: Lane,
        max_texts: usize,
        done: &Heard<'_>,
    ) -> Result<Vec<Embedding>, ModelError> {
        let pooling = self.info().pooling;
        let rows = self.run(tokens, lane, Wanted::Vector(pooling), max_texts, done).await?;
        let made = rows.iter().zip(tokens);
        made.map(|(row, tokens)| Embedding::of(row, pooling, tokens.ids.len(), VECTOR_WIDTH)).collect()
    }

    async fn tokenize(
        &self,
        texts: Vec<String>,
        prefix: &str,
        limit: usize,
        with_offsets: bool,
    ) -> Result<Vec<Tokens>, ModelError> {
        let (shared, prefix) = (Arc::clone(&self.shared), prefix.to_owned());
        let bytes = texts.iter().map(String::len).sum();
        passes::beside_the_runtime(bytes, move |is_cancelled| {
            shared.tokenize(&texts, &prefix, limit, with_offsets, is_cancelled)
        })
        .await
    }

    /// Runs all texts in passes of similar lengths; returns the results in the order of the texts.
    async fn run(
        &self,
        tokens: &[Tokens],
        lane: Lane,
        wanted: Wanted,
        max_texts: usize,
        done: &Heard<'_>,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let lengths: Vec<usize> = tokens.iter().map(|tokens| tokens.ids.len()).collect();
        let batch = |texts: &[usize]| Ragged::from_sequences(texts.iter().map(|&text| tokens[text].ids.as_slice()));
        // Without a device the caller need not wait for its turn to hear so.
        self.ready()?;
        let work = Work { device: Arc::clone(&self.shared.device), wanted };
        passes::run(&self.shared.threads, lane, work, &lengths, max_texts, batch, done).await
    }
}

impl Shared {
    fn tokenize(
        &self,
        texts: &[String],
        prefix: &str,
        limit: usize,
        with_offsets: bool,
        is_cancelled: &IsGone<'_>,
    ) -> Result<Vec<Tokens>, ModelError> {
        let tokenize = |(index, text): (usize, &String)| {
            if is_cancelled() {
                return Err(ModelError::Stopped);
            }
            self.tokenizer.tokenize(prefix, text, limit, with_offsets)?.map_err(|OverLimit { token_count }| {
                ModelError::TextTooLong { index, token_count, limit, chars_total: text.chars().count() }
            })
        };
        if self.has_free_threads && texts.len() > 1 {
            let tokens: Vec<_> = texts.par_iter().enumerate().map(tokenize).collect();
            return tokens.into_iter().collect();
        }
        texts.iter().enumerate().map(tokenize).collect()
    }
}
