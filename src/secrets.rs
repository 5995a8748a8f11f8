//! Keeps the secrets of a long-lived process where no other process can read them.
//!
//! The environment that a program was started with stays in its memory as long as it runs, and `/proc/<pid>/environ`
//! shows it to every process of the same user. Its arguments are shown to every user. So a process that finds secrets in its environment or its arguments
//! restarts itself without them, passes them on in a file without a name, and from then on lets nobody look into its memory.
use crate::settings::{STORE_SECRETS, Settings};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{DumpableBehavior, set_dumpable_behavior},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

/// Tells the restarted program where the secrets are; it is not a setting.
const HANDED_OVER: &str = "SVC_SECRETS_FD";
/// The setting that the argument [`TOKEN`] of a service gives.
const OWNER_TOKEN: &str = "SVC_API_TOKEN";
const TOKEN: &str = "--token";

/// The environment as text; what is not text cannot be a setting.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The environment of a long-lived process with its secrets, which nobody else can read afterwards. The process
/// restarts itself if necessary, so a program must call this first, before it has threads or files. An owner token of its arguments goes the same way.
///
/// # Errors
/// The program cannot be restarted, or what it received cannot be read.
pub fn withdrawn_environment(owner_token: Option<&str>) -> io::Result<BTreeMap<String, String>> {
    let mut environment = environment();
    if let Some(number) = environment.remove(HANDED_OVER) {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        environment.extend(taken_over(&number)?);
        return Ok(environment);
    }
    environment.extend(owner_token.map(|token| (OWNER_TOKEN.to_owned(), token.to_owned())));
    let is_secret =
        |name: &&String| Settings::secret_names().contains(&name.as_str()) || STORE_SECRETS.contains(&name.as_str());
    let names: Vec<String> = environment.keys().filter(is_secret).cloned().collect();
    if names.is_empty() {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        return Ok(environment);
    }
    let secrets: BTreeMap<_, _> = names.iter().map(|name| (name, &environment[name])).collect();
    // Starting a program does not close this file, which is its purpose.
    let mut file = File::from(memfd_create("svc-secrets", MemfdFlags::empty())?);
    file.write_all(&serde_json::to_vec(&secrets)?)?;
    let mut command = Command::new(std::env::current_exe()?);
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    match owner_token {
        Some(_) => command.args(without_token(arguments)),
        None => command.args(arguments),
    };
    command.env(HANDED_OVER, file.as_raw_fd().to_string());
    for name in &names {
        command.env_remove(name);
    }
    Err(command.exec())
}

/// Arguments that give a token, without it.
fn without_token(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        let rest = argument.as_encoded_bytes().strip_prefix(TOKEN.as_bytes());
        match rest.map(<[u8]>::first) {
            // The next one is its value.
            Some(None) => drop(arguments.next()),
            Some(Some(b'=')) => {}
            _ => kept.push(argument),
        }
    }
    kept
}

/// Reads the secrets from the file, which is then empty and closed, so that no child inherits them.
fn taken_over(number: &str) -> io::Result<BTreeMap<String, String>> {
    let damaged = |reason: &str| io::Error::other(format!("{HANDED_OVER} is not for you to set: {reason}"));
    let number: RawFd = number.parse().map_err(|_| damaged("it must be a descriptor"))?;
    if number < 3 {
        return Err(damaged("a standard stream holds no secrets"));
    }
    let mut file = File::options().read(true).write(true).open(format!("/proc/self/fd/{number}"))?;
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    file.set_len(0)?;
    nix::unistd::close(number)?;
    serde_json::from_slice(&text).map_err(|_| damaged("the file is not one that svc wrote"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_from_the_arguments_and_nothing_else_does() {
        for (given, kept) in [
            (&["--token", "x", "serve", "--config", "y"][..], &["serve", "--config", "y"][..]),
            (&["serve", "--config=y", "--token=x"], &["serve", "--config=y"]),
            (&["serve", "--token=", "--json"], &["serve", "--json"]),
            (&["--token", "x", "serve", "--token", "y"], &["serve"]),
            (&["serve", "--tokens", "x"], &["serve", "--tokens", "x"]),
        ] {
            assert_eq!(without_token(given.iter().map(OsString::from)), kept, "{given:?}");
        }
    }
}
