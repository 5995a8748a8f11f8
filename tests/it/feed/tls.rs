//! `amqps`: the feed and its producers talk only to a broker whose certificate they trust.
use crate::{
    cli::lines,
    crash::{Process, serve_command},
    feed::{answering, note},
    support::{
        TestApp, Wish,
        broker::{self, Broker, Producer},
        missing,
    },
};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// Makes an authority of the test's own in this folder, and a certificate of it for `localhost`; false if there is no openssl.
fn certify(folder: &Path) -> bool {
    let run = |arguments: &[&str]| {
        Command::new("openssl").args(arguments).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let with = |more: &[&'static str]| [&["req"][..], &key, more].concat();
    fs::write(
        folder.join("of.cnf"),
        "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n",
    )
    .unwrap();
    let made = [
        with(&["-x509", "-subj", "/CN=An authority of a test", "-keyout", "ca.key", "-out", "ca.pem"]),
        with(&["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "of.csr"]),
        vec![
            "x509",
            "-req",
            "-in",
            "of.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "of.cnf",
            "-out",
            "cert.pem",
        ],
    ];
    made.iter().all(|arguments| run(arguments).is_ok_and(|status| status.success()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_trusted_by_its_certificate_alone() {
    let started = tokio::task::spawn_blocking(|| {
        let mut certified = false;
        let started = Broker::prepared(|folder| {
            fs::create_dir(folder.join("tls")).unwrap();
            certified = certify(&folder.join("tls"));
        });
        started.filter(|_| certified)
    });
    let Some(broker) = started.await.unwrap() else {
        return missing("the bulk feed over TLS (no message broker or no openssl here)");
    };
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    answering(&app, "producer", "guest").await;
    let (prefix, port, work) = (broker::prefix(), broker.address.port() + 3, tempfile::tempdir().unwrap());
    let authority = work.path().join("ca.pem");
    fs::copy(broker.folder().join("tls/ca.pem"), &authority).unwrap();
    let url = |host: &str| format!("amqps://guest:guest@{host}:{port}/%2f");
    let mut serve = serve_command(&app);
    serve.env("SVC_AMQP_URL", url("localhost")).env("SVC_AMQP_PREFIX", &prefix).env("SSL_CERT_FILE", &authority);
    let service = Process(serve.env("SVC_LOG_LEVEL", "error").stdout(Stdio::null()).spawn().unwrap());
    // The test itself reads over the port without TLS.
    let producer = Producer::connect(&broker::url(broker.address), &prefix).await;
    let file = work.path().join("a.md");
    fs::write(&file, note(70_000)).unwrap();
    let bulk = async |host: &str, authority: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command
            .arg("bulk")
            .arg(&file)
            .arg("--journal")
            .arg(work.path().join(format!("of-{host}")))
            .env("SVC_CONFIG", "/dev/null");
        command.env("SVC_AMQP_URL", url(host)).env("SVC_AMQP_PREFIX", &prefix).env_remove("SSL_CERT_FILE");
        command.envs(authority.map(|path| ("SSL_CERT_FILE", path)));
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    for (host, authority, why) in
        [("localhost", None, "an unknown authority"), ("127.0.0.1", Some(authority.as_path()), "another name")]
    {
        let refused = bulk(host, authority).await;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && said.contains("certificate"), "{why}: {said}");
        assert!(!said.contains("guest:"), "{said}");
    }
    let sent = bulk("localhost", Some(&authority)).await;
    assert_eq!((lines(&sent)[0]["accepted"].as_u64(), sent.status.code()), (Some(1), Some(0)), "{sent:?}");
    service.kill();
    producer.clear().await;
    app.end().await;
}
