//! What other processes can read of a running service.
use crate::{
    crash::{Process, serve_command},
    support::{PATIENCE, TOKEN, TestApp, Wish, http},
};
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

#[tokio::test]
async fn a_running_service_shows_no_secret_and_still_knows_it() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut command = serve_command(&app);
    command.env("SVC_LLM_API_KEY", "a-secret-of-the-test").stdout(Stdio::piped()).stderr(Stdio::null());
    // Those of object stores are secrets too, whatever store is named.
    let of_stores = ["AWS_SESSION_TOKEN", "GOOGLE_BEARER_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY"];
    command.envs(of_stores.map(|name| (name, "a-secret-of-a-store")));
    let mut process = Process(command.spawn().unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = tokio::task::spawn_blocking(move || {
        let mut lines = lines;
        lines.find_map(|line| Some(line.split_once(" serves ")?.1.split_whitespace().next()?.to_owned()))
    });
    let address = tokio::time::timeout(PATIENCE, address).await.unwrap().unwrap().expect("it serves");
    let answer = http().get(format!("{address}documents/roots")).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(answer.status(), 200, "it knows its token");

    let pid = process.0.id();
    match std::fs::read(format!("/proc/{pid}/environ")) {
        // Only root can read anything at all.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
        Ok(environment) => {
            let environment = String::from_utf8_lossy(&environment);
            assert!(rustix::process::geteuid().is_root(), "another process of the user reads the environment");
            assert!(environment.contains("SVC_LISTEN="), "{environment}");
            for secret in [TOKEN, "a-secret-of-the-test", "a-secret-of-a-store", "postgres://"] {
                assert!(!environment.contains(secret), "{secret} stands in {environment}");
            }
        }
    }
    // Nothing that it starts inherits them either. Only root can see the open files.
    for open in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let target = std::fs::read_link(open.path()).unwrap_or_default();
        assert!(!target.to_string_lossy().contains("svc-secrets"), "{target:?}");
    }
    drop(process);
    app.end().await;
}
