//! The headings of files of the corpus that declare none, as a reader sees them. A person listed them, for tests and benches alike.

/// By the names of the files.
pub const SEEN: [(&str, &[&str]); 3] = [
    (
        "multi_page.pdf",
        &[
            "The Evolution of the Word Processor",
            "Pre-Digital Era (19th - Early 20th Century)",
            "The Birth of Word Processing (1960s - 1970s)",
            "The Rise of Personal Computers (1980s)",
            "The Modern Era (1990s - Present)",
            "Future of Word Processing",
            "Specialized Word Processing Tools",
            "Key Features That Changed Word Processing",
            "The Cultural Impact of Word Processors",
            "Word Processors in a Post-Digital Era",
            "A Glimpse Into the Future",
        ],
    ),
    (
        "tracemonkey_a11y.pdf",
        &["Trace-based Just-in-Time Type Specialization for Dynamic Languages", "Abstract", "1. Introduction"],
    ),
    ("crazyones.pdf", &["The Crazy Ones"]),
];
