//! A new migration must be built in, although no source file changed.
fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
