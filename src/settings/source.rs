//! Where settings come from: the table's default, overridden by a TOML file, overridden by the environment.

use super::{BlobStore, Secret, SettingsError, kind::Kind, suggestion, table};
use std::{
    collections::BTreeMap,
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
};

/// Far above any real settings file; a wrong path must not fill the memory.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where a value came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Origin {
    #[default]
    Default,
    File(PathBuf),
    Environment,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment => f.write_str("environment"),
        }
    }
}

/// The key of a setting in a file: the name without its prefix, in lower case.
pub(super) fn file_key(name: &str) -> String {
    name.trim_start_matches("SVC_").to_ascii_lowercase()
}

fn name_of(key: &str) -> String {
    format!("SVC_{}", key.to_ascii_uppercase())
}

/// What file and environment give, before it is read as values.
pub(super) struct Source {
    path: PathBuf,
    file: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    origins: BTreeMap<&'static str, Origin>,
    problems: Vec<String>,
    warnings: Vec<String>,
}

impl Source {
    pub fn new(file: Option<&Path>, environment: BTreeMap<String, String>) -> Result<Self, SettingsError> {
        let mut source = Self {
            path: file.map(Path::to_path_buf).unwrap_or_default(),
            file: BTreeMap::new(),
            environment,
            origins: BTreeMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        };
        if let Some(path) = file {
            source.read_file(path)?;
        }
        let known = |name: &&String| name.starts_with("SVC_") && !table::NAMES.contains(&name.as_str());
        for name in source.environment.keys().filter(known).filter(|name| *name != "SVC_CONFIG") {
            source.warnings.push(format!("{name} is not a setting and has no effect{}", hint(name, str::to_owned)));
        }
        Ok(source)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), SettingsError> {
        let unreadable = |source| SettingsError::Read { path: path.to_path_buf(), source };
        let mut text = String::new();
        let file = fs::File::open(path).map_err(unreadable)?;
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(SettingsError::TooLarge { path: path.to_path_buf(), limit: MAX_FILE_BYTES });
        }
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            // The parser's own message quotes the line, and the line may hold a secret.
            let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            SettingsError::Syntax { path: path.to_path_buf(), line, message: error.message().to_owned() }
        })?;
        for (key, value) in table {
            let name = name_of(&key);
            if !table::NAMES.contains(&name.as_str()) || key != file_key(&name) {
                let remedy = hint(&name, file_key);
                self.problems.push(format!("{}: {key} is not a setting{remedy}", path.display()));
                continue;
            }
            self.file.insert(name, text_of(value));
        }
        Ok(())
    }

    /// Takes the value of one setting. A bad one is recorded as a problem, which [`Source::finish`] reports.
    pub fn take<T: 'static>(&mut self, name: &'static str, default: &'static str, kind: &Kind<T>) -> Option<T> {
        // `SVC_X=` in a compose file means "not set" if a blank is not a value.
        let given = self.environment.remove(name).filter(|text| kind.blank || !text.trim().is_empty());
        let (text, origin) = if let Some(text) = given {
            (text, Origin::Environment)
        } else if let Some(text) = self.file.remove(name) {
            (text, Origin::File(self.path.clone()))
        } else {
            (default.to_owned(), Origin::Default)
        };
        let value = kind.read(&text);
        if value.is_none() {
            // A password may stand before an @.
            let is_shown = !kind.secret && !text.contains('@');
            let shown = if is_shown { format!("{text:?}") } else { "a value that is not shown".to_owned() };
            self.problems.push(format!("{name} is {shown} ({origin}), but takes {}", kind.takes));
        }
        self.origins.insert(name, origin);
        value
    }

    /// The variables by which object stores usually get their credentials.
    pub fn of_stores(&self) -> BTreeMap<String, Secret> {
        let given = self.environment.iter().filter(|(name, value)| BlobStore::is_variable(name) && !value.is_empty());
        given.map(|(name, value)| (name.clone(), value.clone().into())).collect()
    }

    pub fn finish(self) -> Result<(BTreeMap<&'static str, Origin>, Vec<String>), SettingsError> {
        if self.problems.is_empty() {
            Ok((self.origins, self.warnings))
        } else {
            Err(SettingsError::Invalid(self.problems))
        }
    }
}

/// `: did you mean X?`, or where to look the names up.
fn hint(name: &str, form: impl Fn(&str) -> String) -> String {
    match suggestion::nearest(name, table::NAMES.iter().copied()) {
        Some(near) => format!(": did you mean {}?", form(near)),
        None => "; `svc config` lists them all".to_owned(),
    }
}

/// A TOML value in the text form that file and environment share.
fn text_of(value: toml::Value) -> String {
    match value {
        toml::Value::String(text) => text,
        other => serde_json::to_string(&other).unwrap_or_default(),
    }
}
