use super::Floats;
use crate::ModelError;
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use sha2::{Digest, Sha256};
use std::{
    fs::{File, Metadata as FileMetadata},
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The format's own limit on its header.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// A safetensors file of the user's, read tensor by tensor: only what is asked for, with the shape that it must have.
/// It is read and never mapped, because it may change or shrink at any time, and reading a missing part of a map ends
/// the process.
pub(crate) struct StoredTensors {
    path: PathBuf,
    file: File,
    opened_as: (u64, Option<SystemTime>),
    header: Metadata,
    data_start: u64,
    digest: Sha256,
}

impl StoredTensors {
    #[cfg(test)]
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let file = File::open(path).map_err(|source| ModelError::Unreadable { path: path.to_owned(), source })?;
        Self::of(path, file)
    }

    /// Wraps the file at `path`, which is open already.
    pub fn of(path: &Path, mut file: File) -> Result<Self, ModelError> {
        let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
        let corrupt = |problem: String| ModelError::Corrupt { path: path.to_owned(), problem };
        let opened_as = version(&file.metadata().map_err(unreadable)?);
        let file_bytes = opened_as.0;
        if file_bytes < 8 {
            return Err(corrupt(format!("it has {file_bytes} bytes and no safetensors header")));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(unreadable)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > MAX_HEADER_BYTES || header_bytes > file_bytes - 8 {
            return Err(corrupt(format!("its header claims {header_bytes} bytes of a file of {file_bytes}")));
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header).map_err(unreadable)?;
        // Deserialising also checks that offsets are in order, without gaps, and match shape and type.
        let header: Metadata = serde_json::from_slice(&header)
            .map_err(|error| corrupt(format!("its safetensors header is invalid: {error}")))?;
        let data_start = 8 + header_bytes;
        let present = file_bytes - data_start;
        let claimed = header.data_len() as u64;
        if claimed != present {
            return Err(corrupt(format!(
                "it should hold {claimed} bytes of weights and holds {present}; the download was cut short"
            )));
        }
        Ok(Self { path: path.to_owned(), file, opened_as, header, data_start, digest: Sha256::new() })
    }

    pub fn contains(&self, name: &str) -> bool {
        self.header.info(name).is_some()
    }

    /// Refuses a file without the tensor `name` in this shape.
    pub fn check(&self, name: &str, shape: &[usize]) -> Result<&TensorInfo, ModelError> {
        let corrupt = |problem| ModelError::Corrupt { path: self.path.clone(), problem };
        let info = self.header.info(name).ok_or_else(|| corrupt(format!("it has no tensor {name}")))?;
        if info.shape != shape {
            return Err(corrupt(format!(
                "tensor {name} has shape {:?} where config.json asks for {shape:?}",
                info.shape
            )));
        }
        Ok(info)
    }

    /// Reads the tensor `name`, row by row, as f32 from f32, f16 or bf16. Infinities and what is no number are refused, because
    /// some precisions would make numbers of them.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Floats, ModelError> {
        let corrupt = |problem| ModelError::Corrupt { path: self.path.clone(), problem };
        let info = self.check(name, shape)?;
        let (dtype, (start, end)) = (info.dtype, info.data_offsets);
        let numbers = match dtype {
            Dtype::F32 => (end - start) / 4,
            Dtype::F16 | Dtype::BF16 => (end - start) / 2,
            _ => return Err(corrupt(format!("tensor {name} is of type {dtype:?}; F32, F16 and BF16 can be read"))),
        };
        let mut read = |bytes: &mut [u8]| -> Result<(), ModelError> {
            self.file
                .seek(SeekFrom::Start(self.data_start + start as u64))
                .and_then(|_| self.file.read_exact(bytes))
                .map_err(|source| ModelError::Unreadable { path: self.path.clone(), source })?;
            self.digest.update(name.as_bytes());
            self.digest.update(bytes);
            Ok(())
        };
        let mut floats = vec![0f32; numbers];
        if dtype == Dtype::F32 {
            read(bytemuck::cast_slice_mut(&mut floats))?;
            // This turns the file's byte order into this machine's, if they differ.
            floats.iter_mut().for_each(|float| *float = f32::from_bits(u32::from_le(float.to_bits())));
        } else {
            let mut halves = vec![0; end - start];
            read(&mut halves)?;
            for (float, &half) in floats.iter_mut().zip(halves.as_chunks().0) {
                *float = match dtype {
                    Dtype::F16 => half::f16::from_le_bytes(half).to_f32(),
                    _ => half::bf16::from_le_bytes(half).to_f32(),
                };
            }
        }
        match floats.iter().position(|float| !float.is_finite()) {
            Some(at) => Err(corrupt(format!("number {at} of tensor {name} is {}", floats[at]))),
            None => Ok(floats.into()),
        }
    }

    /// The hash of every tensor that was read. It is an error if the file was written to meanwhile, because the tensors
    /// may then belong to two versions.
    pub fn finish(self) -> Result<[u8; 32], ModelError> {
        let now = self.file.metadata().map(|metadata| version(&metadata));
        match now {
            Ok(now) if now == self.opened_as => Ok(self.digest.finalize().into()),
            Ok(_) => Err(ModelError::Changed { path: self.path }),
            Err(source) => Err(ModelError::Unreadable { path: self.path, source }),
        }
    }
}

