// Shows the data of the server and decides nothing but the layout. All text is inserted as text, never as markup.

import { Chart, clock, percent, span } from "./chart.js";
import { jobOfAddress, jobTools } from "./jobs.js";
import { takesTokenOfAddress } from "./server.js";
import { Stream, request, token } from "./stream.js";

const SILENCE = 15_000, AGAIN = 3_000, SOON = 500, HIDDEN = 60_000, LATE = 15;
const WIDE = matchMedia("(min-width: 860px)");
const TONES = ["bad", "busy", "good"];
const $ = (id) => document.getElementById(id);

const held = { sources: null, rows: null, jobs: null, detail: null, chosen: undefined, timeline: null };
const items = new Map();
const drawn = new Map();
let source = null, receivedAt = Date.now(), isLost = false, lostBecause = "", retry = 0, hiding = 0;
const chart = new Chart($("chart"), $("readout"));

function make(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) found.setAttribute(key, value);
  found.append(...children.filter((each) => each !== null && each !== undefined));
  return found;
}

const text = (value, kind = "") => make("span", { class: `text ${kind}`.trim() }, String(value));
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const keyOf = (row) => `${row.namespace}/${row.name}`;
const SIGNS = { good: "✓", busy: "↻", bad: "!" };
const badge = (tone, status) => make("span", { class: `badge ${tone}` }, `${SIGNS[tone]} `, text(status));

/** Build a part anew only when what it shows has changed, so that focus and scroll position stay. */
function renew(id, data, build) {
  const written = JSON.stringify(data);
  if (drawn.get(id) === written) return;
  drawn.set(id, written);
  $(id).replaceChildren(...build(data));
}

// ---- the stream ----------------------------------------------------------------------------------------------------

const TAKE = {
  sources: (data) => { held.sources = data; showSources(); },
  rows: takeRows,
  detail: (data) => { held.detail = data; showDetail(); },
  jobs: (data) => { held.jobs = data; showJobs(); },
};

function connect() {
  source?.close();
  clearTimeout(retry);
  let hasBegun = false;
  source = new Stream(address(), {
    opened: () => { showGate(null); received(); },
    event: (name, data) => { hasBegun = true; received(); TAKE[name]?.(data); },
    refused: (status, text, takesTokens) => {
      if (status === 401 || status === 403) return refuse(status, text, takesTokens);
      lost(text);
      retry = setTimeout(connect, AGAIN);
    },
    // A server for many users ends a stream now and then, and checks the user anew.
    ended: () => {
      if (!isServed() || !hasBegun) lost();
      retry = setTimeout(connect, isServed() && hasBegun ? SOON : AGAIN);
    },
  });
}

function address() {
  const query = new URLSearchParams();
  const namespace = new URLSearchParams(location.search).get("namespace");
  if (namespace) query.set("namespace", namespace);
  if (held.chosen !== null) query.set("service", held.chosen);
  return query.size ? `events?${query}` : "events";
}

const isServed = () => Boolean(held.sources?.user);

function received() {
  receivedAt = Date.now();
  if (isLost) {
    isLost = false;
    showSources();
  }
}

function lost(problem = "") {
  isLost = true;
  lostBecause = problem;
  showSources();
}

function takeRows(data) {
  if (data.all || held.rows === null) held.rows = new Map();
  for (const each of data.rows) held.rows.set(keyOf(each), each);
  for (const each of data.gone) held.rows.delete(each);
  showList();
  if (held.detail?.key !== held.chosen) showDetail();
  if (choosesItself()) choose(sorted()[0]);
}

/** Whether a wide page without a choice shows the first RayService. */
const choosesItself = () => held.chosen === null && jobOfAddress(location.hash) === null && WIDE.matches && Boolean(held.rows?.size);

// ---- the user ------------------------------------------------------------------------------------------------------

/** Show what is missing, a sign-in or a right; a page that has data is loaded anew, so that nothing of it stays. */
function refuse(status, text, takesTokens) {
  source = null;
  if (status === 401) token.remove();
  if (held.rows !== null) return location.reload();
  showGate({ title: status === 401 ? "Sign in" : "Access denied", text, hasForm: status === 401 && takesTokens });
}

