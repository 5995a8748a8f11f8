use super::*;
use proptest::prelude::*;

const TYPE: &str = "multipart/form-data; boundary=XX";

/// A whole part: its header and all its bytes.
type Part = (Head, Vec<u8>);

/// The parts of a body that comes in these frames, and its end if that is not its last boundary.
fn read<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Part>, Result<(), FormError>) {
    let mut frames = frames.into_iter();
    let mut parts = Parts::new(TYPE).expect("a boundary");
    let mut whole: Vec<Part> = Vec::new();
    loop {
        match parts.next() {
            Ok(Step::Part(head)) => whole.push((head, Vec::new())),
            Ok(Step::Data(bytes)) => {
                assert!(!bytes.is_empty());
                whole.last_mut().expect("a part").1.extend_from_slice(&bytes);
            }
            Ok(Step::EndOfPart) => {}
            Ok(Step::EndOfForm) => return (whole, Ok(())),
            Ok(Step::NeedsFrame) => {
                assert!(parts.buffer.len() <= HEAD_BYTES + 4, "{} bytes are held", parts.buffer.len());
                match frames.next() {
                    Some(frame) => parts.feed(frame),
                    None => return (whole, Err(FormError::Ended)),
                }
            }
            Err(error) => return (whole, Err(error)),
        }
    }
}

fn named(name: &str, bytes: &[u8]) -> Part {
    (Head { name: Some(name.to_owned()), ..Head::default() }, bytes.to_vec())
}

const FORM: &[u8] =
    b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n\
    one\r\n--X two \r\n-- three\r\n--XX\r\ncontent-disposition: form-data; name=options\r\n\r\n{}\r\n--XX--\r\n";

#[test]
fn a_form_is_read_alike_however_its_bytes_are_cut_once() {
    let head =
        Head { name: Some("file".into()), file_name: Some("a.txt".into()), content_type: Some("text/plain".into()) };
    let parts = vec![(head, b"one\r\n--X two \r\n-- three".to_vec()), named("options", b"{}")];
    for at in 0..=FORM.len() {
        assert_eq!(read([&FORM[..at], &FORM[at..]]), (parts.clone(), Ok(())), "cut at {at}");
    }
    assert_eq!(read(FORM.chunks(1)), (parts, Ok(())));
}

#[test]
fn a_form_that_breaks_off_anywhere_has_ended() {
    let whole = FORM.len() - b"\r\n".len();
    for at in 0..whole {
        assert_eq!(read([&FORM[..at]]).1, Err(FormError::Ended), "cut at {at}");
    }
    assert_eq!(read([&FORM[..whole]]).1, Ok(()));
}

#[test]
fn what_stands_before_and_behind_the_form_is_no_part_of_it() {
    let (parts, end) =
        read([&b"a preamble\r\n--XX  \r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--XX--and more"[..]]);
    assert_eq!((parts, end), (vec![named("x", b"")], Ok(())));
    assert_eq!(read([&b"--XX--"[..]]), (vec![], Ok(())), "a form without parts");
}

#[test]
fn hostile_forms_are_refused_and_hold_no_memory() {
    let endless = [b'x'; 1024];
    let header =
        std::iter::once(&b"--XX\r\nContent-Disposition: form-data; name=\""[..]).chain(std::iter::repeat(&endless[..]));
    assert_eq!(read(header), (vec![], Err(FormError::HeadTooLong)));
    let damaged = |text: &[u8]| matches!(read([text]).1, Err(FormError::Damaged(_)));
    assert!(matches!(read(std::iter::repeat(&endless[..])).1, Err(FormError::Damaged(_))), "an endless preamble");
    let padding = std::iter::once(&b"--XX"[..]).chain(std::iter::repeat(&b"    "[..]));
    assert!(matches!(read(padding).1, Err(FormError::Damaged(_))), "an endless padding");
    assert!(damaged(b"--XXY\r\n\r\n"), "another boundary");
    assert!(damaged(b"--XX\r\nno colon\r\n\r\n"));
    for no_boundary in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"", ""]
    {
        assert_eq!(Parts::new(no_boundary).err(), Some(FormError::NoBoundary), "{no_boundary}");
    }
}

#[test]
fn a_part_that_never_ends_is_handed_on_as_it_comes() {
    let mut parts = Parts::new(TYPE).expect("a boundary");
    parts.feed(b"--XX\r\nContent-Disposition: form-data; name=file\r\n\r\n");
    let (mut given, frame) = (0, [b'\r'; 4096]);
    for _ in 0..1000 {
        loop {
            match parts.next().expect("a form") {
                Step::Data(bytes) => given += bytes.len(),
                Step::NeedsFrame => break,
                _ => {}
            }
        }
        assert!(parts.buffer.len() < 16, "{}", parts.buffer.len());
        parts.feed(&frame);
    }
    assert!(given > 999 * 4096 - 16, "{given}");
}

#[test]
fn names_are_read_as_clients_write_them() {
    for (header, name, file_name) in [
        (r#"form-data; name="file"; filename="a \"b\".txt""#, "file", Some(r#"a "b".txt"#)),
        (r#"form-data; name="file"; filename="C:\docs\plan.docx""#, "file", Some(r"C:\docs\plan.docx")),
        (r#"form-data; filename="name=x; y"; name="file""#, "file", Some("name=x; y")),
        ("form-data; name=file; filename*=utf-8''na%C3%AFve%20plan.txt", "file", Some("naïve plan.txt")),
        (r#"form-data; name=file; filename="plain"; filename*=latin1''x"#, "file", Some("plain")),
        (r#"form-data; name = "file" ; x"#, "file", None),
    ] {
        let form = format!("--XX\r\nContent-Disposition: {header}\r\n\r\n\r\n--XX--");
        let (parts, end) = read([form.as_bytes()]);
        assert_eq!(end, Ok(()), "{header}");
        let head = &parts[0].0;
        assert_eq!((head.name.as_deref(), head.file_name.as_deref()), (Some(name), file_name), "{header}");
    }
}

/// What forms are made of.
const PIECES: &[&[u8]] =
    &[b"--XX", b"\r\n", b"\r\n--XX", b"--", b"\r\n\r\n", b"Content-Disposition: form-data; name=x", b"a", b"\r", b" "];

proptest! {
    #[test]
    fn any_split_into_frames_gives_the_same_parts(
        bodies in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'X'), any::<u8>()], 0..60), 0..5),
        cuts in prop::collection::vec(1..20_usize, 1..40),
    ) {
        prop_assume!(bodies.iter().all(|body| memmem::find(&[b"\r\n", &body[..], b"\r\n--XX"].concat(), b"\r\n--XX") == Some(body.len() + 2)));
        let mut form = Vec::new();
        for body in &bodies {
            form.extend_from_slice(b"--XX\r\nContent-Disposition: form-data; name=x\r\n\r\n");
            form.extend_from_slice(body);
            form.extend_from_slice(b"\r\n");
        }
        form.extend_from_slice(b"--XX--\r\n");
        let mut frames = Vec::new();
        let (mut rest, mut cuts) = (&form[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (frame, behind) = rest.split_at(rest.len().min(*cuts.next().expect("endless")));
            frames.push(frame);
            rest = behind;
        }
        let expected: Vec<Part> = bodies.iter().map(|body| named("x", body)).collect();
        prop_assert_eq!(read(frames), (expected, Ok(())));
    }

    #[test]
    fn any_bytes_end_in_parts_or_an_error_alike_in_one_frame_and_in_many(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..30),
    ) {
        let bytes = pieces.concat();
        prop_assert_eq!(read(bytes.chunks(1)), read([&bytes[..]]));
    }
}