/// The length and the time of the last write.
fn version(metadata: &FileMetadata) -> (u64, Option<SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use std::io::Write;

    const WORDS: &str = "embeddings.word_embeddings.weight";
    const SHAPE: [usize; 2] = [sample::VOCABULARY, sample::HIDDEN];

    #[test]
    fn a_file_that_changes_while_it_is_read_is_an_error_and_nothing_worse() {
        let folder = sample::sample_folder();
        let path = folder.path().join("model.safetensors");
        let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let writer = File::options().append(true).open(&path).unwrap();
        writer.set_modified(long_ago).unwrap();

        let mut file = StoredTensors::open(&path).unwrap();
        file.tensor(WORDS, &SHAPE).unwrap();
        (&writer).write_all(b"more").unwrap();
        assert!(matches!(file.finish(), Err(ModelError::Changed { .. })));

        let length = path.metadata().unwrap().len();
        writer.set_len(length - 4).unwrap();
        let mut file = StoredTensors::open(&path).unwrap();
        writer.set_len(1000).unwrap();
        let error = file.tensor("encoder.layer.1.output.dense.weight", &[sample::HIDDEN, 88]).unwrap_err();
        assert!(matches!(error, ModelError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn what_is_no_number_is_refused_by_the_name_of_its_tensor() {
        use std::os::unix::fs::FileExt;
        let folder = sample::sample_folder();
        let path = folder.path().join("model.safetensors");
        let file = StoredTensors::open(&path).unwrap();
        let (begin, _) = file.check(WORDS, &SHAPE).unwrap().data_offsets;
        for odd in [f32::NAN, f32::INFINITY] {
            let writer = File::options().write(true).open(&path).unwrap();
            writer.write_all_at(&odd.to_le_bytes(), file.data_start + begin as u64 + 8).unwrap();
            let error = StoredTensors::open(&path).unwrap().tensor(WORDS, &SHAPE).unwrap_err();
            let expected = format!("number 2 of tensor {WORDS} is {odd}");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_replaced_is_read_as_it_was() {
        let folder = sample::sample_folder();
        let path = folder.path().join("model.safetensors");
        let digest = |mut file: StoredTensors| {
            file.tensor(WORDS, &SHAPE).unwrap();
            file.finish().unwrap()
        };
        let wanted = digest(StoredTensors::open(&path).unwrap());
        let file = StoredTensors::open(&path).unwrap();
        let fresh = folder.path().join("fresh");
        std::fs::write(&fresh, "of another model").unwrap();
        std::fs::rename(&fresh, &path).unwrap();
        assert_eq!(digest(file), wanted);
    }
}
