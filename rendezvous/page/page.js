
"use strict";
/* The live page. Everything that the server tells comes from programs and machines, so it is only
 * ever written as text. The page asks its own server and nobody else. */
const WAITING = 0, STARTING = 1, RUNNING = 2, PARKED = 3, SUCCEEDED = 4, STOPPED = 5, FAILED = 6, NOBODY = 7;
/* What a running worker is drawn as when it stands out. */
const BEHIND = 8, QUIET = 9, NOT_PAINTED = 255;
const STATES = ["waiting", "starting", "running", "parked", "succeeded", "stopped", "failed", "not told"];
const KINDS = [...STATES, "behind by 2 steps or more", "silent"];
/* Below this a cell has no room for lines in a shape. */
const SMALL_CELL = 12;
const QUIET_S = 10, LAG_SHOWN = 2, ROWS_SHOWN = 200, LABELS_SHOWN = 64;
const at = (id) => document.getElementById(id);
const make = (tag, text, kind) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  return e;
};
const number = (n) => Math.round(n).toLocaleString("en-US");
const short = (n) => {
  if (n === null || n === undefined) return "-";
  const a = Math.abs(n);
  if (a >= 1e6) return (n / 1e6).toPrecision(3) + "M";
  if (a >= 1e4) return (n / 1e3).toPrecision(3) + "k";
  return a >= 100 || n === 0 ? String(Math.round(n)) : n.toPrecision(3);
};
const bytes = (n) => n >= 2 ** 30 ? (n / 2 ** 30).toPrecision(3) + " GiB" : Math.round(n / 2 ** 20) + " MiB";
const seconds = (s) => s < 60 ? s.toFixed(s < 10 ? 1 : 0) + " s"
  : s < 3600 ? Math.floor(s / 60) + " min " + Math.round(s % 60) + " s"
  : Math.floor(s / 3600) + " h " + Math.round(s % 3600 / 60) + " min";
const plural = (n, what) => number(n) + " " + what + (n === 1 ? "" : "s");

/* ---- what is known ---- */
let frame = null, nodes = [], points = [], seq = 0;
let ending = null; /* how the job has ended, when the store has told it */
let state = new Uint8Array(0), lag = new Int16Array(0), quiet = new Uint8Array(0);
let places = [], chosen = -1, shown = -1;

function resize(total) {
  if (total === state.length) return false;
  if (chosen >= total) chosen = -1;
  const grow = (Kind, old, fill) => {
    const bigger = new Kind(total).fill(fill);
    bigger.set(old.subarray(0, Math.min(old.length, total)));
    return bigger;
  };
  state = grow(Uint8Array, state, NOBODY);
  lag = grow(Int16Array, lag, 0);
  quiet = grow(Uint8Array, quiet, 0);
  return true;
}

/* Returns false when a frame is missing between the last one and this one. */
function take(next) {
  if (!next.whole && next.seq !== seq + 1) return false;
  seq = next.seq;
  if (frame && next.opened !== frame.opened) ending = null; /* another store at the same address */
  frame = next;
  let again = next.whole || resize(next.total);
  if (next.whole) resize(next.total);
  for (const run of next.cells)
    for (let i = run[0], end = run[0] + run[1]; i < end; i++) { state[i] = run[2]; lag[i] = run[3]; quiet[i] = run[4]; }
  if (next.nodes) { nodes = next.nodes; again = true; }
  points.length = Math.min(points.length, next.from);
  points.push(...next.points);
  if (again) { lay(); drawAll(); } else { drawCells(0, next.total); drawAlarms(); }
  return true;
}

/* ---- the grid ---- */
/* The grid is a picture in memory, in pixels of the screen. A cell is a copy of the sprite of its
 * kind, and one call brings all that has changed to the screen: calls to the canvas for each cell
 * would take longer than a frame with 10,000 workers. */
const grid = at("grid"), pen = grid.getContext("2d", { willReadFrequently: true });
let cell = 18, scale = 1, width = 0, colours = {}, labels = [];
let image = null, pixels = new Uint32Array(0), sprites = [];
let where = new Int32Array(0), cellX = new Int32Array(0), cellY = new Int32Array(0);
let painted = new Uint8Array(0); /* what each cell is drawn as */
let alarms = []; /* by machine, has it a worker that has failed or is silent? */

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["run", "lag", "bad", "good", "wait", "edge", "front", "faint", "back", "mark"])
    colours[name] = style.getPropertyValue("--" + name).trim();
}

