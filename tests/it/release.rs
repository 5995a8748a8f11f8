//! A release: a folder that starts on another machine. And the files from which docker builds an image.
use crate::support::{repository, settings};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Puts a file or a folder at another place, without what has a name to leave out.
fn put(from: &Path, to: &Path, is_left_out: fn(&str) -> bool) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !is_left_out(&name) {
                put(&from.join(&name), &to.join(&name), is_left_out);
            }
        }
    } else if fs::hard_link(from, to).is_err() {
        // A link takes no space, and is only possible on the same file system.
        fs::copy(from, to).unwrap();
    }
}

/// A folder as `config/release.sh` makes it, but with the programs of the tests, one page to ingest and one crate.
fn release() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| folder.path().join(name);
    for program in [env!("CARGO_BIN_EXE_svc"), env!("CARGO_BIN_EXE_svc-worker"), env!("CARGO_BIN_EXE_svc-batch-worker")]
    {
        put(Path::new(program), &at(Path::new(program).file_name().unwrap().to_str().unwrap()), |_| false);
    }
    for part in ["config", "models", "docs"] {
        fs::create_dir(at(part)).unwrap();
    }
    let settings = settings(&[]);
    let is_of_psql = |name: &str| name == "psql" || name.starts_with("libreadline-") || name.starts_with("libtinfo-");
    put(&settings.postgres_home, &at("postgres"), is_of_psql);
    let model = "models/all-MiniLM-L6-v2";
    symlink(settings.cache_dir.join(model), at(model)).unwrap();
    for file in ["config/svc.toml", "config/release-check.sh", "LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        fs::copy(repository().join(file), at(file)).unwrap();
    }
    let page = "# The queue\n\nA lane is a kind of work. See [the beginning](../README.md#svc).\n";
    fs::write(at("docs/queue.md"), page).unwrap();
    let readme = "# svc\n\nSee [the queue](docs/queue.md) and [the web](https://svc.example/).\n";
    fs::write(at("README.md"), readme).unwrap();
    put(&repository().join("config/licenses"), &at("licenses"), |name| !name.ends_with(".txt"));
    fs::copy(repository().join("LICENSE-APACHE"), at("licenses/Apache-2.0.txt")).unwrap();
    fs::write(at("licenses/crates.txt"), "heron 1.0.0: MIT, \n\n--- heron 1.0.0: LICENSE\n\nDo as you like.\n")
        .unwrap();
    folder
}

fn check(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(repository().join("config/release-check.sh")).arg(folder).args(arguments).output().unwrap()
}

/// Why a release is refused.
fn refusal(folder: &Path, arguments: &[&str]) -> String {
    let checked = check(folder, arguments);
    assert!(!checked.status.success());
    String::from_utf8(checked.stderr).unwrap()
}

/// The one of the libraries beside the server that `make setup` fetched.
fn library(beginning: &str) -> PathBuf {
    let libraries = fs::read_dir(settings(&[]).postgres_home.join("lib")).unwrap().map(|entry| entry.unwrap());
    let mut named = libraries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(beginning));
    named.next().expect(beginning).path()
}

#[test]
fn a_release_starts_from_another_folder_in_an_empty_environment() {
    let folder = release();
    let checked = check(folder.path(), &[]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(said.contains("with another folder for what is fetched, and fetches nothing"), "{said}");
}

#[test]
fn a_release_that_needs_a_newer_glibc_or_lacks_a_part_is_refused() {
    let folder = release();
    // No program of today runs with a glibc of 2000.
    let needs = refusal(folder.path(), &["2.2"]);
    assert!(needs.contains("svc needs GLIBC_2.") && needs.contains("may need glibc 2.2 at most"), "{needs}");
    fs::remove_file(folder.path().join("postgres/bin/postgres")).unwrap();
    let lacks = refusal(folder.path(), &[]);
    assert!(lacks.contains("has no postgres/bin/postgres"), "{lacks}");
}

/// A library of the release's own needs another one in turn.
#[test]
fn a_release_that_lacks_a_library_of_a_library_is_refused() {
    let folder = release();
    let libraries = folder.path().join("postgres/lib");
    let mut replaced = 0;
    for entry in fs::read_dir(&libraries).unwrap().collect::<Vec<_>>() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with("libpq-") {
            fs::remove_file(entry.path()).unwrap();
            fs::copy(library("libreadline-"), entry.path()).unwrap();
            replaced += 1;
        }
    }
    assert!(replaced > 0, "the programs need libpq");
    let refused = refusal(folder.path(), &["2.99"]);
    assert!(refused.contains("postgres/lib/libpq-") && refused.contains("needs libtinfo-"), "{refused}");
    assert!(refused.contains("which the release does not bring"), "{refused}");
}

#[test]
fn a_release_without_its_licences_or_with_a_library_under_the_gpl_is_refused() {
    let folder = release();
    let at = |name: &str| folder.path().join(name);
    let readline = library("libreadline-");
    let brought = at("postgres/lib").join(readline.file_name().unwrap());
    fs::copy(&readline, &brought).unwrap();
    let refused = refusal(folder.path(), &[]);
    assert!(refused.contains("postgres/lib/libreadline-") && refused.contains("is under the GPL"), "{refused}");
    fs::remove_file(&brought).unwrap();
    fs::write(at("licenses/crates.txt"), "heron 1.0.0: MIT, \n").unwrap();
    let refused = refusal(folder.path(), &[]);
    assert!(refused.contains("licenses/crates.txt has no text of any licence"), "{refused}");
    for text in ["licenses/all-MiniLM-L6-v2.txt", "licenses/postgresql.txt"] {
        fs::remove_file(at(text)).unwrap();
        let refused = refusal(folder.path(), &[]);
        assert!(refused.contains(&format!("has no {text}")), "{refused}");
    }
}

