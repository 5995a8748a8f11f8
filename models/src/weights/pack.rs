//! Packs: the weights of a model in the encoders' layout, in a file of our own. Its tables, of which each text needs few rows, are mapped; its
//! layers, which become another precision at once, are read.
//!
//! The published file has another layout and may be written to while it is read. A pack of it is made at the first
//! start. It is identified by the published file's device, inode, length, and times of the last write and of the last
//! change. Nobody can set the last of these, so a file that was written to or replaced since then has no pack, and a
//! new one is made.

use super::{Floats, StoredTensors, Tensors, WeightFile, mapped};
use crate::{ModelError, default_models_dir};
use bytes::Bytes;
use safetensors::{
    Dtype, SafeTensors,
    tensor::{Metadata, TensorView},
};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

/// Changes whenever the content or layout of packs changes.
const FORMAT: &str = "svc weights 3";
/// The key under which a pack says of which file it is, as the hexadecimal bytes of the path.
const SOURCE: &str = "source";
/// A smaller file is read as fast as its pack.
const LEAST_BYTES: u64 = 4 << 20;
/// A file that changed within this time before it was opened may change again within the same tick of the file system's
/// clock and then look the same, so no pack is made of it.
const SETTLED: Duration = Duration::from_secs(1);
/// The packs' folder stands beside the models' folders, whose names do not begin with a dot.
const FOLDER: &str = ".packed";

pub(crate) struct Packs {
    folder: PathBuf,
    least_bytes: u64,
    settled: Duration,
}

/// What was read of a published file, in the layout of the encoders.
#[derive(Default)]
pub(super) struct Recorded(Vec<(String, Vec<usize>, Floats)>);

impl Recorded {
    pub fn add(&mut self, name: &str, shape: &[usize], floats: &Floats) {
        self.0.push((name.to_owned(), shape.to_vec(), floats.clone()));
    }
}

impl Packs {
    /// The packs in the models folder, or in that of [`default_models_dir`] if none is given.
    pub fn of(models_dir: Option<&Path>) -> Option<Self> {
        let folder = models_dir.map(Path::to_owned).or_else(default_models_dir)?.join(FOLDER);
        Some(Self { folder, least_bytes: LEAST_BYTES, settled: SETTLED })
    }

    /// Returns what `read` makes of the weights at `path`, and the hash of all tensors that it asked for. It uses the
    /// pack if there is one; otherwise it reads the file and then makes a pack. `config` decides what is asked for.
    pub fn load<T>(
        this: Option<&Self>,
        path: &Path,
        config: &[u8],
        read: impl Fn(&mut WeightFile) -> Result<T, ModelError>,
    ) -> Result<(T, [u8; 32]), ModelError> {
        let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let place = match this {
            Some(packs) => packs.place(path, &file, config).map_err(unreadable)?,
            None => None,
        };
        if let Some(place) = &place
            && let Some(loaded) = place.load(&read)
        {
            return Ok(loaded);
        }
        let recorded = place.as_ref().filter(|place| place.is_settled).map(|_| Recorded::default());
        let mut weights = WeightFile { tensors: Tensors::Stored(StoredTensors::of(path, file)?, recorded) };
        let loaded = read(&mut weights)?;
        let Tensors::Stored(stored, recorded) = weights.tensors else { unreachable!("set above") };
        let digest = stored.finish()?;
        if let (Some(place), Some(recorded)) = (place, recorded) {
            // A start without a pack is slower but no failure: the folder may be read-only, or the disk full.
            match place.write(&recorded, digest) {
                Ok(()) => {
                    tracing::info!(pack = %place.path.display(), "the weights are packed; the next start maps them")
                }
                Err(error) => tracing::info!(pack = %place.path.display(), %error, "the weights could not be packed"),
            }
        }
        Ok((loaded, digest))
    }

    /// Where the pack of a file is or would be; `None` if the file is not worth it or the system has no inodes.
    fn place(&self, path: &Path, file: &File, config: &[u8]) -> io::Result<Option<Place>> {
        let metadata = file.metadata()?;
        let Some((stamp, changed)) = stamp(&metadata).filter(|_| metadata.len() >= self.least_bytes) else {
            return Ok(None);
        };
        let source = path.canonicalize()?;
        let of_path = Sha256::digest(source.as_os_str().as_encoded_bytes());
        let mut key = Sha256::new();
        for part in [FORMAT.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes(), &stamp, &0x0102_u16.to_ne_bytes(), config]
        {
            key.update((part.len() as u64).to_le_bytes());
            key.update(part);
        }
        let prefix = format!("{}-", hex(&of_path[..8]));
        Ok(Some(Place {
            path: self.folder.join(format!("{prefix}{}", hex(&key.finalize()[..16]))),
            source,
            prefix,
            is_settled: SystemTime::now().duration_since(changed).is_ok_and(|age| age >= self.settled),
        }))
    }
}

