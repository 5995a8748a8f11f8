//! The storages of an Outlook message and the properties that they have: small ones in a table, the others in a stream
//! each. What a file says of its own lengths is believed as far as there are bytes.

use crate::{Format, FormatError, Limit, Limits, charset, compound::read, rtf};
use cfb::CompoundFile;
use encoding_rs::UTF_16LE;
use std::{
    cell::Cell,
    collections::HashMap,
    io::{Read, Seek},
    path::{Path, PathBuf},
    rc::Rc,
};

/// The bytes of a table before its first property: in the message that the file is, in one within it, and in their parts.
pub(super) const OF_FILE: usize = 32;
pub(super) const OF_MESSAGE: usize = 24;
pub(super) const OF_PART: usize = 8;

/// The stream with the table.
pub(super) const TABLE: &str = "__properties_version1.0";
const RECIPIENT: &str = "__recip_version1.0_#";
const ATTACHMENT: &str = "__attach_version1.0_#";
const PROPERTY: &str = "__substg1.0_";
/// The bytes of one property in the table.
const ROW: usize = 16;
/// A table is read no further than this.
const TABLE_BYTES: u64 = 256 << 10;

/// Types of properties. The text of the second one is in a code page.
const UNICODE: u16 = 0x001F;
const STRING: u16 = 0x001E;
const BINARY: u16 = 0x0102;
const OBJECT: u16 = 0x000D;

/// The numbers of code pages: that of the message's texts, and that of its body on the Internet.
const MESSAGE_PAGE: u16 = 0x3FFD;
const INTERNET_PAGE: u16 = 0x3FDE;

/// A message, a recipient or an attachment.
pub(super) struct Storage {
    path: PathBuf,
    /// Numbers and times, by the ids of their properties.
    values: HashMap<u16, u64>,
    /// The bytes that the streams of properties claim, by id and type.
    streams: HashMap<(u16, u16), u64>,
    /// The properties that are storages of their own.
    objects: Vec<u16>,
    /// The numbers of the recipients and the attachments, in their order.
    recipients: Vec<u32>,
    attachments: Vec<u32>,
    page: Option<i32>,
    /// How many more storages of the file may be opened. To open one may take a walk through the whole file, because many may claim that it is theirs.
    left: Rc<Cell<u32>>,
}

impl Storage {
    /// Opens the message that a file is, whose table has so many bytes before its properties.
    pub(super) fn of_file<R: Read + Seek>(
        file: &mut CompoundFile<R>,
        before: usize,
        limits: &Limits,
    ) -> Result<Self, FormatError> {
        Self::open(file, Path::new("/"), before, None, Rc::new(Cell::new(limits.zip_members)))
    }

    /// Opens a storage within this one. Its texts without a code page of their own have that of this one.
    pub(super) fn within<R: Read + Seek>(
        &self,
        file: &mut CompoundFile<R>,
        path: &Path,
        before: usize,
    ) -> Result<Self, FormatError> {
        let Some(left) = self.left.get().checked_sub(1) else {
            let detail = "more recipients, attachments and messages within it than are allowed";
            return Err(FormatError::over(Limit::ZipMembers, detail));
        };
        self.left.set(left);
        Self::open(file, path, before, self.page, self.left.clone())
    }

