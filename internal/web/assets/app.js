// The dashboard's script: what is live, the keyboard, the theme. Every page
// can be read without it.
"use strict";
(() => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  root.classList.add("scripted");

  // Theme: the system's setting, light, or dark.
  const themes = ["system", "light", "dark"];
  const kept = () => { try { return localStorage.getItem("theme") || "system"; } catch { return "system"; } };
  const wear = (theme) => {
    if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
    const button = $("theme");
    if (!button) return;
    button.lastChild.textContent = "\u00a0" + theme;
    button.setAttribute("aria-label", "Theme: " + theme);
  };
  wear(kept());

  // Times: relative ones move, exact ones are in the viewer's zone.
  const pad = (n) => String(n).padStart(2, "0");
  const took = (ms) => {
    const s = Math.floor(Math.max(0, ms) / 1000);
    if (s < 60) return s + "s";
    if (s < 3600) return Math.floor(s / 60) + "m " + pad(s % 60) + "s";
    if (s < 86400) return Math.floor(s / 3600) + "h " + pad(Math.floor(s % 3600 / 60)) + "m";
    return Math.floor(s / 86400) + "d " + Math.floor(s % 86400 / 3600) + "h";
  };
  const ago = (ms) => {
    const s = Math.floor(Math.max(0, ms) / 1000);
    if (s < 60) return s + "s";
    if (s < 3600) return Math.floor(s / 60) + "m";
    if (s < 86400) return Math.floor(s / 3600) + "h";
    return Math.floor(s / 86400) + "d";
  };
  const clock = (d) => {
    const time = pad(d.getHours()) + ":" + pad(d.getMinutes()) + ":" + pad(d.getSeconds());
    const today = new Date().toDateString() === d.toDateString();
    return today ? time : d.getFullYear() + "-" + pad(d.getMonth() + 1) + "-" + pad(d.getDate()) + " " + time;
  };
  const set = (el, text) => { if (el.textContent !== text) el.textContent = text; };
  const exact = (el) => { if (!el.title) el.title = new Date(el.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" }); };
  const tick = () => {
    const now = Date.now();
    for (const el of document.querySelectorAll("time[data-age]")) { set(el, ago(now - Date.parse(el.dateTime))); exact(el); }
    for (const el of document.querySelectorAll("time[data-clock]")) { set(el, clock(new Date(el.dateTime))); exact(el); }
    for (const el of document.querySelectorAll("span[data-since]")) set(el, took(now - Date.parse(el.dataset.since)));
    for (const el of document.querySelectorAll("progress[data-since]")) el.value = (now - Date.parse(el.dataset.since)) / 1000;
  };

  // parse makes nodes of HTML that the server rendered and escaped.
  const parse = (html) => {
    const t = document.createElement("template");
    t.innerHTML = html;
    return t.content;
  };

  // Stream is an EventSource that closes while nobody looks, comes back where
  // it was, and says when it has lost the server.
  class Stream {
    constructor(url, handlers) {
      this.url = url; this.handlers = handlers; this.last = ""; this.lost = null; this.wait = 1000; this.over = false; this.paused = false;
      document.addEventListener("visibilitychange", () => this.turn());
      addEventListener("pagehide", () => this.close());
      addEventListener("pageshow", () => this.turn());
      this.turn();
    }
    turn() {
      if (document.hidden || this.over || this.paused) this.close();
      else if (!this.source) this.open();
    }
    close() { clearTimeout(this.timer); if (this.source) this.source.close(); this.source = null; }
    open() {
      const url = new URL(this.url, location.href);
      if (this.last) url.searchParams.set("after", this.last);
      const source = this.source = new EventSource(url);
      source.onopen = () => { this.lost = null; this.wait = 1000; this.tell(); };
      source.onerror = () => {
        this.lost = this.lost || new Date();
        this.tell();
        if (source.readyState !== EventSource.CLOSED) return;
        this.close();
        this.timer = setTimeout(() => this.turn(), this.wait);
        this.wait = Math.min(this.wait * 2, 15000);
      };
      for (const name in this.handlers) {
        source.addEventListener(name, (e) => { if (e.lastEventId) this.last = e.lastEventId; this.handlers[name](e.data, e.lastEventId); });
      }
    }
    tell() { if ($("conn")) set($("conn"), this.lost ? "connection lost since " + clock(this.lost) + ", trying again" : ""); }
    pause(on) { this.paused = on; this.turn(); }
    end() { this.over = true; this.close(); }
  }

  // bare is an element's HTML without what the clock and the reader change.
  const bare = (el) => {
    const copy = el.cloneNode(true);
    for (const d of copy.querySelectorAll("details")) d.open = false;
    for (const t of copy.querySelectorAll("[data-since], [data-clock]")) { t.textContent = ""; t.removeAttribute("title"); t.removeAttribute("value"); }
    return copy.outerHTML;
  };

  // swap puts new in the place of old where they differ, and keeps open what
  // was opened there.
  const swap = (old, fresh) => {
    if (bare(old) === bare(fresh)) return;
    const open = new Map();
    for (const d of old.querySelectorAll("details[data-k]")) open.set(d.dataset.k, d.open);
    for (const d of fresh.querySelectorAll("details[data-k]")) if (open.has(d.dataset.k)) d.open = open.get(d.dataset.k);
    old.replaceWith(fresh);
  };

  function list(table) {
    const rows = $("rows"), button = $("gathered"), waiting = new Map();
    const paged = "paged" in table.dataset;
    let settled = rows.children.length > 0 || !document.querySelector(".empty");
    const show = () => {
      button.hidden = waiting.size === 0;
      set(button, waiting.size + " new");
    };
    const insert = () => {
      const fresh = [...waiting.values()].sort((a, b) => a.dataset.at < b.dataset.at ? 1 : -1);
      rows.prepend(...fresh);
      waiting.clear();
      table.hidden = false;
      const empty = document.querySelector(".empty");
      if (empty) empty.remove();
      show();
      tick();
    };
    button.addEventListener("click", () => { insert(); scrollTo({ top: 0 }); });
    new Stream(table.dataset.live, {
      rows: (html) => {
        for (const row of [...parse(html).children]) {
          const old = $(row.id);
          if (old) {
            const focused = old.contains(document.activeElement);
            old.replaceWith(row);
            if (focused) row.querySelector("a").focus({ preventScroll: true });
          } else if (!paged) waiting.set(row.id, row);
        }
        // A page that had nothing has nothing that could jump.
        if (!settled && waiting.size) { settled = true; insert(); } else show();
        tick();
      },
      chips: (html) => { const old = $("chips"); if (old && !old.contains(document.activeElement)) swap(old, parse(html).firstElementChild); },
      gone: (id) => { waiting.delete("r-" + id); const row = $("r-" + id); if (row) row.classList.add("gone"); show(); },
    });
  }

  function run(log) {
    const MAX = 2000, TRIM = 100; // events kept, and how many more go at once
    const PART = 50;              // articles that are laid out, skipped and dropped together
    const FRAME = 24;             // milliseconds that a frame should take, with layout and paint
    const follow = $("follow"), queue = [], live = new Map();
    const url = log.dataset.url;
    let following = false, busy = false, stream = null, lastY = scrollY, over = false;
    let behind = 0;   // articles that wait, at most
    let dropped = ""; // the newest event that is not in the page any more
    let most = 48;    // things that a frame may do

    const end = $("end");
    const atEnd = () => { const y = end.getBoundingClientRect().bottom; return y <= innerHeight + 48 && y > 0; };
    const toEnd = () => { end.scrollIntoView({ block: "end", behavior: "instant" }); lastY = scrollY; };
    const showFollow = () => { follow.hidden = following || over; };
    addEventListener("scroll", () => {
      // Only the reader moves up; what grows below, or is dropped above, does not.
      const now = atEnd() || (following && scrollY >= lastY - 1);
      lastY = scrollY;
      if (now === following) return;
      following = now;
      showFollow();
      if (following) goOn();
    }, { passive: true });
    follow.addEventListener("click", () => { following = true; showFollow(); toEnd(); goOn(); });
    const goOn = () => { if (stream && stream.paused) { stream.pause(false); later(); } };

    // place puts one article where it belongs. What was there already is
    // brought up to date; its sub-agent's part stays.
    const place = (article) => {
      const old = $(article.id);
      if (old && old.classList.contains("ev")) {
        const own = article.firstElementChild, was = old.firstElementChild;
        const open = was.querySelector("details"), next = own.querySelector("details");
        if (open && next && open.open) next.open = true;
        was.replaceWith(own);
        old.className = article.className;
        return;
      }
      const parent = article.dataset.in && $(article.dataset.in);
      const sub = parent && parent.querySelector(":scope > .sub");
      settle(article);
      (sub || tail()).append(article);
    };
    const tail = () => {
      let part = log.lastElementChild;
      if (!part || !part.classList.contains("part") || part.childElementCount >= PART) {
        part = document.createElement("div");
        part.className = "part";
        log.append(part);
      }
      return part;
    };
    // settle removes the live text that an article says for good.
    const settle = (article) => {
      const type = article.classList.contains("k-text") ? "text" : article.classList.contains("k-thinking") ? "thinking" : "";
      if (!type) return;
      for (const [key, el] of live) {
        if (el.dataset.type === type && el.dataset.in === (article.dataset.in || "")) { el.remove(); live.delete(key); break; }
      }
    };
    // gone takes note that events up to this one are not in the page any more.
    const gone = (id) => { if (!dropped || newer(id, dropped)) dropped = id; };
    const newer = (a, b) => { const [x, y] = [a, b].map((id) => id.split(".").map(Number)); return x[0] - y[0] || x[1] - y[1]; };
    const trim = () => {
      let extra = log.getElementsByClassName("ev").length - MAX;
      if (extra <= 0) return;
      if (!following) { if (extra > TRIM && stream) stream.pause(true); return; }
      extra += TRIM;
      const drop = (el) => {
        for (const ev of [el, ...el.getElementsByClassName("ev")]) if (ev.id.startsWith("e")) { gone(ev.id.slice(1)); extra--; }
        el.remove();
      };
      for (const part of [...log.getElementsByClassName("part")]) {
        // Of the last part, which is still written, only what must go.
        for (const el of part === log.lastElementChild ? [...part.children] : [part]) if (extra > 0) drop(el);
      }
      offer();
    };
    // skip leaves out what would be dropped before anybody could read it.
    const skip = () => {
      if (!following || behind <= 2 * MAX) return;
      for (const part of [...log.getElementsByClassName("part")]) part.remove();
      live.clear();
      while (behind > MAX - TRIM) {
        const item = queue.shift();
        if (!item.html) continue;
        behind -= item.n;
        gone(item.id);
      }
      offer();
    };
    // offer leads to what was dropped.
    const offer = () => {
      if (!dropped) return;
      let older = $("older");
      if (!older) {
        log.prepend(parse('<p class="older"><a id="older">load earlier</a></p>'));
        older = $("older");
      }
      const [attempt, cursor] = dropped.split(".");
      older.dataset.before = attempt + "." + (Number(cursor) + 1);
      older.href = url + "?before=" + older.dataset.before;
    };
    // unpack makes articles of what came together. Of a call that began and
    // ended meanwhile the last word is enough.
    const unpack = (item) => {
      behind -= item.n;
      const newest = new Map([...parse(item.html).children].map((article) => [article.id, article]));
      queue.unshift(...[...newest.values()].map((article) => () => place(article)));
    };
    // drain does a part of what is queued. How much a frame can take is
    // learned from what the one before has cost in the end.
    const drain = () => {
      const began = performance.now();
      skip();
      for (let n = 0; queue.length && n < most && performance.now() - began < FRAME / 4; n++) {
        const item = queue.shift();
        if (item.html) unpack(item); else item();
      }
      trim();
      if ($("nothing") && log.querySelector(".ev")) $("nothing").remove();
      setTimeout(() => { // when this frame is on the screen
        most = performance.now() - began > FRAME ? Math.max(24, most / 2) : Math.min(256, most * 1.25);
        busy = false;
        if (queue.length && !stream.paused) later();
      });
    };
    const later = () => { if (!busy) { busy = true; requestAnimationFrame(drain); } };

    const delta = (d) => {
      const key = d.type + " " + d.in + " " + d.block;
      let el = live.get(key);
      if (!el) {
        el = document.createElement("article");
        el.className = "ev live k-" + d.type;
        el.dataset.type = d.type; el.dataset.in = d.in;
        el.append(document.createElement("div"));
        el.firstChild.className = "own";
        el.firstChild.append(document.createElement("div"));
        el.firstChild.firstChild.className = d.type === "text" ? "prose" : "mut";
        live.set(key, el);
        const parent = d.in && $(d.in);
        ((parent && parent.querySelector(":scope > .sub")) || tail()).append(el);
      }
      el.firstChild.firstChild.append(d.text);
    };

    new ResizeObserver(() => { if (following) toEnd(); }).observe(log);

    if (log.dataset.live) {
      stream = new Stream(log.dataset.live, {
        html: (html, id) => {
          const n = html.split("<article").length - 1;
          if (n) { queue.push({ html, id, n }); behind += n; later(); }
        },
        delta: (data) => { const d = JSON.parse(data); queue.push(() => delta(d)); later(); },
        facts: (html) => {
          for (const part of [...parse(html).children]) {
            const old = $(part.id);
            if (old) swap(old, part);
            if (part.dataset.title) document.title = part.dataset.title + " · tallyman";
          }
          tick();
        },
        end: () => { stream.end(); queue.push(() => { over = true; showFollow(); for (const el of live.values()) el.remove(); live.clear(); }); later(); },
      });
      over = !!document.querySelector("#f-head .s-succeeded, #f-head .s-failed, #f-head .s-stopped");
      if (!location.hash && !over) { following = true; requestAnimationFrame(toEnd); }
      showFollow();
    }

    document.addEventListener("click", async (e) => {
      const older = e.target.closest("#older"), all = e.target.closest("a[data-all]");
      if (!older && !all || e.metaKey || e.ctrlKey) return;
      e.preventDefault();
      const a = older || all;
      if (a.getAttribute("aria-busy")) return;
      a.setAttribute("aria-busy", "true");
      try {
        const answer = await fetch(older ? url + "/events?before=" + a.dataset.before : a.href);
        if (!answer.ok) throw new Error(answer.statusText);
        const text = await answer.text();
        if (all) return showAll(a, text);
        const height = root.scrollHeight - scrollY;
        const part = parse(text);
        for (const el of [...part.querySelectorAll(".ev")]) if ($(el.id)) el.remove();
        a.parentElement.replaceWith(part);
        scrollTo({ top: root.scrollHeight - height, behavior: "instant" });
        tick();
      } catch (err) {
        a.removeAttribute("aria-busy");
        set(a, "not loaded (" + err.message + "), try again");
      }
    });
    const showAll = (a, text) => {
      let pre = a.previousElementSibling;
      if (!pre || pre.tagName !== "PRE") {
        pre = document.createElement("pre");
        if (pre !== a.previousElementSibling && a.previousElementSibling) a.previousElementSibling.replaceWith(pre);
      }
      pre.textContent = text;
      a.remove();
    };
  }

  function form(el) {
    const code = el.querySelector(".cmd code"), from = el.querySelector("[data-from]");
    const quote = (s) => /^[\w./:@=,+-]+$/.test(s) ? s : "'" + s.replaceAll("'", "'\\''") + "'";
    const write = () => {
      const agent = el.elements.agent.value, prompt = el.elements.prompt.value, model = el.elements.model.value;
      if (from) {
        set(code, "tallyman rerun " + quote(from.dataset.from) + (model ? " --set model=" + quote(model) : "") + " --set prompt=" + quote(prompt));
      } else {
        set(code, "tallyman run " + quote(agent) + (model ? " --model " + quote(model) : "") + " " + quote(prompt || "PROMPT"));
      }
    };
    el.addEventListener("input", write);
    el.addEventListener("submit", () => { const b = el.querySelector(".go"); setTimeout(() => { b.disabled = true; }); });
    addEventListener("pageshow", () => { el.querySelector(".go").disabled = false; });
    write();
  }

  function keyboard() {
    let g = 0;
    const links = () => [...document.querySelectorAll("#rows .nm a")];
    const move = (by) => {
      const all = links();
      if (!all.length) return;
      const at = all.indexOf(document.activeElement);
      const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
      next.focus({ preventScroll: true });
      next.closest("tr").scrollIntoView({ block: "nearest" });
    };
    const go = (path) => { location.href = document.body.dataset.base + path; };
    document.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
      const typing = e.target.closest("input, textarea, select");
      if (typing) { if (e.key === "Escape") typing.blur(); return; }
      const second = Date.now() - g < 1000;
      g = 0;
      if (second && e.key === "r") return go("/runs");
      if (second && e.key === "q") return go("/runs?state=queued");
      if (second && e.key === "n") return go("/new");
      switch (e.key) {
        case "g": g = Date.now(); break;
        case "j": move(1); break;
        case "k": move(-1); break;
        case "?": $("keys").showModal(); break;
        case "/": if ($("search")) { e.preventDefault(); $("search").focus(); $("search").select(); } else go("/runs"); break;
      }
    });
  }

  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return; } catch { /* not a secure context */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };

  document.addEventListener("DOMContentLoaded", () => {
    wear(kept());
    $("theme").addEventListener("click", () => {
      const next = themes[(themes.indexOf(kept()) + 1) % themes.length];
      try { localStorage.setItem("theme", next); } catch { /* it lasts for this page */ }
      wear(next);
    });
    $("help").addEventListener("click", () => $("keys").showModal());
    document.addEventListener("click", async (e) => {
      const b = e.target.closest("[data-copy]");
      if (!b) return;
      await copy(b.textContent);
      b.classList.add("copied");
      setTimeout(() => b.classList.remove("copied"), 1500);
    });
    document.addEventListener("mouseover", (e) => { // when it was said
      const at = e.target.closest(".own > .at");
      if (at && !at.title) at.title = new Date(at.dataset.t).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    });
    const filter = document.querySelector(".filter select");
    if (filter) filter.addEventListener("change", () => filter.form.submit());
    if (document.querySelector("table.runs")) list(document.querySelector("table.runs"));
    if ($("log")) run($("log"));
    if ($("new")) form($("new"));
    keyboard();
    tick();
    setInterval(() => { if (!document.hidden) tick(); }, 1000);
  });
})();
