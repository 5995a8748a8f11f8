use super::*;
use std::time::Duration;

fn load(file: Option<&str>, env: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let number = env.iter().fold(file.map_or(0, str::len), |sum, (name, value)| sum * 31 + name.len() + value.len());
    let thread = std::thread::current().name().unwrap_or_default().replace("::", "-");
    let path = std::env::temp_dir().join(format!("svc-settings-{}-{thread}-{number}.toml", std::process::id()));
    // A file is always named, so that one in the working directory has no effect.
    fs::write(&path, file.unwrap_or_default()).unwrap();
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let home = ("HOME".to_owned(), "/home/reader".to_owned());
    let settings = Settings::load(Some(&path), env.chain([home]));
    fs::remove_file(&path).unwrap();
    settings
}

fn refusal(file: Option<&str>, env: &[(&str, &str)]) -> String {
    load(file, env).unwrap_err().to_string()
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let settings = load(None, &[]).unwrap();
    assert_eq!(settings.warnings(), &[] as &[String]);
    assert!(settings.api_token.is_blank());
    assert!(settings.cors_origins.is_empty());
    assert_eq!((settings.bm25_k1, settings.bm25_b), (1.2, 0.75));
    assert_eq!((settings.token_top_percent, &settings.token_embed_dims[..]), (0.5, &[256][..]));
    assert_eq!(settings.bm25_exclude_usetypes, ["entity", "summary"]);
    assert_eq!(settings.search_exclude_usetypes, ["entity", "summary"]);
    assert_eq!((settings.embedding_batch_size, settings.token_batch_size, settings.reranker_batch_size), (32, 32, 32));
    assert_eq!((settings.embedding_token_window, settings.embedding_doc_window), (512, 8192));
    assert_eq!((settings.chunk_max_chars, settings.reranker_max_length), (1800, 512));
    assert_eq!(settings.embedding_device, Device::Cpu);
    assert_eq!(settings.embedding_precision, None);
    assert_eq!(settings.extraction_max_facts, 5);
    assert_eq!(settings.extraction_max_tokens, 4096);
    assert_eq!(settings.extraction_confidence_threshold, 0.5);
    assert_eq!(settings.extraction_entity_similarity_threshold, 0.8);
    assert_eq!(settings.extraction_temperature, 0.1);
    assert_eq!(settings.summarization_disable_thinking, None);
    assert!(settings.ingest_worker_enabled);
    assert_eq!(settings.ingest_worker_poll, Duration::from_secs(1));
    assert_eq!(settings.worker_heartbeat, Duration::from_secs(10));
    assert_eq!(settings.worker_lease, Duration::from_secs(90));
    assert_eq!(settings.worker_reap, Duration::from_secs(30));
    assert!(settings.task_badges.is_empty() && settings.worker_badge.is_empty());
    assert!(settings.worker_id.ends_with(&format!("-{}", std::process::id())));
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8000");
    assert_eq!(settings.console_listen.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:8001"));
    assert_eq!(settings.max_upload_bytes, 256 << 20);
    assert_eq!(settings.parser_unpacked_bytes, 1 << 30);
    assert_eq!((settings.parser_pages, settings.parser_zip_members, settings.parser_zip_ratio), (10_000, 10_000, 100));
    assert_eq!((settings.parser_xml_depth, settings.parser_cells), (256, 5_000_000));
    assert_eq!(settings.parser_wall_time, Duration::from_secs(600));
    assert_eq!(settings.batch_stall, Duration::from_secs(26 * 3600));
    assert_eq!(settings.models_dir(), Path::new("/home/reader/.cache/svc/models"));
    assert_eq!(settings.postgres_home, Path::new("/home/reader/.cache/svc/postgres"));
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_default() {
    let file = "bm25_k1 = 1.5\nbm25_b = 0.5\nsearch_exclude_usetypes = [\"raw\"]\ntask_badges = { ocr = \"gpu\" }";
    let settings = load(Some(file), &[("SVC_BM25_K1", "2")]).unwrap();
    assert_eq!((settings.bm25_k1, settings.bm25_b), (2.0, 0.5));
    assert_eq!(settings.search_exclude_usetypes, ["raw"]);
    assert_eq!(settings.task_badges["ocr"], "gpu");

    let rows = settings.rows();
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!(row("SVC_BM25_K1").origin, Origin::Environment);
    assert!(row("SVC_BM25_B").origin.to_string().starts_with("file "));
    assert_eq!(row("SVC_TOKEN_TOP_PERCENT").origin, Origin::Default);
    assert_eq!(row("SVC_TASK_BADGES").value, r#"{"ocr":"gpu"}"#);
}

#[test]
fn a_blank_variable_is_unset_except_where_a_blank_is_a_value() {
    let file = "bm25_k1 = 1.5\nembedding_model = \"a\"\nllm_base_url = \"http://a\"";
    let env = [("SVC_BM25_K1", ""), ("SVC_EMBEDDING_MODEL", " "), ("SVC_LLM_BASE_URL", "")];
    let settings = load(Some(file), &env).unwrap();
    assert_eq!((settings.bm25_k1, &*settings.embedding_model, &*settings.llm_base_url), (1.5, "a", ""));
}

#[test]
fn bad_values_are_all_told_with_name_value_and_what_is_taken() {
    let env = [("SVC_BM25_B", "2"), ("SVC_LISTEN", "nowhere"), ("SVC_TOKEN_EMBED_DIMS", "[256, 300]")];
    let message = refusal(Some("worker_reap_seconds = \"soon\""), &env);
    for part in [
        "SVC_BM25_B is \"2\" (environment), but takes a number from 0 to 1",
        "SVC_LISTEN is \"nowhere\" (environment), but takes an IP address and a port",
        "SVC_TOKEN_EMBED_DIMS is \"[256, 300]\" (environment), but takes a list of any of 256, 384, 512, or [] for none",
        "SVC_WORKER_REAP_SECONDS is \"soon\" (file ",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[test]
fn no_width_of_token_vectors_is_a_value_too() {
    for settings in [load(None, &[("SVC_TOKEN_EMBED_DIMS", "[]")]), load(Some("token_embed_dims = []"), &[])] {
        let settings = settings.unwrap();
        assert!(settings.token_embed_dims.is_empty());
        let rows = settings.rows();
        assert!(rows.iter().any(|row| row.name == "SVC_TOKEN_EMBED_DIMS" && row.value == "[]"));
    }
}

#[test]
fn hostile_values_are_refused() {
    for (name, value) in [
        ("SVC_WORKER_LEASE_SECONDS", "inf"),
        ("SVC_WORKER_LEASE_SECONDS", "NaN"),
        ("SVC_WORKER_HEARTBEAT_SECONDS", "-1"),
        ("SVC_BM25_K1", "1e400"),
        ("SVC_MAX_UPLOAD_BYTES", "99999999999999999999 GiB"),
        ("SVC_MAX_UPLOAD_BYTES", "18446744073709551615 GiB"),
        ("SVC_MAX_UPLOAD_BYTES", "0"),
        ("SVC_DATABASE_POOL_SIZE", "1000000000000"),
        ("SVC_TOKEN_TOP_PERCENT", "0"),
        ("SVC_TOKEN_EMBED_DIMS", "[256, 256]"),
        ("SVC_TOKEN_EMBED_DIMS", "[256, ]"),
        ("SVC_TASK_BADGES", "[\"a\"]"),
        ("SVC_TASK_BADGES", "{\"embed\": \"\"}"),
        ("SVC_TASK_BADGES", "{\"embed\": \" \"}"),
        ("SVC_DATABASE_URL", "mysql://a"),
        ("SVC_DATABASE_READ_URL", "postgres://a,mysql://b"),
        ("SVC_RDF_BASE", "store/"),
        ("SVC_RDF_BASE", "http://store.example"),
        ("SVC_RDF_BASE", "http://a store.example/"),
        ("SVC_EMBEDDING_DEVICE", "tpu"),
        ("SVC_EMBEDDING_PRECISION", "int4"),
        ("SVC_INGEST_WORKER_ENABLED", "maybe"),
        ("SVC_CORS_ORIGINS", "[\"*\"]"),
        ("SVC_CORS_ORIGINS", "*"),
        ("SVC_CORS_ORIGINS", "https://*.example.org"),
        ("SVC_CORS_ORIGINS", "https://example.org/path"),
    ] {
        let message = refusal(None, &[(name, value)]);
        assert!(message.starts_with(name) && message.contains("takes"), "{message}");
    }
}

#[test]
fn secrets_show_nowhere() {
    let env = [
        ("SVC_API_TOKEN", "s3cret"),
        ("SVC_DATABASE_URL", "postgres://svc:s3cret@db.example/svc"),
        ("SVC_DATABASE_READ_URL", "postgres://svc:s3cret@one.example/svc, postgres://svc:s3cret@two.example/svc"),
        ("SVC_AMQP_URL", "amqp://svc:s3cret/%40@mq.example/x"),
        ("SVC_LLM_API_KEY", "s3cret"),
        ("SVC_BLOB_ACCESS_KEY_ID", "id"),
        ("SVC_BLOB_SECRET_ACCESS_KEY", "s3cret"),
        ("AWS_SESSION_TOKEN", "s3cret"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", "s3cret"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "s3cret"),
    ];
    let settings = load(None, &env).unwrap();
    let shown = format!("{settings:?} {:?}", settings.rows());
    assert!(!shown.contains("s3cret"), "{shown}");
    assert_eq!(settings.api_token.expose(), "s3cret");
    let rows = settings.rows();
    let row = |name: &str| &*rows.iter().find(|row| row.name == name).unwrap().value;
    assert_eq!(row("SVC_DATABASE_URL"), "postgres://svc:********@db.example/svc");
    let both = "postgres://svc:********@one.example/svc,postgres://svc:********@two.example/svc";
    assert_eq!((row("SVC_DATABASE_READ_URL"), settings.database_read_url.len()), (both, 2));

    let bad = refusal(Some("api_token = \"s3cret"), &[]);
    assert!(bad.contains("line 1") && !bad.contains("s3cret"), "{bad}");
    let bad = refusal(None, &[("SVC_BLOB_ENDPOINT", "https://id:s3cret@store.example")]);
    assert!(bad.contains("SVC_BLOB_ENDPOINT") && !bad.contains("s3cret"), "{bad}");
    let address = ("GOOGLE_BASE_URL", "https://id:s3cret@store.example");
    let bad = refusal(None, &[("SVC_BLOB_STORE", "gs://bucket"), address]);
    assert!(bad.contains("GOOGLE_BASE_URL") && bad.contains('@') && !bad.contains("s3cret"), "{bad}");
    let bad = refusal(None, &[("SVC_BLOB_STORE", "s3://id:s3cret@bucket")]);
    assert!(bad.contains("SVC_BLOB_STORE") && !bad.contains("s3cret"), "{bad}");
    let bad = refusal(None, &[("SVC_DATABASE_URL", "s3cret")]);
    assert!(bad.contains("SVC_DATABASE_URL") && !bad.contains("s3cret"), "{bad}");
}

#[test]
fn an_address_with_a_password_is_refused_and_not_shown() {
    for (name, key) in [
        ("SVC_OTLP_ENDPOINT", "SVC_OTLP_HEADERS"),
        ("SVC_RUNNER_URL", "SVC_RUNNER_KEY"),
        ("SVC_RUNNER_COMING_URL", "SVC_RUNNER_KEY"),
        ("SVC_LLM_BASE_URL", "SVC_LLM_API_KEY"),
        ("SVC_FALLBACK_LLM_URL", "SVC_LLM_API_KEY"),
        ("SVC_BATCH_OPENAI_URL", "SVC_BATCH_OPENAI_KEY"),
        ("SVC_BATCH_ANTHROPIC_URL", "SVC_BATCH_ANTHROPIC_KEY"),
    ] {
        for user in ["id:s3cret", "s3cret", "id:s3/cret"] {
            let address = format!("https://{user}@host.example/v1");
            let bad = refusal(None, &[(name, &*address)]);
            assert!(bad.contains(&format!("{name} holds an @")) && bad.contains(key), "{bad}");
            assert!(!bad.contains("s3"), "{bad}");
        }
        let bad = refusal(None, &[(name, "id:s3cret@host.example")]);
        assert!(bad.starts_with(name) && !bad.contains("s3cret"), "{bad}");
        let (at, runner_key) = ((name, "https://host.example/%40/v1"), ("SVC_RUNNER_KEY", "a key"));
        assert!(load(None, &[at, runner_key]).is_ok(), "{name}");
    }
}

#[test]
fn an_object_store_is_a_bucket_or_a_folder_and_not_called_over_plain_http_by_mistake() {
    let account = ("AZURE_STORAGE_ACCOUNT_NAME", "herons");
    for store in [
        "s3://bucket",
        "s3://my-bucket.1/a/b_c",
        "file:///mnt/a folder",
        "gs://my_bucket.1",
        "gs://bucket/a/b",
        "az://container/a",
    ] {
        let settings = load(None, &[("SVC_BLOB_STORE", store), account]).unwrap();
        assert_eq!(settings.blob_store.map(|store| store.to_string()).as_deref(), Some(store));
    }
    assert_eq!(
        load(None, &[("SVC_BLOB_STORE", "s3://bucket/a/")]).unwrap().blob_store,
        BlobStore::parse("s3://bucket/a")
    );
    for bad in [
        "bucket",
        "s3://",
        "s3://ab",
        "s3://Bucket",
        "s3://bucket/../other",
        "s3://bucket/a//b",
        "s3://bucket/a?x",
        "s3://bucket/#a",
        "file://relative",
        "file:///",
        "s3://my_bucket",
        "gs://Bucket",
        "az://a.container",
        "az://",
        "abfs://container",
        "https://bucket.s3.amazonaws.com",
    ] {
        let message = refusal(None, &[("SVC_BLOB_STORE", bad)]);
        assert!(message.starts_with("SVC_BLOB_STORE") && message.contains("takes"), "{message}");
    }
    let plain = [("SVC_BLOB_STORE", "s3://bucket"), ("SVC_BLOB_ENDPOINT", "http://store.example")];
    assert!(refusal(None, &plain).contains("SVC_BLOB_ALLOW_HTTP"));
    assert!(load(None, &[plain[0], plain[1], ("SVC_BLOB_ALLOW_HTTP", "true")]).is_ok());
    assert!(refusal(None, &[plain[0], ("AWS_ENDPOINT_URL", "http://store.example")]).contains("SVC_BLOB_ALLOW_HTTP"));
    let refused = refusal(None, &[plain[0], ("SVC_BLOB_ACCESS_KEY_ID", "id")]);
    assert!(refused.contains("SVC_BLOB_SECRET_ACCESS_KEY"), "{refused}");

    let (google, azure) = (("SVC_BLOB_STORE", "gs://bucket"), ("SVC_BLOB_STORE", "az://container"));
    for (store, more, says) in [
        (google, ("GOOGLE_BASE_URL", "http://store.example"), "GOOGLE_BASE_URL"),
        (google, plain[1], "SVC_BLOB_ALLOW_HTTP"),
        (google, ("SVC_BLOB_SECRET_ACCESS_KEY", "s3cret"), "GOOGLE_ variables"),
        (azure, ("AZURE_STORAGE_ENDPOINT", "http://store.example"), "AZURE_STORAGE_ENDPOINT"),
        (azure, ("SVC_BLOB_REGION", "eu-central-1"), "AZURE_ variables"),
    ] {
        let refused = refusal(None, &[store, more, account]);
        assert!(refused.contains(says) && !refused.contains("s3cret"), "{store:?} {more:?}: {refused}");
    }
    let refused = refusal(None, &[azure]);
    assert!(refused.contains("AZURE_STORAGE_ACCOUNT_NAME is not set"), "{refused}");
    // The variables of one provider are nothing to the bucket of another.
    let foreign =
        [google, ("AWS_ENDPOINT_URL", "http://store.example"), ("AZURE_STORAGE_ENDPOINT", "http://store.example")];
    assert_eq!(load(None, &foreign).unwrap().blob_server(), None);
    let settings = load(None, &[google, ("GOOGLE_BASE_URL", "https://store.example/")]).unwrap();
    assert_eq!(settings.blob_server(), Some("https://store.example"));
}

#[test]
fn unknown_names_are_told_with_the_nearest_known_one() {
    let message = refusal(Some("bm25_k_1 = 1.0\nsomething_quite_different = 1\nBM25_K1 = 1.0"), &[]);
    assert!(message.contains("bm25_k_1 is not a setting: did you mean bm25_k1?"), "{message}");
    assert!(message.contains("something_quite_different is not a setting; `svc config` lists them all"), "{message}");
    assert!(message.contains("BM25_K1 is not a setting: did you mean bm25_k1?"), "{message}");

    let settings = load(None, &[("SVC_LISEN", "x"), ("SVC_CONFIG", ""), ("PATH", "/bin")]).unwrap();
    assert_eq!(settings.warnings(), ["SVC_LISEN is not a setting and has no effect: did you mean SVC_LISTEN?"]);
}

#[test]
fn a_lease_under_three_beats_is_refused_naming_both() {
    let message = refusal(None, &[("SVC_WORKER_LEASE_SECONDS", "29.9")]);
    assert!(message.contains("SVC_WORKER_LEASE_SECONDS is 29.9"), "{message}");
    assert!(message.contains("SVC_WORKER_HEARTBEAT_SECONDS, which is 10"), "{message}");
    load(None, &[("SVC_WORKER_LEASE_SECONDS", "30")]).unwrap();
}

#[test]
fn a_precision_that_the_device_has_not_is_refused_naming_both() {
    let message = refusal(None, &[("SVC_EMBEDDING_PRECISION", "int8"), ("SVC_EMBEDDING_DEVICE", "wgpu")]);
    let wanted = "SVC_EMBEDDING_PRECISION is int8, which the device wgpu has not (SVC_EMBEDDING_DEVICE)";
    assert!(message.contains(wanted), "{message}");
    let message = refusal(None, &[("SVC_EMBEDDING_PRECISION", "bf16"), ("SVC_EMBEDDING_DEVICE", "ndarray")]);
    assert!(message.contains("SVC_EMBEDDING_PRECISION is bf16"), "{message}");
    for precision in ["f32", "bf16"] {
        load(None, &[("SVC_EMBEDDING_PRECISION", precision), ("SVC_EMBEDDING_DEVICE", "wgpu")]).unwrap();
    }
    load(None, &[("SVC_EMBEDDING_PRECISION", "int8")]).unwrap();
}

#[test]
fn two_listeners_on_one_address_are_refused() {
    let message = refusal(None, &[("SVC_LISTEN", "127.0.0.1:8001")]);
    assert!(message.contains("SVC_LISTEN") && message.contains("SVC_CONSOLE_LISTEN"), "{message}");
    load(None, &[("SVC_LISTEN", "127.0.0.1:0"), ("SVC_CONSOLE_LISTEN", "127.0.0.1:0")]).unwrap();
}

#[test]
fn blanks_fall_back() {
    let settings = load(None, &[("SVC_EMBEDDING_DEVICE", "wgpu")]).unwrap();
    assert_eq!(settings.reranker_device(), Device::Wgpu);
    assert!(settings.metrics_are_public());
    assert!(!load(None, &[("SVC_LISTEN", "0.0.0.0:8000")]).unwrap().metrics_are_public());
    assert!(load(None, &[("SVC_LISTEN", "[::1]:8000")]).unwrap().metrics_are_public());

    let address = |env: &[(&str, &str)]| load(None, env).unwrap().service_url();
    assert_eq!(address(&[("SVC_LISTEN", "0.0.0.0:9000")]), "http://127.0.0.1:9000");
    assert_eq!(address(&[("SVC_LISTEN", "[::]:9000")]), "http://[::1]:9000");
    assert_eq!(address(&[("SVC_URL", "https://svc.example/")]), "https://svc.example");
}

/// Who cannot write to the folder of a release names another one for the models that are fetched.
#[test]
fn a_release_brings_the_server_that_another_cache_folder_lacks() {
    let (release, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fill = |env: &[(&str, &str)], release: Option<&Path>| {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut settings = Settings::read(source::Source::new(None, env).unwrap()).unwrap();
        let home = Some(PathBuf::from("/home/reader"));
        let home = Home { home, release: release.map(Path::to_owned), ..Home::of(&BTreeMap::new()) };
        settings.fill_blanks(&home).unwrap();
        settings
    };
    let elsewhere = [("SVC_CACHE_DIR", cache.path().to_str().unwrap())];
    let blank = fill(&[], Some(release.path()));
    assert_eq!((&*blank.cache_dir, blank.postgres_home), (release.path(), release.path().join("postgres")));
    let named = fill(&elsewhere, Some(release.path()));
    assert_eq!(named.postgres_home, release.path().join("postgres"));
    assert_eq!(named.models_dir(), cache.path().join("models"));
    let own = [elsewhere[0], ("SVC_POSTGRES_HOME", "/opt/postgres")];
    assert_eq!(fill(&own, Some(release.path())).postgres_home, Path::new("/opt/postgres"));
    assert_eq!(fill(&elsewhere, None).postgres_home, cache.path().join("postgres"));

    let fetched = cache.path().join("postgres/bin");
    fs::create_dir_all(&fetched).unwrap();
    fs::write(fetched.join("postgres"), "").unwrap();
    assert_eq!(fill(&elsewhere, Some(release.path())).postgres_home, cache.path().join("postgres"));
}

#[test]
fn each_name_is_its_field_and_means_something() {
    for row in load(None, &[]).unwrap().rows() {
        assert_eq!(row.name, row.name.to_uppercase());
        assert!(row.name.starts_with("SVC_") && row.meaning.ends_with('.') && !row.takes.is_empty(), "{row:?}");
    }
}

#[test]
fn the_file_that_was_read_is_known() {
    assert!(load(Some("bm25_k1 = 1.5"), &[]).unwrap().file().is_some_and(Path::is_absolute));
    let home = ("HOME".to_owned(), "/home/reader".to_owned());
    assert_eq!(Settings::defaults([home].into_iter()).unwrap().file(), None);
}

#[test]
fn the_guide_has_each_service_listen_where_other_machines_reach_it() {
    let guide = include_str!("../../docs/operations.md");
    let services: Vec<&str> =
        guide.lines().filter(|line| line.starts_with('|') && line.contains("| `svc serve`")).collect();
    assert_eq!(services.len(), 2, "two behind a proxy, and the runner");
    for row in services {
        let named = row.split_once("`SVC_LISTEN=").and_then(|(_, rest)| rest.split_once('`'));
        let settings = load(None, &[("SVC_LISTEN", named.unwrap_or_else(|| panic!("{row}")).0)]).unwrap();
        assert!(!settings.listen.ip().is_loopback(), "{row}");
    }
}

#[test]
fn the_shipped_file_lists_every_setting_at_its_default() {
    let shipped = include_str!("../../config/svc.toml");
    let template = load(None, &[]).unwrap().template();
    assert_eq!(shipped, template, "write config/svc.toml anew: svc config --template > config/svc.toml");
    assert!(shipped.contains("svc.toml in the folder in which you start the programs"));

    let uncommented: String = shipped
        .lines()
        .filter_map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')))
        .map(|line| format!("{line}\n"))
        .collect();
    let (read, default) = (load(Some(&uncommented), &[]).unwrap(), load(None, &[]).unwrap());
    for (read, default) in read.rows().iter().zip(default.rows()) {
        assert_eq!((read.name, &read.value), (default.name, &default.value));
        assert!(matches!(read.origin, Origin::File(_)), "{} is not in the file", read.name);
    }
}

/// The code that reads settings: all of src/ but the table, what checks it, and tests.
fn readers() -> String {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut code = String::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let inside_settings = path.parent().is_some_and(|folder| folder.ends_with("settings"));
        if path.ends_with("tests.rs") || (inside_settings && !path.ends_with("models.rs")) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let mut text = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        if path.ends_with("src/settings.rs") {
            // What fills in or checks a setting does nothing with it. The methods before that hand it out.
            text = text.split_once("fn fill_blanks(").unwrap().0.to_owned();
        }
        if inside_settings || path.ends_with("src/settings.rs") {
            text = text.replace("self.", "settings.");
        }
        for line in text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
            // A chain of calls that goes on in the next line is one.
            code += if line.starts_with('.') { "" } else { "\n" };
            code += line;
        }
    }
    code
}

#[test]
fn some_code_reads_every_setting() {
    let code = readers();
    for (row, field) in load(None, &[]).unwrap().rows().iter().zip(table::FIELDS) {
        let read = format!("settings.{field}");
        let ends = |after: &str| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let is_read = code.match_indices(&read).any(|(at, _)| ends(&code[at + read.len()..]));
        assert!(is_read, "nothing reads {}", row.name);
    }
}
