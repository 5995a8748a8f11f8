//! Measures the service: `svc-benches [NAME [SIZE]]` prints one line of JSON per figure to standard output, and
//! progress to standard error.
//!
//! NAME selects by prefix, and `list` lists the benches. SIZE, or the variable BENCH_SIZE, sets how much is measured.
mod access;
mod batch;
#[cfg(feature = "tantivy")]
mod bm25;
mod cancel;
mod children;
mod console;
mod encoder;
mod eval;
mod events;
mod feed;
mod figure;
mod formats;
mod hostile;
mod ingest;
mod knowledge;
mod latency;
mod llm;
#[path = "../../tests/it/support/llm.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
#[expect(clippy::unwrap_used, reason = "a script that does not fit ends the bench")]
mod llm_endpoint;
mod markdown;
mod maxsim;
mod queue;
mod raptor;
mod recall;
#[path = "../../tests/it/support/rude.rs"]
mod rude;
mod sandbox;
mod scale;
mod sealed;
mod sentences;
mod service_process;
mod set_aside;
mod shapes;
mod spool;
mod standby;
mod timing;
mod uploads;
mod view;
#[path = "../../tests/it/support/workbook.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
#[expect(clippy::unwrap_used, reason = "a package in memory takes every part")]
mod workbook;

use figure::{BoxError, Figure};
use std::{path::PathBuf, process::ExitCode};
use svc::{app::Backend, reader};

// The service's own programs use it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A bench and the meaning of its size.
const BENCHES: &[(&str, &str)] = &[
    (
        "access",
        "each method's searches by a principal of 50 grants among 500 access roots, beside the owner's; SIZE: nodes, default 100000",
    ),
    (
        "events",
        "from the commit of an event to its reader, and ingestion of small files with and without events; SIZE: files a round, default 100",
    ),
    (
        "eval",
        "how well each method answers the questions of a judged collection, through the service; always the folder in the variable EVAL_DIR, default ../shared/ir",
    ),
    (
        "feed",
        "files accepted over a message broker and over HTTP, with the memory that this takes; SIZE: files of 100 KiB, and a tenth as many of 1 MiB, default 1000",
    ),
    (
        "feed/queued",
        "what a service takes that finds many files of 1 MiB in the queue of a broker, which keeps them on the disk; SIZE: files, default 1000",
    ),
    (
        "ingest",
        "uploads and 2000 short documents to settled, beside the bare encoder, and how long queries wait for the model meanwhile; SIZE: files, default 10",
    ),
    (
        "batch",
        "documents of 200 words, stored in batches until found, beside the bare encoder; SIZE: documents, default 5000",
    ),
    ("queue/claim_finish", "claim and finish of short tasks; SIZE: pending tasks, default 10000 and then 1000000"),
    (
        "queue/claims",
        "claims by 1 to 64 connections at once, and beside tasks that hold up others; SIZE: pending tasks, default 10000",
    ),
    (
        "queue/offered",
        "how long tasks take at a rate, with 100 claimers: each from when it is due to its durable end; SIZE: tasks a second, default 400",
    ),
    ("queue/fleet", "claims for each task with 100 workers; always 1000 files and then 100"),
    ("queue/backlog", "when half of many files are settled; SIZE: files, default 500"),
    (
        "cancel",
        "a large PDF and a large workbook, cancelled in the middle of each stage; SIZE: rows of the workbook, default 100000",
    ),
    (
        "children",
        "pages, changes and deletes of many children of one document, again in a store ten times as full elsewhere, and again with a tenth of the children; SIZE: children, default 100000",
    ),
    (
        "console",
        "the operator's pages over a long queue, and what those who look at them cost; SIZE: tasks, default 1000000",
    ),
    (
        "view",
        "views of a chunk, of a file of 300 pages and of a document with many children, in process and over HTTP; SIZE: children, default 100000",
    ),
    (
        "bm25",
        "appends, compaction, and searches for 10 and 100 results, beside tantivy; SIZE: documents, default 100000 and then 1000000",
    ),
    (
        "latency",
        "what eight clients at a time wait for vector and hybrid searches, beside bare SQL of pgvector, in a tenth of the store and then in all of it; SIZE: nodes, default 100000",
    ),
    (
        "encoder/throughput",
        "tokens a second in each precision beside onnxruntime, in f32 and int8, and torch; SIZE: rounds, default 5",
    ),
    ("encoder/latency", "one short query beside the same; SIZE: rounds, default 5"),
    (
        "encoder/beside",
        "how long a query waits for the model while documents are embedded; SIZE: rounds of 20 queries, default 10",
    ),
    ("encoder/start", "from nothing to a model's first vector, with and without its pack; SIZE: rounds, default 5"),
    ("encoder/tokens", "the tokens of texts that are counted in a second, beside the library; SIZE: rounds, default 5"),
    (
        "encoder/precision",
        "f32, bf16 and int8: tokens a second, likeness, and ranking on Cranfield; SIZE: rounds, default 5",
    ),
    ("encoder/rollup", "what a container's vector is made of, by ranking on Cranfield; always its 225 questions"),
    ("encoder/importance", "MaxSim by a share of the tokens, on Cranfield; SIZE: questions, default 75"),
    (
        "formats",
        "the readers of files, beside pypdfium2, markitdown, docling.rs, unstructured, openpyxl, calamine, and the csv and email of Python; the words that markitdown, docling.rs and unstructured find, tables beside pdfplumber, OCR beside Tesseract, headings, and the share of markup in chunks, with the goals of each; SIZE: rows of the large workbook, default 100000",
    ),
    (
        "hostile",
        "an ordinary client alone and then beside clients that hang up, flood and send hostile requests; SIZE: seconds, default 60",
    ),
    (
        "knowledge/shapes",
        "nodes held against three constraints, beside pySHACL and rudof, random graphs beside pySHACL, and a write with a bound shape; always 20000 nodes",
    ),
    (
        "knowledge",
        "facts asserted in batches, paths and lists as of a moment, by the owner and by a reader of half of the store, exports, analyses beside networkx and leidenalg, lint and rules; SIZE: facts, default 100000, and the goals are those of 1000000",
    ),
    (
        "llm/calls",
        "what the service adds to a call of a language model that takes 20 ms, and how many it has under way; SIZE: files, default 200",
    ),
    ("llm/batch", "summaries into a batch of the mock provider and out of it; SIZE: files, default 1000"),
    (
        "raptor",
        "what summaries and portfolios gain a reader with a budget of tokens, on Cranfield; SIZE: questions, default 75",
    ),
    (
        "recall",
        "what a vector search finds of the exact answer, in parts of the store that are about something else, and how long it takes; again with the vectors in parts, and as bits; SIZE: nodes, default 50000",
    ),
    (
        "recall/files",
        "the same in the first form, where the nodes come in files of 20; in `recall` each is stored beside nodes of other files, which takes the longest; SIZE: nodes, default 50000",
    ),
    (
        "timing",
        "refusals of each kind of call, for ids of documents that their caller may not read and for ids that never were, and analyses of files that are stored so and of others; SIZE: rounds, default 500",
    ),
    (
        "maxsim",
        "the tokens of a query against those of documents of 100 words: scored alone, read and scored, scored in SQL, and searched over HTTP; SIZE: documents, default 100",
    ),
    ("spool", "a workbook of many sheets, with and without stored files on the disk; SIZE: sheets, default 100"),
    (
        "scale",
        "memory, ingestion and searches as the store grows, an export and an import of it, what a node weighs, and what a standby takes off the primary; SIZE: nodes, default 100000",
    ),
];