function showGate(gate) {
  document.body.classList.toggle("gated", gate !== null);
  $("gate").hidden = gate === null;
  $("sign-out").hidden = !token.get() || (gate === null && !isServed());
  if (gate === null) return;
  $("gate-title").textContent = gate.title;
  $("gate-problem").textContent = gate.text;
  $("sign-in").hidden = !gate.hasForm;
  $("place").hidden = gate.hasForm;
  $("user").textContent = "";
  $("namespace").value = new URLSearchParams(location.search).get("namespace") ?? "";
  if (gate.hasForm) $("token").focus();
}

$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set($("token").value.trim());
  $("token").value = "";
  connect();
});
$("sign-out").addEventListener("click", () => {
  token.remove();
  location.reload();
});
$("place").addEventListener("submit", (event) => {
  event.preventDefault();
  const namespace = $("namespace").value.trim();
  location.assign(location.pathname + (namespace ? `?${new URLSearchParams({ namespace })}` : ""));
});

// ---- connection state -----------------------------------------------------------------------------------------------

function showSources() {
  const sources = held.sources;
  document.body.classList.toggle("stale", isLost);
  if (sources !== null) {
    $("place").hidden = !sources.user;
    $("user").textContent = sources.user;
    if (document.activeElement !== $("namespace")) $("namespace").value = sources.namespace ?? "";
    $("sign-out").hidden = !sources.user || !token.get();
    const where = sources.namespace === null ? "all namespaces" : `namespace ${sources.namespace}`;
    $("scope").textContent = sources.context ? `${sources.context} · ${where}` : where;
    $("feed").className = `feed ${isLost ? "" : sources.eventFeed}`;
    $("feed").textContent = isLost ? "Not connected" : { live: "Connected to NATS", away: "Polling the API server", off: "Polling the API server", connecting: "Connecting to NATS…" }[sources.eventFeed];
  }
  tick();
  const banners = [];
  if (isLost) {
    const last = `Last update: ${clock(receivedAt)}.`;
    banners.push(lostBecause || isServed()
      ? ["bad", "The dashboard does not answer.", `${lostBecause || "Retried every few seconds"}. ${last}`]
      : ["bad", "The dashboard on this machine does not answer.", `${last} If it has ended, restart it with: raybus dashboard`]);
  } else if (sources?.problem) {
    const since = sources.seenAt ? `Last update: ${clock(sources.seenAt)}; retried every few seconds.` : "Retried every few seconds.";
    banners.push(["bad", "The API server cannot be read.", `${sources.problem}${/[.?!]$/.test(sources.problem) ? "" : "."} ${since}`]);
  }
  if (!isLost && sources?.eventFeed === "away") {
    banners.push(["busy", "No upgrade events: NATS is not reachable. This page polls the API server every few seconds; steps between two polls, and history, may be missing.", sources.feedProblem]);
  }
  renew("banners", banners, (all) => all.map(([tone, head, more]) => make("div", { class: `banner ${tone}` }, make("b", {}, head), text(more, "more"))));
}

function tick() {
  const seen = held.sources?.seenAt;
  if (seen) {
    const age = Math.max(0, (Date.now() - Date.parse(seen)) / 1000);
    $("seen").textContent = age < 3 ? "updated just now" : `updated ${span(age)} ago`;
    $("seen").classList.toggle("late", isLost || age > LATE && !document.hidden && Boolean(held.sources.problem));
  }
  for (const each of document.querySelectorAll("[data-due]")) {
    const left = (Date.parse(each.dataset.due) - Date.now()) / 1000;
    each.textContent = left > 0 ? `next step in ${span(Math.ceil(left))}` : "next step is due";
  }
  for (const each of document.querySelectorAll("[data-since]")) each.textContent = span((Date.now() - Date.parse(each.dataset.since)) / 1000);
}

// ---- the list ------------------------------------------------------------------------------------------------------