/// Everything that distinguishes a file from its earlier states, and when it last changed.
#[cfg(unix)]
fn stamp(metadata: &fs::Metadata) -> Option<(Vec<u8>, SystemTime)> {
    use std::os::unix::fs::MetadataExt;
    let numbers = [
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mtime() as u64,
        metadata.mtime_nsec() as u64,
        metadata.ctime() as u64,
        metadata.ctime_nsec() as u64,
    ];
    let changed = SystemTime::UNIX_EPOCH
        + Duration::new(u64::try_from(metadata.ctime()).ok()?, u32::try_from(metadata.ctime_nsec()).ok()?);
    Some((numbers.iter().flat_map(|number| number.to_le_bytes()).collect(), changed))
}

#[cfg(not(unix))]
fn stamp(_: &fs::Metadata) -> Option<(Vec<u8>, SystemTime)> {
    None
}

struct Place {
    path: PathBuf,
    /// The published file.
    source: PathBuf,
    /// The names of all packs of one published file begin with this, whatever its state was.
    prefix: String,
    is_settled: bool,
}

impl Place {
    /// Loads from the pack; returns `None` if there is no usable one.
    fn load<T>(&self, read: impl Fn(&mut WeightFile) -> Result<T, ModelError>) -> Option<(T, [u8; 32])> {
        let pack = match Pack::open(&self.path) {
            Ok(pack) => pack?,
            Err(problem) => return self.give_up(&problem),
        };
        let digest = pack.digest;
        match read(&mut WeightFile { tensors: Tensors::Packed(pack) }) {
            Ok(loaded) => Some((loaded, digest)),
            Err(error) => self.give_up(&error.to_string()),
        }
    }

    fn give_up<T>(&self, problem: &str) -> Option<T> {
        tracing::warn!(pack = %self.path.display(), problem, "the pack of the weights is not usable; making a new one");
        // A pack that cannot be removed will be replaced.
        let _ = fs::remove_file(&self.path);
        None
    }

    fn write(&self, recorded: &Recorded, digest: [u8; 32]) -> io::Result<()> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let fresh = format!("{}{}.{}.part", self.prefix, std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        // These are packs of the file's earlier states, and remains of a process that was killed. If another process is
        // writing the same pack now, it finds its file gone and goes on without one.
        for entry in fs::read_dir(folder)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.prefix) {
                fs::remove_file(entry.path())?;
            } else if is_left_over(&entry.path()) {
                // Another process may have removed it already.
                let _ = fs::remove_file(entry.path());
            }
        }
        let fresh = folder.join(fresh);
        let written = write_to(&fresh, &self.source, recorded, digest).and_then(|()| fs::rename(&fresh, &self.path));
        if written.is_err() {
            // The error above says more.
            let _ = fs::remove_file(&fresh);
        }
        written
    }
}

/// The file is not synced: if a power failure damages it, its checksums do not match.
fn write_to(path: &Path, source: &Path, recorded: &Recorded, digest: [u8; 32]) -> io::Result<()> {
    let source = hex(source.as_os_str().as_encoded_bytes());
    let mut said = HashMap::from([("digest".to_owned(), hex(&digest)), (SOURCE.to_owned(), source)]);
    let mut views = Vec::new();
    for (name, shape, floats) in &recorded.0 {
        let mut checksum = Checksum::new(&digest, name);
        checksum.add(floats.bytes());
        said.insert(format!("checksum {name}"), checksum.shown());
        let view = TensorView::new(Dtype::F32, shape.clone(), floats.bytes()).map_err(io::Error::other)?;
        views.push((name, view));
    }
    safetensors::serialize_to_file(views, Some(said), path).map_err(io::Error::other)?;
    let mut permissions = path.metadata()?.permissions();
    permissions.set_readonly(true);
    fs::set_permissions(path, permissions)
}

/// Whether a file is the pack of a published file that is gone, so that nobody will ask for it.
fn is_left_over(path: &Path) -> bool {
    let Ok(map) = File::open(path).and_then(|file| mapped::map(&file)) else { return false };
    let Ok((_, header)) = SafeTensors::read_metadata(&map) else { return false };
    let source = header.metadata().as_ref().and_then(|said| said.get(SOURCE)).and_then(|source| bytes_of(source));
    source.is_some_and(|source| path_of(source).is_some_and(|source| matches!(source.try_exists(), Ok(false))))
}