/* Reading a width makes the browser lay out the page, so it happens only when the window changes. */
function readWidths() {
  scale = window.devicePixelRatio || 1;
  width = Math.max(at("grid-box").clientWidth, 200);
  readPlotWidths();
}

function readPlotWidths() { plots.forEach((plot) => { plot.width = plot.figure.clientWidth || 280; }); }

/* The machines of all jobs with the cells of each, in the order of ranks. */
function machines() {
  const list = [];
  (frame.jobs || []).forEach((job, j) => {
    let rank = 0;
    const own = nodes.filter((n) => n[0] === j && n[1] >= 0).sort((a, b) => a[1] - b[1]);
    for (const node of own) {
      const count = Math.min(node[5], job.cells - rank);
      if (count > 0 && node[4] !== "spare") {
        list.push({ job: j, number: job.number, host: node[2], address: node[3], state: node[4], rank, first: job.first_cell + rank, count });
        rank += count;
      }
    }
    if (rank < job.cells)
      list.push({ job: j, number: job.number, host: "?", address: "", state: "", rank, first: job.first_cell + rank, count: job.cells - rank });
  });
  return list;
}

/* Gives each worker its place. All lengths are in pixels of the screen. */
function lay() {
  const total = state.length, px = (n) => Math.round(n * scale), room = px(width);
  places = machines();
  cell = px(total <= 256 ? 20 : total <= 1024 ? 14 : total <= 4096 ? 9 : 7);
  const labelled = places.length <= LABELS_SHOWN, gap = labelled ? px(10) : Math.max(2, cell >> 2), head = labelled ? px(16) : 0;
  const fit = Math.max(1, Math.floor(room / cell));
  cellX = new Int32Array(total); cellY = new Int32Array(total);
  where = new Int32Array(total); painted = new Uint8Array(total); labels = [];
  let x = 0, y = 0, tall = 0;
  places.forEach((m, i) => {
    const per = Math.min(m.count, fit, !labelled ? fit : m.count > 64 ? Math.ceil(Math.sqrt(1.5 * m.count)) : 8);
    const w = Math.max(per * cell, labelled ? px(90) : 0), h = Math.ceil(m.count / per) * cell + head;
    if (x > 0 && x + w > room) { x = 0; y += tall + gap; tall = 0; }
    if (labelled) labels.push([m.host, x, y + px(11), w, px(16)]);
    for (let c = 0; c < m.count; c++) {
      cellX[m.first + c] = x + (c % per) * cell;
      cellY[m.first + c] = y + head + Math.floor(c / per) * cell;
      where[m.first + c] = i;
    }
    x += w + gap; tall = Math.max(tall, h);
  });
  grid.width = room; grid.height = y + tall + px(4);
  grid.style.width = grid.width / scale + "px"; grid.style.height = grid.height / scale + "px";
}

/* A cell says its state by colour and by shape. */
function kindOf(i) {
  const s = state[i];
  if (s !== RUNNING) return s;
  return quiet[i] > 0 ? QUIET : lag[i] >= LAG_SHOWN ? BEHIND : RUNNING;
}

function shape(g, kind) {
  const d = cell - (cell > 8 * scale ? Math.round(3 * scale) : 1);
  const path = (...p) => { g.beginPath(); p.forEach(([a, b], n) => n ? g.lineTo(a * d, b * d) : g.moveTo(a * d, b * d)); };
  const colour = { [RUNNING]: "run", [BEHIND]: "lag", [QUIET]: "bad", [FAILED]: "bad", [SUCCEEDED]: "good", [STARTING]: "run" }[kind] || "wait";
  g.fillStyle = colours.back;
  g.fillRect(0, 0, cell, cell);
  g.lineWidth = (cell > 8 * scale ? 2 : 1) * scale;
  g.fillStyle = g.strokeStyle = colours[colour];
  if (kind === RUNNING) g.fillRect(0, 0, d, d);
  else if (kind === BEHIND) { path([.5, 0], [1, 1], [0, 1]); g.fill(); }
  else if ((kind === QUIET || kind === FAILED) && cell < SMALL_CELL * scale) {
    /* All of the cell, so that one among thousands is seen; the hole tells the two apart. */
    g.fillRect(0, 0, cell, cell);
    if (kind === QUIET) { g.fillStyle = colours.back; g.fillRect(cell * .35, cell * .35, cell * .3, cell * .3); }
  }
  else if (kind === QUIET) g.strokeRect(scale, scale, d - 2 * scale, d - 2 * scale);
  else if (kind === FAILED) { path([0, 0], [1, 1]); g.stroke(); path([1, 0], [0, 1]); g.stroke(); }
  else if (kind === SUCCEEDED) { path([.5, 0], [1, .5], [.5, 1], [0, .5]); g.fill(); }
  else if (kind === STARTING) { path([0, 0], [1, .5], [0, 1]); g.fill(); }
  else if (kind === WAITING || kind === PARKED) { g.beginPath(); g.arc(d / 2, d / 2, d / 4, 0, 7); g.fill(); }
  else g.fillRect(0, d * .4, d, Math.max(1, d * .2));
}