function sorted() {
  const order = (key) => TONES.indexOf(held.rows.get(key).tone);
  return [...held.rows.keys()].sort((one, other) => order(one) - order(other) || one.localeCompare(other));
}

function showList() {
  const isEmpty = held.rows.size === 0;
  $("list-pane").hidden = isEmpty;
  $("empty").hidden = !isEmpty;
  $("detail-pane").hidden = isEmpty && held.chosen === null;
  if (isEmpty) showEmpty();
  for (const key of [...items.keys()].filter((each) => !held.rows.has(each))) {
    items.get(key).element.remove();
    items.delete(key);
  }
  const wanted = $("filter").value.trim().toLowerCase().split(/\s+/);
  const matches = ({ namespace, name, phase, strategy }) => {
    const all = `${namespace}/${name} ${phase} ${strategy}`.toLowerCase();
    return wanted.every((each) => all.includes(each));
  };
  const shown = { bad: [], busy: [], good: [] };
  for (const key of sorted()) {
    const row = held.rows.get(key), element = item(key, row);
    if (matches(row)) shown[row.tone].push(element);
  }
  for (const tone of TONES) {
    const section = $(`tone-${tone}`), list = section.querySelector("ul");
    section.hidden = shown[tone].length === 0;
    section.querySelector(".number").textContent = `(${shown[tone].length})`;
    if (shown[tone].length !== list.children.length || shown[tone].some((each, index) => list.children[index] !== each)) {
      const focused = document.activeElement;
      list.replaceChildren(...shown[tone]);
      if (focused?.isConnected) focused.focus({ preventScroll: true });
    }
  }
  const count = TONES.reduce((sum, tone) => sum + shown[tone].length, 0);
  $("none-found").hidden = count > 0 || isEmpty;
  $("count").textContent = count === held.rows.size ? plural(count, "RayService") : `${count} of ${plural(held.rows.size, "RayService")}`;
}

function item(key, row) {
  const written = JSON.stringify(row), known = items.get(key);
  const found = known ?? { element: make("li", {}, make("a", { class: "item", href: `#/${key}` })), written: "" };
  const link = found.element.firstChild;
  if (found.written !== written) {
    found.written = written;
    link.replaceChildren(
      make("span", { class: "between nowrap" }, text(row.name, "name"), badge(row.tone, row.phase)),
      make("span", { class: "between" }, text(row.namespace, "space"), text(stage(row), "space")),
      splitBar(row),
    );
  }
  if (held.chosen === key) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  items.set(key, found);
  return found.element;
}

function stage(row) {
  const known = row.shares.map((each) => each.weight).filter((each) => each !== null);
  const traffic = row.upgrade && known.length === 2 ? `${known[0]}/${known[1]} ` : "";
  if (row.upgrade?.steps) return `${traffic}· ${row.upgrade.direction === "back" ? "rollback" : "step"} ${row.upgrade.step} of ${row.upgrade.steps}`;
  return row.upgrade ? "all traffic moves at once" : plural(row.endpoints, "endpoint");
}

function splitBar(row) {
  const bar = make("span", { class: "split", "aria-hidden": "true" });
  for (const each of row.shares) {
    const part = make("i", { class: row.upgrade && each.role === "active" ? "fill-old" : "fill-new" });
    part.style.width = `${each.weight ?? 0}%`;
    bar.append(part);
  }
  return bar;
}

function showEmpty() {
  const scope = held.sources?.namespace;
  const where = scope ? `in namespace ${scope}` : "in any namespace";
  renew("empty", [where, scope], () => [
    make("h2", {}, `No RayService ${where}`),
    scope && !isServed()
      ? make("p", {}, "All namespaces: ", make("code", {}, "raybus dashboard -A"), ". Another namespace: ", make("code", {}, "raybus dashboard -n NAMESPACE"), ".")
      : null,
    make("p", {}, "A RayService appears here when it is applied; to check an installation: ", make("code", {}, "raybus doctor"), "."),
  ].filter(Boolean));
}

