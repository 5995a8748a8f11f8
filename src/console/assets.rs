//! The style and the scripts of the pages. Each has a hash in its name, so that a browser keeps it for ever.
use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
/// idiomorph 0.8, https://github.com/bigskysoftware/idiomorph, under the licence 0BSD.
const MORPH: &str = include_str!("assets/idiomorph.min.js");

/// The names of the style, of the script and of what the script stands on.
pub static NAMES: LazyLock<[String; 3]> = LazyLock::new(|| {
    let named = |text: &str, ending: &str| format!("{}.{ending}", &hex::encode(Sha256::digest(text))[..16]);
    [named(STYLE, "css"), named(SCRIPT, "js"), named(MORPH, "js")]
});

pub async fn read(Path(name): Path<String>) -> Response {
    let [style, script, morph] = &*NAMES;
    let (kind, text) = match name {
        name if name == *style => ("text/css; charset=utf-8", STYLE),
        name if name == *script => ("text/javascript; charset=utf-8", SCRIPT),
        name if name == *morph => ("text/javascript; charset=utf-8", MORPH),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, text).into_response()
}