#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn path_of(_: Vec<u8>) -> Option<PathBuf> {
    None
}

/// The checksum of a tensor. The digest is part of each, so that it cannot change unnoticed.
struct Checksum(crc32fast::Hasher);

impl Checksum {
    fn new(digest: &[u8; 32], name: &str) -> Self {
        let mut checksum = Self(crc32fast::Hasher::new());
        checksum.add(digest);
        checksum.add(name.as_bytes());
        checksum
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn shown(self) -> String {
        format!("{:08x}", self.0.finalize())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    bytes_of(text)?.try_into().ok()
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok()).collect()
}

pub(super) struct Pack {
    path: PathBuf,
    file: File,
    map: Bytes,
    header: Metadata,
    data_start: usize,
    digest: [u8; 32],
}

/// How much of a table is in memory while its checksum is taken: pages of the map that nobody needs would stay.
const CHUNK: usize = 256 << 10;

impl Pack {
    /// Opens a pack; returns `None` if there is no such file.
    fn open(path: &Path) -> Result<Option<Self>, String> {
        let (file, map) = match File::open(path).and_then(|file| mapped::map(&file).map(|map| (file, map))) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let (header_bytes, header) = SafeTensors::read_metadata(&map).map_err(|error| error.to_string())?;
        let said = header.metadata().as_ref().and_then(|said| said.get("digest"));
        let digest = said.and_then(|digest| from_hex(digest)).ok_or("it does not say what it was made of")?;
        Ok(Some(Self { path: path.to_owned(), file, data_start: 8 + header_bytes, map, header, digest }))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.header.info(name).is_some()
    }

    /// A part of the map, whose pages come to memory as they are looked at.
    pub fn table(&self, name: &str, shape: &[usize]) -> Result<Floats, ModelError> {
        let place = self.place(name, shape)?;
        let mut checksum = Checksum::new(&self.digest, name);
        let mut chunk = vec![0; CHUNK.min(place.len())];
        for from in place.clone().step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(place.end - from)];
            self.read(from, chunk)?;
            checksum.add(chunk);
        }
        self.check(name, checksum)?;
        Floats::mapped(self.map.slice(place)).ok_or_else(|| self.corrupt(format!("{name} is not aligned")))
    }

    /// Numbers in memory of their own.
    pub fn layer(&self, name: &str, shape: &[usize]) -> Result<Floats, ModelError> {
        let place = self.place(name, shape)?;
        let mut floats = vec![0f32; place.len() / size_of::<f32>()];
        let bytes = bytemuck::cast_slice_mut(&mut floats);
        self.read(place.start, bytes)?;
        let mut checksum = Checksum::new(&self.digest, name);
        checksum.add(bytes);
        self.check(name, checksum)?;
        Ok(floats.into())
    }

    /// Where a tensor is in the file.
    fn place(&self, name: &str, shape: &[usize]) -> Result<Range<usize>, ModelError> {
        let info = self.header.info(name).filter(|info| info.shape == shape && info.dtype == Dtype::F32);
        let info = info.ok_or_else(|| self.corrupt(format!("it has no {name} of {shape:?}")))?;
        // The header was checked against the length.
        let (start, end) = info.data_offsets;
        Ok(self.data_start + start..self.data_start + end)
    }

    fn read(&self, from: usize, bytes: &mut [u8]) -> Result<(), ModelError> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(from as u64))
            .and_then(|_| file.read_exact(bytes))
            .map_err(|source| ModelError::Unreadable { path: self.path.clone(), source })
    }

    fn check(&self, name: &str, checksum: Checksum) -> Result<(), ModelError> {
        let said = self.header.metadata().as_ref().and_then(|said| said.get(&format!("checksum {name}")));
        match said == Some(&checksum.shown()) {
            true => Ok(()),
            false => Err(self.corrupt(format!("{name} does not have its checksum"))),
        }
    }

    fn corrupt(&self, problem: String) -> ModelError {
        ModelError::Corrupt { path: self.path.clone(), problem }
    }
}

#[cfg(test)]
impl Packs {
    /// For packs in a folder of their own, of files of any size and age.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), least_bytes: 0, settled: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use std::io::Write;
    use tempfile::TempDir;

    const WORDS: &str = "embeddings.word_embeddings.weight";

    struct Case {
        model: TempDir,
        packs: Packs,
        _folder: TempDir,
    }

    /// Whether it came from a pack, the first number, and the digest.
    type Loaded = (bool, f32, [u8; 32]);