// ---- the selected RayService ---------------------------------------------------------------------------------------

function choose(key) {
  history.replaceState(null, "", `#/${key}`);
  follow();
}

function follow() {
  const found = /^#\/([^/]+\/[^/]+)$/.exec(location.hash), key = found ? decodeURIComponent(found[1]) : null;
  document.body.classList.toggle("chosen", key !== null);
  if (key !== held.chosen) {
    held.chosen = key;
    held.detail = null;
    held.timeline = null;
    connect();
  }
  if (held.rows !== null) showList();
  showDetail();
  showJobs();
  if (choosesItself()) choose(sorted()[0]);
}

// ---- jobs ----------------------------------------------------------------------------------------------------------

const jobs = jobTools({ make, text, badge, keyOf, SIGNS });

/** Show the jobs instead of the RayServices, if the address names them. */
function showJobs() {
  const wanted = jobOfAddress(location.hash), shown = held.jobs;
  document.body.classList.toggle("shows-jobs", wanted !== null);
  $("views").hidden = shown === null;
  $("jobs-pane").hidden = wanted === null || shown === null;
  if (shown === null) return;
  $("jobs-count").textContent = `(${shown.jobs.length + shown.cronJobs.length})`;
  for (const [id, isShown] of [["view-services", wanted === null], ["view-jobs", wanted !== null]]) {
    if (isShown) $(id).setAttribute("aria-current", "page"); else $(id).removeAttribute("aria-current");
  }
  if (wanted === null) return;
  document.title = wanted ? `${wanted} · raybus` : "Jobs · raybus";
  renew("jobs-pane", [wanted, shown], () => wanted ? jobs.one(shown, wanted) : jobs.all(shown));
  tick();
}

function showDetail() {
  const detail = held.detail?.key === held.chosen ? held.detail : null;
  const row = detail ? detail.row : held.rows?.get(held.chosen);
  $("hint").hidden = Boolean(row);
  $("detail").hidden = !row;
  if (jobOfAddress(location.hash) === null) document.title = row ? `${keyOf(row)}: ${row.phase} · raybus` : "raybus";
  if (!row) {
    $("hint").textContent = hint(detail);
    return;
  }
  renew("head", [row, detail?.problem, detail?.lastEvent?.note, detail?.causes], () => head(row, detail ?? { causes: [] }));
  $("loading").hidden = Boolean(detail);
  $("details").hidden = !detail;
  tick();
  if (!detail) return;
  $("controls").hidden = detail.controls.length === 0;
  renew("controls", [held.chosen, detail.controls, mayAct(), acted.key === held.chosen ? acted : null], () => controls(detail.controls));
  $("causes").hidden = detail.causes.length === 0;
  renew("causes-list", detail.causes, (all) => all.map((each) => make("li", {}, text(each.what), make("br"), text(`→ ${each.remedy}`, "remedy"))));
  renew("clusters", [detail.clusters, Boolean(row.upgrade)], () => detail.clusters.length
    ? detail.clusters.map((each) => cluster(each, row)) : [make("p", { class: "quiet" }, "No cluster yet.")]);
  $("unseen-holder").hidden = detail.unseen.length === 0;
  renew("unseen", detail.unseen, (all) => all.map((each) => make("li", {}, each)));
  showUpgrade(detail);
}

function hint(detail) {
  if (detail) return detail.problem || `RayService ${held.chosen} does not exist (any more).`;
  return held.chosen ? `Loading ${held.chosen}…` : held.rows === null ? "Loading…" : "Select a RayService.";
}

