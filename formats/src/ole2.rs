//! Compound files: which reader they have, encrypted packages, and those that no reader reads.

mod directory;
mod locked;

use crate::{Access, Extraction, Format, FormatError, Limits, Pattern, Patterns, images::Giver, opened::Opened, xlsx};
use cfb::CompoundFile;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    io::{self, Cursor, Read, Seek, SeekFrom},
};

/// The format of a compound file: a legacy office file, a message, or one that is told further when it is probed.
pub(crate) fn format<R: Read + Seek>(source: &mut R) -> io::Result<Format> {
    let names = directory::names(source)?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    // Documents may hold workbooks, but not at the root, and a locked one has its own form.
    Ok(if has("encryptedpackage") {
        Format::Ole2
    } else if has("worddocument") {
        Format::Doc
    } else if has("workbook") || has("book") {
        Format::Xls
    } else if has("powerpoint document") {
        Format::Ppt
    } else if has("__properties_version1.0") {
        Format::Msg
    } else {
        Format::Ole2
    })
}

/// What a compound file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompoundKind {
    /// A docx, pptx or xlsx locked with a password.
    EncryptedPackage,
    LegacyWord,
    LegacyPowerpoint,
    Visio,
    Publisher,
    Project,
    OutlookMessage,
    Installer,
    Hangul,
    Unknown,
}

impl CompoundKind {
    /// The name as used in the codes of errors.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EncryptedPackage => "encrypted_package",
            Self::LegacyWord => "legacy_word",
            Self::LegacyPowerpoint => "legacy_powerpoint",
            Self::Visio => "visio",
            Self::Publisher => "publisher",
            Self::Project => "project",
            Self::OutlookMessage => "outlook_message",
            Self::Installer => "installer",
            Self::Hangul => "hangul",
            Self::Unknown => "unknown_compound",
        }
    }

    /// What the user can do about it.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::EncryptedPackage => "give its password as the option `extract.password`, or upload it without one",
            Self::LegacyWord => "save it as docx and upload that",
            Self::LegacyPowerpoint => "save it as pptx and upload that",
            Self::Visio | Self::Publisher | Self::Project | Self::Hangul => "save it as PDF and upload that",
            // It was stored before such messages were told apart.
            Self::OutlookMessage => "delete the document and upload the message again",
            Self::Installer | Self::Unknown => "svc reads no text from such a file",
        }
    }

    fn is_legacy(self) -> bool {
        matches!(self, Self::LegacyWord | Self::LegacyPowerpoint)
    }
}

impl fmt::Display for CompoundKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EncryptedPackage => "an encrypted office package",
            Self::LegacyWord => "a legacy Word document (.doc)",
            Self::LegacyPowerpoint => "a legacy PowerPoint presentation (.ppt)",
            Self::Visio => "a Visio drawing (.vsd)",
            Self::Publisher => "a Publisher document (.pub)",
            Self::Project => "a Project plan (.mpp)",
            Self::OutlookMessage => "an Outlook message (.msg)",
            Self::Installer => "a Windows Installer package (.msi)",
            Self::Hangul => "a Hangul document (.hwp)",
            Self::Unknown => "a compound file of an unknown kind",
        })
    }
}

/// Tells the kind, and whether a password is needed. Of a locked package that the password opens, it tells what is in it, and also of a
/// workbook that Excel opens without asking.
pub(crate) fn probe<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Patterns, FormatError> {
    let mut file = open(source)?;
    if let Some((format, bytes)) = protected(&mut file, access.limits)? {
        return crate::probe(format, Cursor::new(bytes), access.limits);
    }
    if let Some(package) = opened(&mut file, access)? {
        return package.probe(access.limits);
    }
    let (kind, encrypted) = inspect(&mut file);
    Ok(Patterns::default().with(Pattern::IsEncrypted, encrypted).with(Pattern::IsLegacyBinary, kind.is_legacy()))
}