    fn open<R: Read + Seek>(
        file: &mut CompoundFile<R>,
        path: &Path,
        before: usize,
        page: Option<i32>,
        left: Rc<Cell<u32>>,
    ) -> Result<Self, FormatError> {
        let mut storage = Self {
            path: path.to_owned(),
            values: HashMap::new(),
            streams: HashMap::new(),
            objects: Vec::new(),
            recipients: Vec::new(),
            attachments: Vec::new(),
            page,
            left,
        };
        let entries = file.read_storage(path).map_err(|error| FormatError::corrupt(Format::Msg, error))?;
        for entry in entries {
            let name = entry.name();
            match property(name) {
                Some(tag) if entry.is_stream() => drop(storage.streams.insert(tag, entry.len())),
                Some((id, OBJECT)) => storage.objects.push(id),
                None if entry.is_storage() => {
                    storage.recipients.extend(numbered(name, RECIPIENT));
                    storage.attachments.extend(numbered(name, ATTACHMENT));
                }
                _ => {}
            }
        }
        storage.recipients.sort_unstable();
        storage.attachments.sort_unstable();
        let table = read(file, &path.join(TABLE), TABLE_BYTES)?.unwrap_or_default();
        for row in table.get(before..).unwrap_or_default().as_chunks::<ROW>().0 {
            let id = u16::from_le_bytes([row[2], row[3]]);
            let value = [row[8], row[9], row[10], row[11], row[12], row[13], row[14], row[15]];
            storage.values.insert(id, u64::from_le_bytes(value));
        }
        let own = storage.number(MESSAGE_PAGE).or(storage.number(INTERNET_PAGE));
        storage.page = own.and_then(|page| i32::try_from(page).ok()).or(page);
        Ok(storage)
    }

    pub(super) fn recipients(&self) -> Vec<PathBuf> {
        self.recipients.iter().map(|number| self.path.join(format!("{RECIPIENT}{number:08X}"))).collect()
    }

    pub(super) fn attachments(&self) -> Vec<PathBuf> {
        self.attachments.iter().map(|number| self.path.join(format!("{ATTACHMENT}{number:08X}"))).collect()
    }

    /// The storage that a property is.
    pub(super) fn object(&self, id: u16) -> Option<PathBuf> {
        self.objects.contains(&id).then(|| self.stream(id, OBJECT))
    }

    /// The stream with the bytes of a property, and how many it claims.
    pub(super) fn binary(&self, id: u16) -> Option<(PathBuf, u64)> {
        let bytes = self.streams.get(&(id, BINARY))?;
        Some((self.stream(id, BINARY), *bytes))
    }

    pub(super) fn number(&self, id: u16) -> Option<u32> {
        self.time(id).map(|value| value as u32)
    }

    /// A count of 100 nanoseconds.
    pub(super) fn time(&self, id: u16) -> Option<u64> {
        self.values.get(&id).copied()
    }

    /// The text of a property, of which at most so many bytes are read.
    pub(super) fn text<R: Read + Seek>(
        &self,
        file: &mut CompoundFile<R>,
        id: u16,
        most: u64,
    ) -> Result<Option<String>, FormatError> {
        if self.streams.contains_key(&(id, UNICODE)) {
            let bytes = read(file, &self.stream(id, UNICODE), most)?;
            return Ok(bytes.map(|bytes| charset::clean(&UTF_16LE.decode_without_bom_handling(&bytes).0)));
        }
        if self.streams.contains_key(&(id, STRING)) {
            let bytes = read(file, &self.stream(id, STRING), most)?;
            return Ok(bytes.map(|bytes| in_page(&bytes, self.page)));
        }
        Ok(None)
    }

    fn stream(&self, id: u16, kind: u16) -> PathBuf {
        self.path.join(format!("{PROPERTY}{id:04X}{kind:04X}"))
    }
}

/// The id and the type of the property that a stream or storage of this name is.
fn property(name: &str) -> Option<(u16, u16)> {
    let tag = name.strip_prefix(PROPERTY).filter(|tag| tag.len() == 8)?;
    let tag = u32::from_str_radix(tag, 16).ok()?;
    Some(((tag >> 16) as u16, tag as u16))
}

/// The number of a recipient or an attachment, from which the name is made again.
fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let number = name.strip_prefix(prefix).filter(|number| number.len() == 8 && !number.starts_with('+'))?;
    u32::from_str_radix(number, 16).ok()
}

/// Programs write UTF-8 whatever the code page says, and nothing else reads as it.
fn in_page(bytes: &[u8], page: Option<i32>) -> String {
    match (std::str::from_utf8(bytes), page) {
        (Ok(text), _) => charset::clean(text),
        (Err(_), Some(page)) => charset::clean(&rtf::by_page(page).decode_without_bom_handling(bytes).0),
        (Err(_), None) => charset::decode(bytes).text,
    }
}
