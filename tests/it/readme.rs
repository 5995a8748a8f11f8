//! Runs the commands of README.md, so that they stay true.
use crate::support::{TOKEN, TestApp, left_out, repository, sample, server};
use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

/// The lines of the `sh` blocks of a section of README.md.
fn commands(section: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join("README.md")).unwrap();
    let heading = format!("## {section}\n");
    let section = text.split_once(&heading).unwrap_or_else(|| panic!("README.md has no {heading}")).1;
    let section = section.split("\n## ").next().unwrap();
    let mut commands = Vec::new();
    for block in section.split("```sh\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let lines = block.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        commands.extend(lines.map(str::to_owned));
    }
    commands
}

/// A folder in which the repository's samples are where the README says. What the commands write ends with it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(server::work_dir()).unwrap();
    symlink(repository().join("tests"), folder.path().join("tests")).unwrap();
    folder
}

/// Runs a script in a shell that ends with the first command that fails, and returns what it printed.
async fn run(app: &TestApp, folder: &Path, script: String) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_svc")).parent().unwrap();
    let path = std::env::join_paths(
        [programs.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", &script])
        .env("PATH", path.unwrap())
        .env("SVC_URL", &app.base)
        .env("SVC_API_TOKEN", TOKEN)
        .env("SVC_CONFIG", "/dev/null")
        .current_dir(folder);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "README.md has a command that fails, {}:\n{script}\n{printed}\n{errors}",
        output.status
    );
    printed.into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_walk_of_the_readme_works() {
    let app = TestApp::start().await;
    let folder = folder();
    // These lines are not run: the programs are built, found and served already, and workers have tests of their own.
    let not_run = ["make ", "export PATH=", "svc serve", "svc-worker"];
    let walk: Vec<String> = commands("A first walk")
        .into_iter()
        .filter(|line| !not_run.iter().any(|start| line.starts_with(start)))
        .collect();
    assert!(walk.len() >= 8 && walk.iter().all(|line| line.starts_with("svc ")), "{walk:?}");
    let mut printed = String::new();
    for line in walk {
        let command =
            line.split(" # ").next().unwrap().trim_end().replace(" ID ", &format!(" {} ", workbook(&printed)));
        app.sampled().await;
        let shown = run(&app, folder.path(), command.clone()).await;
        assert!(!shown.trim().is_empty(), "{command} shows nothing");
        printed += &shown;
    }
    let stored = fs::read(folder.path().join("handbook.md")).unwrap();
    assert_eq!(stored, fs::read(sample("handbook.md")).unwrap(), "document 1 is the handbook");
    app.end().await;
}

/// The id of the workbook by the report of its ingestion, which `ID` stands for in the README.
fn workbook(printed: &str) -> String {
    let reports = printed.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut reports = reports.filter(|report| report["file"].as_str().is_some_and(|file| file.ends_with(".xlsx")));
    reports.next().map(|report| report["document_id"].to_string()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_the_readme_work() {
    if Command::new("curl").arg("--version").output().is_err() {
        return left_out("README.md's calls of the API, because there is no curl");
    }
    let app = TestApp::start().await;
    let folder = folder();
    // A call that is refused ends the script. An answer may come without a line break at its end.
    let mut script =
        "curl() { command curl --noproxy '*' --silent --show-error --fail-with-body \"$@\"; echo; }\n".to_owned();
    let mut calls = 0;
    for line in commands("REST") {
        script += &line.replace("base=http://127.0.0.1:8000", "base=$SVC_URL").replace("/ID/", "/$workbook/");
        script.push('\n');
        calls += usize::from(line.starts_with("curl "));
        if calls == 1 {
            // The file of the README is document 1, so the workbook comes after it.
            script += "workbook=$(svc ingest tests/samples/duck-counts.xlsx | sed 's/.*\"document_id\":\\([0-9]*\\).*/\\1/')\n";
        }
    }
    assert!(calls > 10, "{script}");
    let printed = run(&app, folder.path(), script).await;
    for part in ["\"was_existing\":false", "event: end", "\"results\":[", "\"matched.patterns\"", "\"title\":\"Note\""]
    {
        assert!(printed.contains(part), "{part} is missing in {printed}");
    }
    let bytes = fs::read(folder.path().join("onboarding-checklist.docx")).unwrap();
    assert_eq!(bytes, fs::read(sample("onboarding-checklist.docx")).unwrap());
    app.end().await;
}
