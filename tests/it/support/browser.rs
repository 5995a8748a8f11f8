//! A browser over its debugging pipe: JSON with NUL between. It needs no driver and no crate.
use super::PATIENCE;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Instant,
};

/// A browser of this machine, or the one that `config/setup.sh browser` fetched.
pub struct Program {
    program: PathBuf,
    /// Where its libraries lie, if the system's are not enough.
    libraries: Option<PathBuf>,
    /// axe-core, which finds what keeps people from using a page.
    pub axe: Option<String>,
}

impl Program {
    pub fn find() -> Option<Program> {
        let fetched = super::settings(&[]).cache_dir.join("browser");
        let axe = std::fs::read_to_string(fetched.join("axe.min.js")).ok();
        let named = std::env::var_os("SVC_TEST_BROWSER").map(PathBuf::from);
        let installed = || {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let names = ["chromium-headless-shell", "chromium", "google-chrome"];
            let all: Vec<PathBuf> =
                std::env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name))).collect();
            all.into_iter().find(|path| path.is_file())
        };
        if let Some(program) = named.or_else(installed) {
            return Some(Program { program, libraries: None, axe });
        }
        let program = fetched.join("chromium");
        program.is_file().then(|| Program { program, libraries: Some(fetched.join("lib")), axe })
    }
}

pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    session: String,
    events: Vec<Value>,
}

impl Browser {
    pub fn start(program: &Program, profile: &Path) -> Browser {
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>&2";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&program.program);
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--no-proxy-server",
            "--remote-debugging-pipe",
            "--window-size=1440,900",
        ];
        command.args(flags).arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        if let Some(libraries) = &program.libraries {
            command.env("LD_LIBRARY_PATH", libraries).env("FONTCONFIG_PATH", libraries.parent().unwrap());
        }
        command.env("HOME", profile).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the browser starts");
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            loop {
                let mut message = Vec::new();
                if out.read_until(0, &mut message).unwrap_or(0) == 0 {
                    return;
                }
                message.pop();
                let message = serde_json::from_slice(&message).expect("JSON of the browser");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser { child, to, from, next: 0, session: String::new(), events: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    fn receive(&mut self) -> Value {
        self.from.recv_timeout(PATIENCE).expect("the browser answers")
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// The result of a call, or the error that the browser answers with.
    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let got = self.receive();
            if got["id"] == json!(id) {
                return match got.get("error") {
                    None => Ok(got["result"].clone()),
                    Some(error) => Err(error.clone()),
                };
            }
            self.events.push(got);
        }
    }

    /// Waits for an event that comes after the last call of this or of [`Browser::go`].
    fn until_event(&mut self, event: &str) {
        let is_it = |got: &Value| got["method"] == event;
        if let Some(at) = self.events.iter().position(is_it) {
            self.events.remove(at);
            return;
        }
        loop {
            let got = self.receive();
            if is_it(&got) {
                return;
            }
            self.events.push(got);
        }
    }

    /// Opens a page, and waits until it is loaded.
    pub fn go(&mut self, address: &str) {
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        self.call("Page.navigate", json!({"url": address}));
        self.until_event("Page.loadEventFired");
    }

    /// Does something that leads to another page, and waits until that is loaded.
    pub fn leave(&mut self, act: impl FnOnce(&mut Browser)) {
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        act(self);
        self.until_event("Page.loadEventFired");
    }

    /// The value of an expression.
    pub fn value(&mut self, expression: &str) -> Value {
        self.try_value(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    fn try_value(&mut self, expression: &str) -> Result<Value, Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.try_call("Runtime.evaluate", params)?;
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        Ok(result["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let looking = format!(
            "new Promise(done => {{
                 const look = () => ({expression}) ? done(true) : setTimeout(look, 20);
                 setTimeout(() => done(false), 1000);
                 look();
             }})"
        );
        let begun = Instant::now();
        // A page that goes takes its promise with it, and then the next page is asked.
        while self.try_value(&looking) != Ok(json!(true)) {
            assert!(
                begun.elapsed() < PATIENCE,
                "waited in vain for {expression}: {}",
                self.value("document.body.innerText")
            );
        }
    }

    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { key } else { "" };
            self.call("Input.dispatchKeyEvent", json!({"type": kind, "key": key, "text": text}));
        }
    }

    /// Presses the tabulator, which leads to what comes next.
    pub fn tab(&mut self) {
        for kind in ["rawKeyDown", "keyUp"] {
            self.call(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}),
            );
        }
    }

    pub fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    pub fn size(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Chooses the colours of the system.
    pub fn colours(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Accepts the question that the page asks, or is about to ask.
    pub fn accept(&mut self) {
        self.until_event("Page.javascriptDialogOpening");
        self.call("Page.handleJavaScriptDialog", json!({"accept": true}));
    }

    /// Sends a call whose answer comes only after the page's question is answered.
    pub fn click_and_accept(&mut self, expression: &str) {
        let click = format!("setTimeout(() => ({expression}).click(), 0); 1");
        self.leave(|browser| {
            browser.value(&click);
            browser.accept();
        });
    }

    /// The page as a PNG in base64.
    pub fn picture(&mut self) -> String {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        picture["data"].as_str().unwrap().to_owned()
    }

    /// What the browser refused or complained of, such as by the page's policy.
    pub fn complaints(&self) -> Vec<String> {
        let is_one =
            |event: &&Value| event["method"] == "Log.entryAdded" || event["method"] == "Runtime.exceptionThrown";
        self.events.iter().filter(is_one).map(|event| event["params"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
