//! Checks the invariants of ARCHITECTURE.md that the files show.
use crate::support::repository;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
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
        ("client", &["svc-formats", "svc-actors", "svc-ids", "svc-models", "svc-ranking", "sqlx", "axum"][..]),
        (
            "formats",
            &["svc-client", "svc-actors", "svc-ids", "svc-models", "svc-ranking", "sqlx", "tokio", "reqwest", "axum"],
        ),
        ("actors", &["svc-client", "svc-formats", "svc-models", "svc-ranking", "sqlx", "reqwest", "axum"]),
        ("ids", &["svc-client", "svc-formats", "svc-actors", "svc-models", "svc-ranking", "tokio", "reqwest", "axum"]),
        // It has reqwest, because it fetches models from a hub.
        ("models", &["svc-client", "svc-formats", "svc-actors", "svc-ids", "svc-ranking", "sqlx", "axum"]),
        (
            "ranking",
            &["svc-client", "svc-formats", "svc-actors", "svc-ids", "svc-models", "sqlx", "tokio", "reqwest", "axum"],
        ),
    ] {
        let manifest = fs::read_to_string(repository().join(name).join("Cargo.toml")).unwrap();
        for dependency in forbidden {
            let named = manifest.lines().any(|line| line.split(['=', '.', ' ']).next() == Some(dependency));
            assert!(!named, "{name} depends on {dependency}");
        }
    }
}

