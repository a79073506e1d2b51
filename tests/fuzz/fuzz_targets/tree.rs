#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| grapevine_fuzz::tree(data));
