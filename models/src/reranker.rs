use crate::{
    Architecture, Device, Engine, ModelError, ModelSettings, Precision,
    architecture::EncoderConfig,
    encoder::Wanted,
    error::panic_message,
    folder::ModelFolder,
    health::Watched,
    passes,
    queue::{Lane, Work},
    ragged::Ragged,
    tokenizer::TextTokenizer,
    weights::{Packs, WeightFile},
    worker::Threads,
};
use std::{panic::catch_unwind, path::PathBuf, sync::Arc};

#[cfg(test)]
mod tests;

/// Which cross-encoder to load, and how to run it.
#[derive(Debug, Clone)]
pub struct RerankerSettings {
    /// A name from `config/models.toml`, or the path of a folder with the model's files.
    pub model: String,
    /// Where the folders of named models are; `None`: [`crate::default_models_dir`].
    pub models_dir: Option<PathBuf>,
    /// See [`Device`].
    pub device: String,
    /// How many threads run the model; 0: as many as the machine has.
    pub threads: usize,
    /// The most pairs in one pass.
    pub batch_size: usize,
    /// The most tokens of a pair, including special tokens; the model's own positions are a second limit.
    pub max_length: usize,
    /// How many passes may wait for their turn; further callers wait before their passes are queued.
    pub queue_capacity: usize,
}

impl Default for RerankerSettings {
    fn default() -> Self {
        Self {
            model: "cross-encoder/ms-marco-MiniLM-L6-v2".to_owned(),
            models_dir: None,
            device: "cpu".to_owned(),
            threads: 0,
            batch_size: 32,
            max_length: 512,
            queue_capacity: 256,
        }
    }
}

/// Describes what was loaded.
#[derive(Debug, Clone)]
pub struct RerankerInfo {
    pub name: String,
    pub architecture: Architecture,
    /// The most tokens of a pair, including special tokens.
    pub max_length: usize,
    pub device: String,
    /// How many threads run the model.
    pub threads: usize,
}

/// A loaded cross-encoder: it reads a query and a document together and says how well they fit. It is a handle: cloning
/// is cheap.
#[derive(Clone)]
pub struct Reranker {
    shared: Arc<Shared>,
}

struct Shared {
    info: RerankerInfo,
    tokenizer: TextTokenizer,
    device: Arc<Watched>,
    threads: Arc<Threads>,
    batch_size: usize,
}

impl std::fmt::Debug for Reranker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reranker").field("info", &self.shared.info).finish_non_exhaustive()
    }
}

/// Query and document as the model sees them.
struct Pair {
    ids: Vec<u32>,
    /// The number of tokens of type 0: the query's, and the special tokens before the document.
    first: usize,
}

