//! What other processes can read of a running service.
use crate::{
    crash::{Process, serve_command},
    support::{PATIENCE, TOKEN, TestApp, Wish, http},
};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// Starts a service, and returns where it serves.
async fn serving(mut command: Command) -> (Process, String) {
    let mut process = Process(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = tokio::task::spawn_blocking(move || {
        let mut lines = lines;
        lines.find_map(|line| Some(line.split_once(" serves ")?.1.split_whitespace().next()?.to_owned()))
    });
    let address = tokio::time::timeout(PATIENCE, address).await.unwrap().unwrap().expect("it serves");
    (process, address)
}

async fn knows(address: &str, token: &str) -> bool {
    let answer = http().get(format!("{address}documents/roots")).bearer_auth(token).send().await.unwrap();
    answer.status() == 200
}

#[tokio::test]
async fn a_running_service_shows_no_secret_and_still_knows_it() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut command = serve_command(&app);
    command.env("SVC_LLM_API_KEY", "a-secret-of-the-test");
    // Those of object stores are secrets too, whatever store is named.
    let of_stores = ["AWS_SESSION_TOKEN", "GOOGLE_BEARER_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY"];
    command.envs(of_stores.map(|name| (name, "a-secret-of-a-store")));
    let (process, address) = serving(command).await;
    assert!(knows(&address, TOKEN).await, "it knows its token");

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

#[tokio::test]
async fn the_arguments_of_a_running_service_show_no_token_and_it_still_knows_it() {
    const GIVEN: &str = "a-token-of-the-arguments";
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for arguments in [vec!["--token".to_owned(), GIVEN.to_owned()], vec![format!("--token={GIVEN}")]] {
        let mut command = serve_command(&app);
        command.env_remove("SVC_API_TOKEN").args(&arguments);
        let (process, address) = serving(command).await;
        assert!(knows(&address, GIVEN).await && !knows(&address, TOKEN).await, "{arguments:?}");
        // Everybody can read this.
        let shown = std::fs::read(format!("/proc/{}/cmdline", process.0.id())).unwrap();
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(shown.contains("serve") && !shown.contains(GIVEN), "{shown}");
    }
    app.end().await;
}
