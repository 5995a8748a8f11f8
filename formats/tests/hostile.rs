//! Runs a hostile program in the reader's place, behind the real walls, and checks that each of its attempts fails.
//!
//! The test is its own child: started with `--serve`, it is the service's hidden subcommand except for what it does
//! once it is confined. As root the test runs a second time as a plain user, whose child has no other user to become.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod child;

use memmap2::{MmapMut, MmapOptions};
use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        ptrace,
        resource::{Resource, setrlimit},
        signal::{Signal, kill},
        uio::{RemoteIoVec, process_vm_readv},
    },
    unistd::{Pid, setuid},
};
use std::{
    collections::BTreeMap,
    error::Error,
    fs::{self, File},
    io::{BufRead, BufReader, IoSliceMut, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
};
use svc_formats::{
    FormatError, Limits,
    isolated::{Confinement, Input, Policy, Request, Step, serve},
};

type Attempt = fn(&Prey) -> Result<(), Box<dyn Error>>;

fn of<T, E: Into<Box<dyn Error>>>(outcome: Result<T, E>) -> Result<(), Box<dyn Error>> {
    outcome.map(drop).map_err(Into::into)
}

/// What the hostile program attacks.
struct Prey {
    parent: Pid,
    api: String,
    database: PathBuf,
    file: PathBuf,
}

impl Prey {
    fn of_arguments() -> Self {
        let mut arguments = std::env::args().skip(2);
        let mut next = || arguments.next().expect("the parent says what to go for");
        let (parent, api, database, file) = (next(), next(), next(), next());
        let parent = Pid::from_raw(parent.parse().expect("a process id"));
        Self { parent, api, database: database.into(), file: file.into() }
    }
}

/// Each would succeed outside the walls, for root and for the service's user alike, unless it is listed in
/// [`ONLY_CONFINED`].
const ATTEMPTS: &[(&str, Attempt)] = &[
    ("read the parent's environment", |prey| of(fs::read(format!("/proc/{}/environ", prey.parent)))),
    ("open the parent's memory", |prey| of(File::open(format!("/proc/{}/mem", prey.parent)))),
    ("read the parent's memory", |prey| {
        let (mut byte, place) = ([0], ATTEMPTS.as_ptr() as usize);
        let read =
            process_vm_readv(prey.parent, &mut [IoSliceMut::new(&mut byte)], &[RemoteIoVec { base: place, len: 1 }]);
        // At another address of the parent there may be nothing.
        match read {
            Err(nix::Error::EFAULT) => Ok(()),
            other => of(other),
        }
    }),
    ("read /etc/passwd", |_| of(fs::read("/etc/passwd"))),
    ("look at a file's size", |prey| of(fs::metadata(&prey.file))),
    ("list a folder", |_| of(fs::read_dir("/tmp"))),
    ("write a file", |prey| of(fs::write(prey.file.with_extension("written"), "x"))),
    ("make a folder", |prey| of(fs::create_dir(prey.file.with_extension("folder")))),
    ("rename a file", |prey| of(fs::rename(&prey.file, prey.file.with_extension("renamed")))),
    ("remove a file", |prey| of(fs::remove_file(prey.file.with_extension("renamed")))),
    ("change the folder", |_| of(std::env::set_current_dir("/"))),
    ("connect to the API", |prey| of(TcpStream::connect(&prey.api))),
    ("connect to the database", |prey| of(UnixStream::connect(&prey.database))),
    ("listen", |_| of(TcpListener::bind("127.0.0.1:0"))),
    ("open a datagram socket", |_| of(UdpSocket::bind("127.0.0.1:0"))),
    ("make a pair of sockets", |_| of(UnixStream::pair())),
    ("trace the parent", |prey| of(ptrace::attach(prey.parent))),
    ("signal the parent", |prey| of(kill(prey.parent, Signal::SIGCONT))),
    ("start a process", |_| of(Command::new("/bin/true").status())),
    ("become a shell", |_| Err(Command::new("/bin/sh").args(["-c", "exit 0"]).exec().into())),
    ("start a thread", |_| of(thread::Builder::new().spawn(|| ()))),
    ("raise the limit of descriptors", |_| of(setrlimit(Resource::RLIMIT_NOFILE, 64, 64))),
    ("copy a descriptor", |_| of(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned())),
    ("make a file without a name", |_| of(memfd_create(c"hostile", MFdFlags::empty()))),
    ("make a pipe", |_| of(std::io::pipe())),
    ("make code of data", |_| of(MmapMut::map_anon(4096).and_then(MmapMut::make_exec))),
    ("map the file", |_| of(MmapOptions::new().len(1).map_raw_read_only(&std::io::stdin()))),
    ("have a dump written", |_| of(nix::sys::prctl::set_dumpable(true))),
    ("outlive the parent", |_| of(nix::sys::prctl::set_pdeathsig(None))),
    ("have other rights", |_| of(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER))),
    ("be root", |_| of(setuid(0.into()))),
];

/// Attempts that end or stop somebody if they succeed, or that depend on who makes them.
const ONLY_CONFINED: [&str; 6] = [
    "trace the parent",
    "become a shell",
    "map the file",
    "have other rights",
    "be root",
    "raise the limit of descriptors",
];

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("--serve") => return serve(hostile),
        Some("--scribble") => return serve(scribble),
        Some("--unconfined") => {
            attempt_all();
            return ExitCode::SUCCESS;
        }
        Some("--as-user") => {
            a_hostile_program_gets_nowhere();
            return ExitCode::SUCCESS;
        }
        Some("--list") => {
            println!("hostile: test");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    a_hostile_program_gets_nowhere();
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 65_534;
        let user = Command::new("/proc/self/exe").arg("--as-user").uid(NOBODY).gid(NOBODY).status().unwrap();
        assert!(user.success(), "as a plain user");
    }
    println!("hostile ... ok");
    ExitCode::SUCCESS
}

