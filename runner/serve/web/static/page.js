// The page: it follows /api/events and keeps the document as the state is. All text from outside becomes text nodes.

const state = {runs: {}, incidents: {}, proposals: {}, nodes: {}, head: null, about: {}};
const session = {role: "viewer", name: "", check: ""};
const MAX_CLOSED = 8, MAX_UNUSUAL = 30, MAX_ENDED = 5, MAX_WIDE_CELLS = 400, REFETCH_MS = 20_000;
const RESTARTED_STATES = ["running", "stop_requested"];
const HEALTH_ORDER = ["out", "notice", "passing", "ok"];
const $ = (id) => document.getElementById(id);

// ---- building blocks ------------------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Make the children of `parent` those of `keys`, in this order; each is made once and brought up to date when its data changed.
function reconcile(parent, keys, data, make, update) {
  parent.known ??= new Map();
  const gone = new Set(parent.known.keys());
  let place = parent.firstElementChild;
  for (const key of keys) {
    gone.delete(key);
    let child = parent.known.get(key);
    if (!child) parent.known.set(key, (child = make(key)));
    if (child.data !== data[key]) update(child, (child.data = data[key]), key);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const key of gone) {
    parent.known.get(key).remove();
    parent.known.delete(key);
  }
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function figure(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}

// Local time, as the command line writes it.
function clock(seconds) {
  const moment = new Date(seconds * 1000), two = (number) => String(number).padStart(2, "0");
  const date = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  return `${date} ${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
}

const TONES = {
  running: ["good", "●"], active: ["good", "●"], finished: ["good", "✓"], resolved: ["good", "✓"],
  waiting: ["warn", "▲"], paused: ["warn", "‖"], stop_requested: ["warn", "‖"], proving: ["warn", "◐"],
  acting: ["warn", "◐"], open: ["bad", "!"], failed: ["bad", "✕"], gave_up: ["bad", "✕"],
};

function setBadge(badge, word) {
  const [tone, shape] = TONES[word] ?? ["", "○"];
  badge.className = `badge ${tone}`;
  setText(badge, `${shape} ${word.replaceAll("_", " ")}`);
}

// ---- the whole cluster ----------------------------------------------------------------------------------------------

function showHead() {
  const {head, about} = state;
  if (head) setText($("cluster"), head.cluster);
  document.title = `${openIncidents().length ? "! " : ""}${head?.cluster ?? "Stoker"}`;
  const old = about.age === null || about.age === undefined ? "no status yet"
    : about.age < 5 && about.led ? "live" : `status is ${duration(about.age)} old`;
  setText($("lead"), head?.closing ? "shutting down" : about.led ? `● ${old}` : `✕ no supervisor, ${old}`);
  const num = openIncidents().length;
  $("open-count").hidden = !num;
  setText($("open-count"), `! ${num} open incident${num === 1 ? "" : "s"}`);
  const alerts = [...(head?.notes ?? [])];
  if (state.lost) alerts.unshift("This page has lost its server; it tries again.");
  if (about.problem) alerts.unshift(about.problem);
  if (about.led === false && !head?.closing) alerts.unshift("No supervisor holds the lease: ranks train on, nothing is repaired. Run `stoker supervise`.");
  const keyed = Object.fromEntries(alerts.map((text) => [text, text]));
  reconcile($("alerts"), Object.keys(keyed), keyed, () => element("p", {class: "problem"}), (p, text) => setText(p, text));
}

const openIncidents = () => Object.values(state.incidents).filter((one) => one.open);

// ---- runs -----------------------------------------------------------------------------------------------------------

let showsAllEnded = false;

// Live ones first, of these those that wait; ended ones have a place of their own, below.
function showRuns() {
  const rank = (run) => (run.held ? 0 : run.state === "running" ? 2 : 1);
  const runs = Object.values(state.runs).sort((a, b) => rank(a) - rank(b) || b.run - a.run);
  const keys = (some) => some.map((run) => String(run.run));
  const live = keys(runs.filter((run) => run.live)), ended = keys(runs.filter((run) => !run.live).sort((a, b) => b.run - a.run));
  const shown = showsAllEnded ? ended : ended.slice(0, MAX_ENDED);
  $("no-runs").hidden = live.length > 0;
  if (state.head) setText($("no-runs"), runs.length ? "No run is live." : "No run yet.");
  $("past").hidden = !ended.length;
  $("more-ended").hidden = shown.length === ended.length;
  setText($("more-ended"), `Show ${ended.length - shown.length} older`);
  reconcile($("runs"), live, state.runs, makeRun, updateRun);
  reconcile($("ended"), shown, state.runs, makeRun, updateRun);
}

$("more-ended").addEventListener("click", () => { showsAllEnded = true; show(); });

function makeRun(key) {
  const part = {
    name: element("h3"), badge: element("span"), mode: element("small"),
    progress: element("progress", {"aria-label": "steps done"}),
    figures: element("dl", {class: "figures"}), notes: element("div", {class: "notes"}),
    pause: element("button", {type: "button", class: "quiet"}), curves: element("div", {class: "curves"}),
  };
  const lineage = element("details", {}, element("summary", {}, "Lineage: attempts and what each began with"));
  lineage.addEventListener("toggle", () => lineage.open && showLineage(key, lineage));
  const card = element("article", {class: "card"},
    element("div", {class: "row"}, part.name, part.mode, part.badge, part.pause),
    part.progress, part.figures, part.notes, part.curves, lineage);
  part.pause.addEventListener("click", () => askAboutRun(key));
  card.pieces = part;
  return card;
}

function updateRun(card, run, key) {
  const {pieces: part} = card;
  setText(part.name, `${run.name} (run ${run.run})`);
  setBadge(part.badge, run.state);
  setText(part.mode, run.mode && run.mode !== "act" ? `mode ${run.mode}` : "");
  part.progress.hidden = !run.total_steps;
  if (run.total_steps) Object.assign(part.progress, {max: run.total_steps, value: run.step});
  const all = {
    Step: run.total_steps ? `${run.step} / ${run.total_steps}` : String(run.step),
    ETTR: run.ettr, "ETTR, last hour": run.live ? run.ettr_hour : null, Loss: run.loss, "Gradient norm": run.grad_norm, "Learning rate": run.lr, "Tokens/s": run.tokens_per_second,
    Checkpoint: run.checkpoint, Attempt: run.attempt && `${run.attempt} (${run.attempts})`, Nodes: run.nodes || null,
  };
  const known = Object.entries(all).filter(([, value]) => value !== null && value !== "");
  const rows = Object.fromEntries(known.map(([name, value]) => [name, figure(value)]));
  reconcile(part.figures, Object.keys(rows), rows,
    (name) => element("div", {}, element("dt", {}, name), element("dd")), (div, text) => setText(div.lastChild, text));
  showRunNotes(part.notes, run);
  const may = session.role === "operator" && run.live;
  part.pause.hidden = !run.live;
  part.pause.disabled = !may;
  part.pause.title = may ? "" : "needs the token of an operator";
  setText(part.pause, run.held ? "Resume…" : "Pause…");
  follow(card, run, key);
}

function showRunNotes(list, run) {
  const notes = {};
  if (run.held) notes.held = run.held.hold === "paused"
    ? `‖ Paused by ${run.held.by || "a person"}${run.held.reason ? `: ${run.held.reason}` : ""}`
    : `▲ Waits for a person${run.held.reason ? `: ${run.held.reason}` : ""}`;
  else if (run.reason && run.state !== "running") notes.reason = run.reason;
  if (run.live) Object.assign(notes, forecastNotes(run.forecast));
  if (run.spending?.rank_hours) notes.spending = spendingNote(run.spending);
  if (run.phase && run.state !== "running" && run.live) notes.phase = `Phase: ${run.phase}`;
  run.asked.forEach((text, index) => (notes[`asked${index}`] = `Asked for: ${text}`));
  run.trends.forEach((text, index) => (notes[`trend${index}`] = `Trend: ${text}`));
  if (run.remedies.length) notes.remedies = `Remedies: ${run.remedies.join("; ")}`;
  const lost = Object.entries(run.lost).sort((a, b) => b[1] - a[1]).map(([cause, seconds]) => `${cause.replaceAll("_", " ")} ${duration(seconds)}`);
  if (lost.length) notes.lost = `Lost time: ${lost.join(", ")}`;
  if (run.restarted) notes.restarted = run.restarted;
  reconcile(list, Object.keys(notes), notes, () => element("p"), (p, note) => {
    if (typeof note === "string") return setText(p, note);
    p.replaceChildren("Restarted last: ", element("a", {href: `#${note.incident}`, onclick: () => openIncident(note.incident)}, note.incident), ` ${note.why}`);
  });
}

