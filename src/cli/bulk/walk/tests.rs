use super::*;
use std::{collections::BTreeSet, os::unix::fs::symlink};

const MOST: u64 = 1024;

fn walked(sources: Sources) -> (Vec<Candidate>, usize, Vec<String>) {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
    let walking = std::thread::spawn(move || walk(sources, &sender));
    let (mut files, mut skipped, mut unreadable) = (Vec::new(), 0, Vec::new());
    while let Some(found) = receiver.blocking_recv() {
        match found {
            Found::File(candidate) => files.push(candidate),
            Found::Skipped => skipped += 1,
            Found::Unreadable { path, .. } => unreadable.push(path),
        }
    }
    walking.join().expect("walked");
    (files, skipped, unreadable)
}

fn manifests() -> manifest::Reading {
    manifest::Reading { target: Default::default(), most: MOST, by_broker: true }
}

fn read_now(candidate: &Candidate) -> Reading {
    read(candidate, "here", MOST, &Known::default())
}

#[test]
fn everything_in_a_folder_is_found_and_nothing_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("in/deep")).expect("made");
    fs::write(folder.path().join("secret"), "outside").expect("written");
    let hostile = OsString::from_vec(b"a\n\x1b[2J\xff.md".to_vec());
    for name in [OsStr::new("in/deep/a.md"), OsStr::new("empty"), OsStr::new("journal"), &hostile, OsStr::new("-rf")] {
        fs::write(root.join(name), "").expect("written");
    }
    symlink("../secret", root.join("link")).expect("linked");
    symlink("..", root.join("in/up")).expect("linked");
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .expect("a pipe");
    let journal = fs::metadata(root.join("journal")).expect("a file");
    let but = Some((journal.dev(), journal.ino()));
    let list = folder.path().join("list");
    fs::write(&list, format!("{}\r\n\n/no/such/file\n", folder.path().join("secret").display())).expect("written");
    let (files, skipped, unreadable) = walked(Sources {
        paths: vec![root.clone(), root.join("journal")],
        list: Some(list),
        but,
        manifests: manifests(),
    });
    let names: BTreeSet<String> = files.iter().map(Candidate::name).collect();
    let expected = ["-rf", "a.md", "a\n\u{1b}[2J\u{fffd}.md", "empty", "secret"].map(str::to_owned);
    assert_eq!(names, BTreeSet::from(expected), "what is named is found, wherever it is");
    assert_eq!((skipped, unreadable), (3, vec!["/no/such/file".to_owned()]));
    assert!(files.iter().all(|file| matches!(read_now(file), Reading::File { .. })));

    // Between finding and reading a file becomes a link, a pipe or nothing.
    let of = |name: &str| files.iter().find(|file| file.name() == name).expect("found");
    fs::remove_file(root.join("empty")).expect("removed");
    symlink("../secret", root.join("empty")).expect("linked");
    fs::remove_dir_all(root.join("in")).expect("removed");
    symlink("..", root.join("in")).expect("linked");
    fs::remove_file(root.join("-rf")).expect("removed");
    for name in ["empty", "a.md", "-rf"] {
        assert!(matches!(read_now(of(name)), Reading::Unreadable(_)), "{name}");
    }
    let pipe = Candidate::named(&root.join("pipe"));
    assert!(matches!(read_now(&pipe), Reading::Unreadable(_)), "and does not wait");
}

#[test]
fn a_file_is_known_until_it_changes_and_large_ones_are_not_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let candidate = Candidate::named(&path);
    fs::write(&path, "bytes").expect("written");
    let Reading::File { key, sha256, size: 5, content: Content::Bytes(bytes) } = read_now(&candidate) else {
        panic!("it is read");
    };
    assert_eq!((bytes.as_slice(), sha256), (&b"bytes"[..], hex::encode(Sha256::digest(b"bytes"))));
    let known = Known::of(vec![key]);
    assert!(matches!(read(&candidate, "here", MOST, &known), Reading::Known));
    assert!(matches!(read(&candidate, "there", MOST, &known), Reading::File { .. }), "another place");
    let large = vec![7; 5000];
    fs::write(&path, &large).expect("written");
    let Reading::File { sha256, content: Content::Large(mut file), .. } = read(&candidate, "here", MOST, &known) else {
        panic!("it has changed");
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("read");
    assert_eq!((bytes, sha256), (large.clone(), hex::encode(Sha256::digest(&large))));
    // Such files say that they have no bytes, and have.
    let endless = PathBuf::from("/proc/self/environ");
    if endless.exists() {
        let candidate = Candidate::named(&endless);
        assert!(matches!(read_now(&candidate), Reading::Unreadable(_)), "its size is not what it says");
    }
}