/// Reads a locked package that the password opens; other kinds are refused by their names.
pub(crate) fn extract<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Extraction, FormatError> {
    let mut file = open(source)?;
    if protected(&mut file, access.limits)?.is_some() {
        return Err(FormatError::unsupported(Format::Ole2, xlsx::NO_TEXT));
    }
    match opened(&mut file, access)? {
        Some(package) => package.extract(access.limits),
        None => Err(refused(&mut file)),
    }
}

/// The workbook in a file, with its format, if Excel opens it without asking for a password.
///
/// # Errors
/// Any other file is refused by its kind.
pub(crate) fn workbook<R: Read + Seek>(source: R, limits: &Limits) -> Result<(Format, Vec<u8>), FormatError> {
    let mut file = open(source)?;
    protected(&mut file, limits)?.ok_or_else(|| refused(&mut file))
}

/// Reads the pictures and charts of such a workbook.
pub(crate) fn images<R: Read + Seek>(source: R, limits: &Limits, giver: &mut Giver<'_, '_>) -> Result<(), FormatError> {
    match workbook(source, limits)? {
        (Format::Xlsx, bytes) => xlsx::images(Cursor::new(bytes), limits, giver),
        (format, _) => Err(FormatError::unsupported(format, "its pictures are not read")),
    }
}

/// Why the file is not read: its kind by name, or its damage.
pub(crate) fn refusal<R: Read + Seek>(source: R) -> FormatError {
    match open(source) {
        Ok(mut file) => refused(&mut file),
        Err(error) => error,
    }
}

fn open<R: Read + Seek>(source: R) -> Result<CompoundFile<R>, FormatError> {
    CompoundFile::open(source).map_err(|error| FormatError::corrupt(Format::Ole2, error))
}

/// The workbook that is locked in the file so that Excel never asks for a password: its author only protected it from changes.
fn protected<R: Read + Seek>(
    file: &mut CompoundFile<R>,
    limits: &Limits,
) -> Result<Option<(Format, Vec<u8>)>, FormatError> {
    if kind(file) != CompoundKind::EncryptedPackage {
        return Ok(None);
    }
    Ok(locked::open_protected(file, limits)?.and_then(Opened::into_workbook))
}

/// The package that is locked in the file; `None` if it is none, or there is no password.
fn opened<R: Read + Seek>(file: &mut CompoundFile<R>, access: Access<'_>) -> Result<Option<Opened>, FormatError> {
    match access.password {
        Some(password) if kind(file) == CompoundKind::EncryptedPackage => {
            locked::open(file, password, access.limits).map(Some)
        }
        _ => Ok(None),
    }
}

fn refused<R: Read + Seek>(file: &mut CompoundFile<R>) -> FormatError {
    let (kind, encrypted) = inspect(file);
    if kind == CompoundKind::EncryptedPackage && locked::is_sealed(file) {
        return FormatError::Sealed { format: Format::Ole2 };
    }
    FormatError::Compound { kind, encrypted }
}

/// The kind, and whether a password is needed.
fn inspect<R: Read + Seek>(file: &mut CompoundFile<R>) -> (CompoundKind, bool) {
    let kind = kind(file);
    let encrypted = match kind {
        CompoundKind::EncryptedPackage => true,
        CompoundKind::LegacyWord => word_is_encrypted(file),
        CompoundKind::LegacyPowerpoint => powerpoint_is_encrypted(file),
        _ => false,
    };
    (kind, encrypted)
}

fn kind<R: Read + Seek>(file: &mut CompoundFile<R>) -> CompoundKind {
    const STREAMS: [(&str, CompoundKind); 10] = [
        ("/EncryptedPackage", CompoundKind::EncryptedPackage),
        ("/WordDocument", CompoundKind::LegacyWord),
        ("/PowerPoint Document", CompoundKind::LegacyPowerpoint),
        // Version 4 and older.
        ("/PP40", CompoundKind::LegacyPowerpoint),
        ("/PP97_DUALSTORAGE", CompoundKind::LegacyPowerpoint),
        ("/VisioDocument", CompoundKind::Visio),
        ("/Quill", CompoundKind::Publisher),
        ("/__properties_version1.0", CompoundKind::OutlookMessage),
        ("/Props14", CompoundKind::Project),
        ("/Props12", CompoundKind::Project),
    ];
    const INSTALLER: &str = "000c1084-0000-0000-c000-000000000046";
    let of_streams = STREAMS.iter().find(|(name, _)| file.exists(name)).map(|&(_, kind)| kind);
    if let Some(kind) = of_streams {
        return kind;
    }
    if file.root_entry().clsid().to_string().eq_ignore_ascii_case(INSTALLER) {
        return CompoundKind::Installer;
    }
    match head(file, "/FileHeader", 0, 17).as_deref() {
        Some(b"HWP Document File") => CompoundKind::Hangul,
        _ => CompoundKind::Unknown,
    }
}

