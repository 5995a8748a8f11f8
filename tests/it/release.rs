//! A release: a folder that starts on another machine.
use crate::support::{repository, settings};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Output},
};

/// A folder as `config/release.sh` makes it, but with the programs of the tests and with one page to ingest.
fn release() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| folder.path().join(name);
    for program in [env!("CARGO_BIN_EXE_svc"), env!("CARGO_BIN_EXE_svc-worker"), env!("CARGO_BIN_EXE_svc-batch-worker")]
    {
        let place = at(Path::new(program).file_name().unwrap().to_str().unwrap());
        // A link takes no space, and is only possible on the same file system.
        if fs::hard_link(program, &place).is_err() {
            fs::copy(program, &place).unwrap();
        }
    }
    for part in ["config", "models", "docs", "licenses"] {
        fs::create_dir(at(part)).unwrap();
    }
    let settings = settings(&[]);
    symlink(&settings.postgres_home, at("postgres")).unwrap();
    let model = "models/all-MiniLM-L6-v2";
    symlink(settings.cache_dir.join(model), at(model)).unwrap();
    for file in ["config/svc.toml", "docs/queue.md", "LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        fs::copy(repository().join(file), at(file)).unwrap();
    }
    fs::write(at("licenses/crates.txt"), "").unwrap();
    folder
}

fn check(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(repository().join("config/release-check.sh")).arg(folder).args(arguments).output().unwrap()
}

#[test]
fn a_release_starts_from_another_folder_in_an_empty_environment() {
    let folder = release();
    let checked = check(folder.path(), &[]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn a_release_that_needs_a_newer_glibc_or_lacks_a_part_is_refused() {
    let folder = release();
    let refused = |arguments: &[&str]| {
        let checked = check(folder.path(), arguments);
        assert!(!checked.status.success());
        String::from_utf8(checked.stderr).unwrap()
    };
    // No program of today runs with a glibc of 2000.
    let needs = refused(&["2.2"]);
    assert!(needs.contains("svc needs GLIBC_2.") && needs.contains("may need glibc 2.2 at most"), "{needs}");
    fs::remove_file(folder.path().join("postgres")).unwrap();
    let lacks = refused(&[]);
    assert!(lacks.contains("has no postgres/bin/postgres"), "{lacks}");
}

/// A library of the release's own needs another one in turn.
#[test]
fn a_release_that_lacks_a_library_of_a_library_is_refused() {
    let folder = release();
    let postgres = folder.path().join("postgres");
    let home = fs::read_link(&postgres).unwrap();
    fs::remove_file(&postgres).unwrap();
    fs::create_dir_all(postgres.join("lib")).unwrap();
    symlink(home.join("bin"), postgres.join("bin")).unwrap();
    let mut left_out = 0;
    for entry in fs::read_dir(home.join("lib")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with("libtinfo") {
            left_out += 1;
        } else {
            symlink(entry.path(), postgres.join("lib").join(entry.file_name())).unwrap();
        }
    }
    assert_eq!(left_out, 1, "psql needs libreadline, and that needs libtinfo");
    let checked = check(folder.path(), &["2.99"]);
    let refused = String::from_utf8(checked.stderr).unwrap();
    assert!(!checked.status.success() && refused.contains("which the release does not bring"), "{refused}");
    assert!(refused.contains("libreadline") && refused.contains("needs libtinfo"), "{refused}");
}
