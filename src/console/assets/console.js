// Live pages without a framework: the server says that there is news, this fetches the page's own address and morphs the page.
"use strict";
const root = document.documentElement;
let held = false, busy = false, again = false, row = -1, events = null;

async function refresh() {
  if (held || document.hidden || document.querySelector("dialog[open]")) return;
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Fragment": "page" }, redirect: "error" });
    // The sign-in page leads back to the page that is asked for.
    if (answer.status === 401) { location.reload(); return; }
    // A refusal has a page too: what is shown is not there any more. A service in trouble leaves the page as it was, which then says so.
    if (answer.status >= 500 || answer.status === 429) { root.classList.add("is-lost"); return; }
    if (!held) {
      const cursor = document.querySelector(".cur")?.closest("[id]")?.id;
      const notice = document.querySelector("#notice");
      // What a person opened, typed or focused stays; rows have ids, so that they move instead of changing their text.
      Idiomorph.morph(document.querySelector("#page"), await answer.text(), {
        morphStyle: "outerHTML", ignoreActiveValue: true,
        callbacks: {
          beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
          // A form that asks is the same whenever its page is read, so all that differs is what a person typed and chose.
          beforeNodeMorphed: (node) => !(node.tagName === "FORM" && node.getAttribute("method") === "get"),
          beforeNodeRemoved: (node) => node !== notice,
        },
      });
      if (cursor) document.getElementById(cursor)?.classList.add("cur");
      root.classList.remove("is-lost");
      if (isStill()) { events?.close(); root.classList.remove("is-live"); }
    }
  } catch { root.classList.add("is-lost"); } finally { busy = false; }
  if (again) { again = false; setTimeout(refresh, 250); }
}

// A text that is read does not move, so its page asks for no news.
const isStill = () => document.querySelector("#page").classList.contains("still");

function follow() {
  events?.close();
  if (isStill()) return;
  events = new EventSource("/live");
  events.addEventListener("changed", refresh);
  events.onopen = () => { root.classList.add("is-live"); root.classList.remove("is-lost"); };
  events.onerror = () => {
    root.classList.add("is-lost");
    // A refusal closes the stream for good: the page then asks now and then whether the console is back.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => { if (!document.hidden) { refresh(); follow(); } }, 5000);
  };
}

// Nobody looks at a hidden page, so it asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) events?.close(); else if (!isStill()) { follow(); refresh(); }
});
if (!document.hidden) follow();

const pages = { n: "/", a: "/actors", r: "/regions", t: "/tasks", f: "/failed", d: "/documents", w: "/workers", b: "/feed", v: "/view" };
let went = 0;

function move(by) {
  const rows = [...document.querySelectorAll("tbody tr, .tree summary, .tree .row, .region")];
  if (!rows.length) return;
  const at = rows.findIndex((each) => each.classList.contains("cur"));
  row = Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by));
  rows.forEach((each) => each.classList.remove("cur"));
  rows[row].classList.add("cur");
  (rows[row].matches("summary") ? rows[row] : rows[row].querySelector("a"))?.focus({ preventScroll: true });
  rows[row].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (document.querySelector("dialog[open]")) return;
  if (Date.now() - went < 1500 && pages[event.key]) { went = 0; location.assign(pages[event.key]); return; }
  went = 0;
  if (event.key === "g") went = Date.now();
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "/") { event.preventDefault(); document.querySelector("#find")?.focus(); }
  else if (event.key === "p") { held = !held; root.classList.toggle("is-held", held); if (!held) refresh(); }
  else if (event.key === "?") document.querySelector("#help")?.showModal();
});

document.addEventListener("submit", (event) => {
  const ask = event.target.dataset.confirm;
  if (ask && !window.confirm(ask)) event.preventDefault();
});

// Files are stored where they are dropped, or as soon as they are chosen; without a script there is a button. Files that come while others are sent
// are not taken, because a browser ends the sending of one form when it begins that of another.
const drop = document.querySelector("form.drop");
if (drop) {
  const files = drop.querySelector("input[type=file]");
  const isSending = () => root.classList.contains("is-sending");
  const send = () => { if (files.files.length && !isSending()) { root.classList.add("is-sending"); drop.requestSubmit(); } };
  const over = (is) => (event) => { if (!event.dataTransfer.types.includes("Files")) return; event.preventDefault(); drop.classList.toggle("over", is && !isSending()); };
  files.addEventListener("change", send);
  document.addEventListener("dragover", over(true));
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
  document.addEventListener("drop", (event) => { over(false)(event); if (event.dataTransfer.files.length && !isSending()) { files.files = event.dataTransfer.files; send(); } });
  // The way back may lead to the page as it was left.
  window.addEventListener("pageshow", (event) => { if (event.persisted) root.classList.remove("is-sending"); });
}
