//! Every setting of the service, with its type, from one table: first the default, then the file, then the environment.
//!
//! A key in the file is the setting's name without `SVC_`, in lower case: `SVC_BM25_K1` is `bm25_k1`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};
use svc_models::{Precision, bundled_models_dir};

mod allowed;
mod blob_store;
mod kind;
mod models;
mod source;
mod suggestion;
mod table;
#[cfg(test)]
mod tests;
mod this_machine;

pub(crate) use self::suggestion::nearest;
pub use self::{
    allowed::AllowedTarget,
    blob_store::{BlobStore, Provider, STORE_SECRETS},
    kind::Secret,
    models::{hub_settings, model_settings, reranker_settings},
    source::Origin,
    table::Settings,
    this_machine::is_this_machine,
};

/// The file in the working directory that is read if no file is named.
const USUAL_FILE: &str = "svc.toml";

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("the settings file {path} cannot be read: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the settings file {path} is over {limit} bytes; is it the right file?", path = path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("the settings file {path} is not valid TOML at line {line}: {message}", path = path.display())]
    Syntax { path: PathBuf, line: usize, message: String },
    /// One text per problem; each names its setting, the value and what the setting takes.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

/// Where models run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu,
    Ndarray,
    Wgpu,
    Cuda,
}

impl Device {
    /// The device's name in the settings and in the models crate.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Ndarray => "ndarray",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
    }
}

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// The least severity that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// The word that log filters take.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// When pending migrations are applied at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrate {
    /// Only on the embedded database; any other waits for its operator.
    Embedded,
    /// On any database.
    Auto,
}

/// What the HNSW indexes of vectors are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorIndex {
    /// The vectors as halves.
    Halfvec,
    /// One bit for each number of a vector.
    Bit,
}

/// Who reads a new document at the top of the tree that is not private.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    Everyone,
    Owner,
}

/// A setting as `svc config` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRow {
    pub section: &'static str,
    pub name: &'static str,
    /// The value in use, masked if it is a secret.
    pub value: String,
    pub origin: Origin,
    /// The default as text.
    pub default: &'static str,
    /// Whether the text is valid in TOML without quotes.
    pub bare: bool,
    pub secret: bool,
    /// Completes "takes ...".
    pub takes: String,
    pub meaning: &'static str,
}