// When it will be done, by the cluster's clock; `now` is that of the status.
function forecastNotes(expected) {
  if (!expected) return {};
  const {now} = state.head, notes = {};
  const range = () => `in 80 % of all cases in ${duration(expected.earliest - now)} to ${duration(expected.latest - now)}`;
  if (expected.ends_at !== undefined)
    notes.done = `Done in ${duration(expected.ends_at - now)} (${clock(expected.ends_at)})${expected.if_resumed ? ", if it goes on now" : ""}; ${range()}`;
  else if (expected.unknown) notes.done = `When it will be done is not known: ${expected.unknown}`;
  if (expected.deadline !== undefined) {
    const margin = expected.margin_seconds, isLate = margin < 0;
    const kept = margin === undefined ? "whether it will be kept is not known" : isLate ? `will be missed by ${duration(-margin)}` : `${duration(margin)} of margin`;
    notes.deadline = `${isLate ? "▲ " : ""}Deadline ${clock(expected.deadline)}: ${kept}`;
  }
  return notes;
}

function spendingNote(used) {
  const hours = (value) => figure(value ?? 0, 3);
  const parts = [`Used: ${hours(used.rank_hours)} rank hours, ${hours(used.useful_rank_hours)} useful, ${hours(used.lost_rank_hours)} lost`];
  if (used.budget_rank_hours) parts.push(`${Math.round((100 * used.rank_hours) / used.budget_rank_hours)} % of the budget of ${hours(used.budget_rank_hours)}`);
  if (used.cost !== undefined) parts.push(`cost ${used.cost.toFixed(2)}, ${(used.lost_cost ?? 0).toFixed(2)} of it lost`);
  return parts.join("; ");
}