/* The sprites of all kinds, and of all kinds when they are chosen. */
function makeSprites() {
  const canvas = make("canvas");
  canvas.width = canvas.height = cell;
  const g = canvas.getContext("2d", { willReadFrequently: true });
  sprites = [];
  for (let n = 0; n < 2 * KINDS.length; n++) {
    shape(g, n % KINDS.length);
    if (n >= KINDS.length) {
      g.strokeStyle = colours.mark; g.lineWidth = 2 * scale;
      g.strokeRect(scale, scale, cell - 2 * scale, cell - 2 * scale);
    }
    sprites.push(new Uint32Array(g.getImageData(0, 0, cell, cell).data.buffer));
  }
}

/* Copies the cells from `first` to `end` that look otherwise than they are painted, and brings the
 * box around them to the screen. Typed arrays in local names keep this fast. */
function drawCells(first, end) {
  const out = pixels, row = image.width, size = cell, xs = cellX, ys = cellY, was = painted, all = sprites, special = chosen;
  let left = row, top = image.height, right = 0, bottom = 0;
  for (let i = first; i < end; i++) {
    const kind = kindOf(i);
    if (was[i] === kind) continue;
    was[i] = kind;
    const sprite = all[i === special ? kind + KINDS.length : kind], x = xs[i], y = ys[i];
    for (let v = 0, to = y * row + x, from = 0; v < size; v++, to += row - size)
      for (let h = 0; h < size; h++) out[to++] = sprite[from++];
    if (x < left) left = x;
    if (x + size > right) right = x + size;
    if (y < top) top = y;
    if (y + size > bottom) bottom = y + size;
  }
  if (right > 0) pen.putImageData(image, 0, 0, left, top, right - left, bottom - top);
}

function drawCell(i) {
  painted[i] = NOT_PAINTED;
  drawCells(i, i + 1);
}

/* The name of a machine with a worker that has failed or is silent has another colour and a mark. */
function drawLabel(place) {
  const letter = 6 * scale, [name, x, y, w, tall] = labels[place], text = (alarms[place] ? "\u25B2 " : "") + name;
  pen.fillStyle = colours.back;
  pen.fillRect(x, y - Math.round(11 * scale), w, tall - 1);
  pen.fillStyle = alarms[place] ? colours.bad : colours.faint;
  pen.font = (alarms[place] ? "bold " : "") + 11 * scale + "px system-ui, sans-serif";
  pen.fillText(text.length * letter > w ? text.slice(0, Math.floor(w / letter)) + "\u2026" : text, x, y);
}

function drawAlarms() {
  const now = new Array(places.length).fill(false);
  for (let i = 0; i < state.length; i++) { const k = kindOf(i); if (k === FAILED || k === QUIET) now[where[i]] = true; }
  const changed = labels.map((_, n) => n).filter((n) => now[n] !== alarms[n]);
  alarms = now;
  if (changed.length === 0) return;
  changed.forEach(drawLabel);
  /* Later cells are copied from the picture in memory, which has to have the names, too. */
  for (const n of changed) {
    const [, x, y, w, tall] = labels[n], top = y - Math.round(11 * scale);
    const part = new Uint32Array(pen.getImageData(x, top, w, tall - 1).data.buffer);
    for (let v = 0; v < tall - 1; v++) pixels.set(part.subarray(v * w, v * w + Math.min(w, image.width - x)), (top + v) * image.width + x);
  }
}

function drawAll() {
  makeSprites();
  pen.fillStyle = colours.back;
  pen.fillRect(0, 0, grid.width, grid.height);
  labels.forEach((_, n) => drawLabel(n));
  legendKey = "";
  image = pen.getImageData(0, 0, grid.width, grid.height);
  pixels = new Uint32Array(image.data.buffer);
  painted.fill(NOT_PAINTED);
  drawCells(0, state.length);
  drawAlarms();
}

