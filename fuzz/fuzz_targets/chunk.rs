#![no_main]

use libfuzzer_sys::fuzz_target;
use svc_formats::{ChunkOptions, chunk};

// The first bytes are the options, the rest is the text.
fuzz_target!(|input: (u8, u8, u16, &str)| {
    let (max_tokens, min_chunk_length, max_chars, text) = input;
    let options = ChunkOptions {
        max_tokens: usize::from(max_tokens),
        min_chunk_length: usize::from(min_chunk_length),
        max_chars: usize::from(max_chars),
        ..ChunkOptions::default()
    };
    let mut at = 0;
    for chunk in chunk(text, 0..text.len(), &options, &|piece: &str| piece.split_whitespace().count()) {
        assert!(text[at..chunk.start].trim().is_empty(), "text is lost");
        assert!(chunk.characters <= options.max_chars.max(1));
        assert_eq!(chunk.content(text).chars().count(), chunk.characters);
        at = chunk.end;
    }
    assert!(text[at..].trim().is_empty(), "text is lost");
});