/// `make demo` builds without the dependencies of the tests. A feature that only these select would have cargo compile a dependency, and
/// whatever depends on it, once more for `make test`.
#[test]
fn the_tests_select_no_features_that_a_build_without_them_lacks() {
    let features = |edges: &str| -> BTreeSet<String> {
        let arguments =
            ["tree", "--offline", "--workspace", "--prefix", "none", "--format", "{p} {f}", "--edges", edges];
        let made = Command::new(env!("CARGO")).args(arguments).current_dir(repository()).output().unwrap();
        assert!(made.status.success(), "cargo tree: {}", String::from_utf8_lossy(&made.stderr));
        let lines = String::from_utf8(made.stdout).unwrap();
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let without = features("normal,build");
    assert!(without.iter().any(|line| line.starts_with("tokio v")), "{without:?}");
    let only_without: Vec<String> = without.difference(&features("normal,build,dev")).cloned().collect();
    assert!(only_without.is_empty(), "select in Cargo.toml what the tests select of: {only_without:#?}");
}

#[test]
fn only_the_store_holds_sql() {
    for (path, text) in sources(&repository().join("src")) {
        if path.starts_with("src/store") {
            continue;
        }
        for word in ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "sqlx::query(", "sqlx::query_"] {
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
            // A task begins its transaction through the store.
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
fn only_a_task_takes_the_right_to_write_from_its_claim() {
    for (path, text) in sources(&repository().join("src")) {
        let is_allowed = path.starts_with("src/ingest/tasks") || path == Path::new("src/store/places.rs");
        assert!(is_allowed || !text.contains("Place::of_claim"), "{} writes without a caller's right", path.display());
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
fn no_example_is_where_no_test_runs_it() {
    // All crates but ids say `doctest = false`.
    for folder in ["src", "client", "formats", "actors", "models", "ranking"] {
        for (path, text) in sources(&repository().join(folder)) {
            let documentation = text.lines().map(str::trim_start).filter(|line| line.starts_with("//"));
            // Every other fence ends what the one before it began.
            let example =
                documentation.filter(|line| line.contains("```")).step_by(2).find(|line| !line.ends_with("```text"));
            assert!(example.is_none(), "{} has an example that no test runs: {example:?}", path.display());
        }
    }
}

/// Under `set -e`, a shell goes on behind a command that is inverted, whatever it ended with.
#[test]
fn no_check_of_a_script_is_inverted() {
    let mut scripts = 0;
    for entry in fs::read_dir(repository().join("config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sh") {
            let text = fs::read_to_string(&path).unwrap();
            let line = text.lines().find(|line| line.trim_start().starts_with("! "));
            assert!(line.is_none(), "{} goes on whatever this ends with: {line:?}", path.display());
            scripts += 1;
        }
    }
    assert!(scripts > 0);
}

#[test]
fn no_room_without_a_name() {
    for folder in ["src", "client", "formats", "actors", "ids", "models", "ranking"] {
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

/// The types of parameters that name the document, root or task that a function works on.
const SUBJECTS: &[&str] = &["&AttemptRow", "&Grant", "&Held", "&Place", "Cancel", "DocumentId", "RootId", "TaskId"];
/// Parameters of these types that a function does not work on: where a page begins, what it leaves out, and the other end of a link.
const NO_SUBJECTS: &[&str] = &["after", "except", "target_id"];

/// The parameters of a signature that begins after its opening parenthesis, each as a name and a type.
fn parameters(signature: &str) -> Vec<(&str, &str)> {
    let mut depth = 0;
    let end = signature.find(|c| {
        depth += i32::from("([<".contains(c)) - i32::from(")]>".contains(c));
        depth < 0
    });
    let list = signature[..end.unwrap_or(signature.len())].split(',');
    list.filter_map(|parameter| parameter.split_once(':')).map(|(name, kind)| (name.trim(), kind.trim())).collect()
}

/// What pins a statement to few rows, found by an index, whoever the caller is: such a statement may keep one plan for all callers.
const PINS: &[&str] = &[
    "d.id = $",
    "d.id = ANY($",
    "d.id = l.source_id",
    "d.id = (c.config ->> 'parent_id')::bigint",
    "l.source_id = $3",
    "b.content_hash = $3",
    "t.id = ANY($3)",
    "t.subject_id = $3 AND",
    "c.triple_id = k.id",
];
/// Statements that run only in the transaction of a search, which plans each with its values.
const SEARCHES: &[&str] = &["src/store/search.rs", "src/store/search", "src/store/raptor.rs"];

#[test]
fn a_statement_that_scans_what_a_caller_may_read_is_planned_with_its_values() {
    let mut scans = 0;
    for (path, text) in sources(&repository().join("src/store")) {
        if SEARCHES.iter().any(|search| path.starts_with(search)) {
            continue;
        }
        // A macro that other statements hold is judged where these stand.
        let (text, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
        let is_used =
            |at: &usize| text[..*at].rfind("macro_rules!").is_none_or(|begin| text[begin..*at].contains("\n}\n"));
        let statements = text.match_indices("readable!()").map(|(at, _)| at).filter(is_used);
        for at in statements {
            let begin = text[..at].rfind("\n}\n").unwrap_or_default();
            let end = text[at..].find("\n}\n").map_or(text.len(), |end| at + end);
            let function = &text[begin..end];
            let is_planned_anew = function.contains(".persistent(false)");
            scans += usize::from(is_planned_anew);
            let line = text[..at].matches('\n').count() + 1;
            let is_pinned = PINS.iter().any(|pin| function.contains(pin));
            assert!(is_planned_anew || is_pinned, "{}:{line} keeps its plan", path.display());
        }
    }
    assert!(scans > 3, "{scans}");
}

#[test]
fn the_server_gets_no_duration_finer_than_its_own() {
    let mut durations = 0;
    for (path, text) in sources(&repository().join("src/store")) {
        for (at, _) in text.match_indices(": Duration") {
            let before = &text[..at];
            let name =
                &before[before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |end| end + 1)..];
            for raw in [format!(".bind({name})"), format!(".{name})\n"), format!("arguments, {name})")] {
                assert!(!text.contains(&raw), "{}: `{}` without interval()", path.display(), raw.trim());
            }
            durations += 1;
        }
    }
    assert!(durations > 15, "{durations}");
}

#[test]
fn a_function_of_the_store_opens_a_span_with_the_ids_that_it_takes() {
    let mut spans = 0;
    for (path, text) in sources(&repository().join("src/store")) {
        for (at, _) in text.match_indices("async fn ") {
            let Some((name, signature)) = text[at + "async fn ".len()..].split_once('(') else { continue };
            let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
            if !text[line..at].trim_start().starts_with("pub") {
                continue;
            }
            let attribute = text[..line].trim_end().lines().next_back().unwrap_or_default();
            for (parameter, kind) in parameters(signature) {
                let kind = kind.strip_prefix("Option<").unwrap_or(kind);
                let kind = kind.split(['<', '>']).next().unwrap_or_default();
                if SUBJECTS.contains(&kind) && !NO_SUBJECTS.contains(&parameter) {
                    let opens = attribute.contains("#[tracing::instrument(level = \"debug\", skip_all, fields(")
                        && attribute.contains(&format!(" = {parameter}"));
                    assert!(opens, "{}: {name} opens no span with its `{parameter}`", path.display());
                    spans += 1;
                }
            }
        }
    }
    assert!(spans > 60, "{spans}");
}

/// The rooms of `src/`, from the ground up, each with the rooms that it imports. A room imports only rooms before it in
/// this list, so the imports form no circle.
const FLOORS: &[(&str, &[&str])] = &[
    ("admission", &[]),
    ("disk", &[]),
    ("error", &[]),
    ("settings", &[]),
    ("usetype", &[]),
    ("words", &[]),
    ("mcp", &[]),
    ("fetch", &["settings"]),
    ("otlp", &["settings"]),
    ("logging", &["otlp", "settings"]),
    ("reader", &["settings"]),
    ("ocr", &["reader", "settings"]),
    ("secrets", &["settings"]),
    ("store", &["error", "otlp", "usetype"]),
    ("blobs", &["error", "settings", "store"]),
    ("access", &["error", "store"]),
    ("events", &["store"]),
    ("webhooks", &["fetch", "settings", "store"]),
    ("embedded", &["disk", "store"]),
    ("embedding", &["error", "settings", "words"]),
    ("load", &["settings", "store"]),
    ("replicas", &["settings", "store"]),
    ("sampler", &["blobs", "disk", "embedding", "load", "replicas", "store"]),
    ("telemetry", &["load", "otlp", "replicas", "sampler"]),
    ("spool", &["blobs", "error", "reader", "store", "telemetry"]),
    ("llm", &["error", "fetch", "settings", "store", "telemetry"]),
    ("llm_batches", &["fetch", "llm", "settings", "spool", "store", "telemetry"]),
    (
        "core",
        &[
            "blobs",
            "disk",
            "embedding",
            "error",
            "fetch",
            "llm",
            "llm_batches",
            "load",
            "ocr",
            "reader",
            "settings",
            "spool",
            "store",
        ],
    ),
    ("search", &["access", "core", "embedding", "error", "llm", "settings", "store", "usetype"]),
    ("view", &["usetype"]),
    ("graph", &["access", "error", "store"]),
    ("rdf", &["error", "graph", "store"]),
    (
        "ingest",
        &[
            "access",
            "admission",
            "blobs",
            "core",
            "embedding",
            "error",
            "fetch",
            "graph",
            "llm",
            "llm_batches",
            "ocr",
            "otlp",
            "rdf",
            "reader",
            "search",
            "spool",
            "store",
            "telemetry",
            "usetype",
            "words",
        ],
    ),
    (
        "worker",
        &["blobs", "core", "events", "graph", "ingest", "load", "search", "settings", "store", "telemetry", "webhooks"],
    ),
    (
        "service",
        &[
            "access",
            "admission",
            "blobs",
            "core",
            "disk",
            "embedding",
            "events",
            "fetch",
            "ingest",
            "llm",
            "llm_batches",
            "load",
            "ocr",
            "rdf",
            "reader",
            "replicas",
            "sampler",
            "settings",
            "spool",
            "store",
            "telemetry",
        ],
    ),
    (
        "registry",
        &[
            "access",
            "admission",
            "error",
            "ingest",
            "mcp",
            "otlp",
            "reader",
            "replicas",
            "service",
            "settings",
            "spool",
            "store",
            "telemetry",
        ],
    ),
    (
        "feed",
        &[
            "access",
            "error",
            "ingest",
            "otlp",
            "sampler",
            "service",
            "settings",
            "spool",
            "store",
            "telemetry",
            "usetype",
        ],
    ),
    ("listener", &["admission", "registry", "settings"]),
    (
        "handlers",
        &[
            "access",
            "admission",
            "blobs",
            "embedding",
            "error",
            "feed",
            "graph",
            "ingest",
            "rdf",
            "reader",
            "registry",
            "sampler",
            "search",
            "service",
            "spool",
            "store",
            "telemetry",
            "usetype",
            "webhooks",
            "view",
            "words",
            "worker",
        ],
    ),
    ("console", &["access", "admission", "error", "listener", "registry", "service", "store", "usetype", "view"]),
    (
        "app",
        &[
            "console",
            "embedded",
            "embedding",
            "events",
            "feed",
            "ingest",
            "listener",
            "ocr",
            "reader",
            "registry",
            "search",
            "service",
            "settings",
            "store",
            "telemetry",
            "webhooks",
            "worker",
        ],
    ),
    (
        "cli",
        &[
            "app",
            "blobs",
            "core",
            "disk",
            "embedded",
            "feed",
            "ingest",
            "llm_batches",
            "load",
            "logging",
            "mcp",
            "otlp",
            "rdf",
            "reader",
            "registry",
            "replicas",
            "secrets",
            "service",
            "settings",
            "spool",
            "store",
            "usetype",
            "worker",
        ],
    ),
];

/// The names that paths in `text` take from the root of the crate; `depth`: how many modules the file is below it.
fn names_from_the_root(text: &str, depth: usize) -> BTreeSet<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let (code, tests) = code.split_once("#[cfg(test)]\nmod tests {").unwrap_or((&code, ""));
    let mut names = BTreeSet::new();
    for (code, depth) in [(code, depth), (tests, depth + 1)] {
        let supers = "super::".repeat(depth);
        for root in ["crate::", &supers] {
            for (at, _) in code.match_indices(root) {
                let before = code[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                names.extend(first_names(&code[at + root.len()..]));
            }
        }
    }
    names
}

/// The first name of a path, or of each path of a group in braces.
fn first_names(path: &str) -> Vec<String> {
    let name =
        |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut names, mut depth) = (vec![name(group)], 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(name(&group[at + 1..])),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn paths_are_read_in_all_their_forms() {
    let text = "use crate::{a::{self, x::Y}, b,\n    c::d as e};\nuse super::f;\npub(crate) fn g() { crate::h::i() } // crate::j::k
#[cfg(test)]\nmod tests {\n    use super::*;\n    use super::super::l;\n}";
    assert_eq!(names_from_the_root(text, 1).into_iter().collect::<Vec<_>>(), ["a", "b", "c", "f", "h", "l"]);
    assert!(!names_from_the_root("use super::f;", 2).contains("f"));
}

#[test]
fn a_room_imports_only_rooms_on_the_floors_below_it() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut places: BTreeMap<(String, String), PathBuf> = BTreeMap::new();
    let files = sources(&repository().join("src"));
    let room_of = |path: &Path| path.components().nth(1).unwrap().as_os_str().to_string_lossy().replace(".rs", "");
    let rooms: BTreeSet<String> =
        files.iter().map(|(path, _)| room_of(path)).filter(|room| room != "bin" && room != "lib").collect();
    for (path, text) in &files {
        let room = room_of(path);
        let is_parent = path.file_name().is_some_and(|name| name == "mod.rs");
        let depth = path.components().count() - 1 - usize::from(is_parent);
        for other in names_from_the_root(text, depth) {
            if other != room && rooms.contains(&other) && rooms.contains(&room) {
                places.insert((room.clone(), other.clone()), path.clone());
                found.entry(room.clone()).or_default().insert(other);
            }
        }
    }
    let listed: BTreeSet<String> = FLOORS.iter().map(|(room, _)| (*room).to_owned()).collect();
    assert_eq!(rooms, listed, "FLOORS does not list the rooms of src/");
    for (floor, (room, allowed)) in FLOORS.iter().enumerate() {
        for other in *allowed {
            let below = FLOORS[..floor].iter().any(|(name, _)| name == other);
            assert!(below, "FLOORS lets {room} import {other}, which does not come before it: that may close a circle");
        }
        let allowed: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let present = found.remove(*room).unwrap_or_default();
        if let Some(other) = present.difference(&allowed).next() {
            let place = places[&((*room).to_owned(), other.clone())].display();
            panic!("{room} imports {other} ({place}), which FLOORS does not allow");
        }
        let unused: Vec<_> = allowed.difference(&present).collect();
        assert!(unused.is_empty(), "{room} imports {unused:?} no longer: take it out of FLOORS");
    }
}
