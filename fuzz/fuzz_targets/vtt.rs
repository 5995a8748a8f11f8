#![no_main]

use libfuzzer_sys::fuzz_target;
use svc_formats::Format;
use svc_formats_fuzz::read;

fuzz_target!(|bytes: &[u8]| read(Format::Vtt, bytes));
