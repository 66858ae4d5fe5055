// Shows what the server sends, and decides nothing but where it stands. All text goes in as text, never as markup.

import { Chart, clock, percent, span } from "./chart.js";

const SILENCE = 15_000, AGAIN = 3_000, HIDDEN = 60_000, LATE = 15;
const WIDE = matchMedia("(min-width: 860px)");
const TONES = ["bad", "busy", "good"];
const $ = (id) => document.getElementById(id);

const held = { standing: null, rows: null, detail: null, chosen: undefined, story: null };
const items = new Map();
const drawn = new Map();
let source = null, heardAt = Date.now(), isLost = false, retry = 0, hiding = 0;
const chart = new Chart($("chart"), $("readout"));

function make(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) found.setAttribute(key, value);
  found.append(...children.filter((each) => each !== null && each !== undefined));
  return found;
}

const text = (value, kind = "") => make("span", { class: `text ${kind}`.trim() }, String(value));
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const keyOf = (row) => `${row.namespace}/${row.name}`;

/** Build a part anew only when what it shows has changed, so that nothing loses its place. */
function renew(id, data, build) {
  const written = JSON.stringify(data);
  if (drawn.get(id) === written) return;
  drawn.set(id, written);
  $(id).replaceChildren(...build(data));
}

// ---- the stream ----------------------------------------------------------------------------------------------------

function connect() {
  source?.close();
  clearTimeout(retry);
  source = new EventSource(held.chosen === null ? "events" : `events?service=${encodeURIComponent(held.chosen)}`);
  const on = (name, take) => source.addEventListener(name, (event) => {
    heard();
    take(JSON.parse(event.data));
  });
  on("beat", () => {});
  on("standing", (data) => { held.standing = data; showStanding(); });
  on("rows", takeRows);
  on("detail", (data) => { held.detail = data; showDetail(); });
  source.addEventListener("open", heard);
  source.addEventListener("error", () => {
    lost();
    if (source.readyState === EventSource.CLOSED) retry = setTimeout(connect, AGAIN);
  });
}

function heard() {
  heardAt = Date.now();
  if (isLost) {
    isLost = false;
    showStanding();
  }
}

function lost() {
  isLost = true;
  showStanding();
}

function takeRows(data) {
  if (data.all || held.rows === null) held.rows = new Map();
  for (const each of data.rows) held.rows.set(keyOf(each), each);
  for (const each of data.gone) held.rows.delete(each);
  showList();
  if (held.chosen === null && WIDE.matches && held.rows.size) choose(sorted()[0]);
}

// ---- how far it can be trusted -------------------------------------------------------------------------------------

function showStanding() {
  const standing = held.standing;
  document.body.classList.toggle("stale", isLost);
  if (standing !== null) {
    const where = standing.namespace === null ? "all namespaces" : `namespace ${standing.namespace}`;
    $("scope").textContent = standing.context ? `${standing.context} · ${where}` : where;
    $("hearing").className = `hearing ${isLost ? "" : standing.hearing}`;
    $("hearing").textContent = isLost ? "not connected" : { live: "live over the bus", away: "looking every few seconds", connecting: "reaching the bus…" }[standing.hearing];
  }
  tick();
  const told = [];
  if (isLost) {
    told.push(["bad", "The dashboard on this machine does not answer.", `What you see is from ${clock(heardAt)}. If it has ended, start it again with: raybus dashboard`]);
  } else if (standing?.problem) {
    const since = standing.seenAt ? `What you see is from ${clock(standing.seenAt)}; it is tried again every few seconds.` : "It is tried again every few seconds.";
    told.push(["bad", "The API server cannot be asked.", `${standing.problem}${/[.?!]$/.test(standing.problem) ? "" : "."} ${since}`]);
  }
  if (!isLost && standing?.hearing === "away") {
    told.push(["busy", "No upgrade events: the bus cannot be reached. This page goes on by looking at the API server every few seconds; steps between two looks, and history, may be missing.", standing.deaf]);
  }
  renew("banners", told, (all) => all.map(([tone, head, more]) => make("div", { class: `banner ${tone}` }, make("b", {}, head), text(more, "more"))));
}

