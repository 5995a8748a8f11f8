//! A TCP proxy, before PostgreSQL or a service, that can cut, swallow and delay.
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
};

/// What happens to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// Connections are reset and new ones refused.
    Cut,
    /// Everything is accepted and nothing is passed on, as behind a firewall that drops packets.
    Blackhole,
    /// Each piece is passed on after this delay.
    Slow(Duration),
}

/// Where the server listens.
#[derive(Clone)]
enum Server {
    Socket(PathBuf),
    Port(SocketAddr),
}

/// The beginning of everything that the clients have sent, piece by piece.
type Heard = Arc<Mutex<Vec<String>>>;

/// What the server hears instead of what a client says.
type Rewritten = Option<(&'static [u8], &'static [u8])>;

/// Listens on its own port and connects to the server.
pub struct Proxy {
    pub address: SocketAddr,
    weather: Arc<watch::Sender<Weather>>,
    server: Arc<Mutex<Server>>,
    heard: Heard,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(socket: PathBuf) -> Proxy {
        Proxy::start_on("127.0.0.1", socket).await
    }

    pub async fn start_on(address: &str, socket: PathBuf) -> Proxy {
        Proxy::before(address, Server::Socket(socket), None).await
    }

    /// A proxy before a service.
    pub async fn of_service(service: SocketAddr) -> Proxy {
        Proxy::before("127.0.0.1", Server::Port(service), None).await
    }

    /// A proxy before a server that hears `to` where clients say `from`, which is as long.
    pub async fn rewriting(server: SocketAddr, from: &'static [u8], to: &'static [u8]) -> Proxy {
        assert_eq!(from.len(), to.len());
        Proxy::before("127.0.0.1", Server::Port(server), Some((from, to))).await
    }

    /// The same before PostgreSQL.
    pub async fn rewriting_on(socket: PathBuf, from: &'static [u8], to: &'static [u8]) -> Proxy {
        assert_eq!(from.len(), to.len());
        Proxy::before("127.0.0.1", Server::Socket(socket), Some((from, to))).await
    }

    async fn before(address: &str, server: Server, rewritten: Rewritten) -> Proxy {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let weather = Arc::new(watch::Sender::new(Weather::Fair));
        let (changes, heard) = (weather.clone(), Heard::default());
        let hears = heard.clone();
        let server = Arc::new(Mutex::new(server));
        let leads_to = server.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                if *changes.borrow() == Weather::Cut {
                    continue;
                }
                let server = leads_to.lock().unwrap().clone();
                tokio::spawn(connect(client, server, changes.subscribe(), hears.clone(), rewritten));
            }
        });
        Proxy { address, weather, server, heard, accepting }
    }

    /// Whether it carries any connection.
    pub fn is_carrying(&self) -> bool {
        self.weather.receiver_count() > 0
    }

    /// Whether a client has sent something that begins so.
    pub fn has_heard(&self, beginning: &str) -> bool {
        self.times_heard(beginning) > 0
    }

    /// How many pieces that begin so clients have sent.
    pub fn times_heard(&self, beginning: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|piece| piece.starts_with(beginning)).count()
    }

    /// Connects those who come from now on to another server.
    pub fn lead_to(&self, socket: PathBuf) {
        *self.server.lock().unwrap() = Server::Socket(socket);
    }

    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn connect(
    client: TcpStream,
    server: Server,
    weather: watch::Receiver<Weather>,
    heard: Heard,
    rewritten: Rewritten,
) {
    match server {
        Server::Socket(path) => {
            if let Ok(server) = UnixStream::connect(path).await {
                carry(client, server, weather, heard, rewritten).await;
            }
        }
        Server::Port(address) => {
            if let Ok(server) = TcpStream::connect(address).await {
                carry(client, server, weather, heard, rewritten).await;
            }
        }
    }
}

async fn carry(
    mut client: TcpStream,
    server: impl AsyncRead + AsyncWrite,
    weather: watch::Receiver<Weather>,
    heard: Heard,
    rewritten: Rewritten,
) {
    let hear = |piece: &[u8]| {
        heard.lock().unwrap().push(String::from_utf8_lossy(&piece[..piece.len().min(40)]).into_owned());
    };
    let mut cut = weather.clone();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    tokio::select! {
        _ = cut.wait_for(|weather| *weather == Weather::Cut) => {}
        () = pump(&mut from_client, &mut to_server, weather.clone(), rewritten, hear) => {}
        () = pump(&mut from_server, &mut to_client, weather, None, |_| {}) => {}
    }
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut weather: watch::Receiver<Weather>,
    rewritten: Rewritten,
    hear: impl Fn(&[u8]),
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let Ok(read) = from.read(&mut bytes).await else { return };
        hear(&bytes[..read]);
        if let Some((from, to)) = rewritten {
            let found: Vec<usize> = memchr::memmem::find_iter(&bytes[..read], from).collect();
            found.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
        }
        let now = *weather.borrow_and_update();
        match now {
            Weather::Blackhole => {
                // The bytes are held back, not lost: TCP would send them again once the way is open.
                match weather.wait_for(|weather| *weather != Weather::Blackhole).await.as_deref() {
                    Ok(Weather::Cut) | Err(_) => return,
                    Ok(_) => {}
                }
            }
            Weather::Slow(delay) => tokio::time::sleep(delay).await,
            Weather::Fair | Weather::Cut => {}
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