const rankOf = (i) => places[where[i]] ? places[where[i]].rank + i - places[where[i]].first : i;
const hostOf = (i) => places[where[i]] ? places[where[i]].host : "?";
const lagText = (i) => lag[i] > 0 ? plural(lag[i], "step") + " behind" : lag[i] < 0 ? plural(-lag[i], "step") + " ahead" : "";
const quietText = (i) => quiet[i] > 0 ? "silent for " + seconds(quiet[i] * QUIET_S) + " or more" : "";

function choose(i) {
  if (i < 0 || i >= state.length) return;
  const before = chosen;
  chosen = i;
  if (before >= 0 && before < state.length) drawCell(before);
  drawCell(i);
  at("chosen").textContent = ["rank " + rankOf(i) + " on " + hostOf(i), STATES[state[i]], lagText(i), quietText(i)].filter(Boolean).join(", ");
}

function neighbour(i, dx, dy) {
  if (dy === 0) return Math.min(Math.max(i + dx, 0), state.length - 1);
  let best = i, least = Infinity;
  for (let n = 0; n < state.length; n++) {
    const down = (cellY[n] - cellY[i]) * dy;
    const cost = down * 4 + Math.abs(cellX[n] - cellX[i]);
    if (down > 0 && cost < least) { least = cost; best = n; }
  }
  return best;
}

function nextOdd(i) {
  for (let n = 1; n <= state.length; n++) {
    const k = (i + n) % state.length;
    if (kindOf(k) !== RUNNING && state[k] !== SUCCEEDED) return k;
  }
  return i;
}

grid.addEventListener("keydown", (event) => {
  const i = Math.max(chosen, 0), moves = {
    ArrowRight: () => neighbour(i, chosen < 0 ? 0 : 1, 0), ArrowLeft: () => neighbour(i, -1, 0),
    ArrowDown: () => neighbour(i, 0, 1), ArrowUp: () => neighbour(i, 0, -1),
    Home: () => 0, End: () => state.length - 1, n: () => nextOdd(i), N: () => nextOdd(i),
  };
  if (event.ctrlKey || event.altKey || event.metaKey || state.length === 0) return;
  if (moves[event.key]) { choose(moves[event.key]()); event.preventDefault(); }
  else if (event.key === "Enter" && chosen >= 0) { showFacts(chosen).then(() => at("facts-head").focus()); event.preventDefault(); }
  else if (event.key === "Escape") hideFacts();
});
grid.addEventListener("click", (event) => {
  const box = grid.getBoundingClientRect(), x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
  for (let i = 0; i < state.length; i++)
    if (x >= cellX[i] && x < cellX[i] + cell && y >= cellY[i] && y < cellY[i] + cell) { choose(i); showFacts(i); return; }
});

/* ---- one worker ---- */
/* What stands for the job's token; it lives as long as this tab. */
let bearer = sessionStorage.getItem("ctrun") || "";

/* The answer, {} if there is none. */
function ask(path, method, key) {
  const headers = key || bearer ? { Authorization: "Bearer " + (key || bearer) } : {};
  return fetch(path, { method: method || "GET", headers }).then((r) => r.ok ? r.json() : {}).catch(() => ({}));
}

/* A link that ctrun has printed has a key that can be used once. */
function useLink() {
  const key = /^#key=([0-9a-f]{64})$/.exec(location.hash);
  if (!key) return;
  history.replaceState(null, "", location.pathname);
  ask("/page/session", "POST", key[1]).then((answer) => {
    if (answer.bearer) sessionStorage.setItem("ctrun", bearer = answer.bearer);
  });
}
useLink();
window.addEventListener("hashchange", useLink);

/* Characters that turn the text, or show nothing, so that one word looks like another (common/text.c). The server has
 * replaced them everywhere else. */
const HIDDEN = /[\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]/gu;

/* Asks the worker's machine for its last lines, or for its stack; "" if nobody tells. */
function askWorker(kind, job, rank) {
  return ask("/page/ask/" + kind + "/" + job + "/" + rank, "POST")
    .then((answer) => String(answer.text || answer.error || "").replace(HIDDEN, "?"));
}

/* Shows a text in an element, and hides the element without one. */
function showText(id, text) { at(id).textContent = text; at(id).hidden = text === ""; }

