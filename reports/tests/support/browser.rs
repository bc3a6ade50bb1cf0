//! A headless browser, controlled through its debugging protocol: two pipes with JSON messages.
//!
//! # Sources
//! Chrome `DevTools` Protocol, <https://chromedevtools.github.io/devtools-protocol/>; `--remote-debugging-pipe` reads
//! from descriptor 3 and writes to descriptor 4, each message ended by a NUL.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A browser that does not answer for this long is stuck.
const PATIENCE: Duration = Duration::from_secs(120);
/// A browser that has not closed after this long is stuck.
const CLOSING: Duration = Duration::from_secs(10);
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    n_sent: u64,
    /// Errors in the page: exceptions, console errors, policy violations.
    pub(crate) errors: Vec<String>,
    /// The requests of the page, itself first.
    pub(crate) requests: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its processes write to the profile until it has closed: if killed, they would leave files behind.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let began = Instant::now();
        while self.from.recv_timeout(CLOSING.saturating_sub(began.elapsed())).is_ok() {}
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    let chosen = std::env::var_os("FPPROF_BROWSER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        || std::env::split_paths(&path).flat_map(|dir| PROGRAMS.map(|name| dir.join(name))).find(|file| file.is_file());
    chosen
        .or_else(found)
        .expect("these tests need chromium: install it, or name a browser of its kind in FPPROF_BROWSER")
}

impl Browser {
    /// Starts a browser with an empty page of this size.
    pub(crate) fn start(width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // The shell provides descriptors 3 and 4, which std cannot.
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"]).arg(program());
        command.args(["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--mute-audio"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).env("TMPDIR", profile.path());
        command.arg(format!("--window-size={width},{height}"));
        if is_root() {
            // Chromium refuses to run its sandbox as root.
            command.arg("--no-sandbox");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut messages = BufReader::new(out).split(0);
            while let Some(Ok(message)) = messages.next() {
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let (errors, requests) = (Vec::new(), Vec::new());
        let session = String::new();
        let mut browser = Self { child, to, from, session, n_sent: 0, errors, requests, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser
    }

    /// Opens a file and waits until its script has finished.
    pub(crate) fn open(&mut self, file: &Path) {
        self.navigate(file);
        let ready = "new Promise(done => { const look = () => \
                     document.documentElement?.dataset.ready ? done(true) : \
                     document.readyState === 'complete' ? done(document.documentElement.dataset.ready === 'yes') : \
                     setTimeout(look, 10); look(); })";
        assert_eq!(self.eval(ready), json!(true), "the script did not come to its end: {:?}", self.errors);
    }

    /// Opens a file without a script, and waits until it is loaded.
    pub(crate) fn open_without_script(&mut self, file: &Path) {
        self.navigate(file);
        let ready = "new Promise(done => { const look = () => \
                     document.readyState === 'complete' ? done(true) : setTimeout(look, 10); look(); })";
        assert_eq!(self.eval(ready), json!(true));
    }

    fn navigate(&mut self, file: &Path) {
        self.open_address(&format!("file://{}", file.display()));
    }

    /// Opens an address, without waiting for it.
    pub(crate) fn open_address(&mut self, address: &str) {
        self.requests.clear();
        let opened = self.call("Page.navigate", json!({ "url": address }));
        assert!(opened.get("errorText").is_none(), "{opened}");
    }

    /// Waits until an expression of the page is true.
    pub(crate) fn wait_for(&mut self, condition: &str) {
        let is_so = format!(
            "new Promise(done => {{ const ends = Date.now() + {ms}; const look = () => {{ \
             if ({condition}) done(true); else if (Date.now() > ends) done(false); else setTimeout(look, 10); }}; look(); }})",
            ms = PATIENCE.as_millis() / 2
        );
        assert_eq!(self.eval(&is_so), json!(true), "{condition}: {:?}", self.errors);
    }

    /// A picture of what the window shows, PNG in base64.
    pub(crate) fn picture(&mut self) -> String {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        picture["data"].as_str().unwrap().to_owned()
    }

    /// Emulates dark mode, light mode, or print.
    pub(crate) fn medium(&mut self, medium: &str, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": medium, "features": features }));
    }

    /// The value of an expression; promises are awaited.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Presses and releases a key such as `Enter`, `ArrowDown` or `a`.
    pub(crate) fn key(&mut self, key: &str) {
        let mut down = json!({ "type": "keyDown", "key": key, "code": key });
        if key.chars().count() == 1 {
            down["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "code": key }));
    }

    /// Types text where the focus is.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Clicks in the middle of the element that an expression returns.
    pub(crate) fn click(&mut self, element: &str) {
        let at = self.middle(element);
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": at.0, "y": at.1, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params);
        }
    }

    fn middle(&mut self, element: &str) -> (f64, f64) {
        let place = self.eval(&format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{block: 'center', inline: 'center'}}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ));
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.n_sent += 1;
        let mut message = json!({ "id": self.n_sent, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        let began = Instant::now();
        loop {
            let answer = self.from.recv_timeout(PATIENCE.saturating_sub(began.elapsed()));
            let answer = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == json!(self.n_sent) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.errors.push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" => self.errors.push(params.to_string()),
            "Log.entryAdded" => self.errors.push(params["entry"].to_string()),
            "Page.javascriptDialogOpening" => self.errors.push(format!("a dialog: {params}")),
            "Network.requestWillBeSent" => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }
}

/// The number of pixels by which a page is wider than a window of this width.
pub(crate) fn overflow(page: &str, width: u32) -> i64 {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    std::fs::write(&file, page).unwrap();
    let mut browser = Browser::start(width, 900);
    browser.open_without_script(&file);
    let overflow = browser.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    overflow.as_i64().unwrap()
}

/// Whether the tests run as root, by the owner of this process in /proc.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}
