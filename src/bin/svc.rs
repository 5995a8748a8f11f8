//! The service and its command line.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    svc::cli::main(svc::ingest::extension::TaskTypes::default())
}