async function showLineage(key, details) {
  const {attempts, missing} = await read(`/api/runs/${key}/lineage`);
  const names = ["Attempt", "From", "Resumed at", "Reached", "Steps kept", "Nodes", "Started in", "Began with", "Ended"];
  const rows = attempts.map((one) => [one.attempt, one.from || "–", one.resume_step, one.last_step ?? "–",
    one.kept ? one.kept.join("–") : "none", one.nodes, duration(one.start_seconds),
    [one.cause, one.incident && `(${one.incident})`, one.remedies].filter(Boolean).join(" "), one.outcome || "runs"]);
  const head = element("tr", {}, ...names.map((name) => element("th", {scope: "col"}, name)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell)))));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  while (details.children.length > 1) details.lastChild.remove();
  if (missing) details.append(element("p", {class: "quiet-text"}, missing));
  details.append(element("div", {class: "scroll", tabindex: "0"}, table));
}

// ---- curves ---------------------------------------------------------------------------------------------------------

const CURVES = [["loss", "Loss", "--loss"], ["grad_norm", "Gradient norm", "--norm"]];

// Curves of live runs, and of an ended one that is the only one: fetched now and then, and in between the newest step is appended.
function follow(card, run, key) {
  const isOnly = Object.keys(state.runs).length === 1;
  if (!run.live && !isOnly) return;
  if (!card.curve || (card.curve.attempt !== run.attempt && RESTARTED_STATES.includes(run.state))) {
    card.curve = {attempt: run.attempt, data: null, fetchedAt: Date.now()};
    fetchCurves(card, key);
  } else if (run.live && Date.now() - card.curve.fetchedAt > REFETCH_MS) {
    // The status has the newest step alone; the history has those between.
    card.curve.fetchedAt = Date.now();
    fetchCurves(card, key);
  } else if (card.curve.data) {
    const {step} = card.curve.data;
    if (run.loss !== null && run.step > (step.at(-1) ?? 0)) {
      step.push(run.step);
      for (const [name] of CURVES) card.curve.data[name].push(run[name]);
      drawSoon(card);
    }
  }
}