#[test]
fn a_release_whose_documents_lead_to_what_it_lacks_is_refused() {
    let folder = release();
    let page = "# The queue\n\nSee [the web](https://svc.example/) and [the guide](../migrations/README.md#views).\n";
    fs::write(folder.path().join("docs/queue.md"), page).unwrap();
    let refused = refusal(folder.path(), &[]);
    assert!(refused.contains("docs/queue.md leads to docs/../migrations/README.md, which"), "{refused}");
}

#[test]
fn a_program_says_which_settings_file_it_has_read() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    // A worker without a badge to be strict about is refused once it has read its settings.
    let said = || {
        let mut worker = Command::new(env!("CARGO_BIN_EXE_svc-worker"));
        worker.arg("--strict-badges").current_dir(&place).env_remove("SVC_CONFIG").env_remove("SVC_WORKER_BADGE");
        let ended = worker.env("SVC_LOG_LEVEL", "info").output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        String::from_utf8(ended.stderr).unwrap()
    };
    let without = said();
    assert!(without.contains("no settings file was read"), "{without}");
    fs::copy(repository().join("config/svc.toml"), place.join("svc.toml")).unwrap();
    let with = said();
    let file = format!("{}/svc.toml", place.display());
    assert!(with.contains("the settings file was read") && with.contains(&file), "{with}");
}

/// What listens in the container is reached from the machine that runs it.
#[test]
fn docker_publishes_what_the_service_listens_on() {
    let read = |path: &str| fs::read_to_string(repository().join("docker").join(path)).unwrap();
    let (dockerfile, compose) = (read("Dockerfile"), read("compose.yaml"));
    let given = |text: &str, setting: &str| {
        let value = text.split_once(setting).and_then(|(_, behind)| behind.split_whitespace().next());
        value.expect(setting).to_owned()
    };
    for address in [given(&dockerfile, "SVC_LISTEN="), given(&compose, "SVC_CONSOLE_LISTEN: ")] {
        let port = address.strip_prefix("0.0.0.0:").expect(&address);
        assert!(compose.contains(&format!("- \"127.0.0.1:{port}:{port}\"")), "compose.yaml does not publish {port}");
    }
    assert_eq!(given(&compose, "SVC_CONSOLE_HOSTS: "), "localhost");
    // Whoever runs the image without compose.yaml opens the console only if asked to.
    assert!(!dockerfile.contains("SVC_CONSOLE_LISTEN"), "{dockerfile}");
}

#[test]
fn each_crate_of_a_release_has_the_text_of_its_licence() {
    let listed = Command::new(repository().join("config/licenses/crates.py"))
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .current_dir(repository())
        .env("CARGO_NET_OFFLINE", "true")
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let list = String::from_utf8(listed.stdout).unwrap();
    // A crate, what is packed with another one, and what only a build script reads but a program shows.
    for text in ["\n--- axum 0.", ": third_party/fiat/LICENSE\n", "SmartBear Software Inc."] {
        assert!(list.contains(text), "no {text:?}");
    }
    let elsewhere = list.lines().filter_map(|line| line.split_once("; that of its licence is in "));
    let files: BTreeSet<&str> = elsewhere.flat_map(|(_, files)| files.trim_end_matches('.').split(" or ")).collect();
    assert!(files.contains("MIT.txt"), "{files:?}");
    for file in files.into_iter().filter(|file| *file != "Apache-2.0.txt") {
        assert!(repository().join("config/licenses").join(file).is_file(), "no {file}");
    }
    assert!(!list.contains("\ntorch-sys "), "what no program is made of is not listed");
}

/// The packages that cargo finds in a folder, with the kinds and names of what is made of each but tests.
fn made(folder: &Path) -> BTreeSet<[String; 3]> {
    let metadata = cargo(folder, &["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let mut made = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        for target in package["targets"].as_array().unwrap() {
            if matches!(target["kind"][0].as_str(), Some("lib" | "bin" | "custom-build")) {
                made.insert([&package["name"], &target["kind"][0], &target["name"]].map(ToString::to_string));
            }
        }
    }
    made
}

fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", folder.join("target")).output().unwrap()
}

#[test]
fn docker_lets_through_all_that_the_build_reads() {
    let folder = tempfile::tempdir().unwrap();
    let rules = fs::read_to_string(repository().join("docker/Dockerfile.dockerignore")).unwrap();
    let mut rules = rules.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(rules.next(), Some("*"), "only what is named goes in");
    for rule in rules {
        let Some(part) = rule.strip_prefix('!') else {
            assert_eq!(rule, "**/target");
            continue;
        };
        let place = folder.path().join(part);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        put(&repository().join(part), &place, |name| name == "target");
    }
    assert_eq!(made(folder.path()), made(repository()));
    // No program has this name, so cargo reads all that it would build, names it, and builds nothing.
    let none = cargo(folder.path(), &["build", "--release", "--locked", "--offline", "--workspace", "--bin", "none"]);
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(said.contains("no bin target named `none`") && said.contains("svc-batch-worker"), "{said}");
}
