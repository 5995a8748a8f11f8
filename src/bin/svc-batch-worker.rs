//! The worker for the batch interfaces of providers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    svc::cli::batch_worker_main()
}