async function fetchCurves(card, key) {
  const curve = card.curve;
  curve.data = await read(`/api/runs/${key}/curves`);
  draw(card);
}

function drawSoon(card) {
  if (card.drawing) return;
  card.drawing = setTimeout(() => { card.drawing = null; draw(card); }, 1000);
}

function draw(card) {
  const {data} = card.curve;
  if (!data) return;
  card.plots ??= {};
  for (const [name, title, color] of CURVES) {
    const has = data[name].some((value) => value !== null);
    if (has && !card.plots[name]) card.plots[name] = makePlot(card, name, title, color);
    if (!has) continue;
    const {plot, box, caption} = card.plots[name];
    if (box.clientWidth && plot.width !== box.clientWidth) plot.setSize({width: box.clientWidth, height: 180});
    plot.setData([data.step, data[name]]);
    const last = data[name].findLast((value) => value !== null);
    const marks = data.marks.length ? `; marked: ${data.marks.map((mark) => `${mark.text} at step ${mark.step}`).slice(-6).join(", ")}` : "";
    setText(caption, `${title}: ${figure(last)} at step ${data.step.at(-1)}${marks}${data.missing ? ` (${data.missing})` : ""}`);
  }
}

function makePlot(card, name, title, color) {
  const box = element("div", {class: "plot", "aria-hidden": "true"}), caption = element("figcaption");
  card.pieces.curves.append(element("figure", {}, box, caption));
  const look = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  const axis = {stroke: () => look("--soft"), grid: {stroke: () => look("--line"), width: 1}, ticks: {stroke: () => look("--line"), width: 1}};
  const options = {
    width: box.clientWidth || 320, height: 180, legend: {show: false}, scales: {x: {time: false}},
    axes: [{...axis, size: 34}, {...axis, size: 54}],
    series: [{}, {stroke: () => look(color), width: 1.5, points: {show: false}}],
    hooks: {draw: [(plot) => drawMarks(plot, card.curve.data?.marks ?? [], look)]},
  };
  return {plot: new uPlot(options, [[], []], box), box, caption};
}

// A dashed line where something was done to the run, with its name above.
function drawMarks(plot, marks, look) {
  const {ctx, bbox} = plot;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = look("--mark");
  ctx.setLineDash([4, 4]);
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.font = `${11 * devicePixelRatio}px sans-serif`;
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.step, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(mark.text.split(" ")[0], x + 3, bbox.top);
  }
  ctx.restore();
}

const redraw = () => Object.values(state.runs).forEach((run) => {
  const card = ["runs", "ended"].map((id) => $(id).known?.get(String(run.run))).find(Boolean);
  if (card?.plots) { draw(card); Object.values(card.plots).forEach(({plot}) => plot.redraw()); }
});
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// ---- incidents ------------------------------------------------------------------------------------------------------

let showsAllIncidents = false;

function incidentKeys() {
  const number = (key) => Number(key.slice(1));
  const keys = Object.keys(state.incidents).sort((a, b) => state.incidents[b].open - state.incidents[a].open || number(b) - number(a));
  const most = openIncidents().length + MAX_CLOSED;
  $("more-incidents").hidden = showsAllIncidents || keys.length <= most;
  setText($("more-incidents"), `Show ${keys.length - most} older`);
  return showsAllIncidents ? keys : keys.slice(0, most);
}

$("more-incidents").addEventListener("click", () => { showsAllIncidents = true; show(); });

