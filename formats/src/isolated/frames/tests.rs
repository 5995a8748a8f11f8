use super::*;
use crate::{Extraction, Format, ImageHead, Limits, isolated::Step};
use proptest::prelude::*;

fn request(limits: Limits) -> Request {
    Request::new(Step::Extract(Format::Text), limits)
}

fn text(text: &str) -> Answer {
    Answer::Extracted(Extraction { text: text.to_owned(), ..Extraction::default() })
}

const USAGE: Usage = Usage { peak_bytes: 5, cpu_ms: 7 };

fn encoded(request: &Request, answers: &[Answer], result: Result<(), FormatError>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, request);
    let given = answers.iter().try_for_each(|answer| encoder.answer(answer));
    encoder.end(given.and(result), USAGE, Vec::new()).unwrap();
    bytes
}

fn decoded(request: &Request, bytes: &[u8], step: usize) -> (Vec<Answer>, Result<Usage, FormatError>) {
    let mut decoder = Decoder::new(request);
    let mut answers = Vec::new();
    for piece in bytes.chunks(step.max(1)) {
        let refused = decoder.feed(piece).is_err();
        answers.extend(std::iter::from_fn(|| decoder.next_answer()));
        if refused {
            break;
        }
    }
    let end = decoder.finish(&Exit { code: Some(0), ..Exit::default() });
    (answers, end)
}

#[test]
fn answers_of_every_size_come_over_whatever_the_pieces() {
    let request = request(Limits::default());
    let answers = [text(""), text(&"long \u{1F600}\n".repeat(BODY / 4)), text("short")];
    let bytes = encoded(&request, &answers, Ok(()));
    for step in [7, 4096, bytes.len()] {
        assert_eq!(decoded(&request, &bytes, step), (answers.to_vec(), Ok(USAGE)), "pieces of {step}");
    }
    let refused = FormatError::Encrypted { format: Format::Pdf };
    let bytes = encoded(&request, &answers[..1], Err(refused.clone()));
    assert_eq!(
        decoded(&request, &bytes, 3),
        (answers[..1].to_vec(), Err(refused)),
        "answers before a refusal are seen"
    );
}

#[test]
fn a_stream_cut_anywhere_is_an_error() {
    let request = request(Limits::default());
    let bytes = encoded(&request, &[text("one"), text("two")], Ok(()));
    for cut in 0..bytes.len() {
        let (answers, end) = decoded(&request, &bytes[..cut], bytes.len());
        assert_eq!(end.unwrap_err().code(), "crashed", "cut at {cut}");
        assert!(answers.iter().zip(["one", "two"]).all(|(answer, whole)| *answer == text(whole)), "cut at {cut}");
    }
    let mut longer = bytes.clone();
    longer.push(ANSWER);
    assert_eq!(decoded(&request, &longer, 64).1.unwrap_err().code(), "crashed", "nothing follows the end");
}

#[test]
fn both_sides_hold_the_limits() {
    let answers = vec![text(&"x".repeat(600)); 3];
    let narrow = request(Limits { answer_bytes: 2000, ..Limits::default() });
    let (seen, end) = decoded(&narrow, &encoded(&narrow, &answers, Ok(())), 99);
    assert_eq!((seen.len(), end.unwrap_err().limit()), (2, Some(Limit::AnswerBytes)), "the child keeps to them");
    let wide = request(Limits::default());
    let (seen, end) = decoded(&narrow, &encoded(&wide, &answers, Ok(())), 99);
    assert_eq!((seen.len(), end.unwrap_err().limit()), (2, Some(Limit::AnswerBytes)), "and need not be believed");
    let one = request(Limits { answer_bytes: 100, ..Limits::default() });
    let mut decoder = Decoder::new(&one);
    let large = encoded(&wide, &[text(&"x".repeat(BODY * 3))], Ok(()));
    assert!(decoder.feed(&large).is_err() && decoder.answer.capacity() <= BODY, "no memory for a length alone");
}

#[test]
fn the_bytes_of_members_come_as_they_are_and_within_their_own_limit() {
    let member = |byte: u8, length: usize| Answer::Member(MemberPart::Bytes(vec![byte; length]));
    let answers = [text("one"), member(0, BODY), member(255, 7), text("two")];
    let within = request(Limits { answer_bytes: 2_000, member_bytes: BODY as u64 + 7, ..Limits::default() });
    let bytes = encoded(&within, &answers, Ok(()));
    assert!(bytes.len() < BODY + 2_000, "no byte is written as a number");
    assert_eq!(decoded(&within, &bytes, 1_000), (answers.to_vec(), Ok(USAGE)));
    let narrow = request(Limits { member_bytes: BODY as u64 + 6, ..Limits::default() });
    for bytes in [encoded(&narrow, &answers, Ok(())), bytes] {
        let (seen, end) = decoded(&narrow, &bytes, 1_000);
        assert_eq!((seen.len(), end.unwrap_err().code()), (2, "crashed"));
    }
}

#[test]
fn the_bytes_of_images_come_as_images_and_within_their_own_limit() {
    let request = |image_bytes| {
        Request::new(Step::Images(Format::Pdf), Limits { image_bytes, member_bytes: 0, ..Limits::default() })
    };
    let answers = [
        Answer::Image(ImagePart::Begin(ImageHead { name: "one".to_owned(), ..ImageHead::default() })),
        Answer::Image(ImagePart::Bytes(vec![7; 100])),
        Answer::Image(ImagePart::End),
    ];
    let (wide, narrow) = (request(100), request(99));
    let bytes = encoded(&wide, &answers, Ok(()));
    assert_eq!(decoded(&wide, &bytes, 13), (answers.to_vec(), Ok(USAGE)));
    for bytes in [encoded(&narrow, &answers, Ok(())), bytes] {
        let (seen, end) = decoded(&narrow, &bytes, 13);
        assert_eq!((seen.len(), end.unwrap_err().code()), (1, "crashed"));
    }
}

#[test]
fn a_killed_child_is_named_by_its_death_and_an_answer_given_up_is_none() {
    let request = request(Limits::default());
    let bytes = encoded(&request, &[text("one")], Ok(()));
    let mut decoder = Decoder::new(&request);
    decoder.feed(&bytes[..bytes.len() / 2]).unwrap();
    let exit = Exit { timed_out: true, ..Exit::default() };
    assert_eq!(decoder.finish(&exit).unwrap_err().limit(), Some(Limit::WallTime));

    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, &request);
    encoder.frame.extend_from_slice(b"half of one");
    encoder.send(PART).unwrap();
    encoder.end(Ok(()), USAGE, Vec::new()).unwrap();
    assert_eq!(decoded(&request, &bytes, 5).1.unwrap_err().code(), "crashed");
}

proptest! {
    #[test]
    fn no_bytes_bring_a_decoder_down(tail in prop::collection::vec(any::<u8>(), 0..200), step in 1usize..50, at in 0usize..120) {
        let request = request(Limits::default());
        let mut bytes = encoded(&request, &[text("one"), text("two")], Ok(()));
        bytes.truncate(at);
        bytes.extend(tail);
        let (_, end) = decoded(&request, &bytes, step);
        prop_assert!(end.is_err() || at > 50, "a whole stream is more than {at} bytes");
    }
}
