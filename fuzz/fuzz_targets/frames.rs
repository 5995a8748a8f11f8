#![no_main]

use libfuzzer_sys::fuzz_target;
use svc_formats::{
    Format,
    isolated::{Decoder, Exit, Request, Step},
};
use svc_formats_fuzz::limits;

fuzz_target!(|pieces: Vec<&[u8]>| {
    let mut decoder = Decoder::new(&Request::new(Step::Extract(Format::Text), limits()));
    for piece in pieces {
        decoder.feed(piece).ok();
        while decoder.next_answer().is_some() {}
    }
    decoder.finish(&Exit { code: Some(0), ..Exit::default() }).ok();
});