function makeIncident(key) {
  const part = {
    badge: element("span"), fault: element("strong"), where: element("span"), when: element("small"), done: element("small"),
    why: element("span", {class: "why"}), inside: element("div", {class: "inside"}),
  };
  const made = element("details", {class: "incident", id: key},
    element("summary", {}, element("span", {}, key), part.badge, part.fault, part.where, part.done, part.when, part.why), part.inside);
  made.addEventListener("toggle", () => made.open && showIncident(made, key));
  made.pieces = part;
  return made;
}

function updateIncident(made, one, key) {
  const {pieces: part} = made;
  setBadge(part.badge, one.state);
  setText(part.fault, one.fault);
  setText(part.where, one.where ? `on ${one.where}` : "");
  const cost = [one.recovered !== null && `training again after ${duration(one.recovered)}`, one.steps_lost && `${one.steps_lost} steps lost`];
  setText(part.done, [one.done.join(", "), ...cost, one.acknowledged_by && `${one.acknowledged_by} looks at it`, one.page && `page ${one.page}`].filter(Boolean).join("; "));
  setText(part.when, clock(one.opened_at));
  setText(part.why, one.why);
  if (made.open) showIncident(made, key);
}

async function showIncident(made, key) {
  const {inside} = made.pieces;
  if (!inside.childElementCount) inside.append(element("p", {class: "empty"}, "Reading the journal…"));
  let detail;
  try { detail = await read(`/api/incidents/${key}`); } catch (error) {
    return inside.replaceChildren(element("p", {class: "problem"}, error.message));
  }
  const one = state.incidents[key];
  const story = detail.story.map((line) => element("li", {}, element("time", {}, `${clock(line.at).slice(11)} +${line.offset} s`),
    line.event, line.decided.length ? element("ul", {}, ...line.decided.map((text) => element("li", {}, text))) : ""));
  const block = (title, ...children) => element("section", {}, element("h4", {}, title), ...children);
  const lines = (texts) => element("ul", {class: "lines"}, ...texts.map((text) => element("li", {}, text)));
  inside.replaceChildren(...[
    block("Cause", element("p", {}, detail.cause), detail.lines.length ? lines(detail.lines) : ""),
    detail.evidence.length ? block("Evidence", lines(detail.evidence)) : null,
    block("Story", story.length ? element("ol", {class: "story"}, ...story) : element("p", {class: "empty"}, detail.missing || "The journal has nothing about it."),
      story.length && detail.missing ? element("p", {class: "quiet-text"}, detail.missing) : ""),
    element("p", {class: "buttons"}, element("a", {href: `/runbooks/${encodeURIComponent(detail.cause_fault)}`}, "Its runbook"),
      one?.open && !one.acknowledged_by ? askButton("I look at it…", {do: "ack", about: key}, `Acknowledge ${key}`,
        "Pages about it do not repeat, and others see who looks at it. Its ladder goes on.") : ""),
  ].filter(Boolean));
}