impl Reranker {
    /// Reads the model's files and starts its threads. This blocks for some tenths of a second for a small model.
    ///
    /// If the reranker uses the same device as `beside`, it runs on that engine's threads. Its pairs, for which
    /// somebody waits, go before documents but after queries, and no more threads run models than the engine's settings say.
    pub fn load(settings: &RerankerSettings, beside: Option<&Engine>) -> Result<Self, ModelError> {
        let &RerankerSettings { threads, batch_size, max_length, queue_capacity, .. } = settings;
        let kind: Device = settings.device.parse()?;
        let of_engine = ModelSettings {
            model: settings.model.clone(),
            models_dir: settings.models_dir.clone(),
            device: settings.device.clone(),
            threads,
            batch_size,
            doc_window: max_length,
            queue_capacity,
            ..ModelSettings::default()
        };
        of_engine.check()?;
        let folder = ModelFolder::open(&of_engine)?;
        let config_path = folder.path.join("config.json");
        if folder.classifier.is_none() || folder.architecture != Architecture::Bert {
            let what = format!("{} without a classifier, an embedding model,", folder.architecture);
            let supported = "supported rerankers: BertForSequenceClassification";
            return Err(ModelError::Unsupported { path: config_path, what, supported });
        }
        let config = EncoderConfig::from_json(folder.architecture, &folder.config, &config_path)?;
        if config.token_types() < 2 {
            let problem = format!("type_vocab_size is {}, and a pair needs 2", config.token_types());
            return Err(ModelError::Corrupt { path: config_path, problem });
        }
        let tokenizer = catch_unwind(|| TextTokenizer::of_pairs(&folder.tokenizer, config.shape.vocabulary))
            .unwrap_or_else(|panic| Err(panic_message(&*panic)))
            .map_err(|problem| ModelError::Corrupt { path: folder.path.join("tokenizer.json"), problem })?;
        let max_length = max_length.min(config.shape.positions);
        if tokenizer.special_count_of_pairs() + 2 > max_length {
            return Err(ModelError::Setting {
                setting: "max_length",
                value: max_length.to_string(),
                problem: "it leaves no room for a token of each text",
            });
        }
        let weights = folder.path.join("model.safetensors");
        let packs = Packs::of(settings.models_dir.as_deref());
        let (path, model_config) = (weights.clone(), folder.config);
        let open = move || {
            let read = |file: &mut WeightFile| config.load_with_head(file);
            let (parts, digest) = Packs::load(packs.as_ref(), &path, &model_config, read)?;
            Ok((kind.encoder(parts, Precision::F32)?, digest))
        };
        let (device, _) = Watched::load(open, weights)?;
        let threads = match beside.filter(|engine| engine.info().device == kind.to_string()) {
            Some(engine) => engine.threads(),
            None => Threads::start(kind.threads(threads), kind.pass_limit(), queue_capacity)?,
        };
        let info = RerankerInfo {
            name: folder.name,
            architecture: folder.architecture,
            max_length,
            device: kind.to_string(),
            threads: threads.count,
        };
        tracing::info!(
            model.name = info.name,
            model.device = info.device,
            model.threads = info.threads,
            "reranker loaded"
        );
        Ok(Self { shared: Arc::new(Shared { info, tokenizer, device, threads, batch_size }) })
    }

    /// Describes what was loaded.
    pub fn info(&self) -> &RerankerInfo {
        &self.shared.info
    }

    /// Returns for each document, in order, how well it fits the query: the model's logit, which may be any number;
    /// greater is better. Only scores for the same query can be compared.
    ///
    /// A pair of more than [`RerankerInfo::max_length`] tokens is cut in the way that cross-encoders are trained with:
    /// the longer of the two texts loses its end, token by token, until both fit. A query of up to half the room is
    /// never cut. Dropping the future cancels what has not begun.
    pub async fn score(&self, query: &str, documents: Vec<String>) -> Result<Vec<f32>, ModelError> {
        let shared = Arc::clone(&self.shared);
        let query = query.to_owned();
        let pairs = passes::beside_the_runtime(query.len() + documents.iter().map(String::len).sum::<usize>(), {
            move |is_cancelled| shared.pairs(&query, &documents, is_cancelled)
        })
        .await?;
        let lengths: Vec<usize> = pairs.iter().map(|pair| pair.ids.len()).collect();
        let batch = |numbers: &[usize]| {
            Ragged::from_pairs(numbers.iter().map(|&pair| (pairs[pair].ids.as_slice(), pairs[pair].first)))
        };
        let Shared { device, threads, batch_size, .. } = &*self.shared;
        // Without a device the caller need not wait for its turn to hear so.
        device.encoder()?;
        let work = Work { device: Arc::clone(device), wanted: Wanted::Score };
        let scores = passes::run(threads, Lane::Pair, work, &lengths, *batch_size, batch, &|_| ()).await?;
        Ok(scores.into_iter().flatten().collect())
    }
}

impl Shared {
    fn pairs(
        &self,
        query: &str,
        documents: &[String],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Pair>, ModelError> {
        let room = self.info.max_length - self.tokenizer.special_count_of_pairs();
        let query = self.tokenizer.beginning(query, room)?;
        let pair = |document: &String| {
            if is_cancelled() {
                return Err(ModelError::Stopped);
            }
            let document = self.tokenizer.beginning(document, room)?;
            let (of_query, of_document) = longest_first(query.len(), document.len(), room);
            let (ids, first) = self.tokenizer.pair(&query[..of_query], &document[..of_document]);
            Ok(Pair { ids, first })
        };
        documents.iter().map(pair).collect()
    }
}

/// How many tokens of each text are kept so that both fit into `room`. The longer text is cut first; if both are
/// equally long, the second loses one token more.
fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let half = room / 2;
    match () {
        () if first <= half => (first, room - first),
        () if second <= half => (room - second, second),
        () if first > second => (room - half, half),
        () => (half, room - half),
    }
}