at("ask-stack").addEventListener("click", () => {
  const i = shown, place = places[where[i]];
  if (i < 0 || !place) return;
  showText("stack", "asking rank " + rankOf(i) + " ...");
  askWorker("stack", place.number, rankOf(i)).then((text) => {
    if (shown === i) showText("stack", text || "no answer");
  });
});

function hideFacts() {
  const inside = at("facts").contains(document.activeElement);
  shown = -1;
  at("facts").hidden = true;
  if (inside) grid.focus();
}
at("facts").addEventListener("keydown", (event) => { if (event.key === "Escape") hideFacts(); });
at("close-facts").addEventListener("click", hideFacts);

function fact(list, name, value) {
  if (value === null || value === undefined || value === "") return;
  list.append(make("dt", name), make("dd", String(value)));
}

function showFacts(i) {
  const place = places[where[i]];
  if (!place) return Promise.resolve();
  if (shown !== i) showText("stack", "");
  shown = i;
  const rank = rankOf(i), failure = [...(frame.jobs[place.job].failures || [])].reverse().find((f) => f.rank === rank);
  return ask("/page/rank/" + place.number + "/" + rank).then((answer) => {
    if (shown !== i) return;
    const list = at("facts-list"), w = answer.worker || {}, p = w.progress || {};
    list.replaceChildren();
    at("facts-head").textContent = "Rank " + rank;
    fact(list, "machine", place.host + (place.address ? " (" + place.address + ")" : ""));
    fact(list, "state", STATES[state[i]]);
    fact(list, "local rank", w.local_rank);
    fact(list, "process", w.pid || "");
    fact(list, "exit", w.exit);
    fact(list, "generation", w.restarts);
    fact(list, "phase", p.phase);
    fact(list, "step", p.step === undefined ? "" : number(p.step));
    fact(list, "against the median", lagText(i) || (p.step === undefined ? "" : "with it"));
    fact(list, "last word", p.age_s === undefined ? "" : seconds(p.age_s) + " ago");
    fact(list, "loss", p.loss === undefined ? "" : short(p.loss));
    fact(list, "samples/s", p.samples_per_s === undefined ? "" : short(p.samples_per_s));
    fact(list, "memory", w.rss_bytes ? bytes(w.rss_bytes) : "");
    if (failure) fact(list, "failure", failure.reason);
    const tail = answer.tail || [];
    showText("tail", tail.join("\n"));
    at("locked").hidden = !answer.locked;
    at("ask-stack").hidden = answer.locked || state[i] !== RUNNING;
    at("facts").hidden = false;
    if (tail.length === 0 && !answer.locked && state[i] !== NOBODY)
      askWorker("output", place.number, rank).then((text) => { if (shown === i) showText("tail", text); });
  });
}

/* ---- words ---- */
function verdict(job) {
  if (ending) return [(ending.outcome === "failed" ? "" : "the job ") + ending.text, ending.outcome === "succeeded" ? "good" : "bad"];
  if (!job) return ["no job has joined this store", ""];
  const first = (frame.about[3] || [])[0], rate = points.length ? points[points.length - 1][4] : null;
  if (job.state === "waiting") {
    const there = nodes.filter((n) => n[0] === 0).length, want = job.min_nodes;
    const who = (job.missing_nodes || []).join(", ");
    return ["waiting for " + Math.max(want - there, 0) + " of " + plural(want, "node") + (who ? ": " + who : ""), job.failure_count ? "bad" : ""];
  }
  if (job.state === "done")
    return first ? ["failed: " + first, "bad"] : ["the job has ended", "good"];
  if (first) return [first, "bad"];
  let running = 0, stuck = -1, ended = 0;
  for (let i = job.first_cell; i < job.first_cell + job.cells; i++) {
    running += state[i] === RUNNING;
    ended += state[i] === SUCCEEDED;
    if (state[i] === RUNNING && quiet[i] > 0 && (stuck < 0 || quiet[i] > quiet[stuck] || (quiet[i] === quiet[stuck] && lag[i] > lag[stuck]))) stuck = i;
  }
  if (stuck >= 0)
    return ["rank " + rankOf(stuck) + " on " + hostOf(stuck) + " has said nothing for " + seconds(quiet[stuck] * QUIET_S) + " or more" +
      (lag[stuck] > 0 ? ", " + lagText(stuck) : "") + (job.median_step >= 0 ? "; the median step is " + number(job.median_step) : ""), "bad"];
  if (ended === job.cells && ended > 0) return ["all " + plural(ended, "worker") + " have ended well", "good"];
  const step = job.median_step >= 0;
  return [(job.state === "running" ? (step ? "training" : "running") : job.state) + ", " + number(running) + " of " + plural(job.cells, "worker") +
    (step ? ", step " + number(job.median_step) : "") + (rate ? ", " + short(rate) + " samples/s" : ""), job.state === "running" ? "good" : ""];
}