function openIncident(key) {
  showsAllIncidents = true;
  show();
  const made = $(key);
  if (made) { made.open = true; made.querySelector("summary").focus(); }
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

const SHAPES = {out: "✕", notice: "!", passing: "◌"};
let showsAllNodes = false;
const byName = new Intl.Collator(undefined, {numeric: true}).compare;
// Sorting thousands of names costs; they change rarely.
let sortedNames = [], sortedFor = "";

function showNodes() {
  const {nodes, head} = state;
  if (!head) return;
  const names = Object.keys(nodes), stamp = `${names.length} ${names[0]} ${names.at(-1)}`;
  if (stamp !== sortedFor) [sortedNames, sortedFor] = [names.sort(byName), stamp];
  const groups = Object.fromEntries(HEALTH_ORDER.map((health) => [health, []]));
  for (const name of sortedNames) groups[nodes[name].health].push(name);
  const counts = Object.entries(head.nodes).map(([word, count]) => `${count} ${word}`).join(", ");
  setText($("fleet"), [`${sortedNames.length} node${sortedNames.length === 1 ? "" : "s"}${counts ? `: ${counts}` : ""}`, head.spares].filter(Boolean).join("; "));
  const unusual = [...groups.out, ...groups.notice, ...groups.passing];
  const shown = showsAllNodes ? unusual : unusual.slice(0, MAX_UNUSUAL);
  $("unusual").hidden = !unusual.length;
  $("more-nodes").hidden = shown.length === unusual.length;
  setText($("more-nodes"), `Show ${unusual.length - shown.length} more`);
  reconcile($("unusual").tBodies[0], shown, nodes,
    (name) => element("tr", {}, element("th", {scope: "row"}, name), ...Array.from({length: 4}, () => element("td"))), updateNodeRow);
  reconcile($("grid"), [...unusual, ...groups.ok], nodes, makeCell, updateCell);
  const cells = $("grid");
  cells.classList.toggle("dense", sortedNames.length > MAX_WIDE_CELLS);
  if (!cells.querySelector("[tabindex='0']")) cells.firstElementChild?.setAttribute("tabindex", "0");
}

$("more-nodes").addEventListener("click", () => { showsAllNodes = true; showNodes(); });

function updateNodeRow(row, node) {
  const since = node.since === null ? "–" : duration(Math.max(0, state.head.now - node.since));
  [`${SHAPES[node.health] ?? ""} ${node.state}`, since, node.domain || "–", node.why || "–"].forEach((text, index) => setText(row.cells[index + 1], text));
}

const makeCell = (name) => element("button", {type: "button", tabindex: "-1", "data-node": name});

function updateCell(cell, node, name) {
  cell.className = `cell ${node.health}`;
  setText(cell, SHAPES[node.health] ?? (node.state === "spare" ? "□" : "■"));
  cell.setAttribute("aria-label", `${name}: ${node.state}${node.why ? `, ${node.why}` : ""}`);
}

function describeNode(name) {
  const node = state.nodes[name];
  if (node) setText($("node-detail"), [`${name}: ${node.state}`, node.attempt && `attempt ${node.attempt}`, node.ranks && `ranks ${node.ranks}`, node.domain, node.why].filter(Boolean).join("; "));
}

for (const kind of ["focusin", "pointerover", "click"])
  $("grid").addEventListener(kind, (event) => event.target.dataset.node && describeNode(event.target.dataset.node));
$("grid").addEventListener("keydown", (event) => {
  const cell = event.target, columns = [...$("grid").children].filter((one) => one.offsetTop === $("grid").firstElementChild.offsetTop).length;
  const move = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns}[event.key];
  if (!move) return;
  event.preventDefault();
  const cells = [...$("grid").children], next = cells[cells.indexOf(cell) + move];
  if (!next) return;
  cell.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});

// ---- what people ask ------------------------------------------------------------------------------------------------

const VERBS = {approve: "Approve", deny: "Deny", pause: "Pause", resume: "Resume", ack: "Acknowledge"};

function askButton(words, wanted, title, text) {
  const may = session.role === "operator";
  return element("button", {type: "button", class: wanted.do === "approve" ? "" : "quiet", disabled: !may,
    title: may ? null : "needs the token of an operator", onclick: () => ask(wanted, title, text)}, words);
}

function makeProposal(key) {
  const made = element("li", {class: "card"}, element("p"), element("p", {class: "quiet-text"}), element("p", {class: "buttons"}));
  made.key = key;
  return made;
}

function updateProposal(made, one) {
  const [text, reason, buttons] = made.children;
  setText(text, `▲ ${one.incident}: ${one.action} proposes: ${one.text}`);
  setText(reason, one.reason);
  buttons.replaceChildren(
    askButton("Approve…", {do: "approve", about: one.action}, `Approve ${one.action}`, one.text),
    askButton("Deny…", {do: "deny", about: one.action}, `Deny ${one.action}`, `Nothing changes, and ${one.incident} is left to people.`));
}

function askAboutRun(key) {
  const run = state.runs[key];
  const open = openIncidents().filter((one) => one.run === run.run).sort((a, b) => b.opened_at - a.opened_at)[0];
  const seen = open ? {incident: open.incident, seen: open.version} : {};
  if (run.held) ask({do: "resume", about: key, ...seen}, `Resume ${run.name}`, "It goes on from its newest trusted checkpoint.");
  else ask({do: "pause", about: key, ...seen}, `Pause ${run.name}`, "Its attempt ends at a step boundary, with a checkpoint where its ranks can save one. Nothing of it starts until it is resumed.");
}