function tick() {
  const seen = held.standing?.seenAt;
  if (seen) {
    const age = Math.max(0, (Date.now() - Date.parse(seen)) / 1000);
    $("seen").textContent = age < 3 ? "seen just now" : `seen ${span(age)} ago`;
    $("seen").classList.toggle("late", isLost || age > LATE && !document.hidden && Boolean(held.standing.problem));
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
      make("span", { class: "between nowrap" }, text(row.name, "name"), badge(row)),
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

const badge = (row) => make("span", { class: `badge ${row.tone}` }, `${{ good: "✓", busy: "↻", bad: "!" }[row.tone]} ${row.phase}`);

function showEmpty() {
  const scope = held.standing?.namespace;
  const where = scope ? `in namespace ${scope}` : "in any namespace";
  renew("empty", [where, scope], () => [
    make("h2", {}, `No RayService ${where}`),
    scope
      ? make("p", {}, "Those of all namespaces: ", make("code", {}, "raybus dashboard -A"), ". Those of another one: ", make("code", {}, "raybus dashboard -n NAMESPACE"), ".")
      : null,
    make("p", {}, "As soon as one is applied it shows here; to check an installation: ", make("code", {}, "raybus doctor"), "."),
  ].filter(Boolean));
}

// ---- the one that was chosen ---------------------------------------------------------------------------------------

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
    held.story = null;
    connect();
  }
  if (held.rows !== null) showList();
  showDetail();
  if (held.chosen === null && WIDE.matches && held.rows?.size) choose(sorted()[0]);
}

function showDetail() {
  const detail = held.detail?.key === held.chosen ? held.detail : null, row = detail?.row;
  $("hint").hidden = Boolean(row);
  $("detail").hidden = !row;
  document.title = row ? `${keyOf(row)}: ${row.phase} · raybus` : "raybus";
  if (!row) {
    $("hint").textContent = hint(detail);
    return;
  }
  renew("head", [row, detail.problem, detail.lastEvent?.note, detail.causes], () => head(row, detail));
  $("causes").hidden = detail.causes.length === 0;
  renew("causes-list", detail.causes, (all) => all.map((each) => make("li", {}, text(each.what), make("br"), text(`→ ${each.remedy}`, "remedy"))));
  renew("clusters", [detail.clusters, Boolean(row.upgrade)], () => detail.clusters.length
    ? detail.clusters.map((each) => cluster(each, row)) : [make("p", { class: "quiet" }, "No cluster yet.")]);
  $("unseen-holder").hidden = detail.unseen.length === 0;
  renew("unseen", detail.unseen, (all) => all.map((each) => make("li", {}, each)));
  showStory(detail);
  tick();
}

function hint(detail) {
  if (detail) return detail.problem || `RayService ${held.chosen} is not there (any more).`;
  return held.chosen ? `Looking at ${held.chosen}…` : held.rows === null ? "Waiting for the first look…" : "Choose a RayService.";
}

function head(row, detail) {
  const parts = [
    make("h2", {}, text(row.name), badge(row)),
    make("p", { class: "facts" },
      make("span", {}, "namespace ", make("b", {}, row.namespace)),
      make("span", {}, "strategy ", make("b", {}, row.strategy)),
      make("span", {}, "endpoints ", make("b", {}, String(row.endpoints))),
      row.created ? make("span", {}, "age ", make("b", { "data-since": row.created })) : null),
  ];
  const told = new Set(detail.causes.map((each) => each.what));
  if (row.message && row.tone !== "good" && !told.has(row.message)) parts.push(make("p", { class: `message ${row.tone === "bad" ? "bad" : ""}` }, text(row.message)));
  if (row.upgrade) parts.push(progress(row.upgrade));
  if (detail.lastEvent && detail.lastEvent.note !== row.message && !told.has(detail.lastEvent.note)) parts.push(make("p", { class: "quiet small" }, text(`Kubernetes says last: ${detail.lastEvent.reason}: ${detail.lastEvent.note} (${detail.lastEvent.about})`)));
  if (detail.problem) parts.push(make("p", { class: "message bad" }, text(`This RayService could not be read just now: ${detail.problem}`)));
  return parts;
}

function progress(upgrade) {
  const isBack = upgrade.direction === "back", word = isBack ? "Rollback" : "Upgrade";
  if (!upgrade.steps) return make("p", { class: "progress" }, `${word}: all traffic moves at once, when the new cluster is ready.`);
  const label = `${word}: step ${upgrade.step} of ${upgrade.steps}`;
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
    const target = one.targetCapacity === null ? "" : ` of ${one.targetCapacity} % wanted`;
    found.append(gauge("Capacity", one.readyCapacity, one.targetCapacity, one.readyCapacity === null ? `ready not known${target}` : `${one.readyCapacity} % ready${target}`));
  }
  const lines = Object.entries(one.applications).map(([name, status]) => make("li", {}, text(`application ${name}: `), make("span", { class: status === "RUNNING" ? "goodish" : "warnish" }, status || "unknown")));
  for (const each of one.groups) {
    const others = Object.entries(each.others).map(([state, count]) => `${count} ${state}`).join(", ");
    lines.push(make("li", {}, text(`pods of ${each.name}: `), make("span", { class: each.ready === each.pods ? "goodish" : "warnish" }, `${each.ready} of ${each.pods} ready`),
      others ? text(`, ${others}`, "warnish") : null, each.restarts ? text(`, ${plural(each.restarts, "restart")}`, "warnish") : null));
  }
  if (!one.groups.length) lines.push(make("li", { class: "quiet" }, "no pods yet"));
  found.append(make("ul", { class: "pods" }, ...lines));
  if (one.note) found.append(make("p", { class: "small warnish" }, text(one.note)));
  return found;
}

