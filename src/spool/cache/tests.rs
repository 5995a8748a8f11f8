use super::*;
use crate::store::blobs::BlobPlace;
use serde_json::json;
use sqlx::postgres::{PgPoolOptions, types::Oid};
use std::io::{Read, Write};

/// A database that does not exist: files in the cache need none.
fn no_database() -> PgPool {
    PgPoolOptions::new()
        .acquire_timeout(Duration::from_millis(10))
        .connect_lazy("postgres://nobody@127.0.0.1:1/none")
        .unwrap()
}

fn spooled(folder: &Path, bytes: &[u8]) -> Spooled {
    let mut spool = Spool::new(folder).unwrap();
    spool.write(bytes).unwrap();
    spool.finish().unwrap()
}

fn blob(hash: &str, bytes: usize) -> BlobRow {
    BlobRow {
        document_id: DocumentId(1),
        place: BlobPlace::LargeObject(Oid(1)),
        mime_type: None,
        declared_mime: None,
        detected_by: None,
        format: None,
        byte_size: bytes as i64,
        content_hash: hash.to_owned(),
        options: json!({}),
    }
}

fn text(file: &StoredFile) -> String {
    io::read_to_string(file.open().unwrap()).unwrap()
}

#[tokio::test]
async fn readers_of_one_file_have_positions_of_their_own_and_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let cache = SpoolCache::new(Arc::default(), folder.path(), 100);
    let spooled = spooled(cache.folder(), b"some bytes");
    let row = blob(&spooled.content_hash, 10);
    cache.keep(DocumentId(1), spooled);
    let file = cache.open(&no_database(), &row).await.unwrap();
    let (mut first, mut second) = (file.open().unwrap(), file.open().unwrap());
    first.read_exact(&mut [0; 5]).unwrap();
    let mut rest = String::new();
    second.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "some bytes");
    assert!(first.write_all(b"x").is_err(), "a reader that a hostile file took over changes nothing");
}

#[tokio::test]
async fn the_cache_holds_what_its_bound_allows_and_drops_what_was_used_longest_ago() {
    let folder = tempfile::tempdir().unwrap();
    let cache = SpoolCache::new(Arc::default(), folder.path(), 10);
    let rows: Vec<BlobRow> = [b"aaaa", b"bbbb", b"cccc"]
        .map(|bytes| {
            let spooled = spooled(cache.folder(), bytes);
            let row = blob(&spooled.content_hash, 4);
            cache.keep(DocumentId(1), spooled);
            row
        })
        .into();
    let pool = no_database();
    assert!(
        matches!(cache.open(&pool, &rows[0]).await, Err(SpoolError::Stored(BlobError::Database(_)))),
        "the first made room"
    );
    assert_eq!(cache.kept().bytes, 4, "the copy made room for itself, and takes none once it has failed");
    let held = cache.open(&pool, &rows[2]).await.unwrap();
    cache.kept().make_room(0, 0);
    assert_eq!(text(&held), "cccc", "a file that is in use stays readable");
    let large = spooled(cache.folder(), &[b'x'; 11]);
    let row = blob(&large.content_hash, 11);
    cache.keep(DocumentId(1), large);
    assert!(cache.open(&pool, &row).await.is_err(), "a file over the bound is not kept");
    assert_eq!(cache.kept().bytes, 0);
}

#[tokio::test]
async fn many_small_files_hold_no_more_descriptors_than_their_bound() {
    let folder = tempfile::tempdir().unwrap();
    let cache = SpoolCache::of_files(Arc::default(), folder.path(), 1 << 20, 3);
    // Other tests of this process open files too, but none in this folder.
    let open = || {
        let links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.starts_with(folder.path())).count()
    };
    let mut rows = Vec::new();
    for number in 0..20 {
        let spooled = spooled(cache.folder(), format!("file {number}").as_bytes());
        rows.push(blob(&spooled.content_hash, 6));
        cache.keep(DocumentId(1), spooled);
        assert!(open() <= 3, "{} files are open", open());
    }
    assert_eq!((open(), cache.kept().slots.len()), (3, 3));
    assert!(cache.open(&no_database(), &rows[19]).await.is_ok(), "the latest are kept");
    assert!(cache.open(&no_database(), &rows[0]).await.is_err());
    assert!((1..=MOST_FILES).contains(&max_files()));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_nobody_uses_leaves_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let cache = SpoolCache::new(Arc::default(), folder.path(), 100);
    let bytes = spooled(cache.folder(), b"aaaa");
    let row = blob(&bytes.content_hash, 4);
    cache.keep(DocumentId(1), bytes);
    tokio::time::sleep(IDLE / 2).await;
    assert!(cache.open(&no_database(), &row).await.is_ok());
    tokio::time::sleep(IDLE / 2 + IDLE / 4).await;
    assert_eq!(cache.kept().bytes, 4, "its last use was not long ago");
    tokio::time::sleep(IDLE).await;
    let kept = cache.kept();
    assert_eq!((kept.bytes, kept.slots.len()), (0, 0));
}
