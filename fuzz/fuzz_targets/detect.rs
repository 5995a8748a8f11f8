#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use svc_formats::detect;
use svc_formats_fuzz::read;

fuzz_target!(|bytes: &[u8]| {
    let detection = detect(&mut Cursor::new(bytes)).expect("memory can be read");
    if let Some(format) = detection.format {
        read(format, bytes);
    }
});