function gauge(label, value, mark, words) {
  const bar = make("div", { class: "bar", role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": value ?? 0, "aria-valuetext": words });
  const fill = make("i");
  fill.style.width = `${Math.min(100, value ?? 0)}%`;
  bar.append(fill);
  if (mark !== null) {
    const tickMark = make("i", { class: "mark" });
    tickMark.style.left = `${Math.min(100, mark)}%`;
    bar.append(tickMark);
  }
  return make("div", { class: "gauge" }, make("div", { class: "between small" }, make("span", { class: "quiet" }, label), make("b", {}, words)), bar);
}

// ---- an upgrade ----------------------------------------------------------------------------------------------------

function showStory(detail) {
  const stories = detail.stories, story = stories.find((each) => each.id === held.story) ?? stories[0];
  $("upgrade").hidden = !story && !detail.receipt;
  $("no-upgrade").hidden = Boolean(story || detail.receipt);
  $("story-choice").hidden = stories.length < 2;
  renew("story", stories.map((each) => [each.id, each.began, each.outcome]), (all) => all.map(([id, began, outcome]) =>
    make("option", { value: id }, `${new Date(began).toLocaleString([], { hour12: false })} · ${outcome || "going on"}`)));
  if (story) $("story").value = story.id;
  for (const id of ["chart", "timeline"]) $(id).closest(".card").hidden = !story;
  const known = detail.receipt, isNewest = !story || story === stories[0];
  const isOurs = known && (!story || (known.from === story.old && known.to === story.new));
  showReceipt(story?.receipt ?? (isNewest && isOurs ? known : null));
  $("story-title").textContent = story && !story.outcome ? "The upgrade that goes on" : "The last upgrade";
  if (story && story !== stories[0]) $("story-title").textContent = "An earlier upgrade";
  $("story-line").textContent = "";
  if (!story) return;
  $("story-line").textContent = `${story.old ? `${story.old} → ${story.new}` : `first cluster ${story.new}`}, ${story.outcome || "going on"}, since ${new Date(story.began).toLocaleString([], { hour12: false })}`;
  chart.show(story);
  renew("table", story.points, (points) => [table(story, points)]);
  renew("timeline", story.lines, (lines) => [...lines].reverse().map((each) => moment(each, Date.parse(story.began))));
}

function moment(line, began) {
  const at = Date.parse(line.at), mark = { good: "✓", warn: "▲", bad: "✕", plain: "·" }[line.mood];
  return make("li", { class: line.mood },
    make("time", { datetime: line.at, title: new Date(at).toString() }, clock(at)),
    make("span", { class: "after" }, `+${span((at - began) / 1000)}`),
    make("span", { class: "dot", "aria-hidden": "true" }, mark), text(line.text));
}

function table(story, points) {
  const heads = ["Time", "Old: traffic", "New: traffic", "Old: capacity", "New: capacity"];
  const rows = points.map((each) => make("tr", {}, make("td", {}, clock(each.at)),
    ...[each.old.traffic, each.new.traffic, each.old.capacity, each.new.capacity].map((value) => make("td", { class: "n" }, percent(value)))));
  return make("table", {}, make("caption", { class: "sr" }, `Old is ${story.old || "no cluster"}, new is ${story.new}.`),
    make("thead", {}, make("tr", {}, ...heads.map((each, index) => make("th", { scope: "col", class: index ? "n" : "" }, each)))), make("tbody", {}, ...rows));
}

function showReceipt(receipt) {
  $("receipt").hidden = !receipt;
  if (!receipt) return;
  renew("receipt-body", receipt, () => {
    const { preparing, shifting, draining } = receipt.seconds, unknown = (value, unit) => value === null ? "not known" : `${value}${unit}`;
    const figures = [
      ["Outcome", receipt.outcome], ["Took", span((Date.parse(receipt.finished) - Date.parse(receipt.started)) / 1000)],
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
      make("p", { class: "legend" }, ...parts.map(([name, seconds], index) => make("span", {}, make("i", { class: `p${index}` }), `${name} ${span(seconds)}`))),
    ];
  });
}

// ---- life ----------------------------------------------------------------------------------------------------------

$("filter").addEventListener("input", () => held.rows && showList());
$("story").addEventListener("change", (event) => { held.story = event.target.value; if (held.detail?.row) showStory(held.detail); });
addEventListener("hashchange", follow);
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => { source?.close(); source = null; }, HIDDEN);
  else if (source === null) { heardAt = Date.now(); connect(); }
});
setInterval(() => {
  if (source !== null && !isLost && Date.now() - heardAt > SILENCE) { lost(); connect(); }
  tick();
  const story = chart.story;
  if (story && !story.ended && !document.hidden) chart.draw();
}, 1000);
follow();