function head(row, detail) {
  const parts = [
    make("h2", {}, text(row.name), badge(row.tone, row.phase)),
    make("p", { class: "facts" },
      make("span", {}, "namespace ", make("b", {}, row.namespace)),
      make("span", {}, "strategy ", make("b", {}, row.strategy)),
      make("span", {}, "endpoints ", make("b", {}, String(row.endpoints))),
      row.created ? make("span", {}, "age ", make("b", { "data-since": row.created })) : null),
  ];
  const shown = new Set(detail.causes.map((each) => each.what));
  if (row.message && row.tone !== "good" && !shown.has(row.message)) parts.push(make("p", { class: `message ${row.tone === "bad" ? "bad" : ""}` }, text(row.message)));
  if (row.upgrade) parts.push(progress(row.upgrade));
  if (detail.lastEvent && detail.lastEvent.note !== row.message && !shown.has(detail.lastEvent.note)) parts.push(make("p", { class: "quiet small" }, text(`Last event: ${detail.lastEvent.reason}: ${detail.lastEvent.note} (${detail.lastEvent.about})`)));
  if (detail.problem) parts.push(make("p", { class: "message bad" }, text(`This RayService could not be read just now: ${detail.problem}`)));
  return parts;
}

function progress(upgrade) {
  const isBack = upgrade.direction === "back", noun = isBack ? "Rollback" : "Upgrade";
  if (!upgrade.steps) return make("p", { class: "progress" }, `${noun}: all traffic moves at once, when the new cluster is ready.`);
  const label = `${noun}: step ${upgrade.step} of ${upgrade.steps}`;
  const track = make("div", { class: "track", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": upgrade.steps, "aria-valuenow": upgrade.step });
  const many = Math.min(upgrade.steps, 50);
  for (let each = 1; each <= many; each += 1) track.append(make("i", { class: each / many <= upgrade.step / upgrade.steps ? (isBack ? "back" : "done") : "" }));
  return make("div", { class: "progress" },
    make("p", { class: "between" }, make("b", {}, label), upgrade.nextStepAt ? make("span", { class: "quiet", "data-due": upgrade.nextStepAt }) : null), track);
}

function cluster(one, row) {
  const isOld = one.role === "leaving" || (row.upgrade && one.role === "active");
  const found = make("article", { class: `card cluster ${isOld ? "old" : "new"}` },
    make("div", { class: "between nowrap" }, make("h4", {}, text(one.name)), make("span", { class: "role" }, one.role)));
  if (one.weight !== null) found.append(gauge("Traffic", one.weight, null, `${one.weight} %`));
  if (one.targetCapacity !== null || one.readyCapacity !== null) {
    const target = one.targetCapacity === null ? "" : ` of ${one.targetCapacity} % target`;
    found.append(gauge("Capacity", one.readyCapacity, one.targetCapacity, one.readyCapacity === null ? `ready capacity unknown${target}` : `${one.readyCapacity} % ready${target}`));
  }
  const lines = Object.entries(one.applications).map(([name, status]) => make("li", {}, text(`application ${name}: `), make("span", { class: status === "RUNNING" ? "goodish" : "warnish" }, status || "unknown")));
  for (const each of one.groups) {
    const others = Object.entries(each.others).map(([state, count]) => `${count} ${state}`).join(", ");
    lines.push(make("li", {}, text(`pods of ${each.name}: `), make("span", { class: each.ready === each.pods ? "goodish" : "warnish" }, `${each.ready} of ${each.pods} ready`),
      others ? text(`, ${others}`, "warnish") : null, each.restarts ? text(`, ${plural(each.restarts, "restart")}`, "warnish") : null));
  }
  if (!one.groups.length) lines.push(make("li", { class: "quiet" }, "no pods yet"));
  found.append(make("ul", { class: "pods" }, ...lines));
  if (held.sources?.hasLogs && one.pods.length) {
    const button = make("button", { type: "button", "aria-label": `Logs of ${one.name}` }, "Logs");
    button.addEventListener("click", () => openLogs(held.chosen, one));
    found.append(make("p", {}, button));
  }
  if (one.note) found.append(make("p", { class: "small warnish" }, text(one.note)));
  return found;
}

function gauge(label, value, mark, description) {
  const bar = make("div", { class: "bar", role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": value ?? 0, "aria-valuetext": description });
  const fill = make("i");
  fill.style.width = `${Math.min(100, value ?? 0)}%`;
  bar.append(fill);
  if (mark !== null) {
    const tickMark = make("i", { class: "mark" });
    tickMark.style.left = `${Math.min(100, mark)}%`;
    bar.append(tickMark);
  }
  return make("div", { class: "gauge" }, make("div", { class: "between small" }, make("span", { class: "quiet" }, label), make("b", {}, description)), bar);
}

// ---- actions -------------------------------------------------------------------------------------------------------

const COPIED_FOR = 2_000;
const acted = { key: null, text: "", isDone: true, isPending: false };

/** Take the token out of the address, so that a copied or bookmarked address holds none; keep it for this tab if it counts. */
function keepToken() {
  const query = new URLSearchParams(location.search), given = query.get("token");
  if (given === null) return;
  if (takesTokenOfAddress) token.set(given);
  query.delete("token");
  history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : "") + location.hash);
}

const mayAct = () => Boolean(held.sources?.hasControls && (isServed() || token.get()));
const title = (verb) => verb[0].toUpperCase() + verb.slice(1);

function controls(all) {
  const parts = all.map((each) => make("span", { class: "pair" }, mayAct() ? action(each) : null, copy(each)));
  if (acted.key === held.chosen && acted.text) parts.push(make("p", { class: `answer ${acted.isDone ? "quiet" : "bad"}`, role: "status" }, text(acted.text)));
  return parts;
}

function action(control) {
  const found = make("button", { type: "button", disabled: acted.isPending ? "" : null }, title(control.verb));
  found.addEventListener("click", () => confirmed(control));
  return found;
}

function copy(control) {
  const label = mayAct() ? "Copy" : `Copy: raybus ${control.verb}`;
  const found = make("button", { type: "button", title: control.command, "aria-label": `Copy the command: ${control.command}` }, label);
  found.addEventListener("click", async () => {
    await navigator.clipboard.writeText(control.command);
    found.textContent = "Copied";
    setTimeout(() => { found.textContent = label; }, COPIED_FOR);
  });
  return found;
}

function confirmed(control) {
  const key = held.chosen, dialog = $("confirm");
  $("confirm-title").replaceChildren(text(`${title(control.verb)} ${key}?`));
  $("confirm-effect").replaceChildren(text(control.effect));
  $("confirm-command").replaceChildren(text(control.command));
  $("confirm-button").textContent = title(control.verb);
  dialog.returnValue = "";
  dialog.onclose = () => { if (dialog.returnValue === "confirmed") act(key, control); };
  dialog.showModal();
}

async function act(key, { verb, generation }) {
  answered(key, `${title(verb)}…`, { isPending: true });
  try {
    const answer = await request("actions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ service: key, verb, generation }),
    });
    answered(key, (await answer.text()).trim(), { isDone: answer.ok });
  } catch (problem) {
    answered(key, `It is unknown whether ${verb} was performed: the dashboard does not answer (${problem.message}).`, { isDone: false });
  }
}

function answered(key, message, { isDone = true, isPending = false }) {
  Object.assign(acted, { key, text: message, isDone, isPending });
  if (held.detail?.row) showDetail();
}

// ---- logs ----------------------------------------------------------------------------------------------------------

let reading = 0;

function openLogs(service, { name, pods }) {
  $("logs").dataset.query = new URLSearchParams({ service, cluster: name });
  $("logs-title").textContent = `Logs of ${name}`;
  $("logs-pod").replaceChildren(...pods.map((each) => make("option", { value: each }, each)));
  $("logs").showModal();
  readLog();
}

async function readLog() {
  const query = new URLSearchParams($("logs").dataset.query), number = ++reading;
  query.set("pod", $("logs-pod").value);
  $("logs-text").textContent = "";
  $("logs-note").textContent = "Loading…";
  let note, log = "";
  try {
    const answer = await request(`logs?${query}`);
    if (answer.ok) {
      const found = await answer.json();
      log = found.text;
      note = [`Container ${found.container}`, found.isCut ? "the last 256 KiB" : "", found.isLate ? "not complete: the log took too long" : ""].filter(Boolean).join(", ");
    } else note = (await answer.text()).trim();
  } catch {
    note = "The dashboard does not answer.";
  }
  if (number !== reading) return;
  $("logs-note").textContent = note;
  $("logs-text").textContent = log;
  $("logs-text").scrollTop = $("logs-text").scrollHeight;
}

$("logs-pod").addEventListener("change", readLog);
$("logs-again").addEventListener("click", readLog);
$("logs").addEventListener("close", () => { reading++; $("logs-text").textContent = ""; });

// ---- an upgrade ----------------------------------------------------------------------------------------------------

function showUpgrade(detail) {
  showGates(detail.gates);
  const timelines = detail.timelines, timeline = timelines.find((each) => each.id === held.timeline) ?? timelines[0];
  $("upgrade").hidden = !timeline && !detail.receipt;
  $("no-upgrade").hidden = Boolean(timeline || detail.receipt);
  $("upgrade-choice").hidden = timelines.length < 2;
  renew("upgrade-select", timelines.map((each) => [each.id, each.began, each.outcome]), (all) => all.map(([id, began, outcome]) =>
    make("option", { value: id }, `${new Date(began).toLocaleString([], { hour12: false })} · ${outcome || "in progress"}`)));
  if (timeline) $("upgrade-select").value = timeline.id;
  for (const id of ["chart", "timeline"]) $(id).closest(".card").hidden = !timeline;
  const known = detail.receipt, isNewest = !timeline || timeline === timelines[0];
  const isOurs = known && (!timeline || (known.from === timeline.old && known.to === timeline.new));
  showReceipt(timeline?.receipt ?? (isNewest && isOurs ? known : null));
  $("upgrade-title").textContent = timeline && !timeline.outcome ? "Current upgrade" : "Last upgrade";
  if (timeline && timeline !== timelines[0]) $("upgrade-title").textContent = "Earlier upgrade";
  $("upgrade-line").textContent = "";
  if (!timeline) return;
  $("upgrade-line").textContent = `${timeline.old ? `${timeline.old} → ${timeline.new}` : `first cluster ${timeline.new}`}, ${timeline.outcome || "in progress"}, since ${new Date(timeline.began).toLocaleString([], { hour12: false })}`;
  showRange(timeline);
}

const VERDICTS = { Pass: ["good", "✓"], Fail: ["bad", "✕"], Inconclusive: ["warn", "▲"] };

/** The gates at the present weight, each with its newest figures. */
function showGates(gates) {
  $("gates").hidden = !gates;
  if (!gates) return;
  $("gates-title").textContent = `Gates at ${gates.weight} % of the traffic`;
  $("gates-note").textContent = `Since ${clock(gates.since)}; figures of ${clock(gates.seenAt)}.`;
  renew("gates-list", gates.gates, (all) => all.map((each) => {
    const [severity, mark] = VERDICTS[each.outcome] ?? ["plain", "·"];
    return make("li", { class: severity }, make("span", { class: "dot", "aria-hidden": "true" }, mark),
      make("b", {}, text(each.waits ? `${each.outcome}, the step waits` : each.outcome)), text(each.text));
  }));
}

function showRange(timeline) {
  const part = within(timeline, Number($("range").value));
  chart.show(part);
  renew("table", part.points, (points) => [table(part, points)]);
  renew("timeline", part.lines, (lines) => lines.length
    ? [...lines].reverse().map((each) => moment(each, Date.parse(timeline.began))) : [make("li", { class: "plain" }, "No event in this range.")]);
}

/** The last seconds of an upgrade, 0 for all: a value that holds at the beginning of the range is its first point. */
function within(timeline, seconds) {
  const from = (timeline.ended ? Date.parse(timeline.ended) : Date.now()) - seconds * 1000;
  if (!seconds || Date.parse(timeline.began) >= from) return timeline;
  const began = new Date(from).toISOString(), isIn = (each) => Date.parse(each.at) >= from;
  const before = timeline.points.filter((each) => !isIn(each)).at(-1);
  return {
    ...timeline, began, lines: timeline.lines.filter(isIn),
    points: [...(before ? [{ ...before, at: began }] : []), ...timeline.points.filter(isIn)],
    verdicts: timeline.verdicts.filter(isIn),
  };
}

function moment(line, began) {
  const at = Date.parse(line.at), mark = { good: "✓", warn: "▲", bad: "✕", plain: "·" }[line.severity];
  return make("li", { class: line.severity },
    make("time", { datetime: line.at, title: new Date(at).toString() }, clock(at)),
    make("span", { class: "after" }, `+${span((at - began) / 1000)}`),
    make("span", { class: "dot", "aria-hidden": "true" }, mark), text(line.text));
}

function table(timeline, points) {
  const heads = ["Time", "Old: traffic", "New: traffic", "Old: capacity", "New: capacity"];
  const rows = points.map((each) => make("tr", {}, make("td", {}, clock(each.at)),
    ...[each.old.traffic, each.new.traffic, each.old.capacity, each.new.capacity].map((value) => make("td", { class: "n" }, percent(value)))));
  return make("table", {}, make("caption", { class: "sr" }, `Old is ${timeline.old || "no cluster"}, new is ${timeline.new}.`),
    make("thead", {}, make("tr", {}, ...heads.map((each, index) => make("th", { scope: "col", class: index ? "n" : "" }, each)))), make("tbody", {}, ...rows));
}

function showReceipt(receipt) {
  $("receipt").hidden = !receipt;
  if (!receipt) return;
  renew("receipt-body", receipt, () => {
    const { preparing, shifting, draining } = receipt.seconds, unknown = (value, unit) => value === null ? "unknown" : `${value}${unit}`;
    const figures = [
      ["Outcome", receipt.outcome], ["Duration", span((Date.parse(receipt.finished) - Date.parse(receipt.started)) / 1000)],
      ["Peak surge", unknown(receipt.peakSurgePercent, " %")], ["Lowest capacity", unknown(receipt.lowestCapacityPercent, " %")],
      ["Requests cut", unknown(receipt.requestsCut, "")],
    ];
    const parts = [["preparing", preparing], ["shifting the traffic", shifting], ["draining", draining]];
    const bar = make("div", { class: "phases", "aria-hidden": "true" });
    parts.forEach(([, seconds], index) => {
      const part = make("i", { class: `p${index}` });
      part.style.flexGrow = String(Math.max(seconds, 0.01));
      bar.append(part);
    });
    return [
      make("dl", { class: "figures" }, ...figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value))))),
      bar,
      ...(receipt.steps ?? []).map(({ weight, since, gates }) => make("p", { class: "small" }, text(`${weight} % since ${clock(since)}: `),
        ...gates.map((each, index) => text(`${index ? "; " : ""}${each.outcome}: ${each.text}`, { good: "goodish", bad: "badish", warn: "warnish" }[VERDICTS[each.outcome]?.[0]])))),
      make("p", { class: "legend" }, ...parts.map(([name, seconds], index) => make("span", {}, make("i", { class: `p${index}` }), `${name} ${span(seconds)}`))),
    ];
  });
}

// ---- life ----------------------------------------------------------------------------------------------------------

$("filter").addEventListener("input", () => held.rows && showList());
$("upgrade-select").addEventListener("change", (event) => { held.timeline = event.target.value; if (held.detail?.row) showUpgrade(held.detail); });
$("range").addEventListener("change", () => { if (held.detail?.row) showUpgrade(held.detail); });
addEventListener("hashchange", follow);
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => { source?.close(); source = null; }, HIDDEN);
  else if (source === null) { receivedAt = Date.now(); connect(); }
});
keepToken();
setInterval(() => {
  if (source !== null && !isLost && Date.now() - receivedAt > SILENCE) { lost(); connect(); }
  tick();
  const timeline = chart.timeline;
  if (!timeline || timeline.ended || document.hidden) return;
  if (Number($("range").value) && held.detail?.row) showUpgrade(held.detail); else chart.draw();
}, 1000);
follow();