    impl Case {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self {
                model: sample::sample_folder(),
                packs: Packs::in_folder(&folder.path().join("packs")),
                _folder: folder,
            }
        }

        fn file(&self) -> PathBuf {
            self.model.path().join("model.safetensors")
        }

        fn load(&self) -> Loaded {
            let (loaded, digest) = Packs::load(Some(&self.packs), &self.file(), b"config", |file| {
                let words = file.tensor(WORDS, &[sample::VOCABULARY, sample::HIDDEN])?;
                Ok((matches!(file.tensors, Tensors::Packed(_)), words[0]))
            })
            .unwrap();
            (loaded.0, loaded.1, digest)
        }

        fn packs(&self) -> Vec<PathBuf> {
            fs::read_dir(&self.packs.folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
        }

        /// Writes into the published file until the file system's clock has moved on.
        fn change(&self, from_end: i64, bytes: &[u8]) {
            let mut file = File::options().write(true).open(self.file()).unwrap();
            let before = stamp(&file.metadata().unwrap()).unwrap();
            while stamp(&file.metadata().unwrap()).unwrap() == before {
                file.seek(SeekFrom::End(-from_end)).unwrap();
                file.write_all(bytes).unwrap();
            }
        }
    }

    fn overwrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn the_second_start_takes_the_pack_of_the_first() {
        let case = Case::new();
        let (packed, first, digest) = case.load();
        assert!(!packed);
        assert_eq!(case.load(), (true, first, digest));
        assert_eq!(case.packs().len(), 1);
        assert!(case.packs()[0].metadata().unwrap().permissions().readonly());
    }

    #[test]
    fn a_file_that_was_written_to_is_read_anew() {
        let case = Case::new();
        let modified = case.file().metadata().unwrap().modified().unwrap();
        let (_, first, digest) = case.load();
        // The new content has the same length, another number in the place of the first, and the old time of the last
        // write.
        let number = first.to_le_bytes();
        let bytes = fs::read(case.file()).unwrap();
        let at = bytes.windows(4).position(|window| window == number).unwrap();
        case.change((bytes.len() - at) as i64, &7f32.to_le_bytes());
        File::options().write(true).open(case.file()).unwrap().set_modified(modified).unwrap();
        let (packed, changed, other) = case.load();
        assert!(!packed && changed == 7.0 && other != digest, "the pack of the old file was taken");
        assert_eq!(case.load(), (true, changed, other));
        assert_eq!(case.packs().len(), 1, "the old pack is gone");
    }

    #[test]
    fn a_new_pack_takes_the_place_of_those_whose_files_are_gone() {
        let (mut case, other) = (Case::new(), sample::sample_folder());
        case.load();
        let gone = std::mem::replace(&mut case.model, other);
        case.load();
        assert_eq!(case.packs().len(), 2, "both files are there");
        drop(gone);
        case.model = sample::sample_folder();
        fs::write(case.packs.folder.join("notes"), "no pack").unwrap();
        case.load();
        let names = case.packs();
        assert!(names.iter().any(|path| path.ends_with("notes")), "what is no pack stays");
        // The second file went when the third took its place.
        assert_eq!(names.len(), 2);
        assert!(case.load().0);
    }

    #[test]
    fn a_pack_that_is_damaged_is_made_anew() {
        let damages: [fn(&mut Vec<u8>); 5] = [
            |bytes| *bytes.last_mut().unwrap() ^= 1,
            |bytes| bytes.truncate(bytes.len() - 4),
            |bytes| bytes.truncate(3),
            |bytes| bytes.fill(b'{'),
            |bytes| {
                let at = bytes.windows(9).position(|window| window == br#""digest":"#).unwrap() + 10;
                bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            },
        ];
        for (at, damage) in damages.into_iter().enumerate() {
            let case = Case::new();
            let (_, first, digest) = case.load();
            overwrite(&case.packs()[0], damage);
            assert_eq!(case.load(), (false, first, digest), "damage {at}");
            assert_eq!(case.load(), (true, first, digest), "damage {at}");
        }
    }

    #[test]
    fn without_a_place_for_packs_or_a_file_that_rests_the_file_is_read() {
        let mut case = Case::new();
        case.packs.settled = Duration::from_secs(3600);
        assert!(!case.load().0 && !case.load().0 && case.packs().is_empty(), "it may be written to at this moment");
        case.packs.settled = Duration::ZERO;
        case.packs.least_bytes = u64::MAX;
        assert!(!case.load().0 && !case.load().0 && case.packs().is_empty(), "it is small");
        case.packs = Packs::in_folder(&case.file());
        assert!(!case.load().0 && !case.load().0, "its folder cannot be made");
    }
}