/* A screen reader is told of another verdict, not of each step and second. */
let spoken = "";
function speak(text, kind) {
  const key = kind + text.replace(/(step (?:is )?)[\d,]+/g, "$1").replace(/[\d,.]+[kM]? (s|min|h|steps?|samples)\b/g, "$1");
  if (key !== spoken) { spoken = key; at("spoken").textContent = text; }
}

/* Each state that some worker has, with the shape that it is drawn as. */
let legendKey = "";
function legend() {
  const counts = new Uint32Array(KINDS.length);
  for (let i = 0; i < state.length; i++) counts[kindOf(i)]++;
  const key = counts.join() + cell;
  if (key === legendKey || sprites.length === 0) return;
  legendKey = key;
  at("legend").replaceChildren(...KINDS.map((name, kind) => {
    if (counts[kind] === 0) return null;
    const item = make("li"), picture = make("canvas");
    picture.width = picture.height = cell;
    picture.style.width = picture.style.height = Math.min(cell / scale, 14) + "px";
    picture.setAttribute("aria-hidden", "true");
    picture.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(sprites[kind].buffer.slice(0)), cell, cell), 0, 0);
    item.append(picture, number(counts[kind]) + " " + name);
    return item;
  }).filter(Boolean));
}

/* Who has come and who has not, while machines are awaited. */
function missing(job) {
  const names = job.missing_nodes || [], here = nodes.filter((n) => n[0] === 0);
  const unknown = job.state === "waiting" ? job.min_nodes - here.length - names.length : 0;
  const lines = [...names];
  if (unknown > 0) lines.push(plural(unknown, names.length ? "further machine" : "machine") + ", not known by name");
  at("missing-part").hidden = lines.length === 0;
  fill(at("missing"), lines);
  at("here").textContent = here.length ? "Here already: " + here.slice(0, LABELS_SHOWN).map((n) => n[2]).join(", ") + (here.length > LABELS_SHOWN ? ", ..." : "") : "";
}

function fill(list, lines, kind) {
  if (list.dataset.was === lines.join("\n")) return;
  list.dataset.was = lines.join("\n");
  list.replaceChildren(...lines.map((text) => make("li", text, kind)));
}

function words() {
  const job = (frame.jobs || [])[0], [text, kind] = verdict(job), head = at("verdict");
  if (head.textContent !== text) { head.textContent = text; head.className = kind; document.title = text.slice(0, 80) + " - ctrun"; }
  speak(text, kind);
  at("keys").hidden = at("table-part").hidden = state.length === 0;
  at("none").hidden = state.length > 0;
  if (!job) return;
  at("about").textContent = "job " + job.run_id + ", generation " + job.generation + ", " + job.restarts + " of " + plural(job.max_restarts, "restart") +
    " used, " + plural(job.failure_count, "failure") + ", " +
    (job.warm_wanted ? job.warm_ready + " of " + plural(job.warm_wanted, "spare") + " ready, " : "") + plural(nodes.length, "machine") + (frame.jobs.length > 1 ? ", the first of " + frame.jobs.length + " jobs" : "");
  legend();
  missing(job);
  if (at("table-part").open) table();
  story(job);
}

/* Equal neighbours of a machine are one row. */
function table() {
  const rows = [];
  for (let i = 0; i < state.length && rows.length < ROWS_SHOWN; ) {
    let end = i + 1;
    while (end < state.length && where[end] === where[i] && state[end] === state[i] && lag[end] === lag[i] && quiet[end] === quiet[i]) end++;
    const row = make("tr"), r = rankOf(i);
    row.append(make("td", end - i > 1 ? r + " to " + (r + end - i - 1) : String(r)), make("td", hostOf(i)), make("td", STATES[state[i]]),
      make("td", String(lag[i])), make("td", quiet[i] > 0 ? seconds(quiet[i] * QUIET_S) : ""));
    rows.push(row);
    i = end;
    if (rows.length === ROWS_SHOWN && i < state.length) {
      const more = make("tr"), text = make("td", "and " + plural(state.length - i, "further worker"));
      text.colSpan = 5;
      more.append(text);
      rows.push(more);
    }
  }
  at("table").replaceChildren(...rows);
}
at("table-part").addEventListener("toggle", () => frame && table());

