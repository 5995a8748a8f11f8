//! A RabbitMQ for the tests of the bulk feed: one for the whole run, and others for those who hurt it.
use super::repository;
use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueBindOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};
use rand::RngExt;
use serde_json::Value;
use std::{
    net::{SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// A broker that this process started. It ends when this process does, in whatever way.
pub struct Broker {
    pub address: SocketAddr,
    folder: PathBuf,
    /// Ends the broker when its pipe closes.
    watchdog: Child,
}

impl Broker {
    /// Starts a broker; `None` if this machine has none, which is said.
    pub fn start() -> Option<Broker> {
        Broker::prepared(|_| ())
    }

    /// Starts a broker in a folder that was prepared for it.
    pub fn prepared(prepare: impl FnOnce(&Path)) -> Option<Broker> {
        let found = Command::new(repository().join("config/broker.sh")).arg("find").stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            super::missing("a test of the bulk feed (no message broker here: config/setup.sh broker)");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("svc-broker-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (folder, port) = (std::env::temp_dir().join(name), free_ports());
        std::fs::create_dir_all(&folder).unwrap();
        prepare(&folder);
        let watchdog = run(&folder, port);
        let broker = Broker { address: SocketAddr::from(([127, 0, 0, 1], port)), folder, watchdog };
        broker.wait();
        Some(broker)
    }

    /// Where its data are, and what it was given.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Kills the broker, as a crash does, and starts it again with what it had written.
    pub fn crash(&mut self) {
        let id = std::fs::read_to_string(self.folder.join("pid")).unwrap();
        let killed = Command::new("kill").args(["-9", id.trim()]).status().unwrap();
        assert!(killed.success());
        let keep = self.folder.join("keep");
        std::fs::write(&keep, "").unwrap();
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        std::fs::remove_file(keep).unwrap();
        self.watchdog = run(&self.folder, self.address.port());
        self.wait();
    }

    /// Waits until it speaks AMQP: its port is open before that.
    fn wait(&self) {
        let address = self.address;
        let speaks = move || {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(address).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
            stream.write_all(b"AMQP\0\0\x09\x01").ok()?;
            stream.read_exact(&mut [0; 8]).ok()
        };
        let begun = std::time::Instant::now();
        while speaks().is_none() {
            assert!(begun.elapsed() < super::PATIENCE, "the broker does not start");
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Runs a broker under a shell that ends it, and the name server that it leaves behind, when the shell's input closes, and removes the folder
/// unless it is to be kept.
fn run(folder: &Path, port: u16) -> Child {
    let script = format!(
        "'{program}' run '{folder}' {port} >'{folder}/out' 2>&1 </dev/null & broker=$!
         cat >/dev/null; kill -TERM $(cat '{folder}/pid') $broker 2>/dev/null; wait $broker; '{program}' end {port} >/dev/null 2>&1
         [ -e '{folder}/keep' ] || rm -rf '{folder}'",
        program = repository().join("config/broker.sh").display(),
        folder = folder.display(),
    );
    Command::new("bash")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What ends the tests and all that they started must not end this.
        .process_group(0)
        .spawn()
        .unwrap()
}

/// The first of four ports in a row that nobody listens on.
fn free_ports() -> u16 {
    static GIVEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut given = GIVEN.lock().unwrap();
    let mut random = rand::rng();
    loop {
        let first: u16 = random.random_range(20_000..32_000);
        // Who was given some may not listen yet.
        let is_apart = given.iter().all(|other| first.abs_diff(*other) >= 4);
        if is_apart && (first..first + 4).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            given.push(first);
            return first;
        }
    }
}

/// The address of the broker that the tests of this run share; `None` if there is none, which is said.
pub async fn shared() -> Option<String> {
    static SHARED: OnceLock<Option<Broker>> = OnceLock::new();
    if let Ok(url) = std::env::var("SVC_TEST_AMQP_URL") {
        return Some(url);
    }
    let broker = tokio::task::spawn_blocking(|| SHARED.get_or_init(Broker::start).as_ref()).await.unwrap();
    broker.map(|broker| url(broker.address))
}

/// The address of a broker for its first user.
pub fn url(address: SocketAddr) -> String {
    format!("amqp://guest:guest@{address}/%2f")
}

/// Where the broker of an address listens.
pub fn address(url: &str) -> SocketAddr {
    let lapin::uri::AMQPUri { authority, .. } = url.parse().unwrap();
    SocketAddr::new(authority.host.parse().unwrap(), authority.port)
}

/// A prefix of its own for each test.
pub fn prefix() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("it.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A producer, which also reads what became of its messages.
pub struct Producer {
    pub channel: Channel,
    pub prefix: String,
    _connection: Connection,
    outcomes: Consumer,
}

impl Producer {
    /// Connects once the feed has made its exchanges.
    pub async fn connect(url: &str, prefix: &str) -> Producer {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        super::until("the exchanges of the feed", async || {
            let channel = connection.create_channel().await.unwrap();
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(format!("{prefix}.dead").into(), passive, FieldTable::default()).await.ok()?;
            // The bindings are made last.
            let bound =
                channel.queue_declare(format!("{prefix}.upload").into(), passive, FieldTable::default()).await.ok()?;
            (bound.consumer_count() > 0).then_some(())
        })
        .await;
        Producer::on(connection, prefix).await
    }

    /// Connects while no service has to be there any more.
    pub async fn connect_to_queues(url: &str, prefix: &str) -> Producer {
        Producer::on(Connection::connect(url, ConnectionProperties::default()).await.unwrap(), prefix).await
    }

    async fn on(connection: Connection, prefix: &str) -> Producer {
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let own = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let queue = channel.queue_declare("".into(), own, FieldTable::default()).await.unwrap();
        let (name, events) = (queue.name().clone(), format!("{prefix}.events"));
        let (options, table) = (QueueBindOptions::default(), FieldTable::default());
        channel.queue_bind(name.clone(), events.into(), "result.#".into(), options, table).await.unwrap();
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let outcomes = channel.basic_consume(name, "".into(), options, FieldTable::default()).await.unwrap();
        Producer { channel, prefix: prefix.to_owned(), _connection: connection, outcomes }
    }

    /// Publishes a message and returns when the broker has it.
    pub async fn publish(&self, properties: BasicProperties, body: &[u8]) {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let exchange = self.prefix.as_str().into();
        let published = self.channel.basic_publish(exchange, "upload.file".into(), options, body, properties);
        assert_eq!(published.await.unwrap().await.unwrap(), Confirmation::Ack(None));
    }

    /// Makes a queue that gets what is told with keys of this pattern, and that outlasts the broker.
    pub async fn listen(&self, queue: &str, keys: &[&str]) {
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut quorum = FieldTable::default();
        quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        self.channel.queue_declare(queue.into(), durable, quorum).await.unwrap();
        for key in keys {
            let (events, table) = (format!("{}.events", self.prefix), FieldTable::default());
            self.channel
                .queue_bind(queue.into(), events.into(), (*key).into(), QueueBindOptions::default(), table)
                .await
                .unwrap();
        }
    }

    /// The next outcome, and its mark.
    pub async fn outcome(&mut self) -> (Value, Option<String>) {
        let next = tokio::time::timeout(super::PATIENCE, self.outcomes.next()).await;
        let Delivery { data, properties, .. } = next.expect("an outcome").unwrap().unwrap();
        let mark = properties.correlation_id().as_ref().map(|mark| mark.as_str().to_owned());
        (serde_json::from_slice(&data).unwrap(), mark)
    }

    /// How many messages lie in a queue of the feed.
    pub async fn depth(&self, part: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let name = format!("{}.{part}", self.prefix);
        self.channel.queue_declare(name.into(), passive, FieldTable::default()).await.unwrap().message_count()
    }

    /// Takes a message out of a queue.
    pub async fn get(&self, queue: &str) -> Option<Delivery> {
        let got = self.channel.basic_get(queue.into(), Default::default()).await.unwrap()?;
        got.delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
        Some(got.delivery)
    }

    /// Removes the queues and exchanges of the feed, which has ended.
    pub async fn clear(self) {
        let retries = ["5s", "1m", "10m", "100ms", "200ms", "300ms"].map(|time| format!("retry.{time}"));
        for part in ["upload", "dead"].into_iter().chain(retries.iter().map(String::as_str)) {
            let name = format!("{}.{part}", self.prefix);
            self.channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.unwrap();
        }
        for part in ["", ".dlx", ".events"] {
            self.channel.exchange_delete(format!("{}{part}", self.prefix).into(), Default::default()).await.unwrap();
        }
    }
}
