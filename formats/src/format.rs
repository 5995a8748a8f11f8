//! The formats that a file can be recognised as.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The name that a detector reports. Markdown is [`Format::Text`]; encrypted packages, and compound files
/// that no reader reads, are [`Format::Ole2`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Text,
    Pdf,
    Docx,
    Pptx,
    Xlsx,
    Zip,
    Ole2,
    Html,
    Csv,
    Tsv,
    Eml,
    Json,
    Ipynb,
    Rtf,
    Xml,
    Odt,
    Odp,
    Epub,
    Ods,
    Xls,
    Xlsb,
    Msg,
    Doc,
    Ppt,
    Image,
    /// Subtitles of WebVTT.
    Vtt,
    /// Subtitles of SubRip.
    Srt,
}

impl Format {
    pub const ALL: [Self; 27] = [
        Self::Text,
        Self::Pdf,
        Self::Docx,
        Self::Pptx,
        Self::Xlsx,
        Self::Zip,
        Self::Ole2,
        Self::Html,
        Self::Csv,
        Self::Tsv,
        Self::Eml,
        Self::Json,
        Self::Ipynb,
        Self::Rtf,
        Self::Xml,
        Self::Odt,
        Self::Odp,
        Self::Epub,
        Self::Ods,
        Self::Xls,
        Self::Xlsb,
        Self::Msg,
        Self::Doc,
        Self::Ppt,
        Self::Image,
        Self::Vtt,
        Self::Srt,
    ];

    /// The detector's name, as used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Pdf => "pdf",
            Self::Docx => "docx",
            Self::Pptx => "pptx",
            Self::Xlsx => "xlsx",
            Self::Zip => "zip",
            Self::Ole2 => "ole2",
            Self::Html => "html",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Eml => "eml",
            Self::Json => "json",
            Self::Ipynb => "ipynb",
            Self::Rtf => "rtf",
            Self::Xml => "xml",
            Self::Odt => "odt",
            Self::Odp => "odp",
            Self::Epub => "epub",
            Self::Ods => "ods",
            Self::Xls => "xls",
            Self::Xlsb => "xlsb",
            Self::Msg => "msg",
            Self::Doc => "doc",
            Self::Ppt => "ppt",
            Self::Image => "image",
            Self::Vtt => "vtt",
            Self::Srt => "srt",
        }
    }

    /// The media type reported for this format; of pictures, each of which has one of its own, the range of them.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Text => "text/plain",
            Self::Pdf => "application/pdf",
            Self::Docx => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            Self::Pptx => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            Self::Xlsx => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            Self::Zip => "application/zip",
            Self::Ole2 => "application/x-ole-storage",
            Self::Html => "text/html",
            Self::Csv => "text/csv",
            Self::Tsv => "text/tab-separated-values",
            Self::Eml => "message/rfc822",
            Self::Json => "application/json",
            Self::Ipynb => "application/x-ipynb+json",
            Self::Rtf => "application/rtf",
            Self::Xml => "application/xml",
            Self::Odt => "application/vnd.oasis.opendocument.text",
            Self::Odp => "application/vnd.oasis.opendocument.presentation",
            Self::Epub => "application/epub+zip",
            Self::Ods => "application/vnd.oasis.opendocument.spreadsheet",
            Self::Xls => "application/vnd.ms-excel",
            Self::Xlsb => "application/vnd.ms-excel.sheet.binary.macroEnabled.12",
            Self::Msg => "application/vnd.ms-outlook",
            Self::Doc => "application/msword",
            Self::Ppt => "application/vnd.ms-powerpoint",
            Self::Image => "image/*",
            Self::Vtt => "text/vtt",
            Self::Srt => "application/x-subrip",
        }
    }

    /// Whether [`probe`](crate::probe) measures patterns for it that plans ask for.
    pub fn has_prober(self) -> bool {
        self != Self::Zip
    }

    /// Whether it is a table in text, which only the name of a file tells from other text.
    pub fn is_delimited(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv)
    }

    /// Whether it is read as a workbook: as sheets with records, whose cells can be asked for.
    pub fn has_sheets(self) -> bool {
        matches!(self, Self::Xlsx | Self::Ods | Self::Xls | Self::Xlsb) || self.is_delimited()
    }

    /// Whether it holds files of its own, which [`members`](crate::members) reads.
    pub fn has_members(self) -> bool {
        matches!(self, Self::Zip | Self::Eml | Self::Msg)
    }

    /// Whether its pictures are read, and its charts if it is an office file, which [`images`](crate::images()) does.
    pub fn has_images(self) -> bool {
        matches!(
            self,
            Self::Pdf
                | Self::Docx
                | Self::Pptx
                | Self::Xlsx
                | Self::Odt
                | Self::Odp
                | Self::Ods
                | Self::Epub
                | Self::Html
        )
    }

    /// Whether the contract promises text extraction for it.
    pub fn has_text_extractor(self) -> bool {
        !self.has_sheets() && !matches!(self, Self::Zip | Self::Ole2 | Self::Image)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name belongs to no detector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}`; the known ones are {names}", names = Format::ALL.map(Format::as_str).join(", "))]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.as_str() == name).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// How a format was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DetectedBy {
    MagicBytes,
    ZipManifest,
    ContentSniff,
}

impl DetectedBy {
    /// The name as used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MagicBytes => "magic_bytes",
            Self::ZipManifest => "zip_manifest",
            Self::ContentSniff => "content_sniff",
        }
    }
}

/// What the bytes are. All three are `None` for unknown binary data: nothing is guessed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detection {
    pub format: Option<Format>,
    pub mime: Option<String>,
    pub by: Option<DetectedBy>,
}

impl Detection {
    pub(crate) fn of(format: Format, by: DetectedBy) -> Self {
        Self { format: Some(format), mime: Some(format.mime().to_owned()), by: Some(by) }
    }

    /// A picture of a media type.
    pub(crate) fn of_picture(mime: &str) -> Self {
        Self { mime: Some(mime.to_owned()), ..Self::of(Format::Image, DetectedBy::MagicBytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for format in Format::ALL {
            assert_eq!(format.as_str().parse(), Ok(format));
            assert_eq!(serde_json::to_value(format).unwrap(), format.as_str());
        }
        assert!("markdown".parse::<Format>().unwrap_err().to_string().contains("`markdown`"));
    }
}