function ask(wanted, title, text) {
  setText($("ask-title"), title);
  setText($("ask-text"), text);
  setText($("ask-answer"), "");
  setText($("ask-go"), VERBS[wanted.do]);
  setText($("ask-cancel"), "Cancel");
  $("ask-reason").value = "";
  $("ask-go").hidden = $("ask-go").disabled = false;
  $("ask").wanted = wanted;
  $("ask").showModal();
}

// The refusal says what has happened to the incident meanwhile: whoever asks again has seen that.
function askAgain() {
  const {wanted} = $("ask"), incident = state.incidents[wanted.incident];
  if (incident) wanted.seen = incident.version;
  else delete wanted.incident, delete wanted.seen;
  $("ask-go").disabled = false;
}

$("ask-cancel").addEventListener("click", () => $("ask").close());
$("ask-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("ask-go").disabled = true;
  setText($("ask-answer"), "Sent; the supervisor answers…");
  try {
    const body = JSON.stringify({...$("ask").wanted, reason: $("ask-reason").value});
    const answer = await read("/api/requests", {method: "POST", body, headers: {"x-stoker-check": session.check, "content-type": "application/json"}});
    setText($("ask-answer"), `${answer.state}${answer.message ? `: ${answer.message}` : ""}`);
    if (answer.state === "refused") askAgain();
    else $("ask-go").hidden = true;
    setText($("ask-cancel"), "Close");
  } catch (error) {
    setText($("ask-answer"), error.message);
    $("ask-go").disabled = false;
  }
});

// ---- from and to the server -----------------------------------------------------------------------------------------

async function read(path, options = {}) {
  const answer = await fetch(path, options);
  if (answer.status === 401) location.assign("/login");
  const body = await answer.json().catch(() => ({error: `the server answered ${answer.status}`}));
  if (!answer.ok) throw new Error(body.error);
  return body;
}

function apply(update) {
  const {whole, head, set = {}, drop = {}, ...about} = update;
  if (whole) Object.assign(state, {runs: {}, incidents: {}, proposals: {}, nodes: {}});
  state.about = about;
  if (head) state.head = head;
  const fresh = whole ? [] : Object.keys(set.incidents ?? {}).filter((key) => !(key in state.incidents));
  for (const [section, items] of Object.entries(set)) Object.assign(state[section], items);
  for (const [section, names] of Object.entries(drop)) for (const name of names) delete state[section][name];
  for (const key of fresh) setText($("announce"), `New incident ${key}: ${state.incidents[key].fault} ${state.incidents[key].where}`);
}

let isShowing = false;

// Several updates between two frames are shown at once.
function showSoon() {
  if (isShowing) return;
  isShowing = true;
  (document.hidden ? (then) => setTimeout(then, 1000) : requestAnimationFrame)(() => { isShowing = false; show(); });
}

function show() {
  showHead();
  showRuns();
  $("no-incidents").hidden = !state.head || Object.keys(state.incidents).length > 0;
  reconcile($("incidents"), incidentKeys(), state.incidents, makeIncident, updateIncident);
  const asked = Object.keys(state.proposals).sort((a, b) => state.proposals[a].since - state.proposals[b].since);
  $("asks").hidden = !asked.length;
  reconcile($("proposals"), asked, state.proposals, makeProposal, updateProposal);
  showNodes();
}

function connect() {
  const events = new EventSource("/api/events");
  events.onmessage = (event) => { state.lost = false; apply(JSON.parse(event.data)); showSoon(); };
  events.onerror = () => {
    state.lost = true;
    showSoon();
    // A session that ended is answered 401, and leads to the login.
    read("/api/session").catch(() => {});
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
}

async function start() {
  Object.assign(session, await read("/api/session"));
  setText($("who"), [session.name, session.role].filter(Boolean).join(", "));
  connect();
}

start();
