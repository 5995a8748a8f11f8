//! A worker in its own process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    svc::cli::worker_main(svc::ingest::extension::TaskTypes::default())
}
