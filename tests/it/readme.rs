//! Runs the commands of README.md and the calls of docs/search.md, so that they stay true.
use crate::{
    crash::{Process, url},
    support::{
        PATIENCE, TOKEN, TestApp, Wish, http, left_out,
        llm::{Llm, Reply},
        repository, sample, server, until,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

/// A section of README.md.
fn section(name: &str) -> String {
    let text = fs::read_to_string(repository().join("README.md")).unwrap();
    let heading = format!("## {name}\n");
    let section = text.split_once(&heading).unwrap_or_else(|| panic!("README.md has no {heading}")).1;
    section.split("\n## ").next().unwrap().to_owned()
}

/// The lines of the `sh` blocks of a section of README.md.
fn commands(name: &str) -> Vec<String> {
    commands_of(&section(name))
}

/// The lines of the `sh` blocks of a text.
fn commands_of(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for block in text.split("```sh\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let lines = block.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        commands.extend(lines.map(str::to_owned));
    }
    commands
}

/// A call that is refused ends its script. An answer may come without a line break at its end.
const CURL: &str = "curl() { command curl --noproxy '*' --silent --show-error --fail-with-body \"$@\"; echo; }\n";

/// A folder in which the repository's samples are where the README says. What the commands write ends with it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(server::work_dir()).unwrap();
    symlink(repository().join("tests"), folder.path().join("tests")).unwrap();
    folder
}

/// Runs a script as the owner of a service of a test.
async fn run(app: &TestApp, folder: &Path, script: String) -> String {
    run_with(&[("SVC_URL", &app.base), ("SVC_API_TOKEN", TOKEN)], folder, script).await
}

/// Runs a script in a shell that ends with the first command that fails, and returns what it printed.
async fn run_with(settings: &[(&str, &str)], folder: &Path, script: String) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_svc")).parent().unwrap();
    let path = std::env::join_paths(
        [programs.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", &script])
        .env("PATH", path.unwrap())
        .env_remove("SVC_TOKEN")
        .env_remove("SVC_API_TOKEN")
        .envs(settings.iter().copied())
        .env("SVC_CONFIG", "/dev/null")
        .current_dir(folder);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "a command of the documents fails, {}:\n{script}\n{printed}\n{errors}",
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
    // A language model that quotes its first source, and summarises.
    let llm = Llm::start().await;
    llm.will_say(|asked| {
        // The number, the mark and the title come before the text. A summary has no sources.
        let Some(quote) = asked.message().lines().skip_while(|line| *line != "source 1").nth(3) else {
            return Reply::said("Ducks were counted.");
        };
        let sentence = json!({"text": "So it says.", "citations": [{"source": 1, "quote": quote}]});
        Reply::said(&json!({"answered": true, "sentences": [sentence]}).to_string())
    });
    let settings = [("SVC_LLM_BASE_URL", llm.base.as_str())];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let folder = folder();
    let mut script = CURL.to_owned();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_the_guide_to_searches_work_without_anything_that_has_to_be_fetched() {
    if Command::new("curl").arg("--version").output().is_err() {
        return left_out("the calls of docs/search.md, because there is no curl");
    }
    let app = TestApp::start().await;
    for number in 1..=9 {
        let created = app.create(&format!("Note {number}"), "The radar gauge failed in March.", None).await;
        assert_eq!(created.id, number, "the guide names documents by such ids");
    }
    let known: Vec<String> = commands("REST").into_iter().take_while(|line| !line.starts_with("curl ")).collect();
    let known = known.join("\n").replace("http://127.0.0.1:8000", "$SVC_URL");
    let calls = commands_of(&fs::read_to_string(repository().join("docs/search.md")).unwrap()).join("\n");
    assert!(calls.matches("curl ").count() >= 8, "{calls}");
    let printed = run(&app, folder().path(), format!("{CURL}{known}\n{calls}")).await;
    for part in ["\"name\":\"late\"", "\"name\":\"manuals\"", "\"facets\":[", "\"results\":["] {
        assert!(printed.contains(part), "{part} is missing in {printed}");
    }
    app.end().await;
}

/// A reader takes these lists for all that there is.
#[test]
fn the_readme_names_every_command_and_every_document() {
    let help = Command::new(env!("CARGO_BIN_EXE_svc")).arg("-h").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help.split_once("Commands:\n").and_then(|(_, rest)| rest.split_once("\n\n")).unwrap().0;
    let lines = listed.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let names: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 50 && names.contains(&"extract-facts"), "{names:?}");
    let walk = section("A first walk");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(walk.contains(&format!("`{name}`")) || walk.contains(&format!("svc {name} ")), "no `svc {name}`");
    }
    let more = section("More");
    for document in fs::read_dir(repository().join("docs")).unwrap() {
        let name = document.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".md") || more.contains(&format!("](docs/{name})")), "README.md does not name {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_of_its_own_the_owner_is_known_by_the_data_folder() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let (folder, data_dir) = (folder(), tempfile::tempdir_in(server::work_dir()).unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(["serve", "--config", "/dev/null"])
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", data_dir.path())
        .env("SVC_LISTEN", "127.0.0.1:0")
        .env("SVC_CONSOLE_LISTEN", "127.0.0.1:0")
        .env_remove("SVC_API_TOKEN")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut service = Process(command.spawn().unwrap());
    let mut lines = BufReader::new(service.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let serves = tokio::task::spawn_blocking(move || {
        let address = lines.find_map(|line| Some(line.split_once(" serves ")?.1.split_whitespace().next()?.to_owned()));
        (address, lines)
    });
    let (address, lines) = tokio::time::timeout(PATIENCE, serves).await.unwrap().unwrap();
    let address = address.expect("it serves").trim_end_matches('/').to_owned();

    until("a service that is ready", async || {
        let answer = http().get(format!("{address}/ready")).send().await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
    let (kept, other) = (data_dir.path().display().to_string(), folder.path().display().to_string());
    let settings = [("SVC_DATA_DIR", kept.as_str()), ("SVC_URL", address.as_str())];
    let script = "svc ingest tests/samples/handbook.md; svc ls; svc status";
    let printed = run_with(&settings, folder.path(), script.to_owned()).await;
    assert!(printed.contains("\"handbook.md\"") && printed.contains("\"ready\":true"), "{printed}");
    // A caller that cannot read that folder is nobody.
    let elsewhere = [("SVC_DATA_DIR", other.as_str()), ("SVC_URL", address.as_str())];
    let printed = run_with(&elsewhere, folder.path(), "svc ls 2>&1 || true".to_owned()).await;
    assert!(printed.contains("refuses the token"), "{printed}");
    // The README's calls in the same shell find the token too.
    if Command::new("curl").arg("--version").output().is_ok() {
        let known: Vec<String> = commands("REST").into_iter().take_while(|line| !line.starts_with("curl ")).collect();
        let script = known.join("\n").replace("http://127.0.0.1:8000", "$SVC_URL");
        let call = "curl --noproxy '*' --silent --show-error --fail-with-body -H \"$auth\" $base/documents/1";
        let printed = run_with(&settings, folder.path(), format!("{script}\n{call}")).await;
        assert!(printed.contains("\"handbook.md\""), "{printed}");
    }

    kill_process(Pid::from_child(&service.0), Signal::TERM).unwrap();
    let stopped = tokio::task::spawn_blocking(move || (service.0.wait().unwrap(), lines.last()));
    let (status, said) = tokio::time::timeout(PATIENCE, stopped).await.unwrap().unwrap();
    assert!(status.success() && said.as_deref() == Some("stopped"), "{status}: {said:?}");
    app.end().await;
}

/// What `make setup` may fail to fetch, `make test` names at its end if it is not there.
#[test]
fn the_end_of_make_test_names_each_part_that_is_missing() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let (setup, makefile) = (read("config/setup.sh"), read("Makefile"));
    let all = setup.lines().find_map(|line| line.trim().strip_prefix("set -- ")).unwrap();
    // Without these two, no test runs.
    let parts: Vec<&str> = all.split(' ').filter(|part| !["postgres", "model"].contains(part)).collect();
    assert!(parts.contains(&"inspector") && parts.len() >= 4, "{parts:?}");
    let test = makefile.split_once("\ntest: ").unwrap().1.split_once("\n\n").unwrap().0;
    for part in parts {
        assert!(setup.contains(&format!("    has-{part})")), "config/setup.sh has-{part}");
        let line = test.lines().find(|line| line.contains(&format!("config/setup.sh has-{part} || echo \"left out: ")));
        assert!(line.is_some_and(|line| line.contains(&format!("config/setup.sh {part}"))), "{part}: {test}");
    }
}

/// What its caller set is meant for another service: a store would belong to the demo's database for good.
#[test]
fn the_demo_takes_no_settings_of_its_caller() {
    // In the place of the service is a program that tells its environment and ends.
    let (target, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(target.path().join("debug")).unwrap();
    let program = target.path().join("debug/svc");
    fs::write(&program, "#!/bin/sh\nenv >\"${0%/*}/environment\"\nexit 1\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let demo = Command::new(repository().join("config/demo.sh"))
        .env("CARGO_TARGET_DIR", target.path())
        .env("SVC_CACHE_DIR", cache.path())
        .env("SVC_BLOB_STORE", "file:///of/another")
        .env("SVC_LLM_BASE_URL", "http://llm.example")
        .env_remove("SVC_CONFIG")
        .output()
        .unwrap();
    let told = fs::read_to_string(target.path().join("debug/environment"));
    let told = told.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&demo.stderr)));
    let has = |line: &str| told.lines().any(|told| told.starts_with(line));
    assert!(!has("SVC_BLOB_STORE=") && !has("SVC_LLM_BASE_URL="), "{told}");
    assert!(has("SVC_CONFIG=/dev/null") && has(&format!("SVC_CACHE_DIR={}", cache.path().display())), "{told}");
}

/// What scripts and benches keep in the cache goes with `make clean-cache`, but for what a fuzzer has learned.
#[test]
fn clean_cache_removes_every_folder_of_the_cache() {
    let (mut texts, mut open) = (Vec::new(), vec![repository().join("config"), repository().join("benches")]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sh" || extension == "rs") {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    let named: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| ["$cache/", "$cache\"/", "installed(\""].map(|before| (text, before)))
        .flat_map(|(text, before)| text.split(before).skip(1))
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(
        ["bench", "broker", "fuzz", "openapi", "peers", "zig"].iter().all(|name| named.contains(name)),
        "{named:?}"
    );
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let recipe = makefile.split_once("\nCACHED := ").unwrap().1;
    let removed: BTreeSet<&str> =
        recipe.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| !word.is_empty()).collect();
    let left: Vec<&&str> = named.iter().filter(|name| !removed.contains(**name)).collect();
    assert!(left.is_empty(), "`make clean-cache` leaves {left:?}");
}
