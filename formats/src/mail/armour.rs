//! Leaves out of a body what programs wrote there for other programs: signatures, keys, and files that are encoded in letters.

/// A shorter line of letters may be a word.
const LONG: usize = 40;
/// This line begins a text for people, and only the end of that text is for programs.
const SIGNED: &str = "-----BEGIN PGP SIGNED MESSAGE-----";
const HASH: &str = "Hash: ";
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const RULE: &str = "-----";
/// The beginning of a file that uuencode wrote, and its end.
const FILE: &str = "begin ";
const FILE_END: &str = "end";

/// A block that may be for programs, if it ends.
struct Block {
    is_file: bool,
    /// Where it begins in the text.
    start: usize,
    encoded: usize,
    others: usize,
    has_long: bool,
}

impl Block {
    fn begun_by(line: &str, start: usize) -> Option<Self> {
        let is_file = is_file(line);
        let is_armour = line.starts_with(BEGIN) && line.ends_with(RULE);
        (is_file || is_armour).then_some(Self { is_file, start, encoded: 0, others: 0, has_long: false })
    }

    fn is_ended_by(&self, line: &str) -> bool {
        if self.is_file { line == FILE_END } else { line.starts_with(END) && line.ends_with(RULE) }
    }

    fn add(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        let is_encoded = match self.is_file {
            true => line.bytes().all(|byte| (b' '..=b'`').contains(&byte)),
            false => line.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')),
        };
        if is_encoded {
            self.encoded += 1;
            self.has_long |= line.len() >= LONG;
        } else if self.is_file || !line.contains(": ") {
            // A signature begins with names and their values.
            self.others += 1;
        }
    }

    /// Rules with words between them are for people.
    fn is_for_programs(&self) -> bool {
        self.has_long && self.encoded > self.others
    }
}

/// The text without such blocks. A block without an end stays.
pub(super) fn without_armour(text: String) -> String {
    if !text.contains(BEGIN) && !text.contains(FILE) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut open: Option<Block> = None;
    let mut was_signed = false;
    for line in text.split_inclusive('\n') {
        // An answer quotes the block with these characters before each line.
        let bare = line.trim_start_matches(['>', ' ']).trim_end();
        was_signed = bare == SIGNED || (was_signed && bare.starts_with(HASH));
        if was_signed {
            continue;
        }
        let begun = Block::begun_by(bare, out.len());
        out.push_str(line);
        if begun.is_some() {
            open = begun;
        } else if let Some(block) = &mut open {
            if !block.is_ended_by(bare) {
                block.add(bare);
                continue;
            }
            if block.is_for_programs() {
                out.truncate(block.start);
            }
            open = None;
        }
    }
    out.trim().to_owned()
}

/// Whether a line names the permissions of a file, in three or four digits, and then its name.
fn is_file(line: &str) -> bool {
    let Some((mode, name)) = line.strip_prefix(FILE).and_then(|rest| rest.split_once(' ')) else { return false };
    matches!(mode.len(), 3 | 4) && mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit)) && !name.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        without_armour(text.to_owned())
    }

    #[test]
    fn signatures_keys_and_files_are_left_out_of_what_is_said() {
        let encoded = "iQEzBAEBCAAdFiEEabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL";
        let signature = format!(
            "-----BEGIN PGP SIGNATURE-----\nComment: Written by a program\n\n{encoded}\n=abcd\n-----END PGP SIGNATURE-----\n"
        );
        let signed = format!("{SIGNED}\nHash: SHA256\n\nThe heron waits.\n\n{signature}");
        assert_eq!(of(&signed), "The heron waits.");
        assert_eq!(of(&format!("Before.\n\n{signature}\nafter")), "Before.\n\n\nafter");
        let quoted: String = signature.lines().map(|line| format!("> {line}\n")).collect();
        assert_eq!(of(&format!("> Before.\n{quoted}after")), "> Before.\nafter");
        let file = "begin 644 pond.gif\nM1TE&.#EA`0`!`(```````/___R'Y!`$`````+``````!``$```(\"1`$`.P``\n`\nend\n";
        assert_eq!(of(&format!("Look:\n{file}There it is.")), "Look:\nThere it is.");
    }

    #[test]
    fn what_people_wrote_between_rules_stays() {
        let encoded = "iQEzBAEBCAAdFiEEabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL";
        for said in [
            "-----BEGIN QUOTE-----\nThe heron waits in the water.\n-----END QUOTE-----".to_owned(),
            format!("-----BEGIN CERTIFICATE-----\n{encoded}\nIt has no end."),
            "We begin 100 metres upstream\nand go on to the\nend".to_owned(),
            "begin 100 metres upstream\nwhere the heron waits for us\nend".to_owned(),
            "-----BEGIN A-----\nWord\n-----END A-----".to_owned(),
        ] {
            assert_eq!(of(&said), said);
        }
    }
}