impl Settings {
    /// Reads the settings: the defaults, overridden by `file` (else the file that SVC_CONFIG names, else `svc.toml` if
    /// the working directory has one), overridden by the SVC_ variables of `env`.
    ///
    /// All bad values are reported at once. An unknown key in the file is an error; an unknown variable is a
    /// [warning](Self::warnings), because other programs may share the prefix.
    pub fn load(file: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<Self, SettingsError> {
        let env: BTreeMap<_, _> = env.collect();
        let named = env.get("SVC_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let usual = || Some(PathBuf::from(USUAL_FILE)).filter(|path| path.exists());
        let file = file.map(Path::to_path_buf).or(named).or_else(usual);
        let home = Home::of(&env);

        let mut settings = Self::read(source::Source::new(file.as_deref(), env)?)?;
        settings.file = file;
        settings.fill_blanks(&home)?;
        settings.check()?;
        Ok(settings)
    }

    /// Only the defaults, with the folders that `env` implies.
    #[cfg(test)]
    pub(crate) fn defaults(env: impl Iterator<Item = (String, String)>) -> Result<Self, SettingsError> {
        let env = env.filter(|(name, _)| !name.starts_with("SVC_")).collect();
        let home = Home::of(&env);
        let mut settings = Self::read(source::Source::new(None, env)?)?;
        settings.fill_blanks(&home)?;
        Ok(settings)
    }

    /// Whether somebody has set it, even to its default.
    pub fn is_set(&self, name: &str) -> bool {
        self.origins.get(name).is_some_and(|origin| !matches!(origin, Origin::Default))
    }

    /// What does not stop the start but is likely a mistake, such as unknown SVC_ variables.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The file that was read, if there was one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Where the reranker runs.
    pub fn reranker_device(&self) -> Device {
        self.reranker_device.unwrap_or(self.embedding_device)
    }

    /// Whether `/metrics` answers without a token.
    pub fn metrics_are_public(&self) -> bool {
        self.public_metrics.unwrap_or_else(|| self.listen.ip().is_loopback())
    }

    /// Whether a new document under this parent becomes an access root even if nobody asked for that.
    pub fn is_enclosed(&self, parent_id: Option<i64>) -> bool {
        parent_id.is_none() && self.default_visibility == Visibility::Owner
    }

    /// Whether nobody set this setting.
    pub fn is_default(&self, name: &str) -> bool {
        self.origins.get(name).is_none_or(|origin| *origin == Origin::Default)
    }

    /// The token of the command line: SVC_TOKEN, or SVC_API_TOKEN.
    pub fn token_to_show(&self) -> &Secret {
        if self.token.is_blank() { &self.api_token } else { &self.token }
    }

    /// The service's address for the command line: SVC_URL, or this machine at the port of SVC_LISTEN.
    pub fn service_url(&self) -> String {
        if !self.url.is_empty() {
            return self.url.clone();
        }
        let mut address = self.listen;
        // A wildcard address is for listening; a call needs a specific one.
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        format!("http://{address}")
    }

    /// The address of the object store's server, if it is not that of Amazon, Google or Microsoft.
    pub(crate) fn blob_server(&self) -> Option<&str> {
        let provider = self.blob_store.as_ref().and_then(BlobStore::provider);
        let named = provider.map(Provider::addresses).unwrap_or_default();
        let of_store = || named.iter().find_map(|name| self.of_stores.get(*name)).map(Secret::expose);
        let address = Some(self.blob_endpoint.as_str()).filter(|address| !address.is_empty()).or_else(of_store);
        // Bucket and key are put behind it with a slash of their own.
        address.map(|address| address.trim_end_matches('/'))
    }

    /// The folder of fetched models. A release brings others, which are looked for where a model is not in this folder.
    pub fn models_dir(&self) -> PathBuf {
        self.cache_dir.join("models")
    }

    /// A settings file with every setting at its default, commented out.
    pub fn template(&self) -> String {
        let mut text = String::from(
            "# Every setting at its default. An environment variable of the name in brackets wins over this file.\n\
             # Copy it to svc.toml in the folder in which you start the programs, or name the copy with --config or SVC_CONFIG.\n",
        );
        let mut section = "";
        for row in self.rows() {
            if row.section != section {
                section = row.section;
                // Writing to a String cannot fail.
                let _ = write!(text, "\n\n# {section}\n");
            }
            let default = if row.bare { row.default.to_owned() } else { format!("{:?}", row.default) };
            let (key, name) = (source::file_key(row.name), row.name);
            let _ = write!(text, "\n# {} [{name}]\n# Takes {}.\n#{key} = {default}\n", row.meaning, row.takes);
        }
        text
    }

    fn fill_blanks(&mut self, home: &Home) -> Result<(), SettingsError> {
        let missing =
            |name: &str| SettingsError::Invalid(vec![format!("{name} is blank and HOME is not set: set either")]);
        if self.cache_dir.as_os_str().is_empty() {
            self.cache_dir = home.cache_dir().ok_or_else(|| missing("SVC_CACHE_DIR"))?;
        }
        if self.data_dir.as_os_str().is_empty() {
            self.data_dir = home.data_dir().ok_or_else(|| missing("SVC_DATA_DIR"))?;
        }
        let place = |path: &mut PathBuf, usual: PathBuf| {
            if path.as_os_str().is_empty() {
                *path = usual;
            }
        };
        place(&mut self.postgres_home, home.postgres(&self.cache_dir));
        place(&mut self.batch_store, self.data_dir.join("batches"));
        if self.worker_id.is_empty() {
            self.worker_id = format!("{}-{}", home.host, std::process::id());
        }
        Ok(())
    }

    /// Refuses a name or a password in an address: whoever asks while nobody answers there is told the address, and so are logs.
    fn check_addresses(&self, problems: &mut Vec<String>) {
        for (name, address, key) in [
            ("SVC_OTLP_ENDPOINT", &self.otlp_endpoint, "SVC_OTLP_HEADERS"),
            ("SVC_RUNNER_URL", &self.runner_url, "SVC_RUNNER_KEY"),
            ("SVC_RUNNER_COMING_URL", &self.runner_coming_url, "SVC_RUNNER_KEY"),
            ("SVC_LLM_BASE_URL", &self.llm_base_url, "SVC_LLM_API_KEY"),
            ("SVC_FALLBACK_LLM_URL", &self.fallback_llm_url, "SVC_LLM_API_KEY"),
            ("SVC_BATCH_OPENAI_URL", &self.batch_openai_url, "SVC_BATCH_OPENAI_KEY"),
            ("SVC_BATCH_ANTHROPIC_URL", &self.batch_anthropic_url, "SVC_BATCH_ANTHROPIC_KEY"),
        ] {
            // An unescaped `/` in a password ends what is read as the host, so an @ is refused anywhere.
            if address.contains('@') {
                problems.push(format!(
                    "{name} holds an @, but takes an address without a name or a password: set the key in {key}, and write an @ of the path as %40"
                ));
            }
        }
    }

    /// Checks what belongs to the object store.
    fn check_blob_store(&self, problems: &mut Vec<String>) {
        let provider = self.blob_store.as_ref().and_then(BlobStore::provider);
        let others =
            provider.map(|provider| format!(", or {},", provider.addresses().join(" or "))).unwrap_or_default();
        if self.blob_server().is_some_and(|address| address.contains('@')) {
            // Whoever wrote a password into it does not want to read it in a log.
            problems.push(format!(
                "SVC_BLOB_ENDPOINT{others} holds an @: it takes an address without a user, and keys are given apart from it"
            ));
        }
        let Some(provider) = provider else { return };
        if !self.blob_allow_http && self.blob_server().is_some_and(|address| address.starts_with("http://")) {
            problems.push(format!(
                "SVC_BLOB_ENDPOINT{others} begins with http://, over which everybody on the way reads the bytes: name one with \
                 https://, or set SVC_BLOB_ALLOW_HTTP=true"
            ));
        }
        let has_no_key = (self.blob_access_key_id.is_empty(), self.blob_secret_access_key.is_blank());
        let scheme = provider.scheme();
        match provider {
            Provider::S3 if has_no_key.0 != has_no_key.1 => problems.push(
                "one of SVC_BLOB_ACCESS_KEY_ID and SVC_BLOB_SECRET_ACCESS_KEY is blank: set both, or none".to_owned(),
            ),
            Provider::Google | Provider::Azure if has_no_key != (true, true) || !self.blob_region.is_empty() => {
                problems.push(format!(
                    "SVC_BLOB_STORE begins with {scheme}, and SVC_BLOB_ACCESS_KEY_ID, SVC_BLOB_SECRET_ACCESS_KEY and SVC_BLOB_REGION are for \
                     s3:// alone: leave them blank, and give the credentials by the {} variables that docs/operations.md names",
                    provider.variables()
                ));
            }
            Provider::Azure if !self.of_stores.contains_key("AZURE_STORAGE_ACCOUNT_NAME") => problems.push(format!(
                "SVC_BLOB_STORE begins with {scheme}, and AZURE_STORAGE_ACCOUNT_NAME is not set: name the storage account that has the container"
            )),
            Provider::S3 | Provider::Google | Provider::Azure => {}
        }
    }

    /// Checks what no setting can check alone.
    fn check(&self) -> Result<(), SettingsError> {
        let mut problems = Vec::new();
        if self.worker_lease < self.worker_heartbeat * 3 {
            problems.push(format!(
                "SVC_WORKER_LEASE_SECONDS is {}, less than 3 times SVC_WORKER_HEARTBEAT_SECONDS, which is {}: raise the lease or lower the heartbeat",
                self.worker_lease.as_secs_f64(),
                self.worker_heartbeat.as_secs_f64()
            ));
        }
        if self.console_listen == Some(self.listen) && self.listen.port() != 0 {
            problems.push(format!(
                "SVC_LISTEN and SVC_CONSOLE_LISTEN are both {}: give the console a port of its own",
                self.listen
            ));
        }
        let runners = [("SVC_RUNNER_URL", &self.runner_url), ("SVC_RUNNER_COMING_URL", &self.runner_coming_url)];
        if let Some((name, _)) = runners.iter().find(|(_, url)| !url.is_empty())
            && self.runner_key.is_blank()
        {
            problems.push(format!("SVC_RUNNER_KEY is blank, but {name} names a runner: set its key"));
        }
        self.check_addresses(&mut problems);
        self.check_blob_store(&mut problems);
        let precisions = [
            ("SVC_EMBEDDING_PRECISION", self.embedding_precision),
            ("SVC_EMBEDDING_COMING_PRECISION", self.embedding_coming_precision),
        ];
        for (name, precision) in precisions {
            let owners: &[Device] = match precision {
                None | Some(Precision::F32) => continue,
                Some(Precision::Bf16) => &[Device::Cpu, Device::Wgpu, Device::Cuda],
                Some(Precision::Int8) => &[Device::Cpu],
            };
            if let Some(precision) = precision.filter(|_| !owners.contains(&self.embedding_device)) {
                problems.push(format!(
                    "{name} is {precision}, which the device {} has not (SVC_EMBEDDING_DEVICE): take f32, or the device cpu",
                    self.embedding_device.name()
                ));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(SettingsError::Invalid(problems)) }
    }
}

/// Where this user keeps files.
struct Home {
    home: Option<PathBuf>,
    /// The folder of this program, if it is an unpacked release: models lie beside the program.
    release: Option<PathBuf>,
    xdg_data: Option<PathBuf>,
    /// The machine's name, which together with the process id makes a worker's name.
    host: String,
    is_root: bool,
}

impl Home {
    fn of(env: &BTreeMap<String, String>) -> Self {
        // Relative paths would depend on the working directory, and the XDG rules say to ignore them.
        let folder = |name: &str| env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let host = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| env.get("HOSTNAME").cloned());
        Self {
            home: folder("HOME"),
            release: bundled_models_dir().and_then(|models| models.parent().map(Path::to_owned)),
            xdg_data: folder("XDG_DATA_HOME"),
            host: host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty()).unwrap_or("host".to_owned()),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    fn cache_dir(&self) -> Option<PathBuf> {
        if let Some(release) = &self.release {
            return Some(release.clone());
        }
        self.home.as_ref().map(|home| home.join(".cache/svc"))
    }

    /// The folder of the PostgreSQL server: that of the cache folder, or that of the release if the cache folder has none.
    fn postgres(&self, cache_dir: &Path) -> PathBuf {
        let fetched = cache_dir.join("postgres");
        let brought = self.release.as_ref().map(|release| release.join("postgres"));
        brought.filter(|_| !fetched.join("bin/postgres").exists()).unwrap_or(fetched)
    }

    fn data_dir(&self) -> Option<PathBuf> {
        if let Some(data) = &self.xdg_data {
            return Some(data.join("svc"));
        }
        // The user that PostgreSQL runs as cannot enter root's home.
        if self.is_root {
            return Some(PathBuf::from("/var/lib/svc"));
        }
        self.home.as_ref().map(|home| home.join(".local/share/svc"))
    }
}