function story(job) {
  const now = frame.opened + frame.t, rounds = job.rounds || [], key = JSON.stringify([rounds, job.failures]);
  const list = at("story"), spans = rounds.map((r) => (r.ended || now) - r.formed);
  const most = Math.max(1e-3, ...rounds.map((r, i) => r.waited_s + spans[i]));
  if (list.dataset.was !== key) {
    list.dataset.was = key;
    list.replaceChildren(...rounds.map((r) => {
      const item = make("li", ""), bar = make("div", undefined, "bar");
      bar.setAttribute("aria-hidden", "true");
      item.append(make("span", ""), bar);
      bar.append(make("span", undefined, "waited"), make("span"));
      for (const f of (job.failures || []).filter((f) => f.generation === r.generation))
        item.append(make("p", (f.rank >= 0 ? "rank " + f.rank + " on " + f.host : "machine " + f.host) + ": " + f.reason, "bad"));
      return item;
    }));
  }
  rounds.forEach((r, i) => {
    const item = list.children[i], text = "generation " + r.generation + ": " + plural(r.world_size, "worker") + " on " + plural(r.nodes, "machine") +
      ", waited " + seconds(r.waited_s) + " for its machines, " + (r.ended ? "ran " : "has run for ") + seconds(Math.max(spans[i], 0)) + (r.ended && r.why ? ", ended: " + r.why : "");
    if (item.firstChild.textContent !== text) item.firstChild.textContent = text;
    const bar = item.children[1].children;
    bar[0].style.width = 100 * r.waited_s / most + "%";
    bar[1].style.width = 100 * Math.max(spans[i], 0) / most + "%";
  });
}

/* ---- curves ---- */
const RUNNING_COLUMN = 6;
const CURVES = [["loss", 3, (v) => short(v)], ["samples/s", 4, (v) => short(v)], ["share of workers in a collective", 5, (v) => (100 * v).toFixed(0) + " %"], ["running workers", RUNNING_COLUMN, (v) => number(v)],
  ["memory of a worker, the mean", 8, (v) => bytes(v * 2 ** 20)], ["memory of the largest worker", 9, (v) => bytes(v * 2 ** 20)]];
const plots = CURVES.map(([name]) => {
  const figure = make("figure"), canvas = make("canvas"), caption = make("figcaption", name);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Curve of " + name);
  figure.append(caption, canvas);
  figure.hidden = true;
  at("curves").append(figure);
  return { figure, canvas, caption, width: 280 };
});

function curve(index) {
  const [name, column, text] = CURVES[index], { figure, canvas, caption, width } = plots[index], height = 124;
  if (figure.hidden) return;
  const g = canvas.getContext("2d");
  const w = Math.round(width * scale), h = Math.round(height * scale);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w; canvas.height = h; canvas.style.width = width + "px"; canvas.style.height = height + "px";
  }
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, width, height);
  const known = points.filter((p) => p[column] !== null), label = name + ": " + text(known[known.length - 1][column]);
  if (caption.textContent !== label) { caption.textContent = label; canvas.setAttribute("aria-label", "Curve of " + label); }
  const from = points.length ? points[0][0] : 0, span = Math.max((points.length ? points[points.length - 1][0] : 1) - from, 1e-3);
  const top = known.reduce((m, p) => Math.max(m, p[column]), 0) || 1, low = Math.min(0, known.reduce((m, p) => Math.min(m, p[column]), 0));
  const floor = height - 14; /* below it are the times */
  const px = (t) => (t - from) / span * (width - 2) + 1, py = (v) => floor - 3 - (v - low) / (top - low) * (floor - 18);
  g.strokeStyle = colours.edge; g.lineWidth = 1; g.strokeRect(.5, .5, width - 1, floor - 1);
  g.fillStyle = colours.faint; g.font = "10px system-ui, sans-serif"; g.fillText(text(top), 4, 11);
  g.fillText(seconds(span) + " ago", 1, height - 3); g.textAlign = "right"; g.fillText("now", width - 1, height - 3); g.textAlign = "left";
  for (let i = 1; i < points.length; i++) if (points[i][1] !== points[i - 1][1]) mark(g, px(points[i][0]), floor, colours.mark, [3, 3]);
  for (const f of ((frame.jobs || [])[0] || {}).failures || []) { const t = f.time - frame.opened; if (t >= from && t <= from + span) mark(g, px(t), floor, colours.bad, []); }
  g.strokeStyle = colours.run; g.lineWidth = 1.5; g.beginPath();
  let down = false;
  for (const p of points) {
    if (p[column] === null) { down = false; continue; }
    if (down) g.lineTo(px(p[0]), py(p[column])); else g.moveTo(px(p[0]), py(p[column]));
    down = true;
  }
  g.stroke();
}

