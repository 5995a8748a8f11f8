//! `svc blobs verify`: it finds what is lost and what is too much.
use super::*;

#[tokio::test]
async fn verify_finds_what_is_changed_missing_and_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    let app = app_on(&in_folder(folder.path()), true).await;
    let mut stored = BTreeMap::new();
    for name in ["sound", "flipped", "cut", "longer", "gone"] {
        stored.insert(name, app.upload_bytes(&format!("{name}.txt"), format!("The {name} one.")).await.unwrap());
    }
    let path = |name: &str| folder.path().join(stored[name].blob_ref.trim_start_matches("obj:"));
    let verify = async |arguments: &[&str]| {
        let arguments = [&["blobs", "verify", "--json"], arguments].concat();
        let output = run(program(&app, &in_folder(folder.path()), &arguments)).await;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!lines.is_empty(), "{output:?}");
        (output.status.code(), lines)
    };
    for arguments in [&[][..], &["--read"]] {
        let (code, lines) = verify(arguments).await;
        assert_eq!((code, &lines[..]), (Some(0), &[json!({"files": 5, "bytes": 70, "lost": 0, "orphans": 0})][..]));
    }
    let bytes: BTreeMap<_, _> = stored.keys().map(|name| (*name, std::fs::read(path(name)).unwrap())).collect();
    std::fs::write(path("flipped"), "The flopped one.").unwrap();
    std::fs::write(path("cut"), "The").unwrap();
    std::fs::write(path("longer"), "The longer one. And more.").unwrap();
    std::fs::remove_file(path("gone")).unwrap();
    // Of these only the first belongs to nobody: one is young, one was deleted, and one is not of this service.
    let (old, young) = (format!("ab/ab{}", "1".repeat(30)), format!("ab/ab{}", "2".repeat(30)));
    std::fs::create_dir_all(folder.path().join("ab")).unwrap();
    let deleted = app.upload_bytes("deleted.txt", "deleted").await.unwrap();
    delete(&app, deleted.document_id).await;
    let deleted = deleted.blob_ref.trim_start_matches("obj:").to_owned();
    for name in [&old, &young, &"ab/photo.jpg".to_owned()] {
        std::fs::write(folder.path().join(name), "12345").unwrap();
    }
    for name in [&old, &deleted, &"ab/photo.jpg".to_owned()] {
        age(&folder.path().join(name));
    }
    let about = |lines: &[Value], finding: &str| -> Vec<String> {
        let of = lines.iter().filter(|line| line["finding"] == finding);
        of.map(|line| line["about"].as_str().unwrap().to_owned()).collect()
    };
    let lost = |lines: &[Value]| -> BTreeSet<&str> {
        let about = about(lines, "lost");
        let is_told = |name: &&&str| {
            let of = format!("document {} ", stored[**name].document_id);
            about.iter().any(|about| about.contains(&of))
        };
        stored.keys().filter(is_told).copied().collect()
    };
    let (code, quick) = verify(&[]).await;
    assert_eq!((code, lost(&quick)), (Some(3), ["cut", "gone", "longer"].into()), "sizes tell of these: {quick:?}");
    assert_eq!(about(&quick, "orphan"), std::slice::from_ref(&old));
    let (code, whole) = verify(&["--read"]).await;
    assert_eq!((code, lost(&whole)), (Some(3), ["cut", "flipped", "gone", "longer"].into()), "{whole:?}");
    assert_eq!(about(&whole, "orphan"), std::slice::from_ref(&old));
    assert_eq!(whole.last().unwrap(), &json!({"files": 5, "bytes": 70, "lost": 4, "orphans": 1}));

    // The library says the same.
    let mut told = 0;
    let verified = app.service.blobs.verify(&app.pool, false, |_| told += 1).await.unwrap();
    assert_eq!((verified.files, verified.lost, verified.orphans, told), (5, 3, 1, 4));

    // Bytes in the database are looked at too, if all are read.
    let moved = run(program(&app, &in_folder(folder.path()), &["blobs", "move", "--to", "database"])).await;
    // The longer one has all that was stored, so it moves.
    assert_eq!((last_line(&moved)["moved"].as_i64(), last_line(&moved)["failed"].as_i64()), (Some(2), Some(3)));
    sqlx::query("SELECT lo_put(lob, 4, 'SOUND') FROM document_blobs WHERE document_id = $1")
        .bind(stored["sound"].document_id)
        .execute(&app.pool)
        .await
        .unwrap();
    let (_, whole) = verify(&["--read"]).await;
    assert!(lost(&whole).contains("sound") && !lost(&whole).contains("longer"), "{whole:?}");
    sqlx::query("SELECT lo_put(lob, 4, 'sound') FROM document_blobs WHERE document_id = $1")
        .bind(stored["sound"].document_id)
        .execute(&app.pool)
        .await
        .unwrap();
    std::fs::remove_file(folder.path().join(&old)).unwrap();
    for name in ["flipped", "cut", "gone"] {
        std::fs::write(path(name), &bytes[name]).unwrap();
    }
    app.end().await;
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_not_asked_for_a_store_on_this_machine() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    app.upload_bytes("notes.txt", "What was stored.").await.unwrap();
    let mut verify = program(&app, &s3.settings(), &["blobs", "verify", "--read", "--json"]);
    // Nobody listens there.
    verify.envs(["http_proxy", "HTTP_PROXY", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:9")));
    verify.env_remove("no_proxy").env_remove("NO_PROXY");
    let output = run(verify).await;
    assert_eq!(last_line(&output), json!({"files": 1, "bytes": 16, "lost": 0, "orphans": 0}), "{output:?}");
    app.end().await;
}