/// Waits until the parent has looked at it, then tries everything.
fn hostile(_: &Request, mut input: Input, _: &mut svc_formats::isolated::Emit<'_>) -> Result<(), FormatError> {
    eprintln!("confined");
    input.file.read_exact(&mut [0])?;
    attempt_all();
    Ok(())
}

fn attempt_all() {
    let prey = Prey::of_arguments();
    let confined = std::env::args().nth(1).as_deref() == Some("--serve");
    for (name, attempt) in ATTEMPTS {
        if confined || !ONLY_CONFINED.contains(name) {
            let outcome = attempt(&prey).map_or_else(|error| error.to_string(), |()| "done".to_owned());
            eprintln!("{name}: {outcome}");
        }
    }
}

/// Writes to the file that it was given to read.
fn scribble(_: &Request, mut input: Input, _: &mut svc_formats::isolated::Emit<'_>) -> Result<(), FormatError> {
    Ok(input.file.write_all(b"scribbled")?)
}

fn a_hostile_program_gets_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let api = TcpListener::bind("127.0.0.1:0").unwrap();
    let _database = UnixListener::bind(folder.path().join("database")).unwrap();
    fs::set_permissions(folder.path().join("database"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(folder.path().join("prey"), "prey").unwrap();
    let arguments = |mode: &str| {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let api = api.local_addr().unwrap().to_string();
        [mode.to_owned(), std::process::id().to_string(), api, path("database"), path("prey")]
    };

    // Without the walls everything succeeds; otherwise the test would show nothing.
    let free = Command::new("/proc/self/exe").args(arguments("--unconfined")).output().unwrap();
    let free = String::from_utf8_lossy(&free.stderr);
    let outcomes = outcomes(&free);
    for (name, _) in ATTEMPTS.iter().filter(|(name, _)| !ONLY_CONFINED.contains(name)) {
        assert_eq!(outcomes[*name], "done", "{name}, unconfined");
    }
    for made in ["written", "folder"] {
        let path = folder.path().join("prey").with_extension(made);
        assert!(fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).is_ok(), "{made}");
    }
    fs::write(folder.path().join("prey"), "prey").unwrap();

    // This is a descriptor that the service itself was started with.
    let stray = File::open(folder.path().join("prey")).unwrap();
    rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
    let (input, mut go) = std::io::pipe().unwrap();
    let arguments = arguments("--serve");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let request = Request::new(Step::Probe, Limits::default());
    let mut started = child::start(&arguments, &request, Confinement::default(), input);
    let mut errors = BufReader::new(started.child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert_eq!(line, "confined\n");
    is_confined(started.child.id());
    go.write_all(b"!").unwrap();
    let mut text = String::new();
    errors.read_to_string(&mut text).unwrap();
    let outcome = started.finish();
    assert_eq!(outcome.exit.code, Some(0), "{text}");
    assert!(outcome.end.is_ok(), "{:?}", outcome.end);
    assert_eq!(outcome.lacking.iter().filter(|wall| !wall.starts_with("landlock")).count(), 0, "{:?}", outcome.lacking);
    let outcomes = self::outcomes(&text);
    for (name, _) in ATTEMPTS {
        let outcome = outcomes.get(*name).unwrap_or_else(|| panic!("{name} was not tried: {text}"));
        assert!(outcome.contains("EPERM") || outcome.contains("Operation not permitted"), "{name}: {outcome}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("prey")).unwrap(), "prey");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing was made");
    the_file_stays_as_it_is(folder.path());
}

fn outcomes(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once(": ")).collect()
}

/// Checks what the kernel says of a child that is about to read.
fn is_confined(child: u32) {
    let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(field("Seccomp:"), ["2"], "a filter");
    if rustix::process::geteuid().is_root() {
        let user = Confinement::USER.to_string();
        assert_eq!(field("Uid:"), [user.as_str(); 4]);
        assert_eq!(field("Gid:"), [user.as_str(); 4]);
        assert!(field("Groups:").is_empty());
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
        assert_eq!(field("CapPrm:"), ["0000000000000000"]);
        let open: Vec<_> = fs::read_dir(format!("/proc/{child}/fd")).unwrap().map(|fd| fd.unwrap()).collect();
        // These are the standard ones, a copy of two of them, and its own status.
        assert_eq!(open.len(), 6, "{open:?}");
    } else {
        let environment = fs::read(format!("/proc/{child}/environ"));
        assert!(environment.is_err(), "another process of the same user reads nothing of a reader");
    }
}

fn the_file_stays_as_it_is(folder: &Path) {
    let path = folder.join("prey");
    let input = File::options().read(true).write(true).open(&path).unwrap();
    let request = Request::new(Step::Probe, Limits::default());
    let confinement = Confinement { policy: Policy::BestEffort, ..Confinement::default() };
    let outcome = child::start(&["--scribble"], &request, confinement, input).finish();
    // It ends by a signal, or by an error if the parent of the test ignores that signal.
    assert!(outcome.end.is_err(), "{:?}", outcome.exit);
    assert_eq!(fs::read_to_string(&path).unwrap(), "prey");
}