function drawCurves() {
  const job = (frame.jobs || [])[0] || {}, told = points.some((p) => p[3] !== null || p[4] !== null), marks = [];
  let others = false;
  CURVES.forEach(([, column], i) => { /* one of which nobody has told anything is left out */
    const none = !points.some((p) => p[column] !== null && (column !== RUNNING_COLUMN || p[column] > 0));
    others = others || none !== plots[i].figure.hidden;
    plots[i].figure.hidden = none;
  });
  at("curves-part").hidden = plots.every((plot) => plot.figure.hidden);
  if (others) readPlotWidths();
  for (let i = 0; i < CURVES.length; i++) curve(i);
  if (points.some((p, i) => i > 0 && p[1] !== points[i - 1][1])) marks.push("dashed lines: a new generation begins");
  if ((job.failures || []).some((f) => f.time - frame.opened >= (points[0] || [0])[0])) marks.push("red lines: a failure");
  const text = [told || job.state === "waiting" || !points.length ? "" : "No worker tells a step or a loss: ctw_progress() does, and so does train.", marks.join("; ")]
    .filter(Boolean).join(" ");
  if (at("curves-note").textContent !== text) at("curves-note").textContent = text;
}

function mark(g, x, height, colour, dash) {
  g.save(); g.strokeStyle = colour; g.setLineDash(dash); g.beginPath(); g.moveTo(x, 0); g.lineTo(x, height); g.stroke(); g.restore();
}

/* ---- the line to the server ---- */
/* How long updates took, for tests and for those who wonder. */
const ctrunPage = { updates: 0, lastMs: 0, worstMs: 0 };
window.ctrunPage = ctrunPage;

function update(text) {
  const begin = performance.now();
  if (!take(JSON.parse(text))) return false;
  words();
  drawCurves();
  ctrunPage.lastMs = performance.now() - begin;
  ctrunPage.worstMs = ctrunPage.updates > 0 ? Math.max(ctrunPage.worstMs, ctrunPage.lastMs) : 0;
  ctrunPage.updates++;
  return true;
}

function line(text) { if (at("line").textContent !== text) at("line").textContent = text; }
/* The store cannot be reached. If the job has ended, its port is anybody's now, and nobody asks there again. */
function gone() { line((ending ? "the store has ended with the job" : "the store does not answer") + "; this is the last that is known"); }
let failures = 0, source = null;

function poll() {
  let again = true;
  fetch("/page/data").then((r) => { if (!r.ok) throw new Error(String(r.status)); return r.text(); })
    .then((text) => { ending = JSON.parse(text).end || ending; update(text); line("asked every 2 s"); })
    .catch(() => { again = !ending; gone(); })
    .finally(() => { if (again) setTimeout(poll, 2000); });
}

function listen() {
  source = new EventSource("/page/events");
  source.onopen = () => { failures = 0; line("live"); };
  source.onmessage = (event) => { if (!update(event.data)) { source.close(); setTimeout(listen, 200); } };
  source.addEventListener("end", (event) => { ending = JSON.parse(event.data); if (frame) words(); });
  source.onerror = () => {
    gone();
    source.close();
    if (ending) return;
    if (++failures >= 3 && seq === 0) poll(); else setTimeout(listen, Math.min(1000 * 2 ** Math.min(failures, 4), 10000));
  };
}

/* Everything is drawn anew, after the window or the colours have changed. */
function redraw() {
  readColours();
  readWidths();
  if (frame) { lay(); drawAll(); drawCurves(); }
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
/* The place of the grid changes with the window, and when the facts of a worker are shown. */
new ResizeObserver(() => { if (at("grid-box").clientWidth !== width) redraw(); }).observe(at("grid-box"));
redraw();
listen();