/// The bytes of a stream, if it has them.
fn head<R: Read + Seek>(file: &mut CompoundFile<R>, stream: &str, at: u64, length: u64) -> Option<Vec<u8>> {
    let mut stream = file.open_stream(stream).ok()?;
    stream.seek(SeekFrom::Start(at)).ok()?;
    let mut bytes = Vec::new();
    stream.take(length).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == length).then_some(bytes)
}

/// Whether a bit in the flags of the first block is set.
fn word_is_encrypted<R: Read + Seek>(file: &mut CompoundFile<R>) -> bool {
    head(file, "/WordDocument", 10, 2).is_some_and(|flags| flags[1] & 1 != 0)
}

/// Whether the current user's stream has the mark of encryption, or there is a stream that only encrypted files have.
fn powerpoint_is_encrypted<R: Read + Seek>(file: &mut CompoundFile<R>) -> bool {
    const ENCRYPTED: [u8; 4] = 0xF3D1_C4DFu32.to_le_bytes();
    file.exists("/EncryptedSummary") || head(file, "/Current User", 12, 4).is_some_and(|mark| mark == ENCRYPTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;
    use std::io::Write;

    fn with_streams(streams: &[(&str, &[u8])]) -> Cursor<Vec<u8>> {
        let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
        for (name, bytes) in streams {
            file.create_stream(name).unwrap().write_all(bytes).unwrap();
        }
        file.into_inner()
    }

    #[test]
    fn kinds_and_passwords_are_told_apart() {
        let plain_user = [0; 16];
        let mut locked_user = [0; 16];
        locked_user[12..].copy_from_slice(&0xF3D1_C4DFu32.to_le_bytes());
        let mut locked_word = [0; 32];
        locked_word[11] = 1;
        type Streams<'a> = &'a [(&'a str, &'a [u8])];
        let cases: [(Streams<'_>, &str, bool); 7] = [
            (&[("/EncryptedPackage", b"x")], "encrypted_package", true),
            (&[("/WordDocument", &[0; 32])], "legacy_word", false),
            (&[("/WordDocument", &locked_word)], "legacy_word", true),
            (&[("/PowerPoint Document", b"x"), ("/Current User", &plain_user)], "legacy_powerpoint", false),
            (&[("/PowerPoint Document", b"x"), ("/Current User", &locked_user)], "legacy_powerpoint", true),
            (&[("/__properties_version1.0", b"x")], "outlook_message", false),
            (&[("/Contents", b"x")], "unknown_compound", false),
        ];
        for (streams, code, locked) in cases {
            let patterns = probe(with_streams(streams), (&Limits::default()).into()).unwrap();
            let error = refusal(with_streams(streams));
            assert_eq!((error.code(), patterns.holds(Pattern::IsEncrypted)), (code, locked), "{streams:?}");
            assert_eq!(patterns.holds(Pattern::IsLegacyBinary), code.starts_with("legacy"), "{streams:?}");
            assert_eq!(error.to_string().contains("password"), locked, "{error}");
            assert!(error.is_permanent());
        }
    }

    #[test]
    fn legacy_files_and_messages_are_told_by_their_streams_at_the_root() {
        let of = |streams: &[(&str, &[u8])]| format(&mut with_streams(streams)).unwrap();
        assert_eq!(of(&[("/a", b"x"), ("/Workbook", b"x"), ("/z", b"x")]), Format::Xls);
        assert_eq!(of(&[("/Book", &[0; 10_000])]), Format::Xls);
        assert_eq!(of(&[("/Workbook", b"x"), ("/EncryptedPackage", b"x")]), Format::Ole2);
        assert_eq!(of(&[("/WordDocument", b"x"), ("/Book", b"x")]), Format::Doc);
        assert_eq!(of(&[("/WordDocument", b"x"), ("/EncryptedPackage", b"x")]), Format::Ole2);
        assert_eq!(of(&[("/Current User", b"x"), ("/PowerPoint Document", b"x")]), Format::Ppt);
        assert_eq!(of(&[("/a", b"x"), ("/__properties_version1.0", b"x")]), Format::Msg);
        assert_eq!(of(&[("/WordDocument", b"x"), ("/__properties_version1.0", b"x")]), Format::Doc);
        let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
        file.create_storage("/ObjectPool").unwrap();
        file.create_stream("/ObjectPool/Workbook").unwrap();
        assert_eq!(format(&mut file.into_inner()).unwrap(), Format::Ole2, "a workbook in another document");
        // A directory of several sectors, which lies far behind the first table of sectors.
        let many: Vec<(String, Vec<u8>)> = (0..40)
            .map(|index| (format!("/s{index}"), vec![1; 300_000]))
            .chain([("/Workbook".into(), vec![1])])
            .collect();
        let many: Vec<(&str, &[u8])> = many.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let mut bytes = with_streams(&many).into_inner();
        assert_eq!(format(&mut Cursor::new(&bytes)).unwrap(), Format::Xls);
        // A chain of sectors without an end, and an entry that is below itself.
        for cut in (0..bytes.len()).step_by(99_991) {
            format(&mut Cursor::new(&bytes[..cut])).unwrap();
        }
        bytes.truncate(20_000);
        for at in 0..2_000 {
            let before = std::mem::replace(&mut bytes[at], 0xFF);
            format(&mut Cursor::new(&bytes)).unwrap();
            bytes[at] = before;
        }
    }

    #[test]
    fn damage_is_permanent() {
        let limits = Limits::default();
        let error = probe(Cursor::new(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"), (&limits).into()).unwrap_err();
        assert_eq!((error.code(), error.is_permanent()), ("corrupt", true));
        assert_eq!(refusal(Cursor::new(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")).code(), "corrupt");
    }

    const AGILE: [&[u8]; 2] =
        [include_bytes!("ole2/files/agile-docx.info"), include_bytes!("ole2/files/agile-docx.package")];
    const NESTS: [&[u8]; 2] =
        [include_bytes!("ole2/files/agile-xlsx.info"), include_bytes!("ole2/files/agile-xlsx.package")];
    const STANDARD: [&[u8]; 2] =
        [include_bytes!("ole2/files/standard-docx.info"), include_bytes!("ole2/files/standard-docx.package")];

    fn locked([info, package]: [&[u8]; 2]) -> Cursor<Vec<u8>> {
        with_streams(&[("/EncryptionInfo", info), ("/EncryptedPackage", package)])
    }

    /// What a password makes of a locked package.
    fn read(streams: [&[u8]; 2], password: &str) -> Result<(Patterns, Extraction), FormatError> {
        let (limits, password) = (Limits::default(), Secret::new(password));
        let access = Access { password: Some(&password), ..Access::from(&limits) };
        Ok((probe(locked(streams), access)?, extract(locked(streams), access)?))
    }

    #[test]
    fn a_password_opens_both_forms_of_locked_documents() {
        for (form, streams) in [("agile", AGILE), ("standard", STANDARD)] {
            let (patterns, read) = read(streams, "heron").unwrap();
            assert!(read.text.starts_with("# The heron house\n\nSix herons nest"), "{form}: {}", &read.text[..40]);
            assert!(read.text.ends_with("the last word is alder."), "{form}: to the end of the last segment");
            assert_eq!(read.headings.len(), 1, "{form}");
            assert_eq!(read.facts["locked_format"], "docx", "{form}");
            for pattern in [Pattern::IsEncrypted, Pattern::HasTextLayer, Pattern::HasHeadings] {
                assert!(patterns.holds(pattern), "{form}: {pattern:?}");
            }
            assert_eq!(crate::refusal(Format::Ole2, locked(streams), &patterns), None, "{form}");
        }
    }

    #[test]
    fn a_locked_workbook_is_read_as_tables() {
        let (patterns, read) = read(NESTS, "heron").unwrap();
        assert!(read.text.contains("# Nests") && read.text.contains("Counted by Ada"), "{}", read.text);
        assert!(read.text.contains("| Nest | Eggs |\n| --- | --- |\n| Alder | 5 |"), "{}", read.text);
        assert!(patterns.holds(Pattern::HasHeadings) && patterns.get(Pattern::HasSheets).is_none());
        assert!(patterns.holds(Pattern::HasTables) && !crate::tables(&read).tables.is_empty());
    }

    #[test]
    fn a_workbook_that_is_protected_from_changes_alone_is_read_as_others_are() {
        let info: &[u8] = include_bytes!("ole2/files/agile-xlsx-protected.info");
        let protected = || locked([info, NESTS[1]]);
        let (limits, stork) = (Limits::default(), Secret::new("stork"));
        for access in [Access::from(&limits), Access { password: Some(&stork), ..Access::from(&limits) }] {
            let patterns = probe(protected(), access).unwrap();
            assert!(patterns.holds(Pattern::HasSheets) && !patterns.holds(Pattern::IsEncrypted), "{patterns:?}");
            assert_eq!(crate::refusal(Format::Ole2, protected(), &patterns), None);
            assert_eq!(extract(protected(), access).unwrap_err().code(), "unsupported", "its sheets are read instead");
        }
        assert_eq!(xlsx::workbook(protected(), &limits).unwrap().sheets[0].name, "Nests");
        let area = xlsx::cells(xlsx::Source::from(protected()), 0, "A1:Z30".parse().unwrap(), &limits).unwrap();
        let mut texts = area.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.text.as_str());
        assert!(texts.any(|text| text == "Alder"), "{:?}", area.rows);

        let refused = xlsx::workbook(locked(NESTS), &limits).unwrap_err();
        assert_eq!(refused.code(), "encrypted_package", "what a person locked needs that person's password");
        // A workbook is not opened so by a lock that takes longer than that of Excel.
        let slow = String::from_utf8_lossy(&info[8..]).replace("spinCount=\"100000\"", "spinCount=\"100001\"");
        let slow = [&info[..8], slow.as_bytes()].concat();
        assert!(probe(locked([&slow, NESTS[1]]), (&limits).into()).unwrap().holds(Pattern::IsEncrypted));
        // What is wrong with the workbook itself is told, and no password is asked for.
        let changed = [NESTS[1], &[0u8; 16][..]].concat();
        let error = probe(locked([info, &changed]), (&limits).into()).unwrap_err();
        assert!(error.code() == "corrupt" && error.to_string().contains("was changed"), "{error}");
    }

    #[test]
    fn a_wrong_password_and_none_are_told_by_name_and_remedy() {
        for streams in [AGILE, STANDARD] {
            for password in ["stork", "Heron", ""] {
                let error = read(streams, password).unwrap_err();
                assert_eq!((error.code(), error.is_permanent()), ("encrypted", true), "{error}");
                assert!(error.to_string().contains("extract.password"), "{error}");
            }
            let error = extract(locked(streams), (&Limits::default()).into()).unwrap_err();
            assert_eq!(error.code(), "encrypted_package");
            assert!(error.to_string().contains("extract.password"), "{error}");
        }
    }

    #[test]
    fn a_password_of_any_letters_opens_its_package() {
        let umlauts: &[u8] = include_bytes!("ole2/files/agile-docx-umlauts.info");
        let (_, extraction) = read([umlauts, AGILE[1]], "Wehr über 3 Erlen 🦆").unwrap();
        assert!(extraction.text.starts_with("# The heron house"), "{}", extraction.text);
        assert_eq!(read([umlauts, AGILE[1]], "heron").unwrap_err().code(), "encrypted");
    }

    #[test]
    fn a_package_that_was_changed_after_it_was_encrypted_is_refused() {
        let longer = [AGILE[1], &[0u8; 16][..]].concat();
        let mut shorter = AGILE[1].to_vec();
        shorter[0] -= 1;
        for changed in [&longer, &shorter] {
            let error = read([AGILE[0], changed], "heron").unwrap_err();
            assert!(error.code() == "corrupt" && error.to_string().contains("was changed"), "{error}");
        }
        // Some programs do not say what the package was.
        let info = String::from_utf8_lossy(&AGILE[0][8..]).replace("<dataIntegrity", "<other");
        let info = [&AGILE[0][..8], info.as_bytes()].concat();
        assert!(read([&info, &longer], "heron").unwrap().1.text.starts_with("# The heron house"));
    }

    #[test]
    fn what_no_password_opens_asks_for_none() {
        let info = String::from_utf8_lossy(&AGILE[0][8..]).replace("spinCount", "other");
        let for_certificates = [&AGILE[0][..8], info.as_bytes()].concat();
        let for_certificates = locked([&for_certificates, AGILE[1]]);
        let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
        file.create_storage_all("/\u{6}DataSpaces/TransformInfo/DRMEncryptedTransform").unwrap();
        file.create_stream("/EncryptedPackage").unwrap().write_all(AGILE[1]).unwrap();
        let password = Secret::new("heron");
        for bytes in [for_certificates, file.into_inner()] {
            let limits = Limits::default();
            let sealed = FormatError::Sealed { format: Format::Ole2 };
            let patterns = probe(bytes.clone(), (&limits).into()).unwrap();
            assert!(patterns.holds(Pattern::IsEncrypted));
            assert_eq!(crate::refusal(Format::Ole2, bytes.clone(), &patterns), Some(sealed.clone()));
            let access = Access { password: Some(&password), ..Access::from(&limits) };
            assert_eq!(extract(bytes, access).unwrap_err(), sealed);
        }
    }

    #[test]
    fn a_lock_that_is_damaged_or_costs_too_much_is_refused() {
        let info = String::from_utf8_lossy(&AGILE[0][8..]).into_owned();
        let with = |from: &str, to: &str| {
            assert!(info.contains(from), "{info}");
            let info = [&AGILE[0][..8], info.replace(from, to).as_bytes()].concat();
            read([&info, AGILE[1]], "heron").unwrap_err()
        };
        assert_eq!(with("spinCount=\"100000\"", "spinCount=\"4000000000\"").code(), "corrupt");
        assert_eq!(with("ChainingModeCBC", "ChainingModeCFB"), FormatError::Sealed { format: Format::Ole2 });
        assert_eq!(with("keyBits=\"256\"", "keyBits=\"4000000000\""), FormatError::Sealed { format: Format::Ole2 });
        assert!(with("saltValue=\"", "saltValue=\"AA").is_permanent());
        // Every segment is decrypted with the salt's hash.
        assert_eq!(with("saltValue=\"", &format!("saltValue=\"{}", "AAAA".repeat(30_000))).code(), "corrupt");
        assert_eq!(with("spinCount=\"100000\"", "spinCount=\"10000001\"").code(), "corrupt");
        assert_eq!(with("spinCount=\"100000\"", "spinCount=\"1000001\"").code(), "encrypted", "the key is another");
        for cut in [0, 3, 8, 100, 223] {
            assert!(read([&STANDARD[0][..cut], STANDARD[1]], "heron").unwrap_err().is_permanent(), "{cut}");
        }
        for at in (0..STANDARD[0].len()).step_by(4) {
            let mut info = STANDARD[0].to_vec();
            info[at..at + 4].fill(0xFF);
            let refused = read([&info, STANDARD[1]], "heron").err();
            assert!(refused.is_none_or(|error| error.is_permanent()), "{at}");
        }
        for cut in [0, 7, 8, 4000] {
            assert_eq!(read([AGILE[0], &AGILE[1][..cut]], "heron").unwrap_err().code(), "corrupt", "{cut}");
        }
    }
}
