//! An office package: a zip of parts that refer to each other through relationships.

use crate::{
    Format, FormatError, Limit, Limits,
    archive::Directory,
    xml::{Node, XmlReader},
};
use std::{
    collections::HashMap,
    io::{self, Read, Seek},
};
use zip::{ZipArchive, read::ZipFile, result::ZipError};

pub(crate) struct Package<R> {
    archive: ZipArchive<R>,
    /// Normalised name to index: producers differ in case and in the direction of slashes.
    index: HashMap<String, usize>,
    format: Format,
    limits: Limits,
    unpacked: u64,
}

/// A reference from one part to another.
pub(crate) struct Relationship {
    pub id: String,
    /// The last step of the type's address; the steps before it differ between the standard's two variants.
    pub kind: String,
    pub target: String,
}

impl<R: Read + Seek> Package<R> {
    pub(crate) fn open(mut source: R, format: Format, limits: &Limits) -> Result<Self, FormatError> {
        // The members are checked before each of them takes memory.
        if let Some(directory) = Directory::read(&mut source)? {
            check_members(directory.claimed, limits)?;
        }
        let archive = ZipArchive::new(source).map_err(|error| zip_error(format, error))?;
        check_members(archive.len() as u64, limits)?;
        let index = (0..archive.len())
            .filter_map(|index| Some((normal(&archive.name_for_index(index)?.ok()?), index)))
            .collect();
        Ok(Self { archive, index, format, limits: limits.clone(), unpacked: 0 })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// The part as XML, or `None` if the package has no part of that name.
    pub(crate) fn xml(&mut self, name: &str) -> Result<Option<XmlReader<impl Read>>, FormatError> {
        let (format, limits) = (self.format, self.limits.clone());
        Ok(self.part(name)?.map(|part| XmlReader::new(part, format, &limits)))
    }

    /// The part's bytes, or `None` if the package has no part of that name.
    pub(crate) fn part(&mut self, name: &str) -> Result<Option<CappedPart<'_, R>>, FormatError> {
        let Some(&index) = self.index.get(&normal(name)) else { return Ok(None) };
        let file = self.archive.by_index(index).map_err(|error| zip_error(self.format, error))?;
        if file.encrypted() {
            return Err(FormatError::Encrypted { format: self.format });
        }
        let ratio_bytes = file.compressed_size().saturating_mul(u64::from(self.limits.zip_ratio));
        Ok(Some(CappedPart {
            file,
            read: 0,
            ratio_bytes: ratio_bytes.max(Limits::RATIO_FREE_BYTES),
            zip_ratio: self.limits.zip_ratio,
            unpacked: &mut self.unpacked,
            unpacked_bytes: self.limits.unpacked_bytes,
        }))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.index.contains_key(&normal(name))
    }

    /// The relationships of a part, or of the package itself for the empty name.
    pub(crate) fn relationships(&mut self, part: &str) -> Result<Vec<Relationship>, FormatError> {
        let (folder, file) = part.rsplit_once('/').unwrap_or(("", part));
        let name = if folder.is_empty() { format!("_rels/{file}.rels") } else { format!("{folder}/_rels/{file}.rels") };
        let folder = folder.to_owned();
        let mut found = Vec::new();
        let Some(mut xml) = self.xml(&name)? else { return Ok(found) };
        while let Some(node) = xml.next()? {
            let Node::Start(element) = node else { continue };
            if element.name != "Relationship" || element.attribute("TargetMode") == Some("External") {
                continue;
            }
            let (Some(kind), Some(target)) = (element.attribute("Type"), element.attribute("Target")) else { continue };
            found.push(Relationship {
                id: element.attribute("Id").unwrap_or_default().to_owned(),
                kind: kind.rsplit('/').next().unwrap_or_default().to_owned(),
                target: resolve(&folder, target),
            });
        }
        Ok(found)
    }

    /// The name of the package's main part.
    pub(crate) fn main_part(&mut self) -> Result<String, FormatError> {
        let main = self.relationships("")?.into_iter().find(|relation| relation.kind == "officeDocument");
        match main {
            Some(relation) if self.index.contains_key(&normal(&relation.target)) => Ok(relation.target),
            _ => Err(FormatError::corrupt(self.format, "the package has no main part")),
        }
    }
}

/// A member being inflated. It counts the bytes that were really read, because sizes in headers may lie.
pub(crate) struct CappedPart<'a, R: Read> {
    file: ZipFile<'a, R>,
    read: u64,
    ratio_bytes: u64,
    zip_ratio: u32,
    unpacked: &'a mut u64,
    unpacked_bytes: u64,
}

impl<R: Read> Read for CappedPart<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        *self.unpacked += read as u64;
        if self.read > self.ratio_bytes {
            let detail = format_args!("a member unpacks to over {} times its size", self.zip_ratio);
            return Err(FormatError::over(Limit::ZipRatio, detail).into());
        }
        if *self.unpacked > self.unpacked_bytes {
            let detail = format_args!("the package unpacks to over {} bytes", self.unpacked_bytes);
            return Err(FormatError::over(Limit::UnpackedBytes, detail).into());
        }
        Ok(read)
    }
}

fn check_members(members: u64, limits: &Limits) -> Result<(), FormatError> {
    if members > u64::from(limits.zip_members) {
        let detail = format_args!("{members} members, more than the {} that are allowed", limits.zip_members);
        return Err(FormatError::over(Limit::ZipMembers, detail));
    }
    Ok(())
}

fn normal(name: &str) -> String {
    name.trim_start_matches(['/', '\\']).replace('\\', "/").to_ascii_lowercase()
}

/// Resolves a target relative to the folder of the referring part; a leading slash is the package's root.
pub(crate) fn resolve(folder: &str, target: &str) -> String {
    let target = target.replace('\\', "/");
    let mut steps: Vec<&str> = if target.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for step in target.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                steps.pop();
            }
            step => steps.push(step),
        }
    }
    steps.retain(|step| !step.is_empty());
    steps.join("/")
}

fn zip_error(format: Format, error: ZipError) -> FormatError {
    match error {
        ZipError::UnsupportedArchive(reason) if reason == ZipError::PASSWORD_REQUIRED => {
            FormatError::Encrypted { format }
        }
        other => FormatError::corrupt(format, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_resolve_against_their_folder() {
        assert_eq!(resolve("word", "styles.xml"), "word/styles.xml");
        assert_eq!(resolve("word", "/word/a.xml"), "word/a.xml");
        assert_eq!(resolve("ppt/slides", "..\\notes\\n.xml"), "ppt/notes/n.xml");
        assert_eq!(resolve("", "../../../etc/passwd"), "etc/passwd", "a name in the package, never a path");
    }
}