fn main() -> ExitCode {
    // The service and the commands that `scale` starts, the command that `feed` runs, the readers of files and the claimers of tasks are this same program, so that
    // what was just built is measured.
    match std::env::args_os().nth(1).as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("serve" | "bulk" | "--json" | reader::SUBCOMMAND | reader::PROGRAM_SUBCOMMAND) => {
            return svc::cli::main(svc::ingest::extension::TaskTypes::default());
        }
        Some("run" | "finalize") => return svc::cli::batch_worker_main(),
        Some(formats::SUBCOMMAND) => return formats::serve(),
        Some(queue::claimer::EVEN | queue::claimer::OVERLAPPED) => return queue::claimer::main(),
        _ => {}
    }
    let done = arguments().and_then(|(selected, size)| {
        // A second provider in the process would be a mistake, and the first one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        selected.into_iter().try_for_each(|name| {
            eprintln!("bench: {name}");
            runtime.block_on(run(name, size)).map_err(|error| format!("{name}: {error}").into())
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The benches to run, none for `list`, and their size if one is named.
fn arguments() -> Result<(Vec<&'static str>, Option<usize>), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let prefix = arguments.next().unwrap_or_default();
    let size = arguments.next().or_else(|| std::env::var("BENCH_SIZE").ok()).filter(|size| !size.is_empty());
    let size = size.map(|size| match size.replace('_', "").parse() {
        Ok(0) | Err(_) => Err(format!("the size is `{size}`; it takes a whole number from 1")),
        Ok(size) => Ok(size),
    });
    if prefix == "list" {
        BENCHES.iter().for_each(|(name, about)| println!("{name}\t{about}"));
        return Ok((Vec::new(), None));
    }
    let selected: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).filter(|name| name.starts_with(&prefix)).collect();
    if selected.is_empty() {
        return Err(format!("no bench begins with `{prefix}`; `list` lists them").into());
    }
    Ok((selected, size.transpose()?))
}

async fn run(name: &str, size: Option<usize>) -> Result<(), BoxError> {
    let mut printed = Ok(());
    let mut out = |figure: Figure| {
        let line = figure.print();
        if printed.is_ok() {
            printed = line;
        }
    };
    match name {
        "access" => access::run(size.unwrap_or(100_000), &mut out).await?,
        "batch" => batch::run(size.unwrap_or(5000), &mut out).await?,
        "cancel" => cancel::run(size.unwrap_or(100_000), &mut out).await?,
        "children" => children::run(size.unwrap_or(100_000), &mut out).await?,
        "view" => view::run(size.unwrap_or(100_000), &mut out).await?,
        "events" => events::run(size.unwrap_or(100), &mut out).await?,
        "eval" => eval::run(eval_folder().as_deref()).await?,
        "feed" => feed::run(size.unwrap_or(1000), &mut out).await?,
        "knowledge/shapes" => shapes::run(&mut out).await?,
        "knowledge" => knowledge::run(size.unwrap_or(100_000), &mut out).await?,
        "llm/calls" => llm::calls(size.unwrap_or(200), &mut out).await?,
        "llm/batch" => llm::batch(size.unwrap_or(1000), &mut out).await?,
        "feed/queued" => feed::queued(size.unwrap_or(1_000), &mut out).await?,
        "ingest" => ingest::run(size.unwrap_or(10), &mut out).await?,
        "console" => console::run(size.unwrap_or(1_000_000), &mut out).await?,
        "queue/claim_finish" => {
            let sizes = size.map_or(vec![10_000, 1_000_000], |size| vec![size]);
            with_database(async |pool| queue::run(pool, &sizes, &mut out).await).await?;
        }
        "queue/claims" => {
            with_database(async |pool| queue::claims::run(pool, size.unwrap_or(10_000), &mut out).await).await?;
        }
        "queue/offered" => queue::offered::run(size.unwrap_or(400), &mut out).await?,
        "queue/fleet" => with_database(async |pool| queue::fleet::run(pool, &mut out).await).await?,
        "queue/backlog" => queue::backlog::run(size.unwrap_or(500), &mut out).await?,
        #[cfg(feature = "tantivy")]
        "bm25" => {
            let sizes = size.map_or(vec![100_000, 1_000_000], |size| vec![size]);
            with_database(async |pool| bm25::run(pool, &sizes, &mut out).await).await?;
        }
        #[cfg(not(feature = "tantivy"))]
        "bm25" => {
            return Err(
                "its peer is not built in: run `make bench BENCH=bm25`, or cargo with --features tantivy".into()
            );
        }
        "encoder/throughput" | "encoder/latency" => encoder::run(size.unwrap_or(5), name, &mut out).await?,
        "encoder/beside" => encoder::beside(size.unwrap_or(10), &mut out).await?,
        "encoder/start" => encoder::start(size.unwrap_or(5), &mut out).await?,
        "encoder/tokens" => encoder::tokens(size.unwrap_or(5), &mut out)?,
        "encoder/precision" => encoder::precision(size.unwrap_or(5), &mut out).await?,
        "encoder/rollup" => encoder::rollup(&mut out).await?,
        "encoder/importance" => encoder::importance(size.unwrap_or(75), &mut out).await?,
        "formats" => {
            formats::run(size.unwrap_or(100_000), &mut out)?;
            formats::ocr::run(&mut out).await?;
        }
        "latency" => latency::run(size.unwrap_or(100_000), &mut out).await?,
        "hostile" => hostile::run(size.unwrap_or(60), &mut out).await?,
        "raptor" => raptor::run(size.unwrap_or(75), &mut out).await?,
        "maxsim" => maxsim::run(size.unwrap_or(100), &mut out).await?,
        "recall" => recall::run(size.unwrap_or(50_000), 1, &mut out).await?,
        "recall/files" => recall::run(size.unwrap_or(50_000), 20, &mut out).await?,
        "timing" => timing::run(size.unwrap_or(500), &mut out).await?,
        "spool" => spool::run(size.unwrap_or(100), &mut out).await?,
        "scale" => scale::run(size.unwrap_or(100_000), &mut out).await?,
        other => return Err(format!("`{other}` has no code").into()),
    }
    printed
}

/// The collection that is to be judged, if one is named.
fn eval_folder() -> Option<PathBuf> {
    std::env::var_os("EVAL_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Measures on a database of its own, which is removed with its server whatever happens.
async fn with_database(measure: impl AsyncFnOnce(&sqlx::PgPool) -> Result<(), BoxError>) -> Result<(), BoxError> {
    let sandbox = sandbox::Sandbox::new()?;
    let backend = Backend::start(&sandbox.settings()?).await?;
    let measured = sandbox::interruptible(measure(&backend.pool)).await;
    backend.stop().await;
    measured
}
