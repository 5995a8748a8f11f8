//! Rude clients beside an ordinary one, against a service as `svc serve` starts it.
use crate::support::{
    self, PATIENCE, TOKEN, invariants,
    rude::{RudeClients, ordinary},
};
use std::{path::PathBuf, sync::Arc};
use svc::{app::App, reader::Reader};

/// How many answers the ordinary client gets before the rude ones stop.
const ENOUGH: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rude_clients_cost_an_ordinary_one_nothing() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir_in(support::server::folder()).unwrap();
    let data_dir = folder.path().join("data").display().to_string();
    let settings = support::settings(&[
        ("SVC_DATA_DIR", &data_dir),
        ("SVC_LISTEN", "127.0.0.1:0"),
        ("SVC_CONSOLE_LISTEN", "127.0.0.1:0"),
    ]);
    let reader = Reader::new(PathBuf::from(env!("CARGO_BIN_EXE_svc")));
    let app = App::start(Arc::new(settings), TOKEN, reader).await.unwrap();
    let (address, base, http) = (app.address.to_string(), format!("http://{}", app.address), support::http());

    let rude = RudeClients::start(&address, TOKEN, true, 6, 20_261_122);
    let beside = ordinary(&base, TOKEN, &http, |seen| seen.good() >= ENOUGH || seen.troubles.len() > 20);
    let beside = tokio::time::timeout(PATIENCE, beside).await.expect("the ordinary client is answered");
    let misdeeds = rude.stop().await;
    assert!(beside.troubles.is_empty(), "beside {:?}: {:#?}", misdeeds.counts, beside.troubles);
    assert!(misdeeds.internal_errors.is_empty(), "{:#?}", misdeeds.internal_errors);

    // Whatever they left behind would show now.
    let after = ordinary(&base, TOKEN, &http, |seen| seen.good() >= 100 || !seen.troubles.is_empty()).await;
    assert!(after.troubles.is_empty(), "{:#?}", after.troubles);
    let pool = app.service.pool.clone();
    invariants::check(&pool).await;
    app.stop(std::future::pending()).await;
}
