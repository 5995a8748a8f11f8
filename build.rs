//! Compiles in the SQL of functions and views. A new file must be noticed even if no source file changed.
use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    let clone = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut list = String::from("&[\n");
    // A view may call functions, and a view on other views must come after them by its name.
    for folder in ["functions", "views"] {
        let mut files = sql_files(&clone.join("migrations").join(folder));
        files.sort_by(|a, b| a.file_stem().cmp(&b.file_stem()));
        for file in files {
            let name = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            // Clones in different folders share one target folder, so the list must not name this clone's.
            let place = format!("/{}", file.strip_prefix(&clone).expect("it is in the clone").display());
            list += &format!(
                "Source {{ name: {name:?}, sql: include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {place:?})) }},\n"
            );
        }
    }
    list.push(']');
    let target = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("schema_sources.rs");
    fs::write(target, list).expect("the folder of the build takes a file");
}

/// The SQL files of all families in a folder.
fn sql_files(folder: &Path) -> Vec<PathBuf> {
    let families =
        fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("it can be read").path());
    let files = families.filter(|family| family.is_dir()).flat_map(|family| {
        fs::read_dir(family).expect("the folder is there").map(|entry| entry.expect("it can be read").path())
    });
    files.filter(|file| file.extension().is_some_and(|extension| extension == "sql")).collect()
}
