//! The invariants of ARCHITECTURE.md that can be read off the files.
use crate::support::repository;
use std::{
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut open = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(repository()).unwrap().to_owned(), text));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn the_crates_know_nothing_of_each_other() {
    for (name, forbidden) in [
        ("client", &["svc-formats", "svc-actors", "svc-models", "svc-ranking", "sqlx", "axum"][..]),
        ("formats", &["svc-client", "svc-actors", "svc-models", "svc-ranking", "sqlx", "tokio", "reqwest", "axum"]),
        ("actors", &["svc-client", "svc-formats", "svc-models", "svc-ranking", "sqlx", "reqwest", "axum"]),
        // It has reqwest: models are fetched from a hub.
        ("models", &["svc-client", "svc-formats", "svc-actors", "svc-ranking", "sqlx", "axum"]),
        ("ranking", &["svc-client", "svc-formats", "svc-actors", "svc-models", "sqlx", "tokio", "reqwest", "axum"]),
    ] {
        let manifest = fs::read_to_string(repository().join(name).join("Cargo.toml")).unwrap();
        for dependency in forbidden {
            let named = manifest.lines().any(|line| line.split(['=', '.', ' ']).next() == Some(dependency));
            assert!(!named, "{name} depends on {dependency}");
        }
    }
}

#[test]
fn only_the_store_holds_sql() {
    for (path, text) in sources(&repository().join("src")) {
        if path.starts_with("src/store") {
            continue;
        }
        for word in ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "sqlx::query"] {
            let line = text.lines().find(|line| line.contains(word) && !line.trim_start().starts_with("//"));
            assert!(line.is_none(), "{} holds SQL: {line:?}", path.display());
        }
    }
}

#[test]
fn only_the_store_begins_transactions_and_in_one_file() {
    for (path, text) in sources(&repository().join("src")) {
        if path.starts_with("src/store/transaction.rs") {
            continue;
        }
        let begins = |line: &&str| {
            let begins = [".begin(", "begin_with(", "\"BEGIN"].iter().any(|word| line.contains(word));
            // A task begins its transaction by the store.
            begins && !line.contains("apply.begin()")
        };
        let line = text.lines().find(begins);
        assert!(
            line.is_none(),
            "{} begins a transaction, which store/transaction.rs alone does: {line:?}",
            path.display()
        );
    }
}

#[test]
fn only_the_registry_and_the_console_mount_routes() {
    for (path, text) in sources(&repository().join("src")) {
        let mounts = text.contains(".route(");
        assert!(
            !mounts || path.starts_with("src/registry.rs") || path.starts_with("src/console"),
            "{} mounts a route",
            path.display()
        );
    }
}

#[test]
fn no_room_without_a_name() {
    for folder in ["src", "client", "formats", "actors", "models", "ranking"] {
        for (path, _) in sources(&repository().join(folder)) {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(!["utils", "util", "common", "helpers", "misc"].contains(&stem.as_str()), "{}", path.display());
        }
    }
}

#[test]
fn architecture_is_short_and_names_every_room() {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    assert!(text.lines().count() <= 150);
    for entry in fs::read_dir(repository().join("src")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let stem = name.trim_end_matches(".rs");
        assert!(text.contains(stem), "ARCHITECTURE.md does not name src/{name}");
    }
}
